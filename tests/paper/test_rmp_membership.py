"""Changes of the membership view without failures: New Lists and the requests for them (RMP sections 3.1 and 4.3)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.paper.ring import CARRIES_TOKEN, TELLS_STATE, Ring, Word, in_ring

from ordercast.config import MS, GroupConfig
from ordercast.errors import JoinRefused
from ordercast.service import AGREED, RESILIENT, SAFE, Service
from ordercast.view import Reason, node_id
from ordercast.wire.header import Kind

LARGE = 5_000  # bytes of a message that does not travel with its place


# Joining. -------------------------------------------------------------------------------------------------------------


def test_a_join_costs_one_new_list() -> None:
    """RMP section 4.3: "The current token site serializes these change requests and sends out New List packets"; "this
    New List packet is also unicast to the joining process"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        await ring.join("d", orderer="token", config=GroupConfig(datagram=62_000))
        new_list = ring.said(Kind.LIST)[0]
        assert new_list.source == "a", "the token site"
        assert set(new_list.targets) >= {"b", "c"}
        assert new_list.view.reason == Reason.JOIN
        assert new_list.view.creator == "a/0", "a view is made by a single process"
        assert [word.targets for word in ring.said(Kind.WELCOME)] == [("d",)]
        await asyncio.sleep(1)
        assert {word.targets for word in ring.said(Kind.LIST)[1:]} <= {("d",)}, "it may have missed the multicast"
        assert {word.body for word in ring.said(Kind.LIST)[1:]} <= {new_list.body}, "and gets the same"

    in_ring(program)


@pytest.mark.parametrize("site", ["a", "b", "c"])
def test_a_newcomer_comes_directly_after_the_token_site_and_is_token_site_next(site: str) -> None:
    """RMP section 4.3: "A new member is always added in to the membership view directly after the current token site.
    This forces the new member to take an immediate role in the group"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        await ring.bring_token_to(site)
        ring.forget()
        await ring.join("d", orderer="token", config=GroupConfig(datagram=62_000))
        new_list, *again = ring.said(Kind.LIST)
        assert {word.targets for word in again} <= {("d",)}, "it may have missed the multicast"
        assert new_list.source == site
        assert ring.name_of(new_list.state.site) == "d"
        await asyncio.sleep(1)
        assert ring.names(0) == {"a": "adbc", "b": "abdc", "c": "abcd"}[site]
        after = next(word for word in ring.said(*CARRIES_TOKEN, Kind.CONFIRM) if word.source != site)
        assert after.source == "d", "its acceptance of the token tells the others that it is there"
        assert after.state.turn >= new_list.state.turn

    in_ring(program)


def test_a_newcomer_asks_until_it_is_in() -> None:
    """RMP section 4.3: "it will repeatedly send the List Change Request packet until it receives a New List packet
    naming it as the new token site"."""

    async def program(ring: Ring) -> None:
        await ring.open(2)
        ring.lose(lambda word, _: word.kind == Kind.JOIN or (word.kind == Kind.WELCOME and welcomes(ring) < 3))
        joining = asyncio.create_task(ring.join("c", orderer="token", config=GroupConfig(datagram=62_000)))
        await asyncio.sleep(0.3)
        assert len(ring.said(Kind.JOIN, by="c")) >= 3
        assert not ring.said(Kind.LIST)
        ring.lose(lambda word, _: word.kind == Kind.WELCOME and welcomes(ring) < 3)
        await joining
        assert {word.view.id for word in ring.said(Kind.LIST)} == {ring.view_id}
        assert welcomes(ring) >= 3
        await asyncio.sleep(1)
        assert set(ring.names(0)) == set("abc")

    in_ring(program)


def welcomes(ring: Ring) -> int:
    return len(ring.said(Kind.WELCOME))


def test_a_newcomer_that_finds_nobody_makes_a_group_of_its_own() -> None:
    """RMP section 4.3: "If no New List packet is received after a certain number of retries to a group, the new RMP
    process creates a new group with only itself in it"."""

    async def program(ring: Ring) -> None:
        group = await ring.join("a", orderer="token")
        assert [str(member) for member in group.members] == ["a/0"]
        assert len(ring.said(Kind.FIND, by="a")) == 5
        assert group.view is not None
        assert (group.view.reason, group.view.creator) == (Reason.CREATE, "a/0")

    in_ring(program)


def test_view_ids_are_never_used_twice() -> None:
    """RMP section 3.1: "a membership view ID consists of an ID that is unique ... concatenated with a counter"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        for _ in range(4):
            async with ring.groups[1].lock("x"):
                pass
            await ring.groups[0].send(b"turn", confirm=True)
        await asyncio.sleep(1)
        ids = [view.id for view in ring.seen[0].views]
        assert len(set(ids)) == len(ids)
        assert {view.creator for view in ring.seen[0].views} > {"a/0"}, "whoever is token site makes them"
        for creator in "abc":
            counters = [view.counter for view in ring.seen[0].views if view.creator == f"{creator}/0"]
            assert all(earlier < later for earlier, later in pairwise(counters))

    in_ring(program)


def test_joins_at_once_are_serialized() -> None:
    """RMP section 4.3: the token site "serializes these change requests"; every member sees the same views in the same
    order, and each message between the same two of them (section 3.2, virtual synchrony)."""

    async def program(ring: Ring) -> None:
        await ring.open(2)

        async def talk() -> None:
            for number in range(40):
                await ring.groups[0].send(b"%d" % number, confirm=True)

        config = GroupConfig(datagram=62_000)
        await asyncio.gather(talk(), *(ring.join(name, orderer="token", config=config) for name in "cdef"))
        await asyncio.sleep(1)
        lists = [word.view for word in ring.said(Kind.LIST)]
        assert len({view.seq for view in lists}) == 4
        assert [len(view.members) for view in {view.seq: view for view in lists}.values()] == [3, 4, 5, 6]
        stories = [
            [getattr(event, "payload", getattr(event, "id", "")) for event in seen.events[-44:]]
            for seen in ring.seen[:2]
        ]
        assert stories[0] == stories[1]

    in_ring(program)


# Leaving. -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaver", ["a", "b", "c"])
def test_a_leave_costs_one_new_list(leaver: str) -> None:
    """RMP section 4.3: "it must remain a member of the group until after it has seen and committed the new membership
    view removing it from the ring". The token rests at a: also who holds the token leaves."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        index = "abc".index(leaver)
        await ring.groups[index].leave()
        (new_list,) = ring.said(Kind.LIST)
        assert new_list.source == "a"
        assert (new_list.view.reason, new_list.view.subject) == (Reason.LEAVE, f"{leaver}/0")
        rest = "abc".replace(leaver, "")
        assert "".join(member.name for member in new_list.view.members) == rest
        assert ring.name_of(new_list.state.site) in rest
        await asyncio.sleep(8)  # longer than anybody would wait for a word of a member
        assert {word.state.turn for word in ring.said(Kind.LIST)} == {new_list.state.turn}
        assert not ring.said(Kind.INVITE), "nobody takes the one that has left for dead"
        stay = ring.groups["abc".index(rest[0])]
        await stay.send(b"on", confirm=True)

    in_ring(program)


def test_a_leave_waits_for_the_leavers_own_messages() -> None:
    """RMP section 4.3: what it sent before is ordered before the view without it."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        for number in range(20):
            await ring.groups[2].send(b"%d" % number * LARGE)
        await ring.groups[2].leave()
        await asyncio.sleep(0.1)
        for seen in ring.seen[:2]:
            assert seen.payloads[-20:] == [b"%d" % number * LARGE for number in range(20)]
            assert seen.events[-1] is seen.views[-1]

    in_ring(program)


def test_a_leaver_answers_repairs_until_all_have_the_view_without_it() -> None:
    """RMP section 4.3: "After leaving the ring, it must continue to process NACK requests and keep track of token
    passes until it no longer has any packets from the old list that it must hold for retransmission"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)

        # c lacks a message of b, and only b can give it: what the others say of it is lost.
        def loses(word: Word, target: str) -> bool:
            return target == "c" and (word.kind == Kind.DATA or (word.kind == Kind.REPAIR and word.source != "b"))

        ring.lose(lambda word, target: target == "c" and word.kind in (Kind.DATA, Kind.REPAIR))
        await ring.groups[1].send(b"last" * LARGE, confirm=True)
        leaving = asyncio.create_task(ring.groups[1].leave())
        await leaving
        assert not ring.groups[1].is_member
        assert not ring.has("c", b"last" * LARGE)
        ring.lose(loses)
        await ring.until(lambda: ring.has("c", b"last" * LARGE))
        assert [word.targets for word in ring.said(Kind.REPAIR, by="b")][-1] == ("c",)
        await ring.until(lambda: ring.names(2) == "ac")
        ring.lose(None)
        await asyncio.sleep(1)
        ring.forget()
        await asyncio.sleep(2)
        assert not [word for word in ring.tape.words if word.source == "b"], "then it is gone"

    in_ring(program)


def test_a_leaver_that_nobody_can_hear_is_no_member_all_the_same() -> None:
    """RMP section 4.3, and 4.4 for who never says that it knows: the others do not wait for ever."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.lose(lambda word, _: word.source == "c" and word.kind in TELLS_STATE)
        await ring.groups[2].leave()
        ring.nodes[2].crash()
        await ring.groups[0].send(b"on", SAFE, confirm=True)
        assert ring.names(0) in ("ab", "ba")

    in_ring(program)


# Locks. ---------------------------------------------------------------------------------------------------------------


def test_a_lock_and_its_release_cost_one_new_list_each() -> None:
    """RMP section 4.3: "A new membership view is created whenever a RMP process ... is granted a handler lock for a
    group, or releases a lock"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        lock = ring.groups[1].lock(2)
        await lock.acquire()
        (granted,) = ring.said(Kind.LIST)
        assert (granted.view.reason, granted.view.locks) == (Reason.LOCK, {"2": node_id("b", 0)})
        assert len(ring.said(Kind.PROPOSE)) == 1, "the List Change Request"
        ring.forget()
        lock.release()
        await asyncio.sleep(0.5)
        (released,) = ring.said(Kind.LIST)
        assert (released.view.reason, released.view.locks) == (Reason.UNLOCK, {})

    in_ring(program)


def test_a_denied_request_is_answered_by_a_new_list_with_the_same_view() -> None:
    """RMP section 4.3: "will not be granted if another process already holds that handler lock when the request is
    processed. If a request is denied, a New List packet is still generated, but the membership view it contains will be
    the same one the group was using before"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        # Both ask at once: one of the two requests finds the lock taken.
        claims = [asyncio.create_task(ring.groups[index].lock("x").acquire()) for index in (1, 2)]
        await asyncio.sleep(0.5)
        granted, denied = ring.said(Kind.LIST)
        assert denied.view.id == granted.view.id
        assert (denied.view.members, denied.view.locks) == (granted.view.members, granted.view.locks)
        assert denied.view.seq > granted.view.seq, "at a place of its own"
        assert sum(claim.done() for claim in claims) == 1
        assert [view.reason for view in ring.seen[0].views].count(Reason.LOCK) == 1, "no application hears of the other"
        for claim in claims:
            claim.cancel()

    in_ring(program)


def test_requests_are_sent_again_until_they_are_answered() -> None:
    """RMP section 4.3: "List Change Request packets require positive acknowledgment, and are resent periodically until
    this is received"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.lose(lambda word, _: word.kind == Kind.PROPOSE)
        waiting = asyncio.create_task(ring.groups[1].lock("x").acquire())
        await asyncio.sleep(0.5)
        requests = ring.said(Kind.PROPOSE, by="b")
        assert {word.targets for word in requests} == {("a", "c")}, "to all: any of them may be the token site"
        waits = [later.at_ns - earlier.at_ns for earlier, later in pairwise(requests)]
        assert waits == [20 * MS, 40 * MS, 80 * MS, 160 * MS], "the time of a round trip is known, and doubles"
        ring.lose(None)
        await waiting
        await asyncio.sleep(1)
        assert len(ring.said(Kind.LIST)) == 1, "and is granted once, however often it came"

    in_ring(program)


# Order between changes and messages. ----------------------------------------------------------------------------------


@pytest.mark.parametrize("service", [RESILIENT(2), SAFE])
def test_a_change_stands_behind_what_is_safe(service: Service) -> None:
    """Deviation from RMP section 4.3 (docs/design/token.md, 5): a New List is ordered when strong messages before it
    are known to be everywhere, so that what a view promises holds for the members of that view."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        lock = asyncio.create_task(ring.groups[0].lock("x").acquire())
        await ring.groups[0].send(b"m" * LARGE, service)
        await lock
        (ack,) = [word for word in ring.said(*CARRIES_TOKEN) if word.assignments and word.kind != Kind.LIST]
        (new_list,) = ring.said(Kind.LIST)
        assert new_list.at_ns > ack.at_ns
        assert min(new_list.state.rows) >= ack.state.highest
        await asyncio.sleep(1)
        for seen in ring.seen:
            message = next(event for event in seen.events if getattr(event, "payload", b"") == b"m" * LARGE)
            assert seen.events.index(message) < seen.events.index(seen.views[-1])

    in_ring(program)


def test_messages_come_in_the_same_view_everywhere() -> None:
    """RMP section 3.2: "a membership change operation will partition these packets into the same two sets at all
    sites", since each change is a packet of the total order itself."""

    async def program(ring: Ring) -> None:
        await ring.open(3)

        async def talk(index: int) -> None:
            for number in range(30):
                await ring.groups[index].send(b"%d of %d" % (number, index), AGREED, confirm=True)

        async def change() -> None:
            for _ in range(6):
                async with ring.groups[2].lock("x"):
                    await asyncio.sleep(0.001)

        await asyncio.gather(talk(0), talk(1), change())
        await asyncio.sleep(1)
        stories = [
            [(getattr(event, "payload", b""), getattr(event, "id", "")) for event in seen.events[-72:]]
            for seen in ring.seen
        ]
        assert stories[0] == stories[1] == stories[2]
        assert sum(bool(view) for _, view in stories[0]) == 12

    in_ring(program)


def test_a_group_has_room_for_so_many_members() -> None:
    """Amoeba's CreateGroup limit, which RMP does not have: the newcomer is refused with the reason."""

    async def program(ring: Ring) -> None:
        for name in "ab":
            await ring.join(name, orderer="token", config=GroupConfig(max_members=2))
        with pytest.raises(JoinRefused, match="full"):
            await ring.join("c", orderer="token")

    in_ring(program)
