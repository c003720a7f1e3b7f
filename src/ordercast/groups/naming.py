"""Which groups other nodes are in, so that a group can be joined by a member's address (RMP section 3.3).

A node asks another one, again and again with back-off, until it answers or the tries are over. Every node answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordercast.config import LAN_DATAGRAM, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.errors import OrdercastError, WireError
from ordercast.groups.driven import LogLine
from ordercast.groups.rows import Meter
from ordercast.parts.rtt import RoundTrip
from ordercast.view import Address, Member
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.names import NAMELESS_TAG, decode_names, encode_names, encode_question
from ordercast.wire.writer import DatagramWriter


class NameQuery:
    """One question. `names` is None where nobody answered."""

    __slots__ = ("address", "due_ns", "error", "names", "number", "sent_ns", "tries", "waiter")

    def __init__(self, address: Address, number: int) -> None:
        self.address = address
        self.number = number
        self.sent_ns = 0
        self.due_ns = 0  # to be asked with the next pass
        self.tries = 0
        self.names: list[str] | None = None
        self.error: OrdercastError | None = None
        self.waiter: Any = None  # the API's: a future


class Naming:
    """The questions of one node, and its answers. The `Host` drives it where a member has its `Channel`."""

    __slots__ = (
        "_counters",
        "_intake",
        "_next",
        "_queries",
        "_rtt",
        "_timing",
        "_writer",
        "armed_ns",
        "deadline_ns",
        "is_over",
        "log",
        "order",
        "out",
        "sent",
        "settled",
    )

    def __init__(self, me: Member, timing: Timing, order: int, counters: dict[str, int]) -> None:
        self._timing = timing
        self._counters = counters
        self._writer = DatagramWriter(NAMELESS_TAG, me.id, LAN_DATAGRAM)
        self._intake = Intake(NAMELESS_TAG, counters)
        self._rtt = RoundTrip(timing, timing.find_ns)
        self._queries: dict[int, NameQuery] = {}  # by number; each has a task that waits
        self._next = 0
        self.settled: list[NameQuery] = []
        # driving
        self.order = order
        self.out = Outbox()
        self.sent = Meter()
        self.log: list[LogLine] = []
        self.is_over = False
        self.deadline_ns = NEVER
        self.armed_ns = NEVER

    @property
    def driven(self) -> Naming:
        return self

    @property
    def underlay(self) -> str:
        """None: it sends to single nodes only."""
        return ""

    def ask(self, address: Address) -> NameQuery:
        """It comes back in `settled`."""
        self._next += 1
        query = self._queries[self._next] = NameQuery(address, self._next)
        return query

    def forget(self, query: NameQuery) -> None:
        """No task waits for it any more."""
        self._queries.pop(query.number, None)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, groups: Sequence[str]) -> None:
        """A batch of datagrams. `groups`: those that this node is in."""
        for datagram in self._intake.read(now_ns, data, stride):
            if datagram.kind != Kind.NAMES:
                continue
            try:
                names = decode_names(datagram.body)
            except WireError:
                self._intake.reject()
                continue
            query = self._queries.get(datagram.number)
            if names is None:
                answer = encode_names(groups)
                self.out.sends.append(self._writer.control(source, Kind.NAMES, answer, number=datagram.number))
            elif query is not None and query.address == source:
                if query.tries == 1:
                    self._rtt.sample(now_ns - query.sent_ns)
                query.names = names
                self._settle(query)

    def expire(self, now_ns: int) -> None:
        self._intake.expire(now_ns)

    def finish(self, now_ns: int) -> None:
        for query in [query for query in self._queries.values() if query.due_ns <= now_ns]:
            if query.tries >= self._timing.find_tries:
                self._settle(query)
                continue
            if query.tries:
                self._rtt.expired()
            else:
                query.sent_ns = now_ns
            self.out.sends.append(
                self._writer.control(query.address, Kind.NAMES, encode_question(), number=query.number)
            )
            query.due_ns = now_ns + self._rtt.timeout_ns(query.tries)
            query.tries += 1
        due_ns = min([query.due_ns for query in self._queries.values()], default=NEVER)
        self.deadline_ns = min(due_ns, self._intake.due_ns)

    def take_news(self) -> list[Naming]:
        return [self]

    def fail(self, error: OrdercastError) -> None:
        """All waits end with `error`."""
        for query in list(self._queries.values()):
            query.error = error
            self._settle(query)

    def _settle(self, query: NameQuery) -> None:
        del self._queries[query.number]
        self.settled.append(query)
