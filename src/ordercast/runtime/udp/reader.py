"""Receiving: what a socket holds, train by train (GRO), and what it had to drop."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.filters import OwnEcho
from ordercast.runtime.udp.options import BUFFER_BYTES, REFUSED, UDP_GRO, UNDELIVERABLE, socket_drops
from ordercast.view import Address

DRAIN_READS: Final = 256
"""Reads in one pass. The rest stays in the socket, which stays readable: timers and sends get their turn between."""

DRAIN_BYTES: Final = 4 << 20
"""Bytes in one pass: about 70 blocks, a few milliseconds of work above."""

_GRO_STRIDE: Final = struct.Struct("=i")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_GRO_STRIDE.size)

# A plain int: `&` with the enum's members, in Python, costs 0.6 us a read.
_TRUNCATED: Final = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)


def _stride(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The GRO stride as the kernel tells it, or 0."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_UDP and kind == UDP_GRO and len(data) == _GRO_STRIDE.size:
            stride: int = _GRO_STRIDE.unpack(data)[0]
            return stride
    return 0


class DatagramReader:
    """The receiving half of a socket. `own`: a source that is left out; `echo` counts what a filter rejects."""

    __slots__ = ("_buffer", "_echo", "_ignored_source", "_seen_drops", "_socket", "_view", "counters")

    def __init__(
        self, sock: socket.socket, counters: Counters, *, own: Address | None = None, echo: OwnEcho | None = None
    ) -> None:
        self.counters = counters
        self._socket = sock
        self._buffer = [bytearray(BUFFER_BYTES)]
        self._view = memoryview(self._buffer[0])
        self._ignored_source = own
        self._echo = echo
        self._seen_drops = self._drops() or 0

    def fileno(self) -> int:
        """For `loop.add_reader`; -1 once closed."""
        return self._socket.fileno()

    @property
    def receive_buffer_bytes(self) -> int:
        """SO_RCVBUF as the system tells it. Linux doubles what it was asked for and counts its own overhead in it."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def drain(
        self, reads: int = DRAIN_READS, limit_bytes: int = DRAIN_BYTES
    ) -> Iterator[tuple[Address, memoryview, int]]:
        """What has arrived, as (source, data, stride), until the socket is empty or a bound of this pass is reached.

        `data` is valid until the next step only. It holds datagrams of `stride` bytes, the last maybe shorter; a single
        datagram has its own length as stride.
        """
        # Hot: one turn per block, 0.5 us above the bare system call. The `try` per item cannot be helped (an empty
        # socket is an exception) and costs nothing in Python 3.11 until it happens. Counts go to the counters at the
        # end of the pass, and the control messages of a batch are looked into only if they differ from the last.
        recvmsg_into = self._socket.recvmsg_into
        buffer = self._buffer
        view = self._view
        ignored = self._ignored_source
        known: list[tuple[int, int, bytes]] = []
        known_stride = 0
        calls = datagrams = 0
        room = limit_bytes
        try:
            while calls < reads and room > 0:
                calls += 1
                try:
                    size, ancillary, flags, source = recvmsg_into(buffer, _ANCILLARY_BYTES)
                except BlockingIOError:
                    return
                except OSError as error:
                    if error.errno in REFUSED or error.errno in UNDELIVERABLE:
                        self.counters.refused += 1
                        continue
                    if self._socket.fileno() < 0:  # closed while what this pass has read was handled
                        return
                    raise
                if source == ignored:
                    self.counters.own_ignored += 1
                    continue
                # MSG_CTRUNC would mean that the stride may be missing: better no datagram than a wrong one.
                if not size or flags & _TRUNCATED:
                    self.counters.malformed += 1
                    continue
                room -= size
                if ancillary:
                    if ancillary != known:
                        known = ancillary
                        known_stride = _stride(ancillary)
                    if 0 < known_stride < size:
                        datagrams += -(-size // known_stride)
                        yield source, view[:size], known_stride
                        continue
                datagrams += 1
                yield source, view[:size], size
        finally:
            counters = self.counters
            counters.receive_calls += calls
            counters.datagrams_in += datagrams
            counters.bytes_in += limit_bytes - room

    def read_drops(self) -> int:
        """Datagrams that the socket dropped since the last call, because it was full; also added to the counters.

        A GRO train counts as one: the socket takes or drops it whole. 0 where the system does not tell.
        """
        # The counter has 32 bits and wraps. A small step back (see `_drops`) is no drop and is waited out.
        drops = self._drops()
        new = 0 if drops is None else (drops - self._seen_drops) & 0xFFFF_FFFF
        if new >= 1 << 31:
            return 0
        self._seen_drops += new
        self.counters.kernel_drops += new
        return new

    def close(self) -> None:
        """Close the socket. Again is harmless; remove it from the loop first."""
        self._socket.close()
        if self._echo is not None:
            self._echo.close()

    def _drops(self) -> int | None:
        # The echo is read second: a multicast of ours that arrives between the two makes the difference too small for
        # a moment, which `read_drops` waits out; the other way round it would be reported as a loss.
        drops = socket_drops(self._socket)
        if self._echo is None or drops is None:
            return drops
        return drops - self._echo.drops()
