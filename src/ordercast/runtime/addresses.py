"""Where groups and peers live: names to multicast addresses, and "host:port" text to addresses.

RMP section 3.1 hashes a group's name to 24 bits of a class D address and 15 bits of a port whose high bit is set. No
authority is asked, so every member must compute the same answer from the name alone. Two groups may collide; that costs
wasted reads and no correctness, because datagrams carry a tag of the group and the 64-bit id of its ring (RMP tells
groups apart by view ids).

Deviations, with reasons:

- 18 address bits, not 24. The default range is 239.192.0.0/14, the organisation-local scope of RFC 2365, which routers
  know where to stop; most of the other 24-bit range 239.0.0.0/8 is unassigned. Ethernet keeps only the low 23 bits of a
  multicast address, so 24 bits alias in pairs, and parts of 239/8 share their MAC addresses with 224.0.0.x, which
  switches always flood. All 18 bits of the /14 survive and touch none of those.
- The port is hashed into 61000..65535, the top of RMP's 32768..65535. RMP kept clear of *static* ports. Today's Linux
  also hands out 32768..60999 to programs that ask for any port. One such socket on the wildcard address makes a join
  of that port fail with EADDRINUSE on that host alone, at random. Trying another port is no answer: the other members
  would not know. With 18 + 12 bits, a thousand groups have one colliding pair in about two thousand cases.

IPv4 only. IPv6 text is recognised and refused with a clear error rather than misread as a host name.
"""

from __future__ import annotations

import ipaddress
import socket
from hashlib import blake2b

from ordercast.errors import UsageError
from ordercast.view import Address

ORGANISATION_LOCAL = "239.192.0.0/14"
"""Default range of group addresses (RFC 2365, section 6.2)."""

FIRST_GROUP_PORT = 61_000
"""First port above Linux's default `ip_local_port_range`; the last group port is 65535."""

_GROUP_PORTS = 65_536 - FIRST_GROUP_PORT
_MULTICAST = ipaddress.IPv4Network("224.0.0.0/4")

# A change splits groups between old and new nodes. Tags and ring ids are hashed with
# other persons (`ordercast.view`), so that groups that share an address do not tend to share a tag.
_PERSON_ADDRESS = b"ordercast addr"


class AddressError(UsageError):
    """An address, or a text that should be one, cannot be used: the text says why and what to give instead."""


def group_address(name: str, *, base: str = ORGANISATION_LOCAL) -> Address:
    """Multicast address and port of a group. RMP section 3.1; `base` is the range of addresses, as "network/bits"."""
    network = _multicast_network(base)
    digest = _digest(name, _PERSON_ADDRESS)
    # The modulo's bias is below 2**-14 for both parts, far under what the birthday bound makes of so few bits.
    host = int.from_bytes(digest[:4], "big") % network.num_addresses
    port = FIRST_GROUP_PORT + int.from_bytes(digest[4:], "big") % _GROUP_PORTS
    return str(network.network_address + host), port


def assigned_address(name: str, answer: object) -> Address:
    """What an authority has assigned to a group, checked: a multicast address and a port (RMP section 3.1)."""
    if isinstance(answer, tuple) and len(answer) == 2:
        host, port = answer
        is_port = isinstance(port, int) and not isinstance(port, bool) and 0 < port <= 65_535
        if isinstance(host, str) and is_multicast(host) and is_port:
            return host, port
    raise AddressError(
        f"addresses({name!r}) gave {answer!r}: a group has a multicast address and a port, as in ('239.192.0.1', 61000)"
    )


def parse_peer(text: str) -> Address:
    """Address of another node from "host:port". Names are looked up (this blocks: for start-up, not for the loop)."""
    host, port = _host_and_port(text)
    if port == 0:
        raise AddressError(f"{text!r}: port 0 stands for any port and names no peer; give 1 to 65535")
    return host, port


def peer_address(peer: object) -> Address:
    """Address of another node from "host:port" or a pair of both. It blocks where a name is looked up."""
    if isinstance(peer, str):
        return parse_peer(peer)
    if isinstance(peer, tuple) and len(peer) == 2 and isinstance(peer[0], str) and isinstance(peer[1], int):
        return parse_peer(f"{peer[0]}:{peer[1]}")
    raise UsageError(f'a peer is "host:port" or a pair of both, not {peer!r}')


def interface_address(host: object) -> str:
    """The IPv4 address of a node's own interface, given as such or by a name, such as localhost."""
    if not isinstance(host, str):
        raise UsageError(f"host is the address or the name of an interface, such as 127.0.0.1, not {host!r}")
    return parse_bind(f"{host}:0")[0]


def parse_bind(text: str) -> Address:
    """A node's own address from "host:port" or "host"; no port, or port 0, lets the system choose one."""
    return _host_and_port(text if ":" in text else f"{text}:0")


def is_loopback(host: str) -> bool:
    """Whether this IPv4 address never leaves the machine. Text that is no IPv4 address is not loopback."""
    address = _literal(host)
    return address is not None and address.is_loopback


def is_multicast(host: str) -> bool:
    """Whether this is an IPv4 multicast (class D) address."""
    address = _literal(host)
    return address is not None and address.is_multicast


def _digest(name: str, person: bytes) -> bytes:
    # Names are compared as the bytes they are: no Unicode normalisation, whose tables differ between Python versions.
    if not name:
        raise AddressError("a group's name must not be empty")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise AddressError(f"group name {name!r} has no UTF-8 form: {error.reason}") from None
    return blake2b(encoded, digest_size=8, person=person).digest()


def _multicast_network(base: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(base)
    except ValueError as error:
        raise AddressError(f"{base!r} is no IPv4 network ({error}); give one like {ORGANISATION_LOCAL}") from None
    if not network.subnet_of(_MULTICAST):
        raise AddressError(f"{base!r} is not multicast: give a part of {_MULTICAST}, like {ORGANISATION_LOCAL}")
    return network


def _literal(host: str) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        return None


def _host_and_port(text: str) -> Address:
    host, colon, port_text = text.strip().rpartition(":")
    if ":" in host or host.startswith("["):
        raise AddressError(f"{text!r}: IPv6 is not supported; give an IPv4 address as host:port")
    if not colon or not host:
        raise AddressError(f"{text!r}: expected host:port, like 127.0.0.1:7400")
    # str.isdigit alone would let other scripts' digits through, which int() then reads.
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65_535):
        raise AddressError(f"{text!r}: {port_text!r} is no port; give a number from 1 to 65535")
    address = _literal(host) or _look_up(text, host)
    if address.is_unspecified:
        raise AddressError(f"{text!r}: the wildcard address names no node; give the address of one interface")
    if address.is_multicast or address == ipaddress.IPv4Address("255.255.255.255"):
        raise AddressError(f"{text!r}: a node has a unicast address; group addresses come from the group's name")
    return str(address), int(port_text)


def _look_up(text: str, host: str) -> ipaddress.IPv4Address:
    # getaddrinfo reads "127.1" as 127.0.0.1 and "1" as 0.0.0.1; a mistyped address must not become another one.
    if all(character in "0123456789." for character in host):
        raise AddressError(f"{text!r}: {host!r} is no IPv4 address; it needs four numbers from 0 to 255")
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"{text!r}: no IPv4 address is known for {host!r} ({error})") from None
    return ipaddress.IPv4Address(found[0][4][0])
