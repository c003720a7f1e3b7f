"""A replica of the membership service: a program on the public API, for real nodes and simulated ones.

Replicas are members of a token group. The leader holds the lock "gms"; each epoch is one MAJORITY message, which all of
them apply (docs/design/gms.md). A replica that is new, or was out of the group, asks for the directory in order: the
leader's answer is the directory as of that question, and what was ordered since follows it. An answer to a question
that was ordered before this replica came is not for it: it has not heard what was ordered in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from ordercast.api.group import Group
from ordercast.api.locking import Lock
from ordercast.api.node import NodeBase
from ordercast.config import Timing
from ordercast.errors import OrdercastError, WireError
from ordercast.gms.desk import Desk
from ordercast.gms.directory import RegionDirectory
from ordercast.gms.dump import dump, load
from ordercast.gms.subscriptions import ServedSubscriptions, subscriptions_of
from ordercast.groups.events import Left, Message, Uncertain
from ordercast.groups.host import Host
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.parts.courier import ConnectionNumbers
from ordercast.service import AGREED, MAJORITY
from ordercast.view import View, node_id
from ordercast.wire.gms import MAX_PLACED, Ask, EpochBatch, NodeRequest, decode_batch, encode_batch

SERVICE_GROUP: Final = "ordercast.gms"
SERVICE_LOCK: Final = "gms"
MAX_REPLICAS: Final = 5
WANT_S: Final = 1.0  # between two questions for the directory
WANT_TRIES: Final = 5  # unanswered, then nobody has it, and the first replica begins anew
RETRY_S: Final = 0.2  # after an error of the group
MAX_HEARD: Final = 1_024  # questions whose answers may come; the oldest is forgotten, and its asker asks again
MAX_HELD_BATCHES: Final = 1_024  # that wait for the directory; with more it is asked for again

_QUESTION: Final = Struct("<QQ")  # for the directory: who asks, and when. The answer begins with it

# Types of messages of the group.
_BATCH: Final = 1
_WANT: Final = 2
_STATE: Final = 3

Say = Callable[[str], None]


class PassObserver(Protocol):
    """What is told of the passes of a node."""

    def settle(self) -> None: ...

    def fail(self, error: OrdercastError) -> None: ...


class ReplicaDriver(Protocol):
    """What a replica needs of its node, besides the public API."""

    @property
    def host(self) -> Host: ...

    def now_ns(self) -> int: ...

    def wake(self) -> None: ...

    def prepare(self, underlay: str, orderer: str) -> None: ...

    def add_listener(self, listener: PassObserver) -> None: ...


class GmsReplica:
    """One replica: `await run()` returns after `stop()`, or raises what ended it."""

    __slots__ = (
        "_driver",
        "_group",
        "_has_state",
        "_heard",
        "_held",
        "_is_stopping",
        "_join",
        "_lock",
        "_news",
        "_node",
        "_over",
        "_plan",
        "_say",
        "_seen",
        "_wants",
        "desk",
    )

    def __init__(
        self,
        node: NodeBase,
        driver: ReplicaDriver,
        timing: Timing,
        *,
        plan: Sequence[tuple[str, int]] = (),
        say: Say = lambda _: None,
        join: dict[str, Any] | None = None,
        connections: ConnectionNumbers | None = None,
    ) -> None:
        """plan: names of nodes and their regions. join: further arguments of `node.join` for the group of replicas.
        connections: of a node that has one replica after the other."""
        self._node = node
        self._driver = driver
        self._plan = tuple(plan)
        self._say = say
        self._join = {"orderer": "token", "max_members": MAX_REPLICAS, **(join or {})}
        self.desk = Desk(driver.host.me, timing, driver.host.take_order(), connections)
        self._group: Group | None = None
        self._lock: Lock | None = None
        self._seen: View | None = None
        # the directory
        self._has_state = asyncio.Event()
        self._held: list[EpochBatch] = []  # batches that wait for it
        self._heard: dict[bytes, None] = {}  # questions for it that were ordered since this replica came
        self._wants = 0  # questions for it that were not answered
        # the program
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._is_stopping = False

    @property
    def is_ready(self) -> bool:
        """Whether this replica knows the directory, and the service has begun."""
        return self._has_state.is_set() and self.desk.directory.service != 0

    @property
    def members(self) -> list[str]:
        """The replicas, as this one sees them; none, while it is out of their group."""
        group = self._group
        return [str(member) for member in group.members] if group is not None and group.view is not None else []

    def subscriptions(self) -> ServedSubscriptions | None:
        """Who is in which group; None: this replica does not know the directory."""
        return subscriptions_of(self.desk.directory) if self.is_ready else None

    def place(self, plan: Sequence[tuple[str, int]]) -> None:
        """Another plan. It holds once the replica that leads has it; the others need it for when they lead."""
        self._plan = tuple(plan)
        if self._lock is not None and self._lock.is_held and self._has_state.is_set():
            self._order_plan()

    def status(self) -> dict[str, object]:
        return {"replica": str(self._node.member), "replicas": self.members, **self.desk.status()}

    async def run(self) -> None:
        """Join the other replicas, or begin; go on until `stop`; leave."""
        host = self._driver.host
        self._driver.prepare(REGIONS_UNDERLAY, "token")
        host.attached.add(self.desk)
        self._driver.add_listener(self)
        self._touch()
        try:
            self._group = await self._enter()
            if self._group is None:
                return
            async with asyncio.TaskGroup() as tasks:
                for work in (self._receive(self._group), self._learn(self._group), self._lead(self._group)):
                    tasks.create_task(work)
                tasks.create_task(self._end(self._group))
        except BaseExceptionGroup as errors:
            others = errors.split(_Stopped)[1]
            if others is not None:
                raise others.exceptions[0] from None
        finally:
            self.desk.follow(self._driver.now_ns(), None)
            self.desk.stop()
            host.attached.remove(self.desk)
            host.has_ended = True  # the driver need not listen for the service any more

    def stop(self) -> None:
        """End in order: the lock is given back, and the group is left."""
        self._is_stopping = True
        self._over.set()

    def settle(self) -> None:
        """A pass has ended: perhaps another replica leads, or something is to be ordered."""
        group = self._group
        if group is None or self._is_stopping:
            return
        view = group.view if group.is_member else None
        if view is not self._seen:
            self._seen = view
            holder = view.locks.get(SERVICE_LOCK, 0) if view is not None else 0
            leader = view.member(holder) if view is not None and holder else None
            if leader is not None and leader.id == self._node.member.id and not self._has_state.is_set():
                leader = None
            self.desk.follow(self._driver.now_ns(), leader)
            self._news.set()
        if self.desk.wants_batch or (self._lock is not None and not self._lock.is_held):
            self._news.set()

    def fail(self, error: OrdercastError) -> None:
        """The node has failed: the tasks hear of it from the group."""
        self._say(str(error))

    # Tasks. ----------------------------------------------------------------------------------------------------------

    async def _enter(self) -> Group | None:
        """Join the group of replicas, however long that takes; None: this replica was stopped before."""
        joining = asyncio.ensure_future(self._node.join(SERVICE_GROUP, timeout=None, **self._join))
        stopping = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
            return joining.result() if joining.done() else None
        finally:
            for task in (joining, stopping):
                task.cancel()
            await asyncio.gather(joining, stopping, return_exceptions=True)

    async def _end(self, group: Group) -> None:
        await self._over.wait()
        if self._lock is not None:
            self._lock.release()
        if group.is_member:
            await group.leave()
        raise _Stopped

    async def _receive(self, group: Group) -> None:
        """Apply what is ordered."""
        async for event in group:
            if isinstance(event, Message):
                self._on_message(event)
            elif isinstance(event, View):
                self._on_view(event)
            elif isinstance(event, Left):
                self._lose_state()
            elif isinstance(event, Uncertain):
                self.desk.failed(self._driver.now_ns())
        if not self._is_stopping:
            raise _Stopped  # out of the group for good

    def _on_view(self, view: View) -> None:
        """Who makes the group has the directory from the beginning, however fast others follow."""
        if len(view.members) == 1 and not self._has_state.is_set():
            self._take_state(RegionDirectory())

    async def _learn(self, group: Group) -> None:
        """Get the directory, whenever it is not here."""
        while True:
            if self._has_state.is_set() or not group.is_member or group.view is None:
                await asyncio.sleep(RETRY_S)
                continue
            is_first = group.view.members[0].id == self._node.member.id
            if len(group.view.members) == 1 or (is_first and self._wants >= WANT_TRIES):
                self._take_state(RegionDirectory())  # there is none: the service begins
                continue
            self._wants += 1
            try:
                question = _QUESTION.pack(self._node.member.id, self._driver.now_ns())
                await group.send(question, AGREED, _WANT)
            except OrdercastError as error:
                self._say(f"the directory cannot be asked for: {error}")
            await asyncio.sleep(WANT_S)

    async def _lead(self, group: Group) -> None:
        """Wait for the lock, and have epochs ordered while it is held."""
        while True:
            await self._has_state.wait()
            self._lock = group.lock(SERVICE_LOCK)
            try:
                async with self._lock as lock:
                    await self._order(group, lock)
            except OrdercastError as error:
                self.desk.failed(self._driver.now_ns())
                self._say(f"{error}")
            finally:
                self._lock = None
            await asyncio.sleep(RETRY_S)

    async def _order(self, group: Group, lock: Lock) -> None:
        self._say(f"{self._node.member} leads the service")
        self.desk.follow(self._driver.now_ns(), self._node.member)
        if not self.desk.directory.service:
            service = node_id(f"{SERVICE_GROUP}@{self._node.member}", self._driver.now_ns())
            self.desk.order_own(0, NodeRequest(Ask.FOUND, service=service))
        self._order_plan()
        while lock.is_held and self._has_state.is_set():
            self._news.clear()
            batch = self.desk.next_batch(self._driver.now_ns()) if self.desk.wants_batch else None
            if batch is None:
                await self._news.wait()
            else:
                await group.send(encode_batch(batch), MAJORITY, _BATCH, confirm=True)

    def _order_plan(self) -> None:
        if self._plan and dict(self._plan) != self.desk.directory.plan:
            for at in range(0, len(self._plan), MAX_PLACED):
                placed = self._plan[at : at + MAX_PLACED]
                self.desk.order_own(0, NodeRequest(Ask.PLACE, placed=placed, is_first=not at))
        self._touch()

    # What is ordered. ------------------------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        try:
            if message.type == _BATCH:
                self._on_batch(decode_batch(message.payload))
            elif message.type == _WANT:
                self._on_want(message.sender, message.payload)
            elif message.type == _STATE and message.payload[: _QUESTION.size] in self._heard:
                self._take_state(load(message.payload[_QUESTION.size :]))
        except WireError as error:
            self._say(f"{message.sender} sent what no replica sends: {error}")

    def _on_batch(self, batch: EpochBatch) -> None:
        if not self._has_state.is_set():
            self._held.append(batch)
            if len(self._held) > MAX_HELD_BATCHES:
                self._held.clear()  # the next answer is as of a later question
            return
        desk = self.desk
        desk.applied(self._driver.now_ns(), batch, desk.directory.apply(batch))
        self._touch()

    def _on_want(self, sender: str, question: bytes) -> None:
        """The leader tells the directory as it is at this place of the order."""
        if not self._has_state.is_set():
            self._heard[question] = None
            if len(self._heard) > MAX_HEARD:
                del self._heard[next(iter(self._heard))]
        if self._lock is not None and self._lock.is_held and self._has_state.is_set():
            self._say(f"{sender} gets the directory of epoch {self.desk.directory.epoch}")
            asyncio.get_running_loop().create_task(self._tell_state(question + dump(self.desk.directory)))

    async def _tell_state(self, state: bytes) -> None:
        try:
            if self._group is not None:
                await self._group.send(state, AGREED, _STATE)
        except OrdercastError as error:
            self._say(f"the directory cannot be told: {error}")

    def _take_state(self, directory: RegionDirectory) -> None:
        self.desk.directory = directory
        for batch in self._held:
            directory.apply(batch)
        self._held.clear()
        self._heard.clear()
        self._wants = 0
        self._has_state.set()
        self._seen = None  # who leads counts from now on
        self._touch()

    def _lose_state(self) -> None:
        """Out of the group: what was ordered without this replica is not known here."""
        self._has_state.clear()
        self._held.clear()
        self._heard.clear()
        self._wants = 0
        self._seen = None
        self.desk.follow(self._driver.now_ns(), None)
        self.desk.directory = RegionDirectory()
        self._news.set()

    def _touch(self) -> None:
        """Have a pass look at the desk."""
        self._driver.host.touch(self.desk)
        self._driver.wake()


class _Stopped(Exception):
    """The replica is to end."""
