"""A seat over a `Port` in this process, and what a `Driver` does for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ordercast.api.seat import Respond, Waited
from ordercast.api.stats import all_group_stats
from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import Reset
from ordercast.errors import OrdercastError
from ordercast.groups.calls import Asked
from ordercast.groups.events import Left, PortEvent
from ordercast.groups.host import Host
from ordercast.groups.locks import LockRequest
from ordercast.groups.port import Port
from ordercast.groups.requests import PendingReply
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

    def prepare(self, underlay: str) -> None:
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
        "offer_many",
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
        self.offer_many = port.offer_many
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
    def config(self) -> GroupConfig:
        return self.port.engine.config

    @property
    def default_service(self) -> Service:
        return self.port.default_service

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

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        self.port.check_open()

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
        return self.port.locks.claim(key, None, tries_once)

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:
        return self.port.serve(handler, tries_once)

    def give_up(self, request: LockRequest) -> None:
        self.port.locks.give_up(request)

    # Membership.

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:
        self._host.leave(self.port, header, is_ordered)
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
