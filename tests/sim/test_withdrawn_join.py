"""A newcomer that gives up after it asked: its join is taken back, or it leaves in order if it was let in already."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from ordercast import SAFE, Reason, View
from ordercast.config import SECOND, Timing
from ordercast.sim.api import Simulation, simulate

PATIENT = Timing(suspect_busy_ns=60 * SECOND, suspect_rest_ns=60 * SECOND)


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_a_join_that_was_cancelled_does_not_hold_up_the_group(orderer: str) -> None:
    """Whenever it gives up, nobody waits until it is suspected (that would take a minute here), no view is made by a
    recovery, and in the end the newcomer is out, and goes."""

    async def program(node: Simulation) -> tuple[list[float], list[View], list[str]]:
        ann = node("ann", timing=PATIENT)
        group = await ann.join("g", orderer=orderer)
        views: list[View] = []

        async def watch() -> None:
            nonlocal views
            async for event in group:
                views += [event] if isinstance(event, View) else []

        watching = asyncio.create_task(watch())
        waits, late = [], []
        for patience in range(1, 16):
            bob = node(f"bob{patience}", timing=PATIENT)
            joined = False
            with suppress(TimeoutError):
                async with asyncio.timeout(0.00003 * patience):
                    await bob.join("g", create=False)
                    joined = True
            began = asyncio.get_running_loop().time()
            await group.send(b"safe", SAFE, confirm=True)
            await asyncio.sleep(2)
            await group.send(b"again", SAFE, confirm=True)
            waits.append(asyncio.get_running_loop().time() - began)
            if not joined and bob.host.is_lingering:
                late.append(str(bob))
            await bob.close()
            await asyncio.sleep(1)
        assert len(group.members) == 1
        watching.cancel()
        return waits, views, late

    waits, views, late = simulate(program, seed=1)
    assert all(seconds < 3 for seconds in waits), waits
    assert late == [], "they still stand by"
    assert {view.reason for view in views} == {Reason.CREATE, Reason.JOIN, Reason.LEAVE}
    assert any(view.reason == Reason.LEAVE and view.subject.startswith("bob") for view in views)
