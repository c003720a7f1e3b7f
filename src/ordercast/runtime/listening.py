"""The multicast addresses that a node listens to: one socket for each address, which underlays may share."""

from __future__ import annotations

from collections.abc import Callable

from ordercast.runtime.addresses import group_address
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sockets import MulticastReceiver
from ordercast.view import Address


class Listening:
    """The sockets of the underlays that a node is in. The driver watches the sockets that are returned."""

    __slots__ = ("_counters", "_own", "_receivers", "addresses")

    def __init__(self, own: Address, counters: Counters) -> None:
        """`own`: the node's address. Its multicasts are left out."""
        self._own = own
        self._counters = counters
        self._receivers: dict[Address, MulticastReceiver] = {}
        self.addresses: dict[str, Address] = {}  # underlay -> its multicast address

    @property
    def receivers(self) -> list[MulticastReceiver]:
        return list(self._receivers.values())

    def add(self, underlay: str) -> MulticastReceiver | None:
        """Listen to an underlay: the socket that was opened for it, None where there is one already."""
        if underlay in self.addresses:
            return None
        address = group_address(underlay)
        opened: MulticastReceiver | None = None
        if address not in self._receivers:
            opened = MulticastReceiver(address, self._own[0], own=self._own, counters=self._counters)
            self._receivers[address] = opened
        self.addresses[underlay] = address
        return opened

    def keep(self, is_wanted: Callable[[str], bool]) -> list[MulticastReceiver]:
        """Give up the other underlays: the sockets that nothing needs any more. The caller closes them."""
        unused = []
        for underlay in [underlay for underlay in self.addresses if not is_wanted(underlay)]:
            address = self.addresses.pop(underlay)
            if address not in self.addresses.values():
                unused.append(self._receivers.pop(address))
        return unused
