"""When a message is handed over: the whole ladder of services (RMP section 3.2 and figure 3.2).

Ordered messages go up in the order of the log, the strong ones when the table says that enough members have them. The
weak ones do not wait to be ordered: RELIABLE goes up on arrival, FIFO behind its sender's earlier ones. Each delivery
has a ticket; the application gives tickets back, and what it has not given back is the backlog that holds up the ring.

Deviation: parts of long messages go up in the order of the log whatever their service: no newcomer ever gets half of
one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ordercast.engine import Delivery, Outbox, Run
from ordercast.orderers.logged.in_order import ViewDelivery, first_safe
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.parts.log import Entry
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.recent import Recent
from ordercast.parts.table import Table
from ordercast.service import FIFO_RANK, RESILIENT_RANK, SAFE_RANK
from ordercast.view import Reason, id_of
from ordercast.wire.block import CALLED, CHANGE, FRAGMENTED, HEAD
from ordercast.wire.calls import asks_for_answer
from ordercast.wire.views import open_change

UNASSIGNED: Final = -1  # position of what has none, block number of what is UNRELIABLE
MAX_CALLED: Final = 256  # callers whose last call is remembered beyond the ring, those that called lately
MAX_RECENT: Final = 2_048  # senders whose UNRELIABLE numbers are remembered, those that were heard lately
RESERVED_WINDOWS: Final = 2  # of backlog beyond the limit, for what stands before a change of members or locks
MAX_REMEMBERED_EARLY: Final = 65_536  # weak messages delivered and not ordered, over all senders


class ServiceDelivery:
    """What of a log the application has, and what it has ahead of the log."""

    __slots__ = (
        "_begin",
        "_called",
        "_early",
        "_log",
        "_me",
        "_orphans",
        "_recent",
        "_recent_calls",
        "_ring",
        "_strong_rank",
        "_ticket",
        "_unconsumed",
        "_upto",
        "_views",
        "_window",
        "backlog",
        "cleared",
        "delivered",
        "fresh",
        "safe",
        "table",
    )

    def __init__(self, ring: RingState, window: SendWindow, strong_rank: int) -> None:
        """`strong_rank`: from this service on an entry waits until the table says that enough members have it."""
        view = ring.view
        self._ring = ring
        self._log = ring.log
        self._me = ring.me.id
        self._window = window
        self._strong_rank = strong_rank
        self._views = ViewDelivery(ring)
        self.table = Table(view, ring.me.id, 0 if view.reason == Reason.JOIN else first_safe(view))
        self.delivered = view.seq - 1 if view.reason == Reason.JOIN else view.seq
        self._begin = view.seq  # nothing goes up before the first view
        self.safe = first_safe(view)
        self.cleared = 0  # up to here nothing waits: a change stands behind it, or recovery agreed on it
        # Ahead of the log
        self._early: dict[tuple[int, int], int] = {}  # delivered and not ordered -> ticket
        self._upto = dict(ring.log.next_number)  # origin -> the first block that is not delivered
        self._orphans = dict(view.awaited)  # origin -> its blocks below this come again, also where it is gone
        self.fresh: list[Delivery] = []  # to go up with the next batch
        self._recent: dict[int, Recent] = {}  # UNRELIABLE blocks of members, also of those that have left the ring
        self._recent_calls: dict[int, Recent] = {}
        self._called: dict[int, int] = {}  # caller -> one past its last call that was delivered
        # The application
        self._ticket = view.seq
        self._unconsumed: deque[tuple[int, int]] = deque()  # ticket and cost, in order
        self.backlog = 0

    # What passes from ring to ring

    def memory(self) -> DeliveryMemory:
        waiting = {(delivery.origin, delivery.number) for delivery in self.fresh}
        early = {key: ticket for key, ticket in self._early.items() if key not in waiting}
        return DeliveryMemory(self._ticket, early, self._called, self._recent_calls)

    def inherit(self, memory: DeliveryMemory) -> None:
        self._ticket = max(self._ticket, memory.ticket)
        numbers = self._log.next_number
        kept = {key: 0 for key in memory.early if key[1] >= numbers.get(key[0], 0)}
        for key in list(kept)[: max(0, len(kept) - MAX_REMEMBERED_EARLY)]:
            del kept[key]
        self._early = kept
        self._called = dict(memory.called)
        self._recent_calls = dict(memory.recent)
        for origin in numbers:
            self._follow_up(origin)

    def admit(self, newcomer: int) -> None:
        """A member has come in: what it sends begins with its next number."""
        self._upto[newcomer] = self._log.next_number[newcomer]
        self._recent_calls.pop(newcomer, None)

    def forget(self, leaver: int) -> None:
        self._upto.pop(leaver, None)

    # Arrivals

    def arrived(self, origin: int, number: int, block: bytes, rank: int, flags: int) -> None:
        """A block is held: hand it over if its service does not wait to be ordered."""
        ring = self._ring
        if rank > FIFO_RANK or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen or ring.has_left:
            return
        if (origin, number) in self._early or origin not in self._upto or self.delivered < self._begin:
            return
        if number >= self._orphans.get(origin, 0) and ring.view.member(origin) is None:
            return  # it has come back, and its join is not here yet
        if rank < FIFO_RANK:
            self._deliver_early(origin, number, block)
            if number == self._upto[origin]:
                self._follow_up(origin)
        elif number == self._upto[origin]:
            self._follow_up(origin)

    def _follow_up(self, origin: int) -> None:
        """FIFO blocks that waited for what has just been delivered."""
        blocks, early = self._log.blocks, self._early
        number = self._upto.get(origin, 0)
        while True:
            if (origin, number) not in early:
                block = blocks.get((origin, number))
                if block is None:
                    break
                _, _, rank, _, flags, _ = HEAD.unpack_from(block)
                if rank > FIFO_RANK or flags & (FRAGMENTED | CALLED) or self._ring.is_frozen:
                    break
                self._deliver_early(origin, number, block)
            number += 1
        self._upto[origin] = number

    def _deliver_early(self, origin: int, number: int, block: bytes) -> None:
        self._early[origin, number] = self._hand_over(origin, number, block, UNASSIGNED, self.fresh)

    def arrived_unreliable(self, origin: int, number: int, block: bytes, shown: int = UNASSIGNED) -> bool:
        """An UNRELIABLE block, or call (which is shown with its number); False if it was here before."""
        if self.delivered < self._begin:
            return True  # we are not in yet, and nobody promised it
        heard = self._recent if shown == UNASSIGNED else self._recent_calls
        recent = heard.pop(origin, None)
        if recent is None:
            recent = Recent()
        heard[origin] = recent  # the sender that was heard last stands last
        if len(heard) > MAX_RECENT:
            del heard[next(iter(heard))]
        if not recent.is_new(number):
            return False
        self._hand_over(origin, shown, block, UNASSIGNED, self.fresh)
        return True

    def _hand_over(self, origin: int, number: int, block: bytes, position: int, run: list[Delivery]) -> int:
        self._ticket += 1
        cost = self._log.cost(block)
        self.backlog += cost
        self._unconsumed.append((self._ticket, cost))
        run.append(Delivery(self._ticket, position, origin, number, block))
        return self._ticket

    # The application

    def consume(self, ticket: int) -> None:
        unconsumed = self._unconsumed
        while unconsumed and unconsumed[0][0] <= ticket:
            self.backlog -= unconsumed.popleft()[1]

    @property
    def oldest(self) -> int:
        """The ticket of the oldest delivery that the application has not given back; 0 if there is none."""
        return self._unconsumed[0][0] if self._unconsumed else 0

    def is_overrun(self, change_waits: bool = False) -> bool:
        """The application has fallen behind: more must not come until it has taken some of it (section 4.6).

        What a change waits for may come all the same, out of a reserve: two windows, since all senders together have
        no more than one out, and another one may follow before the change is ordered.
        """
        window = self._window
        limit = max(window.ceiling // 2, 2 * window.largest)
        return self.backlog > (limit + RESERVED_WINDOWS * window.ceiling if change_waits else limit)

    # The log

    def must_be_safe(self, entry: Entry) -> bool:
        """Whether the entry is a call that asks for an answer: it waits like a SAFE one from now on.

        At most one answer, whatever fails: no member gets the call before every member has it, knows its order, and
        with that which member holds its handler there. Otherwise a member that is left behind could answer, and the
        others again.
        """
        if not entry.flags & CALLED or not asks_for_answer(entry.block):
            return False
        entry.rank = SAFE_RANK
        return True

    def deliver(self, out: Outbox) -> None:
        """Everything that may go up, in order."""
        entries, early, strong_rank = self._log.entries, self._early, self._strong_rank
        run, self.fresh = self.fresh, []
        seq = self.delivered + 1
        upto = self._ring.deliverable
        while seq <= upto:
            entry = entries[seq]
            if entry.rank >= strong_rank and not self._may_deliver(entry):
                break
            self.delivered = seq
            if entry.flags & CHANGE:
                if run:
                    out.upcalls.append(Run(run))
                    run = []
                view = open_change(entry.block)
                if view.reason == Reason.EXPEL and early:
                    self._forget_early(id_of(view.subject))
                self._views.deliver(view, out)
            else:
                origin, number = entry.origin, entry.number
                if early and early.pop((origin, number), None) is not None:
                    pass
                else:
                    self._hand_over(origin, number, entry.block, entry.position, run)
                    if entry.flags & CALLED and origin in self._ring.callers:
                        self._note_call(origin, number)
                    elif origin in self._upto:
                        self._upto[origin] = number + 1
                        if (origin, number + 1) in self._log.blocks:
                            self._follow_up(origin)
                            run.extend(self.fresh)
                            self.fresh.clear()
            seq += 1
        if run:
            out.upcalls.append(Run(run))

    def _forget_early(self, expelled: int) -> None:
        """What came of an expelled member is delivered, or will never be ordered."""
        for key in [key for key in self._early if key[0] == expelled]:
            del self._early[key]

    def has_called(self, origin: int, number: int) -> bool:
        """Whether a call was delivered here, in this ring or before it, as far as that is remembered."""
        return number < self._called.get(origin, 0)

    def _note_call(self, origin: int, number: int) -> None:
        called = self._called
        called.pop(origin, None)
        called[origin] = number + 1
        if len(called) > MAX_CALLED:
            del called[next(iter(called))]

    def _may_deliver(self, entry: Entry) -> bool:
        seq, table = entry.seq, self.table
        if seq <= self.cleared or seq <= table.safe:
            return True
        if entry.rank == SAFE_RANK:
            return False
        holders = table.holders(seq)
        if entry.rank == RESILIENT_RANK:
            return holders >= min(entry.head[3], len(self._ring.view.members) - 1)
        return 2 * (holders + 1) > table.max_n

    def purge_safe(self) -> bool:
        """Free what everybody holds and we have delivered; whether there was any."""
        safe = self.safe = max(self.safe, self.table.safe)
        stable = min(safe, self.delivered)
        if stable > self._log.stable:
            me, outgoing = self._me, self._window.outgoing
            for entry in self._log.purge(stable):
                if entry.origin == me:
                    outgoing.stable(entry.number)
            return True
        return False

    def recover(self, upto: int, out: Outbox) -> None:
        """Deliver what recovery agreed on, up to and including `upto`: it waits for nobody any more."""
        self.cleared = self.safe = self._ring.decided = upto
        self.deliver(out)
