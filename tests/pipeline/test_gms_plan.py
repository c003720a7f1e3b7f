"""A plan of `ordercast plan` as the membership service takes it: `ordercast gms --plan DIR`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sim.gms_world import GmsWorld

from ordercast.cli.gms import placements
from ordercast.config import SECOND, Timing
from ordercast.errors import UsageError
from ordercast.gms.replica import GmsReplica
from ordercast.pipeline.regions.plan import COLUMNS, write_plan
from ordercast.sim.api import Simulation, simulate


def written(folder: Path, regions: dict[str, int]) -> Path:
    tables = {name: pa.table({column: [0] for column in columns}) for name, columns in COLUMNS.items()}
    count = len(regions)
    nodes = {column: [0] * count for column in COLUMNS["nodes"]}
    tables["nodes"] = pa.table({**nodes, "node": list(regions), "region": list(regions.values())})
    write_plan(folder, tables, {"limits": {}, "costs": {}})
    return folder


def test_nodes_are_placed_as_a_plan_says(tmp_path: Path) -> None:
    plan = placements(written(tmp_path, {"a": 0, "b": 0, "c": 1}))
    assert plan == [("a", 1), ("b", 1), ("c", 2)]

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
        placements(tmp_path)
