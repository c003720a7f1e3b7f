"""Regions: every fault is found and named as what it is by all judges, and what is legal is not flagged. All runs are
judged at once, since a job costs more than its runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.random_regions import RandomTiling, disturb
from tests.pipeline.region_traces import REGION_FAULTS, REGION_LEGAL, Tiling, story
from tests.pipeline.traces import write
from tests.unit.trace_builder import World

from ordercast.errors import UsageError
from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.findings import REGIONAL, ROOT, Findings
from ordercast.pipeline.verify.job import judge, verify
from ordercast.sim.checkers import REGIONAL_PROPERTIES, check_all
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RegionCase(NamedTuple):
    """A fault, what it breaks, and where it shows; None, None: it is legal."""

    name: str
    rows: list[Row]
    breaks: str | None = None
    at: str | None = None


CASES = [
    *(RegionCase(make.__name__, make().rows(), breaks, at) for make, breaks, at in REGION_FAULTS),
    *(RegionCase(make.__name__, make().rows()) for make in REGION_LEGAL),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("regions")
    return [write(base / case.name, case.rows) for case in CASES]


@pytest.fixture(scope="module")
def by_duck(folders: list[Path]) -> Findings:
    runs = inspect(folders)
    return judge(DuckEngine(runs), runs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pipeline_names_what_is_broken_and_where(by_duck: Findings, case: RegionCase) -> None:
    found = [one for one in by_duck.violations() if one.run == case.name]
    assert {one.property for one in found} == ({case.breaks} if case.breaks else set()), found
    if case.breaks:
        assert found[0].node == case.at
        assert all(one.detail and one.severity == ROOT for one in found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_checkers_of_the_simulator_name_the_same(case: RegionCase) -> None:
    verdict = check_all(case.rows)
    found = {name for name, result in verdict.properties.items() if result.total}
    assert found == ({case.breaks} if case.breaks else set()), "\n".join(verdict.summary())
    if case.breaks:
        assert f"{verdict.violations[0].node}/{verdict.violations[0].life}" == case.at


# One for each property: Spark costs more than the second engine.
IN_SPARK = (
    *(
        "legal_story",
        "legal_join_of_another_group",
        "to_a_group_that_it_left",
        "in_two_regions",
        "hole_of_a_sender_outside",
        "lost_in_a_move",
    ),
    *("survivors_differ", "nobody_has_it_from_outside"),
)


def test_spark_says_what_the_second_engine_says(spark: SparkSession, folders: list[Path], by_duck: Findings) -> None:
    by_spark = verify(spark, inspect([folder for folder in folders if folder.name in IN_SPARK]))
    told = [
        {(one.run, one.property, one.node, one.message, one.view, one.n) for one in each.violations()}
        for each in (by_spark, by_duck)
    ]
    assert told[0] == {one for one in told[1] if one[0] in IN_SPARK}
    assert {one[0] for one in told[0]} == {name for name in IN_SPARK if not name.startswith("legal_")}
    assert all(by_spark.checked[name] for name in REGIONAL)


SEEDS = range(40)


def test_random_faults_are_judged_alike(tmp_path: Path) -> None:
    """What is random and without a fault is legal; with one, both judges say the same. All runs in one job."""
    wanted: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    folders: list[Path] = []
    for seed in SEEDS:
        rng = random.Random(seed)
        world = RandomTiling(rng).world
        verdict = check_all(world.rows())
        assert verdict.held, (seed, "\n".join(verdict.summary()))
        folders.append(write(tmp_path / f"legal-{seed}", world.rows()))
        wanted[f"legal-{seed}"] = set()
        kinds[f"fault-{seed}"] = disturb(world, rng)
        verdict = check_all(world.rows())
        found = {name for name, result in verdict.properties.items() if result.total}
        wanted[f"fault-{seed}"] = found - {"well_formed"}
        folders.append(write(tmp_path / f"fault-{seed}", world.rows()))
    runs = inspect(folders)
    findings = judge(DuckEngine(runs), runs)
    told = {name: {one.property for one in findings.violations() if one.run == name} for name in wanted}
    differ = {name: (kinds.get(name), told[name], wanted[name]) for name in wanted if told[name] != wanted[name]}
    assert not differ
    assert len({name for names in wanted.values() for name in names}) >= 5, "the faults are of few kinds"
    assert sum(map(bool, wanted.values())) > len(SEEDS) // 2


def test_what_is_missing_is_judged_at_a_quiet_end_only(tmp_path: Path) -> None:
    cases = [case for case in CASES if case.breaks in ("regional", "liveness")]
    runs = inspect([write(tmp_path / case.name, case.rows, quiet=False) for case in cases])
    findings = judge(DuckEngine(runs), runs)
    for case in cases:
        verdict = check_all(case.rows, quiet=False)
        told = {one.property for one in findings.violations() if one.run == case.name}
        assert {name for name, result in verdict.properties.items() if result.total} == told, case.name
        assert told == (set() if "missing" in case.name or case.breaks == "liveness" else told)


def test_where_clocks_differ_only_what_needs_them_is_left_out(tmp_path: Path) -> None:
    names = ("legal_story", "legal_waste", "before_it_was_carried", "survivors_differ", "lost_in_a_move")
    cases = [case for case in CASES if case.name in names]
    runs = inspect([write(tmp_path / case.name, case.rows, clock="many") for case in cases])
    findings = judge(DuckEngine(runs), runs)
    for case in cases:
        verdict = check_all(case.rows, clock="many")
        found = {name for name, result in verdict.properties.items() if result.total}
        assert found == ({case.breaks} if case.breaks not in (None, "integrity") else set()), case.name
        assert found == {one.property for one in findings.violations() if one.run == case.name}


def stronger_than_fifo() -> World:
    one = Tiling(*"as")
    one.join("a", "g")
    one.view(1, 1, "a")
    one.post("s", "g", service="SAFE")
    return one.world


def held_in_a_region() -> World:
    one = Tiling(*"as")
    one.join("a", "g")
    one.view(1, 1, "a")
    sent = one.post("s", "g")
    one.event("a", "hold", 1, sender="s/0", first=sent.lanes[1].first, count=1, service="FIFO", view="1@gms@z/0")
    return one.world


def carried_with_a_hole() -> World:
    one = story()
    one.world.drop(*one.world.find("d", "carry")[-1:])
    one.tiling.of("d", "carry").columns["first"] = 7
    return one.world


def lost_outside_of_regions() -> World:
    world = World(*"ab")
    world.event("a", "lost", sender="b/0", first=0, count=1, view="1@a/0")
    return world


@pytest.mark.parametrize("make", [stronger_than_fifo, held_in_a_region, carried_with_a_hole, lost_outside_of_regions])
def test_rows_that_regions_do_not_have_are_no_trace(make: Callable[[], World]) -> None:
    assert check_all(make().rows()).properties["well_formed"].total


def test_a_service_that_regions_do_not_have_cannot_be_judged(tmp_path: Path) -> None:
    runs = inspect([write(tmp_path / "run", stronger_than_fifo().rows())])
    with pytest.raises(UsageError, match="none of a region"):
        judge(DuckEngine(runs), runs)


def test_properties_of_regions_are_shown_where_there_are_some(tmp_path: Path) -> None:
    plain = World(*"ab")
    plain.send("a", "ab")
    assert not set(check_all(plain.rows()).properties) & set(REGIONAL_PROPERTIES)
    assert set(check_all(story().world.rows(), expect=REGIONAL_PROPERTIES).properties) >= set(REGIONAL)
    assert check_all(plain.rows(), expect=("regional",)).vacuous == ["regional"]
    runs = inspect([write(tmp_path / "plain", plain.rows())])
    assert not set(judge(DuckEngine(runs), runs).judged) & set(REGIONAL)
