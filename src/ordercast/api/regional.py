"""Seats over the regions of a host in this process: one for each group that somebody holds, and one for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from ordercast.api.resolved import ResolvedGroups
from ordercast.api.seat import JoinRequest, Respond, Waited
from ordercast.api.stats import all_group_stats
from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import Reset
from ordercast.errors import NotMember, OrdercastError, UsageError
from ordercast.groups.calls import Asked
from ordercast.groups.checks import check_priority, no_locks
from ordercast.groups.driven import Handle
from ordercast.groups.events import Left, PortEvent
from ordercast.groups.locks import LockRequest
from ordercast.groups.regions.channel import RegionChannel
from ordercast.groups.regions.port import RegionPort, no_resets
from ordercast.groups.requests import PendingReply
from ordercast.groups.status import GroupStatus
from ordercast.groups.watches import Watch
from ordercast.service import Service
from ordercast.view import Member, View

ALL_AT_ONCE: Final = 1 << 20
"""Groups that are asked for with one request: the service numbers those of one request in a row."""

FEED_BYTES: Final = 1 << 20
"""Bytes that a feed is asked for at once."""


class RegionHost(Protocol):
    """What seats need of their host."""

    def touch(self, port: Handle) -> None: ...

    def open_regions(self, now_ns: int, config: GroupConfig, ttl: int | None = None) -> RegionChannel: ...


class PassDriver(Protocol):
    """What seats need of their driver."""

    def now_ns(self) -> int: ...

    def wake(self) -> None: ...

    def hurry(self) -> None: ...


class RegionSeat:
    """A seat whose group is on regions."""

    __slots__ = ("_driver", "_host", "error", "forget", "offer", "port", "try_offer", "watch")

    def __init__(self, host: RegionHost, port: RegionPort, driver: PassDriver) -> None:
        self.port = port
        self.error: OrdercastError | None = None
        self._host = host
        self._driver = driver
        self.try_offer = port.try_offer
        self.offer = port.offer
        self.watch = port.watch
        self.forget = port.forget

    def __repr__(self) -> str:
        return f"<seat of {self.port.me} in {self.port.title!r}, on regions>"

    # State.

    @property
    def group(self) -> str:
        return self.port.title

    @property
    def member(self) -> Member:
        return self.port.me

    @property
    def view(self) -> View | None:
        return self.port.view

    @property
    def is_member(self) -> bool:
        return self.port.is_member

    @property
    def is_leaving(self) -> bool:
        return self.port.is_leaving

    @property
    def gone(self) -> Left | None:
        return self.port.gone

    @property
    def refusal(self) -> str | None:
        return None  # the service lets everybody in

    @property
    def failure(self) -> str | None:
        return None  # there is nothing that a reset would mend

    @property
    def is_working(self) -> bool:
        return self.port.is_member

    def short_of(self) -> tuple[int, int] | None:
        return None

    @property
    def config(self) -> GroupConfig:
        return self.port.channel.engine.config

    @property
    def default_service(self) -> Service:
        return self.port.channel.default_service

    @property
    def status(self) -> GroupStatus:
        return self.port.channel.watching.status_of(self.port)

    def stats(self) -> dict[str, int]:
        port, channel = self.port, self.port.channel
        sending, reception = channel.sending, channel.reception
        route = sending.route_of(port.number) if port.group else sending
        counts = dict(channel.engine.counters)
        if port.group:
            port.messages_sent += channel.joined.wanted.take_count(port.number)
        counts["messages_sent"] = port.messages_sent if port.group else sending.serial
        counts["messages_delivered"] = port.messages_delivered
        counts["queued_messages"] = route.count
        counts["queued_bytes"] = route.nbytes
        counts["held_bytes"] = port.events.held_bytes
        counts["holding_up"] = int(bool(port.group) and port.events.is_holding_up)
        counts["unreadable_blocks"] = reception.unreadable_blocks
        counts["dropped_fragments"] = reception.dropped_fragments
        counts["unwanted_messages"] = reception.unwanted
        for direction, meter in (("sent", channel.sent), ("received", channel.received)):
            for word, count in meter.by_detail().items():
                counts[f"{direction}.{word}"] = count
        return all_group_stats(counts)

    # Sending.

    def check(self, size: int, service: Service, type_: int) -> None:
        if self.error is not None:
            raise self.error
        self.port.check(size, service, type_)

    def check_priority(self, priority: int) -> None:
        check_priority(priority, self.config.orderer, self.group)

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        self.port.check_open()

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int = 0,
        lengths: list[int] | None = None,
        priority: int = 0,  # noqa: ARG002 - regions have none
    ) -> int:
        return self.port.offer_many(payloads, service, type_, lengths)

    @property
    def has_room(self) -> bool:
        return self.port.has_room

    def expect_room(self, is_waiting: bool) -> None:
        waiting = self.port.channel.handles.waiting
        if is_waiting:
            waiting[self.port] = None
        else:
            waiting.pop(self.port, None)

    @property
    def end_number(self) -> int:
        return self.port.end_number

    def flush(self) -> Watch | None:
        watch = self.port.flush()
        if watch is not None:
            self.wake()
        return watch

    def expect_feed(self, is_active: bool) -> None:
        self.port.expect_feed(is_active)
        if is_active:
            self.wake()

    def feed_room(self) -> int:
        room, self.port.feed_bytes = self.port.feed_bytes, min(self.port.feed_bytes, 0)
        return min(room, FEED_BYTES)

    # Receiving.

    @property
    def has_events(self) -> bool:
        return self.port.has_events

    def take(self) -> PortEvent | None:
        event = self.port.take()
        if self.port.channel.is_consumption_urgent:
            self.wake()
        return event

    # Calls and locks: regions have none.

    def check_locks(self) -> None:
        if self.error is not None:
            raise self.error
        self.port.check_locks()

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:  # noqa: ARG002
        self._refuse_locks()

    def forget_call(self, asked: Asked) -> None:
        """There is none."""

    def respond_by(self, respond: Respond) -> None:
        """Nobody asks."""

    def answer(self, owed: PendingReply, payload: bytes) -> bool:  # noqa: ARG002
        self._refuse_locks()

    def lock(self, key: str, tries_once: bool = False) -> LockRequest:  # noqa: ARG002
        self._refuse_locks()

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:  # noqa: ARG002
        self._refuse_locks()

    def give_up(self, request: LockRequest) -> None:
        """There is none."""

    def _refuse_locks(self) -> NoReturn:
        raise no_locks(self.group, self.config.orderer)

    # Membership.

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:  # noqa: ARG002 - the service decides
        if header:
            raise UsageError(f"{self.group!r} is on regions: nobody would get a header, leave it out")
        self.port.channel.leave([self.port.group])
        self.wake()

    def expel(self, member: int, why: str) -> None:  # noqa: ARG002
        raise no_resets(self.group)

    def reset(self, min_members: MinMembers, header: bytes = b"") -> None:  # noqa: ARG002
        raise no_resets(self.group)

    # Passes.

    def wake(self) -> None:
        self._host.touch(self.port)
        self._driver.wake()

    def hurry(self) -> None:
        if self.error is None:
            self._host.touch(self.port)
            self._driver.hurry()

    def take_settled(self) -> Sequence[Waited]:
        return self.port.channel.take_settled()

    def take_changed(self) -> bool:
        port = self.port
        is_changed, port.is_changed = port.is_changed, False
        return is_changed

    def take_resets(self) -> Sequence[Reset]:
        return ()

    def fail(self, error: OrdercastError) -> None:
        self.error = error
        self.try_offer = _refuse
        self.port.channel.fail(error)


def _refuse(payload: bytes, service: Service, type_: int) -> int:  # noqa: ARG001 - in place of a port's `try_offer`
    return -1


class RegionBase(RegionSeat):
    """All groups of a node on regions, and groups that it only sends to."""

    __slots__ = ()

    @property
    def groups(self) -> list[str]:
        joined = self.port.channel.joined
        return [name for name, number in joined.numbers.items() if number and name not in joined.leaving]

    @property
    def slow_groups(self) -> list[str]:
        return [name for name, port in self.port.channel.handles.ports.items() if port.events.is_holding_up]

    @property
    def slice_size(self) -> int:
        return ALL_AT_ONCE

    def feed(self) -> None:
        self.port.channel.feed()

    def send_to(
        self,
        payload: bytes,
        service: Service,
        type_: int,
        groups: Sequence[str],
        priority: int = 0,  # noqa: ARG002 - regions have none
    ) -> int:
        return self.port.offer_to(groups, payload, service, type_)

    def check_calls(self, group: str) -> None:
        raise no_locks(group, self.config.orderer)

    def call_outside(
        self,
        payload: bytes,  # noqa: ARG002
        service: Service,  # noqa: ARG002
        handler: int,  # noqa: ARG002
        type_: int,  # noqa: ARG002
        group: str,
    ) -> Asked | None:
        raise no_locks(group, self.config.orderer)

    def forget_outside(self, asked: Asked) -> None:
        """There is none."""

    def offer_many_to(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        groups: Sequence[str],
        priority: int = 0,  # noqa: ARG002 - regions have none
    ) -> int:
        numbers: npt.NDArray[np.uint32] | None = None
        if isinstance(groups, ResolvedGroups):
            numbers = groups.numbers(self)
        if numbers is None:
            self._check_numbered(groups)
            numbers = np.array(self.numbers_of(groups), dtype=np.uint32)
        return self.port.channel.offer_numbered(payloads, service, type_, lengths, numbers)

    def resolve(self, names: Sequence[str]) -> ResolvedGroups:
        self._check_numbered(names)
        return ResolvedGroups(names, self)

    @property
    def roster_count(self) -> int:
        return self.port.channel.views.service

    def numbers_of(self, names: Sequence[str]) -> Sequence[int]:
        numbers = self.port.channel.joined.numbers
        return [numbers.get(name, 0) for name in names]

    def holds(self, numbers: npt.NDArray[np.uint32]) -> bool:
        joined = self.port.channel.joined
        return not joined.leaving and joined.wanted.holds(numbers)

    def check_new(self, names: Sequence[str]) -> None:
        self.port.channel.check_new(names)

    def check_in(self, names: Sequence[str]) -> None:
        """Groups that this node is on its way into count: one that comes back by itself must be able to leave them."""
        joined = self.port.channel.joined
        for name in names:
            if name not in joined.numbers or name in joined.leaving:
                what = "it is leaving" if name in joined.leaving else "join it first"
                raise NotMember(f"this node is not in {name!r} on regions: {what}")

    def _check_numbered(self, names: Sequence[str]) -> None:
        joined = self.port.channel.joined
        for name in names:
            if not joined.is_in(name) or name in joined.leaving:
                is_coming = name in joined.joining  # a node that was put out comes back by itself
                what = "wait until it is" if is_coming else "join it"
                raise NotMember(f"this node is not in {name!r} on regions: {what}, or send(payload, groups=[{name!r}])")

    def join_many(self, names: Sequence[str], header: bytes) -> RegionsUnderway:
        if header:
            raise UsageError("groups on regions are joined without a header: leave it out")
        self.port.channel.join(names)
        self.wake()
        return RegionsUnderway(names, self.port, False)

    def leave_many(self, names: Sequence[str], header: bytes) -> RegionsUnderway:
        if header:
            raise UsageError("groups on regions are left without a header: leave it out")
        self.port.channel.leave(names)
        self.wake()
        return RegionsUnderway(names, self.port, True)

    def leave_all(self) -> None:
        self.port.channel.leave_all()
        self.wake()

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:  # noqa: ARG002
        self.leave_all()


class RegionsUnderway:
    """Groups that are being joined, or left, together."""

    __slots__ = ("_are_leaving", "_done", "_names", "_port")

    def __init__(self, names: Sequence[str], port: RegionPort, are_leaving: bool) -> None:
        self._names = names
        self._port = port
        self._are_leaving = are_leaving
        self._done = 0  # the first of them are: they come to their end together, so that each is looked at once

    @property
    def is_over(self) -> bool:
        names, joined, are_leaving = self._names, self._port.channel.joined, self._are_leaving
        while self._done < len(names):
            name = names[self._done]
            if name in joined.numbers and (are_leaving or not joined.is_in(name)):
                return False
            self._done += 1
        return True

    def check(self) -> None:
        """Raise where a group was left before it was joined."""
        if self._port.gone is not None and not self._are_leaving:
            raise NotMember(f"the groups were left before they were joined: {self._port.gone.text}")


class RegionSeats:
    """The seats of one host on regions: of groups that somebody holds, and of all of them."""

    __slots__ = ("_driver", "_host", "_regions", "_seats")

    def __init__(self, host: RegionHost, driver: PassDriver) -> None:
        self._host = host
        self._driver = driver
        self._regions: RegionChannel | None = None
        self._seats: dict[RegionPort, RegionSeat] = {}

    def open(self, group: str, request: JoinRequest) -> RegionSeat:
        """Begin to join a group."""
        if request.header:
            raise UsageError("groups on regions are joined without a header: leave it out")
        seat = self._seat(self._open(request).open(group))
        seat.wake()
        return seat

    def attach(self, request: JoinRequest) -> RegionBase:
        """The seat of all groups."""
        port = self._open(request).base
        seat = self._seats.get(port)
        base = seat if isinstance(seat, RegionBase) else RegionBase(self._host, port, self._driver)
        self._seats[port] = base
        base.wake()
        return base

    def seat(self, group: str) -> RegionSeat | None:
        """The seat of a group that this node is in, or on its way into."""
        port = self._regions.port(group) if self._regions is not None else None
        return self._seat(port) if port is not None else None

    def news(self, port: RegionPort) -> list[RegionSeat]:
        """The seat of a port that something has happened to, if it has one. One that has ended is forgotten."""
        seat = self._seats.get(port)
        if seat is not None and port.gone is not None:
            del self._seats[port]
        return [seat] if seat is not None else []

    def _open(self, request: JoinRequest) -> RegionChannel:
        self._regions = self._host.open_regions(self._driver.now_ns(), request.config, request.ttl)
        return self._regions

    def _seat(self, port: RegionPort) -> RegionSeat:
        seat = self._seats.get(port)
        if seat is None:
            seat = self._seats[port] = RegionSeat(self._host, port, self._driver)
        return seat
