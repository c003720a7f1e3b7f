"""A caller outside, by what it says on the wire (RMP sections 4.5 and 4.6)."""

from __future__ import annotations

import random
from itertools import pairwise

from ordercast.config import LAN_DATAGRAM, MS, SECOND, GroupConfig, Timing
from ordercast.engine import NEVER, Send, To
from ordercast.errors import NotMember, OutcomeUnknown
from ordercast.groups.caller import MAX_UNDER_WAY, TRIES_IN_VAIN, Call, Caller
from ordercast.groups.host import Host
from ordercast.service import AGREED, UNRELIABLE
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, group_tag
from ordercast.wire.calls import (
    ACKNOWLEDGED,
    ANSWERED,
    FIRST,
    RELAY,
    CallHead,
    Reply,
    decode_call,
    encode_reply,
    open_call,
)
from ordercast.wire.header import HEADER, MAGIC, Kind
from ordercast.wire.intake import Intake
from ordercast.wire.segments import train

RING = 77
MEMBER: Address = ("127.0.0.5", 5)
FLUSH_NS = 10 * SECOND


class Said:
    """One CALL that left."""

    def __init__(
        self, to: Address, number: int, ring: int, flags: int, group: str, head: CallHead, payload: bytes
    ) -> None:
        self.to = to
        self.number = number
        self.ring = ring
        self.is_first = bool(flags & FIRST)
        self.is_relayed = bool(flags & RELAY)
        self.group = group
        self.needs = head.needs
        self.payload = payload


class Desk:
    """A host that calls a group "g"; the test plays the group."""

    def __init__(self, *, contacts: list[Address] | None = None, has_multicast: bool = True) -> None:
        self.recorder = Recorder(None, "x", 0)
        self.host = Host(
            "x",
            0,
            ("127.0.0.9", 9),
            buffer_bytes=1 << 20,
            rng=random.Random(1),
            timing=Timing(caller_flush_ns=FLUSH_NS),
            recorder=self.recorder,
            has_multicast=has_multicast,
        )
        self.now_ns = SECOND
        self._contacts = contacts or []

    @property
    def caller(self) -> Caller:
        return self.host.caller("g", datagram=LAN_DATAGRAM, contacts=self._contacts)

    def call(self, payload: bytes = b"hello", **terms: object) -> Call:
        call = Call(payload, terms.pop("service", AGREED), **terms)  # type: ignore[arg-type]
        self.caller.offer(call)
        return call

    def run(self, later_ns: int = 0) -> list[Said]:
        """One pass, after a while: what is said in it."""
        self.now_ns += later_ns
        for caller in self.host.callers:
            self.host.touch(caller)
        self.host.expire(self.now_ns)
        return [said(send) for _, send in self.host.finish(self.now_ns)]

    def until_due(self) -> list[Said]:
        """The pass of the next deadline at which something is said."""
        for _ in range(5):
            found = self.run(max(0, self.host.deadline_ns() - self.now_ns))
            if found:
                return found
        raise AssertionError("nothing is said any more")

    def reply(
        self, number: int, status: int = ACKNOWLEDGED, payload: bytes = b"", *, caller: int | None = None
    ) -> None:
        body = encode_reply(Reply(self.host.me.id if caller is None else caller, status, 5, payload))
        buffers, stride = train(Kind.REPLY, group_tag("g"), RING, 123, number, body, LAN_DATAGRAM)
        self.host.receive(self.now_ns, MEMBER, memoryview(b"".join(buffers)), stride)


def said(send: Send) -> Said:
    data = b"".join(send.buffers)
    (datagram,) = Intake(group_tag("g"), {}).read(0, memoryview(data), send.stride)
    assert datagram.kind == Kind.CALL
    flags, group, block = decode_call(datagram.body)
    return Said(send.to, datagram.number, datagram.ring, flags, group, *open_call(block))


def test_the_first_call_names_the_group_and_goes_alone() -> None:
    desk = Desk()
    first, second = desk.call(b"1"), desk.call(b"2")
    (one,) = desk.run()
    assert (one.to, one.number, one.ring, one.group, one.is_first) == (To.MULTICAST, 0, 0, "g", True)
    assert desk.run() == []
    desk.reply(0)
    (two,) = desk.run()
    assert (two.number, two.ring, two.group, two.is_first, two.needs) == (1, RING, "", False, 1)
    assert (first.is_over, second.is_over) == (True, False)
    assert desk.caller.settled == [first]


def test_tries_are_repeated_with_back_off_and_the_name_comes_back_after_some_in_vain() -> None:
    desk = Desk()
    desk.call()
    desk.run()
    desk.reply(0)
    desk.call()
    desk.run()
    times, tries = [], []
    for _ in range(8):
        before = desk.now_ns
        tries += desk.until_due()
        times.append(desk.now_ns - before)
    assert all(later >= earlier for earlier, later in pairwise(times))
    assert times[-1] == 2 * SECOND
    assert [one.number for one in tries] == [1] * 8
    assert [one.group for one in tries] == [""] * (TRIES_IN_VAIN - 1) + ["g"] * (9 - TRIES_IN_VAIN)
    assert [one.is_first for one in tries] == [False] * (TRIES_IN_VAIN - 1) + [True] * (9 - TRIES_IN_VAIN)


def test_only_the_lowest_call_carries_the_first_packet_flag() -> None:
    desk = Desk()
    desk.call()
    desk.run()
    desk.reply(0)
    for _ in range(3):
        desk.call()
    sent = desk.run()
    while len(sent) < 30:
        sent += desk.until_due()
    assert {one.number for one in sent if one.group} == {1, 2, 3}
    assert {one.number for one in sent if one.is_first} == {1}


def test_an_answer_ends_a_call_and_an_acknowledgement_makes_it_patient() -> None:
    desk = Desk()
    call = desk.call(handler=3)
    desk.run()
    desk.reply(0)
    assert desk.run() == []
    assert (call.is_acknowledged, call.is_over) == (True, False)
    began = desk.now_ns
    assert [one.number for one in desk.until_due()] == [0]
    assert desk.now_ns - began == 2 * SECOND
    desk.reply(0, ANSWERED, b"yes")
    desk.run()
    assert (call.is_over, call.answer) == (True, b"yes")


def test_answers_in_many_datagrams_are_put_together() -> None:
    desk = Desk()
    call = desk.call(bytes(50_000), handler=3)
    (one,) = desk.run()
    assert len(one.payload) == 50_000
    desk.reply(0, ANSWERED, bytes(59_000))
    desk.run()
    assert call.answer == bytes(59_000)


def test_replies_to_others_and_late_ones_are_ignored() -> None:
    desk = Desk()
    call = desk.call()
    desk.run()
    desk.reply(0, caller=4)
    desk.reply(3)
    data = HEADER.pack(MAGIC, Kind.REPLY, 0, 0, group_tag("g"), RING, 123, 0) + b"short"
    desk.host.receive(desk.now_ns, MEMBER, memoryview(data), 0)
    desk.host.receive(desk.now_ns, MEMBER, memoryview(HEADER.pack(MAGIC, 99, 0, 0, group_tag("g"), 1, 2, 3) + b"x"), 0)
    desk.run()
    assert not call.is_over
    assert desk.caller.engine.counters == {"late_replies": 2, "malformed": 1}
    desk.reply(0)
    desk.reply(0)
    desk.run()
    assert call.is_over


def test_the_window_opens_with_acknowledgements_and_has_a_bound() -> None:
    desk = Desk()
    for _ in range(1_000):
        desk.call(bytes(10))
    most = []
    while not desk.caller.is_at_rest:
        sent = desk.run(MS)
        most.append(len(sent))
        for one in sent:
            desk.reply(one.number)
        assert sent
    assert most[0] == 1
    assert most[1] > 1
    assert 8 < max(most) <= MAX_UNDER_WAY


def test_calls_without_acknowledgement_leave_once_and_are_needed_by_none() -> None:
    desk = Desk()
    first = desk.call(wants_ack=False)
    (one,) = desk.run()
    assert first.is_over
    assert one.is_first
    loose = desk.call(wants_ack=False)
    desk.call()
    sent = desk.run()
    assert loose.is_over
    assert [(one.number, one.is_first, one.needs) for one in sent] == [(1, True, 0), (2, True, 0)]
    desk.reply(2)
    desk.call(service=UNRELIABLE)
    desk.call()
    assert [(one.number, one.is_first, one.needs) for one in desk.run()] == [(3, False, 3), (4, False, 3)]


def test_a_call_that_is_given_up_is_repeated_while_a_later_one_needs_it() -> None:
    desk = Desk()
    desk.call()
    desk.run()
    desk.reply(0)
    lost, kept = desk.call(), desk.call()
    desk.run()
    desk.caller.forget(lost)
    assert {one.number for one in desk.until_due() + desk.until_due()} == {1, 2}
    desk.caller.forget(kept)
    assert desk.caller.is_at_rest
    desk.call()
    (one,) = desk.run()
    assert (one.number, one.needs) == (3, 1)
    desk.reply(1)
    desk.reply(3)
    desk.run()
    assert desk.caller.is_at_rest


def test_a_call_that_has_not_left_is_forgotten_without_a_trace() -> None:
    desk = Desk()
    desk.call(b"1")
    second = desk.call(b"2")
    desk.run()
    desk.caller.forget(second)
    desk.reply(0)
    assert desk.run() == []
    desk.call(b"3")
    (one,) = desk.run()
    assert (one.number, one.payload) == (1, b"3")


def test_without_multicast_one_contact_after_the_other_passes_calls_on() -> None:
    contacts: list[Address] = [("127.0.0.2", 2), ("127.0.0.3", 3), ("127.0.0.4", 4)]
    desk = Desk(contacts=contacts, has_multicast=False)
    desk.call()
    tries = desk.run()
    for _ in range(5):
        tries += desk.until_due()
    assert all(one.is_relayed for one in tries)
    assert {one.to for one in tries} == set(contacts)
    desk.reply(0)
    desk.call()
    (one,) = desk.run()
    assert one.to == MEMBER  # who answered last
    assert desk.until_due()[0].to in contacts


def test_with_multicast_contacts_are_tried_only_in_vain() -> None:
    desk = Desk(contacts=[("127.0.0.2", 2)])
    desk.call()
    tries = desk.run()
    for _ in range(6):
        tries += desk.until_due()
    assert [one.to for one in tries[:3]] == [To.MULTICAST] * 3
    assert {one.to for one in tries[3:]} == {To.MULTICAST, ("127.0.0.2", 2)}
    assert [one.is_relayed for one in tries] == [one.to != To.MULTICAST for one in tries]


def test_a_named_member_gets_every_try() -> None:
    desk = Desk()
    desk.call(to=MEMBER)
    tries = desk.run()
    for _ in range(6):
        tries += desk.until_due()
    assert all(one.to == MEMBER and one.is_relayed for one in tries)


def test_an_idle_caller_is_closed_before_its_numbers_may_be_flushed_and_goes_on_with_them() -> None:
    desk = Desk()
    desk.call()
    desk.run()
    desk.reply(0)
    desk.run()
    desk.run(FLUSH_NS // 2)
    assert desk.host.callers == []
    assert desk.host.deadline_ns() == NEVER
    desk.reply(0)  # too late for anybody
    assert desk.host.counters["unknown_group"] == 1
    desk.call()
    (one,) = desk.run()
    assert (one.number, one.is_first, one.group) == (1, True, "g")


def test_joining_and_closing_end_what_is_under_way() -> None:
    desk = Desk()
    call = desk.call()
    desk.run()
    port = desk.host.open(desk.now_ns, "g", config=GroupConfig())
    assert isinstance(call.error, OutcomeUnknown)
    assert desk.host.callers == []
    assert (port.end_number, port.next_block) == (1, 1)
    other = Desk()
    call = other.call()
    other.run()
    other.host.close(other.now_ns)
    assert isinstance(call.error, NotMember)
    assert call.is_over


def test_the_trace_shows_what_was_submitted_and_confirmed() -> None:
    desk = Desk()
    desk.call(b"abc")
    desk.run()
    desk.reply(0)
    desk.call(wants_ack=False)
    desk.run()
    desk.recorder.flush()
    rows = [row for row in desk.recorder.rows() if row.kind not in ("tx", "rx")]
    assert [(row.kind, row.sender, row.first, row.count, row.position) for row in rows] == [
        ("submit", "x/0", 0, 1, None),
        ("confirm", "x/0", 0, 1, 5),
        ("submit", "x/0", 1, 1, None),
    ]
    assert (rows[0].underlay, rows[0].bytes, rows[0].service) == ("g", 3, "AGREED")


def test_two_groups_are_called_side_by_side() -> None:
    desk = Desk()
    other = desk.host.caller("h", datagram=LAN_DATAGRAM)
    for _ in range(3):
        other.offer(Call(b"", AGREED))
    desk.call()
    for caller in desk.host.callers:
        desk.host.touch(caller)
    assert [group for group, _ in desk.host.finish(desk.now_ns)] == ["h", "g"]
    assert desk.host.caller("h", datagram=LAN_DATAGRAM) is other
    desk.reply(0)
    assert desk.run() == []
    assert not other.is_at_rest


def test_a_call_that_was_delivered_does_not_keep_later_ones_from_a_group_that_was_made_anew() -> None:
    desk = Desk()
    desk.call(handler=1)
    desk.run()
    desk.reply(0)  # delivered; the answer is still to come
    desk.call()
    sent = desk.run()
    while not any(one.is_first for one in sent):
        sent += desk.until_due()
    assert {one.number for one in sent if one.is_first} == {1}
    while not any(one.number == 0 and one.group for one in sent):
        sent += desk.until_due()


def test_a_group_that_multicast_does_not_reach_is_called_through_its_contact_from_the_second_call_on() -> None:
    """RMP section 4.6: otherwise each call would wait for several tries in vain, and each for longer than the last."""
    contacts: list[Address] = [("127.0.0.2", 2), ("127.0.0.3", 3)]
    desk = Desk(contacts=contacts)
    desk.call(b"first")
    tries = desk.run()
    while tries[-1].to == To.MULTICAST:
        tries += desk.until_due()
    desk.reply(0)
    desk.call(b"second")
    (one,) = desk.run()
    assert (one.to, one.is_relayed) == (MEMBER, True)
    tries = [one]
    for _ in range(6):
        tries += desk.until_due()
    assert To.MULTICAST not in [each.to for each in tries[:3]]
    assert {To.MULTICAST, *contacts} <= {each.to for each in tries}, "where that is in vain, both ways are tried"
