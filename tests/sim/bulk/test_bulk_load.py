"""Programs of the bulk simulation: what they submit, when, and what they take; counters and time series of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ordercast.config import MS, SECOND
from ordercast.engine import Outbox
from ordercast.errors import UsageError
from ordercast.service import FIFO
from ordercast.sim.bulk import BulkNode, BulkWorld, LoadProgram, NodeTally, ReadyBlocks, Samples
from ordercast.sim.bulk.flood import FloodEngine
from ordercast.sim.network import PENTIUM, NetworkModel
from ordercast.view import Address
from ordercast.wire.block import head_of, open_messages, pack_run
from ordercast.wire.header import Kind

REGION: Address = ("239.1.0.1", 7_000)
HEARS = frozenset((REGION,))
LINK = NetworkModel("link", latency_ns=10_000, pass_ns=1_000, send_ns=10_000, receive_ns=5_000)


class Gate(FloodEngine):
    """A flood that has room for so many bytes in all, until `open` is called; and remembers what was consumed."""

    __slots__ = ("consumed", "left", "most", "taken")

    def __init__(self, left: int = 1 << 40, most: int = 1 << 16) -> None:
        super().__init__(0, HEARS, REGION)
        self.left = left
        self.most = most
        self.taken: list[bytes] = []
        self.consumed: list[tuple[int, int]] = []

    def room(self, now_ns: int) -> tuple[int, int]:  # noqa: ARG002
        return self.left, self.most

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        self.left -= sum(map(len, blocks))
        self.taken += blocks
        return super().submit(now_ns, blocks, out)

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:  # noqa: ARG002
        self.consumed.append((now_ns, seq))


def flood_world(nodes: int, model: NetworkModel, *, stands_for: int = 1) -> BulkWorld:
    def boot(node: BulkNode) -> FloodEngine:
        return FloodEngine(node.index, HEARS, REGION)

    world = BulkWorld(1, model, stands_for=stands_for)
    for index in range(nodes):
        name = f"n{index}"
        world.add(name, boot, program=LoadProgram(world, name))
    return world


def gated(gate: Gate, **options: float) -> tuple[BulkWorld, LoadProgram]:
    world = BulkWorld(1, LINK)
    blocks = ReadyBlocks([pack_run(0, FIFO, [b"12345678"])])
    limit = int(options["limit"]) if "limit" in options else None
    load = LoadProgram(world, "a", blocks, per_s=options.get("per_s"), limit=limit)
    world.add("a", lambda _: gate, program=load)
    world.start("a")
    return world, load


def program_of(world: BulkWorld, name: str) -> LoadProgram:
    program = world[name].program
    assert isinstance(program, LoadProgram)
    return program


# Blocks. -------------------------------------------------------------------------------------------------------------


def test_ready_made_blocks_open_as_packed_ones_do_with_rising_numbers() -> None:
    blocks = ReadyBlocks([pack_run(0, FIFO, [b"ab", b"cd", b"ef"], group=7)])
    for first in (0, 3, 6):
        (block,) = blocks(0)
        assert block == pack_run(first, FIFO, [b"ab", b"cd", b"ef"], group=7)
        assert open_messages(block).first == first


def test_blocks_for_several_lanes_go_out_together_and_sets_take_turns() -> None:
    def block(group: int) -> bytes:
        return pack_run(0, FIFO, [b"x"], group=group)

    blocks = ReadyBlocks([block(1), block(2)], [block(3), block(4)])
    made = [blocks(0) for _ in range(3)]
    assert [[head_of(each).first for each in one] for one in made] == [[0, 0], [1, 1], [2, 2]]
    assert [[open_messages(each).groups for each in one] for one in made] == [[1, 2], [3, 4], [1, 2]]


def test_a_load_without_blocks_or_with_uneven_ones_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one set"):
        ReadyBlocks()
    with pytest.raises(UsageError, match="same number of messages"):
        ReadyBlocks([pack_run(0, FIFO, [b"x"])], [pack_run(0, FIFO, [b"x", b"y"])])


# Sending. ------------------------------------------------------------------------------------------------------------


def test_messages_come_at_the_rate_that_was_asked_for() -> None:
    world = flood_world(3, LINK)
    blocks = ReadyBlocks([pack_run(0, FIFO, [b"12345678"] * 4)])
    world["n0"].program = load = LoadProgram(world, "n0", blocks, per_s=1_000)
    world.start_all()
    world.run_until(10 * SECOND)
    assert load.submitted == pytest.approx(10_000, abs=4)
    assert load.backlog == 0
    world.run_until(world.now_ns + MS)
    assert program_of(world, "n1").taken == program_of(world, "n2").taken
    assert program_of(world, "n1").taken == pytest.approx(10_000, abs=8)


def test_a_saturated_sender_sends_what_its_processor_can() -> None:
    """QSM figure 9: 9,850 packets a second with one node; here passes of several packets spare some of the time."""
    world = flood_world(2, PENTIUM)
    world["n0"].program = load = LoadProgram(world, "n0", ReadyBlocks([pack_run(0, FIFO, [bytes(8)])]))
    world.start_all()
    world.run_until(SECOND)
    assert load.submitted == pytest.approx(SECOND / (96_000 + 5_000 / 16), rel=0.01)


def test_blocks_that_stand_for_twenty_come_at_a_twentieth_of_the_rate() -> None:
    rates = []
    for stands_for in (1, 20):
        world = flood_world(2, PENTIUM, stands_for=stands_for)
        world["n0"].program = load = LoadProgram(world, "n0", ReadyBlocks([pack_run(0, FIFO, [bytes(8)])]))
        world.start_all()
        world.run_until(4 * SECOND)
        rates.append(load.submitted)
    assert rates[0] / rates[1] == pytest.approx(20, rel=0.02)


def test_a_load_waits_for_room_and_goes_on_in_the_pass_that_makes_it() -> None:
    size = len(pack_run(0, FIFO, [b"12345678"]))
    gate = Gate(left=3 * size + 1)
    world, load = gated(gate)
    world.run_until(MS)
    assert load.submitted == 3
    assert not load.is_done()
    gate.left = 2 * size
    world.run_until(2 * MS)
    assert load.submitted == 3  # nothing has woken the node
    world.wake(world["a"])
    world.run_until(3 * MS)
    assert load.submitted == 5
    assert [head_of(block).first for block in gate.taken] == [0, 1, 2, 3, 4]


def test_messages_at_a_rate_wait_for_room_and_are_not_lost() -> None:
    gate = Gate(left=0)
    world, load = gated(gate, per_s=1_000)
    world.run_until(SECOND // 2)
    assert load.submitted == 0
    assert load.backlog == pytest.approx(500, abs=1)
    gate.left = 1 << 30
    world.run_until(SECOND)
    assert load.backlog == 0
    assert load.submitted == pytest.approx(1_000, abs=1)


@pytest.mark.parametrize("per_s", [None, 5_000])
def test_a_load_ends_with_its_limit(per_s: float | None) -> None:
    options = {"limit": 100.0} | ({"per_s": per_s} if per_s else {})
    world, load = gated(Gate(), **options)
    assert world.run_to_rest(SECOND) == []
    world.run_until(SECOND)
    assert load.submitted == 100
    assert not load.is_sending


def test_a_block_that_never_fits_is_a_mistake_of_the_caller() -> None:
    world, _ = gated(Gate(left=10, most=10))
    with pytest.raises(UsageError, match="larger than the engine's largest"):
        world.run_until(MS)


def test_a_restarted_node_goes_on_with_its_load() -> None:
    world = flood_world(2, LINK)
    world["n0"].program = load = LoadProgram(world, "n0", ReadyBlocks([pack_run(0, FIFO, [bytes(8)])]), per_s=1_000)
    world.start_all()
    world.at(SECOND, lambda _: world.crash("n0"))
    world.at(2 * SECOND, lambda _: world.start("n0"))
    world.run_until(3 * SECOND)
    assert load.submitted == pytest.approx(2_000, abs=4)


# Taking. -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag_ns", [0, 20 * MS])
def test_deliveries_are_consumed_at_once_or_late(lag_ns: int) -> None:
    world = BulkWorld(1, LINK)
    gates = {name: Gate() for name in "ab"}
    blocks = ReadyBlocks([pack_run(0, FIFO, [b"12345678"])])
    world.add("a", lambda _: gates["a"], program=LoadProgram(world, "a", blocks, per_s=1_000, limit=100))
    taker = LoadProgram(world, "b", lag_ns=lag_ns)
    seen: list[tuple[int, int]] = []
    taker.on_run = lambda now_ns, run: seen.extend((now_ns, each.seq) for each in run.deliveries)
    world.add("b", lambda _: gates["b"], program=taker)
    world.start_all()
    world.run_until(SECOND)
    assert taker.taken == taker.blocks == 100
    consumed = gates["b"].consumed
    assert [seq for _, seq in consumed] == sorted({seq for _, seq in consumed})
    taken_ns = {seq: now_ns for now_ns, seq in seen}
    waits = [now_ns - taken_ns[seq] for now_ns, seq in consumed]
    if lag_ns:
        assert consumed[-1][1] == 100
        assert min(waits) >= lag_ns
        assert max(waits) < lag_ns + 2 * MS
        assert len(consumed) == 6  # everything that came while it was busy is one piece of work
    else:
        assert consumed[-1][1] == 99  # the last one is told with the next pass
        assert max(waits) < 2 * MS


# Counters. -----------------------------------------------------------------------------------------------------------


def test_the_share_of_control_is_that_of_what_a_capture_sees() -> None:
    """QSM section 3.3: packets at the sender, sent and received."""
    tally = NodeTally()
    tally.sent[Kind.DATA], tally.sent[Kind.REGION_TOKEN] = 90, 2
    tally.received[Kind.REGION_ACK], tally.received[Kind.PUSH] = 3, 5
    tally.sent_bytes[Kind.DATA], tally.received_bytes[Kind.PUSH] = 900, 100
    assert tally.control_share() == pytest.approx(0.1)
    assert tally.control_share(is_of_bytes=True) == pytest.approx(0.1)
    assert (tally.sent_control, tally.received_control) == (2, 8)
    assert tally.by_detail() == {"data": 90, "token": 2, "ack": 3, "push": 5}
    assert NodeTally().control_share() == 0.0


def test_what_is_sent_is_what_is_received_lost_and_dropped() -> None:
    world = flood_world(20, PENTIUM)
    for name in world.nodes:
        world.lose(name, "test", 0.02)
    blocks = ReadyBlocks([pack_run(0, FIFO, [bytes(8)])])
    world["n0"].program = LoadProgram(world, "n0", blocks, limit=2_000)
    world.start_all()
    world.run_until(SECOND)
    assert world["n0"].tally.sent[Kind.DATA] == 2_000
    for name in list(world.nodes)[1:]:
        tally = world[name].tally
        assert tally.received[Kind.DATA] + tally.lost + tally.dropped + tally.cut == 2_000
        assert tally.received[Kind.DATA] == program_of(world, name).taken


def test_samples_give_rates_second_by_second() -> None:
    world = flood_world(2, LINK)
    world["n0"].program = load = LoadProgram(world, "n0", ReadyBlocks([pack_run(0, FIFO, [bytes(8)])]), per_s=500)
    samples = Samples(world, {"submitted": lambda: load.submitted, "nothing": lambda: 0})
    world.start_all()
    world.at(2 * SECOND, lambda _: world.pause("n0"))
    world.at(3 * SECOND, lambda _: world.resume("n0"))
    world.run_until(4 * SECOND)
    assert [at_ns for at_ns, _ in samples.rows] == [second * SECOND for second in range(5)]
    assert samples.rates("submitted") == pytest.approx([500, 500, 0, 1_000], abs=2)
    assert samples.rates("nothing") == [0, 0, 0, 0]
