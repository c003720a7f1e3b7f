"""Random runs of engines of regions.

python -m tests.regions.chance 200 1            # 200 runs from seed 1
python -m tests.regions.chance show 42          # one run, with what happened; 42 window: with that policy
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Final

from tests.regions.judge import Violation, judge, judge_order
from tests.regions.world import LEVELS, Link, World

from ordercast.config import MS, SECOND, GroupConfig

STEPS: Final = 60
REST_NS: Final = 30 * SECOND  # 300 rounds


class Chance:
    """One run, drawn from a seed."""

    def __init__(self, seed: int, policy: str = "demand") -> None:
        self.rng = rng = random.Random(f"regions {seed}")
        self.regions = rng.randint(1, 2)
        nodes = rng.randint(2, 7)
        loss = rng.choice((0.0, 0.02, 0.1, 0.3, 0.5))
        link = Link(loss, rng.choice((0.0, 0.05)), rng.choice((0.0, 0.1, 0.4)))
        config = GroupConfig(datagram=rng.choice((512, 1_400)), history_bytes=rng.choice((16_384, 65_536)))
        self.world = World(
            random.Random(f"net {seed}"), nodes, rng.randint(1, 3), link, config, rng.random() < 0.8, policy
        )
        self.world.sizes = rng.choice(([1], [1, 300], [1, 1_000, 4_000]))
        self.faults = rng.randint(0, 6)
        self.log: list[str] = []
        outside = nodes - 1 if nodes > 2 and rng.random() < 0.4 else nodes
        self.world.join({index: 1 + index % self.regions if index < outside else 0 for index in range(nodes)})
        self.world.run_for(300 * MS)

    def run(self) -> None:
        world, rng = self.world, self.rng
        for _ in range(STEPS):
            self.step()
            world.run_for(rng.choice((0, 1, 5, 30, 120, 300)) * MS)
            world.settle()
            judge_order(world)
        if not world.come_to_rest(REST_NS):
            busy = [
                f"{each.member}: {each.engine.describe()}"
                for each in world.places
                if world.is_up(each) and not each.engine.is_at_rest()
            ]
            judge_order(world)
            raise Violation(f"rest: {busy}")
        judge(world)

    def step(self) -> None:
        world, rng = self.world, self.rng
        x = rng.random()
        place = rng.choice(world.places)
        up = world.is_up(place)
        if x < 0.75 or not self.faults:
            for _ in range(rng.choice((1, 1, 3, 12))):
                if up and world.send(place, rng.choice(LEVELS)):
                    self.say(f"{place.member} sends {len(place.seen.sent)}")
            return
        if not up:
            return
        if x < 0.80:
            if not self._can_spare(place.index):
                return
            self.say(f"{place.member} crashes")
            world.crash(place.index)
            if rng.random() < 0.5:
                world.exclude(place.index)
        elif x < 0.84:
            if not self._can_spare(place.index):
                return
            self.say(f"{place.member} is excluded although it lives")
            world.exclude(place.index)
        elif x < 0.94:
            region = rng.randint(1, self.regions)
            if world.service.region_of.get(place.member.id) == region:
                return
            self.say(f"{place.member} moves to {region}")
            world.move(place.index, region)
        elif x < 0.97:
            newcomer = world.make_node()
            region = rng.randint(1, self.regions)
            self.say(f"{newcomer.member} joins {region}")
            world.join({newcomer.index: region})
        else:
            self.say(f"{place.member} gets a snapshot")
            world.service.skip_to_snapshot(world.now_ns, place.member.id)
            world.touch_all()
            return
        self.faults -= 1

    def _can_spare(self, index: int) -> bool:
        """Whether its region has another living member, and somebody else lives at all."""
        service = self.world.service
        node = self.world.places[index].member.id
        region = service.region_of.get(node, 0)
        others = [each for each in self.world.places if self.world.is_up(each) and each.index != index]
        return any(not region or service.region_of.get(each.member.id) == region for each in others)

    def say(self, text: str) -> None:
        self.log.append(f"{self.world.now_ns / SECOND:8.3f} {text}")


def run(seed: int, policy: str = "demand") -> tuple[str, Chance]:
    """One run: what is wrong with it, or an empty text."""
    chance = Chance(seed, policy)
    try:
        chance.run()
    except Violation as error:
        return str(error), chance
    return "", chance


def main(arguments: list[str]) -> int:
    if arguments[0] == "show":
        text, chance = run(int(arguments[1]), *arguments[2:])
        print("\n".join(chance.log))
        print(text or "holds")
        return 0
    begin, is_bad, total = time.process_time(), False, Counter[str]()
    for seed in range(int(arguments[1]), int(arguments[1]) + int(arguments[0])):
        text, chance = run(seed)
        for place in chance.world.places:
            total.update(place.engine.counters)
            total["lost"] += len(place.seen.lost)
            total["delivered"] += sum(map(len, place.seen.delivered.values()))
        total["epochs"] += chance.world.service.number
        if text:
            is_bad = True
            print(seed, text[:300], flush=True)
    print(f"{arguments[0]} runs, {time.process_time() - begin:.1f} s: {dict(total)}")
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
