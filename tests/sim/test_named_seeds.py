"""Seeds that failed once, each for a reason of its own. They must hold."""

from __future__ import annotations

import pytest

from ordercast.sim.fuzz import run_seed

SEEDS = (
    ("sequencer", 7_000_054),  # a join was ordered while a member lacked what stood before it
    ("sequencer", 8_000_548),  # the same, with a crash in the recovery
    ("sequencer", 7_000_165),  # a cancelled join and a short pause, and nobody may ever go on
    ("token", 7_000_107),  # a ring that had ended did not tell its former member
    ("timestamp", 7_000_035),  # a cancelled join was taken for a failure
)


@pytest.mark.parametrize(("orderer", "seed"), SEEDS)
def test_a_seed_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed)
    assert result.held, "\n".join((result.command, *result.failures))
