"""Byte streams in virtual time: what TCP and unix sockets are to programs on asyncio, with all that they may do.

A stream is two directions. Each has a kernel buffer of bounded size: what does not fit waits in the transport of the
sender, as in asyncio's own, and the receiver's end gets bytes in chunks that chance cuts. Bytes arrive in order and
late. A program that closes with unread bytes, or to which bytes come after it has closed, resets the stream, as the
kernel does. A stream that is *cut* says nothing any more: each end believes it to be open until a keepalive ends it
(half-open).
"""

from __future__ import annotations

import asyncio
import random
from asyncio.transports import _FlowControlMixin
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ordercast.config import MS, SECOND
from ordercast.sim.sessions.processes import Process, ProcessLoop
from ordercast.sim.world import World

KEEPALIVE_NS: Final = 40 * SECOND
"""After so long without a sign of the other machine the kernel ends a stream."""

READ_BYTES: Final = 256 << 10
"""Of one read, as in asyncio."""

CHUNKED_BYTES: Final = 1_500
"""More in single bytes would take a run too long."""

ROOM_SHARE: Final = 3
"""Of the buffer of a stream, this part has to be free before more is sent."""

CHUNKED_SHARE: Final = 0.02

FIRST_PORT: Final = 40_000


@dataclass(frozen=True, slots=True)
class StreamModel:
    """What a stream is like."""

    latency_ns: int = 50_000
    jitter_ns: int = 0
    buffer_bytes: int = 64 << 10
    """Sent and not read by the program at the other end."""
    chunk_bytes: int = READ_BYTES
    """The most that one read gives, of the first `CHUNKED_BYTES` and now and then later; chance gives less in half of
    the reads."""


class StreamTransport(_FlowControlMixin, asyncio.Transport):
    """One end of a stream."""

    def __init__(
        self, streams: Streams, process: Process, model: StreamModel, own: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peer, "sockname": own}, process.loop)
        self._streams = streams
        self._model = model
        self.process = process
        self.protocol: asyncio.Protocol | None = None
        self.peer: StreamTransport | None = None
        # out
        self._buffer = bytearray()
        self._unread = 0  # bytes that have left and that the other program has not read
        self._last_ns = 0  # when what was sent last arrives
        self._wants_eof = False  # after what is buffered
        self._has_sent_end = False
        # in
        self._arrived = bytearray()
        self._read_bytes = 0
        self._has_end = False  # nothing more comes
        self._error: Exception | None = None  # the stream was reset
        self._is_deaf = False
        self._is_reading = False  # a read is planned
        self._has_seen_end = False
        # both
        self.is_cut = False
        self._is_closing = False
        self._is_gone = False  # the kernel has closed it
        process.transports[self] = None

    # What programs call. ----------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol  # type: ignore[assignment]
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        if self.protocol is None:
            raise RuntimeError("a transport without a protocol")
        return self.protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._wants_eof or not data:
            return
        if self._error is not None:
            self._fail(self._error)
            return
        self._buffer += data
        self._push()
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing:
            self._wants_eof = True
            self._push()

    def is_reading(self) -> bool:
        return not self._is_closing and not self._is_deaf

    def pause_reading(self) -> None:
        self._is_deaf = True

    def resume_reading(self) -> None:
        if not self._is_closing and self._is_deaf:
            self._is_deaf = False
            self._plan_read()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._buffer:
            self._soon(self._lose, None)

    def abort(self) -> None:
        self._force(None)

    # Out. -------------------------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Give the kernel what it takes."""
        room = self._model.buffer_bytes - self._unread
        # As kernels do: what is sent as soon as there is room for a byte would fall into single bytes.
        if room * ROOM_SHARE >= self._model.buffer_bytes and self._buffer and not self._is_gone:
            data = bytes(self._buffer[:room])
            del self._buffer[: len(data)]
            self._unread += len(data)
            if self._streams.tap is not None:
                self._streams.tap(self, data)
            self._send(data)
        if self._wants_eof and not self._buffer and not self._has_sent_end and not self._is_gone:
            self._has_sent_end = True
            self._send(b"")

    def _send(self, data: bytes, error: Exception | None = None) -> None:
        """Of an end: empty, with the error of a reset."""
        model, world = self._model, self._streams.world
        delay_ns = model.latency_ns + (self._streams.rng.randrange(model.jitter_ns) if model.jitter_ns else 0)
        self._last_ns = max(self._last_ns, world.now_ns + delay_ns)
        if not self.is_cut:
            world.at(self._last_ns, self._arrive, (data, error))

    def _arrive(self, what: tuple[bytes, Exception | None]) -> None:
        """At the other end."""
        peer, (data, error) = self.peer, what
        if peer is None or self.is_cut:
            return
        if peer._is_gone:
            if data:  # nobody is there to read it
                peer._send(b"", ConnectionResetError("Connection reset by peer"))
            return
        if data:
            peer._arrived += data
        elif error is not None:
            peer._break(error)
            return
        else:
            peer._has_end = True
        peer._plan_read()

    def _break(self, error: Exception) -> None:
        """It was reset. Who reads learns it behind what has come, who writes at once."""
        self._error = error
        if self._buffer:
            self._soon(self._fail, error)
        self._plan_read()

    def _on_writable(self) -> None:
        """The other program has read something."""
        if self._is_gone:
            return
        self._push()
        self._maybe_resume_protocol()  # type: ignore[attr-defined]
        if self._is_closing and not self._buffer:
            self._lose(None)

    # In. --------------------------------------------------------------------------------------------------------------

    def _plan_read(self) -> None:
        if self._is_reading or self._is_deaf or self._is_closing or self.protocol is None:
            return
        if self._arrived or self._error is not None or (self._has_end and not self._has_seen_end):
            self._is_reading = True
            self._soon(self._read)

    def _read(self) -> None:
        self._is_reading = False
        if self._is_deaf or self._is_closing or self.protocol is None:
            return
        if self._arrived:
            rng = self._streams.rng
            is_chunked = self._read_bytes < CHUNKED_BYTES or rng.random() < CHUNKED_SHARE
            size = min(len(self._arrived), self._model.chunk_bytes if is_chunked else READ_BYTES)
            if rng.random() < 0.5:
                size = rng.randint(1, size)
            self._read_bytes += size
            data = bytes(self._arrived[:size])
            del self._arrived[:size]
            self._take(size)
            self.protocol.data_received(data)
            self._plan_read()
        elif self._error is not None:
            self._fail(self._error)
        elif self._has_end and not self._has_seen_end:
            self._has_seen_end = True
            if not self.protocol.eof_received():
                self.close()

    def _take(self, size: int) -> None:
        """The sender learns that there is room, a moment later."""
        peer = self.peer
        if peer is not None and not self.is_cut:
            self._streams.world.after(self._model.latency_ns, peer._on_taken, size)

    def _on_taken(self, size: int) -> None:
        self._unread -= size
        if not self._is_gone and not self.is_cut:
            self._soon(self._on_writable)

    # The end. ---------------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self._force(error)

    def _force(self, error: Exception | None) -> None:
        self._buffer.clear()
        if not self._is_gone:
            if self._is_closing and error is None:
                self._soon(self._lose, None)
                return
            self._is_closing = True
            self._soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if self._is_gone:
            return
        protocol, self.protocol = self.protocol, None
        self._disappear()
        if protocol is not None:
            protocol.connection_lost(error)

    def vanish(self) -> None:
        """The process is dead: its kernel closes the stream."""
        self._buffer.clear()
        self._is_closing = True
        self._disappear()

    def _disappear(self) -> None:
        if self._is_gone:
            return
        has_unread = bool(self._arrived)
        if has_unread or self._error is not None:
            self._send(b"", ConnectionResetError("Connection reset by peer"))
        elif not self._has_sent_end:
            self._has_sent_end = True
            self._send(b"")
        self._is_gone = True
        self.process.transports.pop(self, None)
        self._streams.forget(self)

    def time_out(self) -> None:
        """The keepalive of a stream that was cut."""
        if not self._is_gone:
            self._error = TimeoutError("Connection timed out")
            self._soon(self._fail, self._error)

    def _soon(self, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self.process.context)  # type: ignore[attr-defined]


class ListeningSocket:
    """Of a server, as programs look at it."""

    __slots__ = ("_name",)

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, *_: object) -> None:
        """There are no options."""


class StreamServer:
    """Takes connections at an address."""

    __slots__ = ("_streams", "address", "factory", "process", "sockets")

    def __init__(
        self, streams: Streams, process: Process, factory: Callable[[], asyncio.BaseProtocol], address: tuple[str, int]
    ) -> None:
        self._streams = streams
        self.process = process
        self.factory = factory
        self.address = address
        self.sockets = [ListeningSocket(address)]
        process.servers.append(self)

    def close(self) -> None:
        self._streams.unlisten(self)
        if self in self.process.servers:
            self.process.servers.remove(self)


class Streams:
    """All streams of a world."""

    __slots__ = ("_next_port", "_open", "_servers", "dead_hosts", "draw", "loop", "rng", "tap", "world")

    def __init__(self, world: World, loop: ProcessLoop, draw: Callable[[random.Random], StreamModel]) -> None:
        """`draw`: what the next stream is like."""
        self.world = world
        self.loop = loop
        self.rng = world.stream("streams")
        self.draw = draw
        self.dead_hosts: set[str] = set()  # machines that do not answer at all
        self._servers: dict[tuple[str, int], StreamServer] = {}
        self._open: dict[StreamTransport, None] = {}
        self._next_port = FIRST_PORT
        self.tap: Callable[[StreamTransport, bytes], None] | None = None  # sees what is sent
        loop.streams = self

    def listen(
        self, process: Process, factory: Callable[[], asyncio.BaseProtocol], address: tuple[str, int]
    ) -> StreamServer:
        if address in self._servers:
            raise OSError(98, "Address already in use")
        server = self._servers[address] = StreamServer(self, process, factory, address)
        return server

    def unlisten(self, server: StreamServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, process: Process, factory: Callable[[], asyncio.BaseProtocol], address: tuple[str, int]
    ) -> tuple[StreamTransport, asyncio.BaseProtocol]:
        model = self.draw(self.rng)
        await asyncio.sleep(2 * model.latency_ns / SECOND)
        if address[0] in self.dead_hosts:
            await asyncio.get_running_loop().create_future()  # whoever waits has a limit of its own
        server = self._servers.get(address)
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self._next_port += 1
        own = (process.host, self._next_port)
        near = StreamTransport(self, process, model, own, address)
        far = StreamTransport(self, server.process, model, address, own)
        near.peer, far.peer = far, near
        self._open[near] = self._open[far] = None
        self.loop.call_soon(self._accept, server, far, context=server.process.context)
        protocol = factory()
        near.set_protocol(protocol)
        protocol.connection_made(near)
        near._plan_read()
        return near, protocol

    def _accept(self, server: StreamServer, transport: StreamTransport) -> None:
        if transport._is_gone:
            return
        protocol = server.factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport._plan_read()

    def forget(self, transport: StreamTransport) -> None:
        self._open.pop(transport, None)

    def of(self, process: Process) -> list[StreamTransport]:
        """The open ones of a process."""
        return list(process.transports)

    def cut(self, transport: StreamTransport) -> None:
        """Nothing passes any more, and nobody is told so for a while."""
        for end in (transport, transport.peer):
            if end is not None and not end.is_cut:
                end.is_cut = True
                self.world.after(KEEPALIVE_NS + self.rng.randrange(5_000 * MS), _time_out, end)

    def reset(self, transport: StreamTransport) -> None:
        """Somebody between the two ends breaks it: both learn so."""
        for end in (transport, transport.peer):
            if end is not None and not end._is_gone:
                end._break(ConnectionResetError("Connection reset by peer"))


def _time_out(transport: StreamTransport) -> None:
    transport.time_out()
