"""Datagrams on their way through the simulated network: trains of them, their kinds, and where they arrive."""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.wire.header import FORWARD, HEADER_BYTES, MAGIC, UNKNOWN_DETAIL, Kind

COALESCE_NS: Final = 200_000  # interrupt coalescing: one batch of arrivals spans no more of the medium's time
KIND_OFFSET: Final = 1

_KIND_NAMES: Final[dict[int, str]] = {int(kind): kind.name.lower() for kind in Kind}


class Train(NamedTuple):
    """Datagrams of one sender that a node reads in one call: `stride`-sized, the last may be shorter."""

    source: str
    data: bytes
    stride: int  # 0: one datagram
    datagrams: int

    def piece(self, first: int, stop: int) -> Train:
        """Datagrams `first` up to `stop`."""
        source, data, stride, datagrams = self
        if stop - first == datagrams:
            return self
        return Train(source, data[first * stride : stop * stride], stride if stop - first > 1 else 0, stop - first)


class Arrival(NamedTuple):
    at_ns: int
    target: str
    batch: Train


def kind_of(data: bytes) -> str:
    """The kind of a datagram as its header names it."""
    if len(data) < HEADER_BYTES or data[0] != MAGIC:
        return UNKNOWN_DETAIL
    return _KIND_NAMES.get(data[KIND_OFFSET] & ~FORWARD, UNKNOWN_DETAIL)
