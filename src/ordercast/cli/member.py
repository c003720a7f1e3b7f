"""One member process of `ordercast demo` and `benches/chaos.py`: it sends, receives, counts, and does what it is told.

    python -m ordercast.cli.member      (settings and orders on standard input, one JSON object a line)

Traffic: mostly the service that was asked for, in batches; some SAFE and RESILIENT(1), some of each confirmed; now and
then a message that is larger than a block. Members that go on together must compute the same checksum over all ordered
payloads: the application's own proof, besides that of the trace.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from contextlib import suppress
from itertools import cycle
from time import monotonic_ns
from typing import Any, Final

from ordercast import (
    AGREED,
    MAJORITY,
    RESILIENT,
    SAFE,
    Batch,
    Group,
    Left,
    Node,
    OrdercastError,
    OutcomeUnknown,
    Stalled,
    Uncertain,
    View,
    parse_service,
    run,
)
from ordercast.cli.children import Command, Saying
from ordercast.cli.mortal import MortalEngine, mortal_engine
from ordercast.orderers import ORDERERS
from ordercast.view import RECOVERIES, Reason

BULK_MESSAGES: Final = 40
OTHER_MESSAGES: Final = 5
MESSAGE_BYTES: Final = 100
LARGE_BYTES: Final = 300_000
LARGE_EVERY: Final = 40
PACE_S: Final = 0.02
"""Between two rounds of sending, where the command says nothing else."""

CONFIRM_PACE_S: Final = 0.02
STATUS_PACE_S: Final = 0.1
TICK_S: Final = 0.02
HANDLER: Final = 2
CALL_TIMEOUT_S: Final = 20.0
CONFIRMED: Final = (SAFE, RESILIENT(1), MAJORITY)
"""The services of messages that are confirmed, in turn; those that the orderer gives."""


class DemoMember:
    """The application: what it has seen and what it is doing."""

    __slots__ = (
        "_checksum",
        "_command",
        "_delivered",
        "_exclusions",
        "_first_view",
        "_group",
        "_in_view",
        "_is_sending",
        "_lag_ns",
        "_last_ns",
        "_listens",
        "_longest_ns",
        "_node",
        "_ordered",
        "_pace_s",
        "_position",
        "_resumes_in",
        "_senders",
        "_sent",
        "_service",
        "_tasks",
        "_view",
    )

    def __init__(self, node: Node, command: Command) -> None:
        self._node = node
        self._command = command
        self._service = parse_service(command.settings["service"])
        self._group: Group | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # received
        self._listens = asyncio.Event()
        self._listens.set()
        self._view: View | None = None
        self._first_view = ""
        self._in_view = 0  # delivered in the present view
        self._delivered = 0
        self._ordered = 0
        self._position = -1
        self._checksum = 0
        self._exclusions = 0
        self._last_ns = monotonic_ns()
        self._longest_ns = 0  # between two deliveries, since the command asked
        self._lag_ns = 0  # the same of this process's own turns
        self._resumes_in: str | None = None  # the view whose first delivery ends a standstill
        # sending
        self._sent = 0
        self._pace_s = PACE_S
        self._is_sending = False
        self._senders: list[asyncio.Task[None]] = []

    @property
    def group(self) -> Group:
        if self._group is None:
            raise RuntimeError("told to do something in a group before joining one")
        return self._group

    async def follow(self) -> None:
        """Do what the command says until it says stop, or is gone."""
        command = self._command
        self._spawn(self._tick())
        try:
            while (order := await command.next()) is not None:
                if not await self._obey(order):
                    return
        finally:
            for task in self._tasks:
                task.cancel()

    async def _obey(self, order: Saying) -> bool:
        """Whether there is more to do."""
        command = self._command
        match order["is"]:
            case "join":
                settings = command.settings
                self._group = group = await self._node.join(
                    settings["group"],
                    orderer=settings["orderer"],
                    anticipate=settings["anticipate"],
                    patience=settings["patience"],
                    create=order["create"],
                    header=b"hello",
                )
                self._view = group.view
                self._first_view = group.view.id if group.view is not None else ""
                self._spawn(self._receive())
                self._spawn(self._report())
                command.tell("joined", members=[each.name for each in group.members])
            case "send":
                self._is_sending = True
                self._senders = [self._spawn(self._send()), self._spawn(self._confirm())]
            case "pace":
                self._pace_s = order["seconds"]
            case "watch":
                self._longest_ns = self._lag_ns = 0
            case "deaf":
                self._listens.clear()
            case "listen":
                self._listens.set()
            case "handle":
                self._spawn(self._handle())
            case "call":
                began_ns = monotonic_ns()
                answer = await self._node.call(
                    command.settings["group"], order["text"].encode(), handler=HANDLER, timeout=CALL_TIMEOUT_S
                )
                took_ms = (monotonic_ns() - began_ns) / 1e6
                command.tell("called", answer=(answer or b"").decode(), took_ms=took_ms)
            case "die":
                MortalEngine.is_condemned = True
            case "quiet":
                await self._become_quiet()
                command.tell("flushed")
            case "leave":
                await self._become_quiet()
                await self.group.leave(b"goodbye")
                await self._node.close()
                command.tell("left")
            case "ask":
                command.tell("answer", **self._state())
            case "stop":
                self._node.abort()
                command.tell("stopped")
                return False
        return True

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guard(work))
        self._tasks.append(task)
        return task

    async def _guard(self, work: Any) -> None:
        """What fails behind the command's back is told to it."""
        try:
            await work
        except Exception as error:
            self._command.tell("failed", text=f"{type(error).__name__}: {error}")

    async def _tick(self) -> None:
        """How long this process gets no turn: it is stopped, or the machine is busy."""
        last_ns = monotonic_ns()
        while True:
            await asyncio.sleep(TICK_S)
            now_ns = monotonic_ns()
            self._lag_ns = max(self._lag_ns, now_ns - last_ns)
            last_ns = now_ns

    async def _report(self) -> None:
        while True:
            self._command.tell("status", **self._state())
            await asyncio.sleep(STATUS_PACE_S)

    async def _receive(self) -> None:
        async for event in self.group.batches():
            if isinstance(event, Batch):
                self._take(event)
            elif isinstance(event, View):
                self._on_view(event)
            elif isinstance(event, Left) and not event.wanted:
                self._exclusions += 1
                self._command.tell("excluded", text=event.text)
            elif isinstance(event, Stalled):
                self._command.tell("stalled", reason=event.reason.name.lower(), text=event.text)
            elif isinstance(event, Uncertain) and event.text:
                self._command.tell("uncertain", text=event.text)
            await self._listens.wait()

    def _take(self, batch: Batch) -> None:
        now_ns = monotonic_ns()
        self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
        self._last_ns = now_ns
        self._delivered += len(batch)
        if self._view is not None and batch.view == self._view.id:
            self._in_view += len(batch)
        if batch.position >= 0:
            self._ordered += len(batch)
            self._position = batch.position + len(batch) - 1
            self._checksum = zlib.crc32(b"".join(batch.messages), self._checksum)
        if self._resumes_in == batch.view:
            view = self._state()
            self._command.tell("resumed", members=view["members"], stood_ms=self._longest_ns / 1e6)
            self._resumes_in = None

    def _on_view(self, view: View) -> None:
        self._view = view
        self._in_view = 0
        if view.reason in RECOVERIES or view.reason is Reason.EXPEL:
            self._resumes_in = view.id
        elif self._resumes_in is not None:
            self._resumes_in = view.id  # a lock was given away before anything was delivered
        self._command.tell(
            "view",
            id=view.id,
            members=[member.name for member in view.members],
            reason=view.reason.name.lower(),
            subject=view.subject,
        )

    def _state(self) -> Saying:
        view = self._view
        return {
            "view": view.id if view is not None else "",
            "members": [member.name for member in view.members] if view is not None else [],
            "first_view": self._first_view,
            "in_view": self._in_view,
            "delivered": self._delivered,
            "ordered": self._ordered,
            "sent": self._sent,
            "position": self._position,
            "checksum": self._checksum,
            "exclusions": self._exclusions,
            "lost": MortalEngine.lost,
            "lag_ms": self._lag_ns / 1e6,
            "at_ns": monotonic_ns(),
        }

    async def _become_quiet(self) -> None:
        """Send no more, and wait until everything is delivered.

        Services without order are delivered here before anybody else has them. So something ordered comes last:
        a member that has delivered it has everything before it.
        """
        self._is_sending = False
        await asyncio.gather(*self._senders)
        self._senders = []
        await self.group.flush()
        await self.group.send(self._payloads(1)[0], AGREED, confirm=True)

    async def _send(self) -> None:
        group = self.group
        turn = 0
        while self._is_sending:
            turn += 1
            await group.send_many(self._payloads(BULK_MESSAGES), self._service)
            if turn % 4 == 0:
                await group.send_many(self._payloads(OTHER_MESSAGES), SAFE)
            if turn % 4 == 2:
                await group.send_many(self._payloads(OTHER_MESSAGES), RESILIENT(1))
            if turn % LARGE_EVERY == 0:
                await group.send(self._payloads(1, LARGE_BYTES)[0], AGREED)
            # Even without a pause the others get their turn: a send that finds room does not give way.
            await asyncio.sleep(self._pace_s)

    async def _confirm(self) -> None:
        ranks = ORDERERS[self._command.settings["orderer"]].ranks
        services = cycle(service for service in CONFIRMED if service.rank in ranks)
        while self._is_sending:
            with suppress(OutcomeUnknown):  # this member was cut off; it is on its way back
                await self.group.send(self._payloads(1)[0], next(services), confirm=True)
            await asyncio.sleep(CONFIRM_PACE_S)

    async def _handle(self) -> None:
        """Answer calls while this member holds the handler; wait for it again where it is lost."""
        while True:
            async with self.group.handler(HANDLER) as handler:
                self._command.tell("handles")
                async for request in handler:
                    await request.reply(f"{self._node.name} at position {request.position}".encode())

    def _payloads(self, count: int, size: int = MESSAGE_BYTES) -> list[bytes]:
        first = self._sent
        self._sent += count
        name = self._node.name
        return [f"{name} {number} ".encode().ljust(size, b".") for number in range(first, first + count)]


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    MortalEngine.loss = settings["loss"]
    try:
        node = Node(
            settings["name"],
            settings["host"],
            settings["port"],
            settings["peers"],
            trace=settings["trace"],
            clock_offset_ns=settings["clock_offset_ns"],
            insecure=settings["insecure"],
            data_dir=settings["data_dir"],
            engines=mortal_engine,
        )
    except (OrdercastError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    command.tell("ready", life=node.member.life)
    try:
        await DemoMember(node, command).follow()
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")
    finally:
        node.abort()


if __name__ == "__main__":
    run(live())
    sys.exit(0)
