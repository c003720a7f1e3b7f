"""Words of scripts for sites: what parses, what becomes of it, and what the error says where it does not."""

from __future__ import annotations

import pytest

from ordercast.config import MS
from ordercast.sim.pipes import PipeModel
from ordercast.sim.script import ScriptError, parse_script
from ordercast.sim.topology import WAN
from ordercast.sim.toy import ToyEngines
from ordercast.sim.transcript import Transcript, run_script

HEAD = "nodes a b c d; multicast off\nsite east a b; site west c; site north d\n"


def test_sites_and_pipes_are_settings() -> None:
    script = parse_script(
        HEAD
        + "pipe all latency 5ms\n"
        + "pipe east <-> west latency 30ms rate 2Mbit queue 64kB loss 1%\n"
        + "pipe west -> north jitter 2ms duplicate 0.5 reorder 10% queue 3000\n"
    )
    topology = script.settings.topology
    assert topology is not None
    assert topology.places == {"a": "east", "b": "east", "c": "west", "d": "north"}
    models = topology.models
    assert models["east", "west"] == models["west", "east"] == PipeModel(30 * MS, 0, 2_000_000, 64_000, 0.01)
    assert models["north", "east"] == PipeModel(5 * MS, 0, WAN.bits_per_s, WAN.queue_bytes)
    assert models["west", "north"] == PipeModel(5 * MS, 2 * MS, WAN.bits_per_s, 3_000, 0.0, 0.5, 0.1)
    assert script.statements == []


def test_a_script_without_sites_has_no_topology() -> None:
    assert parse_script("nodes a b\n").settings.topology is None


@pytest.mark.parametrize(
    ("line", "verb", "sides"),
    [
        ("cut site east -> west,north", "cut-site", (("east",), ("west", "north"))),
        ("at 20ms mend site west -> east", "mend-site", (("west",), ("east",))),
        ("partition site east | west,north", "partition-site", (("east",), ("west", "north"))),
        ("split a | b", "split", (("a",), ("b",))),
        ("at 20ms pipe east -> west rate 64kbit", "pipe", (("east",), ("west",))),
    ],
)
def test_what_happens_to_sites_is_a_statement(line: str, verb: str, sides: tuple[tuple[str, ...], ...]) -> None:
    (statement,) = parse_script(HEAD + line + "\n").statements
    assert (statement.verb, statement.nodes, statement.others) == (verb, (), ())
    assert statement.site_act is not None
    assert statement.site_act.sides == sides


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("cut site east -> south", "there is no site 'south'; the sites are east, west, north"),
        ("cut site east west", "cannot read 'cut site east west'; write: cut site east -> west"),
        ("partition site east", "cannot read"),
        ("split a | c", "a split is inside one site; between sites write: partition site east | west"),
        ("split a | x", "there is no node 'x'"),
        ("pipe east -> west", "nothing is said about the pipe"),
        ("pipe east -> west latency soon", "'soon' cannot be read; write a time with its unit"),
        ("pipe east -> west rate 3", "write bits or bytes per second with a unit"),
        ("pipe east -> west loss 300%", "'300%' is no share; write 5% or 0.05"),
        ("pipe east -> west colour red", "cannot read 'colour' of a pipe; write: cut site"),
        ("pipe east -> west latency 3ms loss", "cannot read 'latency 3ms loss'"),
        ("pipe east", "cannot read 'pipe east'"),
        ("site south", "a site has a name and nodes, as in: site east a b"),
        ("site east d", "there is a site 'east' already"),
        ("site south x", "there is no node 'x'; name the nodes first"),
        ("site south a", "node 'a' is in site east already"),
        ("show pipe", "write: show datagrams; with sites: show pipes"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_would_be_right(line: str, text: str) -> None:
    with pytest.raises(ScriptError) as raised:
        parse_script(HEAD + line + "\n")
    assert raised.value.line == 3
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("nodes a b\nsite east a\n", "node 'b' is in no site; where there are sites every node is in one"),
        ("nodes a b; callers x\nsite east a b\n", "node 'x' is in no site"),
        ("nodes a b\nsite East/1 a b\n", "'East/1' is no name of a site"),
        ("nodes a b\nsite east a a\n", "names a node twice"),
        ("nodes a b\nsplit a | b\n", "a split is inside a site, and there are none"),
        ("nodes a b\ncut site east -> west\n", "there is no site 'east'; name sites first"),
        ("nodes a b\nshow pipes\n", "with sites: show pipes"),
    ],
)
def test_what_does_not_fit_together_is_said(script: str, text: str) -> None:
    with pytest.raises(ScriptError) as raised:
        parse_script(script)
    assert text in str(raised.value)


def ran(statements: str) -> Transcript:
    """A toy group over three sites; its first member orders."""
    return run_script(parse_script(HEAD + statements), ToyEngines("abcd"))


def reached(transcript: Transcript) -> set[str]:
    network = transcript.cluster.world.network
    return {one + other for one in "abcd" for other in "abcd" if one != other and network.reaches(one, other)}


ALL = {one + other for one in "abcd" for other in "abcd" if one != other}


@pytest.mark.parametrize(
    ("statements", "missing"),
    [
        ("cut site east -> west\n", {"ac", "bc"}),
        ("cut site east -> west\nmend site east -> west\n", set()),
        ("partition site west | east,north\n", {"ac", "bc", "dc", "ca", "cb", "cd"}),
        ("partition site west | east\nmend site east -> west\n", {"ca", "cb"}),
        ("partition site west | east\nheal\n", set()),
        ("split a | b\n", {"ab", "ba"}),
        ("split a | b\nmend a -> b\n", {"ba"}),
        ("at 20ms cut site north -> east\nrun 10ms\n", set()),
        ("at 20ms cut site north -> east\nrun 10s\n", {"da", "db"}),
    ],
)
def test_statements_cut_and_mend(statements: str, missing: set[str]) -> None:
    assert ALL - reached(ran(statements)) == missing


def test_a_pipe_changes_while_the_script_runs() -> None:
    transcript = ran("run 1ms\npipe north -> east loss 100% rate 1Mbit\n")
    changed = transcript.cluster.world.pipes.between("north", "east").model
    assert (changed.loss, changed.bits_per_s, changed.latency_ns) == (1.0, 1_000_000, WAN.latency_ns)


def test_a_script_shows_what_pipes_carried() -> None:
    transcript = run_script(parse_script(HEAD + "d send 1 AGREED\nuntil rest\nshow pipes\n"))
    shown = transcript.lines[transcript.lines.index("> show pipes") + 1 :]
    carried = dict(line.strip().split(": ") for line in shown)
    assert list(carried) == ["east>west", "east>north", "west>east", "west>north", "north>east", "north>west"]
    assert "welcome" in carried["east>west"]
    assert "request" in carried["north>east"]
    assert "request" not in carried["north>west"]


def test_a_pipe_that_has_carried_nothing_says_so() -> None:
    assert "  east>west: nothing" in ran("show pipes\n").lines
