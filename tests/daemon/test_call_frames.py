"""Frames of locks and calls, and what daemons do with those that no client sends (docs/protocol-client.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.houses import DaemonHouse
from tests.daemon.test_hostile_clients import JOIN, RawClient
from tests.network.quick import within

from ordercast import AGREED, View
from ordercast.errors import WireError
from ordercast.wire.call_frames import (
    OWED,
    CallEnd,
    CallOutcome,
    Grant,
    GrantOutcome,
    LockAsk,
    decode_answered,
    decode_grant,
    decode_lock,
    decode_unlock,
    encode_answered,
    encode_grant,
    encode_lock,
    encode_unlock,
)
from ordercast.wire.calls import IS_ANSWER, NO_HANDLER, CallHead, open_call, pack_call
from ordercast.wire.client_frames import ClientHello, encode_hello, encode_send
from ordercast.wire.daemon_frames import DeliveryReader, ViewReader, decode_welcome_frame
from ordercast.wire.endings import SessionEnd
from ordercast.wire.frames import MAX_DAEMON_FRAME, PREFIX_BYTES, FrameKind

ALL: list[tuple[bytes, Callable[[bytes], object], object, str]] = [
    (
        encode_lock(LockAsk(7, 3, True, "disk")),
        decode_lock,
        LockAsk(7, 3, True, "disk"),
        "100000000b 07000000 03000000 01 04006469736b",
    ),
    (encode_unlock(7), decode_unlock, 7, "050000000c 07000000"),
    (
        encode_grant(Grant(7, GrantOutcome.DENIED, 0, "d/1")),
        decode_grant,
        Grant(7, GrantOutcome.DENIED, 0, "d/1"),
        "1300000050 07000000 02 0000000000000000 0300642f31",
    ),
    (
        encode_answered(CallEnd(9, CallOutcome.ANSWERED, "", b"yes")),
        decode_answered,
        CallEnd(9, CallOutcome.ANSWERED, "", b"yes"),
        "0f00000051 0900000000000000 00 0000 796573",
    ),
]


@pytest.mark.parametrize(("data", "decode", "value", "golden"), ALL)
def test_frames_of_locks_and_calls_have_golden_bytes(
    data: bytes, decode: Callable[[bytes], object], value: object, golden: str
) -> None:
    assert data.hex() == golden.replace(" ", "")
    assert decode(data[PREFIX_BYTES:]) == value


@given(st.integers(0, len(ALL) - 1), st.integers(0, 1 << 32), st.integers(0, 4), st.binary(max_size=60))
def test_mutated_frames_and_random_bytes_are_read_or_refused(which: int, seed: int, changes: int, other: bytes) -> None:
    rng = Random(seed)
    data, decode, _, _ = ALL[which]
    body = bytearray(data[PREFIX_BYTES:])
    for _ in range(changes):
        body[rng.randrange(len(body))] = rng.randrange(256)
    for each in (bytes(body), bytes(body[: rng.randrange(len(body))]), other):
        with contextlib.suppress(WireError):
            decode(each)


def call(first: int, *, handler: int = 2, flags: int = 0, asked: int = 0, asked_by: str = "") -> bytes:
    head = CallHead(0, flags, handler, "anybody", ("", 0), 0, asked, asked_by)
    return encode_send(pack_call(first, AGREED, head, b"?", 0, 1))


WRONG = {
    "a lock of a group without a name": encode_lock(LockAsk(1, 9, False, "disk")),
    "a lock without a name": JOIN + encode_lock(LockAsk(1, 1, False, "")),
    "a lock with a name that is too long": JOIN + encode_lock(LockAsk(1, 1, False, "x" * 300)),
    "two locks of one id": JOIN + encode_lock(LockAsk(1, 1, False, "a")) + encode_lock(LockAsk(1, 1, False, "b")),
    "too many locks": JOIN + b"".join([encode_lock(LockAsk(n, 1, False, f"k{n}")) for n in range(1, 4_098)]),
    "a call without a handler": JOIN + call(0, handler=NO_HANDLER),
    "a call with a handler that there is none of": JOIN + call(0, handler=9),
    "a call with a number out of step": JOIN + call(5),
}


@pytest.mark.parametrize("what", WRONG)
@within(60)
async def test_requests_that_no_client_makes_end_its_session_only(tmp_path: Path, what: str) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("watcher") as watcher:
        group = await watcher.join("prices")
        raw = await RawClient.greeted(house)
        raw.send(WRONG[what])
        why, text = await raw.closed()
        assert why == SessionEnd.PROTOCOL
        assert text
        while len(house.hub.seats) > 1 or house.hub.seats.is_closing:
            await asyncio.sleep(0.01)
        async with group.lock("disk", timeout=5):
            await group.send(b"still here", confirm=True)


@within(60)
async def test_an_answer_that_nobody_is_owed_ends_the_connection_and_the_client_may_come_back(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        raw = await RawClient.greeted(house)
        raw.send(JOIN + call(0, handler=NO_HANDLER, flags=IS_ANSWER, asked=3, asked_by="bob@d/1"))
        why, text = await raw.closed()
        assert why == SessionEnd.LOST
        assert "owes no answer" in text


@within(60)
async def test_a_client_of_version_1_sees_calls_as_messages_and_has_no_locks(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        group = await alice.join("prices")
        raw = await RawClient.open(house)
        raw.send(encode_hello(ClientHello(1, "old", b"", MAX_DAEMON_FRAME)))
        welcome = decode_welcome_frame(await raw.until(FrameKind.WELCOME))
        assert (welcome.version, welcome.has_locks) == (1, False)
        raw.send(JOIN)
        await raw.until(FrameKind.VIEW)
        while len(group.members) < 2:
            await group.receive()
        async with group.handler(2):
            await group.request(b"what?", handler=2)
            delivered = DeliveryReader().read(await raw.until(FrameKind.DELIVER))
            with pytest.raises(WireError, match="not a call"):
                open_call(delivered.block)
        raw.close()


@within(60)
async def test_a_client_in_another_language_serves_a_handler_by_the_document(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        group = await alice.join("prices")
        raw = await RawClient.open(house)
        raw.send(encode_hello(ClientHello(2, "raw", b"", 1 << 20)))
        welcome = decode_welcome_frame(await raw.until(FrameKind.WELCOME))
        assert welcome.has_locks
        raw.send(JOIN + encode_lock(LockAsk(1, 1, False, "2")))
        grant = decode_grant(await raw.until(FrameKind.GRANT))
        assert (grant.id, grant.outcome) == (1, GrantOutcome.HELD)
        assert grant.token
        reader = ViewReader()
        view = reader.read(await raw.until(FrameKind.VIEW))
        while view.lock != "2":
            view = reader.read(await raw.until(FrameKind.VIEW))
        assert isinstance(view, View)
        assert view.tokens == {"2": grant.token}
        asking = asyncio.create_task(group.call(b"what?", handler=2))
        delivered = DeliveryReader().read(await raw.until(FrameKind.DELIVER))
        head, payload = open_call(delivered.block)
        assert (head.flags, head.handler, payload) == (OWED, 2, b"what?")
        assert delivered.sender == str(group.member)
        number = welcome.next_number
        raw.send(call(number, handler=NO_HANDLER, flags=IS_ANSWER, asked=0, asked_by=delivered.sender))
        assert await asking == b"?"
        raw.send(encode_unlock(1))
        while group.locks:
            await group.receive()
        raw.close()
