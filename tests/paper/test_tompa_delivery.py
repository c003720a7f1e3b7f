"""The timestamp orderer over a network: the two phases, when each service is delivered, and what is lost on the way.

TOMPA sections 2.1 and 3.2; docs/design/timestamp.md. Every hop takes 0.1 ms and processors take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.paper.ring import HOP_NS, PATIENT, Tape, Taped, Word, on_tape

from ordercast.config import LOOPBACK_DATAGRAM, MS, GroupConfig, Timing
from ordercast.errors import UnsupportedService, UsageError
from ordercast.service import AGREED, CAUSAL, FIFO, MAJORITY, RELIABLE, RESILIENT, SAFE, UNRELIABLE, Service
from ordercast.sim.api import Simulation, simulate
from ordercast.view import node_id
from ordercast.wire.header import Kind
from ordercast.wire.stamps import Stamps, decode_stamps

T = TypeVar("T")

SPEAKING = (Kind.STAMPS, Kind.DECISION, Kind.SYNC)
ORDERED = [AGREED, RESILIENT(1), RESILIENT(3)]
WEAK = [RELIABLE, FIFO]
STRONG = [MAJORITY, SAFE]


class Wire(Tape):
    def _follow(self, word: Word) -> None:
        """There is no token."""


class Hosts(Taped):
    """Members a, b, c, … in this order."""

    async def open(self, count: int, *, anticipate: bool = True, timing: Timing | None = None, **terms: Any) -> None:
        """The group, quiet."""
        config = GroupConfig(datagram=LOOPBACK_DATAGRAM, flow="open")
        await self.form(count, config=config, timing=timing, orderer="timestamp", anticipate=anticipate, **terms)
        assert all(self.names(index) == "abcdefgh"[:count] for index in range(count))
        self.forget()


def among_hosts(program: Callable[[Hosts], Coroutine[Any, Any, T]]) -> T:
    return on_tape(program, Hosts, Wire)


def stamps_of(word: Word) -> Stamps:
    return decode_stamps(word.body)


def delivery_times(service: Service, members: int = 4, *, anticipate: bool = True) -> list[float]:
    """Hops until a message of b is delivered at a, b, c, …"""

    async def program(hosts: Hosts) -> list[float]:
        await hosts.open(members, anticipate=anticipate)
        before = hosts.world.now_ns
        await hosts.groups[1].send(b"m", service)
        await asyncio.sleep(2)
        return [(hosts.delivered_ns(name, "b", 0) - before) / HOP_NS for name in "abcdefgh"[:members]]

    return among_hosts(program)


# When a message is delivered. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", WEAK)
def test_weak_services_are_delivered_on_arrival(service: Service) -> None:
    """docs/design/timestamp.md, When a message is delivered: they wait for no decision."""
    assert delivery_times(service) == [1, 0, 1, 1]


@pytest.mark.parametrize("anticipate", [True, False])
@pytest.mark.parametrize("service", ORDERED, ids=str)
def test_ordered_services_are_delivered_at_the_decision(service: Service, anticipate: bool) -> None:
    """Section 2.1: data, acknowledgements, decision. The sender has the acknowledgements after two hops. RESILIENT
    waits for no more: a decision shows that all hold the message."""
    assert delivery_times(service, anticipate=anticipate) == [3, 2, 3, 3]


def test_majority_waits_until_more_than_half_are_known_to_have_received_it() -> None:
    """The decision shows that its sender has received it; the others tell the sender, and that one tells all."""
    assert delivery_times(MAJORITY, 3) == [3, 4, 3]  # two of three: itself and the sender
    assert delivery_times(MAJORITY, 4) == [5, 4, 5, 5]  # three of four
    assert delivery_times(MAJORITY, 5) == [5, 4, 5, 5, 5]


def test_safe_waits_until_all_are_known_to_have_received_it() -> None:
    assert delivery_times(SAFE, 2) == [3, 4]  # the other one is the sender
    assert delivery_times(SAFE, 3) == [5, 4, 5]
    assert delivery_times(SAFE, 5) == [5, 4, 5, 5, 5]


def test_a_member_alone_waits_for_nobody() -> None:
    async def program(hosts: Hosts) -> None:
        await hosts.open(1)
        for service in (*WEAK, *ORDERED, *STRONG):
            before = hosts.world.now_ns
            await hosts.groups[0].send(b"m", service, confirm=True)
            assert hosts.world.now_ns == before
        await asyncio.sleep(0)
        assert len(hosts.seen[0].payloads) == 7

    among_hosts(program)


@pytest.mark.parametrize("service", WEAK)
def test_weak_services_do_not_wait_for_a_decision_that_never_comes(service: Service) -> None:
    async def program(hosts: Hosts) -> None:
        await hosts.open(3, timing=PATIENT)
        hosts.lose(lambda word, _: word.kind in SPEAKING)
        await hosts.groups[0].send(b"weak", service)
        await hosts.groups[0].send(b"agreed", AGREED)
        await asyncio.sleep(0.5)
        assert hosts.who_has(b"weak") == "abc"
        assert hosts.who_has(b"agreed") == ""
        hosts.lose(None)
        await asyncio.sleep(3)
        assert hosts.who_has(b"agreed") == "abc"
        assert [seen.payloads for seen in hosts.seen] == [[b"weak", b"agreed"]] * 3, "and nothing twice"

    among_hosts(program)


@pytest.mark.parametrize("service", [*ORDERED, *STRONG], ids=str)
def test_nothing_is_decided_without_a_member_that_has_not_acknowledged(service: Service) -> None:
    """Section 2.1.2: "As soon as the emitter host receives all the acknowledgements from all the hosts"."""

    async def program(hosts: Hosts) -> None:
        await hosts.open(4, timing=PATIENT)
        hosts.lose(lambda word, _: word.source == "d" and word.kind in SPEAKING)
        await hosts.groups[1].send(b"m", service)
        await asyncio.sleep(0.5)
        assert hosts.who_has(b"m") == ""
        assert not hosts.said(Kind.DECISION)
        hosts.lose(None)
        await asyncio.sleep(3)
        assert hosts.who_has(b"m") == "abcd"

    among_hosts(program)


@pytest.mark.parametrize(
    ("service", "delivers"), [(AGREED, "abc"), (RESILIENT(3), "abc"), (MAJORITY, "abc"), (SAFE, "")], ids=str
)
def test_a_member_that_lacks_the_decision_holds_up_safe_alone(service: Service, delivers: str) -> None:
    """Phase one shows that all hold the data, not its place: d has acknowledged, and does not hear the decision."""

    async def program(hosts: Hosts) -> None:
        await hosts.open(4, timing=PATIENT)
        hosts.lose(lambda word, target: target == "d" and word.kind != Kind.DATA)
        await hosts.groups[1].send(b"m", service)
        await asyncio.sleep(0.5)
        assert hosts.said(Kind.DECISION, by="b")
        assert hosts.who_has(b"m") == delivers
        hosts.lose(None)
        await asyncio.sleep(3)
        assert hosts.who_has(b"m") == "abcd"

    among_hosts(program)


def test_majority_waits_where_only_half_have_the_decision() -> None:
    """b and d know the decision: two of four."""

    async def program(hosts: Hosts) -> None:
        await hosts.open(4, timing=PATIENT)
        hosts.lose(lambda word, target: target in "ac" and word.kind != Kind.DATA)
        await hosts.groups[1].send(b"agreed", AGREED)
        await hosts.groups[1].send(b"majority", MAJORITY)
        await asyncio.sleep(0.5)
        assert (hosts.who_has(b"agreed"), hosts.who_has(b"majority")) == ("bd", "")
        hosts.lose(None)
        await asyncio.sleep(3)
        assert hosts.who_has(b"majority") == "abcd"

    among_hosts(program)


@pytest.mark.parametrize("service", [UNRELIABLE, CAUSAL])
def test_other_services_are_refused_at_the_call(service: Service) -> None:
    async def program(hosts: Hosts) -> None:
        await hosts.open(2)
        with pytest.raises(UnsupportedService, match=f"timestamp orderer of 'paper' cannot give {service}"):
            await hosts.groups[0].send(b"m", service)
        await hosts.groups[0].send(b"n", confirm=True)
        await asyncio.sleep(0.1)
        assert hosts.seen[1].payloads == [b"n"], "the group works on"

    among_hosts(program)


# Two variants. --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anticipate", [True, False])
def test_who_makes_a_group_says_whether_it_anticipates(anticipate: bool) -> None:
    """TOMPA or ABCAST, by `Node.join`; who joins takes what there is."""

    async def program(hosts: Hosts) -> None:
        await hosts.join("a", orderer="timestamp", anticipate=anticipate)
        await hosts.join("b", orderer="timestamp")
        await hosts.join("c")
        await asyncio.sleep(1)
        assert [group.config.anticipate for group in hosts.groups] == [anticipate] * 3
        assert {group.config.orderer for group in hosts.groups} == {"timestamp"}
        hosts.forget()
        await hosts.groups[1].send(b"m", confirm=True)
        await asyncio.sleep(0.1)
        acks = [stamps_of(word) for word in hosts.said(Kind.STAMPS) if stamps_of(word).acks]
        (decided,) = [each for word in hosts.said(Kind.DECISION) for each in stamps_of(word).decisions]
        assert len(acks) == 2
        assert {stamps.nexts for stamps in acks} == {()}, "all of the vector can be derived"
        assert (decided.bounds is not None) == anticipate

    among_hosts(program)


def test_a_group_anticipates_where_nothing_else_is_said() -> None:
    async def program(hosts: Hosts) -> bool:
        return (await hosts.join("a", orderer="timestamp")).config.anticipate

    assert among_hosts(program) is True


@pytest.mark.parametrize("wrong", ["yes", 1, 0, "TOMPA"])
def test_whether_to_anticipate_is_yes_or_no(wrong: Any) -> None:
    async def program(node: Simulation) -> None:
        with pytest.raises(UsageError, match="anticipate is True"):
            await node("a").join("g", orderer="timestamp", anticipate=wrong)

    simulate(program)


# Acknowledgements and decisions together. -----------------------------------------------------------------------------


def test_acknowledgements_and_decisions_share_datagrams_under_load() -> None:
    """The paper counts 3N messages for one (section 1). A pass says all that it has to say at once, so that the more is
    sent, the fewer datagrams there are for each message."""

    async def program(hosts: Hosts) -> float:
        await hosts.open(4)

        async def chatter(index: int) -> None:
            for _ in range(50):
                await hosts.groups[index].send(bytes(5_000), confirm=True)

        await asyncio.gather(*(chatter(index) for index in range(4)))
        assert not hosts.said(Kind.NAK, Kind.REPAIR)
        return len(hosts.said(Kind.DATA, *SPEAKING)) / 200

    alone, together = 1 + 3 + 1, among_hosts(program)
    assert together < 0.7 * alone


# What is lost. --------------------------------------------------------------------------------------------------------


def test_a_lost_decision_is_asked_for_by_acknowledging_again() -> None:
    """docs/design/timestamp.md, What each failure does: who gets an acknowledgement of what it has decided answers with
    the decision."""

    async def program(hosts: Hosts) -> None:
        await hosts.open(3)
        hosts.lose(
            lambda word, target: target == "c" and word.kind == Kind.DECISION and len(hosts.said(word.kind)) == 1
        )
        before = hosts.world.now_ns
        await hosts.groups[0].send(b"m", SAFE)
        await asyncio.sleep(1)
        assert hosts.who_has(b"m") == "abc"
        first, *again = hosts.said(Kind.DECISION, by="a")
        assert first.targets == ("b", "c")
        assert again or hosts.said(Kind.ACCEPT), "the decision again, or the place"
        assert hosts.delivered_ns("c", "a", 0) - before < 60 * MS

    among_hosts(program)


def test_a_lost_acknowledgement_is_repeated() -> None:
    async def program(hosts: Hosts) -> None:
        await hosts.open(3)
        hosts.lose(
            lambda word, _: word.source == "c" and word.kind == Kind.STAMPS and len(hosts.said(word.kind, by="c")) == 1
        )
        before = hosts.world.now_ns
        await hosts.groups[0].send(b"m")
        await asyncio.sleep(1)
        assert hosts.who_has(b"m") == "abc"
        first, second = [stamps_of(word) for word in hosts.said(Kind.STAMPS, by="c")]
        assert first.acks == second.acks, "the same proposal"
        assert hosts.delivered_ns("b", "a", 0) - before < 60 * MS

    among_hosts(program)


def test_a_lost_block_holds_up_what_follows_it_of_its_sender_alone() -> None:
    """Section 3.2.1: sequenced below. Proposals are made in the sender's order: c acknowledges the second block of a
    only with the first."""

    async def program(hosts: Hosts) -> None:
        await hosts.open(3)
        origin = node_id("a", 0)
        hosts.lose(
            lambda word, target: (
                target == "c" and word.kind in (Kind.DATA, Kind.REPAIR) and word.number == 0 and word.origin == origin
            )
        )
        await hosts.groups[0].send(b"first")
        await asyncio.sleep(0.001)
        await hosts.groups[0].send(b"second")
        await hosts.groups[1].send(b"other")
        await asyncio.sleep(0.05)
        acked = [each for word in hosts.said(Kind.STAMPS, by="c") for each in stamps_of(word).acks]
        assert {each.origin for each in acked} == {node_id("b", 0)}
        assert hosts.who_has(b"second") == ""
        assert hosts.said(Kind.NAK, by="c")
        hosts.lose(None)
        await asyncio.sleep(1)
        orders = [seen.payloads for seen in hosts.seen]
        assert orders == [orders[0]] * 3
        assert orders[0].index(b"first") < orders[0].index(b"second")

    among_hosts(program)
