"""The node of a daemon and its sessions: what connects the passes of the one with the seats of the others."""

from __future__ import annotations

import asyncio
import logging
import os
from itertools import count
from typing import Final, Protocol

from ordercast.api.local import LocalBackend
from ordercast.api.shared import SharedUnderlay
from ordercast.config import SECOND
from ordercast.daemon.encoding import EventEncoder
from ordercast.daemon.seat import Limits, Seats
from ordercast.daemon.status import answer
from ordercast.errors import OrdercastError
from ordercast.groups.host import Host
from ordercast.runtime.driver import PassListener
from ordercast.view import Member
from ordercast.wire.client_frames import SECRET_BYTES, Question
from ordercast.wire.endings import SessionEnd, encode_ending

WATCH_S: Final = 0.1
"""How often sessions that hold more than they may are looked at."""

log = logging.getLogger("ordercast.daemon")


class HubDriver(Protocol):
    """What runs the passes of the daemon's node."""

    @property
    def host(self) -> Host: ...

    def now_ns(self) -> int: ...

    def wake(self) -> None: ...

    def add_listener(self, listener: PassListener) -> None:
        """One more that is told of each pass."""


class DaemonNode(Protocol):
    """The node of a daemon: on real sockets (`runtime.node.SessionNode`), or in virtual time."""

    @property
    def member(self) -> Member: ...

    @property
    def parts(self) -> tuple[HubDriver, LocalBackend]:
        """What its sessions, which are further applications of the same host, need of it."""

    async def attach(self, underlay: str, *, orderer: str | None, timeout: float | None) -> SharedUnderlay: ...

    async def close(self) -> None: ...

    def abort(self) -> None: ...


class Hub:
    """A node that is in a shared underlay, and the seats of its sessions there."""

    __slots__ = ("_backend", "_is_watching", "_labels", "_place", "encoder", "error", "node", "seats")

    def __init__(self, node: DaemonNode, underlay: str, limits: Limits | None = None) -> None:
        """The node has attached the underlay: sessions come and go, and it stays."""
        driver, self._backend = node.parts
        self._place = next(port for port in driver.host.session.places if port.underlay == underlay)
        self.node = node
        self.seats = Seats(driver.host, driver, underlay, self._place.engine.config, limits)
        self.encoder = EventEncoder(lambda: driver.now_ns() / SECOND)
        self.error: OrdercastError | None = None  # why the node has stopped
        self._labels = count(1)
        self._is_watching = False
        driver.add_listener(self)

    # What the driver calls.

    def settle(self) -> None:
        """A pass has ended."""
        guests = self._backend.take_guests()
        if guests:
            self.seats.settle_ports(guests)
            self.encoder.forget()
            if self.seats.has_slow and not self._is_watching:
                self._watch()

    def _watch(self) -> None:
        """Look again: where a slow session holds up the underlay, no pass brings anything."""
        self._is_watching = self.seats.has_slow and self.error is None
        if self._is_watching:
            asyncio.get_running_loop().call_later(WATCH_S, self._look)

    def _look(self) -> None:
        if self.error is None:
            self.seats.check_slow(self.seats.passes.now_ns())
        self._watch()

    def fail(self, error: OrdercastError) -> None:
        """The node has stopped."""
        self.error = error
        self.seats.stop(str(error))

    def leave(self, text: str) -> None:
        """The daemon goes, and with it sessions that are still on their way out: who sees them leave sees why."""
        host = self.seats.host
        host.leave(self._place, encode_ending(SessionEnd.STOPPED, text))

    # What connections share.

    def new_label(self) -> str:
        """For a client that gives no name."""
        while True:
            label = f"c{next(self._labels)}"
            if self.seats.named(label) is None and not self.seats.is_leaving(label):
                return label

    def new_secret(self) -> bytes:
        return os.urandom(SECRET_BYTES)

    def answer(self, question: Question) -> str:
        return answer(self.seats, question)

    def told(self, text: str, *, is_warning: bool = False) -> None:
        log.log(logging.WARNING if is_warning else logging.INFO, "%s: %s", self.node.member, text)
