"""Recordings of whole simulated sessions, mutated, against both ends of the native protocol.

What is recorded is what daemons and clients really say to one another in a random scenario: joins, blocks of all kinds,
views, credit, ends. A byte that no peer sends is a `WireError` at the client and a CLOSE at the daemon, never anything
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.client.session import ClientSession
from ordercast.daemon.encoding import EventEncoder
from ordercast.daemon.native import NativeConnection
from ordercast.daemon.seat import Seats
from ordercast.errors import WireError
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.sessions.house import NATIVE_PORT
from ordercast.sim.sessions.plan import drawn_sessions
from ordercast.sim.sessions.run import SessionsRun
from ordercast.sim.sessions.streams import StreamTransport
from ordercast.wire.client_frames import Question
from ordercast.wire.daemon_frames import decode_close, decode_refused, decode_welcome_frame
from ordercast.wire.frames import MAX_DAEMON_FRAME, FrameBuffer, FrameKind

SEED = 2_004
KEPT_BYTES = 60_000
MOST = 4  # mutations of one recording


@cache
def recordings() -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """What daemons said, and what clients said, on each connection of one run."""
    run = SessionsRun(drawn_sessions(SEED, "token"))
    said: dict[StreamTransport, bytearray] = {}

    def tap(transport: StreamTransport, data: bytes) -> None:
        said.setdefault(transport, bytearray()).extend(data)

    run.streams.tap = tap
    assert run.outcome().held
    daemons, clients = [], []
    for transport, data in said.items():
        if transport.get_extra_info("sockname")[1] == NATIVE_PORT:
            daemons.append(bytes(data[:KEPT_BYTES]))
        elif transport.get_extra_info("peername")[1] == NATIVE_PORT:
            clients.append(bytes(data[:KEPT_BYTES]))
    return tuple(daemons), tuple(clients)


def mutated(data: bytes, rng: Random) -> bytes:
    """Bytes changed, left out, repeated or put in."""
    changed = bytearray(data)
    for _ in range(rng.randint(0, MOST)):
        # Half of all near the beginning, where lengths and counts of the first frames are.
        at = rng.randrange(min(len(changed), 200) if rng.random() < 0.5 else len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randint(1, 9)]
            case 2:
                changed[at:at] = rng.randbytes(rng.randint(1, 9))
            case _:
                changed[at:at] = changed[at : at + rng.randint(1, 300)]
    return bytes(changed[: rng.randint(1, len(changed))] if rng.random() < 0.2 else changed)


def pieces(data: bytes, rng: Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 3, 50, 1_000, len(data)))
        yield data[at : at + size]
        at += size


class Clock:
    """Of a client that nobody runs."""

    def wake(self) -> None: ...

    def hurry(self) -> None: ...

    def now_s(self) -> float:
        return 0.0


def hear(data: bytes, rng: Random) -> bool:
    """A client hears this. Whether it was refused."""
    session, frames, is_open = ClientSession("n0", Clock()), FrameBuffer(MAX_DAEMON_FRAME), False
    session_groups = [f"g{number}" for number in range(3)]
    try:
        for piece in pieces(data, rng):
            for kind, body in frames.feed(piece):
                if kind == FrameKind.CLOSE:
                    decode_close(body)
                elif is_open:
                    session.on_frame(kind, body)
                elif kind == FrameKind.WELCOME:
                    is_open = True
                    session.on_welcome(decode_welcome_frame(body))
                    session.open_many(session_groups, b"")
                elif kind == FrameKind.REFUSED:
                    decode_refused(body)
                    return False
                session.pump()
                for seat in session.seats.values():
                    while seat.take() is not None:
                        pass
    except WireError:
        return True
    return False


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_client_reads_or_refuses_a_mutated_recording_of_a_daemon(seed: int) -> None:
    rng = Random(seed)
    hear(mutated(rng.choice(recordings()[0]), rng), rng)


def test_many_mutations_are_noticed() -> None:
    rng = Random(1)
    assert sum(hear(mutated(rng.choice(recordings()[0]), rng), rng) for _ in range(60)) > 15


def test_recordings_themselves_are_read() -> None:
    daemons, clients = recordings()
    assert len(daemons) > 2
    assert len(clients) > 2
    assert not any(hear(data, Random(1)) for data in daemons)


class Pipe:
    """Where a daemon writes."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.extend(frames)

    def pending_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True


class House:
    """What connections of a daemon share."""

    def __init__(self, seats: Seats) -> None:
        self.seats = seats
        self.encoder = EventEncoder(lambda: 0.0)

    def new_label(self) -> str:
        return "unnamed"

    def new_secret(self) -> bytes:
        return bytes(16)

    def answer(self, question: Question) -> str:
        return question.what

    def told(self, text: str, *, is_warning: bool = False) -> None: ...


@pytest.mark.parametrize("part", range(3))
def test_a_daemon_survives_mutated_recordings_of_its_clients(part: int) -> None:
    rng = Random(f"clients {part}")

    async def program(sim: Simulation) -> None:
        async with sim("a") as node:
            floor = await node.attach("floor", orderer="token")
            driver, backend = node.parts
            seats = Seats(driver.host, driver, "floor", floor.config)
            house = House(seats)
            for number in range(25):
                pipe = Pipe()
                connection = NativeConnection(house, pipe, f"client {number}")
                for piece in pieces(mutated(rng.choice(recordings()[1]), rng), rng):
                    connection.receive(piece)
                    if rng.random() < 0.1:
                        await asyncio.sleep(0.02)
                        seats.settle_ports(backend.take_guests())
                if pipe.is_closed:
                    assert connection.is_over
                connection.lost("the test is done")
                for _ in range(50):
                    await asyncio.sleep(0.02)
                    seats.settle_ports(backend.take_guests())
                    if not seats.is_closing:
                        break
            assert len(seats) == 0

    simulate(program, seed=part)
