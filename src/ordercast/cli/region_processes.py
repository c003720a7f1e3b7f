"""Nodes on regions and replicas of their membership service as processes, and what `benches/chaos.py` does to them.

Nodes are in the groups of their *crew*, and in those that all crews share: each crew is a region of overlap. A process
is one node (`regions_member`) or one replica (`gms_member`). Nobody who is killed takes a part of the service along.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from ordercast.cli.children import Child, ChildFailed, Saying
from ordercast.cli.process_crew import ProcessCrew
from ordercast.cli.regions_member import OWN, SHARED
from ordercast.config import REGIONS_ORDERER
from ordercast.trace.run import RunInfo, software_version

MEMBER: Final = "ordercast.cli.regions_member"
REPLICA: Final = "ordercast.cli.gms_member"
SERVICE_PROCESSES: Final = "processes"  # not `embedded`
START_TIMEOUT_S: Final = 90.0
VIEW_TIMEOUT_S: Final = 90.0
OWN_GROUPS: Final = 10  # of each crew
SHARED_GROUPS: Final = 5
REST_S: Final = 3.0
"""What a node that came later lacks in the end is not counted, and no acknowledgement waits for a member that does not
keep a block for others. Tokens, one each second, bring it."""


@dataclass(slots=True)
class RegionsVenue:
    """Where nodes and replicas run."""

    trace: Path
    crews: Mapping[str, Sequence[str]]
    replicas: Sequence[str]
    hosts: Mapping[str, str] = field(default_factory=dict)  # of a node or replica; loopback by default
    prefixes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # put before its command
    insecure: bool = False
    pace_s: float = 0.1  # between two batches of a node

    def crew_of(self, name: str) -> Sequence[str]:
        return next(each for each in self.crews.values() if name in each)


class RegionProcesses:
    """All processes of one venue."""

    __slots__ = ("_lives", "_nodes", "_run", "_stayed", "_words", "crashed", "offset_ns", "replicas", "venue")

    def __init__(self, venue: RegionsVenue) -> None:
        self.venue = venue
        self._nodes = ProcessCrew("nodes", START_TIMEOUT_S)
        self.replicas = ProcessCrew("replicas", START_TIMEOUT_S)
        self.crashed: dict[tuple[str, int], int] = {}  # (name, life) -> when, on the run clock
        self.offset_ns = time_ns() - monotonic_ns()
        self._lives: dict[str, int] = {}
        self._stayed: set[str] = set()  # nodes that were there before anybody sent, and were not killed
        self._words: list[tuple[str, dict[str, Any]]] = []  # what a node that is started later is told first
        self._run = f"chaos-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    @property
    def children(self) -> dict[str, Child]:
        """Nodes that live."""
        return self._nodes.children

    @property
    def names(self) -> list[str]:
        """Of all nodes, living or not."""
        return [name for crew in self.venue.crews.values() for name in crew]

    # Coming and going

    async def start_replicas(self, names: Collection[str]) -> None:
        """Returns when each of them knows the directory."""
        for name in names:
            await self.replicas.start(name, REPLICA, self._settings(name), self.venue.prefixes.get(name, ()))
        for name in names:
            said = await self.replicas.children[name].expect("ready", START_TIMEOUT_S)
            self._lives[name] = said["life"]

    async def start(self, names: Collection[str]) -> float:
        """Start nodes; returns when each of them is in its groups. How long it took until all processes were up."""
        began_s = monotonic()
        shared = [f"shared {number}" for number in range(SHARED_GROUPS)]
        for name in names:
            crew = next(crew for crew, each in self.venue.crews.items() if name in each)
            settings = {
                **self._settings(name),
                "groups": [*(f"{crew} {number}" for number in range(OWN_GROUPS)), *shared],
                "common": shared[0],
                "shared": shared,
                "service": "FIFO",
                "service_is": SERVICE_PROCESSES,
                "pace_s": self.venue.pace_s,
                "is_shown": False,
            }
            await self._nodes.start(name, MEMBER, settings, self.venue.prefixes.get(name, ()))
        for name in names:
            await self.children[name].expect("up", START_TIMEOUT_S)
        up_s = monotonic() - began_s
        for name in names:
            self._lives[name] = (await self.children[name].expect("joined", START_TIMEOUT_S))["life"]
            for word, fields in self._words:
                self.children[name].tell(word, **fields)
        return up_s

    def send(self) -> None:
        """Everybody who is there begins to send, and whoever comes later."""
        self._stayed = set(self.children)
        self.tell("send")
        self._words.append(("send", {}))

    def lose(self, loss: float) -> None:
        """From now on nodes lose what they receive with this probability. Replicas lose nothing."""
        self.tell("lose", loss=loss)
        self._words.append(("lose", {"loss": loss}))

    async def crash(self, names: Collection[str]) -> None:
        """SIGKILL of nodes, one right after the other."""
        at_ns = await self._nodes.crash(names) + self.offset_ns
        self._bury(names, at_ns)

    async def crash_replica(self, name: str) -> None:
        self.crashed[name, self._lives[name]] = await self.replicas.crash([name]) + self.offset_ns

    async def crash_holder(self, name: str) -> None:
        """The process kills itself, in the pass in which it has the token."""
        self.children[name].tell("die holding the token")
        self._bury([name], await self._nodes.await_death(name, VIEW_TIMEOUT_S) + self.offset_ns)

    async def pause(self, name: str, seconds: float) -> None:
        await self._nodes.pause(name, seconds)

    def _bury(self, names: Collection[str], at_ns: int) -> None:
        for name in names:
            self.crashed[name, self._lives[name]] = at_ns
            self._stayed.discard(name)

    async def stop(self) -> None:
        """Stop everybody where he is: a node that leaves owes nothing any more, and could not be judged."""
        for crew in (self._nodes, self.replicas):
            await crew.ask("stop", "stopped")
            await asyncio.gather(*(child.end() for child in crew.children.values()))

    async def kill(self) -> None:
        """End every process without a warning, whatever happened before."""
        await asyncio.gather(self._nodes.kill(), self.replicas.kill())

    # What is said to them

    def tell(self, word: str, **fields: Any) -> None:
        self._nodes.tell(word, **fields)

    async def watch(self) -> None:
        """From now on nodes note how long deliveries, and confirmed sends, stand still."""
        self.tell("watch")
        await self.ask()

    async def ask(self) -> dict[str, Saying]:
        return await self._nodes.ask()

    async def until(self, names: Collection[str]) -> dict[str, Saying]:
        """Wait until these know one another and nobody else, in a shared group and in their regions; what all said."""

        def knows(name: str, said: Saying) -> bool:
            near = set(names) & set(self.venue.crew_of(name))
            return set(said["members"]) == set(names) and set(said["neighbours"]) == near

        return await self._nodes.until(
            lambda answers: all(knows(name, answers[name]) for name in names),
            lambda said: f"{' '.join(said['members'])}, near {' '.join(said['neighbours'])}",
            VIEW_TIMEOUT_S,
        )

    async def leading_replica(self, without: Collection[str] = ()) -> str:
        """The replica that leads the service, as soon as there is one that is not among `without`."""
        deadline_s = monotonic() + VIEW_TIMEOUT_S
        while monotonic() < deadline_s:
            for name, said in (await self.replicas.ask()).items():
                if said["is_leading"] and name not in without:
                    return name
            await asyncio.sleep(0.02)
        raise ChildFailed(f"no replica has led the service within {VIEW_TIMEOUT_S:g} s")

    async def drain(self) -> tuple[dict[str, Saying], list[str]]:
        """Wait until nobody sends, and everybody has got everything; what they said then, and what somebody lacks."""
        await self._nodes.ask("quiet", "flushed")
        deadline_s = monotonic() + VIEW_TIMEOUT_S
        while True:
            answers = await self.ask()
            faults = self.faults(answers)
            if faults and monotonic() < deadline_s:
                await asyncio.sleep(0.2)
                continue
            await asyncio.sleep(REST_S)
            answers = await self.ask()
            return answers, self.faults(answers)

    # The proof

    def faults(self, answers: Mapping[str, Saying]) -> list[str]:
        """What nodes lack, or have received twice or in another order."""
        return faults_of(answers, self.venue.crews, self._lives, self._stayed)

    def write_info(self, parameters: Mapping[str, Any]) -> None:
        """`run.json` of the trace."""
        RunInfo(
            run_id=uuid.uuid4().hex[:16],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            source="network",
            clock="one-host",
            seed=None,
            orderer=REGIONS_ORDERER,
            services=("FIFO", "RELIABLE"),
            parameters=dict(parameters),
            software_version=software_version(),
            clock_offset_ns=self.offset_ns,
        ).write(self.venue.trace)

    def _settings(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "host": self.venue.hosts.get(name, "127.0.0.1"),
            "insecure": self.venue.insecure,
            "trace": str(self.venue.trace),
            "clock_offset_ns": self.offset_ns,
            "run": self._run,
        }


def faults_of(
    answers: Mapping[str, Saying],
    crews: Mapping[str, Sequence[str]],
    lives: Mapping[str, int],
    stayed: Collection[str],
) -> list[str]:
    """Nodes that were there all the time have received exactly what senders that live have sent, and of those that were
    killed the same as their neighbours. A node that was put out although it lives owes nothing, and is owed nothing."""
    found = []
    whole = {name: said for name, said in answers.items() if not said["left"]}
    judged = {name: said for name, said in whole.items() if name in stayed}
    for crew, names in crews.items():
        near = {name: judged[name] for name in names if name in judged}
        for name, said in near.items():
            for sender, told in whole.items():
                owed = told["owed"].get(SHARED, 0) + (told["owed"].get(OWN, 0) if sender in names else 0)
                got = said["received"].get(f"{sender}/{lives[sender]}", 0)
                if got != owed:
                    found.append(f"{name} has received {got:,} of {owed:,} messages of {sender}")
            if said["lost"]:
                found.append(f"{name} was told that {said['lost']} blocks are lost")
        if len({json.dumps(said["sums"], sort_keys=True) for said in near.values()}) > 1:
            found.append(f"nodes of {crew} have received different messages: {', '.join(near)}")
    return found
