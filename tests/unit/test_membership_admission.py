"""The leader's side of joining: refusals, and welcomes until the newcomer speaks (Amoeba section 3)."""

from __future__ import annotations

from dataclasses import replace

from ordercast.config import LAN_DATAGRAM, Demands, GroupConfig
from ordercast.engine import NEVER, Outbox
from ordercast.membership.admission import MAX_NONCES, WELCOME_NS, Admission
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.views import Asking, decode_welcome
from ordercast.wire.writer import DatagramWriter

A, B, C = [Member(node_id(name, 0), name, 0, (f"10.0.0.{n}", 7_000), 1 << 20) for n, name in enumerate("abc", start=1)]
VIEW = View(1, "a/0", 7, 0, 10, 0, (A, B), {A.id: 0, B.id: 0})
JOINED = replace(VIEW, counter=2, seq=20, members=(A, B, C), reason=Reason.JOIN, subject="c/0", serial=5)


def make() -> Admission:
    return Admission("g", DatagramWriter(1, A.id, LAN_DATAGRAM))


def asking(nonce: int = 5, demands: Demands | None = None, member: Member = C) -> Asking:
    return Asking("g", member, nonce, 0, 0, demands if demands is not None else Demands(), b"")


def test_a_newcomer_that_meets_the_parameters_is_let_in() -> None:
    assert make().refusal(asking(), GroupConfig(), VIEW) == ""


def test_a_full_group_refuses_and_says_why() -> None:
    refusal = make().refusal(asking(), GroupConfig(max_members=2), VIEW)
    assert "'g' is full" in refusal
    assert "max_members=2" in refusal


def test_a_newcomer_that_cannot_meet_the_parameters_is_refused() -> None:
    assert "max_message" in make().refusal(asking(demands=Demands(max_message=10)), GroupConfig(), VIEW)


def test_a_newcomer_is_welcomed_again_until_it_speaks() -> None:
    admission, out = make(), Outbox()
    assert not admission
    assert admission.deadline_ns() == NEVER
    admission.welcome(0, JOINED, GroupConfig(), out)
    assert admission.is_expected(C.id)
    assert admission.addresses() == [C.address]
    assert admission.deadline_ns() == WELCOME_NS
    admission.expire(WELCOME_NS - 1, out)
    assert len(out.sends) == 1
    admission.expire(WELCOME_NS, out)
    assert [send.to for send in out.sends] == [C.address] * 2
    admission.heard(C.id)
    admission.expire(10 * WELCOME_NS, out)
    assert len(out.sends) == 2
    assert not admission


def test_a_welcome_has_the_view_and_names_the_attempt() -> None:
    admission, out = make(), Outbox()
    admission.welcome(0, JOINED, GroupConfig(), out)
    data = b"".join(out.sends[0].buffers)
    assert data[1] == Kind.WELCOME
    group, nonce, config, view = decode_welcome(data[HEADER_BYTES:])
    assert (group, nonce, config.max_members, view.members) == ("g", 5, GroupConfig().max_members, (A, B, C))


def test_one_that_asks_again_gets_its_welcome_at_once() -> None:
    admission, out = make(), Outbox()
    admission.welcome(0, JOINED, GroupConfig(), out)
    admission.again(10, asking(nonce=4))
    assert admission.deadline_ns() == WELCOME_NS, "that was another attempt"
    admission.again(10, asking())
    assert admission.deadline_ns() == 10


def test_an_attempt_that_led_to_a_join_is_over() -> None:
    admission = make()
    assert not admission.is_over(asking())
    admission.admitted(JOINED)
    assert admission.is_over(asking())
    assert not admission.is_over(asking(nonce=6))


def test_remembered_attempts_are_bounded() -> None:
    admission = make()
    for number in range(MAX_NONCES):
        admission.admitted(replace(JOINED, subject=f"x{number}/0"))
    admission.admitted(JOINED)
    assert admission.is_over(asking())
    assert not admission.is_over(asking(member=Member(node_id("x1", 0), "x1", 0, C.address, 1)))


def test_a_ring_that_ends_welcomes_nobody() -> None:
    admission = make()
    admission.welcome(0, JOINED, GroupConfig(), Outbox())
    admission.clear()
    assert admission.deadline_ns() == NEVER
