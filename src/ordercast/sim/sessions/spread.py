"""A program that speaks Spread's client protocol, as its libraries do: written from the reference, not from the daemon.

The section numbers are those of the reference of the protocol. A client whose connection is lost connects again and
joins its groups again, as programs that use Spread do.
"""

from __future__ import annotations

import asyncio
from struct import pack, unpack
from typing import Any, Final

from ordercast.sim.sessions.plan import ClientAct, ClientPlan, Did
from ordercast.sim.sessions.processes import Process
from ordercast.sim.sessions.seen import (
    ClientLife,
    Fate,
    SeenLeft,
    SeenMessage,
    SeenSignal,
    SeenView,
    Sent,
    payload_of,
    tag_of,
)
from ordercast.sim.world import World

ENDIAN: Final = 0x8000_0080
NULL_CHOICE: Final = b"NULL".ljust(90, b"\0")
JOIN: Final = 0x01_0000
LEAVE: Final = 0x02_0000
KILL: Final = 0x04_0000
SELF_DISCARD: Final = 0x40
REGULAR: Final = 0x3F
REG_MEMB: Final = 0x1000
TRANSITION: Final = 0x2000
SELF_LEAVE: Final = 0x0200
CAUSES: Final = {0x0100: "join", 0x0200: "leave", 0x0400: "disconnect", 0x0800: "network"}
SERVICES: Final = {"UNRELIABLE": 1, "RELIABLE": 2, "FIFO": 4, "CAUSAL": 8, "AGREED": 16, "SAFE": 32}
RETRY_S: Final = 0.3
SHAKE_S: Final = 10.0
MOST_BYTES: Final = 143_952
NAME_BYTES: Final = 32
LIMIT: Final = 4_096  # of the reader: more is left to the kernel


class SpreadFault(Exception):
    """The daemon sent what no daemon of Spread sends."""


class SpreadProgram:
    """One life of a client of Spread."""

    __slots__ = ("_address", "_may_read", "_plan", "_shown", "_tasks", "_world", "_writer", "life", "me", "process")

    def __init__(
        self, world: World, process: Process, plan: ClientPlan, life: ClientLife, address: tuple[str, int]
    ) -> None:
        self._world = world
        self._plan = plan
        self._address = address
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._writer: asyncio.StreamWriter | None = None
        self._shown: dict[str, tuple[str, ...]] = {}  # the members of its groups
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self.process = process
        self.life = life
        self.me = ""
        life.wanted.update(plan.groups)
        self._tasks[process.start(self._main())] = "main"

    # What the run asks. -----------------------------------------------------------------------------------------------

    @property
    def unrest(self) -> list[str]:
        if self._writer is None:
            return [f"{self._plan.name} is not connected"]
        if not self._plan.wants_membership:
            return []
        lacks = [group for group in sorted(self.life.wanted) if self.me not in self._shown.get(group, ())]
        return [f"{self._plan.name} is not in {group}" for group in lacks]

    @property
    def is_over(self) -> bool:
        return self.life.is_closed

    @property
    def member(self) -> str:
        """As views name it, without its life."""
        _, name, daemon = self.me.split("#") if self.me else ("", "", "")
        return f"{name}@{daemon}"

    def views(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        return {group: ("", members) for group, members in self._shown.items() if group in self.life.wanted}

    def stall(self, is_stalled: bool) -> None:
        if is_stalled:
            self._may_read.clear()
        else:
            self._may_read.set()

    def act(self, act: ClientAct) -> None:
        match act.kind:
            case Did.JOIN:
                self.life.wanted.add(act.groups[0])
                self._write(self._frame(JOIN, act.groups))
            case Did.LEAVE:
                self.life.wanted.discard(act.groups[0])
                self.life.left.add(act.groups[0])
                self._write(self._frame(LEAVE, act.groups))
            case Did.SEND | Did.SEND_MANY | Did.SEND_EACH | Did.SEND_TO | Did.PRIVATE:
                self._send(act)
            case Did.CLOSE:
                self.life.is_closed = True
                self._write(self._frame(KILL, (self.me,)))
            case Did.ASK:
                pass  # its protocol has no questions
            case _:
                raise ValueError(act.kind)

    # Sending. ---------------------------------------------------------------------------------------------------------

    def _send(self, act: ClientAct) -> None:
        """Section 5. A client of Spread waits for nothing: what a lost connection had is gone."""
        if self._writer is None or not act.groups:
            return
        type_ = SERVICES.get(act.service, 16)
        if act.is_confirmed and act.kind is not Did.SEND:
            type_ |= SELF_DISCARD
        size = min(act.size, MOST_BYTES - NAME_BYTES * len(act.groups))
        for _ in range(act.count):
            tag = f"{self.life.client}.{self.life.number}.{len(self.life.sent)}{'d' if type_ & SELF_DISCARD else ''}"
            now_ns = self._world.now_ns
            self.life.sent[tag] = Sent(tag, act.groups, True, now_ns, now_ns, Fate.ACCEPTED)
            self._write(self._frame(type_, act.groups, payload_of(tag, size)))

    def _frame(self, type_: int, groups: tuple[str, ...], body: bytes = b"") -> bytes:
        """Section 4.1, in either byte order."""
        order, mark, hint = (
            ("<", ENDIAN, b"\x80\x07\x00\x80") if not self._plan.is_big else (">", 0, b"\x00\x00\x07\x00")
        )
        head = pack(f"{order}I32si4si", type_ | mark, self.me.encode(), len(groups), hint, len(body))
        return head + b"".join([pack("32s", group.encode()) for group in groups]) + body

    def _write(self, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(data)

    # The connection. --------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        while not self.life.is_closed:
            try:
                async with asyncio.timeout(SHAKE_S):
                    reader, writer = await asyncio.open_connection(*self._address, limit=LIMIT)
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
                continue
            try:
                async with asyncio.timeout(SHAKE_S):
                    is_in = await self._shake(reader, writer)
                if is_in:
                    await self._follow(reader, writer)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                pass
            except SpreadFault as fault:
                self.life.problems.append(f"the daemon sent {fault}")
            self._lose()
            writer.close()
            await asyncio.sleep(RETRY_S)

    async def _shake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Section 3."""
        name = self.life.label.encode()
        writer.write(bytes((5, 0, 1, int(self._plan.wants_membership), len(name))) + name)
        length = (await reader.readexactly(1))[0]
        if length & 0x80:
            return False  # a reject: the name is not free yet
        if await reader.readexactly(length) != b"NULL ":
            raise SpreadFault("another list of methods than NULL")
        writer.write(NULL_CHOICE)
        accept = (await reader.readexactly(1))[0]
        if accept != 1:
            return False
        await reader.readexactly(3)
        self.me = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        if self.me.split("#")[1:2] != [self.life.label]:
            raise SpreadFault(f"the private group {self.me}")
        return True

    async def _follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        for group in sorted(self.life.wanted):
            self._write(self._frame(JOIN, (group,)))
        while True:
            while not self._may_read.is_set():
                await self._may_read.wait()
            head = await reader.readexactly(48)
            type_, name, count, hint, length = unpack("<I32si4si", head)
            if type_ & ENDIAN != ENDIAN or not 0 <= count <= 10_000 or not 0 <= length <= 1 << 24:
                raise SpreadFault(f"the header {head.hex()}")
            fields = await reader.readexactly(NAME_BYTES * count)
            body = await reader.readexactly(length)
            groups = tuple([_text(fields[at : at + NAME_BYTES]) for at in range(0, len(fields), NAME_BYTES)])
            self._see(type_ & ~ENDIAN, _text(name), groups, hint, body)

    def _lose(self) -> None:
        if self._writer is not None:
            self._writer = None
            self.life.losses += 1
            self._queue.append(SeenLeft(self._world.now_ns, "", False, True))
            self._shown.clear()

    # What it sees. ----------------------------------------------------------------------------------------------------

    @property
    def _queue(self) -> list[Any]:
        return self.life.queues.setdefault("", [])

    def _see(self, type_: int, name: str, groups: tuple[str, ...], hint: bytes, body: bytes) -> None:
        """Section 6."""
        now_ns, seen = self._world.now_ns, self._queue
        if type_ & REGULAR:
            tag = tag_of(body)
            if not tag:
                self.life.problems.append(f"a message of {name} in {groups} is not as it was sent")
            if type_ & SELF_DISCARD and name == self.me:
                self.life.problems.append(f"its own message {tag} came although it is discarded here")
            seen.append(SeenMessage(now_ns, name, -1, -1, groups, tag))
        elif type_ & REG_MEMB:
            cause = CAUSES.get(type_ & 0x0F00)
            if cause is None:
                raise SpreadFault(f"a view with the type {type_:x}")
            if self.me not in groups:
                raise SpreadFault(f"a view of {name} without this client")
            self._shown[name] = groups
            seen.append(SeenView(now_ns, name, body[:12].hex(), groups, cause, self._changed(cause, body), b""))
        elif type_ == TRANSITION:
            seen.append(SeenSignal(now_ns, name))
        elif type_ == SELF_LEAVE:
            self._shown.pop(name, None)
            seen.append(SeenLeft(now_ns, name, True, False))
        else:
            raise SpreadFault(f"a message of type {type_:x}, {hint.hex()}")

    def _changed(self, cause: str, body: bytes) -> str:
        """The sets of section 6.2: who joined or left; empty for the network."""
        number, offset = unpack("<II", body[12:20])
        at, starts, members = 20, [], []
        for _ in range(number):
            starts.append(at - 20)
            (count,) = unpack("<I", body[at : at + 4])
            members.append([_text(body[at + 4 + NAME_BYTES * i :][:NAME_BYTES]) for i in range(count)])
            at += 4 + NAME_BYTES * count
        if at != len(body) or offset not in starts:
            raise SpreadFault(f"sets that end at {at} of {len(body)} bytes, the own one at {offset}")
        if cause == "network":
            if self.me not in members[starts.index(offset)]:
                raise SpreadFault(f"sets {members}, of which the own one is another")
            return ""
        if number != 1 or len(members[0]) != 1:
            raise SpreadFault(f"sets {members} of a {cause}")
        return members[0][0]


def _text(data: bytes) -> str:
    name, nul, rest = data.partition(b"\0")
    if not nul or rest.strip(b"\0"):
        raise SpreadFault(f"the name {data.hex()}")
    return name.decode()
