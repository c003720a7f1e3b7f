"""A group in which nothing happens stays as it is: with manual recovery a needless failure would stop everything."""

from __future__ import annotations

import asyncio

import pytest
from tests.paper.group import Lab, in_lab

from ordercast.sim.network import IDEAL, LAN, LOOPBACK, NetworkModel
from ordercast.view import Reason, View


@pytest.mark.parametrize("third_after_s", [0.1, 1, 2, 4])
@pytest.mark.parametrize("network", [IDEAL, LAN, LOOPBACK], ids=lambda model: model.name)
@pytest.mark.parametrize("orderer", ["sequencer", "token", "timestamp"])
def test_a_group_at_rest_does_not_recover_by_itself(orderer: str, network: NetworkModel, third_after_s: float) -> None:
    """Amoeba section 4.2: a recovery is for the failure of a member, and there is none."""

    async def program(lab: Lab) -> None:
        await lab.join("a", orderer=orderer, recovery="manual")
        await lab.join("b", orderer=orderer, recovery="manual")
        await asyncio.sleep(third_after_s)
        await lab.join("c", orderer=orderer, recovery="manual")
        await asyncio.sleep(20)
        for seen in lab.seen:
            assert all(isinstance(event, View) for event in seen.events)
            assert {view.reason for view in seen.views} <= {Reason.CREATE, Reason.JOIN}
        assert all(len(group.members) == 3 for group in lab.groups)
        assert await lab.groups[0].send(b"works", confirm=True) >= 0

    in_lab(program, network=network)
