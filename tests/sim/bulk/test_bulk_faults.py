"""Faults by a schedule, hiccups, and that one seed has one result."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from ordercast.config import MS, SECOND
from ordercast.errors import UsageError
from ordercast.service import FIFO
from ordercast.sim.bulk import BulkFaults, BulkNode, BulkWorld, Hiccups, HiccupSchedule, LoadProgram, ReadyBlocks
from ordercast.sim.bulk.flood import FloodEngine
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.network import PENTIUM, NetworkModel
from ordercast.view import Address
from ordercast.wire.block import pack_run
from ordercast.wire.header import Kind

REGIONS: tuple[Address, ...] = (("239.1.0.1", 7_000), ("239.1.0.2", 7_000), ("239.1.0.3", 7_000))
LINK = NetworkModel("link", latency_ns=10_000, receive_ns=1_000, send_ns=1_000)


def flooded(nodes: int, seed: int | str, model: NetworkModel, per_s: float, *, senders: int = 1) -> BulkWorld:
    """The first nodes send, and all listen to all addresses."""
    hears = frozenset(REGIONS)

    def boot(node: BulkNode) -> FloodEngine:
        return FloodEngine(node.index, hears, REGIONS[node.index % len(REGIONS)])

    world = BulkWorld(seed, model)
    for index in range(nodes):
        name = f"n{index}"
        blocks = ReadyBlocks([pack_run(0, FIFO, [bytes(8)])]) if index < senders else None
        world.add(name, boot, program=LoadProgram(world, name, blocks, per_s=per_s), buffer_bytes=1 << 16)
    world.start_all()
    return world


def received(world: BulkWorld, name: str) -> int:
    return world[name].tally.received[Kind.DATA]


# Faults. -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "missing"),
    [
        (Fault(SECOND, FaultKind.CRASH, ("n1",)), 2_000),
        (Fault(SECOND, FaultKind.CUT, ("n0",), ("n1", "n2"), for_ns=SECOND // 2), 500),
        (Fault(SECOND, FaultKind.CUT, ("n1",), ("n0",), for_ns=SECOND // 2), 0),
        (Fault(SECOND, FaultKind.PARTITION, ("n1", "n3"), for_ns=SECOND), 1_000),
        (Fault(SECOND, FaultKind.LOSSY, ("n1",), value=1.0, for_ns=SECOND // 4), 250),
        (Fault(SECOND, FaultKind.STALL, ("n1",), for_ns=SECOND // 4), 0),
        (Fault(SECOND, FaultKind.SLOW, ("n1",), value=2.0, for_ns=SECOND // 4), 0),
    ],
)
def test_a_fault_befalls_whom_it_names_for_as_long_as_it_says(fault: Fault, missing: int) -> None:
    world = flooded(4, 1, LINK, 1_000)
    BulkFaults(world, [fault])
    world.run_until(3 * SECOND)
    sent = world["n0"].tally.sent[Kind.DATA]
    assert sent == pytest.approx(3_000, abs=1)
    assert sent - received(world, "n1") == pytest.approx(missing, abs=2)


def test_a_pause_fills_the_socket_buffer() -> None:
    world = flooded(2, 1, LINK, 1_000)
    BulkFaults(world, [Fault(SECOND, FaultKind.PAUSE, ("n1",), for_ns=SECOND)])
    world.run_until(3 * SECOND)
    fits = (1 << 16) // (32 + 24 + 12 + 4 + 8 + 1_024)
    assert world["n1"].tally.dropped == pytest.approx(1_000 - fits, abs=1)


def test_a_crashed_node_that_is_restarted_gets_what_comes_then() -> None:
    world = flooded(2, 1, LINK, 1_000)
    faults = [Fault(2 * SECOND, FaultKind.RESTART, ("n1",)), Fault(SECOND, FaultKind.CRASH, ("n1",))]
    BulkFaults(world, faults)
    world.run_until(3 * SECOND)
    assert received(world, "n1") == pytest.approx(2_000, abs=2)
    assert world["n1"].life == 1


def test_a_stalled_program_consumes_nothing_until_it_is_let_go() -> None:
    world = flooded(2, 1, LINK, 1_000)
    BulkFaults(world, [Fault(0, FaultKind.STALL, ("n1",), for_ns=SECOND)])
    world.run_until(SECOND - 1)
    program = world["n1"].program
    assert isinstance(program, LoadProgram)
    assert program.is_stalled
    world.run_until(2 * SECOND)
    assert not program.is_stalled


def test_faults_that_are_not_of_machines_and_links_are_refused() -> None:
    with pytest.raises(UsageError, match="no fault 'forge'"):
        BulkFaults(BulkWorld(1), [Fault(0, FaultKind.FORGE, ("a",))])


# Hiccups. ------------------------------------------------------------------------------------------------------------


def test_two_of_a_hundred_seconds_have_a_hiccup_with_a_uniform_share() -> None:
    world = BulkWorld("hiccups")
    for index in range(100):
        world.add(f"n{index}", lambda node: FloodEngine(node.index, frozenset(), REGIONS[0]))
    schedule = HiccupSchedule(world, Hiccups(0.02))
    world.run_until(1_001 * SECOND - 1)
    shares = [share for had in schedule.shares.values() for _, share in had]
    count = 100 * 1_000  # seconds 1 to 1,000
    assert abs(len(shares) - count * 0.02) < 4 * (count * 0.02 * 0.98) ** 0.5
    tenths = [sum(int(share * 10) == tenth for share in shares) for tenth in range(10)]
    expected = len(shares) / 10
    assert sum((each - expected) ** 2 / expected for each in tenths) < 27.88  # exceeded once in 1,000 cases
    for had in schedule.shares.values():
        seconds = [second for second, _ in had]
        assert seconds == sorted(set(seconds))


def test_a_node_that_has_nothing_but_hiccups_has_one_in_every_second() -> None:
    world = flooded(2, 1, LINK, 100)
    schedule = HiccupSchedule(world, Hiccups(1.0), ["n1"])
    world.run_until(20 * SECOND)
    assert [second for second, _ in schedule.shares["n1"]] == list(range(1, 21))


def test_in_a_hiccup_a_node_loses_its_share_and_before_and_after_nothing() -> None:
    world = flooded(10, 3, LINK, 1_000)
    schedule = HiccupSchedule(world, Hiccups(0.2), [f"n{index}" for index in range(1, 10)])
    hiccups = 0
    before = dict.fromkeys(world.nodes, 0)
    for second in range(25):
        world.run_until((second + 1) * SECOND - 1)
        for name, had in schedule.shares.items():
            lost = world[name].tally.lost - before[name]
            before[name] += lost
            if had and had[-1][0] == second:
                hiccups += 1
                share = had[-1][1]
                assert abs(lost - 1_000 * share) <= 4 * (1_000 * share * (1 - share)) ** 0.5 + 1
            else:
                assert lost == 0
    assert hiccups > 25


def test_a_pausing_hiccup_stands_still_for_its_share_of_the_second() -> None:
    world = flooded(3, 4, LINK, 1_000)
    schedule = HiccupSchedule(world, Hiccups(0.2, loses=False, pauses=True), ["n1"])
    world.run_until(30 * SECOND - 1)
    fits = (1 << 16) // (80 + 1_024)
    expected = sum(max(0.0, share * 1_000 - fits) for _, share in schedule.shares["n1"])
    assert len(schedule.shares["n1"]) > 2
    assert world["n1"].tally.dropped == pytest.approx(expected, abs=len(schedule.shares["n1"]))
    assert world["n1"].tally.lost == world["n2"].tally.dropped == 0


def test_hiccups_end_with_those_that_have_begun() -> None:
    world = flooded(2, 1, LINK, 1_000)
    schedule = HiccupSchedule(world, Hiccups(1.0), ["n1"])
    world.run_until(5 * SECOND)
    schedule.end()
    world.run_until(6 * SECOND)
    lost = world["n1"].tally.lost
    world.run_until(20 * SECOND)
    assert [second for second, _ in schedule.shares["n1"]] == [1, 2, 3, 4, 5]
    assert world["n1"].tally.lost == lost > 0


def test_a_chance_of_hiccups_beyond_one_is_refused_and_none_is_none() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        Hiccups(1.5)
    world = flooded(2, 1, LINK, 100)
    schedule = HiccupSchedule(world, Hiccups(0.0))
    world.run_until(5 * SECOND)
    assert schedule.shares == {"n0": [], "n1": []}


# Determinism. --------------------------------------------------------------------------------------------------------


def digest(seed: int) -> str:
    """Everything that a run of many senders with losses, hiccups, cuts and crashes counts."""
    world = flooded(12, seed, PENTIUM, 150, senders=6)
    for name in world.nodes:
        world.lose(name, "test", 0.01)
    HiccupSchedule(world, Hiccups(0.3, pauses=True))
    faults = [
        Fault(SECOND, FaultKind.CRASH, ("n3",)),
        Fault(2 * SECOND, FaultKind.RESTART, ("n3",)),
        Fault(SECOND, FaultKind.CUT, ("n0", "n1"), ("n5", "n6"), for_ns=SECOND),
        Fault(2_500 * MS, FaultKind.PARTITION, ("n2", "n4", "n7"), for_ns=300 * MS),
    ]
    BulkFaults(world, faults)
    world.run_until(4 * SECOND)
    rows = [
        (each.sent, each.sent_bytes, each.received, each.received_bytes, each.lost, each.cut, each.dropped)
        for each in (node.tally for node in world.nodes.values())
    ]
    text = repr((rows, world.events, world.passes, world.receptions))
    return hashlib.sha256(text.encode()).hexdigest()


def test_one_seed_has_one_result_and_another_seed_another() -> None:
    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_the_result_does_not_depend_on_the_order_of_sets(hash_seed: str) -> None:
    code = "from tests.sim.bulk.test_bulk_faults import digest; print(digest(1))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=os.getcwd()
    )
    assert found.stdout.strip() == digest(1)
