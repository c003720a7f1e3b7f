"""The laboratory: a group that is formed and at rest, for what is measured in virtual time.

Whatever is measured in it is also judged: `violations` runs all checkers over the whole trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.errors import OrdercastError
from ordercast.service import Service
from ordercast.sim.checkers import check_all
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.member import SimMember
from ordercast.sim.network import NetworkModel
from ordercast.sim.scenario import node_names
from ordercast.sim.world import World
from ordercast.trace.schema import CONTINUE, Row

DATAGRAM: Final = 1_400
BUFFER_BYTES: Final = 1 << 20
JOIN_NS: Final = 300 * MS  # between the starts of two members
REST_NS: Final = 60 * SECOND
LIMIT_NS: Final = 600 * SECOND
EVENT_LIMIT: Final = 50_000_000
BULK_SIZE: Final = 1_000
WARM_BYTES: Final = 200_000


class MeasurementFailed(OrdercastError):
    """A run that was to be measured did not do what was asked of it."""


class Lab:
    """A group of members on a network without loss, formed and at rest."""

    __slots__ = ("_rows", "cluster", "members", "world")

    def __init__(
        self,
        config: GroupConfig,
        network: NetworkModel,
        members: int,
        seed: str,
        timing: Timing = Timing(),  # noqa: B008
    ) -> None:
        self.cluster = cluster = Cluster(
            seed,
            network,
            Terms(config=config, timing=timing),
            event_limit=EVENT_LIMIT,
        )
        self.world = cluster.world
        self.members = [cluster.add(name, buffer_bytes=BUFFER_BYTES) for name in node_names(members)]
        for index, member in enumerate(self.members):
            self.world.at(index * JOIN_NS, self.world.start, member.node.name)
        self.world.run_until(members * JOIN_NS)
        self.rest()
        self._rows: list[Row] | None = None

    def rest(self) -> None:
        unrest = self.cluster.run_to_rest(self.world.now_ns + REST_NS)
        if unrest:
            raise MeasurementFailed(f"the group does not come to rest: {'; '.join(unrest)}")

    def warm(self, service: Service, nbytes: int = WARM_BYTES) -> None:
        """A first transfer, for estimators of time and windows; nothing of it is counted."""
        self.transfer(self.members, nbytes, BULK_SIZE, service)

    def transfer(
        self, sources: Sequence[SimMember], nbytes: int, size: int, service: Service, *, is_rested: bool = True
    ) -> None:
        """So many bytes, from all sources together, as fast as the group takes them."""
        count = -(-nbytes // size // len(sources))
        before = [member.delivered for member in self.members]
        for member in sources:
            member.send(count, service, size)
        total = count * len(sources)

        def is_over() -> bool:
            return all(member.delivered - had >= total for member, had in zip(self.members, before, strict=True)) or (
                service.rank == 0 and not any(member.waiting for member in sources)
            )

        if not self.world.run_until(is_over, self.world.now_ns + LIMIT_NS):
            raise MeasurementFailed(f"{total} messages of {size} bytes were not delivered in {LIMIT_NS // SECOND} s")
        if is_rested:
            self.rest()

    def rows(self, since_ns: int) -> list[Row]:
        """The trace from a time on."""
        if self._rows is None:
            self._rows = self.world.rows()
        return [row for row in self._rows if row.at_ns >= since_ns]

    def violations(self) -> int:
        """What the checkers find in the whole trace, and what sockets dropped: nothing was wrong with the network."""
        verdict = check_all(self.world.rows(), clock="virtual", quiet=True)
        found = sum(result.total for result in verdict.properties.values())
        return found + len(self.cluster.corruptions()) + self.world.network.counters.socket_drops


def component_violations(world: World) -> int:
    """The same of a world at rest whose daemons form components: what checkers find, and what sockets dropped."""
    verdict = check_all(world.rows(), clock="virtual", quiet=True, min_members=1, partitions=CONTINUE)
    return sum(result.total for result in verdict.properties.values()) + world.network.counters.socket_drops
