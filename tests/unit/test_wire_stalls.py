"""What members tell each other about standing still, as bytes."""

from __future__ import annotations

import pytest

from ordercast.config import MAX_MEMBERS
from ordercast.errors import WireError
from ordercast.wire.ordering import (
    LEAD,
    NO_HOLDUP,
    Acks,
    Holdup,
    Lead,
    decode_acks,
    decode_lead,
    encode_acks,
    encode_lead,
)
from ordercast.wire.views import Ballot, decode_ballot, decode_check, encode_ballot, encode_check

BALLOT = Ballot(3, 40, 65_534, 9)


@pytest.mark.parametrize("holdup", [NO_HOLDUP, Holdup(0, False), Holdup(0, True), Holdup(MAX_MEMBERS - 1, True)])
def test_a_lead_names_the_member_that_the_history_waits_for(holdup: Holdup) -> None:
    lead = Lead(9, 7, 8, 2, holdup)
    body = encode_lead(lead)
    assert len(body) == LEAD.size
    assert decode_lead(body) == lead


def test_the_bytes_of_a_lead() -> None:
    assert encode_lead(Lead(9, 7, 8, 2))[-4:] == b"\x02\x00\x00\x00", "nobody: as before there was such a field"
    assert encode_lead(Lead(9, 7, 8, 2, Holdup(1, False)))[-4:] == b"\x02\x00\x02\x00"
    assert encode_lead(Lead(9, 7, 8, 2, Holdup(1, True)))[-4:] == b"\x02\x00\x02\x80"


def test_an_acknowledgement_says_that_the_application_leaves_what_it_was_given() -> None:
    plain, behind = Acks(9, 7), Acks(9, 7, is_behind=True)
    assert encode_acks(plain) == b"\x09" + bytes(7) + b"\x07" + bytes(7), "as before there was such a bit"
    assert encode_acks(behind) == b"\x09" + bytes(7) + b"\x07" + bytes(6) + b"\x80"
    assert [decode_acks(encode_acks(each)) for each in (plain, behind)] == [plain, behind]
    with pytest.raises(WireError, match="more consumed"):
        decode_acks(encode_acks(Acks(6, 7, is_behind=True)))


def test_a_check_is_a_ballot_and_its_answer_names_those_that_answered() -> None:
    assert encode_check(BALLOT) == encode_ballot(BALLOT)
    assert decode_check(encode_ballot(BALLOT)) == (BALLOT, ())
    assert decode_check(encode_check(BALLOT, [5, 1 << 63])) == (BALLOT, (5, 1 << 63))
    with pytest.raises(WireError):
        decode_ballot(encode_check(BALLOT, [5]))


@pytest.mark.parametrize("extra", [b"\0", bytes(7), bytes(8 * (MAX_MEMBERS + 1))])
def test_a_check_of_odd_or_endless_size_is_refused(extra: bytes) -> None:
    with pytest.raises(WireError, match="odd size"):
        decode_check(encode_ballot(BALLOT) + extra)
