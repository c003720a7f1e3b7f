"""How checks report a message that one member has and another contradicts, and how they quote names in SQL."""

from __future__ import annotations

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import Facts
from ordercast.pipeline.verify.findings import Findings, ViolationRow, span_text
from ordercast.pipeline.verify.ranges import Range


def add_row(
    facts: Facts,
    findings: Findings,
    name: str,
    severity: str,
    row: Record,
    text: str,
    other: str | None,
    other_message: str | None,
) -> None:
    """Report the messages of a row of a life: `n` and `vw` say where it stands."""
    span: Range = row["a"], row["b"]
    member = facts.members[row["m"]]
    message = span_text(facts.senders[row["sid"]].name, span)
    findings.add(
        ViolationRow(
            *(facts.run_of(member.m), name, severity, row["tgt"] or None, row["vw"], member.name),
            *(message, other, other_message, text, row["n"]),
        )
    )


def quoted(text: str) -> str:
    """A name inside quotes in the text of a query, in which braces name tables."""
    return text.replace("'", "''").replace("{", "{{").replace("}", "}}")
