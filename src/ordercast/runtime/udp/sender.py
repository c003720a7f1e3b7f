"""Sending datagrams and trains of them (GSO): nothing is lost without a count."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol

from ordercast.engine import Buffer
from ordercast.errors import UsageError
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.options import REFUSED, UDP_SEGMENT, UNDELIVERABLE
from ordercast.view import Address

DATAGRAM_BYTES_MAX: Final = 65_507
"""The most that IPv4 carries in one UDP datagram. More is the caller's mistake: `send` raises."""

TRAIN_SEGMENTS_MAX: Final = 128
"""The kernel's UDP_MAX_SEGMENTS. Longer trains are split."""

OLD_TRAIN_SEGMENTS_MAX: Final = 64
"""What UDP_MAX_SEGMENTS was until 2024. A socket whose longer train is refused splits at this."""

TRAIN_BYTES_MAX: Final = 65_493
"""Longest train that loopback (gso_max_size 65536, less the headers) passes whole; 65,507 are accepted, but cut up."""

_STRIDES_KEPT: Final = 64  # control messages kept, one for each stride in use; at the bound all are forgotten
_GSO_STRIDE: Final = struct.Struct("=H")

_GSO_REFUSED: Final = frozenset({errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.EOPNOTSUPP, errno.ENOPROTOOPT})
_FULL: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM})


class SendsDatagrams(Protocol):
    """The part of a socket that `UdpSender` needs."""

    def sendmsg(
        self, buffers: Sequence[Buffer], ancdata: Sequence[tuple[int, int, bytes]], flags: int, address: Address, /
    ) -> int: ...


class _Outcome(Enum):
    LEFT = auto()
    FULL = auto()  # nothing left; the caller keeps it
    LOST = auto()  # cannot be delivered; counted
    TRAIN_REFUSED = auto()  # nothing left; in smaller pieces it may


class UdpSender:
    """Sends datagrams and trains of them. Nothing is lost silently: it left, or it is kept, counted or raised."""

    __slots__ = ("_gso", "_headers", "_many", "_part", "_sendmsg", "_train_segments", "counters")

    def __init__(self, sock: SendsDatagrams, counters: Counters, *, gso: bool) -> None:
        self.counters = counters
        self._sendmsg = sock.sendmsg
        self._gso = gso
        self._train_segments = TRAIN_SEGMENTS_MAX
        self._headers: dict[int, tuple[tuple[int, int, bytes], ...]] = {0: ()}
        # Where a send that was refused half-way goes on, when it is offered again. The buffers are recognised by
        # identity: starting another send at this offset would lose its beginning.
        self._part: tuple[Address, Sequence[Buffer], int] | None = None
        self._many: tuple[Sequence[Address], Sequence[Buffer], int] | None = None

    @property
    def uses_gso(self) -> bool:
        """Whether trains leave in one call. Once a device has refused one, they no longer do."""
        return self._gso

    def send(self, address: Address, buffers: Sequence[Buffer], stride: int = 0) -> bool:
        """Send the concatenated buffers as datagrams of `stride` bytes, the last maybe shorter; 0: as one datagram.

        False: the socket is full. Keep the send, wait until the socket is writable and offer the same objects again;
        what has left of a long train is then not repeated. Buffers are of single bytes (memoryviews of format B).
        """
        # Hot: one call per block. Sizes are not added up first: the kernel checks them anyway, and 88 buffers (44
        # headers and bodies) would cost 1.5 us.
        if self._part is None and (self._gso or not stride):
            counters = self.counters
            header = self._headers.get(stride)
            if header is None:
                header = self._train_header(stride)
            try:
                sent = self._sendmsg(buffers, header, 0, address)
            except BlockingIOError:
                counters.send_calls += 1
                counters.would_block += 1
                return False
            except OSError as error:
                # The careful path finds out what the matter is; it is rare, and may try the same again. Too long a
                # train comes here too, and so do more buffers than one call takes.
                counters.send_calls += 1
                if error.errno in REFUSED:
                    counters.refused += 1
            except (TypeError, ValueError):
                if _is_numeric(address):
                    raise
                counters.undeliverable += 1
                return True
            else:
                counters.send_calls += 1
                counters.bytes_out += sent
                counters.datagrams_out += -(-sent // stride) if stride and sent else 1
                return True
        return self._send_carefully(address, buffers, stride)

    def send_many(self, addresses: Sequence[Address], buffers: Sequence[Buffer], stride: int = 0) -> bool:
        """Send the same to each address: multicast by hand, for networks without it. False is as for `send`."""
        start = 0
        if self._many is not None:
            if self._many[0] is addresses and self._many[1] is buffers:
                start = self._many[2]
            self._many = None
        for index in range(start, len(addresses)):
            if not self.send(addresses[index], buffers, stride):
                self._many = (addresses, buffers, index)
                return False
        return True

    def _train_header(self, stride: int) -> tuple[tuple[int, int, bytes], ...]:
        if not 0 < stride <= DATAGRAM_BYTES_MAX:
            raise UsageError(f"a stride is from 1 to {DATAGRAM_BYTES_MAX} bytes (0: one datagram), not {stride}")
        if len(self._headers) >= _STRIDES_KEPT:
            self._headers = {0: ()}
        header = ((int(socket.IPPROTO_UDP), UDP_SEGMENT, _GSO_STRIDE.pack(stride)),)
        self._headers[stride] = header
        return header

    def _send_carefully(self, address: Address, buffers: Sequence[Buffer], stride: int) -> bool:
        """Split what is too long, go on where the last try stopped, and do without GSO where it is refused."""
        start = 0
        if self._part is not None:
            if self._part[1] is buffers and self._part[0] == address:
                start = self._part[2]
            self._part = None
        whole = memoryview(b"".join(buffers))
        total = len(whole)
        step = stride or total
        if not 0 <= step <= DATAGRAM_BYTES_MAX:
            raise UsageError(f"a datagram has 0 to {DATAGRAM_BYTES_MAX} bytes, not {step}: split it by a stride")
        alone = False  # whether the next datagram goes by itself, to see if a train was refused for being one
        while True:
            room = step
            if self._gso and step and not alone:
                room *= max(1, min(self._train_segments, TRAIN_BYTES_MAX // step))
            piece = whole[start : start + room]
            outcome = self._send_piece(address, piece, step)
            if outcome is _Outcome.FULL:
                if start:
                    self._part = (address, buffers, start)
                return False
            if outcome is _Outcome.TRAIN_REFUSED:
                if len(piece) > OLD_TRAIN_SEGMENTS_MAX * step:
                    self._train_segments = OLD_TRAIN_SEGMENTS_MAX
                else:
                    alone = True
                continue
            if alone and outcome is _Outcome.LEFT:
                # Given up for good: a device's limits do not change, and each further try would cost a call. Had the
                # single datagram not left either, its destination would be at fault.
                self._gso = False
                self.counters.gso_fallbacks += 1
                alone = False
            start += len(piece)
            if start >= total:
                return True

    def _send_piece(self, address: Address, piece: memoryview, step: int) -> _Outcome:
        """One datagram, or one train that is short enough for a single call."""
        counters = self.counters
        is_train = len(piece) > step
        header = (self._headers.get(step) or self._train_header(step)) if is_train else ()
        datagrams = -(-len(piece) // step) if is_train else 1
        for tries_left in (1, 0):
            counters.send_calls += 1
            try:
                sent = self._sendmsg((piece,), header, 0, address)
            except (TypeError, ValueError):
                if _is_numeric(address):
                    raise
                break
            except OSError as error:
                code = error.errno
                if isinstance(error, socket.gaierror):
                    break  # the text of an address that is none
                if code in _FULL:
                    counters.would_block += 1
                    return _Outcome.FULL
                if is_train and code in _GSO_REFUSED:
                    return _Outcome.TRAIN_REFUSED
                if code in REFUSED:
                    # What an earlier datagram came back with is handed out instead of sending this one: once more.
                    counters.refused += 1
                    if tries_left:
                        continue
                elif code == errno.EMSGSIZE:
                    # The path takes no datagram of this size. It is lost like any other: smaller ones still arrive.
                    counters.too_large += datagrams
                    return _Outcome.LOST
                elif code not in UNDELIVERABLE:
                    raise
                break
            counters.bytes_out += sent
            counters.datagrams_out += datagrams
            return _Outcome.LEFT
        counters.undeliverable += datagrams
        return _Outcome.LOST


def _is_numeric(address: Address) -> bool:
    """Whether it is an IPv4 address at all. A peer may have sent anything: that must not stop a node."""
    try:
        socket.inet_pton(socket.AF_INET, address[0])
    except (OSError, ValueError, TypeError):
        return False
    return True
