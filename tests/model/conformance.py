"""Traces of real engines against the model: the views that nodes were shown must be a behaviour that the rule allows.

A trace has no ballots and no acknowledgements. It has who was shown which view, when, for what reason, and when each
node was up. What can be told from that:

- *lists*: a view id has one list of members.
- *root*: a chain begins with a view that one node made of itself. (A group may be created twice, by two newcomers that
  do not hear each other: each of these rings has its chain.)
- *link*: a view follows one view, and by one of the steps of the model: a join, a leave, a lock, a recovery. The others
  keep their order; a recovery may put its coordinator first (V2).
- *fork*: a view is followed by one view, where quorums meet.
- *quorum*: a recovery brings a quorum of the view before along: its members are those of that view that promised
  (rules 5 and 6). For a join or leave, a quorum of the view before was up between the two views to decide it.
- *walk*: a node goes from view to view along the chain. It leaves out no view, and its way begins with its own join.
- *left*: after a leave that was ordered, no view lists the node, unless it came again.
- *place*: a member delivers in the view that it is in.

A ring whose members reset it by hand is not bound by quorums; `check` is told so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from tests.model.rule import Rules, is_quorum, mask_of

from ordercast.config import MinMembers
from ordercast.trace.schema import Row

CREATE: Final = "create"
RESET: Final = "reset"
FOREVER_NS: Final = 1 << 62
_RULES: Final = {size: Rules(min_members=size) for size in range(64)}  # quorums are cached by the identity of rules


class Deviation(NamedTuple):
    """One thing in a trace that the model does not allow."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class Shown(NamedTuple):
    """One view, as one node was shown it."""

    view: str
    members: tuple[str, ...]
    at_ns: int
    reason: str


@dataclass(slots=True)
class Stay:
    """One time that a node was in the group: its views, from the first one to its leave, crash or the end."""

    member: str
    views: list[Shown] = field(default_factory=list)
    begin_ns: int = 0
    end: str = ""  # the detail of its leave


@dataclass(slots=True)
class History:
    """What a trace says of one underlay."""

    stays: list[Stay] = field(default_factory=list)
    lists: dict[str, Shown] = field(default_factory=dict)  # each view, as it was shown first
    up: dict[str, tuple[int, int]] = field(default_factory=dict)  # member -> from, until
    before: dict[str, set[str]] = field(default_factory=dict)  # view -> the views that nodes came from
    after: dict[str, set[str]] = field(default_factory=dict)


Asked = MinMembers | Mapping[str, MinMembers]
"""What the members asked for as min_members: one rule, or one for each node by its name."""


def check(rows: Iterable[Row], min_members: Asked = "majority", *, by_hand: bool = False) -> list[Deviation]:
    """All deviations of a trace; `by_hand` if members reset the group with numbers of their own."""
    found: list[Deviation] = []
    underlays: dict[str, list[Row]] = {}
    for row in rows:
        underlays.setdefault(row.underlay, []).append(row)
    general = underlays.pop("", [])  # starts and crashes belong to the node
    for own in underlays.values():
        history, bad = read(sorted(own + general, key=lambda row: (row.node, row.life, row.n)))
        found += bad
        found += _check_links(history)
        found += _check_walks(history)
        if not by_hand:
            found += _check_quorums(history, min_members)
            found += _check_forks(history, min_members)
    return found


# ---- reading


def read(rows: Iterable[Row]) -> tuple[History, list[Deviation]]:
    """The history of one underlay, and what is wrong with single rows of it."""
    history = History()
    found: list[Deviation] = []
    stay: Stay | None = None
    member = ""
    for row in rows:
        name = f"{row.node}/{row.life}"
        if name != member:
            member, stay = name, None
            history.up[name] = (row.at_ns, FOREVER_NS)
        if row.kind == "join":
            stay = Stay(name, begin_ns=row.at_ns)
            history.stays.append(stay)
        elif row.kind == "leave":
            if stay is not None:
                stay.end = row.detail or ""
            stay = None
        elif row.kind in ("crash", "stop"):
            history.up[name] = (history.up[name][0], row.at_ns)
            stay = None
        elif row.kind == "view" and row.group is None and row.view is not None and row.members is not None:
            shown = Shown(row.view, row.members, row.at_ns, row.detail or "")
            if stay is None:
                found.append(Deviation("walk", f"{name} was shown {row.view} while it was not in the group"))
                continue
            stay.views.append(shown)
            found += _note(history, shown, name)
        elif row.kind == "deliver":
            current = stay.views[-1].view if stay is not None and stay.views else None
            if row.view is not None and row.view != current:
                found.append(Deviation("place", f"{name} delivered in {row.view}, and is in {current or 'no view'}"))
    for each in history.stays:
        for left, right in pairwise(each.views):
            if left.view != right.view:
                history.before.setdefault(right.view, set()).add(left.view)
                history.after.setdefault(left.view, set()).add(right.view)
    return history, found


def _note(history: History, shown: Shown, name: str) -> Iterator[Deviation]:
    first = history.lists.setdefault(shown.view, shown)
    if first.members != shown.members:
        yield Deviation("lists", f"{shown.view} is {shown.members} at {name}, and {first.members} elsewhere")
    if shown.at_ns < first.at_ns:
        history.lists[shown.view] = shown
    if name not in shown.members:
        yield Deviation("walk", f"{name} was shown {shown.view}, which does not list it: {shown.members}")


# ---- the chain


def _check_links(history: History) -> Iterator[Deviation]:
    for view, shown in history.lists.items():
        before = history.before.get(view, set())
        if len(before) > 1:
            yield Deviation("link", f"{view} follows {' and '.join(sorted(before))}")
        elif before:
            text = _wrong_step(history.lists[next(iter(before))].members, shown)
            if text:
                yield Deviation("link", f"{view} after {next(iter(before))}: {text}")
        elif shown.reason == CREATE and len(shown.members) != 1:
            yield Deviation("root", f"{view} begins a chain with {shown.members}")
        elif shown.reason != CREATE and len(shown.members) > 1 and not _is_only_newcomer(history, view):
            yield Deviation("root", f"{view} ({shown.reason}) follows no view")


def _is_only_newcomer(history: History, view: str) -> bool:
    """Whether only a newcomer was shown this view: the others may have crashed before they were."""
    return sum(any(shown.view == view for shown in stay.views) for stay in history.stays) == 1


def _wrong_step(old: tuple[str, ...], new: Shown) -> str:
    """Why a view cannot follow another for the reason that it gives; empty if it can."""
    came = [name for name in new.members if name not in old]
    stayed = [name for name in new.members if name in old]
    gone = [name for name in old if name not in new.members]
    kept = [name for name in old if name in new.members]
    if new.reason == RESET:
        if came:
            return f"a recovery brings in {came}"
        if stayed != kept and stayed[1:] != [name for name in kept if name != stayed[0]]:
            return f"the survivors {kept} became {stayed}"
        return ""
    allowed = {"join": (1, 0), "leave": (0, 1)}.get(new.reason, (0, 0))
    if (len(came), len(gone)) != allowed:
        return f"a {new.reason} brings in {came} and takes out {gone}"
    if stayed != kept:
        return f"the members {kept} became {stayed}"
    if came and new.members[0] in came:
        return f"the newcomer {came[0]} is first"
    return ""


def _check_forks(history: History, asked: Asked) -> Iterator[Deviation]:
    for view, after in history.after.items():
        members = history.lists[view].members
        if len(after) > 1 and _quorums_meet(members, asked):
            texts = [f"{each} {history.lists[each].members}" for each in sorted(after)]
            yield Deviation("fork", f"{view} {members} is followed by {' and by '.join(texts)}")


def _check_quorums(history: History, asked: Asked) -> Iterator[Deviation]:
    for view, after in history.after.items():
        old = history.lists[view]
        for each in sorted(after):
            new = history.lists[each]
            present = [
                name
                for name in old.members
                if _was_up(history, name, old.at_ns, new.at_ns) and (new.reason != RESET or name in new.members)
            ]
            if not _may_decide(old.members, present, asked):
                text = "came along" if new.reason == RESET else "were up to decide it"
                yield Deviation("quorum", f"{each} ({new.reason}) after {view}: of {old.members} only {present} {text}")


def _was_up(history: History, name: str, from_ns: int, until_ns: int) -> bool:
    begin_ns, end_ns = history.up.get(name, (FOREVER_NS, FOREVER_NS))
    return begin_ns <= until_ns and end_ns >= from_ns


def _sizes(members: tuple[str, ...], asked: Asked) -> set[int]:
    """The rules of a view's members as numbers of the model: 0 is a majority."""
    rules: set[MinMembers] = set()
    for name in members:
        rules.add(asked.get(name.rpartition("/")[0], "majority") if isinstance(asked, Mapping) else asked)
    return {0 if rule == "majority" else len(members) if rule == "all" else int(rule) for rule in rules}


def _may_decide(members: tuple[str, ...], present: list[str], asked: Asked) -> bool:
    view = tuple(range(len(members)))
    mask = mask_of(place for place, name in enumerate(members) if name in present)
    return all(is_quorum(_RULES[size], view, mask) for size in _sizes(members, asked))


def _quorums_meet(members: tuple[str, ...], asked: Asked) -> bool:
    """Whether two parts of the view can never both go on. All members' rules hold, so one that meets is enough."""
    return any(size == 0 or 2 * min(size, len(members)) > len(members) for size in _sizes(members, asked))


# ---- the ways of the nodes


def _check_walks(history: History) -> Iterator[Deviation]:
    for stay in history.stays:
        if not stay.views:
            continue
        first = stay.views[0]
        for before in history.before.get(first.view, ()):
            if stay.member in history.lists[before].members:
                yield Deviation("walk", f"{stay.member} begins with {first.view}, which is not its join")
        for left, right in pairwise(stay.views):
            between = _ways(history, left.view, right.view)
            if between:
                yield Deviation("walk", f"{stay.member} left out {between} between {left.view} and {right.view}")
        if stay.end == "left":
            last = stay.views[-1].view
            for after in history.after.get(last, ()):
                if stay.member in history.lists[after].members and not _came_again(history, stay):
                    yield Deviation("left", f"{stay.member} left in {last}, and {after} still lists it")


def _came_again(history: History, stay: Stay) -> bool:
    return any(other.member == stay.member and other.begin_ns > stay.begin_ns for other in history.stays)


def _ways(history: History, left: str, right: str) -> list[str]:
    """The views that others were shown between two views, if a way leads from one to the other."""
    for view in sorted(history.before.get(right, set()) - {left}):
        way = [view]
        while way[0] != left:
            before = history.before.get(way[0], set())
            if len(before) != 1 or len(way) > len(history.lists):
                break
            way.insert(0, next(iter(before)))
        if way[0] == left:
            return way[1:]
    return []
