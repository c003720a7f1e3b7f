"""One member process of `ordercast bench`.

    python -m ordercast.cli.bench_member      (settings and orders on standard input, one JSON object a line)

Daemons of sites `gather` first, because each begins alone. With many groups `join` comes first: all of them, and what
that costs. A phase: `prepare` (receive from now on), `go` (senders begin), `mark` (counters now, asked twice), `finish`
(senders stop and send an end), `drained` (said here when the end of every sender has come). After it has started up a
member calls `gc.freeze()`, so that the collector does not walk what lives as long as the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import gc
import os
import resource
import sys
from time import monotonic, monotonic_ns
from typing import Any, Final

from ordercast import AGREED, FIFO, Batch, Message, Node, OrdercastError, Service, SharedUnderlay, parse_service, run
from ordercast.cli.children import Command, Saying
from ordercast.cli.floor import Floor
from ordercast.cli.lanes import GroupLane, Lane, SharedLane, group_names, join_own, open_sockets, resident_bytes
from ordercast.cli.load import Sink, Source, chunk_of
from ordercast.cli.local_sites import sites_of_settings
from ordercast.config import REGIONS_ORDERER, REGIONS_UNDERLAY, SITES_ORDERER, SITES_UNDERLAY
from ordercast.gms.embedded import EMBEDDED
from ordercast.runtime.addresses import group_address

REPORTED_SAMPLES: Final = 4_000
"""Latencies told to the command by each member: evenly picked out of what was kept."""

SINGLE_BYTES: Final = 100
LOOK_S: Final = 0.005
SINGLE_PACE_S: Final = 0.002
"""Between two messages sent one at a time, where their service confirms them before the others have them."""


class BenchMember:
    """Does what the command says, one phase after the other."""

    __slots__ = (
        "_command",
        "_floor",
        "_flowing",
        "_is_sending",
        "_lane",
        "_name",
        "_node",
        "_phase",
        "_receiving",
        "_sending",
        "_service",
        "_sink",
        "_size",
        "_source",
        "_stats",
        "_underlay",
    )

    def __init__(self, node: Node, lane: Lane, underlay: SharedUnderlay | None, command: Command) -> None:
        settings = command.settings
        self._node = node
        self._lane = lane
        self._underlay = underlay
        self._command = command
        self._name: str = settings["name"]
        self._size: int = settings["size"]
        self._service = parse_service(settings["service"])
        self._floor: Floor | None = None
        # of the phase
        self._phase = ""
        self._source = Source(SINGLE_BYTES, 1)
        self._sink = Sink((), 1)
        self._is_sending = asyncio.Event()
        self._receiving: asyncio.Task[None] | None = None
        self._flowing: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._stats: dict[str, int] = {}

    async def follow(self) -> None:
        """Take orders until the command closes the pipe."""
        while (order := await self._command.next()) is not None:
            match order["is"]:
                case "open_floor":
                    await self._stop_receiving()
                    self._node.abort()
                    self._floor = Floor(self._name, order["group"], self._command.settings["datagram"])
                    self._command.tell("floor", address=self._floor.address)
                case "gather":
                    await self._lane.meet(order["members"])
                    self._command.tell("gathered")
                case "join":
                    await self._guard(self._join(order["count"]))
                case "receive":
                    await self._stop_receiving()
                    self._receiving = asyncio.create_task(self._receive_on())
                    self._command.tell("receiving")
                case "prepare":
                    await self._stop_receiving()
                    self._prepare(order)
                    self._command.tell("ready")
                case "go":
                    self._is_sending.set()
                    self._sending = asyncio.create_task(self._guard(self._send()))
                case "mark":
                    self._command.tell("mark", **self._snapshot())
                case "finish":
                    self._is_sending.clear()

    async def _join(self, count: int) -> None:
        """Come into so many groups, and say what that costs."""
        settings, underlay = self._command.settings, self._underlay
        names = group_names(settings["group"], count)
        gc.collect()
        before, begin_s = resident_bytes(), monotonic()
        if underlay is not None:
            await underlay.join_many(names)
        else:
            await join_own(self._node, names, settings["orderer"], settings["anticipate"])
        took_s = monotonic() - begin_s
        gc.freeze()
        self._command.tell("in", seconds=took_s, rss_bytes=before, sockets=open_sockets())

    def _prepare(self, order: Saying) -> None:
        self._phase = order["phase"]
        if self._underlay is not None and self._floor is None:
            names = group_names(self._command.settings["group"], order["groups"])
            self._lane = SharedLane(self._underlay, names, chunk_of(self._size), self._phase != "by name")
        if self._phase == "single":
            self._source = Source(SINGLE_BYTES, 1)
        else:
            self._source = Source(self._size)
        # Where not even each sender's order holds, messages are checked by their numbers. The floor keeps that order.
        is_unreliable = self._floor is None and self._service < FIFO
        self._sink = Sink(order["senders"], self._source.chunk, order["begins"] if is_unreliable else None)
        if self._floor is not None:
            addresses = {name: (host, port) for name, (host, port) in order["addresses"].items()}
            self._floor.prepare(addresses, order["senders"])
        self._stats = {} if self._floor is not None else self._lane.stats
        self._node.read_drops() if self._floor is None else self._floor.read_drops()
        self._receiving = asyncio.create_task(self._guard(self._receive()))
        self._flowing = asyncio.create_task(self._tell_flowing())

    async def _receive(self) -> None:
        sink, lane = self._sink, self._lane
        if self._floor is not None:
            await self._floor.receive(sink)
        elif self._phase == "messages":
            take_one = sink.take_one
            async for event in lane.events():
                if event.__class__ is Message:
                    take_one(event.sender, event.payload, event.number)
                    if not sink.open:
                        break
        else:
            async with contextlib.aclosing(lane.batches()) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    if isinstance(batch, Batch):
                        sink.ordered(batch.position, batch.first, batch.count)
                        sink.take(batch.sender, batch.messages, batch.first)
                        if not sink.open:
                            break
        self._tell_drained()

    async def _receive_on(self) -> None:
        """Whatever comes: a member that does not receive would hold up the others."""
        async with contextlib.aclosing(self._lane.batches()) as batches:  # type: ignore[type-var]
            async for _ in batches:
                pass

    async def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._receiving
            self._receiving = None

    async def _send(self) -> None:
        lane, source, service, is_sending = self._lane, self._source, self._service, self._is_sending
        if self._floor is not None:
            await self._floor.send(source, is_sending)
        else:
            if self._phase == "single":
                while is_sending.is_set():
                    await lane.send(source.next()[0], service, confirm=True)
                    if not service.is_ordered:
                        await asyncio.sleep(SINGLE_PACE_S)
            else:
                while is_sending.is_set():
                    await lane.send_many(source.next(), service)
            # The end must be a block of its own, and come behind everything: in order, whatever the service was.
            await lane.flush()
            await lane.send(source.end(), self._end_service)
        self._command.tell("sent", count=source.sent)

    @property
    def _end_service(self) -> Service:
        if self._command.settings["orderer"] == REGIONS_ORDERER:
            return FIFO
        return self._service if self._service.is_ordered else AGREED

    async def _tell_flowing(self) -> None:
        """Say when the first messages have come. Looked for now and then, to keep it out of the measured loops."""
        while not self._sink.delivered:
            await asyncio.sleep(LOOK_S)
        self._command.tell("flowing")

    def _tell_drained(self) -> None:
        sink = self._sink
        stats = {} if self._floor is not None else self._lane.stats
        datagrams = {
            word.removeprefix("sent."): count - self._stats.get(word, 0)
            for word, count in stats.items()
            if word.startswith("sent.") and count > self._stats.get(word, 0)
        }
        kept = sink.latencies_ns
        step = max(1, len(kept) // REPORTED_SAMPLES)
        self._command.tell(
            "drained",
            received=sink.next,
            misordered=sink.misordered,
            digest=sink.digest,
            drops=self._node.read_drops() if self._floor is None else self._floor.read_drops(),
            datagrams=datagrams,
            latencies_ns=list(kept[::step]),
        )

    def _snapshot(self) -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "at_ns": monotonic_ns(),
            "delivered": self._sink.delivered,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_bytes": resident_bytes(),
        }

    async def _guard(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            self._command.tell("failed", text=f"{type(error).__name__}: {error}")
            raise


def service_of_run(settings: dict[str, Any]) -> dict[str, Any]:
    """The membership service of regions is this run's own: another one on this machine must not be found."""
    if settings["orderer"] != REGIONS_ORDERER:
        return {}
    run = settings["group"]
    return {"gms": EMBEDDED, "addresses": lambda name: group_address(f"{name} of {run}")}


async def enter(node: Node, settings: dict[str, Any]) -> tuple[Lane, SharedUnderlay | None]:
    """Come into the group that is measured, or into the underlay of many."""
    name, orderer, anticipate, create = (settings[word] for word in ("group", "orderer", "anticipate", "create"))
    if orderer == SITES_ORDERER:
        underlay = await node.attach(SITES_UNDERLAY, buffers=settings["buffers"])
        if settings["is_shared"]:
            return SharedLane(underlay, group_names(name, 1), 1, is_resolved=False), underlay
        return GroupLane(await node.join(name)), None
    if orderer == REGIONS_ORDERER:
        underlay = await node.attach(REGIONS_UNDERLAY)
        return SharedLane(underlay, group_names(name, 1), 1, is_resolved=False), underlay
    if settings["is_shared"]:
        underlay = await node.attach(name, orderer=orderer, anticipate=anticipate, create=create)
        return SharedLane(underlay, group_names(name, 1), 1, is_resolved=False), underlay
    return GroupLane(await node.join(name, orderer=orderer, anticipate=anticipate, create=create)), None


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    begin_s = monotonic()
    try:
        sites = sites_of_settings(settings["sites"]) if settings["sites"] is not None else None
        node = Node(
            settings["name"],
            datagram=settings["datagram"],
            trace=settings["trace"],
            sites=sites,
            **service_of_run(settings),
        )
        lane, underlay = await enter(node, settings)
    except (OrdercastError, TimeoutError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    took_s = monotonic() - begin_s
    member = BenchMember(node, lane, underlay, command)
    gc.collect()
    gc.freeze()
    command.tell("joined", member=str(node.member), seconds=took_s)
    profile = cProfile.Profile() if settings["profile"] else None
    if profile is not None:
        profile.enable()
    try:
        await member.follow()
    finally:
        if profile is not None:
            profile.disable()
            profile.dump_stats(os.path.join(settings["profile"], f"{settings['name']}.prof"))
        node.abort()


if __name__ == "__main__":
    run(live())
    sys.exit(0)
