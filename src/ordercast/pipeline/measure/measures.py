"""Everything that is measured of some traces: the transformations put together, and their results as small tables.

Results are bounded (buckets, members, kinds, the busiest groups), so they come to the driver as Arrow tables. What is a
sum of another result is computed from that, not from the trace again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from ordercast.pipeline.measure import changes, groups, latency, regions, sketches, throughput, traffic
from ordercast.pipeline.measure.buckets import Span, axis_of, spans, width_of, with_bucket, with_time
from ordercast.pipeline.reading import TraceRun, Traces
from ordercast.trace.schema import CONTINUE

if TYPE_CHECKING:
    import pyarrow as pa

FAR_CLOCK: Final = "many"
SETTINGS: Final = {
    # A sketch for each bucket and service is little; sorting all rows by them, as Spark does beyond 128, is much.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "50000",
}


@dataclass(slots=True)
class Measures:
    """`tables` by name: those that `ordercast measure` writes."""

    runs: tuple[TraceRun, ...]
    spans: dict[str, Span]
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def rows(self, name: str, **wanted: Any) -> list[dict[str, Any]]:
        """The rows of a table that have these values, without sketches; none of a table that these traces have not."""
        if name not in self.tables:
            return []
        table = self.tables[name]
        if "sketch" in table.column_names:
            table = table.drop_columns(["sketch"])
        return [row for row in table.to_pylist() if all(row[key] == value for key, value in wanted.items())]

    def width_ns(self, run: str) -> int:
        span = self.spans[run]
        return width_of(span.ended_ns - span.began_ns, len(self.spans))


def measure(spark: SparkSession, traces: Traces) -> Measures:
    """Measure these traces."""
    with _settings(spark):
        return _measure(spark, traces)


def _measure(spark: SparkSession, traces: Traces) -> Measures:
    events = traces.events
    found = [Span(**row.asDict()) for row in spans(events).orderBy("run").collect()]
    axis = axis_of(spark, found)
    result = Measures(traces.runs, {span.run: span for span in found})

    def keep(name: str, frame: DataFrame, *order: str) -> DataFrame:
        """Compute a table; what is asked of it later is asked of the result."""
        table = frame.toArrow().sort_by([(column, "ascending") for column in order])
        result.tables[name] = table
        return spark.createDataFrame(table)

    def keep_times(name: str, frame: DataFrame, *values: str) -> None:
        """The same for what is a time series of delays, and its sums over the run."""
        read = sketches.with_percentiles(sketches.sketched(with_bucket(frame, axis), ["run", "bucket"], values))
        found = keep(f"{name}_series", with_time(read, axis), "run", "bucket", "stage")
        keep(f"{name}_totals", sketches.with_percentiles(sketches.merged(found, ["run"])), "run", "stage")

    named = events
    if any(span.groups > groups.MOST_GROUPS // 2 for span in found):  # the number is an estimate
        kept = spark.createDataFrame(groups.busiest(events).toArrow())
        named = groups.folded(events, kept)
    rows = latency.ranged(named)
    delivered = latency.messages(rows).toArrow()
    if any(delivered.column("misfits").to_pylist()):
        rows = latency.aligned(rows)
        delivered = latency.messages(rows).toArrow()
    unit = sketches.unit_of(sum(span.deliveries for span in found))

    moved = throughput.throughput_series(named, axis)
    series = keep("throughput_series", with_time(moved, axis), "run", "group", "node", "bucket")
    keep("member_totals", throughput.member_totals(series), "run", "group", "node")
    counted = spark.createDataFrame(delivered).drop("misfits")
    totals = keep("group_totals", throughput.group_totals(series, counted), "run", "group")

    far = [run.name for run in traces.runs if run.info.clock == FAR_CLOCK]
    keys = ["run", "group", "service", "bucket"]
    delays = sketches.sketched(with_bucket(latency.delays(rows, far), axis), keys, latency.STAGES, unit)
    waits = keep("latency_series", with_time(sketches.with_percentiles(delays), axis), *keys, "stage")
    for name, by in (("latency_totals", ["run", "group", "service"]), ("latency_by_service", ["run", "service"])):
        put_together = sketches.with_percentiles(sketches.merged(waits, by))
        keep(name, sketches.with_curve(put_together), *by, "stage")

    sent = with_time(traffic.datagram_series(events, axis), axis)
    datagrams = keep("datagram_series", sent, "run", "node", "direction", "kind", "bucket")
    keep("datagram_totals", traffic.datagram_totals(datagrams, totals), "run", "direction", "kind")
    if any(run.info.partitions == CONTINUE for run in traces.runs):
        keep("link_totals", traffic.link_totals(events), "run", "node", "direction", "site", "kind")
    keep_times("rotation", traffic.rotations(events), "rotation_ns")
    keep_times("repair", changes.repairs(events), "repair_ns", "open_ns")

    views = keep("view_changes", changes.view_changes(events), "run", "underlay", "node", "life", "n")
    keep("view_totals", changes.view_totals(views), "run", "reason")
    # Without a row there is nothing to count: an empty table costs no scan.
    of_groups = groups.view_totals(events if any(span.group_views for span in found) else events.limit(0))
    keep("group_view_totals", of_groups, "run", "reason")
    if any(span.carried for span in found):
        wasted = keep("region_waste", regions.waste(events), "run", "region", "node")
        keep("region_totals", regions.region_totals(events, wasted), "run")
    keep("marks", changes.marks(events), "run", "at_ns", "node", "n")
    return result


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
