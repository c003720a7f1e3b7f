"""The primitives of section 3 of the Amoeba paper, as a program calls them, and who is the sequencer (section 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.paper.group import Lab, in_lab, send_one_by_one

from ordercast.config import GroupConfig
from ordercast.engine import Transitional
from ordercast.errors import JoinRefused, MessageTooLarge
from ordercast.groups.events import Left, Message
from ordercast.service import AGREED, RESILIENT
from ordercast.sim.inspection import inspect
from ordercast.view import Reason


def test_the_machine_that_creates_the_group_is_its_sequencer() -> None:
    """Section 4: "The machine on which the group is created is made the sequencer"."""

    async def program(lab: Lab) -> None:
        await lab.join("z", create=True)
        await lab.join("a", create=False)
        await lab.join("b", create=False)
        await lab.until(lambda: all(len(group.members) == 3 for group in lab.groups))
        assert [[member.name for member in group.members] for group in lab.groups] == [["z", "a", "b"]] * 3
        sent = await lab.count(lab.groups[1].send(b"m", confirm=True))
        assert (sent["request"], sent["ordered"]) == (1, 1)
        assert lab.groups[0].stats["sent.ordered"]
        assert not lab.groups[1].stats.get("sent.ordered")

    in_lab(program)


def test_creating_and_joining_can_be_told_apart() -> None:
    """Section 3: CreateGroup and JoinGroup; create=None does whichever is right."""

    async def program(lab: Lab) -> None:
        with pytest.raises(JoinRefused, match="there is no group"):
            await lab.join("a", create=False)
        await lab.join("b", create=None)
        with pytest.raises(JoinRefused, match="exists already"):
            await lab.join("c", create=True)
        await lab.join("d", create=False)
        await lab.join("e", create=None)
        assert [member.name for member in lab.groups[-1].members] == ["b", "d", "e"]

    in_lab(program)


def test_the_headers_of_joins_and_leaves_are_delivered_to_the_members() -> None:
    """Section 3: JoinGroup and LeaveGroup deliver `hdr`, a small message, to all other members."""

    async def program(lab: Lab) -> None:
        await lab.form(2)
        await lab.join("c", header=b"here I am")
        await lab.groups[2].leave(b"so long")
        await lab.until(lambda: all(len(group.members) == 2 for group in lab.groups[:2]))
        await asyncio.sleep(0.1)
        for seen in lab.seen[:2]:
            joined, left = seen.views[-2:]
            assert (joined.reason, joined.subject, joined.header) == (Reason.JOIN, "c/0", b"here I am")
            assert (left.reason, left.subject, left.header) == (Reason.LEAVE, "c/0", b"so long")

    in_lab(program)


def test_joins_and_leaves_have_one_place_among_the_broadcasts() -> None:
    """Section 3: all members receive first the join and then the broadcast, or the other way round."""

    async def program(lab: Lab) -> list[list[Any]]:
        groups = await lab.form(3)

        async def chatter(index: int) -> None:
            for number in range(100):
                await groups[index].send(b"%d.%d" % (index, number), confirm=True)

        talking = [asyncio.create_task(chatter(index)) for index in range(3)]
        await asyncio.sleep(0.004)
        await lab.join("d", header=b"join")
        await asyncio.sleep(0.004)
        await lab.groups[3].leave(b"leave")
        await asyncio.gather(*talking)
        await asyncio.sleep(0.5)
        return [[words_of(event) for event in seen.events if not isinstance(event, Left)] for seen in lab.seen]

    *stayed, visitor = in_lab(program)
    start = stayed[0].index(b"join")
    end = stayed[0].index(b"leave")
    assert 0 < start < end - 1 < len(stayed[0]) - 2, "both fall among the broadcasts"
    for events in stayed:
        assert events[events.index(b"join") :] == stayed[0][start:]
        assert events[-300 - 2 :] == stayed[0][-300 - 2 :]
    assert visitor[: end - start] == stayed[0][start:end]


def words_of(event: Any) -> bytes:
    """What a message or a view says."""
    return event.payload if isinstance(event, Message) else event.header


def test_a_member_that_has_left_gets_nothing_more_and_the_rest_goes_on() -> None:
    """Section 3: "When a member has left the group, it will not receive subsequent broadcasts"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        await groups[1].send(b"before", confirm=True)
        await groups[2].leave()
        await groups[1].send(b"after", confirm=True)
        await asyncio.sleep(1)
        assert lab.seen[2].payloads == [b"before"]
        assert isinstance(lab.seen[2].events[-1], Left)
        assert lab.seen[0].payloads == lab.seen[1].payloads == [b"before", b"after"]

    in_lab(program)


def test_the_sequencers_own_leave_hands_the_group_over() -> None:
    """Section 3, LeaveGroup, of the member that orders it: no failure, no recovery, nothing lost."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        sending = [asyncio.create_task(groups[1].send(b"%d" % number, confirm=True)) for number in range(50)]
        await asyncio.sleep(0.0005)
        await groups[0].leave(b"yours")
        await asyncio.gather(*sending)
        await groups[2].send(b"last", confirm=True)
        await asyncio.sleep(1)
        for group, seen in zip(groups[1:], lab.seen[1:], strict=True):
            assert [member.name for member in group.members] == ["b", "c"]
            assert seen.payloads == [b"%d" % number for number in range(50)] + [b"last"]
            assert (seen.views[-1].reason, seen.views[-1].header) == (Reason.LEAVE, b"yours")
            assert not any(isinstance(event, Transitional) for event in seen.events)
        assert groups[1].stats["sent.ordered"]

    in_lab(program)


def test_the_last_member_that_leaves_makes_the_group_vanish() -> None:
    """Section 3: "The last member calling LeaveGroup causes the group to cease to exist"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        for group in groups:
            await group.leave()
        with pytest.raises(JoinRefused, match="there is no group"):
            await lab.join("d", create=False)
        made = await lab.join("e", create=True)
        assert [member.name for member in made.members] == ["e"]
        back = await lab.nodes[0].join("paper", create=False)
        assert [member.name for member in back.members] == ["e", "a"]

    in_lab(program)


@pytest.mark.parametrize(
    ("demand", "word"),
    [
        ({"max_members": 7}, "max_members"),
        ({"buffers": 10_000}, "history_bytes"),
        ({"max_message": 999}, "max_message"),
    ],
)
def test_a_join_that_cannot_meet_the_groups_parameters_fails(demand: dict[str, Any], word: str) -> None:
    """Section 3: CreateGroup sets the number of members, buffers and the size of a message; JoinGroup names its own."""

    async def program(lab: Lab) -> None:
        await lab.join("a", create=True, max_members=8, buffers=20_000, max_message=1_000)
        with pytest.raises(JoinRefused, match=word):
            await lab.join("b", **demand)
        able = await lab.join("c", max_members=8, buffers=30_000, max_message=2_000)
        assert (able.config.max_members, able.config.history_bytes, able.config.max_message) == (8, 20_000, 1_000)
        with pytest.raises(MessageTooLarge):
            await able.send(bytes(1_001))

    in_lab(program)


def test_a_group_takes_no_more_members_than_it_was_created_for() -> None:
    """Section 3: the maximum number of members is a parameter of CreateGroup."""

    async def program(lab: Lab) -> None:
        await lab.join("a", create=True, max_members=2)
        await lab.join("b")
        with pytest.raises(JoinRefused, match="full"):
            await lab.join("c")
        await lab.groups[1].leave()
        assert len((await lab.join("d")).members) == 2

    in_lab(program)


@pytest.mark.parametrize("buffers", [4, 16])
def test_the_number_of_buffers_is_what_the_group_holds_for_a_member_that_does_not_receive(buffers: int) -> None:
    """Section 3: nr_buf; "the group may block, because it may run out of buffers"."""

    async def program(lab: Lab) -> None:
        await lab.form(2, nr_buf=buffers)
        slow = await lab.join("c", nr_buf=2 * buffers, is_deaf=True)  # it could bear more
        assert slow.config.history_blocks == buffers
        with pytest.raises(JoinRefused, match="history_blocks"):
            await lab.join("d", nr_buf=buffers - 1)
        sending = asyncio.create_task(send_one_by_one(lab.groups[1], 3 * buffers, 10))
        await asyncio.sleep(5)
        assert len(lab.seen[0].payloads) == buffers, "one for each buffer"
        assert all(inspect(node.host.ports[0].engine).peak_blocks <= buffers for node in lab.nodes)
        lab.receive_again(2)
        await asyncio.wait_for(sending, 5)
        await asyncio.sleep(0.1)
        assert len(lab.seen[2].payloads) == 3 * buffers

    in_lab(program)


def test_the_groups_resilience_degree_is_the_service_of_a_plain_send() -> None:
    """Section 3: the resilience degree is the second parameter of CreateGroup, and holds for whoever joins."""

    async def program(lab: Lab) -> None:
        await lab.join("a", create=True, resilience=2)
        await lab.join("b")
        assert lab.groups[1].config.resilience == 2
        assert lab.groups[1].default_service == RESILIENT(2)
        await lab.groups[1].send(b"resilient")
        await lab.groups[1].send(b"agreed", AGREED, confirm=True)
        await asyncio.sleep(0.1)
        services = [event.service for event in lab.seen[0].events if isinstance(event, Message)]
        assert services == [RESILIENT(2), AGREED]

    in_lab(program)


def test_receive_says_whether_more_is_buffered() -> None:
    """Section 3: the `more` flag of ReceiveFromGroup."""

    async def program(lab: Lab) -> None:
        await lab.form(2, config=GroupConfig())
        lab.stop_receiving(0)
        await asyncio.sleep(0.01)
        for text in (b"one", b"two", b"three"):
            await lab.groups[1].send(text, confirm=True)
        await asyncio.sleep(0.01)
        got = [await lab.groups[0].receive() for _ in range(3)]
        assert [(event.payload, more) for event, more in got if isinstance(event, Message)] == [
            (b"one", True),
            (b"two", True),
            (b"three", False),
        ]

    in_lab(program)
