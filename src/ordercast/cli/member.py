"""One member process of `ordercast demo`: it sends, receives, counts, and does what the command says.

    python -m ordercast.cli.member      (settings and orders on standard input, one JSON object a line)

Traffic: mostly AGREED in batches, some SAFE and RESILIENT(1), some of each confirmed, now and then a message that is
larger than a block. All of them are ordered, so members that go on together must compute the same checksum over all
payloads: the application's own proof, beside that of the trace.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from time import monotonic_ns
from typing import Any, Final

from ordercast import AGREED, RESILIENT, SAFE, Batch, Group, Left, Node, OrdercastError, View, run
from ordercast.cli.children import Command

AGREED_MESSAGES: Final = 40
OTHER_MESSAGES: Final = 5
MESSAGE_BYTES: Final = 100
LARGE_BYTES: Final = 300_000
LARGE_EVERY: Final = 40
CONFIRM_PACE_S: Final = 0.02
STATUS_PACE_S: Final = 0.1


class DemoMember:
    """The application: what it has seen and what it is doing."""

    def __init__(self, node: Node, group: Group, command: Command) -> None:
        self._node = node
        self._group = group
        self._command = command
        # received
        self._view = group.view
        self._delivered = 0
        self._position = -1
        self._checksum = 0
        self._last_ns = monotonic_ns()
        self._longest_ns = 0  # between two deliveries, since the command asked
        self._resumes_in: str | None = None  # the view whose first delivery ends a standstill
        # sending
        self._sent = 0
        self._pace_s = 0.02
        self._is_sending = False
        self._senders: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Do what the command says until it says stop, or is gone."""
        while (order := await self._command.next()) is not None:
            match order["is"]:
                case "send":
                    self._is_sending = True
                    self._senders = [asyncio.create_task(self._send()), asyncio.create_task(self._confirm())]
                case "pace":
                    self._pace_s = order["seconds"]
                case "watch":
                    self._longest_ns = 0
                case "quiet":
                    await self._become_quiet()
                    self._command.tell("flushed")
                case "leave":
                    await self._become_quiet()
                    await self._group.leave(b"goodbye")
                    await self._node.close()
                    self._command.tell("left")
                case "ask":
                    self._command.tell("answer", **self._state())
                case "stop":
                    # Not `close`: a member that leaves owes nothing any more, and the verdict would judge nobody.
                    self._node.abort()
                    self._command.tell("stopped")
                    return

    async def report(self) -> None:
        while True:
            self._command.tell("status", **self._state())
            await asyncio.sleep(STATUS_PACE_S)

    async def receive(self) -> None:
        async for event in self._group.batches():
            if isinstance(event, Batch):
                now_ns = monotonic_ns()
                self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
                self._last_ns = now_ns
                self._delivered += len(event)
                self._position = event.position + len(event) - 1
                self._checksum = zlib.crc32(b"".join(event.messages), self._checksum)
                if self._resumes_in == event.view:
                    self._command.tell("resumed", view=event.view, stood_ms=self._longest_ns / 1e6)
                    self._resumes_in = None
            elif isinstance(event, View):
                self._view = event
                self._resumes_in = event.id
                self._command.tell(
                    "view",
                    id=event.id,
                    members=[member.name for member in event.members],
                    reason=event.reason.name.lower(),
                    subject=event.subject,
                )
            elif isinstance(event, Left) and not event.wanted:
                self._command.tell("excluded", text=event.text)

    def _state(self) -> dict[str, Any]:
        view = self._view
        return {
            "view": view.id if view is not None else "",
            "members": [member.name for member in view.members] if view is not None else [],
            "delivered": self._delivered,
            "sent": self._sent,
            "position": self._position,
            "checksum": self._checksum,
            "at_ns": monotonic_ns(),
        }

    async def _become_quiet(self) -> None:
        self._is_sending = False
        await asyncio.gather(*self._senders)
        self._senders = []
        await self._group.flush()

    async def _send(self) -> None:
        group = self._group
        turn = 0
        while self._is_sending:
            turn += 1
            await group.send_many(self._payloads(AGREED_MESSAGES), AGREED)
            if turn % 4 == 0:
                await group.send_many(self._payloads(OTHER_MESSAGES), SAFE)
            if turn % 4 == 2:
                await group.send_many(self._payloads(OTHER_MESSAGES), RESILIENT(1))
            if turn % LARGE_EVERY == 0:
                await group.send(self._payloads(1, LARGE_BYTES)[0], AGREED)
            # Even without a pause the others get their turn: a send that finds room does not give way.
            await asyncio.sleep(self._pace_s)

    async def _confirm(self) -> None:
        turn = 0
        while self._is_sending:
            turn += 1
            await self._group.send(self._payloads(1)[0], SAFE if turn % 2 else RESILIENT(1), confirm=True)
            await asyncio.sleep(CONFIRM_PACE_S)

    def _payloads(self, count: int, size: int = MESSAGE_BYTES) -> list[bytes]:
        first = self._sent
        self._sent += count
        name = self._node.name
        return [f"{name} {number} ".encode().ljust(size, b".") for number in range(first, first + count)]


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    try:
        node = Node(
            settings["name"],
            settings["host"],
            settings["port"],
            settings["peers"],
            trace=settings["trace"],
            clock_offset_ns=settings["clock_offset_ns"],
            insecure=settings["insecure"],
        )
        group = await node.join(settings["group"], create=settings["create"], header=b"hello")
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    member = DemoMember(node, group, command)
    command.tell("joined", member=str(node.member), members=[each.name for each in group.members])
    background = [asyncio.create_task(member.receive()), asyncio.create_task(member.report())]
    following = asyncio.create_task(member.follow())
    try:
        done, _ = await asyncio.wait([*background, following], return_when=asyncio.FIRST_COMPLETED)
        if background[0] in done and background[0].exception() is None:
            await following  # the events have ended because this member left
        for task in done:
            task.result()
    except (OrdercastError, OSError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")
    finally:
        for task in (*background, following):
            task.cancel()
        await asyncio.gather(*background, following, return_exceptions=True)
        node.abort()


if __name__ == "__main__":
    run(live())
    sys.exit(0)
