"""An engine that writes down what it sees and sends what it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ordercast.engine import NEVER, Note, Outbox, Send
from ordercast.sim.bulk import BulkNode, BulkWorld
from ordercast.sim.world import BUFFER_BYTES
from ordercast.view import Address


class Seen(NamedTuple):
    at_ns: int
    source: Address
    data: bytes
    stride: int


class RecordingEngine:
    def __init__(self, hears: frozenset[Address] = frozenset()) -> None:
        self.seen: list[Seen] = []
        self.passes: list[int] = []
        self.fired: list[int] = []
        self.queue: list[Send] = []
        self.notes: list[Note] = []
        self.timer_ns = NEVER
        self.hears = hears
        self.is_busy = False
        self.never_clears = False

    def start(self, now_ns: int, out: Outbox) -> None:  # noqa: ARG002
        self.passes.append(now_ns)

    def listens(self) -> frozenset[Address]:
        return self.hears

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:  # noqa: ARG002
        assert self.passes, "received before it was started"
        self.seen.append(Seen(now_ns, source, bytes(data), stride))

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        self.passes.append(now_ns)
        out.sends += self.queue
        out.notes += self.notes
        self.queue, self.notes = [], []

    def expire(self, now_ns: int, out: Outbox) -> None:  # noqa: ARG002
        self.fired.append(now_ns)
        if not self.never_clears:
            self.timer_ns = NEVER

    def deadline_ns(self) -> int:
        return self.timer_ns

    def room(self, now_ns: int) -> tuple[int, int]:  # noqa: ARG002
        return 0, 0

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:  # noqa: ARG002
        return 0

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        pass

    def waits_for_application(self) -> bool:
        return False

    def is_at_rest(self) -> bool:
        return not self.is_busy


class House:
    """A world of recording engines: `house["a"]` is the engine of the present life of node a."""

    def __init__(
        self,
        world: BulkWorld,
        names: Sequence[str],
        hears: frozenset[Address] = frozenset(),
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.world = world
        self.lives: dict[str, list[RecordingEngine]] = {name: [] for name in names}

        def boot(node: BulkNode) -> RecordingEngine:
            engine = RecordingEngine(hears)
            self.lives[node.name].append(engine)
            return engine

        for name in names:
            world.add(name, boot, buffer_bytes=buffer_bytes)
        world.start_all()
        world.run_until(world.now_ns)

    def __getitem__(self, name: str) -> RecordingEngine:
        return self.lives[name][-1]

    def send(self, name: str, *sends: Send) -> None:
        """In a pass now."""
        self[name].queue += sends
        self.world.wake(self.world[name])
