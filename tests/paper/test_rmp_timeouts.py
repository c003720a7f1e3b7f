"""Timers of acknowledged packets: round trips, back-off, ten tries, then a fault (RMP sections 4.4 and 4.6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from tests.paper.ring import CARRIES_TOKEN, PATIENT, Ring, Word, in_ring

from ordercast.config import MS, SECOND, Timing
from ordercast.service import AGREED
from ordercast.sim.network import NetworkModel
from ordercast.view import Reason
from ordercast.wire.header import Kind

LARGE = 5_000  # bytes of a message that does not travel with its sequence number


def far(one_way_ms: int) -> NetworkModel:
    return NetworkModel("far", latency_ns=one_way_ms * MS)


# NACKs. ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_way_ms", [1, 30, 100])
def test_one_loss_takes_one_nack_and_one_repair_however_far_the_members_are(one_way_ms: int) -> None:
    """RMP section 4.6: round-trip estimation is "applied to the timers for all of the packets that require positive
    acknowledgment", NACKs among them."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        for number in range(8):
            await ring.groups[number % 4].send(bytes(LARGE), confirm=True)  # everybody has passed the token
        await asyncio.sleep(2)
        ring.forget()
        lost: list[Word] = []

        def loses(word: Word, target: str) -> bool:
            is_lost = not lost and target == "d" and word.kind == Kind.DATA
            if is_lost:
                lost.append(word)
            return is_lost

        ring.lose(loses)
        await ring.groups[1].send(bytes(LARGE), AGREED)
        await asyncio.sleep(3)
        assert len(lost) == 1
        assert len(ring.said(Kind.NAK)) == 1
        assert len(ring.said(Kind.REPAIR)) == 1

    in_ring(program, network=far(one_way_ms))


def test_the_token_is_passed_once_however_far_the_members_are() -> None:
    """RMP section 4.6, for ACKs: after some passes the time of a round trip is known, and nothing is sent twice."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        for number in range(24):
            await ring.groups[number % 4].send(bytes(LARGE), confirm=True)
        await asyncio.sleep(2)
        ring.forget()
        for number in range(8):
            await ring.groups[number % 4].send(bytes(LARGE), confirm=True)
        turns = Counter((word.source, word.state.turn) for word in ring.said(*CARRIES_TOKEN))
        assert set(turns.values()) == {1}

    in_ring(program, network=far(100))


# List Change Requests. ------------------------------------------------------------------------------------------------


def test_a_list_change_request_is_repeated_ten_times_with_doubled_timers_and_is_then_a_failure() -> None:
    """RMP section 4.4: Data packets, ACKs, List Change Requests and NACKs are sent again ten times; then "it decides
    that a failure has occurred". Section 4.6: the timer doubles, "clamped at a certain value (currently 2 seconds)"."""

    async def program(ring: Ring) -> None:
        await ring.open(3, timing=PATIENT)
        ring.lose(lambda word, _: word.kind == Kind.PROPOSE)
        waiting = asyncio.create_task(ring.groups[1].lock("x").acquire())
        await ring.until(lambda: bool(ring.said(Kind.INVITE)))
        invitation = ring.said(Kind.INVITE)[0]
        assert invitation.source == "b"
        requests = [word for word in ring.said(Kind.PROPOSE, by="b") if word.at_ns <= invitation.at_ns]
        assert len(requests) == 11, "once, and ten times more"
        waits = [later.at_ns - earlier.at_ns for earlier, later in pairwise(requests)]
        doubled = [min(waits[0] << index, 2 * SECOND) for index in range(10)]
        assert waits == doubled
        assert waits[0] <= 60 * MS
        ring.lose(None)
        await waiting

    in_ring(program)


def test_a_request_that_has_to_wait_is_acknowledged_by_the_token_site() -> None:
    """A request may wait long, here for the decision on the change before it: that is no failure (deviation)."""

    async def program(ring: Ring) -> None:
        await ring.open(5)
        ring.lose(lambda word, _: word.kind in (Kind.VOTE, Kind.DECIDED))
        first = asyncio.create_task(ring.groups[2].lock("x").acquire())
        await asyncio.sleep(5)
        second = asyncio.create_task(ring.groups[1].lock("y").acquire())
        await asyncio.sleep(40)
        assert not second.done()
        assert not ring.said(Kind.INVITE)
        assert 10 < len(ring.said(Kind.PROPOSE, by="b")) < 60
        ring.lose(None)
        await first
        await second

    in_ring(program)


# Newcomers. -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_way_ms", [30, 100, 200])
def test_a_distant_newcomer_joins_the_group_and_makes_none_of_its_own(one_way_ms: int) -> None:
    """RMP section 4.3: a new group is for a process that got no answer "after a certain number of retries"."""

    async def program(ring: Ring) -> None:
        await ring.join("a", orderer="token")
        await ring.join("b", orderer="token")
        await ring.join("c", orderer="token")
        await asyncio.sleep(3)
        assert [ring.names(index) for index in range(3)] == [ring.names(0)] * 3
        assert [view.reason for seen in ring.seen[1:] for view in seen.views if view.reason == Reason.CREATE] == []

    in_ring(program, network=far(one_way_ms))


def test_a_newcomer_that_hears_the_group_goes_on_asking() -> None:
    """The group's own datagrams say that it exists, although every answer to the newcomer is lost for a while."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.lose(lambda word, target: word.kind in (Kind.HERE, Kind.BEACON) and target == "d")
        sending = asyncio.create_task(_keep_talking(ring))
        joining = asyncio.create_task(ring.join("d", orderer="token"))
        await asyncio.sleep(3)
        assert not joining.done()
        ring.lose(None)
        await joining
        sending.cancel()
        await asyncio.sleep(0.5)
        assert sorted(ring.names(0)) == ["a", "b", "c", "d"]
        assert Reason.CREATE not in [view.reason for view in ring.seen[3].views]

    in_ring(program)


async def _keep_talking(ring: Ring) -> None:
    while True:
        await ring.groups[0].send(bytes(LARGE))
        await asyncio.sleep(0.05)


def test_a_welcome_is_repeated_at_the_pace_of_the_network() -> None:
    """RMP section 4.6: the New List to a newcomer is acknowledged by the newcomer, and backs off like any packet."""

    async def program(ring: Ring) -> None:
        await ring.join("a", orderer="token")
        await ring.join("b", orderer="token")
        await asyncio.sleep(3)
        ring.forget()
        await ring.join("c", orderer="token")
        await asyncio.sleep(3)
        assert len(ring.said(Kind.WELCOME)) <= 4

    in_ring(program, network=far(100))


def test_a_caller_learns_how_far_the_group_is() -> None:
    """RMP section 4.6, for multi-RPC: after some calls none is sent twice."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        x = ring.node("x", timing=Timing())
        for number in range(6):
            await x.call("paper", b"%d" % number)
        ring.forget()
        for number in range(4):
            await x.call("paper", b"again %d" % number)
        assert len(ring.said(Kind.CALL)) == 4

    in_ring(program, network=far(100))
