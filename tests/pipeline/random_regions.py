"""Random runs of nodes in regions: joins and leaves that move nodes, messages under way over epochs, crashes with
losses, exclusions; and one random fault."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tests.pipeline.region_traces import Post, Tiling
from tests.unit.trace_builder import Event, World, member

NODES: Final = "abcdef"
OUTSIDE: Final = "s"
GROUPS: Final = ("g", "h", "k")
SERVICES: Final = ("FIFO", "FIFO", "FIFO", "RELIABLE", "UNRELIABLE")
STEPS: Final = 30


class RandomTiling:
    """What nodes without faults do: nodes with the same groups are in one region."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tiling = Tiling(*NODES, OUTSIDE)
        self.epoch = 0
        self.wanted: dict[str, frozenset[str]] = dict.fromkeys(NODES, frozenset())
        self.numbers: dict[frozenset[str], int] = {}
        self.out: list[str] = []  # excluded, and not yet back
        first = {name: frozenset(rng.sample(GROUPS, rng.choice((1, 2, 2)))) for name in NODES}
        self.change(first)
        for _ in range(STEPS):
            self.step()

    @property
    def world(self) -> World:
        return self.tiling.world

    @property
    def senders(self) -> list[str]:
        return [*self.wanted, OUTSIDE]

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.65:
            self.send()
        elif chance < 0.85:
            self.move()
        elif chance < 0.90:
            self.end(is_crash=True)
        elif chance < 0.96:
            self.end(is_crash=False)
        elif self.out:
            self.back()

    def region(self, groups: frozenset[str]) -> int:
        return self.numbers.setdefault(groups, len(self.numbers) + 1)

    def inside(self, region: int) -> list[str]:
        return [name for name in self.wanted if self.wanted[name] and self.region(self.wanted[name]) == region]

    def change(
        self, changes: dict[str, frozenset[str]], under_way: Sequence[tuple[Post, dict[int, list[str]]]] = ()
    ) -> None:
        """An epoch: nodes want other groups, and views of the regions that they leave and come into follow."""
        touched: set[int] = set()
        for name, groups in changes.items():
            before = self.wanted.get(name, frozenset())
            if before:
                touched.add(self.region(before))
            self.tiling.leave(name, *sorted(before - groups))
            self.tiling.join(name, *sorted(groups - before))
            self.wanted[name] = groups
            touched.add(self.region(groups))
        self.install(touched)
        for post, lanes in under_way:
            self.arrive(post, lanes)

    def install(self, touched: set[int]) -> None:
        self.epoch += 1
        for region in sorted(touched):
            names = self.inside(region)
            if names:
                self.tiling.view(self.epoch, region, names)
            else:
                self.tiling.views.pop(region, None)

    def submit(self, sender: str = "") -> tuple[Post, dict[int, list[str]]]:
        """Sent, and not yet delivered elsewhere: with the members of the views that it went to."""
        groups = self.rng.sample(GROUPS, self.rng.choice((1, 1, 2)))
        sender = sender or self.rng.choice(self.senders)
        post = self.tiling.submit(
            *(sender, *groups),
            count=self.rng.choice((1, 1, 3)),
            service=self.rng.choice(SERVICES),
            fragments=self.rng.choice((0, 0, 0, 2)),
        )
        lanes = {region: self.inside(region) for region in post.lanes}
        for region, names in lanes.items():
            if sender in names and self.wants(sender, post):
                self.tiling.deliver(sender, post, region)
        return post, lanes

    def wants(self, name: str, post: Post) -> bool:
        return bool(self.wanted.get(name, frozenset()) & set(post.groups))

    def arrive(self, post: Post, lanes: dict[int, list[str]]) -> None:
        for region, names in lanes.items():
            for name in names:
                is_lucky = post.service != "UNRELIABLE" or self.rng.random() < 0.6
                if member(name) != post.sender and self.wants(name, post) and is_lucky:
                    self.tiling.deliver(name, post, region)

    def send(self) -> None:
        self.arrive(*self.submit())

    def move(self) -> None:
        """With messages on their way in the views that end."""
        if not self.wanted:
            return
        under_way = [self.submit() for _ in range(self.rng.choice((0, 1, 2)))]
        name = self.rng.choice(sorted(self.wanted))
        self.change({name: frozenset(self.rng.sample(GROUPS, self.rng.choice((1, 2))))}, under_way)

    def end(self, *, is_crash: bool) -> None:
        """A node dies, or is excluded. What it sent last got to all survivors, to some, or to nobody."""
        if len(self.wanted) < 3:
            return
        name = self.rng.choice(sorted(self.wanted))
        last = [self.submit(name) for _ in range(self.rng.choice((0, 1, 2)))]
        luck = self.rng.choice(("all", "lost", "nobody"))
        region = self.region(self.wanted.pop(name))
        if is_crash:
            self.tiling.crash(name)
        else:
            self.tiling.depart(name)
            self.out.append(name)
        self.install({region})
        for post, lanes in last:
            if luck == "all" or (luck == "lost" and post.service == "UNRELIABLE"):
                self.arrive(post, lanes)
            elif luck == "lost":
                for there, names in lanes.items():
                    rest = [one for one in names if one in self.wanted]
                    had = self.rng.sample(rest, self.rng.randint(0, len(rest)))
                    self.arrive(post, {there: had})
                    self.tiling.lost([one for one in rest if one not in had], post, there)

    def back(self) -> None:
        name = self.out.pop()
        self.tiling.event(name, "join")
        self.change({name: frozenset(self.rng.sample(GROUPS, 2))})


def disturb(world: World, rng: random.Random) -> str:
    """One fault in what one node wrote down."""
    kind = rng.choice(
        ("drop", "drop", "repeat", "move", "view of", "drop view", "members", "drop lost", "lose", "join", "serial")
    )
    of_kind = {"drop view": "view", "members": "view", "drop lost": "lost", "join": "join", "serial": "submit"}.get(
        kind, "deliver"
    )
    events = [one for one in world.events if one.kind == of_kind]
    if kind == "join":
        events = [one for one in events if one.columns.get("group")]
    if not events:
        return "nothing"
    event = rng.choice(events)
    if kind in ("drop", "drop view", "drop lost", "join"):
        world.drop(event)
    elif kind == "repeat":
        world.repeat(event)
    elif kind == "move":
        later = [one for one in world.events if one.member == event.member and one.at_ns > event.at_ns]
        later = [one for one in later if one.kind in ("deliver", "view", "leave")][: rng.randint(1, 8)]
        if later:
            world.move_before(event, later[-1])
    elif kind == "view of":
        event.columns["view"] = rng.choice([one.columns["view"] for one in world.events if one.kind == "deliver"])
    elif kind == "serial":
        event.columns["position"] = max(event.columns["position"] - 2, 0)
    elif kind == "members":
        event.columns["members"] = (*event.columns["members"][::-1], "z/0")
    else:
        columns = {name: event.columns[name] for name in ("underlay", "view", "sender")}
        told = Event(event.member, "lost", event.at_ns, {**columns, "first": rng.randint(1, 4), "count": 1})
        world.events.insert(next(at for at, one in enumerate(world.events) if one is event) + 1, told)
    return kind
