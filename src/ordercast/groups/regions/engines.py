"""What the groups need of an engine of regions (`ordercast.underlay.regions`), and what a test may fake.

It is driven like every engine (`ordercast.engine`), with two differences. Sending is by lanes: `room` and `submit` name
a region. And what comes up is `RegionUpcall`s, which `take` gives after each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Outbox, Waiting
from ordercast.membership.given import Attending, NumberedGroups, ViewSource
from ordercast.orderers.regions.upcalls import RegionUpcall
from ordercast.service import Service
from ordercast.view import Address, Member


class RegionalEngine(Protocol):
    """One engine for a node, whatever the number of its groups and regions. After `Departed` it is of no use: where
    that is `returning`, the groups make another one and ask for all groups again."""

    @property
    def config(self) -> GroupConfig: ...

    @property
    def counters(self) -> dict[str, int]: ...

    @property
    def state(self) -> Attending: ...

    @property
    def table(self) -> NumberedGroups: ...

    def supports(self, service: Service) -> bool: ...

    # Groups: what comes of these is told by `Installed`.

    def join(self, now_ns: int, names: Sequence[str]) -> None: ...

    def leave(self, now_ns: int, names: Sequence[str]) -> None: ...

    def follow(self, now_ns: int, names: Sequence[str]) -> None: ...

    def depart(self, now_ns: int, out: Outbox) -> None:
        """Leave everything in order; `Departed(wanted=True)` follows."""

    def pending(self) -> int:
        """Requests of these kinds that the service has not answered."""

    # Sending.

    def room(self, now_ns: int, region: int) -> tuple[int, int]:
        """Bytes that may leave for a region now, and the largest block."""

    def submit(self, now_ns: int, region: int, blocks: Sequence[bytes], out: Outbox) -> int:
        """Take blocks for a region, in order; how many were taken."""

    # Receiving.

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        """The application has taken everything up to and including the delivery `seq`."""

    def take(self) -> list[RegionUpcall]:
        """What has come up since the last call, in order."""

    # Driving, as `Engine` has it.

    def start(self, now_ns: int, out: Outbox) -> None: ...

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None: ...

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None: ...

    def after_batch(self, now_ns: int, out: Outbox) -> None: ...

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int: ...

    def waiting(self, now_ns: int) -> Waiting | None: ...

    def is_at_rest(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def is_held_up(self) -> bool:
        """Whether a token waits here until the application has received more."""

    def listens(self) -> frozenset[Address]:
        """The multicast addresses that this node has to hear now: of its views that are not forgotten."""


class RegionEngineFactory(Protocol):
    """What makes the engine of a node: the real one with its side of the service, or a fake."""

    def __call__(self, me: Member, config: GroupConfig, timing: Timing, rng: Random, /) -> RegionalEngine: ...


class SourceFactory(Protocol):
    """What makes a node's side of the membership service."""

    def __call__(self, me: Member, timing: Timing, rng: Random, /) -> ViewSource: ...


class SourcedEngine(Protocol):
    """What makes an engine that hears of views by a source."""

    def __call__(self, me: Member, config: GroupConfig, timing: Timing, source: ViewSource, /) -> RegionalEngine: ...


class SourcedEngines:
    """A `RegionEngineFactory` of both."""

    __slots__ = ("_engine", "_source")

    def __init__(self, engine: SourcedEngine, source: SourceFactory) -> None:
        self._engine = engine
        self._source = source

    def __call__(self, me: Member, config: GroupConfig, timing: Timing, rng: Random, /) -> RegionalEngine:
        return self._engine(me, config, timing, self._source(me, timing, rng))
