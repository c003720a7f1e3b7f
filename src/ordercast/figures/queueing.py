"""The sequencer as a queue: the model of section 5 of the Amoeba paper, which the paper mentions and does not print.

Requests come at random (Poisson), and each takes the sequencer the same time S: M/D/1. With one processor and no other
work S is what the machine needs to take a request in and to send the broadcast out. With a resilience degree r the
sequencer also takes in r acknowledgements for each.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ordercast.config import SECOND
from ordercast.sim.network import NetworkModel


class PacketSizes(NamedTuple):
    """Bytes of the datagrams of one broadcast, as they were measured."""

    request: int
    broadcast: int
    held: int = 0  # an acknowledgement for resilience


FULL: Final = math.inf


def service_ns(network: NetworkModel, sizes: PacketSizes, resilience: int = 0) -> int:
    """S: what one broadcast costs the sequencer's processor."""
    received = network.receive_cost_ns(1, sizes.request) + resilience * network.receive_cost_ns(1, sizes.held)
    return network.pass_ns + received + network.send_cost_ns(1, sizes.broadcast)


def wait_ns(per_s: float, service: int) -> float:
    """The mean wait in the queue of M/D/1, without the service itself; `FULL` from saturation on."""
    load = per_s * service / SECOND
    return load * service / (2 * (1 - load)) if load < 1 else FULL


def capacity_per_s(service: int) -> float:
    """Broadcasts a second at which the sequencer saturates."""
    return SECOND / service


def members_at_saturation(per_member_per_s: float, service: int) -> int:
    """The group in which it saturates, if each member broadcasts at this rate."""
    return int(capacity_per_s(service) / per_member_per_s)
