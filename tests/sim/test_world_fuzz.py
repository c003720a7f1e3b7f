"""The fuzzer and the commands on the real engines: few seeds here, thousands in `make fuzz`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from tests.sim.bug import Bug
from tests.sim.planting import planted

from ordercast.cli import sim
from ordercast.cli.main import main
from ordercast.cli.sim import scenario_of
from ordercast.errors import UsageError
from ordercast.sim.chance import random_scenario
from ordercast.sim.fuzz import fuzz, seeds_until_caught
from ordercast.trace.run import RunInfo
from ordercast.trace.schema import CONTINUE

WAN = Path(__file__).parents[2] / "examples" / "wan.toml"


def sim_args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    sim.configure(parser)
    return parser.parse_args(words)


def command(*words: str) -> int:
    """The exit code of `ordercast` with these arguments."""
    try:
        return main(words)
    except SystemExit as ended:
        return int(ended.code or 0)


def test_results_do_not_depend_on_the_number_of_jobs() -> None:
    alone = fuzz("sequencer", 0, 6, jobs=1)
    together = fuzz("sequencer", 0, 6, jobs=2)
    assert [result.digest for result in alone.results] == [result.digest for result in together.results]
    assert [result.failures for result in alone.results] == [result.failures for result in together.results]


@pytest.mark.parametrize("orderer", ["sequencer", "token", "timestamp"])
def test_the_first_seeds_hold(orderer: str) -> None:
    """`test_digests.py` runs as many again, from further on."""
    report = fuzz(orderer, 0, 10)
    assert report.held, "\n".join(report.summary())


def test_seeds_of_the_token_use_locks_and_calls() -> None:
    report = fuzz("token", 40, 8)
    assert all(sum(getattr(result, name) for result in report.results) for name in ("locks", "calls", "answers"))
    assert report.as_json()["orderer"] == "token"
    assert any("locks granted" in line for line in report.summary())


def test_a_planted_bug_is_caught_and_the_seeds_it_took_are_counted() -> None:
    restless = Bug("restless", "Underlay.is_at_rest", "membership.is_at_rest", "False", "rest", 1)
    assert seeds_until_caught(partial(planted, restless), "sequencer", limit=3) == 1
    assert seeds_until_caught(nullcontext, "sequencer", limit=1) is None


def test_progress_is_told_after_each_run() -> None:
    told: list[tuple[int, int]] = []
    fuzz("sequencer", 0, 3, progress=lambda done, last: told.append((done, last.seed)))
    assert told == [(1, 0), (2, 1), (3, 2)]


def test_a_seed_is_replayed_by_its_command() -> None:
    result = random_scenario(5)
    words = result.command.split()[2:]
    assert scenario_of(sim_args(*words)) == result


def test_a_plain_scenario_is_replayed_by_its_command() -> None:
    words = "--seed 7 --nodes 3 --messages 10 --loss 0.05 --crash 1 --min-members 2 --no-multicast"
    scenario = scenario_of(sim_args(*words.split()))
    assert scenario_of(sim_args(*scenario.command.split()[2:])) == scenario
    assert scenario.min_members == 2
    assert not scenario.has_multicast


def test_a_run_without_anticipation_is_replayed_by_its_command() -> None:
    drawn = random_scenario(5, "timestamp", anticipate=False)
    assert drawn.command == "ordercast sim --scenario-seed 5 --orderer timestamp --no-anticipate"
    assert scenario_of(sim_args(*drawn.command.split()[2:])) == drawn
    plain = scenario_of(sim_args(*["--orderer", "timestamp", "--no-anticipate", "--nodes", "3"]))
    assert not plain.anticipate
    assert plain.command == "ordercast sim --seed 0 --orderer timestamp --nodes 3 --no-anticipate"
    assert scenario_of(sim_args(*plain.command.split()[2:])) == plain
    assert scenario_of(sim_args(*["--orderer", "timestamp", "--anticipate"])).anticipate


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--scenario-seed 5 --loss 0.1", "a scenario says everything"),
        ("--loss 1.5", "--loss: expected a probability"),
        ("--service LOUD", "unknown service"),
        (
            "--orderer sequencer --service MAJORITY",
            "the sequencer gives RELIABLE, FIFO, AGREED, RESILIENT, SAFE, not MAJORITY",
        ),
        ("--nodes 0", "--nodes: expected a whole number from 1 to 200"),
        ("--crash 9", "9 members cannot crash: the group has 5"),
        ("--min-members none", "--min-members: expected a whole number"),
        ("--orderer token --no-anticipate", "a choice of timestamp only, not of token"),
        ("--orderer sequencer --anticipate", "a choice of timestamp only, not of sequencer"),
        ("--orderer token --no-anticipate --ladder", "a choice of timestamp only, not of token"),
        ("--orderer token --no-anticipate --scenario-seed 3", "a choice of timestamp only, not of token"),
        ("--scenario seven.json --orderer timestamp --no-anticipate", "a scenario says whether to anticipate"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("sim", *words.split()) == 2
    assert error in capsys.readouterr().err


def test_fuzz_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("fuzz", "--runs", "0") == 2
    assert "--runs: expected a whole number from 1" in capsys.readouterr().err
    assert command("fuzz", "--orderer", "token", "--no-anticipate", "--runs", "1") == 2
    assert "a choice of timestamp only" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no orderer 'moon'"):
        fuzz("moon")


@pytest.mark.parametrize("flag", ["--anticipate", "--no-anticipate"])
def test_fuzz_runs_both_variants_of_the_timestamp_orderer(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("fuzz", "--orderer", "timestamp", flag, "--runs", "3", "--first-seed", "0", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["orderer"], found["anticipate"]) == ("timestamp", flag == "--anticipate")


def test_sim_prints_json_and_writes_the_same_trace_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "3", "--messages", "30", "--seed", "2", "--json", "--trace"]
    assert command("sim", *words, str(tmp_path / "one")) == 0
    first = json.loads(capsys.readouterr().out)
    assert command("sim", *words, str(tmp_path / "two")) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == first["digest"]
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 4
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_trace_of_sites_says_that_every_part_of_a_partition_goes_on(tmp_path: Path) -> None:
    """Without it a judge of the trace would not look for safe delivery and self delivery."""
    words = ["--orderer", "sites", "--topology", str(WAN), "--messages", "10", "--seconds", "1"]
    assert command("sim", *words, "--trace", str(tmp_path / "trace")) == 0
    info = RunInfo.read(tmp_path / "trace")
    assert info.partitions == CONTINUE
    assert info.parameters["sites"]["w3"] == "west"
    assert info.parameters["min_members"] == 1


@pytest.mark.parametrize("service", ["UNRELIABLE", "RELIABLE", "CAUSAL", "RESILIENT(3)", "MAJORITY"])
def test_sim_runs_the_token_with_every_service(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--orderer", "token", "--nodes", "4", "--messages", "40", "--network", "ethernet", "--service", service]
    assert command("sim", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held"]
    assert found["delivered"] == 4 * (40 + 4)  # the probe is one message of each


@pytest.mark.parametrize("orderer", ["sequencer", "token", "timestamp"])
def test_one_random_seed_gives_one_trace_under_any_hash_seed(orderer: str) -> None:
    program = (
        f"from ordercast.sim.fuzz import run_seed\nfor seed in range(5, 11): print(run_seed('{orderer}', seed).digest)"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for hash_seed in ("0", "4242")
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 6
