"""When a group may be stuck: from lives and links alone."""

from __future__ import annotations

from tests.explore.test_safety import view

from ordercast.config import MinMembers
from ordercast.explore.rest import SERVING_TICKS, Disturbances, why_stuck
from ordercast.explore.safety import ChainJudge
from ordercast.view import Reason

INSTALLED = 10


def reason(
    names: str,
    live: str,
    *,
    pending: tuple[tuple[str, str], ...] = (),
    crashed: dict[str, int] | None = None,
    apart: tuple[str, ...] = (),
    proposed: tuple[str, ...] = (),
    rule: MinMembers = "majority",
) -> str:
    judge = ChainJudge(rule)
    for name in names:
        judge.on_event(INSTALLED, f"{name}/0", view(1, names, Reason.JOIN))
    done = Disturbances()
    done.crashed = {f"{name}/0": tick for name, tick in (crashed or {}).items()}
    for link in apart:
        done.links[f"{link[0]}/0", f"{link[1]}/0"] = INSTALLED + 5
    for link in proposed:
        done.note_proposal(INSTALLED + 5, f"{link[0]}/0", f"{link[1]}/0")
    asked = [(verb, f"{who}/0") for verb, who in pending]
    return why_stuck(rule, judge, {f"{name}/0" for name in live}, asked, done)


def test_enough_members_must_go_on() -> None:
    assert reason("abc", "ab") == ""
    assert reason("abcd", "ab") == ""


def test_too_few_members_may_be_stuck() -> None:
    assert reason("abc", "a") == "of a/0 b/0 c/0 only a/0 live"
    assert reason("abcd", "cd") == "of a/0 b/0 c/0 d/0 only c/0 d/0 live"
    assert reason("abc", "ab", rule="all") == "of a/0 b/0 c/0 only a/0 b/0 live"


def test_a_view_that_a_pending_change_could_have_made_counts_as_well() -> None:
    assert reason("ab", "a") == ""
    assert reason("ab", "a", pending=(("leave", "a"),)) == "of b/0 only none live"
    assert reason("abc", "bc", pending=(("join", "d"),)) == "of a/0 b/0 c/0 d/0 only b/0 c/0 live"
    assert reason("abc", "bcd", pending=(("join", "d"),)) == ""


def test_a_view_that_only_the_dead_know_of_is_no_way_around_the_view_before() -> None:
    judge = ChainJudge("majority")
    for name in "ab":
        judge.on_event(INSTALLED, f"{name}/0", view(1, "ab", Reason.JOIN))
    judge.on_event(INSTALLED + 1, "a/0", view(2, "abc", Reason.JOIN))
    stuck = why_stuck("majority", judge, {"b/0", "c/0"}, [("join", "c/0")], Disturbances())
    assert stuck == "of a/0 b/0 only b/0 live"


def test_one_ring_that_can_go_on_is_enough() -> None:
    judge = ChainJudge("majority")
    for name in "ab":
        judge.on_event(INSTALLED, f"{name}/0", view(1, "ab", Reason.JOIN))
    judge.on_event(INSTALLED, "d/0", view(2, "d", Reason.CREATE))
    assert why_stuck("majority", judge, {"b/0"}, [], Disturbances()) == "of a/0 b/0 only b/0 live"
    assert why_stuck("majority", judge, {"b/0", "d/0"}, [], Disturbances()) == ""


def test_the_last_member_may_leave() -> None:
    assert reason("a", "a", pending=(("leave", "a"),)) == "all members have left"


def test_a_proposal_that_died_with_its_coordinator_is_a_reason() -> None:
    """b may have accepted {a, b}, which nobody can finish without a."""
    stuck = reason("abcd", "bcd", crashed={"a": INSTALLED + 1}, apart=("ac", "ad"), proposed=("ab",))
    assert stuck == "a recovery may have proposed a/0 b/0, of which only b/0 live"


def test_it_is_no_reason_where_nothing_kept_the_others_away() -> None:
    assert reason("abcd", "bcd", crashed={"a": INSTALLED + 1}, proposed=("ab",)) == ""


def test_it_is_no_reason_where_the_coordinator_died_before_the_view() -> None:
    assert reason("abcd", "bcd", crashed={"a": INSTALLED - 1}, apart=("ac", "ad"), proposed=("ab",)) == ""


def test_it_is_no_reason_where_the_coordinator_proposed_nothing_to_its_members() -> None:
    assert reason("abcd", "bcd", crashed={"a": INSTALLED + 1}, apart=("ac", "ad")) == ""
    assert reason("abcd", "bcd", crashed={"a": INSTALLED + 1}, apart=("ac", "ad"), proposed=("bc",)) == ""


def test_a_leaver_counts_as_gone_if_it_was_of_no_use_since_the_last_failure() -> None:
    done = Disturbances()
    done.departed["a/0"] = 5_000
    done.links["b/0", "a/0"] = 5_000 - SERVING_TICKS - 1
    assert done.gone() == {}
    done.links["b/0", "a/0"] = 5_000 - SERVING_TICKS
    assert done.gone() == {"a/0": 5_000}
    assert done.is_none is False
