"""Regions: every fault is found and named as what it is by all judges, and what is legal is not flagged. All runs are
judged at once, since a job costs more than its runs.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.random_regions import RandomTiling, disturb
from tests.pipeline.region_traces import REGION_FAULTS, REGION_LEGAL
from tests.pipeline.traces import write

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.findings import REGIONAL, ROOT, Findings
from ordercast.pipeline.verify.job import judge, verify
from ordercast.sim.checkers import check_all
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
    *("legal_story", "to_a_group_that_it_left", "in_two_regions", "hole_of_a_sender_outside", "lost_in_a_move"),
    *("survivors_differ", "nobody_has_it_from_outside"),
)


def test_spark_says_what_the_second_engine_says(spark: SparkSession, folders: list[Path], by_duck: Findings) -> None:
    by_spark = verify(spark, inspect([folder for folder in folders if folder.name in IN_SPARK]))
    told = [
        {(one.run, one.property, one.node, one.message, one.view, one.n) for one in each.violations()}
        for each in (by_spark, by_duck)
    ]
    assert told[0] == {one for one in told[1] if one[0] in IN_SPARK}
    assert {one[0] for one in told[0]} == set(IN_SPARK) - {"legal_story"}
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
