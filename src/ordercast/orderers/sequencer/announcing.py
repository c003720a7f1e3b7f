"""What the sequencer tells everybody: sequence numbers, and how far the log is stable and safe (Amoeba section 4.1)."""

from __future__ import annotations

from ordercast.config import Timing
from ordercast.engine import Outbox, To
from ordercast.orderers.logged.in_order import InOrderDelivery
from ordercast.orderers.logged.replies import known_lead
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.sequencer.role import SequencerRole
from ordercast.parts.log import runs_of
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.header import Kind
from ordercast.wire.ordering import NO_HOLDUP, Holdup, Lead, encode_accept, encode_lead, encode_ordered


class Tail:
    """When to repeat how far the log is, although nothing follows: a member may have missed the last message.

    Where messages come evenly the next one tells, so we wait for twice the time between two of them. After a burst, or
    a single message, nothing may follow for long.
    """

    __slots__ = ("_gaps_ns", "_ordered_ns", "_timing", "told_seq")

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._ordered_ns = 0
        self._gaps_ns = (0, 0)  # between the last messages
        self.told_seq = 0  # the last one that was repeated so

    def ordered(self, now_ns: int) -> None:
        if now_ns > self._ordered_ns:
            self._gaps_ns = (self._gaps_ns[1], now_ns - self._ordered_ns)
            self._ordered_ns = now_ns

    @property
    def soon_ns(self) -> int:
        """How long to wait for an acknowledgement that somebody waits for."""
        return 2 * self._timing.ack_quiet_ns

    @property
    def wait_ns(self) -> int:
        """How long to wait for the next message."""
        gap_ns, most_ns = max(self._gaps_ns), self._timing.heartbeat_rest_ns
        return min(max(2 * gap_ns, self.soon_ns), most_ns) if gap_ns < most_ns else self.soon_ns


class Announcer:
    __slots__ = (
        "_announced",
        "_delivery",
        "_ring",
        "active",
        "freed_bytes",
        "holdup",
        "holdup_ns",
        "rest_beats",
        "rest_ns",
        "spoke_ns",
        "sync_now",
        "tail",
    )

    def __init__(self, ring: RingState, delivery: InOrderDelivery) -> None:
        seq = ring.view.seq
        self._ring = ring
        self._delivery = delivery
        self._announced = Lead(seq, seq, seq, 0)
        self.active = 0  # members that are sending, as the sequencer counts them
        self.freed_bytes = 0  # since the others were told
        self.holdup = NO_HOLDUP  # the member that the history waits for, as of the last STATUS
        self.holdup_ns = 0  # when that came
        self.sync_now = False
        self.rest_beats = 0  # heartbeats since anything was outstanding
        self.rest_ns = ring.timing.heartbeat_rest_ns  # between heartbeats when nobody waits for anything
        self.spoke_ns = 0  # when we last said anything, also as a member
        self.tail = Tail(ring.timing)

    def spread_beats(self) -> None:
        """Members that answer one STATUS would speak together from then on, and a large group would keep the sequencer
        busy each time. So their intervals differ, by an eighth at most. The first members have the shortest: they also
        notice a failure first, and re-form the group in its order."""
        view, rest_ns = self._ring.view, self._ring.timing.heartbeat_rest_ns
        size, index = len(view.members), view.index(self._ring.me.id)
        self.rest_ns = rest_ns - (rest_ns // 8 * (size - index) // size if index > 0 else 0)

    def lead_info(self) -> Lead:
        """How far the log is. With this all others know it."""
        active = self._ring.log.active
        self.freed_bytes = 0
        self.active = len(active) - (GROUP_ORIGIN in active)
        self._announced = known_lead(self._ring, self._delivery.safe, self.active)
        return self._announced

    def has_news(self, last_strong_seq: int, ceiling: int, asked_seq: int) -> bool:
        """Whether others wait for what only we know: safety that frees deliveries, stability that frees windows or that
        they were asked about. Any other stability is told with the next word."""
        log, told = self._ring.log, self._announced
        if told.safe < last_strong_seq and self._delivery.safe > told.safe:
            return True
        return log.stable > told.stable and (
            self.freed_bytes >= ceiling // 8 or (told.stable < asked_seq and log.stable == log.received)
        )

    def send_status(self, now_ns: int, role: SequencerRole | None, out: Outbox, is_for_room: bool = False) -> None:
        """Ask all members for an acknowledgement. `is_for_room`: because the history fills."""
        if role is None:
            return
        self.sync_now = False
        self.spoke_ns = now_ns
        if role.others:
            holdup = self._holdup_of(now_ns, role)
            role.rounds.asked(self._ring.log, is_for_room)
            lead = self.lead_info()._replace(holdup=holdup)
            out.sends.append(self._ring.writer.control(To.ALL, Kind.STATUS, encode_lead(lead)))

    def _holdup_of(self, now_ns: int, role: SequencerRole) -> Holdup:
        """The first member that the history waits for: the others can say so to their applications. Members that are
        asked for the first time have not had the time to answer."""
        if not role.rounds.is_open(self._ring.log):
            return NO_HOLDUP
        slow, late = role.lagging(now_ns, self._ring.log.received)
        named = slow or late
        index = self._ring.view.index(named[0]) if named else -1
        return Holdup(index, bool(slow)) if index >= 0 else NO_HOLDUP

    def send_sync(self, now_ns: int, role: SequencerRole, out: Outbox) -> None:
        self.sync_now = False
        self.spoke_ns = now_ns
        if role.others:
            out.sends.append(self._ring.writer.control(To.ALL, Kind.SYNC, encode_lead(self.lead_info())))

    def send_accept(self, now_ns: int, assignments: list[tuple[int, int, int]], out: Outbox) -> None:
        """Sequence numbers of blocks that the members have from their senders (method 2)."""
        body = encode_accept(self.lead_info(), runs_of(assignments))
        out.sends.append(self._ring.writer.control(To.ALL, Kind.ACCEPT, body))
        self.spoke_ns = now_ns
        self.tail.ordered(now_ns)

    def send_ordered(self, now_ns: int, seq: int, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """A block together with its sequence number (method 1)."""
        prefix = encode_ordered(self.lead_info(), seq, origin)
        out.sends.append(self._ring.writer.ordered(To.ALL, number, prefix, block))
        self.spoke_ns = now_ns
        self.tail.ordered(now_ns)
