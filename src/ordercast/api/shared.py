"""A shared underlay as a program sees it: many lightweight groups, and one order over all of them (docs/api.md).

`node.attach` gives one. A group that is joined with `underlay=` is a `Group` like any other. What is about many groups
at once is here: to join and leave very many of them, to send to several or from outside, to receive all in one order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from ordercast.api.checks import Payload, as_bytes, as_header, as_payloads, check_group_name
from ordercast.api.feeding import Feed, NodeFeed, node_offer
from ordercast.api.group import Group
from ordercast.api.resolved import ResolvedGroups
from ordercast.api.seat import SLICE, BaseSeat, JoinRequest, PendingGroups
from ordercast.api.sending import CHUNK_MESSAGES
from ordercast.api.waiting import wake
from ordercast.config import GroupConfig
from ordercast.errors import NotMember, UsageError
from ordercast.groups.calls import Asked
from ordercast.groups.events import Event, PortEvent
from ordercast.groups.status import GroupStatus
from ordercast.service import Service
from ordercast.view import Member, View
from ordercast.wire.block import MAX_TARGETS


class SharedUnderlay:
    """One underlay that this node is in, and the groups of this node on it. Made by `attach`."""

    def __init__(self, seat: BaseSeat, group: Group, request: JoinRequest) -> None:
        self._seat = seat
        self._request = request  # what it was attached with
        self._group = group  # the underlay itself
        self._pending: dict[PendingGroups, asyncio.Future[None]] = {}  # joins and leaves that tasks wait for
        self._attaching = 0  # tasks that wait for the first view
        self._has_been_given = False  # one of them has it
        group._follow = self._follow

    def __repr__(self) -> str:
        view = self._seat.view
        shown = f"view {view.id}: {', '.join(map(str, view.members))}" if view is not None else "not a member"
        return f"<SharedUnderlay {self.name!r}, {shown}>"

    # State.

    @property
    def name(self) -> str:
        """The name of the underlay."""
        return self._seat.group

    @property
    def member(self) -> Member:
        """This node, as the views name it."""
        return self._seat.member

    @property
    def view(self) -> View | None:
        """The newest view of the underlay: its members are nodes. None when this node is out."""
        return self._seat.view

    @property
    def members(self) -> tuple[Member, ...]:
        """The nodes of `view`; empty when this node is out."""
        return self._group.members

    @property
    def is_member(self) -> bool:
        """Whether this node is in the underlay now."""
        return self._seat.is_member

    @property
    def failure(self) -> str | None:
        """Why calls fail until the underlay is re-formed by a `reset` of one of its groups; None while it works."""
        return self._seat.failure

    @property
    def groups(self) -> list[str]:
        """The names of the groups that this node is in, in the order in which it joined them."""
        return self._seat.groups

    @property
    def slow_groups(self) -> list[str]:
        """The groups that the whole underlay waits for now, because this program does not receive there."""
        return self._seat.slow_groups

    @property
    def config(self) -> GroupConfig:
        """The parameters of the underlay, as they were set when it was created."""
        return self._seat.config

    @property
    def default_service(self) -> Service:
        """What a send that names no service gets: AGREED, or RESILIENT(resilience)."""
        return self._seat.default_service

    @property
    def status(self) -> GroupStatus:
        """What the underlay is doing now, as `Group.status`."""
        return self._seat.status

    @property
    def stats(self) -> dict[str, int]:
        """Counters of this node in the underlay, as `Group.stats`."""
        return self._seat.stats()

    # Groups.

    async def join_many(self, names: Iterable[str], header: bytes = b"") -> None:
        """Join many groups; returns when this node is in all of them. The joins share a few ordered messages.

        `node.group(name)` gives the handle of one of them. Raises UsageError where one of them is joined already, or
        named twice; then none is joined. If the wait is cancelled, the joins that have begun go on.
        """
        wanted, header, seat = _names(names), as_header(header), self._seat
        for part in _slices(wanted, SLICE):
            for name in part:
                check_group_name(name)
            await asyncio.sleep(0)
        seat.check_open()
        seat.check_new(wanted)
        pending: list[PendingGroups] = []
        for part in _slices(wanted, seat.slice_size):
            pending.append(seat.join_many(part, header))
            await asyncio.sleep(0)  # the others have to hear of this node meanwhile
        for each in pending:
            await self._wait_for(each)

    async def leave_many(self, names: Iterable[str], header: bytes = b"") -> None:
        """Leave many groups, after everything that was sent; returns when this node is out of all of them.

        Raises NotMember where this node is not in one of them; then none is left.
        """
        wanted, header = list(dict.fromkeys(_names(names))), as_header(header)
        self._seat.check_open()
        self._seat.check_in(wanted)
        for part in _slices(wanted, self._seat.slice_size):
            await self._wait_for(self._seat.leave_many(part, header))

    async def detach(self) -> None:
        """Leave the underlay, and with it all groups of this node on it. Doing so twice is harmless."""
        seat = self._seat
        if seat.gone is None and seat.error is None:
            seat.leave_all()
            await self._group.abandon()

    async def expel(self, member: Member | str | int, why: str = "") -> None:
        """Have the underlay, and with it all of its groups, go on without another node; as `Group.expel`."""
        await self._group.expel(member, why)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.detach()

    # Sending.

    async def send(
        self,
        payload: Payload,
        *,
        groups: Sequence[str],
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        priority: int = 0,
    ) -> int | None:
        """Send one message to several groups, or to one, that this node need not be in.

        It travels once. A member that is in any of the groups gets it once, and `message.groups` names all of them. It
        is in order with everything else that this node sends on the underlay. Returns and raises as `Group.send`, and
        has its priorities.
        """
        data = as_bytes(payload)
        targets = _targets(groups)
        seat = self._seat
        chosen = seat.default_service if service is None else service
        seat.check(len(data), chosen, type)
        seat.check_priority(priority)

        def offer() -> int | None:
            number = seat.send_to(data, chosen, type, targets, priority)
            return number if number >= 0 else None

        number = await self._group._sending.take(offer)
        if not confirm:
            seat.wake()
            return None
        watch = seat.watch(number, number + 1, chosen)
        seat.hurry()
        await self._group._sending.outcome(watch)
        return watch.position

    async def _call(
        self, group: str, payload: bytes, handler: int | None, service: Service, type_: int, ack: bool
    ) -> bytes | None:
        """`Node.call` to a group of the underlay that this node is not in."""
        if handler is None:
            await self.send(payload, groups=[group], service=service, type=type_, confirm=ack)
            return None
        seat = self._seat
        seat.check_calls(group)
        seat.check(len(payload), service, type_)
        asked: Asked | None = None
        try:
            asked = await self._group._sending.take(lambda: seat.call_outside(payload, service, handler, type_, group))
            asked.waiter = asyncio.get_running_loop().create_future()
            seat.hurry()
            await asked.waiter
        except BaseException:
            if asked is not None:
                seat.forget_outside(asked)
            raise
        if asked.error is not None:
            raise asked.error
        return asked.answer

    async def send_many(
        self,
        payloads: Iterable[Payload],
        *,
        groups: Iterable[str],
        service: Service | None = None,
        type: int = 0,
        priority: int = 0,
    ) -> None:
        """Send many messages, each to one group: `groups` has the group of each. This node is in all of them.

        They keep their order, and messages of different groups share blocks. A list that `resolve` has made saves
        looking up the names. Returns when all are accepted. A call that is cancelled or fails half-way has sent the
        first of them.
        """
        items = as_payloads(payloads)
        targets: Sequence[str] = groups if isinstance(groups, ResolvedGroups) else _names(groups)
        if len(items) != len(targets):
            raise UsageError(
                f"there are {len(items)} messages and {len(targets)} groups: give the group of each message"
            )
        seat = self._seat
        chosen = seat.default_service if service is None else service
        lengths = list(map(len, items))
        seat.check(max(lengths, default=0), chosen, type)
        seat.check_priority(priority)
        start = 0

        def offer() -> int | None:
            part = slice(start, start + CHUNK_MESSAGES)
            return seat.offer_many_to(items[part], chosen, type, lengths[part], targets[part], priority) or None

        while start < len(items):
            start += await self._group._sending.take(offer)
            seat.wake()

    def resolve(self, names: Iterable[str]) -> ResolvedGroups:
        """Look up names once for many calls of `send_many`: a list of these names, or a slice of it, is its `groups`.

        This node is in all of the groups; otherwise NotMember is raised, here and by `send_many`.
        """
        wanted = _names(names)
        self._seat.check_open()
        return self._seat.resolve(wanted)

    def feed(self, fn: NodeFeed, *, service: Service | None = None, type: int = 0) -> Feed[tuple[str, Payload]]:
        """Have a function asked for messages when they may leave: `fn(room_bytes, max_messages)` returns pairs of a
        group's name and a payload, which are sent in their order. With the orderer "regions" only; `Group.feed` says
        more. The function is asked when nothing waits to be sent."""
        seat = self._seat
        seat.check_open()
        chosen = seat.default_service if service is None else service
        loop = asyncio.get_running_loop()
        feed = Feed(seat, fn, node_offer(seat, chosen, type), loop)
        self._group._feed_by(feed)
        return feed

    async def flush(self) -> None:
        """Wait until everything that this node has sent on the underlay is delivered here."""
        await self._group.flush()

    # Receiving.

    def events(self) -> AsyncIterator[Event]:
        """The events of all groups of this node on the underlay, one by one, in the one order of the underlay.

        Views of the underlay itself are among them; their `group` is empty. From the first call of `events` or
        `batches` on, the handles of single groups receive nothing. Ends after the final `Left` of the underlay.
        """
        self._seat.feed()
        return self._group

    def batches(self) -> AsyncIterator[PortEvent]:
        """The same, with blocks of messages as they come. A `MixedBatch` has messages of several groups: its `groups`
        has the name of the group of each."""
        self._seat.feed()
        return self._group.batches()

    # What the node calls.

    @property
    def _is_open(self) -> bool:
        """Whether this node is in the underlay, or on its way in or back."""
        seat = self._seat
        return seat.gone is None and seat.error is None and not seat.is_leaving

    async def _wait_until_attached(self) -> None:
        """Until the first view. Several tasks may wait; `_is_wanted` says whether one of them still does."""
        self._attaching += 1
        try:
            await self._group._wait_with_others()
            self._has_been_given = True
        finally:
            self._attaching -= 1

    @property
    def _is_wanted(self) -> bool:
        return bool(self._attaching) or self._has_been_given

    # In detail.

    async def _wait_for(self, pending: PendingGroups) -> None:
        self._seat.wake()
        while not pending.is_over:
            waiter = self._pending[pending] = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._pending.pop(pending, None)
            if self._seat.error is not None:
                raise self._seat.error
            if self._seat.gone is not None and not pending.is_over:
                raise NotMember(f"this node is no longer in {self.name!r}: {self._seat.gone.text}")
        pending.check()

    def _follow(self) -> None:
        """A pass has brought something."""
        seat = self._seat
        for pending, waiter in self._pending.items():
            if seat.error is not None or seat.gone is not None or pending.is_over:
                wake(waiter)


def _names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise UsageError(f"names of groups come as a list: write [{names!r}]")
    return list(names)


def _slices(names: list[str], size: int) -> Iterator[list[str]]:
    """What is done in one go. Other tasks, and the protocol, have their turn in between."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _targets(groups: Sequence[str]) -> list[str]:
    targets = list(dict.fromkeys(_names(groups)))
    if not 1 <= len(targets) <= MAX_TARGETS:
        raise UsageError(f"a message goes to 1 to {MAX_TARGETS} groups, got {len(targets)}: send it in several parts")
    for name in targets:
        check_group_name(name)
    return targets
