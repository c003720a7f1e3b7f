"""The transformations of `measure`, each on a handful of rows with results worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")

from ordercast.pipeline.measure import changes, groups, latency, sketches, throughput, traffic
from ordercast.pipeline.measure.buckets import (
    LEAST_NS,
    MAX_BUCKETS,
    Span,
    axis_of,
    group_name,
    spans,
    width_of,
    with_bucket,
)
from ordercast.pipeline.measure.measures import Measures
from ordercast.pipeline.measure.summary import link_lines
from ordercast.pipeline.reading import TraceRun, event_schema
from ordercast.trace.run import RunInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MS = 1_000_000
SECOND = 1_000_000_000


def events(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of a trace; what is not said is the same for all, or null."""
    usual = {"run": "r", "node": "a", "life": 0, "underlay": "u", "at_ns": 0}
    names = event_schema().fieldNames()
    full = [{**usual, "n": n, **row} for n, row in enumerate(rows)]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in full], event_schema())


def found(frame: DataFrame, *columns: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.select(*columns).collect()}


def axis(spark: SparkSession, width_ns: int = 100 * MS) -> DataFrame:
    return spark.createDataFrame([("r", 0, width_ns)], "run string, began_ns long, width_ns long")


def block(kind: str, at_ms: float, node: str = "a", first: int = 0, count: int = 10, **more: Any) -> dict[str, Any]:
    usual = {"sender": "a/0", "group": "g", "service": "AGREED", "bytes": 100 * count}
    return {**usual, "kind": kind, "at_ns": int(at_ms * MS), "node": node, "first": first, "count": count, **more}


# The time axis. ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "runs", "width_ms"),
    [(0.001, 1, 1), (0.4, 1, 5), (5, 1, 50), (20, 1, 100), (60, 1, 100), (61, 1, 200), (600, 1, 1000), (60, 40, 1000)],
)
def test_buckets_have_round_widths_and_are_not_too_many(seconds: float, runs: int, width_ms: int) -> None:
    width = width_of(int(seconds * SECOND), runs)
    assert width == width_ms * MS
    assert width >= LEAST_NS
    assert seconds * SECOND / width <= MAX_BUCKETS


def test_a_run_goes_from_its_first_event_to_its_last(spark: SparkSession) -> None:
    rows = events(
        spark,
        {"kind": "start", "at_ns": 5},
        block("deliver", 1, count=3),
        block("deliver", 2, count=4),
        block("confirm", 2, count=2),
        {"kind": "stop", "at_ns": 9 * MS},
    )
    (row,) = spans(rows).collect()
    assert Span(**row.asDict()) == Span("r", 5, 9 * MS, 7, 2, 2, 5)
    (bucket,) = with_bucket(rows.where("kind = 'stop'"), axis_of(spark, [Span("r", 5, 9 * MS, 7, 2, 2, 5)])).collect()
    assert bucket.bucket == 8


# Throughput. ---------------------------------------------------------------------------------------------------------


def test_rows_count_as_many_messages_as_they_stand_for(spark: SparkSession) -> None:
    rows = events(
        spark,
        block("submit", 0, count=10),
        block("deliver", 50, count=10),
        block("deliver", 250, count=30, first=10),
        block("deliver", 250, "b", count=40),
        block("deliver", 1250, "b", count=20, first=40),
    )
    series = throughput.throughput_series(rows, axis(spark))
    assert found(series, "node", "bucket", "sent", "delivered", "delivered_bytes") == {
        ("a", 0, 10, 10, 1000),
        ("a", 2, 0, 30, 3000),
        ("b", 2, 0, 40, 4000),
        ("b", 12, 0, 20, 2000),
    }
    members = throughput.member_totals(series)
    assert found(members, "node", "delivered", "seconds", "messages_per_s", "bytes_per_s") == {
        ("a", 40, 0.2, 200.0, 20000.0),
        ("b", 60, 1.0, 60.0, 6000.0),
    }
    delivered = spark.createDataFrame([("r", "g", 60, 6000)], "run string, group string, messages long, bytes long")
    totals = throughput.group_totals(series, delivered)
    assert found(totals, "group", "members", "sent", "deliveries", "messages", "seconds", "messages_per_s") == {
        ("g", 2, 10, 100, 60, 1.25, 48.0)
    }


def test_a_message_to_several_groups_has_their_names(spark: SparkSession) -> None:
    rows = events(spark, block("deliver", 1, group=None, groups=["g", "h"]), block("deliver", 1, group=None))
    assert found(rows.withColumn("group", group_name()), "group") == {("g+h",), ("u",)}


def test_of_very_many_groups_the_busiest_keep_their_names(spark: SparkSession) -> None:
    rows = events(
        spark,
        block("submit", 0, group="nobody's"),
        block("deliver", 1, count=5, group="g"),
        block("deliver", 1, count=3, group=None, groups=["h", "g"]),
        block("deliver", 1, count=9, group=None),
        block("deliver", 1, count=4, group="k", run="s"),
    )
    kept = groups.busiest(rows, 2)
    assert found(kept, "run", "group", "others") == {
        ("r", "u", "(2 other groups)"),
        ("r", "g", "(2 other groups)"),
        ("s", "k", None),
    }
    assert found(groups.folded(rows, kept), "run", "group", "count") == {
        ("r", "(2 other groups)", 10),
        ("r", "(2 other groups)", 3),
        ("r", "g", 5),
        ("r", "u", 9),
        ("s", "k", 4),
    }
    assert [groups.is_rest(name) for name in ("(2 other groups)", "g", None)] == [True, False, False]


def test_a_block_of_several_groups_is_held_as_one_and_delivered_as_many(spark: SparkSession) -> None:
    rows = events(
        spark,
        block("submit", 1, count=2),
        block("submit", 1, first=2, count=3, group="h"),
        block("hold", 2, "b", count=5, group=None),
        block("deliver", 4, "b", count=2),
        block("deliver", 5, "b", first=2, count=3, group="h"),
    )
    ranged = latency.ranged(rows)
    assert sum(row.misfits for row in latency.messages(ranged).collect()) > 0
    aligned = latency.aligned(ranged)
    assert found(latency.messages(aligned), "group", "messages", "misfits") == {("g", 2, 0), ("h", 3, 0)}
    assert found(latency.delays(aligned), "group", "messages", "send_ns", "reception_ns") == {
        ("g", 2, 3 * MS, 2 * MS),
        ("h", 3, 4 * MS, 3 * MS),
    }


def test_views_and_marks_of_lightweight_groups_are_counted_and_not_marked(spark: SparkSession) -> None:
    rows = events(
        spark,
        {"kind": "join"},
        {"kind": "join", "group": "g"},
        {"kind": "view", "view": "1@a/0", "detail": "join"},
        {"kind": "view", "view": "2@a/0", "group": "g", "detail": "join"},
        {"kind": "view", "view": "2@a/0", "group": "g", "detail": "join", "node": "b"},
        {"kind": "view", "view": "3@a/0", "group": "h", "detail": "join"},
        {"kind": "leave", "group": "g"},
    )
    assert found(groups.view_totals(rows), "reason", "views", "groups", "installed") == {("join", 2, 2, 3)}
    assert found(changes.marks(rows), "kind", "n") == {("join", 0)}
    assert found(changes.view_changes(rows), "view") == {("1@a/0",)}


# Latency. ------------------------------------------------------------------------------------------------------------


def test_delays_at_the_sender_and_at_another_member(spark: SparkSession) -> None:
    rows = events(
        spark,
        block("submit", 1),
        block("deliver", 5),
        block("hold", 2, "b"),
        block("placed", 4, "b"),
        block("deliver", 9, "b"),
    )
    delays = latency.delays(latency.ranged(rows))
    assert found(delays, "messages", *latency.STAGES) == {
        (10, 4 * MS, None, None, None),  # the sender's own
        (10, 8 * MS, 7 * MS, 2 * MS, 5 * MS),
    }


def test_a_place_known_early_counts_from_the_arrival_and_a_late_one_not_at_all(spark: SparkSession) -> None:
    rows = events(
        spark,
        block("placed", 1, "b"),
        block("hold", 3, "b"),
        block("deliver", 4, "b"),
        block("hold", 3, "c"),
        block("deliver", 3, "c"),
        block("placed", 8, "c"),
    )
    delays = latency.delays(latency.ranged(rows))
    assert found(delays, "at_ns", "send_ns", "t1_ns", "t2_ns") == {(4 * MS, None, 0, 1 * MS), (3 * MS, None, 0, 0)}


def test_clocks_of_many_hosts_are_compared_at_the_sender_only(spark: SparkSession) -> None:
    rows = events(spark, block("submit", 1), block("deliver", 5), block("hold", 2, "b"), block("deliver", 9, "b"))
    delays = latency.delays(latency.ranged(rows), ["r"])
    assert found(delays, "send_ns", "reception_ns") == {(4 * MS, None), (None, 7 * MS)}


def test_each_message_counts_once_and_rows_that_do_not_fit_are_told(spark: SparkSession) -> None:
    fitting = [block("submit", 1), block("deliver", 5), block("deliver", 9, "b")]
    (row,) = latency.messages(latency.ranged(events(spark, *fitting))).collect()
    assert (row.group, row.messages, row.bytes, row.misfits) == ("g", 10, 1000, 0)
    split = [*fitting, block("deliver", 9, "c", count=4), block("deliver", 10, "c", first=4, count=6)]
    (row,) = latency.messages(latency.ranged(events(spark, *split))).collect()
    assert row.misfits > 0
    (row,) = latency.messages(latency.aligned(latency.ranged(events(spark, *split)))).collect()
    assert (row.messages, row.bytes, row.misfits) == (10, 1000, 0)


def test_rows_of_other_ranges_meet_after_they_are_cut(spark: SparkSession) -> None:
    rows = events(
        spark,
        block("submit", 1, first=250, count=6),
        block("submit", 2, first=256, count=4),
        block("hold", 3, "b", first=250, count=10),
        block("deliver", 5, "b", first=250, count=2),
        block("deliver", 9, "b", first=252, count=8),
    )
    cut = latency.aligned(latency.ranged(rows))
    assert found(cut.where("kind = 'hold'"), "first", "count", "bytes") == {
        (250, 2, 200),
        (252, 4, 400),
        (256, 4, 400),
    }
    delays = latency.delays(cut)
    assert found(delays, "messages", "send_ns", "reception_ns") == {
        (2, 4 * MS, 2 * MS),
        (4, 8 * MS, 6 * MS),
        (4, 7 * MS, 6 * MS),
    }


# Sketches. -----------------------------------------------------------------------------------------------------------


def test_percentiles_are_weighted_and_sketches_merge(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("r", 0, 10, 90), ("r", 0, 20, 9), ("r", 1, 1000, 1), ("s", 0, None, 5)],
        "run string, bucket int, wait_ns long, messages long",
    )
    series = sketches.with_percentiles(sketches.sketched(frame, ["run", "bucket"], ["wait_ns"]))
    columns = ("stage", "messages", "mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns")
    assert found(series, "bucket", *columns) == {
        (0, "wait", 99, 1080 / 99, 10, 10, 20, 20),
        (1, "wait", 1, 1000.0, 1000, 1000, 1000, 1000),
    }
    whole = sketches.with_percentiles(sketches.merged(series, ["run"]))
    assert found(whole, "run", *columns) == {("r", "wait", 100, 20.8, 10, 10, 20, 1000)}
    (curve,) = sketches.with_curve(whole).select("curve").collect()
    assert curve.curve[sketches.CURVE.index(0.5)] == 10
    assert (curve.curve[0], curve.curve[-1]) == (10, 1000)


def test_very_many_messages_become_samples_but_sums_stay_exact(spark: SparkSession) -> None:
    assert sketches.unit_of(sketches.MOST_SAMPLES) == 1
    assert sketches.unit_of(sketches.MOST_SAMPLES + 1) == 2
    frame = spark.range(1000).selectExpr("'r' as run", "id as wait_ns", "if(id < 500, 1, 41) as messages")
    (row,) = sketches.with_percentiles(sketches.sketched(frame, ["run"], ["wait_ns"], unit=10)).collect()
    assert (row.messages, row.min_ns, row.max_ns) == (500 + 500 * 41, 0, 999)
    assert row.mean_ns == pytest.approx((sum(range(500)) + 41 * sum(range(500, 1000))) / row.messages)
    assert row.p50_ns == pytest.approx(744, abs=20)  # half of 21,000 messages: 500 below 500, then 41 each


# Datagrams and the token. --------------------------------------------------------------------------------------------


def test_datagrams_by_kind_for_each_message_and_delivery(spark: SparkSession) -> None:
    rows = events(
        spark,
        {"kind": "tx", "detail": "data", "count": 30, "bytes": 900, "at_ns": 100 * MS},
        {"kind": "tx", "detail": "data", "count": 20, "bytes": 600, "at_ns": 150 * MS, "node": "b"},
        {"kind": "rx", "detail": "data", "count": 45, "bytes": 1400, "at_ns": 150 * MS, "node": "b"},
        {"kind": "tx", "detail": "token", "count": 5, "bytes": 50, "at_ns": 210 * MS},
    )
    series = traffic.datagram_series(rows, axis(spark))
    assert found(series, "node", "direction", "kind", "bucket", "datagrams") == {
        ("a", "tx", "data", 1, 30),
        ("b", "tx", "data", 1, 20),
        ("b", "rx", "data", 1, 45),
        ("a", "tx", "token", 2, 5),
    }
    groups = spark.createDataFrame([("r", 100, 180)], "run string, messages long, deliveries long")
    totals = traffic.datagram_totals(series, groups)
    assert found(totals, "direction", "kind", "datagrams", "per_message") == {
        ("tx", "data", 50, 0.5),
        ("rx", "data", 45, 0.25),
        ("tx", "token", 5, 0.05),
    }


def test_datagrams_between_sites_count_as_their_kind_and_for_the_two_sites(spark: SparkSession) -> None:
    sent = {"kind": "tx", "at_ns": 100 * MS}
    rows = events(
        spark,
        {**sent, "detail": "data", "count": 30, "bytes": 900},
        {**sent, "detail": "hop.data>west", "count": 5, "bytes": 150},
        {**sent, "detail": "hop.data>west", "count": 1, "bytes": 10, "at_ns": 300 * MS},
        {**sent, "detail": "hop.data>no.rth", "count": 2, "bytes": 60},
        {**sent, "detail": "hop.ack>west", "count": 3, "bytes": 30},
        {"kind": "rx", "detail": "hop.data>east", "count": 4, "bytes": 120, "at_ns": 150 * MS, "node": "b"},
        {"kind": "stalled", "detail": "hop.data>east", "at_ns": 150 * MS},
    )
    assert found(traffic.datagram_series(rows, axis(spark)), "node", "direction", "kind", "bucket", "datagrams") == {
        ("a", "tx", "data", 1, 37),
        ("a", "tx", "data", 3, 1),
        ("a", "tx", "ack", 1, 3),
        ("b", "rx", "data", 1, 4),
    }
    assert found(traffic.link_totals(rows), "node", "direction", "site", "kind", "datagrams", "bytes") == {
        ("a", "tx", "west", "data", 6, 160),
        ("a", "tx", "no.rth", "data", 2, 60),
        ("a", "tx", "west", "ack", 3, 30),
        ("b", "rx", "east", "data", 4, 120),
    }


def test_the_summary_says_what_goes_from_site_to_site() -> None:
    info = RunInfo.simulated(
        seed=1, orderer="sites", services=("AGREED",), parameters={"sites": {"a": "east", "c": "east", "b": "west"}}
    )
    columns = ("run", "node", "direction", "site", "kind", "datagrams", "bytes")
    rows = [
        ("r", "a", "tx", "west", "data", 6, 1_600),
        ("r", "a", "tx", "west", "ack", 3, 30),
        ("r", "c", "tx", "west", "data", 1, 10),
        ("r", "b", "rx", "east", "data", 5, 1_500),
        ("r", "b", "tx", "east", "ack", 4, 40),
        ("other", "b", "tx", "east", "ack", 900, 9_000),
    ]
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows])
    measures = Measures((TraceRun("r", Path("r"), info, ()),), {}, {"link_totals": table})
    assert link_lines(measures, "r") == [
        ("from site to site", "sent", "of it data", "bytes", "received"),
        ("east > west", "10", "7", "1,640", "5"),
        ("west > east", "4", "0", "40", "0"),
    ]
    assert len(link_lines(Measures(measures.runs, {}, {}), "r")) == 1


def test_rotation_is_the_mean_interval_between_passes_of_one_member(spark: SparkSession) -> None:
    passes = {"kind": "tx", "detail": "token"}
    rows = events(
        spark,
        {**passes, "count": 7, "at_ns": 100 * MS},
        {**passes, "count": 10, "at_ns": 200 * MS},
        {**passes, "count": 5, "at_ns": 220 * MS, "node": "b"},
        {**passes, "count": 1, "at_ns": 1200 * MS},
        {"kind": "tx", "detail": "data", "count": 9, "at_ns": 300 * MS},
    )
    assert found(traffic.rotations(rows), "node", "messages", "rotation_ns") == {("a", 10, 10 * MS), ("a", 1, SECOND)}


# Views and repairs. --------------------------------------------------------------------------------------------------


def test_a_failure_lasts_from_the_last_delivery_before_the_signal_to_the_first_after_the_view(
    spark: SparkSession,
) -> None:
    old: dict[str, Any] = {"view": "1@a/0"}
    new: dict[str, Any] = {"view": "2@a/0"}
    rows = events(
        spark,
        {"kind": "view", "detail": "create", "members": ["a/0", "b/0"], "at_ns": 1 * MS, **old},
        block("deliver", 10, **old),
        {"kind": "transitional", "at_ns": 500 * MS, **old},
        block("deliver", 501, first=10, **old),  # what recovery brought together
        {"kind": "view", "detail": "reset", "members": ["a/0"], "at_ns": 502 * MS, **new},
        block("deliver", 510, first=20, **new),
    )
    views = changes.view_changes(rows)
    assert found(views, "view", "reason", "members", "delivered", "change_ns", "recovery_ns") == {
        ("1@a/0", "create", 2, 20, None, None),
        ("2@a/0", "reset", 1, 10, 500 * MS, 10 * MS),
    }
    totals = changes.view_totals(views)
    assert found(totals, "reason", "views", "measured", "p50_ns", "max_recovery_ns") == {
        ("create", 1, 0, None, None),
        ("reset", 1, 1, 500 * MS, 10 * MS),
    }


def test_views_of_lightweight_groups_are_not_views_of_the_underlay(spark: SparkSession) -> None:
    rows = events(spark, {"kind": "view", "view": "1@a/0", "group": "g", "members": ["a/0"]})
    assert changes.view_changes(rows).collect() == []


def test_a_gap_ends_with_the_repair_of_the_same_number(spark: SparkSession) -> None:
    rows = events(
        spark,
        {"kind": "gap", "first": 4, "count": 2, "at_ns": 1 * MS, "detail": "place"},
        {"kind": "repaired", "first": 5, "count": 1, "at_ns": 3 * MS, "detail": "place"},
        {"kind": "gap", "first": 5, "count": 1, "at_ns": 7 * MS, "detail": "place"},
        {"kind": "repaired", "first": 5, "count": 1, "at_ns": 8 * MS, "detail": "place"},
        {"kind": "repaired", "first": 4, "count": 1, "at_ns": 9 * MS, "detail": "block of b"},
    )
    assert sorted(
        (row.at_ns, row.repair_ns, row.open_ns) for row in changes.repairs(rows).na.fill(-1).collect()
    ) == [(1 * MS, -1, 0), (1 * MS, 2 * MS, -1), (7 * MS, 1 * MS, -1)]  # fmt: skip
