"""What one broadcast costs, and how long it takes: our orderers, and the protocols that the Amoeba paper describes.

Broadcasts of one member, one every `INTERVAL_NS`, so that each finds the group idle. Members are machines of the
network model; the sender is the last, never the sequencer. All datagrams count that were sent from the first broadcast
until an interval after the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.figures.described import Described, PeerGroup
from ordercast.figures.stations import BUFFER_BYTES, StationGroup
from ordercast.service import AGREED, Service
from ordercast.sim.lab import DATAGRAM, MeasurementFailed
from ordercast.sim.network import IDEAL, NetworkModel

INTERVAL_NS: Final = 50 * MS
WARMING: Final = 4  # broadcasts that are not counted
COUNT: Final = 24
MOST_MEMBERS: Final = 1_000
AMPLE_BLOCKS: Final = 65_536
AMPLE_BYTES: Final = BUFFER_BYTES // 2

# The paper has no heartbeats: a kernel notices that another has failed when it tries to reach it. Acknowledgements of
# quiet members cost something per second, not per broadcast. With times that long only broadcasts are left to count.
PAPER_TIMING: Final = Timing(
    heartbeat_busy_ns=1_000 * SECOND,
    suspect_busy_ns=10_000 * SECOND,
    heartbeat_rest_ns=1_000 * SECOND,
    suspect_rest_ns=10_000 * SECOND,
    ack_quiet_ns=1_000 * SECOND,
    token_quiet_ns=1_000 * SECOND,
)


@dataclass(frozen=True, slots=True)
class BroadcastCost:
    """Means over the broadcasts of one group."""

    members: int
    back_ms: float  # until the sender has its own message back: SendToGroup returns
    all_ms: float  # until the last member has it
    datagrams: float
    interrupts: float  # datagrams that reached a machine, at all machines together
    by_kind: dict[str, float]
    violations: int

    @property
    def hops(self) -> float:
        """The delay in steps of one datagram, on the ideal network."""
        return self.all_ms * MS / IDEAL.latency_ns


def station_config(
    orderer: str = "sequencer", history_blocks: int = AMPLE_BLOCKS, *, anticipate: bool = True
) -> GroupConfig:
    """A group whose history does not fill, unless a number of blocks says when."""
    return GroupConfig(
        orderer=orderer,
        max_members=MOST_MEMBERS,
        history_bytes=AMPLE_BYTES,
        history_blocks=history_blocks,
        datagram=DATAGRAM,
        anticipate=anticipate,
    )


def orderer_cost(
    orderer: str,
    members: int,
    network: NetworkModel,
    *,
    service: Service = AGREED,
    timing: Timing = PAPER_TIMING,
    anticipate: bool = True,
    seed: int = 0,
) -> BroadcastCost:
    """Of one of our orderers."""
    config = station_config(orderer, anticipate=anticipate)
    group = StationGroup(members, network, config, timing, f"{orderer}/{seed}/broadcasts")
    world, sender = group.world, members - 1
    group.stations[sender].service = service
    begin_ns = SECOND
    for number in range(WARMING + COUNT):
        world.at(begin_ns + number * INTERVAL_NS, group.send, sender)
    begin_ns += WARMING * INTERVAL_NS
    world.run_until(begin_ns - 1)
    sent, arrived = group.sent, group.arrived
    world.run_until(begin_ns + COUNT * INTERVAL_NS)
    kinds = group.sent - sent
    interrupts = group.arrived - arrived
    group.finish(WARMING + COUNT)
    submitted = group.stations[sender].submitted_ns
    last_ns: dict[int, int] = {}
    for station in group.stations:
        for _, number, at_ns in station.delivered:
            last_ns[number] = max(last_ns.get(number, 0), at_ns)
    back = group.delays_ns(begin_ns)
    return BroadcastCost(
        members,
        sum(back) / COUNT / MS,
        sum(last_ns[number] - submitted[number] for number in range(WARMING, WARMING + COUNT)) / COUNT / MS,
        kinds.total() / COUNT,
        interrupts / COUNT,
        {kind: count / COUNT for kind, count in sorted(kinds.items())},
        group.disorder(),
    )


def described_cost(
    make: Callable[[int, int], Described], members: int, network: NetworkModel, *, extra: int = 0, seed: int = 0
) -> BroadcastCost:
    """Of a protocol as the paper describes it; `extra` machines of it are no members."""
    group = PeerGroup(make, members + extra, network, f"{make.__name__}/{seed}")
    world, sender = group.world, members - 1
    peer = group.peers[sender]

    def send(_: object) -> None:
        peer.hand_over(world.now_ns)
        world.wake(group.machines[sender])

    begin_ns = SECOND
    for number in range(WARMING + COUNT):
        world.at(begin_ns + number * INTERVAL_NS, send)
    begin_ns += WARMING * INTERVAL_NS
    world.run_until(begin_ns - 1)
    sent, arrived = group.sent, group.arrived
    world.run_until(begin_ns + COUNT * INTERVAL_NS)
    last_ns: dict[int, int] = {}
    got: Counter[int] = Counter()
    for each in group.peers:
        for _, number, at_ns in each.ready:
            got[number] += 1
            last_ns[number] = max(last_ns.get(number, 0), at_ns)
    if min(len(peer.done), len(last_ns)) < WARMING + COUNT:
        raise MeasurementFailed(f"of {WARMING + COUNT} broadcasts {make.__name__} delivered {len(last_ns)}")
    counted = range(WARMING, WARMING + COUNT)
    return BroadcastCost(
        members,
        sum(peer.done[number] - peer.sent[number] for number in counted) / COUNT / MS,
        sum(last_ns[number] - peer.sent[number] for number in counted) / COUNT / MS,
        (group.sent - sent) / COUNT,
        (group.arrived - arrived) / COUNT,
        {},
        sum(got[number] < members for number in counted),
    )
