"""Random runs of engines of regions: joins, moves, exclusions, crashes, snapshots, loss, copies and delays."""

from __future__ import annotations

import random

import pytest
from tests.regions.chance import run
from tests.regions.judge import Violation
from tests.regions.planted import caught
from tests.regions.scripts import SCRIPTS
from tests.regions.world import Link, World
from tests.sim.bug import Bug
from tests.sim.planting import planted
from tests.sim.regions_bugs import REGIONS_BUGS, REGIONS_SCRIPTED, REGIONS_UNSEEN

from ordercast.config import MS
from ordercast.engine import Outbox

RUNS = 40
SAMPLE = REGIONS_BUGS[::8]


@pytest.mark.parametrize("first", range(1, RUNS + 1, 10))
def test_random_runs_hold(first: int) -> None:
    for seed in range(first, first + 10):
        text, _ = run(seed)
        assert not text, f"python -m tests.regions.chance show {seed}: {text}"


@pytest.mark.parametrize("first", range(101, 141, 10))
def test_random_runs_hold_with_a_window(first: int) -> None:
    """The default: tokens follow one another more closely."""
    for seed in range(first, first + 10):
        text, _ = run(seed, "window")
        assert not text, f"python -m tests.regions.chance show {seed} window: {text}"


@pytest.mark.parametrize("bug", SAMPLE, ids=[bug.name.replace(" ", "-") for bug in SAMPLE])
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert caught(bug) is not None, f"{bug.name}: {bug.bound} seeds did not catch it. {bug.breaks}"


@pytest.mark.parametrize("bug", REGIONS_SCRIPTED, ids=[bug.name.replace(" ", "-") for bug in REGIONS_SCRIPTED])
def test_a_script_holds_with_its_rule_and_breaks_without_it(bug: Bug) -> None:
    script = SCRIPTS[bug.name]
    script()
    with planted(bug), pytest.raises(Violation):
        script()


def test_every_bug_can_be_planted() -> None:
    for bug in (*REGIONS_BUGS, *REGIONS_SCRIPTED, *REGIONS_UNSEEN):
        with planted(bug):
            pass


def test_one_seed_gives_one_run() -> None:
    runs = [run(3)[1].world for _ in range(2)]
    assert runs[0].datagrams == runs[1].datagrams
    assert [each.seen.delivered for each in runs[0].places] == [each.seen.delivered for each in runs[1].places]


@pytest.mark.parametrize("seed", range(4))
def test_hostile_datagrams_are_counted_and_dropped(seed: int) -> None:
    """Real datagrams with some bytes changed, and parts of them, to every node: nothing escapes from an engine."""
    rng = random.Random(f"hostile {seed}")
    world = World(rng, 5, 2, Link(loss=0.1))
    world.join({0: 1, 1: 1, 2: 1, 3: 1, 4: 0})
    world.sizes = [1, 900]
    heard: list[bytes] = []
    world.taps.append(heard.append)
    world.run_for(300 * MS)
    for _ in range(30):
        world.send(rng.choice(world.places))
        world.run_for(20 * MS)
        for _ in range(30):
            data = bytearray(rng.choice(heard))
            for _ in range(rng.choice((1, 1, 2, 8))):
                data[rng.randrange(8 if rng.random() < 0.1 else 1, len(data))] = rng.choice(
                    (0, 1, 255, rng.randrange(256))
                )
            del data[rng.choice((len(data), len(data), rng.randrange(1, len(data) + 1))) :]
            place = rng.choice(world.places)
            source = rng.choice(world.places).member.address
            out = Outbox()
            place.engine.receive(world.now_ns, source, memoryview(bytes(data)), 0, out)
            place.engine.after_batch(world.now_ns, out)
            place.engine.take()
    assert sum(place.engine.counters.get("malformed", 0) for place in world.places) > 0
