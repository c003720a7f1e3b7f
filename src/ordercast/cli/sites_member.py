"""One daemon process of `ordercast demo --orderer sites` and `benches/chaos.py`: it sends, receives, counts, and is cut
off when told to.

    python -m ordercast.cli.sites_member      (settings and orders on standard input, one JSON object a line)

For each view it keeps how many ordered messages it has delivered in it and a checksum over their bytes: daemons that go
through a view together must have the same. Between `watch` and a question it notes for how long nothing was delivered.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Final

from ordercast import AGREED, SAFE, Batch, Group, Node, OrdercastError, OutcomeUnknown, View, parse_service, run
from ordercast.cli.children import Command, Saying
from ordercast.cli.cut_engine import Hearing, cut_engines
from ordercast.cli.local_sites import sites_of_settings
from ordercast.sites import SitesConfig, load_sites

BULK_MESSAGES: Final = 40
MESSAGE_BYTES: Final = 100
PACE_S: Final = 0.02
STATUS_PACE_S: Final = 0.1
TICK_S: Final = 0.01
TOLD: Final = ("routes_computed", "links_opened", "strange_sites")
"""Counters of the group that are told with each answer."""


class SitesMember:
    """The application."""

    __slots__ = (
        "_checksum",
        "_command",
        "_delivered",
        "_group",
        "_hearing",
        "_in_view",
        "_is_sending",
        "_lag_ns",
        "_last_ns",
        "_longest_ns",
        "_node",
        "_pace_s",
        "_senders",
        "_sent",
        "_service",
        "_tasks",
        "_view",
        "_views",
    )

    def __init__(self, node: Node, group: Group, command: Command, hearing: Hearing) -> None:
        self._node = node
        self._group = group
        self._hearing = hearing
        self._command = command
        self._service = parse_service(command.settings["service"])
        self._view: View | None = group.view
        self._tasks: list[asyncio.Task[None]] = []
        # received
        self._delivered = 0
        self._in_view = 0
        self._checksum = 0
        self._views = 0
        self._last_ns = monotonic_ns()  # when something was delivered last
        self._longest_ns = 0  # that nothing was delivered since `watch`
        self._lag_ns = 0  # the same of this process's own turns
        # sending
        self._pace_s = PACE_S
        self._sent = 0
        self._is_sending = False
        self._senders: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Do what the command says until it says stop, or is gone."""
        self._spawn(self._receive())
        self._spawn(self._report())
        self._spawn(self._tick())
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
            case "cut":
                self._hearing.cut = frozenset((host, port) for host, port in order["addresses"])
            case "lose":
                self._hearing.far = frozenset((host, port) for host, port in order["addresses"])
                self._hearing.loss = order["loss"]
            case "pace":
                self._pace_s = order["seconds"]
            case "watch":
                self._last_ns = monotonic_ns()
                self._longest_ns = self._lag_ns = 0
            case "quiet":
                self._is_sending = False
                await asyncio.gather(*self._senders)
                await self._group.flush()
                await self._group.send(self._payloads(1)[0], AGREED, confirm=True)
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

    async def _tick(self) -> None:
        """How long this process gets no turn: it is stopped, or the machine is busy."""
        last_ns = monotonic_ns()
        while True:
            await asyncio.sleep(TICK_S)
            now_ns = monotonic_ns()
            self._lag_ns = max(self._lag_ns, now_ns - last_ns)
            last_ns = now_ns

    async def _receive(self) -> None:
        async for event in self._group.batches():
            if isinstance(event, Batch):
                now_ns = monotonic_ns()
                self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
                self._last_ns = now_ns
                self._delivered += len(event)
                if event.position >= 0:
                    self._in_view += len(event)
                    self._checksum = zlib.crc32(b"".join(event.messages), self._checksum)
            elif isinstance(event, View):
                ended = self._view.id if self._view is not None else ""
                self._command.tell(
                    "ended",
                    view=ended,
                    next=event.id,
                    members=[member.name for member in event.members],
                    came_with=sorted(event.came_with),
                    ordered=self._in_view,
                    checksum=self._checksum,
                )
                self._view = event
                self._views += 1
                self._in_view = self._checksum = 0

    async def _send(self) -> None:
        turn = 0
        while self._is_sending:
            turn += 1
            service = SAFE if turn % 4 == 0 else self._service
            await self._group.send_many(self._payloads(BULK_MESSAGES), service)
            await asyncio.sleep(self._pace_s)

    async def _confirm(self) -> None:
        while self._is_sending:
            with suppress(OutcomeUnknown):
                await self._group.send(self._payloads(1)[0], SAFE, confirm=True)
            await asyncio.sleep(self._pace_s)

    def _payloads(self, count: int) -> list[bytes]:
        first = self._sent
        self._sent += count
        name = self._node.name
        return [f"{name} {number} ".encode().ljust(MESSAGE_BYTES, b".") for number in range(first, first + count)]

    def _state(self) -> Saying:
        view, stats = self._view, self._group.stats
        return {
            "view": view.id if view is not None else "",
            "members": [member.name for member in view.members] if view is not None else [],
            "delivered": self._delivered,
            "ordered": self._in_view,
            "checksum": self._checksum,
            "sent": self._sent,
            "dropped": self._hearing.dropped,
            "lost": self._hearing.lost,
            "views": self._views,
            "stood_ms": max(self._longest_ns, monotonic_ns() - self._last_ns) / 1e6,
            "lag_ms": self._lag_ns / 1e6,
            "counts": {name: stats[name] for name in TOLD},
        }


def configuration(settings: Saying) -> SitesConfig:
    """A file, as in production, or what `local_sites` makes up."""
    return load_sites(settings["file"]) if "file" in settings else sites_of_settings(settings["sites"])


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    hearing = Hearing()
    try:
        config = configuration(settings)
        node = Node(
            settings["name"],
            trace=settings["trace"],
            clock_offset_ns=settings["clock_offset_ns"],
            insecure=settings["insecure"],
            site=settings["site"],
            sites=config,
            engines=cut_engines(config, hearing),
        )
    except (OrdercastError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    try:
        group = await node.join(settings["group"])
        command.tell("joined", life=node.member.life)
        await SitesMember(node, group, command, hearing).follow()
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")
    finally:
        node.abort()


if __name__ == "__main__":
    run(live())
    sys.exit(0)
