"""A network that keeps, spoils or repeats what crosses it, and a group on it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from ordercast.config import MS, SECOND, GroupConfig, RecoveryMode
from ordercast.service import AGREED, FIFO, MAJORITY, RELIABLE, RESILIENT, SAFE, UNRELIABLE
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.datagrams import Arrival
from ordercast.sim.network import IDEAL, Network, NetworkModel
from ordercast.sim.scenario import CallPlan
from ordercast.view import Address

# Besides AGREED, RESILIENT and SAFE, which all orderers give.
OTHER_SERVICES = {"token": (UNRELIABLE, RELIABLE, FIFO, MAJORITY), "timestamp": (RELIABLE, FIFO, MAJORITY)}
SPOILED_BYTES = 200  # at the front of a datagram, where everything but payload stands


class Seen(NamedTuple):
    """A transmission that was on the wire."""

    source: str
    data: bytes
    stride: int

    @property
    def kind(self) -> int:
        return self.data[1]


class Wiretap(Network):
    """`spoil`: how often one bit of a datagram is changed on its way to all its receivers."""

    __slots__ = ("chance", "seen", "spoil")

    def __init__(self, model: NetworkModel, rng: random.Random) -> None:
        super().__init__(model, rng)
        self.seen: list[Seen] = []
        self.chance = random.Random("spoil")
        self.spoil = 0.0

    def transmit(self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int) -> list[Arrival]:
        self.seen.append(Seen(source, data, stride))
        if self.spoil and self.chance.random() < self.spoil:
            data = flipped(data, self.chance)
        return super().transmit(leave_ns, source, targets, data, stride)


def flipped(data: bytes, rng: random.Random) -> bytes:
    spoiled = bytearray(data)
    spoiled[rng.randrange(min(len(data), SPOILED_BYTES))] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


class Lab:
    """Members a, b, c, ... of one group on a tapped network."""

    def __init__(
        self,
        seed: int | str,
        *,
        nodes: str = "abc",
        datagram: int = 600,
        recovery: RecoveryMode = "automatic",
        loss: float = 0,
        orderer: str = "sequencer",
        callers: str = "",
    ) -> None:
        config = GroupConfig(orderer, datagram=datagram, history_blocks=64)
        self.cluster = Cluster(seed, IDEAL, Terms(config=config, recovery=recovery), event_limit=400_000)
        self.world = self.cluster.world
        self.tap = Wiretap(IDEAL, self.world.stream("network"))
        self.world.network = self.tap
        self.members = [self.cluster.add(name) for name in nodes]
        self.callers = [self.cluster.add_caller(name) for name in callers]
        for name in [each.node.name for each in self.members] + [each.node.name for each in self.callers]:
            self.world.start(name)
        self.loss = loss

    def form(self, start_ns: int = SECOND) -> None:
        self.world.run_until(start_ns)
        assert all(member.view is not None and len(member.view.members) == len(self.members) for member in self.members)

    def run(self, duration_ns: int) -> None:
        self.world.run_until(self.world.now_ns + duration_ns)

    def chatter(self) -> None:
        """Every kind of message from everybody, and a call of each kind from everybody outside."""
        for member in self.members:
            for service in OTHER_SERVICES.get(self.cluster.terms.config.orderer, ()):
                member.send(2, service, 700)
            member.send(3, AGREED, 100)
            member.send(2, RESILIENT(1), 50)
            member.send(1, SAFE, 10)
            member.send(1, AGREED, 9_000)
            member.send(1, AGREED, 70_000)
        for caller in self.callers:
            for asked in ("UNRELIABLE", "FIFO", "AGREED", "SAFE"):
                caller.call(CallPlan(caller.node.name, 1, asked), 1)
            caller.call(CallPlan(caller.node.name, 1, size=2_000, handler=2, wants_again=True), 1)
        self.run(200 * MS)

    def inject(self, index: int, source: Address, data: bytes, stride: int) -> None:
        """One read of a member's socket brings these bytes."""
        member = self.members[index]
        assert member.host is not None
        member.host.receive(self.world.clock(member.node), source, memoryview(data), stride)
        self.world.wake(member.node)

    def counters(self, index: int) -> dict[str, int]:
        member = self.members[index]
        assert member.host is not None
        assert member.port is not None
        counters = dict(member.host.counters)
        for name, count in member.port.engine.counters.items():
            counters[name] = counters.get(name, 0) + count
        return counters

    def dropped(self, index: int) -> int:
        counters = self.counters(index)
        return sum(counters.get(name, 0) for name in ("malformed", "foreign", "unknown_group", "old_ring"))
