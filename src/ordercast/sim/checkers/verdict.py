"""What the checkers say: violations with evidence, per property, in the order in which faults cause one another.

One fault shows in several checks (a duplicate trips FIFO and virtual synchrony, too),
so a verdict is made root causes first: a delivery that a former property rejected, or a message that it found
missing, is not reported again by a later one. `Explained` carries that knowledge from check to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ordercast.sim.checkers.ranges import Range, RangeSet, subtract

MAX_VIOLATIONS: Final = 100
"""Violations kept for each property; more are counted in `total` and forgotten."""

SUMMARY_VIOLATIONS: Final = 5
"""Violations that `Verdict.summary` prints for each property."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: the members and messages that it is about, and a sentence that a person can check."""

    property: str
    evidence: str
    node: str | None = None
    life: int | None = None
    other: str | None = None
    sender: str | None = None
    first: int | None = None
    count: int | None = None
    view: str | None = None

    def __str__(self) -> str:
        return f"{self.property}: {self.evidence}"


@dataclass(slots=True)
class PropertyResult:
    """The judgement of one property. `checked` counts what was examined, so that a vacuous check is visible."""

    name: str
    unit: str
    checked: int = 0
    total: int = 0
    violations: list[Violation] = field(default_factory=list)
    judged: bool = True
    note: str = ""

    @property
    def held(self) -> bool:
        """True if nothing was found against it; also where it was not judged."""
        return self.total == 0

    def report(
        self,
        evidence: str,
        *,
        member: str | None = None,
        other: str | None = None,
        sender: str | None = None,
        span: Range | None = None,
        view: str | None = None,
    ) -> None:
        """Count a violation, and keep it while there is room."""
        self.total += 1
        if len(self.violations) >= MAX_VIOLATIONS:
            return
        node, life = split_member(member) if member is not None else (None, None)
        first, count = (span[0], span[1] - span[0]) if span is not None else (None, None)
        self.violations.append(Violation(self.name, evidence, node, life, other, sender, first, count, view))


@dataclass(slots=True)
class Verdict:
    """All properties of one trace, in the order of judgement."""

    properties: dict[str, PropertyResult]
    rows: int
    expect: tuple[str, ...] = ()

    @property
    def vacuous(self) -> list[str]:
        """Properties that the caller expected to see examined, and that examined nothing."""
        judged = {name for name, result in self.properties.items() if result.judged and result.checked}
        return [name for name in self.expect if name not in judged]

    @property
    def held(self) -> bool:
        """No violation anywhere, and nothing vacuous that was expected to be examined."""
        return not self.vacuous and all(result.held for result in self.properties.values())

    @property
    def violations(self) -> list[Violation]:
        """The kept violations of all properties, root causes first."""
        return [violation for result in self.properties.values() for violation in result.violations]

    def summary(self) -> list[str]:
        """Lines for people: one for each property, and the first pieces of evidence below it."""
        lines = [f"{'held' if self.held else 'VIOLATED'}: {self.rows} rows"]
        for name, result in self.properties.items():
            if not result.judged:
                lines.append(f"  {name}: not judged ({result.note})")
                continue
            state = "held" if result.held else f"VIOLATED {result.total} times"
            empty = ", expected more" if name in self.vacuous else ""
            lines.append(f"  {name}: {state}, {result.checked} {result.unit} examined{empty}")
            lines.extend(f"    {violation.evidence}" for violation in result.violations[:SUMMARY_VIOLATIONS])
            if result.total > SUMMARY_VIOLATIONS:
                lines.append(f"    and {result.total - SUMMARY_VIOLATIONS} more")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain dictionaries and lists, ready for `json.dumps`."""
        return {
            "held": self.held,
            "rows": self.rows,
            "vacuous": self.vacuous,
            "properties": {
                name: {
                    "held": result.held,
                    "judged": result.judged,
                    "note": result.note,
                    "checked": result.checked,
                    "unit": result.unit,
                    "total": result.total,
                    "violations": [asdict(violation) for violation in result.violations],
                }
                for name, result in self.properties.items()
            },
        }


class Explained:
    """What earlier properties have already reported, so that later ones stay silent about its consequences."""

    __slots__ = ("misordered", "missing")

    def __init__(self) -> None:
        self.misordered: set[int] = set()  # id() of deliveries out of order; the trace keeps them alive
        self.missing: dict[tuple[str, str, str], RangeSet] = {}  # (member, underlay, sender) -> numbers not delivered

    def add_missing(self, member: str, underlay: str, sender: str, ranges: Sequence[Range]) -> None:
        """These messages are known to be missing at `member`, or to have come out of order there."""
        known = self.missing.setdefault((member, underlay, sender), RangeSet())
        for first, stop in ranges:
            known.add(first, stop)

    def unexplained(self, member: str, underlay: str, sender: str, ranges: list[Range]) -> list[Range]:
        """The part of `ranges` that was not reported yet."""
        known = self.missing.get((member, underlay, sender))
        return ranges if known is None else subtract(ranges, known.ranges())


def split_member(member: str) -> tuple[str, int | None]:
    """`name/life` as its two parts; the life is None where the text has none."""
    name, _, life = member.rpartition("/")
    return (name, int(life)) if name and life.isdigit() else (member, None)


def span_text(sender: str, span: Range) -> str:
    """A message range as people read it: `a/0 #3` or `a/0 #3-7` (inclusive)."""
    first, stop = span
    return f"{sender} #{first}" if stop == first + 1 else f"{sender} #{first}-{stop - 1}"
