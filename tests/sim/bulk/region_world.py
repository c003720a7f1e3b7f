"""One region of real engines in the bulk simulation; some of its members send as fast as their lanes have room."""

from __future__ import annotations

from ordercast.config import GroupConfig, Timing
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.service import FIFO
from ordercast.sim.bulk import BulkNode, BulkWorld, LoadProgram, ReadyBlocks, Samples
from ordercast.sim.bulk.regional import GivenViews, RegionalNode
from ordercast.sim.network import NetworkModel
from ordercast.underlay.regions.engine import RegionsEngine
from ordercast.underlay.regions.node import RegionTerms
from ordercast.view import Member, node_id
from ordercast.wire.block import pack_run

ADDRESS = ("239.7.0.1", 7_000)
BUFFER = 212_992
# A node receives 50,000 datagrams a second at most.
LINK = NetworkModel("link", latency_ns=50_000, pass_ns=2_000, send_ns=10_000, receive_ns=20_000)


class OneRegion:
    """slow: by how much the last member is slower. light: so many of the senders send ten messages a second."""

    def __init__(
        self, members: int, senders: int, policy: str, size: int = 1_000, slow: float = 1.0, light: int = 0
    ) -> None:
        self.world = world = BulkWorld(1, LINK)
        self.policy = policy
        self.engines: dict[str, RegionsEngine] = {}
        self.programs: list[LoadProgram] = []
        for index in range(members):
            name = f"n{index}"
            blocks = ReadyBlocks([pack_run(0, FIFO, [bytes(size)])]) if index < senders else None
            self.programs.append(LoadProgram(world, name, blocks, per_s=10 if index < light else None))
            world.add(name, self._boot, program=self.programs[-1], buffer_bytes=BUFFER)
        self.taken = Samples(world, {"least": lambda: min([each.taken for each in self.programs])})
        world.start_all()
        if slow != 1.0:
            world.slow(f"n{members - 1}", slow)

    def rates(self, seconds: int) -> list[float]:
        """Messages a second at the slowest member, second by second."""
        self.world.run_until(seconds * 1_000_000_000)
        return self.taken.rates("least")

    def _boot(self, node: BulkNode) -> RegionalNode:
        names = sorted(self.world.nodes)
        members = tuple([self._member(self.world[name]) for name in names])
        view = GivenView(1, 11, 1, "gms", ADDRESS, members)
        source = GivenViews(GivenEpoch(1, 1, 0, 1, (view,), is_whole=True))
        me = self._member(node)
        terms = RegionTerms(rate_policy=self.policy)
        engine = self.engines[node.name] = RegionsEngine(me, GroupConfig(datagram=1_400), Timing(), source, terms)
        return RegionalNode(engine, (1,))

    def _member(self, node: BulkNode) -> Member:
        return Member(node_id(node.name, 1), node.name, 1, node.address, BUFFER)
