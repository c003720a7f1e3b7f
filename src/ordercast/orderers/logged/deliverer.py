"""When a message is handed over: the whole ladder of services (RMP section 3.2 and figure 3.2).

Ordered messages go up in the order of the log, the strong ones when the table says that enough members have them. The
weak ones do not wait for a place: RELIABLE goes up on arrival, FIFO behind its sender's earlier ones. Each delivery has
a ticket; the application gives tickets back, and what it has not given back is the backlog that holds up the token.

Deviation: parts of long messages go up at their place whatever their service: no newcomer ever gets half of one.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Delivery, Outbox, Run
from ordercast.orderers.logged.keeper import Keeper
from ordercast.orderers.orderer import Usage
from ordercast.parts.log import Entry
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.recent import Recent
from ordercast.parts.table import Table
from ordercast.service import AGREED_RANK, FIFO_RANK, RESILIENT_RANK, SAFE_RANK, UNRELIABLE_RANK
from ordercast.view import Member, Reason, View
from ordercast.wire.block import CALLED, CHANGE, FRAGMENTED, HEAD, LAST, Head
from ordercast.wire.calls import asks_for_answer
from ordercast.wire.views import open_change

UNASSIGNED: Final = -1  # position of what has none, block number of what is UNRELIABLE
MAX_CALLED: Final = 256  # callers whose last call is remembered beyond the ring, those that called lately
MAX_RECENT: Final = 2_048  # senders whose UNRELIABLE numbers are remembered, those that were heard lately
MAX_REMEMBERED_EARLY: Final = 65_536  # weak messages delivered and without a place, over all senders


class Deliverer(Keeper):
    """The log of a member of a token ring, and what of it the application has."""

    strong_rank: ClassVar[int] = RESILIENT_RANK

    def __init__(
        self,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counters: dict[str, int],
    ) -> None:
        super().__init__(me, config, timing, view, next_block, counters)
        known = view.seq if view.reason in (Reason.CREATE, Reason.RESET) else 0
        self._table = Table(view, me.id, known)
        self._cleared = 0  # up to this place nothing waits: a change stands behind it, or recovery agreed on it
        # Ahead of the log
        self._early: dict[tuple[int, int], int] = {}  # delivered without a place -> ticket
        self._upto = dict(self.log.next_number)  # origin -> the first block that is not delivered
        self._orphans = dict(view.awaited)  # origin -> its blocks below this come again, also where it is gone
        self._fresh: list[Delivery] = []  # to go up with the next batch
        self._recent: dict[int, Recent] = {}
        self._called: dict[int, int] = {}  # caller -> one past its last call that was delivered
        self._open: set[int] = set()  # members whose long message is half placed
        # The application
        self._ticket = view.seq
        self._unconsumed: deque[tuple[int, int]] = deque()  # ticket and cost, in order
        self._backlog = 0

    # What passes from ring to ring

    def memory(self) -> DeliveryMemory:
        waiting = {(delivery.origin, delivery.number) for delivery in self._fresh}
        early = {key: ticket for key, ticket in self._early.items() if key not in waiting}
        recent = {origin: recent for origin, recent in self._recent.items() if self.view.member(origin) is None}
        return DeliveryMemory(self._ticket, early, self._called, recent)

    def _inherit(self, memory: DeliveryMemory) -> None:
        self._ticket = max(self._ticket, memory.ticket)
        numbers = self.log.next_number
        kept = {key: 0 for key in memory.early if key[1] >= numbers.get(key[0], 0)}
        for key in list(kept)[: max(0, len(kept) - MAX_REMEMBERED_EARLY)]:
            del kept[key]
        self._early = kept
        self._called = dict(memory.called)
        self._recent = dict(memory.recent)
        for origin in numbers:
            self._follow_up(origin)

    # Arrivals

    def _arrived(self, origin: int, number: int, block: bytes, head: Head) -> None:
        """A block is held: hand it over if its service does not wait for a place."""
        rank = head.rank
        if rank > FIFO_RANK or head.flags & (FRAGMENTED | CHANGE | CALLED) or self.is_frozen or self.has_left:
            return
        if (origin, number) in self._early or origin not in self._upto:
            return
        if number >= self._orphans.get(origin, 0) and self.view.member(origin) is None:
            return  # it has come back, and its join is not here yet
        if rank < FIFO_RANK:
            self._deliver_early(origin, number, block)
            if number == self._upto[origin]:
                self._follow_up(origin)
        elif number == self._upto[origin]:
            self._follow_up(origin)

    def _follow_up(self, origin: int) -> None:
        """FIFO blocks that waited for what has just been delivered."""
        blocks, early = self.log.blocks, self._early
        number = self._upto.get(origin, 0)
        while True:
            if (origin, number) not in early:
                block = blocks.get((origin, number))
                if block is None:
                    break
                _, _, rank, _, flags, _ = HEAD.unpack_from(block)
                if rank > FIFO_RANK or flags & (FRAGMENTED | CALLED) or self.is_frozen:
                    break
                self._deliver_early(origin, number, block)
            number += 1
        self._upto[origin] = number

    def _deliver_early(self, origin: int, number: int, block: bytes) -> None:
        self._early[origin, number] = self._hand_over(origin, number, block, UNASSIGNED, self._fresh)

    def _arrived_unreliable(self, origin: int, number: int, block: bytes, shown: int = UNASSIGNED) -> bool:
        """An UNRELIABLE block, or call (which is shown with its number); False if it was here before."""
        recent = self._recent.pop(origin, None)
        if recent is None:
            recent = Recent()
        self._recent[origin] = recent  # who was heard last stands last
        if len(self._recent) > MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        if not recent.is_new(number):
            return False
        self._hand_over(origin, shown, block, UNASSIGNED, self._fresh)
        return True

    def _hand_over(self, origin: int, number: int, block: bytes, position: int, run: list[Delivery]) -> int:
        self._ticket += 1
        cost = self.log.cost(block)
        self._backlog += cost
        self._unconsumed.append((self._ticket, cost))
        run.append(Delivery(self._ticket, position, origin, number, block))
        return self._ticket

    # The application

    def consume(self, seq: int) -> None:
        unconsumed = self._unconsumed
        while unconsumed and unconsumed[0][0] <= seq:
            self._backlog -= unconsumed.popleft()[1]

    def usage(self) -> Usage:
        return Usage(self.log.unstable_bytes + self._backlog, len(self.log.entries))

    # The log

    def _on_special(self, now_ns: int, entry: Entry) -> None:
        super()._on_special(now_ns, entry)
        if entry.flags & CALLED and asks_for_answer(entry.block):
            # At most one answer, whoever fails: nobody gets it before everybody has it and knows its place, and with
            # that who holds its handler there. Otherwise one that is left behind could answer, and the others again.
            entry.rank = SAFE_RANK
            self._last_safe_seq = entry.seq
        if entry.flags & FRAGMENTED:
            if entry.flags & LAST or self.view.member(entry.origin) is None:
                self._open.discard(entry.origin)
            else:
                self._open.add(entry.origin)

    def _deliver(self, out: Outbox) -> None:
        """Everything that may go up, in order."""
        entries, early = self.log.entries, self._early
        run, self._fresh = self._fresh, []
        seq = self.delivered + 1
        received = self.log.received
        while seq <= received:
            entry = entries[seq]
            if entry.rank > AGREED_RANK and not self._may_deliver(entry):
                break
            self.delivered = seq
            if entry.is_change:
                if run:
                    out.upcalls.append(Run(run))
                    run = []
                self._show(open_change(entry.block), out)
            else:
                origin, number = entry.origin, entry.number
                if early and early.pop((origin, number), None) is not None:
                    pass
                else:
                    self._hand_over(origin, number, entry.block, entry.position, run)
                    if entry.flags & CALLED and origin in self.callers:
                        self._note_call(origin, number)
                    elif origin in self._upto:
                        self._upto[origin] = number + 1
                        if (origin, number + 1) in self.log.blocks:
                            self._follow_up(origin)
                            run.extend(self._fresh)
                            self._fresh.clear()
            seq += 1
        if run:
            out.upcalls.append(Run(run))
        self.consumed = self.delivered

    def _note_call(self, origin: int, number: int) -> None:
        called = self._called
        called.pop(origin, None)
        called[origin] = number + 1
        if len(called) > MAX_CALLED:
            del called[next(iter(called))]

    def _may_deliver(self, entry: Entry) -> bool:
        seq, table = entry.seq, self._table
        if seq <= self._cleared or seq <= table.safe:
            return True
        if entry.rank == SAFE_RANK:
            return False
        holders = table.holders(seq)
        if entry.rank == RESILIENT_RANK:
            return holders >= min(entry.head[3], len(self.view.members) - 1)
        return 2 * (holders + 1) > table.max_n

    def _purge_safe(self) -> None:
        """Free what everybody holds and we have delivered."""
        safe = self.safe = max(self.safe, self._table.safe)
        stable = min(safe, self.delivered)
        if stable > self.log.stable:
            me = self.me.id
            for entry in self.log.purge(stable):
                if entry.origin == me:
                    self._outgoing.stable(entry.number)

    def recover(self, upto: int, out: Outbox) -> None:
        self._cleared = upto
        super().recover(upto, out)

    def is_unreliable(self, block: bytes) -> bool:
        """Whether the block goes out without a number: UNRELIABLE, and whole."""
        _, _, rank, _, flags, _ = HEAD.unpack_from(block)
        return bool(rank == UNRELIABLE_RANK and not flags & FRAGMENTED)
