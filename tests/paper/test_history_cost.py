"""What the history's bound costs: section 5 of the Amoeba paper, measured in simulation without loss."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.paper.group import Lab, in_lab, send_one_by_one

from ordercast.config import GroupConfig
from ordercast.sim.inspection import inspect


@pytest.mark.parametrize("history", [8, 16, 64])
@pytest.mark.parametrize("members", [4, 8, 16])
def test_one_member_that_sends_without_pause_costs_n_by_history_size_plus_2(members: int, history: int) -> None:
    """Section 5: "when one of the nodes is continuously broadcasting, (n/HISTORY_SIZE) + 2 messages are needed".

    One status request and n - 1 answers each time that the history is full. Everything that crosses the wire is
    counted, heartbeats included: the paper's formula has no place for them, and they must not need one. Each message is
    a block of its own, since its sender waits until the one before has come back. H is the whole history: it is filled
    to its last place, and never beyond.
    """
    broadcasts = max(10 * history, 320)

    async def program(lab: Lab) -> Counter[str]:
        groups = await lab.form(members, config=GroupConfig(history_blocks=history))
        await send_one_by_one(groups[1], 3 * history, 500)
        sent = await lab.count(send_one_by_one(groups[1], broadcasts, 500))
        assert [inspect(node.host.ports[0].engine).peak_blocks for node in lab.nodes] == [history] * members
        return sent

    sent = in_lab(program)
    assert sent["request"] == sent["ordered"] == broadcasts
    assert sum(sent.values()) / broadcasts == pytest.approx(members / history + 2, rel=0.05), dict(sent)
