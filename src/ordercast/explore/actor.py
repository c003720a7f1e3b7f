"""One node of an explored group: a `Host` with real engines, and a program that joins, sends, leaves and insists.

The node's state is a function of what it was given: datagrams, times, calls of the application. `digest` is a running
hash of all of them, so that two nodes with the same digest are in the same state, and nobody has to look into an
engine to know it. Chance is seeded by the node's name, and so part of the function.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple

from ordercast.config import MS, GroupConfig, MinMembers, Timing
from ordercast.engine import NEVER, Send
from ordercast.errors import GroupFailed, NotMember
from ordercast.groups.engines import EngineFactory
from ordercast.groups.events import Left, PortEvent
from ordercast.groups.host import Host
from ordercast.groups.locks import LockRequest
from ordercast.groups.port import Port
from ordercast.service import Service
from ordercast.view import Address, View

GROUP: Final = "explored"
BUFFER_BYTES: Final = 1 << 20
REOPEN_TICKS: Final = 250  # a program that was refused, or thrown out for good, waits this long before it joins again
ROUNDS: Final = 8  # turns of the program in one pass; the rest waits for the next
NO_TICK: Final = NEVER // MS


class JoinTerms(NamedTuple):
    """With what every node of an explored group joins."""

    config: GroupConfig
    min_members: MinMembers
    timing: Timing
    engines: EngineFactory | None


class Packet(NamedTuple):
    """One transmission to one node. `serial` counts what the source has sent: with its history it names the bytes."""

    source: int
    target: int
    serial: int
    data: bytes
    stride: int
    kind: int


class Actor:
    """Times are ticks of a millisecond: timers and datagrams happen on them."""

    __slots__ = (
        "_offers",
        "_reopen_tick",
        "_terms",
        "address",
        "claim",
        "deadline",
        "digest",
        "events",
        "host",
        "index",
        "life",
        "name",
        "paused_until",
        "port",
        "wants_in",
    )

    def __init__(self, index: int, name: str, terms: JoinTerms) -> None:
        self.index = index
        self.name = name
        self.address: Address = (f"10.0.0.{index + 1}", 7_000)
        self._terms = terms
        # the present life
        self.life = -1
        self.host: Host | None = None  # None: down
        self.port: Port | None = None
        self.wants_in = False
        self.deadline = NO_TICK
        self.paused_until = 0
        self.claim: LockRequest | None = None
        self._reopen_tick = NO_TICK
        self._offers: list[tuple[bytes, Service]] = []  # that the group has not taken yet
        # what came of it
        self.events: list[PortEvent] = []  # since they were last taken
        self.digest = blake2b(name.encode(), digest_size=16)

    def __str__(self) -> str:
        return f"{self.name}/{self.life}"

    @property
    def is_up(self) -> bool:
        return self.host is not None

    @property
    def view(self) -> View | None:
        return self.port.view if self.port is not None and self.host is not None else None

    # The program.

    def boot(self, tick: int, create: bool | None) -> None:
        """Begin a life, and join. `create`: as a program says it; None creates the group where it finds none."""
        self.life += 1
        terms = self._terms
        self.digest.update(b"boot%d" % tick)
        self.host = Host(
            self.name,
            self.life,
            self.address,
            buffer_bytes=BUFFER_BYTES,
            rng=Random(f"{self.name}/{self.life}"),
            timing=terms.timing,
            engines=terms.engines,
        )
        self.host.start(tick * MS)
        self.wants_in = True
        self._offers = []
        self._open(tick, create)

    def crash(self) -> None:
        self.host = None
        self.port = None
        self.wants_in = False
        self.deadline = self._reopen_tick = NO_TICK
        self.digest.update(b"crash")

    def send(self, payload: bytes, service: Service) -> None:
        """Hand over a message as soon as the group takes it."""
        if self.host is not None:
            self._offers.append((payload, service))
            self._wake(b"send" + payload)

    def leave(self) -> None:
        """Leave, or give up a join."""
        self.wants_in = False
        self._offers = []
        if self.host is not None and self.port is not None and self.port.gone is None:
            self.host.leave(self.port)
            self._wake(b"leave")

    def rejoin(self, tick: int) -> None:
        """Come back in the same life; where the leave is still under way, after it."""
        if self.host is None:
            return
        self.wants_in = True
        if self.port is not None and self.port.gone is not None:
            self._open(tick, create=False)
            self._wake(b"rejoin")

    def lock(self, key: str) -> None:
        if self.host is not None and self.port is not None and self.port.view is not None:
            self.claim = self.port.lock(key)
            self._wake(b"lock")

    def unlock(self) -> None:
        if self.host is not None and self.port is not None and self.claim is not None:
            self.port.locks.give_up(self.claim)
            self.claim = None
            self._wake(b"unlock")

    def _open(self, tick: int, create: bool | None) -> None:
        host, terms = self.host, self._terms
        if host is not None:
            self._reopen_tick = NO_TICK
            self.port = host.open(tick * MS, GROUP, config=terms.config, create=create, min_members=terms.min_members)
            self.deadline = 0

    def _wake(self, what: bytes) -> None:
        """Something was asked of the port: the next tick has a pass."""
        self.digest.update(what)
        if self.host is not None and self.port is not None:
            self.host.touch(self.port)
            self.deadline = 0

    # One pass.

    def work(self, tick: int, packets: list[Packet], addresses: list[Address]) -> list[tuple[str, Send]]:
        """Receive, run timers, take events, send what waits. Hot: once per node and tick in which it has to do."""
        host, port, digest = self.host, self.port, self.digest
        if host is None or port is None:
            return []
        now_ns = tick * MS
        digest.update(b"@%d" % tick)
        for packet in packets:
            digest.update(packet.data)
            host.receive(now_ns, addresses[packet.source], memoryview(packet.data), packet.stride)
        if self._reopen_tick <= tick and self.wants_in:
            self._open(tick, create=False)
            port = self.port or port
        if host.deadline_ns() <= now_ns:
            host.expire(now_ns)
        sends = host.finish(now_ns)
        for _ in range(ROUNDS):
            has_taken = port.has_events and self._take(tick, port)
            has_offered = bool(self._offers) and self._offer(port)
            if not (has_taken or has_offered or port.has_consumed):
                break
            host.touch(port)
            sends += host.finish(now_ns)
            port = self.port or port
        host.take_news()
        deadline_ns = host.deadline_ns()
        # A timer that is overdue after its pass gets the next tick.
        self.deadline = min(max(-(-deadline_ns // MS), tick + 1) if deadline_ns < NEVER else NO_TICK, self._reopen_tick)
        return sends

    def _take(self, tick: int, port: Port) -> bool:
        """Take what came; whether the program has done something about it."""
        while (event := port.take()) is not None:
            self.events.append(event)
            if isinstance(event, Left) and not event.returning and self.wants_in:
                self._reopen_tick = tick + (1 if event.wanted else REOPEN_TICKS)
        return port.has_consumed

    def _offer(self, port: Port) -> bool:
        if port.view is None:
            return False
        payload, service = self._offers[0]
        try:
            port.check(len(payload), service, 0)
        except (GroupFailed, NotMember):
            return False
        if port.offer(payload, service) < 0:
            return False
        self._offers.pop(0)
        return True
