"""The ladder of services: latency and throughput of one service after the other on a loss-free network.

RMP section 3.2: latency grows with the service, throughput does not fall. All numbers come from the trace, never from
what an engine says about itself, and every trace is judged by the checkers. Latency is from submit to delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ordercast.config import GroupConfig
from ordercast.service import Service, parse_service
from ordercast.sim.lab import BULK_SIZE, DATAGRAM, Lab, MeasurementFailed
from ordercast.sim.member import SimMember
from ordercast.sim.network import LAN, NetworkModel
from ordercast.sim.scenario import SERVICES
from ordercast.sim.statistics import delivery_latencies, mean, quantile, steady_bytes_per_s

MEMBERS: Final = 8
LADDER: Final = (
    "UNRELIABLE",
    "RELIABLE",
    "FIFO",
    "CAUSAL",
    "AGREED",
    "RESILIENT(1)",
    "RESILIENT(2)",
    "RESILIENT(3)",
    "MAJORITY",
    "SAFE",
)
MESSAGES: Final = 50  # of each member, for the latency
SIZE: Final = 100
INTERVAL_NS: Final = 8_100_000  # of each member: one message in the group every millisecond or so
BYTES: Final = 12_000_000  # of all members together, for the throughput

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rung:
    """One service of the ladder."""

    service: str
    mean_us: float  # submit to delivery, at all members
    p50_us: float
    p99_us: float
    others_mean_us: float  # without the deliveries at the sender itself
    deliveries: int
    throughput_mb_s: float  # payload that each member gets, all members sending
    violations: int


def ladder(
    orderer: str = "token",
    *,
    anticipate: bool = True,
    network: NetworkModel = LAN,
    members: int = MEMBERS,
    services: Sequence[str] = LADDER,
    transfer_bytes: int = BYTES,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Rung]:
    """Each service that the orderer gives, one after the other, in a group and a run of its own."""
    config = GroupConfig(orderer=orderer, datagram=DATAGRAM, anticipate=anticipate)
    stream = f"{orderer}/{seed}/figures"
    rungs = []
    for name in services:
        service = parse_service(name)
        if name.partition("(")[0] not in SERVICES[orderer]:
            continue
        if progress is not None:
            progress(name)
        rungs.append(_rung(service, config, network, members, transfer_bytes, stream))
    return rungs


def _rung(service: Service, config: GroupConfig, network: NetworkModel, members: int, nbytes: int, seed: str) -> Rung:
    quiet = Lab(config, network, members, seed)
    quiet.warm(service)
    begin_ns = quiet.world.now_ns
    for index, member in enumerate(quiet.members):
        for number in range(MESSAGES):
            at_ns = begin_ns + index * INTERVAL_NS // members + number * INTERVAL_NS
            quiet.world.at(at_ns, _send_one, (member, service, SIZE))
    quiet.world.run_until(begin_ns + MESSAGES * INTERVAL_NS)
    quiet.rest()
    rows = quiet.rows(begin_ns)
    latencies = delivery_latencies(rows)
    others = sorted(ns for ns, is_own in latencies if not is_own)
    everyone = sorted(ns for ns, _ in latencies)
    if not everyone:
        raise MeasurementFailed(f"of {MESSAGES * members} {service} messages none was delivered")

    busy = Lab(config, network, members, seed)
    busy.warm(service)
    begin_ns = busy.world.now_ns
    busy.transfer(busy.members, nbytes, BULK_SIZE, service)
    return Rung(
        str(service),
        mean(everyone) / 1_000,
        quantile(everyone, 0.5) / 1_000,
        quantile(everyone, 0.99) / 1_000,
        mean(others) / 1_000,
        len(everyone),
        steady_bytes_per_s(busy.rows(begin_ns)) / 1e6,
        quiet.violations() + busy.violations(),
    )


def _send_one(what: tuple[SimMember, Service, int]) -> None:
    member, service, size = what
    member.send(1, service, size)
