"""What a member asks the sequencer for: its own leave and expulsions (Amoeba section 3, LeaveGroup), and room."""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import Change, Outbox
from ordercast.orderers.logged.expelling import Expulsions, is_current
from ordercast.orderers.logged.leaving import LOOK_NS, REPEAT_NS, Leaving
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.sequencer.acknowledging import Acknowledger
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.role import SequencerRole
from ordercast.orderers.sequencer.timers import SequencerTimer
from ordercast.parts.outgoing import Outgoing
from ordercast.parts.timers import Timers
from ordercast.view import Reason
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Lead, decode_expulsion, encode_expulsion, encode_lead, encode_propose

WANT_NS: Final = 2 * MS


class ChangeAsker:
    """What is asked for is repeated until it is ordered: the timer PROPOSE. A leave waits for our own blocks."""

    __slots__ = ("_acknowledger", "_expulsions", "_leaving", "_outgoing", "_ring", "_timers")

    def __init__(
        self,
        ring: RingState,
        leaving: Leaving,
        outgoing: Outgoing,
        acknowledger: Acknowledger,
        timers: Timers[SequencerTimer],
    ) -> None:
        self._ring = ring
        self._leaving = leaving
        self._outgoing = outgoing
        self._acknowledger = acknowledger
        self._timers = timers
        self._expulsions = Expulsions(ring)

    def ask(self, now_ns: int, change: Change) -> bool:
        """A request of ours; False if it is another change, which only the sequencer can be told."""
        if change.reason == Reason.EXPEL:
            self._expulsions.want(now_ns, change)
        elif not self._leaving.takes(change):
            return False
        self._timers.set(SequencerTimer.PROPOSE, now_ns)
        return True

    def expire(self, now_ns: int, role: SequencerRole | None, out: Outbox) -> None:
        """The time to ask, or to ask again."""
        for change in self._expulsions.due(now_ns):
            if role is not None:
                role.propose(change)
            else:
                header = encode_expulsion(change.member.id, change.next_block, change.serial, change.header)
                self._send(now_ns, Reason.EXPEL, header, out)
        due_ns = self._expulsions.due_ns
        leave = self._leaving.request()
        if leave is not None:
            has_own = self._outgoing.has_own
            due_ns = min(due_ns, now_ns + (LOOK_NS if has_own else REPEAT_NS))
            if role is not None and not has_own:
                role.propose(leave)
            elif not has_own:
                self._send(now_ns, Reason.LEAVE, leave.header, out)
        self._timers.set(SequencerTimer.PROPOSE, due_ns)

    def _send(self, now_ns: int, reason: Reason, header: bytes, out: Outbox) -> None:
        body = encode_propose(self._acknowledger.acks(), reason, header)
        self._acknowledger.to_leader(now_ns, Kind.PROPOSE, body, out)

    def on_propose(self, origin: int, operation: int, header: bytes, role: SequencerRole | None) -> None:
        """A member asks the sequencer, which we may be."""
        view = self._ring.view
        member = view.member(origin)
        if role is None or member is None:
            return
        if operation == Reason.LEAVE:
            role.propose(Change(Reason.LEAVE, member, header))
        elif operation == Reason.EXPEL:
            target, seq, serial, text = decode_expulsion(header)
            expelled = view.member(target)
            if expelled is not None:
                change = Change(Reason.EXPEL, expelled, text, seq, serial=serial)
                if is_current(self._ring, change):
                    role.propose(change)


class RoomAsker:
    """A member whose window is full has the sequencer ask everybody how far they are, which may see no reason of its
    own: the timer WANT."""

    __slots__ = ("_acknowledger", "_announcer", "_outgoing", "_ring", "_timers", "_want_ns")

    def __init__(
        self,
        ring: RingState,
        outgoing: Outgoing,
        acknowledger: Acknowledger,
        announcer: Announcer,
        timers: Timers[SequencerTimer],
    ) -> None:
        self._ring = ring
        self._outgoing = outgoing
        self._acknowledger = acknowledger
        self._announcer = announcer
        self._timers = timers
        self._want_ns = WANT_NS

    def lacks(self, now_ns: int) -> None:
        """There is no room."""
        self._timers.set_earlier(SequencerTimer.WANT, now_ns + self._want_ns)

    def is_there(self) -> None:
        self._want_ns = WANT_NS
        self._timers.clear(SequencerTimer.WANT)

    def expire(self, now_ns: int, role: SequencerRole | None, out: Outbox) -> None:
        """Still no room."""
        log, acknowledger = self._ring.log, self._acknowledger
        if not self._outgoing.count:
            return
        if acknowledger.restraint.holds(now_ns):
            self._timers.set_earlier(SequencerTimer.WANT, acknowledger.restraint.next_ns(now_ns))
            return
        self._want_ns = min(2 * self._want_ns, self._ring.timing.heartbeat_busy_ns)
        if role is not None:
            role.wanted_ns = now_ns
            self._announcer.send_status(now_ns, role, out)
        else:
            lead = Lead(log.received, log.stable, log.stable, 0)
            acknowledger.to_leader(now_ns, Kind.STATUS, encode_lead(lead), out)
            acknowledger.is_due = True
