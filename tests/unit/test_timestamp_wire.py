"""The body of STAMPS, DECISION and SYNC (docs/design/timestamp.md, Datagrams): what it says, and what it may not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.decoders import peak_bytes
from tests.unit import wire_samples as sample

from ordercast.config import MAX_MEMBERS
from ordercast.errors import WireError
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.stamps import (
    ACKED,
    BOUND,
    DECIDED,
    MAX_ACKED,
    MAX_APART,
    NEXT,
    STAMPS,
    TOP,
    Acked,
    Bound,
    Bounds,
    Decided,
    Next,
    Stamps,
    decode_stamps,
    encode_stamps,
)

U64 = st.integers(0, (1 << 64) - 1)
NUMBERS = st.integers(0, MAX_NUMBER)
NEAR = st.integers(0, 0xFFFF_FFFE)  # what is told as a distance
FAR = 0xFFFF_FFFF
GOOD = encode_stamps(sample.STAMPS)
INDEXES = st.integers(0, 0xFFFF)
SENDERS = st.lists(st.integers(0, MAX_MEMBERS - 1), max_size=6, unique=True).map(sorted)
ACKS = st.tuples(U64, NUMBERS, st.lists(NEAR, min_size=1, max_size=8))


@st.composite
def decisions_with_bounds(draw: st.DrawFn) -> Decided:
    number = draw(st.integers(0, MAX_NUMBER - MAX_APART))
    bounds = None
    if draw(st.booleans()):
        top = number + draw(NEAR)
        lower = st.integers(max(0, top - MAX_APART), top)
        listed = tuple(Bound(sender, draw(NUMBERS), draw(lower), draw(INDEXES)) for sender in draw(SENDERS))
        bounds = Bounds(top, draw(INDEXES), listed)
    return Decided(draw(U64), draw(NUMBERS), (number, draw(U64)), draw(NUMBERS), bounds)


@given(
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    sent=st.tuples(NUMBERS, NUMBERS),
    behind=st.lists(NEAR, max_size=10),
    nexts=SENDERS.flatmap(lambda senders: st.tuples(*[st.builds(Next, st.just(each), NUMBERS) for each in senders])),
    acks=st.lists(ACKS, max_size=6),
    decisions=st.lists(decisions_with_bounds(), max_size=6),
    flags=st.integers(0, 0xFFFF),
)
@settings(deadline=None)
def test_it_is_read_as_it_was_written(
    numbers: tuple[int, int, int],
    sent: tuple[int, int],
    behind: list[int],
    nexts: tuple[Next, ...],
    acks: list[tuple[int, int, list[int]]],
    decisions: list[Decided],
    flags: int,
) -> None:
    view, clock, highest = numbers
    rows = tuple(max(0, highest - each) for each in behind)
    runs = [Acked(origin, first, tuple(max(0, clock - each) for each in ago)) for origin, first, ago in acks]
    stamps = Stamps(view, clock, highest, max(sent), min(sent), rows, nexts, runs, decisions, flags)
    assert decode_stamps(encode_stamps(stamps)) == stamps


def test_a_row_far_behind_is_told_as_far_as_32_bits_reach() -> None:
    """It then says less than is known, and nothing that is not true of a row. Proposals are never that far behind: the
    windows of the senders are smaller."""
    stamps = sample.SILENT._replace(highest=1 << 40, rows=(1 << 40, 5))
    rows = decode_stamps(encode_stamps(stamps)).rows
    assert rows == (1 << 40, (1 << 40) - FAR)


def test_bounds_that_are_too_far_apart_for_the_wire_are_left_out() -> None:
    """A clock that a forged decision tore away: the decision goes out, and nothing is anticipated with it."""
    far = Decided(1, 1, (5, 1), 1, Bounds(6 + MAX_APART, 0))
    wide = Decided(1, 1, (MAX_APART, 1), 1, Bounds(2 * MAX_APART, 0, (Bound(0, 0, 7, 0),)))
    for decided in (far, wide):
        stamps = sample.SILENT._replace(decisions=[decided])
        assert decode_stamps(encode_stamps(stamps)).decisions == [decided._replace(bounds=None)]


@pytest.mark.parametrize("body", [GOOD, encode_stamps(sample.SILENT)])
def test_every_truncation_is_refused_and_so_is_every_byte_more(body: bytes) -> None:
    for size in range(len(body)):
        with pytest.raises(WireError):
            decode_stamps(body[:size])
    for more in (b"\0", bytes(ACKED.size), bytes(DECIDED.size)):
        with pytest.raises(WireError):
            decode_stamps(body + more)


def head(
    *,
    view: int = 1,
    clock: int = 9,
    highest: int = 1,
    sent: int = 2,
    decided: int = 1,
    rows: int = 0,
    nexts: int = 0,
    acks: int = 0,
    decisions: int = 0,
) -> bytes:
    return STAMPS.pack(view, clock, highest, sent, decided, rows, nexts, acks, decisions, 0)


def decision(number: int = 0, stamp: int = 0, seq: int = 0, bounds: int = 0) -> bytes:
    return DECIDED.pack(1, number, stamp, 1, seq, bounds)


def vector(count: int) -> bytes:
    return b"".join(NEXT.pack(each, 0) for each in range(count))


def bounds_for(count: int) -> bytes:
    return b"".join(BOUND.pack(each, MAX_NUMBER, 0, 0) for each in range(count))


OVER = MAX_NUMBER + 1
HOSTILE = {
    "rows that are not there": head(rows=3) + bytes(8),
    "more rows than members and a leaver": head(rows=MAX_MEMBERS + 2) + bytes(4 * (MAX_MEMBERS + 2)),
    "vectors that are not there": head(nexts=2) + NEXT.pack(0, 0),
    "more vectors than members": head(nexts=MAX_MEMBERS + 1) + vector(MAX_MEMBERS + 1),
    "a vector of a member that there cannot be": head(nexts=1) + NEXT.pack(MAX_MEMBERS, 0),
    "vectors out of order": head(nexts=2) + NEXT.pack(2, 0) + NEXT.pack(1, 0),
    "a vector twice": head(nexts=2) + NEXT.pack(1, 0) + NEXT.pack(1, 0),
    "a vector at the end of time": head(nexts=1) + NEXT.pack(0, OVER),
    "acknowledgements that are not there": head(acks=0xFFFF),
    "an acknowledgement of nothing": head(acks=1) + ACKED.pack(1, 1, 0),
    "an acknowledgement of more than follows": head(acks=1) + ACKED.pack(1, 1, 3) + bytes(8),
    "an acknowledgement of more than there may be": head(acks=1)
    + ACKED.pack(1, 1, MAX_ACKED + 1)
    + bytes(4 * (MAX_ACKED + 1)),
    "an acknowledgement at the end of time": head(acks=1) + ACKED.pack(1, OVER, 1) + bytes(4),
    "decisions that are not there": head(decisions=0xFFFF),
    "a decision cut off": head(decisions=1) + decision()[:-1],
    "a block at the end of time": head(decisions=1) + decision(number=OVER),
    "a timestamp at the end of time": head(decisions=1) + decision(stamp=OVER),
    "a view at the end of time": head(decisions=1) + decision(seq=OVER),
    "bounds that are not there": head(decisions=1) + decision(bounds=3) + TOP.pack(1, 0) + BOUND.pack(0, 0, 0, 0),
    "bounds without the greatest": head(decisions=1) + decision(bounds=1),
    "more bounds than members": head(decisions=1)
    + decision(bounds=MAX_MEMBERS + 2)
    + TOP.pack(1, 0)
    + bounds_for(MAX_MEMBERS + 1),
    "bounds out of order": head(decisions=1)
    + decision(bounds=3)
    + TOP.pack(1, 0)
    + BOUND.pack(2, 0, 0, 0)
    + BOUND.pack(1, 0, 0, 0),
    "a bound at the end of time": head(decisions=1) + decision(stamp=MAX_NUMBER, bounds=1) + TOP.pack(1, 0),
    "a bound before the beginning": head(decisions=1) + decision(bounds=2) + TOP.pack(1, 0) + BOUND.pack(0, 0, 2, 0),
    "a bound from a block at the end of time": head(decisions=1)
    + decision(bounds=2)
    + TOP.pack(1, 0)
    + BOUND.pack(0, OVER, 0, 0),
    "the clock at the end of time": head(clock=OVER),
    "the place of the view at the end of time": head(view=OVER),
    "a place at the end of time": head(highest=OVER),
    "blocks at the end of time": head(sent=OVER),
    "more decided than sent": head(sent=1, decided=2),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode_stamps(HOSTILE[name])


def test_the_bounds_of_what_is_refused_are_exact() -> None:
    """What is just within them is read: the tests above refuse for the reason that they name."""
    assert decode_stamps(head()).sent == 2
    assert len(decode_stamps(head(rows=MAX_MEMBERS + 1) + bytes(4 * (MAX_MEMBERS + 1))).rows) == MAX_MEMBERS + 1
    assert len(decode_stamps(head(nexts=MAX_MEMBERS) + vector(MAX_MEMBERS)).nexts) == MAX_MEMBERS
    acked = decode_stamps(head(acks=1) + ACKED.pack(1, MAX_NUMBER, MAX_ACKED) + bytes(4 * MAX_ACKED)).acks[0]
    assert acked == Acked(1, MAX_NUMBER, (9,) * MAX_ACKED)
    body = head(decisions=1) + decision(MAX_NUMBER, MAX_NUMBER - 1, MAX_NUMBER, MAX_MEMBERS + 1) + TOP.pack(1, 0)
    decided = decode_stamps(body + bounds_for(MAX_MEMBERS)).decisions[0]
    assert decided.stamp == (MAX_NUMBER - 1, 1)
    assert decided.bounds is not None
    assert (decided.bounds.number, len(decided.bounds.listed)) == (MAX_NUMBER, MAX_MEMBERS)
    end = dict.fromkeys(("view", "clock", "highest", "sent", "decided"), MAX_NUMBER)
    assert decode_stamps(head(**end)).decided == MAX_NUMBER


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_allocated_that_the_body_does_not_hold(name: str) -> None:
    assert peak_bytes(decode_stamps, HOSTILE[name]) <= 40 * len(HOSTILE[name]) + 20_000
