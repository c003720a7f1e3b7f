"""Where the sends of a pass go, and what happens when the network takes no more.

What could not leave is kept in order, and everything behind it as well: the driver does nothing else until it has left,
so at most one pass is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ordercast.config import REGIONS_UNDERLAY
from ordercast.engine import Buffer, Send, To
from ordercast.groups.host import Host
from ordercast.runtime.listening import Listening
from ordercast.runtime.udp.sockets import UnicastSocket
from ordercast.view import Address
from ordercast.wire.header import Kind

_PROBE: Final = int(Kind.PROBE)
_SYMBOLIC: Final = frozenset({To.ALL, To.MULTICAST, To.ANYONE})


class Transmitter:
    """Resolves the symbolic destinations of sends and hands them to the node's socket."""

    __slots__ = ("_host", "_listening", "_peers", "_socket", "_unsent", "probes")

    def __init__(
        self,
        socket: UnicastSocket,
        host: Host,
        *,
        peers: Sequence[Address],
        listening: Listening,
    ) -> None:
        """`listening`: knows the multicast addresses of underlays."""
        self._socket = socket
        self._host = host
        self._peers = peers
        self._listening = listening
        self.probes: list[Send] = []  # of the last pass: they leave by a socket of their own
        # what could not leave, with its TTL: at most one pass
        self._unsent: deque[tuple[Sequence[Address], Sequence[Buffer], int, int]] = deque()

    def transmit(self, sends: Sequence[tuple[str, Send]]) -> bool:
        """Send what a pass returned, in order. False: something is kept; call `resume` when the socket is writable."""
        socket = self._socket
        send = socket.send
        unsent = self._unsent
        last = ""  # the underlay that the three below are of: looked up once, however much it sends
        multicast: Address | None = None
        copies: Sequence[Address] = ()
        ttl = socket.ttl
        for underlay, (to, buffers, stride) in sends:
            if to not in _SYMBOLIC:
                if buffers[0][1] == _PROBE:
                    self.probes.append(Send(to, buffers, stride))
                    continue
                if underlay == REGIONS_UNDERLAY and not unsent:
                    ttl = self._host.attached.reach(to, self._host.me.ttl)  # `to` may be the address of a region
                    last = ""
                    socket.set_ttl(ttl)
                if unsent or not send(to, buffers, stride):
                    unsent.append(((to,), buffers, stride, ttl))
                continue
            if underlay != last:
                last = underlay
                multicast = self._listening.multicast_of(underlay)
                if multicast is not None:
                    copies = self._host.copies(underlay)
                    ttl = self._host.ttl(underlay)
                    if not unsent:
                        socket.set_ttl(ttl)
            addresses: Sequence[Address]
            if multicast is None:
                if to == To.MULTICAST:
                    continue
                addresses = self._host.audience(underlay) if to == To.ALL else self._peers
            elif to == To.ANYONE:
                addresses = [multicast, *self._peers]
            elif to == To.ALL and copies:
                addresses = [multicast, *copies]
            else:
                if unsent or not send(multicast, buffers, stride):
                    unsent.append(((multicast,), buffers, stride, ttl))
                continue
            if unsent or not socket.send_many(addresses, buffers, stride):
                unsent.append((addresses, buffers, stride, ttl))
        return not unsent

    def resume(self) -> bool:
        """Send what was kept. True when all of it has left."""
        socket, unsent = self._socket, self._unsent
        while unsent:
            # A send that stopped half-way goes on there: the socket knows it by the identity of these objects.
            addresses, buffers, stride, ttl = unsent[0]
            socket.set_ttl(ttl)
            if len(addresses) == 1:
                has_left = socket.send(addresses[0], buffers, stride)
            else:
                has_left = socket.send_many(addresses, buffers, stride)
            if not has_left:
                return False
            unsent.popleft()
        return True

    def clear(self) -> None:
        """The node stops: what was kept is lost like any datagram."""
        self._unsent.clear()
