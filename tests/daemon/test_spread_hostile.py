"""Random and mutated bytes against the codec of Spread's clients: a clean end of the connection, and bounded memory."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.daemon.spread_bytes import AGREED, JOIN, KILL, LEAVE, NULL_CHOICE, SELF_DISCARD, big, hello, little

from ordercast.daemon.spread.access import AuthRules
from ordercast.daemon.spread.frames import HEADER_BYTES, MAX_TOTAL, AnyRequest, FrameDecoder, SpreadCast
from ordercast.daemon.spread.handshake import Handshake, ShakePhase

ME = b"#alice#lochost"
PIECE = 4_096

RECORDING = b"".join(
    (
        little(JOIN, ME, [b"grpA"]),
        *[little(AGREED, ME, [b"grpA"], b"%04d" % i, i) for i in range(3)],
        *[little(AGREED | SELF_DISCARD, ME, [b"grpA", b"grpB"], b"x" * i) for i in range(3)],
        big(JOIN, ME, [b"grpB"]),
        *[big(AGREED, ME, [b"#bob#lochost"], b"y" * 50, 0x1234) for _ in range(3)],
        big(LEAVE, ME, [b"grpA"]),
        little(KILL, ME, [ME]),
    )
)


def feed(data: bytes, cuts: list[int]) -> tuple[list[AnyRequest], FrameDecoder]:
    """Give the bytes in pieces of these sizes, again and again."""
    decoder = FrameDecoder(ME)
    found: list[AnyRequest] = []
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)] if cuts else len(data)
        found += decoder.receive(data[at : at + size])
        assert decoder.buffered_bytes <= HEADER_BYTES + MAX_TOTAL + size
        at += size
        turn += 1
    return found, decoder


def bodies(requests: list[AnyRequest]) -> list[object]:
    found: list[object] = []
    for each in requests:
        found += [(*each[:3], body) for body in each.bodies] if isinstance(each, SpreadCast) else [each]
    return found


pieces = st.lists(st.integers(1, PIECE), max_size=5)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=2_000), pieces)
@example(bytes(48), [1])
def test_random_bytes_end_the_connection_at_most(data: bytes, cuts: list[int]) -> None:
    assert bodies(feed(data, cuts)[0]) == bodies(feed(data, [])[0])


@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(RECORDING) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(RECORDING)),
    pieces,
)
@example([(490, 3)], 492, [1])  # a second message like the first, but too long
def test_a_mutated_recording_is_read_alike_in_pieces_of_any_size(
    changes: list[tuple[int, int]], length: int, cuts: list[int]
) -> None:
    data = bytearray(RECORDING)
    for at, byte in changes:
        data[at] = byte
    whole, one = feed(bytes(data[:length]), [])
    parts, other = feed(bytes(data[:length]), cuts)
    assert bodies(whole) == bodies(parts)
    assert one.fault == other.fault
    assert one.is_over == other.is_over


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 47), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_header_never_makes_the_decoder_wait_for_more_than_the_limit(changes: list[tuple[int, int]]) -> None:
    header = bytearray(little(AGREED, ME, [], b""))
    for at, byte in changes:
        header[at] = byte
    decoder = FrameDecoder(ME)
    decoder.receive(bytes(header))
    for _ in range((HEADER_BYTES + MAX_TOTAL) // PIECE + 2):
        decoder.receive(bytes(PIECE))
        assert decoder.buffered_bytes <= HEADER_BYTES + MAX_TOTAL + PIECE


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200), pieces, st.booleans())
def test_a_random_hello_is_answered_or_refused(data: bytes, cuts: list[int], is_free: bool) -> None:
    def run(sizes: list[int]) -> tuple[bytes, ShakePhase]:
        handshake = Handshake(AuthRules(), False)
        sent, at, turn = b"", 0, 0
        while at < len(data):
            size = sizes[turn % len(sizes)] if sizes else len(data)
            sent += handshake.receive(data[at : at + size])
            if handshake.phase is ShakePhase.NAMING:
                sent += handshake.assign(ME) if is_free else b""
            at += size
            turn += 1
        return sent, handshake.phase

    assert run(cuts) == run([])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), max_size=3))
def test_a_mutated_handshake_is_accepted_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(hello(b"alice") + NULL_CHOICE)
    for at, byte in changes:
        data[at] = byte
    handshake = Handshake(AuthRules(), False)
    handshake.receive(bytes(data))
    if handshake.phase is ShakePhase.NAMING:
        handshake.assign(ME)
    handshake.end()
    assert handshake.phase in (ShakePhase.ACCEPTED, ShakePhase.REJECTED)
