"""What all Spread sessions of one daemon share: names that are taken, encoded blocks, bounds, counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from ordercast.daemon.seat import Seats
from ordercast.daemon.spread.handshake import Reject
from ordercast.daemon.spread.membership import MemberOrder
from ordercast.daemon.spread.names import label_of
from ordercast.daemon.spread.relay import Relay
from ordercast.daemon.spread.settings import SpreadSettings


class Visitor(Protocol):
    """A connection, as the desk sees it."""

    @property
    def waiting_bytes(self) -> int:
        """That wait for its client."""

    def put_out(self, text: str) -> None:
        """Disconnect it: it does not receive."""

    def hang_up(self) -> None:
        """Close it, if it is still on its way in."""


class SpreadDesk:
    """One for each daemon."""

    __slots__ = (
        "_invented",
        "_is_settling",
        "_loop",
        "_reserved",
        "blocked",
        "counters",
        "order",
        "relay",
        "seats",
        "settings",
        "visitors",
    )

    def __init__(self, seats: Seats, settings: SpreadSettings, order: MemberOrder) -> None:
        self.seats = seats
        self.settings = settings
        self.order = order
        self.relay = Relay()
        self.visitors: dict[Visitor, None] = {}  # all connections; at most `max_sessions`
        self.blocked: dict[Visitor, None] = {}  # those whose sockets take nothing: only for them anything waits
        self._reserved: set[str] = set()  # labels of clients that are still connecting
        self._invented = 0
        self._loop = asyncio.get_running_loop()
        self._is_settling = False
        self.counters: Counter[str] = Counter()  # accepted, kicked, faults, and rejects by their codes

    @property
    def daemon(self) -> str:
        """The name of the daemon."""
        return self.seats.host.me.name

    @property
    def is_full(self) -> bool:
        return len(self.visitors) >= self.settings.max_sessions

    # Names.

    def reserve(self, private_name: bytes) -> str | None:
        """The label for a client of this private name, or of one that is made up; None: it is taken."""
        label = label_of(private_name) if private_name else self._invent()
        if label in self._reserved or self.seats.named(label) is not None:
            return None
        if not self.is_leaving(label):
            self._reserved.add(label)
        return label

    def is_leaving(self, label: str) -> bool:
        """The last session of this label has ended, and is not out of its groups yet."""
        return self.seats.is_leaving(label)

    def release(self, label: str) -> None:
        """The client is connected, or gone."""
        self._reserved.discard(label)

    def _invent(self) -> str:
        while True:  # at most as often as there are sessions
            self._invented += 1
            label = f"r{self._invented}"
            if label not in self._reserved and self.seats.named(label) is None and not self.is_leaving(label):
                return label

    # Passes.

    def settle(self) -> None:
        """A session has encoded something: when all have, the encoded blocks are not needed any more."""
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settled)

    def _settled(self) -> None:
        self._is_settling = False
        self.relay.forget()
        most = self.settings.total_bytes
        waiting = {visitor: visitor.waiting_bytes for visitor in self.blocked}
        total = sum(waiting.values())
        while total > most:
            visitor = max(waiting, key=lambda each: waiting[each])
            total -= waiting.pop(visitor)
            visitor.put_out(f"more waits for it than for any other client, and {most} bytes may wait for all of them")

    def count_reject(self, code: Reject | None) -> None:
        self.counters["silent" if code is None else f"reject.{code.name.lower()}"] += 1
