"""Sections 3 and 4.2 of the Amoeba paper: in a group that has failed every primitive returns an error until a reset.

Recovery is manual, as in the paper. A member has crashed, the others know it, and nobody has called `reset` yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.paper.group import Lab, in_lab

from ordercast.api.group import Group
from ordercast.engine import Failed, Transitional
from ordercast.errors import GroupFailed, NotMember
from ordercast.groups.events import Event, Left, Message
from ordercast.groups.status import Resumed, Stalled
from ordercast.service import SAFE
from ordercast.view import Reason, View

ORDERERS = ["sequencer", "token", "timestamp"]


async def first_of(group: Group) -> Event:
    """The next event that a paper knows of."""
    while True:
        event, _ = await group.receive()
        if not isinstance(event, Stalled | Resumed):
            return event


async def failed(lab: Lab, orderer: str, *, deaf: int = -1) -> list[Group]:
    """Three members; a, the first, has crashed. The member `deaf` has received everything up to its first view."""
    groups = await lab.form(3, recovery="manual", orderer=orderer)
    if deaf >= 0:
        lab.stop_receiving(deaf)
    lab.nodes[0].crash()
    await lab.until(lambda: all(group.failure is not None for group in groups[1:]))
    return groups


async def reformed(lab: Lab) -> None:
    await lab.until(lambda: all(len(group.members) == 2 for group in lab.groups[1:]))


Primitive = Callable[[Group], Awaitable[object]]
PRIMITIVES: dict[str, Primitive] = {
    "send": lambda group: group.send(b"refused"),
    "confirmed send": lambda group: group.send(b"refused", confirm=True),
    "send_many": lambda group: group.send_many([b"refused", b"too"]),
    "flush": lambda group: group.flush(),
    "receive": lambda group: group.receive(),
    "leave": lambda group: group.leave(),
}
TOKEN_PRIMITIVES: dict[str, Primitive] = {
    "call": lambda group: group.call(b"refused", handler=2),
    "lock": lambda group: group.lock("printer").acquire(),
    "handler": lambda group: group.handler(2).acquire(),
}
ALL = [(name, "sequencer") for name in PRIMITIVES] + [(name, "token") for name in {**PRIMITIVES, **TOKEN_PRIMITIVES}]


async def use(primitive: Primitive, group: Group) -> None:
    """The errors of some primitives come with the call, before anything is awaited."""
    await primitive(group)


@pytest.mark.parametrize(("name", "orderer"), ALL)
def test_every_primitive_fails_at_once_and_works_again_after_a_reset(name: str, orderer: str) -> None:
    """Section 4.2: "all further group primitives return an error status"."""
    primitive = {**PRIMITIVES, **TOKEN_PRIMITIVES}[name]

    async def program(lab: Lab) -> None:
        groups = await failed(lab, orderer, deaf=1)
        group = groups[1]
        event, more = await group.receive()
        assert isinstance(event, Failed), "what was received before comes first, and the failure has its place"
        assert not more
        for _ in range(2):  # and again: the group stays failed
            with pytest.raises(GroupFailed, match="reset"):
                await asyncio.wait_for(use(primitive, group), 1)
        assert await group.reset(2) == 2
        await reformed(lab)
        if name == "receive":
            assert isinstance((await group.receive())[0], Transitional)
        lab.receive_again(1)
        if name == "call":
            async with groups[2].handler(2) as handler:
                asking = asyncio.create_task(group.call(b"works", handler=2))
                async for request in handler:
                    await request.reply(b"again")
                    break
                assert await asking == b"again"
        elif name != "receive":
            await asyncio.wait_for(use(primitive, group), 5)

    in_lab(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_outstanding_calls_return_the_error(orderer: str) -> None:
    """Section 3: "All outstanding calls return an error value indicating that a member has crashed"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual", orderer=orderer)
        lab.stop_receiving(1)
        lab.world.network.partition([["a"], ["b"], ["c"]])
        receiving = asyncio.create_task(first_of(groups[1]))
        waiting = [
            asyncio.create_task(groups[1].send(b"under way", SAFE, confirm=True)),
            asyncio.create_task(groups[1].send_many([b"under", b"way"], SAFE, confirm=True)),
            asyncio.create_task(groups[1].flush()),
            asyncio.create_task(groups[2].leave()),
        ]
        await asyncio.sleep(0.01)
        _, pending = await asyncio.wait(waiting, timeout=20)
        assert not pending
        assert [type(task.exception()) for task in waiting] == [GroupFailed] * 4
        assert isinstance(await receiving, Failed)

    in_lab(program)


def test_outstanding_requests_for_locks_and_calls_return_the_error() -> None:
    """As above, for what RMP has besides."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual", orderer="token")
        lock = groups[0].lock("printer")
        await lock.acquire()
        async with groups[2].handler(2):
            waiting = [
                asyncio.create_task(groups[1].lock("printer").acquire()),
                asyncio.create_task(groups[1].handler(2).acquire()),
                asyncio.create_task(groups[1].call(b"never answered", handler=2)),
            ]
            await asyncio.sleep(0.1)
            lab.nodes[0].crash()
            _, pending = await asyncio.wait(waiting, timeout=20)
            assert not pending
            assert [type(task.exception()) for task in waiting] == [GroupFailed] * 3

    in_lab(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_leave_that_failed_has_not_happened(orderer: str) -> None:
    """The member is still in: it may reset the group and leave in order, and the others see its leave."""

    async def program(lab: Lab) -> None:
        groups = await failed(lab, orderer)
        with pytest.raises(GroupFailed):
            await groups[1].leave(b"too soon")
        assert groups[1].is_member
        assert await groups[1].reset(2) == 2
        await reformed(lab)
        assert await groups[1].send(b"still here", confirm=True) >= 0
        await groups[1].leave(b"now")
        await lab.until(lambda: len(groups[2].members) == 1)
        last = lab.seen[2].views[-1]
        assert (last.reason, last.subject, last.header) == (Reason.LEAVE, "b/0", b"now")
        assert isinstance(lab.seen[1].events[-1], Left)

    in_lab(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_leave_that_was_under_way_when_the_group_failed_can_be_made_again(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual", orderer=orderer)
        lab.world.network.partition([["c"]])
        with pytest.raises(GroupFailed):
            await groups[2].leave(b"lost")
        lab.world.network.heal()
        assert groups[2].is_member
        assert await groups[2].reset(3) == 3
        assert await groups[2].send(b"sends again", confirm=True) >= 0
        await groups[2].leave(b"now")
        await lab.until(lambda: len(groups[1].members) == 2)
        assert [view.header for view in lab.seen[1].views if view.reason == Reason.LEAVE] == [b"now"]
        assert lab.seen[1].payloads == lab.seen[2].payloads == [b"sends again"]

    in_lab(program)


def test_an_iteration_waits_for_the_reset_of_another_member() -> None:
    """`async for`, `batches` and `take` give a stream of events; the failure is one of them."""

    async def program(lab: Lab) -> None:
        groups = await failed(lab, "sequencer", deaf=1)
        await asyncio.sleep(10)
        assert isinstance(lab.seen[2].events[-1], Failed)
        taken = [event for event in await groups[1].take() if not isinstance(event, Stalled | Resumed)]
        assert [type(event) for event in taken] == [Failed]
        taking = asyncio.create_task(groups[1].take())
        await asyncio.sleep(1)
        assert not taking.done()
        assert await groups[1].reset(2) == 2
        await groups[1].send(b"on", confirm=True)
        await asyncio.sleep(0.1)
        taken = [event for event in await taking if not isinstance(event, Stalled | Resumed)]
        assert [type(event) for event in taken] == [Transitional, View]
        kinds = [type(event) for event in lab.seen[2].events[-4:]]
        assert kinds == [Failed, Transitional, View, Message]

    in_lab(program)


def test_what_was_received_before_the_failure_can_be_taken_after_it() -> None:
    """Section 3: "Messages are never intentionally thrown away"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual")
        lab.stop_receiving(1)
        for number in range(3):
            await groups[2].send(b"%d" % number, confirm=True)
        await asyncio.sleep(0.1)
        lab.nodes[0].crash()
        await lab.until(lambda: groups[1].failure is not None)
        taken = [(await groups[1].receive())[0] for _ in range(4)]
        assert [event.payload for event in taken[:3] if isinstance(event, Message)] == [b"0", b"1", b"2"]
        assert isinstance(taken[3], Failed)
        with pytest.raises(GroupFailed):
            await groups[1].receive()

    in_lab(program)


def test_what_tells_of_the_group_goes_on_telling_of_its_last_view() -> None:
    async def program(lab: Lab) -> None:
        groups = await failed(lab, "token")
        assert groups[1].is_member
        assert [member.name for member in groups[1].members] == [member.name for member in groups[2].members]
        assert len(groups[1].members) == 3
        assert groups[1].view is not None
        assert groups[1].failure is not None
        assert "a/0" in groups[1].failure
        assert await groups[1].reset(2) == 2
        assert groups[1].failure is None

    in_lab(program)


def test_a_lock_that_is_given_back_while_the_group_has_failed_is_free_after_the_reset() -> None:
    """An error would leave it locked: nobody would have a handle to give it back with."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, recovery="manual", orderer="token")
        lock = groups[1].lock("printer")
        await lock.acquire()
        lab.nodes[0].crash()
        await lab.until(lambda: all(group.failure is not None for group in groups[1:]))
        assert lock.is_held, "a failure of others takes no lock away"
        lock.release()
        assert await groups[2].reset(2) == 2
        await asyncio.wait_for(groups[2].lock("printer").acquire(), 5)

    in_lab(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_member_can_go_without_a_leave(orderer: str) -> None:
    """What a program that ends does in the paper: to the others it is one more crash."""

    async def program(lab: Lab) -> None:
        groups = await failed(lab, orderer)
        await groups[1].abandon()
        assert not groups[1].is_member
        await lab.until(lambda: isinstance(lab.seen[1].events[-1], Left))
        with pytest.raises(NotMember):
            await groups[1].send(b"out")
        assert await groups[2].reset(1) == 1
        assert all(view.reason != Reason.LEAVE for view in lab.seen[2].views)

    in_lab(program)


def test_the_end_of_a_block_and_of_a_node_end_the_membership_in_any_case() -> None:
    async def program(lab: Lab) -> None:
        groups = await failed(lab, "sequencer")
        with pytest.raises(GroupFailed):
            async with groups[1]:
                await groups[1].send(b"refused")
        assert not groups[1].is_member
        await asyncio.wait_for(lab.nodes[2].close(), 5)
        assert not groups[2].is_member

    in_lab(program)
