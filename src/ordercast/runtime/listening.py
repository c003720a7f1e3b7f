"""The multicast addresses of groups, and those that a node listens to: one socket for each, which underlays may share.

RMP section 3.1: the mapping of names to addresses is a hash, or an external authority's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ordercast.runtime.addresses import assigned_address, group_address
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sockets import MulticastReceiver
from ordercast.view import Address

Authority = Callable[[str], Address]
"""The multicast address and port of a group, by its name. It is asked in the event loop, and must not block."""

MAX_ASSIGNED: Final = 4_096  # answers of an authority that are remembered for groups that are only called


class Listening:
    """The sockets of the underlays that a node is in. The driver watches the sockets that are returned."""

    __slots__ = (
        "_assigned",
        "_authority",
        "_counters",
        "_has_multicast",
        "_own",
        "_receivers",
        "_sited",
        "addresses",
        "heard",
    )

    def __init__(
        self, own: Address, counters: Counters, authority: Authority | None = None, *, has_multicast: bool = True
    ) -> None:
        """`own`: the node's address. Its multicasts are left out. Without an `authority` names are hashed."""
        self._own = own
        self._has_multicast = has_multicast
        self._sited: dict[str, Address | None] = {}  # underlays of sites, and what the file says of their multicast
        self._authority = authority
        self._assigned: dict[str, Address] = {}
        self._counters = counters
        self._receivers: dict[Address, MulticastReceiver] = {}
        self.addresses: dict[str, Address] = {}  # underlay -> its multicast address
        self.heard: frozenset[Address] = frozenset()  # those that are no underlay's: of regions

    @property
    def receivers(self) -> list[MulticastReceiver]:
        return list(self._receivers.values())

    @property
    def regional(self) -> list[MulticastReceiver]:
        """Of regions."""
        return [self._receivers[address] for address in self.heard if address in self._receivers]

    def multicast_of(self, underlay: str) -> Address | None:
        """Where multicasts of an underlay go; None: each receiver gets a copy."""
        if underlay in self._sited:
            return self._sited[underlay]
        return self.address_of(underlay) if self._has_multicast else None

    def place(self, underlay: str, multicast: Address | None) -> None:
        """An underlay of sites is about to be opened: it multicasts where the configuration says, or not at all."""
        self._sited[underlay] = multicast

    def address_of(self, underlay: str) -> Address:
        """The multicast address of an underlay, whether this node is in it or only calls it."""
        known = self.addresses.get(underlay) or self._assigned.get(underlay)
        if known is not None:
            return known
        if self._authority is None:
            return group_address(underlay)
        if len(self._assigned) >= MAX_ASSIGNED:
            del self._assigned[next(iter(self._assigned))]
        address = self._assigned[underlay] = assigned_address(underlay, self._authority(underlay))
        return address

    def add(self, underlay: str) -> MulticastReceiver | None:
        """Listen to an underlay: the socket that was opened for it, None where there is one already, or none to be."""
        if underlay in self.addresses:
            return None
        self._assigned.pop(underlay, None)  # it may have been assigned anew
        address = self.multicast_of(underlay)
        if address is None:
            return None
        opened: MulticastReceiver | None = None
        if address not in self._receivers:
            opened = MulticastReceiver(address, self._own[0], own=self._own, counters=self._counters)
            self._receivers[address] = opened
        self.addresses[underlay] = address
        return opened

    def keep(self, is_wanted: Callable[[str], bool]) -> list[MulticastReceiver]:
        """Give up the other underlays: the sockets that nothing needs any more. The caller closes them."""
        unused = []
        for underlay in [underlay for underlay in self._sited if not is_wanted(underlay)]:
            del self._sited[underlay]
        for underlay in [underlay for underlay in self.addresses if not is_wanted(underlay)]:
            address = self.addresses.pop(underlay)
            if address not in self.addresses.values() and address not in self.heard:
                unused.append(self._receivers.pop(address))
        return unused

    def hear(self, wanted: frozenset[Address]) -> tuple[list[MulticastReceiver], list[MulticastReceiver]]:
        """From now on listen to these addresses, besides those of underlays: the sockets that were opened for them, and
        those that nothing needs any more, which the caller closes. Without multicast there are none."""
        opened: list[MulticastReceiver] = []
        unused: list[MulticastReceiver] = []
        if self._has_multicast:
            for address in sorted(wanted - self._receivers.keys()):
                receiver = MulticastReceiver(address, self._own[0], own=self._own, counters=self._counters)
                self._receivers[address] = receiver
                opened.append(receiver)
            left = self.heard - wanted - set(self.addresses.values())
            unused = [self._receivers.pop(address) for address in sorted(left)]
        self.heard = wanted
        return opened, unused
