"""Frames between daemons and clients: golden bytes, pieces, and bytes that no peer sends (docs/protocol-client.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast import AGREED, RESILIENT, SAFE
from ordercast.config import GroupConfig
from ordercast.engine import Failed, StallReason, Transitional
from ordercast.errors import WireError
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.client_frames import (
    ClientHello,
    GroupHandles,
    LeaveHandles,
    Question,
    WatchRange,
    decode_count,
    decode_hello,
    decode_join,
    decode_leave,
    decode_name,
    decode_query,
    decode_watch,
    encode_consumed,
    encode_hello,
    encode_join,
    encode_leave,
    encode_name,
    encode_ping,
    encode_query,
    encode_send,
    encode_watch,
)
from ordercast.wire.daemon_frames import (
    Confirmation,
    Credit,
    DeliveryReader,
    LeftNotice,
    QueryReply,
    Refusal,
    SendOutcome,
    StallNotice,
    UncertainNotice,
    ViewReader,
    ViewWriter,
    Welcome,
    decode_answer,
    decode_close,
    decode_confirm,
    decode_credit,
    decode_failed,
    decode_left,
    decode_refused,
    decode_resumed,
    decode_stalled,
    decode_transitional,
    decode_uncertain,
    decode_welcome_frame,
    delivery_names,
    encode_answer,
    encode_close,
    encode_confirm,
    encode_credit,
    encode_deliver,
    encode_failed,
    encode_left,
    encode_refused,
    encode_resumed,
    encode_stalled,
    encode_transitional,
    encode_uncertain,
    encode_welcome_frame,
)
from ordercast.wire.frames import MAX_CLIENT_FRAME, PREFIX_BYTES, FrameBuffer, FrameKind, frame

DAEMON = Member(node_id("d1", 7), "d1", 7, ("127.0.0.1", 4_803), 4_096)
VIEW = View(
    5,
    "d1/7",
    9,
    1,
    -1,
    44,
    (DAEMON.session("alice"), DAEMON),
    {},
    Reason.LEAVE,
    "bob@d1/7",
    b"session ended (lost)",
    came_with=("alice@d1/7",),
    group="prices",
    locks={"x": 3},
    tokens={"x": 4},
    components=(("d1/7",), ("d2/8", "d3/9")),
)
WELCOME = Welcome(1, "alice", DAEMON, "sites", GroupConfig(shared=True), 0b10011111, 7, 1 << 20, 59_000, bytes(16))
BLOCK = pack_run(7, AGREED, [b"a", b"b"], 3)

# Each frame, and what its body is read as.
CLIENT: list[tuple[bytes, Callable[[bytes], object], object]] = [
    (encode_hello(ClientHello(1, "alice", b"", 100)), decode_hello, ClientHello(1, "alice", b"", 100)),
    (encode_join([(1, "a"), (2, "b")], b"hi"), decode_join, GroupHandles(b"hi", ((1, "a"), (2, "b")))),
    (encode_name([(3, "c")]), decode_name, GroupHandles(b"", ((3, "c"),))),
    (encode_leave([1, 2], b"bye"), decode_leave, LeaveHandles(b"bye", (1, 2))),
    (encode_watch(WatchRange(3, 5, RESILIENT(2))), decode_watch, WatchRange(3, 5, RESILIENT(2))),
    (encode_watch(WatchRange(5, 5, None)), decode_watch, WatchRange(5, 5, None)),
    (encode_consumed(77), decode_count, 77),
    (encode_ping(3), decode_count, 3),
    (encode_query(Question(1, "members", "a")), decode_query, Question(1, "members", "a")),
]
CONFIRMED = Confirmation(3, 5, SAFE, SendOutcome.UNKNOWN, -1, "who knows")
STALLED = StallNotice(StallReason.NETWORK, ("d2/8",), 1.5, "waits", 1, 2)
SIGNAL = Transitional("1@d1/7", "a", ("d1/7",))
DAEMONS: list[tuple[bytes, Callable[[bytes], object], object]] = [
    (encode_welcome_frame(WELCOME), decode_welcome_frame, WELCOME),
    (encode_refused(Refusal.FULL, "full"), decode_refused, (3, "full")),
    (ViewWriter().frame(VIEW), lambda body: ViewReader().read(body), VIEW),
    (encode_transitional(SIGNAL), decode_transitional, SIGNAL),
    (encode_left(LeftNotice(True, False, "left", "a")), decode_left, LeftNotice(True, False, "left", "a")),
    (encode_uncertain(UncertainNotice(3, 4, "a", "")), decode_uncertain, UncertainNotice(3, 4, "a", "")),
    (encode_failed(Failed(("d1/7",), "gone")), decode_failed, Failed(("d1/7",), "gone")),
    (encode_stalled(STALLED), decode_stalled, STALLED),
    (encode_resumed(StallReason.JOIN, 2.5), decode_resumed, (StallReason.JOIN, 2.5)),
    (encode_credit(Credit(9, 8)), decode_credit, Credit(9, 8)),
    (encode_confirm(CONFIRMED), decode_confirm, CONFIRMED),
    (encode_answer(QueryReply(4, "{}")), decode_answer, QueryReply(4, "{}")),
    (encode_close("slow", "asleep"), decode_close, ("slow", "asleep")),
]  # fmt: skip
ALL = CLIENT + DAEMONS


def test_every_frame_is_read_as_it_was_written() -> None:
    for data, decode, value in ALL:
        assert decode(data[PREFIX_BYTES:]) == value


@pytest.mark.parametrize(
    ("data", "golden"),
    [
        (encode_hello(ClientHello(1, "al", b"", 256)), "11000000014f43444301000200616c000000010000"),
        (encode_join([(1, "a")], b"h"), "0f000000020100680100000001000000010061"),
        (encode_leave([1]), "0b000000030000 0100000001000000"),
        (encode_name([(2, "b")]), "0c000000040100000002000000010062"),
        (encode_send(b"block"), "0600000005626c6f636b"),
        (encode_watch(WatchRange(3, 5, SAFE)), "1300000006030000000000000005000000000000000700"),
        (encode_consumed(258), "09000000070201000000000000"),
        (encode_ping(1), "09000000080100000000000000"),
        (encode_query(Question(1, "s", "")), "0a000000090100000001007300 00"),
        (frame(FrameKind.BYE), "010000000a"),
        (encode_refused(Refusal.FULL, "no"), "060000004203 02006e6f"),
        (encode_credit(Credit(9, 8)), "110000004b09000000000000000800000000000000"),
        (
            encode_deliver(delivery_names("v", "s", {1: "g"}), 5, b"block"),
            "1f000000430f00 0500000000000000 010076 010073 0100 01000000 010067 626c6f636b",
        ),
        (encode_left(LeftNotice(False, True, "t", "g")), "0800000046020100670100 74"),
        (encode_close("slow", "x"), "0a0000004f0400736c6f77010078"),
    ],
)
def test_frames_have_golden_bytes(data: bytes, golden: str) -> None:
    """Others write clients by these: a change needs another version."""
    assert data.hex() == golden.replace(" ", "")


def test_a_delivery_is_a_block_as_it_travelled_and_names_are_read_once() -> None:
    names = delivery_names("5@d1/7", "alice@d1/7", {3: "prices", 4: "trades"})
    reader = DeliveryReader()
    for position in (44, 45):
        delivered = reader.read(encode_deliver(names, position, BLOCK)[PREFIX_BYTES:])
        assert delivered.position == position
        assert (delivered.view, delivered.sender) == ("5@d1/7", "alice@d1/7")
        assert delivered.groups == {3: "prices", 4: "trades"}
        assert delivered.block == BLOCK


def test_frames_come_whole_whatever_their_pieces() -> None:
    stream = b"".join([data for data, _, _ in ALL])
    whole = FrameBuffer(1 << 20).feed(stream)
    assert len(whole) == len(ALL)
    for size in (1, 2, 3, 7, 64, 1_000):
        buffer = FrameBuffer(1 << 20)
        found = []
        for at in range(0, len(stream), size):
            found += buffer.feed(stream[at : at + size])
        assert found == whole
        assert buffer.waiting_bytes == 0


def test_a_frame_that_is_too_long_or_empty_is_refused_by_its_length() -> None:
    for length in (0, MAX_CLIENT_FRAME + 1, 0xFFFFFFFF):
        buffer = FrameBuffer(MAX_CLIENT_FRAME)
        with pytest.raises(WireError, match="allowed"):
            buffer.feed(length.to_bytes(4, "little") + b"\x05")
    buffer = FrameBuffer(MAX_CLIENT_FRAME)
    assert buffer.feed(MAX_CLIENT_FRAME.to_bytes(4, "little") + b"\x05") == []
    assert buffer.waiting_bytes == PREFIX_BYTES


@given(st.binary(max_size=200))
def test_random_bodies_are_read_or_refused(body: bytes) -> None:
    for _, decode, _ in ALL:
        with contextlib.suppress(WireError):
            decode(body)
    with contextlib.suppress(WireError):
        DeliveryReader().read(body)


@given(st.integers(0, len(ALL) - 1), st.integers(0, 1 << 32), st.integers(1, 4))
def test_mutated_and_cut_frames_are_read_or_refused(which: int, seed: int, changes: int) -> None:
    rng = Random(seed)
    data, decode, _ = ALL[which]
    body = bytearray(data[PREFIX_BYTES:])
    for _ in range(changes):
        if not body:
            break
        at = rng.randrange(len(body))
        if rng.random() < 0.3:
            del body[at : at + rng.randrange(1, 9)]
        else:
            body[at] = rng.randrange(256)
    with contextlib.suppress(WireError):
        decode(bytes(body))


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_random_streams_are_cut_or_refused(pieces: list[bytes]) -> None:
    buffer = FrameBuffer(1_000)
    with contextlib.suppress(WireError):
        for piece in pieces:
            for _, body in buffer.feed(piece):
                assert len(body) < 1_000
            assert buffer.waiting_bytes <= 1_004
