"""Which nodes hear which multicast addresses: a table, kept up by what the nodes say of themselves."""

from __future__ import annotations

from typing import Generic, TypeVar

from ordercast.view import Address

T = TypeVar("T")
NOTHING: frozenset[Address] = frozenset()


class MulticastTable(Generic[T]):
    """Address -> listeners, in the order in which they began to listen."""

    __slots__ = ("_by_address", "_by_listener", "_lists")

    def __init__(self) -> None:
        self._by_address: dict[Address, dict[T, None]] = {}
        self._by_listener: dict[T, frozenset[Address]] = {}
        self._lists: dict[Address, tuple[T, ...]] = {}  # those that were asked for since they changed

    def hear(self, listener: T, addresses: frozenset[Address]) -> None:
        """From now on it hears these, and no others."""
        before = self._by_listener.get(listener, NOTHING)
        if addresses is before or addresses == before:
            return
        # The order of a set does not matter here: each address has a list of its own.
        for address in before - addresses:
            heard = self._by_address[address]
            del heard[listener]
            if not heard:
                del self._by_address[address]
            self._lists.pop(address, None)
        for address in addresses - before:
            self._by_address.setdefault(address, {})[listener] = None
            self._lists.pop(address, None)
        if addresses:
            self._by_listener[listener] = addresses
        else:
            self._by_listener.pop(listener, None)

    def listeners(self, address: Address) -> tuple[T, ...]:
        """Who hears an address. Hot: once per multicast."""
        found = self._lists.get(address)
        if found is None:
            found = tuple(self._by_address.get(address, ()))
            if found:
                self._lists[address] = found
        return found


def is_multicast(address: Address) -> bool:
    """Whether an IPv4 address is one of a multicast group."""
    first, _, _ = address[0].partition(".")
    return first.isdecimal() and 224 <= int(first) < 240
