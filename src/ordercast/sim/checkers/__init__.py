"""Judges of a finished trace, outside the protocol engines. docs/trace.md lists the properties.

    verdict = check_all(rows, clock="virtual", quiet=True)
    print("\\n".join(verdict.summary()))

Each property is a module with a `check(trace, ...)` of its own over one shared `Trace`, and says in its docstring how
it reads its sentence of docs/trace.md. The same code judges simulated and real runs, so it knows rows only: nothing of
engines, orderers or the simulator, and nothing beyond the standard library.

Regions have an index of their own (`region_records.py`) and three properties more, which are judged where a trace has
regions: whoever wrote it.

Order of judgement: form, then integrity, then the rest, each silent about what an earlier one explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ordercast.sim.checkers import (
    causal,
    fifo,
    group_fifo,
    integrity,
    liveness,
    promises,
    region_views,
    regional,
    resilience,
    total_order,
    virtual_synchrony,
    well_formed,
)
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.region_records import RegionalTrace
from ordercast.sim.checkers.verdict import MAX_VIOLATIONS, Explained, PropertyResult, Verdict, Violation
from ordercast.sim.checkers.views import Rules
from ordercast.trace.schema import CONTINUE, PARTITIONS, QUORUM, Row

__all__ = [
    "CLOCKS",
    "MAX_VIOLATIONS",
    "PROPERTIES",
    "REGIONAL_PROPERTIES",
    "PropertyResult",
    "Trace",
    "Verdict",
    "Violation",
    "causal",
    "check_all",
    "fifo",
    "group_fifo",
    "integrity",
    "liveness",
    "promises",
    "region_views",
    "regional",
    "resilience",
    "total_order",
    "virtual_synchrony",
    "well_formed",
]

CLOCKS: Final = ("virtual", "one-host", "many")

PROPERTIES: Final = (
    well_formed.NAME,
    integrity.NAME,
    fifo.NAME,
    causal.NAME,
    total_order.NAME,
    virtual_synchrony.NAME,
    resilience.NAME,
    promises.NAME,
    liveness.NAME,
)
"""All properties in the order of judgement. Promises before liveness: a lost confirmed message is the worse fault."""

REGIONAL_PROPERTIES: Final = (region_views.NAME, group_fifo.NAME, regional.NAME)
"""What is judged, in this order and between the others, of a trace that has regions."""


def check_all(
    rows: Iterable[Row],
    *,
    clock: str = "virtual",
    quiet: bool = True,
    expect: Sequence[str] | None = None,
    min_members: Rules = "majority",
    bootstrap: int = 1,
    partitions: str = QUORUM,
) -> Verdict:
    """Judge every property of a trace.

    `clock` is that of `run.json`. `quiet` says that the run came to rest with a whole network (see `liveness`).
    `expect` names properties that must have examined something: where one did not, the verdict does not hold.
    `min_members` is the failure policy of the groups: which members may legally be left blocked at the end, and
    whether two parts of a partition may both go on. One rule for all, or one for each node by its name. A number is
    also what a member needs to take part at all, and so is, for all of them until it is reached once, `bootstrap`.
    `partitions` is that of `run.json`: with "continue" every part of a partition goes on (`components.py`), and
    `min_members` is 1.
    """
    if clock not in CLOCKS:
        raise ValueError(f"unknown clock {clock!r}; choose one of {', '.join(CLOCKS)}")
    known = (*PROPERTIES, *REGIONAL_PROPERTIES)
    unknown = [name for name in expect or () if name not in known]
    if unknown:
        raise ValueError(f"unknown properties {', '.join(unknown)}; choose from {', '.join(known)}")
    if partitions not in PARTITIONS:
        raise ValueError(f"unknown partitions {partitions!r}; choose one of {', '.join(PARTITIONS)}")
    has_components = partitions == CONTINUE
    min_members = 1 if has_components else min_members
    trace = Trace(rows)
    explained = Explained()
    regions = RegionalTrace(trace, comparable=clock != "many")
    results = [
        well_formed.check(trace),
        integrity.check(trace, clock=clock, regional=regions),
        *([region_views.check(regions)] if regions else []),
        fifo.check(trace, explained, regional=regions),
        *([group_fifo.check(regions, explained)] if regions else []),
        causal.check(trace, explained),
        total_order.check(trace, explained),
        virtual_synchrony.check(trace, explained, min_members=min_members, has_components=has_components),
        resilience.check(trace, explained, clock=clock, quiet=quiet, has_components=has_components),
        *([regional.check(regions, explained, quiet=quiet)] if regions else []),
        promises.check(
            *(trace, explained),
            clock=clock,
            quiet=quiet,
            min_members=min_members,
            bootstrap=bootstrap,
            has_components=has_components,
        ),
        liveness.check(
            *(trace, explained),
            clock=clock,
            quiet=quiet,
            min_members=min_members,
            has_components=has_components,
            regional=regions,
        ),
    ]
    return Verdict({result.name: result for result in results}, trace.row_count, tuple(expect or ()))
