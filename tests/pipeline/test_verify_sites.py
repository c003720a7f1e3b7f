"""Sessions, and components that go on and merge: every fault is found and named as what it is by all judges, and what
is legal is not flagged. All runs are judged at once, since a job costs more than its runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.evs_reference import broken
from tests.pipeline.site_land import SITES
from tests.pipeline.site_traces import QUORUM_FAULTS, QUORUM_LEGAL, SITE_FAULTS, SITE_LEGAL
from tests.pipeline.traces import write

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.findings import ROOT, Findings
from ordercast.pipeline.verify.job import judge, verify
from ordercast.sim.checkers import check_all
from ordercast.trace.run import parameters_of_sites
from ordercast.trace.schema import CONTINUE, QUORUM, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SiteCase(NamedTuple):
    """A fault, what it breaks, and where it shows; None, None: it is legal."""

    name: str
    rows: list[Row]
    breaks: str | None
    at: str | None
    partitions: str

    @property
    def rule(self) -> Any:
        """What its members ask for: with components nobody waits for others."""
        return 1 if self.partitions == CONTINUE else "majority"


CASES = [
    *(SiteCase(make.__name__, make().rows(), breaks, at, CONTINUE) for make, breaks, at in SITE_FAULTS),
    *(SiteCase(make.__name__, make().rows(), breaks, at, QUORUM) for make, breaks, at in QUORUM_FAULTS),
    *(SiteCase(make.__name__, make().rows(), None, None, CONTINUE) for make in SITE_LEGAL),
    *(SiteCase(f"quorum_{make.__name__}", make().rows(), None, None, QUORUM) for make in QUORUM_LEGAL),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("sites")
    return [write(base / case.name, case.rows, rules=case.rule, partitions=case.partitions) for case in CASES]


@pytest.fixture(scope="module")
def by_duck(folders: list[Path]) -> Findings:
    runs = inspect(folders)
    return judge(DuckEngine(runs), runs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pipeline_names_what_is_broken_and_where(by_duck: Findings, case: SiteCase) -> None:
    found = [one for one in by_duck.violations() if one.run == case.name and one.severity == ROOT]
    assert {one.property for one in found} == ({case.breaks} if case.breaks else set()), found
    if case.breaks:
        assert found[0].node == case.at
        assert all(one.detail and isinstance(one.n, int) for one in found)
    else:
        assert not [one for one in by_duck.violations() if one.run == case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_checkers_of_the_simulator_name_the_same(case: SiteCase) -> None:
    verdict = check_all(case.rows, min_members=case.rule, partitions=case.partitions)
    found = {name for name, result in verdict.properties.items() if result.total}
    assert found == ({case.breaks} if case.breaks else set()), "\n".join(verdict.summary())
    if case.breaks:
        assert f"{verdict.violations[0].node}/{verdict.violations[0].life}" == case.at


# One for each property that sessions and components add something to: Spark costs more than the second engine.
IN_SPARK = (
    *("legal_merge", "quorum_legal_sessions_in_a_quorum", "signal_at_another_place", "own_message_lost"),
    *("safe_to_two_groups_after_one_signal", "hole_after_the_merge"),
)


def test_spark_says_what_the_second_engine_says(spark: SparkSession, folders: list[Path], by_duck: Findings) -> None:
    runs = inspect([folder for folder in folders if folder.name in IN_SPARK])
    assert len(runs) == len(IN_SPARK)
    by_spark = verify(spark, runs)
    told = [
        {(one.run, one.property, one.node, one.message) for one in each.violations() if one.run in IN_SPARK}
        for each in (by_spark, by_duck)
    ]
    assert told[0] == told[1]
    assert {one.run for one in by_spark.violations()} == {name for name in IN_SPARK if "legal" not in name}


@pytest.mark.parametrize("case", [case for case in CASES if case.partitions == CONTINUE], ids=lambda case: case.name)
def test_the_plain_checker_says_the_same_of_what_components_add(case: SiteCase) -> None:
    found = broken(case.rows)
    assert found <= ({case.breaks} if case.breaks else set()) | FOLLOW.get(case.breaks or "", set())
    assert case.breaks in found or case.name not in ADDED


# Claims that the plain checker knows.
ADDED = frozenset(
    (
        *("signal_at_another_place", "session_without_the_signal", "lost_after_the_signal", "lost_before_the_signal"),
        *("lost_in_a_group_that_keeps_its_view", "safe_lost_in_the_other_component", "own_message_lost"),
        *("safe_lost_by_those_that_came_along", "own_message_lost_at_the_end"),
    )
)
# It has no thought of causes: what else it may find of a fault.
FOLLOW = {
    "virtual_synchrony": {"resilience"},
    "fifo": {"virtual_synchrony", "resilience"},
    "liveness": {"resilience"},
    "resilience": set[str](),
}


def test_without_components_a_class_of_its_own_is_a_lie() -> None:
    """The same rows, judged as those of a quorum: what comes from one view goes together."""
    rows = next(case.rows for case in CASES if case.name == "legal_classes")
    verdict = check_all(rows, min_members=1)
    assert not verdict.properties["virtual_synchrony"].held


def test_a_run_of_sites_says_so_in_its_parameters() -> None:
    given = parameters_of_sites(SITES, {"name": "x"})
    assert given == {"name": "x", "sites": SITES, "partitions": CONTINUE, "min_members": 1}
    with pytest.raises(ValueError, match="site of each daemon"):
        parameters_of_sites({})
    with pytest.raises(ValueError, match="site of each daemon"):
        parameters_of_sites({"a": ""})


def test_an_unknown_rule_for_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown partitions"):
        check_all([], partitions="perhaps")
