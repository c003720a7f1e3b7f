"""The conformance checklist of Spread's client protocol (section 13), on raw bytes against a real daemon.

Points 1 to 3 and 17 are in `test_spread_connecting.py`, 13 in `test_spread_slow.py`, 16 in `test_spread_daemons.py`.
"""

from __future__ import annotations

from struct import pack, unpack

import pytest
from tests.daemon.spread_bytes import AGREED, FIFO, JOIN, KILL, SAFE, SELF_DISCARD, big, field, little
from tests.daemon.spread_house import Frame, RawClient, SpreadHouse, membership
from tests.network.quick import within

LIMIT_S = 60.0


async def pair(house: SpreadHouse, group: bytes = b"g") -> tuple[RawClient, RawClient]:
    """Two clients in one group, which have read everything so far."""
    alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
    await alice.enter(group)
    await bob.enter(group)
    await alice.frame()
    return alice, bob


@within(LIMIT_S)
async def test_a_client_joins_sends_leaves_and_disconnects() -> None:
    """Point 5: the bodies byte for byte."""
    async with SpreadHouse() as house:
        alice = await house.connect(b"alice")
        assert alice.me == b"#alice#lochost"
        alice.join(b"grpA")
        data = await alice.read(48 + 32 + 56)
        group_id = data[80:92]
        assert data == (
            bytes.fromhex("80110080") + field(b"grpA") + bytes.fromhex("01000000 80000080 38000000")
            + field(alice.me)
            + group_id + bytes.fromhex("01000000 00000000 01000000") + field(alice.me)
        )  # fmt: skip
        alice.cast([b"grpA"], b"hello", mess_type=0x1234)
        assert await alice.read(48 + 32 + 5) == little(AGREED, alice.me, [b"grpA"], b"hello", 0x1234)
        alice.leave(b"grpA")
        assert await alice.read(48) == (
            bytes.fromhex("80020080") + field(b"grpA") + bytes.fromhex("00000000 80000080 00000000")
        )
        alice.disconnect()
        assert await alice.closed() == b""


@within(LIMIT_S)
async def test_others_see_join_leave_and_disconnect_with_who_it_was() -> None:
    """Point 5, at the other members: a good-bye and a reset look alike."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        first = membership(await alice.enter(b"g"))[0]
        bob.join(b"g")
        seen, own = await alice.frame(), await bob.frame()
        assert seen == own
        assert (seen.type, seen.groups) == (0x1100, (alice.me, bob.me))
        second, offset, sets, _ = membership(seen)
        assert (offset, sets) == (0, [[bob.me]])
        bob.leave(b"g")
        assert (await bob.frame()).type == 0x0200
        seen = await alice.frame()
        assert (seen.type, seen.groups) == (0x1200, (alice.me,))
        third, offset, sets, _ = membership(seen)
        assert (offset, sets) == (0, [[bob.me]])
        assert len({first, second, third}) == 3
        for name, end in ((b"carol", RawClient.disconnect), (b"dave", RawClient.reset)):
            other = await house.connect(name)
            await other.enter(b"g")
            await alice.frame()
            end(other)
            seen = await alice.frame()
            assert (seen.type, seen.groups) == (0x1400, (alice.me,))
            assert membership(seen)[1:3] == (0, [[other.me]])


@within(LIMIT_S)
async def test_what_was_sent_before_a_disconnect_is_delivered() -> None:
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        bob.send(
            b"".join([little(AGREED, bob.me, [b"g"], b"%d" % number) for number in range(300)])
            + little(KILL, bob.me, [bob.me])
        )
        found = await alice.until(0x1400)
        assert [frame.body for frame in found[:-1]] == [b"%d" % number for number in range(300)]


@within(LIMIT_S)
async def test_senders_of_either_byte_order_reach_everybody_with_their_own_hint() -> None:
    """Point 4: the header is little-endian, the hint is copied."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        alice.send(little(AGREED, alice.me, [b"g"], b"little", 0x1234))
        bob.send(big(AGREED, bob.me, [b"g"], b"big", 0x1234))
        asyncs = bytearray(big(FIFO, bob.me, [b"g"], b"async"))
        asyncs[40:44] = bytes.fromhex("00341200")  # little-endian and without the marker
        bob.send(bytes(asyncs))
        for client in (alice, bob):
            found = {frame.body: frame for frame in await client.frames(3)}
            assert found[b"little"] == Frame(AGREED, alice.me, (b"g",), bytes.fromhex("80341280"), b"little")
            assert found[b"big"] == Frame(AGREED, bob.me, (b"g",), bytes.fromhex("00123400"), b"big")
            assert found[b"async"] == Frame(FIFO, bob.me, (b"g",), bytes.fromhex("00341200"), b"async")


@pytest.mark.parametrize("bit", [0x01, 0x02, 0x04, 0x08, 0x10, 0x20])
@within(LIMIT_S)
async def test_every_service_and_foreign_bit_comes_back(bit: int) -> None:
    """Sections 1 (rule 4) and 4.3: also where a message has several groups."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        for type_, groups in (
            (bit, [b"g"]),
            (bit | 0x4100_0000, [b"g"]),
            (bit, [b"g", alice.me]),
            (bit, [b"nobody", b"g"]),
        ):
            alice.cast(groups, b"x", type_)
            for client in (alice, bob):
                assert await client.frame() == Frame(type_, alice.me, tuple(groups), bytes.fromhex("80000080"), b"x")


@within(LIMIT_S)
async def test_without_the_membership_flag_there_is_data_and_nothing_else() -> None:
    """Point 6."""
    async with SpreadHouse() as house:
        quiet = await house.connect(b"quiet", flags=0)
        alice = await house.connect(b"alice")
        quiet.join(b"g")
        await quiet.quiet()  # its join is ordered before this
        assert (await alice.enter(b"g")).groups == (alice.me, quiet.me)
        alice.cast([b"g"], b"data")
        assert (await quiet.frame()).body == b"data"
        await alice.frame()
        alice.leave(b"g")
        await alice.frame()
        quiet.leave(b"g")
        await quiet.quiet()


@within(LIMIT_S)
async def test_joining_twice_and_leaving_what_one_is_not_in_is_silent() -> None:
    """Point 7. Names that no client may join are passed over."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        alice.join(b"g")
        alice.leave(b"nowhere")
        alice.leave(alice.me)
        for name in (b"", b"#x", b"a b", b"#alice#lochost", b"\xc3\xa9", b"tab\t"):
            alice.join(name)
        alice.send(little(JOIN | SELF_DISCARD, alice.me, [b"g", b"h"], b"ignored"))
        alice.send(little(JOIN, alice.me, []))
        await alice.quiet()
        await bob.quiet()


@within(LIMIT_S)
async def test_joins_and_leaves_follow_their_order() -> None:
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        turns = 5
        for _ in range(turns):
            alice.leave(b"g")
            alice.join(b"g")
            alice.cast([b"g"], b"in")
        kinds = [frame.type for frame in await alice.frames(3 * turns)]
        assert kinds == [0x0200, 0x1100, AGREED] * turns
        assert [frame.type for frame in await bob.frames(3 * turns)] == [0x1200, 0x1100, AGREED] * turns


@within(LIMIT_S)
async def test_several_groups_make_one_copy_with_the_whole_list() -> None:
    """Point 8: all names, their order, duplicates, and groups that nobody is in."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        await bob.enter(b"h")
        for groups in (
            [b"g", b"h"],
            [b"h", b"nobody", b"g", bob.me],
            [b"g", b"g"],
            [b"h", b"g", b"h", b"#no#body", b"g"],
            [b"", b"g", b"\xff\xfe"],
        ):
            alice.cast(groups, b"several")
            shown = tuple([b"" if group == b"\xff\xfe" else group for group in groups])
            for client in (alice, bob):
                frame = await client.frame()
                assert (frame.groups, frame.body) == (shown, b"several")
        await alice.quiet()
        await bob.quiet()


@within(LIMIT_S)
async def test_a_message_goes_to_a_hundred_groups() -> None:
    """Points 8 and 11: 100 groups reach their members once, 101 end the connection."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house, b"g7")
        await bob.enter(b"g99")
        groups = [b"g%d" % number for number in range(100)]
        alice.cast(groups, b"to all")
        for client in (alice, bob):
            assert await client.frame() == Frame(AGREED, alice.me, tuple(groups), bytes.fromhex("80000080"), b"to all")
        await bob.quiet()
        alice.cast([*groups, b"g100"], b"too many")
        assert await alice.closed() == b""
        assert (await bob.frame()).type == 0x1400


@within(LIMIT_S)
async def test_private_groups_reach_one_client_and_unknown_targets_nobody() -> None:
    """Point 9; and senders need not be members."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await bob.enter(b"g")
        alice.cast([bob.me], b"private", FIFO, 7)
        assert await bob.frame() == Frame(FIFO, alice.me, (bob.me,), bytes.fromhex("80070080"), b"private")
        alice.cast([b"#nobody#lochost"], b"lost")
        alice.cast([b"#bob#elsewhere"], b"lost")
        alice.cast([b"nowhere"], b"lost")
        alice.cast([], b"lost")
        alice.cast([b"g"], b"from outside")
        assert await bob.frame() == Frame(AGREED, alice.me, (b"g",), bytes.fromhex("80000080"), b"from outside")
        await alice.quiet()


@within(LIMIT_S)
async def test_self_discard_leaves_out_the_sender_alone() -> None:
    """Point 10: the others see the bit."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        for number in range(3):
            alice.cast([b"g"], b"%d" % number, AGREED | SELF_DISCARD)
        for number in range(3):
            frame = await bob.frame()
            assert (frame.type, frame.body) == (AGREED | SELF_DISCARD, b"%d" % number)
        await alice.quiet()


@within(LIMIT_S)
async def test_messages_of_every_size_pass_up_to_the_limit() -> None:
    """Point 11."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        for size in (0, 1, 1_400, 59_000, 60_000, 65_536, 143_119, 143_120, 143_952 - 32):
            body = bytes([size % 251]) * size
            alice.cast([b"g"], body)
            for client in (alice, bob):
                frame = await client.frame()
                assert (frame.groups, len(frame.body)) == ((b"g",), size)
                assert frame.body == body
        alice.cast([b"g"], bytes(143_952 - 31))
        assert await alice.closed() == b""
        seen = await bob.frame()
        assert (seen.type, membership(seen)[2]) == (0x1400, [[alice.me]])


@pytest.mark.parametrize("name", [b"#bob#lochost", b"#alice#other", b"alice", b"", b"#alice#lochostx"])
@within(LIMIT_S)
async def test_a_client_that_says_it_is_another_is_disconnected(name: bytes) -> None:
    """Point 12: others see a disconnect, and nothing of the message."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        alice.send(little(AGREED, name, [b"g"], b"spoofed"))
        assert await alice.closed() == b""
        seen = await bob.frame()
        assert (seen.type, membership(seen)[2]) == (0x1400, [[alice.me]])


@within(LIMIT_S)
async def test_garbage_after_a_nul_is_ignored() -> None:
    """Point 14: a client of C leaves what was on its stack there."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        mine = alice.me + b"\0" + b"\xde\xad\xbe\xef" * 4
        group = b"g\0" + b"\xfe" * 30
        assert len(group) == 32
        mine = mine[:32].ljust(32, b"\xaa")
        tail = bytes.fromhex("80000080") + pack("<i", 4)
        alice.send(pack("<I", AGREED | 0x80000080) + mine + pack("<i", 1) + tail + group + b"body")
        for client in (alice, bob):
            assert (await client.frame())[1:3] == (alice.me, (b"g",))
        alice.send(pack("<I", KILL | 0x80000080) + mine + pack("<i", 1) + bytes.fromhex("80000080 00000000") + mine)
        assert await alice.closed() == b""
        assert (await bob.frame()).type == 0x1400


@within(LIMIT_S)
async def test_the_flush_library_of_two_members_finds_what_it_needs() -> None:
    """Point 15: flush messages carry the id of the view; ids are equal at both members, hints and bits come back."""
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await alice.enter(b"g")
        bob.join(b"g")
        ids = [membership(await client.frame())[0] for client in (alice, bob)]
        assert ids[0] == ids[1]
        flush_ok, flush_received, vulnerable = 0x8000, 0x8001, 0x8002
        for client in (alice, bob):
            client.cast([b"g"], ids[0], FIFO, flush_ok)
        seen = {client: await client.frames(2) for client in (alice, bob)}
        for client in (alice, bob):
            assert {frame.name for frame in seen[client]} == {alice.me, bob.me}
            assert all(frame.hint == bytes.fromhex("80008080") and frame.body == ids[0] for frame in seen[client])
        for client in (alice, bob):
            client.cast([b"g"], ids[0], FIFO, flush_received)
        for client in (alice, bob):
            assert {frame.hint for frame in await client.frames(2)} == {bytes.fromhex("80018080")}
        body = b"payload" + pack("<h", 5) + ids[0]
        alice.cast([b"g"], body, SAFE, vulnerable)
        subgroup = b"to bob" + field(b"g")
        alice.cast([bob.me], subgroup, AGREED | 0x4000_0000, 9)
        found = await bob.frames(2)
        assert [(frame.type, frame.hint, frame.body) for frame in found] == [
            (SAFE, bytes.fromhex("80028080"), body),
            (AGREED | 0x4000_0000, bytes.fromhex("80090080"), subgroup),
        ]
        assert unpack("<h", found[0].hint[1:3])[0] == vulnerable - 0x1_0000


@within(LIMIT_S)
async def test_members_stand_in_the_order_of_their_names() -> None:
    """Section 6.2."""
    async with SpreadHouse() as house:
        names = [b"zoe", b"Bob", b"al", b"~x", b"$y"]
        clients = [await house.connect(name) for name in names]
        for client in clients:
            client.join(b"g")
        frames = [await client.members(len(names)) for client in clients]
        assert {frame.groups for frame in frames} == {tuple(sorted(b"#%b#lochost" % name for name in names))}


@within(LIMIT_S)
async def test_a_library_before_4_gets_the_short_body() -> None:
    """Section 6.7, beside a newer one in the same group."""
    async with SpreadHouse() as house:
        old = await house.connect(b"old", version=(3, 17, 4))
        new = await house.connect(b"new")
        frame = await old.enter(b"g")
        assert len(frame.body) == 48
        await new.enter(b"g")
        frame = await old.frame()
        assert frame.groups == (new.me, old.me)
        assert frame.body[12:] == pack("<i", 1) + field(new.me)
        new.disconnect()
        frame = await old.frame()
        assert (frame.type, frame.body[12:]) == (0x1400, pack("<i", 1) + field(new.me))


@within(LIMIT_S)
async def test_one_connection_is_first_in_first_out_over_groups_and_services() -> None:
    """Section 8."""
    async with SpreadHouse() as house:
        alice, bob = await pair(house)
        await bob.enter(b"h")
        sent = []
        for number in range(200):
            group, type_ = [b"g", b"h"][number % 2], [AGREED, SAFE, AGREED | SELF_DISCARD, AGREED][number % 4]
            alice.cast([group], b"%d" % number, type_)
            sent.append(b"%d" % number)
        assert [frame.body for frame in await bob.frames(200)] == sent
