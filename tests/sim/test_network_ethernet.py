"""The shared segment of the RMP paper's figures: whose turn it is, what frames cost, and what its machines manage."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER, Send, To
from ordercast.sim.network import ETHERNET, NETWORKS, Network, NetworkModel
from ordercast.sim.world import Machine, World
from ordercast.view import Address

WIRE = ETHERNET.bits_per_s // 8  # bytes a second
QUICK = NetworkModel("quick", bits_per_s=1_000_000, frame_overhead=25, takes_turns=True)  # 100 bytes: 1 ms


class Bare:
    """A program straight on its socket: streams packets of one size, or sends back what it gets."""

    def __init__(self, to: Address | None = None, size: int = 0, count: int = 0, answers: bool = False) -> None:
        self._to = to
        self._size = size
        self.left = count
        self._answers = answers
        self._sends: list[tuple[str, Send]] = []
        self.seen: list[tuple[int, int]] = []

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        stride = stride or len(data)
        self.seen += [(now_ns, min(stride, len(data) - at)) for at in range(0, len(data), stride)]
        if self._answers:
            self._sends.append(("g", Send(source, [bytes(data)], 0)))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        """Nobody fails here."""

    def expire(self, now_ns: int) -> None:
        """No timers."""

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:  # noqa: ARG002
        sends, self._sends = self._sends, []
        if self.left and self._to is not None:
            self.left -= 1
            sends.append(("g", Send(self._to, [bytes(self._size)], 0)))
        return sends

    def deadline_ns(self) -> int:
        return NEVER

    def copies(self, group: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def audience(self, group: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def unrest(self) -> list[str]:
        return []


def bare_world(stacks: dict[str, Bare], *streaming: str) -> World:
    """Nodes that each run their stack; those `streaming` ask for a pass as soon as the last is over."""
    world = World(1, ETHERNET)

    def boot(node: Machine) -> Bare:
        world.listen(node, "g")
        stack = stacks[node.name]
        if node.name in streaming:
            node.after_pass = lambda _: world.wake(node) if stack.left else None
        return stack

    for name in stacks:
        world.add(name, boot)
        world.start(name)
    return world


def test_nodes_take_turns_datagram_by_datagram() -> None:
    net = Network(QUICK, random.Random(1))
    assert net.next_ns() == NEVER
    assert net.transmit(0, "a", ["c"], bytes(300), 100) == []  # a train of three
    net.transmit(0, "b", ["c"], bytes(100), 0)
    order = []
    for _ in range(4):
        now_ns = net.next_ns()
        order += [(arrival.batch.source, arrival.at_ns) for arrival in net.serve(now_ns)]
    assert order == [("a", 1 * MS), ("b", 2 * MS), ("a", 3 * MS), ("a", 4 * MS)]
    assert net.next_ns() == NEVER


def test_a_multicast_takes_the_wire_once_and_copies_once_each() -> None:
    net = Network(QUICK, random.Random(1))
    net.transmit(0, "a", ["b", "c"], bytes(100), 0)
    assert [arrival.at_ns for arrival in net.serve(net.next_ns())] == [1 * MS, 1 * MS]
    for target in ("b", "c"):
        net.transmit(1 * MS, "a", [target], bytes(100), 0)
    assert [net.serve(net.next_ns())[0].at_ns for _ in range(2)] == [2 * MS, 3 * MS]


def test_a_datagram_that_is_not_ready_yet_does_not_keep_others_from_the_wire() -> None:
    net = Network(QUICK, random.Random(1))
    net.transmit(5 * MS, "a", ["c"], bytes(100), 0)
    net.transmit(0, "b", ["c"], bytes(100), 0)
    assert [net.serve(net.next_ns())[0].batch.source for _ in range(2)] == ["b", "a"]


def test_a_cut_is_counted_when_the_wire_is_taken() -> None:
    net = Network(QUICK, random.Random(1))
    net.cut("a", "b")
    net.transmit(0, "a", ["b", "c"], bytes(100), 0)
    assert [arrival.target for arrival in net.serve(0)] == ["c"]
    assert net.counters.cut == 1


def test_no_frame_is_shorter_than_the_least() -> None:
    assert NETWORKS["ethernet"] is ETHERNET
    assert ETHERNET.wire_ns(0) == ETHERNET.wire_ns(18) == 84 * 800
    assert ETHERNET.wire_ns(19) == 85 * 800


def test_machines_count_what_reaches_their_interface() -> None:
    """An interrupt each: section 5 of the Amoeba paper counts them."""
    world = bare_world({"a": Bare(To.ALL, 100, 1), "b": Bare(), "c": Bare(answers=True)}, "a")
    world.run_until(1 * SECOND)
    assert [world.nodes[name].arrived for name in "abc"] == [1, 1, 1]


@pytest.mark.parametrize("size", [1_400, 8_000])
def test_a_bare_stream_gets_nine_tenths_of_the_wire(size: int) -> None:
    """As on the paper's machines, so that what a protocol loses beyond that is its own."""
    count = 200
    target = Bare()
    world = bare_world({"a": Bare(("10.0.0.2", 7_000), size, count), "b": target}, "a")
    world.run_until(10 * SECOND)
    assert len(target.seen) == count
    seconds = (target.seen[-1][0] - target.seen[0][0]) / SECOND
    assert 0.90 < (count - 1) * size / seconds / WIRE < 0.96


def test_two_streams_share_the_wire_fairly() -> None:
    target = Bare()
    to = ("10.0.0.3", 7_000)
    world = bare_world({"a": Bare(to, 1_400, 400), "b": Bare(to, 1_400, 400), "c": target}, "a", "b")
    world.run_until(300 * MS)
    assert len(target.seen) > 200
    left = [stack.left for node in ("a", "b") if isinstance(stack := world.nodes[node].stack, Bare)]
    assert abs(left[0] - left[1]) < 5


def test_a_small_packet_is_back_in_one_to_two_milliseconds() -> None:
    asking = Bare(("10.0.0.2", 7_000), 64, 1)
    world = bare_world({"a": asking, "b": Bare(answers=True)})
    world.run_until(1 * SECOND)
    assert 1 * MS < asking.seen[0][0] - ETHERNET.pass_ns < 2 * MS


def test_a_group_gets_as_much_as_one_receiver() -> None:
    """The whole point of multicast (paper section 5)."""
    stacks = {"a": Bare(To.ALL, 1_400, 100), **{name: Bare() for name in "bcdefgh"}}
    world = bare_world(stacks, "a")
    world.run_until(SECOND)
    assert all(len(stacks[name].seen) == 100 for name in "bcdefgh")
    assert world.network.counters.sent == 100
