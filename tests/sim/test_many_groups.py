"""Many groups on one underlay, with real engines, under failures (docs/design/roster.md)."""

from __future__ import annotations

import pytest
from tests.sim.many_groups import Town


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_all_members_agree_on_many_groups_under_failures(orderer: str, seed: int) -> None:
    town = Town(seed, orderer)
    town.run()
    town.judge()
    assert sum(len(program.got) for program in town.programs) > 50


def test_blocks_of_a_ring_that_dissolves_do_not_come_into_another_roster() -> None:
    """This seed has a block under way in a ring that dissolves; its groups have other numbers in the other one."""
    town = Town(34_000_003, "sequencer")
    town.run()
    town.judge()
