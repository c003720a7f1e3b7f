"""Pipes between sites in virtual time: bandwidth, queues, latency, chance, cuts, and what is counted
(docs/design/simulator.md)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.sim.datagrams import COALESCE_NS, Arrival, Train
from ordercast.sim.network import IDEAL, LAN, Network, NetworkModel
from ordercast.sim.pipes import FRAME_OVERHEAD, Carried, Pipe, PipeModel, Pipes
from ordercast.wire.header import HEADER, MAGIC, Kind

PLACES = {"a": "east", "b": "east", "c": "west", "d": "north"}
SITES = ("east", "west", "north")
SLOW = PipeModel(latency_ns=30 * MS, bits_per_s=1_000_000, queue_bytes=4_000)
"""97 bytes and 28 more are exactly one millisecond on this line."""
SIZE = 97


def pipe(model: PipeModel = SLOW, seed: int = 7) -> Pipe:
    return Pipe(model, random.Random(seed))


def train(count: int = 1, size: int = SIZE, source: str = "a") -> Train:
    return Train(source, bytes(count * size), size if count > 1 else 0, count)


def pipes(model: PipeModel = SLOW) -> Pipes:
    models = {(one, other): model for one in SITES for other in SITES if one != other}
    return Pipes(PLACES, models, lambda purpose: random.Random(f"7/{purpose}"))


def network(model: PipeModel = SLOW, medium: NetworkModel = IDEAL) -> Network:
    return Network(medium, random.Random(7), pipes(model))


def served(net: Network, until_ns: int = NEVER) -> list[Arrival]:
    """Everything that the network still has to do, as a world would have it done."""
    arrivals: list[Arrival] = []
    while net.next_ns() < until_ns:
        arrivals += net.serve(net.next_ns())
    return arrivals


# Bandwidth, queue and latency. ---------------------------------------------------------------------------------------


def test_a_datagram_leaves_at_the_bandwidth_and_arrives_after_the_latency() -> None:
    assert pipe().carry(5 * MS, "c", train(), "data") == [Carried(5 * MS + 1 * MS + 30 * MS, "c", train(), False)]


def test_datagrams_wait_behind_those_that_came_before() -> None:
    line = pipe()
    times = [line.carry(at, "c", train(), "data")[0].at_ns for at in (0, 0, 500_000, 10 * MS)]
    assert times == [31 * MS, 32 * MS, 33 * MS, 41 * MS]


def test_a_large_datagram_has_an_overhead_for_each_frame() -> None:
    assert SLOW.line_bytes(1_472) == 1_472 + FRAME_OVERHEAD
    assert SLOW.line_bytes(1_473) == 1_473 + 2 * FRAME_OVERHEAD
    assert SLOW.line_bytes(0) == FRAME_OVERHEAD
    assert SLOW.line_ns(SIZE) == 1 * MS


def test_a_pipe_without_a_bandwidth_takes_no_time_and_drops_nothing() -> None:
    line = pipe(PipeModel(latency_ns=1_000, queue_bytes=1))
    assert line.carry(0, "c", train(50), "data") == [Carried(1_000, "c", train(50), False)]
    assert line.counters.queue_drops == 0


def test_a_full_queue_drops_the_last_that_came() -> None:
    line = pipe(replace(SLOW, queue_bytes=1_000))  # eight datagrams of 125 bytes
    arrived = line.carry(0, "c", train(11), "data")
    assert [each.at_ns for each in arrived] == [(31 + index) * MS for index in range(8)]
    counters = line.counters
    assert (counters.datagrams, counters.queue_drops, counters.queue_drop_bytes) == (8, 3, 3 * SIZE)
    assert counters.peak_queue_bytes == 1_000
    assert counters.drops_by_kind == {"data": 3}


def test_the_queue_empties_at_the_bandwidth() -> None:
    line = pipe(replace(SLOW, queue_bytes=1_000))
    line.carry(0, "c", train(8), "data")
    assert [line.queued_bytes(at) for at in (0, 999_999, MS, 3 * MS + 1, 8 * MS)] == [1_000, 1_000, 875, 625, 0]
    line.carry(8 * MS, "c", train(8), "data")
    assert not line.carry(9 * MS - 1, "c", train(), "data")
    assert line.carry(9 * MS, "c", train(), "data")[0].at_ns == (8 + 9 + 30) * MS


def test_an_empty_pipe_takes_a_datagram_that_is_larger_than_its_queue() -> None:
    line = pipe(replace(SLOW, queue_bytes=100))
    assert line.carry(0, "c", train(size=1_000), "data")
    assert not line.carry(0, "c", train(size=1), "data")


def test_what_comes_close_together_is_read_in_one_call() -> None:
    fast = pipe(PipeModel(latency_ns=MS, bits_per_s=100_000_000))  # ten microseconds each
    arrived = fast.carry(0, "c", train(50), "data")
    assert [each.batch.datagrams for each in arrived] == [21, 21, 8]
    assert [each.at_ns for each in arrived] == [MS + 210_000, MS + 420_000, MS + 500_000]
    assert all(each.batch.datagrams * 10_000 <= COALESCE_NS + 10_000 for each in arrived)


def test_pieces_of_a_train_have_the_right_bytes() -> None:
    data = b"".join(bytes([index]) * 100 for index in range(9)) + b"tail"
    line = pipe(PipeModel(latency_ns=MS, loss=0.4))
    pieces: list[bytes] = []
    for each in line.carry(0, "c", Train("a", data, 100, 10), "data"):
        stride = each.batch.stride or len(each.batch.data)
        parts = [each.batch.data[at : at + stride] for at in range(0, len(each.batch.data), stride)]
        assert len(parts) == each.batch.datagrams
        pieces += parts
    whole = [data[at : at + 100] for at in range(0, len(data), 100)]
    assert 0 < len(pieces) == 10 - line.counters.lost
    assert pieces == [piece for piece in whole if piece in pieces]


# Chance. -------------------------------------------------------------------------------------------------------------


def test_what_is_lost_on_the_line_has_used_the_bandwidth() -> None:
    line = pipe(replace(SLOW, loss=0.3, queue_bytes=0))
    arrived = sum(each.batch.datagrams for _ in range(1_000) for each in line.carry(0, "c", train(), "data"))
    assert (line.counters.datagrams, line.counters.lost) == (1_000, 1_000 - arrived)
    assert line.counters.lost == 336  # exact under seed 7
    assert line.queued_bytes(0) == 125_000


def test_jitter_alone_never_reorders() -> None:
    line = pipe(PipeModel(latency_ns=MS, jitter_ns=MS))
    times = [line.carry(at, "c", train(), "data")[0].at_ns for at in range(0, 100_000, 100)]
    assert times == sorted(times)
    assert MS <= times[0] < 2 * MS


def test_a_reordered_datagram_is_overtaken_and_a_copy_comes_later() -> None:
    late = pipe(PipeModel(latency_ns=MS, reorder=0.2))
    times = [late.carry(at, "c", train(), "data")[0].at_ns for at in range(0, 100_000, 100)]
    assert times != sorted(times)
    assert late.counters.reordered == 215  # exact under seed 7
    first, copy = pipe(PipeModel(latency_ns=MS, duplicate=1.0)).carry(0, "c", train(), "data")
    assert first == Carried(MS, "c", train(), False)
    assert copy.is_late
    assert copy.at_ns > first.at_ns


def test_each_pipe_has_a_chance_of_its_own() -> None:
    def lost(before: int) -> int:
        """Of a thousand datagrams to the north, after so many to the west."""
        net = network(PipeModel(loss=0.3))
        for index in range(before):
            net.transmit(index, "a", ["c"], b"x", 0)
        for index in range(1_000):
            net.transmit(index, "b", ["d"], b"x", 0)
        served(net)
        return net.pipes.between("east", "north").counters.lost if net.pipes is not None else -1

    assert lost(0) == lost(17) > 0


# Cuts. ---------------------------------------------------------------------------------------------------------------


def test_a_cut_of_a_pipe_is_one_way_and_counted() -> None:
    net = network()
    assert net.pipes is not None
    net.pipes.cut("east", "west")
    net.transmit(0, "a", ["c"], bytes(3), 0)
    net.transmit(0, "c", ["a"], bytes(3), 0)
    net.transmit(0, "a", ["d"], bytes(3), 0)
    assert [arrival.target for arrival in served(net)] == ["a", "d"]
    assert net.pipes.between("east", "west").counters.cut == 1
    assert not net.reaches("a", "c")
    assert net.reaches("c", "a")
    net.pipes.mend("east", "west")
    net.transmit(0, "a", ["c"], bytes(3), 0)
    assert [arrival.target for arrival in served(net)] == ["c"]


def test_a_cut_holds_for_what_comes_to_the_pipe_and_not_for_what_is_in_it() -> None:
    net = network()
    assert net.pipes is not None
    net.transmit(0, "a", ["c"], bytes(SIZE), 0)
    net.transmit(2 * MS, "a", ["c"], bytes(SIZE), 0)
    inside = served(net, 1 * MS)
    net.pipes.cut("east", "west")
    assert len(inside) == 1
    assert served(net) == []


def test_a_partition_of_sites_heals_one_direction_at_a_time() -> None:
    lines = pipes()
    lines.partition([["east"]])
    assert {each for each, line in lines.all.items() if line.is_cut} == {
        ("east", "west"),
        ("east", "north"),
        ("west", "east"),
        ("north", "east"),
    }
    order = [("north", "east"), ("east", "west"), ("west", "east"), ("east", "north")]
    for count, direction in enumerate(order, start=1):
        lines.mend(*direction)
        assert sum(line.is_cut for line in lines.all.values()) == 4 - count
    lines.partition([["east", "north"], ["west"]])
    lines.heal()
    assert not any(line.is_cut for line in lines.all.values())


def test_a_split_inside_a_site_leaves_its_pipes_alone() -> None:
    net = network()
    net.split([["a"], ["b"]])
    assert not net.transmit(0, "a", ["b"], b"x", 0)
    assert not net.transmit(0, "b", ["a"], b"x", 0)
    net.transmit(0, "a", ["c"], b"x", 0)
    net.transmit(0, "b", ["d"], b"x", 0)
    assert sorted(arrival.target for arrival in served(net)) == ["c", "d"]
    net.mend("a", "b")
    assert net.transmit(0, "a", ["b"], b"x", 0)
    assert not net.transmit(0, "b", ["a"], b"x", 0)
    net.unsplit([["a"], ["b"]])
    assert net.transmit(0, "b", ["a"], b"x", 0)


def test_cuts_and_partitions_of_nodes_hold_between_sites_as_well() -> None:
    net = network()
    net.cut("a", "c")
    net.partition([["a", "b", "c"]])
    for source, target in (("a", "c"), ("b", "c"), ("b", "d")):
        net.transmit(0, source, [target], b"x", 0)
    assert [(arrival.batch.source, arrival.target) for arrival in served(net)] == [("b", "c")]
    assert net.counters.cut == 2
    net.heal()
    assert net.reaches("a", "c")


def test_healing_the_network_mends_the_pipes() -> None:
    net = network()
    assert net.pipes is not None
    net.pipes.partition([["west"]])
    net.heal()
    assert net.reaches("a", "c")


def test_a_pipe_can_be_changed_and_has_its_properties_back() -> None:
    net = network()
    lines = net.pipes
    assert lines is not None
    lines.change("east", "west", bits_per_s=500_000, loss=1.0)
    lines.change("west", "east", latency_ns=0)
    assert lines.between("east", "west").model == replace(SLOW, bits_per_s=500_000, loss=1.0)
    lines.reset("east", "west")
    assert lines.between("east", "west").model == SLOW
    assert lines.between("west", "east").model.latency_ns == 0
    net.reset_links()
    assert lines.between("west", "east").model == SLOW
    lines.change("east", "west", loss=0.5, duplicate=0.5, reorder=0.5)
    net.end_losses()
    assert lines.between("east", "west").model == SLOW


def test_the_word_of_a_kernel_goes_through_the_pipe() -> None:
    net = network()
    assert net.pipes is not None
    rng = random.Random(1)
    assert net.report_ns(0, "a", "c", rng) == 30 * MS + IDEAL.latency_ns
    assert net.report_ns(0, "a", "b", rng) == IDEAL.latency_ns
    net.pipes.cut("east", "west")
    assert net.report_ns(0, "a", "c", rng) == -1
    net.pipes.change("west", "east", loss=1.0)
    assert net.report_ns(0, "c", "a", rng) == -1


# In a network. -------------------------------------------------------------------------------------------------------


def test_daemons_of_a_site_share_its_pipe() -> None:
    net = network()
    net.transmit(0, "a", ["c"], bytes(SIZE), 0)
    net.transmit(0, "b", ["c"], bytes(SIZE), 0)
    net.transmit(0, "b", ["d"], bytes(SIZE), 0)
    there = IDEAL.latency_ns
    times = {(arrival.batch.source, arrival.target): arrival.at_ns for arrival in served(net)}
    assert times == {("a", "c"): 31 * MS + there, ("b", "c"): 32 * MS + there, ("b", "d"): 31 * MS + there}


def test_datagrams_come_to_a_pipe_in_the_order_of_their_time_and_not_of_the_calls() -> None:
    net = network()
    net.transmit(5 * MS, "a", ["c"], bytes(SIZE), 0)
    net.transmit(1 * MS, "b", ["c"], bytes(SIZE), 0)
    times = {arrival.batch.source: arrival.at_ns for arrival in served(net)}
    assert times == {"b": 32 * MS + IDEAL.latency_ns, "a": 36 * MS + IDEAL.latency_ns}


def test_a_datagram_to_another_site_crosses_the_medium_of_its_sender_first() -> None:
    medium = replace(LAN, jitter_ns=0)
    net = network(medium=medium)
    net.transmit(0, "a", ["c"], bytes(SIZE), 0)
    (arrival,) = served(net)
    assert arrival.at_ns == medium.wire_ns(SIZE) + 31 * MS + medium.latency_ns


def test_each_site_has_a_segment_of_its_own() -> None:
    toy = NetworkModel("toy", bits_per_s=1_000_000, frame_overhead=28, is_shared=True)
    net = network(medium=toy)
    assert net.transmit(0, "a", ["b"], bytes(SIZE), 0)[0].at_ns == 1 * MS
    net.transmit(0, "c", ["d"], bytes(SIZE), 0)
    assert net.transmit(0, "b", ["a"], bytes(SIZE), 0)[0].at_ns == 2 * MS
    assert served(net)[0].at_ns == (1 + 1 + 30) * MS


def test_nodes_take_turns_on_the_segment_of_their_site_only() -> None:
    toy = NetworkModel("toy", bits_per_s=1_000_000, frame_overhead=28, is_shared=True, takes_turns=True)
    net = network(medium=toy)
    for source, target in (("a", "b"), ("b", "a"), ("c", "a"), ("d", "a")):
        assert net.transmit(0, source, [target], bytes(SIZE), 0) == []
    times = {(arrival.batch.source, arrival.target): arrival.at_ns for arrival in served(net)}
    assert times == {("a", "b"): MS, ("b", "a"): 2 * MS, ("c", "a"): 32 * MS, ("d", "a"): 32 * MS}


def test_the_link_to_the_receiver_may_lose_what_came_out_of_a_pipe() -> None:
    net = network()
    net.set_link("a", "c", loss=1.0)
    net.transmit(0, "a", ["c"], b"x", 0)
    net.transmit(0, "b", ["c"], b"x", 0)
    assert [arrival.batch.source for arrival in served(net)] == ["b"]


def test_a_copy_from_a_pipe_does_not_hold_up_what_comes_behind_it() -> None:
    net = network(PipeModel(latency_ns=MS, duplicate=1.0))
    net.transmit(0, "a", ["c"], b"x", 0)
    net.transmit(1_000, "a", ["c"], b"y", 0)
    arrivals = served(net)
    assert next(arrival.at_ns for arrival in arrivals if arrival.batch.data == b"y") == MS + 1_000 + IDEAL.latency_ns
    assert len(arrivals) == 4


def test_a_network_without_sites_serves_nothing() -> None:
    net = Network(IDEAL, random.Random(7))
    assert not net.is_served
    assert net.next_ns() == NEVER
    assert net.serve(0) == []
    assert network().is_served


# Counting. -----------------------------------------------------------------------------------------------------------


def test_a_pipe_counts_by_kind() -> None:
    def datagram(kind: Kind, size: int) -> bytes:
        return HEADER.pack(MAGIC, kind, 0, 0, 1, 2, 3, 4) + bytes(size)

    net = network()
    assert net.pipes is not None
    for data in (datagram(Kind.DATA, 10), datagram(Kind.DATA, 20), datagram(Kind.NAK, 0), b"?"):
        net.transmit(0, "a", ["c"], data, 0)
    net.transmit(0, "a", ["b"], datagram(Kind.TOKEN, 0), 0)
    served(net)
    counters = net.pipes.between("east", "west").counters
    head = HEADER.size
    assert counters.by_kind == {"data": 2, "nak": 1, "unknown": 1}
    assert counters.bytes_by_kind == {"data": 30 + 2 * head, "nak": head, "unknown": 1}
    assert (counters.datagrams, counters.bytes) == (4, 31 + 3 * head)
    assert net.pipes.between("west", "east").counters.datagrams == 0
    assert counters.as_json()["by_kind"] == {"data": 2, "nak": 1, "unknown": 1}


def test_each_datagram_of_a_train_is_counted_by_its_own_kind() -> None:
    """A link sends a SKIP and an UPDATE in one train."""
    datagrams = [
        HEADER.pack(MAGIC, kind, 0, 0, 1, 2, 3, 4) + bytes(8) for kind in (Kind.SKIP, Kind.UPDATE, Kind.PACKET)
    ]
    net = network()
    assert net.pipes is not None
    net.transmit(0, "a", ["c"], b"".join(datagrams), len(datagrams[0]))
    served(net)
    counters = net.pipes.between("east", "west").counters
    assert counters.by_kind == {"skip": 1, "update": 1, "packet": 1}
    assert set(counters.bytes_by_kind.values()) == {len(datagrams[0])}


def test_what_a_datagram_is_counted_as_can_be_said() -> None:
    lines = Pipes(PLACES, {("east", "west"): SLOW}, lambda _: random.Random(1), lambda data: data[:3].decode())
    lines.enter(0, "c", Train("a", b"hop.data", 0, 1))
    lines.serve(0)
    assert lines.between("east", "west").counters.by_kind == {"hop": 1}


# Mistakes. -----------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_named() -> None:
    lines = pipes()
    with pytest.raises(UsageError, match="there is no site 'south'; the sites are east, west, north"):
        lines.cut("east", "south")
    with pytest.raises(UsageError, match="there is no pipe from east to east"):
        lines.cut("east", "east")
    with pytest.raises(UsageError, match="node 'x' is in no site"):
        lines.site_of("x")
    with pytest.raises(UsageError, match="there is no site 'south'"):
        lines.nodes_of("south")
    with pytest.raises(UsageError, match="there is no site 'south'"):
        lines.partition([["south"]])
    assert lines.nodes_of("east") == ("a", "b")


@pytest.mark.parametrize("change", [{"latency_ns": -1}, {"bits_per_s": -1}, {"loss": 1.5}, {"duplicate": -0.1}])
def test_a_pipe_cannot_be_anything(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        replace(SLOW, **change)  # type: ignore[arg-type]


# What always holds. --------------------------------------------------------------------------------------------------

_TRAINS = st.lists(
    st.tuples(st.integers(0, 20 * MS), st.integers(1, 6), st.integers(1, 3_000)), min_size=1, max_size=30
)
_MODELS = st.builds(
    PipeModel,
    latency_ns=st.sampled_from([0, MS]),
    jitter_ns=st.sampled_from([0, MS]),
    bits_per_s=st.sampled_from([0, 1_000_000, 50_000_000]),
    queue_bytes=st.sampled_from([0, 1_000, 10_000]),
    loss=st.sampled_from([0.0, 0.3]),
    duplicate=st.sampled_from([0.0, 0.3]),
    reorder=st.sampled_from([0.0, 0.3]),
)


@given(_MODELS, _TRAINS)
def test_every_datagram_is_accounted_for_and_none_is_faster_than_the_pipe(
    model: PipeModel, trains: list[tuple[int, int, int]]
) -> None:
    """What comes is carried, dropped or lost; what arrives in order keeps it; no more passes than the bandwidth allows,
    and no more waits than the queue holds."""
    line = pipe(model)
    came = arrived = 0
    in_order: list[int] = []
    largest = 0
    for at_ns, count, size in sorted(trains):
        came += count
        largest = max(largest, model.line_bytes(size))
        for each in line.carry(at_ns, "c", train(count, size), "data"):
            arrived += each.batch.datagrams
            assert each.at_ns >= at_ns + model.line_ns(size) + model.latency_ns
            if not each.is_late:
                in_order.append(each.at_ns)
        if model.queue_bytes:
            assert line.queued_bytes(at_ns) <= max(model.queue_bytes, largest)
    counters = line.counters
    assert came == counters.datagrams + counters.queue_drops
    assert arrived == counters.datagrams - counters.lost + counters.duplicated
    assert counters.by_kind.total() == counters.datagrams
    assert counters.bytes_by_kind.total() == counters.bytes
    assert in_order == sorted(in_order)
    if in_order and model.bits_per_s and not (model.loss or model.reorder):
        began_ns = min(at_ns for at_ns, _, _ in trains)
        assert in_order[-1] - began_ns - model.latency_ns >= counters.bytes * 8 * SECOND // model.bits_per_s
