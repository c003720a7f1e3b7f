"""What callers are told where an orderer has not what they ask for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ordercast.config import REGIONS_ORDERER, SITES_ORDERER, GroupConfig, Timing
from ordercast.groups.checks import GIVEN, unsupported
from ordercast.orderers import ORDERERS
from ordercast.service import AGREED, CAUSAL, MAJORITY, RANK_NAMES, RESILIENT, SAFE, UNRELIABLE, Service
from ordercast.sim.topology import load_topology
from ordercast.underlay.sites import sites_engines
from ordercast.view import Member, node_id

EXAMPLE = Path(__file__).parents[2] / "examples" / "wan.toml"


def test_the_texts_know_the_services_of_all_orderers() -> None:
    """Of regions `test_regions_api` shows that FIFO is the strongest."""
    assert {name: frozenset(GIVEN[name]) for name in ORDERERS} == {name: each.ranks for name, each in ORDERERS.items()}
    assert set(GIVEN) == {*ORDERERS, SITES_ORDERER, REGIONS_ORDERER}
    config = load_topology(EXAMPLE).config
    daemon = config.daemons[0]
    me = Member(node_id(daemon.name, 0), daemon.name, 0, daemon.address)
    engine = sites_engines(config)("floor", me, GroupConfig(orderer=SITES_ORDERER), Timing(), random.Random(1))
    services = [Service(rank) for rank in range(len(RANK_NAMES))]
    assert [each.rank for each in services if engine.supports(each)] == list(GIVEN[SITES_ORDERER])


@pytest.mark.parametrize(
    ("orderer", "service", "instead", "others"),
    [
        ("regions", AGREED, "its strongest is FIFO", "'token', 'sequencer', 'timestamp' or 'sites'"),
        ("regions", RESILIENT(2), "its strongest is FIFO", "'token', 'sequencer' or 'timestamp'"),
        ("regions", SAFE, "its strongest is FIFO", "'token', 'sequencer', 'timestamp' or 'sites'"),
        ("sites", RESILIENT(1), "use SAFE, which promises more", "'token', 'sequencer' or 'timestamp'"),
        ("sequencer", UNRELIABLE, "use RELIABLE, which promises more", "'token', 'sites' or 'regions'"),
        ("sequencer", MAJORITY, "use SAFE, which promises more", "'token' or 'timestamp'"),
        ("timestamp", CAUSAL, "use AGREED, which promises more", "'token' or 'sites'"),
    ],
)
def test_an_unsupported_service_says_what_to_use_instead(
    orderer: str, service: Service, instead: str, others: str
) -> None:
    text = f"the {orderer} orderer of 'g' cannot give {service}: {instead}, or join a group with orderer={others}"
    assert str(unsupported(orderer, "g", service)) == text
