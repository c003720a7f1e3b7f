"""What was found: violations with their evidence, and which of them explains which.

One fault shows in several checks. A missing message is a hole in the order of its sender, a difference between members
that go on together, and a debt at the end. The checks run in the order in which faults cause one another. A later check
that finds the trace of a fault that was reported already keeps it as a *consequence*: it is in the table, behind the
root causes, and does not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ordercast.pipeline.verify.history import BETWEEN
from ordercast.pipeline.verify.ranges import Range, merged, minus

if TYPE_CHECKING:
    from ordercast.pipeline.verify.shared import SharedRows

PROPERTIES: Final = (
    "integrity",
    "fifo",
    "causal",
    "total_order",
    "virtual_synchrony",
    "resilience",
    "liveness",
    "promises",
)
REGIONAL: Final = ("region_views", "group_fifo", "regional")  # judged where a trace has regions
ALL: Final = (*PROPERTIES, *REGIONAL)
ROOT: Final = "root"
CONSEQUENCE: Final = "consequence"
MAX_KEPT: Final = 1000  # violations of one property that are kept; more are counted


class ViolationRow(NamedTuple):
    """One row of the table of violations; `n` is where to look: the number of an event at `node`."""

    run: str
    property: str
    severity: str
    group: str | None
    view: str | None
    node: str | None
    message: str | None
    other_node: str | None
    other_message: str | None
    detail: str
    n: float | None = None


COLUMNS: Final = ViolationRow._fields[:-1]


@dataclass(slots=True)
class Findings:
    """All that was found, in the order in which it was found."""

    checked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ALL, 0))
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ALL, 0))
    not_judged: dict[str, str] = field(default_factory=dict)  # property -> why, where some run could not be judged
    has_regions: bool = False
    kept: list[ViolationRow] = field(default_factory=list)
    room: dict[str, int] = field(default_factory=dict)  # property -> violations so far, consequences too
    # what is explained
    misplaced: set[tuple[int, int, int]] = field(default_factory=set)  # (life, sender, number) out of place there
    tainted: set[tuple[int, int]] = field(default_factory=set)  # (life, n) of deliveries that property 1 rejected
    missing: dict[tuple[int, int], list[Range]] = field(default_factory=dict)  # (life, sender) -> numbers not there
    renamed: dict[tuple[int, int], str] = field(
        default_factory=dict
    )  # (sender, number) -> target, where deliveries differ
    shared: dict[int, SharedRows] = field(default_factory=dict)  # by underlay: rows of what was delivered

    def add(self, violation: ViolationRow) -> None:
        """Count a violation, and keep it while there is room."""
        if violation.severity == ROOT:
            self.totals[violation.property] += 1
        seen = self.room.get(violation.property, 0)
        self.room[violation.property] = seen + 1
        if seen < MAX_KEPT:
            group = "+".join(violation.group.split(BETWEEN)) if violation.group is not None else None
            n = math.ceil(violation.n) if violation.n is not None else None  # that of the event behind a view
            self.kept.append(violation._replace(group=group, n=n))

    def miss(self, life: int, sender: int, span: Range) -> bool:
        """Note that these messages are missing; whether that is new."""
        known = self.missing.get((life, sender), [])
        is_new = bool(minus([span], known))
        self.missing[life, sender] = merged([*known, span])
        return is_new

    def violations(self) -> list[ViolationRow]:
        """Root causes in the order of judgement, then their consequences."""
        place = {name: at for at, name in enumerate(ALL)}
        return sorted(self.kept, key=lambda one: (one.severity != ROOT, place[one.property]))

    @property
    def judged(self) -> tuple[str, ...]:
        """The properties that these traces ask for."""
        return ALL if self.has_regions else PROPERTIES

    @property
    def held(self) -> bool:
        return not any(self.totals.values())


def span_text(sender: str, span: Range) -> str:
    """`a/0 #3`, or `a/0 #3-7` (inclusive)."""
    first, stop = span
    return f"{sender} #{first}" if stop == first + 1 else f"{sender} #{first}-{stop - 1}"
