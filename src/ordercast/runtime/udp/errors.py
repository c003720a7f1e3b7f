"""The error queue of a socket: which datagrams came back, and why (Linux, `IP_RECVERR`; docs/design/detector.md).

Without `IP_RECVERR` a socket that is not connected never learns that nobody listens where its datagrams go. With it the
kernel keeps what ICMP says, and a copy of the datagram that it is about. Each such error is also handed out by the next
call on the socket, in the place of what that call is for: `UdpSender` and `DatagramReader` then try again.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.options import LINUX, try_option
from ordercast.view import Address

ERRORS_READ: Final = 64
"""Errors that one pass reads. The rest stays in the queue, and the socket stays readable."""

# linux/in.h, linux/errqueue.h: what Python does not name
_IP_RECVERR: Final = 11
_MSG_ERRQUEUE: Final = 0x2000
_EXTENDED_ERROR: Final = struct.Struct("=IBBBBII")  # errno, origin, type, code, padding, info, data
_OFFENDER: Final = struct.Struct("=HH4s")  # family, port, IPv4 address: the machine that says so
_FROM_ICMP: Final = 2
_UNREACHABLE: Final = (3, 3)  # type and code: destination unreachable, port unreachable
_QUOTED_BYTES: Final = 1_024  # a report quotes 548 bytes of a datagram at the most
_ANCILLARY_BYTES: Final = 256


def ask_for_errors(sock: socket.socket) -> bool:
    """Have the kernel keep what comes back of datagrams; False where it cannot."""
    return LINUX and try_option(sock, socket.IPPROTO_IP, _IP_RECVERR, 1)


class ErrorQueue:
    """Reads the error queue of one socket. `is_open`: there is one."""

    __slots__ = ("_seen", "_socket", "counters", "is_open")

    def __init__(self, sock: socket.socket, counters: Counters) -> None:
        self._socket = sock
        self.counters = counters
        self.is_open = ask_for_errors(sock)
        self._seen = 0  # errors that calls on the socket were told of, as of the last look

    def is_due(self, received: bool) -> bool:
        """Whether to look: a call was told of an error, or the socket was readable and had nothing to read."""
        return self.is_open and (self.counters.refused != self._seen or not received)

    def drain(self) -> list[tuple[Address, bytes]]:
        """Where no process listens, with what is quoted of the datagram; errors of other kinds are left out.

        Only the machine that a datagram went to can know that: a word of another one is left out, too.
        """
        self._seen = self.counters.refused
        found: list[tuple[Address, bytes]] = []
        for _ in range(ERRORS_READ):
            try:
                quoted, ancillary, _, address = self._socket.recvmsg(_QUOTED_BYTES, _ANCILLARY_BYTES, _MSG_ERRQUEUE)
            except OSError:  # there is no more; or the socket was closed
                break
            self.counters.errors_in += 1
            for level, kind, data in ancillary:
                if level == socket.IPPROTO_IP and kind == _IP_RECVERR and _is_unreachable(data, address):
                    found.append((address, quoted))
        return found


def _is_unreachable(data: bytes, address: Address) -> bool:
    if len(data) < _EXTENDED_ERROR.size + _OFFENDER.size:
        return False
    _, origin, kind, code, _, _, _ = _EXTENDED_ERROR.unpack_from(data)
    family, _, offender = _OFFENDER.unpack_from(data, _EXTENDED_ERROR.size)
    if origin != _FROM_ICMP or (kind, code) != _UNREACHABLE or family != socket.AF_INET:
        return False
    return socket.inet_ntoa(offender) == address[0]
