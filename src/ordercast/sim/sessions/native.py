"""A program that uses the client library: `ordercast.connect`, groups, sends, and what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from ordercast.api.group import Group
from ordercast.client.node import ClientNode, connect
from ordercast.engine import Transitional
from ordercast.errors import GroupFailed, JoinRefused, NotMember, OrdercastError, OutcomeUnknown, UsageError
from ordercast.groups.events import Left, Message, Uncertain
from ordercast.service import parse_service
from ordercast.sim.sessions.plan import ClientAct, ClientPlan, Did
from ordercast.sim.sessions.processes import Process
from ordercast.sim.sessions.seen import (
    ClientLife,
    Fate,
    SeenLeft,
    SeenMessage,
    SeenSignal,
    SeenView,
    Sent,
    payload_of,
    tag_of,
)
from ordercast.sim.world import World
from ordercast.view import View

RETRY_S: Final = 0.3
JOIN_S: Final = 120.0


class NativeProgram:
    """One life of a native client."""

    __slots__ = ("_addresses", "_locks", "_may_read", "_plan", "_tasks", "_world", "life", "node", "process")

    def __init__(
        self, world: World, process: Process, plan: ClientPlan, life: ClientLife, addresses: list[str]
    ) -> None:
        self._world = world
        self._plan = plan
        self._addresses = addresses
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._locks: dict[str, asyncio.Lock] = {}  # of groups: one change at a time
        self.process = process
        self.life = life
        self.node: ClientNode | None = None
        life.wanted.update(plan.groups)
        self._run(self._main(), "connect")

    # What the run asks. -----------------------------------------------------------------------------------------------

    @property
    def unrest(self) -> list[str]:
        """What it still has to do."""
        node, name = self.node, self._plan.name
        found = [f"{name} has not come to an end with: {what}" for task, what in self._tasks.items() if not task.done()]
        if node is None or not node.is_connected:
            return [*found, f"{name} is not connected"]
        for group in sorted(self.life.wanted):
            handle = self._group(group)
            if handle is None or not handle.is_member:
                found.append(f"{name} is not in {group}")
            elif handle.has_events and not self._plan.is_fed:
                found.append(f"{name} has not taken everything of {group}")
        return found

    @property
    def is_over(self) -> bool:
        """It cannot be used any more. A client that stops without having been closed was put out for good: no client
        of ours does what a daemon does that for."""
        if self.node is not None and self.node.is_closed and not self.life.is_closed:
            self.life.is_closed = True
            self.life.problems.append("it was disconnected for good")
        return self.life.is_closed

    def views(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """The newest view of each of its groups."""
        found = {}
        for name in self.life.wanted:
            group = self._group(name)
            if group is not None and group.view is not None:
                found[name] = (group.view.id, tuple(str(member) for member in group.view.members))
        return found

    @property
    def member(self) -> str:
        return str(self.node.member) if self.node is not None else ""

    def stall(self, is_stalled: bool) -> None:
        if is_stalled:
            self._may_read.clear()
        else:
            self._may_read.set()

    def act(self, act: ClientAct) -> None:
        match act.kind:
            case Did.JOIN:
                self.life.wanted.add(act.groups[0])
                self._run(self._change(act.groups[0]), f"join {act.groups[0]}")
            case Did.LEAVE:
                self.life.wanted.discard(act.groups[0])
                self._run(self._change(act.groups[0]), f"leave {act.groups[0]}")
            case Did.SEND_EACH:
                self._run(self._send_each(act), str(act))
            case Did.SEND | Did.SEND_MANY | Did.SEND_TO | Did.PRIVATE:
                self._run(self._send(act), str(act))
            case Did.CLOSE:
                self.life.is_closed = True
                self._run(self._close(), "close")
            case Did.ASK:
                self._run(self._ask(), "ask")
            case _:
                raise ValueError(act.kind)

    # Its tasks. -------------------------------------------------------------------------------------------------------

    def _run(self, program: Any, what: str) -> None:
        self._tasks[self.process.start(self._guard(program, what))] = what

    async def _guard(self, program: Any, what: str) -> None:
        """What a program of ours must never meet is a failure of the run."""
        try:
            await program
        except (NotMember, OutcomeUnknown, GroupFailed, TimeoutError):
            return
        except UsageError as error:
            if "already" not in str(error) and not self.life.is_closed:
                self.life.problems.append(f"{what}: UsageError: {error}")
        except OrdercastError as error:
            self.life.problems.append(f"{what}: {type(error).__name__}: {error}")

    async def _main(self) -> None:
        while self.node is None:
            try:
                self.node = await connect(self._addresses, name=self.life.label, timeout=5.0, window=self._plan.window)
            except (NotMember, JoinRefused, TimeoutError):
                await asyncio.sleep(RETRY_S)
        if self._plan.is_fed:
            self.process.start(self._guard(self._read("", self.node.underlay.events()), "receive"))
        await asyncio.gather(*[self._change(group) for group in sorted(self.life.wanted)])

    async def _change(self, name: str) -> None:
        """Join or leave a group, whatever is wanted once the change before has ended."""
        node = await self._connected()
        async with self._locks.setdefault(name, asyncio.Lock()):
            is_in = self._group(name) is not None
            if name in self.life.wanted and not is_in:
                group = await node.join(name, timeout=JOIN_S)
                if not self._plan.is_fed:
                    self.process.start(self._guard(self._read(name, group), "receive"))
            elif name not in self.life.wanted and is_in:
                self.life.left.add(name)
                await node.group(name).leave()

    async def _close(self) -> None:
        node = await self._connected()
        self.life.left.update(self.life.wanted, self._locks)  # also groups whose leave waits for a join
        await node.close()

    async def _ask(self) -> None:
        node = await self._connected()
        answer = await node.ask("status")
        if answer.get("daemon") is None:
            self.life.problems.append(f"ask: no answer in {answer}")

    async def _connected(self) -> ClientNode:
        while self.node is None:
            await asyncio.sleep(RETRY_S)
        return self.node

    def _group(self, name: str) -> Group | None:
        try:
            return self.node.group(name) if self.node is not None else None
        except OrdercastError:
            return None

    async def _send(self, act: ClientAct) -> None:
        node = await self._connected()
        service = parse_service(act.service)
        groups = act.groups
        if act.kind is not Did.SEND_TO and act.kind is not Did.PRIVATE and self._group(groups[0]) is None:
            return
        if act.kind is Did.SEND_TO and len(groups) > 1 and not service.is_ordered:
            groups = groups[:1]
        if act.kind is Did.SEND_MANY:
            sents = [self._note(groups, False) for _ in range(act.count)]
            payloads = [payload_of(sent.tag, act.size) for sent in sents]
            group = node.group(groups[0])
            sending = group.send_many(payloads, service, confirm=act.is_confirmed, priority=act.priority)
            await self._settle(sents, sending, act)
            return
        for _ in range(act.count):
            is_open = act.kind is not Did.SEND
            sent = self._note(groups, is_open)
            data = payload_of(sent.tag, act.size)
            if is_open:
                one = node.send(data, groups=groups, service=service, confirm=act.is_confirmed, priority=act.priority)
            else:
                one = node.group(groups[0]).send(data, service, confirm=act.is_confirmed, priority=act.priority)
            await self._settle([sent], one, act)

    async def _send_each(self, act: ClientAct) -> None:
        node = await self._connected()
        groups = [name for name in act.groups if self._group(name) is not None]
        if not groups:
            return
        sents = [self._note((groups[at % len(groups)],), False) for at in range(act.count)]
        payloads = [payload_of(sent.tag, act.size) for sent in sents]
        names = [sent.groups[0] for sent in sents]
        await self._settle(
            sents,
            node.underlay.send_many(payloads, groups=names, service=parse_service(act.service), priority=act.priority),
            act,
        )

    async def _settle(self, sents: list[Sent], sending: Any, act: ClientAct) -> None:
        try:
            await sending
        except OutcomeUnknown:
            self._fate(sents, Fate.UNKNOWN)
            raise
        except OrdercastError:
            # A confirmed send that ends so may have been delivered: the group was left meanwhile.
            is_refused = act.kind not in (Did.SEND_MANY, Did.SEND_EACH) and not act.is_confirmed
            self._fate(sents, Fate.REFUSED if is_refused else Fate.UNKNOWN)
            raise
        is_confirmed = act.is_confirmed and act.kind is not Did.SEND_EACH
        self._fate(sents, Fate.CONFIRMED if is_confirmed else Fate.ACCEPTED)

    def _fate(self, sents: list[Sent], fate: Fate) -> None:
        for sent in sents:
            sent.fate = fate
            if fate in (Fate.ACCEPTED, Fate.CONFIRMED):
                sent.accepted_ns = self._world.now_ns

    def _note(self, groups: tuple[str, ...], is_open: bool) -> Sent:
        tag = f"{self.life.client}.{self.life.number}.{len(self.life.sent)}"
        sent = self.life.sent[tag] = Sent(tag, groups, is_open, self._world.now_ns)
        return sent

    # What it sees. ----------------------------------------------------------------------------------------------------

    async def _read(self, queue: str, events: AsyncIterator[Any]) -> None:
        seen = self.life.queues.setdefault(queue, [])
        async for event in events:
            while not self._may_read.is_set():
                await self._may_read.wait()
            self._see(queue, seen, event)

    def _see(self, queue: str, seen: list[Any], event: Any) -> None:
        now_ns = self._world.now_ns
        if isinstance(event, Message):
            tag = tag_of(event.payload)
            if not tag:
                self.life.problems.append(f"a message of {event.sender} in {event.groups} is not as it was sent")
            seen.append(SeenMessage(now_ns, event.sender, event.number, event.position, event.groups, tag))
        elif isinstance(event, View):
            members = tuple(str(member) for member in event.members)
            reason = event.reason.name.lower()
            seen.append(SeenView(now_ns, event.group, event.id, members, reason, event.subject, event.header))
        elif isinstance(event, Transitional):
            seen.append(SeenSignal(now_ns, event.group or queue))
        elif isinstance(event, Left):
            self.life.losses += event.returning
            seen.append(SeenLeft(now_ns, event.group or queue, event.wanted, event.returning))
        elif isinstance(event, Uncertain):
            self.life.uncertain += event.count
