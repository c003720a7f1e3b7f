"""The courier on wires that lose, repeat and reorder: everything arrives once, and both ends come to rest."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.couriers import TIMING, Post, parcel, sent_over

from ordercast.config import MS, SECOND
from ordercast.errors import WireError
from ordercast.parts.courier import Courier, CourierTerms
from ordercast.wire.courier import (
    MAX_WINDOW,
    CourierAck,
    Parcel,
    ParcelPart,
    decode_courier_ack,
    encode_courier_ack,
    open_part,
)
from ordercast.wire.header import HEADER, HEADER_BYTES
from ordercast.wire.segments import Datagram

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FAULTS_NS = 3 * SECOND  # after so long nothing is lost any more: before a peer is given up

terms = st.builds(
    CourierTerms,
    bytes_per_s=st.sampled_from((50_000, 4_000_000)),
    burst_bytes=st.sampled_from((500, 65_536)),
    window=st.sampled_from((1, 4, 256)),
    last_seq=st.sampled_from((256, 300, 1 << 31)),
)
# who sends to whom, how many bytes, and whether it is urgent
letters = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 2), st.sampled_from((0, 40, 3_000, 9_000)), st.booleans()), max_size=40
)


@SETTINGS
@given(
    terms=terms,
    letters=letters,
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from((0.0, 0.05, 0.3)),
    twice=st.sampled_from((0.0, 0.3)),
    jitter_ns=st.sampled_from((0, 3 * MS, 40 * MS)),
)
def test_everything_arrives_once_and_both_ends_come_to_rest(
    terms: CourierTerms,
    letters: list[tuple[int, int, int, bool]],
    seed: int,
    loss: float,
    twice: float,
    jitter_ns: int,
) -> None:
    post = Post(range(3), terms, seed, loss, twice, jitter_ns)
    sent: dict[int, list[tuple[int, Parcel]]] = {0: [], 1: [], 2: []}
    for number, (source, step, size, is_urgent) in enumerate(letters):
        to = (source + step) % 3
        one = parcel(number, size)
        assert post.send(source, to, one, is_urgent=is_urgent) == [True]
        sent[to].append((source, one))
        post.run(post.now_ns + 20 * MS)
    post.run(FAULTS_NS)
    post.loss = 0.0
    post.run()
    assert not post.given_up
    assert post.is_at_rest()
    for node, expected in sent.items():
        assert sorted(post.got[node]) == sorted(expected)
        assert all(each.strange == 0 or twice or jitter_ns for each in post.couriers.values())


PARCELS = st.builds(
    Parcel,
    kind=st.integers(0, 255),
    ring=st.integers(0, (1 << 64) - 1),
    origin=st.integers(0, (1 << 64) - 1),
    number=st.integers(0, (1 << 64) - 1),
    body=st.binary(min_size=1, max_size=40),
    segment=st.just(0),
    last=st.just(0),
)


@given(one=PARCELS, seq=st.integers(1, 1 << 30), data=st.data())
@settings(deadline=None)
def test_a_part_is_read_as_it_was_written(one: Parcel, seq: int, data: st.DataObject) -> None:
    last = data.draw(st.integers(0, 255))
    part = data.draw(st.integers(0, min(last, seq - 1)))
    behind = data.draw(st.integers(0, min(seq, MAX_WINDOW) - 1))
    whole = ParcelPart(1, 2, 3, seq, behind, part, last, one._replace(kind=9))
    assert sent_over(whole) == whole


@given(received=st.integers(0, 1 << 30), mask=st.sets(st.integers(1, MAX_WINDOW - 1)), asked_by=st.integers(1, 1_000))
@settings(deadline=None)
def test_an_acknowledgement_is_read_as_it_was_written(received: int, mask: set[int], asked_by: int) -> None:
    ack = CourierAck(1, 2, 3, received, asked_by, sum(1 << at for at in mask))
    assert decode_courier_ack(encode_courier_ack(ack)) == ack


@given(data=st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    courier = Courier(2, TIMING)
    with contextlib.suppress(WireError):
        courier.on_ack(0, decode_courier_ack(data))
    if len(data) <= HEADER_BYTES:
        return
    _, kind, segment, last, _, ring, origin, number = HEADER.unpack_from(data)
    try:
        part = open_part(Datagram(kind, segment, last, ring, origin, number, memoryview(data)[HEADER_BYTES:]))
    except WireError:
        return
    courier.on_part(part._replace(to=2))
    courier.step(0)


@given(
    acks=st.lists(
        st.builds(
            CourierAck,
            sender=st.just(2),
            to=st.just(1),
            connection=st.integers(0, 2),
            received=st.integers(0, 12),
            asked_by=st.integers(1, 12),
            mask=st.integers(0, 64).map(lambda value: value * 2),
        ),
        max_size=20,
    )
)
@settings(deadline=None)
def test_acknowledgements_of_anything_break_nothing(acks: list[CourierAck]) -> None:
    """A peer that lies about what it has loses parcels, and nothing else happens."""
    courier = Courier(1, TIMING)
    for number in range(8):
        courier.post(2, parcel(number))
    courier.step(0)
    for at, ack in enumerate(acks):
        courier.on_ack(at * MS, ack)
        courier.step(at * MS)
    for turn in range(200):
        if courier.is_at_rest:
            break
        courier.step(max(turn, courier.deadline_ns()))
    assert courier.is_at_rest
