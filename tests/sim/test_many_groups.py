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
