"""Views of groups as one client of Spread gets them: causes, vs_sets, signals. Section 6 of the reference.

One object for each session. It reads the session's events in their order, so what it knows of the underlay is what
held at that place of the stream.

| event | becomes |
|---|---|
| the first view of a group; a view after a join | CAUSED_BY_JOIN, with the session that joined |
| a view after a leave | CAUSED_BY_LEAVE, or CAUSED_BY_DISCONNECT where the session has ended |
| any other view | CAUSED_BY_NETWORK, with all sets that came together |
| `Transitional` | the signal, in each group that loses a daemon's members |
| `Left` | the client's own leave |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ordercast.daemon.spread import bits
from ordercast.daemon.spread.encoding import encode_membership, encode_self_leave, encode_transitional, group_id_of
from ordercast.daemon.spread.names import daemon_name, private_group
from ordercast.engine import Transitional
from ordercast.view import Member, Reason, View
from ordercast.wire.endings import read_ending

_OTHERS: Final = -2  # the part of those that this daemon comes back to


class MemberOrder:
    """The order of members in lists: daemons as the configuration has them, then names by their bytes."""

    __slots__ = ("_ranks",)

    def __init__(self, daemons: Sequence[str] = ()) -> None:
        """`daemons`: in the order of the configuration. Those that it does not have come last, by their names."""
        self._ranks = {name: rank for rank, name in enumerate(daemons)}

    def sort(self, members: Sequence[Member]) -> list[Member]:
        last = len(self._ranks)

        def place(member: Member) -> tuple[int, bytes, bytes, int]:
            rank = self._ranks.get(member.name, last)
            return rank, daemon_name(member.name), private_group(member.label, member.name), member.life

        return sorted(members, key=place)


class Memberships:
    """The groups of one session, as its client has been told of them."""

    __slots__ = ("_has_sets", "_me", "_order", "_rosters", "_signalled", "_views")

    def __init__(self, me: str, order: MemberOrder, *, has_sets: bool) -> None:
        """`me`: the session, as views name it. `has_sets`: its library is of 4.0 or later."""
        self._me = me
        self._order = order
        self._has_sets = has_sets
        self._views: dict[str, View] = {}  # the last one of each group
        self._rosters: Mapping[str, int] = {}  # daemon (name/life) -> which of the parts that merge it comes from
        self._signalled: set[str] = set()  # groups whose client knows that the view ends

    def on_underlay(self, view: View) -> None:
        """The underlay has this view from here on."""
        names = {member.id: str(member) for member in view.members}
        self._rosters = {
            names[node]: index for index, nodes in enumerate(view.rosters) for node in nodes if node in names
        }

    def on_view(self, view: View) -> bytes:
        """The next view of a group."""
        group = view.group
        before = self._views.get(group)
        self._views[group] = view
        self._signalled.discard(group)
        members = self._order.sort(view.members)
        names = [private_group(member.label, member.name) for member in members]
        cause, changed = self._cause(view, before)
        if changed is not None:
            sets, own = [[changed]], 0
        else:
            sets, own = self._sets(view, members)
        return encode_membership(cause, group.encode(), _group_id(view), names, sets, own, has_sets=self._has_sets)

    def on_left(self, group: str) -> bytes:
        """The session is out of a group, of its own will."""
        self._views.pop(group, None)
        self._signalled.discard(group)
        return encode_self_leave(group.encode())

    def on_transitional(self, signal: Transitional) -> list[tuple[str, bytes]]:
        """The view of the underlay ends: the groups that lose members, with their signals. Where it is not said who
        comes along, all groups may."""
        came_with = frozenset(signal.came_with)
        found = []
        for group, view in self._views.items():
            nodes = {f"{member.name}/{member.life}" for member in view.members}
            if group not in self._signalled and (not came_with or not nodes <= came_with):
                self._signalled.add(group)
                found.append((group, encode_transitional(group.encode(), _group_id(view))))
        return found

    # In detail.

    def _cause(self, view: View, before: View | None) -> tuple[int, bytes | None]:
        """The bits of the cause, and who joined or left; None: the network."""
        if before is None:
            return bits.CAUSED_BY_JOIN, _name_of(self._me, view)
        subject = view.subject
        names = {str(member) for member in view.members}
        earlier = {str(member) for member in before.members}
        if view.reason is Reason.JOIN and subject in names and earlier == names - {subject}:
            return bits.CAUSED_BY_JOIN, _name_of(subject, view)
        if view.reason is Reason.LEAVE and subject in earlier and names == earlier - {subject}:
            has_ended = read_ending(view.header) is not None
            return bits.CAUSED_BY_DISCONNECT if has_ended else bits.CAUSED_BY_LEAVE, _name_of(subject, before)
        return bits.CAUSED_BY_NETWORK, None

    def _sets(self, view: View, members: Sequence[Member]) -> tuple[list[list[bytes]], int]:
        """Who came together, in the order of their first members, and which set is the session's own."""
        rosters, came_with = self._rosters, frozenset(view.came_with)
        mine = next((rosters.get(f"{each.name}/{each.life}", -1) for each in members if str(each) == self._me), -1)
        sets: dict[tuple[int, str], list[bytes]] = {}
        for member in members:
            key = (rosters.get(f"{member.name}/{member.life}", -1), "")
            if str(member) in came_with:
                key = (mine, "")
            elif not rosters:
                key = (_OTHERS, "")  # this daemon alone was away
            elif key[0] == mine:
                key = (mine, str(member))  # it is new in a group of our part: it comes alone
            sets.setdefault(key, []).append(private_group(member.label, member.name))
        return list(sets.values()), list(sets).index((mine, "")) if (mine, "") in sets else 0


def _group_id(view: View) -> bytes:
    return group_id_of(f"{view.id} {view.group}")


def _name_of(member: str, view: View) -> bytes:
    found = next((each for each in view.members if str(each) == member), None)
    if found is None:
        return b""
    return private_group(found.label, found.name)
