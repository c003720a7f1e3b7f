"""The top of the report: the outcome of verification, in a form that does not depend on the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SHOWN: Final = 200  # rows of evidence in the page


@dataclass(frozen=True, slots=True)
class JudgedProperty:
    """One property: how much was examined, how often it was violated, and why it was not judged, if it was not."""

    name: str
    checked: int
    violations: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReportVerdict:
    """`by` names the judge; each row of `evidence` has the columns of the violations table."""

    by: str
    properties: Sequence[JudgedProperty]
    evidence: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def held(self) -> bool:
        return not any(one.violations for one in self.properties)

    def as_json(self, runs: Sequence[str]) -> dict[str, Any]:
        """For the page. Only root causes count for a run."""
        roots = dict.fromkeys(runs, 0)
        for row in self.evidence:
            if row.get("severity") == "root" and row.get("run") in roots:
                roots[row["run"]] += 1
        return {
            "held": self.held,
            "by": self.by,
            "properties": [
                {"name": one.name, "checked": one.checked, "violations": one.violations, "note": one.note}
                for one in self.properties
            ],
            "violations": [dict(row) for row in self.evidence[:SHOWN]],
            "found": len(self.evidence),
            "runs": [{"name": name, "violations": count} for name, count in roots.items()],
        }
