"""How many members a group takes before it works, and the fencing tokens of its locks: the rules by themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.quorums import member_of, view_of

from ordercast.config import GroupConfig, members_needed
from ordercast.engine import Change
from ordercast.errors import UsageError
from ordercast.membership.quorum.meeting import better
from ordercast.parts.changes import next_view
from ordercast.sim.fencing import TokensSeen, broken_tokens
from ordercast.view import Reason, View
from ordercast.wire.codec import Reader
from ordercast.wire.views import Ring, decode_view, encode_view


def after(view: View, reason: Reason, name: str, lock: str = "", counter: int | None = None) -> View:
    """The view that a change makes."""
    member = view.member(member_of(name).id) or member_of(name)
    counter = view.counter + 1 if counter is None else counter
    change = Change(reason, member, lock=lock, serial=counter)
    found = next_view(view, change, counter, 64, view.seq + 1, 0, {}, {}, view.members[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rule", "bootstrap", "largest", "needed"),
    [
        ("majority", 1, 1, 1),
        ("all", 1, 9, 1),
        (3, 1, 1, 3),
        (3, 1, 9, 3),
        ("majority", 3, 2, 3),
        ("majority", 3, 3, 1),
        (2, 3, 2, 3),
        (2, 3, 3, 2),
        (5, 3, 3, 5),
    ],
)
def test_what_it_takes_to_take_part(rule: int | str, bootstrap: int, largest: int, needed: int) -> None:
    assert members_needed(rule, bootstrap, largest) == needed  # type: ignore[arg-type]


def test_the_largest_view_of_a_chain_is_remembered_through_changes_and_on_the_wire() -> None:
    view = view_of("a")
    for reason, name, largest in (
        (Reason.JOIN, "b", 2),
        (Reason.JOIN, "c", 3),
        (Reason.LEAVE, "c", 3),
        (Reason.LOCK, "b", 3),
        (Reason.LEAVE, "b", 3),
    ):
        view = after(view, reason, name, lock="x" if reason == Reason.LOCK else "")
        assert view.largest == largest
        assert decode_view(Reader(encode_view(view))).largest == largest
    assert view.shortage(member_of("a").id, 3) is None
    assert view.shortage(member_of("a").id, 4) == (1, 4)


def test_a_lock_is_granted_by_the_rule_of_the_member_that_asks() -> None:
    view = view_of("ab", rules={"a": 3, "b": 2})
    assert after(view, Reason.LOCK, "a", "x").locks == {}
    granted = after(view, Reason.LOCK, "b", "x")
    assert granted.locks == {"x": member_of("b").id}
    alone = after(granted, Reason.LEAVE, "a")
    assert alone.locks == granted.locks, "what is held stays held"
    assert after(alone, Reason.UNLOCK, "b", "x").locks == {}


def test_a_token_is_the_counter_of_the_view_that_granted_the_lock() -> None:
    first = after(view_of("ab"), Reason.LOCK, "a", "x", counter=700)
    assert first.tokens == {"x": 700}
    both = after(first, Reason.LOCK, "b", "y", counter=705)
    assert both.tokens == {"x": 700, "y": 705}
    assert after(both, Reason.LOCK, "b", "x", counter=710).tokens == both.tokens, "a denial changes nothing"
    assert after(both, Reason.JOIN, "c", counter=711).tokens == both.tokens
    assert after(both, Reason.LEAVE, "a", counter=712).tokens == {"y": 705}
    assert after(both, Reason.UNLOCK, "a", "x", counter=713).tokens == {"y": 705}
    assert decode_view(Reader(encode_view(both))).tokens == both.tokens


def test_a_ring_that_has_begun_goes_on_and_not_a_larger_one_that_has_not() -> None:
    config = GroupConfig(bootstrap=4)
    begun = Ring("g", 1, 50, "a/0", 1, True, member_of("a"), config, True)
    waiting = Ring("g", 2, 40, "b/0", 3, True, member_of("b"), config, False)
    assert better(begun, waiting)
    assert not better(waiting, begun)
    assert better(waiting, begun._replace(has_begun=False)), "otherwise the larger one does"


@pytest.mark.parametrize("bootstrap", [0, 65, -1, True, "3"])
def test_a_bootstrap_that_can_never_be_is_refused(bootstrap: object) -> None:
    with pytest.raises(UsageError, match="bootstrap is a number of members from 1 to max_members, which is 64, got"):
        GroupConfig(bootstrap=bootstrap)  # type: ignore[arg-type]


def test_the_judge_of_tokens_sees_what_is_wrong() -> None:
    start = view_of("ab")
    views = [start, after(start, Reason.LOCK, "a", "x", counter=start.counter + 5)]
    views.append(after(views[-1], Reason.UNLOCK, "a", "x"))
    views.append(after(views[-1], Reason.LOCK, "b", "y"))

    def seen(*shown: View) -> TokensSeen:
        found = TokensSeen()
        for view in shown:
            found.on_view("a/0", view)
        return found

    assert not broken_tokens([seen(*views), seen(*views[2:])])
    low = replace(views[3], tokens={"y": start.counter})
    assert "granted in" in broken_tokens([seen(*views[:3], low)])[0]
    again = replace(views[1], tokens={"x": 9_999}, counter=9_999)
    assert "saw the token of lock 'x' change" in broken_tokens([seen(*views[:2], again)])[0]
    assert "elsewhere" in broken_tokens([seen(*views), seen(*views[:3], low)])[-1]
