"""Couriers on wires that lose, repeat and delay, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from heapq import heappop, heappush

from ordercast.config import MS, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.parts.courier import Courier, CourierTerms, Undelivered
from ordercast.wire.courier import (
    CourierAck,
    Parcel,
    ParcelPart,
    decode_courier_ack,
    encode_courier_ack,
    open_part,
    part_head,
)
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.intake import Intake

TIMING = Timing()
TAG = 7


def parcel(number: int, size: int = 40) -> Parcel:
    return Parcel(int(Kind.SYNC), 3, 4, number, bytes([number % 251]) * size)


def sent_over(part: ParcelPart) -> ParcelPart:
    """The part as it comes out of its bytes."""
    (datagram,) = Intake(TAG, {}).read(0, memoryview(part_head(TAG, part) + bytes(part.parcel.body)), 0)
    return open_part(datagram)


class Post:
    """Nodes with a courier each. What is sent takes a millisecond, and may be lost, repeated or late."""

    def __init__(
        self,
        nodes: Iterable[int],
        terms: CourierTerms | None = None,
        seed: int = 0,
        loss: float = 0.0,
        twice: float = 0.0,
        jitter_ns: int = 0,
    ) -> None:
        self.now_ns = 0
        self.couriers = {node: Courier(node, TIMING, terms) for node in nodes}
        self.got: dict[int, list[tuple[int, Parcel]]] = {node: [] for node in self.couriers}
        self.given_up: list[tuple[int, Undelivered]] = []
        self.doubted: list[tuple[int, int]] = []
        self.sent: list[tuple[int, ParcelPart]] = []
        self.down: set[int] = set()
        self.loss, self.twice, self.jitter_ns = loss, twice, jitter_ns
        self._rng = random.Random(seed)
        self._heap: list[tuple[int, int, int, ParcelPart | CourierAck]] = []
        self._serial = 0

    def send(self, source: int, to: int, *parcels: Parcel, is_urgent: bool = True) -> list[bool]:
        found = [self.couriers[source].post(to, each, is_urgent) for each in parcels]
        self.step(source)
        return found

    def step(self, node: int) -> None:
        parts, acks, given_up, doubted = self.couriers[node].step(self.now_ns)
        self.doubted += [(node, peer) for peer in doubted]
        self.given_up += [(node, each) for each in given_up]
        for part in parts:
            assert len(part_head(TAG, part)) == HEADER_BYTES + 28
            self.sent.append((self.now_ns, part))
            self._put(part.to, sent_over(part))
        for ack in acks:
            self._put(ack.to, decode_courier_ack(encode_courier_ack(ack)))

    def run(self, until_ns: int = 600 * SECOND) -> None:
        """Until nothing happens any more, or until then."""
        while self.now_ns <= until_ns:
            deadlines = {node: each.deadline_ns() for node, each in self.couriers.items() if node not in self.down}
            at_ns = min([self._heap[0][0] if self._heap else NEVER, *deadlines.values()])
            if at_ns >= min(until_ns, NEVER):
                break
            self.now_ns = max(self.now_ns, at_ns)
            due = {node for node, deadline_ns in deadlines.items() if deadline_ns <= self.now_ns}
            while self._heap and self._heap[0][0] <= self.now_ns:
                _, _, node, item = heappop(self._heap)
                if node in self.down or node not in self.couriers:
                    continue
                due.add(node)
                self.take(node, item)
            for node in sorted(due):
                self.step(node)

    def take(self, node: int, item: ParcelPart | CourierAck) -> None:
        if isinstance(item, CourierAck):
            self.couriers[node].on_ack(self.now_ns, item)
        elif (whole := self.couriers[node].on_part(item)) is not None:
            self.got[node].append((item.sender, whole))

    def is_at_rest(self) -> bool:
        return not self._heap and all(each.is_at_rest for node, each in self.couriers.items() if node not in self.down)

    def _put(self, to: int, item: ParcelPart | CourierAck) -> None:
        for _ in range(1 + (self._rng.random() < self.twice)):
            if self._rng.random() >= self.loss:
                self._serial += 1
                at_ns = self.now_ns + MS + (self._rng.randrange(self.jitter_ns) if self.jitter_ns else 0)
                heappush(self._heap, (at_ns, self._serial, to, item))
