"""Several daemons: one order, partition, merge and a daemon that dies, as clients of Spread see them. Point 16."""

from __future__ import annotations

import asyncio

from tests.daemon.spread_bytes import AGREED, SAFE, big
from tests.daemon.spread_house import Frame, RawClient, SpreadHouse, membership
from tests.network.quick import within

from ordercast import Message, Node, View
from ordercast.config import SITES_UNDERLAY

LIMIT_S = 120.0


async def meet(*clients: RawClient, group: bytes = b"g") -> list[Frame]:
    """All clients in one group; the view of each that has all of them."""
    for client in clients:
        client.join(group)
    return [await client.members(len(clients)) for client in clients]


@within(LIMIT_S)
async def test_clients_of_three_daemons_have_one_order_and_the_same_views() -> None:
    async with SpreadHouse("d1", "d2", "d3") as house:
        clients = [await house.connect(b"c%d" % number, f"d{number % 3 + 1}") for number in range(6)]
        frames = await meet(*clients)
        assert len(set(frames)) == 1
        # Daemons in the order of the configuration, then names by bytes.
        assert frames[0].groups == (b"#c0#d1", b"#c3#d1", b"#c1#d2", b"#c4#d2", b"#c2#d3", b"#c5#d3")
        for turn in range(30):
            for client in clients:
                client.cast([b"g"], b"%b %d" % (client.me, turn), SAFE if turn % 7 == 0 else AGREED)
        orders = await asyncio.gather(*[client.frames(180) for client in clients])
        assert all(order == orders[0] for order in orders)
        for client in clients:
            mine = [frame.body for frame in orders[0] if frame.name == client.me]
            assert mine == [b"%b %d" % (client.me, turn) for turn in range(30)]


@within(LIMIT_S)
async def test_private_messages_and_big_endian_senders_cross_daemons() -> None:
    async with SpreadHouse("d1", "d2") as house:
        alice, bob = await house.connect(b"alice", "d1"), await house.connect(b"bob", "d2")
        await meet(alice, bob)
        alice.send(big(AGREED, alice.me, [b"#bob#d2", b"#bob#d2"], b"twice named", 0x1234))
        groups, hint = (b"#bob#d2", b"#bob#d2"), bytes.fromhex("00123400")
        assert await bob.frame() == Frame(AGREED, b"#alice#d1", groups, hint, b"twice named")
        await alice.quiet()
        await bob.quiet()


@within(LIMIT_S)
async def test_a_partition_is_signalled_and_a_merge_names_who_came_together() -> None:
    """Sections 6.2 and 6.4: vs_sets, offsets, ids."""
    async with SpreadHouse("d1", "d2") as house:
        a1, a2 = await house.connect(b"a1", "d1"), await house.connect(b"a2", "d1")
        b1 = await house.connect(b"b1", "d2")
        only = await house.connect(b"only", "d1")
        frames = await meet(a1, a2, b1)
        untouched = membership(await only.enter(b"local"))[0]
        whole = membership(frames[0])[0]

        house.cut(["d1"], ["d2"])
        parted: dict[RawClient, bytes] = {}
        for client, rest in ((a1, (a1, a2)), (a2, (a1, a2)), (b1, (b1,))):
            signal, view = (await client.until(0x1800))[-2:]
            assert (signal.type, signal.name, signal.groups, signal.body) == (0x2000, b"g", (), whole)
            assert view.groups == tuple(each.me for each in rest)
            parted[client], offset, sets, own = membership(view)
            assert (offset, sets, own) == (0, [[each.me for each in rest]], 0)
        assert parted[a1] == parted[a2]
        assert len({whole, parted[a1], parted[b1]}) == 3

        a1.cast([b"g"], b"in the first part")
        b1.cast([b"g"], b"in the second part")
        assert [(await client.frame()).body for client in (a1, a2)] == [b"in the first part"] * 2
        assert (await b1.frame()).body == b"in the second part"

        house.cut()
        merged = {client: (await client.until(0x1800))[-1] for client in (a1, a2, b1)}
        ids = set()
        for client, view in merged.items():
            assert view.groups == (a1.me, a2.me, b1.me)
            group_id, offset, sets, own = membership(view)
            ids.add(group_id)
            assert sets == [[a1.me, a2.me], [b1.me]]
            assert offset == (4 + 2 * 32 if client is b1 else 0)
            assert sets[own] == ([b1.me] if client is b1 else [a1.me, a2.me])
        assert len(ids) == 1
        assert ids.isdisjoint({whole, *parted.values()})
        b1.cast([b"g"], b"together")
        assert [(await client.frame()).body for client in (a1, a2, b1)] == [b"together"] * 3

        # A group that the network has not touched keeps its id, and its members hear nothing.
        await only.quiet()
        other = await house.connect(b"other", "d2")
        other.join(b"local")
        assert (await only.frame()).type == 0x1100
        assert untouched != whole


@within(LIMIT_S)
async def test_a_daemon_that_dies_takes_its_clients_with_it() -> None:
    async with SpreadHouse("d1", "d2") as house:
        alice, bob = await house.connect(b"alice", "d1"), await house.connect(b"bob", "d2")
        old = await house.connect(b"old", "d1", version=(3, 17, 4))
        await meet(alice, bob, old)
        house.daemons["d2"].node.abort()
        house.daemons["d2"].listener.close()
        assert await bob.closed() == b""
        for client in (alice, old):
            signal, view = (await client.until(0x1800))[-2:]
            assert signal.type == 0x2000
            assert view.groups == (alice.me, old.me)
        assert len(view.body) == 12 + 4 + 2 * 32  # a library before 4.0 gets its own set
        await house.start("d2")
        await house.together()
        back = await house.connect(b"bob", "d2")
        back.join(b"g")
        seen = await alice.members(3)
        assert seen.groups == (alice.me, old.me, back.me)


@within(LIMIT_S)
async def test_a_program_with_the_native_api_is_in_the_same_group() -> None:
    """It is a member as any other: the same messages and views, in the same order."""
    async with SpreadHouse("d1", "d2") as house:
        alice = await house.connect(b"alice", "d1")
        await alice.enter(b"g")
        node: Node = house.daemons["d2"].node
        group = await node.join("g", underlay=SITES_UNDERLAY)
        both = await alice.members(2)
        assert both.groups == (b"#alice#d1", b"#!node#d2")
        alice.cast([b"g"], b"from Spread", AGREED, 7)
        await group.send(b"from the API", type=9)
        seen = [(frame.name, frame.body, frame.hint) for frame in await alice.frames(2)]
        assert sorted(seen) == [
            (b"#!node#d2", b"from the API", bytes.fromhex("80090080")),
            (b"#alice#d1", b"from Spread", bytes.fromhex("80070080")),
        ]
        found: list[tuple[str, bytes, int]] = []
        async for event in group:
            if isinstance(event, View):
                assert [member.label for member in event.members] in (["alice", ""], ["", "alice"])
            if isinstance(event, Message):
                found.append((event.sender, event.payload, event.type))
                if len(found) == 2:
                    break
        assert [payload for _, payload, _ in found] == [body for _, body, _ in seen]
        assert {(sender.partition("/")[0], type_) for sender, _, type_ in found} == {("alice@d1", 7), ("d2", 9)}
