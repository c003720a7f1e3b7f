"""What the sequencer has besides what every member has: the table, resilience acks, and what waits to be ordered.

Amoeba sections 4.1 and 4.2. The table of "received up to" per member is the paper's; a second column, "consumed up to",
makes the history's bound include the application (section 3: a member that never receives blocks the group).
Deviation: one membership change at a time, the next when all have the last (docs/design/sequencer.md).
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import Change
from ordercast.orderers.logged.changes import PendingChanges, key_of
from ordercast.orderers.sequencer.rounds import StatusRounds
from ordercast.parts.log import Entry, Log
from ordercast.service import RESILIENT_RANK
from ordercast.view import DEPARTURES, Address, Member, Reason, View
from ordercast.wire.block import ENTRY_BYTES, FRAGMENT, FRAGMENTED, HEAD, HEAD_BYTES, LAST

WANTED_NS: Final = 300 * MS  # a member without room says so again within this time
BEHIND_NS: Final = 500 * MS
"""How long a member's word counts that its application does not receive. While the history waits for it, it is asked
every 60 ms."""


class MemberRow:
    """What the sequencer knows of one member."""

    __slots__ = ("behind_at", "behind_ns", "consumed", "held", "leaves_at", "received")

    def __init__(self, received: int, consumed: int) -> None:
        self.received = received
        self.consumed = consumed
        self.held: dict[int, int] = {}  # origin -> blocks held up to (half-open), for resilience
        self.leaves_at = 0  # sequence number of its own leave; 0 while it stays
        self.behind_ns = -BEHIND_NS  # when it last said that its application does not receive, and
        self.behind_at = 0  # how far that had consumed then

    def is_behind(self, now_ns: int) -> bool:
        """Whether its application does not receive, by its own word: what is not consumed may also wait for a word of
        ours that was lost on the way to it, as long as it only is heard."""
        return self.behind_at == self.consumed and now_ns - self.behind_ns < BEHIND_NS


class SequencerRole:
    __slots__ = (
        "_asked_at",
        "_me",
        "_open_messages",
        "_table",
        "changes",
        "is_blocked",
        "leavers",
        "others",
        "ready",
        "requests",
        "resilient_seq",
        "rounds",
        "safe",
        "stable",
        "wanted_ns",
    )

    def __init__(self, view: View, me: int, received: int, last_change: int) -> None:
        self._table = {member.id: MemberRow(received, received) for member in view.members}
        self._me = me
        self.others: list[int] = []  # everybody in the table but us; a new list whenever that changes
        self.stable = received  # lowest "consumed" of the table
        self.safe = received  # lowest "received"
        self._changed()
        self._open_messages: set[int] = set()  # origins whose fragmented message is half ordered
        self.changes = PendingChanges(last_change, {})
        self._asked_at = -1  # how far the log was when members were asked for the sake of a newcomer
        self.leavers: dict[int, Address] = {}  # members that left and may still need what comes before it
        self.ready: dict[int, None] = {}  # origins that may have something to order, in order of arrival
        self.requests: set[tuple[int, int]] = set()  # blocks that only we have: they go out ordered (PB)
        self.is_blocked = False  # the history is full
        self.wanted_ns = -WANTED_NS  # when a member last said that it has no room
        self.resilient_seq = 0  # of the last RESILIENT block
        self.rounds = StatusRounds()

    # The table

    def _changed(self) -> None:
        self.others = [member for member in self._table if member != self._me]
        self._measure()

    def _measure(self) -> None:
        rows = self._table.values()
        self.stable = min([row.consumed for row in rows], default=0)
        self.safe = min([row.received for row in rows], default=0)

    def row(self, member: int) -> MemberRow | None:
        return self._table.get(member)

    def acknowledge(self, member: int, received: int, consumed: int, highest: int) -> bool:
        """A member's acks; False if they cannot be true. A leaver that has its leave goes out of the table."""
        row = self._table.get(member)
        if row is None or received > highest:
            return False
        if received <= row.received and consumed <= row.consumed:
            return True
        row.received = max(row.received, received)
        row.consumed = max(row.consumed, consumed)
        if row.leaves_at and row.received >= row.leaves_at:
            self.forget(member)
        else:
            self._measure()
        return True

    def note_behind(self, now_ns: int, member: int, consumed: int) -> None:
        """A member says that its application has consumed so much, and leaves the rest."""
        row = self._table.get(member)
        if row is not None:
            row.behind_ns, row.behind_at = now_ns, consumed

    def admit(self, member: int, seq: int) -> None:
        self._table[member] = MemberRow(seq, seq)
        self._changed()

    def dismiss(self, member: Member, seq: int) -> None:
        """The member's leave has the sequence number `seq`; it counts until it has received it."""
        row = self._table.get(member.id)
        if row is not None:
            row.leaves_at = seq
            self.leavers[member.id] = member.address

    def forget(self, member: int) -> None:
        self._table.pop(member, None)
        self.leavers.pop(member, None)
        self._changed()

    def is_expelling(self, member: int) -> bool:
        """Whether the member's expulsion waits."""
        return bool(self.changes) and any(
            change.reason == Reason.EXPEL and change.member.id == member for change in self.changes
        )

    def is_leaving(self, member: int) -> bool:
        row = self._table.get(member)
        return row is not None and row.leaves_at > 0

    def lagging(self, now_ns: int, received: int) -> tuple[list[int], list[int]]:
        """The members that the history waits for: those whose applications do not receive, and those that do not
        answer. They have received least, or, where all have everything, consumed least. A member consumes nothing that
        must be safe before others have it, and it has heard that."""
        rows = self._table.items()
        if self.safe < received:
            return [], [member for member, row in rows if row.received == self.safe]
        last = [member for member, row in rows if row.consumed == self.stable < received]
        slow = [member for member in last if self._table[member].is_behind(now_ns)]
        return slow, [member for member in last if member not in slow]

    def not_holding(self, log: Log, view: View, me: int) -> list[int]:
        """The members whose word is missing before a RESILIENT block that is here can be ordered."""
        for origin in self.ready:
            number = log.next_number.get(origin, -1)
            block = log.blocks.get((origin, number))
            if block is not None:
                _, _, rank, k, _, _ = HEAD.unpack_from(block)
                chosen = ackers(view, me, origin, k) if rank == RESILIENT_RANK else []
                rows = {each: self._table.get(each) for each in chosen}
                lacking = [each for each, row in rows.items() if row is None or row.held.get(origin, 0) <= number]
                if lacking:
                    return lacking
        return []

    # What waits

    def propose(self, change: Change) -> None:
        """A change waits. Expulsions go first: a newcomer may wait for the end of a long message of their member."""
        if change.reason in DEPARTURES:
            self._open_messages.discard(change.member.id)  # what it sends from now on nobody waits for
        if key_of(change) not in self.changes:
            self.changes.add(change, goes_first=change.reason == Reason.EXPEL)

    def holding_up(self, now_ns: int) -> dict[int, int]:
        """Members whose applications keep the history full, and how far they have consumed; none while there is room,
        or nobody misses it. While a member lacks what comes next the history waits for that one: no application can
        receive what must be safe before. A member that says nothing of its application may lack a word of ours."""
        if not self.is_blocked and now_ns - self.wanted_ns > WANTED_NS:
            return {}
        stable, safe = self.stable, self.safe
        return {
            member: row.consumed
            for member, row in self._table.items()
            if row.consumed == stable < safe and row.is_behind(now_ns) and not row.leaves_at
        }

    def is_held_up(self, log: Log, last_safe_seq: int, is_decided: bool) -> bool:
        """Whether a change waits for what stands before it: nothing is ordered until members have that.

        What a view is delivered behind must be safe in the view before it, whatever fails in between: also what is
        RESILIENT, since members that get it in a recovery may have lost those that held it. And a newcomer has nothing
        of what stands before its join: all others must have it, or nobody may be left to tell them.
        """
        if not self.changes:
            return False
        return self.safe < max(last_safe_seq, self.resilient_seq) or (is_decided and self._waits_for_all(log))

    def _waits_for_all(self, log: Log) -> bool:
        """Whether a newcomer could come in, if all members had everything."""
        is_join = self.changes.first.reason == Reason.JOIN
        return is_join and self.safe < log.received and not self._open_messages and self._is_due(log)

    def must_ask(self, log: Log) -> bool:
        """Whether a newcomer waits for acknowledgements that no member was asked for: they are lazy."""
        if not self.changes or self._asked_at == log.received or not self._waits_for_all(log):
            return False
        self._asked_at = log.received
        return True

    def awaits_acks(self, log: Log, last_strong_seq: int) -> bool:
        """Whether somebody waits for what members have not said yet: a change, a SAFE message, room in the history."""
        return (
            self.is_blocked
            or bool(self.changes)
            or self.safe < max(self.changes.last_seq, last_strong_seq)
            or self.rounds.is_open(log)
        )

    def _is_due(self, log: Log) -> bool:
        return self.changes.is_due(self.safe, log.next_number)

    def next_change(self, log: Log) -> Change | None:
        """The change to order now: when all have the last one, and no newcomer would see half a message, or lack what
        others lack.

        Nor one that it may have delivered already: a member that a failure left behind and that comes back has perhaps
        seen what the survivors could not order, and submit again. That is ordered before anybody joins.
        """
        if not self._is_due(log) or self._waits_for_all(log):
            return None
        if self._open_messages and self.changes.first.reason in (Reason.JOIN, Reason.DISSOLVE):
            return None
        return self.changes.take()

    def next_block(
        self, log: Log, view: View, me: int, origin: int, limit_bytes: int, limit_blocks: int
    ) -> bytes | None:
        """The next block of `origin` if it may be ordered now; sets `is_blocked` when the history is what stops it."""
        number = log.next_number.get(origin)
        if number is None:
            return None
        block = log.blocks.get((origin, number))
        if block is None:
            return None
        _, _, rank, k, flags, _ = HEAD.unpack_from(block)
        if rank == RESILIENT_RANK and not self._is_resilient(view, me, origin, number, k):
            return None
        if flags & FRAGMENTED and self._keeps_newcomers_waiting(origin, block):
            return None
        if self.changes.is_awaited(origin) and self.changes and self.changes.first.reason == Reason.EXPEL:
            return block  # the expulsion waits for it, and only the expulsion makes room
        if log.entries and (log.unstable_bytes + log.cost(block) > limit_bytes or len(log.entries) >= limit_blocks):
            self.is_blocked = True
            return None
        return block

    def _keeps_newcomers_waiting(self, origin: int, block: bytes) -> bool:
        """Whether the block begins a long message while somebody waits to join between messages."""
        if origin in self._open_messages or self.changes.is_awaited(origin) or origin not in self._table:
            return False
        begins = FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[1] == 0
        return begins and bool(self.changes) and self.changes.first.reason in (Reason.JOIN, Reason.DISSOLVE)

    def ordered(self, entry: Entry) -> None:
        """The block has its sequence number."""
        self.rounds.ordered(entry)
        if entry.rank == RESILIENT_RANK:
            self.resilient_seq = entry.seq
        if entry.flags & FRAGMENTED:
            if entry.flags & LAST:
                self._open_messages.discard(entry.origin)
            elif entry.origin in self._table and not self.is_expelling(entry.origin):
                # What a gone sender began will not be completed.
                self._open_messages.add(entry.origin)

    def _is_resilient(self, view: View, me: int, origin: int, number: int, k: int) -> bool:
        """Whether the k lowest-numbered members besides sequencer and sender hold the block (section 4.2)."""
        for member in ackers(view, me, origin, k):
            row = self._table.get(member)
            if row is None or row.held.get(origin, 0) <= number:
                return False
        return True


def ackers(view: View, sequencer: int, origin: int, k: int) -> list[int]:
    """The members that acknowledge a RESILIENT(k) block: the k lowest-numbered members besides sequencer and sender."""
    others = [member.id for member in view.members if member.id not in (sequencer, origin)]
    return others[:k]
