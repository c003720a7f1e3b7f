"""Random runs of the model. One seed gives one run.

python -m tests.model.evs.chance 2000 1                # 2,000 runs from seed 1
python -m tests.model.evs.chance 2000 1 -lineage       # the same without a rule
python -m tests.model.evs.chance show 17 80 -lineage   # the last 80 facts of one run
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Final

from tests.model.evs.blocks import AGREED, FIFO, SAFE, Join, Leave, Send
from tests.model.evs.daemon import ACCEPTED, ACCEPTING, EVERYTHING, GATHERING
from tests.model.evs.history import Fact, Given, Installed, Signalled
from tests.model.evs.judge import Violation, judge
from tests.model.evs.quiet import come_to_rest
from tests.model.evs.rules import Rules
from tests.model.evs.world import World

from ordercast.errors import InvariantViolation

RECENT_ROUNDS: Final = 4  # older ones take no more steps
WINDOWS: Final = (2, 3, 5, 64)


class Chance:
    """What happens in one run."""

    __slots__ = ("budget", "faults", "groups", "random", "slow", "whole", "world")

    def __init__(self, rules: Rules, seed: int) -> None:
        chance = self.random = random.Random(f"evs/{seed}")
        hosts = chance.choice((2, 3, 3, 4, 4, 4, 5))
        sites = min(hosts, chance.choice((1, 2, 2, 3, 3, 3, 4)))
        place = tuple(host if host < sites else chance.randrange(sites) for host in range(hosts))
        weights = {(a, b): chance.choice((1, 1, 5)) for a in range(sites) for b in range(a + 1, sites)}
        self.world = World(rules, place, weights, chance.choice(WINDOWS))
        self.groups = chance.choice((1, 2, 2, 3, 3))
        self.budget = chance.randint(4, 12)  # wishes
        self.faults = chance.choice((1, 2, 2, 3, 4, 5))
        self.whole = 0.5  # how often everything arrives that can
        self.slow: set[tuple[int, int]] = set()  # (daemon, source): little arrives

    def run(self) -> None:
        """One run, judged. Raises `Violation`."""
        chance, world = self.random, self.world
        try:
            if chance.random() < 0.85:
                every = [(daemon, 0) for daemon in world.daemons]
                world.form({g: frozenset(s for s in every if chance.random() < 0.5) for g in range(self.groups)})
            elif chance.random() < 0.5:
                come_to_rest(world)
                for daemon in world.daemons:
                    for group in range(self.groups):
                        if chance.random() < 0.6:
                            world.wish(daemon, Join(group, (daemon, 0)))
                if chance.random() < 0.7:
                    come_to_rest(world)
            self._episodes()
            if chance.random() < 0.7:
                world.components = [0] * len(world.components)
            come_to_rest(world)
        except InvariantViolation as error:
            raise Violation(f"invariant: {error}") from error
        except Violation:
            judge(world.facts, is_at_rest=False)  # what is wrong with it, rather than that it does not rest
            raise
        judge(world.facts, is_at_rest=True)

    def _episodes(self) -> None:
        chance = self.random
        self.whole = chance.choice((0.1, 0.5, 0.9))
        for _ in range(chance.choice((1, 1, 2, 3))):
            self._draw_slow()
            for _ in range(chance.randint(1, 5)):
                self._wish()
            for _ in range(chance.randint(3, 60)):
                self._traffic()
            self._fault()
            for _ in range(chance.randint(3, 90)):
                x = chance.random()
                if x < 0.7:
                    self._recovery()
                elif x < 0.96:
                    self._traffic()
                else:
                    self._fault()

    def _draw_slow(self) -> None:
        sites = range(max(self.world.hosts) + 1)
        every = [(daemon, site) for daemon in self.world.daemons for site in sites]
        self.slow = {each for each in every if self.random.random() < 0.25}

    # ---- steps

    def _wish(self) -> None:
        chance, world = self.random, self.world
        if self.budget <= 0:
            return
        self.budget -= 1
        daemon = chance.choice(world.alive)
        group = chance.randrange(self.groups)
        session = (daemon.id, chance.randrange(2))
        x = chance.random()
        if x < 0.2:
            world.wish(daemon.id, Join(group, session))
        elif x < 0.35:
            mine = [
                (g, s) for g, all_ in sorted(daemon.rosters.lists.items()) for s in sorted(all_) if s[0] == daemon.id
            ]
            if mine:
                group, session = chance.choice(mine)
                world.wish(daemon.id, Leave(group, session))
                if chance.random() < 0.4:
                    world.wish(daemon.id, Join(group, (daemon.id, chance.randrange(2))))
        else:
            count = chance.choice((1, 1, 1, min(2, self.groups)))
            groups = tuple(sorted(chance.sample(range(self.groups), count)))
            world.wish(daemon.id, Send(chance.choice((AGREED, SAFE, FIFO)), groups))

    def _traffic(self) -> None:
        chance, world = self.random, self.world
        daemon = chance.choice(world.alive)
        x = chance.random()
        if x < 0.1:
            self._wish()
        elif x < 0.4:
            world.visit(daemon.id, chance.choice((0, 1, 2, EVERYTHING)))
        elif x < 0.8:
            self._link(daemon.id)
        elif x < 0.96:
            world.pump(daemon.id, chance.choice((1, EVERYTHING)))
        elif x < 0.98:
            world.release(daemon.id)
        else:
            others = [each for each in world.daemons.values() if each.view.id != daemon.view.id]
            if others:
                world.stray(chance.choice(others).id, daemon.id, chance.choice(daemon.view.sites))

    def _link(self, name: int) -> None:
        """Something of one source arrives: one item, an UPDATE ahead of all, or everything."""
        chance, world = self.random, self.world
        source = chance.choice(world.daemons[name].view.sites)
        if (name, source) in self.slow and chance.random() < 0.9:
            return
        suppliers = world.suppliers(name, source)
        if not suppliers:
            return
        supplier = chance.choice(suppliers)
        items = world.items(supplier, name, source)
        if chance.random() < self.whole:
            world.transfer(supplier, name, source, items)
            world.update(supplier, name, source)
        elif chance.random() < 0.35 or not items:
            world.update(supplier, name, source)
        else:
            world.transfer(supplier, name, source, [chance.choice(items)])

    def _fault(self) -> None:
        chance, world = self.random, self.world
        if self.faults <= 0:
            return
        self.faults -= 1
        daemon = chance.choice(world.alive)
        x = chance.random()
        if x < 0.25:
            whole_site = chance.random() < 0.4
            for each in world.alive:
                if (each is daemon or (whole_site and each.site == daemon.site)) and len(world.alive) > 1:
                    world.crash(each.id)
        elif x < 0.37:
            world.restart(chance.randrange(len(world.hosts)))
        elif x < 0.47:
            pairs = [(a, b) for a in range(len(world.hosts)) for b in range(len(world.hosts)) if a != b]
            world.cut_ways |= set(chance.sample(pairs, min(len(pairs), chance.choice((1, 1, 2)))))
        elif x < 0.78:
            part, fresh = world.components[daemon.host], max(world.components) + 1
            by_site = chance.random() < 0.4
            away = {site for site in world.hosts if chance.random() < 0.5}
            for host, site in enumerate(world.hosts):
                if world.components[host] == part and (site in away if by_site else chance.random() < 0.5):
                    world.components[host] = fresh
        else:
            mine, other = world.components[daemon.host], chance.choice(world.components)
            world.components = [mine if each == other else each for each in world.components]
            world.cut_ways = frozenset()
        world.note(f"network {world.components}, cut ways {sorted(world.cut_ways)}")

    def _recovery(self) -> None:
        """One step of a round that is under way, or a new round."""
        chance, world = self.random, self.world
        steps = [step for index in range(len(world.rounds))[-RECENT_ROUNDS:] for step in self._steps(index)]
        if steps and chance.random() < 0.93:
            step = chance.choice(steps)
            getattr(world, str(step[0]))(*step[1:])
            return
        off = [daemon.id for daemon in world.alive if world.is_off(daemon.id)]
        if off and chance.random() < (0.2 if steps else 0.9):
            world.start(chance.choice(off))

    def _steps(self, index: int) -> list[tuple[object, ...]]:
        chance, world = self.random, self.world
        each = world.rounds[index]
        leader = each.ballot.coordinator
        found: list[tuple[object, ...]] = []
        leads = world.leads(index)
        for daemon in world.alive:
            name = daemon.id
            if leads and each.outcome is None and daemon.promised < each.ballot and world.reaches(leader, name):
                found.append(("invite", index, name))
            if daemon.round != index:
                if each.is_committed and name in each.accepted:
                    found.append(("install", index, name))
                continue
            if leads and each.outcome is None and name not in each.cuts:
                found.append(("answer", index, name))
            if daemon.state == GATHERING and each.view is not None and name in each.view.members:
                found.append(("accept", index, name))
            if daemon.state == ACCEPTING and each.view is not None:
                found.append(("fetch", index, name, chance.choice(each.view.members)))
            if daemon.state == ACCEPTED and name not in each.accepted:
                found.append(("confirm", index, name))
            if daemon.state == ACCEPTED and each.is_committed:
                found.append(("install", index, name))
        if leads and each.outcome is None:
            waits = any(step[0] in ("invite", "answer") for step in found)
            if not waits or chance.random() < 0.15:
                found.append(("conclude", index))
        if world.can_commit(index) and (self.world.rules.commit_by_all or chance.random() < 0.2):
            found.append(("commit", index))
        return found


def run(rules: Rules, seed: int) -> tuple[str, World]:
    """One run: what is wrong with it, or an empty text."""
    chance = Chance(rules, seed)
    try:
        chance.run()
    except Violation as error:
        return str(error), chance.world
    return "", chance.world


def measure(facts: list[Fact]) -> Counter[str]:
    """How much has happened."""
    kinds = Counter(type(fact).__name__.lower() for fact in facts)
    kinds["together"] = sum(isinstance(fact, Installed) and len(fact.came_with) > 1 for fact in facts)
    signalled: set[int] = set()
    for fact in facts:
        if isinstance(fact, Signalled):
            signalled.add(fact.daemon)
        elif isinstance(fact, Installed):
            signalled.discard(fact.daemon)
        elif isinstance(fact, Given):
            kinds["given after the signal"] += fact.daemon in signalled
    return kinds


def main(arguments: list[str]) -> int:
    rules = Rules().without(*[each[1:] for each in arguments if each.startswith("-")])
    words = [each for each in arguments if not each.startswith("-")]
    if words[0] == "show":
        text, world = run(rules, int(words[1]))
        for fact in world.facts[-int(words[2]) :]:
            print(fact)
        print(text or "holds")
        return 0
    begin, total = time.process_time(), Counter[str]()
    bad: dict[str, list[tuple[int, int, str]]] = {}
    for seed in range(int(words[1]), int(words[1]) + int(words[0])):
        text, world = run(rules, seed)
        total += measure(world.facts)
        if text:
            bad.setdefault(text.partition(":")[0], []).append((len(world.facts), seed, text))
    print(f"{words[0]} runs, {time.process_time() - begin:.1f} s: {dict(total)}")
    for judge_name, found in sorted(bad.items()):
        print(f"{judge_name}: {len(found)} runs, the shortest: {min(found)}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
