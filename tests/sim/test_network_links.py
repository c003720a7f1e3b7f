"""What becomes of datagrams on their way: loss, reordering, cuts, partitions, bandwidth (docs/design/overview.md
section 8)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ordercast.sim.datagrams import Arrival, kind_of
from ordercast.sim.network import IDEAL, LAN, Network, NetworkModel
from ordercast.wire.header import HEADER, MAGIC, Kind


def network(seed: int = 7, model: NetworkModel = IDEAL) -> Network:
    return Network(model, random.Random(seed))


def datagrams(arrivals: list[Arrival]) -> int:
    return sum(arrival.batch.datagrams for arrival in arrivals)


def test_a_datagram_arrives_after_the_latency_of_its_link() -> None:
    net = network()
    net.set_link("a", "b", latency_ns=700)
    assert net.transmit(1_000, "a", ["b"], b"x", 0)[0].at_ns == 1_700
    assert net.transmit(1_000, "b", ["a"], b"x", 0)[0].at_ns == 1_000 + IDEAL.latency_ns


def test_a_multicast_is_one_transmission_that_each_receiver_may_lose_on_its_own() -> None:
    net = network(model=replace(IDEAL, loss=0.3))
    got = {"b": 0, "c": 0}
    for _ in range(1_000):
        for arrival in net.transmit(0, "a", ["b", "c"], b"x", 0):
            got[arrival.target] += 1
    assert net.counters.sent == 1_000
    assert got["b"] + got["c"] + net.counters.lost == 2_000
    assert got == {"b": 672, "c": 680}  # exact under seed 7


@pytest.mark.parametrize(("loss", "lost"), [(0.05, 506), (0.3, 3_020)])
def test_loss_is_drawn_for_each_datagram_of_a_train(loss: float, lost: int) -> None:
    net = network(model=replace(IDEAL, loss=loss))
    arrived = sum(datagrams(net.transmit(0, "a", ["b"], bytes(1_000), 100)) for _ in range(1_000))
    assert net.counters.lost == 10_000 - arrived
    assert abs(net.counters.lost - 10_000 * loss) < 150
    assert net.counters.lost == lost  # exact under seed 7


def test_what_is_left_of_a_train_arrives_in_batches_with_the_right_bytes() -> None:
    train = b"".join(bytes([index]) * 100 for index in range(10)) + b"tail"
    net = network(3, replace(IDEAL, loss=0.3))
    arrivals = net.transmit(0, "a", ["b"], train, 100)
    pieces: list[bytes] = []
    for _, _, batch in arrivals:
        stride = batch.stride or len(batch.data)
        parts = [batch.data[at : at + stride] for at in range(0, len(batch.data), stride)]
        assert len(parts) == batch.datagrams
        pieces += parts
    whole = [train[at : at + 100] for at in range(0, len(train), 100)]
    assert len(pieces) == 11 - net.counters.lost
    assert pieces == [piece for piece in whole if piece in pieces]


def test_under_a_spread_each_datagram_has_a_delay_of_its_own_and_may_overtake() -> None:
    net = network(model=replace(IDEAL, spread_ns=1_000_000))
    delays = [net.transmit(0, "a", ["b"], b"x", 0)[0].at_ns - IDEAL.latency_ns for _ in range(2_000)]
    assert sum(delays) / len(delays) == pytest.approx(1_000_000, rel=0.05)
    assert sum(delay > 3_000_000 for delay in delays) == pytest.approx(2_000 * 0.0498, rel=0.2)  # e to the power of -3
    assert delays != sorted(delays)


def test_jitter_alone_never_reorders() -> None:
    net = network(model=replace(IDEAL, jitter_ns=1_000_000))
    times = [net.transmit(at, "a", ["b"], b"x", 0)[0].at_ns for at in range(0, 100_000, 100)]
    assert times == sorted(times)


def test_a_reordered_datagram_is_overtaken() -> None:
    net = network(model=replace(IDEAL, reorder=0.2))
    times = [net.transmit(at, "a", ["b"], b"x", 0)[0].at_ns for at in range(0, 100_000, 100)]
    assert times != sorted(times)
    assert net.counters.reordered == 215  # exact under seed 7


def test_a_duplicate_comes_later_than_the_first_copy() -> None:
    net = network(model=replace(IDEAL, duplicate=1.0))
    late, first = net.transmit(0, "a", ["b"], b"x", 0)
    assert late.batch == first.batch
    assert late.at_ns > first.at_ns


def test_a_cut_is_one_way() -> None:
    net = network()
    net.cut("a", "b")
    assert not net.transmit(0, "a", ["b"], b"x", 0)
    assert net.transmit(0, "b", ["a"], b"x", 0)
    assert net.counters.cut == 1
    net.mend("a", "b")
    assert net.transmit(0, "a", ["b"], b"x", 0)


def test_a_partition_cuts_both_ways_and_heals() -> None:
    net = network()
    net.partition([["a", "b"]])
    reached = {(x, y) for x in "abcd" for y in "abcd" if x != y and net.transmit(0, x, [y], b"x", 0)}
    assert reached == {("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")}
    net.heal()
    assert all(net.reaches(x, y) for x in "abcd" for y in "abcd")


def test_a_shared_segment_carries_a_multicast_once_and_everything_in_turn() -> None:
    # 100 + 25 bytes at 1 Mb/s: exactly one millisecond for each datagram.
    model = NetworkModel("toy", bits_per_s=1_000_000, frame_overhead=25, is_shared=True)
    net = network(model=model)
    assert [arrival.at_ns for arrival in net.transmit(0, "a", ["b", "c"], bytes(100), 0)] == [1_000_000, 1_000_000]
    assert net.transmit(0, "b", ["a"], bytes(100), 0)[0].at_ns == 2_000_000
    assert net.transmit(5_000_000, "c", ["a"], bytes(100), 0)[0].at_ns == 6_000_000


def test_each_datagram_of_a_train_pays_for_its_own_frame() -> None:
    model = NetworkModel("toy", bits_per_s=1_000_000, frame_overhead=25, is_shared=True)
    arrivals = network(model=model).transmit(0, "a", ["b"], bytes(300), 100)
    assert [(arrival.at_ns, arrival.batch.datagrams) for arrival in arrivals] == [
        (1_000_000, 1),
        (2_000_000, 1),
        (3_000_000, 1),
    ]


def test_a_large_datagram_takes_several_frames() -> None:
    model = NetworkModel("toy", bits_per_s=8_000_000_000, frame_payload=1_000, frame_overhead=50)
    assert model.wire_ns(1_000) == 1_050
    assert model.wire_ns(1_001) == 1_101
    assert model.wire_ns(0) == 50


def test_switched_ports_work_side_by_side_but_a_receiver_is_a_bottleneck() -> None:
    model = NetworkModel("toy", bits_per_s=1_000_000, frame_overhead=25, is_shared=False)
    net = network(model=model)
    assert net.transmit(0, "a", ["b"], bytes(100), 0)[0].at_ns == 1_000_000
    assert net.transmit(0, "c", ["d"], bytes(100), 0)[0].at_ns == 1_000_000
    assert net.transmit(0, "e", ["b"], bytes(100), 0)[0].at_ns == 2_000_000


def test_a_fast_medium_keeps_trains_together() -> None:
    arrivals = network(model=replace(LAN, jitter_ns=0)).transmit(0, "a", ["b"], bytes(14_000), 1_400)
    assert [arrival.batch.datagrams for arrival in arrivals] == [10]


def test_datagrams_are_counted_by_the_kind_in_their_header() -> None:
    net = network()
    data = HEADER.pack(MAGIC, Kind.ACCEPT, 0, 0, 1, 2, 3, 4)
    net.transmit(0, "a", ["b", "c"], data, 0)
    net.transmit(0, "a", ["b"], b"noise", 0)
    assert net.counters.sent_by_kind == {"accept": 1, "unknown": 1}
    assert kind_of(b"") == "unknown"
