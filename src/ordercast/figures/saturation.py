"""How much the sequencer can do: groups under load, beside the model in `queueing.py`.

*Capacity*: all members but the first broadcast without pause, each as soon as its last message is back. *Under load*:
messages come at random (Poisson) at members drawn at random, and the delay of each counts from then until it is back.
What comes in the first fifth of the time is left out, and so is what comes in the last fiftieth.

The history does not fill, unless it is said to be the default one: section 5 of the paper counts what a full history
costs by itself (n/H + 2), and looks at the sequencer without that.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.figures.broadcasts import PAPER_TIMING, station_config
from ordercast.figures.described import Described, PeerGroup
from ordercast.figures.queueing import PacketSizes, service_ns, wait_ns
from ordercast.figures.stations import StationGroup
from ordercast.service import AGREED, RESILIENT, Service
from ordercast.sim.lab import MeasurementFailed
from ordercast.sim.network import NetworkModel

ROUNDS: Final = 40  # broadcasts of each member for the capacity
WARM: Final = 0.2
LAST: Final = 0.02


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a group does when all send as much as they can."""

    members: int
    resilience: int
    per_s: float
    service_ms: float  # by the model
    model_per_s: float
    violations: int


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """A group at one load."""

    members: int
    resilience: int
    offered_per_s: float
    delivered_per_s: float
    mean_ms: float  # from the call of a member until its message is back
    utilization: float  # of the sequencer, by the model: 1 is saturation
    model_ms: float  # idle delay and M/D/1's wait; 0 where the queue grows without end
    datagrams: float  # per broadcast
    has_default_history: bool
    violations: int


def service_of(resilience: int) -> Service:
    return RESILIENT(resilience) if resilience else AGREED


def packet_sizes(network: NetworkModel, resilience: int, seed: int = 0) -> tuple[PacketSizes, float]:
    """The datagrams of one broadcast, and how long it takes in an idle group: both from a run."""
    members = resilience + 3
    group = StationGroup(members, network, station_config(), PAPER_TIMING, f"{seed}/sizes")
    world, sender = group.world, members - 1
    group.stations[sender].service = service_of(resilience)
    for number in range(2):
        world.at((number + 1) * SECOND, group.send, sender)
    world.run_until(2 * SECOND - 1)
    counters = world.network.counters
    before = counters.bytes_by_kind.copy()
    world.run_until(3 * SECOND)
    sent = counters.bytes_by_kind - before
    (delay_ns,) = group.delays_ns(2 * SECOND)
    if resilience:
        return PacketSizes(sent["data"], sent["accept"], sent["held"] // resilience), delay_ns / MS
    return PacketSizes(sent["request"], sent["ordered"]), delay_ns / MS


def sequencer_capacity(members: int, network: NetworkModel, resilience: int = 0, seed: int = 0) -> Capacity:
    """Of the sequencer orderer."""
    group = StationGroup(members, network, station_config(), PAPER_TIMING, f"{seed}/capacity")
    for index in range(1, members):
        group.keep_sending(index, ROUNDS, service_of(resilience))
    group.finish(ROUNDS * (members - 1))
    sizes, _ = packet_sizes(network, resilience, seed)
    service = service_ns(network, sizes, resilience)
    times = [at_ns for _, _, at_ns in group.stations[0].delivered]
    return Capacity(members, resilience, _rate(times), service / MS, SECOND / service, group.disorder())


def described_capacity(
    make: Callable[[int, int], Described], members: int, network: NetworkModel, *, seed: int = 0
) -> tuple[float, float]:
    """Of a protocol as the paper describes it: broadcasts a second, and datagrams for each."""
    group = PeerGroup(make, members, network, f"{make.__name__}/{seed}/capacity")
    for index in range(1, members):
        group.keep_sending(index, ROUNDS)
    total = ROUNDS * (members - 1)
    first = group.peers[0]
    if not group.world.run_until(lambda: len(first.ready) >= total, 600 * SECOND):
        raise MeasurementFailed(f"of {total} broadcasts {len(first.ready)} were delivered")
    return _rate([at_ns for _, _, at_ns in first.ready]), group.sent / total


def under_load(
    members: int,
    per_s: float,
    network: NetworkModel,
    *,
    resilience: int = 0,
    seconds: float = 2.0,
    timing: Timing = PAPER_TIMING,
    has_default_history: bool = False,
    seed: int = 0,
) -> LoadPoint:
    """The sequencer orderer where all members together broadcast at this rate."""
    config = station_config()
    if has_default_history:
        usual = GroupConfig()
        config = replace(config, history_bytes=usual.history_bytes, history_blocks=usual.history_blocks)
    group = StationGroup(members, network, config, timing, f"{seed}/load")
    world = group.world
    for station in group.stations:
        station.service = service_of(resilience)
    begin_ns, span_ns = SECOND, int(seconds * SECOND)
    rng = random.Random(f"{seed}/arrivals/{members}/{per_s}")
    # A Poisson process of which the number of arrivals is known: short runs then have the rate that they are named for.
    count = round(per_s * seconds)
    for at_ns in sorted(rng.randrange(span_ns) for _ in range(count)):
        world.at(begin_ns + at_ns, group.send, rng.randrange(1, members))
    world.run_until(begin_ns)
    before = group.sent
    world.run_until(begin_ns + span_ns)
    datagrams = (group.sent - before).total()
    since_ns, until_ns = begin_ns + int(WARM * span_ns), begin_ns + int((1 - LAST) * span_ns)
    delivered = sum(since_ns <= at_ns < until_ns for _, _, at_ns in group.stations[0].delivered)
    group.finish(count)
    delays = group.delays_ns(since_ns, until_ns)
    sizes, idle_ms = packet_sizes(network, resilience, seed)
    service = service_ns(network, sizes, resilience)
    utilization = per_s * service / SECOND
    return LoadPoint(
        members,
        resilience,
        per_s,
        delivered * SECOND / (until_ns - since_ns),
        sum(delays) / max(1, len(delays)) / MS,
        utilization,
        idle_ms + wait_ns(per_s, service) / MS if utilization < 1 else 0.0,
        datagrams / max(1, count),
        has_default_history,
        group.disorder(),
    )


def _rate(times: list[int]) -> float:
    """Deliveries a second in the middle of a run, where all send."""
    first, last = int(len(times) * WARM), int(len(times) * (1 - WARM))
    return (last - first) * SECOND / (times[last] - times[first])
