"""Connecting to a real daemon by Spread's protocol: points 1, 2, 3 and 17 of the checklist (section 13)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.daemon.spread_bytes import AGREED, JOIN, KILL, NULL_CHOICE, field, hello, little
from tests.daemon.spread_house import SpreadHouse
from tests.network.quick import within

from ordercast import UsageError
from ordercast.daemon.listener import Listener
from ordercast.daemon.spread.access import AccessList, AuthRules, parse_access
from ordercast.daemon.spread.settings import SpreadSettings

LIMIT_S = 60.0


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ((5, 0, 1), "01050001"),
        ((4, 4, 0), "01050001"),
        ((3, 17, 4), "01050001"),
        ((3, 15, 0), "01050001"),
        ((3, 12), "010500"),
    ],
)
@within(LIMIT_S)
async def test_every_library_is_accepted_in_its_own_shape(version: tuple[int, ...], accepted: str) -> None:
    """Point 1."""
    async with SpreadHouse() as house:
        client = await house.dial()
        client.send(hello(b"alice", version))
        if version >= (3, 16):
            assert await client.read(6) == b"\x05NULL "
            client.send(NULL_CHOICE)
        expected = bytes.fromhex(accepted) + b"\x0e#alice#lochost"
        assert await client.read(len(expected)) == expected
        client.me = b"#alice#lochost"
        await client.quiet()


@within(LIMIT_S)
async def test_a_client_without_a_name_gets_one() -> None:
    async with SpreadHouse() as house:
        clients = [await house.connect(b"") for _ in range(3)]
        names = {client.me for client in clients}
        assert len(names) == 3
        for name in names:
            assert name.startswith(b"#r")
            assert name.endswith(b"#lochost")
        await clients[0].quiet()


REFUSED = [
    (hello(b"alice", (3, 0)), b"\xf9"),
    (hello(b"eleven-long"), b"\xfb"),
    (hello(b"a b"), b"\xfb"),
    (hello(b"taken"), b"\xfa"),
    (hello(b"alice") + b"PWORD".ljust(90, b"\0"), b"\x05NULL \xf7"),
    (hello(b"alice") + bytes(90), b"\x05NULL \xf7"),
]


@pytest.mark.parametrize(("data", "answer"), REFUSED)
@within(LIMIT_S)
async def test_whoever_is_refused_gets_its_code_and_the_end(data: bytes, answer: bytes) -> None:
    """Point 2; QUOTA has a test of its own."""
    async with SpreadHouse() as house:
        await house.connect(b"taken")
        client = await house.dial()
        client.send(data)
        assert await client.closed() == answer
        assert (await house.connect(b"other")).me == b"#other#lochost"


@within(LIMIT_S)
async def test_a_full_daemon_says_so_before_it_reads_anything() -> None:
    async with SpreadHouse(settings=SpreadSettings(max_sessions=2)) as house:
        first, _ = await house.connect(b"a"), await house.connect(b"b")
        third = await house.dial()
        assert await third.closed() == b"\xfd"
        third.drop()
        first.disconnect()
        await first.closed()
        while house.daemon.listener.desk.is_full:
            await asyncio.sleep(0)  # the daemon shares this loop
        assert (await house.connect(b"c")).me == b"#c#lochost"


@within(LIMIT_S)
async def test_a_name_is_taken_while_its_client_still_authenticates() -> None:
    async with SpreadHouse() as house:
        first = await house.dial()
        first.send(hello(b"alice"))
        assert await first.read(6) == b"\x05NULL "
        second = await house.dial()
        second.send(hello(b"alice"))
        assert await second.closed() == b"\xfa"
        first.drop()
        while house.daemon.listener.desk.visitors:
            await asyncio.sleep(0)
        assert (await house.connect(b"alice")).me == b"#alice#lochost"


@within(LIMIT_S)
async def test_a_name_is_free_again_after_a_disconnect() -> None:
    """Section 3.6: also where the groups of the last session are still being left."""
    async with SpreadHouse() as house:
        for _ in range(5):
            alice = await house.connect(b"alice")
            await alice.enter(b"g")
            alice.disconnect()


@within(LIMIT_S)
async def test_a_silent_client_is_closed_without_a_byte_and_delays_nobody() -> None:
    async with SpreadHouse(settings=SpreadSettings(hello_s=0.3)) as house:
        silent, partial = await house.dial(), await house.dial()
        partial.send(b"\x05\0\x01\x01\x05al")
        assert (await house.connect(b"alice")).me == b"#alice#lochost"
        assert await silent.closed() == b""
        assert await partial.closed() == b"\xfb"


@within(LIMIT_S)
async def test_the_address_list_decides_where_ip_is_required() -> None:
    """Section 9."""
    nobody = SpreadSettings(auth=AuthRules(("IP",)), access=AccessList())
    async with SpreadHouse(settings=nobody) as house:
        client = await house.dial()
        client.send(hello(b"alice") + b"IP".ljust(90, b"\0"))
        assert await client.closed() == b"\x03IP \xf7"
    local = SpreadSettings(auth=AuthRules(("NULL",), ("IP",)), access=parse_access("local", "list"))
    async with SpreadHouse(settings=local) as house:
        client = await house.dial()
        client.send(hello(b"alice") + NULL_CHOICE)
        assert (await client.read(9)) == b"\x08NULL IP "
        assert (await client.read(1)) == b"\x01"


@within(LIMIT_S)
async def test_input_is_split_at_every_byte() -> None:
    """Point 3: one byte at a time, each in a segment of its own as far as TCP allows."""
    async with SpreadHouse() as house:
        client = await house.dial()
        me = b"#alice#lochost"
        data = (
            hello(b"alice")
            + NULL_CHOICE
            + little(JOIN, me, [b"g"])
            + little(AGREED, me, [b"g"], b"whole", 3)
            + little(KILL, me, [me])
        )
        for byte in data:
            client.send(bytes((byte,)))
            await asyncio.sleep(0)
        found = await client.closed()
        assert found.startswith(b"\x05NULL \x01\x05\x00\x01\x0e" + me)
        assert found.endswith(little(AGREED, me, [b"g"], b"whole", 3))
        assert len(found) == 6 + 5 + len(me) + (48 + 32 + 56) + (48 + 32 + 5)


@pytest.mark.parametrize("cut", [1, 4, 5, 9, 10, 11, 50, 99, 100, 101, 147, 148, 180])
@within(LIMIT_S)
async def test_input_is_cut_anywhere(cut: int) -> None:
    """Point 3: in two segments."""
    async with SpreadHouse() as house:
        client = await house.dial()
        me = b"#alice#lochost"
        data = hello(b"alice") + NULL_CHOICE + little(JOIN, me, [b"g"])
        client.send(data[:cut])
        await client.writer.drain()
        await asyncio.sleep(0)
        client.send(data[cut:])
        assert await client.read(11 + len(me)) == b"\x05NULL \x01\x05\x00\x01\x0e" + me
        assert (await client.read(48))[4:36] == field(b"g")


@within(LIMIT_S)
async def test_the_unix_socket_speaks_the_same_bytes(tmp_path: Path) -> None:
    """Point 17: beside TCP, in one group."""
    async with SpreadHouse(folder=tmp_path) as house:
        path = tmp_path / str(house.daemon.port)
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o666
        alice, bob = await house.connect(b"alice", unix=True), await house.connect(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        assert (await alice.frame()).groups == (alice.me, bob.me)
        alice.cast([b"g"], b"over unix")
        bob.cast([b"g"], b"over tcp")
        assert await alice.frames(2) == await bob.frames(2)
    assert not path.exists()


@within(LIMIT_S)
async def test_a_stale_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    """Section 2."""
    async with SpreadHouse(folder=tmp_path) as house:
        listener, port = house.daemon.listener, house.daemon.port
        with pytest.raises(UsageError, match="another daemon takes clients at"):
            await listener.listen_unix(port, tmp_path)
        stale = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, str(tmp_path / "4803"))
        stale.close()  # the file stays
        assert (tmp_path / "4803").exists()
        await listener.listen_unix(4803, tmp_path)
        (tmp_path / "4804").write_text("no socket")
        with pytest.raises(UsageError, match="is a file and no socket"):
            await listener.listen_unix(4804, tmp_path)
        with pytest.raises(UsageError, match="cannot be looked at"):
            await listener.listen_unix(4803, tmp_path / "4804")
        with pytest.raises(UsageError, match="clients of Spread cannot be taken at"):
            await listener.listen("127.0.0.1", port)


@within(LIMIT_S)
async def test_a_socket_of_somebody_else_that_is_gone_is_said_to_be_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /tmp, where only its owner removes a file."""

    def refuse(self: Path, missing_ok: bool = False) -> None:  # noqa: ARG001 - as `Path.unlink`
        raise PermissionError(1, "Operation not permitted")

    async with SpreadHouse() as house:
        for path in (tmp_path / "4803", tmp_path / "ours"):
            stale = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, str(path))
            stale.close()  # the file stays
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            with pytest.raises(UsageError, match="cannot be removed: Operation not permitted; remove it, or choose"):
                await house.daemon.listener.listen_unix(4803, tmp_path)
            with pytest.raises(UsageError, match="cannot be removed: Operation not permitted; remove it, or choose"):
                await Listener(house.daemon.hub).listen_unix(tmp_path / "ours")


@within(LIMIT_S)
async def test_clients_hear_the_end_of_the_daemon() -> None:
    """Section 8: TCP closes, and there is no good-bye."""
    async with SpreadHouse() as house:
        alice = await house.connect(b"alice")
        waiting = await house.dial()
        house.daemon.listener.close()
        house.daemon.hub.seats.stop("the daemon stops")
        assert await alice.closed() == b""
        assert await waiting.closed() == b""
