"""Applications of the bulk simulation: messages at a rate or as fast as the engine takes them, and what is delivered.

Blocks are ready-made: a block that was packed once (`wire/block.py`) gets another first number, and nothing else is
done for a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from ordercast.config import SECOND
from ordercast.engine import Outbox, Run, Upcall
from ordercast.errors import UsageError
from ordercast.orderers.regions.upcalls import LaneRun, RegionUpcall
from ordercast.sim.bulk.node import NO_TURN, TURN_LATER, TURN_NOW, BulkEngine, Want
from ordercast.sim.bulk.world import BulkWorld
from ordercast.wire.block import head_of

BLOCKS_PER_TURN: Final = 16  # that a program submits in one pass; then what has arrived meanwhile is read
_FIRST: Final = Struct("<Q")  # the first field of a block's head
_COUNT: Final = Struct("<I")  # and the second
_COUNT_OFFSET: Final = _FIRST.size


class ReadyBlocks:
    """Blocks made from templates. Each call gives the blocks of one *set*, which go out together, and the sets take
    turns. So a message to k regions is one set of k blocks, and messages to many groups in turn are many sets.

    The numbers of messages rise by `lane`, which is the place of a template in its set.
    """

    __slots__ = ("_lanes", "_sets", "_turn", "messages")

    def __init__(self, *sets: Sequence[bytes]) -> None:
        if not sets or not all(sets):
            raise UsageError("give at least one set of blocks, and no empty one")
        self._sets = [[(head_of(block).count, block[_FIRST.size :]) for block in each] for each in sets]
        self._lanes = [0] * max(map(len, sets))
        self._turn = 0
        self.messages = self._sets[0][0][0]  # of a set
        if any(count != self.messages for each in self._sets for count, _ in each):
            raise UsageError("all blocks of a load must have the same number of messages")

    def __call__(self, now_ns: int) -> list[bytes]:  # noqa: ARG002 - a source of the caller's own may stamp its messages
        made = []
        for lane, (count, rest) in enumerate(self._sets[self._turn]):
            made.append(_FIRST.pack(self._lanes[lane]) + rest)
            self._lanes[lane] += count
        self._turn = (self._turn + 1) % len(self._sets)
        return made


class LoadProgram:
    """What a node sends, and what it takes. Without a source it only takes.

    source: gives the blocks of the next messages; it is asked when the engine has room. messages: in what it gives.
    per_s: messages a second; None: as fast as the engine takes them. limit: messages in all. lag_ns: how much later the
    program has finished with what it got.
    """

    __slots__ = (
        "_due",
        "_every_ns",
        "_free_seq",
        "_given_seq",
        "_held",
        "_is_short",
        "_lagging_seq",
        "_left",
        "_source",
        "_taken_seq",
        "_world",
        "blocks",
        "is_stalled",
        "lag_ns",
        "messages",
        "name",
        "on_other",
        "on_run",
        "submitted",
        "taken",
    )

    def __init__(
        self,
        world: BulkWorld,
        name: str,
        source: Callable[[int], list[bytes]] | None = None,
        *,
        messages: int = 1,
        per_s: float | None = None,
        limit: int | None = None,
        lag_ns: int = 0,
    ) -> None:
        self._world = world
        self.name = name
        self.lag_ns = lag_ns
        # sending
        self.messages = source.messages if isinstance(source, ReadyBlocks) else messages
        self._source = source
        self._every_ns = round(SECOND * self.messages / per_s) if per_s else 0
        self._left = (limit + self.messages - 1) // self.messages if limit is not None else -1  # sets; -1: no end
        self._due = 0  # sets whose time has come, where there is a rate
        self._held: list[bytes] = []  # of a set that the engine took in part
        self._is_short = False  # the engine had no room when it was asked last
        self.submitted = 0  # messages
        # taking
        self.on_run: Callable[[int, Run | LaneRun], None] | None = None  # who looks at every delivery
        self.on_other: Callable[[int, Upcall | RegionUpcall], None] | None = None  # and at all other upcalls
        self.taken = 0  # messages
        self.blocks = 0
        self.is_stalled = False  # it takes what it gets, and finishes with nothing
        self._taken_seq = -1  # the last that was handed over
        self._lagging_seq = -1  # the last that it is busy with
        self._free_seq = -1  # the last that it has finished with
        self._given_seq = -1  # the last that the engine has back
        if self._every_ns:
            # Senders that begin at the same time do not go on in step.
            world.after(world.stream(f"load/{name}").randrange(self._every_ns), self._on_time)

    @property
    def is_sending(self) -> bool:
        """Whether more is to come."""
        return self._source is not None and (self._left != 0 or bool(self._held))

    @property
    def backlog(self) -> int:
        """Messages whose time has come, and that the engine has not taken."""
        return self._due * self.messages

    def stop(self) -> None:
        """Send nothing more."""
        self._left = self._due = 0
        self._held.clear()

    # What a world asks of a program. ---------------------------------------------------------------------------------

    def begin(self) -> None:
        self._taken_seq = self._lagging_seq = self._free_seq = self._given_seq = -1
        self._held.clear()

    def turn(self, now_ns: int, engine: BulkEngine, out: Outbox) -> Want:
        free_seq = self._free_seq if self.lag_ns else self._taken_seq
        if free_seq > self._given_seq and not self.is_stalled:
            self._given_seq = free_seq
            engine.consume(now_ns, free_seq, out)
        if self._source is None or not (self._due or self._held or not self._every_ns):
            return NO_TURN
        self._is_short = False
        for _ in range(BLOCKS_PER_TURN):
            if not self._held and not self._next(now_ns):
                return NO_TURN
            room, largest = engine.room(now_ns)
            size = max(map(len, self._held))  # a set has one block for each lane, and room is that of a lane
            if size > room:
                if 0 < largest < size:  # 0: the engine takes nothing yet
                    raise UsageError(f"a block of {size} bytes is larger than the engine's largest, {largest}")
                self._is_short = True
                return TURN_LATER
            taken = engine.submit(now_ns, self._held, out)
            if taken < len(self._held):
                del self._held[:taken]
                self._is_short = True
                return TURN_LATER
            self._held.clear()
            self.submitted += self.messages
        return TURN_NOW

    def take(self, now_ns: int, engine: BulkEngine, upcalls: Sequence[Upcall | RegionUpcall]) -> Want:
        before = self._taken_seq
        want = NO_TURN
        for upcall in upcalls:
            if not isinstance(upcall, (Run, LaneRun)):
                if self._is_short:
                    want = TURN_NOW  # a view or an epoch may have made room, after this pass had its turn
                if self.on_other is not None:
                    self.on_other(now_ns, upcall)
            elif upcall.deliveries:
                deliveries = upcall.deliveries
                self.blocks += len(deliveries)
                for delivery in deliveries:
                    self.taken += _COUNT.unpack_from(delivery.block, _COUNT_OFFSET)[0]
                self._taken_seq = deliveries[-1].seq
                if self.on_run is not None:
                    self.on_run(now_ns, upcall)
        if self._taken_seq == before:
            return want
        if not self.lag_ns:
            return TURN_NOW if want is TURN_NOW or engine.waits_for_application() else TURN_LATER
        if self._lagging_seq < 0:
            self._work(now_ns)
        return want

    def is_done(self) -> bool:
        return not (self._due or self._held or self._lagging_seq >= 0 or (self._every_ns == 0 and self.is_sending))

    # Time. -----------------------------------------------------------------------------------------------------------

    def _next(self, now_ns: int) -> bool:
        """Have the next set, if its time has come."""
        if self._source is None or (not self._due if self._every_ns else not self._left):
            return False
        if self._every_ns:
            self._due -= 1
        elif self._left > 0:
            self._left -= 1
        self._held = self._source(now_ns)
        return True

    def _on_time(self, _: object) -> None:
        node = self._world[self.name]
        if node.is_up and self._left:
            self._left -= self._left > 0
            self._due += 1
            self._world.wake(node)
        if self._left:
            self._world.after(self._every_ns, self._on_time)

    def _work(self, now_ns: int) -> None:
        """Begin with everything that was taken."""
        self._lagging_seq = self._taken_seq
        self._world.at(now_ns + self.lag_ns, self._on_finished, self._world[self.name].life)

    def _on_finished(self, life: int) -> None:
        node = self._world[self.name]
        if node.is_up and node.life == life:
            self._free_seq, self._lagging_seq = self._lagging_seq, -1
            if self._taken_seq > self._free_seq:
                self._work(self._world.now_ns)
            self._world.wake(node)
