"""`Node(gms="embedded")`: a node that brings the membership service along, where nobody else does.

It looks for replicas. Where it finds fewer than three, it runs one itself; the group of replicas takes five at most.
So the first nodes of a network are its service, and a first try needs no set-up.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from ordercast.api.node import NodeBase
from ordercast.config import MS, SECOND, Timing
from ordercast.errors import JoinRefused, OrdercastError
from ordercast.gms.placement import Placed
from ordercast.gms.probe import ServiceProbe
from ordercast.gms.replica import SERVICE_GROUP, GmsReplica, ReplicaDriver, Say
from ordercast.gms.subscriptions import ServedSubscriptions
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.parts.courier import ConnectionNumbers

EMBEDDED: Final = "embedded"  # as `gms` of a node: it runs a replica itself
SEARCHES: Final = 3  # questions for replicas, `find_ns` apart
LOOPBACK_FIND_NS: Final = 20 * MS  # on loopback an answer takes no time, and hardly any is lost
AGAIN_S: Final = 5.0  # between two searches of a node that runs none
ENOUGH: Final = 3  # replicas


def embedded_timing(timing: Timing, *, is_loopback: bool) -> Timing:
    """Of the group of replicas: the first join waits until it is clear that there is none yet."""
    return replace(timing, find_ns=min(timing.find_ns, LOOPBACK_FIND_NS)) if is_loopback else timing


class EmbeddedService:
    """Runs a replica in a node, where one is missing; `await stop()` ends it in order."""

    __slots__ = ("_connections", "_driver", "_node", "_plan", "_say", "_task", "_timing", "replica")

    def __init__(
        self,
        node: NodeBase,
        driver: ReplicaDriver,
        timing: Timing | None = None,
        say: Say = lambda _: None,
        plan: Placed = (),
    ) -> None:
        """plan: as `GmsReplica` has it."""
        self._node = node
        self._driver = driver
        self._timing = timing if timing is not None else Timing()
        driver.host.attached.timings[SERVICE_GROUP] = self._timing
        self._say = say
        self._plan = plan
        self._connections = ConnectionNumbers()
        self.replica: GmsReplica | None = None  # that runs here
        self._task = asyncio.get_running_loop().create_task(self._run())

    def subscriptions(self) -> ServedSubscriptions | None:
        """Who is in which group, as the service knows it; None: no replica runs here, or it does not know yet."""
        return self.replica.subscriptions() if self.replica is not None else None

    async def stop(self) -> None:
        if self.replica is not None:
            self.replica.stop()
        else:
            self._task.cancel()
        await asyncio.wait((self._task,))

    def abort(self) -> None:
        """At once, as by a crash."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            if await self._count() >= ENOUGH:
                await asyncio.sleep(AGAIN_S)
                continue
            self.replica = GmsReplica(
                self._node, self._driver, self._timing, plan=self._plan, say=self._say, connections=self._connections
            )
            try:
                await self.replica.run()
                return  # it was stopped
            except JoinRefused as error:
                self._say(f"no replica runs here: {error}")
            except OrdercastError as error:
                self._say(f"the replica of this node has ended: {error}")
                return
            finally:
                self.replica = None
            await asyncio.sleep(AGAIN_S)

    async def _count(self) -> int:
        """How many replicas there are."""
        driver = self._driver
        host = driver.host
        driver.prepare(REGIONS_UNDERLAY, "token")
        probe = ServiceProbe(host.me, self._timing, host.take_order())
        host.attached.add(probe)
        try:
            host.touch(probe)
            driver.wake()
            for _ in range(SEARCHES):
                await asyncio.sleep(self._timing.find_ns / SECOND)
                if len(probe.found) >= ENOUGH:
                    break
        finally:
            probe.stop()
            host.attached.remove(probe)
            host.has_ended = True
        return len(probe.found)
