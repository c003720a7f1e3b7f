"""A node that leaves and joins again in one life has the same id in both stays: for its ring it votes once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ordercast.config import MS, GroupConfig
from ordercast.sim.checkers.chain import branches, installed_views
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.datagrams import Arrival, kind_of
from ordercast.sim.network import LAN, Network
from ordercast.view import id_of
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.views import decode_cut


class Losing(Network):
    """It loses what `is_lost` says: kind, source, target and body."""

    def __init__(self) -> None:
        super().__init__(LAN, random.Random(1))
        self.is_lost: Callable[[str, str, str, bytes], bool] = lambda *_: False

    def transmit(self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int) -> list[Arrival]:
        kind, body = kind_of(data), bytes(data[HEADER_BYTES:])
        reached = [target for target in targets if not self.is_lost(kind, source, target, body)]
        return super().transmit(leave_ns, source, reached, data, stride)


def is_of_second_stay(body: bytes) -> bool:
    return decode_cut(body)[1].view.member(id_of("x/0")) is not None


def test_a_leaver_that_still_serves_does_not_vote_for_the_member_that_it_is_again() -> None:
    """x has left, nobody has told it that this is known, and it is let in again. As a leaver it lacks the join, so it
    cannot accept what as a member it accepts from b. a hears only what it says as a leaver, and knew of no proposal."""
    cluster = Cluster("two stays", LAN, Terms(config=GroupConfig(orderer="sequencer")))
    world = cluster.world
    world.network = network = Losing()

    def until(name: str, *members: str) -> None:
        def holds() -> bool:
            view = cluster.members[name].view
            return (tuple(member.name for member in view.members) if view is not None else ()) == members

        assert world.run_until(holds, world.now_ns + 10_000 * MS), (name, members)

    def link(one: str, other: str, works: bool) -> None:
        change = network.mend if works else network.cut
        change(one, other)
        change(other, one)

    for count, name in enumerate("abx", start=1):
        cluster.add(name)
        world.start(name)
        until(name, *"abx"[:count])
    assert not cluster.run_to_rest(world.now_ns + 10_000 * MS)
    network.is_lost = lambda kind, _, target, __: kind == "decided" and target == "x"
    cluster.members["x"].leave()
    assert world.run_until(lambda: cluster.members["x"].view is None, world.now_ns + 1_000 * MS)
    network.is_lost = lambda kind, _, target, __: kind in ("decided", "ordered") and target == "x"
    cluster.members["x"].rejoin()
    until("x", *"abx")
    network.is_lost = lambda kind, _, target, __: kind == "decided" and target == "x"
    until("b", *"abx")
    link("a", "b", works=False)
    link("a", "x", works=False)
    network.is_lost = lambda kind, _, target, __: kind in ("decided", "commit") and target == "x"
    until("b", "b", "x")
    link("b", "x", works=False)
    link("a", "x", works=True)
    network.is_lost = lambda kind, source, _, body: kind == "cut" and source == "x" and is_of_second_stay(body)
    world.run_until(world.now_ns + 4_000 * MS)
    assert branches(installed_views(world.rows()), "majority") == []
    network.is_lost = lambda *_: False
    network.heal()
    assert not cluster.run_to_rest(world.now_ns + 60_000 * MS)
