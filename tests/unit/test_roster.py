"""The roster rule by rule (docs/design/roster.md)."""

from __future__ import annotations

import pytest
from tests.unit.roster_streams import Change, state_of, told, view_of

from ordercast.errors import InvariantViolation, UsageError
from ordercast.groups.records import (
    MAX_NAMED,
    SHARED_SLACK,
    GroupTable,
)
from ordercast.groups.roster import MAX_KEPT_BYTES, Roster
from ordercast.view import Reason, View
from ordercast.wire.labels import MAX_LABEL
from ordercast.wire.roster import (
    LIST_SESSIONS,
    JoinGroups,
    SeedPart,
    SeedProgress,
    SeedState,
    decode_operation,
    encode_joins,
    encode_leaves,
    encode_name_groups,
    encode_seed,
)


class Floor:
    """An underlay whose nodes all read at once. Node 1 creates it."""

    def __init__(self) -> None:
        self.seq = -1
        self.nodes: list[int] = []
        self.rosters: dict[int, Roster] = {}
        self.last: list[Change] = []
        self.view([1], reason=Reason.CREATE)

    def __getitem__(self, node: int) -> Roster:
        return self.rosters[node]

    def view(self, nodes: list[int], reason: Reason = Reason.RESET, header: bytes = b"") -> None:
        """`last` has what the seeded nodes made of it: all of them the same."""
        self.seq += 1
        new = [node for node in nodes if node not in self.nodes]
        view = view_of(self.seq, nodes, self.nodes if new else [], reason, header)
        self.rosters = {node: Roster(node) if node in new else self.rosters[node] for node in nodes}
        self.nodes = nodes
        made = {node: told(roster.on_view(self.seq, view)) for node, roster in self.rosters.items()}
        seeded = [node for node in nodes if self.rosters[node].is_seeded]
        assert all(made[node] == made[seeded[0]] for node in seeded)
        self.last = made[seeded[0]] if seeded else []

    def order(self, origin: int, *bodies: bytes) -> None:
        """`last` has what the seeded nodes made of it: all of them the same."""
        self.last = []
        for body in bodies:
            self.seq += 1
            seeded = [node for node in self.nodes if self.rosters[node].is_seeded]
            made = {node: told(roster.apply(self.seq, origin, body)) for node, roster in self.rosters.items()}
            assert all(made[node] == made[seeded[0]] for node in seeded)
            assert all(not made[node] for node in self.nodes if node not in seeded)
            self.last += made[seeded[0]]
        states = [state_of(roster) for roster in self.rosters.values() if roster.is_seeded]
        assert all(state == states[0] for state in states)

    def join(self, node: int, *names: str, label: str = "", header: bytes = b"") -> None:
        self.order(node, *encode_joins(label, header, names, 500))

    def leave(self, node: int, *numbers: int, label: str = "", header: bytes = b"") -> None:
        self.order(node, *encode_leaves(label, header, numbers, 500))

    def name(self, node: int, *names: str, label: str = "") -> None:
        self.order(node, *encode_name_groups(label, names, 500))

    def seed(self, node: int, limit: int = 500) -> None:
        assert self.rosters[node].must_seed()
        self.order(node, *self.rosters[node].seed(limit))

    def add(self, *nodes: int) -> None:
        self.view([*self.nodes, *nodes], Reason.JOIN)


def floor_of(*others: int) -> Floor:
    """Node 1 and others, all seeded."""
    floor = Floor()
    for node in others:
        floor.add(node)
        floor.seed(1)
    return floor


# Operations. ----------------------------------------------------------------------------------------------------------


def test_a_join_makes_the_group_and_numbers_it_from_one_on() -> None:
    floor = floor_of(2)
    floor.join(1, "a", "b", header=b"hi")
    assert floor.last == [
        ("a", 1, [], [(1, "")], Reason.JOIN, (1, ""), b"hi", 1),
        ("b", 2, [], [(1, "")], Reason.JOIN, (1, ""), b"hi", 2),
    ]
    floor.join(2, "b", label="x")
    assert floor.last == [("b", 2, [(1, "")], [(1, ""), (2, "x")], Reason.JOIN, (2, "x"), b"", 3)]
    record = floor[2].find("b")
    assert record is not None
    assert (record.number, record.members, floor[2].at(2)) == (2, ((1, ""), (2, "x")), record)
    assert floor[2].find("c") is None
    assert floor[2].at(3) is None
    assert floor[2].next_number == 3


def test_sessions_of_one_node_are_members_of_their_own() -> None:
    floor = Floor()
    floor.join(1, "a", label="x")
    floor.join(1, "a", label="y")
    record = floor[1].find("a")
    assert record is not None
    assert [label for _, label in record.members] == ["x", "y"]
    floor.leave(1, 1, label="x")
    assert [label for _, label in record.members] == ["y"]


def test_a_second_join_and_a_leave_of_what_it_is_not_in_change_nothing() -> None:
    floor = floor_of(2)
    floor.join(1, "a", "a")
    assert len(floor.last) == 1
    floor.join(1, "a")
    assert floor.last == []
    floor.leave(2, 1)
    floor.leave(1, 2, 77)
    floor.leave(1, 1, label="another")
    assert floor.last == []
    assert floor[1].changes == 1


def test_a_group_without_members_goes_and_its_name_gets_another_number() -> None:
    floor = floor_of(2)
    floor.join(1, "a", "b")
    floor.join(2, "a")
    floor.leave(1, 1, 2, header=b"bye")
    assert floor.last == [
        ("a", 1, [(1, ""), (2, "")], [(2, "")], Reason.LEAVE, (1, ""), b"bye", 4),
        ("b", 2, [(1, "")], [], Reason.LEAVE, (1, ""), b"bye", 5),
    ]
    assert (list(floor[1].groups), floor[1].at(2)) == (["a"], None)
    floor.join(1, "b")
    record = floor[2].find("b")
    assert record is not None
    assert record.number == 3


def test_members_stand_in_the_order_in_which_they_joined() -> None:
    floor = floor_of(2, 3)
    for node in (3, 1, 2):
        floor.join(node, "a")
    floor.leave(3, 1)
    floor.join(3, "a")
    record = floor[1].find("a")
    assert record is not None
    assert record.members == ((1, ""), (2, ""), (3, ""))


def test_a_name_gives_a_number_without_a_member_and_without_a_change() -> None:
    floor = floor_of(2)
    floor.name(2, "a", "b")
    assert (floor.last, floor[1].changes) == ([], 0)
    record = floor[1].find("a")
    assert record is not None
    assert (record.number, record.members, record.namers) == (1, (), ((2, ""),))
    floor.join(1, "a")
    floor.leave(1, 1)
    assert floor[1].find("a") is record, "it lives while a namer does"
    floor.leave(2, 1, 2)
    assert floor.last == [], "names are given back without a change"
    assert not floor[1].groups


def test_a_session_that_joins_is_no_namer_any_more() -> None:
    floor = Floor()
    floor.name(1, "a", "b")
    floor.join(1, "a")
    record = floor[1].find("a")
    assert record is not None
    assert (record.members, record.namers) == (((1, ""),), ())
    floor.name(1, "a")
    assert record.namers == (), "a member needs no name"
    floor.leave(1, 1)
    assert floor[1].find("a") is None
    floor.name(1, "b")
    assert floor[1].next_number == 3, "a second name changes nothing"


def test_a_node_names_a_bounded_number_of_groups() -> None:
    table = GroupTable()
    table.enter(view_of(0, [1, 2]))

    def name(node: int, *names: str) -> None:
        for body in encode_name_groups("", names, 1 << 20):
            table.apply(node, decode_operation(body))

    name(1, *[f"n{index}" for index in range(MAX_NAMED + 5)])
    assert (len(table.groups), table.refused, table.next_number) == (MAX_NAMED, 5, MAX_NAMED + 1)
    name(2, "n0", "of another node")
    assert len(table.groups) == MAX_NAMED + 1
    table.apply(1, JoinGroups("", b"", ["n1"]))
    name(1, "one more")
    assert "one more" in table.groups, "a group that it has joined does not count"
    for body in encode_leaves("", b"", [3], 100):
        table.apply(1, decode_operation(body))
    name(1, "and another", "but not this")
    assert "and another" in table.groups
    assert "but not this" not in table.groups
    table.on_view(5, view_of(5, [2], reason=Reason.RESET))
    assert sorted(table.groups) == ["n0", "of another node"]
    table.on_view(6, view_of(6, [2, 1]))
    table.unseeded = {}
    name(1, "again")
    assert "again" in table.groups, "its names went with it"


def test_what_cannot_be_read_is_counted_and_passed_over() -> None:
    floor = floor_of(2)
    for body in (b"", b"\0", b"\5\0\0\0", b"\1\0\0\0\1\0\0\0", b"\4" + bytes(50)):
        floor.order(2, body)
    assert [floor[node].unreadable for node in (1, 2)] == [5, 5]
    assert not floor[1].groups


# Views of the underlay. -----------------------------------------------------------------------------------------------


def test_a_view_takes_out_the_sessions_of_nodes_that_are_gone() -> None:
    floor = floor_of(2, 3)
    floor.join(2, "a", "b", "only 2")
    floor.join(1, "a", "c")
    floor.join(3, "a", label="x")
    floor.view([1], Reason.RESET, b"why")
    assert floor.last == [
        ("a", 1, [(2, ""), (1, ""), (3, "x")], [(1, "")], Reason.RESET, None, b"why", 1),
        ("b", 2, [(2, "")], [], Reason.RESET, None, b"why", 2),
        ("only 2", 3, [(2, "")], [], Reason.RESET, None, b"why", 3),
    ]
    assert list(floor[1].groups) == ["a", "c"]
    assert floor[1].at(3) is None


def test_a_view_takes_out_namers_and_what_only_they_kept() -> None:
    floor = floor_of(2)
    floor.name(2, "a", "b")
    floor.name(1, "b")
    floor.view([1], Reason.LEAVE)
    assert floor.last == []
    assert list(floor[1].groups) == ["b"]
    record = floor[1].find("b")
    assert record is not None
    assert record.namers == ((1, ""),)


def test_changes_count_from_each_view_of_the_underlay_on() -> None:
    floor = floor_of(2)
    floor.join(1, "a", "b")
    assert floor[2].changes == 2
    floor.view([1, 2], Reason.UNLOCK)
    assert floor[2].changes == 0
    floor.join(2, "b")
    assert [change[-1] for change in floor.last] == [1]


def test_a_view_that_is_delivered_again_does_not_begin_the_count_again() -> None:
    """A lock that is denied repeats the view. Ids of group views are never used twice."""
    roster = Roster(1)
    first = view_of(0, [1], reason=Reason.CREATE)
    roster.on_view(0, first)
    body = next(encode_joins("", b"", ["a", "b"], 100))
    roster.apply(1, 1, body)
    roster.on_view(2, view_of(2, [1], reason=Reason.LOCK, counter=first.counter))
    assert roster.changes == 2


def test_operations_of_a_node_that_is_gone_are_passed_over() -> None:
    """A coordinator submits again what a dead node had under way."""
    floor = floor_of(2, 3)
    floor.view([1, 3])
    floor.join(2, "a")
    floor.name(2, "b")
    assert not floor[1].groups
    assert floor[1].passed_over == 2


def test_operations_of_a_node_that_came_back_are_passed_over_until_it_is_seeded() -> None:
    floor = floor_of(2)
    floor.view([1])
    floor.add(2)
    floor.join(2, "from before")
    assert not floor[1].groups
    floor.seed(1)
    floor.join(2, "a")
    assert list(floor[1].groups) == ["a"]


# Newcomers. -----------------------------------------------------------------------------------------------------------


def test_the_creator_is_seeded_and_a_newcomer_is_not() -> None:
    floor = Floor()
    assert floor[1].is_seeded
    assert not floor[1].must_seed()
    floor.add(2)
    assert not floor[2].is_seeded
    assert floor[1].unseeded == floor[2].unseeded == {2}
    assert (floor[1].must_seed(), floor[2].must_seed()) == (True, False)
    with pytest.raises(InvariantViolation):
        floor[2].seed(500)


@pytest.mark.parametrize("limit", [60, 200, 60_000])
def test_a_newcomer_takes_the_groups_and_what_it_has_kept_since(limit: int) -> None:
    floor = floor_of(2)
    floor.join(1, *[f"t{index}" for index in range(20)])
    floor.join(2, "t3", "grün", label="x")
    floor.name(1, "named", label="y")
    floor.add(3)
    floor.join(2, "before the seed")
    seed = floor[1].seed(limit)
    floor.join(1, "in the seed's way", "t3", label="z")
    for body in seed:
        assert not floor[3].is_seeded
        floor.order(1, body)
        floor.leave(2, 4, label="x")
        floor.join(2, "t3", label="x")
    assert floor[3].is_seeded
    assert not floor[1].unseeded
    assert state_of(floor[3]) == state_of(floor[1]) == state_of(floor[2])
    floor.join(3, "its own")
    assert len(floor.last) == 1


def test_a_seed_is_as_of_the_moment_at_which_it_was_asked_for() -> None:
    """It is made part by part, and the groups change meanwhile: each change must count once."""
    floor = Floor()
    floor.join(1, *[f"t{index}" for index in range(9)])
    floor.add(2)
    seed = floor[1].seed(60)
    floor.order(1, next(seed))
    floor.leave(1, 9)
    floor.join(1, "t0", label="x")
    floor.join(1, "t7", label="x")
    floor.order(1, *seed)
    assert state_of(floor[2]) == state_of(floor[1])


def test_the_first_seeded_member_of_the_view_seeds() -> None:
    floor = floor_of(2)
    floor.view([3, 2, 1], Reason.JOIN)
    assert [floor[node].must_seed() for node in (1, 2, 3)] == [False, True, False]
    floor.seed(2)
    floor.view([4, 3, 2, 1], Reason.JOIN)
    assert [floor[node].must_seed() for node in (1, 2, 3, 4)] == [False, False, True, False]


def test_a_seeder_begins_no_second_seed_before_the_first_is_complete() -> None:
    floor = Floor()
    floor.join(1, "a", "b")
    floor.add(2)
    first = floor[1].seed(60)
    floor.order(1, next(first))
    floor.add(3)
    assert not floor[1].must_seed()
    floor.order(1, *first)
    assert (floor[2].is_seeded, floor[3].is_seeded) == (True, False)
    assert floor[1].unseeded == floor[2].unseeded == {3}
    floor.seed(1)
    assert floor[3].is_seeded


def test_one_seed_serves_all_that_had_come_by_its_place() -> None:
    floor = Floor()
    floor.join(1, "a")
    floor.add(2)
    floor.add(3, 4)
    floor.seed(1)
    assert all(floor[node].is_seeded for node in (2, 3, 4))


def test_the_next_seeded_member_begins_where_the_seeder_is_gone() -> None:
    floor = floor_of(2)
    floor.join(2, *[f"t{index}" for index in range(9)])
    floor.join(1, "t1", "gone")
    floor.add(3)
    parts = list(floor[1].seed(60))
    assert len(parts) > 2
    floor.order(1, *parts[:-1])
    floor.view([2, 3])
    floor.order(1, parts[-1])
    assert not floor[3].is_seeded
    assert floor[2].unseeded == {3}
    floor.seed(2)
    assert floor[3].is_seeded
    assert floor[3].find("gone") is None


def test_a_seed_goes_on_over_a_view_that_its_seeder_is_in() -> None:
    floor = floor_of(2)
    floor.join(2, "a", "b", "c")
    floor.join(1, "a")
    floor.add(3)
    seed = floor[1].seed(60)
    floor.order(1, next(seed))
    floor.view([1, 3])
    floor.order(1, *seed)
    assert floor[3].is_seeded
    assert list(floor[3].groups) == ["a"]


def test_a_seed_that_nobody_needs_any_more_ends() -> None:
    floor = Floor()
    floor.join(1, *[f"t{index}" for index in range(9)])
    floor.add(2)
    seed = floor[1].seed(60)
    floor.order(1, next(seed))
    floor.view([1])
    assert list(seed) == []
    floor.add(2)
    floor.seed(1)
    assert floor[2].is_seeded


def test_a_node_that_went_and_came_back_is_not_served_by_a_seed_from_before() -> None:
    floor = Floor()
    floor.join(1, *[f"t{index}" for index in range(9)])
    floor.add(2, 3)
    seed = floor[1].seed(60)
    floor.order(1, next(seed))
    floor.view([1, 3])
    floor.view([1, 3, 2], Reason.JOIN)
    floor.order(1, *seed)
    assert (floor[2].is_seeded, floor[3].is_seeded) == (False, True)
    assert floor[1].unseeded == floor[3].unseeded == {2}
    floor.seed(1)
    assert floor[2].is_seeded


def test_another_seed_drops_the_parts_of_the_one_before() -> None:
    """A view may put another seeded member first while a seed is under way."""
    floor = floor_of(2)
    floor.join(1, *[f"t{index}" for index in range(9)])
    floor.add(3)
    old = floor[1].seed(60)
    floor.order(1, next(old))
    late = next(old)
    floor.view([2, 1, 3])
    new = floor[2].seed(60)
    floor.order(2, next(new))
    floor.order(1, late)
    assert list(old) == []
    assert not floor[1].must_seed()
    floor.order(2, *new)
    assert floor[3].is_seeded


def test_a_seed_is_not_dropped_by_parts_of_the_one_that_it_replaces() -> None:
    floor = floor_of(2)
    floor.join(1, *[f"t{index}" for index in range(9)])
    floor.add(3)
    old = floor[1].seed(60)
    floor.order(1, next(old))
    floor.view([2, 1, 3])
    new = floor[2].seed(60)
    floor.order(1, next(old))
    assert not floor[2].must_seed()
    floor.order(2, *new)
    assert floor[3].is_seeded


def test_a_newcomer_learns_of_a_seed_that_was_under_way_at_its_place() -> None:
    """Node 3 is seeded behind the place that node 4's table is as of, by a seed whose beginning node 4 has not seen."""
    floor = floor_of(2)
    floor.join(1, *[f"t{index}" for index in range(9)])
    floor.add(3)
    *most, last = floor[1].seed(60)
    floor.order(1, *most)
    floor.view([2, 1, 3, 4], Reason.JOIN)
    seed = floor[2].seed(60_000)
    floor.order(1, last)
    assert floor[3].is_seeded
    floor.join(3, "of a node that only just has its groups")
    floor.order(2, *seed)
    assert floor[4].is_seeded
    assert state_of(floor[4]) == state_of(floor[3])


def test_newcomers_that_are_left_alone_go_on_with_an_empty_roster() -> None:
    floor = Floor()
    floor.join(1, "a", "b")
    floor.add(2)
    floor.add(3)
    floor.join(1, "c")
    floor.view([3, 2])
    assert (floor[2].is_seeded, floor[3].is_seeded) == (True, False), "node 2 has waited longest"
    assert not floor[2].groups
    assert floor[2].next_number > 1_000, "numbers of the old groups may still be under way"
    floor.join(2, "a")
    floor.seed(2)
    assert floor[3].is_seeded
    assert list(floor[3].groups) == ["a"]


def test_of_newcomers_that_came_together_the_first_begins_the_empty_roster() -> None:
    floor = Floor()
    floor.join(1, "a")
    floor.add(2, 3, 4)
    floor.view([4, 3, 2])
    assert [floor[node].is_seeded for node in (4, 3, 2)] == [True, False, False]
    floor.view([2, 3])
    assert [floor[node].is_seeded for node in (3, 2)] == [False, True]
    floor.seed(2)
    assert floor[3].is_seeded


def test_a_newcomer_believes_only_nodes_that_may_have_the_roster() -> None:
    floor = Floor()
    floor.join(1, "a")
    floor.add(2, 3)
    false = list(encode_seed(floor.seq, iter([(9, "x", ((3, ""),), ())]), SeedState(10, 0, None, {}), 500))
    floor.order(3, *false)
    assert not floor[2].is_seeded
    floor.seed(1)
    assert list(floor[2].groups) == ["a"]


def test_a_seed_of_what_is_still_to_come_cannot_be_read() -> None:
    floor = Floor()
    floor.add(2)
    state = SeedState(1, 0, None, {2: 1})
    for ahead in (1, 2, 1_000):
        floor.order(1, *encode_seed(floor.seq + ahead, iter(()), state, 500))
    assert not floor[2].is_seeded
    assert floor[1].unseeded == {2}
    assert floor[1].unreadable == 3


def test_a_newcomer_keeps_a_bounded_amount_and_says_so() -> None:
    floor = Floor()
    floor.add(2)
    body = bytes([1]) + bytes(1 << 20)
    for _ in range(MAX_KEPT_BYTES // len(body) - 1):
        floor.order(1, body)
    assert not floor[2].is_overrun
    floor.order(1, body)
    floor.order(1, body)
    assert floor[2].is_overrun
    floor.order(1, *floor[1].seed(500))
    assert not floor[2].is_seeded


def test_a_group_with_many_members_is_handed_over_in_several_records() -> None:
    floor = floor_of(2)
    for index in range(LIST_SESSIONS + 3):
        floor.join(1, "a", label=f"m{index}")
    for index in range(2 * LIST_SESSIONS + 1):
        floor.name(2, "a", label=f"n{index}")
    floor.join(1, "b")
    floor.add(3)
    floor.seed(1, 4_000)
    assert state_of(floor[3]) == state_of(floor[1])


# Memory. --------------------------------------------------------------------------------------------------------------


def test_groups_with_the_same_members_share_one_list() -> None:
    floor = floor_of(2)
    names = [f"t{index}" for index in range(50)]
    floor.join(1, *names[:25])
    floor.join(1, *names[25:])
    floor.join(2, *names)
    floor.add(3)
    floor.seed(1, 300)
    for roster in floor.rosters.values():
        assert len({id(record.members) for record in roster.groups.values()}) == 1


def test_lists_that_no_group_has_any_more_are_forgotten() -> None:
    """A thousand sessions come and go; what stays is used."""
    table = GroupTable()
    table.enter(view_of(0, [1]))
    table.apply(1, JoinGroups("stays", b"", ["a", "b"]))
    for index in range(3 * SHARED_SLACK):
        table.apply(1, JoinGroups(f"s{index}", b"", ["a"]))
        for body in encode_leaves(f"s{index}", b"", [1], 100):
            table.apply(1, decode_operation(body))
    assert table.shared_lists <= SHARED_SLACK + 2
    assert table.groups["a"].members is table.groups["b"].members


# Bodies. --------------------------------------------------------------------------------------------------------------


def test_names_and_numbers_are_cut_into_bodies_of_a_given_size() -> None:
    names = [f"topic-{index}" for index in range(1_000)]
    bodies = list(encode_joins("me", b"hi", names, 512))
    assert all(400 < len(body) <= 512 for body in bodies[:-1])
    read = [decode_operation(body) for body in bodies]
    assert [name for each in read if isinstance(each, JoinGroups) for name in each.names] == names
    leaves = list(encode_leaves("me", b"hi", range(1_000), 512))
    assert all(500 < len(body) <= 512 for body in leaves[:-1])
    assert all(len(body) <= 512 for body in encode_name_groups("", names, 512))


def test_a_body_holds_one_name_at_least() -> None:
    assert len(list(encode_joins("x" * MAX_LABEL, bytes(1_024), ["a", "b"], 512))) == 2
    assert len(list(encode_leaves("x" * MAX_LABEL, bytes(1_024), [1, 2], 512))) == 2
    sessions = tuple((node, "x" * MAX_LABEL) for node in range(LIST_SESSIONS))
    groups = [(1, "a", sessions, ()), (2, "b", sessions, ())]
    assert len(list(encode_seed(0, iter(groups), SeedState(3, 0, None, {}), 512))) == 3


def test_nothing_to_say_needs_no_body() -> None:
    assert list(encode_joins("", b"", [], 512)) == list(encode_leaves("", b"", [], 512)) == []


@pytest.mark.parametrize("name", ["", "x" * 256, "群" * 86])
def test_a_name_that_is_too_long_or_empty_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="1 to 255 bytes"):
        list(encode_joins("", b"", ["a", name], 512))
    with pytest.raises(UsageError, match="label"):
        list(encode_name_groups("x" * 256, ["a"], 512))
    with pytest.raises(UsageError, match="header"):
        list(encode_leaves("", bytes(1_025), [1], 512))


def test_a_seed_is_read_as_it_was_written() -> None:
    both, one = ((1, ""), (2, "x")), ((2, "x"),)
    groups = [(3, "a", both, ()), (5, "grün", one, both), (9, "c", (), one)]
    state = SeedState(10, 4, SeedProgress(2, 3, 1), {7: 5, 8: 6})
    parts = [decode_operation(body) for body in encode_seed(8, iter(groups), state, 90)]
    assert len(parts) > 1
    found = []
    for index, part in enumerate(parts):
        assert isinstance(part, SeedPart)
        assert (part.as_of, part.part, part.state) == (8, index, state if part is parts[-1] else None)
        lists = part.groups.lists
        found += [
            (number, name, lists[members], lists[namers])
            for number, name, _, members, namers in zip(*part.groups[:2], part.groups[0], *part.groups[3:], strict=True)
        ]
    assert found == groups


def test_views_of_another_kind_than_creation_make_a_newcomer() -> None:
    roster = Roster(1)
    view: View = view_of(5, [1], reason=Reason.RESET)
    roster.on_view(5, view)
    assert roster.is_seeded, "alone, there is nobody to ask"
    other = Roster(1)
    other.on_view(5, view_of(5, [1, 2], reason=Reason.RESET))
    assert not other.is_seeded
