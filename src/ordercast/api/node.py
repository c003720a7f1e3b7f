"""One node of the public API: what nodes on real sockets and simulated ones have in common (docs/api.md).

A node stands on a `NodeBackend` (`seat.py`). `ordercast.runtime.node.Node` and the simulator's node are `NodeBase`s
that make their backend, so the same `Group` runs on a real loop and in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, Unpack

from ordercast.api.checks import (
    Payload,
    as_bytes,
    as_header,
    check_call,
    check_group_name,
    check_handler,
    check_timeout,
    check_underlay_name,
)
from ordercast.api.feeding import Feed, NodeFeed
from ordercast.api.group import CALL_TIMEOUT_S, Group
from ordercast.api.handles import OpenGroups
from ordercast.api.seat import JoinRequest, NodeBackend, Seat
from ordercast.api.shared import SharedUnderlay
from ordercast.api.terms import (
    PLAIN_TERMS,
    UnderlayTerms,
    as_request,
    check_carried,
    check_contact,
    regions_request,
)
from ordercast.config import REGIONS_ORDERER, REGIONS_UNDERLAY, SITES_ORDERER, SITES_UNDERLAY
from ordercast.errors import CallTimeout, JoinRefused, NotMember, UsageError
from ordercast.groups.caller import Call
from ordercast.groups.checks import check_kind
from ordercast.groups.events import Event, PortEvent
from ordercast.service import AGREED, RELIABLE, UNRELIABLE, Service
from ordercast.view import Address, Member

JOIN_TIMEOUT_S: Final = 30.0
"""How long `join` tries by default."""

UNDERLAYS: Final = {SITES_ORDERER: SITES_UNDERLAY, REGIONS_ORDERER: REGIONS_UNDERLAY}
"""The underlay that carries groups of an orderer where no other is named."""

CALLS_PATIENCE_S: Final = 3.0
"""How long `join` waits for calls to the same group that are under way."""


class NodeBase:
    """One node. A subclass makes the backend and ends it in `close`."""

    def __init__(self, backend: NodeBackend) -> None:
        self._backend = backend
        self._open = OpenGroups(backend)
        self._shared: dict[str, SharedUnderlay] = {}  # by the name of the underlay

    def __repr__(self) -> str:
        host, port = self.member.address
        names = ", ".join(repr(group.name) for group in self.groups) or "no groups"
        state = " (stopped)" if self._open.error is not None else ""
        return f"<{type(self).__name__} {self.member} at {host}:{port}{state}: {names}>"

    @property
    def member(self) -> Member:
        """This node, as views name it."""
        return self._backend.member

    @property
    def name(self) -> str:
        """The name of this node."""
        return self._backend.member.name

    @property
    def groups(self) -> list[Group]:
        """The groups that this node is in, in the order in which it joined. Of those that `join_many` joined it has the
        ones that `group` was asked for; `SharedUnderlay.groups` names all of them."""
        return self._open.all

    @property
    def stats(self) -> dict[str, int]:
        """Counters of the node. `ordercast.api.stats.NODE_STATS` lists them; all are always there."""
        return self._backend.stats()

    async def close(self) -> None:
        """Leave all groups and stop."""
        raise NotImplementedError

    async def groups_at(self, contact: str | Address) -> list[str]:
        """The names of the groups that another node is in, by its address: "host:port". RMP section 3.3.

        Raises JoinRefused where it does not answer.
        """
        self._check_running()
        address = await self._backend.locate(contact)
        query = self._backend.ask_names(address)
        query.waiter = asyncio.get_running_loop().create_future()
        try:
            await query.waiter
        finally:
            self._backend.forget_names(query)
        if query.error is not None:
            raise query.error
        if query.names is None:
            raise JoinRefused(f"{address[0]}:{address[1]} does not answer: no node is there, or it cannot be reached")
        return query.names

    async def _group_at(self, contact: str | Address | None) -> str:
        """The name of the one group that a node is in."""
        if contact is None:
            raise UsageError('join by a name, or by the address of a member: join("prices"), join(contact="host:port")')
        names = await self.groups_at(contact)
        if len(names) != 1:
            shown = ", ".join(map(repr, names)) or "no group"
            raise JoinRefused(f"the node at {contact!r} is in {shown}: give the name of the group to join")
        return names[0]

    async def join(
        self,
        name: str | None = None,
        *,
        header: bytes = b"",
        timeout: float | None = JOIN_TIMEOUT_S,
        contact: str | Address | None = None,
        underlay: str | None = None,
        **terms: Unpack[UnderlayTerms],
    ) -> Group:
        """Become a member; returns with the first view. Amoeba's CreateGroup and JoinGroup (section 3).

        orderer: by default the node's: "token", or "sites" where it is a daemon of sites. A group of that orderer is on
        a shared underlay, which is called "sites" if no other is named.
        create: True makes a new group and fails if there is one, False joins and fails if there is none, None does
        whichever is right. resilience, max_members, buffers (bytes of history), nr_buf (blocks of history; whichever is
        used up first counts) and max_message are the group's from its creation on; given at a join, they say what this
        node can bear, and a group that needs more refuses it.
        flow ("slow-start", "open"): how senders of a token or timestamp group pace themselves. On regions ("window",
        "demand", "qsm") it is this node's, for all that it sends; the first join sets it. anticipate: whether a
        timestamp group is TOMPA (True) or ABCAST (False). The node that creates the group sets both.
        header: a small message that the members get with the view. ttl: how many hops multicasts must go to reach this
        node; the group's is the largest that any member asked for. contact: "host:port" of a member, through which the
        group is joined (RMP section 3.3); it is then never created, and the name may be left out where the member is in
        one group only. alone: what
        this node does if the group goes on without it and no member answers when it comes back: it makes the group anew
        ("create", as a newcomer would), looks for it without end ("wait"), or leaves ("leave"). bootstrap: how many
        members the group must have had before it takes messages and grants locks; its creator decides. A number for
        min_members is what this member needs at any time. `ready` waits for both. slow: what becomes of a
        member whose application does not receive. It is put out in order when it has held up the group for `patience`
        seconds without receiving anything, and comes back when it receives ("evict"), or the group waits for it
        ("wait"). Both are the creator's to set; another member gets what the group has. underlay: the shared
        underlay that carries the group with any number of others, in one order over all of them; `attach` says what it
        is made with, and a join has only a header and a timeout then. Raises JoinRefused,
        UsageError, or TimeoutError after `timeout` seconds (None: never). A join that has failed or was cancelled
        leaves nothing behind: the next one may follow at once.
        """
        self._check_running()
        if name is not None:
            check_group_name(name)
        header = as_header(header)
        check_timeout(timeout)
        usual, orderer = self._backend.defaults.orderer, terms.get("orderer")
        create = terms.get("create")
        if underlay is None:
            underlay = self._backend.carrier or UNDERLAYS.get(orderer or usual)
        if underlay is not None:
            check_carried(REGIONS_ORDERER if underlay == REGIONS_UNDERLAY else orderer or usual, terms, contact)
            asked: dict[str, object] = {**terms, "contact": contact}
            flow = terms.get("flow") if underlay == REGIONS_UNDERLAY else None
            if flow is not None:
                del asked["flow"]  # the node's, for all groups on regions: whichever comes first sets it
            if orderer in (usual, *UNDERLAYS):
                del asked["orderer"]  # said to be as it is, or where the underlay gets it from
            name = _check_shared(name, underlay, asked, self._where_terms_go(underlay))
            return await self._join_shared(name, underlay, orderer, header, timeout, flow)
        request = as_request(self._backend.defaults, terms)
        if contact is not None and create:
            raise UsageError("a group that is joined through a contact exists: leave create out")
        if name is None:
            name = await self._group_at(contact)
        located = await self._backend.locate(contact) if contact is not None else None
        await self._settle_calls(name, timeout)
        request = replace(request, create=create if located is None else False, contact=located, header=header)
        return await self._enter(name, request, timeout)

    async def _join_shared(
        self, name: str, underlay: str, orderer: str | None, header: bytes, timeout: float | None, flow: str | None
    ) -> Group:
        """Join a lightweight group; its underlay first, where this node is not in it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        handle = await self.attach(underlay, orderer=orderer, timeout=timeout, flow=flow)
        if timeout is not None:
            timeout = max(0.0, timeout - (clock() - started))
        defaults = self._backend.defaults
        request = JoinRequest(replace(defaults, orderer=handle.config.orderer), header=header, underlay=underlay)
        return await self._enter(name, request, timeout)

    async def _enter(self, name: str, request: JoinRequest, timeout: float | None) -> Group:
        """Open a group, and wait for its first view."""
        seat: Seat | None = None
        try:
            async with asyncio.timeout(timeout) as bound:
                await self._wait_for_leave(name)
                seat = self._backend.open(name, request)
                group = self._open.add(seat)
                await group._wait_until_joined()
        except BaseException as error:
            if seat is not None:
                # What is under way is taken back, so that no member counts on this node. The view may have come in the
                # same turn of the loop as the cancellation: nothing has the handle then, and nothing would receive.
                self._open.abandon(seat)
            if isinstance(error, TimeoutError) and bound.expired():
                raise TimeoutError(f"no way into {name!r} was found in {timeout} s") from None
            raise
        return group

    async def attach(
        self,
        underlay: str,
        *,
        timeout: float | None = JOIN_TIMEOUT_S,
        contact: str | Address | None = None,
        **terms: Unpack[UnderlayTerms],
    ) -> SharedUnderlay:
        """Come into a shared underlay, which carries any number of groups; returns with its first view.

        The arguments are those of `join`, for the underlay. A node that is in it already gets the handle that it has.
        """
        self._check_running()
        check_underlay_name(underlay)
        check_timeout(timeout)
        create = terms.get("create")
        if underlay == REGIONS_UNDERLAY and terms.get("orderer") is None:
            terms = {**terms, "orderer": REGIONS_ORDERER}
        request = as_request(self._backend.defaults, terms)
        orderer = request.config.orderer
        check_contact(orderer, contact)
        if orderer == REGIONS_ORDERER and underlay != REGIONS_UNDERLAY:
            raise UsageError(f"all regions of a node are the underlay {REGIONS_UNDERLAY!r}: leave underlay out")
        if contact is not None and create:
            raise UsageError("an underlay that is joined through a contact exists: leave create out")
        located = await self._backend.locate(contact) if contact is not None else None
        request = replace(request, create=create if located is None else False, contact=located)
        handle: SharedUnderlay | None = None
        try:
            async with asyncio.timeout(timeout) as bound:
                handle = await self._begin_to_attach(underlay, request, terms.get("flow"))
                await handle._wait_until_attached()
        except BaseException as error:
            if handle is not None and not handle._is_wanted:
                self._shared.pop(underlay, None)
                self._open.abandon(handle._seat)
            if isinstance(error, TimeoutError) and bound.expired():
                hint = _NEEDS_SERVICE if orderer == REGIONS_ORDERER else ""
                raise TimeoutError(f"no way into the underlay {underlay!r} was found in {timeout} s{hint}") from None
            raise
        return handle

    async def _begin_to_attach(self, underlay: str, request: JoinRequest, flow: str | None) -> SharedUnderlay:
        """The handle of an underlay; the first task that wants it opens it. `flow`: as it was asked for."""
        while (handle := self._shared.get(underlay)) is not None and not handle._is_open:
            await handle._group._wait_until_left()
            self._check_running()
            if self._shared.get(underlay) is handle:
                del self._shared[underlay]
        if handle is None:
            seat = self._backend.attach(underlay, request)
            handle = self._shared[underlay] = SharedUnderlay(seat, self._open.add_base(seat), request)
            return handle
        had, defaults = handle._request, self._backend.defaults
        is_on_regions = underlay == REGIONS_UNDERLAY
        if is_on_regions and flow not in (None, had.config.flow):
            raise UsageError(
                f"this node sends to all its groups on regions with flow={had.config.flow!r}: leave flow out, or "
                "detach first"
            )
        plain = regions_request(defaults) if is_on_regions else JoinRequest(defaults)
        if request not in (had, plain):
            raise UsageError(
                f"this node is attached to {underlay!r} already, with other parameters: leave them out, or detach first"
            )
        return handle

    def group(self, name: str) -> Group:
        """The handle of a group that this node is in, also of one that was joined with `join_many`."""
        self._check_running()
        found = self._open.named(name)
        if found is None:
            seat = self._backend.seat(name)
            if seat is None:
                raise NotMember(f"this node is not in {name!r}: join it first")
            found = self._open.add(seat)
            found._settle()
        return found

    async def join_many(
        self, names: Iterable[str], *, underlay: str | None = None, header: bytes = b"", orderer: str | None = None
    ) -> None:
        """Join many groups of a shared underlay, which is attached first where it is not: see `SharedUnderlay`.

        It may be left out where this node is a daemon of sites, and with orderer="regions".
        """
        if underlay is None:
            underlay = self._backend.carrier or UNDERLAYS.get(orderer or self._backend.defaults.orderer)
            if underlay is None:
                raise UsageError("say which underlay carries the groups: join_many(names, underlay=...)")
        await (await self.attach(underlay, orderer=orderer)).join_many(names, header)

    async def leave_many(self, names: Iterable[str], *, underlay: str | None = None, header: bytes = b"") -> None:
        """Leave many groups of a shared underlay. It may be left out where this node is attached to one only."""
        await self._attached(underlay).leave_many(names, header)

    async def send(
        self,
        payload: Payload,
        *,
        groups: Sequence[str],
        underlay: str | None = None,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        priority: int = 0,
    ) -> int | None:
        """Send one message to several groups, or to one, that this node need not be in: see `SharedUnderlay.send`.

        underlay: where the groups are. It may be left out where this node is attached to one only.
        """
        shared = self._attached(underlay)
        sending = shared.send(payload, groups=groups, service=service, type=type, confirm=confirm, priority=priority)
        return await sending

    def feed(self, fn: NodeFeed, *, service: Service | None = None, type: int = 0) -> Feed[tuple[str, Payload]]:
        """Have a function asked for messages to groups on regions when they may leave: see `SharedUnderlay.feed`."""
        return self._attached(REGIONS_UNDERLAY).feed(fn, service=service, type=type)

    def events(self, underlay: str | None = None) -> AsyncIterator[Event]:
        """All groups of this node on a shared underlay, in one order: see `SharedUnderlay.events`."""
        return self._attached(underlay).events()

    def batches(self, underlay: str | None = None) -> AsyncIterator[PortEvent]:
        """The same, with blocks of messages as they come: see `SharedUnderlay.batches`."""
        return self._attached(underlay).batches()

    def _attached(self, underlay: str | None) -> SharedUnderlay:
        """A shared underlay that this node is attached to."""
        self._check_running()
        shared = {name: handle for name, handle in self._shared.items() if handle._is_open}
        if underlay is None and len(shared) == 1:
            return next(iter(shared.values()))
        if underlay is None:
            names = " and ".join(map(repr, shared)) or "none"
            raise UsageError(f"say which underlay: this node is attached to {names}")
        found = shared.get(underlay)
        if found is None:
            raise UsageError(f"this node is not attached to {underlay!r}: await node.attach({underlay!r}) first")
        return found

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
        self._check_running()
        check_group_name(group)
        check_kind(service, type)
        check_timeout(timeout)
        payload = as_bytes(payload)
        check_call(len(payload), "a call")
        if handler is not None:
            check_handler(handler)
            if not ack:
                raise UsageError("a call with a handler is answered: leave out the handler, or ack=False")
            if service == UNRELIABLE:
                service = RELIABLE  # the order decides who must answer, and UNRELIABLE messages are not in it
        elif again:
            raise UsageError("again=True hands a call to the holder of a handler again: name the handler")
        call: Call | None = None
        try:
            async with asyncio.timeout(timeout) as bound:
                located = await self._backend.locate(to) if to is not None else None
                joined = await self._joined(group)
                if joined is not None and handler is not None:
                    return await joined.call(payload, handler=handler, service=service, timeout=None, type=type)
                if joined is not None:
                    await joined.send(payload, service, type, confirm=ack)
                    return None
                shared = self._backend.shared_underlay_of(group)
                if shared is not None:
                    if again:
                        raise UsageError(f"calls on the underlay {shared!r} are never lost: leave again out")
                    handle = self._attached(shared)
                    return await handle._call(group, payload, handler, service, type, ack)
                call = Call(payload, service, handler=handler, type_=type, to=located, wants_ack=ack, wants_again=again)
                await self._outcome(group, call)
        except TimeoutError:
            if not bound.expired():
                raise
            how_far = _how_far(group, call, timeout) if call is not None else _no_answer(group, handler, timeout)
            raise CallTimeout(how_far) from None
        return call.answer if handler is not None else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # In detail.

    def _check_running(self) -> None:
        if self._open.error is not None:
            raise self._open.error

    def _where_terms_go(self, underlay: str) -> str:
        """What to do with terms of an underlay that were given to the join of a group."""
        return f"give them to await node.attach({underlay!r}, ...) before the first join"

    async def _leave_regions(self) -> None:
        """Leave all groups on regions: before a replica of the membership service in this node ends."""
        regions = self._shared.get(REGIONS_UNDERLAY)
        if regions is not None:
            await regions.detach()

    async def _leave_all(self) -> None:
        """Leave all groups and underlays, as far as that goes."""
        underlays = [handle.detach() for handle in self._shared.values()]
        await asyncio.gather(*underlays, *(group.abandon() for group in self.groups))

    async def _joined(self, name: str) -> Group | None:
        """The group, if this node is in it; waits while it is on its way in or out."""
        while (group := self._open.named(name)) is not None:
            if await group._is_in():
                return group
            self._check_running()
        return None

    async def _wait_for_leave(self, name: str) -> None:
        """Wait for the end of a membership that was left or given up, where it has not ended yet."""
        while (group := self._open.named(name)) is not None and group._is_leaving:
            await group._wait_until_left()
            self._check_running()

    async def _outcome(self, name: str, call: Call) -> None:
        call.waiter = asyncio.get_running_loop().create_future()
        self._backend.begin_call(name, call)
        try:
            await call.waiter
        except BaseException:
            self._backend.forget_call(name, call)
            raise
        if call.error is not None:
            raise call.error

    async def _settle_calls(self, name: str, timeout: float | None) -> None:
        """Before this node becomes a member: give its calls to the group a while to end. The others are lost."""
        waiting = [call.waiter for call in self._backend.calls_to(name)]
        if waiting:
            patience = CALLS_PATIENCE_S if timeout is None else min(timeout / 2, CALLS_PATIENCE_S)
            await asyncio.wait(waiting, timeout=patience)


_NEEDS_SERVICE: Final = (
    "; regions need a membership service that answers: run `ordercast gms`, or make the node with gms='embedded', "
    "and where multicast does not find the service, with gms=['host:port']"
)
"""Most often a node that was made without a word of the service has none."""


def _check_shared(name: str | None, underlay: str, terms: dict[str, object], where_terms_go: str) -> str:
    """Raise what a join of a lightweight group cannot have. Its name."""
    check_underlay_name(underlay)
    if name == underlay:
        raise UsageError(f"{name!r} is the name of the underlay itself; give the group another one")
    if name is None:
        raise UsageError(f'a group of a shared underlay is joined by its name: join("prices", underlay={underlay!r})')
    given = [word for word, value in terms.items() if value != PLAIN_TERMS.get(word)]
    if given:
        raise UsageError(
            f"{', '.join(given)}: these belong to the underlay and not to one of its groups; {where_terms_go}"
        )
    return name


def _how_far(group: str, call: Call, timeout: float | None) -> str:
    """What is known of a call that has not come to an end in time."""
    if call.number < 0:
        return f"the call to {group!r} has not left within {timeout} s: earlier ones are still under way"
    if call.is_acknowledged:
        return f"the call to {group!r} was delivered, and handler {call.handler} has not answered within {timeout} s"
    return f"no member of {group!r} has answered within {timeout} s: the call may or may not have been carried out"


def _no_answer(group: str, handler: int | None, timeout: float | None) -> str:
    """The same of a call that was a message of a member or of an underlay, whose way is not known."""
    missing = f"the call to {group!r} has not been seen to be delivered"
    if handler is not None:
        missing = f"the holder of handler {handler} of {group!r} has not answered"
    return f"{missing} within {timeout} s: the call may or may not have been carried out"
