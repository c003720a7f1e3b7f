"""Nodes that are daemons of sites: what their arguments must say, and what their groups refuse. No traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ordercast import AGREED, MAJORITY, RESILIENT, SAFE, BlockingNode, Message, Node, UnsupportedService, UsageError
from ordercast.cli.local_sites import free_ports
from ordercast.runtime.daemon import find_place
from ordercast.sites import DaemonSpec, Site, SitesConfig

WAN = Path(__file__).parents[2] / "examples" / "wan.toml"


def two_sites() -> SitesConfig:
    ports = free_ports(3)
    names = (("e1", "east"), ("e2", "east"), ("w1", "west"))
    daemons = tuple(DaemonSpec(name, site, "127.0.0.1", port) for (name, site), port in zip(names, ports, strict=True))
    return SitesConfig((Site("east", 0), Site("west", 1)), daemons)


def alone(act: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """Do something with a daemon whose neighbours do not run: a component of its own."""

    async def live() -> None:
        node = Node("w1", site="west", sites=two_sites())
        try:
            await act(node)
        finally:
            node.abort()

    asyncio.run(live())


# Where it is.


def test_a_daemon_is_found_by_its_name() -> None:
    place = find_place(str(WAN), "west", "w3")
    assert place is not None
    assert place.daemon.address == ("10.2.0.2", 4805)
    assert place.site.name == "west"


def test_the_site_may_be_left_out_and_so_may_the_name_of_its_only_daemon() -> None:
    by_name, by_site = find_place(WAN, None, "e2"), find_place(WAN, "north", None)
    assert by_name is not None
    assert by_name.site.name == "east"
    assert by_site is not None
    assert by_site.daemon.name == "n1"


def test_a_node_without_sites_has_no_place() -> None:
    assert find_place(None, None, "e1") is None


def test_host_names_are_looked_up_for_all_daemons() -> None:
    config = SitesConfig((Site("s", 0),), (DaemonSpec("a", "s", "alpha.example"), DaemonSpec("b", "s", "10.0.0.2")))
    known = {"alpha.example:4803": ("10.0.0.1", 4803), "10.0.0.2:4803": ("10.0.0.2", 4803)}
    place = find_place(config, None, "b", look_up=known.__getitem__)
    assert place is not None
    assert [each.host for each in place.config.daemons] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"sites": None, "site": "east", "name": "e1"}, "give sites='wan.toml' as well"),
        ({"sites": 7, "site": None, "name": "e1"}, "sites is the path of a TOML file, or a SitesConfig, not 7"),
        ({"sites": "gone.toml", "site": None, "name": "e1"}, "gone.toml cannot be read"),
        ({"site": None, "name": "x1"}, "there is no daemon 'x1'.*it has e1, e2"),
        ({"site": "west", "name": "e1"}, "has 'e1' in site 'east', not in 'west'"),
        ({"site": "south", "name": "e1"}, "there is no site 'south'"),
        ({"site": "east", "name": None}, r"has 3 daemons \(e1, e2, e3\): say which one"),
        ({"site": None, "name": None}, "say which daemon"),
        ({"site": None, "name": "e1", "port": 7400}, "has e1 at 10.1.0.1:4803: leave out host and port"),
        ({"site": None, "name": "e1", "host": "10.1.0.9"}, "leave out host and port"),
        ({"site": None, "name": "e1", "has_data_dir": True}, "leave out data_dir"),
        ({"site": None, "name": "e1", "multicast": False}, "multicast to 239.192.7.1:4804"),
    ],
)
def test_what_does_not_fit_the_configuration_is_refused(arguments: dict[str, Any], text: str) -> None:
    given = {"sites": str(WAN), **arguments}
    with pytest.raises(UsageError, match=text):
        find_place(given.pop("sites"), given.pop("site"), given.pop("name"), **given)


def test_a_daemon_off_loopback_needs_the_word_insecure() -> None:
    async def make() -> None:
        Node("e1", site="east", sites=WAN)

    with pytest.raises(UsageError, match=r"10\.1\.0\.1 is not loopback.*insecure=True"):
        asyncio.run(make())


# What a join may ask for.


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"create": True}, "components merge: leave create out"),
        ({"create": False}, "components merge: leave create out"),
        ({"min_members": 2}, "every component of sites goes on"),
        ({"recovery": "manual"}, "leave recovery out"),
        ({"resilience": 1}, "send with SAFE"),
        ({"max_members": 8}, "which daemons there are"),
        ({"flow": "open"}, "windows of its rings"),
        ({"anticipate": False}, "only the timestamp orderer"),
        ({"alone": "wait"}, "leave alone out"),
        ({"bootstrap": 2}, "works from the beginning"),
        ({"slow": "wait"}, "leave slow out"),
        ({"patience": 3.0}, "leave patience out"),
        ({"contact": "127.0.0.1:7400"}, "says where the daemons are"),
    ],
)
def test_terms_that_sites_cannot_have_are_refused_at_attach(terms: dict[str, Any], text: str) -> None:
    async def act(node: Node) -> None:
        with pytest.raises(UsageError, match=text):
            await node.attach("floor", **terms)

    alone(act)


def test_sites_without_a_configuration_says_what_to_give() -> None:
    async def live() -> None:
        async with Node(multicast=False) as node:
            with pytest.raises(UsageError, match=r"Node\(NAME, site='east', sites='wan.toml'\)"):
                await node.attach("floor", orderer="sites")
            with pytest.raises(UsageError, match=r"Node\(NAME, site='east', sites='wan.toml'\)"):
                await node.join("orders", orderer="sites")
            with pytest.raises(UsageError, match=r"unknown orderer 'dice'.*'token'.*'sites' on nodes of sites"):
                await node.join("orders", orderer="dice")
            with pytest.raises(UsageError, match="say which underlay"):
                await node.join_many(["a", "b"])

    asyncio.run(live())


# A component of one.


def test_a_join_without_words_goes_to_the_underlay_of_the_sites() -> None:
    async def act(node: Node) -> None:
        group = await node.join("orders", timeout=20)
        assert group.config.orderer == "sites"
        assert [member.name for member in group.members] == ["w1"]
        same = await node.attach("sites", orderer="sites")
        assert same.groups == ["orders"]
        await node.join_many(["a", "b"])
        assert sorted(same.groups) == ["a", "b", "orders"]

    alone(act)


def test_an_underlay_may_be_named_with_and_without_its_orderer() -> None:
    async def act(node: Node) -> None:
        floor = await node.attach("floor", orderer="sites", timeout=20)
        first = await node.join("orders", underlay="floor", orderer="sites", timeout=20)
        await node.join("prices", underlay="floor", timeout=20)
        assert first.config.orderer == floor.config.orderer == "sites"
        assert floor.groups == ["orders", "prices"]
        with pytest.raises(UsageError, match="with other parameters"):
            await node.attach("floor", orderer="token")
        with pytest.raises(UsageError, match="orderer: these belong to the underlay"):
            await node.join("more", underlay="floor", orderer="token")

    alone(act)


def test_other_orderers_work_on_the_same_node() -> None:
    async def act(node: Node) -> None:
        await node.join("orders", timeout=20)
        group = await node.join("locks", orderer="token", create=True, timeout=20)
        assert group.config.orderer == "token"
        async with group.lock("key"):
            pass
        assert await group.send(b"x", confirm=True) is not None

    alone(act)


def test_what_sites_does_not_give_is_refused_at_the_call() -> None:
    async def act(node: Node) -> None:
        group = await node.join("orders", timeout=20)
        for service in (RESILIENT(1), MAJORITY):
            with pytest.raises(UnsupportedService, match=r"use SAFE, .*or join a group with orderer='token'"):
                await group.send(b"x", service)
        with pytest.raises(UsageError, match='need orderer="token"'):
            async with group.lock("key"):
                pass
        with pytest.raises(UsageError, match='need orderer="token"'):
            await group.call(b"x", handler=1)
        with pytest.raises(UsageError, match='need orderer="token"'):
            await node.call("orders", b"x", handler=1, service=MAJORITY)
        with pytest.raises(UsageError, match="nothing to reset"):
            await group.reset()
        with pytest.raises(UsageError, match="this node itself"):
            await group.expel("w1")

    alone(act)


def test_messages_of_a_component_of_one_are_confirmed() -> None:
    async def act(node: Node) -> None:
        group = await node.join("orders", timeout=20)
        first = await group.send(b"one", AGREED, confirm=True)
        second = await group.send(b"two", SAFE, confirm=True)
        assert first is not None
        assert second is not None
        assert first < second

    alone(act)


def test_a_program_without_asyncio_has_the_same() -> None:
    config = two_sites()
    with BlockingNode("w1", site="west", sites=config) as node:
        group = node.join("orders", timeout=20)
        assert node.address == config.daemon("w1").address
        assert group.send(b"one", confirm=True) is not None
        assert next(event.payload for event in group if isinstance(event, Message)) == b"one"
    with pytest.raises(UsageError, match="not in 'east'"):
        BlockingNode("w1", site="east", sites=config)
