"""Property 5: members that go together from view to view deliver the same in between, and views are what they say.

The same set is a comparison of digests: of all lives that went from V to the same next view, what they delivered of
each sender to each target. Rows are compared only if two digests differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ordercast.pipeline.verify import components, group_views
from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.evidence import quoted
from ordercast.pipeline.verify.facts import ORDERED_CLASS, Cell, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import BETWEEN, FOREVER, Ancestry, Life, Line, Rules, ViewPeriod, is_strict
from ordercast.pipeline.verify.ranges import Range, common_of, merged, minus
from ordercast.pipeline.verify.shared import shared_rows

NAME: Final = "virtual_synchrony"

Path = tuple[Life, list[ViewPeriod]]


def check(facts: Facts, findings: Findings) -> None:
    """Judge views, and what is delivered in them."""
    for line in facts.lines:
        found = findings.totals[NAME]
        _check_place(facts, findings, line)
        paths: list[Path] = [(life, life.periods) for life in line.lives.values() if life.periods]
        _check_views(facts, findings, line, None, paths)
        _check_forks(facts, findings, [life.periods for life in line.nodes if life.periods], facts.rules[line.r])
        if line.lightweight:
            _check_groups(facts, findings, line)
        if facts.has_components(line.r) and findings.totals[NAME] == found:  # what lies would be reported twice
            components.check_signals(facts, findings, line)


def _check_groups(facts: Facts, findings: Findings, line: Line) -> None:
    by_group: dict[str, list[Path]] = {}
    for life in line.lives.values():
        for group, periods in life.group_periods.items():
            by_group.setdefault(group, []).append((life, periods))
    told: set[str] = set()
    for group, paths in sorted(by_group.items()):
        found = findings.totals[NAME]
        _check_views(facts, findings, line, group, paths)
        if findings.totals[NAME] > found:
            told.add(group)
    group_views.check_missed(facts, findings, line, told)
    group_views.check_places(facts, findings, line, told)
    if not told:
        group_views.check_order(facts, findings, line)


def _check_place(facts: Facts, findings: Findings, line: Line) -> None:
    """A member delivers only in the view that it is in."""
    for life in line.lives.values():
        if life.is_session and not life.periods:
            continue  # its daemon is not in the trace
        for cell in facts.cells_of.get(life.m, ()):
            if cell.ru != line.ru or cell.sid < 0 or _is_inside(life, cell):
                continue
            rows = facts.engine.rows(
                f"SELECT n, a, b, sid, sender, tgt FROM {{dlv}} WHERE m = {cell.m} AND vw = '{quoted(cell.view)}' "
                f"AND cls = {cell.cls} AND tgt = '{quoted(cell.target)}' ORDER BY n LIMIT 1000"
            )
            is_first = True
            for row in rows:
                if (row["sid"] if row["sid"] is not None else -1) != cell.sid or (cell.m, row["n"]) in findings.tainted:
                    continue
                period = life.at(row["n"])
                if period is not None and (period.view == cell.view or _is_group_view(life, cell, row["n"])):
                    continue
                where = f"was in view {period.view}" if period is not None else "was in no view"
                text = f"{life.name} delivered it in view {cell.view} (n={row['n']}), but {where} then"
                severity = ROOT if is_first else CONSEQUENCE
                is_first = False
                findings.miss(cell.m, cell.sid, (row["a"], row["b"]))
                message = span_text(row["sender"], (row["a"], row["b"]))
                _add(
                    facts,
                    findings,
                    life.m,
                    severity,
                    text,
                    view=cell.view,
                    message=message,
                    n=row["n"],
                    group=row["tgt"],
                )


def _is_inside(life: Life, cell: Cell) -> bool:
    period = life.by_view.get(cell.view)
    if period is not None and period.n < cell.first_n and cell.last_n < period.stop_n:
        return True
    return _is_group_view(life, cell, cell.first_n) and _is_group_view(life, cell, cell.last_n)


def _is_group_view(life: Life, cell: Cell, n: int) -> bool:
    """The row may name the view of its lightweight group."""
    return (
        life.host is None
        and life.at(n) is not None
        and any(
            period.view == cell.view and period.n < n < period.stop_n
            for group in cell.target.split(BETWEEN)
            for period in life.group_periods.get(group, ())
        )
    )


def _check_views(facts: Facts, findings: Findings, line: Line, group: str | None, paths: list[Path]) -> None:
    installs: dict[str, list[ViewPeriod]] = {}
    written = [(life, path) for life, path in paths if group is not None or life.host is None]
    for _, path in written:
        for period in path:
            findings.checked[NAME] += 1
            installs.setdefault(period.view, []).append(period)
    for view, arrivals in installs.items():
        first = arrivals[0]
        for period in arrivals[1:]:
            if period.members != first.members:
                text = (
                    f"view {view} is {_names(period.members)} at {period.name} (n={period.n}), but "
                    f"{_names(first.members)} at {first.name}"
                )
                _add(facts, findings, period.m, ROOT, text, view=view, other=first.name, n=period.n, group=group)
                break
    _check_view_order(facts, findings, line, group, written)
    for view, arrivals in installs.items():
        if group is not None and any(not period.came_with for period in arrivals):
            continue
        if facts.has_components(line.r):
            components.check_classes(facts, findings, view, arrivals)
        else:
            _check_came_with(facts, findings, view, arrivals, group)
    for part in components.classes_of((path for _, path in paths), facts.has_components(line.r)):
        old, view = part[0].view, part[0].next.view if part[0].next is not None else ""
        if group is not None and any(not period.came_with for period in installs[view]):
            continue
        findings.checked[NAME] += len(part) - 1
        if len(part) > 1 and group is None:
            _check_same_set(facts, findings, line, old, view, part)
        elif len(part) > 1:
            _check_group_set(facts, findings, line, group or "", old, view, part)


def _check_came_with(
    facts: Facts, findings: Findings, view: str, arrivals: list[ViewPeriod], group: str | None
) -> None:
    came_from = {one.name: one.prev.view if one.prev is not None else None for one in arrivals}
    for period in arrivals:
        came, mine = set(period.came_with), came_from[period.name]
        for name, theirs in came_from.items():
            together = mine is not None and theirs == mine
            if name != period.name and together != (name in came):
                claim = "leaves out" if together else "names"
                text = (
                    f"came_with of view {view} at {period.name} (n={period.n}, from {mine or 'outside'}) "
                    f"{claim} {name}, which came from {theirs or 'outside'}"
                )
                _add(facts, findings, period.m, ROOT, text, view=view, other=name, n=period.n, group=group)
        if mine is None and came - {period.name} and not came & (came_from.keys() - {period.name}):
            text = (
                f"{period.name} came into view {view} (n={period.n}) from outside, but names "
                f"{_names(sorted(came))} in came_with"
            )
            _add(facts, findings, period.m, ROOT, text, view=view, n=period.n, group=group)


def _check_view_order(facts: Facts, findings: Findings, line: Line, group: str | None, paths: list[Path]) -> None:
    place = Ancestry([path for _, path in paths]).place
    stuck = {period.view for _, path in paths for period in path if period.view not in place}
    seen: dict[tuple[str, str], str] = {}
    for life, path in paths if stuck else ():
        ones = [period for period in path if period.view in stuck]
        for at, left in enumerate(ones):
            for right in ones[at + 1 :]:
                other = seen.get((right.view, left.view))
                if other is not None and other != life.name:
                    text = (
                        f"{life.name} installed view {left.view} before {right.view} (n={right.n}), {other} the "
                        "other way round"
                    )
                    _add(facts, findings, life.m, ROOT, text, view=right.view, other=other, n=right.n, group=group)
                    return
                seen.setdefault((left.view, right.view), life.name)
    if stuck:
        life, path = paths[0]
        text = f"views {', '.join(sorted(stuck))} of {group or line.underlay} have no common order"
        _add(facts, findings, life.m, ROOT, text, view=min(stuck), n=path[0].n, group=group)


def _check_forks(facts: Facts, findings: Findings, paths: list[list[ViewPeriod]], rules: Rules) -> None:
    """Of two recoveries with a common ancestor one is behind the other, where only one part may go on."""
    found: dict[str, ViewPeriod] = {}
    for path in paths:
        for period in path:
            if period.prev is not None and period.prev.transitional_n < FOREVER:
                found.setdefault(period.view, period)
    findings.checked[NAME] += len(found)
    ancestry = Ancestry(paths)
    ends = [one for one in found.values() if one.prev is not None and is_strict(one.prev.members, rules)]
    ends.sort(key=lambda one: (ancestry.place.get(one.view, -1), one.view))
    told: list[tuple[str, str]] = []
    for at, right in enumerate(ends):
        for left in ends[:at]:
            left_line, right_line = ancestry.line(left.view), ancestry.line(right.view)
            shared = left_line & right_line
            if not shared or left.view in right_line or right.view in left_line:
                continue
            if ancestry.may_part(left.view, right.view, rules):
                continue
            if any(one in left_line ^ right_line and two in left_line ^ right_line for one, two in told):
                continue
            told.append((left.view, right.view))
            text = (
                f"from view {ancestry.latest(shared)} two parts went on: {left.name} to {left.view}, {right.name} "
                f"to {right.view} (n={right.n})"
            )
            _add(facts, findings, right.m, ROOT, text, view=right.view, other=left.name, n=right.n)


def _check_same_set(facts: Facts, findings: Findings, line: Line, old: str, view: str, part: list[ViewPeriod]) -> None:
    """Digest by digest, and row by row if they differ. On a shared underlay row by row: each has its own groups."""
    if line.lightweight:
        for sid, lacks, holder in group_views.lacking(shared_rows(facts, findings, line), line, part):
            _report_lacks(facts, findings, old, view, sid, *_joined(lacks, holder))
        return
    by_key: dict[tuple[int, str], dict[int, int]] = {}
    for period in part:
        for cell in facts.cells_of.get(period.m, ()):
            if cell.ru == line.ru and cell.sid >= 0 and cell.cls == ORDERED_CLASS and _is_of(cell, period):
                by_key.setdefault((cell.sid, cell.target), {})[period.m] = cell.rep
    doubtful = {sid for (sid, _), reps in by_key.items() if len({reps.get(one.m) for one in part}) > 1}
    for sid in sorted(doubtful):
        _compare(facts, findings, line, old, view, part, sid)


def _is_of(cell: Cell, period: ViewPeriod) -> bool:
    return period.n < cell.first_n < period.stop_n


def _compare(
    facts: Facts,
    findings: Findings,
    line: Line,
    old: str,
    view: str,
    part: list[ViewPeriod],
    sid: int,
) -> None:
    """Which of the members that went together lack messages of this sender that another has."""
    cells = {
        one.m: [
            cell for cell in facts.cells_at.get((one.m, sid), ()) if cell.cls == ORDERED_CLASS and _is_of(cell, one)
        ]
        for one in part
    }
    if any(cell.last_n >= one.stop_n for one in part for cell in cells[one.m]):
        found = [row for row in _group_rows(facts, line, part) if row["sid"] == sid]  # some are out of their view
        everything = {m: merged((row["a"], row["b"]) for row in found if row["m"] == m) for m in cells}
        rows = [row for row in found if (row["m"], row["n"]) not in findings.tainted]
    else:
        content = facts.content(cell for ones in cells.values() for cell in ones)
        everything = {
            m: merged((row["a"], row["b"]) for cell in ones for row in content[cell.rep]) for m, ones in cells.items()
        }
        common = set.intersection(*({cell.rep for cell in ones} for ones in cells.values()))  # all have these
        rows = [
            row
            for rep, each in sorted(content.items())
            if rep not in common
            for row in each
            if not facts.is_rejected(row, findings.tainted)
        ]
    anything = merged((row["a"], row["b"]) for row in rows)
    lacks: dict[Range, list[int]] = {}
    holder: dict[Range, int] = {}
    for period in part:
        mine = everything.get(period.m, [])
        lacking = minus(anything, mine)
        for row in rows if lacking else ():
            spans = common_of((row["a"], row["b"]), lacking) if row["m"] != period.m else []
            if not spans:
                continue
            has = next((m for m, ones in cells.items() if any(cell.rep == row.get("c") for cell in ones)), row["m"])
            for span in spans:
                holder.setdefault(span, has)
                if period.m not in lacks.setdefault(span, []):
                    lacks[span].append(period.m)
    lacks, holder = _joined(lacks, holder)
    _report_lacks(facts, findings, old, view, sid, lacks, holder)


def _joined(lacks: dict[Range, list[int]], holder: dict[Range, int]) -> tuple[dict[Range, list[int]], dict[Range, int]]:
    """Ranges that touch, are lacked by the same and had by the same, made one."""
    found: dict[Range, list[int]] = {}
    had: dict[Range, int] = {}
    last: Range | None = None
    for span in sorted(lacks):
        if last is not None and last[1] == span[0] and (found[last], had[last]) == (lacks[span], holder[span]):
            found[last[0], span[1]] = found.pop(last)
            had[last[0], span[1]] = had.pop(last)
            last = last[0], span[1]
        else:
            found[span], had[span], last = lacks[span], holder[span], span
    return found, had


def _report_lacks(
    facts: Facts,
    findings: Findings,
    old: str,
    view: str,
    sid: int,
    lacks: dict[Range, list[int]],
    holder: dict[Range, int],
    group: str | None = None,
) -> None:
    for span, ones in sorted(lacks.items()):
        open_ones = [m for m in ones if findings.miss(m, sid, span)]
        who = open_ones or ones
        had = facts.members[holder[span]].name
        names = ", ".join(facts.members[m].name for m in who)
        text = f"{names} went with {had} from view {old} to {view} without it, which {had} delivered in {old}"
        severity = ROOT if open_ones else CONSEQUENCE
        life = facts.life_of(facts.senders[sid].ru, who[0])
        periods = life.periods if group is None else life.group_periods.get(group, [])
        n = next((one.n for one in periods if one.view == view), None)
        message = span_text(facts.senders[sid].name, span)
        _add(facts, findings, who[0], severity, text, view=old, message=message, other=had, n=n, group=group)


def _check_group_set(
    facts: Facts, findings: Findings, line: Line, group: str, old: str, view: str, part: list[ViewPeriod]
) -> None:
    """Views of a lightweight group: messages to it that lie between them."""
    rows = shared_rows(facts, findings, line)
    haves = {one.m: rows.sets(one, group) for one in part}
    if all(have == haves[part[0].m] for have in haves.values()):
        return
    everything = {one.m: rows.sets(one, None) for one in part}
    for sid in sorted({sid for have in haves.values() for sid in have}):
        lacks: dict[Range, list[int]] = {}
        holder: dict[Range, int] = {}
        for source, have in haves.items():
            for m, mine in everything.items():
                for span in minus(have.get(sid, []), mine.get(sid, [])):
                    holder.setdefault(span, source)
                    if m not in lacks.setdefault(span, []):
                        lacks[span].append(m)
        _report_lacks(facts, findings, old, view, sid, lacks, holder, group)


def _group_rows(facts: Facts, line: Line, part: list[ViewPeriod]) -> list[Record]:
    """All that was delivered in these periods, row by row: where cells go beyond them."""
    columns = [("m", "int"), ("n", "bigint"), ("stop_n", "bigint")]
    facts.engine.load("spans", columns, [(one.m, one.n, one.stop_n) for one in part])
    source = facts.of_lives({one.m for one in part})
    return facts.engine.rows(
        f"SELECT d.m, d.n, d.sid, d.a, d.b, d.tgt, d.pos FROM {source} d JOIN {{spans}} x ON d.m = x.m "
        "AND d.n > x.n AND d.n < x.stop_n JOIN {snd} s ON d.sid = s.sid "
        f"WHERE s.ru = {line.ru} AND d.cls = 3"
    )


def _names(names: Iterable[str]) -> str:
    return "[" + " ".join(names) + "]"


def _add(
    facts: Facts,
    findings: Findings,
    m: int,
    severity: str,
    text: str,
    *,
    view: str | None = None,
    message: str | None = None,
    other: str | None = None,
    n: float | None = None,
    group: str | None = None,
) -> None:
    findings.add(
        ViolationRow(
            facts.run_of(m), NAME, severity, group or None, view, facts.members[m].name, message, other, None, text, n
        )
    )
