"""Byte streams and processes of the simulator: what programs on asyncio meet there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ordercast.config import SECOND
from ordercast.sim.loop import run_in_world
from ordercast.sim.sessions.processes import Process, ProcessLoop
from ordercast.sim.sessions.streams import KEEPALIVE_NS, StreamModel, Streams
from ordercast.sim.world import World

PLACE = ("10.0.0.1", 7)


class Ends(asyncio.Protocol):
    """Remembers what happens to one end of a stream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces = 0
        self.told: list[str] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def eof_received(self) -> bool:
        self.told.append("end")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(type(exc).__name__ if exc is not None else "closed")


class Street:
    """A server and a client, each in a process of its own."""

    def __init__(self, model: StreamModel) -> None:
        self.world = World("street")
        self.loop = ProcessLoop(self.world)
        self.streams = Streams(self.world, self.loop, lambda _rng: model)
        self.server, self.client = Process(self.loop, "s", PLACE[0]), Process(self.loop, "c", "10.0.0.2")
        self.near, self.far = Ends(), Ends()

    async def connect(self) -> None:
        await self.server.start(self._listen())
        await self.client.start(self.dial())
        await asyncio.sleep(0.01)

    async def _listen(self) -> None:
        await asyncio.get_running_loop().create_server(lambda: self.far, *PLACE)

    async def dial(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self.near, *PLACE)


def on_street(
    story: Callable[[Street], Coroutine[Any, Any, None]], model: StreamModel | None = None, seconds: int = 200
) -> Street:
    street = Street(model if model is not None else StreamModel())

    async def program() -> None:
        try:
            await street.connect()
            await story(street)
        finally:
            street.loop.end_all()

    run_in_world(street.world, program(), seconds * SECOND, street.loop)
    return street


@pytest.mark.parametrize("chunk", [1, 7, 65_536])
def test_bytes_come_whole_and_in_order_in_pieces_of_any_size(chunk: int) -> None:
    sent = bytes(range(256)) * 40

    async def story(street: Street) -> None:
        for at in range(0, len(sent), 100):
            street.near.transport.write(sent[at : at + 100])
        await asyncio.sleep(5)

    street = on_street(story, StreamModel(buffer_bytes=2_000, chunk_bytes=chunk, jitter_ns=1_000_000))
    assert street.far.data == sent
    assert street.far.pieces > 2


def test_a_receiver_that_does_not_read_holds_its_sender_back() -> None:
    async def story(street: Street) -> None:
        street.far.transport.pause_reading()
        street.near.transport.write(bytes(100_000))
        street.near.transport.write(bytes(100_000))
        await asyncio.sleep(1)
        assert street.near.transport.get_write_buffer_size() == 200_000 - 16_384
        assert street.near.told == ["pause"]
        street.far.transport.resume_reading()
        await asyncio.sleep(1)

    street = on_street(story, StreamModel(buffer_bytes=16_384))
    assert len(street.far.data) == 200_000
    assert street.near.told == ["pause", "resume"]


def test_a_close_comes_behind_what_was_sent() -> None:
    async def story(street: Street) -> None:
        street.near.transport.write(b"last words")
        street.near.transport.close()
        await asyncio.sleep(1)

    street = on_street(story)
    assert street.far.data == b"last words"
    assert street.far.told == ["end", "closed"]
    assert street.near.told == ["closed"]


def test_bytes_to_a_program_that_has_closed_reset_the_stream() -> None:
    async def story(street: Street) -> None:
        street.far.transport.pause_reading()
        street.near.transport.write(b"unread")
        await asyncio.sleep(1)
        street.far.transport.abort()
        await asyncio.sleep(1)

    assert on_street(story).near.told == ["ConnectionResetError"]


def test_a_process_that_was_killed_runs_nothing_and_its_kernel_closes_its_streams() -> None:
    steps: list[int] = []

    async def count() -> None:
        while True:
            steps.append(1)
            await asyncio.sleep(0.1)

    async def story(street: Street) -> None:
        street.client.start(count())
        await asyncio.sleep(0.35)
        street.client.kill()
        await asyncio.sleep(1)
        assert len(steps) == 4
        street.server.kill()
        with pytest.raises(ConnectionRefusedError):
            await Process(street.loop, "late", "10.0.0.3").start(street.dial())

    street = on_street(story)
    assert street.far.told == ["end", "closed"]
    assert street.near.told == []


def test_a_process_that_stands_still_goes_on_where_it_was() -> None:
    async def story(street: Street) -> None:
        street.server.pause()
        street.near.transport.write(b"hello")
        await asyncio.sleep(1)
        assert not street.far.data
        street.server.resume()
        await asyncio.sleep(0.1)

    assert on_street(story).far.data == b"hello"


def test_a_stream_that_is_cut_ends_by_its_keepalive() -> None:
    async def story(street: Street) -> None:
        street.streams.cut(street.near.transport)
        street.near.transport.write(b"lost")
        await asyncio.sleep(KEEPALIVE_NS / SECOND - 1)
        assert street.near.told == street.far.told == []
        await asyncio.sleep(10)

    street = on_street(story)
    assert street.near.told == street.far.told == ["TimeoutError"]
    assert not street.far.data


def test_a_machine_that_is_gone_does_not_answer() -> None:
    async def story(street: Street) -> None:
        street.streams.dead_hosts.add(PLACE[0])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await street.client.start(street.dial())

    on_street(story)
