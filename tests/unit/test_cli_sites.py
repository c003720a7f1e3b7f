"""`ordercast sites`: routes as text and picture, and the check on loopback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ordercast import Node
from ordercast.cli.local_sites import free_ports, settings_of_sites, sites_of_settings
from ordercast.cli.main import main
from ordercast.cli.reach import Pair, Reach, probe, reach_lines
from ordercast.errors import UsageError
from ordercast.figures.routes import route_trees, tree_lines
from ordercast.sites import DaemonSpec, LinkSpec, Site, SitesConfig, load_sites

WAN = Path(__file__).parents[2] / "examples" / "wan.toml"


def loopback(**sites: int) -> SitesConfig:
    """Sites with so many daemons each, on free ports."""
    ports = iter(free_ports(sum(sites.values())))
    daemons = [
        DaemonSpec(f"{name[0]}{number}", name, "127.0.0.1", next(ports))
        for name, count in sites.items()
        for number in range(1, count + 1)
    ]
    return SitesConfig(tuple(Site(name, at) for at, name in enumerate(sites)), tuple(daemons))


def test_trees_follow_the_weights() -> None:
    trees = route_trees(load_sites(WAN))
    assert tree_lines(trees[:1]) == ["from east", "  west  1", "    north  2"]
    assert [(step.parent, step.site, step.distance) for step in trees[1].steps] == [
        ("west", "east", 1),
        ("west", "north", 1),
    ]


def test_weights_of_one_direction_make_other_trees_back() -> None:
    sites = tuple(Site(name, at) for at, name in enumerate("abc"))
    links = (LinkSpec("a", "c", weight=9),)
    daemons = tuple(DaemonSpec(f"{site.name}1", site.name, f"10.0.{site.index}.1") for site in sites)
    config = SitesConfig(sites, daemons, links)
    assert tree_lines(route_trees(config)) == [
        "from a",
        "  b  1",
        "    c  2",
        "from b",
        "  a  1",
        "  c  1",
        "from c",
        "  a  1",
        "  b  1",
    ]


def test_one_site_has_no_routes() -> None:
    assert tree_lines(route_trees(loopback(here=2))) == ["from here: no other site"]


def test_show_prints_sites_and_routes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites", "show", str(WAN)]) == 0
    shown = capsys.readouterr().out
    assert "3 sites, 7 daemons" in shown
    assert "  east (multicast 239.192.7.1:4804): e1 10.1.0.1:4803" in shown
    assert "  from north\n    west  1\n      east  2\n" in shown


def test_show_as_json_has_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sites", "show", str(WAN), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sites"]["west"] == ["w1", "w2", "w3"]
    assert [step["site"] for step in found["routes"]["north"]] == ["west", "east"]
    assert "pairs" not in found


def test_a_picture_is_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    assert main(["sites", "show", str(WAN), "--picture", str(first)]) == 0
    assert main(["sites", "show", str(WAN), "--picture", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()
    assert b"from north" in first.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sites"], "--help"),
        (["sites", "show", "gone.toml"], "gone.toml cannot be read"),
        (["sites", "show", str(WAN), "--daemon", "e1"], "--daemon is for check"),
        (["sites", "show", str(WAN), "--picture", "routes.gif"], "neither .svg nor .png"),
        (["sites", "check", str(WAN), "--daemon", "x9"], "there is no daemon 'x9'"),
        (["sites", "check", str(WAN), "--seconds", "0"], "expected a number from 0.1"),
        (["sites", "check", str(WAN)], "add --insecure"),
    ],
)
def test_bad_input_is_answered_with_one_line(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert hint in shown.err
    assert len(shown.err.splitlines()) == 1


def test_every_pair_on_this_machine_answers() -> None:
    config = loopback(east=2, west=1)
    reach = asyncio.run(probe(config, None, 20.0))
    assert {(pair.source, pair.target) for pair in reach.pairs} == {
        (a.name, b.name) for a in config.daemons for b in config.daemons if a is not b
    }
    assert reach.is_whole
    assert not reach.absent


def test_a_daemon_that_runs_answers_and_is_not_asked_from() -> None:
    config = loopback(east=1, west=1)

    async def check() -> Reach:
        async with Node("w1", sites=config):
            return await probe(config, None, 20.0)

    reach = asyncio.run(check())
    assert [(pair.source, pair.target) for pair in reach.pairs] == [("e1", "w1")]
    assert reach.is_whole
    assert list(reach.absent) == ["w1"]


def test_silence_is_told_and_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = free_ports(2)
    file = tmp_path / "two.toml"
    file.write_text(
        f"""
[[site]]
name = "here"
[[daemon]]
name = "a"
site = "here"
host = "127.0.0.1"
port = {first}
[[daemon]]
name = "b"
site = "here"
host = "127.0.0.1"
port = {second}
"""
    )
    assert main(["sites", "check", str(file), "--daemon", "a", "--seconds", "0.3"]) == 1
    shown = capsys.readouterr().out
    assert "a got no answer within 0.3 s from b" in shown
    assert shown.endswith("0 of 1 pairs answered\n")


def test_a_machine_without_an_address_of_the_file_says_so() -> None:
    config = SitesConfig(
        (Site("far", 0),), (DaemonSpec("f1", "far", "203.0.113.1"), DaemonSpec("f2", "far", "203.0.113.2"))
    )
    with pytest.raises(UsageError, match="no address of the configuration"):
        asyncio.run(probe(config, None, 1.0, insecure=True))
    with pytest.raises(UsageError, match="cannot stand in for f2"):
        asyncio.run(probe(config, "f2", 1.0, insecure=True))


def test_what_was_not_asked_and_not_heard_is_told() -> None:
    reach = Reach([Pair("a", "b", 1.25), Pair("a", "c", None)], {"c": "in use"}, {"a": "no multicast"})
    assert reach_lines(reach, 3) == [
        "a reaches b 1.2 ms",
        "a got no answer within 3 s from c",
        "a cannot hear the multicasts of its site: no multicast",
        "not asked from c: in use",
    ]
    assert not reach.is_whole
    assert not Reach().is_whole


def test_settings_of_processes_describe_their_sites() -> None:
    settings = json.loads(json.dumps(settings_of_sites("run", {"east": ["a", "b"], "west": ["c"]})))
    config = sites_of_settings(settings)
    assert [site.name for site in config.sites] == ["east", "west"]
    assert config.site("east").multicast != config.site("west").multicast
    assert len({daemon.port for daemon in config.daemons}) == 3
    assert config.site_of("c").name == "west"
    quiet = sites_of_settings(settings_of_sites("run", {"east": ["a"]}, multicasts=False))
    assert quiet.site("east").multicast is None
