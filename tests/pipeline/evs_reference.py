"""A small plain checker of what components that go on and merge add, message by message, with no thought of speed.

It shares no code and no data structure with the two judges. It knows three claims of docs/trace.md and no others:

- members that go together have the same messages of groups that they share, on the same side of the signal;
- what one delivered as SAFE, all to whom it was promised deliver in that view of the underlay;
- what anybody delivered in a view, its sender delivers.

Where it cannot be certain who owes a message, it says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ordercast.trace.schema import Row

Message = tuple[str, int]
ORDERED = ("AGREED", "SAFE")


@dataclass
class GroupView:
    """The time of a member in the view of a group."""

    view: str
    members: tuple[str, ...]
    came: tuple[str, ...]
    old: GroupView | None
    new: GroupView | None = None
    is_cut: bool = False
    signalled: bool = False


@dataclass
class Handed:
    """One message at one member."""

    message: Message
    service: str
    view: str | None
    groups: dict[str, tuple[GroupView, bool]]  # the views of its groups, and whether behind the signal


@dataclass
class Member:
    """All of one life."""

    name: str
    handed: list[Handed] = field(default_factory=list)
    group_views: dict[str, list[GroupView]] = field(default_factory=dict)
    views: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # of a daemon: id and came_with
    submitted: dict[int, tuple[tuple[str, ...], set[str]]] = field(default_factory=dict)  # to, and groups it was in
    left: set[str] = field(default_factory=set)
    has_ended: bool = False

    @property
    def host(self) -> str:
        node, _, life = self.name.rpartition("/")
        return f"{node.rpartition('@')[2]}/{life}"


def broken(rows: Iterable[Row]) -> set[str]:
    """Which properties the trace violates by one of these claims. The run ended quietly."""
    lives: dict[str, Member] = {}
    current: dict[tuple[str, str], GroupView] = {}
    behind: set[str] = set()  # nodes between the underlay's signal and view
    for row in rows:
        name = f"{row.node}/{row.life}"
        me = lives.setdefault(name, Member(name))
        to = row.groups or ((row.group,) if row.group else ())
        if row.kind == "view" and row.group is None:
            me.views.append((row.view or "", row.came_with or ()))
            behind.discard(name)
        elif row.kind == "view":
            old = current.get((name, row.group or ""))
            new = GroupView(row.view or "", row.members or (), row.came_with or (), old)
            if old is not None:
                old.new = new
            current[name, row.group or ""] = new
            me.group_views.setdefault(row.group or "", []).append(new)
        elif row.kind == "transitional":
            if row.group is None:
                behind.add(name)
            elif (name, row.group) in current:
                current[name, row.group].signalled = True
        elif row.kind in ("leave", "stop", "crash"):
            for key in [key for key in current if key[0] == name and row.group in (None, key[1])]:
                current.pop(key).is_cut = True
                me.left.add(key[1])
            me.has_ended |= row.kind != "leave"
        elif row.kind in ("submit", "deliver") and row.first is not None and row.count is not None:
            for number in range(row.first, row.first + row.count):
                if row.kind == "submit":
                    me.submitted[number] = to, {group for owner, group in current if owner == name}
                    continue
                here = {group: current[name, group] for group in to if (name, group) in current}
                sides = {group: (one, one.signalled or name in behind) for group, one in here.items()}
                me.handed.append(Handed((row.sender or "", number), row.service or "", row.view, sides))
    found = set()
    if not (_together(lives) and _signals(lives)):
        found.add("virtual_synchrony")
    if not (_safe(lives) and _own(lives)):
        found.add("resilience")
    return found


def _next(lives: dict[str, Member], member: Member, view: str | None) -> tuple[str, frozenset[str]] | None:
    """Where its node went from a view of the underlay, and with whom."""
    node = lives.get(member.host)
    for old, new in zip(node.views, node.views[1:], strict=False) if node is not None else ():
        if old[0] == view:
            return new[0], frozenset(new[1])
    return None


def _is_done(lives: dict[str, Member], member: Member, view: str | None) -> bool:
    """Whether it went on from a view of the underlay, or is in it at the end."""
    node = lives.get(member.host)
    if node is None or not any(one == view for one, _ in node.views):
        return False
    if _next(lives, member, view) is not None:
        return True
    return not node.has_ended and not member.has_ended


def _had(member: Member, group: str, view: str) -> GroupView | None:
    """Its time in the view of a group, if it did not leave it."""
    return next((one for one in member.group_views.get(group, ()) if one.view == view and not one.is_cut), None)


def _together(lives: dict[str, Member]) -> bool:
    has = {(name, one.message, one.view) for name, member in lives.items() for one in member.handed}
    sides: dict[tuple[str, str, Message, str], dict[str, bool]] = defaultdict(dict)
    for member in lives.values():
        for one in member.handed:
            if one.service not in ORDERED:
                continue
            for group, (there, is_behind) in one.groups.items():
                if "@" in member.name and there.signalled and there.new is not None:
                    sides[group, there.view + there.new.view, one.message, str(sorted(there.new.came))][member.name] = (
                        is_behind
                    )
                way = _next(lives, member, one.view)
                for other in lives.values():
                    if way is None or other.has_ended or _next(lives, other, one.view) != way:
                        continue
                    is_owed = _had(other, group, there.view) is not None
                    if is_owed and (other.name, one.message, one.view) not in has:
                        return False
    return not any(len(set(each.values())) > 1 for each in sides.values())


def _signals(lives: dict[str, Member]) -> bool:
    """A session whose group lost the daemon of a member has the signal. Ids of group views end with the underlay's."""
    for member in lives.values():
        node = lives.get(member.host)
        for one in [one for each in member.group_views.values() for one in each if one.new is not None]:
            if "@" not in member.name or node is None or one.new is None:
                continue
            for (old, _), (_, came) in zip(node.views, node.views[1:], strict=False):
                began, ended = (each.view.partition("@")[2] == old for each in (one, one.new))
                hosts = {Member(name).host for name in one.members}
                if began and not ended and not hosts <= set(came) and not one.signalled:
                    return False
    return True


def _safe(lives: dict[str, Member]) -> bool:
    has = {(name, one.message, one.view) for name, member in lives.items() for one in member.handed}
    for member in lives.values():
        for one in member.handed:
            for group, (there, is_behind) in one.groups.items() if one.service == "SAFE" else ():
                if is_behind and there.new is None:
                    continue
                promised = there.new.came if is_behind and there.new is not None else there.members
                for name in promised:
                    other = lives.get(name)
                    if other is None or other.has_ended or _had(other, group, there.view) is None:
                        continue
                    if _is_done(lives, other, one.view) and (name, one.message, one.view) not in has:
                        return False
    return True


def _own(lives: dict[str, Member]) -> bool:
    for member in lives.values():
        for one in member.handed:
            source = lives.get(one.message[0])
            if source is None or one.message[1] not in source.submitted or source.has_ended:
                continue
            to, inside = source.submitted[one.message[1]]
            if not (set(to) & inside) - source.left or not _is_done(lives, source, one.view):
                continue
            if not any(each.message == one.message for each in source.handed):
                return False
    return True
