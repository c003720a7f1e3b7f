"""The configuration of sites: what it says, what its defaults are, and what the error says where it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ordercast.errors import UsageError
from ordercast.sites import DaemonSpec, LinkSpec, Site, SitesConfig, load_sites, parse_sites
from ordercast.sites.config import MAX_DAEMONS, MAX_SITES

EXAMPLE = Path(__file__).parents[2] / "examples" / "wan.toml"

TWO = """\
[[site]]
name = "east"
[[site]]
name = "west"
[[daemon]]
name = "e1"
site = "east"
host = "10.1.0.1"
[[daemon]]
name = "w1"
site = "west"
host = "w1.example.org"
"""

PAIR = SitesConfig(
    (Site("east", 0), Site("west", 1)),
    (DaemonSpec("e1", "east", "10.1.0.1"), DaemonSpec("w1", "west", "10.2.0.1")),
)


def test_the_example_is_read_in_its_order() -> None:
    config = load_sites(EXAMPLE)
    assert [(site.name, site.index) for site in config.sites] == [("east", 0), ("west", 1), ("north", 2)]
    assert [daemon.name for daemon in config.daemons] == ["e1", "e2", "e3", "w1", "w2", "w3", "n1"]
    assert [site.multicast for site in config.sites] == [("239.192.7.1", 4804), ("239.192.7.2", 4804), None]
    assert [site.ring_window for site in config.sites] == [240, 120, 240]
    assert config.daemon("w3").address == ("10.2.0.2", 4805)
    assert config.site_of("w3").name == "west"
    assert [daemon.name for daemon in config.daemons_of("east")] == ["e1", "e2", "e3"]


def test_a_link_that_is_not_listed_has_the_default_terms() -> None:
    """Spread section 3.2: a complete graph whose weights are defined statically."""
    config = load_sites(EXAMPLE)
    assert config.link("west", "north") == LinkSpec("west", "north", 1, 2_000_000, 65_536, 64)
    assert config.link("north", "east") == LinkSpec("north", "east", 4, 10_000_000, 65_536, 256)
    assert config.weight("east", "north") == 4
    assert config.weight("east", "east") == 0
    assert config.weights() == ((0, 1, 4), (1, 0, 1), (4, 1, 0))


def test_the_weights_of_all_links_are_those_of_each() -> None:
    config = load_sites(EXAMPLE)
    names = [site.name for site in config.sites]
    assert config.weights() == tuple(tuple(config.weight(one, other) for other in names) for one in names)


def test_the_two_directions_of_a_link_may_differ() -> None:
    more = '[[link]]\nfrom = "east"\nto = "west"\nweight = 7\nrate = "250kB/s"\n'
    config = parse_sites(TWO + more, "wan.toml")
    assert (config.weight("east", "west"), config.weight("west", "east")) == (7, 1)
    assert config.link("east", "west").bits_per_s == 2_000_000
    assert config.link("west", "east") == LinkSpec("west", "east")


def test_without_a_word_everything_has_a_default() -> None:
    config = parse_sites(TWO, "wan.toml")
    assert config.sites == (Site("east", 0), Site("west", 1))
    assert config.daemons[1] == DaemonSpec("w1", "west", "w1.example.org", 4803)
    assert config.links == ()
    assert config.default_link == LinkSpec()


def test_defaults_hold_for_everything_that_says_nothing_else() -> None:
    head = '[defaults]\nring_window = 20\nport = 9000\nweight = 3\nrate = "1Gbit"\nburst = "1MB"\nwindow = 9\n'
    config = parse_sites(head + TWO, "wan.toml")
    assert [(site.ring_window, site.personal_window) for site in config.sites] == [(20, 20), (20, 20)]
    assert [daemon.port for daemon in config.daemons] == [9000, 9000]
    assert config.link("east", "west") == LinkSpec("east", "west", 3, 1_000_000_000, 1_000_000, 9)


def test_a_site_that_lowers_its_ring_window_lowers_the_personal_one() -> None:
    text = TWO.replace('name = "west"', 'name = "west"\nring_window = 10', 1)
    assert parse_sites(text, "wan.toml").site("west") == Site("west", 1, None, 10, 10)


def test_configurations_that_differ_have_other_fingerprints() -> None:
    config = load_sites(EXAMPLE)
    others = [
        parse_sites(EXAMPLE.read_text(encoding="utf-8"), "again"),
        replace(config, links=tuple(reversed(config.links))),
    ]
    assert {each.fingerprint() for each in others} == {config.fingerprint()}
    changed = [
        replace(config, links=config.links[1:]),
        replace(config, default_link=LinkSpec(weight=5)),
        replace(config, daemons=(*config.daemons[:-1], replace(config.daemons[-1], port=9))),
        replace(config, sites=(*config.sites[:-1], replace(config.sites[-1], personal_window=1))),
    ]
    assert len({each.fingerprint() for each in (config, *changed)}) == 5
    assert config.fingerprint() >> 64 == 0


def test_the_table_of_the_simulator_is_left_alone() -> None:
    assert parse_sites(TWO + "[simulation]\nanything = true\n", "wan.toml") == parse_sites(TWO, "wan.toml")


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ('name = "west"', 'nam = "west"', 4, "a [[site]] has no key 'nam'; its keys are name, multicast"),
        ('host = "10.1.0.1"', 'hots = "10.1.0.1"', 8, "a [[daemon]] has no key 'hots'"),
        ("[[site]]", "[[sites]]\n[[site]]", 1, "a configuration of sites has no key 'sites'; its keys are defaults"),
        ('name = "west"', 'name = "east"', 4, "there are two sites 'east'"),
        ('name = "w1"', 'name = "e1"', 10, "there are two daemons 'e1'"),
        ('site = "west"', 'site = "wset"', 11, "there is no site 'wset'; the sites are east, west"),
        ('site = "west"', 'site = "east"', 4, 'site west has no daemons; add a [[daemon]] with site = "west"'),
        ('site = "west"', "", 9, "'site' is missing; add site = "),
        ('host = "10.1.0.1"', "host = 10", 8, "'host' is a text in quotes, not 10"),
        ('host = "10.1.0.1"', 'host = "10.1.0.256"', 8, "'10.1.0.256' is no IPv4 address and no host name"),
        ('host = "10.1.0.1"', 'host = "no_name"', 8, "'no_name' is no IPv4 address and no host name"),
        ('host = "10.1.0.1"', 'host = "239.1.1.1"', 8, "'239.1.1.1' is no address of one host"),
        ('host = "10.1.0.1"', 'host = "10.1.0.1"\nport = 0', 9, "'port' is a whole number from 1 to 65535, not 0"),
        ('host = "10.1.0.1"', 'host = "w1.example.org"', 12, "is the address of daemon e1"),
        ('name = "e1"', 'name = "e 1"', 6, "'e 1' is no name of a daemon; use 1 to 19 letters"),
        ('name = "e1"', 'name = "' + "e" * 20 + '"', 6, "is no name of a daemon; use 1 to 19 letters"),
        ('name = "east"', 'name = "east"\nmulticast = "10.1.1.1:4"', 3, "10.1.1.1:4 is no multicast address"),
        ('name = "east"', 'name = "east"\nmulticast = "239.1.1.1"', 3, "write a multicast address and a port"),
        ('name = "east"', 'name = "east"\nmulticast = "239.1.1.1:0"', 3, "239.1.1.1:0 is no multicast address"),
        ('name = "east"', 'name = "east"\nring_window = 0', 3, "'ring_window' is a whole number from 1 to 65535"),
        ('name = "east"', 'name = "east"\npersonal_window = 900', 3, "more than the ring_window of 240"),
        ('name = "east"', 'name = "east"\nring_window = true', 3, "'ring_window' is a whole number"),
    ],
)
def test_an_error_names_the_line_and_what_to_do(old: str, new: str, line: int, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_sites(TWO.replace(old, new, 1), "wan.toml")
    assert str(raised.value).startswith(f"wan.toml:{line}: "), str(raised.value)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("more", "line", "text"),
    [
        ('[[link]]\nbetween = ["east", "wset"]', 14, "there is no site 'wset'; the sites are east, west"),
        ('[[link]]\nfrom = "east"\nto = "wset"', 15, "there is no site 'wset'"),
        ('[[link]]\nbetween = ["east", "east"]', 13, "a link from east to itself"),
        ('[[link]]\nbetween = ["east"]', 14, "'between' is a list of 2 names"),
        ('[[link]]\nbetween = "east"', 14, "'between' is a list of 2 names"),
        ("[[link]]\nweight = 3", 13, "a link names its sites: write between ="),
        ('[[link]]\nfrom = "east"', 13, "'to' is missing"),
        ('[[link]]\nbetween = ["east", "west"]\nfrom = "east"', 14, "'between' means both directions"),
        ('[[link]]\nbetween = ["east", "west"]\nweight = 0', 15, "'weight' is a whole number from 1 to 1000000, not 0"),
        ('[[link]]\nbetween = ["east", "west"]\nweight = 1.5', 15, "'weight' is a whole number"),
        ('[[link]]\nbetween = ["east", "west"]\nwindow = 0', 15, "'window' is a whole number from 1 to 65535"),
        ('[[link]]\nbetween = ["east", "west"]\nrate = 5', 15, "'rate': 5 cannot be read; write bits or bytes"),
        ('[[link]]\nbetween = ["east", "west"]\nrate = "2Mb"', 15, "'2Mb' has no unit of a rate"),
        ('[[link]]\nbetween = ["east", "west"]\nrate = "2bit"', 15, "'rate' lies between 1kbit and 1000Gbit"),
        ('[[link]]\nbetween = ["east", "west"]\nburst = 10', 15, "'burst' lies between 1500 bytes and 1GiB"),
        ('[[link]]\nbetween = ["east", "west"]\nburst = "2kbit"', 15, "has no unit of a size"),
        (
            '[[link]]\nbetween = ["east", "west"]\n\n[[link]]\nfrom = "west"\nto = "east"',
            16,
            "the link from west to east is listed twice",
        ),
        ("[defaults]\nwieght = 1", 14, "[defaults] has no key 'wieght'; its keys are weight"),
        ('[defaults]\nburst = "1kB"', 14, "'burst' lies between 1500 bytes and 1GiB"),
        ("[defaults]\npersonal_window = 999", 14, "more than the ring_window of 240"),
        ("defaults = 1", 13, "a [[daemon]] has no key 'defaults'"),
        ('[[site]\nname = "x"', 13, "this is no TOML"),
        ('[[site]]\nname = "x', 14, "this is no TOML"),
    ],
)
def test_an_error_in_what_follows_names_its_line(more: str, line: int, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_sites(TWO + more + "\n", "wan.toml")
    assert str(raised.value).startswith(f"wan.toml:{line}: "), str(raised.value)
    assert text in str(raised.value)


def test_there_are_at_most_64_sites() -> None:
    def text(count: int) -> str:
        each = '[[site]]\nname = "s{0}"\n[[daemon]]\nname = "d{0}"\nsite = "s{0}"\nhost = "10.0.0.{1}"\n'
        return "".join(each.format(index, index + 1) for index in range(count))

    assert parse_sites(text(MAX_SITES), "wan.toml").sites[-1].index == 63
    with pytest.raises(UsageError, match=r"wan.toml:385: there are 65 sites, and at most 64"):
        parse_sites(text(MAX_SITES + 1), "wan.toml")


def test_there_are_at_most_1024_daemons() -> None:
    daemons = tuple(DaemonSpec(f"d{index}", "east", "10.0.0.1", index + 1) for index in range(MAX_DAEMONS + 1))
    assert len(SitesConfig((Site("east", 0),), daemons[:-1]).daemons) == 1_024
    with pytest.raises(UsageError, match="1025 daemons, and at most 1024"):
        SitesConfig((Site("east", 0),), daemons)


def test_an_empty_file_is_told_how_to_begin() -> None:
    with pytest.raises(UsageError, match=r"wan.toml:1: there are no sites; begin with a \[\[site\]\]"):
        parse_sites("", "wan.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# sites\nsite = 3\n", "wan.toml:2: 'site' is a list of tables; write [[site]] for each"),
        ('# sites\n[site]\nname = "east"\n', "wan.toml:2: 'site' is a list of tables"),
        ("# sites\ndefaults = 3\n", "wan.toml:2: 'defaults' is a table; write [defaults]"),
        ("[[site]]\n", "wan.toml:1: 'name' is missing; add name = "),
    ],
)
def test_tables_have_their_form(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_sites(text, "wan.toml")
    assert complaint in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone.toml cannot be read: No such file"):
        load_sites(tmp_path / "gone.toml")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# one\n# caf\xe9\n")
    with pytest.raises(UsageError, match=r"latin.toml:2: a byte that is no UTF-8"):
        load_sites(latin)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match=r"large.toml has more than 1 MiB"):
        load_sites(large)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sites": (Site("east", 1), Site("west", 0))}, "has the index 1, and is number 0"),
        ({"sites": (Site("east", 0, None, 0), Site("west", 1))}, "'ring_window' is a number of packets"),
        ({"links": (LinkSpec("east", "west", weight=0),)}, "'weight' is a whole number"),
        ({"links": (LinkSpec("east", "west", window_packets=0),)}, "'window' is a number of packets"),
        ({"links": (LinkSpec("east", "west"), LinkSpec("east", "west"))}, "is listed twice"),
        ({"default_link": LinkSpec(bits_per_s=1)}, "'rate' lies between"),
        ({"daemons": ()}, "site east has no daemons"),
        ({"daemons": (DaemonSpec("e1", "east", "10.1.0.1", 70_000), PAIR.daemons[1])}, "'port' is a whole number"),
    ],
)
def test_a_configuration_made_by_a_program_is_checked_as_well(change: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        replace(PAIR, **change)  # type: ignore[arg-type]


def test_asking_for_what_is_not_there_says_what_there_is() -> None:
    with pytest.raises(UsageError, match="there is no site 'north'; the sites are east, west"):
        PAIR.site("north")
    with pytest.raises(UsageError, match="there is no daemon 'x'"):
        PAIR.site_of("x")
    with pytest.raises(UsageError, match="no link from east to itself"):
        PAIR.link("east", "east")
    with pytest.raises(UsageError, match="there is no site 'north'"):
        PAIR.weight("east", "north")
    with pytest.raises(UsageError, match="there is no site 'north'"):
        PAIR.daemons_of("north")


def test_two_sites_do_not_share_a_multicast_address() -> None:
    sites = (Site("east", 0, ("239.1.1.1", 5)), Site("west", 1, ("239.1.1.1", 5)))
    with pytest.raises(UsageError, match="is the multicast address of site east, too"):
        replace(PAIR, sites=sites)
