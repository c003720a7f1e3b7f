"""What an ordering discipline implements (DESIGN section 5), as the underlay and the membership use it.

One object lives for one ring. Inputs are calls; outputs go to the Outbox. `is_leader` is true at the member that admits
newcomers and orders changes where one member does, and everywhere at who answers for the ring to other rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from ordercast.config import GroupConfig, MinMembers, Timing
from ordercast.engine import Change, Outbox
from ordercast.parts.keeper import DeliveryMemory
from ordercast.parts.log import Log
from ordercast.view import Address, Member, View
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut, Proposal
from ordercast.wire.writer import DatagramWriter


class Orderer(Protocol):
    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counter: int,
        counters: dict[str, int],
    ) -> None: ...

    ranks: ClassVar[frozenset[int]]  # of the services that it gives
    gives_locks: ClassVar[bool]  # locks, handlers, and calls from outside

    view: View  # as of what is received
    changed: list[View]  # applied since the underlay last took them; delivery follows in order
    log: Log
    callers: set[int]  # origins in the log's numbers that are no members
    next_block: int
    consumed: int
    safe: int  # all members are known to hold everything up to this place
    is_frozen: bool

    @property
    def held_bytes(self) -> int: ...  # buffered here of the group's traffic

    is_retired: bool  # it led, and its own leave or the end of the ring is ordered
    has_left: bool  # the log ends here for this node

    # While the ring is whole

    def install(
        self,
        now_ns: int,
        backlog: Sequence[tuple[int, bytes]],
        orphans: Sequence[tuple[int, int, bytes]],
        awaited: dict[int, int],
        out: Outbox,
    ) -> None: ...

    def greet(self) -> None: ...

    def room(self, now_ns: int) -> tuple[int, int]: ...

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int: ...

    def consume(self, seq: int) -> None: ...

    def waits_for_application(self) -> bool: ...

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None: ...

    def on_segment(
        self,
        now_ns: int,
        origin: int,
        number: int,
        segment: int,
        last: int,
        body: memoryview,
        is_repair: bool,
        out: Outbox,
    ) -> None: ...

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None: ...

    def after_batch(self, now_ns: int, out: Outbox) -> None: ...

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int: ...

    def suspects(self, now_ns: int) -> list[int]: ...

    def propose(self, now_ns: int, change: Change) -> None: ...

    @property
    def is_busy(self) -> bool: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def is_ordering(self) -> bool: ...  # whether the next place is this member's to give

    @property
    def admits(self) -> bool: ...  # whether a newcomer's request may be handed to this member

    @property
    def contact(self) -> Member: ...  # whom newcomers are to ask

    @property
    def is_settled(self) -> bool: ...

    @property
    def allowance(self) -> int: ...  # bytes that a caller outside may have out

    def answers(self, origin: int, number: int) -> bool: ...  # whether this member acknowledges a call

    def on_call(self, now_ns: int, origin: int, number: int, is_first: bool, block: bytes, out: Outbox) -> bool:
        """A call from outside, whole; False if it was delivered here before."""

    @property
    def may_go(self) -> bool: ...  # who has left is of no more use to anybody

    def carry(self) -> DeliveryMemory: ...  # what passes to the orderer of the next ring

    def inherit(self, memory: DeliveryMemory) -> None: ...

    def leavers(self) -> list[Address]: ...

    # When it is not

    def freeze(self) -> None: ...

    def cut(self, rule: MinMembers, accepted: Proposal | None) -> Cut: ...

    def adopt(self, upto: int, assignments: Sequence[Assignment]) -> list[int]: ...

    def lacking(self, upto: int) -> list[int]: ...

    def note_remainder(self, upto: int, out: Outbox) -> None: ...

    def recover(self, upto: int, out: Outbox) -> None: ...

    def leftovers(self) -> list[tuple[int, bytes]]: ...

    def undelivered(self) -> int: ...

    def abandon(self, out: Outbox) -> None: ...
