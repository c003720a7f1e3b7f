"""Links and rings of sites on wires that lose, repeat and reorder, in virtual time: what the tests of Spread share.

Everything crosses the wire as bytes, so that the formats are tested with the protocols. One seed gives one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random

from ordercast.config import MS, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.orderers.sites.hop import LINE_BYTES, HopLink, HopOutput, HopTerms
from ordercast.orderers.sites.passing import ALL
from ordercast.orderers.sites.ring import RingTerms, SiteRing
from ordercast.wire.header import HEADER, MAGIC, Kind
from ordercast.wire.intake import Intake
from ordercast.wire.segments import Datagram
from ordercast.wire.sites import (
    LinkPacket,
    Numbered,
    SiteToken,
    decode_hop_ack,
    decode_hop_nak,
    decode_site_token,
    decode_wake,
    encode_hop_ack,
    encode_ranges,
    open_packet,
    packet_head,
)

TAG = 7
RING = 0x1122
TIMING = Timing()


def packet(number: int, body: bytes = b"x" * 100, priority: int = 0, is_reliable: bool = True) -> LinkPacket:
    """A packet that is known by its number."""
    return LinkPacket(int(Kind.PACKET), 1, number, 0b11, body, priority=priority, is_reliable=is_reliable)


class Wires:
    """Where datagrams are under way. Until `faults_end_ns` they may be lost, come twice or come late."""

    def __init__(self, seed: int = 0, loss: float = 0.0, twice: float = 0.0, jitter_ns: int = 0) -> None:
        self.now_ns = SECOND
        self.latency_ns = MS
        self.loss = loss
        self.twice = twice
        self.jitter_ns = jitter_ns
        self.faults_end_ns = NEVER
        self.loses: Callable[[int, Datagram], bool] | None = None  # of a test that wants to lose something of its own
        self.sent: dict[int, int] = {}  # by kind
        self._rng = Random(seed)
        self._heap: list[tuple[int, int, int, bytes]] = []
        self._serial = 0
        self._intake = Intake(TAG, {})

    def send(self, to: int, data: bytes) -> None:
        faulty = self.now_ns < self.faults_end_ns
        datagram = next(iter(self._intake.read(self.now_ns, memoryview(data), 0)))
        self.sent[datagram.kind] = self.sent.get(datagram.kind, 0) + 1
        if self.loses is not None and self.loses(to, datagram):
            return
        if faulty and self._rng.random() < self.loss:
            return
        copies = 2 if faulty and self._rng.random() < self.twice else 1
        for _ in range(copies):
            late_ns = self._rng.randrange(self.jitter_ns + 1) if faulty else 0
            self._serial += 1
            heappush(self._heap, (self.now_ns + self.latency_ns + late_ns, self._serial, to, data))

    def next_ns(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def take(self) -> tuple[int, Datagram]:
        """The next datagram, and for whom it is."""
        self.now_ns, _, to, data = heappop(self._heap)
        return to, next(iter(self._intake.read(self.now_ns, memoryview(data), 0)))


def control(kind: int, origin: int, body: bytes) -> bytes:
    return HEADER.pack(MAGIC, kind, 0, 0, TAG, RING, origin, 1) + body


def as_bytes(via: int, numbered: Numbered) -> bytes:
    seq, each = numbered
    return packet_head(TAG, RING, via, seq, each) + bytes(each.body)


class Hops:
    """One link: ends 0 and 1, and what each has handed on."""

    def __init__(self, terms: HopTerms, wires: Wires | None = None) -> None:
        self.wires = wires or Wires()
        self.ends = (HopLink(terms, TIMING), HopLink(terms, TIMING))
        self.got: tuple[list[int], list[int]] = ([], [])  # numbers of packets
        self.left: list[tuple[int, int, int]] = []  # time, end, bytes on the line of each data packet that left
        self.outputs: list[tuple[int, int, HopOutput]] = []  # time, end, what it said

    def queue(self, end: int, numbers: Sequence[int], body: bytes = b"x" * 100) -> None:
        for number in numbers:
            self.ends[end].queue(packet(number, body))
        self.step(end)

    def step(self, end: int) -> None:
        output = self.ends[end].step(self.wires.now_ns)
        if output.packets or output.ack or output.missing:
            self.outputs.append((self.wires.now_ns, end, output))
        for numbered in output.packets:
            self.left.append((self.wires.now_ns, end, numbered[1].size + LINE_BYTES))
            self.wires.send(1 - end, as_bytes(end, numbered))
        if output.missing:
            self.wires.send(1 - end, control(Kind.HOP_NAK, end, encode_ranges(output.missing)))
        if output.ack is not None:
            self.wires.send(1 - end, control(Kind.HOP_ACK, end, encode_hop_ack(output.ack)))

    def receive(self, end: int, datagram: Datagram) -> None:
        link, now_ns = self.ends[end], self.wires.now_ns
        if datagram.kind == Kind.HOP_ACK:
            link.on_ack(now_ns, decode_hop_ack(datagram.body))
        elif datagram.kind == Kind.HOP_NAK:
            link.on_nak(decode_hop_nak(datagram.body))
        else:
            via, seq, each = open_packet(datagram)
            assert via == 1 - end
            if link.received(now_ns, seq):
                self.got[end].append(each.number)

    def run(self, until_ns: int = NEVER, steps: int = 200_000) -> None:
        """Until nothing is to be done, or until a time."""
        wires = self.wires
        for _ in range(steps):
            due_ns = min(self.ends[0].deadline_ns(), self.ends[1].deadline_ns())
            at_ns = min(wires.next_ns(), due_ns)
            if at_ns > until_ns or at_ns == NEVER:
                wires.now_ns = max(wires.now_ns, until_ns if until_ns != NEVER else 0)
                return
            if wires.next_ns() <= due_ns:
                to, datagram = wires.take()
                self.receive(to, datagram)
                self.step(to)
            else:
                wires.now_ns = due_ns
                for end in (0, 1):
                    if self.ends[end].deadline_ns() <= due_ns:
                        self.step(end)
        raise AssertionError("the link does not come to rest")


class Rings:
    """The daemons 1, 2, ... of one site. Each stamps what it wants to send while it has the token."""

    def __init__(self, count: int, terms: RingTerms | None = None, wires: Wires | None = None) -> None:
        self.wires = wires or Wires()
        self.ids = tuple(range(1, count + 1))
        terms = terms or RingTerms()
        self.rings = {each: SiteRing(each, self.ids, terms, TIMING, 100) for each in self.ids}
        self.wanted: dict[int, list[int]] = {each: [] for each in self.ids}  # numbers of packets that are to be sent
        self.got: dict[int, list[int]] = {each: [] for each in self.ids}
        self.own: dict[int, int] = dict.fromkeys(self.ids, 0)
        self.stamps: list[tuple[int, int]] = []
        self.visits: list[tuple[int, int, SiteToken]] = []  # daemon, packets that it sent, the token that it passed
        self.dead: set[int] = set()
        self.follows_clock = True  # each daemon has everything up to the clock of the token: one site, alone

    def send(self, daemon: int, numbers: Sequence[int]) -> None:
        self.wanted[daemon] += numbers
        self.step(daemon)

    def foreign(self, daemon: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.rings[daemon].queue_foreign(packet(number))
        self.step(daemon)

    def step(self, daemon: int) -> None:
        if daemon in self.dead:
            return
        ring, wanted = self.rings[daemon], self.wanted[daemon]
        while wanted and ring.room:
            self.stamps.append(ring.stamp())
            self.own[daemon] += 1
            ring.queue_own(packet(wanted.pop(0)))
        if wanted and not ring.is_holding:
            ring.want()
        if self.follows_clock and self.own[daemon] + len(self.got[daemon]) >= ring.state.seq:
            ring.set_horizon(ring.state.clock)
        output = ring.step(self.wires.now_ns)
        for numbered in output.packets:
            for other in self.ids:
                if other != daemon:
                    self.wires.send(other, as_bytes(0, numbered))
        for each in output.controls:
            if (
                each.kind == Kind.SITE_TOKEN
                and not decode_site_token(each.body).flags
                and not self._is_again(each.body)
            ):
                self.visits.append((daemon, len(output.packets), decode_site_token(each.body)))
            for other in self.ids if each.to == ALL else (each.to,):
                if other != daemon:
                    self.wires.send(other, control(each.kind, daemon, each.body))

    def _is_again(self, body: bytes) -> bool:
        return bool(self.visits) and decode_site_token(body).number <= self.visits[-1][2].number

    def receive(self, daemon: int, datagram: Datagram) -> None:
        ring, now_ns = self.rings[daemon], self.wires.now_ns
        if datagram.kind == Kind.SITE_TOKEN:
            ring.on_token(now_ns, datagram.origin, decode_site_token(datagram.body))
        elif datagram.kind == Kind.WAKE:
            ring.on_wake(datagram.origin, decode_wake(datagram.body))
        else:
            _, seq, each = open_packet(datagram)
            if ring.on_packet(now_ns, seq, each):
                self.got[daemon].append(each.number)

    def run(self, until_ns: int = NEVER, steps: int = 200_000) -> None:
        wires = self.wires
        for _ in range(steps):
            alive = [each for each in self.ids if each not in self.dead]
            due_ns = min([self.rings[each].deadline_ns() for each in alive], default=NEVER)
            at_ns = min(wires.next_ns(), due_ns)
            if at_ns > until_ns or at_ns == NEVER:
                wires.now_ns = max(wires.now_ns, until_ns if until_ns != NEVER else 0)
                return
            if wires.next_ns() <= due_ns:
                to, datagram = wires.take()
                if to not in self.dead:
                    self.receive(to, datagram)
                    self.step(to)
            else:
                wires.now_ns = due_ns
                for each in alive:
                    if self.rings[each].deadline_ns() <= due_ns:
                        self.step(each)
        raise AssertionError("the ring does not come to rest")
