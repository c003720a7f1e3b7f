"""A newcomer that gives up after it asked, and is let in all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from ordercast import SAFE
from ordercast.config import SECOND, Timing
from ordercast.sim.api import Simulation, simulate

PATIENT = Timing(suspect_busy_ns=60 * SECOND, suspect_rest_ns=60 * SECOND)


@pytest.mark.parametrize("orderer", ["token", "sequencer"])
def test_a_join_that_was_cancelled_does_not_hold_up_the_group(orderer: str) -> None:
    """The others learn that it declined, and do not wait until it is suspected: that would take a minute here."""

    async def program(node: Simulation) -> list[tuple[int, float]]:
        ann = node("ann", timing=PATIENT)
        group = await ann.join("g", orderer=orderer)
        seen = []
        for patience_ms in range(1, 8):
            bob = node(f"bob{patience_ms}", timing=PATIENT)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.00004 * patience_ms):
                    await bob.join("g", create=False)
            began = asyncio.get_running_loop().time()
            await group.send(b"safe", SAFE, confirm=True)
            await asyncio.sleep(1)
            await group.send(b"again", SAFE, confirm=True)
            seen.append((len(group.members), asyncio.get_running_loop().time() - began))
            await bob.close()
        return seen

    seen = simulate(program, seed=1)
    assert all(seconds < 5 for _, seconds in seen), seen
