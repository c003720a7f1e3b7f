"""Rosters of components that part and merge at random, against a naive reading of the same streams.

Daemons join, leave, name and send; classes of a view end it at different places; exchanges are interrupted. At each
entry every roster must be what the naive one is. All daemons in sync at the same place of one stream have the same
groups, numbers and members. All sessions of a group have the same view of it, with the members that the roster has. A
session gets a message only where its site was among those that the sender sent it to.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.components import Daemon, Stamped, World

from ordercast.groups.exchange import ExchangeRoster
from ordercast.groups.records import GroupChange
from ordercast.orderers.sites.interests import group_key
from ordercast.view import View
from ordercast.wire.roster import (
    JoinGroups,
    LeaveGroups,
    NameGroups,
    SessionKey,
    decode_operation,
    decode_part,
    encode_joins,
    encode_leaves,
    encode_name_groups,
    part_front,
)

NAMES = [f"topic-{index}" for index in range(5)] + ["群"]
LABELS = ["", "b"]


@dataclass
class Plain:
    """What one daemon knows of one group."""

    number: int
    members: list[SessionKey] = field(default_factory=list)
    namers: list[SessionKey] = field(default_factory=list)


class Naive:
    """What the note says, as plainly as possible. `views` has, for each group, what its members were told last."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.groups: dict[str, Plain] = {}
        self.next_number = 1
        self.views: dict[str, tuple[int, str, list[SessionKey]]] = {}
        self.dirty: set[str] = set()  # an operation behind the signal was about it
        self.is_parting = False
        self.missing: list[tuple[int, ...]] = []  # roster groups that have not been heard to the end
        self.speakers: list[tuple[int, ...]] = []
        self.merging: dict[str, Plain] = {}
        self.marked: set[str] = set()
        self.members_from: dict[str, set[int]] = {}
        self.view: View | None = None

    @property
    def is_synced(self) -> bool:
        return not self.missing

    def on_view(self, view: View) -> None:
        self.view, self.is_parting = view, False
        self.speakers = list(view.rosters)
        self.missing = list(view.rosters) if len(view.rosters) > 1 else []
        self.merging, self.marked, self.members_from = {}, set(), {}
        if self.missing:
            return
        present = [member.id for member in view.members]
        for name, group in list(self.groups.items()):
            left = [key for key in group.members if key[0] in present]
            group.namers = [key for key in group.namers if key[0] in present]
            if left != group.members or name in self.dirty:
                group.members = left
                self._show(name, view.position)
        self._end_empty()
        self.dirty = set()

    def on_body(self, position: int, origin: int, body: bytes) -> None:
        if part_front(body) is not None:
            self._on_part(position, origin, body)
            return
        if not self.is_synced:
            return
        operation = decode_operation(body)
        if isinstance(operation, JoinGroups):
            key = (origin, operation.label)
            for name in operation.names:
                group = self._find(name)
                if key not in group.members:
                    group.members.append(key)
                    group.namers = [each for each in group.namers if each != key]
                    self._changed(name, position)
        elif isinstance(operation, LeaveGroups):
            key = (origin, operation.label)
            for number in operation.numbers:
                for name, group in list(self.groups.items()):
                    if group.number == number and key in group.members:
                        group.members.remove(key)
                        self._changed(name, position)
                    elif group.number == number:
                        group.namers = [each for each in group.namers if each != key]
                self._end_empty()
        elif isinstance(operation, NameGroups):
            key = (origin, operation.label)
            for name in operation.names:
                group = self._find(name)
                if key not in group.members + group.namers:
                    group.namers.append(key)

    def _on_part(self, position: int, origin: int, body: bytes) -> None:
        group_of = next((group for group in self.missing if group[0] == origin), None)
        front = part_front(body)
        assert group_of is not None
        assert front is not None
        part = decode_part(body)
        for at, name in enumerate(part.names):
            members, namers = part.lists[part.members[at]], part.lists[part.namers[at]]
            assert {key[0] for key in (*members, *namers)} <= set(group_of), "a roster speaks for its own daemons"
            if name not in self.merging:
                self.merging[name] = Plain(len(self.merging) + 1)
            self.merging[name].members += members
            self.merging[name].namers += namers
            if members:
                self.members_from.setdefault(name, set()).add(origin)
                if part.marks[at]:
                    self.marked.add(name)
        if not front.is_last:
            return
        self.missing.remove(group_of)
        if self.missing:
            return
        self.groups, self.next_number = self.merging, len(self.merging) + 1
        self.dirty = set()
        for name, group in self.groups.items():
            if group.members and (name in self.marked or len(self.members_from[name]) > 1):
                self._show(name, position)

    def must_mark(self, name: str, daemons: tuple[int, ...]) -> bool:
        """What a speaker has to say of a group."""
        return name in self.dirty or any(key[0] not in daemons for key in self.groups[name].members)

    def _find(self, name: str) -> Plain:
        if name not in self.groups:
            self.groups[name] = Plain(self.next_number)
            self.next_number += 1
        return self.groups[name]

    def _changed(self, name: str, position: int) -> None:
        if self.is_parting:
            self.dirty.add(name)
        else:
            self._show(name, position)

    def _show(self, name: str, position: int) -> None:
        assert self.view is not None
        self.views[name] = (position, self.view.id, list(self.groups[name].members))

    def _end_empty(self) -> None:
        self.groups = {name: group for name, group in self.groups.items() if group.members or group.namers}

    def state(self) -> object:
        groups = {
            name: (group.number, tuple(group.members), tuple(group.namers)) for name, group in self.groups.items()
        }
        return groups, self.next_number


@dataclass
class Seen:
    """What one session was told last of one group."""

    position: int
    view: str
    members: tuple[SessionKey, ...]
    came_with: tuple[SessionKey, ...]
    before: tuple[int, str] | None  # the id of its view before
    since: tuple[int, ...]  # the classes that it came in since then
    at: int  # how many it had come in with this view


class Stack:
    """A roster on a daemon, beside a naive one. Sessions hear what the ports of a node would."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.roster = ExchangeRoster(daemon.id, daemon.interests)
        self.naive = Naive(daemon.id)
        self.seen: dict[tuple[str, SessionKey], Seen] = {}  # for each session that is in a group
        self.current: View | None = None
        self.bodies: list[bytes] = []  # of its own roster, that are to be said

    def run(self, entry: Stamped) -> None:
        if entry.body is not None:
            made = self.roster.apply(entry.position, entry.origin, memoryview(entry.body))
            self.naive.on_body(entry.position, entry.origin, entry.body)
            self.roster.take_renumbered()
            self._tell(made, entry.position)
        else:
            assert isinstance(entry.note, tuple)
            name, number = entry.note
            assert self.roster.name_of(number) == name, "numbers are those of the sender"
        self._compare()

    def skip(self, entry: Stamped) -> None:
        assert isinstance(entry.note, tuple)
        assert all(name != entry.note[0] for name, _ in self.seen), "a message that a session here should get"

    def transitional(self, view: View) -> None:
        assert self.current is not None
        assert view.id == self.current.id
        self.roster.on_transitional()
        self.naive.is_parting = True

    def enter(self, view: View) -> None:
        self.current = view
        made = self.roster.on_view(view.seq, view)
        # Leaves behind the signal count from here on, in the naive one as well.
        for name, key in list(self.seen):
            group = self.naive.groups.get(name)
            if group is None or key not in group.members:
                del self.seen[name, key]
        self.naive.on_view(view)
        self._tell([change for change in made if change.after], view.position)
        self.bodies = []
        if self.roster.must_seed():
            mine = next(group for group in view.rosters if group[0] == self.daemon.id)
            self.bodies = list(self.roster.seed(80))
            assert not self.roster.must_seed()
            for body in self.bodies:
                part = decode_part(body)
                for mark, name, at in zip(part.marks, part.names, part.members, strict=True):
                    if part.lists[at]:
                        assert bool(mark) == self.naive.must_mark(name, mine), name
        self._compare()

    def _tell(self, made: list[GroupChange], position: int) -> None:
        assert self.current is not None
        for change in made:
            name = change.record.name
            for key in change.before:
                if key[0] == self.daemon.id and key not in change.after:
                    del self.seen[name, key]
            for key in change.after:
                if key[0] != self.daemon.id:
                    continue
                was = self.seen.get((name, key))
                assert (was is not None) == (key in change.before), "who goes on, and who is new"
                came = tuple(each for each in change.after if each in change.before) if was is not None else (key,)
                before = (was.position, was.view) if was is not None else None
                path = self.daemon.path
                since = tuple(path[was.at :]) if was is not None else ()
                self.seen[name, key] = Seen(position, self.current.id, change.after, came, before, since, len(path))

    def _compare(self) -> None:
        assert self.roster.is_seeded == self.naive.is_synced == self.daemon.is_synced
        if self.roster.is_seeded:
            assert state_of(self.roster) == self.naive.state()
        for (name, _), seen in self.seen.items():
            assert (seen.position, seen.view, list(seen.members)) == self.naive.views[name]


def state_of(roster: ExchangeRoster) -> object:
    for each in roster.groups.values():
        assert roster.find(each.name) is each
        assert roster.at(each.number) is each
    groups = {each.name: (each.number, each.members, each.namers) for each in roster.groups.values()}
    return groups, roster.next_number


class Run:
    """Daemons, what they say, and what must hold."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.world = World(rng)
        self.born = 0
        self.declared: dict[str, list[tuple[str, str, int]]] = {}  # daemon -> label, group, place
        for _ in range(rng.randint(2, 4)):
            self.bear()

    def bear(self) -> str:
        self.born += 1
        name = f"d{self.born}"
        daemon = self.world.add(name, self.rng.randrange(3))
        daemon.stack = Stack(daemon)
        self.world.begin(daemon)
        return name

    def stack(self, daemon: Daemon) -> Stack:
        assert isinstance(daemon.stack, Stack)
        return daemon.stack

    # Steps.

    def speak(self, name: str, daemon: Daemon) -> None:
        rng, stack, world = self.rng, self.stack(daemon), self.world
        if stack.bodies:
            body = stack.bodies.pop(0)
            world.stamp(daemon, body, body)
            return
        if not stack.roster.is_seeded:
            return
        ready = [each for each in self.declared.get(name, ()) if world.is_read(daemon, each[2])]
        if ready and rng.random() < 0.7:
            self.declared[name].remove(ready[0])
            body = next(encode_joins(ready[0][0], b"", [ready[0][1]], 500))
            world.stamp(daemon, body, body)
            return
        label, group = rng.choice(LABELS), rng.choice(NAMES)
        chance = rng.random()
        if chance < 0.3:
            record = stack.roster.find(group)
            if record is not None and any(key[0] == daemon.id for key in record.members):
                body = next(encode_joins(label, b"", [group], 500))
                world.stamp(daemon, body, body)
            else:
                place = world.declare(daemon, [group_key(group)])
                self.declared.setdefault(name, []).append((label, group, place))
        elif chance < 0.5:
            numbers = [each.number for each in stack.roster.groups.values()] + [77]
            body = next(encode_leaves(label, b"", rng.choices(numbers, k=2), 500))
            # The node's own rule: behind a leave it declares its interest again.
            world.deliver(daemon)
            if stack.roster.is_seeded and not daemon.is_behind:
                world.stamp(daemon, body, body)
                world.deliver(daemon)
        elif chance < 0.6:
            body = next(encode_name_groups(label, [group], 500))
            world.stamp(daemon, body, body)
        elif (record := stack.roster.find(group)) is not None:
            mask = daemon.interests.mask([record.number])
            world.stamp(daemon, b"data", None, mask, (group, record.number))

    def change(self) -> None:
        rng, world = self.rng, self.world
        names = list(world.daemons)
        if rng.random() < 0.3 and len(names) < 6:
            names.append(self.bear())
        elif rng.random() < 0.3 and len(names) > 2:
            names.remove(rng.choice(names))
        parts: list[list[str]] = [[] for _ in range(rng.choice((1, 1, 2, 3)))]
        for name in names:
            rng.choice(parts).append(name)
        world.change([part for part in parts if part])
        self.declared = {}

    def step(self) -> None:
        rng, world = self.rng, self.world
        name, daemon = rng.choice(list(world.daemons.items()))
        chance = rng.random()
        if chance < 0.06:
            self.change()
        elif chance < 0.45:
            world.deliver(daemon, rng.choice((1, 2, 5, 50)))
        else:
            self.speak(name, daemon)
        self.check_same()

    # What must hold.

    def check_same(self) -> None:
        states: dict[tuple[str, int], object] = {}
        for daemon in self.world.daemons.values():
            assert daemon.component is not None
            if daemon.is_synced:
                place = (daemon.component.view.id, daemon.read)
                state = state_of(self.stack(daemon).roster)
                assert states.setdefault(place, state) == state

    def come_to_rest(self) -> None:
        world = self.world
        world.change([list(world.daemons)])
        self.declared = {}
        for _ in range(500):
            for daemon in world.daemons.values():
                world.deliver(daemon)
            talking = [daemon for daemon in world.daemons.values() if self.stack(daemon).bodies]
            if not talking:
                break
            for daemon in talking:
                body = self.stack(daemon).bodies.pop(0)
                world.stamp(daemon, body, body)
        self.check_same()
        assert all(daemon.is_synced for daemon in world.daemons.values())
        told: dict[str, list[tuple[SessionKey, Seen]]] = {}
        for daemon in world.daemons.values():
            for (name, key), seen in self.stack(daemon).seen.items():
                told.setdefault(name, []).append((key, seen))
        roster = self.stack(next(iter(world.daemons.values()))).roster
        for name, sessions in told.items():
            record = roster.find(name)
            assert record is not None
            assert sorted(key for key, _ in sessions) == sorted(record.members), "sessions and roster agree"
            assert len({(seen.position, seen.view) for _, seen in sessions}) == 1, "all have one view of the group"
            for key, seen in sessions:
                assert seen.members == record.members
                for other, others in sessions:
                    is_with = (others.before, others.since) == (seen.before, seen.since) and seen.before is not None
                    assert (other in seen.came_with) == (is_with or other == key), "who came from the same view, how"
        assert all(record.members == () or name in told for name, record in roster.groups.items())
        for daemon in world.daemons.values():
            for name, record in roster.groups.items():
                mask = 0
                for key in record.members:
                    mask |= 1 << next(each.site for each in world.daemons.values() if each.id == key[0])
                assert daemon.interests.mask([record.number]) == mask, name


@given(st.integers(0, 1 << 32), st.integers(50, 250))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_rosters_of_components_agree_with_the_naive_one_everywhere(seed: int, steps: int) -> None:
    run = Run(random.Random(seed))
    for _ in range(steps):
        run.step()
    run.come_to_rest()
