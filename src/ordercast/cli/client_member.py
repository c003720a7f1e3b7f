"""One client process of `benches/chaos.py --orderer daemons` and of tests: native, or with Spread's protocol.

    python -m ordercast.cli.client_member      (settings and orders on standard input, one JSON object a line)

It connects to the first daemon of its list, and to the next one when it loses it: a native client does so by itself. It
is in one group, sends to it and tells every view that it gets, with what it has received in the view before.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from ordercast import (
    AGREED,
    SAFE,
    Batch,
    Group,
    Left,
    OrdercastError,
    OutcomeUnknown,
    Transitional,
    View,
    connect,
    run,
)
from ordercast.cli.children import Command, Saying
from ordercast.cli.chronicle import NETWORK, Chronicle
from ordercast.cli.spread_client import SpreadClient, SpreadFrame, read_membership
from ordercast.daemon.spread import bits
from ordercast.daemon.spread.encoding import group_id_of
from ordercast.daemon.spread.names import private_group, private_group_of
from ordercast.view import Reason
from ordercast.wire.endings import read_ending

MESSAGE_BYTES: Final = 100
BULK_MESSAGES: Final = 5
SAFE_TURNS: Final = 4  # one in so many turns is SAFE
PAUSE_S: Final = 0.05
"""Between two tries of a client of Spread to connect."""

TRY_S: Final = 5.0
CONNECT_S: Final = 60.0
"""How long a native client tries at first: daemons may be stopped, killed or cut off just then."""

CAUSES: Final = {
    bits.CAUSED_BY_JOIN: "join",
    bits.CAUSED_BY_LEAVE: "leave",
    bits.CAUSED_BY_DISCONNECT: "disconnect",
    bits.CAUSED_BY_NETWORK: NETWORK,
}


class GroupClient(Protocol):
    """A client in its group, whatever it speaks."""

    async def receive(self) -> None:
        """Without end."""

    async def send(self, payloads: list[bytes], *, is_safe: bool) -> None: ...

    async def confirm(self, payload: bytes) -> None:
        """Send one message, and wait until it is delivered here."""

    async def flush(self, payload: bytes) -> None:
        """Until everything that was sent is delivered here; `payload` may be sent as the last message."""


class NativeClient:
    """With the API."""

    def __init__(self, group: Group, chronicle: Chronicle) -> None:
        self._group = group
        self._chronicle = chronicle

    async def receive(self) -> None:
        chronicle = self._chronicle
        async for event in self._group.batches():
            if isinstance(event, Batch):
                sender = private_group_of(event.sender).decode()
                for payload in event.messages:
                    chronicle.message(sender, payload)
            elif isinstance(event, Transitional):
                chronicle.on_signal()
            elif isinstance(event, View):
                self._on_view(event)
            elif isinstance(event, Left):
                chronicle.on_lost()

    def _on_view(self, view: View) -> None:
        me = self._group.member
        self._chronicle.client = private_group(me.label, me.name).decode()
        members = [private_group(each.label, each.name).decode() for each in view.members]
        together = [private_group_of(each).decode() for each in view.came_with]
        self._chronicle.on_view(_id_of(view), members, together, _cause_of(view))

    async def send(self, payloads: list[bytes], *, is_safe: bool) -> None:
        await self._group.send_many(payloads, SAFE if is_safe else AGREED)

    async def confirm(self, payload: bytes) -> None:
        with suppress(OutcomeUnknown):
            await self._group.send(payload, SAFE, confirm=True)

    async def flush(self, payload: bytes) -> None:
        await self._group.flush()
        await self._group.send(payload, AGREED, confirm=True)


class SpreadGroupClient:
    """With Spread's protocol. A library of Spread does not connect again: this program does."""

    def __init__(self, name: str, group: str, paths: list[str], chronicle: Chronicle) -> None:
        self._name = name
        self._group = group
        self._paths = paths
        self._chronicle = chronicle
        self._client: SpreadClient | None = None
        self._own: dict[bytes, asyncio.Event] = {}  # payloads that are waited for

    async def receive(self) -> None:
        while True:
            client = await self._connect()
            self._chronicle.client = client.me
            client.join(self._group)
            self._client = client
            with suppress(EOFError, OSError):
                while True:
                    self._on_frame(await client.receive())
            self._client = None
            client.drop()
            self._chronicle.on_lost()
            for event in self._own.values():
                event.set()  # nobody knows

    async def _connect(self) -> SpreadClient:
        while True:
            for path in self._paths:
                with suppress(OSError, EOFError, OrdercastError, TimeoutError):
                    async with asyncio.timeout(TRY_S):
                        return await SpreadClient.connect(path, self._name)
            await asyncio.sleep(PAUSE_S)

    def _on_frame(self, frame: SpreadFrame) -> None:
        chronicle = self._chronicle
        if frame.is_message:
            chronicle.message(frame.name, frame.body)
            event = self._own.get(frame.body)
            if event is not None:
                event.set()
        elif frame.type & bits.TRANSITION_MESS:
            chronicle.on_signal()
        elif frame.type & bits.REG_MEMB_MESS:
            told = read_membership(frame.body)
            cause = CAUSES[frame.type & ~bits.REG_MEMB_MESS]
            sets = told.sets if cause == NETWORK else []
            # Of one that joins or leaves Spread says no more than its name: all others come along.
            stayed = (set(frame.groups) & set(chronicle.members)) if chronicle.members else {chronicle.client}
            together = told.sets[told.own] if cause == NETWORK else stayed
            chronicle.on_view(told.group_id.hex(), frame.groups, together, cause, sets)

    async def send(self, payloads: list[bytes], *, is_safe: bool) -> None:
        client = self._client
        if client is not None:
            with suppress(OSError):
                for payload in payloads:
                    client.cast(self._group, payload, bits.SAFE_MESS if is_safe else bits.AGREED_MESS)
                await client.drain()

    async def confirm(self, payload: bytes) -> None:
        if self._client is not None:
            event = self._own[payload] = asyncio.Event()
            await self.send([payload], is_safe=True)
            await event.wait()
            del self._own[payload]

    async def flush(self, payload: bytes) -> None:
        while self._client is None:
            await asyncio.sleep(PAUSE_S)
        await self.confirm(payload)


class ClientMember:
    """The program around a client."""

    __slots__ = ("_chronicle", "_client", "_command", "_is_sending", "_name", "_pace_s", "_senders", "_sent", "_tasks")

    def __init__(self, command: Command, client: GroupClient, chronicle: Chronicle) -> None:
        self._command = command
        self._client = client
        self._chronicle = chronicle
        self._name = command.settings["name"]
        self._pace_s = command.settings["pace_s"]
        self._is_sending = False
        self._sent = 0
        self._senders: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Do what the command says until it says stop, or is gone."""
        self._spawn(self._client.receive())
        try:
            while (order := await self._command.next()) is not None:
                match order["is"]:
                    case "send":
                        self._is_sending = True
                        self._senders = [self._spawn(self._send()), self._spawn(self._confirm())]
                    case "quiet":
                        self._is_sending = False
                        await asyncio.gather(*self._senders)
                        await self._client.flush(self._payloads(1)[0])
                        self._command.tell("flushed")
                    case "ask":
                        self._command.tell("answer", **self._state())
                    case "stop":
                        self._command.tell("stopped")
                        return
        finally:
            for task in self._tasks:
                task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guard(work))
        self._tasks.append(task)
        return task

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._command.tell("failed", text=f"{type(error).__name__}: {error}")

    async def _send(self) -> None:
        turn = 0
        while self._is_sending:
            turn += 1
            await self._client.send(self._payloads(BULK_MESSAGES), is_safe=turn % SAFE_TURNS == 0)
            await asyncio.sleep(self._pace_s)

    async def _confirm(self) -> None:
        while self._is_sending:
            await self._client.confirm(self._payloads(1)[0])
            await asyncio.sleep(self._pace_s)

    def _payloads(self, count: int) -> list[bytes]:
        first = self._sent
        self._sent += count
        return [f"{self._name} {number} ".encode().ljust(MESSAGE_BYTES, b".") for number in range(first, first + count)]

    def _state(self) -> Saying:
        chronicle = self._chronicle
        return {
            "client": chronicle.client,
            "view": chronicle.view,
            "members": chronicle.members,
            "views": chronicle.views,
            "delivered": chronicle.delivered,
            "count": chronicle.count,
            "checksum": chronicle.checksum,
            "sent": self._sent,
        }


def _id_of(view: View) -> str:
    """As Spread's clients have it."""
    return group_id_of(f"{view.id} {view.group}").hex()


def _cause_of(view: View) -> str:
    if view.reason is Reason.JOIN:
        return "join"
    if view.reason is Reason.LEAVE:
        return "leave" if read_ending(view.header) is None else "disconnect"
    return NETWORK


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    chronicle = Chronicle(command.tell)
    name, group, doors = settings["name"], settings["group"], settings["doors"]
    try:
        if settings["kind"] == "spread":
            paths = [f"{door['spread_folder']}/{door['spread_port']}" for door in doors]
            await ClientMember(command, SpreadGroupClient(name, group, paths, chronicle), chronicle).follow()
            return
        node = await connect([f"unix:{door['native']}" for door in doors], name=name, timeout=CONNECT_S)
        try:
            joined = await node.join(group)
            await ClientMember(command, NativeClient(joined, chronicle), chronicle).follow()
        finally:
            node.abort()
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    run(live())
    sys.exit(0)
