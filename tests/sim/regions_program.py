"""A program on regions with the real membership service, for real nodes and simulated ones: three members send, one of
them dies, the others go on, and it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ordercast import FIFO, Group, Left, Lost, Message, View
from ordercast.sim.checkers import REGIONAL_PROPERTIES, check_all
from ordercast.sim.world import World

ROUND = 200  # messages of each sender in each part of the program
GROUP = "prices"

Make = Callable[[str], Any]
Seen = dict[str, list[int]]


class Reader:
    """What one member has received: of each life of a sender, in order."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.seen: Seen = {}
        self.lost: list[Lost] = []
        self.left: list[Left] = []
        self.members: set[str] = {member.name for member in group.members}
        self._events = aiter(group)

    async def until(self, holds: Callable[[Reader], bool]) -> None:
        while not holds(self):
            event = await anext(self._events)
            if isinstance(event, Message):
                self.seen.setdefault(event.sender, []).append(int(event.payload))
            elif isinstance(event, View):
                self.members = {member.name for member in event.members}
            elif isinstance(event, Lost):
                self.lost.append(event)
            elif isinstance(event, Left):
                self.left.append(event)
                self.members = set()

    async def members_are(self, names: Sequence[str]) -> None:
        await self.until(lambda reader: reader.members == set(names))

    async def has_all_of(self, senders: Sequence[Any], count: int) -> None:
        """`count` messages of each of these nodes."""
        wanted = [str(sender.member) for sender in senders]
        await self.until(lambda reader: all(len(reader.seen.get(each, ())) >= count for each in wanted))


async def send(group: Group, first: int, count: int = ROUND) -> None:
    for number in range(first, first + count):
        await group.send(b"%d" % number, FIFO)


async def everybody_sends(readers: Sequence[Reader], nodes: Sequence[Any], first: int) -> None:
    """Each sends a part, and all have received all of it."""
    await asyncio.gather(*(send(reader.group, first) for reader in readers))
    await asyncio.gather(*(reader.has_all_of(nodes, first + ROUND) for reader in readers))


async def three_members(make: Make) -> list[Seen]:
    """What each of the two that live through it has seen, and the one that came back."""
    names = ["a", "b", "c"]
    nodes = [make(name) for name in names]
    readers = [
        Reader(group) for group in await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
    ]
    await asyncio.gather(*(reader.members_are(names) for reader in readers))
    await everybody_sends(readers, nodes, 0)

    nodes[2].abort()
    living, others = readers[:2], nodes[:2]
    await asyncio.gather(*(send(reader.group, ROUND) for reader in living))  # while it is not known yet
    await asyncio.gather(*(reader.members_are(names[:2]) for reader in living))
    await asyncio.gather(*(reader.has_all_of(others, 2 * ROUND) for reader in living))
    await living[0].group.send(b"%d" % (2 * ROUND), FIFO, confirm=True)

    nodes[2] = make("c")
    back = Reader(await nodes[2].join(GROUP, orderer="regions"))
    readers[2] = back
    await asyncio.gather(*(reader.members_are(names) for reader in readers))
    await send(back.group, 0)
    await asyncio.gather(*(reader.has_all_of([nodes[2]], ROUND) for reader in readers))
    await readers[1].group.send(b"%d" % (2 * ROUND), FIFO, confirm=True)
    await asyncio.gather(*(reader.has_all_of(others, 2 * ROUND + 1) for reader in living))

    await back.group.leave()
    await asyncio.gather(*(reader.members_are(names[:2]) for reader in living))
    await asyncio.gather(*(node.close() for node in nodes))
    assert not any(reader.lost for reader in readers)
    return [reader.seen for reader in readers]


def check_seen(seen: Sequence[Seen]) -> None:
    """First in, first out, and nothing twice; the living have everything."""
    for each in seen:
        for numbers in each.values():
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for each in seen[:2]:
        names = [sender.partition("/")[0] for sender in each]
        assert sorted(names) == ["a", "b", "c", "c"]
        assert sorted(map(len, each.values())) == [ROUND, ROUND, 2 * ROUND + 1, 2 * ROUND + 1]


def judge(world: World) -> None:
    verdict = check_all(world.rows(), clock="virtual", quiet=True)
    assert verdict.held, "\n".join(verdict.summary())
    assert set(REGIONAL_PROPERTIES) <= verdict.properties.keys()
