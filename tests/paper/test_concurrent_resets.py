"""Sections 3 and 4.2 of the Amoeba paper: resets at the same moment, each with a minimum of its own.

The group is built only once, and each caller has the minimum that it asked for: a reset fails where the group that
results is too small for its caller, and only there. Which caller becomes coordinator makes no difference.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.paper.group import Lab, in_lab

from ordercast.config import MinMembers
from ordercast.engine import Failed
from ordercast.errors import NotEnoughMembers
from ordercast.view import Reason

ORDERERS = ["sequencer", "token", "timestamp"]
# How much earlier b calls than c. The later caller has the higher ballot; at the same moment it is b, which is first.
B_FIRST_US = [-300, -150, -60, 0, 60, 150, 300]


async def outcome(lab: Lab, index: int, minimum: MinMembers, after_us: int) -> int | str:
    """What a reset comes to: the size of the new group, or what it says."""
    await asyncio.sleep(max(after_us, 0) / 1e6)
    try:
        return await asyncio.wait_for(lab.groups[index].reset(minimum, b"by %d" % index), 20)
    except NotEnoughMembers as error:
        return str(error)


async def is_reformed(lab: Lab, size: int) -> None:
    await lab.until(lambda: all(len(group.members) == size for group in lab.groups[1:]))


async def failed_group(lab: Lab, members: int, orderer: str) -> None:
    await lab.form(members, recovery="manual", orderer=orderer)
    lab.nodes[0].crash()
    await lab.until(lambda: all(any(isinstance(event, Failed) for event in seen.events) for seen in lab.seen[1:]))


@pytest.mark.parametrize("b_first_us", B_FIRST_US)
@pytest.mark.parametrize("minima", [(2, 4), (4, 2)])
@pytest.mark.parametrize("orderer", ORDERERS)
def test_each_caller_of_a_reset_has_its_own_minimum(orderer: str, minima: tuple[int, int], b_first_us: int) -> None:
    """Four members, one crashed; b and c reset, one with a minimum that three members meet."""

    async def program(lab: Lab) -> None:
        await failed_group(lab, 4, orderer)
        outcomes = await asyncio.gather(outcome(lab, 1, minima[0], -b_first_us), outcome(lab, 2, minima[1], b_first_us))
        met, unmet = (0, 1) if minima[0] == 2 else (1, 0)
        assert outcomes[met] == 3, "three members are enough for this caller"
        assert "with 3 members, and this reset asked for 4" in str(outcomes[unmet]), "and too few for that one"
        await is_reformed(lab, 3)
        for index in (1, 2, 3):
            assert await asyncio.wait_for(lab.groups[index].send(b"on", confirm=True), 5) >= 0
        await asyncio.sleep(1)
        for seen in lab.seen[1:]:
            resets = [view for view in seen.views if view.reason == Reason.RESET]
            assert len(resets) == 1, "the group is built only once"
            assert resets[0].header == b"by %d" % (met + 1), "by the caller whose reset succeeds"

    in_lab(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_where_no_caller_has_enough_members_all_resets_fail_and_the_group_stays_failed(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        await failed_group(lab, 4, orderer)
        outcomes = await asyncio.gather(outcome(lab, 1, 4, 0), outcome(lab, 2, "all", 0))
        assert all(isinstance(each, str) and "stays failed" in each for each in outcomes), outcomes
        assert [len(group.members) for group in lab.groups[1:]] == [4, 4, 4], "nothing was built"
        assert await lab.groups[3].reset(3) == 3
        await is_reformed(lab, 3)
        assert await lab.groups[1].send(b"on", confirm=True) >= 0

    in_lab(program)


@pytest.mark.parametrize("minima", [(2, 4), (4, 2)])
def test_resets_of_one_member_have_their_own_minimum_each(minima: tuple[int, int]) -> None:
    """Two tasks of one program: each is a caller."""

    async def program(lab: Lab) -> None:
        await failed_group(lab, 4, "sequencer")
        outcomes = await asyncio.gather(outcome(lab, 1, minima[0], 0), outcome(lab, 1, minima[1], 0))
        assert outcomes[minima.index(2)] == 3
        assert "asked for 4" in str(outcomes[minima.index(4)])
        await is_reformed(lab, 3)
        assert await lab.groups[3].send(b"on", confirm=True) >= 0

    in_lab(program)


@pytest.mark.parametrize("minimum", [4, 5])
def test_a_reset_that_can_never_succeed_leaves_a_group_that_works_alone(minimum: int) -> None:
    """The members that are gone cannot come back by a reset: its caller is told so, and nobody else notices."""

    async def program(lab: Lab) -> None:
        await failed_group(lab, 4, "sequencer")
        assert await lab.groups[1].reset(2) == 3
        await is_reformed(lab, 3)
        with pytest.raises(NotEnoughMembers, match="the view has 3"):
            await lab.groups[2].reset(minimum)
        assert await lab.groups[2].send(b"on", confirm=True) >= 0
        assert [view.reason for view in lab.seen[3].views].count(Reason.RESET) == 1

    in_lab(program)


def test_a_minority_that_waits_goes_on_when_one_of_its_members_resets() -> None:
    """With automatic recovery too few members wait; a reset of one of them decides for all, whoever coordinates."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(5)
        lab.world.network.partition([["a", "b"]])
        await asyncio.sleep(3)
        sizes = await asyncio.wait_for(asyncio.gather(groups[0].reset(2), groups[1].reset(1)), 20)
        assert list(sizes) == [2, 2]
        assert await groups[1].send(b"on", confirm=True) >= 0

    in_lab(program)
