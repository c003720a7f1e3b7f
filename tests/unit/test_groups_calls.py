"""Calls at a member, pass by pass without a network (RMP sections 3.3 and 4.5)."""

from __future__ import annotations

import random

import pytest
from tests.unit.fake_engine import Exchange, FakeEngine

from ordercast.config import GroupConfig
from ordercast.engine import Departed, RepeatedCall, UnknownOutcome
from ordercast.errors import NotMember, OutcomeUnknown, Unhandled, UsageError
from ordercast.groups.calls import MAX_KEPT
from ordercast.groups.events import Answer, CallBatch, Message, Request
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.requests import INBOX_REQUESTS, PendingReply
from ordercast.service import AGREED, FIFO, RELIABLE, SAFE, UNRELIABLE
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason, node_id
from ordercast.wire.block import head_of
from ordercast.wire.calls import ACKNOWLEDGED, ANSWERED, NO_HANDLER, WANTS_ACK, WANTS_AGAIN, CallHead, Reply, pack_call

CALLER = node_id("x", 0)
AT = ("127.0.0.9", 99)


class Bench:
    """Two members, driven by hand; the first one's trace is kept."""

    def __init__(self) -> None:
        self.exchange = Exchange()
        self.recorder = Recorder(None, "a", 0)
        self.hosts = [
            Host(
                name,
                0,
                ("127.0.0.1", 1),
                buffer_bytes=1 << 20,
                rng=random.Random(1),
                recorder=recorder,
                engines=self.exchange,
            )
            for name, recorder in (("a", self.recorder), ("b", None))
        ]
        self.ports = [host.open(0, "g", config=GroupConfig()) for host in self.hosts]
        self.run()

    def run(self) -> None:
        for _ in range(10):
            for host, port in zip(self.hosts, self.ports, strict=True):
                host.touch(port)
                host.finish(0)

    def engine(self, index: int) -> FakeEngine:
        engine = self.ports[index].engine
        assert isinstance(engine, FakeEngine)
        return engine

    def call(self, number: int, *, handler: int = NO_HANDLER, flags: int = WANTS_ACK, name: str = "x/0") -> bytes:
        """A call from outside reaches its place; its block."""
        block = pack_call(number, AGREED, CallHead(0, flags, handler, name, AT), b"call %d" % number)
        self.exchange.call(CALLER, number, block)
        self.run()
        return block

    def again(self, number: int, block: bytes) -> None:
        for index in range(2):
            self.engine(index).pending.append(RepeatedCall(CALLER, number, block))
        self.run()

    def replies(self, index: int = 0) -> list[Reply]:
        return [reply for to, _, reply in self.engine(index).replies if to == AT]

    def kinds(self, *kinds: str) -> list[tuple[str, str | None, int | None]]:
        self.recorder.flush()
        return [(row.kind, row.sender, row.first) for row in self.recorder.rows() if row.kind in kinds]


def messages(port: Port) -> list[Message]:
    found = []
    while (event := port.take()) is not None:
        if isinstance(event, CallBatch):
            found += list(event.each())
    return found


def debt_of(message: Message) -> PendingReply:
    assert isinstance(message, Request)
    assert isinstance(message.owed, PendingReply)
    return message.owed


def test_only_the_member_that_the_engine_names_acknowledges() -> None:
    bench = Bench()
    bench.call(0)
    assert bench.replies(0) == bench.replies(1) == []
    bench.exchange.answering = bench.engine(0)
    block = bench.call(1)
    assert bench.replies(0) == [Reply(CALLER, ACKNOWLEDGED, 1, b"")]
    bench.again(1, block)
    assert [reply.status for reply in bench.replies(0)] == [ACKNOWLEDGED] * 2
    assert bench.replies(1) == []
    bench.call(2, flags=0)
    assert len(bench.replies(0)) == 2


def test_the_holder_of_the_handler_owes_the_answer_and_sends_it_again() -> None:
    bench = Bench()
    claim = bench.ports[0].serve(2)
    bench.run()
    assert claim.is_held
    block = bench.call(0, handler=2)
    assert [message.must_answer for port in bench.ports for message in messages(port)] == [True, False]
    assert claim.inbox is not None
    taken = claim.inbox.take()
    assert taken is not None
    owed, request = taken
    assert (request.payload, request.caller, request.handler) == (b"call 0", "x/0", 2)
    bench.again(0, block)  # no answer yet, and it was not to be handed over again
    assert len(claim.inbox) == 0
    assert bench.ports[0].answer(owed, b"answer")
    bench.run()
    bench.again(0, block)
    assert bench.replies() == [Reply(CALLER, ANSWERED, 0, b"answer")] * 2
    assert bench.kinds("reply", "redeliver") == [("reply", "x/0", 0)]
    with pytest.raises(UsageError, match="at most one answer"):
        bench.ports[0].answer(owed, b"another")


def test_a_call_is_handed_over_again_where_it_was_taken_and_not_where_it_waits() -> None:
    bench = Bench()
    claim = bench.ports[0].serve(2)
    bench.run()
    inbox = claim.inbox
    assert inbox is not None
    block = bench.call(0, handler=2, flags=WANTS_AGAIN)
    bench.again(0, block)
    assert len(inbox) == 1
    assert inbox.take() is not None
    bench.again(0, block)
    taken = inbox.take()
    assert taken is not None
    bench.ports[0].answer(taken[0], b"answer")
    bench.run()
    assert bench.kinds("reply", "redeliver") == [("redeliver", "x/0", 0)]  # an answer to what came again has no row
    assert len(messages(bench.ports[0])) == 1


def test_of_the_answers_to_a_call_that_was_handed_over_twice_the_first_counts() -> None:
    bench = Bench()
    claim = bench.ports[0].serve(2)
    bench.run()
    inbox = claim.inbox
    assert inbox is not None
    block = bench.call(0, handler=2, flags=WANTS_AGAIN)
    first = inbox.take()
    bench.again(0, block)
    second = inbox.take()
    assert first is not None
    assert second is not None
    assert bench.ports[0].answer(first[0], b"answer")
    assert bench.ports[0].answer(second[0], b"another")
    bench.run()
    assert bench.replies() == [Reply(CALLER, ANSWERED, 0, b"answer")]


def test_a_later_holder_is_handed_what_an_earlier_one_left_unanswered() -> None:
    bench = Bench()
    block = bench.call(0, handler=2, flags=WANTS_AGAIN | WANTS_ACK)
    claim = bench.ports[0].serve(2)
    bench.run()
    assert claim.inbox is not None
    assert len(claim.inbox) == 0
    bench.again(0, block)
    taken = claim.inbox.take()
    assert taken is not None
    bench.ports[0].answer(taken[0], b"late")
    bench.run()
    assert bench.replies() == [Reply(CALLER, ANSWERED, -1, b"late")]


def test_answers_are_kept_up_to_a_bound() -> None:
    bench = Bench()
    bench.ports[0].lock("2")
    bench.run()
    blocks = [bench.call(number, handler=2) for number in range(MAX_KEPT + 2)]
    for message in messages(bench.ports[0]):
        bench.ports[0].answer(debt_of(message), b"answer %d" % message.number)
    bench.run()
    bench.engine(0).replies.clear()
    for number, block in enumerate(blocks):
        bench.again(number, block)
    assert [reply.payload for reply in bench.replies()] == [b"answer %d" % number for number in range(2, MAX_KEPT + 2)]


def test_a_full_inbox_drops_newcomers_and_takes_them_when_they_come_again() -> None:
    bench = Bench()
    claim = bench.ports[0].serve(2)
    bench.run()
    inbox = claim.inbox
    assert inbox is not None
    blocks = [bench.call(number, handler=2) for number in range(INBOX_REQUESTS + 1)]
    assert (len(inbox), inbox.dropped) == (INBOX_REQUESTS, 1)
    first = inbox.take()
    assert first is not None
    assert first[1].payload == b"call 0"
    bench.again(INBOX_REQUESTS, blocks[-1])
    assert len(inbox) == INBOX_REQUESTS
    assert bench.kinds("redeliver") == []
    # What is answered among the events of the group makes room.
    for message in messages(bench.ports[0])[1:]:
        bench.ports[0].answer(debt_of(message), b"")
    bench.run()
    last = len(blocks)
    bench.call(last, handler=2)
    taken = inbox.take()
    assert taken is not None
    assert taken[1].payload == b"call %d" % last


def test_a_members_call_is_answered_to_all_and_only_once() -> None:
    bench = Bench()
    bench.ports[1].lock("0")
    bench.run()
    asked = bench.ports[0].call(b"question", FIFO, 0, 7)
    assert asked is not None
    bench.run()
    (request,) = messages(bench.ports[1])
    assert (request.payload, request.type, request.service, request.caller) == (b"question", 7, FIFO, "a/0")
    assert bench.ports[1].answer(debt_of(request), b"answer")
    bench.run()
    assert asked.answer == b"answer"
    assert bench.ports[0].calls.settled == [asked]
    _, answer = messages(bench.ports[0])
    assert isinstance(answer, Answer)
    assert (answer.sender, answer.answers, answer.service) == ("b/0", ("a/0", 0), AGREED)
    (again,) = messages(bench.ports[1])
    assert (again.payload, again.answers) == (b"answer", ("a/0", 0))


def test_a_call_that_nobody_can_answer_fails_where_it_is_delivered() -> None:
    bench = Bench()
    asked = bench.ports[0].call(b"question", AGREED, 4)
    bench.run()
    assert asked is not None
    assert isinstance(asked.error, Unhandled)


def test_calls_end_with_the_membership() -> None:
    bench = Bench()
    bench.ports[1].lock("0")
    bench.run()
    asked = bench.ports[0].call(b"question", AGREED, 0)
    bench.run()
    bench.exchange.room_bytes = 0
    queued = bench.ports[0].call(b"next", AGREED, 0)
    bench.call(0, handler=0)
    owed = [debt_of(message) for message in messages(bench.ports[1])]
    for index in range(2):
        bench.engine(index).pending += [UnknownOutcome(0, 1), Departed(wanted=False, returning=True, text="excluded")]
    bench.run()
    assert asked is not None
    assert queued is not None
    assert isinstance(asked.error, OutcomeUnknown)
    assert queued.error is None  # it has not left: it will when this node is back
    with pytest.raises(NotMember):
        bench.ports[1].answer(owed[0], b"too late")
    bench.exchange.install(Reason.JOIN, "b/0", b"")
    bench.run()
    assert bench.ports[1].is_member
    with pytest.raises(NotMember, match="was out of 'g' since call"):
        bench.ports[1].answer(owed[0], b"still too late")
    bench.engine(0).pending.append(Departed(wanted=False, returning=False, text="for good"))
    bench.run()
    assert isinstance(queued.error, NotMember)


def test_a_caller_is_named_by_what_it_says_only_where_that_gives_its_id() -> None:
    bench = Bench()
    bench.call(0)
    bench.call(1, name="impostor/0")
    assert [message.sender for message in messages(bench.ports[0])] == ["x/0", "x/0"]
    other = Bench()
    other.call(0, name="impostor/0")
    other.call(1, name="no life")
    assert [message.sender for message in messages(other.ports[0])] == [f"{CALLER:016x}"] * 2


def test_a_block_that_only_says_that_it_is_a_call_is_counted_and_passed_over() -> None:
    bench = Bench()
    block = bytearray(pack_call(0, AGREED, CallHead(0, 0, NO_HANDLER, "x/0", AT), b""))
    block[-6:] = b"\xff" * 6
    bench.exchange.call(CALLER, 0, bytes(block))
    bench.exchange.call(CALLER, 1, bytes(block[:60]))
    bench.run()
    assert messages(bench.ports[0]) == []
    assert bench.ports[0].counters["unreadable_blocks"] == 2
    bench.engine(0).pending.append(RepeatedCall(CALLER, 0, bytes(block)))
    bench.run()


def test_unreliable_blocks_have_no_number_and_hold_up_nothing() -> None:
    bench = Bench()
    bench.exchange.has_unreliable = True
    port = bench.ports[0]
    before = port.next_block
    watch = port.watch(port.offer(b"loose", UNRELIABLE), 1, UNRELIABLE)
    port.offer(b"placed", SAFE)
    flush = port.flush()
    bench.run()
    assert port.settled == [watch, flush]
    assert port.next_block == before + 1
    assert port.stream.resume == 2


def test_unreliable_messages_larger_than_a_block_travel_reliably() -> None:
    bench = Bench()
    bench.exchange.has_unreliable = True
    port = bench.ports[0]
    port.offer(bytes(100_000), UNRELIABLE)
    bench.run()
    assert {head_of(block).rank for block in bench.engine(0).sent_blocks} == {RELIABLE.rank}
