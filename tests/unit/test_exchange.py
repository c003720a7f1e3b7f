"""The roster of components: what a merge, a signal and the bounds do to it (docs/design/sites.md, "Rosters")."""

from __future__ import annotations

import pytest
from tests.unit.roster_streams import member

from ordercast.errors import InvariantViolation
from ordercast.groups import records
from ordercast.groups.exchange import ExchangeRoster
from ordercast.groups.records import GroupChange
from ordercast.orderers.sites.interests import Interests, group_key
from ordercast.view import Reason, View
from ordercast.wire.roster import (
    PART,
    Operation,
    SessionKey,
    encode_joins,
    encode_leaves,
    encode_name_groups,
    encode_parts,
)


class Roster:
    """A roster, and the positions that its blocks have."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.interests = Interests()
        self.roster = ExchangeRoster(me, self.interests)
        self.lts = 0
        self.enter([[me]], [me])

    def enter(self, rosters: list[list[int]], came: list[int]) -> list[GroupChange]:
        self.lts += 10
        nodes = [node for group in rosters for node in group]
        view = View(
            self.lts,
            "n1/0",
            1,
            0,
            0,
            self.lts << 24,
            tuple(map(member, nodes)),
            {},
            Reason.RESET,
            came_with=tuple(f"n{node}/0" for node in came),
            rosters=tuple(map(tuple, rosters)),
        )
        self.interests.place({node: node for node in nodes})
        return self.roster.on_view(0, view)

    def read(self, origin: int, body: bytes) -> list[GroupChange]:
        self.lts += 1
        return self.roster.apply(self.lts << 24, origin, memoryview(body))

    def join(self, origin: int, *names: str, label: str = "") -> list[GroupChange]:
        return self.read(origin, next(encode_joins(label, b"", names, 500)))

    def leave(self, origin: int, name: str, label: str = "") -> list[GroupChange]:
        record = self.roster.find(name)
        assert record is not None
        return self.read(origin, next(encode_leaves(label, b"", [record.number], 500)))

    def said(self) -> list[bytes]:
        return list(self.roster.seed(500))

    def members(self, name: str) -> list[SessionKey]:
        record = self.roster.find(name)
        return list(record.members) if record is not None else []


def told(changes: list[GroupChange]) -> list[tuple[str, list[int], list[int]]]:
    return [(each.record.name, [key[0] for key in each.before], [key[0] for key in each.after]) for each in changes]


def merged(*rosters: Roster) -> list[list[GroupChange]]:
    """Rosters of single daemons become one; what each of them is told."""
    ids = [roster.me for roster in rosters]
    for roster in rosters:
        roster.lts = max(each.lts for each in rosters)
        assert not roster.enter([[each] for each in ids], [roster.me])
        assert roster.roster.must_seed()
    bodies = [(roster.me, body) for roster in rosters for body in roster.said()]
    made: list[list[GroupChange]] = [[] for _ in rosters]
    for origin, body in bodies:
        for at, roster in enumerate(rosters):
            made[at] += roster.read(origin, body)
    return made


def test_a_merge_makes_one_table_of_all_rosters() -> None:
    one, two = Roster(1), Roster(2)
    one.join(1, "a", "b")
    two.join(2, "b", "c")
    two.join(2, "b", label="x")
    table = two.roster.current_names
    assert table(1) == "b"
    mine, theirs = merged(one, two)
    assert told(mine) == [("b", [1], [1, 2, 2])]
    assert told(theirs) == [("b", [2, 2], [1, 2, 2])]
    assert [each.components for each in (*mine, *theirs)] == [(frozenset((1,)), frozenset((2,)))] * 2
    for roster in (one, two):
        assert roster.roster.is_seeded
        assert roster.roster.take_renumbered()
        assert not roster.roster.take_renumbered()
        found = [(name, each.number, each.members) for name, each in roster.roster.groups.items()]
        assert found == [("a", 1, ((1, ""),)), ("b", 2, ((1, ""), (2, ""), (2, "x"))), ("c", 3, ((2, ""),))]
        assert roster.interests.mask([2]) == 0b110
        assert roster.interests.mask([1]) == 0b010
    assert table(1) == "b", "blocks of before the merge are opened with the old numbers"
    assert two.roster.name_of(1) == "a"
    assert [each.components for each in one.join(1, "c")] == [()], "the rosters became one before"


def test_no_operation_counts_before_the_exchange_is_complete() -> None:
    one, two = Roster(1), Roster(2)
    one.join(1, "a")
    for roster in (one, two):
        roster.enter([[1], [2]], [roster.me])
    passed = one.roster.passed_over
    assert not one.join(2, "b")
    assert one.roster.find("b") is None
    assert one.roster.passed_over == passed + 1
    assert one.roster.unseeded == {1}
    for body in one.said():
        one.read(1, body)
    assert not one.roster.is_seeded
    with pytest.raises(InvariantViolation):
        Roster(3).said()


def test_a_roster_speaks_for_the_daemons_of_its_group_only() -> None:
    one = Roster(1)
    one.enter([[1], [2]], [1])
    said = [(False, "a", ((2, ""), (1, "")), ((1, "x"),)), (False, "b", ((9, ""),), ())]
    one.read(2, next(encode_parts(iter(said), 500)))
    for body in one.said():
        one.read(1, body)
    assert one.members("a") == [(2, "")]
    record = one.roster.find("a")
    assert record is not None
    assert record.namers == ()
    assert one.members("b") == []


def test_what_a_speaker_says_twice_counts_once() -> None:
    one = Roster(1)
    one.enter([[1], [2]], [1])
    said = [(False, "a", ((2, ""), (2, "")), ()), (False, "b", ((2, ""),), ()), (False, "a", ((2, "x"),), ())]
    one.read(2, next(encode_parts(iter(said), 500)))
    for body in one.said():
        one.read(1, body)
    assert one.members("a") == [(2, "")]
    assert one.roster.refused == 1


def test_a_long_list_goes_on_in_the_next_record_and_is_one_group() -> None:
    one, two = Roster(1), Roster(2)
    labels = [f"session {at:03}" for at in range(150)]
    for label in labels:
        two.join(2, "a", label=label)
    two.join(2, "b")
    mine, theirs = merged(one, two)
    assert not mine
    assert not theirs, "all of its members are in one roster"
    assert one.members("a") == [(2, label) for label in labels]
    assert one.roster.next_number == 3


def test_parts_of_others_are_passed_over() -> None:
    one = Roster(1)
    body = next(encode_parts(iter(()), 500))
    assert not one.read(1, body)
    assert one.roster.passed_over == 1
    one.enter([[1], [2]], [1])
    one.read(7, body)
    assert one.roster.passed_over == 2
    one.read(2, PART.pack(Operation.PART, 1, 0) + b"\xff")
    assert one.roster.unreadable == 1
    one.read(1, body)
    assert one.roster.is_seeded, "an unreadable part counts, or nobody would go on"


def test_seeds_of_other_underlays_and_garbage_have_no_effect() -> None:
    one = Roster(1)
    assert not one.read(1, bytes((Operation.JOIN, 0)))
    assert one.roster.unreadable == 1
    assert not one.read(1, b"")
    assert one.roster.unreadable == 2


def test_operations_behind_the_signal_are_told_with_the_view() -> None:
    one = Roster(1)
    one.enter([[1], [2]], [1])
    one.read(1, one.said()[0])
    one.read(2, next(encode_parts(iter([(False, "a", ((2, ""),), ())]), 500)))
    one.join(1, "a")
    one.join(2, "b")
    one.roster.on_transitional()
    assert not one.join(1, "b")
    assert not one.leave(1, "a")
    assert not one.join(1, "a")
    assert not one.leave(2, "a")
    assert one.members("a") == [(1, "")]
    assert one.members("b") == [(2, ""), (1, "")], "numbers and lists are up to date for those that know the rest"
    made = one.enter([[1, 2]], [1, 2])
    assert told(made) == [("a", [2], []), ("b", [2], [2, 1]), ("a", [], [1])], "it has left and joined: it is new"


def test_what_is_told_late_survives_an_exchange_that_does_not_end() -> None:
    one = Roster(1)
    one.join(1, "a", label="x")
    one.roster.on_transitional()
    one.join(1, "a")
    one.leave(1, "a", label="x")
    assert told(one.enter([[1], [2]], [1])) == [("a", [1], [])]
    part = one.said()[0]
    assert not one.read(1, part)
    one.enter([[1], [3]], [1])
    assert one.said() == [part], "it is marked again"
    made = one.enter([[1]], [1])
    assert told(made) == [("a", [], [1])]
    assert made[0].after == ((1, ""),)


def test_daemons_that_took_another_way_did_not_come_along() -> None:
    """Of a merge that was interrupted: who came with this daemon came with it through all views since."""
    one = Roster(1)
    one.enter([[1], [2], [3]], [1])
    for origin in (2, 3):
        one.read(origin, next(encode_parts(iter([(False, "a", ((origin, ""),), ())]), 500)))
    one.read(1, one.said()[0])
    one.join(1, "a")
    one.enter([[1, 2], [3], [4]], [1, 2])
    one.enter([[1], [2], [3]], [1, 2, 3])
    for origin in (2, 3):
        one.read(origin, next(encode_parts(iter([(True, "a", ((origin, ""),), ())]), 500)))
    made = one.read(1, one.said()[0])
    assert told(made) == [("a", [2, 1], [2, 3, 1])]
    assert made[0].components == (frozenset((1,)), frozenset((2,)), frozenset((3,)))


def test_a_daemon_that_was_away_is_sent_to_again_where_the_roster_goes_on() -> None:
    one, two = Roster(1), Roster(2)
    two.join(2, "a")
    merged(one, two)
    one.enter([[1], [3]], [1])
    assert one.interests.mask([1]) == 0
    assert not one.enter([[1, 2]], [1]), "nobody of the roster is lost"
    assert one.roster.is_seeded
    assert one.interests.mask([1]) == 0b100


def test_names_come_along() -> None:
    one, two = Roster(1), Roster(2)
    one.read(1, next(encode_name_groups("", ["a"], 500)))
    two.join(2, "a")
    mine, theirs = merged(one, two)
    assert not mine
    assert not theirs, "a namer is no member: the group keeps its view"
    record = one.roster.find("a")
    assert record is not None
    assert record.namers == ((1, ""),)
    assert one.interests.mask([record.number]) == 0b100
    one.leave(1, "a")
    assert not record.namers


def test_a_daemon_is_sent_to_while_one_of_its_sessions_is_in_the_group() -> None:
    one = Roster(1)
    one.join(1, "a")
    one.join(1, "a", label="x")
    number = one.roster.groups["a"].number
    one.leave(1, "a")
    assert one.interests.mask([number]) == 0b10
    one.leave(1, "a", label="x")
    assert one.interests.mask([number]) == 0


def test_a_group_that_ends_is_forgotten_by_the_interests() -> None:
    one = Roster(1)
    one.join(1, "a")
    number = one.roster.groups["a"].number
    one.leave(1, "a")
    assert one.roster.find("a") is None
    assert one.interests.size == 0
    assert one.roster.name_of(number) == "a"
    one.interests.received(1, group_key("a"), one.lts + 1)
    one.join(1, "a")
    assert one.interests.mask([one.roster.groups["a"].number]) == 0b10


def test_a_merge_beyond_the_bounds_leaves_sessions_out_everywhere_alike() -> None:
    one, two = Roster(1), Roster(2)
    most = records.MAX_GROUP_SESSIONS
    for roster in (one, two):
        roster.join(roster.me, "a")
        record = roster.roster.find("a")
        assert record is not None
        record.members = tuple((roster.me, f"{at}") for at in range(most - 10 * roster.me))
    merged(one, two)
    assert one.members("a") == two.members("a")
    assert len(one.members("a")) == most
    assert one.roster.refused == two.roster.refused == most - 30
