"""Datagrams under way in the bulk simulation, and the networks that they may cross."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.errors import UsageError
from ordercast.sim.bulk.node import BulkNode
from ordercast.sim.network import NetworkModel
from ordercast.view import Address


class Flight(NamedTuple):
    """Datagrams between the port of their sender and those of their receivers."""

    source: BulkNode
    to: Address
    body: memoryview
    stride: int  # 0: one datagram
    datagrams: int
    wire_ns: int  # that they take of a receiver's port
    kind: int


def check_model(model: NetworkModel) -> None:
    """Raise for a network that the bulk simulation does not have."""
    missing = [
        text
        for text, is_there in (
            ("a shared medium", model.is_shared and model.bits_per_s > 0),
            ("turns on a medium", model.takes_turns),
            ("a spread of delays", model.spread_ns > 0),
            ("doubled datagrams", model.duplicate > 0),
            ("reordered datagrams", model.reorder > 0),
            ("nodes without multicast", not model.has_multicast),
        )
        if is_there
    ]
    if missing:
        raise UsageError(f"the bulk simulation has no {', no '.join(missing)}: use sim/world.py for {model.name!r}")
