"""Sites in a world: their file, where multicasts reach, faults, scenarios and their text."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sim.test_world_passes import Toy, say, toys

from ordercast.config import MS, SECOND
from ordercast.engine import Send, To
from ordercast.errors import UsageError
from ordercast.sim.faults import Fault, FaultKind, Faults
from ordercast.sim.lives import troubles_of
from ordercast.sim.network import IDEAL
from ordercast.sim.pipes import PipeModel
from ordercast.sim.plain import plain_scenario
from ordercast.sim.run import Outcome, is_calm, is_steady, run_scenario
from ordercast.sim.scenario import Load, Scenario
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json
from ordercast.sim.site_chance import draw_site_faults, draw_topology
from ordercast.sim.topology import (
    WAN,
    SitePipe,
    Topology,
    load_topology,
    parse_topology,
    plain_topology,
    topology_from_json,
)
from ordercast.sim.world import World
from ordercast.sites import LinkSpec
from ordercast.wire.header import HEADER, MAGIC, Kind

EXAMPLE = Path(__file__).parents[2] / "examples" / "wan.toml"
SITES = {"east": ["a", "b"], "west": ["c"], "north": ["d", "e"]}
PLAIN = plain_topology(SITES, PipeModel(latency_ns=30 * MS))
TWO = """\
[[site]]
name = "east"
[[site]]
name = "west"
[[daemon]]
name = "e1"
site = "east"
host = "ann.example.org"
[[daemon]]
name = "e2"
site = "east"
host = "ann.example.org"
port = 5000
[[daemon]]
name = "w1"
site = "west"
host = "10.2.0.1"
[[link]]
between = ["east", "west"]
rate = "3Mbit"
"""


# Reading. ------------------------------------------------------------------------------------------------------------


def test_the_example_is_read() -> None:
    topology = load_topology(EXAMPLE)
    assert topology.network == "lan"
    assert topology.nodes == ("e1", "e2", "e3", "w1", "w2", "w3", "n1")
    assert topology.nodes_of(["west", "north"]) == ("w1", "w2", "w3", "n1")
    models = topology.models
    usual = PipeModel(latency_ns=60 * MS, bits_per_s=10_000_000, queue_bytes=128 << 10, loss=0.001)
    assert models["east", "north"] == models["north", "east"] == usual
    assert models["north", "west"] == replace(usual, bits_per_s=2_000_000)  # the rate of its link
    assert models["west", "east"] == replace(usual, latency_ns=35 * MS, jitter_ns=2 * MS, bits_per_s=12_000_000)
    assert models["west", "north"] == replace(usual, latency_ns=20 * MS, bits_per_s=2_500_000, duplicate=0.001)
    assert topology.config.weight("east", "north") == 4


def test_without_a_table_for_the_simulation_pipes_have_the_rate_of_their_links() -> None:
    topology = parse_topology(TWO, "wan.toml")
    assert set(topology.models.values()) == {replace(WAN, bits_per_s=3_000_000)}


def test_hosts_that_are_names_get_addresses() -> None:
    topology = parse_topology(TWO, "wan.toml")
    assert topology.address_of("e1") == ("10.64.0.1", 4803)
    assert topology.address_of("e2") == ("10.64.0.1", 5000)
    assert topology.address_of("w1") == ("10.2.0.1", 4803)


@pytest.mark.parametrize(
    ("more", "line", "text"),
    [
        ("[simulation]\nlatnecy = 3", 22, "[simulation] has no key 'latnecy'; its keys are network, pipe, latency"),
        ("[simulation]\nlatency = 3", 22, "'latency': 3 cannot be read; write a time with its unit"),
        ('[simulation]\nlatency = "61s"', 22, "'61s' is too long; write a time of at most 60s"),
        ('[simulation]\nnetwork = "wlan"', 22, "there is no network 'wlan'; choose one of ideal"),
        ("[simulation]\nloss = 1", 22, "write a share from 0 up to, not including, 1"),
        ("[simulation]\nqueue = 100", 22, "100 is out of range; write 1500 bytes to 1GiB"),
        ('[simulation]\nbandwidth = "1bit"', 22, "'1bit' is out of range; write 1kbit to 1000Gbit"),
        ('[[simulation.pipe]]\nbetween = ["east", "wset"]', 22, "there is no site 'wset'; the sites are east, west"),
        ('[[simulation.pipe]]\nfrom = "wset"\nto = "east"', 22, "there is no site 'wset'"),
        ('[[simulation.pipe]]\nfrom = "east"\nto = "wset"', 23, "there is no site 'wset'"),
        ('[[simulation.pipe]]\nfrom = "east"\nto = "east"', 21, "a pipe from east to itself"),
        ('[[simulation.pipe]]\nbetween = ["east", "west"]\nqeue = 1', 23, "a [[simulation.pipe]] has no key 'qeue'"),
        (
            '[[simulation.pipe]]\nbetween = ["east", "west"]\n[[simulation.pipe]]\nfrom = "west"\nto = "east"',
            23,
            "the pipe from west to east is on line 21, too",
        ),
        ('[[link]]\nbetween = ["east", "west"]', 21, "is listed twice"),
    ],
)
def test_an_error_names_the_line_and_what_to_do(more: str, line: int, text: str) -> None:
    assert TWO.count("\n") == 20
    with pytest.raises(UsageError) as raised:
        parse_topology(TWO + more + "\n", "wan.toml")
    assert str(raised.value).startswith(f"wan.toml:{line}: "), str(raised.value)
    assert text in str(raised.value)


def test_words_about_pipes_are_read_although_one_site_has_none() -> None:
    text = '[[site]]\nname = "east"\n[[daemon]]\nname = "e1"\nsite = "east"\nhost = "10.1.0.1"\n[simulation]\n'
    with pytest.raises(UsageError, match=r"one.toml:8: 'latency': 'fast' cannot be read"):
        parse_topology(text + 'latency = "fast"\n', "one.toml")


def test_a_topology_has_a_pipe_for_each_direction() -> None:
    with pytest.raises(UsageError, match="3 sites have 6 pipes, one for each direction; got 5"):
        replace(PLAIN, pipes=PLAIN.pipes[1:])
    with pytest.raises(UsageError, match="got 6"):
        replace(PLAIN, pipes=(*PLAIN.pipes[1:], SitePipe("east", "east", WAN)))
    with pytest.raises(UsageError, match="there is no network 'wlan'"):
        replace(PLAIN, network="wlan")
    with pytest.raises(UsageError, match="there is no site 'south'"):
        plain_topology(SITES, pipes={("east", "south"): WAN})


def test_a_large_site_has_an_address_for_each_node() -> None:
    topology = plain_topology({"east": [f"n{number}" for number in range(600)], "west": ["w"]})
    assert topology.address_of("n599") == ("10.1.2.100", 4803)
    assert topology.address_of("w") == ("10.2.0.1", 4803)


def test_a_topology_survives_its_json() -> None:
    for topology in (PLAIN, load_topology(EXAMPLE), plain_topology(SITES, links=[LinkSpec("east", "west", 9)])):
        assert topology_from_json(json.loads(json.dumps(topology.as_json()))) == topology


# A world with sites. -------------------------------------------------------------------------------------------------


def talking(topology: Topology = PLAIN) -> tuple[World, dict[str, Toy]]:
    world = World(1, IDEAL, topology=topology)
    return world, toys(world, "".join(topology.nodes))


def test_a_multicast_reaches_its_own_site_only() -> None:
    world, heard = talking()
    say(world, "a", heard["a"], *(Send(to, [b"hello"], 0) for to in (To.ALL, To.MULTICAST, To.ANYONE)))
    world.run_until(SECOND)
    assert {name: len(toy.seen) for name, toy in heard.items()} == {"a": 0, "b": 3, "c": 0, "d": 0, "e": 0}
    assert all(pipe.counters.datagrams == 0 for pipe in world.pipes.all.values())


def test_machines_have_the_addresses_of_their_daemons_and_unicasts_cross_the_pipes() -> None:
    world, heard = talking()
    a, b, c = map(PLAIN.address_of, "abc")
    assert world.nodes["c"].address == c == ("10.2.0.1", 4803)
    say(world, "a", heard["a"], Send(c, [b"far"], 0), Send(b, [b"near"], 0))
    world.run_until(SECOND)
    assert heard["c"].seen == [(30 * MS + IDEAL.latency_ns, a, b"far", 0)]
    assert heard["b"].seen == [(IDEAL.latency_ns, a, b"near", 0)]
    assert world.pipes.between("east", "west").counters.datagrams == 1


def test_the_kernel_of_another_site_says_that_a_process_is_gone() -> None:
    world, heard = talking()
    world.crash("c", is_process=True)
    probe = HEADER.pack(MAGIC, Kind.PROBE, 0, 0, 1, 2, 3, 4) + bytes(8)
    say(world, "a", heard["a"], Send(PLAIN.address_of("c"), [probe], 0))
    world.run_until(SECOND)
    assert heard["a"].seen == [(2 * (30 * MS + IDEAL.latency_ns), PLAIN.address_of("c"), probe, -1)]


def test_a_node_that_no_site_has_is_refused() -> None:
    world = World(1, IDEAL, topology=PLAIN)
    with pytest.raises(UsageError, match="there is no daemon 'x' in the configuration"):
        toys(world, "x")
    with pytest.raises(UsageError, match="this world has no sites: give it a topology"):
        _ = World(1).pipes


class NoApplications:
    """Faults of sites ask nothing of applications."""

    def stall(self, name: str) -> None:
        raise AssertionError(name)

    def unstall(self, name: str) -> None:
        pass

    def leave(self, name: str) -> None:
        raise AssertionError(name)

    def rejoin(self, name: str) -> None:
        raise AssertionError(name)

    def reset(self, name: str, min_members: int | None) -> None:  # noqa: ARG002
        raise AssertionError(name)

    def expel(self, name: str, member: str) -> None:  # noqa: ARG002
        raise AssertionError(name)


def reached(world: World) -> set[str]:
    """Which nodes reach which now, as "ab"."""
    names = list(world.nodes)
    return {one + other for one in names for other in names if one != other and world.network.reaches(one, other)}


ALL = {one + other for one in "abcde" for other in "abcde" if one != other}


@pytest.mark.parametrize(
    ("fault", "missing"),
    [
        (Fault(MS, FaultKind.CUT_PIPE, ("east",), ("west",), for_ns=MS), {"ac", "bc"}),
        (Fault(MS, FaultKind.CUT_PIPE, ("north",), ("east", "west"), for_ns=MS), {"da", "db", "dc", "ea", "eb", "ec"}),
        (
            Fault(MS, FaultKind.PARTITION_SITES, ("west",), for_ns=MS),
            {"ac", "bc", "ca", "cb", "cd", "ce", "dc", "ec"},
        ),
        (Fault(MS, FaultKind.SPLIT, ("d",), ("e",), for_ns=MS), {"de", "ed"}),
    ],
)
def test_a_fault_cuts_what_it_names_and_ends(fault: Fault, missing: set[str]) -> None:
    world, _ = talking()
    faults = Faults(world, NoApplications(), [fault])
    assert reached(world) == ALL
    world.run_until(fault.at_ns)
    assert ALL - reached(world) == missing
    world.run_until(faults.last_ns)
    assert reached(world) == ALL


def test_faults_change_pipes_and_give_them_back() -> None:
    model = PipeModel(latency_ns=MS, bits_per_s=1_000_000, loss=0.1)
    world, _ = talking(plain_topology(SITES, model))
    faults = [
        Fault(1 * MS, FaultKind.LOSSY_PIPE, ("east",), ("west",), 0.7, 4 * MS),
        Fault(2 * MS, FaultKind.NARROW_PIPE, ("east", "north"), ("west",), 10.0, 1 * MS),
        Fault(9 * MS, FaultKind.NARROW_PIPE, ("east",), ("west",), 1e9, 9 * MS),
    ]
    applied = Faults(world, NoApplications(), faults)
    east, north = world.pipes.between("east", "west"), world.pipes.between("north", "west")
    world.run_until(2 * MS)
    narrow = replace(model, bits_per_s=100_000, queue_bytes=62_500)  # 5 s of its bandwidth
    assert (east.model, north.model) == (replace(narrow, loss=0.7), narrow)
    world.run_until(3 * MS)
    assert (east.model, north.model) == (replace(model, loss=0.7), model)
    world.run_until(5 * MS)
    assert east.model == model
    world.run_until(9 * MS)
    assert east.model.bits_per_s == 1  # not nothing, which would mean no limit
    applied.heal_all()
    assert east.model == model


def test_healing_ends_faults_of_sites() -> None:
    world, _ = talking()
    faults = [
        Fault(MS, FaultKind.PARTITION_SITES, ("east",), for_ns=SECOND),
        Fault(MS, FaultKind.SPLIT, ("a",), ("b",), for_ns=SECOND),
    ]
    applied = Faults(world, NoApplications(), faults)
    world.run_until(2 * MS)
    assert reached(world) < ALL
    applied.heal_all()
    assert reached(world) == ALL


def test_faults_are_drawn_of_what_the_topology_has() -> None:
    found = draw_site_faults(
        random.Random(5), PLAIN, 0, SECOND, cut_pipe=9, partition_sites=9, split=9, lossy_pipe=9, narrow_pipe=9
    )
    kinds = [fault.kind for fault in found]
    assert {FaultKind(kind) for kind in kinds} == {
        FaultKind.CUT_PIPE,
        FaultKind.PARTITION_SITES,
        FaultKind.SPLIT,
        FaultKind.LOSSY_PIPE,
        FaultKind.NARROW_PIPE,
    }
    assert kinds.count(FaultKind.CUT_PIPE) > 9  # partitions that heal one pipe after the other
    assert [fault.at_ns for fault in found] == sorted(fault.at_ns for fault in found)
    for fault in found:
        assert fault.for_ns > 0
        if fault.kind == FaultKind.SPLIT:
            assert {*fault.nodes, *fault.others} in ({"a", "b"}, {"d", "e"})
        else:
            assert {*fault.nodes, *fault.others} <= set(SITES)
    Scenario(nodes=PLAIN.nodes, topology=PLAIN, faults=tuple(found))
    again = draw_site_faults(
        random.Random(5), PLAIN, 0, SECOND, cut_pipe=9, partition_sites=9, split=9, lossy_pipe=9, narrow_pipe=9
    )
    assert again == found


def test_one_site_has_no_pipes_to_cut_and_single_nodes_nothing_to_split() -> None:
    alone = plain_topology({"east": ["a", "b"]})
    assert draw_site_faults(random.Random(5), alone, 0, SECOND, cut_pipe=3, partition_sites=3, lossy_pipe=3) == []
    single = plain_topology({"east": ["a"], "west": ["b"]})
    assert draw_site_faults(random.Random(5), single, 0, SECOND, split=3) == []


def test_judges_know_which_nodes_a_fault_of_sites_may_silence() -> None:
    faults = [
        Fault(1, FaultKind.CUT_PIPE, ("east",), ("west",), for_ns=9),
        Fault(2, FaultKind.PARTITION_SITES, ("west",), for_ns=9),
        Fault(3, FaultKind.SPLIT, ("d",), ("e",), for_ns=9),
    ]
    found = troubles_of(faults, "abcde", PLAIN)
    assert [(each.begin_ns, each.end_ns, "".join(sorted(each.nodes))) for each in found] == [
        (1, 10, "abc"),
        (2, 11, "abcde"),
        (3, 12, "de"),
    ]


# Scenarios. ----------------------------------------------------------------------------------------------------------


def far(orderer: str, *faults: Fault) -> Scenario:
    """Five members in three sites; the orderers of today need copies to get from one to another."""
    pipe = PipeModel(latency_ns=20 * MS, jitter_ns=MS, bits_per_s=5_000_000, queue_bytes=64 << 10, loss=0.01)
    return Scenario(
        seed=3,
        orderer=orderer,
        nodes=PLAIN.nodes,
        has_multicast=False,
        topology=plain_topology(SITES, pipe),
        loads=tuple(Load(name, 20, start_ns=SECOND, interval_ns=20 * MS) for name in PLAIN.nodes),
        faults=faults,
    )


def held(scenario: Scenario) -> Outcome:
    outcome = run_scenario(scenario)
    assert outcome.held, "\n".join(outcome.failures)
    return outcome


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_a_group_over_sites_survives_cuts_and_partitions_that_heal_pipe_by_pipe(orderer: str) -> None:
    faults = draw_site_faults(
        random.Random(2), PLAIN, SECOND, 2 * SECOND, cut_pipe=1, partition_sites=2, split=1, lossy_pipe=1, narrow_pipe=1
    )
    outcome = held(far(orderer, *faults))
    assert outcome.stats.delivered >= 5 * 100
    assert list(outcome.stats.pipes) == [f"{one}>{other}" for one in SITES for other in SITES if one != other]
    assert all(each.datagrams for each in outcome.stats.pipes.values())
    assert outcome.stats.lost >= sum(each.lost for each in outcome.stats.pipes.values()) > 0
    assert outcome.as_json()["pipes"]["east>west"]["by_kind"]


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
@pytest.mark.parametrize("seed", [1, 2])
def test_groups_hold_over_sites_that_were_drawn(orderer: str, seed: int) -> None:
    rng = random.Random(f"{seed}/sites")
    topology = draw_topology(rng)
    faults = draw_site_faults(rng, topology, SECOND, 3 * SECOND, cut_pipe=1, partition_sites=1, split=1, narrow_pipe=1)
    loads = tuple(Load(name, 10, start_ns=2 * SECOND, interval_ns=50 * MS) for name in topology.nodes)
    place = Scenario(nodes=topology.nodes, topology=topology, network=topology.network, has_multicast=False)
    held(replace(place, seed=seed, orderer=orderer, loads=loads, faults=tuple(faults)))


def test_drawn_sites_are_of_all_sizes() -> None:
    drawn = [draw_topology(random.Random(seed)) for seed in range(60)]
    assert {len(each.config.sites) for each in drawn} == {2, 3, 4}
    crews = [len(each.config.daemons_of(site.name)) for each in drawn for site in each.config.sites]
    assert set(crews) == {1, 2, 3}
    assert any(each.models["A", "B"] != each.models["B", "A"] for each in drawn)
    assert any(each.models["A", "B"] == each.models["B", "A"] for each in drawn)
    assert all(each.config.weight("A", "B") >= 1 for each in drawn)
    assert draw_topology(random.Random(3)) == drawn[3]


def test_a_scenario_over_sites_gives_the_same_trace_again_also_from_its_text() -> None:
    scenario = far("token", Fault(SECOND, FaultKind.PARTITION_SITES, ("east",), for_ns=SECOND))
    again = scenario_from_json(scenario_to_json(scenario))
    assert again == scenario
    assert held(again).digest == held(scenario).digest


def test_the_text_of_a_scenario_without_sites_says_nothing_of_them() -> None:
    assert "topology" not in json.loads(scenario_to_json(Scenario()))
    assert "pipes" not in run_scenario(plain_scenario(nodes=2, messages=5)).as_json()


def test_a_run_over_sites_is_not_called_steady_and_a_lossy_one_not_calm() -> None:
    """What a queue drops is no failure of a member, and may be suspected for one."""
    assert not is_steady(far("token"))
    assert not is_calm(far("token"))
    assert is_calm(replace(far("token"), topology=PLAIN))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"nodes": ("a", "x")}, "x is in no site of the topology"),
        ({"callers": ("y",)}, "y is in no site of the topology"),
        ({"faults": (Fault(1, FaultKind.CUT_PIPE, ("a",), ("west",)),)}, "cut-pipe names 'a', which is no site"),
        ({"faults": (Fault(1, FaultKind.NARROW_PIPE, ("east",), ("west",), 0.5),)}, "1 or more, not 0.5"),
        ({"faults": (Fault(1, FaultKind.LOSSY_PIPE, ("east",), ("west",), 7.0),)}, "a probability, not 7.0"),
        ({"topology": None, "faults": (Fault(1, FaultKind.SPLIT, ("a",), ("b",)),)}, "give the scenario a topology"),
    ],
)
def test_a_scenario_names_what_its_topology_has(change: dict[str, object], text: str) -> None:
    scenario = Scenario(nodes=PLAIN.nodes, topology=PLAIN)
    with pytest.raises(UsageError, match=text):
        replace(scenario, **change)  # type: ignore[arg-type]


def test_text_that_is_no_topology_is_refused() -> None:
    values = json.loads(scenario_to_json(far("token")))
    del values["topology"]["daemons"]
    with pytest.raises(UsageError, match="this is no scenario"):
        scenario_from_json(json.dumps(values))


def test_a_plain_scenario_takes_its_nodes_from_the_topology() -> None:
    scenario = plain_scenario(seed=4, topology=str(EXAMPLE), messages=20, partition_sites=1, cut_pipe=1)
    assert scenario.nodes == load_topology(EXAMPLE).nodes
    assert not scenario.has_multicast
    assert {fault.kind for fault in scenario.faults} <= {FaultKind.CUT_PIPE, FaultKind.PARTITION_SITES}
    assert "--topology" in scenario.command
    assert "--partition-sites 1" in scenario.command
    assert "--nodes" not in scenario.command
    with pytest.raises(UsageError, match="cut-pipe is a fault of sites: give a topology"):
        plain_scenario(cut_pipe=1)
