"""A plan of `ordercast plan` as the membership service takes it: `ordercast gms --plan DIR`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")

import pyarrow as pa
from tests.pipeline.planner import Tiles, tiles_of
from tests.sim.gms_world import STEP_S, GmsWorld

from ordercast.cli.gms_dump import write_subscriptions
from ordercast.config import SECOND, Timing
from ordercast.errors import UsageError
from ordercast.gms.placement import labels_of
from ordercast.gms.replica import GmsReplica
from ordercast.gms.subscriptions import ServedSubscriptions
from ordercast.pipeline.regions.inputs import open_subscriptions
from ordercast.pipeline.regions.job import make_plan, write_result
from ordercast.pipeline.regions.plan import COLUMNS, placement_of, write_plan
from ordercast.pipeline.regions.planning import PlanWishes
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.checkers import check_all
from ordercast.sim.network import LAN
from ordercast.sim.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def written(folder: Path, regions: dict[str, int]) -> Path:
    tables = {name: pa.table({column: [0] for column in columns}) for name, columns in COLUMNS.items()}
    count = len(regions)
    nodes = {column: [0] * count for column in COLUMNS["nodes"]}
    tables["nodes"] = pa.table({**nodes, "node": list(regions), "region": list(regions.values())})
    write_plan(folder, tables, {"limits": {}, "costs": {}})
    return folder


def test_nodes_are_placed_as_a_plan_says(tmp_path: Path) -> None:
    plan = labels_of(placement_of(written(tmp_path, {"a": 0, "b": 0, "c": 1})))
    assert plan == (("a", 1), ("b", 1), ("c", 2))

    async def program(make: Simulation) -> None:
        world = GmsWorld(make)
        node = world.nodes["r1"] = make("r1")
        replica = world.replicas["r1"] = GmsReplica(node, node.parts[0], Timing(), plan=plan)
        world.tasks["r1"] = asyncio.create_task(replica.run())
        world.attend("a", "fx")
        world.attend("b", "news")
        world.attend("c", "fx", "news")
        world.attend("d", "fx", "news")
        await world.settled()
        assert world.attendants["a"].neighbours == ["a", "b"]
        assert world.attendants["c"].neighbours == ["c"]
        assert world.attendants["d"].neighbours == ["d"], "the plan does not know it: its region is exact"
        table = world.attendants["a"].attendance.table
        assert len(table.regions(table.number("fx"))) == 3
        await world.stop()

    simulate(program, limit_ns=120 * SECOND)


def test_a_folder_without_a_plan_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no plan"):
        placement_of(tmp_path)


# From the service to a plan, and back. -------------------------------------------------------------------------------

WANTED = {
    "ann": [f"metals/{number}" for number in range(20)],
    "bob": [f"metals/{number}" for number in range(21)],  # one more: 4.8 % of it would be in vain at ann
    "cleo": [f"energy/{number}" for number in range(20)],
    "dan": [f"energy/{number}" for number in range(1, 20)],
    "eve": ["weather"],
}


async def regions_of_a_running_system(make: Simulation, placement: dict[str, int] | None) -> ServedSubscriptions:
    desk = make("desk", gms="embedded", placement=placement)
    nodes = {name: make(name) for name in WANTED}
    await asyncio.gather(*(nodes[name].join_many(groups, orderer="regions") for name, groups in WANTED.items()))
    await nodes["ann"].send(b"tea 3", groups=["metals/1", "metals/2"], confirm=True)
    assert desk.embedded_service is not None
    found = desk.embedded_service.subscriptions()
    assert found is not None
    await asyncio.gather(*(node.close() for node in nodes.values()))
    await desk.close()
    return found


def last_regions(world: World) -> Tiles:
    """The members of the region in which each node was last."""
    views = [row for row in world.rows() if row.kind == "view" and row.underlay.startswith("region/")]
    largest: dict[str, tuple[str, ...]] = {}
    for row in views:
        if row.members and len(row.members) >= len(largest.get(row.node, ())):
            largest[row.node] = row.members
    return frozenset(frozenset(member.partition("/")[0] for member in members) for members in largest.values())


def test_a_plan_from_the_state_of_a_service_makes_its_next_regions(spark: SparkSession, tmp_path: Path) -> None:
    world = World(1, LAN)
    state = simulate(lambda make: regions_of_a_running_system(make, None), world=world, limit_ns=120 * SECOND)
    assert set(state.pairs()) == {(name, group) for name, groups in WANTED.items() for group in groups}
    assert last_regions(world) == frozenset(frozenset([name]) for name in WANTED)

    for name in ("now.csv", "now.parquet"):
        write_subscriptions(tmp_path / name, state)
    plans = []
    for name in ("now.csv", "now.parquet"):
        result = make_plan(spark, open_subscriptions([tmp_path / name]), None, PlanWishes())
        (tmp_path / name).with_suffix("").mkdir(exist_ok=True)
        write_result((tmp_path / name).with_suffix(""), result, PlanWishes(), [name], None)
        plans.append(placement_of((tmp_path / name).with_suffix("")))
    assert plans[0] == plans[1]
    planned = frozenset({frozenset({"ann", "bob"}), frozenset({"cleo", "dan"}), frozenset({"eve"})})
    assert tiles_of(plans[0]) == planned

    placed = World(1, LAN)
    simulate(lambda make: regions_of_a_running_system(make, plans[0]), world=placed, limit_ns=120 * SECOND)
    assert last_regions(placed) == planned
    verdict = check_all(placed.rows(), clock="virtual", quiet=True)
    assert verdict.held, "\n".join(verdict.summary())


def test_a_running_service_takes_another_plan() -> None:
    async def program(make: Simulation) -> None:
        world = GmsWorld(make)
        node = world.nodes["r1"] = make("r1")
        replica = world.replicas["r1"] = GmsReplica(node, node.parts[0], Timing())
        world.tasks["r1"] = asyncio.create_task(replica.run())
        world.attend("a", "fx")
        world.attend("b", "news")
        await world.settled()
        assert world.attendants["a"].neighbours == ["a"]
        for placement, neighbours in (({"a": 0, "b": 0}, ["a", "b"]), ({"a": 4, "b": 2}, ["a"])):
            replica.place(labels_of(placement))
            async with asyncio.timeout(20):  # of virtual time
                while world.attendants["a"].neighbours != neighbours:
                    await asyncio.sleep(STEP_S)
        await world.stop()

    simulate(program, limit_ns=120 * SECOND)
