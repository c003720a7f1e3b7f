"""Fault recovery: how a ring is re-formed, by whom, and who may go on (RMP section 4.4)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.paper.ring import CARRIES_TOKEN, PATIENT, TELLS_STATE, Ring, Word, in_ring

from ordercast.config import MS, SECOND, MinMembers
from ordercast.engine import Transitional
from ordercast.errors import NotMember, OutcomeUnknown
from ordercast.groups.events import Left, Message
from ordercast.service import AGREED, FIFO, MAJORITY, RESILIENT, SAFE, Service
from ordercast.view import Reason, View
from ordercast.wire.header import Kind
from ordercast.wire.views import decode_cut, decode_invite, decode_result

LARGE = 5_000  # bytes of a message that does not travel with its place


async def re_formed(ring: Ring, names: str, seconds: float = 30) -> None:
    """These, and nobody else, are in one view."""
    indices = ["abcdefgh".index(name) for name in names]
    await ring.until(lambda: all(sorted(ring.names(index)) == sorted(names) for index in indices), seconds)
    await asyncio.sleep(0.5)
    ids = {view.id for view in (ring.groups[index].view for index in indices) if view is not None}
    assert len(ids) == 1


def resets(ring: Ring, name: str) -> list[View]:
    return [view for view in ring.seen["abcdefgh".index(name)].views if view.reason == Reason.RESET]


# How a failure is noticed. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dead", ["a", "b", "c"])
def test_a_crash_is_noticed_whoever_it_is(dead: str) -> None:
    """RMP section 4.2: "site failures and dropped messages are detected within N messages", here also at rest: the
    token site, the next one, or any other."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.nodes["abc".index(dead)].crash()
        rest = "abc".replace(dead, "")
        await re_formed(ring, rest)
        await ring.groups["abc".index(rest[0])].send(b"on", SAFE, confirm=True)
        assert len(resets(ring, rest[0])) == 1

    in_ring(program)


def test_a_nack_that_nobody_answers_is_a_failure() -> None:
    """RMP section 4.4: "there are four types of packets which require positive acknowledgment: Data packets, ACKs, List
    Change Requests, and NACKs"."""

    async def program(ring: Ring) -> None:
        timing = replace(PATIENT, token_quiet_ns=1_000 * SECOND)  # the token stays at b
        await ring.open(4, timing=timing)
        ring.lose(lambda word, target: target == "d" and word.kind in (Kind.DATA, Kind.REPAIR))
        await ring.groups[1].send(bytes(LARGE), FIFO)
        await ring.until(lambda: bool(ring.said(Kind.INVITE)))
        assert ring.said(Kind.INVITE)[0].source == "d"
        asked = ring.said(Kind.NAK, by="d")
        asked = [word for word in asked if len(word.targets) == 3]  # the recovery asks one alone
        assert len(asked) == 1 + timing.nak_tries, "once, and so many times more"
        ring.lose(None)
        await re_formed(ring, "abcd")

    in_ring(program)


# The two halves of the protocol. --------------------------------------------------------------------------------------


def test_the_initiator_asks_all_and_commits_when_all_have_the_new_list() -> None:
    """RMP section 4.4: it queries the members of the old view, each answers with its sync point; then the New List goes
    to all members of it, and "once it has received these acknowledgments from each member, it commits"."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        ring.nodes[3].crash()
        await re_formed(ring, "abc")
        initiator = ring.said(Kind.RESULT)[0].source
        others = sorted("abc".replace(initiator, ""))
        assert {word.targets[0] for word in ring.said(Kind.INVITE, by=initiator)} == {*others, "d"}
        votes = {word.source: decode_cut(word.body)[1] for word in ring.said(Kind.CUT)}
        assert sorted(votes) == others
        assert len({vote.received for vote in votes.values()}) == 1
        acks = [word for word in ring.said(Kind.RESULT_ACK) if word.targets == (initiator,)]
        assert sorted({word.source for word in acks}) == others
        commit = ring.said(Kind.COMMIT)[0]
        assert commit.source == initiator
        assert commit.at_ns >= max(word.at_ns for word in acks)

    in_ring(program)


def test_the_new_list_is_not_committed_while_one_member_has_not_acknowledged_it() -> None:
    """RMP section 4.4: a two phase commit."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        ring.lose(lambda word, _: word.kind == Kind.RESULT_ACK and word.source == "c")
        ring.nodes[3].crash()
        await ring.until(lambda: len(ring.said(Kind.RESULT)) >= 6)
        assert not ring.said(Kind.COMMIT)
        assert all(not resets(ring, name) for name in "abc")
        ring.lose(None)
        await re_formed(ring, "abc")

    in_ring(program)


@pytest.mark.parametrize("service", [FIFO, AGREED, RESILIENT(1), MAJORITY])
def test_members_are_brought_to_the_same_sync_point_first(service: Service) -> None:
    """RMP section 4.4: "makes sure that all sites in the new membership view have the same set of packets in their
    OrderingQ": what one survivor has all deliver before the new view."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        # b and c lack the last message of the one that dies; d has it, with its place.
        ring.lose(lambda word, target: target in "bc" and word.kind in (Kind.DATA, Kind.REPAIR))
        await ring.groups[0].send(b"last" * LARGE, service)
        await asyncio.sleep(0.001)
        ring.nodes[0].crash()
        ring.lose(None)
        assert not ring.has("b", b"last" * LARGE)
        await re_formed(ring, "bcd")
        for name in "bcd":
            events = ring.seen["abcd".index(name)].events
            message = next(event for event in events if getattr(event, "payload", b"") == b"last" * LARGE)
            assert events.index(message) < events.index(resets(ring, name)[0])

    in_ring(program)


def test_what_recovery_brought_together_stands_behind_a_transitional_signal() -> None:
    """RMP section 3.2, agreed and safe delivery between partitions as [DKM93] has them: it is known to be held by those
    who come along only."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.lose(lambda word, _: word.source == "c" and word.kind in TELLS_STATE)
        await ring.groups[1].send(b"m" * LARGE, SAFE)
        await asyncio.sleep(0.01)
        assert ring.who_has(b"m" * LARGE) in ("", "c")
        ring.nodes[2].crash()
        ring.lose(None)
        await re_formed(ring, "ab")
        for seen in ring.seen[:2]:
            events = seen.events
            signal = next(event for event in events if isinstance(event, Transitional))
            message = next(event for event in events if getattr(event, "payload", b"") == b"m" * LARGE)
            assert events.index(signal) < events.index(message) < events.index(seen.views[-1])

    in_ring(program)


def test_messages_without_a_place_are_sent_again_in_the_new_view() -> None:
    """RMP section 4.4: "If it has any Data packets waiting to be acknowledged, it sends out an ACK on these"."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.nodes[0].crash()  # the token was there
        sending = [asyncio.create_task(ring.groups[index].send(b"%d" % index, confirm=True)) for index in (1, 2)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in sending)
        await re_formed(ring, "bc")
        await asyncio.gather(*sending)
        for name in "bc":
            events = ring.seen["abc".index(name)].events
            for payload in (b"1", b"2"):
                message = next(event for event in events if getattr(event, "payload", b"") == payload)
                assert events.index(message) > events.index(resets(ring, name)[0])

    in_ring(program)


def test_the_initiator_is_the_token_site_of_the_new_ring() -> None:
    """RMP section 4.4: "it commits the new list itself and makes itself the new token site". A NULL ACK follows, and
    the token goes round once: the others have acknowledged the list, and are not known to have begun with it."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        ring.nodes[1].crash()
        await re_formed(ring, "acd")
        commit = ring.said(Kind.COMMIT)[0]
        new = ring.groups[0].view
        assert new is not None
        assert (new.leader.name, new.creator, new.reason) == (commit.source, f"{commit.source}/0", Reason.RESET)
        await asyncio.sleep(1)
        words = [word for word in ring.said(*TELLS_STATE) if word.ring == new.ring]
        first, second, third = new.members
        assert words[0].source == commit.source == first.name
        assert words[0].state[:3] == (1, second.id, new.seq), "nothing is ordered"
        assert words[0].state.rows == (new.seq, new.seq - 1, new.seq - 1)
        passes = [word.source for word in words if word.kind == Kind.TOKEN]
        assert passes == [first.name, second.name]
        assert words[-1].state.rows == (new.seq,) * 3, "all of them have begun"
        await ring.groups["abcd".index("c")].send(b"on", confirm=True)
        assert ring.said(*CARRIES_TOKEN)[-1].source == third.name

    in_ring(program)


# Initiators. ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [Kind.INVITE, Kind.RESULT, Kind.COMMIT])
def test_an_initiator_that_dies_is_replaced(after: Kind) -> None:
    """RMP section 4.4: a process waits "for a random timeout period or another reformation start packet from another
    site before restarting". Whatever the initiator had sent, the others agree on one new view."""

    async def program(ring: Ring) -> None:
        await ring.open(5)
        ring.nodes[4].crash()
        await ring.until(lambda: bool(ring.said(after)))
        initiator = ring.said(after)[0].source
        ring.nodes["abcde".index(initiator)].crash()
        rest = "abcd".replace(initiator, "")
        await re_formed(ring, rest)
        await ring.groups["abcde".index(rest[0])].send(b"on", SAFE, confirm=True)

    in_ring(program)


def test_of_two_initiators_one_gives_way() -> None:
    """RMP section 4.4: "If the initiator receives a packet from another initiator with a smaller or equal version
    number, it sends back a packet notifying that initiator that it should abort its reformation"."""

    async def program(ring: Ring) -> None:
        await ring.open(4, recovery="manual")
        ring.nodes[3].crash()
        sizes = await asyncio.gather(*(ring.groups[index].reset(2, b"%d" % index) for index in (0, 1, 2)))
        assert sizes == [3, 3, 3]
        assert len({word.source for word in ring.said(Kind.INVITE)}) >= 2
        ballots = {word.source: decode_invite(word.body)[0] for word in ring.said(Kind.INVITE)}
        winner = max(ballots, key=lambda name: ballots[name])
        assert ring.said(Kind.DENY), "who has promised more says so"
        await asyncio.sleep(1)
        assert {decode_result(word.body)[1].view.id for word in ring.said(Kind.COMMIT)} == {ring.view_id}
        assert ring.said(Kind.COMMIT)[0].source == winner
        assert [len(resets(ring, name)) for name in "abc"] == [1, 1, 1]

    in_ring(program)


def test_a_member_joins_one_new_list_at_a_time() -> None:
    """RMP section 4.4: "A process is only allowed to join a membership view with a larger version number than any it
    has seen before, and it is only allowed to join one list at a time"."""

    async def program(ring: Ring) -> None:
        await ring.open(5)
        for index in (3, 4):
            ring.nodes[index].crash()
        await re_formed(ring, "abc")
        votes: dict[str, list[Any]] = {}
        for word in ring.said(Kind.CUT):
            votes.setdefault(word.source, []).append(decode_cut(word.body)[0])
        assert votes
        for ballots in votes.values():
            assert ballots == sorted(ballots)

    in_ring(program)


# Who may go on. -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "dead", "goes_on"),
    [
        ((1, 1, 1), "bc", True),
        ((2, 1, 1), "bc", False),
        ((2, 1, 1), "c", True),
        ((1, 1, 3), "c", False),  # who asked for it is dead: it counts all the same
        ((1, 1, 2), "c", True),
        ((1, 3, 1), "c", False),
        (("majority",) * 3, "c", True),
        (("majority",) * 3, "bc", False),
        ((1, 1, "majority"), "bc", False),
        (("all", 1, 1), "c", False),
        ((1, 1, "all"), "c", False),
    ],
)
def test_the_smallest_group_is_the_largest_that_any_member_asked_for(
    asked: tuple[MinMembers, ...], dead: str, goes_on: bool
) -> None:
    """RMP section 4.4: "each site specifies the minimum number of sites that must remain in a partition in the case of
    a failure. The minimum size for the new group is the maximum of these values for each member in the old ring ...
    either a constant, a symbolic constant specifying the majority ..., or a constant for all of the members"."""

    async def program(ring: Ring) -> None:
        for name, rule in zip("abc", asked, strict=True):
            await ring.join(name, orderer="token", min_members=rule)
            await ring.bring_token_to(name)
        await ring.bring_token_to("a")
        for name in dead:
            ring.nodes["abc".index(name)].crash()
        rest = "abc".translate({ord(name): "" for name in dead})
        await asyncio.sleep(15)
        if goes_on:
            await re_formed(ring, rest)
            await ring.groups[0].send(b"on", confirm=True)
        else:
            assert sorted(ring.names(0)) == list("abc"), "it stays in the view that cannot go on"
            assert not resets(ring, "a")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ring.groups[0].send(b"on", confirm=True), 5)

    in_ring(program, quiet=False)


def test_who_could_not_go_on_does_when_enough_are_back() -> None:
    """RMP section 4.4: too few "stop operation"; the initiator asks on, and who was only cut off answers."""

    async def program(ring: Ring) -> None:
        await ring.open(3, min_members=1)
        await ring.join("d", orderer="token", min_members=3)  # the largest holds; alone, it could not send
        await ring.groups[3].ready()
        ring.tape.partition(["ab", "c", "d"])
        await asyncio.sleep(10)
        assert not any(resets(ring, name) for name in "abcd")
        ring.tape.heal()
        await re_formed(ring, "abcd")
        await ring.groups[3].send(b"on", SAFE, confirm=True)

    in_ring(program)


def test_a_minority_stops_and_its_members_come_back_as_new_ones() -> None:
    """RMP section 3.2: "If this is due to a temporary partition, they can later rejoin the group, but as new members";
    "it is not possible for a group to partition into two halves and then rejoin"."""

    async def program(ring: Ring) -> None:
        await ring.open(5)
        ring.tape.partition(["abc", "de"])
        stale = asyncio.create_task(ring.groups[4].send(b"stale", confirm=True))
        await re_formed(ring, "abc")
        await ring.groups[0].send(b"meanwhile", confirm=True)
        assert sorted(ring.names(3)) == sorted("abcde"), "the minority hangs in its view"
        assert not ring.has("d", b"meanwhile")
        ring.tape.heal()
        await re_formed(ring, "abcde")
        with pytest.raises(OutcomeUnknown):
            await stale
        for index in (3, 4):
            left = [event for event in ring.seen[index].events if isinstance(event, Left)]
            assert [(event.wanted, event.returning) for event in left] == [(False, True)]
            back = ring.seen[index].events[ring.seen[index].events.index(left[0]) + 1]
            assert isinstance(back, View)
            assert (back.reason, back.came_with) == (Reason.JOIN, (f"{'de'[index - 3]}/0",))
        assert not ring.has("d", b"meanwhile"), "what the others did without them is not theirs"
        await ring.groups[4].send(b"again", SAFE, confirm=True)

    in_ring(program)


def test_two_halves_never_go_on_both() -> None:
    """RMP section 3.2: agreed ordering "is achieved by not allowing minimum partitions to continue"; of two equal
    halves the one with the first member of the view goes on."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        ring.tape.partition(["ad", "bc"])
        await re_formed(ring, "ad")
        await asyncio.sleep(5)
        assert not resets(ring, "b")
        assert not resets(ring, "c")
        ring.tape.heal()
        await re_formed(ring, "abcd")

    in_ring(program)


@pytest.mark.parametrize("service", [MAJORITY, SAFE])
def test_nobody_delivers_in_a_minority_what_the_majority_orders_otherwise(service: Service) -> None:
    """RMP section 3.2: "any members of a group that deliver any two messages will agree on the same ordering"."""

    async def program(ring: Ring) -> None:
        await ring.open(5)
        ring.tape.partition(["ab", "cde"])  # the token is with the two
        for index in (0, 1):
            await ring.groups[index].send(b"minority %d" % index, service)
        for index in (2, 3, 4):
            await ring.groups[index].send(b"majority %d" % index, service)
        await re_formed(ring, "cde")
        await asyncio.sleep(2)
        for name in "ab":
            assert not [payload for payload in ring.seen["ab".index(name)].payloads if payload.startswith(b"m")]
        orders = {tuple(ring.seen[index].payloads[-3:]) for index in (2, 3, 4)}
        assert len(orders) == 1
        assert sorted(orders.pop()) == [b"majority 2", b"majority 3", b"majority 4"]
        ring.tape.heal()
        await re_formed(ring, "abcde")

    in_ring(program)


def test_locks_of_the_dead_are_free_in_the_new_view() -> None:
    """RMP sections 3.3 and 4.4."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        await ring.groups[1].lock("x").acquire()
        await ring.groups[2].lock("y").acquire()
        await asyncio.sleep(1)
        ring.nodes[1].crash()
        await re_formed(ring, "ac")
        assert resets(ring, "a")[0].locks.keys() == {"y"}

    in_ring(program)


@pytest.mark.parametrize("instant_us", range(50, 650, 50))
def test_a_member_may_crash_at_any_moment_of_a_round(instant_us: int) -> None:
    """RMP section 4.4: whoever it is and whatever it had passed on, the others go on with the same messages in the same
    order."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        for index in range(4):
            await ring.groups[index].send(b"%d" % index * LARGE, (AGREED, FIFO, SAFE, RESILIENT(2))[index])
        await asyncio.sleep(instant_us / 1e6)
        ring.nodes[instant_us // 50 % 4].crash()
        rest = "abcd".replace("abcd"[instant_us // 50 % 4], "")
        await re_formed(ring, rest)
        with suppress(NotMember):
            await ring.groups["abcd".index(rest[0])].send(b"on", SAFE, confirm=True)
        await asyncio.sleep(1)
        ordered = {
            tuple(
                event.payload
                for event in ring.seen["abcd".index(name)].events
                if isinstance(event, Message) and event.service.is_ordered and event.payload != b"turn"
            )
            for name in rest
        }
        assert len(ordered) == 1

    in_ring(program)


def test_a_member_that_only_paused_is_told_that_it_is_out() -> None:
    """RMP section 3.2: it is removed after "an extended period of time", and comes back as a new one."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        ring.world.pause("b")
        await ring.groups[0].send(b"without b")
        await re_formed(ring, "ac")
        ring.world.resume("b")
        await re_formed(ring, "abc")
        assert not ring.has("b", b"without b") or resets(ring, "b")
        assert ring.groups[1].stats["exclusions"] == 1

    in_ring(program)


def test_a_short_silence_is_no_failure() -> None:
    """RMP section 4.4: only repeated timeouts are."""

    async def program(ring: Ring) -> None:
        await ring.open(3)
        for number in range(10):
            ring.world.pause("b")
            await ring.groups[0].send(b"%d" % number)
            await asyncio.sleep(0.3)
            ring.world.resume("b")
            await asyncio.sleep(0.3)
        assert not ring.said(Kind.INVITE)
        assert [len(seen.payloads[-10:]) for seen in ring.seen] == [10, 10, 10]

    in_ring(program)


def lost_once(kind: Kind) -> Any:
    seen: set[tuple[str, str]] = set()

    def loses(word: Word, target: str) -> bool:
        if word.kind == kind and (word.source, target) not in seen:
            seen.add((word.source, target))
            return True
        return False

    return loses


@pytest.mark.parametrize("kind", [Kind.INVITE, Kind.CUT, Kind.RESULT, Kind.RESULT_ACK, Kind.COMMIT])
def test_every_packet_of_the_recovery_may_be_lost(kind: Kind) -> None:
    """RMP figure 4.1: Recovery Start "is sent repeatedly by the initiator until the sites in new group are synced"."""

    async def program(ring: Ring) -> None:
        await ring.open(4)
        ring.lose(lost_once(kind))
        ring.nodes[0].crash()
        await re_formed(ring, "bcd")
        assert max(word.at_ns for word in ring.said(Kind.COMMIT)) - ring.said(Kind.INVITE)[0].at_ns < 3_000 * MS

    in_ring(program)
