"""The judge of safety, on events that are made by hand."""

from __future__ import annotations

import pytest

from ordercast.config import MinMembers
from ordercast.engine import Transitional
from ordercast.explore.safety import ChainJudge, is_quorum, is_strict
from ordercast.groups.events import Batch, Left, PortEvent
from ordercast.service import AGREED, SAFE, Service
from ordercast.view import Member, Reason, View, node_id


def view(counter: int, names: str, reason: Reason = Reason.RESET) -> View:
    members = tuple(Member(node_id(name, 0), name, 0, ("10.0.0.1", 1)) for name in names)
    return View(counter, f"{names[0]}/0", counter, 0, 0, 0, members, {}, reason)


def batch(of: View, sender: str, first: int, position: int, service: Service = AGREED) -> Batch:
    return Batch(b"", "explored", of.id, f"{sender}/0", first, 1, position, service)


def judged(*events: tuple[str, PortEvent], rule: MinMembers = "majority") -> list[str]:
    judge = ChainJudge(rule)
    for who, event in events:
        judge.on_event(1, f"{who}/0", event)
    return [finding.kind for finding in judge.findings]


V1 = view(1, "abc", Reason.JOIN)
ALL_IN = [("a", V1), ("b", V1), ("c", V1)]


@pytest.mark.parametrize(
    ("rule", "present", "is_enough"),
    [
        ("majority", "abc", True),
        ("majority", "ab", True),
        ("majority", "cd", False),
        ("majority", "bcd", True),
        ("majority", "a", False),
        ("all", "abc", False),
        ("all", "abcd", True),
        (3, "ab", False),
        (3, "bcd", True),
        (9, "abcd", True),
        (9, "abc", False),
    ],
)
def test_quorums_of_four(rule: MinMembers, present: str, is_enough: bool) -> None:
    assert is_quorum(rule, tuple("abcd"), set(present)) is is_enough


def test_rules_that_let_two_parts_go_on_are_no_reason_to_speak_of_forks() -> None:
    assert is_strict("majority", 4)
    assert is_strict(3, 4)
    assert is_strict(9, 4)
    assert not is_strict(2, 4)
    assert not is_strict(1, 4)


def test_one_chain_is_fine() -> None:
    v2 = view(2, "ab")
    after: list[tuple[str, PortEvent]] = [
        ("a", batch(V1, "a", 0, 0)),
        ("b", batch(V1, "a", 0, 0)),
        ("a", Transitional(V1.id)),
        ("a", v2),
        ("b", v2),
    ]
    assert judged(*ALL_IN, *after, ("c", Left(False, True, "excluded"))) == []


def test_two_views_after_one_are_a_fork() -> None:
    left, right = view(2, "abd", Reason.JOIN), view(3, "bc")
    assert judged(*ALL_IN, ("a", left), ("c", right), ("b", right)) == ["fork"]


def test_two_recoveries_that_are_both_finished_are_a_split() -> None:
    left, right = view(2, "ab"), view(3, "cb")
    assert judged(*ALL_IN, ("a", left), ("c", right)) == ["fork", "split"]


def test_a_view_that_all_of_its_members_have_installed_goes_on() -> None:
    left, right = view(2, "bc", Reason.LEAVE), view(3, "ab")
    assert judged(*ALL_IN, ("b", left), ("a", right)) == ["fork"]
    assert judged(*ALL_IN, ("b", left), ("a", right), ("c", left)) == ["fork", "split"]


def test_a_side_goes_on_by_a_later_view_as_well() -> None:
    left, later, right = view(2, "abd", Reason.JOIN), view(4, "ad"), view(3, "cb")
    events = [("a", left), ("c", right), ("a", later), ("b", right)]
    assert judged(*ALL_IN, *events) == ["fork", "split"]


def test_a_recovery_of_too_few_is_found() -> None:
    assert judged(*ALL_IN, ("c", view(2, "c"))) == ["minority"]
    assert judged(*ALL_IN, ("c", view(2, "c")), rule=1) == []


def test_members_that_go_on_together_have_the_same() -> None:
    v2 = view(2, "ab")
    assert judged(*ALL_IN, ("a", batch(V1, "c", 0, 0)), ("a", v2), ("b", v2)) == ["synchrony"]


def test_a_position_has_one_message() -> None:
    assert judged(*ALL_IN, ("a", batch(V1, "a", 0, 0)), ("b", batch(V1, "b", 0, 0))) == ["order"]


def test_nothing_is_delivered_twice() -> None:
    assert judged(*ALL_IN, ("a", batch(V1, "a", 0, 0)), ("a", batch(V1, "a", 0, 1))) == ["order"]


def test_a_member_delivers_in_its_own_view() -> None:
    assert judged(*ALL_IN, ("a", batch(view(7, "abc"), "a", 0, 0))) == ["order"]


@pytest.mark.parametrize("is_early", [True, False])
def test_what_one_member_has_delivered_as_safe_all_that_go_on_deliver(is_early: bool) -> None:
    v2 = view(2, "ab")
    safe = ("c", batch(V1, "c", 0, 0, SAFE))
    gone_on: list[tuple[str, PortEvent]] = [("a", v2), ("b", v2)]
    assert judged(*ALL_IN, *([safe, *gone_on] if is_early else [*gone_on, safe])) == ["uniform"]


def test_what_one_member_has_delivered_as_agreed_may_be_lost_with_it() -> None:
    v2 = view(2, "ab")
    assert judged(*ALL_IN, ("c", batch(V1, "c", 0, 0)), ("a", v2), ("b", v2)) == []


def test_a_view_has_one_list_of_members() -> None:
    other = View(1, "a/0", 1, 0, 0, 0, V1.members[:2], {}, Reason.JOIN)
    assert judged(("a", V1), ("b", other)) == ["views"]


def test_the_last_views_are_those_from_the_last_that_a_live_member_has() -> None:
    judge = ChainJudge("majority")
    for tick, (who, event) in enumerate([*ALL_IN, ("a", view(2, "ab")), ("a", view(3, "a"))]):
        judge.on_event(tick, f"{who}/0", event)

    def last(*live: str) -> list[list[str]]:
        return [[found.id for found in chain] for chain in judge.last_views({f"{name}/0" for name in live})]

    assert last("a") == last("a", "b") == [["3@a/0"]]
    assert last("b") == [["1@a/0", "2@a/0", "3@a/0"]]
    assert last("d") == []
    judge.on_event(9, "d/0", view(4, "d", Reason.CREATE))
    assert last("b", "d") == [["1@a/0", "2@a/0", "3@a/0"], ["4@d/0"]]
    judge.on_event(10, "d/0", Left(False, True, "dissolved"))
    assert last("b", "d") == [["1@a/0", "2@a/0", "3@a/0"]]
    assert last("d") == [["4@d/0"]]
