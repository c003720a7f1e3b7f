"""The programs under examples/ run as they stand, and the same programs hold in virtual time under any seed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest

from ordercast.sim.api import SimNode, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
MAX_LINES = 80
SEEDS = range(3)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("mode", ["loopback", "simulator"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_example_runs_as_a_program(program: Path, mode: str) -> None:
    # In a process of its own: an example ends its loop and its nodes, or it hangs here. Its group has its own name,
    # since whoever else runs the example on this machine at this time would be in the group.
    source = re.sub(
        r'\.(join|call|attach)\("(?!regions")(\w+)"', rf'.\1("\2 {uuid4()}"', program.read_text(encoding="utf-8")
    )
    source = re.sub(r'"(desk|ann|bob|cleo|dan)"', rf'"\1-{uuid4().hex}"', source) if "gms=" in source else source
    words = [sys.executable, "-c", source, *(["--sim"] if mode == "simulator" else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    # A program that crashes one of its nodes, or waits for a service to begin, hears that the group stands still for a
    # moment; one that has stopped reading, before it leaves, hears that. And nothing else.
    expected = (": no progress for 1.", "has received nothing for 1.")
    complaints = [line for line in done.stderr.splitlines() if not any(text in line for text in expected)]
    assert (done.returncode, complaints) == (0, [])
    assert "True" in done.stdout
    assert "False" not in done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_example_is_short(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) < MAX_LINES


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_of_the_dictionary_agree_and_every_key_has_one_owner(seed: int) -> None:
    example = load("replicated_dict")
    first, *others = simulate(example.main, seed=seed)
    assert all(copy == first for copy in others)
    assert sorted(first) == sorted(example.KEYS)


@pytest.mark.parametrize("seed", SEEDS)
def test_subscribers_see_all_events_in_order_and_a_leaver_a_beginning_of_them(seed: int) -> None:
    example = load("event_fanout")
    everything = [b"tick %d" % number for number in range(example.EVENTS)]
    ann, bob, cleo = simulate(example.main, seed=seed)
    assert ann == everything
    assert bob == everything
    assert example.EVENTS // 2 <= len(cleo) <= example.EVENTS
    assert cleo == everything[: len(cleo)]


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_on_regions_have_all_of_their_topics(seed: int) -> None:
    example = load("regions")
    prices = [b"%d" % number for number in range(example.ROUNDS)]
    metals, energy = dict.fromkeys(example.METALS, prices), dict.fromkeys(example.ENERGY, prices)
    assert simulate(example.main, seed=seed) == [metals, metals, energy, energy]


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_of_few_topics_see_the_order_of_all(seed: int) -> None:
    example = load("topics")
    everything, of_ann, of_bob = simulate(example.main, seed=seed)
    assert everything == [(topic, b"%d" % number) for number, topic in enumerate(example.TOPICS)]
    assert of_ann == everything[::100]
    assert of_bob == everything[::150]


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_do_every_task_although_one_crashes(seed: int) -> None:
    example = load("workers")
    ann, bob, cleo = simulate(lambda node: example.main(node, SimNode.crash), seed=seed)
    assert bob == cleo
    assert sorted(bob, key=int) == [str(number) for number in range(example.TASKS)]
    assert all(bob[task] == worker for task, worker in ann.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_of_the_lock_service_are_inside_one_at_a_time_although_a_server_crashes(seed: int) -> None:
    example = load("lock_service")
    journal = simulate(lambda node: example.main(node, SimNode.crash), seed=seed)
    turns = [f"{who} {word}" for who in ("dan", "eve") for word in ("in", "out")]
    assert sorted(journal) == sorted(turns * example.ROUNDS)
    assert all(journal[at].split() == [journal[at + 1].split()[0], "in"] for at in range(0, len(journal), 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_of_the_calculator_agree_with_what_callers_were_told(seed: int) -> None:
    example = load("calculator")
    (left, stayed, other), told = simulate(example.main, seed=seed)
    assert stayed == other
    assert left == stayed[: example.CALLS]
    assert sorted(told) == sorted(stayed)
    assert [word for word, _ in stayed if word.startswith("add")] == [f"add {n}" for n in range(example.CALLS)]
