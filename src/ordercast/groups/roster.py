"""What a shared underlay knows of its groups, as one node has it (docs/design/roster.md).

The roster reads the ordered stream of the underlay and nothing else: its views, and the operations in roster blocks. It
has no clock, and submits nothing itself: the channel asks `must_seed`, and submits what `seed` gives. One roster is for
one stay of its node in the underlay. A node that comes back begins with another one.

A node that creates the underlay has the table of groups from the beginning. Every other one is an `UnseededNode` first.
It keeps what it reads until a seed brings the table as of an earlier place of the stream, and then goes over what it
has kept since. That run over the same entries also shows whether the other members count it as seeded now: it decides
nothing by rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from ordercast.errors import InvariantViolation, WireError
from ordercast.groups.records import GroupChange, GroupRecord, GroupTable
from ordercast.view import Reason, View
from ordercast.wire.roster import AnyOperation, SeedPart, decode_operation, encode_seed, is_seed

MAX_KEPT_BYTES: Final = 64 << 20
"""Operations that a newcomer keeps until it is seeded. At the bound it gives up: the node must come in anew."""

ENTRY_COST: Final = 128
"""Bytes that a kept entry counts besides its body."""


class Roster:
    """The groups of a shared underlay, at the place of the stream up to which this node has read."""

    __slots__ = ("_applied", "_me", "_own_seed", "_table", "_unseeded", "unreadable")

    def __init__(self, me: int) -> None:
        self._me = me
        self._table = GroupTable()
        self._unseeded: UnseededNode | None = UnseededNode(me)  # None: this node is seeded
        self._applied = -1  # sequence number of the last entry read
        self._own_seed = -1  # as-of sequence number of the seed that this node is sending; -1: none
        self.unreadable = 0

    # State.

    @property
    def is_seeded(self) -> bool:
        """Whether this node has the groups. Before that it is in none, and submits nothing."""
        return self._unseeded is None

    @property
    def is_overrun(self) -> bool:
        """A newcomer could not keep all that it needs: it must leave the underlay and come in anew."""
        return self._unseeded is not None and self._unseeded.is_overrun

    @property
    def groups(self) -> dict[str, GroupRecord]:
        return self._table.groups

    @property
    def next_number(self) -> int:
        return self._table.next_number

    @property
    def changes(self) -> int:
        return self._table.changes

    @property
    def unseeded(self) -> frozenset[int]:
        """Nodes of the underlay that do not have the roster yet; a newcomer knows it of itself alone."""
        return frozenset(self._table.unseeded) if self._unseeded is None else frozenset((self._me,))

    @property
    def passed_over(self) -> int:
        """Operations without effect: of nodes that may have none, or of seeds that were replaced."""
        return self._table.passed_over

    @property
    def refused(self) -> int:
        """Names and joins that a bound kept out."""
        return self._table.refused

    def find(self, name: str) -> GroupRecord | None:
        """The group with this name."""
        return self._table.groups.get(name)

    def at(self, number: int) -> GroupRecord | None:
        """The group with this number."""
        return self._table.numbers.get(number)

    def name_of(self, number: int) -> str:
        """The name of the group that has this number, or had it lately; empty: it is not known."""
        return self._table.name_of(number)

    @property
    def current_names(self) -> Callable[[int], str]:
        """Of any time: numbers are never used twice on one roster."""
        return self.name_of

    def take_renumbered(self) -> bool:
        return False

    # Inputs: the stream, entry by entry.

    def on_transitional(self) -> None:
        """Operations count at their place: what recovery brings together is the same for all that go on."""

    def on_view(self, seq: int, view: View) -> list[GroupChange]:
        """The underlay has this view from here on."""
        self._applied = seq
        waiting = self._unseeded
        if waiting is None:
            made = self._table.on_view(seq, view)
            if not any(came <= self._own_seed for came in self._table.unseeded.values()):
                self._own_seed = -1  # nobody is left that it is for
            return made
        table = waiting.on_view(seq, view)
        if table is not None:
            self._become_seeded(table)
        return []

    def apply(self, seq: int, origin: int, body: bytes | memoryview) -> list[GroupChange]:
        """One operation of `origin`, as a roster block carries it."""
        self._applied = seq
        waiting = self._unseeded
        if waiting is not None and not is_seed(body):
            waiting.keep(seq, origin, bytes(body))
            return []
        try:
            operation = read_operation(seq, body)
        except WireError:
            self.unreadable += 1
            return []
        if waiting is None:
            was_current = self._is_current
            made = self._table.apply(origin, operation)
            if isinstance(operation, SeedPart):
                is_complete = origin == self._me and operation.state is not None and operation.as_of == self._own_seed
                if is_complete or (was_current and not self._is_current):
                    self._own_seed = -1  # complete, or another one has replaced it
            return made
        if isinstance(operation, SeedPart):
            table = waiting.on_seed(seq, origin, operation)
            if table is not None:
                self._become_seeded(table)
        return []

    @property
    def _is_current(self) -> bool:
        """Whether the seed that is under way is this node's own."""
        return self._table.seed is not None and self._table.seed.origin == self._me

    def _become_seeded(self, table: GroupTable) -> None:
        self._table = table
        self._unseeded = None

    # Seeding.

    def must_seed(self) -> bool:
        """Whether this node has to begin a seed: it is the first seeded member, others wait, and it is sending none.

        Nodes that come while a seed is under way wait for the next one. If each of them began it anew, it might never
        be complete.
        """
        table = self._table
        if self._unseeded is not None or not table.unseeded or self._own_seed >= 0:
            return False
        return next((node for node in table.members if node not in table.unseeded), None) == self._me

    def seed(self, limit: int) -> Iterator[bytes]:
        """The table as of now, in bodies of at most about `limit` bytes, each made when it is asked for.

        They end early where the seed has become useless. A few lists of references are taken at once: some 10 ms for
        100,000 groups.
        """
        if self._unseeded is not None:
            raise InvariantViolation("a node that is not seeded cannot seed others")
        table = self._table
        records = list(table.numbers.values())
        names = [record.name for record in records]
        members = [record.members for record in records]
        namers = [record.namers for record in records]
        groups = zip(list(table.numbers), names, members, namers, strict=True)
        self._own_seed = self._applied
        return self._bodies(self._applied, encode_seed(self._applied, groups, table.state, limit))

    def _bodies(self, as_of: int, bodies: Iterator[bytes]) -> Iterator[bytes]:
        for body in bodies:
            if self._own_seed != as_of:
                return
            yield body


class SeedStep(NamedTuple):
    """What is kept of a part of a seed: its groups, if anything, are in a candidate already."""

    as_of: int
    part: int
    is_last: bool


Entry = bytes | SeedStep | View
"""What a newcomer keeps of the stream. Bodies stay encoded, which is ten times smaller."""


class UnseededNode:
    """A node that does not have the table yet.

    `possible` are the nodes that may have it: those that were there before this one. Nodes that came with it or later
    do not have it while this one does not, because a seed is for all that had come by its as-of sequence number.
    """

    __slots__ = ("_candidates", "_cohort", "_kept", "_kept_bytes", "_me", "_possible", "is_overrun")

    def __init__(self, me: int) -> None:
        self._me = me
        self._possible: frozenset[int] = frozenset()
        self._cohort: frozenset[int] = frozenset()  # nodes that came with the same view, this one included
        self._kept: list[tuple[int, int, Entry]] = []  # with sequence number and origin; a view comes first
        self._kept_bytes = 0
        self._candidates: dict[int, Candidate] = {}  # by seeder
        self.is_overrun = False

    def on_view(self, seq: int, view: View) -> GroupTable | None:
        """The table, where this node has to begin an empty one."""
        present = frozenset([member.id for member in view.members])
        if not self._cohort:
            if view.reason == Reason.CREATE:
                table = GroupTable()
                table.enter(view)
                return table
            self._possible = frozenset(view.prior or present) - {self._me}
            self._cohort = present - self._possible
        self._keep(seq, 0, view, 0)
        self._possible &= present
        self._cohort &= present
        self._candidates = {origin: each for origin, each in self._candidates.items() if origin in present}
        if self._possible:
            return None
        # All that had the table are gone, and with them all members of all groups. Of the nodes that have waited
        # longest, which all know this now, the first begins an empty table, and seeds the others.
        first = next(member.id for member in view.members if member.id in self._cohort)
        self._possible = frozenset((first,))
        return _begun_anew(seq, view, self._me) if first == self._me else None

    def keep(self, seq: int, origin: int, body: bytes) -> None:
        self._keep(seq, origin, body, len(body))

    def on_seed(self, seq: int, origin: int, part: SeedPart) -> GroupTable | None:
        """The table, if this part is the last of a seed that counts."""
        self._keep(seq, origin, SeedStep(part.as_of, part.part, part.state is not None), 0)
        if origin not in self._possible or self.is_overrun:
            return None
        first_seq = self._kept[0][0]
        if not part.part:
            self._candidates.pop(origin, None)
            if part.as_of >= first_seq:  # an earlier one is not for this node
                self._candidates[origin] = Candidate(part.as_of)
        candidate = self._candidates.get(origin)
        if candidate is None or not candidate.add(part):
            return None
        if part.state is None:
            return None
        del self._candidates[origin]
        table = candidate.table
        table.restore(part.state)
        self._go_over(table, part.as_of)
        return None if self._me in table.unseeded else table

    def _keep(self, seq: int, origin: int, entry: Entry, nbytes: int) -> None:
        self._kept_bytes += nbytes + ENTRY_COST
        if self._kept_bytes > MAX_KEPT_BYTES:
            self.is_overrun = True
            self._kept.clear()
            self._candidates.clear()
        if not self.is_overrun:
            self._kept.append((seq, origin, entry))

    def _go_over(self, table: GroupTable, as_of: int) -> None:
        """Take a table that is as of an earlier place through all that has been kept since."""
        for seq, origin, entry in self._kept:
            if isinstance(entry, View):
                if seq <= as_of:
                    table.enter(entry)
                else:
                    table.on_view(seq, entry)
            elif seq <= as_of:
                continue
            elif isinstance(entry, SeedStep):
                table.on_seed(origin, entry.as_of, entry.part, entry.is_last)
            else:
                try:
                    table.apply(origin, read_operation(seq, entry))
                except WireError:
                    table.passed_over += 1


class Candidate:
    """The table that a seed makes, as its parts come."""

    __slots__ = ("_part", "as_of", "table")

    def __init__(self, as_of: int) -> None:
        self.as_of = as_of
        self._part = 0  # that comes next
        self.table = GroupTable()

    def add(self, part: SeedPart) -> bool:
        """False: it is a part of another seed."""
        if (part.as_of, part.part) != (self.as_of, self._part):
            return False
        self._part += 1
        groups = part.groups
        lists = groups.lists
        add = self.table.add
        for number, name, members, namers in zip(
            groups.numbers, groups.names, groups.members, groups.namers, strict=True
        ):
            add(number, name, lists[members], lists[namers])
        return True


def read_operation(seq: int, body: bytes | memoryview) -> AnyOperation:
    """The operation in the roster block with this sequence number."""
    operation = decode_operation(body)
    if isinstance(operation, SeedPart) and operation.as_of >= seq:
        raise WireError("a seed as of a place that is still to come")
    return operation


def _begun_anew(seq: int, view: View, me: int) -> GroupTable:
    """An empty table in an underlay that had groups before.

    A message to one of those may still be under way. So that it meets no group of the new table, the new numbers begin
    somewhere in the lower half of all numbers, drawn from the view's id.
    """
    draw = int.from_bytes(blake2b(view.id.encode(), digest_size=4).digest(), "big")
    table = GroupTable(1 + (draw >> 1))
    table.enter(view)
    table.unseeded = {member.id: seq for member in view.members if member.id != me}
    return table
