"""The socket that probes leave by, and its error queue: where no process listens (docs/design/detector.md).

Without `IP_RECVERR` a socket that is not connected never learns that nobody listens where its datagrams go. With it the
kernel keeps what ICMP says, and a copy of the datagram that it is about (Linux). Each such error is also handed out by
the next call on the socket, in the place of what that call is for, and makes it readable and writable at once; libuv
takes that for the end of the socket. So the node's own socket does without, and probes have one of their own. It is
watched through an epoll descriptor, which is readable when there are errors and has none itself.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Final

from ordercast.engine import Send
from ordercast.errors import OutOfDescriptors
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.options import LINUX, open_socket, try_option
from ordercast.view import Address

ERRORS_READ: Final = 64
"""Errors that one pass reads. The rest stays in the queue, and the descriptor stays readable."""

# linux/in.h, linux/socket.h, linux/errqueue.h: what Python does not name
_IP_RECVERR: Final = 11
_MSG_ERRQUEUE: Final = 0x2000
_EXTENDED_ERROR: Final = struct.Struct("=IBBBBII")  # errno, origin, type, code, padding, info, data
_OFFENDER: Final = struct.Struct("=HH4s")  # family, port, IPv4 address: the machine that says so
_FROM_ICMP: Final = 2
_UNREACHABLE: Final = (3, 3)  # type and code: destination unreachable, port unreachable
_QUOTED_BYTES: Final = 128  # a probe is shorter, and comes back whole
_ANCILLARY_BYTES: Final = 256


class ProbeSocket:
    """Sends probes, and tells which came back."""

    __slots__ = ("_epoll", "_socket", "counters")

    def __init__(self, sock: socket.socket, epoll: select.epoll, counters: Counters) -> None:
        self._socket = sock
        self._epoll = epoll
        self.counters = counters

    @classmethod
    def open(cls, interface: str, counters: Counters) -> ProbeSocket | None:
        """None where the system has no error queues, or no descriptor is left: the node then goes without probes."""
        if not LINUX:
            return None
        try:
            sock = open_socket()
        except OutOfDescriptors:
            return None
        try:
            sock.bind((interface, 0))
            if try_option(sock, socket.IPPROTO_IP, _IP_RECVERR, 1):
                epoll = select.epoll()
                epoll.register(sock, 0)  # errors are always told
                return cls(sock, epoll, counters)
        except OSError:
            pass
        sock.close()
        return None

    def fileno(self) -> int:
        """For `loop.add_reader`: readable while there are errors; -1 once closed."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def send(self, send: Send) -> None:
        """A probe that cannot leave is lost, as on the network."""
        data = b"".join(send.buffers)
        for _ in range(2):  # the first call may be told what an earlier probe came back with
            self.counters.send_calls += 1
            try:
                self._socket.sendto(data, send.to)
            except (OSError, OverflowError, TypeError, ValueError):
                continue
            self.counters.datagrams_out += 1
            self.counters.bytes_out += len(data)
            return
        self.counters.undeliverable += 1

    def drain(self) -> list[tuple[Address, bytes]]:
        """Where no process listens, with the probe that says so; errors of other kinds are left out.

        Only the machine that a probe went to can know that: a word of another one is left out, too.
        """
        found: list[tuple[Address, bytes]] = []
        for _ in range(ERRORS_READ):
            try:
                quoted, ancillary, _, address = self._socket.recvmsg(_QUOTED_BYTES, _ANCILLARY_BYTES, _MSG_ERRQUEUE)
            except OSError:  # there is no more
                break
            self.counters.refused += 1
            for level, kind, data in ancillary:
                if level == socket.IPPROTO_IP and kind == _IP_RECVERR and _is_unreachable(data, address):
                    found.append((address, quoted))
        return found

    def close(self) -> None:
        self._epoll.close()
        self._socket.close()


def _is_unreachable(data: bytes, address: Address) -> bool:
    if len(data) < _EXTENDED_ERROR.size + _OFFENDER.size:
        return False
    _, origin, kind, code, _, _, _ = _EXTENDED_ERROR.unpack_from(data)
    family, _, offender = _OFFENDER.unpack_from(data, _EXTENDED_ERROR.size)
    if origin != _FROM_ICMP or (kind, code) != _UNREACHABLE or family != socket.AF_INET:
        return False
    return socket.inet_ntoa(offender) == address[0]
