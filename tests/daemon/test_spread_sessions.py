"""The conformance checklist of Spread's client protocol (section 13), on raw bytes against a real daemon."""

from __future__ import annotations

from tests.daemon.spread_bytes import AGREED, field, little
from tests.daemon.spread_house import SpreadHouse, membership
from tests.network.quick import within


@within(20)
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


@within(20)
async def test_others_see_join_leave_and_disconnect_with_who_it_was() -> None:
    """Point 5, at the other members."""
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
        await bob.enter(b"g")
        await alice.frame()
        bob.disconnect()
        seen = await alice.frame()
        assert (seen.type, seen.groups) == (0x1400, (alice.me,))
        assert membership(seen)[2] == [[bob.me]]
        carol = await house.connect(b"carol")
        await carol.enter(b"g")
        await alice.frame()
        carol.reset()
        seen = await alice.frame()
        assert (seen.type, seen.groups) == (0x1400, (alice.me,))
        assert membership(seen)[2] == [[carol.me]]
