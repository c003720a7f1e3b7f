"""What can go wrong, as data: a fault has a time, a kind and the nodes that it befalls.

Kinds with a duration end by themselves; `heal_all` ends the rest. Membership changes that the application asks for
(leave, rejoin, reset) are in the same list, because a scenario is one list of what happens from outside.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from ordercast.config import MS
from ordercast.sim.pipes import Direction, PipeModel, Pipes
from ordercast.sim.world import World


class FaultKind(StrEnum):
    CRASH = "crash"  # all state is lost: of the whole machine, or (value 1) of the process, and its kernel says so
    CRASH_STORING = "crash-storing"  # crashes within `for_ns`, between storing in its folder and sending if it stores
    FORGET = "forget"  # the folder of a node that is down is lost
    RESTART = "restart"  # the next life of a crashed node begins, and joins again
    PAUSE = "pause"  # stands still for `for_ns`
    SLOW = "slow"  # processor costs times `value` for `for_ns`
    CUT = "cut"  # nothing from `nodes` reaches `others` for `for_ns`; the other direction works
    PARTITION = "partition"  # `nodes` and the rest cannot reach each other for `for_ns`
    LOSSY = "lossy"  # everything that `nodes` would receive is lost with probability `value` for `for_ns`
    STALL = "stall"  # the application of `nodes` takes nothing for `for_ns`: buffers fill
    FORGE = "forge"  # `nodes` are told, by forged ICMP, that `others` are gone; value 1: the forger has seen a probe
    LEAVE = "leave"  # leaves the group of its own will
    REJOIN = "rejoin"  # comes back in the same life
    JOIN = "join"  # a node that was not there from the beginning starts
    EXPEL = "expel"  # the application of the first of `others` has the group go on without `nodes`
    RESET = "reset"  # the application calls reset, for `value` members (it also does so by itself in manual recovery)
    # Between sites, and inside one (`sim/topology.py`). All but a split name sites in `nodes` and `others`.
    CUT_PIPE = "cut-pipe"  # nothing from `nodes` enters the pipes to `others` for `for_ns`; the other direction works
    PARTITION_SITES = "partition-sites"  # all pipes between `nodes` and the other sites are cut for `for_ns`
    LOSSY_PIPE = "lossy-pipe"  # pipes from `nodes` to `others` lose with probability `value` for `for_ns`
    NARROW_PIPE = "narrow-pipe"  # pipes from `nodes` to `others` have a `value`-th of their bandwidth for `for_ns`
    SPLIT = "split"  # inside a site: `nodes` and `others` cannot reach each other for `for_ns`; both reach other sites


OF_SITES: Final = frozenset(
    (FaultKind.CUT_PIPE, FaultKind.PARTITION_SITES, FaultKind.LOSSY_PIPE, FaultKind.NARROW_PIPE)
)
"""Faults that name sites."""

NARROW_QUEUE_S: Final = 5  # of its own bandwidth, what a narrow pipe holds at most


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens at `at_ns`."""

    at_ns: int
    kind: str
    nodes: tuple[str, ...]
    others: tuple[str, ...] = ()
    value: float = 0.0
    for_ns: int = 0

    def __str__(self) -> str:
        text = f"{self.at_ns / MS:.3f} ms: {self.kind} {','.join(self.nodes)}"
        if self.others:
            text += f" -> {','.join(self.others)}"
        if self.value:
            text += f" {self.value:g}"
        if self.for_ns:
            text += f" for {self.for_ns / MS:.3f} ms"
        return text


class Applications(Protocol):
    """The side of a run that faults of the application befall."""

    def stall(self, name: str) -> None: ...

    def unstall(self, name: str) -> None: ...

    def leave(self, name: str) -> None: ...

    def rejoin(self, name: str) -> None: ...

    def reset(self, name: str, min_members: int | None) -> None: ...

    def expel(self, name: str, member: str) -> None: ...


class Faults:
    """Applies a list of faults to a world, and can end all of them."""

    __slots__ = ("_applications", "_healed", "_world", "last_ns")

    def __init__(self, world: World, applications: Applications, faults: Sequence[Fault]) -> None:
        self._world = world
        self._applications = applications
        self._healed = False
        self.last_ns = max((fault.at_ns + fault.for_ns for fault in faults), default=0)
        for fault in sorted(faults, key=lambda fault: fault.at_ns):
            world.at(fault.at_ns, self._begin, fault)
            if fault.for_ns:
                world.at(fault.at_ns + fault.for_ns, self._end, fault)

    def heal_all(self) -> None:
        """Everything works again, but nodes that are down stay down. Faults that are still to come do not happen."""
        self._healed = True
        world = self._world
        world.network.heal()
        world.network.reset_links()
        for name in world.nodes:
            world.slow(name)
            world.resume(name)
            self._applications.unstall(name)

    def _begin(self, fault: Fault) -> None:
        if self._healed:
            return
        world, network, applications = self._world, self._world.network, self._applications
        kind = FaultKind(fault.kind)
        if kind is FaultKind.PARTITION:
            network.partition([fault.nodes])
            return
        if kind is FaultKind.SPLIT:
            network.split([fault.nodes, fault.others])
            return
        if kind in OF_SITES:
            _begin_between_sites(world.pipes, kind, fault)
            return
        for name in fault.nodes:
            match kind:
                case FaultKind.CRASH:
                    world.crash(name, is_process=fault.value > 0)
                case FaultKind.CRASH_STORING:
                    world.doom(name)
                case FaultKind.FORGET:
                    world.forget(name)
                case FaultKind.RESTART | FaultKind.JOIN:
                    world.start(name)
                case FaultKind.PAUSE:
                    world.pause(name)
                case FaultKind.SLOW:
                    world.slow(name, fault.value)
                case FaultKind.CUT:
                    for other in fault.others:
                        network.cut(name, other)
                case FaultKind.LOSSY:
                    for other in world.nodes:
                        if other != name:
                            network.set_link(other, name, loss=fault.value)
                case FaultKind.FORGE:
                    world.forge(name, fault.others, has_seen=fault.value > 0)
                case FaultKind.STALL:
                    applications.stall(name)
                case FaultKind.LEAVE:
                    applications.leave(name)
                case FaultKind.REJOIN:
                    applications.rejoin(name)
                case FaultKind.RESET:
                    applications.reset(name, int(fault.value) or None)
                case FaultKind.EXPEL:
                    for other in fault.others[:1]:
                        applications.expel(other, name)

    def _end(self, fault: Fault) -> None:
        if self._healed:
            return
        world, network = self._world, self._world.network
        kind = FaultKind(fault.kind)
        if kind is FaultKind.PARTITION:
            # A later partition may have replaced this one: it then ends here, too, which is as good a fault.
            network.partition([])
            return
        if kind is FaultKind.SPLIT:
            network.unsplit([fault.nodes, fault.others])
            return
        if kind in OF_SITES:
            _end_between_sites(world.pipes, kind, fault)
            return
        for name in fault.nodes:
            match kind:
                case FaultKind.CRASH_STORING:
                    if world.is_doomed(name):
                        world.crash(name)
                case FaultKind.PAUSE:
                    world.resume(name)
                case FaultKind.SLOW:
                    world.slow(name)
                case FaultKind.CUT:
                    for other in fault.others:
                        network.mend(name, other)
                case FaultKind.LOSSY:
                    for other in world.nodes:
                        if other != name:
                            network.set_link(other, name, loss=network.model.loss)
                case FaultKind.STALL:
                    self._applications.unstall(name)
                case _:
                    pass


def _begin_between_sites(pipes: Pipes, kind: FaultKind, fault: Fault) -> None:
    for source, target in _directions(pipes, fault):
        match kind:
            case FaultKind.LOSSY_PIPE:
                pipes.change(source, target, loss=fault.value)
            case FaultKind.NARROW_PIPE:
                pipes.change(source, target, **_narrowed(pipes.original(source, target), fault.value))
            case _:
                pipes.cut(source, target)


def _end_between_sites(pipes: Pipes, kind: FaultKind, fault: Fault) -> None:
    """Another fault of the same kind may still hold a pipe: it then ends here, too, which is as good a fault."""
    for source, target in _directions(pipes, fault):
        original = pipes.original(source, target)
        match kind:
            case FaultKind.LOSSY_PIPE:
                pipes.change(source, target, loss=original.loss)
            case FaultKind.NARROW_PIPE:
                pipes.change(source, target, bits_per_s=original.bits_per_s, queue_bytes=original.queue_bytes)
            case _:
                pipes.mend(source, target)


def _narrowed(model: PipeModel, divisor: float) -> dict[str, int]:
    """The bandwidth of a narrow pipe, and its queue. What has entered a pipe leaves at the bandwidth of that moment:
    the whole queue could be on its way for minutes after the fault."""
    if not model.bits_per_s:
        return {}
    bits_per_s = max(1, int(model.bits_per_s / divisor))
    most_bytes = max(bits_per_s * NARROW_QUEUE_S // 8, 1)
    return {"bits_per_s": bits_per_s, "queue_bytes": min(model.queue_bytes or most_bytes, most_bytes)}


def _directions(pipes: Pipes, fault: Fault) -> list[Direction]:
    """The pipes that a fault befalls."""
    if fault.kind == FaultKind.PARTITION_SITES:
        return pipes.across([fault.nodes])
    return [(source, target) for source in fault.nodes for target in fault.others if source != target]


AFTERSHOCK_SHARE: Final = 0.4


def draw_faults(
    rng: random.Random,
    names: Sequence[str],
    from_ns: int,
    to_ns: int,
    *,
    crash: int = 0,
    restart: int = 0,
    pause: int = 0,
    partition: int = 0,
    cut: int = 0,
    slow: int = 0,
    stall: int = 0,
    lossy: int = 0,
    leave: int = 0,
    longest_ns: int = 3_000 * MS,
) -> list[Fault]:
    """So many faults of each kind, at random times and nodes. The first `restart` crashed nodes come back."""
    faults: list[Fault] = []

    def when() -> int:
        return rng.randrange(from_ns, max(to_ns, from_ns + 1))

    def how_long() -> int:
        # Short ones matter as much as long ones: half of all stay below a tenth of the longest.
        return rng.randrange(MS, longest_ns // (10 if rng.random() < 0.5 else 1))

    victims = rng.sample(list(names), min(crash, len(names)))
    for index, name in enumerate(victims):
        at_ns = when()
        faults.append(Fault(at_ns, FaultKind.CRASH, (name,)))
        if index < restart:
            faults.append(Fault(at_ns + how_long(), FaultKind.RESTART, (name,)))
    for kind, times in ((FaultKind.PAUSE, pause), (FaultKind.STALL, stall)):
        faults.extend(Fault(when(), kind, (rng.choice(names),), for_ns=how_long()) for _ in range(times))
    if len(names) > 1:
        for _ in range(partition):
            side = tuple(rng.sample(list(names), rng.randrange(1, len(names))))
            faults.append(Fault(when(), FaultKind.PARTITION, side, for_ns=how_long()))
        for _ in range(cut):
            source, *targets = rng.sample(list(names), rng.randrange(2, len(names) + 1))
            faults.append(Fault(when(), FaultKind.CUT, (source,), tuple(targets), for_ns=how_long()))
    for _ in range(slow):
        factor = float(rng.choice((2, 5, 20, 100)))
        faults.append(Fault(when(), FaultKind.SLOW, (rng.choice(names),), value=factor, for_ns=how_long()))
    for _ in range(lossy):
        loss = rng.choice((0.2, 0.5, 0.9))
        faults.append(Fault(when(), FaultKind.LOSSY, (rng.choice(names),), value=loss, for_ns=how_long()))
    for _ in range(leave):
        name = rng.choice(names)
        at_ns = when()
        faults.append(Fault(at_ns, FaultKind.LEAVE, (name,)))
        if rng.random() < 0.7:
            faults.append(Fault(at_ns + how_long(), FaultKind.REJOIN, (name,)))
    return sorted(faults, key=lambda fault: fault.at_ns)


def draw_aftershocks(rng: random.Random, names: Sequence[str], faults: Sequence[Fault]) -> list[Fault]:
    """Second blows, aimed at the recovery from the first: its phases last milliseconds, and chance rarely hits them."""
    found: list[Fault] = []
    for fault in faults:
        if fault.kind not in (FaultKind.CRASH, FaultKind.PARTITION) or rng.random() > AFTERSHOCK_SHARE:
            continue
        others = [name for name in names if name not in fault.nodes]
        if not others:
            continue
        # Silence is noticed after 1.3 s of work, or 5 s of rest; invitations and results follow within half a second.
        noticed_ns = rng.choice((1_300, 1_300, 1_300, 5_000)) * MS
        at_ns = fault.at_ns + noticed_ns + rng.randrange(500 * MS)
        victim = rng.choice(others)
        kind = rng.choice((FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE, FaultKind.CUT))
        if kind is FaultKind.CRASH:
            found.append(Fault(at_ns, kind, (victim,)))
            if rng.random() < 0.7:
                found.append(Fault(at_ns + rng.randrange(MS, 2_000 * MS), FaultKind.RESTART, (victim,)))
        elif kind is FaultKind.PAUSE:
            found.append(Fault(at_ns, kind, (victim,), for_ns=rng.randrange(MS, 2_500 * MS)))
        else:
            targets = tuple(name for name in names if name != victim)
            found.append(Fault(at_ns, kind, (victim,), targets, for_ns=rng.randrange(MS, 1_500 * MS)))
    return found
