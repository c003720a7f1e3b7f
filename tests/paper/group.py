"""A group on a loss-free network whose datagrams are counted: what the tests of the paper's claims share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ordercast.api.group import Group
from ordercast.config import GroupConfig, Timing
from ordercast.errors import NotMember
from ordercast.groups.events import Message
from ordercast.groups.status import Resumed, Stalled
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.network import IDEAL, NetworkModel
from ordercast.sim.world import World
from ordercast.view import View

T = TypeVar("T")


@dataclass(slots=True)
class Seen:
    """What one member's application was handed, in order."""

    events: list[Any] = field(default_factory=list)

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.events if isinstance(event, Message)]

    @property
    def views(self) -> list[View]:
        return [event for event in self.events if isinstance(event, View)]


class Lab:
    """Members of one group, the first of which made it. All but the `idle` ones receive all the time."""

    def __init__(self, node: Simulation) -> None:
        self.node = node
        self.world: World = node.world
        self.nodes: list[SimNode] = []
        self.groups: list[Group] = []
        self.seen: list[Seen] = []
        self._readers: list[asyncio.Task[None]] = []

    async def join(
        self,
        name: str,
        *,
        config: GroupConfig | None = None,
        timing: Timing | None = None,
        is_deaf: bool = False,
        has_multicast: bool = True,
        **terms: Any,
    ) -> Group:
        terms.setdefault("orderer", "sequencer")  # Amoeba's; tests of other papers name theirs
        made = self.node(name, config=config, timing=timing, has_multicast=has_multicast)
        group = await made.join("paper", **terms)
        self.nodes.append(made)
        self.groups.append(group)
        self.seen.append(Seen())
        self._readers.append(asyncio.create_task(self._read(group, self.seen[-1])))
        if is_deaf:
            self.stop_receiving(len(self.seen) - 1)
        return group

    async def form(
        self, count: int, *, config: GroupConfig | None = None, timing: Timing | None = None, **terms: Any
    ) -> list[Group]:
        """A group of `count`, all with the same view, and quiet."""
        for index in range(count):
            await self.join("abcdefghijklmnopqrstuvwxyz"[index], config=config, timing=timing, **terms)
        await self.until(lambda: all(len(group.members) == count for group in self.groups))
        await asyncio.sleep(3)
        return self.groups

    def stop_receiving(self, index: int) -> None:
        self._readers[index].cancel()

    def receive_again(self, index: int) -> None:
        self._readers[index] = asyncio.create_task(self._read(self.groups[index], self.seen[index]))

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        for _ in range(int(seconds * 1_000)):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"not so after {seconds} s of virtual time")

    async def count(self, work: Awaitable[object]) -> Counter[str]:
        """Datagrams that crossed the wire while `work` was done, by kind; a multicast is one."""
        before = Counter(self.world.network.counters.sent_by_kind)
        await work
        return Counter(self.world.network.counters.sent_by_kind) - before

    async def _read(self, group: Group, seen: Seen) -> None:
        with suppress(NotMember):  # its node has crashed
            async for event in group:
                if not isinstance(event, Stalled | Resumed):  # no paper has them
                    seen.events.append(event)


def in_lab(
    program: Callable[[Lab], Coroutine[Any, Any, T]], *, network: NetworkModel = IDEAL, seed: int | str = "paper"
) -> T:
    async def run(node: Simulation) -> T:
        return await program(Lab(node))

    return simulate(run, network=network, seed=seed)


async def send_one_by_one(group: Group, count: int, size: int, **terms: Any) -> None:
    """SendToGroup as in the paper: the caller is blocked until its message has come back."""
    for _ in range(count):
        await group.send(bytes(size), confirm=True, **terms)
