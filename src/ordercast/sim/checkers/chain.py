"""Views as a chain: of each view at most one follows, whether a failure or a change made it.

A view is installed only when it is decided, and the members of a view decide once what follows it
(docs/design/membership.md). So two views of which neither came before the other, with a common view before them, are
two decisions, and one of them is wrong. `views.forks` asks that of recoveries only, for traces of any protocol: there,
a member that a failure leaves behind may have installed a join that the others never knew of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from ordercast.sim.checkers.views import Rules, is_strict
from ordercast.trace.schema import Row


@dataclass(slots=True)
class InstalledView:
    """A view that some life installed."""

    id: str
    members: tuple[str, ...]
    reason: str
    first_ns: int
    by: set[str] = field(default_factory=set)
    before: dict[str, None] = field(default_factory=dict)  # ids of the views that its members came from
    # Made by a change, and all that installed it have crashed. Restarted members may have received it without having
    # delivered it: then the view that they form comes after it, and no row says so.
    is_doubtful: bool = False


def installed_views(rows: Iterable[Row]) -> dict[str, InstalledView]:
    """All views of the underlay by their id. Rows of one life are in order."""
    views: dict[str, InstalledView] = {}
    current: dict[str, str] = {}
    for row in rows:
        if row.group is not None or row.kind not in ("view", "leave"):
            continue
        member = f"{row.node}/{row.life}"
        if row.kind == "leave":
            current.pop(member, None)
            continue
        name = row.view or ""
        view = views.get(name)
        if view is None:
            view = views[name] = InstalledView(name, row.members or (), row.detail or "", row.at_ns)
        view.first_ns = min(view.first_ns, row.at_ns)
        view.by.add(member)
        if member in current:
            view.before[current[member]] = None
        current[member] = name
    return views


def chain_of(views: dict[str, InstalledView], view: str) -> set[str]:
    """A view and all that came before it."""
    found = {view}
    left = [view]
    while left:
        for earlier in views[left.pop()].before:
            if earlier not in found:
                found.add(earlier)
                left.append(earlier)
    return found


def branches(views: dict[str, InstalledView], rules: Rules) -> list[str]:
    """Where a view was followed by two, though its members asked for so many that only one part can have them."""
    after: dict[str, list[str]] = {}
    for view in views.values():
        for earlier in view.before:
            after.setdefault(earlier, []).append(view.id)
    texts: list[str] = []
    for name, followers in after.items():
        if len(followers) < 2 or not is_strict(views[name].members, rules):
            continue
        for left, right in combinations(followers, 2):
            pair = (views[left], views[right])
            if any(one.is_doubtful for one in pair) and any(one.reason == "restart" for one in pair):
                continue
            if left not in chain_of(views, right) and right not in chain_of(views, left):
                texts.append(f"chain: view {name} was followed by {_told(views[left])} and by {_told(views[right])}")
    return texts


def _told(view: InstalledView) -> str:
    return f"{view.id} ({view.reason}: {' '.join(view.members)}; at {' '.join(sorted(view.by))})"
