"""A backend over a `Host` in this process: what `Node` and the simulator's nodes stand on.

This module, `local_seat.py` and `base.py` are the only ones of the API that know `Host` and `Port`. A `Driver` gives
the clock and runs the passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.api.base import LocalBase
from ordercast.api.local_seat import Driver, LocalSeat
from ordercast.api.seat import BaseSeat, JoinRequest, Seat, Waited
from ordercast.api.stats import all_node_stats
from ordercast.config import GroupConfig
from ordercast.errors import OrdercastError, UsageError
from ordercast.groups.caller import Call, Caller
from ordercast.groups.host import Host
from ordercast.groups.naming import NameQuery, Naming
from ordercast.groups.port import Port
from ordercast.view import Address, Member


class LocalBackend:
    """The seats of one host."""

    __slots__ = ("_bases", "_driver", "_seats", "_settled", "defaults", "host")

    def __init__(self, host: Host, defaults: GroupConfig, driver: Driver) -> None:
        self.host = host
        self.defaults = defaults
        self._driver = driver
        self._seats: dict[Port, LocalSeat] = {}  # of groups; those that were joined with others, once they are wanted
        self._bases: dict[Port, LocalBase] = {}  # of shared underlays
        self._settled: list[Waited] = []

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
        underlay = request.underlay
        self._driver.prepare(self.host.underlay_of(group) if underlay is None else underlay)
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
        self._driver.prepare(underlay)
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
            return None
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
            seat = self._seats.get(port) or self._bases.get(port)
            if seat is not None:
                found.append(seat)
                if port.gone is not None:
                    self._seats.pop(port, None)
                    self._bases.pop(port, None)
        return found

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
