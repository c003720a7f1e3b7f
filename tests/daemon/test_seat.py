"""Seats: what an adapter has of the daemon, whatever protocol it speaks (docs/design/daemon.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.network.quick import QUICK, fresh, within

from ordercast import AGREED, SAFE, Left, NotMember, UsageError, View
from ordercast.config import MS
from ordercast.daemon.hub import Hub
from ordercast.daemon.seat import Limits, SessionSeat
from ordercast.errors import WireError
from ordercast.groups.events import Batch, MixedBatch, PortEvent
from ordercast.groups.watches import Watch
from ordercast.runtime.node import SessionNode
from ordercast.wire.block import pack_run
from ordercast.wire.endings import Ending, SessionEnd, encode_ending, read_ending


class Adapter:
    """Takes what comes, unless it is told not to."""

    def __init__(self) -> None:
        self.seat: SessionSeat | None = None
        self.events: list[PortEvent] = []
        self.settled: list[Watch] = []
        self.ending: Ending | None = None
        self.is_slow = False
        self._changed = asyncio.Event()

    def settle(self) -> None:
        seat = self.seat
        if seat is None:
            return
        self.settled += seat.take_settled()
        while not self.is_slow and (event := seat.take()) is not None:
            if isinstance(event, Batch):
                assert event.messages
            self.events.append(event)
        self._changed.set()

    def ended(self, ending: Ending) -> None:
        self.ending = ending
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def payloads(self) -> list[bytes]:
        return [payload for event in self.events if isinstance(event, Batch) for payload in event.messages]

    def header(self) -> bytes:
        """Of the last view."""
        return [event for event in self.events if isinstance(event, View)][-1].header

    def members(self, group: str) -> tuple[str, ...]:
        views = [event for event in self.events if isinstance(event, View) and event.group == group]
        return tuple(member.label for member in views[-1].members) if views else ()


class House:
    """A daemon without sockets for clients."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.node = SessionNode(timing=QUICK)
        self._limits = limits
        self._floor = fresh()

    async def __aenter__(self) -> House:
        await self.node.attach(self._floor)
        self.hub = Hub(self.node, self._floor, self._limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.close()

    def open(self, label: str) -> tuple[Adapter, SessionSeat]:
        adapter = Adapter()
        adapter.seat = seat = self.hub.seats.open(label, adapter)
        return adapter, seat


@within(60)
async def test_sessions_of_one_daemon_join_send_and_leave_and_see_the_same() -> None:
    async with House() as house:
        (one, alice), (two, bob) = house.open("alice"), house.open("bob")
        for seat in (alice, bob):
            seat.join("prices", b"hello")
        await one.until(lambda: one.members("prices") == ("alice", "bob"))
        assert alice.send(b"1", ["prices"], AGREED) == 0
        watch = alice.watch(1, 3, SAFE)
        assert alice.send_many([b"2", b"3"], ["prices"], SAFE) == 2
        await two.until(lambda: two.payloads() == [b"1", b"2", b"3"])
        await one.until(lambda: one.settled == [watch])
        assert one.payloads() == two.payloads()
        assert alice.delivered_number == 3
        alice.leave("prices", b"bye")
        await two.until(lambda: two.members("prices") == ("bob",))
        assert two.header() == b"bye"
        await one.until(lambda: isinstance(one.events[-1], Left))


@within(60)
async def test_a_block_goes_on_unopened_whether_it_is_small_or_large() -> None:
    async with House() as house:
        (one, alice), (two, bob) = house.open("alice"), house.open("bob")
        for seat in (alice, bob):
            seat.join("prices")
        await one.until(lambda: one.members("prices") == ("alice", "bob"))
        small = [b"a", b"bb"]
        large = [bytes([number % 251]) * 100 for number in range(400)]
        ragged = [bytes(number % 97) for number in range(900)]
        for payloads in (small, large, ragged):
            assert alice.send_block(pack_run(0, AGREED, payloads, type_=7), "prices")
        await two.until(lambda: len(two.payloads()) == len(small + large + ragged))
        assert two.payloads() == small + large + ragged
        batches = [event for event in two.events if isinstance(event, Batch)]
        assert {batch.type for batch in batches} == {7}
        assert batches[0].first == 0
        with pytest.raises(WireError):
            alice.send_block(pack_run(0, AGREED, large)[:-1], "prices")
        with pytest.raises(NotMember):
            alice.send_block(pack_run(0, AGREED, small), "elsewhere")


@within(60)
async def test_a_session_need_not_be_in_a_group_to_send_to_it_and_may_send_to_several() -> None:
    async with House() as house:
        (_, alice), (two, bob) = house.open("alice"), house.open("bob")
        bob.join("prices")
        await two.until(lambda: two.members("prices") == ("bob",))
        alice.send(b"from outside", ["prices"], AGREED)
        alice.send(b"to both", ["prices", "trades"], AGREED)
        await two.until(lambda: two.payloads() == [b"from outside", b"to both"])
        last = two.events[-1]
        assert isinstance(last, MixedBatch)
        assert last.groups == ("prices", "trades")


@within(60)
async def test_a_session_that_ends_leaves_its_groups_and_the_others_see_why() -> None:
    async with House() as house:
        (one, alice), (two, bob) = house.open("alice"), house.open("bob")
        for seat in (alice, bob):
            seat.join("prices")
        await two.until(lambda: two.members("prices") == ("alice", "bob"))
        with pytest.raises(UsageError, match="already"):
            house.open("alice")
        alice.close(SessionEnd.LOST, "connection reset")
        await two.until(lambda: two.members("prices") == ("bob",))
        assert read_ending(two.header()) == Ending(SessionEnd.LOST, "connection reset")
        assert one.ending is None
        with pytest.raises(NotMember, match="connection reset"):
            alice.join("trades")
        while house.hub.seats.is_leaving("alice"):
            await asyncio.sleep(0)
        again, alice = house.open("alice")
        alice.join("prices")
        await again.until(lambda: again.members("prices") == ("bob", "alice"))


@within(60)
async def test_a_session_that_does_not_receive_is_put_out_at_the_byte_limit_and_delays_nobody() -> None:
    async with House(Limits(session_bytes=200_000, patience_ns=0)) as house:
        (one, alice), (two, bob) = house.open("alice"), house.open("bob")
        for seat in (alice, bob):
            seat.join("prices")
        await two.until(lambda: two.members("prices") == ("alice", "bob"))
        await one.until(lambda: one.members("prices") == ("alice", "bob"))
        one.is_slow = True
        sent = 0
        while one.ending is None:
            sent += bob.send_many([bytes(1_000)] * 20, ["prices"], AGREED)
            await asyncio.sleep(0)
        assert one.ending.why is SessionEnd.SLOW
        await two.until(lambda: two.members("prices") == ("bob",))
        await two.until(lambda: len(two.payloads()) == sent)
        ending = read_ending(two.header())
        assert ending is not None
        assert ending.why is SessionEnd.SLOW
        assert "200000" in ending.text


@within(60)
async def test_a_group_that_is_left_and_joined_at_once_is_joined_again() -> None:
    async with House() as house:
        one, alice = house.open("alice")
        alice.join("prices")
        await one.until(lambda: one.members("prices") == ("alice",))
        alice.leave("prices")
        alice.join("prices")
        assert alice.has("prices")
        await one.until(lambda: isinstance(one.events[-1], View) and len(one.events) >= 3)
        assert alice.groups == ["prices"]


@within(60)
async def test_when_the_daemon_stops_all_sessions_are_told() -> None:
    async with House(Limits(max_sessions=1)) as house:
        one, _ = house.open("alice")
        with pytest.raises(UsageError, match="takes no more"):
            house.open("bob")
    assert one.ending is not None
    assert one.ending.why is SessionEnd.STOPPED


def test_endings_are_text_and_other_headers_are_none() -> None:
    for why in SessionEnd:
        assert read_ending(encode_ending(why, "because")) == Ending(why, "because")
        assert read_ending(encode_ending(why)) == Ending(why, "")
    assert encode_ending(SessionEnd.SLOW, "it slept") == b"session ended (slow): it slept"
    for header in (b"", b"bye", b"session ended (", b"session ended (tired)", b"session ended (slow", b"\xff" * 30):
        assert read_ending(header) is None


@within(60)
async def test_a_session_that_is_behind_and_takes_enough_stays_and_one_that_does_not_goes_after_its_patience() -> None:
    async with House(Limits(session_bytes=100_000, patience_ns=300 * MS)) as house:
        (one, alice), (two, bob), (three, carl) = house.open("alice"), house.open("bob"), house.open("carl")
        for seat in (alice, bob, carl):
            seat.join("prices")
        await one.until(lambda: len(one.members("prices")) == 3)
        await two.until(lambda: len(two.members("prices")) == 3)
        await three.until(lambda: len(three.members("prices")) == 3)
        one.is_slow = three.is_slow = True
        started = asyncio.get_running_loop().time()
        while three.ending is None:
            bob.send_many([bytes(1_000)] * 20, ["prices"], AGREED)
            for _ in range(8):
                if alice.held_bytes > 150_000:  # always behind, and moving
                    alice.take()
            await asyncio.sleep(0)
        assert three.ending.why is SessionEnd.SLOW
        assert asyncio.get_running_loop().time() - started >= 0.3
        assert one.ending is None
