"""Clients that send what no client sends, or nothing, or do not receive: a disconnect, and the daemon lives.

docs/protocol-client.md says what a daemon answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.daemon.houses import DaemonHouse
from tests.network.quick import within

from ordercast import AGREED, Batch, Group, Left, Message, View, connect
from ordercast.daemon.native import NativeConnection
from ordercast.daemon.seat import Limits
from ordercast.wire.block import pack_fragment, pack_grouped, pack_multi, pack_roster, pack_run
from ordercast.wire.call_frames import LockAsk, encode_lock, encode_unlock
from ordercast.wire.client_frames import (
    ClientHello,
    Question,
    WatchRange,
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
from ordercast.wire.daemon_frames import decode_close, decode_refused, decode_welcome_frame
from ordercast.wire.endings import SessionEnd, read_ending
from ordercast.wire.frames import MAX_DAEMON_FRAME, VERSION, FrameBuffer, FrameKind, frame


class RawClient:
    """Bytes to a daemon and back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer(MAX_DAEMON_FRAME)
        self._found: list[tuple[int, bytes]] = []

    @classmethod
    async def open(cls, house: DaemonHouse) -> RawClient:
        return cls(*await asyncio.open_unix_connection(str(house.path)))

    @classmethod
    async def greeted(cls, house: DaemonHouse, name: str = "raw", window: int = 1 << 20) -> RawClient:
        client = await cls.open(house)
        client.send(encode_hello(ClientHello(VERSION, name, b"", window)))
        decode_welcome_frame(await client.until(FrameKind.WELCOME))
        return client

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def next(self) -> tuple[int, bytes] | None:
        while not self._found:
            data = await self._reader.read(65_536)
            if not data:
                return None
            self._found += self._frames.feed(data)
        return self._found.pop(0)

    async def until(self, kind: FrameKind) -> bytes:
        while (found := await self.next()) is not None:
            if found[0] == kind:
                return found[1]
        raise AssertionError(f"the connection ended before a {kind.name}")

    async def closed(self) -> tuple[str, str]:
        """The daemon says why, and the connection ends."""
        why = decode_close(await self.until(FrameKind.CLOSE))
        with suppress(ConnectionError):
            assert await self.next() is None
        self.close()
        return why

    def close(self) -> None:
        self._writer.close()


JOIN = encode_join([(1, "prices")])


def block(first: int = 0, payloads: tuple[bytes, ...] = (b"x",), group: int = 1) -> bytes:
    return pack_run(first, AGREED, payloads, group)


WRONG = {
    "a frame of no kind": frame(99),
    "a daemon's frame": frame(FrameKind.WELCOME),
    "a second hello": encode_hello(ClientHello(1, "raw", b"", 10)),
    "a frame without a body": frame(FrameKind.JOIN),
    "a frame that is too long": (1 << 30).to_bytes(4, "little") + b"\x05",
    "a frame of no bytes": bytes(5),
    "a handle without a group": encode_send(block(group=9)),
    "a number out of step": JOIN + encode_send(block(5)),
    "a block that cannot be opened": JOIN + encode_send(block()[:-1] + b""),
    "a block without messages": JOIN + encode_send(block()[:10]),
    "an operation on the roster": encode_send(pack_roster(0, b"\x01")),
    "a fragment that continues nothing": encode_name([(1, "a")])
    + encode_send(pack_fragment(0, AGREED, 1, 0, bytes(100), 50, 90)),
    "a handle for two groups": JOIN + encode_join([(1, "trades")]),
    "a handle that is zero": encode_join([(0, "trades")]),
    "a name that is too long": encode_join([(1, "x" * 300)]),
    "the name of the underlay": encode_join([(1, "{floor}")]),
    "a leave of an unknown handle": encode_leave([7]),
    "a watch of nothing": encode_watch(WatchRange(3, 3, AGREED)),
    "a watch of the past": JOIN + encode_send(block()) + encode_watch(WatchRange(0, 1, AGREED)),
    "two watches that overlap": encode_watch(WatchRange(3, 6, AGREED)) + encode_watch(WatchRange(5, 7, AGREED)),
    "consumed before it was sent": encode_consumed(1 << 40),
    "too many questions": encode_query(Question(1, "status", "")) * 17,
    "groups of a mixed block that have no names": JOIN + encode_send(pack_grouped(0, AGREED, [b"a", b"b"], [1, 2])),
    "a list of groups that have no names": encode_send(pack_multi(0, AGREED, [b"a"], [5, 6])),
}


@pytest.mark.parametrize("what", WRONG)
@within(60)
async def test_what_no_client_sends_ends_its_session_only(tmp_path: Path, what: str) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("watcher") as watcher:
        group = await watcher.join("prices")
        raw = await RawClient.greeted(house)
        raw.send(WRONG[what].replace(b"{floor}", house.floor[:7].encode().ljust(7, b"-")))
        if "underlay" in what:
            raw.send(encode_join([(2, house.floor)]))
        why, text = await raw.closed()
        assert why == SessionEnd.PROTOCOL
        assert text
        while len(house.hub.seats) > 1 or house.hub.seats.is_closing:
            await asyncio.sleep(0.01)
        await group.send(b"still here", confirm=True)
        if group.members != (group.member,):
            while (view := group.view) is None or len(view.members) > 1:
                await group.receive()


class Sink:
    """Takes what is sent, or nothing."""

    def __init__(self) -> None:
        self.data = b""
        self.is_closed = False

    def send(self, frames: Sequence[bytes]) -> None:
        self.data += b"".join(frames)

    def pending_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True


@within(60)
async def test_more_than_the_credit_ends_a_session_and_its_bytes_are_dropped(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        sink = Sink()
        connection = NativeConnection(house.hub, sink, "a test")
        connection.receive(encode_hello(ClientHello(1, "raw", b"", 1_000)) + JOIN)
        connection.receive(b"".join([encode_send(block(at, (bytes(50_000),))) for at in range(30)]))
        assert sink.is_closed
        last = FrameBuffer(MAX_DAEMON_FRAME).feed(sink.data)[-1]
        assert last[0] == FrameKind.CLOSE
        assert "credit" in decode_close(last[1])[1]


@within(60)
async def test_frames_that_come_byte_by_byte_are_understood(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("watcher") as watcher:
        group = await watcher.join("prices")
        raw = await RawClient.open(house)
        stream = encode_hello(ClientHello(1, "raw", b"", 1_000)) + JOIN + encode_send(block(0, (b"slow", b"and sure")))
        for at in range(len(stream)):
            raw.send(stream[at : at + 1])
            await asyncio.sleep(0)
        seen: list[bytes] = []
        while len(seen) < 2:
            event, _ = await group.receive()
            if isinstance(event, Message):
                seen.append(event.payload)
        assert seen == [b"slow", b"and sure"]
        raw.close()


MANY = 60_000  # empty messages: a block of them is small, and the queue of a session has room for two


@pytest.mark.parametrize("last", ["leave", "bye", "unlock"])
@within(60)
async def test_what_comes_behind_more_than_the_queue_takes_stays_behind_it(tmp_path: Path, last: str) -> None:
    """Messages without bytes take no credit to speak of: they wait at the daemon, and requests behind them as well."""
    blocks = [encode_send(pack_run(MANY * at, AGREED, [b""] * MANY, 1)) for at in range(4)]
    ends = {"leave": encode_leave([1]), "bye": frame(FrameKind.BYE), "unlock": encode_unlock(1)}
    async with DaemonHouse(tmp_path) as house, house.client("watcher") as watcher:
        group = await watcher.join("prices")
        raw = await RawClient.greeted(house)
        raw.send(JOIN + encode_lock(LockAsk(1, 1, False, "printer")))
        await raw.until(FrameKind.GRANT)
        raw.send(b"".join(blocks) + ends[last])
        count = 0
        async for event in group.batches():
            if isinstance(event, Batch):
                count += event.count
            elif isinstance(event, View) and count:
                break
        assert count == MANY * len(blocks)
        raw.close()


@within(60)
async def test_requests_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.daemon.backlog.LATER_BYTES", 1_000)
    async with DaemonHouse(tmp_path) as house:
        raw = await RawClient.greeted(house)
        blocks = [encode_send(pack_run(MANY * at, AGREED, [b""] * MANY, 1)) for at in range(4)]
        raw.send(JOIN + b"".join(blocks) + encode_unlock(7) * 20)
        why, text = await raw.closed()
        assert why == SessionEnd.PROTOCOL
        assert "wait behind messages" in text


@within(60)
async def test_random_bytes_and_mutated_recordings_never_end_the_daemon(tmp_path: Path) -> None:
    recording = (
        encode_hello(ClientHello(1, "", b"", 1_000))
        + JOIN
        + encode_watch(WatchRange(0, 2, AGREED))
        + encode_send(block(0, (b"a", b"b")))
        + encode_name([(2, "trades")])
        + encode_send(pack_multi(2, AGREED, [b"c"], [1, 2]))
        + encode_ping(4)
        + encode_query(Question(1, "groups", ""))
        + encode_consumed(10)
        + encode_leave([1])
        + frame(FrameKind.BYE)
    )
    rng = Random(17)
    async with DaemonHouse(tmp_path) as house:
        for _ in range(150):
            data = bytearray(recording)
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(data))
                kind = rng.random()
                if kind < 0.5:
                    data[at] = rng.randrange(256)
                elif kind < 0.8:
                    del data[at : at + rng.randrange(1, 20)]
                else:
                    data[at:at] = rng.randbytes(rng.randrange(1, 20))
            raw = await RawClient.open(house)
            raw.send(bytes(data) if rng.random() < 0.8 else rng.randbytes(300))
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.02):
                    while await raw.next() is not None:
                        pass
            raw.close()
        async with house.client("alive") as alive:
            group = await alive.join("prices")
            await group.send(b"alive", confirm=True)
        assert house.hub.error is None


@within(60)
async def test_another_version_and_no_client_at_all_are_refused(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        raw = await RawClient.open(house)
        raw.send(encode_hello(ClientHello(9, "raw", b"", 10)))
        code, text = decode_refused(await raw.until(FrameKind.REFUSED))
        assert code == 1
        assert "versions 1 to 2" in text
        raw.close()
        for first in (b"GET / HTTP/1.1\r\n\r\n", JOIN, frame(FrameKind.HELLO, b"XXXX")):
            other = await RawClient.open(house)
            other.send(first)
            with suppress(ConnectionError):
                why, _ = await other.closed()
                assert why == SessionEnd.PROTOCOL
            other.close()
        assert len(house.hub.seats) == 0


@within(60)
async def test_a_client_that_never_reads_is_put_out_and_everybody_sees_why(tmp_path: Path) -> None:
    limits = Limits(session_bytes=512 << 10, patience_ns=0)
    async with DaemonHouse(tmp_path, limits=limits) as house, house.client("fast") as fast:
        group = await fast.join("prices")
        sleeper = await RawClient.greeted(house, "sleeper", window=16 << 20)
        sleeper.send(JOIN)
        while len(group.members) < 2:
            await group.receive()
        sent = received = 0
        ending = None
        while ending is None:
            await group.send_many([bytes(1_000)] * 500)
            sent += 500
            while received < sent and ending is None:
                event, _ = await group.receive()
                if isinstance(event, Message):
                    received += 1
                elif isinstance(event, View) and len(event.members) == 1:
                    ending = read_ending(event.header)
                    assert event.subject.startswith("sleeper@")
        assert ending.why is SessionEnd.SLOW
        assert "did not receive" in ending.text
        assert house.hub.seats.endings[SessionEnd.SLOW] == 1
        sleeper.close()


@within(60)
async def test_a_client_whose_program_does_not_receive_comes_back_when_it_does(tmp_path: Path) -> None:
    limits = Limits(session_bytes=256 << 10, patience_ns=0)
    async with (
        DaemonHouse(tmp_path, limits=limits) as house,
        house.client("fast") as fast,
        house.client("lazy", window=50_000) as lazy,
    ):
        group, other = await fast.join("prices"), await lazy.join("prices")
        while not house.hub.seats.endings[SessionEnd.SLOW]:
            await group.send_many([bytes(1_000)] * 200)
            while group.has_events:
                await group.receive()
            await asyncio.sleep(0)
        left = None
        while left is None:
            event, _ = await other.receive()
            left = event if isinstance(event, Left) else None
        assert left.returning
        assert "did not receive" in left.text
        while not other.is_member:
            await other.receive()
        await group.send(b"welcome back")
        while True:
            event, _ = await other.receive()
            if isinstance(event, Message) and event.payload == b"welcome back":
                break


@within(60)
async def test_a_client_that_asks_and_does_not_read_is_not_heard_for_ever(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        raw = await RawClient.greeted(house)
        flush = encode_watch(WatchRange(0, 0, None))
        for _ in range(400):
            raw.send(flush * 1_000)
            await asyncio.sleep(0)
        async with house.client("alive") as alive:
            group = await alive.join("prices")
            await group.send(b"alive", confirm=True)
        raw.close()


@within(60)
async def test_two_hundred_and_fifty_clients_of_one_daemon_are_in_groups_of_ten(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        clients = await asyncio.gather(*(house.connect(f"c-{number}") for number in range(250)))
        groups = await asyncio.gather(*(client.join(f"g{at // 10}") for at, client in enumerate(clients)))
        for at in range(0, 250, 10):
            await groups[at].send(f"hello {at}".encode(), confirm=True)

        async def first_message(group: Group) -> bytes:
            while True:
                event, _ = await group.receive()
                if isinstance(event, Message):
                    return event.payload

        seen = await asyncio.gather(*(first_message(group) for group in groups))
        assert seen == [f"hello {at - at % 10}".encode() for at in range(250)]
        assert len(house.hub.seats) == 250
        for client in clients:
            client.abort()
        while len(house.hub.seats):
            await asyncio.sleep(0.01)
        assert house.hub.seats.endings[SessionEnd.LOST] == 250


@within(60)
async def test_a_client_that_connects_again_takes_the_place_of_its_lost_connection(tmp_path: Path) -> None:
    """A daemon may not have noticed yet that the machine of a client is gone."""
    async with DaemonHouse(tmp_path) as house:
        first = await RawClient.open(house)
        first.send(encode_hello(ClientHello(1, "raw", b"", 1_000)))
        welcome = decode_welcome_frame(await first.until(FrameKind.WELCOME))
        stranger = await RawClient.open(house)
        stranger.send(encode_hello(ClientHello(1, "raw", bytes(16), 1_000)))
        assert decode_refused(await stranger.until(FrameKind.REFUSED))[0] == 2
        stranger.close()
        second = await RawClient.open(house)
        second.send(encode_hello(ClientHello(1, "raw", welcome.secret, 1_000)))
        again = decode_welcome_frame(await second.until(FrameKind.WELCOME))
        assert again.label == "raw"
        assert (await first.closed())[0] == SessionEnd.REPLACED
        second.close()


@within(60)
async def test_a_daemon_that_is_full_says_so(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path, limits=Limits(max_sessions=1)) as house, house.client("one"):
        with pytest.raises(Exception, match="takes no more"):
            await connect(house.address, timeout=None)
