"""A few nodes, the links between them, and time that goes from event to event.

The network is the simplest that failures can be told apart in: every datagram takes one tick, so that everything that
was sent in one tick arrives together, in the order of the nodes. What makes other orders is done to it from outside:
links that are cut, datagrams that are lost or come late, nodes that crash or pause. Nodes only touch each other through
datagrams, so the order of their passes within one tick does not matter: that is half of the partial-order reduction,
and `key` is the other half.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappop, heappush

from ordercast.engine import Send, To
from ordercast.explore.actor import NO_TICK, Actor, JoinTerms, Packet
from ordercast.view import Address
from ordercast.wire.header import FORWARD

Link = tuple[int, int]
"""Source and target, by index."""


class Arena:
    __slots__ = ("_by_address", "_due", "_serials", "_ticks", "actors", "addresses", "cuts", "passes", "tick")

    def __init__(self, names: str, terms: JoinTerms) -> None:
        self.actors = [Actor(index, name, terms) for index, name in enumerate(names)]
        self.addresses: list[Address] = [actor.address for actor in self.actors]
        self._by_address = {actor.address: actor.index for actor in self.actors}
        self.cuts: frozenset[tuple[int, int]] = frozenset()
        self.tick = 0
        self.passes = 0
        self._due: dict[int, list[Packet]] = {}
        self._ticks: list[int] = []  # a heap of the keys of `_due`
        self._serials = [0] * len(self.actors)

    # Time.

    def next_tick(self) -> int:
        """When something happens by itself; NO_TICK if nothing does."""
        first = self._ticks[0] if self._ticks else NO_TICK
        for actor in self.actors:
            due = max(actor.deadline, actor.paused_until)
            if due < first:
                first = due
        return max(first, self.tick + 1) if first < NO_TICK else NO_TICK

    def arrivals(self, tick: int) -> list[Packet]:
        """Move time to `tick`; what arrives then, before links and crashes are looked at."""
        self.tick = tick
        if not self._ticks or self._ticks[0] > tick:
            return []
        heappop(self._ticks)
        return self._due.pop(tick)

    def put_off(self, packet: Packet, tick: int) -> None:
        """A datagram arrives at `tick`."""
        if tick in self._due:
            self._due[tick].append(packet)
        else:
            self._due[tick] = [packet]
            heappush(self._ticks, tick)

    def run(self, packets: list[Packet]) -> None:
        """What arrived, less what links have lost, and timers: one pass for each node that has to do."""
        tick, actors, cuts = self.tick, self.actors, self.cuts
        inboxes: dict[int, list[Packet]] = {}
        for packet in packets:
            if (packet.source, packet.target) in cuts:
                continue
            actor = actors[packet.target]
            if actor.host is None:
                continue
            if actor.paused_until > tick:
                self.put_off(packet, actor.paused_until)
            elif packet.target in inboxes:
                inboxes[packet.target].append(packet)
            else:
                inboxes[packet.target] = [packet]
        for actor in actors:
            inbox = inboxes.get(actor.index)
            if inbox is not None or (actor.deadline <= tick and actor.paused_until <= tick):
                self.passes += 1
                for _, send in actor.work(tick, inbox or [], self.addresses):
                    self._transmit(actor, send)

    def _transmit(self, actor: Actor, send: Send) -> None:
        to, buffers, stride = send
        data = b"".join(buffers)
        source = actor.index
        self._serials[source] = serial = self._serials[source] + 1
        kind = data[1] & ~FORWARD
        if to in (To.ALL, To.MULTICAST, To.ANYONE):
            targets = [other.index for other in self.actors if other.index != source and other.host is not None]
        else:
            targets = [self._by_address[to]] if to in self._by_address else []
        for target in targets:
            self.put_off(Packet(source, target, serial, data, stride, kind), self.tick + 1)

    # What is the same.

    def key(self, packets: list[Packet]) -> bytes:
        """A name for the state of everything, just before `packets` arrive.

        Equal keys mean equal histories of all nodes and equal datagrams under way, so that the same future follows from
        the same choices. The source's history and the serial name a datagram's bytes.
        """
        words = [str(self.tick), str(sorted(self.cuts))]
        for actor in self.actors:
            pause = max(actor.paused_until - self.tick, 0)
            words.append(f"{actor.digest.hexdigest()} {actor.is_up} {pause}")
        words += [f"{packet.source}>{packet.target}#{packet.serial}" for packet in packets]
        for tick in sorted(self._ticks):
            words.append(f"@{tick}")
            words += sorted([f"{packet.source}>{packet.target}#{packet.serial}" for packet in self._due[tick]])
        return blake2b("|".join(words).encode(), digest_size=12).digest()
