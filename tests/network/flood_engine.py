# ruff: noqa: ARG002 - a fake takes what the contract names, and uses what it needs
"""The least that can be called an engine, over real sockets: everybody delivers what arrives, as it arrives.

No membership, order or repair. It shows what the driver does (addresses, trains, order of sends, timers) when the
protocol above does nothing, and a few switches make it misbehave.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ordercast.config import GroupConfig, Timing
from ordercast.engine import NEVER, Delivery, Departed, Joined, Outbox, Reset, Run, Send, To, Upcall, Waiting
from ordercast.errors import InvariantViolation
from ordercast.service import Service
from ordercast.view import Address, Member, Reason, View, group_tag
from ordercast.wire.block import HEAD
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.segments import train


class FloodEngine:
    """`breaks_at`: the payload that makes it violate an invariant. `audience_list`: whom To.ALL reaches by unicast;
    `copies_list`: whom it reaches so beside a multicast."""

    made: list[FloodEngine] = []  # noqa: RUF012 - the tests' way to reach the engines that a node makes
    audience_list: list[Address] = []  # noqa: RUF012
    copies_list: list[Address] = []  # noqa: RUF012

    def __init__(
        self, group: str, me: Member, config: GroupConfig, timing: Timing, rng: Random, **options: Any
    ) -> None:
        self.group = group
        self.me = me
        self.config = config
        self.view: View | None = None
        self.counters: dict[str, int] = {"received": 0}
        self.next_block: int = options["next_block"]
        self.seq = 0
        self.position = 0
        self.sources: list[Address] = []
        self.ticks: list[int] = []
        self.deadline = NEVER
        self.pending: list[Upcall] = []
        self.run: list[Delivery] = []
        FloodEngine.made.append(self)

    def supports(self, service: Service) -> bool:
        return True

    @property
    def is_closed(self) -> bool:
        return False

    @property
    def gives_locks(self) -> bool:
        return False

    @property
    def interest(self) -> None:
        return None

    def lock(self, now_ns: int, lock: str, out: Outbox) -> None:
        """It gives none."""

    def unlock(self, now_ns: int, lock: str, out: Outbox) -> None:
        """It gives none."""

    def wait_for_others(self, is_waiting: bool) -> None: ...

    def answers(self, origin: int, number: int) -> bool:
        return False

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        """Nobody calls it."""

    def carry(self) -> object:
        return None

    def inherit(self, memory: object) -> None:
        raise AssertionError("this engine carries nothing")

    def durable(self) -> bytes | None:
        return None

    def restore(self, entry: bytes) -> None:
        raise AssertionError("this engine keeps nothing")

    def start(self, now_ns: int, out: Outbox) -> None:
        self.view = View(1, str(self.me), 1, 1, 0, 0, (self.me,), {}, Reason.CREATE, came_with=(str(self.me),))
        self.pending += [Joined(), self.view]
        self._send(To.ANYONE, Kind.FIND, b"hello", out)

    def room(self, now_ns: int) -> tuple[int, int]:
        return 1 << 20, 60_000

    def after(self) -> int:
        return 0

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        for block in blocks:
            self._send(To.ALL, Kind.DATA, block, out)
            self._deliver(self.me.id, self.next_block, block)
            self.next_block += 1
        return len(blocks)

    def waits_for_application(self) -> bool:
        return True

    @property
    def is_working(self) -> bool:
        return self.view is not None

    def waiting(self, now_ns: int) -> Waiting | None:
        return None

    def short_of(self) -> tuple[int, int] | None:
        return None

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        pass

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        self.counters["received"] += 1
        self.sources.append(source)
        body = b"".join(data[at + HEADER_BYTES : at + stride] for at in range(0, len(data), stride or len(data)))
        if data[1] != Kind.DATA:
            return
        if body.endswith(b"break"):
            raise InvariantViolation("broken on purpose")
        self._deliver(int.from_bytes(data[16:24], "little"), 0, body)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        out.upcalls += self.pending
        self.pending.clear()
        if self.run:
            out.upcalls.append(Run(self.run))
            self.run = []

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self.deadline <= now_ns:
            self.ticks.append(now_ns)
            self.deadline = NEVER

    def deadline_ns(self) -> int:
        return self.deadline

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        self.pending.append(Departed(wanted=True, returning=False, text="left"))

    def expel(self, now_ns: int, member: int, why: str, out: Outbox) -> None:
        """There is no group to ask."""

    def resume(self, now_ns: int, out: Outbox) -> None:
        """Nobody is ever out."""

    def reset(self, now_ns: int, min_members: int | str, header: bytes, out: Outbox) -> None:
        self.pending.append(Reset(1, ""))

    def audience(self) -> list[Address]:
        return list(self.audience_list)

    def copies(self) -> list[Address]:
        return list(self.copies_list)

    @property
    def ttl(self) -> int:
        return self.me.ttl

    def is_at_rest(self) -> bool:
        return True

    def _send(self, to: Address, kind: int, body: bytes, out: Outbox) -> None:
        buffers, stride = train(kind, group_tag(self.group), 1, self.me.id, 0, body, self.config.datagram)
        out.sends.append(Send(to, buffers, stride))

    def _deliver(self, origin: int, number: int, block: bytes) -> None:
        self.seq += 1
        self.run.append(Delivery(self.seq, self.position, origin, number, block))
        self.position += HEAD.unpack_from(block)[1]
