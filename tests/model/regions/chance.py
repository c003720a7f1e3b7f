"""Random runs.

python -m tests.model.regions.chance 2000 1                # 2,000 random runs from seed 1
python -m tests.model.regions.chance 2000 1 -orphans       # the same without a rule
python -m tests.model.regions.chance show 42 60 -orphans   # the last 60 lines of one run
python -m tests.model.regions.chance switches 2000 1       # each rule turned off in its turn
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Final

from tests.model.regions import rounds
from tests.model.regions.judge import judge
from tests.model.regions.quiet import come_to_rest
from tests.model.regions.rules import SWITCHES, Rules
from tests.model.regions.state import Token, ViewId
from tests.model.regions.world import LATE, NEVER, NOW, Violation, World

STEPS: Final = 60
MESSAGES: Final = 5
MAX_TOKENS: Final = 2  # of one view at a time
Step = tuple[object, ...]


class Chance:
    """One run, drawn from a seed."""

    def __init__(self, rules: Rules, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random.randint
        self.loss = self.random.choice((0.1, 0.3, 0.5))
        self.world = World(rules, self._fate, draw(2, 6), draw(1, 2), draw(1, 3), draw(1, 2))
        self.world.suspects = self._suspects
        self.faults = draw(0, 4)
        self.messages = MESSAGES

    def run(self) -> None:
        for _ in range(STEPS):
            steps = self._steps()
            if not steps:
                break
            self.take(self.random.choice(steps))
        come_to_rest(self.world)
        judge(self.world)

    def _fate(self) -> str:
        x = self.random.random()
        return NEVER if x < self.loss else LATE if x < 1.6 * self.loss else NOW

    def _suspects(self, starter: int) -> frozenset[int]:
        return frozenset(node.id for node in self.world.nodes if node.id != starter and self.random.random() < 0.2)

    # What may happen next; likelier steps are there several times. ---------------------------------------------------

    def _steps(self) -> list[Step]:
        world = self.world
        steps: list[Step] = []
        for sender in world.senders:
            if not sender.is_alive:
                steps += [("declare dead", sender.id)] * (sender.id not in world.dead[-1])
                continue
            steps += [("send", sender.id)] * (3 if self.messages else 0)
            steps += [("install", sender.id, each) for each in world.regions if sender.epochs[each] < world.last]
            for view, lane in sender.lanes.items():
                steps += [("tail", sender.id, view)] * (lane.ack < lane.count)
                if world.is_closing(sender, view):
                    steps.append(("close", sender.id, view, self.random.choice(world.views[view].members)))
            steps += [("sender dies", sender.id)] * (self.faults > 0)
        for node in world.nodes:
            steps += self._steps_of_node(node.id)
        for token in world.tokens:
            steps += [("visit", token)] * 4 + [("rest of round", token)] * 3 + [("token lost", token)]
        steps += [("late", index) for index in range(len(world.late))[:3]]
        return steps

    def _steps_of_node(self, node: int) -> list[Step]:
        world = self.world
        steps: list[Step] = []
        if not world.is_up(node):
            if node not in world.excluded[-1] and self._can_spare(node):
                steps.append(("exclude", node))
            return steps
        state = world.nodes[node]
        steps += [("node installs", node)] * (state.epoch < world.last)
        for view in world.views:
            if node in world.views[view].members and view.epoch <= state.epoch and view not in state.forgotten:
                if rounds.leads(world, node, view):
                    steps += [("start", view, node)] * (2 if self._tokens(view) < MAX_TOKENS else 0)
                elif self.random.random() < 0.03:
                    steps.append(("start", view, node))
                steps += [("forget", node, view)] * (world.tiles[state.epoch][view.region] != view)
        if self.faults > 0 and self._can_spare(node):
            steps += [("crash", node), ("exclude", node)]
            steps += [("move", node, each) for each in world.regions if each != world.region_of(node)]
        return steps

    def _tokens(self, view: ViewId) -> int:
        return sum(token.view == view for token in self.world.tokens)

    def _can_spare(self, node: int) -> bool:
        """Whether its region has another living member."""
        members = self.world.views[self.world.tiles[-1][self.world.region_of(node)]].members
        return any(self.world.is_up(other) for other in members if other != node)

    def take(self, step: Step) -> None:
        take(self.world, step)
        name, *values = step
        self.messages -= name == "send"
        is_known = name == "exclude" and isinstance(values[0], int) and not self.world.nodes[values[0]].is_alive
        self.faults -= name in ("sender dies", "crash", "move", "exclude") and not is_known


def take(world: World, step: Step) -> None:
    """One step of a run."""
    if not isinstance(step[1], Token):
        world.say("STEP", *step)
    match step:
        case ("send", int(sender)):
            world.send(world.senders[sender])
        case ("install", int(sender), int(region)):
            world.install(world.senders[sender], region)
        case ("tail", int(sender), ViewId() as view):
            world.repeat_tail(world.senders[sender], view)
        case ("close", int(sender), ViewId() as view, int(node)):
            world.say_close(world.senders[sender], view, node)
        case ("sender dies", int(sender)):
            world.senders[sender].is_alive = False
        case ("declare dead", int(sender)):
            world.declare_dead(sender)
        case ("crash", int(node)):
            world.nodes[node].is_alive = False
        case ("exclude", int(node)):
            world.exclude(node)
        case ("move", int(node), int(region)):
            world.move(node, region)
        case ("node installs", int(node)):
            world.nodes[node].epoch += 1
            world.deliver(world.nodes[node])
        case ("start", ViewId() as view, int(node)):
            rounds.start(world, view, node)
        case ("forget", int(node), ViewId() as view):
            world.forget(world.nodes[node], view)
        case ("visit", Token() as token):
            rounds.visit(world, token)
        case ("rest of round", Token() as token):
            rounds.run(world, token)
        case ("token lost", Token() as token):
            world.tokens.remove(token)
            if not world.rules.complete_rounds and world.is_up(token.starter):
                rounds.finish(world, token)
        case ("late", int(index)):
            world.take(*world.late.pop(index))
        case _:
            raise LookupError(f"no step is called {step}")


def run(rules: Rules, seed: int) -> tuple[str, World]:
    """One run: what is wrong with it, or an empty text."""
    chance = Chance(rules, seed)
    try:
        chance.run()
    except Violation as error:
        return str(error), chance.world
    return "", chance.world


def measure(world: World) -> Counter[str]:
    """How much has happened."""
    kinds = Counter(str(words[0]) for words in world.log)
    kinds["views"] = len(world.views)
    kinds["verdicts"] = len({each[1:] for each in world.losses})
    return kinds


def survey(rules: Rules, count: int, first: int) -> str:
    bad: dict[str, list[int]] = {}
    for seed in range(first, first + count):
        text, _ = run(rules, seed)
        if text:
            bad.setdefault(text.partition(":")[0], []).append(seed)
    total = sum(map(len, bad.values()))
    first_bad = min((seeds[0] for seeds in bad.values()), default=None)
    return f"{total} bad of {count}: { {name: len(seeds) for name, seeds in bad.items()} }, first {first_bad}"


def main(arguments: list[str]) -> int:
    rules = Rules().without(*[each[1:] for each in arguments if each.startswith("-")])
    words = [each for each in arguments if not each.startswith("-")]
    if words[0] == "show":
        text, world = run(rules, int(words[1]))
        for line in world.log[-int(words[2]) :]:
            print(*line)
        print(text or "holds")
        return 0
    if words[0] == "switches":
        for name in SWITCHES:
            print(f"{name}: {survey(Rules().without(name), int(words[1]), int(words[2]))}", flush=True)
        return 0
    begin, total, is_bad = time.process_time(), Counter[str](), False
    for seed in range(int(words[1]), int(words[1]) + int(words[0])):
        text, world = run(rules, seed)
        total += measure(world)
        if text:
            is_bad = True
            print(seed, text, flush=True)
    print(f"{words[0]} runs, {time.process_time() - begin:.1f} s: {dict(total)}")
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
