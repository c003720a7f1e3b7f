"""The roster of a shared underlay whose components go on and merge (docs/design/sites.md, "Rosters").

Like `Roster` it reads the ordered stream and nothing else. Nobody is ever a newcomer here: a daemon that starts is a
component of its own, with an empty roster. Where components meet, the view says which daemons have one roster
(`View.rosters`). If there are several rosters, the first daemon of each sends it as the first ordered blocks of the
view, and everybody makes the same new table of them. Until that is complete no operation counts.

Extended virtual synchrony asks for two rules more. What follows a transitional signal is applied to the table at once,
so that numbers are the same in all components that deliver it, but groups hear of it with the next view: until then
they have the members that they had at the signal. And a group keeps its view over a merge only if all of its members
are in one roster and none of them was lost or has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ordercast.errors import InvariantViolation, WireError
from ordercast.groups.records import GroupChange, GroupRecord, GroupTable, Sessions
from ordercast.orderers.sites.interests import Interests, group_key
from ordercast.orderers.sites.progress import ExchangeProgress
from ordercast.view import Reason, View
from ordercast.wire.roster import (
    LIST_SESSIONS,
    AnyOperation,
    JoinGroups,
    LeaveGroups,
    NameGroups,
    PartFront,
    RosterPart,
    SeedPart,
    SessionKey,
    decode_operation,
    decode_part,
    encode_parts,
    part_front,
)

LTS_BITS: Final = 24
"""A position is an LTS, and below it the site and the message's place in its block."""


class TouchedGroup:
    """A group that an operation behind a transitional signal is about."""

    __slots__ = ("before", "left", "record")

    def __init__(self, record: GroupRecord, before: Sessions) -> None:
        self.record = record
        self.before = before  # the members of its last view
        self.left: set[SessionKey] = set()  # those that have left since, even if they have come back


class ExchangeRoster:
    """The groups, at the place of the stream up to which this daemon has read."""

    __slots__ = (
        "_interests",
        "_is_parting",
        "_is_renumbered",
        "_is_speaking",
        "_me",
        "_merge",
        "_progress",
        "_table",
        "_together",
        "_touched",
        "_view",
        "_wrong",
        "unreadable",
    )

    def __init__(self, me: int, interests: Interests) -> None:
        self._me = me
        self._interests = interests
        self._table = GroupTable()
        self._view: View | None = None
        self._progress = ExchangeProgress()
        # between a signal and the next view in sync
        self._is_parting = False
        self._touched: dict[int, TouchedGroup] = {}  # by number
        self._together = frozenset((me,))  # daemons that have come with this one since it was last in sync
        # an exchange
        self._merge: MergedRosters | None = None  # None: none is under way
        self._is_speaking = False  # this daemon has begun to tell its roster
        self._is_renumbered = False
        # counters
        self._wrong = 0  # blocks that have no effect: parts that nobody waits for, operations before the end of them
        self.unreadable = 0

    # State.

    @property
    def is_seeded(self) -> bool:
        """Whether this daemon is in sync with its component."""
        return self._view is not None and self._merge is None

    @property
    def groups(self) -> dict[str, GroupRecord]:
        return self._table.groups

    @property
    def next_number(self) -> int:
        return self._table.next_number

    @property
    def unseeded(self) -> frozenset[int]:
        return frozenset() if self.is_seeded else frozenset((self._me,))

    @property
    def passed_over(self) -> int:
        return self._wrong + self._table.passed_over

    @property
    def refused(self) -> int:
        """Names, joins and sessions of other rosters that a bound kept out."""
        return self._table.refused

    def find(self, name: str) -> GroupRecord | None:
        return self._table.groups.get(name)

    def at(self, number: int) -> GroupRecord | None:
        return self._table.numbers.get(number)

    def name_of(self, number: int) -> str:
        return self._table.name_of(number)

    @property
    def current_names(self) -> Callable[[int], str]:
        """Of the present table: the one that the next exchange makes has other numbers."""
        return self._table.name_of

    def take_renumbered(self) -> bool:
        is_renumbered, self._is_renumbered = self._is_renumbered, False
        return is_renumbered

    # Inputs: the stream, entry by entry.

    def on_transitional(self) -> None:
        self._is_parting = True

    def on_view(self, seq: int, view: View) -> list[GroupChange]:  # noqa: ARG002 - places are positions here
        """The underlay has this view from here on. In the changes `before` has only sessions that come with this
        daemon: with them its groups go on."""
        present = frozenset([member.id for member in view.members])
        names = frozenset(view.came_with)
        came = frozenset([member.id for member in view.members if str(member) in names])
        self._together = (came if self._merge is None else self._together & came) | {self._me}
        self._is_parting = False
        self._interests.begin_view(view.position >> LTS_BITS, present)
        if self._view is None:
            self._table.enter(view)
        self._view = view
        self._progress.begin(view.rosters)
        made = self._leaves(view)
        if not self._progress.is_complete:
            self._merge = MergedRosters(self._progress.groups)
            self._is_speaking = False
            return made
        was_merging, self._merge = self._merge is not None, None
        made += self._go_on(view, present)
        if was_merging:
            # Daemons of this roster may have been away in between, and were forgotten there.
            self._show_interests({name: group_key(name) for name in self._table.groups})
        return made

    def apply(self, seq: int, origin: int, body: bytes | memoryview) -> list[GroupChange]:
        """One roster block of `origin`; `seq` is its position."""
        front = part_front(body)
        if front is not None:
            return self._on_part(origin, front, body)
        if self._merge is not None or self._view is None:
            self._wrong += 1
            return []
        try:
            operation = decode_operation(body)
        except WireError:
            self.unreadable += 1
            return []
        if isinstance(operation, SeedPart):
            self._wrong += 1  # of other underlays
            return []
        made = self._table.apply(origin, operation)
        self._tell_interests(seq >> LTS_BITS, origin, operation, made)
        if not self._is_parting:
            return made
        for change in made:
            touched = self._touched.get(change.record.number)
            if touched is None:
                touched = self._touched[change.record.number] = TouchedGroup(change.record, change.before)
            if change.reason == Reason.LEAVE and change.subject is not None:
                touched.left.add(change.subject)
        return []

    # A view.

    def _leaves(self, view: View) -> list[GroupChange]:
        """Sessions whose leave came behind the signal are out now. The others get a view of the group when this daemon
        is in sync."""
        made: list[GroupChange] = []
        for number, touched in self._touched.items():
            record = self._table.numbers.get(number)
            members = record.members if record is not None else ()
            gone = tuple([key for key in touched.before if key in touched.left and key not in members])
            if gone:
                made.append(GroupChange(touched.record, gone, (), view.reason, None, view.header, 0))
            touched.before = tuple([key for key in touched.before if key not in touched.left])
            touched.left.clear()
        return made

    def _go_on(self, view: View, present: frozenset[int]) -> list[GroupChange]:
        """All have one roster: groups that have lost sessions, or were touched behind the signal, get a view."""
        table, touched = self._table, self._touched
        gone = frozenset(table.members) - present
        table.enter(view)
        table.changes = 0
        lost = table.take_out(gone, view) if gone else []
        made: list[GroupChange] = []
        for change in lost:
            known = touched.pop(change.record.number, None)
            before = self._with_me(known.before if known is not None else change.before)
            if change.after:
                made.append(change._replace(before=before))
        for number, each in touched.items():
            record = table.numbers.get(number)
            if record is not None and record.members:
                before = self._with_me(each.before)
                made.append(GroupChange(record, before, record.members, view.reason, None, view.header, 0))
        self._touched = {}
        if gone:
            self._interests.keep_names(table.numbers)
        return made

    def _with_me(self, sessions: Sessions) -> Sessions:
        """Those of daemons that have come with this one."""
        together = self._together
        return tuple([key for key in sessions if key[0] in together])

    # Operations.

    def _tell_interests(self, lts: int, origin: int, operation: AnyOperation, made: list[GroupChange]) -> None:
        interests, groups, numbers = self._interests, self._table.groups, self._table.numbers
        if isinstance(operation, JoinGroups | NameGroups):
            for name in operation.names:
                record = groups.get(name)
                if record is not None:
                    interests.name(record.number, group_key(name))
        if isinstance(operation, JoinGroups):
            for change in made:
                interests.joined(origin, group_key(change.record.name))
        elif isinstance(operation, LeaveGroups):
            for change in made:
                if all(key[0] != origin for key in change.after):
                    interests.left(origin, group_key(change.record.name), lts)
            for number in operation.numbers:
                if number not in numbers:
                    interests.unname(number)

    # The exchange.

    def _on_part(self, origin: int, front: PartFront, body: bytes | memoryview) -> list[GroupChange]:
        merge, progress = self._merge, self._progress
        if merge is None or not progress.on_part(origin, front):
            self._wrong += 1
            return []
        try:
            merge.add(origin, decode_part(body))
        except WireError:
            self.unreadable += 1  # its groups are missing everywhere, and are joined again
        return self._take(merge) if progress.is_complete else []

    def _take(self, merge: MergedRosters) -> list[GroupChange]:
        """All rosters are there."""
        view, old, table = self._view, self._table, merge.finish()
        if view is None:
            raise InvariantViolation("an exchange of rosters without a view")
        table.enter(view)
        made: list[GroupChange] = []
        worked_out: dict[int, Sessions] = {}
        # Not those of the underlay's view: it may have ended another one before the rosters of that were exchanged.
        components = tuple(self._progress.groups.values())
        for name in merge.changed:
            record = table.groups.get(name)
            if record is None or not record.members:
                continue
            known = old.groups.get(name)
            before: Sessions = ()
            if known is not None and known.number in self._touched:
                before = self._with_me(self._touched[known.number].before)
            elif known is not None:
                found = worked_out.get(id(known.members))
                if found is None:
                    found = worked_out[id(known.members)] = self._with_me(known.members)
                before = found
            header = view.header
            made.append(GroupChange(record, before, record.members, view.reason, None, header, 0, components))
        self._table, self._merge, self._touched = table, None, {}
        self._is_renumbered = True
        self._show_interests(merge.keys)
        return made

    def _show_interests(self, keys: dict[str, int]) -> None:
        """The exchange is over: these are the groups, and who is in them."""
        self._interests.exchange_done(self._interested(keys))

    def _interested(self, keys: dict[str, int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        worked_out: dict[int, tuple[int, ...]] = {}
        for record in self._table.groups.values():
            members = record.members
            daemons = worked_out.get(id(members))
            if daemons is None:
                daemons = worked_out[id(members)] = tuple(dict.fromkeys([key[0] for key in members]))
            yield record.number, keys[record.name], daemons

    def must_seed(self) -> bool:
        """Whether this daemon speaks for its roster group, and has not begun."""
        return self._merge is not None and not self._is_speaking and self._me in self._progress.groups

    def seed(self, limit: int) -> Iterator[bytes]:
        """The roster of this daemon's group, as far as it is about the daemons of that group: the others speak for
        themselves. The table does not change before the exchange is complete, or the next view ends it."""
        if self._merge is None:
            raise InvariantViolation("a roster is told only in an exchange")
        self._is_speaking = True
        return encode_parts(self._spoken(self._progress.groups[self._me]), limit)

    def _spoken(self, daemons: frozenset[int]) -> Iterator[tuple[bool, str, Sessions, Sessions]]:
        worked_out: dict[int, tuple[Sessions, Sessions]] = {}  # with the old list, or its id would be used again
        touched = self._touched
        for record in list(self._table.groups.values()):
            members = record.members
            pair = worked_out.get(id(members))
            if pair is None:
                kept = tuple([key for key in members if key[0] in daemons])
                pair = worked_out[id(members)] = (members, kept)
            namers = tuple([key for key in record.namers if key[0] in daemons]) if record.namers else ()
            if pair[1] or namers:
                is_changed = len(pair[1]) != len(members) or record.number in touched
                yield is_changed, record.name, pair[1], namers


class MergedRosters:
    """The table that an exchange makes, as its parts come. Numbers and members are in the order of the parts."""

    __slots__ = ("_from", "_last", "_long", "_speakers", "changed", "keys", "table")

    def __init__(self, speakers: dict[int, frozenset[int]]) -> None:
        self._speakers = speakers
        self.table = GroupTable()
        self.keys: dict[str, int] = {}  # of all groups: worked out part by part, because it takes a while
        self.changed: dict[str, None] = {}  # groups that need a view
        self._from: dict[str, int] = {}  # group -> the speaker that its members are from
        # Of each speaker: the group that its last record is about, and what it has said of it. A long list goes on in
        # the next record.
        self._last: dict[int, tuple[str, set[SessionKey]]] = {}
        self._long: dict[
            str, list[SessionKey]
        ] = {}  # members of groups with long lists, which the table gets at the end

    def add(self, speaker: int, part: RosterPart) -> None:
        daemons = self._speakers[speaker]
        lists = [tuple([key for key in sessions if key[0] in daemons]) for sessions in part.lists]
        last, said = self._last.get(speaker, ("", set()))
        for mark, name, members_at, namers_at in zip(part.marks, part.names, part.members, part.namers, strict=True):
            members, namers = lists[members_at], lists[namers_at]
            if name != last:
                last, said = name, set()
                if self._from.get(name) == speaker:
                    self.table.refused += 1  # no speaker comes back to a group
                    continue
            if said or len(set(members)) < len(members):
                members = tuple([key for key in dict.fromkeys(members) if key not in said])
            said.update(members)
            long = self._long.get(name)
            record = self.table.merge(name, members if long is None else (), namers)
            if record is None:
                continue
            if long is not None:
                long += members
            elif len(record.members) >= LIST_SESSIONS:
                self._long[name] = list(record.members)
            if name not in self.keys:
                self.keys[name] = group_key(name)
            if members:
                if mark or self._from.get(name, speaker) != speaker:
                    self.changed[name] = None
                self._from.setdefault(name, speaker)
        self._last[speaker] = (last, said)

    def finish(self) -> GroupTable:
        """All parts have come."""
        for name, members in self._long.items():
            self.table.groups[name].members = ()
            self.table.merge(name, tuple(members), ())
        return self.table
