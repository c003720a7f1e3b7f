"""Rings that are over: what their stragglers are told, and what they still get (`membership.past`)."""

from __future__ import annotations

import pytest
from tests.unit.quorums import LAST_SEQ, Party, left, member_of, party_of

from ordercast.engine import NEVER
from ordercast.errors import WireError
from ordercast.membership.past import EVERY_NS, KEEP_NS, MOST, PastRings
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.ordering import Acks, Missing, encode_nak
from ordercast.wire.views import encode_ended

OLD = 5
BOB = member_of("b")


class Survivor:
    """A member of a later ring, with its past."""

    def __init__(self) -> None:
        self.party: Party = party_of("a", left("ab", "abc"))
        self.party.writer.ring = 99
        self.past = PastRings()

    def asked(self, kind: Kind, ring: int = OLD, now_ns: int = 0, body: bytes = b"") -> list[tuple[int, int, bytes]]:
        """What a datagram of a straggler is answered with: kind, ring and body."""
        out, writer = self.party.out, self.party.writer
        self.past.answer(now_ns, writer, BOB.address, kind, ring, BOB.id, body, out)
        found = []
        for to, buffers, _ in out.sends:
            assert to == BOB.address
            data = b"".join(buffers)
            head = HEADER.unpack_from(data)
            found.append((head[1], head[5], data[HEADER_BYTES:]))
        out.sends.clear()
        return found


def test_a_straggler_is_told_how_its_ring_ended() -> None:
    survivor = Survivor()
    survivor.past.add(OLD, b"the commit")
    assert OLD in survivor.past
    assert survivor.asked(Kind.SYNC) == [(Kind.COMMIT, OLD, b"the commit")]
    assert survivor.asked(Kind.SYNC, ring=6) == [], "it was never in that ring"


def test_a_ring_that_ended_in_order_has_no_successor() -> None:
    survivor = Survivor()
    assert not survivor.past.is_over
    survivor.past.add_ended(OLD, "g")
    assert survivor.past.is_over
    assert survivor.asked(Kind.INVITE) == [(Kind.ENDED, OLD, encode_ended("g"))]


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.REPAIR, Kind.CUT, Kind.RESULT_ACK, Kind.COMMIT, Kind.ENDED])
def test_what_was_right_when_it_was_sent_is_not_answered(kind: Kind) -> None:
    survivor = Survivor()
    survivor.past.add(OLD, b"the commit")
    assert survivor.asked(kind) == []


def test_stragglers_are_answered_now_and_then() -> None:
    survivor = Survivor()
    survivor.past.add(OLD, b"the commit")
    assert len(survivor.asked(Kind.SYNC)) == 1
    assert survivor.asked(Kind.SYNC, now_ns=EVERY_NS - 1) == []
    assert len(survivor.asked(Kind.SYNC, now_ns=EVERY_NS)) == 1


def test_the_answer_to_members_of_an_older_ring_is_how_the_last_one_ended() -> None:
    """They are in none of the rings between, whatever the first of those commits said."""
    survivor = Survivor()
    survivor.past.add(OLD, b"first")
    survivor.past.add(OLD + 1, b"second")
    assert survivor.asked(Kind.SYNC) == [(Kind.COMMIT, OLD, b"second")]
    assert not survivor.past.is_over
    survivor.past.add_ended(OLD + 2, "g")
    assert survivor.asked(Kind.SYNC, now_ns=EVERY_NS) == [(Kind.ENDED, OLD, encode_ended("g"))]


def test_the_oldest_ring_is_forgotten_first() -> None:
    survivor = Survivor()
    for ring in range(1, MOST + 1):
        survivor.past.add(ring, b"the commit")
        assert len(survivor.asked(Kind.SYNC, ring=ring)) == 1
    assert 1 in survivor.past
    survivor.past.add(MOST + 1, b"the commit")
    assert 1 not in survivor.past
    assert 2 in survivor.past
    assert survivor.asked(Kind.SYNC, ring=1, now_ns=EVERY_NS) == []


# The log of the last ring


def keeping() -> Survivor:
    """The log of the ring OLD is kept for b and c."""
    survivor = Survivor()
    survivor.past.add(OLD, b"the commit")
    survivor.past.keep_log(0, OLD, survivor.party.orderer, {BOB.id, member_of("c").id})
    return survivor


def wanted(seq: int) -> bytes:
    return encode_nak(Acks(seq - 1, seq - 1), [Missing(GROUP_ORIGIN, seq, 1, 0, 0)])


def test_a_member_that_missed_the_commit_gets_what_it_lacks_of_the_old_log() -> None:
    survivor = keeping()
    assert survivor.past.is_keeping
    answers = survivor.asked(Kind.NAK, body=wanted(LAST_SEQ))
    assert [(kind, ring) for kind, ring, _ in answers if kind != Kind.ACCEPT] == [(Kind.REPAIR, OLD)]
    assert survivor.party.writer.ring == 99, "what we send ourselves is of our own ring"


def test_a_request_for_another_ring_or_without_a_body_is_told_the_end() -> None:
    survivor = keeping()
    survivor.past.add(OLD + 1, b"another")
    assert not survivor.past.is_keeping, "the log of the ring before is not needed any more"
    assert survivor.asked(Kind.NAK, body=wanted(LAST_SEQ)) == [(Kind.COMMIT, OLD, b"another")]
    again = keeping()
    assert again.asked(Kind.NAK) == [(Kind.COMMIT, OLD, b"the commit")]


def test_a_request_that_makes_no_sense_changes_no_ring() -> None:
    survivor = keeping()
    with pytest.raises(WireError):
        survivor.asked(Kind.NAK, body=b"nonsense")
    assert survivor.party.writer.ring == 99


def test_the_log_is_kept_until_all_members_of_the_new_ring_are_heard_in_it() -> None:
    survivor = keeping()
    assert survivor.past.deadline_ns() == KEEP_NS
    survivor.past.heard(BOB.id)
    assert survivor.past.is_keeping
    survivor.past.heard(member_of("c").id)
    assert not survivor.past.is_keeping
    assert survivor.past.deadline_ns() == NEVER


def test_the_log_is_not_kept_for_members_that_never_come() -> None:
    survivor = keeping()
    survivor.past.expire(KEEP_NS - 1)
    assert survivor.past.is_keeping
    survivor.past.expire(KEEP_NS)
    assert not survivor.past.is_keeping


def test_a_ring_that_is_frozen_keeps_the_log_for_members_that_it_may_need() -> None:
    survivor = keeping()
    survivor.past.expire(KEEP_NS, is_frozen=True)
    assert survivor.past.is_keeping
    assert survivor.past.deadline_ns() == 2 * KEEP_NS
    survivor.past.expire(2 * KEEP_NS)
    assert not survivor.past.is_keeping


def test_a_member_alone_keeps_nothing() -> None:
    survivor = Survivor()
    survivor.past.keep_log(0, OLD, survivor.party.orderer, set())
    assert not survivor.past.is_keeping
