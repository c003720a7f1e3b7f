"""One daemon process of `ordercast demo --orderer sites`: it sends, receives, counts, and is cut off when told to.

    python -m ordercast.cli.sites_member      (settings and orders on standard input, one JSON object a line)

For each view it keeps how many ordered messages it has delivered in it and a checksum over their bytes: daemons that go
through a view together must have the same.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from contextlib import suppress
from typing import Any, Final

from ordercast import AGREED, SAFE, Batch, Group, Node, OrdercastError, OutcomeUnknown, View, parse_service, run
from ordercast.cli.children import Command, Saying
from ordercast.cli.cut_engine import CutEngine, cut_engines
from ordercast.cli.local_sites import sites_of_settings

BULK_MESSAGES: Final = 40
MESSAGE_BYTES: Final = 100
PACE_S: Final = 0.02
STATUS_PACE_S: Final = 0.1


class SitesMember:
    """The application."""

    __slots__ = (
        "_checksum",
        "_command",
        "_delivered",
        "_group",
        "_in_view",
        "_is_sending",
        "_node",
        "_senders",
        "_sent",
        "_service",
        "_tasks",
        "_view",
    )

    def __init__(self, node: Node, group: Group, command: Command) -> None:
        self._node = node
        self._group = group
        self._command = command
        self._service = parse_service(command.settings["service"])
        self._view: View | None = group.view
        self._tasks: list[asyncio.Task[None]] = []
        # received
        self._delivered = 0
        self._in_view = 0
        self._checksum = 0
        # sending
        self._sent = 0
        self._is_sending = False
        self._senders: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Do what the command says until it says stop, or is gone."""
        self._spawn(self._receive())
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
            case "cut":
                CutEngine.cut = frozenset((host, port) for host, port in order["addresses"])
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

    async def _receive(self) -> None:
        async for event in self._group.batches():
            if isinstance(event, Batch):
                self._delivered += len(event)
                if event.position >= 0:
                    self._in_view += len(event)
                    self._checksum = zlib.crc32(b"".join(event.messages), self._checksum)
            elif isinstance(event, View):
                ended = self._view.id if self._view is not None else ""
                self._command.tell("ended", view=ended, ordered=self._in_view, checksum=self._checksum)
                self._view = event
                self._in_view = self._checksum = 0

    async def _send(self) -> None:
        turn = 0
        while self._is_sending:
            turn += 1
            service = SAFE if turn % 4 == 0 else self._service
            await self._group.send_many(self._payloads(BULK_MESSAGES), service)
            await asyncio.sleep(PACE_S)

    async def _confirm(self) -> None:
        while self._is_sending:
            with suppress(OutcomeUnknown):
                await self._group.send(self._payloads(1)[0], SAFE, confirm=True)
            await asyncio.sleep(PACE_S)

    def _payloads(self, count: int) -> list[bytes]:
        first = self._sent
        self._sent += count
        name = self._node.name
        return [f"{name} {number} ".encode().ljust(MESSAGE_BYTES, b".") for number in range(first, first + count)]

    def _state(self) -> Saying:
        view = self._view
        return {
            "view": view.id if view is not None else "",
            "members": [member.name for member in view.members] if view is not None else [],
            "delivered": self._delivered,
            "ordered": self._in_view,
            "checksum": self._checksum,
            "sent": self._sent,
            "dropped": CutEngine.dropped,
        }


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    config = sites_of_settings(settings["sites"])
    try:
        node = Node(
            settings["name"],
            trace=settings["trace"],
            clock_offset_ns=settings["clock_offset_ns"],
            sites=config,
            engines=cut_engines(config),
        )
    except (OrdercastError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    try:
        group = await node.join(settings["group"])
        command.tell("joined", life=node.member.life)
        await SitesMember(node, group, command).follow()
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")
    finally:
        node.abort()


if __name__ == "__main__":
    run(live())
    sys.exit(0)
