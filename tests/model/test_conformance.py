"""The checker of traces: handmade traces that break the rule, each caught by its name, and runs of the real engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from tests.model.conformance import check

from ordercast.sim.chance import random_scenario
from ordercast.sim.run import run_scenario
from ordercast.trace.schema import Row

FIRST_SEED: Final = 12_000_000
SEEDS: Final = 12  # of each orderer here; `python -m tests.model.traces` runs hundreds


class Tape:
    """A trace under construction: one event each millisecond."""

    def __init__(self, *names: str) -> None:
        self.rows: list[Row] = []
        self._count: dict[str, int] = {}
        for name in names:
            self.add(name, "start", underlay="")

    def add(self, name: str, kind: str, underlay: str = "u", **columns: object) -> None:
        node, _, life = name.partition("/")
        n = self._count.get(name, 0)
        self._count[name] = n + 1
        self.rows.append(
            Row(node, int(life or 0), n, len(self.rows) * 1_000_000, kind, underlay, **columns)  # type: ignore[arg-type]
        )

    def show(self, view: str, members: str, reason: str, to: str = "", came: str = "") -> None:
        """Show a view to its members, or to those in `to`; those in `came` join with it."""
        for name in to or members:
            if name in came:
                self.add(name, "join")
            self.add(name, "view", view=view, members=tuple(f"{each}/0" for each in members), detail=reason)


def grown(count: int) -> Tape:
    """A group of the first nodes of a, b, c, d, e that has grown by joins. Its views are v1, v2, ..."""
    names = "abcde"[:count]
    tape = Tape(*names)
    tape.show("v1", "a", "create", came="a")
    for size in range(2, count + 1):
        tape.show(f"v{size}", names[:size], "join", came=names[size - 1])
    return tape


def checks(tape: Tape) -> set[str]:
    return {each.check for each in check(tape.rows)}


def test_joins_leaves_locks_recoveries_and_a_second_stay_are_allowed() -> None:
    tape = grown(5)
    tape.show("w1", "abcde", "lock")
    tape.add("b", "deliver", view="w1")
    tape.show("w2", "abcd", "leave")
    tape.add("e", "leave", view="w1", detail="left")
    tape.add("a", "crash", underlay="")
    tape.show("w3", "cbd", "reset")
    tape.show("w4", "cbde", "join", came="e")
    tape.show("w5", "bde", "leave")
    tape.add("c", "leave", view="w4", detail="left")
    assert check(tape.rows) == []


def test_a_number_below_half_allows_two_parts() -> None:
    tape = grown(4)
    tape.show("left", "ab", "reset")
    tape.show("right", "cd", "reset")
    assert checks(tape) == {"fork", "quorum"}
    assert check(tape.rows, 2) == []
    assert check(tape.rows, {"a": 2, "b": 2, "c": 2, "d": 2}) == []
    assert check(tape.rows, by_hand=True) == []


def two_parts(tape: Tape) -> None:
    tape.show("left", "ab", "reset")
    tape.show("right", "cd", "reset")


def join_off_the_chain(tape: Tape) -> None:
    """One member was shown a join that the others never heard of (rule 3)."""
    tape.add("e", "start", underlay="")
    tape.show("lost", "abcde", "join", to="d")
    tape.show("next", "abc", "reset")


def minority_goes_on(tape: Tape) -> None:
    tape.show("w", "b", "reset")


def half_without_first(tape: Tape) -> None:
    tape.show("w", "cd", "reset")


def leave_while_the_others_are_down(tape: Tape) -> None:
    for name in "ab":
        tape.add(name, "crash", underlay="")
    tape.show("w1", "abcd", "lock", to="cd")
    tape.show("w2", "abc", "leave", to="c")


def one_left_out_a_view(tape: Tape) -> None:
    tape.show("w1", "abcd", "lock", to="abc")
    tape.show("w2", "abcd", "lock")


def newcomer_begins_late(tape: Tape) -> None:
    tape.add("e", "start", underlay="")
    tape.show("w1", "abcde", "join", to="abcd")
    tape.show("w2", "abcde", "lock", came="e")


def leaver_is_listed(tape: Tape) -> None:
    tape.add("d", "leave", view="v4", detail="left")
    tape.show("w", "abcd", "lock", to="abc")


def shown_after_its_leave(tape: Tape) -> None:
    tape.add("d", "leave", view="v4", detail="left")
    tape.show("w", "abcd", "lock", to="d")


def shown_a_view_without_itself(tape: Tape) -> None:
    tape.show("w", "abc", "reset")
    tape.show("w", "abc", "reset", to="d")


def delivers_elsewhere(tape: Tape) -> None:
    tape.add("a", "deliver", view="v3")


def delivers_after_its_leave(tape: Tape) -> None:
    tape.add("a", "leave", view="v4", detail="left")
    tape.add("a", "deliver", view="v4")


def two_lists(tape: Tape) -> None:
    tape.show("w", "abc", "reset", to="a")
    tape.show("w", "acb", "reset", to="b")


def two_newcomers_at_once(tape: Tape) -> None:
    for name in "ef":
        tape.add(name, "start", underlay="")
    tape.show("w", "abcdef", "join", came="ef")


def newcomer_is_first(tape: Tape) -> None:
    tape.add("e", "start", underlay="")
    tape.show("w", "eabcd", "join", came="e")


def leave_of_two(tape: Tape) -> None:
    tape.show("w", "ab", "leave")


def recovery_with_a_newcomer(tape: Tape) -> None:
    tape.add("e", "start", underlay="")
    tape.show("w", "abcde", "reset", came="e")


def survivors_in_another_order(tape: Tape) -> None:
    tape.show("w", "adcb", "reset")


def two_ways_into_one_view(tape: Tape) -> None:
    tape.show("w1", "abcd", "lock", to="ab")
    tape.show("w2", "abcd", "lock", to="cd")
    tape.show("w3", "abcd", "lock")


def created_by_two(tape: Tape) -> None:
    for name in "ef":
        tape.add(name, "start", underlay="")
    tape.show("w", "ef", "create", came="ef")


def view_from_nowhere(tape: Tape) -> None:
    for name in "ef":
        tape.add(name, "start", underlay="")
    tape.show("w", "ef", "reset", came="ef")


PLANTED: Final[list[tuple[Callable[[Tape], None], str]]] = [
    (two_parts, "fork"),
    (join_off_the_chain, "fork"),
    (minority_goes_on, "quorum"),
    (half_without_first, "quorum"),
    (leave_while_the_others_are_down, "quorum"),
    (one_left_out_a_view, "walk"),
    (newcomer_begins_late, "walk"),
    (leaver_is_listed, "left"),
    (shown_after_its_leave, "walk"),
    (shown_a_view_without_itself, "walk"),
    (delivers_elsewhere, "place"),
    (delivers_after_its_leave, "place"),
    (two_lists, "lists"),
    (two_newcomers_at_once, "link"),
    (newcomer_is_first, "link"),
    (leave_of_two, "link"),
    (recovery_with_a_newcomer, "link"),
    (survivors_in_another_order, "link"),
    (two_ways_into_one_view, "link"),
    (created_by_two, "root"),
    (view_from_nowhere, "root"),
]


@pytest.mark.parametrize(("plant", "name"), PLANTED, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_deviation_is_caught_by_its_name(plant: Callable[[Tape], None], name: str) -> None:
    tape = grown(4)
    assert check(tape.rows) == []
    plant(tape)
    assert name in checks(tape)


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_runs_of_the_engines_are_behaviours_of_the_model(orderer: str) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        scenario = random_scenario(seed, orderer)
        outcome = run_scenario(scenario)
        found = check(outcome.rows, scenario.rule_of, by_hand=scenario.recovery == "manual")
        assert any(row.kind == "view" for row in outcome.rows)
        assert not found, "\n".join([scenario.command, *map(str, found)])
