"""The program on one node of regions, for one life: joins, leaves, sends, and what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final

from ordercast.api.group import Group
from ordercast.api.shared import SharedUnderlay
from ordercast.config import REGIONS_ORDERER, REGIONS_UNDERLAY
from ordercast.errors import NotMember, OrdercastError, OutcomeUnknown
from ordercast.groups.events import Batch, Left, Message
from ordercast.service import FIFO, parse_service
from ordercast.sim.api import SimNode
from ordercast.sim.regions.plan import Deed, RegionAct, RegionNodePlan
from ordercast.sim.sessions.seen import payload_of, tag_of

JOIN_S: Final = 120.0
RETRY_S: Final = 0.3
PROBE_BYTES: Final = 60


class RegionProgram:
    """One life of a node's application."""

    __slots__ = (
        "_detaching",
        "_is_attached",
        "_locks",
        "_may_read",
        "_plan",
        "_sent",
        "_tasks",
        "confirmed",
        "got",
        "is_closing",
        "node",
        "problems",
        "wanted",
    )

    def __init__(self, plan: RegionNodePlan, node: SimNode) -> None:
        self._plan = plan
        self.node = node
        self.wanted: dict[str, None] = dict.fromkeys(plan.groups)
        self.is_closing = False
        self._is_attached = True  # it wants to be in the service
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._locks: dict[str, asyncio.Lock] = {}  # of groups: one change at a time
        self._detaching = asyncio.Lock()  # one leaves everything and comes back, and then the next
        self._sent = 0
        # what it saw
        self.got: set[str] = set()  # tags
        self.confirmed = 0
        self.problems: list[str] = []
        self._run(self._main(), "begin")

    def __str__(self) -> str:
        return str(self.node.member)

    # What the run asks. -----------------------------------------------------------------------------------------------

    @property
    def unrest(self) -> list[str]:
        """What it still has to do."""
        found = [f"{self} has not come to an end with: {what}" for task, what in self._tasks.items() if not task.done()]
        for name in self.wanted:
            group = self._group(name)
            if group is None or not group.is_member:
                found.append(f"{self} is not in {name}")
        return found

    @property
    def is_wanted(self) -> bool:
        """Whether it wants to be in the service."""
        return self._is_attached and not self.is_closing

    @property
    def leads_region(self) -> bool:
        """Whether its node starts the tokens of its region."""
        regions = self.node.host.attached.regions
        own = regions.views.own if regions is not None else None
        return own is not None and own.members[0].id == self.node.member.id

    def view_of(self, name: str) -> list[str]:
        """The members of one of its groups, in the newest view."""
        group = self._group(name)
        view = group.view if group is not None else None
        return [str(member) for member in view.members] if view is not None else []

    def stall(self, is_stalled: bool) -> None:
        if is_stalled:
            self._may_read.clear()
        else:
            self._may_read.set()

    def act(self, act: RegionAct) -> None:
        match act.kind:
            case Deed.JOIN | Deed.JOIN_MANY:
                self.wanted.update(dict.fromkeys(act.groups))
                self._run(self._change(act.groups, at_once=act.kind is Deed.JOIN_MANY), str(act))
            case Deed.LEAVE | Deed.LEAVE_MANY:
                self._forget(act.groups)
                self._run(self._change(act.groups, at_once=act.kind is Deed.LEAVE_MANY), str(act))
            case Deed.MOVE:
                half = len(act.groups) // 2
                self._forget(act.groups[:half])
                self.wanted.update(dict.fromkeys(act.groups[half:]))
                self._run(self._change(act.groups, at_once=True), str(act))
            case Deed.DETACH:
                self._run(self._detach(act), str(act))
            case Deed.FLUSH:
                self._run(self._flush(), str(act))
            case Deed.SEND_EACH:
                self._run(self._send_each(act), str(act))
            case _:
                self._run(self._send(act), str(act))

    def probe(self, groups: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
        """A message to each of its groups, and one to all of `groups`: their tags, and where they go."""
        found = []
        for targets in [*[(name,) for name in self.wanted], *([tuple(groups)] if groups else [])]:
            tag = self._tag()
            found.append((tag, targets))
            self._run(self._send_one(tag, targets), f"probe {tag}")
        return found

    # Its tasks. -------------------------------------------------------------------------------------------------------

    def _run(self, program: Coroutine[Any, Any, None], what: str) -> None:
        self._tasks[asyncio.get_running_loop().create_task(self._guard(program, what))] = what

    async def _guard(self, program: Coroutine[Any, Any, None], what: str) -> None:
        """What a program of ours must never meet is a failure of the run."""
        try:
            await program
        except (NotMember, OutcomeUnknown):
            return  # the node has crashed, the group was left meanwhile, or the node was put out
        except (OrdercastError, TimeoutError) as error:
            if self.node.is_up:
                self.problems.append(f"program: {self}, {what}: {type(error).__name__}: {error}")

    async def _main(self) -> None:
        if self._plan.is_fed:
            await self._feed()
        await self._change(tuple(self.wanted), at_once=self._plan.is_fed)

    async def _feed(self) -> None:
        """From here on everything is received at one place."""
        underlay = await self._attach()
        events = underlay.batches() if self._plan.is_batched else underlay.events()
        asyncio.get_running_loop().create_task(self._guard(self._read(events), "receive"))

    async def _attach(self) -> SharedUnderlay:
        return await self.node.attach(REGIONS_UNDERLAY, timeout=JOIN_S)

    async def _change(self, names: Sequence[str], *, at_once: bool) -> None:
        """Join or leave groups, whatever is wanted once the changes before have ended."""
        locks = [self._locks.setdefault(name, asyncio.Lock()) for name in sorted(names)]
        for lock in locks:
            await lock.acquire()
        try:
            if not self._is_attached or self.is_closing:
                return
            joins = [name for name in names if name in self.wanted and self._group(name) is None]
            leaves = [name for name in names if name not in self.wanted and self._group(name) is not None]
            if not at_once:
                for name in joins:
                    self._receive(await self.node.join(name, orderer=REGIONS_ORDERER, timeout=JOIN_S))
                for name in leaves:
                    await self.node.group(name).leave()
                return
            changes: list[Coroutine[Any, Any, None]] = []
            if leaves:
                changes.append(self.node.leave_many(leaves))
            if joins:
                changes.append(self.node.join_many(joins, orderer=REGIONS_ORDERER))
            await asyncio.gather(*changes)
            for name in joins:
                self._receive(self.node.group(name))
        finally:
            for lock in locks:
                lock.release()

    def _receive(self, group: Group) -> None:
        if not self._plan.is_fed:
            asyncio.get_running_loop().create_task(self._guard(self._read(group), "receive"))

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            self.wanted.pop(name, None)

    async def _detach(self, act: RegionAct) -> None:
        """Leave everything, and come back for what is wanted then. Two at once would come back together, and both of
        them would receive."""
        async with self._detaching:
            await self._leave_and_come_back(act.for_ns)

    async def _leave_and_come_back(self, for_ns: int) -> None:
        locks = [self._locks.setdefault(name, asyncio.Lock()) for name in sorted(self._locks)]
        for lock in locks:
            await lock.acquire()
        try:
            self._is_attached = False
            await (await self._attach()).detach()
            await asyncio.sleep(for_ns / 1e9)
        finally:
            self._is_attached = True
            for lock in locks:
                lock.release()
        await self._attach()
        await self._main()

    async def _flush(self) -> None:
        await (await self._attach()).flush()

    def _group(self, name: str) -> Group | None:
        try:
            return self.node.group(name)
        except OrdercastError:
            return None

    # Sending. ---------------------------------------------------------------------------------------------------------

    def _tag(self) -> str:
        self._sent += 1
        return f"{self.node.member}.{self._sent - 1}"

    async def _send(self, act: RegionAct) -> None:
        service, groups = parse_service(act.service), act.groups
        if act.kind is Deed.SEND_TO:
            underlay = await self._attach()
            for _ in range(act.count):
                data = payload_of(self._tag(), act.size)
                await underlay.send(data, groups=groups, service=service, confirm=act.is_confirmed)
                self.confirmed += act.is_confirmed
            return
        group = self._group(groups[0])
        if group is None:
            return
        payloads = [payload_of(self._tag(), act.size) for _ in range(act.count)]
        if act.kind is Deed.SEND_MANY and act.is_confirmed:
            await group.send_many(payloads, service, confirm=True)
        elif act.kind is Deed.SEND_MANY:
            await group.send_many(payloads, service)
        else:
            for data in payloads:
                await group.send(data, service, confirm=act.is_confirmed)
        self.confirmed += act.is_confirmed * act.count

    async def _send_each(self, act: RegionAct) -> None:
        groups = [name for name in act.groups if self._group(name) is not None]
        if not groups:
            return
        underlay = await self._attach()
        groups = [name for name in groups if name in underlay.groups]
        if not groups:
            return
        names = [groups[at % len(groups)] for at in range(act.count)]
        payloads = [payload_of(self._tag(), act.size) for _ in names]
        await underlay.send_many(payloads, groups=names, service=parse_service(act.service))

    async def _send_one(self, tag: str, groups: Sequence[str]) -> None:
        await (await self._attach()).send(payload_of(tag, PROBE_BYTES), groups=groups, service=FIFO)

    # What it sees. ----------------------------------------------------------------------------------------------------

    async def _read(self, events: AsyncIterator[Any]) -> None:
        async for event in events:
            while not self._may_read.is_set():
                await self._may_read.wait()
            if isinstance(event, Message):
                self._see(event)
            elif isinstance(event, Batch):
                for message in event.each():
                    self._see(message)
            elif isinstance(event, Left) and event.wanted == event.returning:
                self.problems.append(f"program: {self} got {event}")

    def _see(self, message: Message) -> None:
        tag = tag_of(message.payload)
        if not tag.startswith(f"{message.sender}."):
            self.problems.append(f"payload: {self} got {message}, which is not as it was sent")
            return
        if tag in self.got:
            self.problems.append(f"payload: {self} got {tag} twice")
        self.got.add(tag)
