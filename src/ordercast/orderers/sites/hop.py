"""One link between two sites: the Hop protocol (Spread section 3.2, figures 3.1 and 3.2).

Each end numbers what it sends, and keeps it until the other end has acknowledged it. The receiver hands every packet on
at once, whatever is missing before it; what is missing it asks for after a short wait, and again and again. A packet
that was asked for too often makes the receiver declare the sender dead: "failure to receive" would block everybody in
the end. A bucket bounds the rate, a window what is out; retransmissions count as sent data.

Errata of figure 3.2, and deviations:
- The branch for late packets stands inside the one for packets on time; it belongs beside it. `r_highest_seq` rises
  with every packet that is ahead, also while the aru lags, and with an ACK that says that more was sent.
- An ACK frees packets up to *and including* its aru; `pkt_count` begins anew with each ACK.
- The prose counts packets "sent or received" between two ACKs, the figure only those received. Both count here: an ACK
  tells the receiver what was sent last, and nothing else repairs the loss of the last packet of a burst.
- The figure has one timer for the whole retransmit list. Here each packet has its own: asked for again after a round
  trip, not before an answer can be there, and a new gap does not wait for an old one.
- Where everything is acknowledged the ACKs end; the figure sends them forever. An ACK that shows that the last one was
  lost (`freed`) is answered.
- Each ACK has a clock and echoes the other's: both ends know the round trip of the link.
- Retransmissions leave first, then what waits, by priority (SITES section 5).
- The bucket counts bytes on the line. Many small packets would fill the router before a slow line otherwise.
- One UPDATE of a source waits at a time: the newest, in the place of the oldest. A site makes one with each rotation of
  its token, and a slow link would have nothing else to send.
- A site that forwards drops UNRELIABLE packets where its link is behind. The paper bounds them at their site only, by
  the token; a slower link behind it would queue them until everything else waits.
- SKIPs and UPDATEs follow one another no faster than the line takes them, also where the bucket would let a burst pass.
  Many of them, with one block each, would stand before a slow line for as long as more come; held back, they become
  one. All sites wait for what they say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from ordercast.config import MAX_BLOCK, MS, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.orderers.sites.urgency import credit_of
from ordercast.parts.bucket import Bucket
from ordercast.parts.gaps import Gaps
from ordercast.parts.priorities import PriorityQueues
from ordercast.parts.rtt import RoundTrip
from ordercast.wire.cuts import CUT_ENTRIES
from ordercast.wire.header import MAX_SEGMENTS, Kind
from ordercast.wire.sites import (
    MAX_RANGE,
    MAX_RANGES,
    PRIORITIES,
    HopAck,
    LinkPacket,
    Numbered,
    Range,
    decode_update,
    ranges_of,
)

MAX_WINDOW: Final = MAX_RANGE  # packets that one end of a link may ever have out
MAX_QUEUED: Final = CUT_ENTRIES * MAX_SEGMENTS
"""Packets that wait for a link; one more, and the link counts as dead. The windows of all sources have no more blocks:
a slow link does not get there, however many send to it."""
MAX_ASKED: Final = 1_024  # packets that are asked for at a time, the oldest first
LINE_BYTES: Final = 28  # of IP and UDP: what a datagram is on the line beyond its own bytes
MAX_ECHO_NS: Final = 60 * SECOND  # a longer round trip is no round trip


@dataclass(frozen=True, slots=True)
class HopTerms:
    """The tuning values of one link. The paper names them and gives no numbers."""

    bytes_per_s: int = 1_250_000  # what the bucket lets pass over time
    burst_bytes: int = 65_536  # and at once
    window: int = 256  # packets that this end may have out
    peer_window: int = MAX_WINDOW  # packets that the other end may have out; what is beyond is not believed
    nak_ns: int = 5 * MS  # HopNackTimeout: packets may be late or out of order
    nak_retry_ns: int = 100 * MS  # between the first two requests, while no round trip is known
    ack_short_ns: int = 10 * MS  # ShortHopAckTimeout: after the first packet since the last ACK
    ack_long_ns: int = 250 * MS  # LongHopAckTimeout: after an ACK, while anything is open
    ack_packets: int = 32  # max_pkt_btw_ack: packets without an ACK
    requests: int = 10  # for one packet, before its sender is declared dead

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_WINDOW or not 1 <= self.peer_window <= MAX_WINDOW:
            raise UsageError(f"the window of a link has 1 to {MAX_WINDOW} packets, got {self.window}")
        if self.ack_packets < 1 or self.requests < 1:
            raise UsageError("ack_packets and requests of a link are at least 1")


class HopFailure(Enum):
    """Why a link is dead."""

    NONE = ""
    UNANSWERED = "a packet was asked for too often"
    OVERRUN = "more packets wait for the link than it may ever hold"


class HopOutput(NamedTuple):
    """What one end has to send: data in order, then the control bodies, where there are any."""

    packets: list[Numbered]
    ack: HopAck | None
    missing: list[Range]  # the body of a HOP_NAK; empty: none


class HopSender:
    """The sender's side: what waits, what is out, and how much more may leave."""

    __slots__ = (
        "_again",
        "_bucket",
        "_bytes_per_s",
        "_control_ns",
        "_open",
        "_queues",
        "_updates",
        "highest",
        "other_aru",
        "ready_ns",
        "resent",
        "skips",
        "waiting_bytes",
        "window",
    )

    def __init__(self, terms: HopTerms) -> None:
        self._queues: PriorityQueues[LinkPacket] = PriorityQueues(PRIORITIES)
        self._updates: dict[int, LinkPacket] = {}  # the newest of each source, while one waits; at most one per site
        self._bucket = Bucket(terms.bytes_per_s, terms.burst_bytes)
        self._bytes_per_s = terms.bytes_per_s
        self._control_ns = 0  # when the line has taken the last SKIP or UPDATE
        self._open: dict[int, LinkPacket] = {}  # open_pkts; at most `window`
        self._again: dict[int, None] = {}  # of those, what is to be sent again, in the order of the requests
        self.window = terms.window  # s_cur_window
        self.waiting_bytes = 0  # of what has not been sent once
        self.skips = 0  # SKIPs among it
        self.highest = 0  # s_highest_linkseq
        self.other_aru = 0  # s_other_end_aru
        self.ready_ns = NEVER  # when the bucket lets more pass, where that is what sending waits for
        self.resent = 0

    def restart(self) -> None:
        """A new view: numbers begin anew, the bucket goes on."""
        self._queues.clear()
        self._updates.clear()
        self._open.clear()
        self._again.clear()
        self.highest = self.other_aru = self.waiting_bytes = self.skips = 0
        self.ready_ns = NEVER

    @property
    def waiting(self) -> int:
        """Packets that have not been sent once."""
        return len(self._queues)

    @property
    def out(self) -> int:
        """Packets that are sent and not acknowledged."""
        return len(self._open)

    def push(self, packet: LinkPacket) -> bool:
        """Whether there was room for it."""
        if packet.kind == Kind.UPDATE:
            waiting = self._updates.get(packet.source)
            if waiting is None or _is_newer(packet, waiting):
                self._updates[packet.source] = packet
            if waiting is not None:
                return True
        if len(self._queues) >= MAX_QUEUED:
            return False
        self.skips += packet.kind == Kind.SKIP
        size = packet.size
        self._queues.push(packet, size, packet.priority)
        self.waiting_bytes += size
        return True

    def send(self, now_ns: int) -> list[Numbered]:
        """Hop_Send_Data: as much as bucket and window let pass."""
        sent: list[Numbered] = []
        take = self._bucket.take
        self.ready_ns = NEVER
        while self._again:
            seq = next(iter(self._again))
            packet = self._open[seq]
            size = packet.size + LINE_BYTES
            if not take(now_ns, size):
                self.ready_ns = self._bucket.ready_ns(size)
                return sent
            del self._again[seq]
            self.resent += 1
            sent.append((seq, packet))
        while self.highest - self.other_aru < self.window and (size := self._queues.next_size()):
            if self._control_ns > now_ns and self._queues.peek().kind != Kind.PACKET:
                self.ready_ns = self._control_ns
                break
            if not take(now_ns, size + LINE_BYTES):
                self.ready_ns = self._bucket.ready_ns(size + LINE_BYTES)
                break
            packet = self._queues.pop()
            self.waiting_bytes -= size
            if packet.kind != Kind.PACKET:
                self._control_ns = now_ns + (size + LINE_BYTES) * SECOND // self._bytes_per_s
            if packet.kind == Kind.UPDATE:
                packet = self._updates.pop(packet.source)
            elif packet.kind == Kind.SKIP:
                self.skips -= 1
            if not packet.is_reliable:
                sent.append((0, packet))
                continue
            self.highest += 1
            self._open[self.highest] = packet
            sent.append((self.highest, packet))
        return sent

    def acknowledged(self, aru: int) -> bool:
        """Free what the other end has; False where it cannot have it."""
        if aru > self.highest:
            return False
        for seq in range(self.other_aru + 1, aru + 1):
            del self._open[seq]
            self._again.pop(seq, None)
        self.other_aru = max(self.other_aru, aru)
        return True

    def asked(self, ranges: tuple[Range, ...]) -> None:
        """Send again what is asked for and still open; no more than the window holds."""
        for first, stop in ranges:
            for seq in range(max(first, self.other_aru + 1), min(stop, self.highest + 1)):
                self._again[seq] = None


def _is_newer(packet: LinkPacket, other: LinkPacket) -> bool:
    """Of two UPDATEs of one source. Nothing that they say ever falls, and they may have been overtaken on their way."""
    return decode_update(packet.body) > decode_update(other.body)


class HopReceiver:
    """The receiver's side: what has come, what is missing, and what to ask for."""

    __slots__ = ("_changed", "_gaps", "_missing", "_terms", "aru", "highest", "is_unanswered")

    def __init__(self, terms: HopTerms, timing: Timing, rtt: RoundTrip) -> None:
        self._terms = terms
        self._gaps: Gaps[int] = Gaps(terms.nak_ns, terms.nak_retry_ns, timing.retransmit_max_ns, rtt)
        self._missing: dict[int, None] = {}  # the retransmit list, rising; at most `peer_window`
        self._changed = False  # since `_gaps` was told
        self.highest = 0  # r_highest_seq
        self.aru = 0  # r_link_aru
        self.is_unanswered = False  # something was asked for too often

    def restart(self) -> None:
        self._missing.clear()
        self._gaps.clear()
        self._changed = self.is_unanswered = False
        self.highest = self.aru = 0

    @property
    def missing(self) -> int:
        return len(self._missing)

    def received(self, seq: int) -> bool:
        """Whether a packet is new."""
        if seq > self.highest:
            if not self.is_possible(seq):
                return False
            self.sent_up_to(seq - 1)
            self.highest = seq
        elif seq in self._missing:
            del self._missing[seq]
            self._changed = True
        else:
            return False
        # The aru follows what has come; over a whole run each number is passed once.
        missing, highest, aru = self._missing, self.highest, self.aru
        while aru < highest and aru + 1 not in missing:
            aru += 1
        self.aru = aru
        return True

    def is_possible(self, seq: int) -> bool:
        """Whether the other end may have sent it: its window lets it out after what we have acknowledged."""
        return seq <= self.aru + self._terms.peer_window

    def sent_up_to(self, seq: int) -> None:
        """The other end has sent so much: what has not come is missing."""
        if seq > self.highest:
            self._missing.update(dict.fromkeys(range(self.highest + 1, seq + 1)))
            self._changed = True
            self.highest = seq

    def to_ask(self, now_ns: int) -> list[Range]:
        """Hop_Send_Nack: what is to be asked for now."""
        gaps = self._gaps
        if self._changed:
            self._changed = False
            gaps.update(islice(self._missing, MAX_ASKED), now_ns)
        if gaps.deadline_ns() > now_ns:
            return []
        due = sorted(gaps.due(now_ns))
        ranges = ranges_of(due, MAX_RANGES)
        stop = ranges[-1][1] if ranges else 0
        for seq in due:
            if seq >= stop:
                gaps.postpone(seq, now_ns + self._terms.nak_ns)  # the body is full
            elif gaps.tries(seq) > self._terms.requests:
                self.is_unanswered = True
        return ranges

    def deadline_ns(self) -> int:
        """Of requests; `to_ask` is to be called once after each change."""
        return self._gaps.deadline_ns()


class HopLink:
    """Both ends of a link as one site has them. Drive it: `received`, `on_ack` and `on_nak` for what comes, `queue` for
    what is to leave, then `step` once in a pass, and when `deadline_ns` has come."""

    __slots__ = (
        "_ack_due_ns",
        "_counted",
        "_heard_clock_ns",
        "_heard_ns",
        "_is_overrun",
        "_receiver",
        "_refused",
        "_rtt",
        "_sender",
        "_terms",
        "_told",
        "duplicates",
        "strange",
    )

    def __init__(self, terms: HopTerms, timing: Timing) -> None:
        self._terms = terms
        self._rtt = RoundTrip(timing, terms.nak_retry_ns)
        self._sender = HopSender(terms)
        self._receiver = HopReceiver(terms, timing, self._rtt)
        # ACKs
        self._counted = 0  # pkt_count: packets sent or received since the last one
        self._ack_due_ns = NEVER
        self._told = 0  # the aru of the last one
        # The other end's clock
        self._heard_clock_ns = 0  # 0: nothing to echo
        self._heard_ns = 0
        self._is_overrun = False
        self._refused = (0, 0)  # the last UNRELIABLE block that does not go on: origin and number
        self.duplicates = 0  # packets that had come before
        self.strange = 0  # what the other end cannot have said

    def restart(self) -> None:
        """A new view between the same representatives: the link is kept with its round trip and its bucket; numbers
        begin anew, since what was under way belongs to the old view."""
        self._sender.restart()
        self._receiver.restart()
        self._counted = self._told = self._heard_clock_ns = 0
        self._ack_due_ns = NEVER
        self._is_overrun = False

    # What the owner sees

    @property
    def failure(self) -> HopFailure:
        if self._receiver.is_unanswered:
            return HopFailure.UNANSWERED
        return HopFailure.OVERRUN if self._is_overrun else HopFailure.NONE

    @property
    def is_dead(self) -> bool:
        """The other end has to go: a membership change begins."""
        return self._receiver.is_unanswered or self._is_overrun

    @property
    def is_at_rest(self) -> bool:
        """Nothing waits, is out, missing or unsaid."""
        sender, receiver = self._sender, self._receiver
        return not (sender.waiting or sender.out or receiver.missing) and self._told == receiver.aru

    @property
    def aru(self) -> int:
        """Everything up to this has come."""
        return self._receiver.aru

    @property
    def missing(self) -> int:
        """How many packets have not come, as far as is known."""
        return self._receiver.missing

    @property
    def waiting(self) -> int:
        """Packets that wait to be sent; what is unstable keeps them below MAX_QUEUED."""
        return self._sender.waiting

    @property
    def skips(self) -> int:
        """SKIPs among them."""
        return self._sender.skips

    @property
    def credit(self) -> tuple[int, int]:
        """Bytes that this end takes before it is behind: usual ones, and urgent ones."""
        return credit_of(self._sender.waiting_bytes, self._terms.bytes_per_s)

    @property
    def out(self) -> int:
        """Packets that are sent and not acknowledged."""
        return self._sender.out

    @property
    def resent(self) -> int:
        return self._sender.resent

    def deadline_ns(self) -> int:
        return min(self._ack_due_ns, self._sender.ready_ns, self._receiver.deadline_ns())

    # Inputs

    def queue(self, packet: LinkPacket) -> None:
        """A packet is to go over the link; `step` sends it."""
        if not self._sender.push(packet):
            self._is_overrun = True

    def passes(self, packet: LinkPacket) -> bool:
        """Whether an UNRELIABLE packet of another site goes on over this link: not where the link is behind. What is
        unstable bounds what else comes from there, and these are never unstable. A block goes on or not as a whole."""
        block = (packet.origin, packet.number)
        usual, urgent = self.credit
        credit = urgent if packet.priority else usual
        if packet.segment:
            return block != self._refused and credit + MAX_BLOCK > 0
        if credit > 0:
            return True
        self._refused = block
        return False

    def received(self, now_ns: int, seq: int) -> bool:
        """A packet has come; whether it is new, and to be handed on, whatever is missing before it."""
        if not seq:
            return True  # UNRELIABLE: the stream above knows duplicates
        self._count(now_ns)
        receiver = self._receiver
        before = receiver.highest
        if receiver.received(seq):
            return True
        if seq > before:
            self.strange += 1
        else:
            self.duplicates += 1
        return False

    def on_ack(self, now_ns: int, ack: HopAck) -> None:
        receiver = self._receiver
        if not receiver.is_possible(ack.max_sent) or not self._sender.acknowledged(ack.aru):
            self.strange += 1
            return
        receiver.sent_up_to(ack.max_sent)
        if ack.freed < self._told:
            # It has not heard our last one, or that is on its way.
            self._ack_due_ns = min(self._ack_due_ns, now_ns + self._terms.ack_short_ns)
        elif self.is_at_rest:
            self._ack_due_ns = NEVER  # both ends know everything
            self._counted = 0
        if ack.clock_ns:
            self._heard_clock_ns, self._heard_ns = ack.clock_ns, now_ns
        if ack.echo_ns and 0 < now_ns - ack.echo_ns <= MAX_ECHO_NS:
            self._rtt.sample(now_ns - ack.echo_ns)

    def on_nak(self, ranges: tuple[Range, ...]) -> None:
        self._sender.asked(ranges)

    # Output

    def step(self, now_ns: int) -> HopOutput:
        packets = self._sender.send(now_ns)
        for seq, _ in packets:
            if seq:
                self._count(now_ns)
        missing = self._receiver.to_ask(now_ns)
        ack = None
        if self._ack_due_ns <= now_ns or self._counted > self._terms.ack_packets:
            ack = self._make_ack(now_ns)
        return HopOutput(packets, ack, missing)

    def _count(self, now_ns: int) -> None:
        self._counted += 1
        if self._counted == 1:
            self._ack_due_ns = min(self._ack_due_ns, now_ns + self._terms.ack_short_ns)

    def _make_ack(self, now_ns: int) -> HopAck:
        """Hop_Send_Ack."""
        sender, receiver = self._sender, self._receiver
        echo_ns = 0
        if self._heard_clock_ns:
            echo_ns = self._heard_clock_ns + now_ns - self._heard_ns
            self._heard_clock_ns = 0
        self._counted = 0
        self._told = receiver.aru
        self._ack_due_ns = NEVER if self.is_at_rest else now_ns + self._terms.ack_long_ns
        return HopAck(receiver.aru, sender.highest, sender.other_aru, now_ns, echo_ns)
