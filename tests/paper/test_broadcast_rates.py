"""What a broadcast costs at default timing, at any rate: sections 4.1 and 5 of the Amoeba paper.

Heartbeats and beacons are sent whether anybody broadcasts or not: what a group at rest sends in the same time is taken
off. `benches/broadcast_cost.py` has larger groups and longer runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.paper.group import Lab, in_lab

from ordercast.api.group import Group
from ordercast.service import AGREED, RESILIENT, SAFE, Service

SECONDS = 4


async def broadcast_evenly(group: Group, rate: int, seconds: float, service: Service = AGREED) -> list[float]:
    """Confirmed messages at an even rate, whatever becomes of those before: how long each of them took."""
    loop = asyncio.get_running_loop()
    start, delays_s = loop.time(), list[float]()

    async def one() -> None:
        began = loop.time()
        await group.send(bytes(100), service, confirm=True)
        delays_s.append(loop.time() - began)

    tasks = []
    for number in range(int(rate * seconds)):
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(start + (number + 1) / rate - loop.time())
    await asyncio.gather(*tasks)
    return delays_s


def datagrams(members: int, rate: int) -> Counter[str]:
    """Per `SECONDS` with so many broadcasts a second, without what the group at rest sends as well."""

    async def program(lab: Lab) -> Counter[str]:
        groups = await lab.form(members)
        await broadcast_evenly(groups[1], rate, 1)
        await asyncio.sleep(5)
        at_rest = await lab.count(asyncio.sleep(SECONDS))
        sent = await lab.count(broadcast_evenly(groups[1], rate, SECONDS))
        sent.subtract(at_rest)
        return sent

    return in_lab(program)


@pytest.mark.parametrize("rate", [1, 4, 10, 30, 100, 300])
@pytest.mark.parametrize("members", [2, 4, 12])
def test_a_broadcast_costs_two_datagrams_at_any_rate(members: int, rate: int) -> None:
    """Section 5: "In the normal case, 2 messages, a point-to-point message to the sequencer and a broadcast"."""
    sent = datagrams(members, rate)
    broadcasts = rate * SECONDS
    assert sent["request"] == sent["ordered"] == broadcasts
    # One member's heartbeat or one request for a status may fall on either side of the border.
    assert sum(sent.values()) <= 2 * broadcasts + members + 1, dict(sent)


@pytest.mark.parametrize("members", [4, 12])
def test_nobody_acknowledges_each_message(members: int) -> None:
    """Section 4.1: "In general, no separate acknowledgement packets are used"."""
    assert datagrams(members, 10)["ack"] <= members


@pytest.mark.parametrize(("service", "hops"), [(AGREED, 2), (RESILIENT(2), 3), (SAFE, 4)])
def test_a_message_that_somebody_waits_for_is_acknowledged_at_once(service: Service, hops: int) -> None:
    """Section 4.2: the sender of a resilient message is blocked until it is acknowledged; so is that of a SAFE one.

    To the sequencer, to all, and for SAFE back and to all once more: at 0.1 ms a hop.
    """

    async def program(lab: Lab) -> list[float]:
        groups = await lab.form(6)
        return await broadcast_evenly(groups[1], 10, 2, service)

    assert max(in_lab(program)) == pytest.approx(hops * 0.0001, rel=0.01)


def test_a_history_is_freed_although_nobody_asks() -> None:
    """Section 4.1: members that are quiet for a while acknowledge: what all have leaves the history."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(4)
        await broadcast_evenly(groups[1], 100, 1)
        await asyncio.sleep(3)
        for node in lab.nodes:
            (port,) = node.host.ports
            assert port.engine.is_at_rest()

    in_lab(program)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_the_last_message_before_a_silence_is_repaired_soon(lost: int) -> None:
    """Section 4.1: a gap is noticed by the next broadcast. Behind the last one the sequencer speaks up."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(4)
        for number in range(10):
            if number == 10 - lost:
                lab.world.network.cut("a", "d")
            await groups[1].send(b"%d" % number, confirm=True)
        await asyncio.sleep(0.001)
        lab.world.network.heal()
        await asyncio.sleep(0.2)
        assert lab.seen[3].payloads == [b"%d" % number for number in range(10)]

    in_lab(program)
