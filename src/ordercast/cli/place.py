"""Where an everyday command works: at a daemon, as a light client of it, or as a node of its own (`--embedded`).

An embedded node is in groups that have an underlay of their own, as `Node.join` makes them, or with `--underlay` in
those of a shared underlay, which may be the one of daemons.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from ordercast.api.shared import SharedUnderlay
from ordercast.client.addresses import DAEMON_VARIABLE
from ordercast.client.node import ClientNode, connect
from ordercast.config import DEFAULT_ORDERER, SITES_ORDERER, SITES_UNDERLAY
from ordercast.daemon.seat import Seats
from ordercast.daemon.status import answer, knows_groups
from ordercast.errors import OrdercastError, UsageError
from ordercast.groups.events import Event
from ordercast.orderers import ORDERERS
from ordercast.runtime.node import SessionNode
from ordercast.runtime.running import run as run_loop
from ordercast.service import Service
from ordercast.wire.client_frames import Question

CONNECT_S: Final = 3.0
JOIN_S: Final = 10.0
STEP_S: Final = 0.005
MERGED_EVENTS: Final = 1_024
"""Events of several groups that wait to be printed. At the bound the groups wait."""

_EMBEDDED: Final = ("orderer", "underlay", "host", "peers", "sites", "insecure")
_T = TypeVar("_T")


def add_place(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that goes through a daemon, or does without one."""
    parser.add_argument("--json", action="store_true", help="print JSON, one document for each line")
    parser.add_argument("--name", default=None, help="of this client or node, as the members see it")
    parser.add_argument(
        "--daemon",
        default=None,
        metavar="ADDRESS",
        help=f"unix:PATH or tcp://host:port, several with commas (${DAEMON_VARIABLE}, or this user's socket)",
    )
    own = parser.add_argument_group("without a daemon")
    own.add_argument("--embedded", action="store_true", help="be a node of its own instead of a daemon's client")
    own.add_argument(
        "--orderer", default=None, choices=[*ORDERERS, SITES_ORDERER], help=f"of its groups ({DEFAULT_ORDERER})"
    )
    own.add_argument("--underlay", default=None, metavar="NAME", help="the shared underlay that carries the groups")
    own.add_argument("--host", default=None, help="the address of its interface (127.0.0.1)")
    own.add_argument("--peers", default=None, metavar="LIST", help="other nodes, host:port with commas")
    own.add_argument("--sites", default=None, metavar="FILE", help="a configuration of sites, where it is --name")
    own.add_argument("--insecure", action="store_true", default=None, help="allow other interfaces than loopback")


class Place(Protocol):
    """What the commands do, wherever they are."""

    async def ask(self, what: str, argument: str = "") -> dict[str, Any]:
        """What there is: "status", "groups", or "members" of a group."""

    def listen(self, groups: Sequence[str]) -> AsyncIterator[Event]:
        """Join groups: what comes to them."""

    async def send(
        self, payload: bytes, groups: Sequence[str], service: Service, type_: int, priority: int
    ) -> int | None:
        """One message to groups, until it is delivered: its position."""

    async def call(
        self, group: str, payload: bytes, handler: int | None, service: Service, timeout: float | None
    ) -> bytes | None:
        """One message to a group, and the answer of its handler."""


class ClientPlace:
    """A light client of a daemon."""

    def __init__(self, node: ClientNode) -> None:
        self._node = node

    async def ask(self, what: str, argument: str = "") -> dict[str, Any]:
        return await self._node.ask(what, argument)

    async def listen(self, groups: Sequence[str]) -> AsyncIterator[Event]:
        events = self._node.events()
        await self._node.join_many(groups)
        async for event in events:
            yield event

    async def send(
        self, payload: bytes, groups: Sequence[str], service: Service, type_: int, priority: int
    ) -> int | None:
        return await self._node.send(
            payload, groups=groups, service=service, type=type_, confirm=True, priority=priority
        )

    async def call(
        self, group: str, payload: bytes, handler: int | None, service: Service, timeout: float | None
    ) -> bytes | None:
        return await self._node.call(group, payload, handler=handler, service=service, timeout=timeout)


class SharedPlace:
    """A node of its own in a shared underlay."""

    def __init__(self, node: SessionNode, underlay: str, orderer: str) -> None:
        self._node = node
        self._underlay = underlay
        self._orderer = orderer

    async def ask(self, what: str, argument: str = "") -> dict[str, Any]:
        """As a daemon without sessions would say it."""
        shared = await self._attach(False)
        driver, _ = self._node.parts
        seats = Seats(driver.host, driver, self._underlay, shared.config)
        while not knows_groups(seats):
            await asyncio.sleep(STEP_S)
        found: dict[str, Any] = json.loads(answer(seats, Question(0, what, argument)))
        if "error" in found:
            raise UsageError(str(found["error"]))
        return found

    async def listen(self, groups: Sequence[str]) -> AsyncIterator[Event]:
        events = (await self._attach(None)).events()
        await self._node.join_many(groups, underlay=self._underlay)
        async for event in events:
            yield event

    async def send(
        self, payload: bytes, groups: Sequence[str], service: Service, type_: int, priority: int
    ) -> int | None:
        shared = await self._attach(False)
        return await shared.send(payload, groups=groups, service=service, type=type_, confirm=True, priority=priority)

    async def call(
        self, group: str, payload: bytes, handler: int | None, service: Service, timeout: float | None
    ) -> bytes | None:
        await self.ask("members", group)  # raises where nobody is there to be called
        return await self._node.call(group, payload, handler=handler, service=service, timeout=timeout)

    async def _attach(self, create: bool | None) -> SharedUnderlay:
        """`create`: a command that only asks or sends makes no underlay. Of sites there always is one."""
        is_made = self._orderer == SITES_ORDERER
        return await self._node.attach(
            self._underlay, orderer=self._orderer, create=None if is_made else create, timeout=JOIN_S
        )


class GroupsPlace:
    """A node of its own whose groups have an underlay each."""

    def __init__(self, node: SessionNode, orderer: str, peers: Sequence[str]) -> None:
        self._node = node
        self._orderer = orderer
        self._peers = peers

    async def ask(self, what: str, argument: str = "") -> dict[str, Any]:
        """Nodes are asked for their groups, and a group for its members, which is joined for that."""
        if what == "members":
            group = await self._node.join(argument, orderer=self._orderer, create=False, timeout=JOIN_S)
            others = [str(member) for member in group.members if member.id != self._node.member.id]
            return {"group": argument, "members": others, "count": len(others)}
        if not self._peers:
            raise UsageError(
                f"`{what} --embedded` looks at an underlay, or asks nodes: give --underlay NAME, or --peers host:port"
            )
        known: dict[str, list[str]] = {}
        for peer in self._peers:
            for name in await self._node.groups_at(peer):
                known.setdefault(name, []).append(peer)
        groups = [{"name": name, "members": None, "at": at} for name, at in sorted(known.items())]
        if what == "groups":
            return {"groups": groups, "count": len(groups)}
        return {"node": str(self._node.member), "peers": list(self._peers), "groups": len(groups), "group_list": groups}

    async def listen(self, groups: Sequence[str]) -> AsyncIterator[Event]:
        """Of several groups there is no one order: what comes first is told first."""
        queue: asyncio.Queue[Event] = asyncio.Queue(MERGED_EVENTS)

        async def follow(name: str) -> None:
            async for event in await self._node.join(name, orderer=self._orderer, timeout=JOIN_S):
                await queue.put(event)

        tasks = [asyncio.create_task(follow(name)) for name in groups]
        try:
            while True:
                taking = asyncio.create_task(queue.get())
                await asyncio.wait([taking, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done() and task.exception() is not None:
                        taking.cancel()
                        task.result()
                if not taking.done() and all(task.done() for task in tasks):
                    taking.cancel()
                    return
                yield await taking
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError, OrdercastError):
                    await task

    async def send(
        self, payload: bytes, groups: Sequence[str], service: Service, type_: int, priority: int
    ) -> int | None:
        if len(groups) > 1:
            raise UsageError("one message to several groups needs a shared underlay that carries them: --underlay NAME")
        name = groups[0]
        joined = {group.name: group for group in self._node.groups}
        group = joined.get(name) or await self._node.join(name, orderer=self._orderer, create=False, timeout=JOIN_S)
        return await group.send(payload, service, type_, confirm=True, priority=priority)

    async def call(
        self, group: str, payload: bytes, handler: int | None, service: Service, timeout: float | None
    ) -> bytes | None:
        return await self._node.call(group, payload, handler=handler, service=service, timeout=timeout)


def through(args: argparse.Namespace, work: Callable[[Place], Coroutine[Any, Any, _T]]) -> _T:
    """Connect, or be a node, work, and leave. What stands against it is bad input: a sentence that says what to do."""
    _check(args)

    async def main() -> _T:
        if args.embedded:
            return await _embedded(args, work)
        async with await connect(args.daemon, name=args.name, timeout=CONNECT_S, reconnect=False) as node:
            return await work(ClientPlace(node))

    try:
        return run_loop(main())
    except UsageError:
        raise
    except (TimeoutError, OrdercastError) as error:
        raise UsageError(str(error)) from error


async def _embedded(args: argparse.Namespace, work: Callable[[Place], Coroutine[Any, Any, _T]]) -> _T:
    peers = [peer.strip() for peer in (args.peers or "").split(",") if peer.strip()]
    orderer = args.orderer or (SITES_ORDERER if args.sites else DEFAULT_ORDERER)
    node = SessionNode(args.name, args.host or "127.0.0.1", peers=peers, insecure=bool(args.insecure), sites=args.sites)
    async with node:
        underlay = args.underlay or (SITES_UNDERLAY if orderer == SITES_ORDERER else None)
        if underlay is not None:
            return await work(SharedPlace(node, underlay, orderer))
        return await work(GroupsPlace(node, orderer, peers))


def _check(args: argparse.Namespace) -> None:
    """Flags that do not go together are bad input."""
    given = [word for word in _EMBEDDED if getattr(args, word)]
    if not args.embedded and given:
        raise UsageError(f"--{given[0]} is about a node of its own: give --embedded with it, or leave it out")
    if args.embedded and args.daemon is not None:
        raise UsageError("--embedded does without a daemon: leave --daemon out")
    if args.orderer == SITES_ORDERER and not args.sites:
        raise UsageError("a node of sites is a daemon of a configuration: give --sites FILE, and --name")
    if args.sites and args.orderer not in (None, SITES_ORDERER):
        raise UsageError(f"--sites goes with --orderer {SITES_ORDERER}, not with {args.orderer}")
