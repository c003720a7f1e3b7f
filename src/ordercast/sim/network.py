"""The network in virtual time: what becomes of a datagram between two nodes (docs/design/overview.md section 8).

`Network.transmit` takes one transmission and returns its arrivals; the world puts them on its heap. Nothing here calls
back, and chance is one `random.Random` that is drawn from only where the model leaves something to chance.

The model, in the order in which it is applied to a train of datagrams:

1. the medium: on a shared segment a transmission waits until the segment is free and occupies it once, however many
   receivers it has; on a switched network it occupies the sender's port once and each receiver's port once. Every
   datagram of a train has its own frames, each with `frame_overhead` bytes. Where nodes `take_turns` the segment is
   given to one node after the other, one datagram each, as Ethernet does by and large: a short word of one node then
   does not wait behind the long train of another. Such a medium decides when its time comes: `transmit` only queues,
   and `serve` at `next_ns` gives the arrivals;
2. each receiver on its own: cut, lost, delayed by latency and jitter, duplicated, reordered. A link is first in, first
   out under jitter: only a datagram that is drawn as reordered (or is a second copy) can be overtaken. Under a spread
   each datagram has a delay of its own, and any may overtake another.

Where there are sites each has a medium of its own, and between them are pipes (`pipes.py`). A datagram to another site
crosses the medium of its sender, the pipe, and the link to its receiver, in this order. The medium of the receiver's
site is left out: a pipe is so much slower that what comes out of it does not fill one.

Loss is per datagram, not per frame, so that `loss=0.05` means the same whatever the size. Datagrams of a train
that stay together arrive as one batch, as `UDP_GRO` would hand them over; `COALESCE_NS` bounds how much of a slow
medium's time one batch may span, or a long train would arrive only when its last byte has.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.sim.datagrams import COALESCE_NS, Arrival, Train, kind_of
from ordercast.sim.pipes import Carried, Pipes

SOCKET_OVERHEAD_BYTES: Final = 1_024  # what a datagram costs a receive buffer besides its bytes (overview.md section 6)

ONE_SITE: Final = ""  # the segment of a network without sites


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """Medium, default link and CPU of a network. Costs per byte are picoseconds, so that all arithmetic is integer."""

    name: str
    # the link between any two nodes, one way
    latency_ns: int = 0
    jitter_ns: int = 0  # up to so much more, evenly distributed
    spread_ns: int = 0  # and so much more on average, exponentially distributed; datagrams then overtake each other
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ns: int = 2_000_000  # a reordered datagram, or a second copy, comes up to this much later
    # the medium
    bits_per_s: int = 0  # 0: it takes no time
    is_shared: bool = True
    frame_payload: int = 1_472  # bytes of a datagram that fit one frame
    frame_overhead: int = 66  # Ethernet preamble, header, checksum and gap; IP; UDP
    frame_least: int = 0  # bytes of the shortest frame, with all that
    takes_turns: bool = False  # a shared segment goes from node to node, datagram by datagram
    # the CPU of a node
    pass_ns: int = 0
    send_ns: int = 0  # per datagram
    receive_ns: int = 0
    send_byte_ps: int = 0
    receive_byte_ps: int = 0
    # whether one transmission reaches a whole group
    has_multicast: bool = True

    def wire_ns(self, size: int) -> int:
        """How long one datagram of `size` bytes occupies the medium."""
        if not self.bits_per_s:
            return 0
        frames = -(-size // self.frame_payload) or 1
        return max(size + frames * self.frame_overhead, self.frame_least) * 8 * SECOND // self.bits_per_s

    def send_cost_ns(self, datagrams: int, size: int) -> int:
        return datagrams * self.send_ns + size * self.send_byte_ps // 1_000

    def receive_cost_ns(self, datagrams: int, size: int) -> int:
        return datagrams * self.receive_ns + size * self.receive_byte_ps // 1_000


IDEAL: Final = NetworkModel("ideal", latency_ns=100_000)
"""No cost and no queue: 0.1 ms from anyone to anyone."""

LOOPBACK: Final = NetworkModel(
    "loopback",
    latency_ns=5_000,
    frame_payload=65_507,
    pass_ns=2_000,
    send_ns=2_000,
    receive_ns=2_000,
    send_byte_ps=100,
    receive_byte_ps=100,
)
"""Processes of one machine: no medium, a few microseconds for each call and a copy for each byte."""

LAN: Final = NetworkModel(
    "lan",
    latency_ns=30_000,
    jitter_ns=10_000,
    bits_per_s=1_000_000_000,
    is_shared=False,
    pass_ns=5_000,
    send_ns=1_500,
    receive_ns=2_000,
    send_byte_ps=200,
    receive_byte_ps=200,
)
"""Switched Ethernet of 1 Gb/s."""

ETHERNET_10: Final = NetworkModel(
    "ethernet-10",
    latency_ns=10_000,
    bits_per_s=10_000_000,
    is_shared=True,
    pass_ns=50_000,
    send_ns=500_000,
    receive_ns=500_000,
    send_byte_ps=100_000,
    receive_byte_ps=100_000,
)
"""The Amoeba paper's machines: one 10 Mb/s segment, about 0.5 ms of a 20 MHz processor for each packet at each end, so
that a broadcast of two packets takes about the 2.5 ms that section 5 of the paper reports. The paper gives no cost of a
packet: this one is chosen. What follows from it without another choice stands in docs/figures.md."""

ETHERNET: Final = NetworkModel(
    "ethernet",
    latency_ns=10_000,
    bits_per_s=10_000_000,
    is_shared=True,
    frame_least=84,
    takes_turns=True,
    pass_ns=50_000,
    send_ns=300_000,
    receive_ns=300_000,
    send_byte_ps=100_000,
    receive_byte_ps=100_000,
)
"""The RMP paper's machines (section 5): SparcStations 2 and 5 on one 10 Mb/s segment, half duplex.

On the wire a datagram has the 46 bytes of Ethernet, IP and UDP and the 20 of preamble and gap, and no frame is shorter
than 64 bytes and those 20. So a bare stream of 1400-byte packets takes 1.17 ms each and fills 95 % of the wire with
payload (8000-byte ones, in six frames, as much), and a processor must be able to keep up with that, since theirs did.
The costs are chosen from what such machines were measured at: a small UDP packet took one and a half milliseconds
there and back between processes (here 2 * (0.3 + 0.07 + 0.01 + 0.05 + 0.3) = 1.5 ms), and a copy with its checksum
went at 10 MB/s. 1400 bytes then cost 0.44 ms at either end. Collisions are left out: the paper says of its runs with
4 and 8 senders that the starvation which they cause made them irreproducible."""

PENTIUM: Final = NetworkModel(
    "pentium",
    latency_ns=50_000,
    bits_per_s=100_000_000,
    is_shared=False,
    frame_least=84,
    pass_ns=5_000,
    send_ns=96_000,
    receive_ns=75_000,
)
"""The QSM paper's machines (section 3.1): Pentium III of 1 to 1.3 GHz on a switched network of 100 Mb/s.

The paper gives no cost of a packet. Its one node sends 9,850 packets a second (figure 9), so a pass that sends one
takes 101 us here. Two senders are faster than one (figure 16), so receiving must cost less: 80 us with its pass. The
paper's packets have 90 bytes with IP and all above. On this wire a datagram has the 46 bytes of Ethernet, IP and UDP
and the 20 of preamble and gap: 90 bytes take 10 us of the sender's port, a tenth of the processor's time, so that
machines set the pace and not the network. Latency of switch and interrupt is chosen."""

FAR: Final = replace(LAN, name="far", latency_ns=100 * MS, jitter_ns=5 * MS)
"""Machines of one continent and another: 100 ms one way."""

DISTANT: Final = replace(LAN, name="distant", latency_ns=200 * MS, jitter_ns=20 * MS)
"""By way of a satellite: 200 ms one way."""

NETWORKS: Final[dict[str, NetworkModel]] = {
    model.name: model for model in (IDEAL, LOOPBACK, LAN, FAR, DISTANT, ETHERNET_10, ETHERNET, PENTIUM)
}


class QueuedFrame(NamedTuple):
    """A datagram in the queue of a node's interface."""

    ready_ns: int
    targets: Sequence[str]
    batch: Train


@dataclass(slots=True)
class NetworkCounters:
    """What the network did. `sent` counts a multicast datagram once, and `sent_by_kind` by the kind in its header."""

    sent: int = 0
    sent_bytes: int = 0
    lost: int = 0  # by chance, per receiver
    cut: int = 0  # by a cut or a partition, per receiver
    duplicated: int = 0
    reordered: int = 0
    socket_drops: int = 0  # receive buffers that were full, per receiver; counted by the world
    sent_by_kind: Counter[str] = field(default_factory=Counter)
    bytes_by_kind: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes."""

    latency_ns: int
    jitter_ns: int
    spread_ns: int
    loss: float
    duplicate: float
    reorder: float
    reorder_ns: int


class Network:
    """All links between the nodes of one world."""

    __slots__ = (
        "_cuts",
        "_default",
        "_egress_free_ns",
        "_ingress_free_ns",
        "_interfaces",
        "_last_ns",
        "_links",
        "_rng",
        "_segments_free_ns",
        "_sides",
        "counters",
        "model",
        "pipes",
    )

    def __init__(self, model: NetworkModel, rng: random.Random, pipes: Pipes | None = None) -> None:
        self.model = model
        self.pipes = pipes  # between sites; None: all nodes are in one place
        self.counters = NetworkCounters()
        self._rng = rng
        # links
        self._default = _link_of(model)
        self._links: dict[tuple[str, str], Link] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._sides: dict[str, int] = {}  # empty: no partition
        # the medium
        self._segments_free_ns: dict[str, int] = {}  # of each site
        self._egress_free_ns: dict[str, int] = {}
        self._ingress_free_ns: dict[str, int] = {}
        self._last_ns: dict[tuple[str, str], int] = {}  # last arrival on a link: first in, first out
        self._interfaces: dict[str, deque[QueuedFrame]] = {}  # those with something to send; the first is next in turn

    # Conditions. -----------------------------------------------------------------------------------------------------

    def set_model(self, model: NetworkModel) -> None:
        """Change medium, costs and default link at once; links that were set one by one stay as they are."""
        self.model = model
        self._default = _link_of(model)

    def set_link(
        self,
        source: str,
        target: str,
        *,
        latency_ns: int | None = None,
        jitter_ns: int | None = None,
        loss: float | None = None,
        duplicate: float | None = None,
        reorder: float | None = None,
    ) -> None:
        """Give one direction its own properties; None keeps what it has."""
        link = self._links.get((source, target), self._default)
        self._links[source, target] = replace(
            link,
            latency_ns=link.latency_ns if latency_ns is None else latency_ns,
            jitter_ns=link.jitter_ns if jitter_ns is None else jitter_ns,
            loss=link.loss if loss is None else loss,
            duplicate=link.duplicate if duplicate is None else duplicate,
            reorder=link.reorder if reorder is None else reorder,
        )

    def reset_links(self) -> None:
        """Every direction has the properties of the model again, and every pipe those of the beginning."""
        self._links.clear()
        if self.pipes is not None:
            self.pipes.reset()

    def end_losses(self) -> None:
        """From now on nothing is lost, doubled or reordered by chance, but on links that were set one by one."""
        self.set_model(replace(self.model, loss=0.0, duplicate=0.0, reorder=0.0))
        if self.pipes is not None:
            self.pipes.end_losses()

    def cut(self, source: str, target: str) -> None:
        """Nothing from `source` reaches `target`; the other direction is another matter."""
        self._cuts.add((source, target))

    def mend(self, source: str, target: str) -> None:
        self._cuts.discard((source, target))

    def partition(self, sides: Sequence[Iterable[str]]) -> None:
        """Only nodes of the same side reach one another; nodes that no side names are together on one more."""
        self._sides = {name: number for number, side in enumerate(sides, start=1) for name in side}

    def split(self, sides: Sequence[Sequence[str]]) -> None:
        """Cut both directions between any two nodes of different sides. Nodes that no side names reach all of them, and
        each direction can be mended on its own: what `partition` does not leave open."""
        self._cuts.update(_across(sides))

    def unsplit(self, sides: Sequence[Sequence[str]]) -> None:
        self._cuts.difference_update(_across(sides))

    @property
    def is_parted(self) -> bool:
        """Whether some nodes cannot reach some others."""
        return bool(self._cuts or self._sides)

    def heal(self) -> None:
        """End the partition and all cuts, also those of pipes."""
        self._sides = {}
        self._cuts.clear()
        if self.pipes is not None:
            self.pipes.heal()

    def reaches(self, source: str, target: str) -> bool:
        """False if a cut or a partition lies between the two, in this direction."""
        pipe = self.pipes.joining(source, target) if self.pipes is not None else None
        return not self._is_cut(source, target) and (pipe is None or not pipe.is_cut)

    def _is_cut(self, source: str, target: str) -> bool:
        """Whether two nodes are cut off from each other, whatever lies between their sites."""
        if (source, target) in self._cuts:
            return True
        sides = self._sides
        return bool(sides) and sides.get(source, 0) != sides.get(target, 0)

    # Transmission. ---------------------------------------------------------------------------------------------------

    def transmit(self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int) -> list[Arrival]:
        """One transmission to all `targets` at once. `data` must be a copy: engines use their buffers again.

        Hot: one call per transmission of the simulated world.
        """
        size = len(data)
        datagrams = 1 if stride <= 0 or stride >= size else -(-size // stride)
        counters = self.counters
        counters.sent += datagrams
        counters.sent_bytes += size
        kind = kind_of(data)
        counters.sent_by_kind[kind] += datagrams
        counters.bytes_by_kind[kind] += size
        if self.model.takes_turns:
            self._queue(leave_ns, source, targets, data, stride, datagrams)
            return []
        arrivals: list[Arrival] = []
        for end_ns, wire_ns, first, stop in self._occupy(leave_ns, source, size, stride, datagrams):
            whole = Train(source, data, stride if datagrams > 1 else 0, datagrams)
            if stop - first < datagrams:
                whole = whole.piece(first, stop)
            self._spread(end_ns, wire_ns, targets, whole, arrivals)
        return arrivals

    def _spread(self, end_ns: int, wire_ns: int, targets: Sequence[str], batch: Train, arrivals: list[Arrival]) -> None:
        """What was on the medium goes to each receiver, or into the pipe to its site."""
        source, pipes = batch.source, self.pipes
        for target in targets:
            if (self._cuts or self._sides) and self._is_cut(source, target):
                self.counters.cut += batch.datagrams
            elif pipes is not None and not pipes.is_near(source, target):
                pipes.enter(end_ns, target, batch)
            else:
                self._deliver(end_ns, wire_ns, target, batch, arrivals)

    def report_ns(self, now_ns: int, source: str, target: str, rng: random.Random) -> int:
        """When a word of the kernel on `source` reaches `target`; -1: it is lost. It draws from a chance of its own."""
        link = self._links.get((source, target), self._default)
        if not self.reaches(source, target) or rng.random() < link.loss:
            return -1
        pipe = self.pipes.joining(source, target) if self.pipes is not None else None
        if pipe is not None:
            now_ns = pipe.report_ns(now_ns, rng)
            if now_ns < 0:
                return -1
        return now_ns + link.latency_ns + int(rng.random() * link.jitter_ns)

    @property
    def is_served(self) -> bool:
        """Whether something may wait for its turn on the medium, or for its pipe: then `serve` must be called."""
        return self.model.takes_turns or self.pipes is not None

    def next_ns(self) -> int:
        """When `serve` is due; NEVER where nothing waits for the medium, or nobody waits for his turn on it."""
        at_ns = self.pipes.next_ns() if self.pipes is not None else NEVER
        for source, queue in self._interfaces.items():
            at_ns = min(at_ns, max(self._segments_free_ns.get(self._segment_of(source), 0), queue[0].ready_ns))
        return at_ns

    def serve(self, now_ns: int) -> list[Arrival]:
        """Give a medium to the next node in turn that has a datagram ready, for that datagram; and let the pipes carry
        what has come to them."""
        arrivals: list[Arrival] = []
        source = next((name for name, queue in self._interfaces.items() if self._has_turn(now_ns, name, queue)), None)
        if source is not None:
            queue = self._interfaces.pop(source)
            _, targets, batch = queue.popleft()
            if queue:
                self._interfaces[source] = queue  # behind all others
            wire_ns = self.model.wire_ns(len(batch.data))
            self._segments_free_ns[self._segment_of(source)] = end_ns = now_ns + wire_ns
            self._spread(end_ns, wire_ns, targets, batch, arrivals)
        if self.pipes is not None:
            self._emerge(self.pipes.serve(now_ns), arrivals)
        return arrivals

    def _has_turn(self, now_ns: int, source: str, queue: deque[QueuedFrame]) -> bool:
        return queue[0].ready_ns <= now_ns and self._segments_free_ns.get(self._segment_of(source), 0) <= now_ns

    def _emerge(self, carried: Iterable[Carried], arrivals: list[Arrival]) -> None:
        """What comes out of a pipe has the link to its receiver before it. A copy that may be overtaken must not hold
        up what comes behind it, so that nothing but the latency befalls it there."""
        for at_ns, target, batch, is_late in carried:
            if is_late:
                link = self._links.get((batch.source, target), self._default)
                arrivals.append(Arrival(at_ns + link.latency_ns, target, batch))
            else:
                self._deliver(at_ns, 0, target, batch, arrivals)

    def _segment_of(self, node: str) -> str:
        return self.pipes.site_of(node) if self.pipes is not None else ONE_SITE

    def _queue(
        self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int, datagrams: int
    ) -> None:
        """Put a train into the sender's interface. The processor hands one datagram over after the other: by
        `leave_ns` it is done with the last, and the first have been on their way before."""
        queue = self._interfaces.setdefault(source, deque())
        each_ns = self.model.send_cost_ns(1, stride)
        whole = Train(source, data, stride if datagrams > 1 else 0, datagrams)
        for index in range(datagrams):
            batch = whole.piece(index, index + 1)
            queue.append(QueuedFrame(leave_ns - (datagrams - 1 - index) * each_ns, targets, batch))

    def _occupy(
        self, leave_ns: int, source: str, size: int, stride: int, datagrams: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """The batches of a train as (end on the medium, time on it, first, stop)."""
        model = self.model
        if not model.bits_per_s:
            yield leave_ns, 0, 0, datagrams
            return
        segment = self._segment_of(source)
        free_ns = self._segments_free_ns.get(segment, 0) if model.is_shared else self._egress_free_ns.get(source, 0)
        now_ns = max(leave_ns, free_ns)
        begin_ns, first = now_ns, 0
        ends: list[tuple[int, int, int, int]] = []
        for index in range(datagrams):
            length = size if datagrams == 1 else min(stride, size - index * stride)
            wire_ns = model.wire_ns(length)
            if index > first and now_ns + wire_ns - begin_ns > COALESCE_NS:
                ends.append((now_ns, now_ns - begin_ns, first, index))
                begin_ns, first = now_ns, index
            now_ns += wire_ns
        ends.append((now_ns, now_ns - begin_ns, first, datagrams))
        if model.is_shared:
            self._segments_free_ns[segment] = now_ns
        else:
            self._egress_free_ns[source] = now_ns
        yield from ends

    def _deliver(self, end_ns: int, wire_ns: int, target: str, batch: Train, arrivals: list[Arrival]) -> None:
        """What one receiver gets of one batch."""
        pair = (batch.source, target)
        link = self._links.get(pair, self._default) if self._links else self._default
        rng = self._rng
        at_ns = end_ns + link.latency_ns
        if link.jitter_ns:
            at_ns += int(rng.random() * link.jitter_ns)
        if wire_ns and not self.model.is_shared:
            # A switch forwards while it receives: the receiver's port is a queue, not a second transmission time.
            at_ns = max(at_ns, self._ingress_free_ns.get(target, 0) + wire_ns)
            self._ingress_free_ns[target] = at_ns
        last_ns = self._last_ns.get(pair, 0)
        if at_ns < last_ns:
            at_ns = last_ns
        self._last_ns[pair] = at_ns
        if link.spread_ns:
            at_ns += int(rng.expovariate(1 / link.spread_ns))  # each for itself: one may overtake another
        if not (link.loss or link.duplicate or link.reorder):
            arrivals.append(Arrival(at_ns, target, batch))
            return
        self._deliver_by_chance(at_ns, link, target, batch, arrivals)

    def _deliver_by_chance(self, at_ns: int, link: Link, target: str, batch: Train, arrivals: list[Arrival]) -> None:
        rng, counters = self._rng, self.counters
        together = 0  # the first datagram of those that are still together
        for index in range(batch.datagrams):
            is_lost = link.loss > 0 and rng.random() < link.loss
            is_late = not is_lost and link.reorder > 0 and rng.random() < link.reorder
            if is_lost or is_late:
                if index > together:
                    arrivals.append(Arrival(at_ns, target, batch.piece(together, index)))
                together = index + 1
            if is_lost:
                counters.lost += 1
                continue
            if is_late:
                counters.reordered += 1
                late_ns = at_ns + 1 + int(rng.random() * link.reorder_ns)
                arrivals.append(Arrival(late_ns, target, batch.piece(index, index + 1)))
            if link.duplicate > 0 and rng.random() < link.duplicate:
                counters.duplicated += 1
                late_ns = at_ns + 1 + int(rng.random() * link.reorder_ns)
                arrivals.append(Arrival(late_ns, target, batch.piece(index, index + 1)))
        if together == 0:
            arrivals.append(Arrival(at_ns, target, batch))
        elif together < batch.datagrams:
            arrivals.append(Arrival(at_ns, target, batch.piece(together, batch.datagrams)))


def _link_of(model: NetworkModel) -> Link:
    return Link(
        model.latency_ns,
        model.jitter_ns,
        model.spread_ns,
        model.loss,
        model.duplicate,
        model.reorder,
        model.reorder_ns,
    )


def _across(sides: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Every direction between nodes of different sides."""
    for one in sides:
        for other in sides:
            if one is not other:
                yield from ((source, target) for source in one for target in other)
