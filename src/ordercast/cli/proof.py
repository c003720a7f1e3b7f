"""The verdict over the trace of `ordercast demo`, given by Spark or by the checkers of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ordercast.cli.extras import advice, missing
from ordercast.errors import UsageError
from ordercast.pipeline.failures import JobFailed, explained
from ordercast.sim.checkers import PROPERTIES, check_all
from ordercast.trace.convert import convert
from ordercast.trace.store import read_trace

SHOWN_VIOLATIONS: Final = 10
NO_SPARK: Final = f"Spark is not installed ({advice('spark')})"
Say = Callable[[str], None]


@dataclass(slots=True)
class Property:
    """One line of the verdict."""

    checked: int
    unit: str
    violations: int
    note: str = ""  # why it was not judged

    @property
    def word(self) -> str:
        if self.note:
            return f"not judged: {self.note}"
        if self.violations:
            return "VIOLATED"
        return "held" if self.checked else "nothing to examine"


@dataclass(slots=True)
class Proof:
    """What the traces say. Where a property had nothing to examine the proof is none."""

    by: str
    properties: dict[str, Property]
    events: int
    confirmed: int  # sends that returned with their promise
    evidence: list[str] = field(default_factory=list)
    report: Path | None = None

    @property
    def held(self) -> bool:
        return all(one.word == "held" for one in self.properties.values())

    @property
    def lost(self) -> int:
        """Promises that were broken."""
        return self.properties["promises"].violations

    def as_json(self) -> dict[str, Any]:
        return {
            "held": self.held,
            "by": self.by,
            "rows": self.events,
            "properties": {
                name: {"checked": one.checked, "violations": one.violations, "result": one.word}
                for name, one in self.properties.items()
            },
            "violations": self.evidence,
        }


def prove(
    trace: Path,
    crashed: Mapping[tuple[str, int], int],
    *,
    with_spark: bool,
    say: Say,
    wanted: Sequence[str] = PROPERTIES,
) -> Proof:
    """Turn the raw traces into Parquet and judge them; with Spark there is also a report. `wanted`: the properties that
    there has to be something to examine for, and that have to hold."""
    convert(trace, crashed=dict(crashed))
    if not with_spark:
        return _in_process(trace, "the checkers of the simulator", wanted)
    if missing("spark"):
        say(f"{NO_SPARK}: the checkers of the simulator judge instead, and there is no report")
        return _in_process(trace, f"the checkers of the simulator: {NO_SPARK}", wanted)
    try:
        return _with_spark(trace, say, wanted)
    except (UsageError, JobFailed) as error:  # there is no Java, or it came to an end
        say(f"{error}: the checkers of the simulator judge instead, and there is no report")
        return _in_process(trace, f"the checkers of the simulator: {error}", wanted)


def _with_spark(trace: Path, say: Say, wanted: Sequence[str]) -> Proof:
    from ordercast.pipeline.reading import inspect
    from ordercast.pipeline.report.job import judge_and_measure, write_report
    from ordercast.pipeline.session import session

    runs = inspect([trace])
    say("starting Spark ...")
    with explained(), session("ordercast demo", rows=sum(one.rows for one in runs)) as spark:
        say("checking every guarantee on Spark, and measuring ...")
        verdict, measured = judge_and_measure(spark, runs)
        path = write_report(spark, runs, trace, verdict, title="Ordercast demo", measured=measured)
    return Proof(
        "ordercast verify, on Spark",
        {
            one.name: Property(one.checked, "", one.violations, one.note)
            for one in verdict.properties
            if one.checked or one.violations or one.name in wanted
        },
        sum(one.rows for one in runs),
        sum(span.confirmed for span in measured.spans.values()),
        [f"{row['property']} ({row['severity']}): {row['detail']}" for row in verdict.evidence[:SHOWN_VIOLATIONS]],
        path,
    )


def _in_process(trace: Path, by: str, wanted: Sequence[str]) -> Proof:
    info, rows = read_trace(trace)
    verdict = check_all(rows, clock=info.clock, quiet=True, expect=wanted, partitions=info.partitions)
    return Proof(
        by,
        {
            name: Property(one.checked, one.unit, one.total, "" if one.judged else one.note)
            for name, one in verdict.properties.items()
            if one.checked or one.total or name in wanted
        },
        verdict.rows,
        sum(row.count or 0 for row in rows if row.kind == "confirm"),
        [str(violation) for violation in verdict.violations[:SHOWN_VIOLATIONS]],
    )
