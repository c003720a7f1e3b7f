"""Real engines in the bulk simulation, and the same engine in both worlds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.bulk.recording import House, RecordingEngine, Seen

from ordercast.config import MS, SECOND, Demands, GroupConfig, Timing
from ordercast.engine import Send, To
from ordercast.service import AGREED
from ordercast.sim.bulk import BulkNode, BulkWorld, LoadProgram, ReadyBlocks
from ordercast.sim.network import LAN, LOOPBACK, PENTIUM, NetworkModel
from ordercast.sim.world import Machine, World
from ordercast.underlay import Underlay
from ordercast.view import Address, Member, node_id
from ordercast.wire.block import open_messages, pack_run

NO_JITTER = NetworkModel(
    "plain lan",
    latency_ns=30_000,
    bits_per_s=1_000_000_000,
    is_shared=False,
    pass_ns=5_000,
    send_ns=1_500,
    receive_ns=2_000,
)
NAMES = [f"n{index}" for index in range(6)]


def test_a_token_ring_forms_and_orders_in_the_bulk_simulation() -> None:
    """The whole engine with its membership, by nothing but the contract: six nodes, two senders, loss."""
    world = BulkWorld(7, LAN)
    delivered: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}

    def boot(node: BulkNode) -> Underlay:
        me = Member(node_id(node.name, node.life), node.name, node.life, node.address, 1 << 20)
        return Underlay(
            "bulk", me, GroupConfig(), Timing(), Random(f"engine/{node.name}"), create=None, demands=Demands()
        )

    def note(name: str) -> LoadProgram:
        sends = name in ("n1", "n4")
        blocks = ReadyBlocks([pack_run(0, AGREED, [name.encode() * 50])]) if sends else None
        program = LoadProgram(world, name, blocks, per_s=200 if sends else None, limit=1_000)
        program.on_run = lambda _, run: delivered[name].extend(
            (each.origin, open_messages(each.block).first) for each in run.deliveries
        )
        return program

    for name in NAMES:
        world.add(name, boot, program=note(name))
        world.lose(name, "test", 0.01)
    world.start_all()
    world.run_until(2 * SECOND)
    assert world.run_to_rest(30 * SECOND) == []
    senders = {node_id(name, 0): name for name in ("n1", "n4")}
    for name, order in delivered.items():
        for sender, own in senders.items():
            numbers = [number for origin, number in order if origin == sender]
            first = 0 if own == name else numbers[0]  # a member that came later has what came later
            assert numbers == list(range(first, 1_000))
        assert len(order) > 1_500
    orders = list(delivered.values())
    for order in orders[1:]:
        both = set(order) & set(orders[0])
        assert [each for each in order if each in both] == [each for each in orders[0] if each in both]


class Pipe:
    """A recording engine as a stack of the ordinary world."""

    def __init__(self, engine: RecordingEngine) -> None:
        self.engine = engine
        self.deadline_ns = engine.deadline_ns

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        self.engine.seen.append(Seen(now_ns, source, bytes(data), stride))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None: ...

    def expire(self, now_ns: int) -> None: ...

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:  # noqa: ARG002
        queue, self.engine.queue = self.engine.queue, []
        return [("g", send) for send in queue]

    def audience(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def copies(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def unrest(self) -> list[str]:
        return []


def in_ordinary_world(model: NetworkModel, script: Sequence[tuple[int, int, int]]) -> list[list[Seen]]:
    world = World(1, model)
    engines = {name: RecordingEngine() for name in NAMES}

    def boot(node: Machine) -> Pipe:
        world.listen(node, "g")
        return Pipe(engines[node.name])

    for name in NAMES:
        world.add(name, boot)
        world.start(name)
    world.run_until(MS)

    def send(argument: tuple[int, int]) -> None:
        target, size = argument
        to = To.ALL if target == 0 else world.nodes[NAMES[target]].address
        engines["n0"].queue.append(Send(to, [bytes(size)], 0))
        world.wake(world.nodes["n0"])

    for at_us, target, size in script:
        world.at(MS + at_us * 1_000, send, (target, size))
    world.run_until(SECOND)
    return [engine.seen for engine in engines.values()]


def in_bulk_world(model: NetworkModel, script: Sequence[tuple[int, int, int]]) -> list[list[Seen]]:
    house = House(BulkWorld(1, model), NAMES)
    world = house.world
    world.run_until(MS)

    def send(argument: tuple[int, int]) -> None:
        target, size = argument
        to = To.ALL if target == 0 else world[NAMES[target]].address
        house.send("n0", Send(to, [bytes(size)], 0))

    for at_us, target, size in script:
        world.at(MS + at_us * 1_000, send, (target, size))
    world.run_until(SECOND)
    return [house[name].seen for name in NAMES]


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from([NO_JITTER, LOOPBACK, PENTIUM]),
    script=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 5), st.integers(1, 1_400)), max_size=20),
)
def test_an_engine_sees_the_same_in_both_worlds(model: NetworkModel, script: list[tuple[int, int, int]]) -> None:
    """One sender, datagrams to one or to all: times, sources and bytes are the same to the nanosecond."""
    assert in_bulk_world(model, script) == in_ordinary_world(model, script)
