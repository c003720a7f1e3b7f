"""A daemon that leaves a group and comes back in the same view of the underlay."""

from __future__ import annotations

from functools import partial

from tests.sim.planted import UNSEEN
from tests.sim.planting import planted

from ordercast.config import MS
from ordercast.sim.many_groups import ActKind, GroupAct, ManyGroups
from ordercast.sim.many_run import run_groups
from ordercast.sim.scenario import Scenario
from ordercast.sim.topology import plain_topology


def rejoining() -> ManyGroups:
    """The only daemon of its site joins, leaves and joins again, while another site sends all the time."""
    topology = plain_topology({"east": ["a"], "west": ["b"]})
    scenario = Scenario(
        seed=1, orderer="sites", nodes=("a", "b"), network="lan", min_members=1, topology=topology, event_limit=200_000
    )
    moves = ((2_600, ActKind.JOIN), (3_000, ActKind.LEAVE), (3_400, ActKind.JOIN))
    acts = [GroupAct(at_ms * MS, "b", kind, ("orders",)) for at_ms, kind in moves]
    acts += [GroupAct(at_ms * MS, "a", ActKind.SEND, ("orders",)) for at_ms in range(3_300, 3_800, 4)]
    acts.sort(key=lambda act: act.at_ns)
    return ManyGroups(scenario, ("orders", "home"), (("orders",), ("home",)), acts=tuple(acts))


def test_it_gets_everything_that_is_sent_behind_its_second_join() -> None:
    assert not run_groups(rejoining()).failures


def test_the_interest_of_its_first_join_does_not_do() -> None:
    bug = next(bug for bug in UNSEEN if bug.name == "a join relies on an interest that a leave has ended")
    assert run_groups(rejoining(), partial(planted, bug)).failures
