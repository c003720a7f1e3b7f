"""The floor of `ordercast bench`: what the sockets, the blocks and the application cost without any protocol.

The same sockets (`runtime.udp`), the same columnar blocks, the same application in a task of its own; a plain credit
window keeps the receivers' buffers from overflowing. No ordering, no repair, no membership, no trace: a lost datagram
stops it, and the bench says so. On one host over loopback nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import Final

from ordercast.cli.load import Sink, Source
from ordercast.config import MAX_BLOCK
from ordercast.runtime.addresses import group_address
from ordercast.runtime.udp.sockets import MulticastReceiver, UnicastSocket
from ordercast.service import AGREED
from ordercast.view import Address
from ordercast.wire.block import OVERHEAD, open_messages, pack_run

WINDOW_BYTES: Final = 2 << 20
"""On the way from all senders together, where the sockets' buffers are large enough."""

LENGTH: Final = Struct("<I")
CREDIT: Final = Struct("<Q")


class _FloorStream:
    """What came from one sender: blocks with their lengths in front, in one or several datagrams."""

    __slots__ = ("consumed", "credited", "name", "partial", "reply_to")

    def __init__(self, name: str, reply_to: Address) -> None:
        self.name = name
        self.reply_to = reply_to
        self.partial = bytearray()
        self.consumed = 0
        self.credited = 0


class Floor:
    """One member of the floor."""

    __slots__ = (
        "_blocks",
        "_consumer",
        "_credits",
        "_datagram",
        "_group",
        "_loop",
        "_name",
        "_receiver",
        "_room",
        "_sent",
        "_socket",
        "_streams",
        "_window",
        "address",
    )

    def __init__(self, name: str, group: str, datagram: int) -> None:
        self._name = name
        self._datagram = datagram
        self._loop = asyncio.get_running_loop()
        self._socket = UnicastSocket("127.0.0.1")
        self._group = group_address(group)
        self._receiver = MulticastReceiver(self._group, "127.0.0.1", own=self._socket.address)
        self.address = self._socket.address
        # receiving
        self._streams: dict[Address, _FloorStream] = {}
        self._blocks: deque[tuple[_FloorStream | None, bytes]] = deque()  # bounded by the window
        self._consumer: asyncio.Future[None] | None = None
        # sending
        self._window = 0
        self._sent = 0
        self._credits: dict[Address, int] = {}  # bytes that each other member has consumed
        self._room: asyncio.Future[None] | None = None
        self._loop.add_reader(self._socket.fileno(), self._on_credits)
        self._loop.add_reader(self._receiver.fileno(), self._on_blocks)

    def prepare(self, addresses: dict[str, Address], senders: list[str]) -> None:
        """Know the others before anything is sent."""
        self._streams = {address: _FloorStream(name, address) for name, address in addresses.items() if name in senders}
        self._credits = {address: 0 for name, address in addresses.items() if name != self._name}
        self._window = min(WINDOW_BYTES, self._receiver.receive_buffer_bytes // 4) // len(senders)

    async def send(self, source: Source, is_sending: asyncio.Event) -> None:
        """Send blocks as fast as credit comes, until `is_sending` is cleared; then the end."""
        per_block = max(1, (MAX_BLOCK - OVERHEAD) // source.size)
        waiting: list[bytes] = []
        while is_sending.is_set():
            waiting += source.next()
            while len(waiting) >= per_block:
                await self._send_block(pack_run(0, AGREED, waiting[:per_block]))
                del waiting[:per_block]
        if waiting:
            await self._send_block(pack_run(0, AGREED, waiting))
        await self._send_block(pack_run(0, AGREED, [source.end()]))

    async def receive(self, sink: Sink) -> None:
        """The application, until the end of every sender has come."""
        blocks = self._blocks
        while sink.open:
            while not blocks:
                self._consumer = self._loop.create_future()
                await self._consumer
            stream, block = blocks.popleft()
            messages = open_messages(block).payloads
            sink.take(self._name if stream is None else stream.name, messages)
            if stream is not None:
                stream.consumed += len(block)
                if stream.consumed - stream.credited > self._window // 4 or not blocks:
                    stream.credited = stream.consumed
                    self._socket.send(stream.reply_to, (CREDIT.pack(stream.consumed),))

    def read_drops(self) -> int:
        return self._socket.read_drops() + self._receiver.read_drops()

    def close(self) -> None:
        for one in (self._socket, self._receiver):
            self._loop.remove_reader(one.fileno())
            one.close()

    async def _send_block(self, block: bytes) -> None:
        while self._sent > (least := min(self._credits.values())) and self._sent - least + len(block) > self._window:
            self._room = self._loop.create_future()
            await self._room
        self._sent += len(block)
        buffers = (LENGTH.pack(len(block)), block)
        stride = self._datagram if len(block) + LENGTH.size > self._datagram else 0
        while not self._socket.send(self._group, buffers, stride):
            writable: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_writer(self._socket.fileno(), writable.set_result, None)
            await writable
            self._loop.remove_writer(self._socket.fileno())
        self._blocks.append((None, block))
        self._wake()

    def _on_blocks(self) -> None:
        for source, data, _ in self._receiver.drain():
            stream = self._streams.get(source)
            if stream is None:
                continue
            partial = stream.partial
            if not partial and LENGTH.unpack_from(data)[0] + LENGTH.size == len(data):
                self._blocks.append((stream, bytes(data[LENGTH.size :])))
                continue
            partial += data
            while len(partial) >= LENGTH.size:
                stop = LENGTH.size + LENGTH.unpack_from(partial)[0]
                if len(partial) < stop:
                    break
                self._blocks.append((stream, bytes(partial[LENGTH.size : stop])))
                del partial[:stop]
        self._wake()

    def _on_credits(self) -> None:
        for source, data, stride in self._socket.drain():
            # The newest of a train is what counts.
            self._credits[source] = CREDIT.unpack_from(data, (len(data) - 1) // stride * stride)[0]
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake(self) -> None:
        if self._consumer is not None and not self._consumer.done():
            self._consumer.set_result(None)
