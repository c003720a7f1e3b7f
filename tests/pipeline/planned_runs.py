"""What messages cost in regions that are laid out in different ways: simulated runs with the real service and engine.

    python -m tests.pipeline.planned_runs

The nodes and groups of figure 2 (18 nodes, a tenth of its 300 groups). Counted are the datagrams of lanes, tokens and
repairs, those of the membership service apart: each once when it is sent, and once at every node that receives it.

One node is in one region, so *a region for each group* cannot be had from the service. There each group gets a world
of its own, with the members that it has and the messages that they send to it, and the counts are added.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.pipeline.planner import figure_two, sets_of
from tests.pipeline.traces import write as write_trace

import ordercast
from ordercast.config import SECOND
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.network import LAN
from ordercast.sim.world import World
from ordercast.trace.schema import Row

PAYLOAD: Final = bytes(100)
TURN_S: Final = 0.02
LIMIT_NS: Final = 600 * SECOND
NO_LANE: Final = "membership"  # kinds of datagrams that are the service's
WANTED: Final = {node: sorted(groups) for node, groups in sets_of(figure_two()).items()}
SEED: Final = 7

Load = Callable[[str, int], Sequence[str]]
"""The groups that a node sends to in a turn, one message each; the same group again for one more."""


def each_in_turn(node: str, _: int) -> Sequence[str]:
    """A message to each of its groups."""
    return _tenth(node)


def one_at_a_time(node: str, turn: int) -> Sequence[str]:
    """Five messages to one group, which changes from turn to turn."""
    groups = _tenth(node)
    return [random.Random(f"{node}/{turn}").choice(groups)] * 5


def _tenth(node: str) -> list[str]:
    return [group for group in WANTED[node] if group.endswith("0")]


class Counted(NamedTuple):
    messages: int
    sent: int  # datagrams with messages
    received: int
    control: int  # all others, sent or received

    @property
    def per_message(self) -> float:
        return (self.sent + self.received + self.control) / self.messages

    def plus(self, other: Counted) -> Counted:
        return Counted(*(one + more for one, more in zip(self, other, strict=True)))


class Run(NamedTuple):
    counted: Counted
    rows: list[Row]


def run(load: Load, turns: int, placement: Mapping[str, int] | None = None, only: frozenset[str] | None = None) -> Run:
    """Every node sends so many turns, and all have received everything. only: these groups, and who is in them."""
    members = {node: [group for group in _tenth(node) if only is None or group in only] for node in WANTED}
    members = {node: groups for node, groups in members.items() if groups}
    sends = {
        node: [[group for group in load(node, turn) if group in groups] for turn in range(turns)]
        for node, groups in members.items()
    }
    owed = {node: sum(_count(sends, group) for group in groups) for node, groups in members.items()}
    world = World(SEED, LAN)
    began: list[int] = []

    async def program(make: Simulation) -> None:
        desk = make("desk", gms="embedded", placement=placement)
        nodes = {node: make(node) for node in members}
        await asyncio.gather(*(nodes[node].join_many(members[node], orderer="regions") for node in members))
        for node, groups in members.items():  # whoever sends has to know all who are to receive
            for group in groups:
                await _sees(nodes[node], group, {other for other in members if group in members[other]})
        began.append(world.now_ns)
        await asyncio.gather(
            *(_send(nodes[node], sends[node]) for node in members),
            *(_receive(nodes[node], owed[node]) for node in members),
        )
        await asyncio.gather(*(each.close() for each in nodes.values()))
        await desk.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    rows = world.rows()
    messages = sum(len(turn) for each in sends.values() for turn in each)
    return Run(_count_datagrams(rows, messages, began[0], frozenset(members)), rows)


def _count(sends: Mapping[str, Sequence[Sequence[str]]], group: str) -> int:
    return sum(turn.count(group) for each in sends.values() for turn in each)


async def _sees(node: SimNode, name: str, members: set[str]) -> None:
    """A view of a group names all nodes of the regions that have it: where a plan merges regions, also others."""
    group = node.group(name)
    while not members <= {member.name for member in group.members}:
        await anext(aiter(group))


async def _send(node: SimNode, turns: Sequence[Sequence[str]]) -> None:
    floor = await node.attach("regions")
    await asyncio.sleep(random.Random(str(node.member)).random() * TURN_S)
    for groups in turns:
        if groups:
            await floor.send_many([PAYLOAD] * len(groups), groups=list(groups))
        await asyncio.sleep(TURN_S)
    await floor.flush()


async def _receive(node: SimNode, owed: int) -> None:
    async for event in node.batches():
        if isinstance(event, ordercast.Batch | ordercast.MixedBatch):
            owed -= sum(1 for _ in event.each())
        if owed <= 0:
            return


def _count_datagrams(rows: Sequence[Row], messages: int, began_ns: int, nodes: frozenset[str]) -> Counted:
    sent = received = control = 0
    for row in rows:
        if row.kind in ("tx", "rx") and row.underlay == "regions" and row.at_ns >= began_ns and row.node in nodes:
            if row.detail == "data":
                sent += (row.count or 0) if row.kind == "tx" else 0
                received += (row.count or 0) if row.kind == "rx" else 0
            elif row.detail != NO_LANE:
                control += row.count or 0
    return Counted(messages, sent, received, control)


def apart(load: Load, turns: int) -> Counted:
    """A region for each group."""
    found = Counted(0, 0, 0, 0)
    for group in sorted({group for node in WANTED for group in _tenth(node)}):
        found = found.plus(run(load, turns, only=frozenset([group])).counted)
    return found


def one_region(load: Load, turns: int) -> Counted:
    return run(load, turns, dict.fromkeys(WANTED, 0)).counted


def as_trace(folder: Path, rows: Sequence[Row]) -> Path:
    return write_trace(folder, rows)


def main() -> None:
    from ordercast.pipeline.regions.inputs import open_subscriptions
    from ordercast.pipeline.regions.job import make_plan
    from ordercast.pipeline.regions.planning import PlanWishes
    from ordercast.pipeline.session import session

    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for load in (each_in_turn, one_at_a_time):
        print(load.__doc__)
        before = one_region(load, turns)
        traced = run(load, turns, dict.fromkeys(WANTED, 0))
        with TemporaryDirectory() as folder, session("planned runs", "local[2]", rows=1_000) as spark:
            result = make_plan(spark, open_subscriptions([as_trace(Path(folder), traced.rows)]), None, PlanWishes())
            nodes = result.planned.tables["nodes"]
            placement = dict(zip(nodes["node"].to_pylist(), nodes["region"].to_pylist(), strict=True))
            print("model:", {name: round(one.per_message, 2) for name, one in result.packets.items()})
        for name, one in (
            ("one region", before),
            ("a region for each group", apart(load, turns)),
            (f"plan, {len(set(placement.values()))} regions", run(load, turns, placement).counted),
        ):
            print(f"{name}: {one.per_message:.2f} packets for each message, {one}")


if __name__ == "__main__":
    main()
