"""Random runs of daemons in sites, with sessions, partitions and merges; and one random fault in each: both judges say
the same, and where the plain checker objects, they do, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.pipeline.duck import DuckEngine
from tests.pipeline.evs_reference import broken
from tests.pipeline.site_land import Land, host
from tests.pipeline.site_traces import at_once
from tests.pipeline.traces import write
from tests.unit.trace_builder import World

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.job import judge
from ordercast.sim.checkers import check_all
from ordercast.trace.schema import CONTINUE

DAEMONS = "abcd"
GROUPS = ("g", "h", "k")
SERVICES = ("AGREED", "AGREED", "SAFE", "SAFE", "FIFO", "RELIABLE")
STEPS = 40


@dataclass
class Component:
    """Daemons that are in one view."""

    daemons: str
    counter: int
    position: int


class RandomLand:
    """What daemons and sessions without faults do."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.programs = [*(f"{name}@{daemon}" for daemon in "abc" for name in "xy"), "d"]
        self.land = Land(daemons=DAEMONS, sessions=self.programs[:-1], groups={})
        self.members: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.parts = [Component(DAEMONS, 1, 0)]
        for group in GROUPS:
            for name in rng.sample(self.programs, 4):
                self.join(name, group)
        for _ in range(STEPS):
            self.step()
        while len(self.parts) > 1 and rng.random() < 0.8:
            self.merge()
        for _ in range(4):
            self.send()

    @property
    def world(self) -> World:
        return self.land.world

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.55:
            self.send()
        elif chance < 0.65:
            self.join(self.rng.choice(self.programs), self.rng.choice(GROUPS))
        elif chance < 0.70:
            self.leave(self.rng.choice(self.programs), self.rng.choice(GROUPS))
        elif chance < 0.82:
            self.split()
        elif chance < 0.96:
            self.merge()
        elif chance < 0.98:
            self.end(self.rng.choice(self.programs))
        else:
            self.crash(self.rng.choice(self.rng.choice(self.parts).daemons))

    def part_of(self, name: str) -> Component:
        return next(part for part in self.parts if host(name) in part.daemons)

    def inside(self, part: Component, *groups: str) -> list[str]:
        """The members of these groups that are in a part."""
        names = [name for name in self.programs if any(name in self.members[group] for group in groups)]
        return [name for name in names if host(name) in part.daemons]

    def join(self, name: str, group: str) -> None:
        if name not in self.members[group] and name in self.programs:
            part = self.part_of(name)
            before = self.inside(part, group)
            self.members[group].append(name)
            self.world.event(name, "join", group=group)
            self.land.group_view(group, [*before, name], *([before] if before else []), [name])

    def leave(self, name: str, group: str) -> None:
        if name in self.members[group]:
            self.members[group].remove(name)
            self.world.leave(name, group=group)
            rest = self.inside(self.part_of(name), group)
            if rest:
                self.land.group_view(group, rest)

    def end(self, name: str) -> None:
        """A client goes; its daemon takes it out of its groups."""
        if "@" in name:
            groups = [group for group in GROUPS if name in self.members[group]]
            self.world.event(name, "stop", underlay="")
            self.programs.remove(name)
            for group in groups:
                self.members[group].remove(name)
                rest = self.inside(self.part_of(name), group)
                if rest:
                    self.land.group_view(group, rest)

    def send(self) -> None:
        sender = self.rng.choice(self.programs)
        groups = self.rng.sample(GROUPS, self.rng.choice((1, 1, 2)))
        part = self.part_of(sender)
        service = self.rng.choice(SERVICES)
        self.land.post(sender, self.inside(part, *groups), *groups, **self.place(part, service), at=part.daemons)

    def place(self, part: Component, service: str) -> dict[str, object]:
        if service not in ("AGREED", "SAFE"):
            return {"service": service}
        part.position += 1
        return {"service": service, "position": part.position}

    def split(self, *, lost: str = "") -> None:
        """A part falls into two, with messages under way; or daemons of it crash."""
        part = self.rng.choice(self.parts) if not lost else next(one for one in self.parts if lost in one.daemons)
        if len(part.daemons) < 2:
            return
        left = lost or "".join(sorted(self.rng.sample(part.daemons, self.rng.randint(1, len(part.daemons) - 1))))
        right = "".join(name for name in part.daemons if name not in left)
        self.parts.remove(part)
        halves = [Component(names, part.counter, part.position) for names in (left, right)]
        early = self.under_way(part, halves)
        for half in halves if not lost else halves[1:]:
            self.recover(part, half, early)
        self.parts += halves if not lost else halves[1:]

    def under_way(self, part: Component, halves: list[Component]) -> dict[str, list[tuple[list[str], object]]]:
        """By half, what it delivers behind its signal. Some of it the other half has delivered before its own."""
        later: dict[str, list[tuple[list[str], object]]] = {half.daemons: [] for half in halves}
        is_stable = True  # all daemons have it; behind the first that they do not have, nothing is
        for _ in range(self.rng.randint(0, 3)):
            groups = self.rng.sample(GROUPS, self.rng.choice((1, 1, 2)))
            senders = [name for name in self.programs if host(name) in part.daemons]
            if not senders:
                return later
            sender = self.rng.choice(senders)
            service = self.rng.choice(("AGREED", "SAFE"))
            own = next(half for half in halves if host(sender) in half.daemons)
            is_stable = is_stable and self.rng.random() < 0.5
            placed = self.place(part, service)
            at = part.daemons if is_stable else own.daemons
            message = self.land.submit(sender, *groups, **placed, at=at)  # type: ignore[arg-type]
            for half in halves:
                half.position = part.position
                if half is own or is_stable:
                    names = self.inside(half, *groups)
                    is_now = is_stable and not later[half.daemons] and self.rng.random() < 0.5
                    if is_now:
                        self.land.deliver(names, message)
                    else:
                        later[half.daemons].append((names, message))
        return later

    def recover(self, part: Component, half: Component, later: dict[str, list[tuple[list[str], object]]]) -> None:
        """The signal, what was under way, the view, and views of groups that lost members."""
        lost = [group for group in GROUPS if set(self.inside(part, group)) - set(self.inside(half, group))]
        self.land.signal(half.daemons)
        for group in lost:
            self.land.signal([name for name in self.inside(half, group) if "@" in name], group)
        for names, message in later[half.daemons]:
            self.land.deliver([name for name in names if name in self.programs], message)  # type: ignore[arg-type]
        half.counter += 1
        self.land.view(half.counter, half.daemons)
        for group in lost:
            rest = self.inside(half, group)
            if rest:
                self.land.group_view(group, rest)

    def crash(self, daemon: str) -> None:
        part = self.part_of(daemon)
        if len(part.daemons) < 2 or len([name for one in self.parts for name in one.daemons]) < 3:
            return
        self.world.event(daemon, "crash")
        gone = [name for name in self.programs if host(name) == daemon]
        for name in gone if self.rng.random() < 0.5 else ():  # otherwise they end with their daemon
            if name != daemon:
                self.world.event(name, "crash")
        self.parts.remove(part)
        rest = "".join(name for name in part.daemons if name != daemon)
        half = Component(rest, part.counter, part.position)
        self.recover(part, half, {rest: []})
        self.parts.append(half)
        self.programs = [name for name in self.programs if name not in gone]
        for names in self.members.values():
            names[:] = [name for name in names if name not in gone]

    def merge(self) -> None:
        if len(self.parts) < 2:
            return
        one, two = self.rng.sample(self.parts, 2)
        both = Component(
            "".join(sorted(one.daemons + two.daemons)),
            max(one.counter, two.counter) + 1,
            max(one.position, two.position),
        )
        if self.rng.random() < 0.5:
            self.land.signal(both.daemons)
        self.land.view(both.counter, both.daemons, one.daemons, two.daemons)
        for group in GROUPS:
            halves = [self.inside(part, group) for part in (one, two)]
            if all(halves):
                self.land.group_view(group, self.inside(both, group), *halves)
        self.parts = [part for part in self.parts if part not in (one, two)]
        self.parts.append(both)


def disturb(world: World, rng: random.Random) -> str:
    """One fault in what one member wrote down."""
    kind = rng.choice(("drop", "drop", "repeat", "move", "drop view", "move view", "came with", "drop signal", "view"))
    of_kind = {"drop view": "view", "move view": "view", "came with": "view", "drop signal": "transitional"}
    events = [one for one in world.events if one.kind == of_kind.get(kind, "deliver")]
    if of_kind.get(kind) == "view":
        events = [one for one in events if one.columns.get("group")]
    if not events:
        return "nothing"
    event = rng.choice(events)
    if kind.startswith("drop"):
        world.drop(event)
    elif kind == "repeat":
        world.repeat(event)
    elif kind.startswith("move"):
        later = [one for one in world.events if one.member == event.member and one.at_ns > event.at_ns]
        later = [one for one in later if one.kind in ("deliver", "view", "transitional")][: rng.randint(1, 8)]
        if later:
            world.move_before(event, later[-1])
    elif kind == "view":
        event.columns["view"] = rng.choice([one.columns["view"] for one in world.events if one.kind == "deliver"])
    else:
        came, members = event.columns["came_with"], event.columns["members"]
        event.columns["came_with"] = (event.member,) if len(came) > 1 else members
    return kind


@pytest.mark.parametrize("seed", range(6))
def test_a_random_fault_among_sites_is_judged_alike(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = RandomLand(rng).world
    ticks = rng.choice((1, 1, 3, 12))
    verdict = check_all(at_once(world, ticks).rows(), min_members=1, partitions=CONTINUE)
    assert verdict.held, "\n".join(verdict.summary())
    assert not broken(world.rows())
    kind = disturb(world, rng)
    rows = world.rows()
    verdict = check_all(rows, min_members=1, partitions=CONTINUE)
    wanted = {name for name, result in verdict.properties.items() if result.total} - {"well_formed"}
    runs = inspect([write(tmp_path / "run", rows, rules=1, partitions=CONTINUE)])
    findings = judge(DuckEngine(runs), runs)
    found = {name for name, total in findings.totals.items() if total}
    assert found == wanted, (kind, verdict.summary(), findings.violations()[:3])
    assert not broken(rows) or wanted, (kind, broken(rows))
