"""A token group with a caller outside, for the tests of RMP's calls and locks; its trace is judged at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.paper.group import Lab

from ordercast.api.group import Group
from ordercast.config import Timing
from ordercast.groups.events import Message, Request
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.checkers import check_all
from ordercast.sim.network import IDEAL, NetworkModel
from ordercast.sim.world import World
from ordercast.trace.schema import Row
from ordercast.wire.calls import FIRST, decode_call
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind

Answering = Callable[[Request], Awaitable[None]]

LAN = NetworkModel("quick", latency_ns=100_000)
LOSSY = NetworkModel("lossy", latency_ns=100_000, jitter_ns=100_000, loss=0.15, duplicate=0.05, reorder=0.05)


async def shout(request: Request) -> None:
    await request.reply(request.payload.upper())


def noting(asked: list[bytes]) -> Callable[[Request], Awaitable[None]]:
    """A handler that shouts, and notes what it was asked."""

    async def answer(request: Request) -> None:
        asked.append(request.payload)
        await shout(request)

    return answer


class Office(Lab):
    """Members a, b, c, … of one token group, and x, who calls them and is none."""

    def __init__(self, node: Simulation) -> None:
        super().__init__(node)
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self, count: int, *, timing: Timing | None = None, **terms: Any) -> SimNode:
        """The group, quiet; returns the caller."""
        await self.form(count, timing=timing, orderer="token", **terms)
        return self.node("x", timing=timing)

    async def serve(self, index: int, handler: int, answer: Answering = shout) -> None:
        """Have a member hold a handler from now on."""

        async def work(group: Group) -> None:
            async with group.handler(handler) as h:
                async for request in h:
                    await answer(request)

        group = self.groups[index]
        task = asyncio.create_task(work(group))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.tasks.append(task)
        await self.until(lambda: group.locks.get(str(handler)) == str(self.nodes[index].member))

    def payloads(self, index: int) -> list[bytes]:
        return self.seen[index].payloads

    def messages(self, index: int) -> list[Message]:
        return [event for event in self.seen[index].events if isinstance(event, Message)]

    def silence(self, *names: str, target: str = "x") -> None:
        """Nothing from these nodes reaches `target`."""
        for name in names:
            self.world.network.cut(name, target)

    def rows(self, kind: str) -> list[Row]:
        return [row for row in self.world.rows() if row.kind == kind]


def in_office(
    program: Callable[[Office], Coroutine[Any, Any, None]],
    *,
    network: NetworkModel = LAN,
    seed: int | str = "paper",
    quiet: bool = True,
) -> World:
    """Run a program, let the group come to rest, and judge its trace. `quiet`: nothing may be left undone."""
    world = World(seed, network)

    async def run(node: Simulation) -> None:
        office = Office(node)
        await program(office)
        office.world.network.heal()
        office.world.network.set_model(IDEAL)
        await asyncio.sleep(5)
        for task in office.tasks:
            task.cancel()

    simulate(run, world=world)
    verdict = check_all(world.rows(), clock="virtual", quiet=quiet)
    assert verdict.held, "\n".join(verdict.summary())
    return world


class Wire:
    """Reads CALL datagrams off the wire: (number, has the first-packet flag, group's name)."""

    def __init__(self, world: World) -> None:
        self.calls: list[tuple[int, bool, str]] = []
        transmit = world.network.transmit

        def tap(leave_ns: int, source: str, targets: Any, data: bytes, stride: int) -> Any:
            if source == "x" and data[1] == Kind.CALL:
                *_, number = HEADER.unpack_from(data)
                flags, group, _ = decode_call(data[HEADER_BYTES:])
                self.calls.append((number, bool(flags & FIRST), group))
            return transmit(leave_ns, source, targets, data, stride)

        world.network = _Tapped(world.network, tap)  # type: ignore[assignment]


class _Tapped:
    """A network that lets somebody listen."""

    def __init__(self, network: Any, transmit: Any) -> None:
        self._network = network
        self.transmit = transmit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)
