"""Part of property 8: nobody takes part in a view that has too few members.

Reading.

- *Too few for a member*: it joined with a number for `min_members`, and its view has fewer members. Its `submit`,
  `confirm` and `lock` rows stand in views that have so many. A lock that it holds already it may keep.
- *Too few for the group*: it was made with `bootstrap`, and no view of the chain up to this one has had so many
  members. A view that some member came to from another follows that one in the chain. A view that made the group
  follows none. Where the trace shows only newcomers in a view, it does not tell what came before, and nothing is said.
  In such a view nothing ordered is delivered either, whichever member or caller sent it. Weaker services come on
  arrival, perhaps before the view in which they were sent.

The definition is the judge's own, on purpose not the engine's code (`config.members_needed`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ordercast.service import AGREED_RANK
from ordercast.sim.checkers.chain import InstalledView, installed_views
from ordercast.sim.checkers.records import Local, MemberPeriod, UnderlayTrace
from ordercast.sim.checkers.verdict import PropertyResult
from ordercast.sim.checkers.views import Rules, rule_of
from ordercast.trace.schema import Row

CREATED: Final = "create"


def check_attendance(underlay: UnderlayTrace, result: PropertyResult, rules: Rules, bootstrap: int) -> None:
    """Judge what members did against the sizes of their views."""
    lines = [local.periods for local in underlay.nodes]
    sizes = {period.view: len(period.members) for periods in lines for period in periods}
    created = {period.view for periods in lines for period in periods if period.reason == CREATED}
    follows = [(period.prev.view, period.view) for periods in lines for period in periods if period.prev is not None]
    unopened = _unopened(sizes, created, follows, bootstrap)
    for local in underlay.locals.values():
        least = _least(rules, underlay.host(local.member))
        if least == 1 and not unopened:
            continue
        deeds = [(n, what, least) for n, what in _deeds(local)]
        if unopened:  # others may have sent it, and when there were more members
            ordered = [one for one in local.deliveries if one.rank >= AGREED_RANK]
            deeds += [(one.n, f"delivered message {one.first} of {one.sender}", 1) for one in ordered]
        for n, what, asked in deeds:
            period = local.period_at(n)
            if period is None:
                continue
            result.checked += 1
            why = _objection(period, asked, bootstrap, period.view in unopened)
            if why:
                result.report(f"{local.member} {what} (n={n}) in {why}", member=local.member, view=period.view)


def short_members(
    rows: Iterable[Row], rules: Rules, bootstrap: int, views: dict[str, InstalledView] | None = None
) -> set[str]:
    """The lives whose last view has too few members for them. `views`: those of the rows, where more is known of what
    came before them than the rows say: restarted members go on where their former lives were."""
    rows = list(rows)
    views = installed_views(rows) if views is None else views
    sizes = {name: len(view.members) for name, view in views.items()}
    created = {name for name, view in views.items() if view.reason == CREATED}
    follows = [(earlier, name) for name, view in views.items() for earlier in view.before]
    unopened = _unopened(sizes, created, follows, bootstrap)
    last: dict[str, str] = {}
    for row in rows:
        member = f"{row.node}/{row.life}"
        if row.group is None and row.kind == "view":
            last[member] = row.view or ""
        elif row.group is None and row.kind == "leave":
            last.pop(member, None)
    return {member for member, view in last.items() if view in unopened or sizes[view] < _least(rules, member)}


def _unopened(sizes: dict[str, int], created: set[str], follows: list[tuple[str, str]], bootstrap: int) -> set[str]:
    """The views of which the trace shows that no view up to them had enough members."""
    if bootstrap <= 1:
        return set()
    after: dict[str, list[str]] = {}
    for earlier, later in follows:
        after.setdefault(earlier, []).append(later)
    opened = _reached({view for view, size in sizes.items() if size >= bootstrap}, after)
    return _reached(created - opened, after) - opened


def _reached(begin: set[str], after: dict[str, list[str]]) -> set[str]:
    found, left = set(begin), list(begin)
    while left:
        for later in after.get(left.pop(), ()):
            if later not in found:
                found.add(later)
                left.append(later)
    return found


def _least(rules: Rules, member: str) -> int:
    rule = rule_of(rules, member)
    return int(rule) if str(rule).isdecimal() else 1


def _deeds(local: Local) -> list[tuple[int, str]]:
    """What a member does only where there are enough members, by the number of the event."""
    deeds = [(submit.n, f"sent message {submit.first}") for submit in local.submits]
    deeds += [(row.n, f"was granted lock {row.detail!r}") for row in local.locks]
    deeds += [(row.n, f"had message {row.first} confirmed") for row in local.confirms]
    return deeds


def _objection(period: MemberPeriod, least: int, bootstrap: int, is_unopened: bool) -> str:
    size = len(period.members)
    if size < least:
        return f"view {period.view} of {size} members, and asked for min_members={least}"
    if is_unopened:
        return f"view {period.view} of {size} members, before there were bootstrap={bootstrap}"
    return ""
