"""What a block costs an engine of regions, without sockets: nodes of one region that all send (full overlap).

python -m benches.regions_engine                # 4 nodes, blocks of 60,000 bytes in one datagram, as on loopback
python -m benches.regions_engine --datagram 1400

Datagrams go from outbox to outbox in one process, and time is virtual. What is counted is processor time of the
engines alone, for each block that a node receives: receive, deliver, its part of tokens, acknowledgements and couriers.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Sequence

from ordercast.config import LOOPBACK_DATAGRAM, MS, SECOND, GroupConfig, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.membership.given import Attending, ServiceParcel
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.orderers.regions.upcalls import LaneRun
from ordercast.service import FIFO
from ordercast.underlay.regions.engine import RegionsEngine
from ordercast.underlay.regions.node import RegionTerms
from ordercast.view import Address, Member, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.courier import Parcel
from ordercast.wire.regions import Accused
from ordercast.wire.segments import Datagram

GROUP: Address = ("239.9.9.9", 61_000)


class NoTable:
    def number(self, name: str) -> int:  # noqa: ARG002
        return 0

    def name(self, number: int) -> str:  # noqa: ARG002
        return ""

    def regions(self, number: int) -> tuple[int, ...]:  # noqa: ARG002
        return ()


class OneEpoch:
    """A service that has decided once."""

    def __init__(self, epoch: GivenEpoch) -> None:
        self.state = Attending.IN
        self.table = NoTable()
        self._epochs = [epoch]

    def start(self, now_ns: int, out: Outbox) -> None: ...

    def join(self, now_ns: int, names: Sequence[str]) -> None: ...

    def leave(self, now_ns: int, names: Sequence[str]) -> None: ...

    def follow(self, now_ns: int, names: Sequence[str]) -> None: ...

    def depart(self, now_ns: int) -> None: ...

    def pending(self) -> int:
        return 0

    def on_parcel(self, now_ns: int, sender: int, parcel: Parcel) -> None: ...

    def on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None: ...

    def installed(self, now_ns: int, epoch: int) -> None: ...

    def confirm(self, now_ns: int, epoch: int) -> None: ...

    def accuse(self, now_ns: int, accused: Accused) -> None: ...

    def take_parcels(self) -> list[ServiceParcel]:
        return []

    def take_epochs(self) -> list[GivenEpoch]:
        epochs, self._epochs = self._epochs, []
        return epochs

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int:
        return NEVER


class Bench:
    def __init__(self, nodes: int, datagram: int) -> None:
        self.members = [
            Member(node_id(f"n{each}", 1), f"n{each}", 1, (f"10.0.0.{each + 1}", 7_000)) for each in range(nodes)
        ]
        view = GivenView(1, 11, 1, "gms", GROUP, tuple(self.members))
        epoch = GivenEpoch(1, 1, 0, 1, (view,), is_whole=True)
        config = GroupConfig(datagram=datagram)
        terms = RegionTerms(first_rate=1e6)
        self.engines = [RegionsEngine(each, config, Timing(), OneEpoch(epoch), terms) for each in self.members]
        self.inboxes: list[deque[tuple[Address, bytes, int]]] = [deque() for _ in range(nodes)]
        self.places = {member.address: index for index, member in enumerate(self.members)}
        self.now_ns = SECOND
        self.received = 0  # blocks of others
        self.worked_ns = 0
        for index in range(nodes):
            self._pass(index, ())

    def _pass(self, index: int, blocks: Sequence[bytes]) -> int:
        engine, inbox = self.engines[index], self.inboxes[index]
        out = Outbox()
        taken = 0
        begin_ns = time.process_time_ns()
        if engine.deadline_ns() <= self.now_ns:
            engine.expire(self.now_ns, out)
        while inbox:
            source, data, stride = inbox.popleft()
            engine.receive(self.now_ns, source, memoryview(data), stride, out)
        if blocks and engine.room(self.now_ns, 1)[0] > 0:
            taken = engine.submit(self.now_ns, 1, blocks, out)
        engine.after_batch(self.now_ns, out)
        upcalls = engine.take()
        last = 0
        for upcall in upcalls:
            if isinstance(upcall, LaneRun):
                last = upcall.deliveries[-1].seq
                self.received += len(upcall.deliveries)
        if last:
            engine.consume(self.now_ns, last, out)
        self.worked_ns += time.process_time_ns() - begin_ns
        self.received -= taken
        for send in out.sends:
            data = b"".join(send.buffers)
            targets = [self.places[send.to]] if send.to in self.places else range(len(self.engines))
            for target in targets:
                if target != index:
                    self.inboxes[target].append((self.members[index].address, data, send.stride))
        return taken

    def run(self, seconds: float) -> int:
        """Blocks that were sent."""
        payloads = [bytes(100)] * 590
        sent = 0
        blocks = [pack_run(0, FIFO, payloads)] * 2
        end = time.process_time() + seconds
        while time.process_time() < end:
            self.now_ns += MS
            for index in range(len(self.engines)):
                sent += self._pass(index, blocks)
        return sent


def main() -> None:
    parser = argparse.ArgumentParser(description="What a block costs an engine of regions.")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--datagram", type=int, default=LOOPBACK_DATAGRAM)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    bench = Bench(given.nodes, given.datagram)
    bench.run(min(1.0, given.seconds))
    bench.received = bench.worked_ns = 0
    sent = bench.run(given.seconds)
    per_block = bench.worked_ns / max(1, bench.received) / 1_000
    print(f"{given.nodes} nodes, datagrams of {given.datagram}: {sent} blocks sent, {bench.received} received")
    print(f"{per_block:.1f} us of engines for each block received, sending included")


if __name__ == "__main__":
    main()
