"""What can be done to a run, and where it is offered."""

from __future__ import annotations

import pytest

from ordercast.errors import UsageError
from ordercast.explore.deviations import (
    Deviation,
    Situation,
    alone,
    links_of,
    menu,
    one_way,
    parse_path,
    show_path,
    single,
    two_way,
)

ALL_UP = frozenset({0, 1, 2})
NOTHING: frozenset[tuple[int, int]] = frozenset()


def situation(
    busy: set[tuple[int, int]], cuts: frozenset[tuple[int, int]] = NOTHING, crashes: int = 1, acts: tuple[str, ...] = ()
) -> Situation:
    return Situation("abc", ALL_UP, cuts, frozenset(busy), crashes, acts)


def test_a_path_is_read_as_it_was_written() -> None:
    path = (
        Deviation(3, "cut", "ab>c"),
        Deviation(5, "heal", ""),
        Deviation(9, "crash", "a"),
        Deviation(9, "crash", "b"),
    )
    assert show_path(path) == "3:cut:ab>c 5:heal 9:crash:a 9:crash:b"
    assert parse_path(show_path(path)) == path
    assert parse_path("") == ()


@pytest.mark.parametrize("text", ["cut:ab>c", "x:cut:ab>c", "3:melt:a", "3", "6:heal 2:crash:a"])
def test_a_path_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_path(text)


def test_links_that_there_are_none_of_are_refused_with_an_example() -> None:
    with pytest.raises(UsageError, match=r"cut:ab names no links of abc; write cut:a>bc"):
        links_of("abc", "cut", "ab")


def test_sides_are_all_there_once() -> None:
    assert len(one_way("abcd")) == 14
    assert len(two_way("abcd")) == 7
    assert len(alone("abcd")) == 4
    assert len(single("abcd")) == 12
    assert one_way("abc")["a>bc"] == {(0, 1), (0, 2)}
    assert two_way("abc")["ab|c"] == {(0, 2), (1, 2), (2, 0), (2, 1)}
    assert alone("abc")["b"] == two_way("abc")["ac|b"]


def test_a_cut_is_offered_where_it_hits_something() -> None:
    offered = menu(("cut",), situation({(0, 1)}))
    assert offered == [("cut", "a>bc"), ("cut", "ac>b")]


def test_mending_is_offered_where_something_is_being_lost() -> None:
    cuts = one_way("abc")["a>bc"]
    assert ("heal", "") in menu(("split",), situation({(0, 1)}, cuts))
    assert menu(("split",), situation({(1, 2)}, cuts)) == [("split", "ab|c"), ("split", "ac|b")]


def test_a_crash_is_offered_for_nodes_that_something_comes_from_or_goes_to() -> None:
    assert menu(("crash",), situation({(0, 1)})) == [("crash", "a"), ("crash", "b"), ("kill", "a")]
    assert menu(("crash",), situation({(0, 1)}, crashes=0)) == []


def test_single_datagrams_are_lost_put_off_or_paused_for() -> None:
    here = situation({(0, 1), (2, 1)}, single("abc")["c>b"])
    assert menu(("lose", "late", "stale", "pause"), here) == [
        ("heal", ""),
        ("lose", "a>b"),
        ("late", "a>b"),
        ("stale", "a>b"),
        ("pause", "b"),
    ]


def test_programs_may_act_anywhere() -> None:
    assert menu((), situation(set(), acts=("leave-c",))) == [("act", "leave-c")]
