"""A member that a view names, and that comes there late."""

from __future__ import annotations

from tests.sim.test_two_stays import Losing

from ordercast.config import MS, SECOND, GroupConfig
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.inspection import inspect
from ordercast.sim.network import LAN

LACKED = ("ordered", "data", "accept", "repair", "result")
"""What a member must not receive so that it lacks a message and cannot accept."""


def test_a_frozen_ring_keeps_the_old_log_for_a_member_that_it_needs_and_that_is_not_there_yet() -> None:
    """s lacks a message, and a view is made again that names it: the one that proposed it first is gone. Then another
    member fails, and the three that are left need s, which is cut off for longer than a log is usually kept."""
    cluster = Cluster("late", LAN, Terms(config=GroupConfig(orderer="sequencer")))
    world = cluster.world
    world.network = network = Losing()

    def size(name: str) -> int:
        view = cluster.members[name].view
        return len(view.members) if view is not None else 0

    def state(name: str) -> str:
        port = cluster.members[name].port
        return inspect(port.engine).describe() if port is not None else ""

    def has_joined() -> bool:
        return size(name) == size("x") == len(cluster.members)

    for name in "xabcdes":
        cluster.add(name)
        world.start(name)
        assert world.run_until(has_joined, world.now_ns + 10 * SECOND)
    assert not cluster.run_to_rest(world.now_ns + 10 * SECOND)
    network.is_lost = lambda kind, _, target, __: kind in LACKED and target == "s"
    cluster.members["a"].send(1, "AGREED", 10)
    world.run_until(world.now_ns + 3 * MS)
    world.crash("x")
    assert world.run_until(lambda: sum("accepted" in state(name) for name in "abcde") == 4, world.now_ns + 9 * SECOND)
    first = next(name for name in "abcde" if "proposing" in state(name))
    second, *others = [name for name in "abcde" if name != first]
    world.crash(first)
    network.partition([[second, *others], ["s"]])
    network.is_lost = lambda *_: False
    assert world.run_until(lambda: all(size(name) == 6 for name in others), world.now_ns + 5 * SECOND)
    world.crash(second)
    world.run_until(world.now_ns + 25 * SECOND)
    network.heal()
    assert not cluster.run_to_rest(world.now_ns + 60 * SECOND)
    assert {size(name) for name in (*others, "s")} == {4}
