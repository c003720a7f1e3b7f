"""The engines of a node that finds the membership service on the network (`ordercast.membership.attendance`)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.config import GroupConfig, Timing
from ordercast.groups.regions.engines import RegionalEngine
from ordercast.membership.attendance import Attendance
from ordercast.membership.open_request import RequestNumbers
from ordercast.parts.courier import ConnectionNumbers
from ordercast.underlay.regions.engine import RegionsEngine
from ordercast.view import Address, Member


class ServedEngines:
    """A `RegionEngineFactory`. A node that the service has put out gets the next engine, which registers anew. Its
    peers know it by the same id, so its couriers go on with the numbers of their connections, and its requests with
    theirs."""

    __slots__ = ("_addresses", "_connections", "_numbers")

    def __init__(self, addresses: Sequence[Address] = ()) -> None:
        """`addresses`: of replicas, besides those that multicast finds."""
        self._addresses = tuple(addresses)
        self._connections = ConnectionNumbers()
        self._numbers = RequestNumbers()

    def __call__(self, me: Member, config: GroupConfig, timing: Timing, rng: Random, /) -> RegionalEngine:  # noqa: ARG002
        source = Attendance(me, timing, self._addresses, self._numbers)
        return RegionsEngine(me, config, timing, source, connections=self._connections)
