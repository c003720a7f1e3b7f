"""What a trace says about waiting: t1 and t2 of the TOMPA paper, section 2.3, from rows that were written by hand."""

from __future__ import annotations

import pytest

from ordercast.errors import UsageError
from ordercast.sim.compare import arrivals, by_detail
from ordercast.sim.comparison import (
    LOADS,
    SATURATED,
    Comparison,
    ComparisonPlan,
    Point,
    Variant,
    load_name,
    parse_load,
    parse_variant,
)
from ordercast.sim.lab import MeasurementFailed
from ordercast.sim.network import NETWORKS
from ordercast.sim.waits import Times, Wait, times_of, waits
from ordercast.trace.schema import Row

SECOND = 1_000_000_000


def row(node: str, kind: str, at_ns: int, first: int = 0, count: int = 1) -> Row:
    sender = None if kind == "submit" else "a/0"
    return Row(node, 0, 0, at_ns, kind, "g", sender=sender, first=first, count=count, bytes=100 * count)


def test_the_sequence_number_divides_the_wait() -> None:
    rows = [row("a", "submit", 1), row("b", "hold", 10), row("b", "placed", 25), row("b", "deliver", 60)]
    assert list(waits(rows)) == [Wait(15, 35, 59, 1)]


def test_the_sender_itself_does_not_count() -> None:
    rows = [row("a", "submit", 1), row("a", "hold", 2), row("a", "placed", 3), row("a", "deliver", 4)]
    assert list(waits(rows)) == []


def test_a_sequence_number_that_comes_before_the_message_counts_from_its_arrival() -> None:
    rows = [row("a", "submit", 1), row("b", "placed", 5), row("b", "hold", 10), row("b", "deliver", 60)]
    assert list(waits(rows)) == [Wait(0, 50, 59, 1)]


@pytest.mark.parametrize("place", [[], [row("b", "placed", 90)]])
def test_what_is_delivered_without_its_place_has_no_second_part(place: list[Row]) -> None:
    rows = [row("a", "submit", 1), row("b", "hold", 10), row("b", "deliver", 60), *place]
    assert list(waits(rows)) == [Wait(50, 0, 59, 1)]


def test_rows_that_stand_for_several_messages_are_cut_where_they_differ() -> None:
    rows = [
        row("a", "submit", 1, 0, 3),
        row("a", "submit", 2, 3, 5),
        row("b", "hold", 10, 0, 6),
        row("b", "hold", 20, 6, 2),
        row("b", "placed", 30, 4, 4),
        row("b", "placed", 25, 0, 4),
        row("b", "deliver", 50, 0, 8),
    ]
    assert list(waits(rows)) == [
        Wait(15, 25, 49, 3),
        Wait(15, 25, 48, 1),
        Wait(20, 20, 48, 2),
        Wait(10, 20, 48, 2),
    ]


def test_the_first_messages_of_a_sender_are_left_out() -> None:
    rows = [row("a", "submit", 1, 40, 4), row("b", "hold", 10, 40, 4), row("b", "deliver", 30, 40, 4)]
    assert [wait.messages for wait in waits(rows, skip=3)] == [1]
    assert list(waits(rows, skip=4)) == []


def test_what_was_submitted_before_the_measurement_does_not_count() -> None:
    assert list(waits([row("b", "hold", 10), row("b", "deliver", 30)])) == []


def test_a_delivery_of_what_was_never_held_is_no_measurement() -> None:
    with pytest.raises(MeasurementFailed, match="b delivered message 0 of a/0 and never held it"):
        list(waits([row("a", "submit", 1), row("b", "deliver", 30)]))


def test_times_weigh_messages_and_not_rows() -> None:
    assert times_of([(1_000, 98), (100_000, 2)]) == Times(2.98, 1.0, 1.0)
    assert times_of([(3_000, 1), (1_000, 1), (2_000, 18)]) == Times(2.0, 2.0, 3.0)
    assert times_of([]) == Times(0.0, 0.0, 0.0)


def test_kinds_of_datagrams_are_named_as_in_traces() -> None:
    assert by_detail({"stamps": 3, "ack": 1, "decision": 2, "find": 1, "commit": 1, "unknown": 5}) == {
        "ack": 4,
        "decision": 2,
        "membership": 2,
        "unknown": 5,
    }


def test_arrivals_are_drawn_from_the_seed_at_the_rate_asked_for() -> None:
    times = list(arrivals("7/arrivals/0", 4_000, 100.0))
    assert times == list(arrivals("7/arrivals/0", 4_000, 100.0))
    assert times != list(arrivals("7/arrivals/1", 4_000, 100.0))
    assert times == sorted(times)
    assert times[-1] / SECOND == pytest.approx(40, rel=0.1)


def test_orderers_and_loads_have_names() -> None:
    assert parse_variant("timestamp:no-anticipate") == Variant("timestamp", anticipate=False)
    assert parse_variant("timestamp:anticipate") == parse_variant("timestamp") == Variant("timestamp")
    assert [str(parse_variant(word)) for word in ("token", "timestamp:no-anticipate")] == [
        "token",
        "timestamp:no-anticipate",
    ]
    assert parse_load("saturated", "lan") == SATURATED
    assert parse_load("heavy", "ethernet") == LOADS["ethernet"][2]
    assert parse_load(" 2.5 ", "lan") == 2.5
    assert [load_name(load) for load in (SATURATED, 2.5, 2_000.0)] == ["saturated", "2.5/s", "2000/s"]


def test_the_words_for_loads_rise_on_every_network() -> None:
    assert LOADS.keys() <= NETWORKS.keys()
    assert all(list(loads) == sorted(loads) for loads in LOADS.values())


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"nodes": (5, 1)}, "--nodes lies between 2 and 64, not 1"),
        ({"nodes": ()}, "--nodes needs at least one"),
        ({"nodes": (5, 5)}, "--nodes names a value twice"),
        ({"variants": (Variant("token"),) * 2}, "--orderers names a value twice"),
        ({"senders": 6}, "--senders lies between 0 and 5, not 6"),
        ({"seeds": 0}, "--seeds lies between"),
        ({"loss": 0.5}, "--loss lies between 0 and 0.3"),
        ({"jitter_ms": -3.0}, "--jitter-ms lies between"),
        ({"network": "moon"}, "there is no network 'moon'"),
        ({"service": "LOUD"}, "unknown service"),
        ({"service": "UNRELIABLE"}, "are not ordered"),
        ({"variants": (Variant("token"), Variant("sequencer")), "service": "CAUSAL"}, "the sequencer gives RELIABLE"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(given: dict[str, object], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        ComparisonPlan(**{"variants": (Variant("token"),), **given})  # type: ignore[arg-type]


def test_what_is_wrong_with_the_network_is_told_in_words() -> None:
    assert ComparisonPlan((Variant("token"),), loss=0.001, reorder=0.05).troubles() == [
        "0.1 % of datagrams lost",
        "5 % up to 2 ms late",
    ]
    assert ComparisonPlan((Variant("token"),), loss=0.1).troubles() == ["10 % of datagrams lost"]
    assert ComparisonPlan((Variant("token"),)).troubles() == []


def point(orderer: str, t1: float, t2: float) -> Point:
    all_times, first, second, again = [Times(mean, mean, mean) for mean in (t1 + t2, t1, t2, t1 + t2)]
    means = (t1 + t2,)
    return Point(orderer, 5, 100.0, 10, 40, all_times, first, second, again, means, 100.0, 3.0, {"data": 1.0}, 50, 0)


def test_a_reduction_is_told_where_both_variants_are() -> None:
    plan = ComparisonPlan((Variant("timestamp"), Variant("timestamp", anticipate=False)), (5,), (100.0,))
    points = [point("timestamp", 60, 5), point("timestamp:no-anticipate", 60, 40)]
    (found,) = Comparison(plan, points).reductions()
    assert (found.latency, found.t2, found.t2_share) == pytest.approx((35, 87.5, 40))
    assert Comparison(plan, points[:1]).reductions() == []
