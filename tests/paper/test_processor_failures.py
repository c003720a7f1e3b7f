"""Section 4.2 of the Amoeba paper: ResetGroup in both phases, by hand as in the paper and automatically."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.paper.group import Lab, in_lab, send_one_by_one

from ordercast.engine import Failed
from ordercast.errors import GroupFailed, NotEnoughMembers, NotMember, OutcomeUnknown
from ordercast.groups.events import Left
from ordercast.service import AGREED, RESILIENT, SAFE, Service
from ordercast.view import Reason


def names(lab: Lab, index: int) -> list[str]:
    return [member.name for member in lab.groups[index].members]


async def figure_4(lab: Lab, callers: Sequence[int]) -> list[int]:
    """The group of figure 4(a): member 4, the sequencer, has crashed when only member 3 had its last message.

    Here the sequencer is the first member of a view: "s" stands for the paper's member 4, and a, b, c, d for 0 to 3.
    """
    for name in "sabcd":
        await lab.join(name, recovery="manual")
    await lab.until(lambda: all(len(group.members) == 5 for group in lab.groups))
    await send_one_by_one(lab.groups[0], 3, 10)
    network = lab.world.network
    for name in "abc":
        network.cut("s", name)
    await lab.groups[0].send(b"34")
    await asyncio.sleep(0.0005)
    lab.nodes[0].crash()
    network.heal()
    assert [seen.payloads[-1] == b"34" for seen in lab.seen[1:]] == [False, False, False, True]
    sizes = await asyncio.gather(*(lab.groups[index].reset(4, b"by %d" % index) for index in callers))
    await asyncio.sleep(1)
    return sizes


def test_figure_4_of_concurrent_coordinators_the_lowest_member_wins_and_collects_what_it_missed() -> None:
    """Section 4.2, figure 4: 0, 1 and 2 start at once with equal numbers, 3 has received more but did not call."""

    async def program(lab: Lab) -> None:
        assert await figure_4(lab, callers=[1, 2, 3]) == [4, 4, 4]
        for index in (1, 2, 3, 4):
            assert names(lab, index) == ["a", "b", "c", "d"], "the coordinator is the new sequencer"
            assert lab.seen[index].payloads[-1] == b"34", "message 34 was collected from member 3"
            result = lab.seen[index].views[-1]
            assert (result.reason, result.subject, result.header) == (Reason.RESET, "a/0", b"by 1")
            assert result.incarnation == lab.seen[index].views[-2].incarnation + 1
            assert len([view for view in lab.seen[index].views if view.reason == Reason.RESET]) == 1, "built only once"

    in_lab(program)


def test_the_coordinator_with_the_highest_sequence_number_wins() -> None:
    """Section 4.2: "the one with the highest sequence number becomes coordinator of both"."""

    async def program(lab: Lab) -> None:
        assert await figure_4(lab, callers=[1, 2, 4]) == [4, 4, 4]
        for index in (1, 2, 3, 4):
            assert names(lab, index) == ["d", "a", "b", "c"]
            assert lab.seen[index].payloads[-1] == b"34"
            assert lab.seen[index].views[-1].header == b"by 4"

    in_lab(program)


def test_the_result_takes_a_sequence_number_of_its_own() -> None:
    """Section 4.2: message 34, then "the result message (number 35)" in the history."""

    async def program(lab: Lab) -> None:
        await figure_4(lab, callers=[1])
        assignments = [seen.views[-1].seq for seen in lab.seen[1:]]
        positions = [seen.views[-1].position for seen in lab.seen[1:]]
        # Four joins, three messages and number 34 stand before it; only messages have positions.
        assert assignments == [9] * 4
        assert positions == [4] * 4
        assert await lab.groups[2].send(b"36", confirm=True) == 4

    in_lab(program)


def test_a_coordinator_that_crashes_during_the_recovery_is_replaced() -> None:
    """Section 4.2: "If the coordinator crashes during the recovery, the protocol starts again with phase 1"."""

    async def program(lab: Lab) -> None:
        await lab.form(5, recovery="manual")
        lab.nodes[0].crash()
        resetting = asyncio.create_task(lab.groups[1].reset(2))
        await asyncio.sleep(0.0003)  # its invitations are answered
        lab.nodes[1].crash()
        await lab.until(lambda: all({*names(lab, index)} == {"c", "d", "e"} for index in (2, 3, 4)))
        await lab.groups[3].send(b"on", confirm=True)
        with pytest.raises(NotMember):
            await resetting

    in_lab(program)


@pytest.mark.parametrize("instant_us", range(100, 1_500, 100))
def test_a_coordinator_may_crash_at_any_moment(instant_us: int) -> None:
    """Section 4.2: whatever part of invitation, result and commit was sent, the rest agree on one group."""

    async def program(lab: Lab) -> None:
        await lab.form(4, min_members=2)
        await send_one_by_one(lab.groups[3], 5, 100)
        resetting = asyncio.create_task(lab.groups[1].reset(2))
        await asyncio.sleep(instant_us / 1e6)
        lab.nodes[1].crash()
        await lab.until(lambda: all({*names(lab, index)} == {"a", "c", "d"} for index in (0, 2, 3)))
        await lab.groups[3].send(b"on", confirm=True)
        await asyncio.sleep(1)
        assert len({lab.groups[index].view.id for index in (0, 2, 3)}) == 1  # type: ignore[union-attr]
        assert lab.seen[0].payloads == lab.seen[2].payloads == lab.seen[3].payloads
        with suppress(NotMember):
            await resetting

    in_lab(program)


def test_messages_of_an_old_incarnation_are_ignored() -> None:
    """Section 4.2: "members never accept messages from a previous incarnation of the group"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        lab.world.network.partition([["c"]])
        stale = asyncio.create_task(groups[2].send(b"stale", confirm=True))
        await lab.until(lambda: names(lab, 0) == ["a", "b"])
        lab.world.network.heal()
        with pytest.raises(OutcomeUnknown):
            await stale
        await groups[0].send(b"new", confirm=True)
        assert groups[0].stats["old_ring"] or groups[1].stats["old_ring"]
        await lab.until(lambda: len(groups[0].members) == 3)
        await asyncio.sleep(1)
        for seen in lab.seen[:2]:
            assert seen.payloads == [b"new"]
        assert any(isinstance(event, Left) and event.returning for event in lab.seen[2].events)

    in_lab(program)


def test_calls_fail_until_somebody_resets_and_outstanding_ones_at_once() -> None:
    """Section 3: "All outstanding calls return an error value"; section 4.2: "all further group primitives"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual")
        lab.nodes[0].crash()
        outstanding = asyncio.create_task(groups[1].send(b"lost in thought", confirm=True))
        with pytest.raises((GroupFailed, OutcomeUnknown)):
            await asyncio.wait_for(outstanding, 3)
        with pytest.raises(GroupFailed, match="reset"):
            await groups[1].send(b"refused")
        await lab.until(lambda: any(isinstance(event, Failed) for event in lab.seen[2].events))
        with pytest.raises(GroupFailed):
            await groups[2].send(b"refused")
        assert names(lab, 1) == ["a", "b", "c"], "nothing is re-formed by itself"
        assert await groups[2].reset(2, b"again") == 2
        await asyncio.sleep(0.01)
        await groups[1].send(b"accepted", confirm=True)
        await asyncio.sleep(0.1)
        for seen in lab.seen[1:]:
            assert seen.payloads[-1] == b"accepted"
            assert (seen.views[-1].reason, seen.views[-1].header) == (Reason.RESET, b"again")

    in_lab(program)


def test_a_reset_that_finds_too_few_members_fails_and_the_group_stays_failed() -> None:
    """Section 4.2: "ResetGroup fails if it cannot form a group with enough members"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual")
        lab.nodes[0].crash()
        await lab.until(lambda: all(any(isinstance(event, Failed) for event in seen.events) for seen in lab.seen[1:]))
        with pytest.raises(NotEnoughMembers):
            await groups[1].reset(3)
        with pytest.raises(GroupFailed):
            await groups[1].send(b"refused")
        assert await groups[1].reset(2) == 2
        await groups[1].send(b"accepted", confirm=True)

    in_lab(program)


def test_two_resets_at_once_build_one_group() -> None:
    """Section 3: "multiple members initiate a recovery at the same moment. The new group is only built once"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(4, recovery="manual")
        lab.nodes[0].crash()
        assert await asyncio.gather(*(group.reset(3) for group in groups[1:])) == [3, 3, 3]
        await asyncio.sleep(1)
        assert {seen.views[-1].id for seen in lab.seen[1:]} == {lab.seen[1].views[-1].id}
        assert names(lab, 3) == ["b", "c", "d"]

    in_lab(program)


def test_automatic_recovery_needs_no_call() -> None:
    """Section 3 leaves the policy to the user; `recovery="automatic"` is one."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(4)
        sending = [asyncio.create_task(groups[2].send(b"%d" % number, confirm=True)) for number in range(20)]
        lab.nodes[0].crash()
        await asyncio.wait_for(asyncio.gather(*sending), 10)
        await asyncio.sleep(1)
        assert [seen.payloads for seen in lab.seen[1:]] == [[b"%d" % number for number in range(20)]] * 3
        assert lab.seen[1].views[-1].reason == Reason.RESET

    in_lab(program)


def test_a_minority_does_not_go_on_by_itself() -> None:
    """Section 3: "a banking system may require that at least half of the group is alive": the default here."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(5)
        lab.world.network.partition([["a", "b"]])
        await asyncio.sleep(10)
        assert [names(lab, index) for index in (2, 3, 4)] == [["c", "d", "e"]] * 3
        assert len(lab.seen[0].views[-1].members) == 5
        minority = asyncio.create_task(groups[0].send(b"minority", confirm=True))
        await asyncio.sleep(5)
        assert not minority.done()
        assert lab.seen[2].payloads == []
        minority.cancel()

    in_lab(program)


@pytest.mark.parametrize("service", [RESILIENT(2), SAFE])
def test_a_resilient_message_survives_its_sender_and_the_sequencer(service: Service) -> None:
    """Section 4.2: "no matter which resilience machines crash, there will be at least one left"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(5)
        network = lab.world.network
        for name in "cde":
            network.cut("a", name)  # no accept reaches them
        sending = asyncio.create_task(groups[1].send(b"kept", service, confirm=True))
        await asyncio.sleep(0.01)
        if service != SAFE:
            assert sending.done(), "the sender has its promise"
        lab.nodes[0].crash()
        lab.nodes[1].crash()
        network.heal()
        await lab.until(lambda: all({*names(lab, index)} == {"c", "d", "e"} for index in (2, 3, 4)))
        await groups[4].send(b"on", AGREED, confirm=True)
        await asyncio.sleep(1)
        if service != SAFE:
            assert [seen.payloads for seen in lab.seen[2:]] == [[b"kept", b"on"]] * 3
        else:
            assert len({tuple(seen.payloads) for seen in lab.seen[2:]}) == 1
            with pytest.raises(NotMember):
                await sending

    in_lab(program)
