"""Multicast addresses as destinations in the ordinary world: who hears them is what stacks say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ordercast.config import MS
from ordercast.engine import NEVER, Send
from ordercast.sim.multicast import MulticastTable, is_multicast
from ordercast.sim.network import IDEAL, NetworkModel
from ordercast.sim.topology import plain_topology
from ordercast.sim.world import Machine, World
from ordercast.view import Address

ONE: Address = ("239.1.0.1", 7_000)
TWO: Address = ("239.1.0.2", 7_000)


class Region:
    """A stack that hears addresses, and sends what it is told to."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.queue: list[tuple[str, Send]] = []
        self.addresses: frozenset[Address] = frozenset((ONE,))

    def hears(self) -> frozenset[Address]:
        return self.addresses

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:  # noqa: ARG002
        self.seen.append(bytes(data))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:  # noqa: ARG002
        self.seen.append(b"unreachable")

    def expire(self, now_ns: int) -> None:
        pass

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:  # noqa: ARG002
        queue, self.queue = self.queue, []
        return queue

    def deadline_ns(self) -> int:
        return NEVER

    def audience(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def copies(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def unrest(self) -> list[str]:
        return []


class Town:
    """Nodes with such stacks."""

    def __init__(self, world: World, names: str, deaf: str = "") -> None:
        self.world = world
        self.stacks: dict[str, Region] = {}

        def boot(node: Machine) -> Region:
            return self.stacks.setdefault(f"{node.name}{node.life}", Region())

        for name in names:
            world.add(name, boot, has_multicast=name not in deaf)
            world.start(name)
        world.run_until(world.now_ns)

    def __getitem__(self, name: str) -> Region:
        return self.stacks[f"{name}{self.world.nodes[name].life}"]

    def send(self, name: str, to: Address, data: bytes, stride: int = 0) -> None:
        self[name].queue.append(("regions", Send(to, [data], stride)))
        self.world.wake(self.world.nodes[name])
        self.world.run_until(self.world.now_ns + MS)

    def heard(self, names: str) -> list[int]:
        return [len(self[name].seen) for name in names]


def test_a_multicast_reaches_the_stacks_that_hear_its_address() -> None:
    town = Town(World(1, IDEAL), "abcd")
    town["c"].addresses = frozenset((ONE, TWO))
    town["d"].addresses = frozenset((TWO,))
    for name in "cd":
        town.world.wake(town.world.nodes[name])
    town.send("a", ONE, b"one")
    town.send("d", TWO, b"two")
    assert [town[name].seen for name in "abcd"] == [[], [b"one"], [b"one", b"two"], []]
    assert town.world.network.counters.sent == 2  # each was one transmission


def test_a_node_that_is_down_hears_nothing_and_nobody_is_told_that_it_is_gone() -> None:
    town = Town(World(1, IDEAL), "abc")
    town.world.crash("b", is_process=True)
    town.send("a", ONE, b"1")
    assert town.heard("ac") == [0, 1]
    town.world.start("b")
    town.world.run_until(town.world.now_ns)
    town.send("a", ONE, b"2")
    assert town.heard("abc") == [0, 1, 2]


def test_nodes_without_multicast_neither_send_nor_hear() -> None:
    town = Town(World(1, IDEAL), "abc", deaf="b")
    town.send("a", ONE, b"1")
    town.send("b", ONE, b"2")
    assert town.heard("abc") == [0, 0, 1]


def test_cuts_partitions_and_losses_befall_it_as_any_multicast() -> None:
    town = Town(World(1, IDEAL), "abcd")
    network = town.world.network
    network.cut("a", "b")
    town.send("a", ONE, b"1")
    assert town.heard("abcd") == [0, 0, 1, 1]
    network.heal()
    network.partition(["ad"])
    town.send("a", ONE, b"2")
    assert town.heard("abcd") == [0, 0, 1, 2]
    network.heal()
    network.set_link("a", "c", loss=1.0)
    town.send("a", ONE, b"345", 1)
    assert town.heard("abcd") == [0, 1, 1, 3]
    assert town["b"].seen == [b"345"]
    assert (network.counters.cut, network.counters.lost) == (1 + 2, 3)


def test_a_shared_medium_carries_it_once() -> None:
    wire = NetworkModel("wire", bits_per_s=8_000_000, frame_overhead=0, latency_ns=1_000)
    town = Town(World(1, wire), "abcd")
    town.send("a", ONE, bytes(100))
    assert town.heard("bcd") == [1, 1, 1]
    assert town.world.network.counters.sent_bytes == 100


def test_no_router_passes_it_on_to_another_site() -> None:
    topology = plain_topology({"east": ["a", "b"], "west": ["c"]})
    town = Town(World(1, IDEAL, topology=topology), "abc")
    town.send("a", ONE, b"1")
    assert town.heard("abc") == [0, 1, 0]


def test_the_table_keeps_the_order_in_which_nodes_began_to_listen() -> None:
    table: MulticastTable[str] = MulticastTable()
    table.hear("b", frozenset((ONE,)))
    table.hear("a", frozenset((ONE, TWO)))
    table.hear("c", frozenset((TWO,)))
    assert (table.listeners(ONE), table.listeners(TWO)) == (("b", "a"), ("a", "c"))
    table.hear("b", frozenset((TWO,)))
    table.hear("b", frozenset((ONE, TWO)))
    assert (table.listeners(ONE), table.listeners(TWO)) == (("a", "b"), ("a", "c", "b"))
    for name in "abc":
        table.hear(name, frozenset())
    assert (table.listeners(ONE), table.listeners(TWO)) == ((), ())


@pytest.mark.parametrize(
    ("address", "expected"), [("239.1.2.3", True), ("224.0.0.1", True), ("223.9.9.9", False), ("*all", False)]
)
def test_multicast_addresses_are_known_by_their_first_number(address: str, expected: bool) -> None:
    assert is_multicast((address, 1)) == expected
