"""View changes, exclusions, suspicions and recoveries are logged once each, with who and why."""

from __future__ import annotations

import pytest

from ordercast.config import SECOND, GroupConfig
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.network import LAN


def formed(orderer: str, names: str) -> Cluster:
    cluster = Cluster(1, LAN, Terms(config=GroupConfig(orderer=orderer)))
    for name in names:
        cluster.add(name)
        cluster.world.start(name)
        cluster.world.run_until(cluster.world.now_ns + SECOND)
    return cluster


def taken(cluster: Cluster, name: str) -> list[str]:
    """What a node has logged about its membership since it was last asked."""
    host = cluster.members[name].host
    assert host is not None
    return [line.text for _, line in host.take_log() if line.topic == "membership"]


def run_on(cluster: Cluster, seconds: int) -> None:
    cluster.world.run_until(cluster.world.now_ns + seconds * SECOND)


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_each_transition_has_one_line(orderer: str) -> None:
    cluster = formed(orderer, "abcd")
    for name in "abcd":
        lines = taken(cluster, name)
        own = [line for line in lines if line.startswith("view ")]
        assert lines == own, "nothing but views"
        assert len(set(lines)) == len(lines) == 4 - "abcd".index(name)
        assert "installed: join of d/0" in lines[-1]
    cluster.world.crash("d")
    cluster.members["a"].send(1, "SAFE", 10)
    run_on(cluster, 8)
    suspicions = 0
    for name in "abc":
        lines = taken(cluster, name)
        assert len(set(lines)) == len(lines)
        suspected = [line for line in lines if "is suspected" in line]
        assert suspected in ([], ["d/0 is suspected: it was silent for too long"])
        suspicions += len(suspected)
        assert len([line for line in lines if line.startswith("recovery begins: ")]) == 1
        assert len([line for line in lines if line.startswith("recovery committed: ")]) == 1
        assert len([line for line in lines if "installed: reset" in line and line.endswith("; without d/0")]) == 1
        assert len(lines) == 3 + len(suspected)
    assert suspicions
    cluster.world.network.partition([["a"], ["b", "c"]])
    cluster.members["b"].send(1, "SAFE", 10)
    run_on(cluster, 8)
    cluster.world.network.heal()
    run_on(cluster, 8)
    lines = taken(cluster, "a")
    (excluded,) = [line for line in lines if line.startswith("excluded from view ")]
    assert excluded.endswith("the group was re-formed without this node")
    for name in "bc":
        lines = taken(cluster, name)
        assert len(set(lines)) == len(lines)
        assert len([line for line in lines if line.endswith("; without a/0")]) == 1
