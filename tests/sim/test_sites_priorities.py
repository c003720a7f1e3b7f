"""Priorities over a slow link between sites, in virtual time: API, stamps, and the queues of the link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from struct import Struct

from ordercast import Group, Message, View
from ordercast.config import LAN_DATAGRAM, GroupConfig
from ordercast.groups.engines import engines_of_sites
from ordercast.orderers.sites.urgency import DEBT
from ordercast.sim.api import SimNode
from ordercast.sim.loop import run_in_world
from ordercast.sim.network import LAN
from ordercast.sim.topology import parse_topology
from ordercast.sim.world import World

LIMIT_NS = 120_000_000_000
SLOW = """
[[site]]
name = "east"
[[site]]
name = "west"
[[daemon]]
name = "e1"
site = "east"
host = "10.1.0.1"
[[daemon]]
name = "e2"
site = "east"
host = "10.1.0.2"
[[daemon]]
name = "e3"
site = "east"
host = "10.1.0.3"
[[daemon]]
name = "w1"
site = "west"
host = "10.2.0.1"
[[link]]
between = ["east", "west"]
rate = "1Mbit"
burst = "8KiB"
[simulation]
latency = "20ms"
bandwidth = "1.2Mbit"
"""
BULK_BYTES = 1_000
SENT = Struct("<q")  # when a message was sent, at its beginning


class Arrivals:
    """What came to one member, by sender: delays, and bytes."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.delays_ns: dict[str, list[int]] = {}
        self.bytes: dict[str, int] = {}

    async def follow(self, group: Group) -> None:
        async for event in group:
            if isinstance(event, Message):
                name = event.sender.split("/")[0]
                delay_ns = self.now_ns() - SENT.unpack_from(event.payload)[0]
                self.delays_ns.setdefault(name, []).append(delay_ns)
                self.bytes[name] = self.bytes.get(name, 0) + len(event.payload)

    def p99_ns(self, name: str) -> int:
        delays = sorted(self.delays_ns[name])
        return delays[len(delays) * 99 // 100]


async def until(group: Group, members: int) -> None:
    async for event in group:
        if isinstance(event, View) and len(event.members) == members:
            return


def arrivals_of(
    send: Callable[[World, list[Group]], list[Coroutine[None, None, None]]], seconds: float, world: World | None = None
) -> Arrivals:
    """What comes to the west while `send` goes on in the east."""
    topology = parse_topology(SLOW, "slow.toml")
    world = world if world is not None else World(11, LAN, topology=topology)
    found = Arrivals(lambda: world.now_ns)

    async def program() -> None:
        config = GroupConfig(orderer="sites", datagram=LAN_DATAGRAM)
        nodes = [
            SimNode(world, name, config=config, engines=engines_of_sites(topology.config)) for name in topology.nodes
        ]
        groups = [await node.join("orders") for node in nodes]
        await asyncio.gather(*[until(group, 4) for group in groups])
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(found.follow(groups[3]))]
            following += [tasks.create_task(Arrivals(found.now_ns).follow(group)) for group in groups[:3]]
            following += [tasks.create_task(each) for each in send(world, groups)]
            await asyncio.sleep(seconds)
            for task in following:
                task.cancel()

    run_in_world(world, program(), LIMIT_NS)
    return found


async def saturate(world: World, group: Group, priority: int = 0) -> None:
    while True:
        await group.send(SENT.pack(world.now_ns).ljust(BULK_BYTES, b"."), priority=priority)


async def now_and_then(world: World, group: Group, priority: int) -> None:
    while True:
        await asyncio.sleep(0.1)
        await group.send(SENT.pack(world.now_ns), priority=priority)


def test_urgent_messages_take_a_fifth_of_the_time_while_others_fill_a_slow_link() -> None:
    """SITES section 5. The bulk comes from the daemon that has the link, and from another one."""

    def urgent(world: World, groups: list[Group], priority: int) -> list[Coroutine[None, None, None]]:
        return [saturate(world, groups[0]), saturate(world, groups[1]), now_and_then(world, groups[2], priority)]

    found = arrivals_of(lambda world, groups: urgent(world, groups, 10), 8)
    assert len(found.delays_ns["e3"]) > 60
    bulk_ns = max(found.p99_ns("e1"), found.p99_ns("e2"))
    assert found.p99_ns("e3") <= bulk_ns / 5
    assert found.bytes["e1"] + found.bytes["e2"] > 0.7 * 8 * 125_000  # and the link is used
    # So it is the priority, and not that one sends little: daemons take turns, too.
    usual = arrivals_of(lambda world, groups: urgent(world, groups, 0), 8)
    assert found.p99_ns("e3") < 0.7 * usual.p99_ns("e3")


def test_the_rest_gets_a_fifth_of_a_link_that_urgent_messages_would_fill() -> None:
    found = arrivals_of(lambda world, groups: [saturate(world, groups[1]), saturate(world, groups[2], 5)], 8)
    rest, both = found.bytes["e2"], found.bytes["e2"] + found.bytes["e3"]
    assert rest >= 0.2 * both - DEBT  # a fifth, but for what they are owed at the end
    assert rest < 0.4 * both


def test_the_trace_of_urgent_messages_can_be_read() -> None:
    """Their priority stands where RESILIENT has its k, and is no part of their service."""
    world = World(11, LAN, topology=parse_topology(SLOW, "slow.toml"))
    arrivals_of(lambda world, groups: [now_and_then(world, groups[2], 15)], 1, world)
    sender = next(row.sender for row in world.rows() if row.kind == "submit")
    found = {row.kind: row.service for row in world.rows() if row.sender == sender and row.service is not None}
    assert found == dict.fromkeys(("submit", "hold", "placed", "deliver"), "AGREED")
