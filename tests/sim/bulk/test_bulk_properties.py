"""What holds in any world: nothing is lost without being counted, links keep their order, bytes stay what they are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.bulk.recording import House, RecordingEngine

from ordercast.config import MS, SECOND
from ordercast.engine import Send
from ordercast.sim.bulk import BulkWorld
from ordercast.sim.network import NetworkModel
from ordercast.view import Address
from ordercast.wire.header import Kind

REGION: Address = ("239.1.0.1", 7_000)
HEARS = frozenset((REGION,))
STRIDE = 40
NAMES = ("a", "b", "c", "d", "e")

models = st.builds(
    NetworkModel,
    st.just("any"),
    latency_ns=st.sampled_from((0, 1_000, 100_000)),
    jitter_ns=st.sampled_from((0, 0, 50_000)),
    loss=st.sampled_from((0.0, 0.01, 0.2, 1.0)),
    bits_per_s=st.sampled_from((0, 1_000_000, 100_000_000)),
    is_shared=st.just(False),
    pass_ns=st.sampled_from((0, 5_000)),
    send_ns=st.sampled_from((0, 50_000)),
    receive_ns=st.sampled_from((0, 70_000, 500_000)),
    receive_byte_ps=st.sampled_from((0, 100_000)),
)


def train(source: int, number: int, segments: int) -> bytes:
    """Datagrams that say whose they are: sender, number of the transmission, number of the segment."""
    whole = [
        bytes([0xC7, Kind.DATA, source, number, segment, *([number] * (STRIDE - 5))]) for segment in range(segments)
    ]
    return b"".join(whole)[: segments * STRIDE - 3]  # the last is shorter


def segments_of(engine: RecordingEngine) -> list[tuple[int, int, int]]:
    found = []
    for each in engine.seen:
        stride = each.stride or len(each.data)
        for at in range(0, len(each.data), stride):
            _, kind, source, number, segment, *rest = each.data[at : at + stride]
            assert kind == Kind.DATA
            assert set(rest) == {number}
            found.append((source, number, segment))
    return found


@settings(max_examples=80, deadline=None)
@given(
    model=models,
    buffer_bytes=st.sampled_from((3_000, 20_000, 1 << 20)),
    script=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4), st.integers(1, 30)), min_size=1, max_size=40),
    cut=st.sampled_from(("", "ab", "ca")),
    paused=st.sampled_from(("", "b", "c")),
)
def test_every_datagram_is_received_or_counted(
    model: NetworkModel, buffer_bytes: int, script: Sequence[tuple[int, int, int]], cut: str, paused: str
) -> None:
    house = House(BulkWorld(1, model, coalesce_ns=150_000), NAMES, HEARS, buffer_bytes)
    world = house.world
    if cut:
        world.cut(*cut)
    if paused:
        world.at(5 * MS, lambda _: world.pause(paused))
        world.at(12 * MS, lambda _: world.resume(paused))
    sent = dict.fromkeys(NAMES, 0)
    for number, (at_ms, sender, segments) in enumerate(script):
        name = NAMES[sender]
        sent[name] += segments
        send = Send(REGION, [train(sender, number, segments)], STRIDE if segments > 1 else 0)
        world.at(at_ms * MS, lambda argument: house.send(*argument), (name, send))
    world.run_until(60 * SECOND)
    for name in NAMES:
        tally = world[name].tally
        assert tally.sent[Kind.DATA] == sent[name]
        assert tally.received[Kind.DATA] + tally.lost + tally.dropped + tally.cut == sum(sent.values()) - sent[name]
        assert world[name].inbox_bytes == 0
        got = segments_of(house[name])
        assert len(got) == tally.received[Kind.DATA]
        times = [each.at_ns for each in house[name].seen]
        assert times == sorted(times)
        for sender in range(len(NAMES)):
            # `number` rises with the script, which need not be the order of times; segments of one train keep theirs.
            for number in {number for source, number, _ in got if source == sender}:
                mine = [segment for source, each, segment in got if (source, each) == (sender, number)]
                assert mine == sorted(set(mine))


def test_each_segment_of_a_train_is_lost_as_often_as_any_other() -> None:
    """As with a draw for each: chi-square over the 20 places of a train, and over how many of one train are lost."""
    segments, trains, loss = 20, 4_000, 0.1
    house = House(BulkWorld(3, NetworkModel("lossy", loss=loss)), "ab", HEARS)
    for number in range(trains):
        send = Send(REGION, [train(0, number % 251, segments)], STRIDE)
        house.world.at(number * MS, lambda each: house.send("a", each), send)
    house.world.run_until(trains * MS)
    by_time: dict[int, list[int]] = {}
    for each in house["b"].seen:
        stride = each.stride or len(each.data)
        by_time.setdefault(each.at_ns, []).extend(each.data[at + 4] for at in range(0, len(each.data), stride))
    places = [trains - sum(place in got for got in by_time.values()) for place in range(segments)]
    due = trains * loss
    chi_square = sum((lost - due) ** 2 / (due * (1 - loss)) for lost in places)
    assert chi_square < 45.31  # exceeded once in 1,000 cases with 20 degrees of freedom
    per_train = [segments - len(got) for got in by_time.values()] + [segments] * (trains - len(by_time))
    mean = sum(per_train) / trains
    variance = sum((lost - mean) ** 2 for lost in per_train) / trains
    assert abs(mean - 2.0) < 4 * (1.8 / trains) ** 0.5
    assert abs(variance - 1.8) < 0.17  # binomial: 20 * 0.1 * 0.9
