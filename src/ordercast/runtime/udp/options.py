"""Opening sockets: options that Python does not name, buffers, groups, and the kernel's drop counter."""

from __future__ import annotations

import errno
import resource
import socket
import struct
import sys
from functools import lru_cache
from typing import Final

from ordercast.errors import OutOfDescriptors
from ordercast.runtime.addresses import AddressError, is_multicast
from ordercast.view import Address

LINUX: Final = sys.platform == "linux"

SOCKET_BUFFER_BYTES: Final = 4 << 20
"""Asked of both socket buffers. Stock Linux grants 208 KB; `receive_buffer_bytes` says what it was."""

BUFFER_BYTES: Final = 1 << 16
"""No datagram and no GRO batch is larger."""

# What Python 3.11 does not name (linux/udp.h, linux/in.h, asm-generic/socket.h, linux/sock_diag.h).
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
_IP_MULTICAST_ALL: Final = 49
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")  # the last, SK_MEMINFO_DROPS, is what is wanted

REFUSED: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})
"""What an earlier datagram came back with."""

UNDELIVERABLE: Final = frozenset(
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
"""What the network may do to a datagram, and destinations that no datagram reaches. EINVAL is among them because a
forged source port of 0 must not stop a node that answers it."""

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


def open_socket() -> socket.socket:
    """A UDP socket that does not block. Raises OutOfDescriptors where the process has no descriptor left."""
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise out_of_descriptors(error) from error
        raise
    sock.setblocking(False)
    return sock


def out_of_descriptors(error: OSError) -> OutOfDescriptors:
    """What to raise in place of the system's own error."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    whose = f"this process may have {limit}" if error.errno == errno.EMFILE else "the whole system has none"
    return OutOfDescriptors(
        error.errno,
        f"no file descriptor is left ({whose}): raise the limit (ulimit -n), or be in fewer groups; a node takes one "
        "descriptor, or three once it has probed a silent member, and each of its groups two",
    )


@lru_cache(maxsize=1)
def supports_gso() -> bool:
    """Whether this kernel cuts up trains (Linux 4.18). A device may still refuse: `UdpSender` then falls back."""
    if not LINUX:
        return False
    with open_socket() as probe:
        return try_option(probe, socket.IPPROTO_UDP, UDP_SEGMENT, 0)


def socket_drops(sock: socket.socket) -> int | None:
    """The socket's drop counter; None where the system does not tell, or the socket is closed."""
    if not LINUX:
        return None
    try:
        memory = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        drops: int = _MEMINFO.unpack(memory)[8]
    except (OSError, struct.error):
        return None
    return drops


def check_interface(interface: str) -> None:
    try:
        packed = socket.inet_pton(socket.AF_INET, interface)
    except OSError:
        raise AddressError(f"{interface!r} is no IPv4 address of an interface, like 127.0.0.1") from None
    if packed == b"\0\0\0\0" or is_multicast(interface):
        raise AddressError(f"{interface}: give the address of one interface; datagrams from it must name this node")


def open_group(group: Address) -> socket.socket:
    """A socket bound to a group's address and port, not yet a member."""
    sock = open_socket()
    try:
        ask_for_buffers(sock)
        # Several nodes on a host listen to one group. On Linux SO_REUSEADDR is enough, and SO_REUSEPORT would want all
        # of them to have the same user; BSD systems want SO_REUSEPORT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if LINUX else socket.SO_REUSEPORT, 1)
        if LINUX:
            # Without this a socket hears all groups that any program on the host joined on its port.
            try_option(sock, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            try_option(sock, socket.IPPROTO_UDP, UDP_GRO, 1)
        # Linux filters by the bound address, so that neither other groups on the port nor unicasts leak in.
        sock.bind(group if LINUX else ("", group[1]))
    except OSError as error:
        sock.close()
        raise AddressError(f"cannot listen to group address {group[0]}:{group[1]}: {error}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def join_group(sock: socket.socket, host: str, interface: str) -> None:
    membership = socket.inet_aton(host) + socket.inet_aton(interface)
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        raise AddressError(f"cannot join {host} on interface {interface}: {error}; does it have multicast?") from error


def ask_for_buffers(sock: socket.socket) -> None:
    # Linux grants less without a word; BSD systems refuse, so that halving finds what they grant.
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        size = SOCKET_BUFFER_BYTES
        while size > BUFFER_BYTES and not try_option(sock, socket.SOL_SOCKET, option, size):
            size //= 2


def try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True
