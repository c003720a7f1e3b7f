"""Multicast addresses of regions: a pool of a bounded size, from which the lowest free one is taken."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from ordercast.view import Address

POOL_FIRST: Final = (239, 195, 224, 0)  # the top of RFC 2365's organisation-local scope, as groups have it
POOL_SIZE: Final = 4_096  # addresses; regions beyond it are reached by copies
POOL_PORT: Final = 60_999 + 4_536  # 65,535: the last of the ports that groups are hashed to


class AddressPool:
    """Which address a region gets depends on what was taken and given back before, and on nothing else."""

    __slots__ = ("_free", "_next", "_size")

    def __init__(self, size: int = POOL_SIZE) -> None:
        self._size = size
        self._next = 0
        self._free: list[int] = []  # a heap

    def take(self) -> Address | None:
        """None: all of them are in use."""
        if self._free:
            return _address(heappop(self._free))
        if self._next >= self._size:
            return None
        self._next += 1
        return _address(self._next - 1)

    def give_back(self, address: Address) -> None:
        heappush(self._free, _index(address))

    @property
    def state(self) -> tuple[int, tuple[int, ...]]:
        return self._next, tuple(sorted(self._free))

    @state.setter
    def state(self, value: tuple[int, tuple[int, ...]]) -> None:
        self._next, self._free = value[0], list(value[1])


def _address(index: int) -> Address:
    one, two, three, four = POOL_FIRST
    return f"{one}.{two}.{three + index // 256}.{four + index % 256}", POOL_PORT


def _index(address: Address) -> int:
    _, _, three, four = [int(part) for part in address[0].split(".")]
    return (three - POOL_FIRST[2]) * 256 + four - POOL_FIRST[3]
