"""Acknowledgements ride on other messages: sections 4.1 and 5 of the Amoeba paper, without loss."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.paper.group import Lab, in_lab

from ordercast.api.group import Group
from ordercast.service import RESILIENT
from ordercast.sim.inspection import inspect
from ordercast.sim.network import ETHERNET_10

BETWEEN_S = 0.002  # two messages of one sender: with all of them, more than the processors of these machines bear


def test_acknowledgements_ride_on_requests() -> None:
    """Section 4.1: "all messages to the sequencer carry piggybacked acknowledgements": a sender need not say more."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(2)
        before = groups[1].stats["sent.ack"]
        for _ in range(500):
            await groups[1].send(b"m", confirm=True)
            await asyncio.sleep(0.01)
        assert groups[1].stats["sent.ack"] == before, "not even a heartbeat: the sequencer hears it all the time"
        (port,) = lab.nodes[0].host.ports
        assert inspect(port.engine).peak_blocks <= 3, "and knows how far it is"

    in_lab(program)


@pytest.mark.parametrize("degree", [1, 3])
def test_resilience_acknowledgements_ride_on_data_under_load(degree: int) -> None:
    """Section 5: "Under heavy load, one could try to piggyback these acknowledgements on other messages"."""

    async def program(lab: Lab) -> Counter[str]:
        groups = await lab.form(6)

        async def flood(group: Group) -> None:
            for _ in range(40):
                await group.send(bytes(100), RESILIENT(degree))
                await asyncio.sleep(BETWEEN_S)
            await group.flush()

        sent = await lab.count(asyncio.gather(*(flood(group) for group in groups[1:])))
        await asyncio.sleep(0.01)
        assert all(len(seen.payloads) == 200 for seen in lab.seen)
        assert len({tuple(seen.payloads) for seen in lab.seen}) == 1
        return sent

    sent = in_lab(program, network=ETHERNET_10)
    blocks = sent["data"] + sent["carrier"]
    assert sent["carrier"] > sent["data"]
    assert sent["held"] < degree * blocks // 8, "nearly all of them rode on data"


def test_a_message_that_only_the_sequencer_has_carries_acknowledgements_as_well() -> None:
    """As above, for method 1: AGREED messages of a member that acknowledges RESILIENT ones of another."""

    async def program(lab: Lab) -> Counter[str]:
        groups = await lab.form(4)

        async def flood(index: int) -> None:
            for number in range(40):
                service = RESILIENT(2) if index == 1 else None
                await groups[index].send(b"%d/%d" % (index, number), service)
                await asyncio.sleep(BETWEEN_S)
            await groups[index].flush()

        sent = await lab.count(asyncio.gather(flood(1), flood(2)))
        await asyncio.sleep(0.01)
        assert len({tuple(seen.payloads) for seen in lab.seen}) == 1
        assert len(lab.seen[3].payloads) == 80
        return sent

    sent = in_lab(program, network=ETHERNET_10)
    assert sent["carrier"] > 10, dict(sent)
    assert sent["carrier"] + sent["request"] == sent["ordered"] == 40
