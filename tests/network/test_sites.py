"""Daemons of sites on real sockets: groups over two sites, multicast inside one, a crash and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ordercast import SAFE, Group, Message, Node, UsageError, View
from ordercast.archive.log import ArchiveLog, LogConfig
from ordercast.archive.recorder import ArchiveRecorder
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.runtime.listening import Listening
from ordercast.runtime.udp.counters import Counters
from ordercast.sites import SitesConfig

LIMIT_S = 60.0
CREWS = {"east": ["e1", "e2"], "west": ["w1", "w2"]}


def two_sites(name: str, *, multicasts: bool = True) -> SitesConfig:
    return sites_of_settings(settings_of_sites(f"test-{name}", CREWS, multicasts=multicasts))


def run(program: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await program

    asyncio.run(bounded())


async def read(group: Group, *, messages: int = 0, members: int = 0) -> list[bytes]:
    """Payloads, until so many have come, or until a view has so many members."""
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, Message):
            found.append(event.payload)
            if messages and len(found) == messages:
                break
        elif isinstance(event, View) and len(event.members) == members:
            break
    return found


async def meet(stack: AsyncExitStack, config: SitesConfig) -> dict[str, Group]:
    """All daemons, in one group, with one view."""
    nodes = {daemon.name: await stack.enter_async_context(Node(daemon.name, sites=config)) for daemon in config.daemons}
    groups = {name: await node.join("orders") for name, node in nodes.items()}
    await asyncio.gather(*[read(group, members=len(groups)) for group in groups.values()])
    return groups


@pytest.mark.parametrize("multicasts", [True, False])
def test_two_sites_have_one_order(multicasts: bool) -> None:
    async def program() -> None:
        async with AsyncExitStack() as stack:
            groups = await meet(stack, two_sites("order", multicasts=multicasts))
            for number in range(20):
                for name, group in groups.items():
                    await group.send(f"{name} {number}".encode(), SAFE if number % 5 == 0 else None)
            orders = await asyncio.gather(*[read(group, messages=80) for group in groups.values()])
            assert all(order == orders[0] for order in orders)
            assert len(set(orders[0])) == 80

    run(program())


def test_an_underlay_of_sites_multicasts_where_its_file_says() -> None:
    counters = Counters()
    listening = Listening(("127.0.0.1", 9), counters)
    hashed = listening.multicast_of("floor")
    listening.place("floor", ("239.192.7.9", 61_999))
    assert hashed != listening.multicast_of("floor") == ("239.192.7.9", 61_999)
    opened = listening.add("floor")
    assert opened is not None
    assert listening.receivers == [opened]
    listening.place("quiet", None)
    assert listening.multicast_of("quiet") is None
    assert listening.add("quiet") is None
    for unused in listening.keep(lambda underlay: underlay == "quiet"):
        unused.close()
    assert listening.multicast_of("floor") == hashed  # another orderer may have the name next
    assert listening.multicast_of("quiet") is None


def test_a_node_without_multicast_hears_that_of_its_site() -> None:
    listening = Listening(("127.0.0.1", 9), Counters(), has_multicast=False)
    listening.place("floor", ("239.192.7.9", 61_998))
    assert listening.multicast_of("other") is None
    assert listening.multicast_of("floor") == ("239.192.7.9", 61_998)


def test_a_crash_is_followed_by_a_view_and_the_restarted_daemon_merges() -> None:
    async def program() -> None:
        config = two_sites("crash")
        async with AsyncExitStack() as stack:
            nodes = {name: Node(name, sites=config) for name in ("e1", "e2", "w1", "w2")}
            for node in nodes.values():
                stack.push_async_callback(node.close)
            groups = {name: await node.join("orders") for name, node in nodes.items()}
            await asyncio.gather(*[read(group, members=4) for group in groups.values()])
            nodes["w1"].abort()  # the representative of its site
            rest = {name: group for name, group in groups.items() if name != "w1"}
            await asyncio.gather(*[read(group, members=3) for group in rest.values()])
            await rest["e1"].send(b"without w1", SAFE)
            assert await asyncio.gather(*[read(group, messages=1) for group in rest.values()]) == [[b"without w1"]] * 3
            again = Node("w1", site="west", sites=config)
            stack.push_async_callback(again.close)
            rest["w1"] = await again.join("orders")
            await asyncio.gather(*[read(group, members=4) for group in rest.values()])
            await rest["w1"].send(b"back", SAFE)
            assert await asyncio.gather(*[read(group, messages=1) for group in rest.values()]) == [[b"back"]] * 4

    run(program())


def test_a_member_that_leaves_is_not_in_the_next_view() -> None:
    async def program() -> None:
        config = two_sites("leave")
        async with AsyncExitStack() as stack:
            groups = await meet(stack, config)
            await groups["w2"].leave()
            rest = [group for name, group in groups.items() if name != "w2"]
            await asyncio.gather(*[read(group, members=3) for group in rest])
            assert [[member.name for member in group.members if member.name == "w2"] for group in rest] == [[]] * 3

    run(program())


def test_an_archive_is_refused(tmp_path: Path) -> None:
    async def program() -> None:
        config = two_sites("archive")
        async with Node("w1", sites=config) as node:
            log = ArchiveLog.open(tmp_path / "log", "orders", LogConfig(fsync="never"))
            with pytest.raises(UsageError, match="an archive needs a group with another orderer"):
                await ArchiveRecorder(node, log).run()

    run(program())


def test_a_daemon_with_another_file_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def program() -> None:
        config = two_sites("strange")
        other = replace(config, default_link=replace(config.default_link, weight=7))
        async with AsyncExitStack() as stack:
            nodes = {name: Node(name, sites=other if name == "w1" else config) for name in ("e1", "e2", "w1")}
            for node in nodes.values():
                stack.push_async_callback(node.close)
            groups = {name: await node.join("orders") for name, node in nodes.items()}
            await asyncio.gather(*[read(groups[name], members=2) for name in ("e1", "e2")])
            while not all(group.stats["strange_sites"] > 1 for group in groups.values()):
                await asyncio.sleep(0.05)
        warnings = [record.message for record in caplog.records if "another configuration" in record.message]
        told = sorted((text.partition("/")[0], text.partition(": ")[2].split()[0]) for text in warnings)
        assert told == [("e1", "w1"), ("e2", "w1"), ("w1", "e1"), ("w1", "e2")]

    with caplog.at_level("WARNING", logger="ordercast.membership"):
        run(program())
