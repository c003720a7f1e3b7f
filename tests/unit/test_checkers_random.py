"""Random executions of a trivial reference model, and random single faults in them.

The model is a global log: messages are submitted, held and placed, and every member delivers the log in order, each at
its own pace; a change of view waits until all have delivered what is before it. All it does is legal by construction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.trace_builder import Event, Message, World

from ordercast.sim.checkers import check_all

SERVICES = ("AGREED", "RESILIENT(1)", "RESILIENT(2)", "MAJORITY", "SAFE")
NAMES = "abcd"
COLUMNS = ("n", "kind", "view", "members", "came_with", "sender", "first", "count", "service", "position")


@dataclass
class Model:
    """The log of the current view, and how far each member has delivered it."""

    rng: random.Random
    world: World = field(init=False)
    members: list[str] = field(init=False)
    log: list[Message] = field(default_factory=list)
    progress: dict[str, int] = field(default_factory=dict)
    views: int = 1
    lives: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = [f"{name}/0" for name in NAMES[: self.rng.randint(2, 4)]]
        self.lives = {member[0]: 0 for member in self.members}
        self.world = World(*self.members)
        self.progress = dict.fromkeys(self.members, 0)

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.45:
            message = self.world.submit(
                self.rng.choice(self.members), self.rng.randint(1, 9), self.rng.choice(SERVICES)
            )
            self.world.hold(self.members, message)
            self.world.placed(self.members, message)
            self.log.append(message)
        elif chance < 0.9:
            self.deliver(self.rng.choice(self.members), self.rng.randint(1, 3))
        else:
            self.change_view()

    def deliver(self, member: str, limit: int) -> None:
        for message in self.log[self.progress[member] :][:limit]:
            if message.count > 1 and self.rng.random() < 0.3:
                cut = self.rng.randint(1, message.count - 1)
                self.world.deliver([member], message, part=(message.first, cut))
                self.world.deliver([member], message, part=(message.first + cut, message.count - cut))
            else:
                self.world.deliver([member], message)
            self.progress[member] += 1

    def settle(self, members: list[str]) -> None:
        for member in members:
            self.deliver(member, len(self.log))

    def change_view(self) -> None:
        self.views += 1
        gone = [name for name in self.lives if not any(member.startswith(name) for member in self.members)]
        came: dict[str, list[str]] = {}
        if gone and self.rng.random() < 0.6:
            self.settle(self.members)
            name = self.rng.choice(gone)
            self.lives[name] += 1
            joiner = f"{name}/{self.lives[name]}"
            self.world.event(joiner, "start")
            self.members = [*self.members, joiner]
            came = {joiner: [joiner]}
        elif len(self.members) > 2 and self.rng.random() < 0.7:
            lost = self.rng.choice(self.members)
            self.members = [member for member in self.members if member != lost]
            self.world.event(lost, "crash")
            for member in self.members:
                self.world.event(member, "transitional")
            self.settle(self.members)
        else:
            self.settle(self.members)
        self.world.view(self.views, self.members, came=came)
        self.log = []
        self.progress = dict.fromkeys(self.members, 0)

    def run(self, steps: int) -> World:
        for _ in range(steps):
            self.step()
        self.settle(self.members)
        return self.world


def deliveries(world: World) -> list[Event]:
    return [event for event in world.events if event.kind == "deliver"]


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 80))
@settings(max_examples=150, deadline=None)
def test_what_the_reference_model_does_is_never_flagged(seed: int, steps: int) -> None:
    verdict = check_all(Model(random.Random(seed)).run(steps).rows())
    assert verdict.held, "\n".join(verdict.summary())


def neighbours(world: World, rng: random.Random) -> tuple[Event, Event] | None:
    """Two deliveries that follow one another at a member in one view."""
    pairs = []
    last: dict[str, Event] = {}
    for event in world.events:
        if event.kind == "deliver":
            before = last.get(event.member)
            if before is not None and before.columns["view"] == event.columns["view"]:
                pairs.append((before, event))
            last[event.member] = event
    return rng.choice(pairs) if pairs else None


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_two_deliveries_that_change_places_are_flagged(seed: int) -> None:
    rng = random.Random(seed)
    world = Model(rng).run(60)
    pair = neighbours(world, rng)
    if pair is not None:
        world.swap(*pair)
        verdict = check_all(world.rows())
        names = ("integrity", "fifo", "causal", "total_order", "resilience")
        assert not all(verdict.properties[name].held for name in names)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_a_delivery_that_is_dropped_is_flagged(seed: int) -> None:
    rng = random.Random(seed)
    world = Model(rng).run(60)
    # A crashed member may have delivered less than it did, and nobody else can tell.
    crashed = {event.member for event in world.events if event.kind == "crash"}
    alive = [event for event in deliveries(world) if event.member not in crashed]
    if alive:
        victim = rng.choice(alive)
        world.drop(victim)
        verdict = check_all(world.rows())
        guilty = {name for name, result in verdict.properties.items() if result.total}
        if not guilty:
            # Only legal where the sender did not stay in, and the member neither changed views nor heard from it again.
            assert victim.columns["sender"] in crashed
        assert guilty <= {"fifo", "virtual_synchrony", "liveness"}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_delivery_that_is_repeated_is_flagged_once(seed: int) -> None:
    rng = random.Random(seed)
    world = Model(rng).run(60)
    known = deliveries(world)
    if known:
        world.repeat(rng.choice(known))
        verdict = check_all(world.rows())
        assert {name: result.total for name, result in verdict.properties.items() if result.total} == {"integrity": 1}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_an_early_resilient_delivery_is_flagged_once(seed: int) -> None:
    rng = random.Random(seed)
    world = Model(rng).run(60)
    strong = [event for event in deliveries(world) if event.columns["service"] != "AGREED"]
    if strong:
        event = rng.choice(strong)
        others = [
            hold
            for hold in world.events
            if hold.kind == "hold"
            and hold.columns["sender"] == event.columns["sender"]
            and hold.columns["first"] <= event.columns["first"] < hold.columns["first"] + hold.columns["count"]
        ]
        late = 10 * world.now_ns
        for hold in others:
            if hold.member != event.member:
                hold.at_ns = late
        verdict = check_all(world.rows())
        assert {name for name, result in verdict.properties.items() if result.total} <= {"resilience"}
        crashed = {one.member for one in world.events if one.kind == "crash"}
        if not crashed:
            assert not verdict.properties["resilience"].held


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_wrong_list_of_members_is_flagged(seed: int) -> None:
    rng = random.Random(seed)
    world = Model(rng).run(60)
    views = [event for event in world.events if event.kind == "view"]
    event = rng.choice(views)
    event.columns["members"] = (*event.columns["members"], "stranger/0")
    assert not check_all(world.rows()).properties["virtual_synchrony"].held


@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=300, deadline=None)
def test_rows_that_make_no_sense_are_judged_and_never_raise(seed: int, data: st.DataObject) -> None:
    rng = random.Random(seed)
    rows = Model(rng).run(30).rows()
    for _ in range(data.draw(st.integers(1, 6))):
        at = rng.randrange(len(rows))
        column = rng.choice(COLUMNS)
        strange: dict[str, list[Any]] = {
            "n": [-1, 0, 7],
            "kind": ["view", "deliver", "submit", "leave", "stop", "gap", "confirm", "reply", "lock", "nonsense"],
            "members": [None, (), ("a/0",)],
            "came_with": [None, (), ("a/0",)],
        }
        other: dict[str, list[Any]] = {"first": [None, -5, 3], "count": [None, 0, -1, 9], "position": [None, -1, 3]}
        choices = strange.get(column) or other.get(column) or [None, "", "b/0", "9@b/0", "SAFE"]
        rows[at] = rows[at]._replace(**{column: rng.choice(choices)})
    rng.shuffle(rows)
    verdict = check_all(rows)
    assert verdict.rows == len(rows)


@dataclass
class Chaos:
    """Members that deliver whatever has been submitted, mostly in order: legal only by luck."""

    rng: random.Random
    service: str
    world: World = field(default_factory=lambda: World(*"abc"))
    messages: list[Message] = field(default_factory=list)
    past: list[set[int]] = field(default_factory=list)
    known: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in "abc"})
    logs: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in "abc"})

    def step(self) -> None:
        name = self.rng.choice("abc")
        waiting = [index for index in range(len(self.messages)) if index not in self.logs[name]]
        if self.rng.random() < 0.4 or not waiting:
            self.past.append(set(self.known[name]))
            self.known[name].add(len(self.messages))
            self.messages.append(self.world.submit(name, self.rng.randint(1, 3), self.service))
        else:
            index = waiting[0] if self.rng.random() < 0.85 else self.rng.choice(waiting)
            self.world.deliver(name, self.messages[index])
            self.logs[name].append(index)
            self.known[name] |= {index} | self.past[index]

    def is_before(self, left: int, right: int) -> bool:
        one, two = self.messages[left], self.messages[right]
        return one.sender == two.sender and one.first < two.first

    def faults(self) -> set[str]:
        """Every pair of messages at every member, message by message."""
        found = set()
        for log in self.logs.values():
            for place, index in enumerate(log):
                if any(
                    self.is_before(other, index) and other not in log[:place] for other in range(len(self.messages))
                ):
                    found.add("fifo")
                for later in log[place + 1 :]:
                    if later in self.past[index] and self.messages[later].sender != self.messages[index].sender:
                        found.add("causal")
                    if later < index and self.service == "AGREED":  # positions are given in the order of submits
                        found.add("total_order")
        return found


@given(seed=st.integers(0, 2**32), service=st.sampled_from(["CAUSAL", "AGREED"]), steps=st.integers(4, 14))
@settings(max_examples=300, deadline=None)
def test_the_checkers_agree_with_a_judge_that_compares_every_pair(seed: int, service: str, steps: int) -> None:
    chaos = Chaos(random.Random(seed), service)
    for _ in range(steps):
        chaos.step()
    verdict = check_all(chaos.world.rows(), quiet=False)
    found = {name for name, result in verdict.properties.items() if result.total}
    faults = chaos.faults()
    assert found <= faults  # no false alarm, though a later property may be silent about what an earlier one explains
    assert bool(found) == bool(faults)
    assert ("fifo" in found) == ("fifo" in faults)
