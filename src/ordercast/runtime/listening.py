"""The multicast addresses that a node listens to: one socket for each address, which groups may share."""

from __future__ import annotations

from collections.abc import Callable

from ordercast.runtime.addresses import group_address
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sockets import MulticastReceiver
from ordercast.view import Address


class Listening:
    """The sockets of the groups that a node is in. Opened and closed sockets are returned: the driver watches them."""

    __slots__ = ("_counters", "_own", "_receivers", "addresses")

    def __init__(self, own: Address, counters: Counters) -> None:
        """`own`: the node's address. Its multicasts are left out."""
        self._own = own
        self._counters = counters
        self._receivers: dict[Address, MulticastReceiver] = {}
        self.addresses: dict[str, Address] = {}  # group -> its multicast address

    @property
    def receivers(self) -> list[MulticastReceiver]:
        return list(self._receivers.values())

    def add(self, group: str) -> MulticastReceiver | None:
        """Listen to a group: the socket that was opened for it, None where there is one already."""
        if group in self.addresses:
            return None
        address = group_address(group)
        opened: MulticastReceiver | None = None
        if address not in self._receivers:
            opened = MulticastReceiver(address, self._own[0], own=self._own, counters=self._counters)
            self._receivers[address] = opened
        self.addresses[group] = address
        return opened

    def keep(self, is_wanted: Callable[[str], bool]) -> list[MulticastReceiver]:
        """Give up the other groups: the sockets that nothing needs any more. The caller closes them."""
        unused = []
        for group in [group for group in self.addresses if not is_wanted(group)]:
            address = self.addresses.pop(group)
            if address not in self.addresses.values():
                unused.append(self._receivers.pop(address))
        return unused
