"""The two kinds of socket that a node has."""

from __future__ import annotations

import socket

from ordercast.runtime.addresses import AddressError, is_loopback, is_multicast
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.filters import OwnEcho, detach_filter, drop_source
from ordercast.runtime.udp.options import (
    LINUX,
    UDP_GRO,
    ask_for_buffers,
    check_interface,
    join_group,
    open_group,
    open_socket,
    supports_gso,
    try_option,
)
from ordercast.runtime.udp.reader import DatagramReader
from ordercast.runtime.udp.sender import UdpSender
from ordercast.view import Address


class UnicastSocket:
    """The node's own socket: it sends everything, and receives what is meant for this node alone."""

    __slots__ = (
        "_socket",
        "address",
        "close",
        "counters",
        "drain",
        "fileno",
        "read_drops",
        "reader",
        "send",
        "send_many",
        "sender",
        "ttl",
    )

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
        check_interface(interface)
        sock = open_socket()
        try:
            ask_for_buffers(sock)
            if LINUX:
                try_option(sock, socket.IPPROTO_UDP, UDP_GRO, 1)
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
        self._socket = sock
        self.counters = counters if counters is not None else Counters()
        self.address: Address = (host, bound_port)
        self.sender = UdpSender(sock, self.counters, gso=gso and supports_gso())
        self.reader = DatagramReader(sock, self.counters)
        # Bound methods of the two halves, not wrappers: a wrapper would cost a call per block.
        self.send = self.sender.send
        self.send_many = self.sender.send_many
        self.fileno = self.reader.fileno
        self.drain = self.reader.drain
        self.read_drops = self.reader.read_drops
        self.close = self.reader.close

    def set_ttl(self, ttl: int) -> None:
        """How many hops the multicasts go that are sent from now on."""
        if ttl != self.ttl:
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            self.ttl = ttl

    @property
    def receive_buffer_bytes(self) -> int:
        """SO_RCVBUF as the system tells it. Linux doubles what it was asked for and counts its own overhead in it."""
        return self.reader.receive_buffer_bytes

    @property
    def send_buffer_bytes(self) -> int:
        """SO_SNDBUF as the system tells it."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


class MulticastReceiver:
    """Receives what is multicast to one group address, except what the node's own socket sent."""

    __slots__ = ("_echo", "address", "close", "counters", "drain", "fileno", "read_drops", "reader")

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
        check_interface(interface)
        if not is_multicast(group[0]):
            raise AddressError(f"{group[0]} is not a multicast address: group_address() gives one")
        sock = open_group(group)
        echo: OwnEcho | None = None
        try:
            filtered = own is not None and kernel_filter and drop_source(sock, own)
            join_group(sock, group[0], interface)
            if filtered and own is not None:
                echo = OwnEcho.open(group, interface, own)
                if echo is None:  # the filter without the count would report each of our sends as a drop
                    detach_filter(sock)
        except BaseException:
            sock.close()
            raise
        self._echo = echo
        self.address = group
        self.counters = counters if counters is not None else Counters()
        self.reader = DatagramReader(sock, self.counters, own=own if echo is None else None, echo=echo)
        self.fileno = self.reader.fileno
        self.drain = self.reader.drain
        self.read_drops = self.reader.read_drops
        self.close = self.reader.close

    @property
    def filters_own(self) -> bool:
        """Whether the kernel leaves out our own multicasts; if not, `drain` does, after a wasted copy."""
        return self._echo is not None

    @property
    def receive_buffer_bytes(self) -> int:
        """SO_RCVBUF as the system tells it."""
        return self.reader.receive_buffer_bytes
