"""A courier: reliable, paced unicast to any number of peers, for control traffic and repairs of all regions.

QSM section 2.3.3: "All control traffic is handled by a reliable TCP-like unicast protocol and rate-controlled. The rate
is set to a fixed small value to minimize the impact it might have on multicast traffic." One bucket serves all peers.
Urgent parcels (tokens, acknowledgements, questions) leave before repairs, so that a round does not wait for them.

A segment of a block that is on its way to a peer, as a push or in answer to a pull, is not taken again. A token asks
anew for what has not come, each time it passes; where the rate is the bottleneck, repairs of a second would otherwise
wait several times over, and the receiver's processor would go into duplicates.

Each peer has a window of parts that are out, round trips, and a mask of what came beyond a gap. A part is sent again
when three later ones have come, or when its time is over. One that was sent too often makes the courier give up: what
waits for the peer is dropped, and the owner gets a verdict. The next parcel begins a new connection. Half as many
tries raise a doubt: the service can ask the peer itself, which costs little and saves seconds where it is dead. So do
three tries in a second: where processors are busy, and round trips long, five would take six seconds.

Deviations from TCP, with the reason:
- Parcels are handed on as they come, whatever is missing before them. Each says itself what it is about, and a token
  need not wait for a repair. Only the parts of one parcel are put together; they have consecutive numbers.
- There is no handshake. Ids name lives, connections are numbered, and a part tells how far back the oldest one lies
  that is not acknowledged: a receiver begins with whatever comes, and idle peers cost nothing, since both ends may
  forget them. A duplicate that comes after that is handed on again. Parcels have to bear that. A node that was put out
  has another courier with the same id, in the middle of connections: acknowledgements of both may be on their way.
- The window is fixed, and there is no congestion control: the rate is. A repair is needed in any case.

Drive it: `post` for what is to leave, `on_part` and `on_ack` for what comes, then `step` once in a pass, and when
`deadline_ns` has come.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ordercast.config import LAN_DATAGRAM, MIN_DATAGRAM, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.parts.bucket import Bucket
from ordercast.parts.rtt import RoundTrip
from ordercast.wire.courier import MAX_SEQ, MAX_WINDOW, OVERHEAD_BYTES, CourierAck, Parcel, ParcelPart, cut_parcel
from ordercast.wire.header import MAX_SEGMENTS, Kind

MAX_PEERS: Final = 4_096  # that are remembered; of more, idle ones are forgotten
MAX_WAITING: Final = 16_384  # parcels that wait for one peer
REORDERED: Final = 3  # parts that have come after one that has not: it counts as lost
# Tries without an answer after which the owner may ask whether the peer lives, long before the verdict.
DOUBTS: Final = 5
DOUBT_TRIES: Final = 3  # the same, where they have taken so long; one or two are lost now and then
DOUBT_NS: Final = SECOND
REPAIRS: Final = (Kind.PUSH, Kind.PULLED)
LINE_BYTES: Final = 28  # of IP and UDP: what a datagram is on the line beyond its own bytes


@dataclass(frozen=True, slots=True)
class CourierTerms:
    """The tuning values of a courier; the paper has "a fixed small value" for the rate, and no number."""

    bytes_per_s: int = 4_000_000  # of all peers together, repairs included
    burst_bytes: int = 262_144
    window: int = 256  # parts out to one peer
    waiting_bytes: int = 4 << 20  # that wait for one peer
    datagram: int = LAN_DATAGRAM
    last_seq: int = MAX_SEQ  # then the connection is renewed

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_WINDOW:
            raise UsageError(f"the window of a courier has 1 to {MAX_WINDOW} parts, got {self.window}")
        if self.datagram < MIN_DATAGRAM or self.waiting_bytes < 1 or not MAX_SEGMENTS <= self.last_seq <= MAX_SEQ:
            raise UsageError(f"a courier needs datagrams of {MIN_DATAGRAM} bytes, and room for parcels to wait")


class CourierFailure(Enum):
    """Why a courier gave up on a peer."""

    UNANSWERED = "a part was sent too often without an answer"
    OVERRUN = "more waits for it than may ever wait"


class Undelivered(NamedTuple):
    """What waited for this peer was dropped: so many parcels, or the last parts of them."""

    peer: int
    verdict: CourierFailure
    parcels: int


class CourierOutput(NamedTuple):
    """What a pass has to send: parts and acknowledgements, each with its peer. `given_up`: peers to accuse.
    `doubted`: others that have not answered for a while, each once."""

    parts: list[ParcelPart]
    acks: list[CourierAck]
    given_up: list[Undelivered]
    doubted: list[int]


class _Sent:
    """A part that is out."""

    __slots__ = ("first_ns", "is_doubted", "parcel", "part_last", "sent_ns", "tries")

    def __init__(self, parcel: Parcel, part_last: tuple[int, int], now_ns: int) -> None:
        self.parcel = parcel
        self.part_last = part_last
        self.first_ns = now_ns  # when it left for the first time,
        self.sent_ns = now_ns  # and for the last
        self.is_doubted = False  # the owner was told that it is not answered
        self.tries = 1


class _Sender:
    """One peer's parcels on their way out."""

    __slots__ = (
        *("_again", "_cut", "_queues", "_repairs"),
        *("connection", "due_ns", "oldest", "out", "rtt", "seq", "waiting_bytes"),
    )

    def __init__(self, timing: Timing, connection: int) -> None:
        self._queues: tuple[deque[Parcel], deque[Parcel]] = (deque(), deque())  # urgent ones, repairs
        self._cut: deque[tuple[Parcel, tuple[int, int]]] = deque()  # the rest of the parcel that is being sent
        self._again: dict[int, None] = {}  # of what is out: to be sent again, in order
        self._repairs: set[tuple[int, int, int, int]] = set()  # segments that wait or are out
        self.connection = connection
        self.seq = 0  # the last that was used
        self.oldest = 1  # that is not acknowledged
        self.out: dict[int, _Sent] = {}  # in rising order; at most a window
        self.waiting_bytes = 0
        self.rtt = RoundTrip(timing)
        self.due_ns = NEVER  # when the oldest is late

    @property
    def waiting(self) -> int:
        """Parcels that have not left whole."""
        return len(self._queues[0]) + len(self._queues[1]) + bool(self._cut)

    @property
    def is_idle(self) -> bool:
        return not self.out and not self.waiting

    def has_repair(self, parcel: Parcel) -> bool:
        """Whether that segment is on its way already."""
        return parcel.kind in REPAIRS and _segment_of(parcel) in self._repairs

    def push(self, parcel: Parcel, is_urgent: bool) -> None:
        if parcel.kind in REPAIRS:
            self._repairs.add(_segment_of(parcel))
        self._queues[not is_urgent].append(parcel)
        self.waiting_bytes += len(parcel.body)

    def next_size(self, terms: CourierTerms, is_urgent: bool) -> int:
        """Bytes of the next part of this class, with those of the line; 0 if none may leave. What is sent again is
        urgent, and so is the rest of a parcel that has begun: its parts have consecutive numbers."""
        if self._again and is_urgent:
            return OVERHEAD_BYTES + LINE_BYTES + len(self.out[next(iter(self._again))].parcel.body)
        if self.seq - self.oldest + 1 >= terms.window:
            return 0
        if self._cut:
            return OVERHEAD_BYTES + LINE_BYTES + len(self._cut[0][0].body) if is_urgent else 0
        queue = self._queues[not is_urgent]
        if not queue or (self.seq + MAX_SEGMENTS > terms.last_seq and self.out):
            return 0
        return OVERHEAD_BYTES + LINE_BYTES + min(len(queue[0].body), terms.datagram - OVERHEAD_BYTES)

    def pop(self, now_ns: int, terms: CourierTerms, is_urgent: bool, connection: int) -> tuple[int, _Sent]:
        """The part whose size `next_size` told. `connection`: the next one, should this one have no numbers left."""
        if self._again and is_urgent:
            seq = next(iter(self._again))
            del self._again[seq]
            sent = self.out[seq]
            sent.sent_ns = now_ns
            sent.tries += 1
            return seq, sent
        if not self._cut:
            if self.seq + MAX_SEGMENTS > terms.last_seq:
                self.begin(connection)
            parts = cut_parcel(self._queues[not is_urgent].popleft(), terms.datagram)
            self._cut.extend([(part, (index, len(parts) - 1)) for index, part in enumerate(parts)])
        parcel, part_last = self._cut.popleft()
        self.waiting_bytes -= len(parcel.body)
        self.seq += 1
        sent = self.out[self.seq] = _Sent(parcel, part_last, now_ns)
        return self.seq, sent

    def arm(self) -> None:
        """The time of the oldest part that is out and not about to leave again."""
        first = next(iter(self.out.values()), None)
        self.due_ns = NEVER
        if first is not None and not self._again:
            self.due_ns = first.sent_ns + self.rtt.timeout_ns(first.tries - 1)

    def acknowledged(self, now_ns: int, ack: CourierAck) -> bool:
        """Free what has come; False where it cannot have."""
        highest = ack.received + ack.mask.bit_length()
        if max(highest, ack.asked_by) > self.seq:
            return False
        asked_by = self.out.get(ack.asked_by)
        if asked_by is not None and asked_by.tries == 1:
            self.rtt.sample(now_ns - asked_by.sent_ns)
        for seq in range(self.oldest, ack.received + 1):
            self._free(seq)
        for at in range(ack.mask.bit_length()):
            if ack.mask >> at & 1:
                self._free(ack.received + 1 + at)
        self.oldest = next(iter(self.out), self.seq + 1)
        for seq, sent in self.out.items():
            if seq + REORDERED > highest:
                break
            if sent.tries == 1:
                self._again[seq] = None
        return True

    def late(self, now_ns: int) -> int:
        """The oldest part has not been answered in time: it is sent again, and others that are as late. How often the
        oldest has been sent. Its time begins anew when it has left, which the bucket may delay."""
        self.rtt.expired()
        self.due_ns = NEVER
        for seq, sent in self.out.items():
            if now_ns - sent.sent_ns >= self.rtt.timeout_ns(0):
                self._again[seq] = None
        first = next(iter(self.out))
        self._again[first] = None
        return self.out[first].tries

    def is_doubtful(self, now_ns: int) -> bool:
        """Whether the peer has not answered the oldest part for a while; once for each part."""
        oldest = next(iter(self.out.values()))
        is_long = oldest.tries >= DOUBT_TRIES and now_ns - oldest.first_ns >= DOUBT_NS
        if oldest.is_doubted or not (is_long or oldest.tries >= DOUBTS):
            return False
        oldest.is_doubted = True
        return True

    def give_up(self, connection: int) -> int:
        """Drop everything, and begin anew with the next parcel; how many parcels that were."""
        dropped = self.waiting + sum(not sent.part_last[0] for sent in self.out.values())
        for queue in self._queues:
            queue.clear()
        self._repairs.clear()
        self._cut.clear()
        self._again.clear()
        self.out.clear()
        self.waiting_bytes = 0
        self.begin(connection)
        return dropped

    def begin(self, connection: int) -> None:
        self.connection, self.seq, self.oldest, self.due_ns = connection, 0, 1, NEVER

    def _free(self, seq: int) -> None:
        sent = self.out.pop(seq, None)
        self._again.pop(seq, None)
        if sent is not None and sent.parcel.kind in REPAIRS:
            self._repairs.discard(_segment_of(sent.parcel))


def _segment_of(parcel: Parcel) -> tuple[int, int, int, int]:
    """What a repair brings: view, sender, block, segment."""
    return parcel.ring, parcel.origin, parcel.number, parcel.segment


class _Receiver:
    """One peer's parcels on their way in."""

    __slots__ = ("_beyond", "_parts", "asked_by", "connection", "received")

    def __init__(self) -> None:
        self._beyond: set[int] = set()  # what has come after a gap; at most a window
        self._parts: dict[int, ParcelPart] = {}  # of parcels that are not whole: a window and a parcel at most
        self.connection = 0
        self.received = 0  # everything up to it
        self.asked_by = 0  # 0: no acknowledgement is due

    @property
    def is_idle(self) -> bool:
        return not self._parts and not self._beyond and not self.asked_by

    def begin(self, part: ParcelPart) -> None:
        """A connection that is new, or was forgotten: what lies before its oldest open part has been acknowledged."""
        self._beyond.clear()
        self._parts.clear()
        self.connection = part.connection
        self.received = part.seq - part.behind - 1

    def go_on(self, part: ParcelPart) -> None:
        """What lies before the oldest open part counts as received. Where it is not, a courier of this node that was
        here before has acknowledged it, after this one had begun: nobody sends it again."""
        least = part.seq - part.behind - 1
        if least > self.received:
            self.received = least
            self._beyond = {seq for seq in self._beyond if seq > least}
            self._join()

    def take(self, part: ParcelPart) -> bool:
        """Whether it is new."""
        seq = self.asked_by = part.seq
        if seq <= self.received or seq in self._beyond:
            return False
        self._beyond.add(seq)
        self._join()
        return True

    def _join(self) -> None:
        while self.received + 1 in self._beyond:
            self.received += 1
            self._beyond.discard(self.received)

    def whole(self, part: ParcelPart) -> Parcel | None:
        """The parcel that this part was the last piece of."""
        if not part.last:
            return part.parcel
        parts = self._parts
        parts[part.seq] = part
        first = part.seq - part.part
        pieces = []
        for index in range(part.last + 1):
            piece = parts.get(first + index)
            if piece is None or (piece.part, piece.last) != (index, part.last):
                self._tidy()
                return None
            pieces.append(piece.parcel.body)
        for index in range(part.last + 1):
            del parts[first + index]
        return part.parcel._replace(body=b"".join(pieces))

    def _tidy(self) -> None:
        """A parcel of which a piece is so far behind is whole, unless its parts contradict each other."""
        if len(self._parts) > MAX_WINDOW + MAX_SEGMENTS:
            least = self.received - MAX_SEGMENTS
            self._parts = {seq: part for seq, part in self._parts.items() if seq > least}

    def mask(self) -> int:
        return sum(1 << seq - self.received - 1 for seq in self._beyond)


class _Peer:
    __slots__ = ("receiver", "sender")

    def __init__(self, sender: _Sender) -> None:
        self.sender = sender
        self.receiver = _Receiver()

    @property
    def is_idle(self) -> bool:
        return self.sender.is_idle and self.receiver.is_idle


class ConnectionNumbers:
    """Numbers of connections: never used twice, for whatever peer."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class Courier:
    """All peers of one node, which has the id `me`."""

    __slots__ = (
        "_acks",
        "_active",
        "_bucket",
        "_connections",
        "_given_up",
        "_me",
        "_peers",
        "_ready_ns",
        "_terms",
        "_timing",
        "duplicates",
        "resent",
        "strange",
    )

    def __init__(
        self,
        me: int,
        timing: Timing,
        terms: CourierTerms | None = None,
        connections: ConnectionNumbers | None = None,
    ) -> None:
        """`connections`: of an id that has one courier after the other. Peers take a lower number for an old one."""
        self._me = me
        self._timing = timing
        self._terms = terms or CourierTerms()
        self._bucket = Bucket(self._terms.bytes_per_s, self._terms.burst_bytes)
        self._peers: dict[int, _Peer] = {}
        self._active: dict[int, _Peer] = {}  # those with something to send or out, in the order of their turns
        self._acks: dict[int, _Peer] = {}  # those that wait for an acknowledgement
        self._given_up: list[Undelivered] = []
        self._connections = connections if connections is not None else ConnectionNumbers()
        self._ready_ns = NEVER  # when the bucket lets more pass, where that is what sending waits for
        self.resent = 0
        self.duplicates = 0
        self.strange = 0  # what no honest peer of ours has said

    # What the owner sees

    @property
    def is_at_rest(self) -> bool:
        return not self._active and not self._acks

    def waiting(self, peer: int) -> int:
        """Parcels that have not left whole: who has many need not be given more."""
        found = self._peers.get(peer)
        return found.sender.waiting if found is not None else 0

    def deadline_ns(self) -> int:
        if not self._active:
            return self._ready_ns
        return min([self._ready_ns, *[peer.sender.due_ns for peer in self._active.values()]])

    # Inputs

    def post(self, peer: int, parcel: Parcel, is_urgent: bool = True) -> bool:
        """A parcel is to go to a peer; `step` sends it. False: there is no room. A repair is asked for again; of an
        urgent parcel that makes a verdict as well, since nothing has left for long."""
        found = self._peer(peer)
        if found is None:
            return False
        sender = found.sender
        if sender.has_repair(parcel):
            return True
        if sender.waiting >= MAX_WAITING or sender.waiting_bytes + len(parcel.body) > self._terms.waiting_bytes:
            if is_urgent:
                self._give_up(peer, sender, CourierFailure.OVERRUN)
            return False
        sender.push(parcel, is_urgent)
        self._active[peer] = found
        return True

    def on_part(self, part: ParcelPart) -> Parcel | None:
        """A part has come; the parcel that is whole now. The owner has looked whether it knows the sender at all."""
        found = self._peer(part.sender) if part.to == self._me else None
        if found is None:
            self.strange += 1
            return None
        receiver = found.receiver
        if part.connection > receiver.connection:
            receiver.begin(part)
        elif part.connection < receiver.connection:
            self.strange += 1
            return None
        else:
            receiver.go_on(part)
        self._acks[part.sender] = found
        if not receiver.take(part):
            self.duplicates += 1
            return None
        return receiver.whole(part)

    def on_ack(self, now_ns: int, ack: CourierAck) -> None:
        found = self._peers.get(ack.sender)
        if found is None or ack.to != self._me or ack.connection != found.sender.connection:
            self.strange += 1
            return
        if not found.sender.acknowledged(now_ns, ack):
            self.strange += 1
            return
        found.sender.arm()
        if found.sender.is_idle:
            self._active.pop(ack.sender, None)

    def drop(self, peer: int) -> None:
        """It was excluded: nothing goes there any more, and there is no verdict."""
        for table in (self._peers, self._active, self._acks):
            table.pop(peer, None)

    # Output

    def step(self, now_ns: int) -> CourierOutput:
        if not (self._active or self._acks or self._given_up):
            # Nearly every pass of a receiver.
            self._ready_ns = NEVER
            return CourierOutput([], [], [], [])
        acks = [
            CourierAck(self._me, peer, receiver.connection, receiver.received, receiver.asked_by, receiver.mask())
            for peer, receiver in [(peer, found.receiver) for peer, found in self._acks.items()]
        ]
        for found in self._acks.values():
            found.receiver.asked_by = 0
        self._acks.clear()
        doubted: list[int] = []
        for peer, found in list(self._active.items()):
            if found.sender.due_ns <= now_ns:
                tries = found.sender.late(now_ns)
                if tries >= self._timing.tries:
                    self._give_up(peer, found.sender, CourierFailure.UNANSWERED)
                elif found.sender.is_doubtful(now_ns):
                    doubted.append(peer)
        parts: list[ParcelPart] = []
        self._ready_ns = NEVER
        for is_urgent in (True, False):
            if not self._send(now_ns, is_urgent, parts):
                break
        given_up, self._given_up = self._given_up, []
        return CourierOutput(parts, acks, given_up, doubted)

    def _send(self, now_ns: int, is_urgent: bool, parts: list[ParcelPart]) -> bool:
        """Peers take turns, part by part, as long as bucket and windows let something pass; False: the bucket ended
        it."""
        terms, take = self._terms, self._bucket.take
        turns = dict(self._active)
        while turns:
            for peer, found in list(turns.items()):
                sender = found.sender
                size = sender.next_size(terms, is_urgent)
                if not size:
                    del turns[peer]
                    continue
                if not take(now_ns, size):
                    self._ready_ns = self._bucket.ready_ns(size)
                    return False
                # Whose turn it was comes last the next time.
                self._active[peer] = self._active.pop(peer)
                parts.append(self._take(now_ns, peer, sender, is_urgent))
        return True

    def _take(self, now_ns: int, peer: int, sender: _Sender, is_urgent: bool) -> ParcelPart:
        seq, sent = sender.pop(now_ns, self._terms, is_urgent, self._connections.last + 1)
        self._connections.last = max(self._connections.last, sender.connection)
        self.resent += sent.tries > 1
        sender.arm()
        part, last = sent.part_last
        return ParcelPart(self._me, peer, sender.connection, seq, seq - sender.oldest, part, last, sent.parcel)

    def _give_up(self, peer: int, sender: _Sender, verdict: CourierFailure) -> None:
        self._connections.last += 1
        self._given_up.append(Undelivered(peer, verdict, sender.give_up(self._connections.last)))
        self._active.pop(peer, None)

    def _peer(self, peer: int) -> _Peer | None:
        """Its records. Where there are too many, an idle peer is forgotten; None: all of them are busy."""
        found = self._peers.get(peer)
        if found is not None:
            return found
        if len(self._peers) >= MAX_PEERS:
            idle = next((other for other, each in self._peers.items() if each.is_idle), None)
            if idle is None:
                return None
            del self._peers[idle]
        self._connections.last += 1
        found = self._peers[peer] = _Peer(_Sender(self._timing, self._connections.last))
        return found
