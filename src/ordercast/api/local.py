"""Seats and a backend over a `Host` in this process: what `Node` and the simulator's nodes stand on.

The only module of the API that knows `Host` and `Port`. A `Driver` gives the clock and runs the passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ordercast.api.regional import RegionSeats
from ordercast.api.resolved import ResolvedGroups
from ordercast.api.seat import SLICE, BaseSeat, JoinRequest, Respond, Seat, Waited
from ordercast.api.stats import all_group_stats, all_node_stats
from ordercast.api.underway import PortsUnderway
from ordercast.config import REGIONS_ORDERER, SITES_ORDERER, GroupConfig, MinMembers
from ordercast.engine import Reset
from ordercast.errors import NotMember, OrdercastError, UsageError
from ordercast.groups.caller import Call, Caller
from ordercast.groups.calls import Asked
from ordercast.groups.checks import check_priority, no_feeds, no_locks
from ordercast.groups.events import Left, PortEvent
from ordercast.groups.host import Host
from ordercast.groups.locks import LockRequest
from ordercast.groups.naming import NameQuery, Naming
from ordercast.groups.port import Port
from ordercast.groups.queued import NOBODY
from ordercast.groups.regions.port import RegionPort
from ordercast.groups.requests import PendingReply
from ordercast.groups.status import GroupStatus
from ordercast.groups.stream import NUMBERED_MESSAGES
from ordercast.groups.watches import Watch
from ordercast.service import Service
from ordercast.view import Address, Member, View


class Driver(Protocol):
    """What runs the passes of a host: on real sockets, or in virtual time."""

    def now_ns(self) -> int:
        """The clock of the host's passes."""

    def wake(self) -> None:
        """Have a pass run soon. Many calls before that pass ask for one pass."""

    def hurry(self) -> None:
        """Have a pass run now, if the driver can and has not done so in this turn of the loop; otherwise soon."""

    def prepare(self, underlay: str, orderer: str) -> None:
        """An underlay is about to be opened: listen to its address, or raise what stands against it."""

    def find(self, group: str) -> None:
        """A group is about to be called: know its address, or raise what stands against it."""

    async def locate(self, contact: str | Address) -> Address:
        """The address of a node that the application named."""

    def contacts(self) -> Sequence[Address]:
        """Nodes through which a group may be reached where multicast does not find it."""

    def socket_stats(self) -> dict[str, int]:
        """Counters of the sockets; none where there are no sockets."""


class LocalSeat:
    """A seat whose port is in this process."""

    # What is called for each message is bound once and skips a step.
    __slots__ = (
        "_driver",
        "_host",
        "error",
        "forget",
        "offer",
        "port",
        "try_offer",
        "watch",
    )

    def __init__(self, host: Host, port: Port, driver: Driver) -> None:
        self.port = port
        self.error: OrdercastError | None = None
        self._host = host
        self._driver = driver
        self.try_offer = port.try_offer
        self.offer = port.offer
        self.watch = port.watch
        self.forget = port.forget

    def __repr__(self) -> str:
        return f"<seat of {self.port.me} in {self.port.group!r}>"

    # State.

    @property
    def group(self) -> str:
        return self.port.group

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
        return self.port.refusal

    @property
    def failure(self) -> str | None:
        return self.port.failure

    @property
    def is_working(self) -> bool:
        return self.port.engine.is_working

    def short_of(self) -> tuple[int, int] | None:
        return self.port.engine.short_of()

    @property
    def config(self) -> GroupConfig:
        return self.port.engine.config

    @property
    def default_service(self) -> Service:
        return self.port.default_service

    @property
    def status(self) -> GroupStatus:
        return self.port.channel.watching.status_of(self.port)

    def stats(self) -> dict[str, int]:
        port = self.port
        counts = {**port.counters, **port.engine.counters}
        counts["queued_messages"] = port.queue.count
        counts["queued_bytes"] = port.queue.queued_bytes
        counts["held_bytes"] = port.held_bytes
        counts["holding_up"] = int(bool(port.group) and port.channel.shared is not None and port.is_holding_up)
        for direction, meter in (("sent", port.sent), ("received", port.received)):
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
        priority: int = 0,
    ) -> int:
        return self.port.queue.offer_many(payloads, service, type_, lengths, self.port, None, priority)

    @property
    def has_room(self) -> bool:
        return self.port.has_room

    def expect_room(self, is_waiting: bool) -> None:
        waiting = self.port.stream.waiting
        if is_waiting:
            waiting[self.port] = None
        else:
            waiting.pop(self.port, None)

    @property
    def end_number(self) -> int:
        return self.port.end_number

    def expect_feed(self, is_active: bool) -> None:
        if is_active:
            raise no_feeds(self.group, self.config.orderer)

    def feed_room(self) -> int:
        return 0

    def flush(self) -> Watch | None:
        return self.port.flush()

    # Receiving.

    @property
    def has_events(self) -> bool:
        return self.port.has_events

    def take(self) -> PortEvent | None:
        port = self.port
        event = port.take()
        # Otherwise the next pass tells the group of free buffers, whatever brings that pass about.
        if port.has_consumed and port.engine.waits_for_application():
            self.wake()
        return event

    # Calls and locks.

    def check_locks(self) -> None:
        if self.error is not None:
            raise self.error
        self.port.check_locks()

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        return self.port.call(payload, service, handler, type_)

    def forget_call(self, asked: Asked) -> None:
        self.port.calls.forget(asked)

    def respond_by(self, respond: Respond) -> None:
        self.port.respond = respond

    def answer(self, owed: PendingReply, payload: bytes) -> bool:
        if self.error is not None:
            raise self.error
        return self.port.answer(owed, payload)

    def lock(self, key: str, tries_once: bool = False) -> LockRequest:
        return self.port.lock(key, tries_once)

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:
        return self.port.serve(handler, tries_once)

    def give_up(self, request: LockRequest) -> None:
        self.port.locks.give_up(request)

    # Membership.

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:
        self._host.leave(self.port, header, is_ordered)
        self._driver.wake()

    def expel(self, member: int, why: str) -> None:
        port = self.port
        if port.engine.config.orderer != SITES_ORDERER and port.channel.shared is not None and port.group:
            raise UsageError(
                f"{port.group!r} shares the underlay {port.underlay!r}: a member is expelled from the underlay, with "
                "expel() of what attach() gave"
            )
        port.engine.expel(self._driver.now_ns(), member, why, port.channel.out)
        self._host.touch(port)
        self._driver.wake()

    def reset(self, min_members: MinMembers, header: bytes = b"") -> None:
        self._host.reset(self._driver.now_ns(), self.port, min_members, header)
        self._driver.wake()

    # Passes.

    def wake(self) -> None:
        self._host.touch(self.port)  # hot: once per send; methods bound beforehand would be slower
        self._driver.wake()

    def hurry(self) -> None:
        if self.error is None:
            self._host.touch(self.port)
            self._driver.hurry()

    def take_settled(self) -> Sequence[Waited]:
        return self.port.take_settled()

    def take_changed(self) -> bool:
        port = self.port
        is_changed, port.is_changed = port.is_changed, False
        return is_changed

    def take_resets(self) -> Sequence[Reset]:
        taken, self.port.resets = self.port.resets, ()
        return taken

    def fail(self, error: OrdercastError) -> None:
        self.error = error
        self.try_offer = _refuse
        self.port.fail(error)
        self.port.locks.on_gone()


def _refuse(payload: bytes, service: Service, type_: int) -> int:  # noqa: ARG001 - in place of a port's `try_offer`
    return -1


class LocalBase(LocalSeat):
    """A seat whose port is a session's place in an underlay. Its group is the underlay, for texts."""

    __slots__ = ()

    def __init__(self, host: Host, port: Port, driver: Driver) -> None:
        super().__init__(host, port, driver)
        self.watch = port.stream.watch  # messages to several groups

    @property
    def group(self) -> str:
        return self.port.underlay

    @property
    def groups(self) -> list[str]:
        return [name for name, port in self.port.stream.ports.items() if port.is_member and not port.is_leaving]

    @property
    def slow_groups(self) -> list[str]:
        return [name for name, port in self.port.stream.ports.items() if port.is_holding_up]

    @property
    def slice_size(self) -> int:
        return SLICE

    def feed(self) -> None:
        self.port.stream.feed()

    def send_to(self, payload: bytes, service: Service, type_: int, groups: Sequence[str], priority: int = 0) -> int:
        return self.port.stream.offer_to(groups, payload, service, type_, priority)

    def check_calls(self, group: str) -> None:
        if not self.port.engine.gives_locks:
            raise no_locks(group, self.config.orderer)

    def call_outside(self, payload: bytes, service: Service, handler: int, type_: int, group: str) -> Asked | None:
        return self.port.stream.call_outside(group, payload, service, handler, type_)

    def forget_outside(self, asked: Asked) -> None:
        if self.port.stream.outside is not None:
            self.port.stream.outside.forget(asked)

    def offer_many_to(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        groups: Sequence[str],
        priority: int = 0,
    ) -> int:
        stream = self.port.stream
        if isinstance(groups, ResolvedGroups) and len(groups) >= NUMBERED_MESSAGES:
            numbers = groups.numbers(self)
            if numbers is not None:
                return stream.offer_numbered(payloads, service, type_, lengths, numbers, priority)
        return stream.offer_many_to(payloads, service, type_, lengths, self._ports(groups), priority=priority)

    def resolve(self, names: Sequence[str]) -> ResolvedGroups:
        self._ports(names)
        return ResolvedGroups(names, self)

    @property
    def roster_count(self) -> int:
        return self.port.stream.rosters

    def numbers_of(self, names: Sequence[str]) -> Sequence[int]:
        ports = self.port.stream.ports
        return [max(port.number, NOBODY) if (port := ports.get(name)) is not None else NOBODY for name in names]

    def holds(self, numbers: npt.NDArray[np.uint32]) -> bool:
        return not self.port.channel.leaving and self.port.stream.wanted.holds(numbers)

    def join_many(self, names: Sequence[str], header: bytes) -> PortsUnderway:
        ports = self._host.open_many(self.port, names, header)
        self._driver.wake()
        return PortsUnderway(ports, False)

    def check_new(self, names: Sequence[str]) -> None:
        self._host.check_many(self.port, names)

    def check_in(self, names: Sequence[str]) -> None:
        self._ports(names)

    def leave_many(self, names: Sequence[str], header: bytes) -> PortsUnderway:
        ports = self._ports(names)
        for port in ports:
            self._host.leave(port, header)
        self._driver.wake()
        return PortsUnderway(ports, True)

    def leave_all(self) -> None:
        for port in [*self.port.stream.ports.values(), self.port]:
            self._host.leave(port)
        self._driver.wake()

    def _ports(self, names: Sequence[str]) -> list[Port]:
        ports = self.port.stream.ports
        try:
            found = list(map(ports.__getitem__, names))
        except KeyError as error:
            name = error.args[0]
            raise NotMember(
                f"this node is not in {name!r} on {self.port.underlay!r}: join it, or send(payload, groups=[{name!r}])"
            ) from None
        if not self.port.channel.leaving:
            return found
        leaving = next((port.group for port in found if port.is_leaving), None)
        if leaving is not None:
            raise NotMember(f"this node is leaving {leaving!r}: wait until it is out, and join it again")
        return found


class LocalBackend:
    """The seats of one host."""

    __slots__ = ("_bases", "_driver", "_guests", "_regional", "_seats", "_settled", "defaults", "host")

    def __init__(self, host: Host, defaults: GroupConfig, driver: Driver) -> None:
        self.host = host
        self.defaults = defaults
        self._driver = driver
        self._seats: dict[Port, LocalSeat] = {}  # of groups; those that were joined with others, once they are wanted
        self._bases: dict[Port, LocalBase] = {}  # of shared underlays
        self._regional = RegionSeats(host, driver)  # of groups on regions
        self._settled: list[Waited] = []
        self._guests: dict[Port, None] = {}  # ports of labelled sessions that have news

    @property
    def carrier(self) -> str | None:
        return None  # each group has an underlay of its own where nothing else is said

    @property
    def member(self) -> Member:
        return self.host.me

    def stats(self) -> dict[str, int]:
        counts = dict(self.host.counters)
        for name, count in self._driver.socket_stats().items():
            counts[name] = counts.get(name, 0) + count
        return all_node_stats(counts)

    async def locate(self, contact: str | Address) -> Address:
        return await self._driver.locate(contact)

    def ask_names(self, address: Address) -> NameQuery:
        naming = self.host.naming
        query = naming.ask(address)
        self.host.touch(naming)
        self._driver.hurry()
        return query

    def forget_names(self, query: NameQuery) -> None:
        self.host.naming.forget(query)

    # Groups.

    def open(self, group: str, request: JoinRequest) -> Seat:
        if request.config.orderer == REGIONS_ORDERER:
            if self.host.port(group) is not None:
                raise UsageError(f"this node is in {group!r} already, on an underlay: leave that first")
            return self._regional.open(group, request)
        underlay = request.underlay
        self._driver.prepare(self.host.underlay_of(group) if underlay is None else underlay, request.config.orderer)
        port = self.host.open(
            self._driver.now_ns(),
            group,
            config=request.config,
            create=request.create,
            min_members=request.min_members,
            recovery=request.recovery,
            demands=request.demands,
            header=request.header,
            ttl=request.ttl,
            contact=request.contact,
            alone=request.alone,
            underlay=underlay,
        )
        self._seats[port] = seat = LocalSeat(self.host, port, self._driver)
        self._driver.wake()
        return seat

    def attach(self, underlay: str, request: JoinRequest) -> BaseSeat:
        self._driver.prepare(underlay, request.config.orderer)
        if request.config.orderer == REGIONS_ORDERER:
            return self._regional.attach(request)
        port = self.host.attach(
            self._driver.now_ns(),
            underlay,
            config=request.config,
            create=request.create,
            min_members=request.min_members,
            recovery=request.recovery,
            demands=request.demands,
            ttl=request.ttl,
            contact=request.contact,
            alone=request.alone,
        )
        seat = self._bases.get(port)
        if seat is None:
            seat = self._bases[port] = LocalBase(self.host, port, self._driver)
        self._driver.wake()
        return seat

    def shared_underlay_of(self, group: str) -> str | None:
        for port in self._bases:
            shared = port.channel.shared
            if shared is not None and shared.roster.find(group) is not None:
                return port.underlay
        return None

    def seat(self, group: str) -> Seat | None:
        port = self.host.port(group)
        if port is None:
            return self._regional.seat(group)
        seat = self._seats.get(port)
        if seat is None and port.channel.shared is not None:
            seat = self._seats[port] = LocalSeat(self.host, port, self._driver)
        return seat

    def take_news(self) -> Sequence[Seat]:
        found: list[Seat] = []
        for port in self.host.take_news():
            if isinstance(port, Caller | Naming):
                self._settled.extend(port.settled)
                port.settled.clear()
                continue
            if isinstance(port, RegionPort):
                found += self._regional.news(port)
                continue
            if port.stream.label:
                self._guests[port] = None
                continue
            seat = self._seats.get(port) or self._bases.get(port)
            if seat is not None:
                found.append(seat)
                if port.gone is not None:
                    self._seats.pop(port, None)
                    self._bases.pop(port, None)
        return found

    def take_guests(self) -> list[Port]:
        """The ports of labelled sessions that something happened to: a daemon asks after each pass."""
        if not self._guests:
            return []
        guests, self._guests = self._guests, {}
        return list(guests)

    # Calls to groups that this node is not in.

    def begin_call(self, group: str, call: Call) -> None:
        contacts = self._driver.contacts()
        if call.to is None and not contacts and not self.host.me.has_multicast:
            raise UsageError(f"this node has neither multicast nor peers: name a member of {group!r} with to=...")
        self._driver.find(group)
        caller = self.host.caller(group, datagram=self.defaults.datagram, contacts=contacts)
        caller.offer(call)
        self.host.touch(caller)
        self._driver.hurry()

    def forget_call(self, group: str, call: Call) -> None:
        for caller in self.host.callers:
            if caller.group == group:
                caller.forget(call)

    def calls_to(self, group: str) -> Sequence[Call]:
        return [call for caller in self.host.callers if caller.group == group for call in caller.waiting]

    def take_settled(self) -> Sequence[Waited]:
        settled, self._settled = self._settled, []
        return settled

    def fail(self, error: OrdercastError) -> None:
        everybody: list[Caller | Naming] = [*self.host.callers, self.host.naming]
        for asking in everybody:
            asking.fail(error)
            self._settled.extend(asking.settled)
            asking.settled.clear()
