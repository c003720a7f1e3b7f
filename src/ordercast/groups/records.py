"""The groups of a shared underlay at one place of its stream: the seeded part of the roster (docs/design/roster.md).

A pure state machine: operations and views of the underlay go in, changes of groups come out. Every member that has the
same table, and is given the same stream, goes on with the same table. How a newcomer gets the table is in `roster.py`.

Lists of sessions are shared: groups with the same members have the same tuple. So 100,000 groups with the same members
cost one list, and a change of one list is worked out once for all of its groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ordercast.groups.directory import MAX_GROUP_NUMBER
from ordercast.view import Reason, View
from ordercast.wire.roster import (
    AnyOperation,
    JoinGroups,
    LeaveGroups,
    NameGroups,
    SeedProgress,
    SeedState,
    SessionKey,
)

Sessions = tuple[SessionKey, ...]

MAX_ROSTER_GROUPS: Final = 1 << 21
"""Groups of one underlay. At the bound a new name is passed over, at every member alike."""

MAX_GROUP_SESSIONS: Final = 1 << 16
"""Members of one group. At the bound a join is passed over, at every member alike."""

MAX_NAMED: Final = 1 << 16
"""Groups that the sessions of one node have named and are not in. At the bound a name is passed over."""

MAX_ENDED: Final = 4_096
"""Groups that have ended and whose names are remembered, for what was delivered before and is opened later. Beyond it
the oldest are forgotten: a message to several groups does not name them any more."""

SHARED_SLACK: Final = 1_024
"""Lists of sessions that are remembered beyond twice those in use; then the unused ones are forgotten."""


class GroupRecord:
    """One group. It lives while it has a member or a namer."""

    __slots__ = ("members", "name", "namers", "number")

    def __init__(self, name: str, number: int, members: Sessions = (), namers: Sessions = ()) -> None:
        self.name = name
        self.number = number
        self.members = members  # in the order in which they joined
        self.namers = namers  # sessions outside that send to it


class GroupChange(NamedTuple):
    """Members of one group came or went: what its next view is made of."""

    record: GroupRecord
    before: Sessions
    after: Sessions
    reason: Reason
    subject: SessionKey | None  # the session that joined or left; None: the view of the underlay took sessions out
    header: bytes
    count: int  # type: ignore[assignment]  # `changes` of the table with this change: it names the view
    components: tuple[frozenset[int], ...] = ()  # where rosters became one: the nodes that had each of them

    @property
    def has_new_node(self) -> bool:
        """Whether the group has a member of a node that it had none of before."""
        before = {node for node, _ in self.before}
        return any(node not in before for node, _ in self.after)


class GroupTable:
    """All groups, and which nodes of the underlay do not have the table yet."""

    __slots__ = (
        "_named",
        "_shared",
        "_shared_limit",
        "changes",
        "ended",
        "groups",
        "members",
        "next_number",
        "numbers",
        "passed_over",
        "refused",
        "seed",
        "unseeded",
        "view_id",
    )

    def __init__(self, next_number: int = 1) -> None:
        # groups
        self.groups: dict[str, GroupRecord] = {}
        self.numbers: dict[int, GroupRecord] = {}  # the same records, by rising number
        self.ended: dict[int, str] = {}  # number -> name of groups that are gone; no part of what all members share
        self.next_number = next_number
        self.changes = 0  # of groups since the last view of the underlay
        self._named: dict[int, int] = {}  # node -> groups that it has named and is not in
        # the underlay
        self.members: tuple[int, ...] = ()  # node ids, in the order of the view
        self.view_id: tuple[int, str] = (0, "")
        self.unseeded: dict[int, int] = {}  # node -> sequence number of the view that it came with
        self.seed: SeedProgress | None = None
        # lists of sessions that groups share
        self._shared: dict[Sessions, Sessions] = {}
        self._shared_limit = SHARED_SLACK
        # counters
        self.passed_over = 0  # operations of nodes that may not have any
        self.refused = 0  # names and joins beyond a bound

    # Inputs.

    def enter(self, view: View) -> None:
        """The table is as of a time at which this was the view."""
        self.members = tuple([member.id for member in view.members])
        self.view_id = view.rank

    def on_view(self, seq: int, view: View) -> list[GroupChange]:
        """A view of the underlay: sessions of nodes that are gone leave their groups, and new nodes are unseeded."""
        before = self.members
        self.members = tuple([member.id for member in view.members])
        if view.rank != self.view_id:  # a denied lock repeats the view, and ids of group views must not be repeated
            self.view_id = view.rank
            self.changes = 0
        present = frozenset(self.members)
        self.unseeded = {node: came for node, came in self.unseeded.items() if node in present}
        self.unseeded.update((node, seq) for node in self.members if node not in before)
        if self.seed is not None and self.seed.origin not in present:
            self.seed = None
        gone = frozenset(before) - present
        return self._take_out(gone, view) if gone else []

    def apply(self, origin: int, operation: AnyOperation) -> list[GroupChange]:
        """One operation that `origin` had ordered.

        What a node had under way when it was put out may be ordered later, even when it has come back: it is passed
        over, because the node itself does not count on it any more.
        """
        if origin not in self.members or origin in self.unseeded:
            self.passed_over += 1
            return []
        if isinstance(operation, JoinGroups):
            return self._join(origin, operation)
        if isinstance(operation, LeaveGroups):
            return self._leave(origin, operation)
        if isinstance(operation, NameGroups):
            self._name(origin, operation)
            return []
        self.on_seed(origin, operation.as_of, operation.part, operation.state is not None)
        return []

    def on_seed(self, origin: int, as_of: int, part: int, is_last: bool) -> None:
        """A part of a seed. With the last one, all nodes that had come by its as-of sequence number are seeded."""
        if origin not in self.members or origin in self.unseeded:
            self.passed_over += 1
            return
        if not part:
            self.seed = SeedProgress(origin, as_of, 0)
        if self.seed != (origin, as_of, part):
            self.passed_over += 1  # of a seed that another one has replaced
        elif is_last:
            self.seed = None
            self.unseeded = {node: came for node, came in self.unseeded.items() if came > as_of}
        else:
            self.seed = SeedProgress(origin, as_of, part + 1)

    def take_out(self, gone: frozenset[int], view: View) -> list[GroupChange]:
        """The sessions of these nodes leave their groups, by this view."""
        return self._take_out(gone, view)

    # What a seed is made of, and makes.

    @property
    def shared_lists(self) -> int:
        """Lists of sessions that are remembered."""
        return len(self._shared)

    @property
    def state(self) -> SeedState:
        return SeedState(self.next_number, self.changes, self.seed, dict(self.unseeded))

    def add(self, number: int, name: str, members: Sessions, namers: Sessions) -> None:
        """A record of a seed. One with the number and name of an earlier one has more sessions of that group."""
        record = self.groups.get(name)
        if record is not None and record.number == number:
            record.members = self._share(record.members + members)
            record.namers = self._share(record.namers + namers)
        elif record is None and number not in self.numbers and len(self.groups) < MAX_ROSTER_GROUPS:
            record = GroupRecord(name, number, self._share(members), self._share(namers))
            self.groups[name] = self.numbers[number] = record
        else:
            self.refused += 1  # no seeder sends it
        for node, _ in namers:
            self._named[node] = self._named.get(node, 0) + 1

    def merge(self, name: str, members: Sessions, namers: Sessions) -> GroupRecord | None:
        """Sessions of a group, which are not in it yet; it is made where there is none. None: a bound keeps it out."""
        record = self.groups.get(name)
        if record is None:
            record = self._make(name)
            if record is None:
                return None
        room = MAX_GROUP_SESSIONS - len(record.members)
        if len(members) > room:
            self.refused += len(members) - room
            members = members[:room]
        if members:
            record.members = self._share(record.members + members)
        if namers:
            record.namers = self._share(record.namers + namers)
            for node, _ in namers:
                self._named[node] = self._named.get(node, 0) + 1
        return record

    def name_of(self, number: int) -> str:
        """The name of the group that has this number, or had it lately; empty: it is not known."""
        record = self.numbers.get(number)
        return record.name if record is not None else self.ended.get(number, "")

    def restore(self, state: SeedState) -> None:
        """The rest of a seed, behind its records."""
        self.next_number = state.next_number
        self.changes = state.changes
        self.seed = state.seed
        self.unseeded = dict(state.unseeded)

    # Operations. Hot with many names: a change of a list is worked out once, by the list's identity.

    def _join(self, origin: int, join: JoinGroups) -> list[GroupChange]:
        key = (origin, join.label)
        header = join.header
        groups = self.groups
        changes = self.changes
        worked_out: dict[int, tuple[Sessions, Sessions]] = {}  # the old list as well, or its id would be used again
        made: list[GroupChange] = []
        for name in join.names:
            record = groups.get(name)
            if record is None:
                record = self._make(name)
                if record is None:
                    continue
            old = record.members
            pair = worked_out.get(id(old))
            if pair is None:
                pair = worked_out[id(old)] = (old, self._with(old, key))
            new = pair[1]
            if new is old:
                continue
            record.members = new
            if record.namers and key in record.namers:
                self._unname(record, key)
            changes += 1
            made.append(GroupChange(record, old, new, Reason.JOIN, key, header, changes))
        self.changes = changes
        return made

    def _leave(self, origin: int, leave: LeaveGroups) -> list[GroupChange]:
        key = (origin, leave.label)
        header = leave.header
        numbers = self.numbers
        changes = self.changes
        worked_out: dict[int, tuple[Sessions, Sessions]] = {}
        made: list[GroupChange] = []
        for number in leave.numbers:
            record = numbers.get(number)
            if record is None:
                continue
            old = record.members
            pair = worked_out.get(id(old))
            if pair is None:
                new = self._share(tuple([each for each in old if each != key])) if key in old else old
                pair = worked_out[id(old)] = (old, new)
            new = pair[1]
            if new is not old:
                record.members = new
                changes += 1
                made.append(GroupChange(record, old, new, Reason.LEAVE, key, header, changes))
            elif key in record.namers:
                self._unname(record, key)
            if not record.members and not record.namers:
                self._drop(record)
        self.changes = changes
        return made

    def _name(self, origin: int, names: NameGroups) -> None:
        key = (origin, names.label)
        for name in names.names:
            record = self.groups.get(name)
            if record is not None and (key in record.members or key in record.namers):
                continue
            count = self._named.get(origin, 0)
            if count >= MAX_NAMED:
                self.refused += 1
                continue
            if record is None:
                record = self._make(name)
                if record is None:
                    continue
            record.namers = self._share((*record.namers, key))
            self._named[origin] = count + 1

    def _take_out(self, gone: frozenset[int], view: View) -> list[GroupChange]:
        reason, header = view.reason, view.header
        changes = self.changes
        worked_out: dict[int, tuple[Sessions, Sessions]] = {}
        made: list[GroupChange] = []
        ended: list[GroupRecord] = []
        for record in self.groups.values():
            old = record.members
            pair = worked_out.get(id(old))
            if pair is None:
                pair = worked_out[id(old)] = (old, self._without(old, gone))
            new = pair[1]
            if record.namers:
                record.namers = self._without(record.namers, gone)
            if new is not old:
                record.members = new
                changes += 1
                made.append(GroupChange(record, old, new, reason, None, header, changes))
            if not new and not record.namers:
                ended.append(record)
        for record in ended:
            self._drop(record)
        for node in gone:
            self._named.pop(node, None)
        self.changes = changes
        return made

    # In detail.

    def _make(self, name: str) -> GroupRecord | None:
        number = self.next_number
        if number > MAX_GROUP_NUMBER or len(self.groups) >= MAX_ROSTER_GROUPS:
            self.refused += 1
            return None
        self.next_number = number + 1
        record = self.groups[name] = self.numbers[number] = GroupRecord(name, number)
        return record

    def _drop(self, record: GroupRecord) -> None:
        del self.groups[record.name]
        del self.numbers[record.number]
        ended = self.ended
        if len(ended) >= MAX_ENDED:
            del ended[next(iter(ended))]
        ended[record.number] = record.name

    def _unname(self, record: GroupRecord, key: SessionKey) -> None:
        record.namers = self._share(tuple([each for each in record.namers if each != key]))
        self._named[key[0]] -= 1

    def _with(self, sessions: Sessions, key: SessionKey) -> Sessions:
        if key in sessions:
            return sessions
        if len(sessions) >= MAX_GROUP_SESSIONS:
            self.refused += 1
            return sessions
        return self._share((*sessions, key))

    def _without(self, sessions: Sessions, gone: frozenset[int]) -> Sessions:
        """Without those of nodes that are gone; the same object where there are none."""
        left = tuple([key for key in sessions if key[0] not in gone])
        return sessions if len(left) == len(sessions) else self._share(left)

    def _share(self, sessions: Sessions) -> Sessions:
        """The one list that is equal to this one."""
        if not sessions:
            return ()
        if len(self._shared) >= self._shared_limit:
            self._forget_unused()
        return self._shared.setdefault(sessions, sessions)

    def _forget_unused(self) -> None:
        used: Iterable[Sessions] = {id(record.members): record.members for record in self.groups.values()}.values()
        self._shared = {sessions: sessions for sessions in used if sessions}
        self._shared_limit = 2 * len(self._shared) + SHARED_SLACK
