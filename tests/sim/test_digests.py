"""A sample of the seeds whose traces are to stay what they are; `make digests` runs all of them."""

from __future__ import annotations

import pytest
from tests.sim.digests import ORDERERS, SEEDS, digest_of, kept

SAMPLE = range(7, SEEDS, 30)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_the_traces_of_random_scenarios_stay_what_they_are(orderer: str) -> None:
    """If a change is meant to change them: `python -m tests.sim.digests --write`, and say why (`digests.py`)."""
    changed = [seed for seed in SAMPLE if digest_of(orderer, seed) != kept()[orderer][seed]]
    assert not changed, f"the traces of these seeds are not what they were: {changed}"


def test_every_seed_has_its_digest() -> None:
    assert {orderer: len(digests) for orderer, digests in kept().items()} == dict.fromkeys(ORDERERS, SEEDS)
