"""Random runs of a shared underlay, and one random fault in each: both judges say the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.group_traces import alone, post
from tests.pipeline.traces import write
from tests.unit.trace_builder import Event, World

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.job import judge
from ordercast.sim.checkers import check_all

GROUPS = ("g", "h", "k", "l")
SERVICES = ("AGREED", "AGREED", "AGREED", "SAFE", "FIFO", "RELIABLE")
STEPS = 50


class RandomTown:
    """Joins, leaves, sends to one group or several, and one crash, as a shared underlay without faults has them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes = list("abcd")
        self.world = World(*self.nodes)
        self.members: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.changes = 100
        self.underlay_views = 1
        crash_at = rng.randrange(10, STEPS)
        for step in range(STEPS):
            if step == crash_at:
                self.crash(rng.choice(self.nodes))
            chance = rng.random()
            if chance < 0.2:
                self.join(rng.choice(self.nodes), rng.choice(GROUPS))
            elif chance < 0.27:
                self.leave(rng.choice(self.nodes), rng.choice(GROUPS))
            elif chance < 0.32:
                self.underlay_view()
            else:
                self.send()

    def view(self, group: str, came: dict[str, str]) -> None:
        self.changes += 1
        if self.members[group]:
            self.world.view(self.changes, "".join(self.members[group]), came=came, group=group)

    def join(self, name: str, group: str) -> None:
        if name not in self.members[group]:
            self.world.event(name, "join", group=group)
            self.members[group].append(name)
            self.view(group, alone(name))

    def leave(self, name: str, group: str) -> None:
        if name in self.members[group]:
            self.members[group].remove(name)
            self.world.leave(name, group=group)
            self.view(group, {})

    def underlay_view(self) -> None:
        self.underlay_views += 1
        self.world.view(self.underlay_views, "".join(self.nodes))

    def crash(self, name: str) -> None:
        self.nodes.remove(name)
        self.world.event(name, "crash")
        for other in self.nodes:
            self.world.event(other, "transitional")
        self.underlay_view()
        for group in GROUPS:
            if name in self.members[group]:
                self.members[group].remove(name)
                self.view(group, {})

    def send(self) -> None:
        groups = self.rng.sample(GROUPS, self.rng.choice((1, 1, 1, 2, 3)))
        to = "".join(name for name in self.nodes if any(name in self.members[group] for group in groups))
        service = self.rng.choice(SERVICES)
        post(self.world, self.rng.choice(self.nodes), to, *groups, service=service, at="".join(self.nodes))


def disturb(world: World, rng: random.Random) -> str:
    """One fault in what one member wrote down."""
    kind = rng.choice(("drop", "repeat", "move", "rename", "stray", "drop view", "move view", "came with"))
    of_kind = "view" if kind in ("drop view", "move view", "came with") else "deliver"
    events = [
        one for one in world.events if one.kind == of_kind and (one.columns.get("group") or one.columns.get("groups"))
    ]
    event = rng.choice(events)
    if kind.startswith("drop"):
        world.drop(event)
    elif kind == "repeat":
        world.repeat(event)
    elif kind.startswith("move"):
        later = [one for one in world.events if one.member == event.member and one.at_ns > event.at_ns]
        later = [one for one in later if one.kind in ("deliver", "view")][: rng.randint(1, 8)]
        if later:
            world.move_before(event, later[-1])
    elif kind == "rename":
        event.columns |= {"group": rng.choice(GROUPS), "groups": None}
    elif kind == "stray":
        to = rng.choice([one for one in world.events if one.kind == "deliver"])
        world.events.insert(
            world.events.index(to),
            Event(to.member, "deliver", to.at_ns, {**event.columns, "view": to.columns["view"]}),
        )
    else:
        came, members = event.columns["came_with"], event.columns["members"]
        event.columns["came_with"] = (event.member,) if len(came) > 1 else members
    return kind


@pytest.mark.parametrize("seed", range(10))
def test_a_random_fault_on_a_shared_underlay_is_judged_alike(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = RandomTown(rng).world
    assert check_all(world.rows()).held, "\n".join(check_all(world.rows()).summary())
    kind = disturb(world, rng)
    rows = world.rows()
    verdict = check_all(rows)
    wanted = {name for name, result in verdict.properties.items() if result.total} - {"well_formed"}
    runs = inspect([write(tmp_path / "run", rows)])
    findings = judge(DuckEngine(runs), runs)
    found = {name for name, total in findings.totals.items() if total}
    assert found == wanted, (kind, verdict.summary(), findings.violations()[:3])
