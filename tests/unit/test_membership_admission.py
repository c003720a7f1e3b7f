"""The members' side of a join: parameters are checked, the join is ordered, the newcomer is welcomed until heard."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.quorums import local_member

from ordercast.config import LAN_DATAGRAM, Demands, GroupConfig, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.membership.quorum.admission import MAX_NONCES, WELCOME_NS, Admission
from ordercast.orderers import ORDERERS
from ordercast.orderers.orderer import Start
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.views import Asking, decode_refusal, decode_welcome
from ordercast.wire.writer import DatagramWriter


def member(name: str) -> Member:
    return Member(node_id(name, 0), name, 0, (f"10.0.0.{ord(name)}", 7_000))


class Leader:
    """A ring of one member, with its admission."""

    def __init__(self, max_members: int = 10) -> None:
        me = member("a")
        self.config = GroupConfig("sequencer", max_members=max_members)
        writer = DatagramWriter(1, me.id, LAN_DATAGRAM)
        view = View(1, "a/0", 7, 0, 0, 0, (me,), {me.id: 0}, Reason.CREATE, "a/0")
        writer.ring = view.ring
        self.orderer = ORDERERS["sequencer"](me, writer, self.config, Timing(), view, 0, 1, {})
        self.admission = Admission(local_member(me, writer, Timing()))
        self.out = Outbox()
        self.orderer.install(0, Start(), self.out)
        self.out.sends.clear()

    def asked(self, asking: Asking) -> list[View]:
        """The views that come of a JOIN."""
        self.out.sends.clear()
        self.admission.on_join(0, asking.member.address, asking, self.config, self.orderer, self.out)
        self.orderer.after_batch(0, self.out)
        return self.orderer.take_views()

    def kinds(self) -> list[int]:
        return [HEADER.unpack_from(b"".join(send.buffers))[1] for send in self.out.sends]


def asking(name: str, nonce: int = 5, demands: Demands = Demands()) -> Asking:  # noqa: B008 - frozen
    return Asking("g", member(name), nonce, 0, 3, demands, b"hello")


def test_a_newcomer_that_fits_is_ordered_with_its_header_and_number() -> None:
    (view,) = Leader().asked(asking("b"))
    assert view.reason == Reason.JOIN
    assert [each.name for each in view.members] == ["a", "b"]
    assert (view.header, view.serial, view.numbers[member("b").id]) == (b"hello", 5, 3)


def test_a_full_group_refuses_with_the_reason() -> None:
    leader = Leader(max_members=1)
    assert leader.asked(asking("b")) == []
    assert leader.kinds() == [Kind.REFUSE]
    name, text = decode_refusal(b"".join(leader.out.sends[0].buffers)[HEADER_BYTES:])
    assert name == "g"
    assert "max_members=1" in text


def test_an_attempt_leads_to_one_join_only() -> None:
    leader = Leader()
    (view,) = leader.asked(asking("b"))
    leader.admission.admitted(view)
    assert leader.admission.is_over(asking("b"))
    assert not leader.admission.is_over(asking("b", nonce=6))
    assert leader.asked(asking("b")) == []  # it is in the view


def test_a_newcomer_is_welcomed_until_it_is_heard() -> None:
    leader = Leader()
    admission, out = leader.admission, leader.out
    (view,) = leader.asked(asking("b"))
    out.sends.clear()
    assert not admission
    assert admission.deadline_ns() == NEVER
    admission.welcome(0, view, leader.config, out)
    assert admission
    assert admission.addresses() == [member("b").address]
    admission.expire(admission.deadline_ns(), out)
    assert admission.deadline_ns() == 3 * WELCOME_NS  # after 40 ms, and 80 ms more
    assert leader.kinds() == [Kind.WELCOME, Kind.WELCOME]
    name, nonce, config, shown = decode_welcome(b"".join(out.sends[0].buffers)[HEADER_BYTES:])
    assert (name, nonce, config, shown.id) == ("g", 5, leader.config, view.id)
    admission.heard(WELCOME_NS, member("b").id, view.seq - 1)
    assert admission, "that is from an earlier stay"
    admission.heard(WELCOME_NS, member("c").id, view.seq)
    assert admission
    admission.heard(WELCOME_NS, member("b").id, view.seq)
    assert not admission
    assert admission.deadline_ns() == NEVER


def test_a_member_that_asks_again_is_welcomed_at_once_if_it_is_the_same_attempt() -> None:
    leader = Leader()
    (view,) = leader.asked(asking("b"))
    leader.admission.welcome(0, view, leader.config, leader.out)
    leader.asked(asking("b", nonce=6))
    assert leader.admission.deadline_ns() == WELCOME_NS
    leader.asked(asking("b"))
    assert leader.admission.deadline_ns() == 0


def test_a_newcomer_that_cannot_meet_the_parameters_is_refused() -> None:
    leader = Leader()
    assert leader.asked(asking("b", demands=Demands(max_message=10))) == []
    assert leader.kinds() == [Kind.REFUSE]
    assert "max_message" in decode_refusal(b"".join(leader.out.sends[0].buffers)[HEADER_BYTES:])[1]


def test_remembered_attempts_are_bounded() -> None:
    leader = Leader()
    (view,) = leader.asked(asking("b"))
    leader.admission.admitted(view)
    for number in range(MAX_NONCES):
        leader.admission.admitted(replace(view, subject=f"x{number}/0"))
    assert not leader.admission.is_over(asking("b"))


def test_a_ring_that_ends_welcomes_nobody() -> None:
    leader = Leader()
    (view,) = leader.asked(asking("b"))
    leader.admission.welcome(0, view, leader.config, leader.out)
    leader.admission.clear()
    assert leader.admission.deadline_ns() == NEVER
