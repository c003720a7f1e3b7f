"""Streams of views and roster operations, and a naive reading of them that rosters are compared with."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from ordercast.errors import WireError
from ordercast.groups.records import MAX_NAMED, GroupChange
from ordercast.groups.roster import Roster
from ordercast.view import Member, Reason, View
from ordercast.wire.roster import JoinGroups, LeaveGroups, NameGroups, SessionKey, decode_operation

Change = tuple[str, int, list[SessionKey], list[SessionKey], Reason, SessionKey | None, bytes, int]


def member(node: int) -> Member:
    return Member(node, f"n{node}", 0, ("10.0.0.1", 7_000))


def view_of(
    seq: int,
    nodes: list[int],
    prior: list[int] | None = None,
    reason: Reason = Reason.JOIN,
    header: bytes = b"",
    counter: int = -1,
) -> View:
    return View(
        counter if counter >= 0 else seq,
        "n1/0",
        1,
        0,
        seq,
        0,
        tuple(map(member, nodes)),
        {},
        reason,
        header=header,
        prior=tuple(prior or ()),
    )


class Entry(NamedTuple):
    """One entry of the stream; its sequence number is its index."""

    origin: int
    what: bytes | View


class Group:
    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.members: list[SessionKey] = []
        self.namers: list[SessionKey] = []


class Model:
    """What the design note says, as plainly as possible: lists, and a search for everything."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.next_number = 1
        self.changes = 0
        self.nodes: list[int] = []
        self.came: dict[int, int] = {}  # when each node came; for the rule of who begins an empty roster
        self.unseeded: dict[int, int] = {}
        self.seed: tuple[int, int, int] | None = None
        self.view_id = ""

    def read(self, seq: int, entry: Entry) -> list[Change]:
        if isinstance(entry.what, View):
            return self._view(seq, entry.what)
        if entry.origin not in self.nodes or entry.origin in self.unseeded:
            return []
        try:
            operation = decode_operation(entry.what)
        except WireError:
            return []
        made: list[Change] = []
        if isinstance(operation, JoinGroups):
            key = (entry.origin, operation.label)
            for name in operation.names:
                group = self._named(name)
                if key not in group.members:
                    before = list(group.members)
                    group.members.append(key)
                    if key in group.namers:
                        group.namers.remove(key)
                    made.append(self._change(group, before, Reason.JOIN, key, operation.header))
        elif isinstance(operation, LeaveGroups):
            key = (entry.origin, operation.label)
            for number in operation.numbers:
                for group in [each for each in self.groups if each.number == number]:
                    if key in group.members:
                        before = list(group.members)
                        group.members.remove(key)
                        made.append(self._change(group, before, Reason.LEAVE, key, operation.header))
                    elif key in group.namers:
                        group.namers.remove(key)
                self._end_empty()
        elif isinstance(operation, NameGroups):
            key = (entry.origin, operation.label)
            for name in operation.names:
                is_in = any(key in group.members + group.namers for group in self.groups if group.name == name)
                count = sum(node == entry.origin for group in self.groups for node, _ in group.namers)
                if not is_in and count < MAX_NAMED:
                    self._named(name).namers.append(key)
        elif operation.as_of < seq:
            self._seed(entry.origin, operation.as_of, operation.part, operation.state is not None)
        return made

    def _view(self, seq: int, view: View) -> list[Change]:
        before, self.nodes = self.nodes, [each.id for each in view.members]
        if view.id != self.view_id:
            self.view_id, self.changes = view.id, 0
        for node in self.nodes:
            if node not in before:
                self.came[node] = seq
                if view.reason != Reason.CREATE:
                    self.unseeded[node] = seq
        self.unseeded = {node: came for node, came in self.unseeded.items() if node in self.nodes}
        if self.seed is not None and self.seed[0] not in self.nodes:
            self.seed = None
        if all(node in self.unseeded for node in self.nodes):
            self._begin_anew(seq, view)
            return []
        made = []
        for group in self.groups:
            was = list(group.members)
            group.members = [key for key in was if key[0] in self.nodes]
            group.namers = [key for key in group.namers if key[0] in self.nodes]
            if group.members != was:
                made.append(self._change(group, was, view.reason, None, view.header))
        self._end_empty()
        return made

    def _begin_anew(self, seq: int, view: View) -> None:
        longest = min(self.came[node] for node in self.nodes)
        first = next(node for node in self.nodes if self.came[node] == longest)
        self.groups, self.changes, self.seed = [], 0, None
        self.next_number = 1 + (int.from_bytes(blake2b(view.id.encode(), digest_size=4).digest(), "big") >> 1)
        self.unseeded = {node: seq for node in self.nodes if node != first}

    def _seed(self, origin: int, as_of: int, part: int, is_last: bool) -> None:
        if part == 0:
            self.seed = (origin, as_of, 0)
        if self.seed == (origin, as_of, part):
            self.seed = (origin, as_of, part + 1)
            if is_last:
                self.seed = None
                self.unseeded = {node: came for node, came in self.unseeded.items() if came > as_of}

    def _named(self, name: str) -> Group:
        for group in self.groups:
            if group.name == name:
                return group
        group = Group(name, self.next_number)
        self.next_number += 1
        self.groups.append(group)
        return group

    def _end_empty(self) -> None:
        self.groups = [group for group in self.groups if group.members or group.namers]

    def _change(
        self, group: Group, before: list[SessionKey], reason: Reason, key: SessionKey | None, header: bytes
    ) -> Change:
        self.changes += 1
        return group.name, group.number, before, list(group.members), reason, key, header, self.changes

    def state(self) -> tuple[object, ...]:
        groups = [(group.name, group.number, tuple(group.members), tuple(group.namers)) for group in self.groups]
        return groups, self.next_number, self.changes, frozenset(self.unseeded)


def state_of(roster: Roster) -> tuple[object, ...]:
    """What two rosters at the same place of the stream have in common, in the form that the model has."""
    groups = [(each.name, each.number, each.members, each.namers) for each in roster.groups.values()]
    for each in roster.groups.values():
        assert roster.find(each.name) is each
        assert roster.at(each.number) is each
    return groups, roster.next_number, roster.changes, roster.unseeded


def told(changes: list[GroupChange]) -> list[Change]:
    """Without components, of which these rosters know nothing."""
    assert not any(each.components for each in changes)
    return [(each.record.name, each.record.number, list(each.before), list(each.after), *each[3:7]) for each in changes]
