"""Multi-RPC: processes that are no members call a group (RMP sections 3.3 and 4.5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.paper.calling import LOSSY, Office, Wire, in_office, noting, shout

from ordercast.config import SECOND, Timing
from ordercast.errors import CallTimeout, MessageTooLarge, OutcomeUnknown, Unhandled, UsageError
from ordercast.groups.checks import MAX_CALL
from ordercast.groups.events import Answer, Request
from ordercast.groups.requests import INBOX_REQUESTS
from ordercast.service import AGREED, CAUSAL, FIFO, MAJORITY, RELIABLE, RESILIENT, SAFE, UNRELIABLE
from ordercast.sim.network import NetworkModel

LADDER = (UNRELIABLE, RELIABLE, FIFO, CAUSAL, AGREED, RESILIENT(2), MAJORITY, SAFE)


def test_the_token_site_acknowledges_a_call_once_it_is_delivered() -> None:
    """RMP section 4.5: "when the current token site delivers the Non Member Data packet ... it unicasts a Non Member
    ACK to the sender"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        sent = await office.count(x.call("paper", b"hello"))
        assert (sent["call"], sent["reply"]) == (1, 1)
        await asyncio.sleep(0.1)
        assert [office.payloads(index) for index in range(3)] == [[b"hello"]] * 3
        (message,) = office.messages(0)
        assert isinstance(message, Request)
        assert (message.sender, message.caller, message.number, message.handler) == ("x/0", "x/0", 0, None)

    in_office(program)


@pytest.mark.parametrize("service", LADDER, ids=str)
def test_calls_come_with_every_service(service: Any) -> None:
    """RMP section 4.5: "delivered with all of the QoS levels of a Data packet sent from a group member"."""

    async def program(office: Office) -> None:
        x = await office.open(4)
        await office.serve(2, 0)
        assert await x.call("paper", b"plain", service=service) is None
        assert await x.call("paper", b"asked", service=service, handler=0) == b"ASKED"
        await asyncio.sleep(0.1)
        for index in range(4):
            assert office.payloads(index) == [b"plain", b"asked"]
        assert all(message.service == service for message in office.messages(1)[:1])

    in_office(program)


@pytest.mark.parametrize("service", [SAFE, RESILIENT(2), MAJORITY], ids=str)
def test_an_acknowledgement_says_that_the_service_holds_also_where_the_call_came_twice(service: Any) -> None:
    """RMP section 3.3: "acknowledged after being delivered to the group with the requested QoS"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        office.world.pause("c")  # nothing is safe without it
        office.world.pause("b")
        call = asyncio.create_task(x.call("paper", b"strong", service=service))
        await asyncio.sleep(0.9)  # tried several times
        assert not call.done()
        assert not any(office.payloads(index) for index in range(3))
        office.world.resume("b")
        office.world.resume("c")
        await call
        await asyncio.sleep(0.1)
        assert [office.payloads(index) for index in range(3)] == [[b"strong"]] * 3

    in_office(program)


def test_the_holder_of_the_handler_answers_and_its_answer_is_the_acknowledgement() -> None:
    """RMP section 4.5: "the member of the group that holds that handler lock will be responsible for replying" and
    "This reply will usually be used as the ACK for this multi-RPC call"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        await office.serve(1, 2)
        await asyncio.sleep(1)
        answers: list[bytes | None] = []

        async def ask() -> None:
            answers.append(await x.call("paper", b"hello", handler=2))

        sent = await office.count(ask())
        assert answers == [b"HELLO"]
        assert (sent["call"], sent["reply"]) == (1, 1)
        (row,) = office.rows("reply")
        assert (row.node, row.sender, row.first) == ("b", "x/0", 0)
        assert [message.must_answer for index in range(3) for message in office.messages(index)] == [False, True, False]

    in_office(program)


def test_a_repeated_call_is_answered_again_and_not_delivered_again() -> None:
    """RMP section 4.5: "sending another copy ... each time a duplicate of a Non Member Data packet that has already
    been delivered is received"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        asked: list[bytes] = []
        await office.serve(1, 2, noting(asked))
        office.silence("a", "b", "c")
        calls = [
            asyncio.create_task(x.call("paper", b"first", handler=2)),
            asyncio.create_task(x.call("paper", b"second")),
        ]
        await asyncio.sleep(2)
        assert not any(call.done() for call in calls)
        office.world.network.heal()
        assert await asyncio.gather(*calls) == [b"FIRST", None]
        await asyncio.sleep(0.1)
        assert asked == [b"first"]
        assert [office.payloads(index) for index in range(3)] == [[b"first", b"second"]] * 3
        assert len(office.rows("reply")) == 1
        assert not office.rows("redeliver")

    in_office(program)


def test_a_call_is_handed_over_again_only_where_the_caller_asked_for_that() -> None:
    """RMP section 4.5: the second flag, "the Non Member Data packet will be delivered multiple times to the
    application"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        asked: list[bytes] = []

        async def hesitate(request: Request) -> None:
            asked.append(request.payload)
            if asked.count(request.payload) == 3:
                await shout(request)

        await office.serve(1, 2, hesitate)
        assert await x.call("paper", b"please", handler=2, again=True) == b"PLEASE"
        with pytest.raises(CallTimeout, match="was delivered, and handler 2 has not answered within"):
            await x.call("paper", b"once", handler=2, timeout=8)
        assert asked == [b"please"] * 3 + [b"once"]
        assert len(office.rows("redeliver")) == 2
        assert [office.payloads(index) for index in range(3)] == [[b"please", b"once"]] * 3

    in_office(program)


def test_the_next_holder_answers_a_call_whose_first_holder_crashed_if_the_caller_wants_it_again() -> None:
    """RMP section 4.5, with the release of a crashed holder's lock (section 3.3)."""

    async def program(office: Office) -> None:
        x = await office.open(4)

        async def die(_: Request) -> None:
            office.nodes[1].crash()

        await office.serve(1, 2, die)
        call = asyncio.create_task(x.call("paper", b"question", handler=2, again=True))
        await office.until(lambda: not office.nodes[1].is_up)
        await office.until(lambda: len(office.groups[0].members) == 3)
        await office.serve(3, 2)
        assert await call == b"QUESTION"
        await asyncio.sleep(0.1)
        assert [office.payloads(index) for index in (0, 2, 3)] == [[b"question"]] * 3

    in_office(program)


def test_at_most_one_answer_is_given_and_only_by_the_holder() -> None:
    """RMP section 3.3: "handlers to guarantee that at most one member will respond"."""

    async def program(office: Office) -> None:
        x = await office.open(3)

        async def twice(request: Request) -> None:
            await request.reply(b"one")
            with pytest.raises(UsageError, match="at most one answer"):
                await request.reply(b"two")

        await office.serve(1, 2, twice)
        assert await x.call("paper", b"hello", handler=2) == b"one"
        assert await office.groups[0].call(b"hello", handler=2) == b"one"
        await asyncio.sleep(0.1)
        with pytest.raises(UsageError, match="did not hold handler 2"):
            await office.messages(0)[0].reply(b"three")
        with pytest.raises(UsageError, match="is no call"):
            await office.messages(0)[-1].reply(b"four")
        assert len(office.rows("reply")) == 2

    in_office(program)


def test_a_request_may_be_answered_where_it_comes_among_the_events_of_the_group() -> None:
    """RMP section 3.3: the holder "will be notified upon delivery of a data packet with this handler number"."""

    async def program(office: Office) -> None:
        await office.form(2, orderer="token")
        d = office.node("d")
        group = await d.join("paper", orderer="token")

        async def apply() -> None:
            total = 0
            async for event in group:
                if isinstance(event, Request):
                    total += int(event.payload)
                    if event.must_answer:
                        await event.reply(b"%d" % total)

        task = asyncio.create_task(apply())
        x = office.node("x")
        async with group.handler(5) as handler:
            assert [await x.call("paper", b"%d" % n, handler=5) for n in (1, 20, 300)] == [b"1", b"21", b"321"]
            assert handler.dropped == 0
            waiting = asyncio.create_task(anext(handler))
            await asyncio.sleep(1)
            assert not waiting.done()  # what was answered there is not asked here
            waiting.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        await d.close()

    in_office(program)


def test_a_members_request_is_answered_to_the_whole_group() -> None:
    """RMP section 3.3: "If a request is from a group member, the reply is also sent to the group"."""

    async def program(office: Office) -> None:
        await office.form(3, orderer="token")
        await office.serve(1, 2)
        a, b, _ = office.groups
        assert await a.call(b"from a", handler=2) == b"FROM A"
        assert await b.call(b"from b", handler=2, service=FIFO) == b"FROM B"
        assert await office.nodes[2].call("paper", b"from c", handler=2) == b"FROM C"
        assert await office.nodes[2].call("paper", b"plain") is None
        await asyncio.sleep(0.1)
        for index in range(3):
            messages = office.messages(index)
            assert [message.payload for message in messages] == [
                b"from a", b"FROM A", b"from b", b"FROM B", b"from c", b"FROM C", b"plain",
            ]  # fmt: skip
            answers = [message for message in messages if isinstance(message, Answer)]
            assert [answer.answers for answer in answers] == [("a/0", 0), ("b/0", 1), ("c/0", 0)]
            assert all(answer.service == AGREED and answer.sender == "b/0" for answer in answers)
        with pytest.raises(Unhandled, match="nobody holds handler 3"):
            await a.call(b"anybody?", handler=3)

    in_office(program)


def test_a_caller_survives_that_the_group_is_formed_anew() -> None:
    """RMP section 4.5: the cached view id is given up after some tries in vain, and the group's name comes back."""

    async def program(office: Office) -> None:
        x = await office.open(4)
        await office.serve(1, 2)
        wire = Wire(office.world)
        assert await x.call("paper", b"before", handler=2) == b"BEFORE"
        office.world.crash("a")
        calls = [asyncio.create_task(x.call("paper", b"during %d" % n, handler=2)) for n in range(5)]
        assert await asyncio.gather(*calls) == [b"DURING %d" % n for n in range(5)]
        assert await x.call("paper", b"after", handler=2) == b"AFTER"
        await asyncio.sleep(0.1)
        expected = [b"before", *(b"during %d" % n for n in range(5)), b"after"]
        assert office.payloads(1) == office.payloads(2) == office.payloads(3) == expected
        assert wire.calls[0] == (0, True, "paper")
        assert wire.calls[-1] == (6, False, "")

    in_office(program)


def test_the_view_id_of_a_reply_takes_the_place_of_the_groups_name() -> None:
    """RMP section 4.5: "it can cache the membership view ID included in this reply", and the first-packet flag."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        wire = Wire(office.world)
        for _ in range(3):
            await x.call("paper", b"hello")
        assert wire.calls == [(0, True, "paper"), (1, False, ""), (2, False, "")]

    in_office(program)


def test_joiners_know_the_numbers_of_callers() -> None:
    """RMP section 4.5: "each joining member will receive a copy of these sequence numbers"."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        await x.call("paper", b"first")
        office.silence("a", "b", "c", "d")
        call = asyncio.create_task(x.call("paper", b"second", timeout=60))
        await office.until(lambda: office.payloads(0)[-1:] == [b"second"])
        await office.join("c", orderer="token")
        await office.join("d", orderer="token")
        await office.groups[0].leave()
        await office.groups[1].leave()
        await asyncio.sleep(5)
        office.world.network.heal()
        await call
        await x.call("paper", b"third")
        await asyncio.sleep(0.1)
        assert office.payloads(0) == office.payloads(1) == [b"first", b"second"]
        assert office.payloads(2) == office.payloads(3) == [b"third"]

    in_office(program)


def test_a_call_without_acknowledgement_is_sent_once_and_may_be_lost() -> None:
    """RMP section 4.5: the first flag says "whether or not an acknowledgment should be sent"."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        sent = await office.count(x.call("nobody is here", b"hello", ack=False))
        assert (sent["call"], sent["reply"]) == (1, 0)
        await x.call("paper", b"0", ack=False)
        await asyncio.sleep(0.1)
        await x.call("paper", b"1")
        for name in "ab":
            office.world.network.cut("x", name)
        await x.call("paper", b"2", ack=False)
        office.world.network.heal()
        await x.call("paper", b"3", ack=False)
        await x.call("paper", b"4")
        await asyncio.sleep(0.1)
        assert office.payloads(0) == office.payloads(1) == [b"0", b"1", b"3", b"4"]
        with pytest.raises(UsageError, match="a call with a handler is answered"):
            await x.call("paper", b"hello", handler=2, ack=False)

    in_office(program, quiet=False)


def test_calls_are_pipelined_from_the_second_on_and_keep_their_order() -> None:
    """RMP sections 3.3 and 4.6: "Multi-RPC packets are asynchronous and have integrated flow and congestion
    control"; slow start begins with one packet."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        await office.serve(1, 2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await x.call("paper", b"one", handler=2)
        alone = loop.time() - began
        began = loop.time()
        calls = (x.call("paper", b"call %d" % n, handler=2) for n in range(200))
        assert await asyncio.gather(*calls) == [b"CALL %d" % n for n in range(200)]
        assert loop.time() - began < 40 * alone
        await asyncio.sleep(0.1)
        for index in range(3):
            assert office.payloads(index) == [b"one", *(b"call %d" % n for n in range(200))]

    in_office(program)


@pytest.mark.parametrize("seed", range(4))
def test_every_call_is_carried_out_once_and_in_order_although_datagrams_are_lost(seed: int) -> None:
    """RMP section 4.5: "the sender has the responsibility for making sure the packet is delivered reliably"."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        y = office.node("y")
        await office.serve(1, 2)
        mine = [x.call("paper", b"x%d" % n, handler=2 if n % 2 else None, service=LADDER[2 + n % 6]) for n in range(40)]
        other = [y.call("paper", b"y%d" % n, handler=2) for n in range(40)]
        answers = await asyncio.gather(*mine, *other)
        assert answers[40:] == [b"Y%d" % n for n in range(40)]
        assert answers[:40] == [b"X%d" % n if n % 2 else None for n in range(40)]
        await asyncio.sleep(3)
        for index in range(3):
            payloads = office.payloads(index)
            assert [one for one in payloads if one.startswith(b"x")] == [b"x%d" % n for n in range(40)]
            assert [one for one in payloads if one.startswith(b"y")] == [b"y%d" % n for n in range(40)]

    in_office(program, network=LOSSY, seed=seed)


def test_a_member_that_is_named_passes_the_call_on() -> None:
    """RMP section 3.3: "explicitly name another RMP process ... and request that this member forward packets"."""

    async def program(office: Office) -> None:
        x = await office.open(4)
        await office.serve(1, 2)
        for target in ("a", "b", "c", "d"):
            address = office.world.nodes[target].address
            for name in "abcd":
                if name != target:
                    office.world.network.cut("x", name)
            assert (
                await x.call("paper", b"to " + target.encode(), handler=2, to=address)
                == b"TO " + target.upper().encode()
            )
            assert await x.call("paper", b"plain", to=target) is None
            office.world.network.heal()
        await asyncio.sleep(0.1)
        assert office.payloads(0) == office.payloads(3)
        assert len(office.payloads(0)) == 8

    in_office(program)


def test_a_lost_answer_is_repeated_through_the_member_that_was_named() -> None:
    """RMP sections 3.3 and 4.5."""

    async def program(office: Office) -> None:
        x = await office.open(4)
        await office.serve(1, 2)
        for target in ("a", "c", "d"):
            office.silence("a", "b", "c", "d")
            calls = [
                asyncio.create_task(x.call("paper", b"asked", handler=2, to=target, timeout=20)),
                asyncio.create_task(x.call("paper", b"plain", to=target, timeout=20)),
            ]
            await asyncio.sleep(1)
            office.world.network.heal()
            assert await asyncio.gather(*calls) == [b"ASKED", None]

    in_office(program)


def test_calls_go_through_one_member_after_the_other_where_there_is_no_multicast() -> None:
    """RMP section 3.4, for callers."""

    async def program(office: Office) -> None:
        x = await office.open(3)
        idle = office.node("idle")  # one of the nodes that x knows, and no member
        await office.serve(1, 2)
        calls = (x.call("paper", b"call %d" % n, handler=2) for n in range(10))
        assert await asyncio.gather(*calls) == [b"CALL %d" % n for n in range(10)]
        office.world.crash("c")
        assert await x.call("paper", b"once more") is None
        await asyncio.sleep(0.1)
        assert office.payloads(0) == office.payloads(1) == [*(b"call %d" % n for n in range(10)), b"once more"]
        await idle.close()

    in_office(program, network=NetworkModel("unicast", latency_ns=100_000, has_multicast=False))


def test_numbers_that_the_group_may_have_flushed_begin_with_the_first_packet_flag() -> None:
    """RMP section 4.5: "non-member senders must keep track of when their sequence numbers may have been flushed"."""

    async def program(office: Office) -> None:
        timing = Timing(caller_flush_ns=4 * SECOND)
        x = await office.open(2, timing=timing)
        wire = Wire(office.world)
        await x.call("paper", b"0")
        await x.call("paper", b"1")
        assert len(x.host.callers) == 1
        await asyncio.sleep(3)
        assert not x.host.callers  # closed before the group forgets
        await x.call("paper", b"2")
        await asyncio.sleep(20)
        await x.call("paper", b"3")
        assert wire.calls == [(0, True, "paper"), (1, False, ""), (2, True, "paper"), (3, True, "paper")]
        await asyncio.sleep(0.1)
        assert office.payloads(0) == office.payloads(1) == [b"0", b"1", b"2", b"3"]
        assert [row.first for row in office.rows("submit")] == [0, 1, 2, 3]

    in_office(program)


def test_message_numbers_go_on_when_a_caller_becomes_a_member_and_leaves_again() -> None:
    """docs/trace.md: `first` counts per sender, life and underlay; RMP section 4.5."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        await x.call("paper", b"0")
        await x.call("paper", b"1")
        group = await x.join("paper", orderer="token")
        await group.send(b"2", confirm=True)
        assert await x.call("paper", b"3") is None  # a member's way
        leaving = asyncio.create_task(group.leave())
        await asyncio.sleep(0)
        assert await x.call("paper", b"4") is None  # once it is out
        await leaving
        again = await x.join("paper", orderer="token")
        await again.send(b"5", confirm=True)
        await again.leave()
        await asyncio.sleep(0.1)
        for index in range(2):
            messages = office.messages(index)
            assert [(message.number, message.payload) for message in messages] == [(n, b"%d" % n) for n in range(6)]

    in_office(program)


def test_calls_that_are_under_way_end_when_their_node_joins() -> None:
    """A member's messages are numbered after those of its calls, which the group takes from nobody who is in it."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        office.silence("a", "b")
        call = asyncio.create_task(x.call("paper", b"lost?"))
        await asyncio.sleep(0.1)
        joining = asyncio.create_task(x.join("paper", orderer="token"))
        await asyncio.sleep(1)
        assert not call.done()  # it is given a while
        office.world.network.heal()
        await call
        await (await joining).leave()
        office.silence("a", "b")
        call = asyncio.create_task(x.call("paper", b"lost"))
        await asyncio.sleep(0.1)
        joining = asyncio.create_task(x.join("paper", orderer="token"))
        await asyncio.sleep(4)
        with pytest.raises(OutcomeUnknown, match="joined 'paper' while its call was under way"):
            await call
        office.world.network.heal()
        await (await joining).leave()

    in_office(program)


def test_a_call_that_is_given_up_holds_up_nothing_behind_it() -> None:
    """RMP section 4.5: each call that nobody may skip is repeated until it is there."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        await x.call("paper", b"0")
        for name in "ab":
            office.world.network.cut("x", name)
        lost = asyncio.create_task(x.call("paper", b"1"))
        kept = asyncio.create_task(x.call("paper", b"2"))
        await asyncio.sleep(0.5)
        lost.cancel()
        await asyncio.sleep(0.5)
        office.world.network.heal()
        await kept
        for name in "ab":
            office.world.network.cut("x", name)
        with pytest.raises(CallTimeout, match="may or may not have been carried out"):
            await x.call("paper", b"3", timeout=1)
        office.world.network.heal()
        await x.call("paper", b"4")
        await asyncio.sleep(0.1)
        assert office.payloads(0) == office.payloads(1) == [b"0", b"1", b"2", b"4"]

    in_office(program, quiet=False)


def test_requests_beyond_the_bound_of_an_inbox_are_dropped_and_come_again() -> None:
    """The caller tries again (RMP section 4.5), so that nothing is lost where the handler's queue is bounded."""
    count = INBOX_REQUESTS + 8

    async def program(office: Office) -> None:
        x = await office.open(2)
        asked: list[bytes] = []
        async with office.groups[1].handler(2) as handler:
            calls = [asyncio.create_task(x.call("paper", b"%d" % n, handler=2, timeout=60)) for n in range(count)]
            await office.until(lambda: len(office.payloads(1)) == count)
            assert handler.dropped >= 8  # those that came again found no room, either
            while len(asked) < count:
                request = await anext(handler)
                asked.append(request.payload)
                await shout(request)
            await asyncio.gather(*calls)
        assert asked[:INBOX_REQUESTS] == [b"%d" % n for n in range(INBOX_REQUESTS)]
        assert sorted(asked, key=int) == [b"%d" % n for n in range(count)]
        assert len(office.rows("reply")) == count

    in_office(program)


def test_mistakes_of_callers_raise_at_the_call() -> None:
    """CONTRIBUTING.md, style rule 6."""

    async def program(office: Office) -> None:
        x = await office.open(2)
        with pytest.raises(MessageTooLarge, match="one block"):
            await x.call("paper", bytes(MAX_CALL + 1))
        with pytest.raises(UsageError, match="a number from 0 to 5"):
            await x.call("paper", b"", handler=6)
        with pytest.raises(UsageError, match="name the handler"):
            await x.call("paper", b"", again=True)
        with pytest.raises(UsageError, match="a service is"):
            await x.call("paper", b"", service="SAFE")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="1 to 255 bytes"):
            await x.call("", b"")
        with pytest.raises(UsageError, match="timeout"):
            await x.call("paper", b"", timeout="long")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await x.call("paper", "text")  # type: ignore[arg-type]
        with pytest.raises(CallTimeout, match="no member of 'elsewhere' has answered within 2 s"):
            await x.call("elsewhere", b"anybody?", timeout=2)
        await office.serve(0, 1)
        assert await x.call("paper", bytes(MAX_CALL), handler=1) == bytes(MAX_CALL)
        assert len(await office.groups[1].call(bytes(MAX_CALL), handler=1)) == MAX_CALL

    in_office(program)


def test_any_message_of_a_member_may_name_a_handler() -> None:
    """RMP section 3.3: "Each data or multi-RPC packet can specify a handler for the packet ... If a request is from a
    group member, the reply is also sent to the group"."""

    async def program(office: Office) -> None:
        await office.open(3)
        await office.serve(1, 2)
        group = office.groups[0]
        numbers = [await group.request(b"first", handler=2), await group.request(b"second", handler=2, service=SAFE)]
        await group.send(b"plain")
        lost = await group.request(b"unheard", handler=3)
        await asyncio.sleep(0.5)
        for index in range(3):
            answers = [message for message in office.messages(index) if isinstance(message, Answer)]
            assert [(each.sender, each.payload, each.answers) for each in answers] == [
                ("b/0", b"FIRST", ("a/0", numbers[0])),
                ("b/0", b"SECOND", ("a/0", numbers[1])),
            ]
            (unheard,) = [
                message for message in office.messages(index) if message.number == lost and message.sender == "a/0"
            ]
            assert isinstance(unheard, Request)
            assert not unheard.must_answer
        with pytest.raises(UsageError, match="a handler is a number from 0 to 5"):
            await group.request(b"x", handler=6)
        with pytest.raises(MessageTooLarge):
            await group.request(bytes(MAX_CALL + 1), handler=2)

    in_office(program)
