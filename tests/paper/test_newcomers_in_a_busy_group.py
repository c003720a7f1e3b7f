"""A join in the middle of work: it waits until all members have what stands before it, and not for a pause."""

from __future__ import annotations

import asyncio

import pytest
from tests.paper.group import Lab, in_lab


@pytest.mark.parametrize("orderer", ["sequencer", "token", "timestamp"])
def test_a_newcomer_does_not_wait_until_the_others_are_silent(orderer: str) -> None:
    """Amoeba section 3: a join has one place among the broadcasts, and nobody has to stop for it."""

    async def program(lab: Lab) -> tuple[float, int, int]:
        for name in "abc":
            await lab.join(name, orderer=orderer)
        await asyncio.sleep(1)
        sent = 0

        async def chatter(index: int) -> None:
            nonlocal sent
            for number in range(400):
                await lab.groups[index].send(b"%d.%d" % (index, number), confirm=True)
                sent += 1

        talking = [asyncio.create_task(chatter(index)) for index in range(3)]
        await asyncio.sleep(0.02)
        before, began = sent, asyncio.get_running_loop().time()
        await lab.join("d", orderer=orderer)
        seconds, during = asyncio.get_running_loop().time() - began, sent - before
        await asyncio.gather(*talking)
        return seconds, during, sent - before - during

    seconds, during, after = in_lab(program)
    assert seconds < 0.01
    assert during > 0
    assert after > 500, "most was sent behind it"
