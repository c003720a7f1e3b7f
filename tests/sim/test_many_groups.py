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


@pytest.mark.parametrize(
    ("seed", "orderer"),
    [
        (34_000_153, "timestamp"),  # a block of a ring that dissolves, with the numbers of its groups there
        (34_000_286, "sequencer"),  # a message from outside to a group that ends and comes back meanwhile
        (34_000_004, "token"),  # a lock of a group that its holder leaves
    ],
)
def test_seeds_that_have_found_something(orderer: str, seed: int) -> None:
    town = Town(seed, orderer)
    town.run()
    town.judge()
