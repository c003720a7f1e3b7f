"""Clients of Spread and native clients in one group: the same messages and views, in the same order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.daemon.spread_bytes import AGREED, FIFO, SAFE, SELF_DISCARD, big
from tests.daemon.spread_house import RawClient, SpreadHouse
from tests.network.quick import within

from ordercast import SAFE as SAFE_SERVICE
from ordercast import Group, Message, View, connect
from ordercast.daemon.spread.names import private_group, private_group_of

LIMIT_S = 120.0
TURNS = 40

Seen = list[tuple[str, object]]
"""Messages and members of views, in their order."""


async def native(group: Group, count: int) -> Seen:
    """What a native client sees, from the view of all on, up to so many messages."""
    found: Seen = []
    messages = 0
    while messages < count:
        event, _ = await group.receive()
        if isinstance(event, Message):
            messages += 1
            found.append(("message", (private_group_of(event.sender), event.payload)))
        elif isinstance(event, View):
            found.append(("view", {private_group(each.label, each.name) for each in event.members}))
    return found


async def spread(client: RawClient, count: int) -> Seen:
    found: Seen = []
    messages = 0
    while messages < count:
        frame = await client.frame()
        if frame.type & 0x3F:
            messages += 1
            found.append(("message", (frame.name, frame.body)))
        elif frame.type & 0x1000:
            found.append(("view", set(frame.groups)))
    return found


def from_all(seen: Seen, size: int) -> Seen:
    """From the view with everybody on."""
    start = next(at for at, (kind, what) in enumerate(seen) if kind == "view" and len(what) == size)  # type: ignore[arg-type]
    return seen[start:]


@within(LIMIT_S)
async def test_native_clients_and_clients_of_spread_see_one_order(tmp_path: Path) -> None:
    async with SpreadHouse("d1", "d2", "d3", folder=tmp_path) as house, AsyncExitStack() as stack:
        raw = [await house.connect(b"s%d" % number, f"d{number + 1}") for number in range(3)]
        nodes = [
            await stack.enter_async_context(await connect(f"unix:{tmp_path}/d{number + 1}.sock", name=f"n{number}"))
            for number in range(3)
        ]
        groups = [await node.join("g") for node in nodes]
        for client in raw:
            client.join(b"g")
        everybody = len(raw) + len(groups)
        while any(len(group.members) < everybody for group in groups):
            await asyncio.sleep(0.01)
        late = await house.connect(b"late", "d2")
        for turn in range(TURNS):
            for client in raw:
                client.cast([b"g"], b"%b %d" % (client.me, turn), SAFE if turn % 5 == 0 else AGREED)
            for group in groups:
                await group.send(b"%d" % turn, SAFE_SERVICE if turn % 7 == 0 else None)
            if turn == TURNS // 2:
                late.join(b"g")
            if turn == TURNS * 3 // 4:
                late.reset()
        total = TURNS * everybody
        found = await asyncio.gather(
            *[native(group, total) for group in groups], *[spread(client, total) for client in raw]
        )
        views = [[what for kind, what in from_all(seen, everybody) if kind == "view"] for seen in found]
        assert [len(what) for what in views[0]][:2] == [everybody, everybody + 1]  # type: ignore[arg-type]
        orders = [[each for each in seen if each[0] == "message"] for seen in found]
        assert all(order == orders[0] for order in orders)
        # Views stand at the same places among the messages; the last ones may come after the last message.
        whole = [from_all(seen, everybody) for seen in found]
        assert all(seen == whole[0] for seen in whole)


@within(LIMIT_S)
async def test_native_clients_see_payload_type_and_groups_of_every_kind_of_message(tmp_path: Path) -> None:
    async with SpreadHouse(folder=tmp_path) as house:
        alice = await house.connect(b"alice")
        async with await connect(f"unix:{tmp_path}/lochost.sock", name="bob") as bob:
            group = await bob.join("g")
            alice.cast([b"g"], b"plain", AGREED, 5)
            alice.send(big(FIFO, alice.me, [b"g"], b"big", 6))
            alice.cast([b"g"], b"discarded", AGREED | SELF_DISCARD, 7)
            alice.cast([b"g", b"h", b"g"], b"twice", AGREED, 8)
            found: list[tuple[bytes, int, tuple[str, ...], str]] = []
            while len(found) < 4:
                event, _ = await group.receive()
                if isinstance(event, Message):
                    found.append((event.payload, event.type, event.groups, event.sender.partition("/")[0]))
            assert found == [
                (b"plain", 5, ("g",), "alice@lochost"),
                (b"big", 6, ("g",), "alice@lochost"),
                (b"discarded", 7, ("g",), "alice@lochost"),
                (b"twice", 8, ("g", "h"), "alice@lochost"),
            ]
            await bob.send(b"private", groups=["#alice#lochost"], type=9)
            frame = await alice.frame()
            assert (frame.name, frame.groups, frame.hint, frame.body) == (
                b"#bob#lochost",
                (alice.me,),
                bytes.fromhex("80090080"),
                b"private",
            )
