"""Member processes in one group, and what is done to them: shared by `demo`, `benches/chaos.py` and tests of failures.

The victim dies by SIGKILL while it assigns sequence numbers: as the sequencer, or as the token site, in the pass in
which the token has arrived and is not passed on yet. The token goes round many times a second, so that moment cannot be
hit from outside. The member is told to do it (`mortal.MortalEngine`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from ordercast.api.terms import PATIENCE_S
from ordercast.cli.children import Child, ChildFailed, Saying
from ordercast.orderers import ORDERERS
from ordercast.service import parse_service
from ordercast.sim.checkers import Verdict, check_all
from ordercast.trace.convert import convert
from ordercast.trace.run import RunInfo, software_version
from ordercast.trace.schema import Row
from ordercast.trace.store import read_trace

MEMBER: Final = "ordercast.cli.member"
NAMES: Final = ("ann", "bob", "cleo", "dan", "eve")
MIXED_IN: Final = ("AGREED", "RESILIENT(1)", "MAJORITY", "SAFE")
"""What members send besides the service that they are told, where their orderer gives it."""

START_TIMEOUT_S: Final = 60.0
RECOVERY_TIMEOUT_S: Final = 60.0
DRAIN_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
SETTLE_S: Final = 1.0
"""How long after a pause views are watched: a suspected member is out by then, or will not be."""

CHANGES: Final = frozenset({"create", "join", "leave", "reset", "expel", "restart"})
"""Reasons of views that change the members: locks make views, too."""

_groups = count()


@dataclass(slots=True)
class Venue:
    """Where members run, and what."""

    trace: Path
    orderer: str = "token"
    service: str = "AGREED"
    addresses: Sequence[tuple[str, int]] = (("127.0.0.1", 0),) * len(NAMES)
    peers: Sequence[str] = ()
    prefix: str = ""  # put before each member's command; {n} is its number from 1 on
    insecure: bool = False
    anticipate: bool = True  # where the orderer leaves the choice
    loss: float = 0.0  # the probability with which a member loses a datagram that arrives
    patience_s: float = PATIENCE_S  # how long a member that does not receive may hold up the others
    data: Path | None = None  # has a folder for each member, which it is restarted with


@dataclass(slots=True)
class Pause:
    """What a stopped member did to the others."""

    views: int  # that changed because of it
    lags_ms: dict[str, float]  # the longest time that each member's own loop stood still, the stopped one's included


@dataclass(slots=True)
class Judgement:
    """What the traces say."""

    verdict: Verdict
    confirmed: int  # sends that returned with their promise
    lost: int  # of these, broken promises
    rows: list[Row]


@dataclass(slots=True)
class Drained:
    """What members had when nothing moved any more."""

    delivered: dict[str, int] = field(default_factory=dict)
    is_same: bool = False  # those that came in together and were never excluded: the same, byte for byte, in one order


def mixed_in(orderer: str) -> list[str]:
    """What members of a group with this orderer send besides what they are told."""
    return [service for service in MIXED_IN if parse_service(service).rank in ORDERERS[orderer].ranks]


class ProcessGroup:
    """The member processes of one group."""

    __slots__ = (
        "_group",
        "_is_created",
        "_lives",
        "_restarted",
        "children",
        "crashed",
        "forgetful",
        "offset_ns",
        "outside",
        "venue",
    )

    def __init__(self, venue: Venue) -> None:
        self.venue = venue
        self.children: dict[str, Child] = {}  # the members
        self.outside: dict[str, Child] = {}  # processes that have not joined: they may call the group
        self.crashed: dict[tuple[str, int], int] = {}  # (name, life) -> when, on the run clock
        self.forgetful: set[str] = set()  # restarted without their folder
        self.offset_ns = time_ns() - monotonic_ns()
        self._group = f"processes-{os.getpid()}-{next(_groups)}"
        self._lives: dict[str, int] = {}
        self._restarted: set[str] = set()
        self._is_created = False

    # Coming and going.

    async def start(self, number: int, *, joins: bool = True) -> Child:
        """Start a member; one that does not join yet may call the group from outside."""
        venue, name = self.venue, NAMES[number]
        host, port = venue.addresses[number]
        settings = {
            "name": name,
            "host": host,
            "port": port,
            "peers": list(venue.peers),
            "trace": str(venue.trace),
            "clock_offset_ns": self.offset_ns,
            "insecure": venue.insecure,
            "group": self._group,
            "orderer": venue.orderer,
            "anticipate": venue.anticipate,
            "service": venue.service,
            "patience": venue.patience_s,
            "loss": venue.loss,
            "data_dir": None if venue.data is None else str(venue.data / name),
        }
        child = await Child.start(name, MEMBER, settings, shlex.split(venue.prefix.format(n=number + 1)))
        self.outside[name] = child
        self._lives[name] = (await child.expect("ready", START_TIMEOUT_S))["life"]
        if joins:
            await self.join(child)
        return child

    async def join(self, child: Child) -> None:
        """Let a member join; the first creates the group. A restarted one finds out what is right."""
        is_first, self._is_created = not self._is_created, True
        create = None if child.name in self._restarted else is_first
        await child.ask("join", "joined", START_TIMEOUT_S, create=create)
        self.children[child.name] = self.outside.pop(child.name)

    async def crash(self, victims: Collection[str]) -> None:
        """Kill members with SIGKILL, all at the same moment."""
        children = [self.children.pop(name) for name in victims]
        for child in children:
            child.signal(signal.SIGKILL)
        at_ns = monotonic_ns() + self.offset_ns
        for child in children:
            await child.fall(DRAIN_TIMEOUT_S)
            self.crashed[child.name, self._lives[child.name]] = at_ns

    async def restart(self, numbers: Collection[int], *, without_folder: Collection[int] = ()) -> float:
        """Start members that have crashed, all at the same moment; returns when they are in the group. How many seconds
        it took until all processes were up, and had begun to join."""

        async def come_back(number: int) -> float:
            child = await self.start(number, joins=False)
            up_s = monotonic()
            await self.join(child)
            return up_s

        for number in without_folder:
            if self.venue.data is not None:
                shutil.rmtree(self.venue.data / NAMES[number])
                self.forgetful.add(NAMES[number])
        self._restarted |= {NAMES[number] for number in numbers}
        began_s = monotonic()
        return max(await asyncio.gather(*map(come_back, numbers))) - began_s

    async def leave(self, child: Child) -> None:
        """Let a member leave in order, and its process end."""
        await child.ask("leave", "left", DRAIN_TIMEOUT_S)
        del self.children[child.name]
        await child.end()

    async def stop(self) -> None:
        """Stop all members where they are. A member that leaves owes nothing any more, and could not be judged."""
        children = list(self.children.values())
        await asyncio.gather(*(child.ask("stop", "stopped", DRAIN_TIMEOUT_S) for child in children))
        await asyncio.gather(*(child.end() for child in children))

    async def kill(self) -> None:
        """End every process without a warning, whatever happened before."""
        # Not one after the other: what is interrupted should be gone at once.
        await asyncio.gather(*(child.kill() for child in (*self.children.values(), *self.outside.values())))

    # What is said to them.

    def tell(self, word: str, **fields: Any) -> None:
        for child in self.children.values():
            child.tell(word, **fields)

    async def ask(self) -> dict[str, Saying]:
        """Where each member is; everything that was told before is done."""
        children = list(self.children.values())
        answers = await asyncio.gather(*(child.ask("ask", "answer", DRAIN_TIMEOUT_S) for child in children))
        return {child.name: answer for child, answer in zip(children, answers, strict=True)}

    async def first_to(self, word: str, timeout_s: float) -> str:
        """Wait until one of them has said something of that name; the name of that member."""
        deadline_s = monotonic() + timeout_s
        while True:
            for child in self.children.values():
                if child.heard(word):
                    return child.name
                child.check()
            if monotonic() > deadline_s:
                raise ChildFailed(f"none of {', '.join(self.children)} came to {word!r} within {timeout_s:g} s")
            await asyncio.sleep(POLL_S)

    # What happens to them.

    async def kill_ordering(self, victim: Child) -> None:
        """Kill a member with SIGKILL while it orders: the sequencer always does, the token comes round."""
        await self.watch()
        victim.tell("die")
        await victim.fall(DRAIN_TIMEOUT_S)
        self.crashed[victim.name, self._lives[victim.name]] = monotonic_ns() + self.offset_ns
        del self.children[victim.name]

    async def watch(self) -> None:
        """From now on members note how long deliveries, and they themselves, stand still."""
        self.tell("watch")
        await self.ask()
        for child in self.children.values():
            child.forget("resumed")

    async def stand_still(self, gone: Collection[str]) -> dict[str, float]:
        """Wait until the others go on without these; how many ms deliveries had stood still at each of them."""
        stood_ms = {}
        for child in [child for name, child in self.children.items() if name not in gone]:
            while True:
                resumed = await child.expect("resumed", RECOVERY_TIMEOUT_S)
                if not set(resumed["members"]) & set(gone):
                    break
            stood_ms[child.name] = round(resumed["stood_ms"], 1)
        return stood_ms

    async def pause(self, child: Child, seconds: float) -> Pause:
        """Stop a member for a while (SIGSTOP). A short pause is no failure: the others wait for it, the view stays."""
        before = self.changes()
        await self.watch()
        child.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            child.signal(signal.SIGCONT)
        await self.ask()
        await asyncio.sleep(SETTLE_S)
        answers = await self.ask()
        return Pause(self.changes() - before, {name: round(answer["lag_ms"], 1) for name, answer in answers.items()})

    def changes(self) -> int:
        """Views of changed members that the running ones have seen so far, all together."""
        return sum(view["reason"] in CHANGES for child in self.children.values() for view in child.heard("view"))

    async def until_together(
        self, members: Collection[str], timeout_s: float, *, delivering: bool = False
    ) -> dict[str, Saying]:
        """Wait until all running members are in one view of exactly these, and, if wanted, each has delivered something
        in it; what they said then."""
        deadline_s = monotonic() + timeout_s
        while True:
            answers = await self.ask()
            views = {answer["view"] for answer in answers.values()}
            is_one = len(views) == 1 and all(set(answer["members"]) == set(members) for answer in answers.values())
            if is_one and (not delivering or all(answer["in_view"] for answer in answers.values())):
                return answers
            if monotonic() > deadline_s:
                seen = {name: " ".join(answer["members"]) for name, answer in answers.items()}
                raise ChildFailed(f"{', '.join(members)} are not in one view after {timeout_s:g} s: {seen}")
            await asyncio.sleep(POLL_S)

    async def drain(self) -> Drained:
        """Wait until no member has anything to send and all have delivered the same."""
        children = list(self.children.values())
        await asyncio.gather(*(child.ask("quiet", "flushed", DRAIN_TIMEOUT_S) for child in children))
        deadline_s = monotonic() + DRAIN_TIMEOUT_S
        while True:
            answers = await self.ask()
            if len({answer["position"] for answer in answers.values()}) == 1:
                break
            if monotonic() > deadline_s:
                raise ChildFailed(f"{', '.join(self.children)} have not delivered the same after {DRAIN_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)
        return Drained({name: answer["delivered"] for name, answer in answers.items()}, self._is_same(answers))

    def _is_same(self, answers: Mapping[str, Saying]) -> bool:
        """Whether members that have been in since the same time have delivered the same. The first ones begin to send
        when all are in; restarted ones have what came from their first view on."""
        sums: dict[str, set[tuple[int, int]]] = {}
        for name, answer in answers.items():
            if not answer["exclusions"]:
                since = answer["first_view"] if name in self._restarted else ""
                sums.setdefault(since, set()).add((answer["ordered"], answer["checksum"]))
        return bool(sums) and all(len(each) == 1 for each in sums.values())

    # The proof.

    def write_info(self, parameters: Mapping[str, Any]) -> None:
        """`run.json` of the trace."""
        venue = self.venue
        RunInfo(
            run_id=uuid.uuid4().hex[:16],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            source="network",
            clock="one-host",
            seed=None,
            orderer=venue.orderer,
            services=tuple(dict.fromkeys((venue.service, *mixed_in(venue.orderer)))),
            parameters={**parameters, "multicast": not venue.peers, "anticipate": venue.anticipate, "loss": venue.loss},
            software_version=software_version(),
            clock_offset_ns=self.offset_ns,
        ).write(venue.trace)

    def judge(self, expect: Sequence[str]) -> Judgement:
        """Turn the traces into Parquet, and check every property over what was read back from it."""
        convert(self.venue.trace, crashed=self.crashed)
        info, rows = read_trace(self.venue.trace)
        verdict = check_all(rows, clock=info.clock, quiet=True, expect=expect, partitions=info.partitions)
        confirmed = sum(row.count or 0 for row in rows if row.kind == "confirm")
        return Judgement(verdict, confirmed, verdict.properties["promises"].total, rows)
