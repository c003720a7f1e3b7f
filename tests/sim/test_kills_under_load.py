"""A member that orders is killed while the others send, and datagrams are lost: how long nobody gets anything.

Its machine sends six reports to each other machine at once, and then one a second (`sim/unreachable.py`). What members
send to the dead process must leave some of them to the probes (docs/design/detector.md, "What the kernel limits").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from ordercast.config import MS, SECOND, GroupConfig
from ordercast.service import AGREED, RESILIENT, SAFE, Service
from ordercast.sim.checkers import check_all
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.member import SimMember
from ordercast.sim.network import LAN

NAMES: Final = "abcd"
KILL_NS: Final = 400 * MS
END_NS: Final = 1_200 * MS
GOAL_NS: Final = 300 * MS
BACKLOG: Final = 50  # messages that an application leaves to the group


def leader_of(members: list[SimMember]) -> SimMember:
    view = members[0].view
    assert view is not None
    return next(member for member in members if member.node.name == view.leader.name)


def longest_pause_ns(seed: int, service: Service, *, loss: float, is_killed: bool = True) -> int:
    """Four members send a message every two milliseconds each. The longest time in which a survivor got nothing."""
    config = GroupConfig(orderer="sequencer")
    cluster = Cluster(f"kills under load/{seed}", replace(LAN, loss=loss), Terms(config=config))
    members = [cluster.add(name, buffer_bytes=1 << 20) for name in NAMES]
    world = cluster.world
    for index, member in enumerate(members):
        world.at(index * 300 * MS, world.start, member.node.name)
    assert world.run_until(lambda: all(m.view is not None and len(m.view.members) == 4 for m in members), 20 * SECOND)
    leader = leader_of(members)
    survivors = [member for member in members if member is not leader]
    began_ns = world.now_ns
    longest_ns = 0
    last: dict[SimMember, tuple[int, int]] = {member: (member.delivered, began_ns) for member in survivors}
    for at_ns in range(began_ns, began_ns + END_NS, 2 * MS):
        world.run_until(at_ns)
        if is_killed and at_ns == began_ns + KILL_NS:
            world.crash(leader.node.name, is_process=True)
        for member in members:
            if member.waiting < BACKLOG:
                member.send(1, service, 100)
        for member, (delivered, since_ns) in last.items():
            longest_ns = max(longest_ns, at_ns - since_ns)
            if member.delivered > delivered:
                last[member] = (member.delivered, at_ns)
    assert cluster.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert check_all(world.rows(), clock="virtual", quiet=True).held
    return longest_ns


@pytest.mark.parametrize("service", [AGREED, RESILIENT(2), SAFE], ids=str)
def test_a_killed_sequencer_is_noticed_where_datagrams_are_lost(service: Service) -> None:
    """AGREED: blocks go to the sequencer alone, and use up its reports. RESILIENT: HELD and acknowledgements do."""
    assert longest_pause_ns(0, service, loss=0.05) <= GOAL_NS


def test_a_sequencer_that_is_killed_under_small_messages_is_noticed() -> None:
    assert longest_pause_ns(1, AGREED, loss=0.0) <= 100 * MS


def test_losses_alone_stop_nobody_for_long() -> None:
    """Requests for repairs that are lost themselves are repeated soon."""
    assert longest_pause_ns(0, AGREED, loss=0.1, is_killed=False) <= GOAL_NS
