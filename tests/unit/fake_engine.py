# ruff: noqa: ARG002 - a fake takes what the contract names, and uses what it needs
"""A group without a network: one total order in one process, for the tests of host, port and API.

Every engine made by one `Exchange` is in the group at once. What one submits all deliver, in the order of submission,
at their next `after_batch`. Tests steer the rest: room, failures, exclusion, who joined when.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ordercast.config import GroupConfig, Timing
from ordercast.engine import (
    NEVER,
    Delivery,
    Denied,
    Departed,
    Failed,
    Joined,
    Note,
    Outbox,
    Refused,
    Reset,
    Run,
    Send,
    To,
    Upcall,
    Waiting,
)
from ordercast.groups.engines import InterestPort
from ordercast.groups.events import Batch, PortEvent
from ordercast.groups.port import Port
from ordercast.service import RELIABLE_RANK, Service
from ordercast.view import Address, Member, Reason, View, group_tag
from ordercast.wire.block import HEAD
from ordercast.wire.calls import Reply, decode_reply
from ordercast.wire.header import HEADER, MAGIC, Kind


class Exchange:
    """The order that all engines share, and the switches of a test."""

    def __init__(self) -> None:
        self.engines: list[FakeEngine] = []
        self.members: list[FakeEngine] = []
        self.room_bytes = 1 << 20
        self.largest = 60_000
        self.take_blocks = 1 << 20  # how many blocks a submit takes
        self.has_unreliable = False
        self.is_open = True  # False: what is submitted waits
        self.refuse = ""
        self.waiting: list[tuple[FakeEngine, int, bytes]] = []
        self.seq = 0
        self.position = 0
        self.counter = 0
        self.locks: dict[str, int] = {}
        self.answering: FakeEngine | None = None  # who acknowledges calls

    def __call__(
        self, group: str, me: Member, config: GroupConfig, timing: Timing, rng: Random, **options: Any
    ) -> FakeEngine:
        engine = FakeEngine(self, group, me, config, options)
        self.engines.append(engine)
        return engine

    def install(self, reason: Reason, subject: str, header: bytes, news: Sequence[FakeEngine] = ()) -> None:
        """A view of the present members at all of them."""
        self.counter += 1
        self.seq += 1
        creator = str(self.members[0].me) if self.members else "nobody/0"
        for engine in self.members:
            old = [other for other in self.members if other not in news]
            came = [engine] if engine in news else old
            engine.view = View(
                self.counter,
                creator,
                ring=1,
                incarnation=1,
                seq=self.seq,
                position=self.position,
                members=tuple(other.me for other in self.members),
                numbers={},
                reason=reason,
                subject=subject,
                header=header,
                came_with=tuple(str(other.me) for other in came),
                locks=dict(self.locks),
            )
            engine.pending.append(engine.view)

    def order(self) -> None:
        """Order what waits, if the exchange is open."""
        while self.waiting and self.is_open:
            engine, number, block = self.waiting.pop(0)
            self.seq += 1
            delivery = Delivery(self.seq, self.position, engine.me.id, number, block)
            self.position += HEAD.unpack_from(block)[1]
            for member in self.members:
                member.pending.append(Run([delivery]))

    def call(self, origin: int, number: int, block: bytes) -> None:
        """A call from outside, at its place."""
        self.seq += 1
        delivery = Delivery(self.seq, self.position, origin, number, block)
        self.position += 1
        for member in self.members:
            member.pending.append(Run([delivery]))

    def fail(self, text: str) -> None:
        for engine in self.members:
            engine.pending.append(Failed((), text))


class FakeEngine:
    """One member. `sent_blocks` and `consumed` show what it was asked to do."""

    def __init__(
        self, exchange: Exchange, group: str, me: Member, config: GroupConfig, options: dict[str, Any]
    ) -> None:
        self.exchange = exchange
        self.group = group
        self.me = me
        self.options = options
        self.next_block: int = options["next_block"]
        self.pending: list[Upcall] = []
        self.sent_blocks: list[bytes] = []
        self.consumed: list[int] = []
        self.resumed: list[int] = []
        self.batches: list[bytes] = []
        self.deadline = NEVER
        self.expired: list[int] = []
        self.steps: list[tuple[str, str]] = []  # what was asked of locks
        self.is_waiting = False  # the application waits for another member
        self.replies: list[tuple[Address, int, Reply]] = []
        self.kept: bytes | None = None  # what it has to store
        self.restored: list[bytes] = []
        # the contract
        self.config = config
        self.view: View | None = None
        self.is_working = True
        self.stall: Waiting | None = None  # what it says when it is asked
        self.questions = 0
        self.counters: dict[str, int] = {}

    gives_locks = True
    is_closed = False
    interest: InterestPort | None = None

    def supports(self, service: Service) -> bool:
        return service.rank >= RELIABLE_RANK or self.exchange.has_unreliable

    def carry(self) -> object:
        return None

    def inherit(self, memory: object) -> None:
        raise AssertionError("this engine carries nothing")

    def durable(self) -> bytes | None:
        kept, self.kept = self.kept, None
        return kept

    def restore(self, entry: bytes) -> None:
        self.restored.append(entry)

    def start(self, now_ns: int, out: Outbox) -> None:
        if self.exchange.refuse:
            self.pending.append(Refused(self.exchange.refuse))
            return
        reason = Reason.JOIN if self.exchange.members else Reason.CREATE
        self.exchange.members.append(self)
        self.pending.append(Joined())
        self.exchange.install(reason, str(self.me), self.options["header"], [self])

    def room(self, now_ns: int) -> tuple[int, int]:
        return self.exchange.room_bytes, self.exchange.largest

    def after(self) -> int:
        return 0

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        taken = blocks[: self.exchange.take_blocks]
        for block in taken:
            out.notes.append(Note("hold", self.me.id, block))
            header = HEADER.pack(MAGIC, Kind.DATA, 0, 0, group_tag(self.group), 1, self.me.id, self.next_block)
            out.sends.append(Send(To.ALL, (header, block), 0))
            self.sent_blocks.append(block)
            if not HEAD.unpack_from(block)[2]:
                # UNRELIABLE: no number and no place, and delivered here at once.
                self.exchange.seq += 1
                self.pending.append(Run([Delivery(self.exchange.seq, -1, self.me.id, -1, block)]))
                continue
            self.exchange.waiting.append((self, self.next_block, block))
            self.next_block += 1
        self.exchange.order()
        return len(taken)

    def waits_for_application(self) -> bool:
        return True

    def waiting(self, now_ns: int) -> Waiting | None:
        self.questions += 1
        return self.stall

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        self.consumed.append(seq)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        self.batches.append(bytes(data))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        out.upcalls.extend(self.pending)
        self.pending.clear()

    def expire(self, now_ns: int, out: Outbox) -> None:
        self.expired.append(now_ns)
        self.deadline = NEVER

    def deadline_ns(self) -> int:
        return self.deadline

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        if self in self.exchange.members:
            self.exchange.members.remove(self)
            self.exchange.install(Reason.LEAVE, str(self.me), header)
        self.pending.append(Departed(wanted=True, returning=False, text="left"))

    def short_of(self) -> tuple[int, int] | None:
        return self.view.shortage(self.me.id, self.config.bootstrap) if self.view is not None else None

    def expel(self, now_ns: int, member: int, why: str, out: Outbox) -> None:
        for engine in [each for each in self.exchange.members if each.me.id == member]:
            self.exchange.members.remove(engine)
            self.exchange.install(Reason.EXPEL, str(engine.me), why.encode())
            engine.pending.append(Departed(wanted=False, returning=False, text=why))

    def resume(self, now_ns: int, out: Outbox) -> None:
        self.resumed.append(now_ns)

    def reset(self, now_ns: int, min_members: int | str, header: bytes, out: Outbox) -> None:
        if isinstance(min_members, int) and len(self.exchange.members) < min_members:
            self.pending.append(Reset(0, f"only {len(self.exchange.members)} members are alive"))
            return
        self.exchange.install(Reason.RESET, str(self.me), header)
        self.pending.append(Reset(len(self.exchange.members), ""))

    def lock(self, now_ns: int, lock: str, out: Outbox) -> None:
        self.steps.append(("lock", lock))
        if self.exchange.locks.setdefault(lock, self.me.id) == self.me.id:
            self.exchange.install(Reason.LOCK, str(self.me), b"")
        else:
            self.pending.append(Denied(lock))

    def unlock(self, now_ns: int, lock: str, out: Outbox) -> None:
        self.steps.append(("unlock", lock))
        if self.exchange.locks.get(lock) == self.me.id:
            del self.exchange.locks[lock]
        self.exchange.install(Reason.UNLOCK, str(self.me), b"")

    def wait_for_others(self, is_waiting: bool) -> None:
        self.is_waiting = is_waiting

    def answers(self, origin: int, number: int) -> bool:
        return self.exchange.answering is self

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        self.replies.append((to, number, decode_reply(body)))

    def audience(self) -> list[Address]:
        return [member.me.address for member in self.exchange.members if member is not self]

    def copies(self) -> list[Address]:
        return []

    @property
    def ttl(self) -> int:
        return self.me.ttl

    def is_at_rest(self) -> bool:
        return not self.pending


# What tests ask of a port on such an engine.


def events(port: Port) -> list[PortEvent]:
    found = []
    while (event := port.take()) is not None:
        found.append(event)
    return found


def payloads(port: Port) -> list[bytes]:
    return [payload for event in events(port) if isinstance(event, Batch) for payload in event]


def fake(port: Port) -> FakeEngine:
    assert isinstance(port.engine, FakeEngine)
    return port.engine
