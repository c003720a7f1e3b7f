"""A node of the bulk simulation: an engine with a processor, a socket buffer and two ports, and nothing around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ordercast.engine import NEVER, Outbox, Upcall
from ordercast.orderers.regions.upcalls import RegionUpcall
from ordercast.sim.bulk.skips import Skips
from ordercast.sim.bulk.tally import NodeTally
from ordercast.sim.machine import NORMAL_SPEED, PORT
from ordercast.sim.multicast import NOTHING
from ordercast.view import Address


class BulkEngine(Protocol):
    """What a node of the bulk simulation runs: the part of `Engine` that a world needs."""

    def start(self, now_ns: int, out: Outbox) -> None: ...

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None: ...

    def after_batch(self, now_ns: int, out: Outbox) -> None: ...

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int: ...

    def room(self, now_ns: int) -> tuple[int, int]: ...

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int: ...

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None: ...

    def waits_for_application(self) -> bool: ...

    def is_at_rest(self) -> bool: ...


class MulticastListener(Protocol):
    """An engine that hears multicast addresses besides the one of all nodes."""

    def listens(self) -> frozenset[Address]:
        """The addresses. It is asked after every pass: the same object as long as nothing changes costs least."""


class Want(IntEnum):
    """When a program wants its next turn. Besides, `BulkWorld.wake` gives it one."""

    NOTHING = 0
    LATER = 1  # in the next pass, whatever that is for
    NOW = 2  # as soon as the processor is free


# Looked up once: a member of an enum costs a call, and these are needed for each reception.
NO_TURN: Final = Want.NOTHING
TURN_LATER: Final = Want.LATER
TURN_NOW: Final = Want.NOW


class Program(Protocol):
    """The application of a node: `LoadProgram`, or one of the caller's own."""

    def turn(self, now_ns: int, engine: BulkEngine, out: Outbox) -> Want:
        """In a pass, before `after_batch`: consume, submit."""

    def take(self, now_ns: int, engine: BulkEngine, upcalls: Sequence[Upcall | RegionUpcall]) -> Want:
        """What the engine hands over. The list is used again."""

    def begin(self) -> None:
        """A life of the node begins: what the program knew of an earlier one is over."""

    def is_done(self) -> bool:
        """Whether it has nothing more to do, for worlds that are to come to rest."""


class QueuedBatch(NamedTuple):
    """Datagrams that wait in a socket buffer."""

    source: Address
    body: memoryview
    stride: int
    datagrams: int
    weight: int  # how many datagrams each of them stands for


class BulkNode:
    """One machine of the world: it outlives the engines that run on it."""

    __slots__ = (
        "address",
        "boot",
        "buffer_bytes",
        "busy_until_ns",
        "deadline_ns",
        "egress_free_ns",
        "engine",
        "has_work",
        "inbox",
        "inbox_bytes",
        "index",
        "ingress_free_ns",
        "is_barred",
        "is_paused",
        "life",
        "listening",
        "listens",
        "name",
        "program",
        "skips",
        "slowness",
        "spins",
        "tally",
        "until_loss",
        "wake_ns",
    )

    def __init__(
        self,
        index: int,
        name: str,
        boot: Callable[[BulkNode], BulkEngine],
        buffer_bytes: int,
        program: Program | None,
        skips: Skips,
    ) -> None:
        self.index = index
        self.name = name
        self.address: Address = (f"10.{index // 62_500}.{index // 250 % 250}.{index % 250 + 1}", PORT)
        self.boot = boot
        self.tally = NodeTally()
        # the present life
        self.life = -1
        self.engine: BulkEngine | None = None  # None: down
        self.program = program
        self.listens: Callable[[], frozenset[Address]] | None = None
        self.listening = NOTHING
        # socket
        self.inbox: deque[QueuedBatch] = deque()
        self.inbox_bytes = 0
        self.buffer_bytes = buffer_bytes
        # processor
        self.is_paused = False
        self.slowness = NORMAL_SPEED
        self.busy_until_ns = 0
        self.deadline_ns = NEVER  # of the engine, as it said after its last pass
        self.wake_ns = NEVER  # when the next pass is planned
        self.has_work = False  # the program wants its turn in the next pass
        self.spins = 0
        # the way to it
        self.egress_free_ns = 0
        self.ingress_free_ns = 0
        self.skips = skips
        self.until_loss = skips.draw()  # datagrams that get through before the next one is lost
        self.is_barred = False  # a cut or a partition may lie before it

    @property
    def is_up(self) -> bool:
        return self.engine is not None

    def __str__(self) -> str:
        return f"{self.name}/{self.life}"
