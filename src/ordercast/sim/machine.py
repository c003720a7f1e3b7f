"""A machine of the simulated world (`world.py`), which alone changes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ordercast.engine import NEVER
from ordercast.sim.datagrams import Train
from ordercast.sim.folders import SimFolder
from ordercast.sim.stack import Stack
from ordercast.sim.unreachable import Report
from ordercast.trace.recorder import Recorder
from ordercast.view import Address

PORT: Final = 7_000
NORMAL_SPEED: Final = 100  # percent of the model's processor costs


class Machine:
    """One machine of the world: it outlives the lives of what runs on it."""

    __slots__ = (
        "address",
        "after_pass",
        "arrived",
        "boot",
        "buffer_bytes",
        "busy_until_ns",
        "dropped",
        "folder",
        "has_multicast",
        "has_work",
        "inbox",
        "inbox_bytes",
        "index",
        "is_dead",
        "is_paused",
        "last_ns",
        "life",
        "listening",
        "name",
        "recorders",
        "reports",
        "slowness",
        "spins",
        "stack",
        "wake_ns",
    )

    def __init__(
        self, index: int, name: str, boot: Callable[[Machine], Stack], buffer_bytes: int, has_multicast: bool
    ) -> None:
        self.index = index
        self.name = name
        self.address: Address = (f"10.0.{index // 250}.{index % 250 + 1}", PORT)
        self.boot = boot
        self.buffer_bytes = buffer_bytes
        self.has_multicast = has_multicast  # it can send and hear multicasts, where the network has them
        self.folder: SimFolder | None = None  # what it keeps over its lives, if anything
        # the present life
        self.life = -1
        self.stack: Stack | None = None  # None: down
        self.recorders: list[Recorder] = []  # of all lives
        self.listening: dict[str, None] = {}  # underlays whose multicasts it hears, in the order in which it began to
        self.after_pass: Callable[[int], None] | None = None  # the application's turn
        self.is_dead = False  # the whole machine is down, not only the process: its kernel says nothing
        # socket
        self.reports: list[Report] = []  # the error queue
        self.inbox: deque[Train] = deque()
        self.inbox_bytes = 0
        self.dropped = 0
        self.arrived = 0  # datagrams that reached its interface: without coalescing each is an interrupt
        # processor
        self.is_paused = False
        self.slowness = NORMAL_SPEED
        self.busy_until_ns = 0
        self.last_ns = 0  # the last time that the stack was told
        self.wake_ns = NEVER  # when the next pass is planned
        self.has_work = False  # the application asked for it
        self.spins = 0

    @property
    def is_up(self) -> bool:
        return self.stack is not None

    def __str__(self) -> str:
        return f"{self.name}/{self.life}"
