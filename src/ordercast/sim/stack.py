"""What runs on a machine of the world: a `Host` with its engines, or a fake in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ordercast.engine import Send
from ordercast.view import Address


class Stack(Protocol):
    """What runs on a node, as the world sees it."""

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None: ...

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        """No process listens at `address`, somebody says."""

    def expire(self, now_ns: int) -> None: ...

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:
        """End the pass: what leaves, each with the underlay that it belongs to."""

    def deadline_ns(self) -> int: ...

    def audience(self, underlay: str) -> Sequence[Address]:
        """Where `To.ALL` goes where there is no multicast."""

    def copies(self, underlay: str) -> Sequence[Address]:
        """Where `To.ALL` goes besides a multicast."""

    def unrest(self) -> list[str]:
        """What is not at rest, in words; empty when everything is."""


class HearingStack(Stack, Protocol):
    """A stack that listens to multicast addresses besides those of its underlays: a region has one of its own."""

    def hears(self) -> frozenset[Address]:
        """The addresses. It is asked after every pass: the same object as long as nothing changes costs least."""
