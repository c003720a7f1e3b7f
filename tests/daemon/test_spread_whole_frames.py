"""What the checklist of Spread's client protocol (section 13) says of whole frames, compared byte for byte.

`test_spread_sessions.py` and `test_spread_daemons.py` take frames apart; here they are written out, and clients do all
of their requests in the other byte order, under another's name, and with garbage in every field.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from tests.daemon.spread_bytes import AGREED, JOIN, KILL, LEAVE, LITTLE_PLAIN, big, field, little
from tests.daemon.spread_house import Frame, RawClient, SpreadHouse, membership
from tests.network.quick import within

from ordercast.daemon.spread.settings import SpreadSettings

LIMIT_S = 120.0
MOST_BYTES = 143_952
ID_BYTES = 12


def view(cause: int, group: bytes, members: list[bytes], id_: bytes, sets: list[list[bytes]], offset: int) -> bytes:
    """Section 6.2, a whole membership message."""
    body = id_ + pack("<II", len(sets), offset)
    for names in sets:
        body += pack("<I", len(names)) + b"".join(map(field, names))
    head = pack("<I", 0x1000 | cause | 0x8000_0080) + field(group) + pack("<i", len(members)) + LITTLE_PLAIN
    return head + pack("<i", len(body)) + b"".join(map(field, members)) + body


async def raw_view(client: RawClient, members: int, body_bytes: int) -> tuple[bytes, bytes]:
    """The next message, which is a view of so many members: all of it, and its id."""
    data = await client.read(48 + 32 * members + body_bytes)
    at = 48 + 32 * members
    return data, data[at : at + ID_BYTES]


def close(client: RawClient) -> None:
    client.writer.close()


@pytest.mark.parametrize("end", [RawClient.disconnect, close, RawClient.reset], ids=["kill", "eof", "rst"])
@within(LIMIT_S)
async def test_the_others_get_a_disconnect_byte_for_byte_however_it_came(end: Callable[[RawClient], None]) -> None:
    """Point 5: KILL, an end of the stream without it, and a reset."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await alice.enter(b"g")
        bob.join(b"g")
        for client in (alice, bob):
            data, id_ = await raw_view(client, 2, 56)
            assert data == view(0x100, b"g", [alice.me, bob.me], id_, [[bob.me]], 0)
        end(bob)
        data, id_ = await raw_view(alice, 1, 56)
        assert data == view(0x400, b"g", [alice.me], id_, [[bob.me]], 0)
        await alice.quiet()


@within(LIMIT_S)
async def test_a_leave_is_48_bytes_for_the_leaver_and_a_view_for_the_others() -> None:
    """Point 5."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        await alice.frame()
        bob.leave(b"g")
        assert await bob.read(48) == bytes.fromhex("80020080") + field(b"g") + bytes(4) + LITTLE_PLAIN + bytes(4)
        data, id_ = await raw_view(alice, 1, 56)
        assert data == view(0x200, b"g", [alice.me], id_, [[bob.me]], 0)
        await bob.quiet()


@within(LIMIT_S)
async def test_a_client_of_the_other_byte_order_makes_all_its_requests_so() -> None:
    """Points 4 and 5: joins, leaves and the end, too; what it gets is little-endian all the same."""
    async with SpreadHouse() as house:
        alice, java = await house.connect(b"alice"), await house.connect(b"java", version=(4, 4, 0))
        await alice.enter(b"g")
        java.send(big(JOIN, java.me, [b"g"]))
        for client in (alice, java):
            data, id_ = await raw_view(client, 2, 56)
            assert data == view(0x100, b"g", [alice.me, java.me], id_, [[java.me]], 0)
        java.send(big(AGREED, java.me, [b"g"], b"body", 0x1234))
        head = pack("<I", AGREED | 0x8000_0080) + field(java.me) + pack("<i", 1) + bytes.fromhex("00123400")
        for client in (alice, java):
            assert await client.read(48 + 32 + 4) == head + pack("<i", 4) + field(b"g") + b"body"
        java.send(big(LEAVE, java.me, [b"g"]))
        assert await java.read(48) == bytes.fromhex("80020080") + field(b"g") + bytes(4) + LITTLE_PLAIN + bytes(4)
        assert (await alice.frame()).type == 0x1200
        java.send(big(JOIN, java.me, [b"g"]))
        await alice.frame()
        await java.frame()
        java.send(big(KILL, java.me, [java.me]))
        assert await java.closed() == b""
        data, id_ = await raw_view(alice, 1, 56)
        assert data == view(0x400, b"g", [alice.me], id_, [[java.me]], 0)


@within(LIMIT_S)
async def test_the_limit_counts_names_and_body_together() -> None:
    """Points 8 and 11: 100 groups, and a body up to the last byte; one more ends the connection."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await bob.enter(b"g42")
        groups = [b"g%d" % number for number in range(100)]
        body = bytes(range(256)) * 600
        alice.cast(groups, body[: MOST_BYTES - 3_200])
        assert await bob.frame() == Frame(AGREED, alice.me, tuple(groups), LITTLE_PLAIN, body[: MOST_BYTES - 3_200])
        alice.cast([b"g42"], b"")
        assert await bob.read(80) == little(AGREED, alice.me, [b"g42"])
        alice.cast(groups, body[: MOST_BYTES - 3_199])
        assert await alice.closed() == b""
        await bob.quiet()


@pytest.mark.parametrize("type_", [JOIN, LEAVE, KILL], ids=["join", "leave", "kill"])
@within(LIMIT_S)
async def test_a_request_under_another_name_ends_the_connection_it_came_on(type_: int) -> None:
    """Point 12: also commands, and the other client has nothing of it."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        await alice.frame()
        alice.send(little(type_, bob.me, [b"h" if type_ == JOIN else bob.me if type_ == KILL else b"g"]))
        assert await alice.closed() == b""
        data, id_ = await raw_view(bob, 1, 56)
        assert data == view(0x400, b"g", [bob.me], id_, [[alice.me]], 0)
        await bob.quiet()


@within(LIMIT_S)
async def test_garbage_after_a_nul_is_ignored_in_joins_and_leaves() -> None:
    """Point 14: in the name of the client, and in that of the group."""
    async with SpreadHouse() as house:
        alice = await house.connect(b"alice")
        mine, group = (alice.me + b"\0").ljust(32, b"\xaa"), b"g\0".ljust(32, b"\xbb")
        for type_, answer in ((JOIN, 0x1100), (LEAVE, 0x0200)):
            alice.send(pack("<I", type_ | 0x8000_0080) + mine + pack("<i", 1) + LITTLE_PLAIN + bytes(4) + group)
            frame = await alice.frame()
            assert (frame.type, frame.name) == (answer, b"g")


@within(LIMIT_S)
async def test_a_thousand_messages_that_were_not_delivered_end_a_session() -> None:
    """Point 13: what the kicked client still gets is the beginning of the stream; a thousand or more are missing."""
    async with SpreadHouse(settings=SpreadSettings(grace_s=0)) as house:
        alice, deaf = await house.connect(b"alice"), await house.connect(b"deaf")
        await alice.enter(b"g")
        await deaf.enter(b"g")
        await alice.frame()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        seen: list[bytes] = []
        body, at = b"x" * 2_000, 0
        while True:
            for number in range(at, at + 50):
                alice.cast([b"g"], b"%06d" % number + body)
            at += 50
            frames: list[Frame] = []
            while len(frames) < 50 and (not frames or frames[-1].type == AGREED):
                frames.append(await alice.frame())
            seen += [frame.body for frame in frames if frame.type == AGREED]
            if frames[-1].type != AGREED:
                break
        assert frames[-1].type == 0x1400
        assert membership(frames[-1])[2] == [[deaf.me]]
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        rest, size = await deaf.closed(), 80 + 6 + len(body)
        got = [rest[start + 80 : start + size] for start in range(0, len(rest) - size + 1, size)]
        assert got == seen[: len(got)]
        assert len(seen) - len(got) >= 1_000


@within(LIMIT_S)
async def test_a_cut_and_a_merge_of_two_daemons_byte_for_byte() -> None:
    """Point 16: the signal has the id of the view that ends; then both parts have views, and the merge has offsets."""
    async with SpreadHouse("d1", "d2") as house:
        a1, b1, b2 = (
            await house.connect(b"a1", "d1"),
            await house.connect(b"b1", "d2"),
            await house.connect(b"b2", "d2"),
        )
        for client in (a1, b1, b2):
            client.join(b"g")
        (whole,) = {membership(await client.members(3))[0] for client in (a1, b1, b2)}
        house.cut(["d1"], ["d2"])
        for client, rest in ((a1, [a1.me]), (b1, [b1.me, b2.me]), (b2, [b1.me, b2.me])):
            signal = pack("<I", 0x2000 | 0x8000_0080) + field(b"g") + bytes(4) + LITTLE_PLAIN + pack("<i", 12) + whole
            assert await client.read(60) == signal
            data, id_ = await raw_view(client, len(rest), 24 + 32 * len(rest))
            assert data == view(0x800, b"g", rest, id_, [rest], 0)
            assert id_ != whole
        house.cut()
        ids = set()
        for client in (a1, b1, b2):
            data, id_ = await raw_view(client, 3, 20 + 2 * 4 + 3 * 32)
            sets, offset = [[a1.me], [b1.me, b2.me]], 0 if client is a1 else 36
            assert data == view(0x800, b"g", [a1.me, b1.me, b2.me], id_, sets, offset)
            ids.add(id_)
        assert len(ids) == 1
