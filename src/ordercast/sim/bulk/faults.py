"""What can go wrong in the bulk simulation: a schedule of faults, and hiccups.

Faults are those of `sim/faults.py`, as far as they befall machines and links: crash, restart, pause, slow, cut,
partition, lossy, and stall. A *hiccup* is what the QSM paper's machines had now and then ("easily disturbed by
scheduling", section 2.4): in some of its seconds a node loses a share of what comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ordercast.config import SECOND
from ordercast.errors import UsageError
from ordercast.sim.bulk.load import LoadProgram
from ordercast.sim.bulk.skips import Skips
from ordercast.sim.bulk.world import BulkWorld
from ordercast.sim.faults import Fault, FaultKind

HICCUP: Final = "hiccup"
HANDLED: Final = frozenset(
    {
        FaultKind.CRASH,
        FaultKind.RESTART,
        FaultKind.JOIN,
        FaultKind.PAUSE,
        FaultKind.SLOW,
        FaultKind.CUT,
        FaultKind.PARTITION,
        FaultKind.LOSSY,
        FaultKind.STALL,
    }
)


class BulkFaults:
    """Applies a list of faults to a world."""

    __slots__ = ("_world",)

    def __init__(self, world: BulkWorld, faults: Sequence[Fault]) -> None:
        self._world = world
        for fault in sorted(faults, key=lambda fault: fault.at_ns):
            if fault.kind not in HANDLED:
                raise UsageError(
                    f"the bulk simulation has no fault {str(fault.kind)!r}; it has {', '.join(sorted(HANDLED))}"
                )
            world.at(fault.at_ns, self._begin, fault)
            if fault.for_ns:
                world.at(fault.at_ns + fault.for_ns, self._end, fault)

    def _begin(self, fault: Fault) -> None:
        world = self._world
        kind = FaultKind(fault.kind)
        if kind is FaultKind.PARTITION:
            world.partition([fault.nodes])
            return
        for name in fault.nodes:
            match kind:
                case FaultKind.CRASH:
                    world.crash(name)
                case FaultKind.RESTART | FaultKind.JOIN:
                    world.start(name)
                case FaultKind.PAUSE:
                    world.pause(name)
                case FaultKind.SLOW:
                    world.slow(name, fault.value)
                case FaultKind.CUT:
                    for other in fault.others:
                        world.cut(name, other)
                case FaultKind.LOSSY:
                    world.lose(name, FaultKind.LOSSY, fault.value)
                case _:
                    self._stall(name, is_stalled=True)

    def _end(self, fault: Fault) -> None:
        world = self._world
        kind = FaultKind(fault.kind)
        if kind is FaultKind.PARTITION:
            # A later partition may have replaced this one: it then ends here, too, which is as good a fault.
            world.partition([])
            return
        for name in fault.nodes:
            match kind:
                case FaultKind.PAUSE:
                    world.resume(name)
                case FaultKind.SLOW:
                    world.slow(name)
                case FaultKind.CUT:
                    for other in fault.others:
                        world.mend(name, other)
                case FaultKind.LOSSY:
                    world.lose(name, FaultKind.LOSSY, 0.0)
                case FaultKind.STALL:
                    self._stall(name, is_stalled=False)
                case _:
                    pass

    def _stall(self, name: str, *, is_stalled: bool) -> None:
        node = self._world[name]
        if isinstance(node.program, LoadProgram):
            node.program.is_stalled = is_stalled
            self._world.wake(node)


@dataclass(frozen=True, slots=True)
class Hiccups:
    """In `chance` of its seconds a node has a hiccup of a share that is uniform between 0 and 1.

    loses: it loses that share of what comes in the second, each datagram by itself. pauses: it stands still for that
    share of the second, from its beginning; what its socket buffer cannot take is dropped. burst: it loses so many
    datagrams in a row.
    """

    chance: float = 0.02
    loses: bool = True
    pauses: bool = False
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0.0 <= self.chance <= 1.0:
            raise UsageError(f"chance must lie between 0 and 1, got {self.chance}")
        if self.burst < 1:
            raise UsageError(f"a burst has at least one datagram, got {self.burst}")


class HiccupSchedule:
    """Makes nodes of a world have hiccups, each node by a chance of its own. Seconds are those of the world's time."""

    __slots__ = ("_has_ended", "_model", "_streams", "_world", "shares")

    def __init__(self, world: BulkWorld, model: Hiccups, names: Iterable[str] | None = None) -> None:
        self._world = world
        self._model = model
        self._has_ended = False
        self._streams: dict[str, tuple[Skips, Random]] = {}
        self.shares: dict[str, list[tuple[int, float]]] = {}  # node -> (second, share) of each hiccup that it had
        for name in list(world.nodes) if names is None else names:
            rng = world.stream(f"{HICCUP}/{name}")
            self._streams[name] = (Skips(rng, model.chance), rng)
            self.shares[name] = []
            self._plan(name, world.now_ns // SECOND + 1)

    def end(self) -> None:
        """No hiccup begins from now on; what has begun ends in its time."""
        self._has_ended = True

    def _plan(self, name: str, second: int) -> None:
        """The next hiccup of a node, not before `second`."""
        skip = self._streams[name][0].draw()
        if self._model.chance > 0:
            self._world.at((second + skip) * SECOND, self._begin, name)

    def _begin(self, name: str) -> None:
        if self._has_ended:
            return
        world, model = self._world, self._model
        share = self._streams[name][1].random()
        second = world.now_ns // SECOND
        self.shares[name].append((second, share))
        if model.loses:
            world.lose(name, HICCUP, share, model.burst)
            world.at((second + 1) * SECOND, self._end_loss, name)
        if model.pauses:
            world.pause(name)
            world.at(second * SECOND + int(share * SECOND), self._end_pause, name)
        self._plan(name, second + 1)

    def _end_loss(self, name: str) -> None:
        self._world.lose(name, HICCUP, 0.0)

    def _end_pause(self, name: str) -> None:
        self._world.resume(name)
