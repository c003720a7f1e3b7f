"""One node of the public API: what the driver on real sockets and the simulator's have in common (docs/api.md).

Independent of sockets: `ordercast.runtime.node.Node` and the simulator's node are `NodeBase`s, and the same `Group`
runs on a real loop and on virtual time. A driver runs passes of the `Host` and calls `after_pass` behind each; calls of
the application ask for a pass by `_wake`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from ordercast.config import DEFAULT_ORDERER, Demands, GroupConfig, MinMembers, RecoveryMode
from ordercast.errors import CallTimeout, OrdercastError, UsageError
from ordercast.groups.caller import Call, Caller
from ordercast.groups.checks import (
    Payload,
    as_bytes,
    as_header,
    check_call,
    check_handler,
    check_kind,
    check_min_members,
    check_number,
    check_timeout,
)
from ordercast.groups.group import CALL_TIMEOUT_S, Group, wake_all
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.service import AGREED, RELIABLE, UNRELIABLE, Service
from ordercast.view import Address, Member

JOIN_TIMEOUT_S: Final = 30.0
"""How long `join` tries by default."""

CALLS_PATIENCE_S: Final = 3.0
"""How long `join` waits for calls to the same group that are under way."""

MAX_BUFFERS: Final = 1 << 40
"""Bytes of history that may be asked for; far above what any machine has."""

MAX_TTL: Final = 255
"""IP's time to live has one byte."""


class NodeBase:
    """One node: what a driver has in common with every other. A driver sets `host` before anything is joined."""

    def __init__(self, host: Host, config: GroupConfig) -> None:
        """`config`: what a group is created with where `join` says nothing else."""
        self.host = host
        self._config = config
        self._groups: dict[Port, Group] = {}
        self._error: OrdercastError | None = None

    # What a driver provides.

    def _now_ns(self) -> int:
        """The clock of the host's passes."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Have a pass run soon. Many calls before that pass ask for one."""
        raise NotImplementedError

    def _pass(self) -> None:
        """Have a pass run now, if the driver can and has not done so in this turn of the loop; else soon."""
        self._wake()

    def _prepare(self, group: str) -> None:
        """A group is about to be opened: listen to its address, or raise what stands against it."""

    async def _locate(self, contact: str | Address) -> Address:
        """The address of a node that the application named; may take a while, where a name is looked up."""
        raise NotImplementedError

    def _contacts(self) -> Sequence[Address]:
        """Nodes through which a group may be reached where multicast does not find it."""
        return ()

    async def close(self) -> None:
        """Leave all groups and stop."""
        raise NotImplementedError

    # What a driver calls.

    def after_pass(self) -> None:
        """Let everybody who waited for something that the pass brought go on."""
        for port in self.host.take_news():
            if isinstance(port, Caller):
                wake_all(port.settled)
                continue
            group = self._groups.get(port)
            if group is not None:
                group._settle()
                if port.gone is not None:
                    del self._groups[port]

    def fail(self, error: OrdercastError) -> None:
        """The node cannot go on: everybody who waits, and every later call, learns why."""
        self._error = error
        for group in list(self._groups.values()):
            group._fail(error)
        self._groups.clear()
        for caller in self.host.callers:
            caller.fail(error)
            wake_all(caller.settled)

    # What the application calls.

    @property
    def member(self) -> Member:
        """This node, as views name it."""
        return self.host.me

    @property
    def name(self) -> str:
        return self.host.me.name

    @property
    def groups(self) -> list[Group]:
        """The groups that this node is in, in the order in which it joined."""
        return list(self._groups.values())

    async def join(
        self,
        name: str,
        *,
        orderer: str = DEFAULT_ORDERER,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        resilience: int | None = None,
        max_members: int | None = None,
        buffers: int | None = None,
        max_message: int | None = None,
        flow: str | None = None,
        anticipate: bool | None = None,
        header: bytes = b"",
        timeout: float | None = JOIN_TIMEOUT_S,
        ttl: int | None = None,
        contact: str | Address | None = None,
    ) -> Group:
        """Become a member; returns with the first view. Amoeba's CreateGroup and JoinGroup (section 3).

        create: True makes a new group and fails if there is one, False joins and fails if there is none, None does
        whichever is right. resilience, max_members, buffers (bytes of history) and max_message are the group's from
        its creation on; given at a join, they say what this node can bear, and a group that asks for more refuses it.
        flow ("slow-start", "open"): how senders of a token or timestamp group pace themselves; it too is set by who
        creates it, and so is anticipate: whether a timestamp group is TOMPA (True) or ABCAST (False).
        header: a small message that the members get with the view. ttl: how many hops multicasts must go to reach this
        node; the group's is the largest that any member asked for. contact: "host:port" of a member, through which the
        group is joined instead of by its name (RMP section 3.3); it is then never created. Raises JoinRefused,
        UsageError, or TimeoutError after `timeout` seconds (None: never).
        """
        if self._error is not None:
            raise self._error
        if not isinstance(name, str):
            raise UsageError(f"a group's name is a str, not {type(name).__name__}")
        if create is not None and not isinstance(create, bool):
            raise UsageError(f"create is True, False or None, not {create!r}")
        if recovery not in ("automatic", "manual"):
            raise UsageError(f'recovery is "automatic" or "manual", not {recovery!r}')
        check_min_members(min_members)
        limits = {"resilience": resilience, "max_members": max_members, "buffers": buffers, "max_message": max_message}
        for word, limit in limits.items():
            if limit is not None:
                check_number(word, limit)
        if buffers is not None and buffers > MAX_BUFFERS:
            raise UsageError(f"buffers are at most {MAX_BUFFERS} bytes, not {buffers}")
        header = as_header(header)
        check_timeout(timeout)
        if ttl is not None:
            check_number("ttl", ttl)
            if not 0 <= ttl <= MAX_TTL:
                raise UsageError(f"a ttl lies between 0 and {MAX_TTL}, not {ttl}")
        if contact is not None and create:
            raise UsageError("a group that is joined through a contact exists: leave create out")
        located = await self._locate(contact) if contact is not None else None
        await self._settle_calls(name, timeout)
        base = self._config
        config = GroupConfig(
            orderer=orderer,
            resilience=base.resilience if resilience is None else resilience,
            max_members=base.max_members if max_members is None else max_members,
            history_bytes=base.history_bytes if buffers is None else buffers,
            history_blocks=base.history_blocks,
            max_message=base.max_message if max_message is None else max_message,
            datagram=base.datagram,
            flow=base.flow if flow is None else flow,
            anticipate=base.anticipate if anticipate is None else anticipate,
        )
        self._prepare(name)
        port = self.host.open(
            self._now_ns(),
            name,
            config=config,
            create=create if located is None else False,
            min_members=min_members,
            recovery=recovery,
            demands=Demands(max_members, buffers, max_message),
            header=header,
            ttl=ttl,
            contact=located,
        )
        group = Group(self, port)
        self._groups[port] = group
        self._wake()
        try:
            async with asyncio.timeout(timeout):
                await group._joined
        except BaseException as error:
            if port.gone is None and self._error is None:
                # Given up: what is under way is taken back, so that nobody counts on this node. The view may have come
                # in the same turn of the loop as the cancellation: nobody has the handle, and nobody would receive.
                self.host.leave(port)
                self._wake()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"no way into {name!r} was found in {timeout} s") from None
            raise
        return group

    async def call(
        self,
        group: str,
        payload: Payload,
        *,
        service: Service = AGREED,
        handler: int | None = None,
        timeout: float | None = CALL_TIMEOUT_S,
        to: str | Address | None = None,
        ack: bool = True,
        again: bool = False,
        type: int = 0,
    ) -> bytes | None:
        """Send one message to a group that this node need not be in, and get an answer. RMP's multi-RPC (section 4.5).

        handler: its holder answers, and the answer's bytes are returned. Without one the call returns None when the
        message is delivered with its service at the token site, which acknowledges it; with ack=False at once, after
        one try that may be lost. again: a try that comes again and finds no answer is handed to the handler's
        application again. to: "host:port" of a member that passes the call on. Many calls may be under way at once, and
        are carried out in the order in which they were made. A node that is in the group calls as a member.

        Raises CallTimeout (a TimeoutError) after `timeout` seconds (None: never): the call may or may not have been
        carried out. MessageTooLarge: a call, like an answer, fits one block.
        """
        if self._error is not None:
            raise self._error
        if not isinstance(group, str):
            raise UsageError(f"a group's name is a str, not {group.__class__.__name__}")
        check_kind(service, type)
        check_timeout(timeout)
        payload = as_bytes(payload)
        check_call(len(payload), "a call")
        if handler is not None:
            check_handler(handler)
            if not ack:
                raise UsageError("a call with a handler is answered: leave out the handler, or ack=False")
            if service == UNRELIABLE:
                service = RELIABLE  # who must answer is a question of its place, and UNRELIABLE messages have none
        elif again:
            raise UsageError("again=True hands a call to the holder of a handler again: name the handler")
        call: Call | None = None
        try:
            async with asyncio.timeout(timeout) as bound:
                located = await self._locate(to) if to is not None else None
                joined = await self._joined(group)
                if joined is not None and handler is not None:
                    return await joined.call(payload, handler=handler, service=service, timeout=None, type=type)
                if joined is not None:
                    await joined.send(payload, service, type, confirm=ack)
                    return None
                call = Call(payload, service, handler=handler, type_=type, to=located, wants_ack=ack, wants_again=again)
                await self._outcome(group, call)
        except TimeoutError:
            if not bound.expired():
                raise
            raise CallTimeout(_how_far(group, call, timeout)) from None
        return call.answer if handler is not None else None

    async def _joined(self, name: str) -> Group | None:
        """The group, if this node is in it; waits while it is on its way in or out."""
        while (port := self.host.port(name)) is not None and (group := self._groups.get(port)) is not None:
            if await group._is_in():
                return group
            if self._error is not None:
                raise self._error
        return None

    async def _outcome(self, name: str, call: Call) -> None:
        contacts = self._contacts()
        if call.to is None and not contacts and not self.member.has_multicast:
            raise UsageError(f"this node has neither multicast nor peers: name a member of {name!r} by to=...")
        caller = self.host.caller(name, datagram=self._config.datagram, contacts=contacts)
        call.waiter = asyncio.get_running_loop().create_future()
        caller.offer(call)
        self.host.touch(caller)
        self._pass()
        try:
            await call.waiter
        except BaseException:
            caller.forget(call)
            raise
        if call.error is not None:
            raise call.error

    async def _settle_calls(self, name: str, timeout: float | None) -> None:
        """Before this node becomes a member: give its calls to the group a while to end. Those that do not are lost."""
        for caller in self.host.callers:
            if caller.group == name and caller.waiting:
                patience = CALLS_PATIENCE_S if timeout is None else min(timeout / 2, CALLS_PATIENCE_S)
                await asyncio.wait([call.waiter for call in caller.waiting], timeout=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _how_far(group: str, call: Call | None, timeout: float | None) -> str:
    """What is known of a call that has not come to an end in time."""
    if call is None or call.number < 0:
        return f"the call to {group!r} has not left within {timeout} s: earlier ones are still under way"
    if call.is_acknowledged:
        return f"the call to {group!r} was delivered, and handler {call.handler} has not answered within {timeout} s"
    return f"nobody in {group!r} has answered within {timeout} s: the call may or may not have been carried out"
