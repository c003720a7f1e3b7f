"""One member process of `ordercast demo --orderer regions` and `benches/chaos.py`: it sends to its groups, receives all
of them, and counts.

    python -m ordercast.cli.regions_member      (settings and orders on standard input, one JSON object a line)

Of each sender it keeps how many messages it has received and a checksum over their bytes: members that were in the same
groups all the time must have the same. Of what it sends it keeps to how many messages each set of groups has a right:
who was there all the time must have received exactly these. Between `watch` and a question it notes for how long
nothing of others was delivered, and how long a confirmed send took.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Final

from ordercast import (
    FIFO,
    RELIABLE,
    Batch,
    Left,
    Lost,
    Node,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
    SharedUnderlay,
    parse_service,
    run,
)
from ordercast.cli.children import Command, Saying
from ordercast.cli.gms_member import addresses_of
from ordercast.cli.mortal_regions import MortalRegions, mortal_regions
from ordercast.config import REGIONS_ORDERER, REGIONS_UNDERLAY
from ordercast.gms.embedded import EMBEDDED
from ordercast.groups.regions.served import ServedEngines

BULK_MESSAGES: Final = 25
MESSAGE_BYTES: Final = 100
PACE_S: Final = 0.025
STATUS_PACE_S: Final = 0.1
RELIABLE_TURNS: Final = 4  # one of so many batches may overtake
SHARED: Final = "shared"  # what all sets of groups have a right to
OWN: Final = "own"
TOLD: Final = ("repairs", "own_repairs", "retransmissions", "sent.push", "sent.pulled", "duplicates")
"""Counters that are told with each answer."""


class RegionsMember:
    """The application."""

    __slots__ = (
        "_command",
        "_common",
        "_common_groups",
        "_confirming_ns",
        "_delivered",
        "_groups",
        "_is_sending",
        "_last_ns",
        "_left",
        "_longest_confirm_ns",
        "_longest_ns",
        "_lost",
        "_me",
        "_node",
        "_owed",
        "_pace_s",
        "_received",
        "_regions",
        "_senders",
        "_sent",
        "_service",
        "_sums",
        "_tasks",
    )

    def __init__(self, node: Node, regions: SharedUnderlay, command: Command) -> None:
        settings = command.settings
        self._node = node
        self._regions = regions
        self._command = command
        self._groups: list[str] = settings["groups"]
        self._common: str = settings["common"]  # everybody is in it
        self._common_groups = frozenset(settings.get("shared", ()))
        self._service = parse_service(settings["service"])
        self._me = str(node.member)
        self._tasks: list[asyncio.Task[None]] = []
        # received
        self._delivered = 0
        self._lost = 0
        self._left = 0  # times that the service has put this node out
        self._received: Counter[str] = Counter()  # by sender
        self._sums: dict[str, tuple[int, int]] = {}  # sender -> messages in order, checksum
        self._last_ns = monotonic_ns()  # when something of another node was delivered last
        self._longest_ns = 0  # that nothing was, since `watch`
        # sending
        self._pace_s: float = settings.get("pace_s", PACE_S)
        self._sent = 0
        self._owed: Counter[str] = Counter()
        self._confirming_ns = 0  # since when a confirmed send is waited for; 0: none is
        self._longest_confirm_ns = 0  # since `watch`
        self._is_sending = False
        self._senders: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Do what the command says until it says stop, or is gone."""
        self._spawn(self._receive())
        if self._command.settings.get("is_shown", True):
            self._spawn(self._report())
        try:
            while (order := await self._command.next()) is not None:
                if not await self._obey(order):
                    return
        finally:
            for task in self._tasks:
                task.cancel()

    async def _obey(self, order: Saying) -> bool:
        """Whether there is more to do."""
        match order["is"]:
            case "send":
                self._is_sending = True
                self._senders = [self._spawn(self._send()), self._spawn(self._confirm())]
            case "watch":
                self._last_ns = monotonic_ns()
                self._longest_ns = self._longest_confirm_ns = 0
            case "lose":
                MortalRegions.loss = order["loss"]
            case "die holding the token":
                MortalRegions.is_condemned = True
            case "quiet":
                self._is_sending = False
                await asyncio.gather(*self._senders)
                await self._regions.flush()
                self._command.tell("flushed")
            case "ask":
                self._command.tell("answer", **self._state())
            case "stop":
                self._node.abort()
                self._command.tell("stopped")
                return False
        return True

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guard(work))
        self._tasks.append(task)
        return task

    async def _guard(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            self._command.tell("failed", text=f"{type(error).__name__}: {error}")

    async def _report(self) -> None:
        while True:
            self._command.tell("status", **self._state())
            await asyncio.sleep(STATUS_PACE_S)

    async def _receive(self) -> None:
        async for event in self._regions.batches():
            if isinstance(event, Batch):
                if event.sender != self._me:  # own messages come at once, whatever the network does
                    now_ns = monotonic_ns()
                    self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
                    self._last_ns = now_ns
                self._delivered += len(event)
                self._received[event.sender] += len(event)
                if event.service == FIFO:
                    count, checksum = self._sums.get(event.sender, (0, 0))
                    joined = b"".join(event.messages)
                    self._sums[event.sender] = (count + len(event), zlib.crc32(joined, checksum))
            elif isinstance(event, Lost):
                self._lost += event.count
            elif isinstance(event, Left):
                self._left += 1

    async def _send(self) -> None:
        """To all groups in turn, with one call for many of them."""
        turn = 0
        names = (self._groups * (1 + 2 * BULK_MESSAGES // len(self._groups)))[: 2 * BULK_MESSAGES]
        while self._is_sending:
            service = RELIABLE if turn % RELIABLE_TURNS == RELIABLE_TURNS - 1 else self._service
            at = turn % len(self._groups)
            groups = names[at : at + BULK_MESSAGES]
            with suppress(NotMember):  # it was put out, and comes back
                await self._regions.send_many(self._payloads(len(groups)), groups=groups, service=service)
                for group in groups:
                    self._owe([group])
            turn += 1
            await asyncio.sleep(self._pace_s)

    async def _confirm(self) -> None:
        """One message to several groups at once, which is acknowledged by all of their regions."""
        while self._is_sending:
            groups = [self._groups[0], self._common]
            self._confirming_ns = monotonic_ns()
            with suppress(NotMember, OutcomeUnknown):
                await self._regions.send(self._payloads(1)[0], groups=groups, service=FIFO, confirm=True)
                self._owe(groups)
            self._longest_confirm_ns = self._confirm_ns
            self._confirming_ns = 0
            await asyncio.sleep(self._pace_s)

    @property
    def _confirm_ns(self) -> int:
        """The longest that a confirmed send has taken, the one included that is waited for."""
        waiting_ns = monotonic_ns() - self._confirming_ns if self._confirming_ns else 0
        return max(self._longest_confirm_ns, waiting_ns)

    def _owe(self, groups: Collection[str]) -> None:
        """One message to these groups was sent."""
        self._owed[OWN if self._common_groups.isdisjoint(groups) else SHARED] += 1

    def _payloads(self, count: int) -> list[bytes]:
        first = self._sent
        self._sent += count
        name = self._node.name
        return [f"{name} {number} ".encode().ljust(MESSAGE_BYTES, b".") for number in range(first, first + count)]

    def _state(self) -> Saying:
        common = self._node.group(self._common)
        stats = common.stats
        return {
            "members": sorted(member.name for member in common.members),
            "neighbours": sorted(member.name for member in self._regions.members),
            "ring": [member.name for member in self._regions.members],  # in the order of the view
            "delivered": self._delivered,
            "lost": self._lost,
            "left": self._left,
            "received": dict(self._received),
            "owed": dict(self._owed),
            "counts": {name: stats[name] for name in TOLD},
            "dropped": MortalRegions.lost,
            "confirm_ms": self._confirm_ns / 1e6,
            "sums": {sender: list(each) for sender, each in sorted(self._sums.items())},
            "sent": self._sent,
            "stood_ms": max(self._longest_ns, monotonic_ns() - self._last_ns) / 1e6,
        }


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    is_embedded = settings.get("service_is", EMBEDDED) == EMBEDDED
    try:
        node = Node(
            settings["name"],
            settings.get("host", "127.0.0.1"),
            trace=settings["trace"],
            clock_offset_ns=settings["clock_offset_ns"],
            insecure=settings.get("insecure", False),
            gms=EMBEDDED if is_embedded else None,
            # This run's own: another service on the same machine must not be found.
            addresses=addresses_of(settings["run"]),
            regions=None if is_embedded else mortal_regions(ServedEngines()),
        )
    except (OrdercastError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    try:
        await node.join_many(settings["groups"], orderer=REGIONS_ORDERER)
        regions = await node.attach(REGIONS_UNDERLAY)
        host, port = node.address
        command.tell("joined", life=node.member.life, address=[host, port])
        await RegionsMember(node, regions, command).follow()
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")
    finally:
        node.abort()


if __name__ == "__main__":
    run(live())
    sys.exit(0)
