"""What the argument for the quorum rule rests on, for any views and rules (docs/design/membership.md)."""

from __future__ import annotations

from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.quorums import LAST_SEQ, cut_of, view_of

from ordercast.config import MinMembers
from ordercast.membership.quorum.rule import (
    Electorate,
    are_quorums,
    binding,
    electorate,
    electorate_before,
    is_committed,
    is_decided,
    needed,
)
from ordercast.view import Reason, View, node_id
from ordercast.wire.views import Ballot, Proposal

NAMES = "abcdef"
SAFE_RULES: st.SearchStrategy[MinMembers] = st.sampled_from(["majority", "all"])
RULES: st.SearchStrategy[MinMembers] = SAFE_RULES | st.integers(1, 9)

names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True).map("".join)
parts = st.sets(st.sampled_from([node_id(name, 0) for name in NAMES]))


@st.composite
def changes(draw: st.DrawFn, rules: st.SearchStrategy[MinMembers] = SAFE_RULES) -> View:
    """A view that a join, a leave or a lock made."""
    before = draw(names)
    asked = {name: draw(rules) for name in NAMES}
    outside = [name for name in NAMES if name not in before]
    reasons = [Reason.LOCK]
    if outside:
        reasons.append(Reason.JOIN)
    if len(before) > 1:
        reasons.append(Reason.LEAVE)
    reason = draw(st.sampled_from(reasons))
    after = before
    if reason == Reason.JOIN:
        after += draw(st.sampled_from(outside))
    elif reason == Reason.LEAVE:
        after = before.replace(draw(st.sampled_from(before)), "")
    return view_of(after, before, reason, draw(st.sampled_from(before)), asked)


@given(names, st.dictionaries(st.sampled_from(NAMES), SAFE_RULES), parts, parts)
def test_two_quorums_of_one_view_meet(members: str, rules: dict[str, MinMembers], one: set[int], two: set[int]) -> None:
    view = electorate(view_of(members, rules=rules))
    if view.is_quorum(one) and view.is_quorum(two):
        assert one & two & set(view.members)


@given(names, st.dictionaries(st.sampled_from(NAMES), RULES), parts, parts)
def test_one_strict_rule_among_numbers_is_enough_for_quorums_to_meet(
    members: str, rules: dict[str, MinMembers], one: set[int], two: set[int]
) -> None:
    view = electorate(view_of(members, rules={**rules, members[-1]: "majority"}))
    if view.is_quorum(one) and view.is_quorum(two):
        assert one & two & set(view.members)


@given(names, st.dictionaries(st.sampled_from(NAMES), RULES), parts, parts)
def test_more_members_never_make_less_of_a_quorum(
    members: str, rules: dict[str, MinMembers], present: set[int], others: set[int]
) -> None:
    view = electorate(view_of(members, rules=rules))
    assert view.is_quorum(set(view.members)), "a rule that asks for more than the view has asks for all of it"
    if view.is_quorum(present):
        assert view.is_quorum(present | others)


@given(names, st.dictionaries(st.sampled_from(NAMES), RULES), parts)
def test_only_members_of_the_view_count(members: str, rules: dict[str, MinMembers], present: set[int]) -> None:
    view = electorate(view_of(members, rules=rules))
    assert view.is_quorum(present) == view.is_quorum(present & set(view.members))


@given(changes(), parts, parts)
def test_a_part_without_a_decided_change_never_has_a_quorum_of_the_view_before(
    view: View, holders: set[int], others: set[int]
) -> None:
    """Where a quorum holds a change, nobody goes on from the view before it without having seen it."""
    assume(is_decided(view, holders))
    assert not electorate_before(view).is_quorum(others - holders)


@given(changes(), parts, parts, parts, st.booleans(), st.booleans())
def test_two_parts_of_one_ring_never_both_have_what_they_need(
    view: View, one: set[int], others: set[int], holders: set[int], one_knows: bool, other_knows: bool
) -> None:
    """A part has received a change if one of its members has, and may know that it is decided, if it is."""
    may_go_on = [
        are_quorums(_needed(view, part, holders, knows), part)
        for part, knows in ((one, one_knows), (others - one, other_knows))
    ]
    assert not all(may_go_on)


@settings(max_examples=200)
@given(names, st.data())
def test_what_is_committed_binds_every_later_quorum(members: str, data: st.DataObject) -> None:
    """A proposal that a quorum accepted shows in each quorum of promises, and is the one that is proposed again."""
    base = view_of(members)
    ids = [member.id for member in base.members]
    coordinator = data.draw(st.sampled_from(ids))
    survivors = {coordinator} | data.draw(st.sets(st.sampled_from(ids)))
    is_fresh = data.draw(st.booleans())
    made = Proposal(Ballot(2, LAST_SEQ, 0, coordinator), is_fresh, LAST_SEQ, (), view_of(_names(survivors, members)))
    older = Proposal(Ballot(1, LAST_SEQ, 0, ids[0]), True, LAST_SEQ, (), view_of(members))
    accepted = data.draw(st.sets(st.sampled_from(ids)))
    assume(is_committed(made, [electorate(base)], accepted))
    for size in range(1, len(ids) + 1):
        for promised in combinations(ids, size):
            if not electorate(base).is_quorum(set(promised)):
                continue
            if is_fresh and coordinator in promised:
                continue  # it would answer with its commit
            cuts = {
                member: cut_of(base, accepted=made if member in accepted else data.draw(st.sampled_from([None, older])))
                for member in promised
            }
            assert binding(cuts) == made


def _needed(view: View, part: set[int], holders: set[int], knows: bool) -> list[Electorate]:
    if not part & holders:
        return [electorate_before(view)]
    decided = LAST_SEQ if knows and is_decided(view, holders) else 0
    return needed({member: cut_of(view, decided) for member in part & holders}, view)


def _names(members: set[int], order: str) -> str:
    return "".join(name for name in order if node_id(name, 0) in members)


def test_the_number_of_a_rule_may_let_two_parts_go_on() -> None:
    """That is what a number below half asks for: available rather than one."""
    view = Electorate((1, 2, 3, 4), (2,))
    assert view.is_quorum({1, 2})
    assert view.is_quorum({3, 4})
