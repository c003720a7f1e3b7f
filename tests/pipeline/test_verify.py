"""Every kind of fault is found and named as what it is, and nothing else; by Spark, by DuckDB and by a plain checker.

All runs are judged together, as a user would judge many runs: one verdict says which run violates what.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.reference import violated
from tests.pipeline.traces import UNSEEN_BY_REFERENCE, Case, cases, write
from tests.unit.trace_builder import World

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow
from ordercast.pipeline.verify.job import as_json, judge, report, verify
from ordercast.sim.chance import random_scenario
from ordercast.sim.checkers import check_all
from ordercast.sim.many_groups import drawn_groups
from ordercast.sim.many_run import run_groups
from ordercast.sim.restarts import restarts_scenario
from ordercast.sim.run import Outcome, run_scenario
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = cases()
SEEDS = {"sequencer": (3, 7), "token": (2, 11), "timestamp": (4, 9)}
CAUGHT_BY_TRACE = ("positions count blocks", "SAFE is delivered as soon as it is received", "came_with names newcomers")


def roots(findings: Findings) -> dict[str, list[ViolationRow]]:
    """The root causes of each run."""
    found: dict[str, list[ViolationRow]] = {}
    for one in findings.violations():
        if one.severity == ROOT:
            found.setdefault(one.run, []).append(one)
    return found


def told(findings: Findings) -> set[tuple[str, str, str | None, str | None]]:
    """What two engines must agree on."""
    return {(one.run, one.property, one.node, one.message) for one in findings.violations()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("cases")
    return [write(base / case.name, case.rows, **case.options) for case in CASES]


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession, folders: list[Path]) -> Findings:
    return verify(spark, inspect(folders))


@pytest.mark.parametrize("case", [case for case in CASES if case.breaks], ids=lambda case: case.name)
def test_a_fault_is_found_and_named_as_what_it_is(by_spark: Findings, case: Case) -> None:
    found = roots(by_spark).get(case.name, [])
    assert [(one.property, one.node) for one in found] == [(case.breaks, case.at)], found
    assert found[0].detail
    assert found[0].n is not None


@pytest.mark.parametrize("case", [case for case in CASES if not case.breaks], ids=lambda case: case.name)
def test_what_is_legal_is_not_flagged(by_spark: Findings, case: Case) -> None:
    assert [one for one in by_spark.violations() if one.run == case.name] == []


def test_an_inversion_is_shown_with_two_members_and_two_messages(by_spark: Findings) -> None:
    (one,) = roots(by_spark)["order_swap"]
    assert (one.node, one.message, one.other_node, one.other_message) == ("c/0", "a/0 #0", "a/0", "b/0 #0")


def test_consequences_stand_behind_root_causes(by_spark: Findings) -> None:
    severities = [one.severity for one in by_spark.violations()]
    assert severities == sorted(severities, key=[ROOT, CONSEQUENCE].index)
    assert CONSEQUENCE in severities


def test_the_second_engine_says_the_same(by_spark: Findings, folders: list[Path]) -> None:
    runs = inspect(folders)
    by_duck = judge(DuckEngine(runs), runs)
    assert told(by_duck) == told(by_spark)
    assert as_json(runs, by_duck) == as_json(runs, by_spark)


def is_shared(case: Case) -> bool:
    return any(row.kind == "view" and row.group for row in case.rows)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name not in UNSEEN_BY_REFERENCE and not is_shared(case)],
    ids=lambda case: case.name,
)
def test_the_plain_checker_says_the_same(case: Case) -> None:
    """It knows no recorders and no lightweight groups."""
    found = violated(case.rows, **case.options)
    assert bool(found) == (case.breaks is not None)
    assert case.breaks is None or case.breaks in found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_checkers_of_the_simulator_say_the_same(case: Case) -> None:
    verdict = check_all(case.rows, min_members=case.options.get("rules", "majority"))
    found = {name for name, result in verdict.properties.items() if result.total}
    wanted = "well_formed" if case.name == "lying_recorder" else case.breaks
    assert wanted in found if wanted is not None else not found
    if is_shared(case) and case.breaks is not None:
        assert found == {wanted}, "\n".join(verdict.summary())
        assert f"{verdict.violations[0].node}/{verdict.violations[0].life}" == case.at


def test_the_verdict_counts_root_causes(by_spark: Findings, folders: list[Path]) -> None:
    runs = inspect(folders)
    found = as_json(runs, by_spark)
    assert found["runs"] == [case.name for case in CASES]
    assert {name: each["violations"] for name, each in found["properties"].items()} == {
        name: sum(case.breaks == name for case in CASES) for name in found["properties"]
    }
    assert all(each["checked"] > 0 for each in found["properties"].values())
    text = "\n".join(report(folders, runs, by_spark))
    assert "VIOLATED" in text
    assert "--around order_swap:c/0:" in text


# Runs of the simulator --------------------------------------------------------------------------------------------


def simulated() -> Iterable[tuple[str, Outcome]]:
    for orderer, seeds in SEEDS.items():
        for seed in seeds:
            yield f"{orderer}-{seed}", run_scenario(random_scenario(seed, orderer))


def with_bugs() -> Iterable[tuple[str, Outcome]]:
    from tests.sim.planted import BUGS
    from tests.sim.planting import planted

    for bug in BUGS:
        if bug.name not in CAUGHT_BY_TRACE:
            continue
        for seed in range(bug.bound):
            with planted(bug):
                outcome = run_scenario(random_scenario(seed, bug.orderer))
            if outcome.verdict is not None and any(one.total for one in outcome.verdict.properties.values()):
                yield bug.name.replace(" ", "-"), outcome
                break


def many_members() -> list[tuple[str, World]]:
    """More members than an integer has bits; in one of the two the last of them lacks a message in a view."""
    made = []
    for name in ("seventy", "seventy-less-one"):
        members = [f"m{at:02d}" for at in range(70)]
        world = World(*members)
        world.send("m01", members)
        last = world.send("m02", members)
        world.event("m02", "crash")
        rest = [member for member in members if member != "m02"]
        world.view(2, rest, at=rest)
        world.send("m03", rest)
        if name != "seventy":
            world.drop(world.find("m69", "deliver", last)[0])
        made.append((name, world))
    return made


def test_runs_of_the_simulator_are_judged_as_its_checkers_judge_them(spark: SparkSession, tmp_path: Path) -> None:
    """Three orderers with faults hold, also with many groups; planted bugs do not; seventy members are not too many."""
    folders, wanted = [], {}
    many = [(f"groups-{orderer}", run_groups(drawn_groups(7, orderer))) for orderer in SEEDS]
    assert not any(outcome.failures for _, outcome in many)
    outcomes = [*simulated(), *with_bugs()]
    assert len(outcomes) == 6 + len(CAUGHT_BY_TRACE)
    for name, outcome in [*outcomes, *many]:
        rules = outcome.scenario.rule_of
        folders.append(write(tmp_path / name, outcome.rows, quiet=outcome.is_quiet, rules=rules))
        assert outcome.verdict is not None
        wanted[name] = {each for each, result in outcome.verdict.properties.items() if result.total} - {"well_formed"}
    for name, world in many_members():
        folders.append(write(tmp_path / name, world.rows()))
        wanted[name] = set() if name == "seventy" else {"virtual_synchrony"}
    runs = inspect(folders)
    findings = verify(spark, runs)
    found = roots(findings)
    for name, properties in wanted.items():
        assert {one.property for one in found.get(name, [])} == properties, (name, found.get(name))
    assert told(judge(DuckEngine(runs), runs)) == told(findings)
    small = [(name, outcome) for name, outcome in outcomes if sum(row.kind == "deliver" for row in outcome.rows) < 600]
    for name, outcome in small:
        rules = outcome.scenario.rule_of
        assert bool(violated(outcome.rows, quiet=outcome.is_quiet, rules=rules)) == bool(wanted[name]), name


@pytest.mark.parametrize(("orderer", "seed"), [("sequencer", 51), ("token", 6), ("timestamp", 9)])
def test_runs_with_restarts_are_judged_alike_by_all(tmp_path: Path, orderer: str, seed: int) -> None:
    """Members come back with their folders, and the group goes on: no judge objects."""
    outcome = run_scenario(restarts_scenario(seed, orderer))
    assert any(row.kind == "view" and row.detail == "restart" for row in outcome.rows)
    rules = outcome.scenario.rule_of
    runs = inspect([write(tmp_path / "run", list(outcome.rows), quiet=outcome.is_quiet, rules=rules)])
    assert outcome.held, outcome.failures
    assert judge(DuckEngine(runs), runs).held


@pytest.mark.parametrize("seed", [seed for seed in range(13) if seed != 4])  # nothing is delivered in 4
def test_a_random_fault_is_judged_alike_by_all(tmp_path: Path, seed: int) -> None:
    """A row is dropped, repeated or moved somewhere in a small simulated run; DuckDB, since it starts at once."""
    rng = random.Random(seed)
    outcome = run_scenario(random_scenario(seed, rng.choice(("sequencer", "token", "timestamp"))))
    rows = disturbed(list(outcome.rows), rng)
    rules = outcome.scenario.rule_of
    runs = inspect([write(tmp_path / "run", rows, quiet=outcome.is_quiet, rules=rules)])
    findings = judge(DuckEngine(runs), runs)
    verdict = check_all(rows, quiet=outcome.is_quiet, min_members=rules)
    wanted = {name for name, result in verdict.properties.items() if result.total} - {"well_formed"}
    assert findings.held == (not wanted), (wanted, findings.violations()[:3])
    if len(rows) < 3000:
        assert bool(violated(rows, quiet=outcome.is_quiet, rules=rules)) == bool(wanted)


def disturbed(rows: list[Row], rng: random.Random) -> list[Row]:
    """One fault in the deliveries of one life; the recorder stays honest."""
    lives: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        lives.setdefault((row.node, row.life), []).append(row)
    busy_lives = [ones for ones in lives.values() if sum(row.kind == "deliver" for row in ones) > 5]
    ones = rng.choice(busy_lives)
    places = [at for at, row in enumerate(ones) if row.kind == "deliver"]
    at = rng.choice(places[:-1])
    kind = rng.choice(("drop", "repeat", "move"))
    if kind == "drop":
        del ones[at]
    elif kind == "repeat":
        ones.insert(at + rng.randint(1, 5), ones[at])
    else:
        to = places[min(len(places) - 1, places.index(at) + rng.randint(1, 8))]
        row = ones.pop(at)
        ones.insert(to, row._replace(at_ns=ones[to - 1].at_ns))
    found = []
    for each in lives.values():
        last: dict[str, int] = {}
        for n, row in enumerate(each):
            if row.kind == "deliver" and row.position is not None:
                row = row._replace(prev_position=last.get(row.underlay, -1))
                last[row.underlay] = (row.position or 0) + (row.count or 0) - 1
            found.append(row._replace(n=n))
    return found
