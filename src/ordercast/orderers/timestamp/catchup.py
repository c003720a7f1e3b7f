"""What members say of themselves, and what does not come: blocks, decisions, and entries that others have received."""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import Outbox
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.timestamp.agreement import Agreement
from ordercast.orderers.timestamp.queue import Key
from ordercast.orderers.timestamp.timers import TimestampTimer
from ordercast.parts.repairs import Repairs
from ordercast.parts.timers import Timers
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.header import Kind
from ordercast.wire.ordering import MAX_MISSING, Acks, encode_nak
from ordercast.wire.stamps import BEHIND, Stamps

AGAIN_MAX_NS: Final = 100 * MS
AT_ONCE: Final = 64  # blocks of one sender that are acknowledged again at a time


class CatchUp:
    """What a member said last counts, not the most: a wrong word is mended by the next."""

    __slots__ = (
        "_again_ns",
        "_agreement",
        "_behind_at",
        "_log",
        "_me",
        "_received_by",
        "_repairs",
        "_ring",
        "_sent_by",
        "_stuck",
        "_table",
        "_timers",
        "full",
    )

    def __init__(
        self,
        ring: RingState,
        repairs: Repairs,
        delivery: ServiceDelivery,
        agreement: Agreement,
        timers: Timers[TimestampTimer],
    ) -> None:
        self._ring = ring
        self._log = ring.log
        self._me = ring.me.id
        self._repairs = repairs
        self._table = delivery.table
        self._agreement = agreement
        self._timers = timers
        self._sent_by: dict[int, int] = {}  # origin -> it has sent its blocks below this
        self._received_by: dict[int, int] = {}  # origin -> it has received up to this sequence number
        self.full: set[int] = set()  # members that say that their applications do not receive
        self._stuck: dict[int, int] = {}  # origin -> its first undecided block, at the last look
        self._again_ns = ring.timing.nak_retry_ns
        self._behind_at = 0

    def hear_of_application(self, member: int, flags: int) -> None:
        """Whether the application of a member receives, as that one says."""
        if flags & BEHIND:
            self.full.add(member)
        elif self.full:
            self.full.discard(member)

    def heard_received(self, now_ns: int, origin: int, stamps: Stamps) -> None:
        """A member says how far it is."""
        log, view = self._log, self._ring.view
        if stamps.view > log.received:
            log.highest = max(log.highest, stamps.view)  # there is a change that we have missed
            self._received_by[origin] = stamps.view
        index = view.index(origin)
        if stamps.view == view.seq and 0 <= index < len(stamps.rows):
            self._received_by[origin] = stamps.rows[index]
            if stamps.rows[index] > log.received and not self._timers.is_set(TimestampTimer.BEHIND):
                self._behind_at = log.received
                self._timers.set(TimestampTimer.BEHIND, now_ns + self._ring.timing.nak_delay_ns)

    def heard_sent(self, now_ns: int, origin: int, stamps: Stamps) -> None:
        """A member says how many blocks it has sent, and decided."""
        log = self._log
        if stamps.sent <= log.next_number.get(origin, 0) + log.ahead:
            self._sent_by[origin] = stamps.sent
        waiting = self._agreement.queue.undecided(origin)
        if waiting and waiting[0] < stamps.decided:
            self._stuck[origin] = waiting[0]
            self._timers.set_earlier(TimestampTimer.AGAIN, now_ns + self._ring.timing.nak_delay_ns)

    def forget(self, member: int) -> None:
        self._sent_by.pop(member, None)
        self.full.discard(member)

    def look(self, now_ns: int, out: Outbox) -> None:
        """After a batch: what is missing, and whether decisions stay away."""
        log, agreement = self._log, self._agreement
        missing: list[Key] = []
        expected, come, sent = agreement.expected, agreement.come, self._sent_by
        for origin in {**come, **sent}:
            known = max(come.get(origin, 0), sent.get(origin, 0))
            first = expected.get(origin, known)
            if first < known:
                stop = min(known, first + MAX_MISSING)
                missing += [(origin, number) for number in range(first, stop) if (origin, number) not in log.blocks]
        partial = self._repairs.partial
        if len(partial):
            missing += [(origin, number) for origin, number, _ in partial if origin != GROUP_ORIGIN]
        if missing or self._repairs.is_wanted(False):
            out.notes.extend(self._repairs.look(now_ns, True, sorted(set(missing))[:MAX_MISSING]))
        queue = agreement.queue
        if not self._timers.is_set(TimestampTimer.AGAIN) and any(
            agreement.answerer(origin) != self._me for origin in queue.open_origins()
        ):
            self._stuck = {origin: queue.undecided(origin)[0] for origin in queue.open_origins()}
            self._timers.set(TimestampTimer.AGAIN, now_ns + self._again_ns)

    def acknowledge_again(self) -> None:
        """Blocks that still wait for the decision that they waited for at the last look."""
        agreement, is_stuck = self._agreement, False
        for origin, first in self._stuck.items():
            waiting = agreement.queue.undecided(origin)
            if waiting and waiting[0] == first and agreement.answerer(origin) != self._me:
                is_stuck = agreement.owed.asks = True
                for number in waiting[:AT_ONCE]:
                    agreement.owe(origin, number)
        self._stuck = {}
        self._again_ns = min(2 * self._again_ns, AGAIN_MAX_NS) if is_stuck else self._ring.timing.nak_retry_ns

    def catch_up(self, now_ns: int) -> None:
        """Others have received more than we. If nothing has come meanwhile, ask for the assignments."""
        log = self._log
        ahead = max([self._received_by.get(member, 0) for member in self._agreement.members])
        if log.received >= ahead or self._ring.has_left:
            return
        if log.received == self._behind_at:
            log.highest = max(log.highest, ahead)
        self._behind_at = log.received
        self._timers.set(TimestampTimer.BEHIND, now_ns + self._ring.timing.nak_retry_ns)

    def _forget_hearsay(self) -> None:
        """Nobody has the entries that somebody spoke of. If there are such, they will be spoken of again."""
        log = self._log
        log.highest = max([log.received, *log.assignments])
        self._received_by.clear()

    def send_naks(self, now_ns: int, out: Outbox) -> None:
        """Assignments are asked of a member that has received them, blocks of the member that answers for them."""
        ring, log = self._ring, self._log
        if ring.has_left:
            return
        acks, claims = Acks(log.received, log.received), self._received_by.values()
        for tries, missing in self._repairs.due_by_tries(now_ns).items():
            lowest = min([each.number for each in missing if each.origin == GROUP_ORIGIN], default=0)
            if tries > ring.timing.nak_tries and lowest > max([log.received, *log.assignments, *claims]):
                self._forget_hearsay()
                break
            others = [member for member in self._agreement.members if member != self._me]
            able = [member for member in others if self._table.row(member) >= max(lowest, 1)] or others
            if able:
                member = ring.view.member(able[(tries - 1) % len(able)])
                if member is not None:
                    out.sends.append(ring.writer.control(member.address, Kind.NAK, encode_nak(acks, missing)))
        for origin, blocks in self._repairs.due_blocks(now_ns).items():
            member = ring.view.member(self._agreement.answerer(origin))
            if member is not None and member.id != self._me:
                out.sends.append(ring.writer.control(member.address, Kind.NAK, encode_nak(acks, blocks)))
