"""Views that are too small to take part in: both judges of a trace, each by its own reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.traces import write
from tests.unit.trace_builder import World

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.job import judge
from ordercast.sim.checkers import check_all


def gathering(*, sends_early: bool = False, locks_early: bool = False) -> World:
    """a makes the group, b and c come, c and b leave again."""
    world = World("a", "b", "c", view=False)
    world.view(1, "a", came={"a": "a"})
    world.find("a", "view")[0].columns["detail"] = "create"
    if sends_early:
        world.send("a", "a")
    if locks_early:
        world.event("a", "lock", detail="x", view="1@a/0")
    world.view(2, "ab", came={"b": "b"})
    world.view(3, "abc", came={"c": "c"})
    message = world.send("b", "abc")
    world.confirm("b", message)
    world.leave("c")
    world.view(4, "ab")
    world.send("b", "ab")
    world.leave("b")
    world.view(5, "a")
    world.event("a", "lock", detail="y", view="5@a/0")
    return world


def broken(world: World, folder: Path, rules: Any, bootstrap: int) -> list[str]:
    """What both judges object to, as texts of the second; they agree on whether there is anything."""
    runs = inspect([write(folder, world.rows(), rules=rules, bootstrap=bootstrap)])
    findings = judge(DuckEngine(runs), runs)
    verdict = check_all(world.rows(), min_members=rules, bootstrap=bootstrap)
    here = {name for name, result in verdict.properties.items() if result.total}
    assert here == {row.property for row in findings.violations()} <= {"promises"}
    assert len(verdict.violations) == len(findings.violations())
    return [str(violation) for violation in verdict.violations]


def test_a_group_that_has_had_its_bootstrap_goes_on_with_fewer(tmp_path: Path) -> None:
    assert not broken(gathering(), tmp_path, "majority", 3)
    assert not broken(gathering(sends_early=True, locks_early=True), tmp_path, "majority", 1)


@pytest.mark.parametrize("early", ["sends_early", "locks_early"])
def test_nothing_is_sent_or_locked_before_the_bootstrap(tmp_path: Path, early: str) -> None:
    texts = broken(gathering(**{early: True}), tmp_path, "majority", 3)
    assert len(texts) == (2 if early == "sends_early" else 1)  # it is delivered as well
    assert all("in view 1@a/0 of 1 members, before there were bootstrap=3" in text for text in texts)


def test_a_group_that_never_had_its_bootstrap_does_nothing(tmp_path: Path) -> None:
    texts = broken(gathering(), tmp_path, "majority", 4)
    did = ["delivered message"] * 5 + ["had message", "sent message", "sent message", "was granted"]
    assert sorted(" ".join(text.partition("/0 ")[2].split()[:2]) for text in texts) == did
    assert all("before there were bootstrap=4" in text for text in texts)


def test_a_number_holds_for_the_member_that_asked_for_it_and_at_any_time(tmp_path: Path) -> None:
    assert not broken(gathering(), tmp_path, {"a": 1, "b": 2, "c": 3}, 1)
    (text,) = broken(gathering(), tmp_path, {"a": 1, "b": 3, "c": 1}, 1)
    assert "b/0 sent message 1" in text
    assert "in view 4@a/0 of 2 members, and asked for min_members=3" in text


def test_a_view_that_only_newcomers_show_is_not_judged(tmp_path: Path) -> None:
    world = World("c", view=False)
    world.view(7, "abc", at="c", came={"c": "c"})
    world.send("c", "c")
    assert not broken(world, tmp_path, "majority", 4)
