"""What the lives of a shared underlay delivered, life by life, on the driver.

Views of lightweight groups change within the views of the underlay, so what lies between two of them is no cell
(`facts.py`). The rows of such an underlay come to the driver instead: all at once where they are few, otherwise life by
life as columns of numbers. Underlays without lightweight groups are never read in this way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ordercast.pipeline.verify.facts import AGREED, Facts
from ordercast.pipeline.verify.history import Line, ViewPeriod
from ordercast.pipeline.verify.ranges import Range, merged

if TYPE_CHECKING:
    from ordercast.pipeline.verify.findings import Findings


class SharedRow(NamedTuple):
    """A delivery; `target` is that of its submit, also where the delivery names another."""

    n: int
    sid: int
    a: int
    b: int
    svc: int
    pos: int
    target: str

    @property
    def last(self) -> int:
        """The position of the last of its messages."""
        return self.pos + self.b - self.a - 1


class SharedRows:
    """The deliveries of one shared underlay. What property 1 rejected counts as delivered, and for nothing else."""

    __slots__ = ("_by_group", "_facts", "_findings", "_line", "_numbers", "_rejected", "_rows")

    def __init__(self, facts: Facts, findings: Findings, line: Line) -> None:
        self._facts = facts
        self._findings = findings
        self._line = line
        self._rows: dict[int, list[SharedRow]] = {}
        self._rejected: dict[int, list[SharedRow]] = {}
        self._numbers: dict[int, list[int]] = {}
        self._by_group: dict[int, dict[str, list[SharedRow]]] = {}

    def of(self, m: int) -> list[SharedRow]:
        """All that a life delivered and property 1 accepted, in the order of its events."""
        found = self._rows.get(m)
        if found is None:
            tainted = self._findings.tainted
            rows = sorted(self._read(m))
            found = self._rows[m] = [row for row in rows if (m, row.n) not in tainted]
            self._rejected[m] = [row for row in rows if (m, row.n) in tainted]
        return found

    def everything(self, m: int) -> list[SharedRow]:
        """All that a life delivered, with what property 1 rejected."""
        return [*self.of(m), *self._rejected[m]]

    def ordered(self, m: int, from_n: float, to_n: float) -> list[SharedRow]:
        """What has a position, between these two events."""
        rows = self.of(m)
        numbers = self._numbers.get(m)
        if numbers is None:
            numbers = self._numbers[m] = [row.n for row in rows]
        return [row for row in rows[bisect_right(numbers, from_n) : bisect_left(numbers, to_n)] if row.svc >= AGREED]

    def sets(self, period: ViewPeriod, group: str | None) -> dict[int, list[Range]]:
        """By sender what has a position, in a period, to one group; or to all, then with what was rejected."""
        spans: dict[int, list[Range]] = {}
        if group is None:
            rows = self.ordered(period.m, period.n, period.stop_n)
            rows += [row for row in self._rejected[period.m] if period.n < row.n < period.stop_n and row.svc >= AGREED]
        else:
            to_group = self._to_groups(period.m).get(group, [])
            first = bisect_right(to_group, period.n, key=_number)
            rows = to_group[first : bisect_left(to_group, period.stop_n, key=_number)]
        for row in rows:
            spans.setdefault(row.sid, []).append((row.a, row.b))
        return {sid: merged(ones) for sid, ones in spans.items()}

    def _to_groups(self, m: int) -> dict[str, list[SharedRow]]:
        found = self._by_group.get(m)
        if found is None:
            found = self._by_group[m] = {}
            for row in self.of(m):
                for group in self._line.targets(row.target) or () if row.svc >= AGREED else ():
                    found.setdefault(group, []).append(row)
        return found

    def _read(self, m: int) -> Iterator[SharedRow]:
        facts, renamed = self._facts, self._findings.renamed
        small = facts.small_line(self._line.ru)
        if small is not None:
            mine = [row for (one, _), rows in small[0].items() if one == m for row in rows]
            columns = [(row["n"], row["sid"], row["a"], row["b"], row["svc"], row["pos"], row["tgt"]) for row in mine]
        else:
            facts.define_numbers("num_life", {m})
            found = facts.engine.columns(
                f"SELECT n, d.sid, a, b, svc, coalesce(pos, -1) AS pos, t FROM {{num_life}} d "
                f"JOIN {{snd}} s ON d.sid = s.sid WHERE s.ru = {self._line.ru}"
            )
            facts.names.find_targets(set(found["t"].tolist()))
            names = facts.names.targets
            numbers = [found[name].tolist() for name in ("n", "sid", "a", "b", "svc", "pos")]
            columns = list(zip(*numbers, [names[t] for t in found["t"].tolist()], strict=True))
        for n, sid, a, b, svc, pos, target in columns:
            yield SharedRow(n, sid, a, b, svc, pos if pos is not None else -1, renamed.get((sid, a)) or target)


def _number(row: SharedRow) -> float:
    return row.n


def shared_rows(facts: Facts, findings: Findings, line: Line) -> SharedRows:
    """Of this underlay, read once. After property 1 has said what is rejected."""
    found = findings.shared.get(line.ru)
    if found is None:
        found = findings.shared[line.ru] = SharedRows(facts, findings, line)
    return found
