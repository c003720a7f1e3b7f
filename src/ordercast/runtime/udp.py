"""Non-blocking IPv4 UDP: trains of datagrams out in one call (GSO), in again in one call (GRO), drops counted.

A node has one `UnicastSocket`, through which it sends everything, so that the source address of a datagram names the
node (RMP section 3.1: a process *is* its address and port), and one `MulticastReceiver` for each group address it
listens to. Both have a `fileno()` for `loop.add_reader`; nothing here knows a loop, a clock or a protocol.

What shaped it (measured on loopback with 60 KB blocks; DESIGN section 6 has the wider numbers):

- `recvmsg_into` with ancillary data costs 0.3 us more than `recvfrom_into`, of about 3.7 us; the stride is worth that.
- Socket drops are read with `SO_MEMINFO`, not with `SO_RXQ_OVFL`. Both show the same kernel counter, but the latter
  comes as ancillary data of the *next* datagram, so the drops at the end of a burst would stay unseen.
- That counter also rises for each datagram which a socket filter throws away, and the filter that spares us our own
  multicasts throws away many. `_OwnEcho` counts those alone, so that the difference is exact.

Buffer sizes ask for `SO_RCVBUF`, never `SO_RCVBUFFORCE`: root may pass the limit that the operator set, but then a node
behaves differently as root, and senders fill what is announced. Raise `net.core.rmem_max` instead.

POSIX. Elsewhere than on Linux: no GSO, GRO, filter or drop counter; the same datagrams, one call each.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Protocol

from ordercast.engine import Buffer
from ordercast.errors import UsageError
from ordercast.runtime.addresses import AddressError, is_loopback, is_multicast
from ordercast.view import Address

LINUX: Final = sys.platform == "linux"

# Bounds. ---------------------------------------------------------------------------------------------------------

DATAGRAM_BYTES_MAX: Final = 65_507
"""The most that IPv4 carries in one UDP datagram. More is the caller's mistake: `send` raises."""

TRAIN_SEGMENTS_MAX: Final = 128
"""The kernel's UDP_MAX_SEGMENTS. Longer trains are split."""

OLD_TRAIN_SEGMENTS_MAX: Final = 64
"""What UDP_MAX_SEGMENTS was until 2024. A socket whose longer train is refused splits at this."""

TRAIN_BYTES_MAX: Final = 65_493
"""Longest train that loopback (gso_max_size 65536, less the headers) passes whole; 65,507 are accepted, but cut up."""

DRAIN_READS: Final = 256
"""Reads in one pass. The rest stays in the socket, which stays readable: timers and sends get their turn between."""

DRAIN_BYTES: Final = 4 << 20
"""Bytes in one pass: about 70 blocks, a few milliseconds of work above."""

SOCKET_BUFFER_BYTES: Final = 4 << 20
"""Asked of both socket buffers. Stock Linux grants 208 KB; `receive_buffer_bytes` says what it was."""

_BUFFER_BYTES: Final = 1 << 16  # no datagram and no GRO batch is larger
_STRIDES_KEPT: Final = 64  # control messages kept, one for each stride in use; at the bound all are forgotten

# What Python 3.11 does not name (linux/udp.h, linux/in.h, asm-generic/socket.h, linux/sock_diag.h). ----------------

_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_IP_MULTICAST_ALL: Final = 49
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_SO_MEMINFO: Final = 55
_MEMINFO = struct.Struct("=9I")  # the last, SK_MEMINFO_DROPS, is what is wanted
_GRO_STRIDE = struct.Struct("=i")
_GSO_STRIDE = struct.Struct("=H")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_GRO_STRIDE.size)

_GSO_REFUSED: Final = frozenset({errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.EOPNOTSUPP, errno.ENOPROTOOPT})
_FULL: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM})
_REFUSED: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})
# What the network may do to a datagram, and destinations that no datagram reaches. EINVAL is among them because a
# forged source port of 0 must not stop a node that answers it.
_UNDELIVERABLE: Final = frozenset(
    {
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EADDRNOTAVAIL,
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
    }
)


@dataclass(slots=True)
class Counters:
    """What the sockets of a node did. One object may serve several sockets: they only add to it."""

    # In.
    datagrams_in: int = 0
    bytes_in: int = 0
    receive_calls: int = 0  # the last of a pass, which finds nothing, included
    malformed: int = 0  # empty, or longer than any datagram can be: dropped here
    own_ignored: int = 0  # own multicasts that came up for want of a filter
    kernel_drops: int = 0  # datagrams the socket had no room for, as of the last `read_drops`
    # Out.
    datagrams_out: int = 0
    bytes_out: int = 0
    send_calls: int = 0
    would_block: int = 0  # sends that the caller was told to keep
    gso_fallbacks: int = 0  # sockets that went over to one datagram a call
    undeliverable: int = 0  # datagrams given up because no route or rule lets them out: lost, as on the network
    # Both.
    refused: int = 0  # ICMP errors that earlier datagrams came back with


def _is_numeric(address: Address) -> bool:
    """Whether it is an IPv4 address at all. A peer may have sent anything: that must not stop a node."""
    try:
        socket.inet_pton(socket.AF_INET, address[0])
    except (OSError, ValueError, TypeError):
        return False
    return True


class SendsDatagrams(Protocol):
    """The part of a socket that `Sender` needs."""

    def sendmsg(
        self, buffers: Sequence[Buffer], ancdata: Sequence[tuple[int, int, bytes]], flags: int, address: Address, /
    ) -> int: ...


class _Outcome(Enum):
    LEFT = auto()
    FULL = auto()  # nothing left; the caller keeps it
    LOST = auto()  # cannot be delivered; counted
    TRAIN_REFUSED = auto()  # nothing left; in smaller pieces it may


@lru_cache(maxsize=1)
def supports_gso() -> bool:
    """Whether this kernel cuts up trains (Linux 4.18). A device may still refuse: `Sender` then falls back."""
    if not LINUX:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return _try_option(probe, socket.IPPROTO_UDP, _UDP_SEGMENT, 0)


class Sender:
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
                if error.errno in _REFUSED:
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
        header = ((int(socket.IPPROTO_UDP), _UDP_SEGMENT, _GSO_STRIDE.pack(stride)),)
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
                if code in _REFUSED:
                    # What an earlier datagram came back with is handed out instead of sending this one: once more.
                    counters.refused += 1
                    if tries_left:
                        continue
                elif code not in _UNDELIVERABLE:
                    raise
                break
            counters.bytes_out += sent
            counters.datagrams_out += datagrams
            return _Outcome.LEFT
        counters.undeliverable += datagrams
        return _Outcome.LOST


class _Receiver:
    """Reading half of both kinds of socket."""

    __slots__ = ("_buffer", "_ignored_source", "_seen_drops", "_socket", "_view", "counters")

    def __init__(self, sock: socket.socket, counters: Counters) -> None:
        self.counters = counters
        self._socket = sock
        self._buffer = [bytearray(_BUFFER_BYTES)]
        self._view = memoryview(self._buffer[0])
        self._ignored_source: Address | None = None
        self._seen_drops = 0

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
                    if error.errno in _REFUSED or error.errno in _UNDELIVERABLE:
                        self.counters.refused += 1
                        continue
                    if self._socket.fileno() < 0:  # closed by whoever handles what this pass has read
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
        # The counter has 32 bits and wraps. A small step back (see MulticastReceiver) is no drop and is waited out.
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

    def _drops(self) -> int | None:
        return _socket_drops(self._socket)


class UnicastSocket(_Receiver):
    """The node's own socket: it sends everything, and receives what is meant for this node alone."""

    __slots__ = ("address", "send", "send_many", "sender", "ttl")

    def __init__(
        self,
        interface: str = "127.0.0.1",
        port: int = 0,
        *,
        ttl: int | None = None,
        loop: bool = True,
        gso: bool = True,
        counters: Counters | None = None,
    ) -> None:
        """Bind to one interface's address; port 0 takes a free one.

        ttl: of multicasts; by default 0 on loopback (it never leaves the host) and 1 elsewhere (the local network).
        loop: whether other nodes on this host hear our multicasts. A host with only one node saves the work by False
        (loopback ignores it). gso: False sends one datagram a call even where the system could do better.
        """
        _check_interface(interface)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            _ask_for_buffers(sock)
            if LINUX:
                _try_option(sock, socket.IPPROTO_UDP, _UDP_GRO, 1)
            # No SO_REUSEADDR: a second node on this address must fail here, not take the first one's datagrams.
            try:
                sock.bind((interface, port))
            except (OSError, OverflowError) as error:
                raise AddressError(f"cannot bind to {interface}:{port}: {error}") from error
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(loop))
            if ttl is None:
                ttl = 0 if is_loopback(interface) else 1
            self.ttl = ttl
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            host, bound_port = sock.getsockname()
        except BaseException:
            sock.close()
            raise
        super().__init__(sock, counters if counters is not None else Counters())
        self.address: Address = (host, bound_port)
        self.sender = Sender(sock, self.counters, gso=gso and supports_gso())
        # Bound methods of the sender, not wrappers: a wrapper would cost a call per block.
        self.send = self.sender.send
        self.send_many = self.sender.send_many

    def set_ttl(self, ttl: int) -> None:
        """How many hops the multicasts go that are sent from now on."""
        if ttl != self.ttl:
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            self.ttl = ttl

    @property
    def send_buffer_bytes(self) -> int:
        """SO_SNDBUF as the system tells it."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


class MulticastReceiver(_Receiver):
    """Receives what is multicast to one group address, except what the node's own socket sent."""

    __slots__ = ("_echo", "address")

    def __init__(
        self,
        group: Address,
        interface: str = "127.0.0.1",
        *,
        own: Address | None,
        kernel_filter: bool = True,
        counters: Counters | None = None,
    ) -> None:
        """Join `group` on an interface. `own` is the node's `UnicastSocket.address`: its multicasts are left out.

        kernel_filter: False leaves them out in `drain` even where the kernel could do it.
        """
        _check_interface(interface)
        if not is_multicast(group[0]):
            raise AddressError(f"{group[0]} is not a multicast address: group_address() gives one")
        sock = _open_group(group)
        echo: _OwnEcho | None = None
        try:
            filtered = own is not None and kernel_filter and _drop_source(sock, own)
            _join(sock, group[0], interface)
            if filtered and own is not None:
                echo = _OwnEcho.open(group, interface, own)
                if echo is None:  # the filter without the count would report each of our sends as a drop
                    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        except BaseException:
            sock.close()
            raise
        super().__init__(sock, counters if counters is not None else Counters())
        self.address = group
        self._echo = echo
        self._ignored_source = own if echo is None else None
        self._seen_drops = self._drops() or 0

    @property
    def filters_own(self) -> bool:
        """Whether the kernel leaves out our own multicasts; if not, `drain` does, after a wasted copy."""
        return self._echo is not None

    def close(self) -> None:
        """Leave the group and close. Again is harmless; remove it from the loop first."""
        super().close()
        if self._echo is not None:
            self._echo.close()

    def _drops(self) -> int | None:
        # The echo is read second: a multicast of ours that arrives between the two makes the difference too small for
        # a moment, which `read_drops` waits out; the other way round it would be reported as a loss.
        drops = super()._drops()
        if self._echo is None or drops is None:
            return drops
        return drops - self._echo.drops()


class _OwnEcho:
    """Counts our own multicasts as they come back, without receiving them.

    The kernel counts a datagram that a filter rejects as dropped by the socket, like one it had no room for; the drop
    counter would rise with each send. This second socket in the same group is *connected* to our own address, so the
    kernel offers it our multicasts only, and its filter rejects all: its drop counter is the number to subtract.
    Counting our sends instead is inexact: a queueing discipline may lose them or cut up trains on the way. A filter
    that shortens to nothing instead of rejecting is not counted, but wakes the loop for each send. This costs 1 us a
    send; receiving our own blocks costs 4.4 us and a wake-up.
    """

    __slots__ = ("_socket",)

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    @classmethod
    def open(cls, group: Address, interface: str, own: Address) -> _OwnEcho | None:
        """None where the system cannot do it."""
        try:
            sock = _open_group(group)
        except AddressError:
            return None
        if _attach_filter(sock, _REJECT_ALL) and _socket_drops(sock) is not None:
            with suppress(OSError, AddressError):
                sock.connect(own)  # before joining, or others' datagrams would be counted in between
                _join(sock, group[0], interface)
                return cls(sock)
        sock.close()
        return None

    def drops(self) -> int:
        return _socket_drops(self._socket) or 0

    def close(self) -> None:
        self._socket.close()


# Receiving, in detail. -----------------------------------------------------------------------------------------------

# A plain int: `&` with the enum's members, in Python, costs 0.6 us a read.
_TRUNCATED: Final = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)


def _stride(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The GRO stride as the kernel tells it, or 0."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_UDP and kind == _UDP_GRO and len(data) == _GRO_STRIDE.size:
            stride: int = _GRO_STRIDE.unpack(data)[0]
            return stride
    return 0


def _socket_drops(sock: socket.socket) -> int | None:
    """The socket's drop counter; None where the system does not tell, or the socket is closed."""
    if not LINUX:
        return None
    try:
        memory = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        drops: int = _MEMINFO.unpack(memory)[8]
    except (OSError, struct.error):
        return None
    return drops


# Opening sockets, in detail. -----------------------------------------------------------------------------------------


def _check_interface(interface: str) -> None:
    try:
        packed = socket.inet_pton(socket.AF_INET, interface)
    except OSError:
        raise AddressError(f"{interface!r} is no IPv4 address of an interface, like 127.0.0.1") from None
    if packed == b"\0\0\0\0" or is_multicast(interface):
        raise AddressError(f"{interface}: give the address of one interface; datagrams from it must name this node")


def _open_group(group: Address) -> socket.socket:
    """A socket bound to a group's address and port, not yet a member."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        _ask_for_buffers(sock)
        # Several nodes on a host listen to one group. On Linux SO_REUSEADDR is enough, and SO_REUSEPORT would want all
        # of them to have the same user; BSD systems want SO_REUSEPORT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if LINUX else socket.SO_REUSEPORT, 1)
        if LINUX:
            # Without this a socket hears all groups that *anybody* on the host joined, on its port.
            _try_option(sock, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            _try_option(sock, socket.IPPROTO_UDP, _UDP_GRO, 1)
        # Linux filters by the bound address, so that neither other groups on the port nor unicasts leak in.
        sock.bind(group if LINUX else ("", group[1]))
    except OSError as error:
        sock.close()
        raise AddressError(f"cannot listen to group address {group[0]}:{group[1]}: {error}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _join(sock: socket.socket, host: str, interface: str) -> None:
    membership = socket.inet_aton(host) + socket.inet_aton(interface)
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        raise AddressError(f"cannot join {host} on interface {interface}: {error}; does it have multicast?") from error


def _ask_for_buffers(sock: socket.socket) -> None:
    # Linux grants less without a word; BSD systems refuse, so that halving finds what they grant.
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        size = SOCKET_BUFFER_BYTES
        while size > _BUFFER_BYTES and not _try_option(sock, socket.SOL_SOCKET, option, size):
            size //= 2


def _try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True


# The filter: classic BPF (linux/filter.h), which needs no privilege. -------------------------------------------------

_INSTRUCTION = struct.Struct("=HBBI")  # code, jump if true, jump if false, k
_FPROG = struct.Struct("@HP")  # length, pointer to the instructions; native alignment
_NET_OFF: Final = 0xFFF0_0000  # SKF_NET_OFF: offsets from here count from the start of the IP header
_LD_W_ABS, _LD_H_IND, _LDX_B_MSH, _JEQ, _RET = 0x20, 0x48, 0xB1, 0x15, 0x06
_REJECT_ALL: Final = _INSTRUCTION.pack(_RET, 0, 0, 0)


def _drop_source(sock: socket.socket, source: Address) -> bool:
    """Have the kernel reject datagrams of one source address and port."""
    host = int.from_bytes(socket.inet_aton(source[0]), "big")
    program = (
        (_LD_W_ABS, 0, 0, _NET_OFF + 12),  # A = IP source address
        (_JEQ, 0, 3, host),  # another: accept
        (_LDX_B_MSH, 0, 0, _NET_OFF),  # X = length of the IP header, options included
        (_LD_H_IND, 0, 0, _NET_OFF),  # A = UDP source port
        (_JEQ, 1, 0, source[1]),  # ours too: reject
        (_RET, 0, 0, 0xFFFF_FFFF),  # accept
        (_RET, 0, 0, 0),  # reject
    )
    return _attach_filter(sock, b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))


def _attach_filter(sock: socket.socket, program: bytes) -> bool:
    if not LINUX:
        return False
    memory = ctypes.create_string_buffer(program, len(program))  # the kernel copies it during the call
    descriptor = _FPROG.pack(len(program) // _INSTRUCTION.size, ctypes.addressof(memory))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, descriptor)
    except OSError:
        return False
    return True
