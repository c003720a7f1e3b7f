"""Rate control of real engines of regions, in a network without loss (QSM section 2.4)."""

from __future__ import annotations

import pytest
from tests.sim.bulk.region_world import OneRegion

from ordercast.parts.rate import MIN_RATE


def dropped(region: OneRegion) -> int:
    return sum([node.tally.dropped for node in region.world.nodes.values()])


@pytest.mark.parametrize("senders", [1, 4])
def test_the_papers_rate_climbs_when_members_of_the_region_send(senders: int) -> None:
    """A sender receives its own messages. If its sample were without them, formula (1) would be 0 for one sender, and
    three quarters of what four send."""
    rates = OneRegion(4, senders, "qsm").rates(30)
    assert min(rates) > MIN_RATE * senders
    assert sum(rates[20:]) > 1.2 * sum(rates[:10])


@pytest.mark.parametrize("senders", [1, 4])
def test_a_window_has_the_full_rate_at_once_and_overruns_nobody(senders: int) -> None:
    region = OneRegion(4, senders, "window")
    rates = region.rates(1)
    assert rates[0] > 30_000, "a node can receive 50,000; tokens and waiting for them take the rest"
    assert not dropped(region)


def test_a_window_goes_as_fast_as_a_slow_member() -> None:
    region = OneRegion(4, 1, "window", slow=20.0)
    rates = region.rates(2)
    assert 2_000 < rates[1] < 2_500
    assert not dropped(region)


def test_a_light_sender_does_not_take_the_rate_of_a_heavy_one() -> None:
    """Its fair share would be half of it."""
    alone = OneRegion(3, 1, "window", slow=20.0).rates(3)
    region = OneRegion(3, 2, "window", slow=20.0, light=1)
    beside = region.rates(3)
    assert beside[2] > 0.7 * alone[2]
