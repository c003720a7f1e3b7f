"""Calls that outlast silence: long cuts, slow handlers, and view changes meanwhile (RMP sections 4.3, 4.4 and 4.5)."""

from __future__ import annotations

import asyncio

import pytest
from tests.paper.calling import Office, in_office, noting, shout

from ordercast.config import SECOND, Timing
from ordercast.errors import CallTimeout
from ordercast.groups.events import Request
from ordercast.orderers.token.calls import KEPT_CALLERS

FLUSH_S = 60


async def change_view(office: Office, index: int) -> None:
    """Any change of the view: here a lock that is taken and given back."""
    async with office.groups[index].lock("any"):
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("changer", [0, 1, 2])
def test_a_call_is_not_carried_out_twice_however_long_its_caller_is_cut_off(changer: int) -> None:
    """RMP section 4.5: members "keep track of the highest delivered sequence number from each non-member"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        asked: list[bytes] = []
        await office.serve(1, 2, noting(asked))
        office.silence("a", "b", "c")  # its reply is lost
        call = asyncio.create_task(x.call("paper", b"pay", handler=2, timeout=None))
        await asyncio.sleep(1)
        assert asked == [b"pay"]
        for name in "abc":
            office.world.network.cut("x", name)
        await asyncio.sleep(FLUSH_S + 10)
        await change_view(office, changer)
        office.world.network.heal()
        assert await call == b"PAY"
        await asyncio.sleep(0.1)
        assert asked == [b"pay"]
        assert [office.payloads(index) for index in range(3)] == [[b"pay"]] * 3

    in_office(program)


def test_a_newcomer_knows_the_calls_that_came_before_it_however_long_ago() -> None:
    """RMP section 4.5: the numbers "are sent out as part of each New List packet, and each joining member will receive
    a copy". The newcomer is token site when the call comes again, and has never seen it."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        await office.serve(1, 2)
        office.silence("a", "b")
        call = asyncio.create_task(x.call("paper", b"pay", handler=2, timeout=None))
        await asyncio.sleep(1)
        for name in "ab":
            office.world.network.cut("x", name)
        await asyncio.sleep(FLUSH_S + 10)
        await change_view(office, 0)
        await office.join("c", orderer="token")
        await asyncio.sleep(FLUSH_S + 10)
        await change_view(office, 2)
        office.world.network.heal()
        assert await call == b"PAY"
        await asyncio.sleep(0.1)
        assert [office.payloads(index) for index in range(3)] == [[b"pay"], [b"pay"], []]

    in_office(program)


def test_a_slow_handlers_answer_is_repeated_although_the_view_has_changed() -> None:
    """RMP section 4.5: the reply "must be sent as many times as necessary until the non member receives it"."""

    async def program(office: Office) -> None:
        x = await office.open(3)

        async def ponder(request: Request) -> None:
            await asyncio.sleep(80)
            office.silence("a", "b", "c")  # the one answer is lost
            await shout(request)

        await office.serve(1, 2, ponder)
        call = asyncio.create_task(x.call("paper", b"slow", handler=2, timeout=None))
        await asyncio.sleep(70)
        await change_view(office, 0)
        await asyncio.sleep(11)
        assert not call.done()
        office.world.network.heal()
        async with asyncio.timeout(5):
            assert await call == b"SLOW"

    in_office(program)


def test_callers_that_were_silent_longest_are_forgotten_where_there_are_many() -> None:
    """RMP section 4.5: numbers "may be flushed" of callers that have been silent. Ours are, where they are many."""

    async def program(office: Office) -> None:
        timing = Timing(caller_flush_ns=4 * SECOND)
        await office.open(2, timing=timing)
        for number in range(KEPT_CALLERS + 8):
            caller = office.node(f"x{number}", timing=timing)
            await caller.call("paper", b"%d" % number)
        await change_view(office, 0)
        view = office.groups[0].view
        assert view is not None
        assert len(view.callers) == KEPT_CALLERS + 8  # none was silent for long
        await asyncio.sleep(5)
        await change_view(office, 1)
        view = office.groups[1].view
        assert view is not None
        assert len(view.callers) == KEPT_CALLERS

    in_office(program)


def test_a_member_that_is_leaving_does_not_answer_and_the_callers_timeout_ends_the_call() -> None:
    """RMP section 3.3: the holder at the place of the call is to answer. Here it has asked to leave before that place,
    and its leave follows: no other member may answer instead."""

    async def program(office: Office) -> None:
        await office.open(3)
        asked: list[bytes] = []
        await office.serve(1, 2, noting(asked))
        holder = str(office.nodes[1].member)
        leaving = asyncio.create_task(office.groups[1].leave())
        with pytest.raises(CallTimeout, match="may or may not have been carried out"):
            await office.groups[0].call(b"pay", handler=2, timeout=5)
        await leaving
        came = [row for row in office.rows("deliver") if f"{row.node}/{row.life}" == holder]
        assert [row.bytes for row in came] == [3], "it came to the holder, in front of its leave"
        assert asked == [b"pay"], "it could not answer any more"

    in_office(program)
