"""The smallest engine there is, for tests of the simulator itself: a fixed view, its first member orders, no repair.

It keeps every promise up to AGREED on a network that loses nothing, and shows what a broken protocol looks like on one
that does: it never comes to rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.config import AlonePolicy, Demands, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.engine import NEVER, Delivery, Joined, Note, Outbox, Run, Send, To, Waiting
from ordercast.service import AGREED, FIFO, RELIABLE, Service
from ordercast.sim.world import PORT
from ordercast.view import Address, Member, View, group_tag, node_id, ring_id
from ordercast.wire.block import head_of
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind


class ToyEngine:
    """One member. REQUEST carries a block to the first member, ORDERED carries it on with its sequence number."""

    __slots__ = (
        "_due",
        "_early",
        "_first",
        "_me",
        "_next_number",
        "_next_seq",
        "_position",
        "_ring",
        "_tag",
        "_undelivered",
        "config",
        "counters",
        "view",
    )

    def __init__(self, group: str, me: Member, members: Sequence[Member], config: GroupConfig) -> None:
        self.config = config
        self.counters: dict[str, int] = {}
        self._me = me
        self._tag = group_tag(group)
        self._ring = ring_id(group, members[0].id, 1)
        self.view: View | None = View(1, str(members[0]), self._ring, 0, 0, 0, tuple(members), {}, came_with=(str(me),))
        self._first = members[0]
        self._next_number = 0
        self._undelivered = 0  # own blocks
        self._next_seq = 1  # the next to assign
        self._due = 1  # the next to deliver; 0 is the view
        self._position = 0
        self._early: dict[int, tuple[int, int, bytes]] = {}

    # What a simulation looks at (`inspection.py`): there is little to see.

    @property
    def peak_bytes(self) -> int:
        return 0

    @property
    def peak_blocks(self) -> int:
        return 0

    @property
    def is_ordering(self) -> bool:
        return self._first.id == self._me.id

    def describe(self) -> str:
        return f"{self._undelivered} own blocks are not delivered, {len(self._early)} blocks came early"

    def start(self, now_ns: int, out: Outbox) -> None:  # noqa: ARG002
        if self.view is None:
            return
        out.upcalls += [Joined(), self.view]

    def supports(self, service: Service) -> bool:
        return service in (RELIABLE, FIFO, AGREED)

    def carry(self) -> object:
        return None

    def inherit(self, memory: object) -> None:
        """It carries nothing, so there is nothing to inherit."""

    def durable(self) -> bytes | None:
        """It promises nothing that would have to be kept."""
        return None

    def restore(self, entry: bytes) -> None:
        """It keeps nothing, so there is nothing to restore."""

    def room(self, now_ns: int) -> tuple[int, int]:  # noqa: ARG002
        return 8_000, 1_000

    def after(self) -> int:
        return 0

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:  # noqa: ARG002
        for block in blocks:
            number = self._next_number
            self._next_number += 1
            self._undelivered += 1
            out.notes.append(Note("hold", self._me.id, block))
            if self._first.id == self._me.id:
                self._order(self._me.id, number, block, out)
            else:
                out.sends.append(Send(self._first.address, [self._header(Kind.REQUEST, self._me.id, number), block], 0))
        return len(blocks)

    def waits_for_application(self) -> bool:
        return True

    @property
    def is_working(self) -> bool:
        return self.view is not None

    def waiting(self, now_ns: int) -> Waiting | None:  # noqa: ARG002
        return None

    def short_of(self) -> tuple[int, int] | None:
        return None

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        """Nothing is kept."""

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:  # noqa: ARG002
        _, kind, _, _, _, ring, origin, number = HEADER.unpack_from(data)
        body = bytes(data[HEADER_BYTES:])
        if ring != self._ring:
            return
        if kind == Kind.REQUEST:
            out.notes.append(Note("hold", origin, body))
            self._order(origin, number, body, out)
        elif kind == Kind.ORDERED:
            if origin != self._me.id:
                out.notes.append(Note("hold", origin, body[8:]))
            self._deliver(int.from_bytes(body[:8], "little"), origin, number, body[8:], out)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        """Everything happens at once."""

    def expire(self, now_ns: int, out: Outbox) -> None:
        """No timers."""

    def deadline_ns(self) -> int:
        return NEVER

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        """The view is fixed."""

    def expel(self, now_ns: int, member: int, why: str, out: Outbox) -> None:
        """The view is fixed."""

    def resume(self, now_ns: int, out: Outbox) -> None:
        """Nobody is ever out."""

    def reset(self, now_ns: int, min_members: int | str, header: bytes, out: Outbox) -> None:
        """The view is fixed."""

    def audience(self) -> list[Address]:
        members = self.view.members if self.view is not None else ()
        return [member.address for member in members if member.id != self._me.id]

    def copies(self) -> list[Address]:
        return []

    @property
    def ttl(self) -> int:
        return self._me.ttl

    def is_at_rest(self) -> bool:
        return not self._undelivered and not self._early

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

    def wait_for_others(self, is_waiting: bool) -> None:
        """No member is watched."""

    def answers(self, origin: int, number: int) -> bool:  # noqa: ARG002
        return False

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        """Nobody calls it."""

    def _header(self, kind: Kind, origin: int, number: int) -> bytes:
        return HEADER.pack(MAGIC, kind, 0, 0, self._tag, self._ring, origin, number)

    def _order(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        seq = self._next_seq
        self._next_seq += 1
        header = self._header(Kind.ORDERED, origin, number)
        out.sends.append(Send(To.ALL, [header, seq.to_bytes(8, "little"), block], 0))
        self._deliver(seq, origin, number, block, out)

    def _deliver(self, seq: int, origin: int, number: int, block: bytes, out: Outbox) -> None:
        self._early[seq] = (origin, number, block)
        deliveries: list[Delivery] = []
        while self._due in self._early:
            origin, number, block = self._early.pop(self._due)
            out.notes.append(Note("placed", origin, block, self._position))
            deliveries.append(Delivery(self._due, self._position, origin, number, block))
            self._position += head_of(block).count
            self._undelivered -= origin == self._me.id
            self._due += 1
        if deliveries:
            out.upcalls.append(Run(deliveries))


class ToyEngines:
    """Makes the engines of a world whose nodes were added in the order of `names`; all of them in their first life."""

    __slots__ = ("_members",)

    def __init__(self, names: Sequence[str]) -> None:
        self._members = [
            Member(node_id(name, 0), name, 0, (f"10.0.{index // 250}.{index % 250 + 1}", PORT))
            for index, name in enumerate(names)
        ]

    def __call__(
        self,
        group: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,  # noqa: ARG002
        rng: Random,  # noqa: ARG002
        *,
        create: bool | None,  # noqa: ARG002
        min_members: MinMembers,  # noqa: ARG002
        recovery: RecoveryMode,  # noqa: ARG002
        demands: Demands,  # noqa: ARG002
        header: bytes,  # noqa: ARG002
        next_block: int,  # noqa: ARG002
        contact: Address | None,  # noqa: ARG002
        alone: AlonePolicy,  # noqa: ARG002
    ) -> ToyEngine:
        return ToyEngine(group, me, self._members, config)
