"""What the members of `ordercast bench` send and receive through: a group, or many groups of a shared underlay.

A lane of many groups sends round robin over all of them, and receives all in the one order of the underlay.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from ordercast import Event, Group, Node, Service, SharedUnderlay
from ordercast.groups.events import PortEvent

JOIN_TIMEOUT_S: Final = 120.0
LOOK_S: Final = 0.01
AT_ONCE: Final = 8  # groups with underlays of their own that one node joins side by side


class Lane(Protocol):
    """Where the messages of a phase go, and where they come from."""

    @property
    def stats(self) -> dict[str, int]: ...

    async def send_many(self, payloads: Sequence[bytes], service: Service) -> None: ...

    async def send(self, payload: bytes, service: Service, *, confirm: bool = False) -> int | None: ...

    async def flush(self) -> None: ...

    def events(self) -> AsyncIterator[Event]: ...

    def batches(self) -> AsyncIterator[PortEvent]: ...

    async def meet(self, members: int) -> None:
        """Wait for a view of so many."""


class GroupLane:
    """One group."""

    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        self._group = group

    @property
    def stats(self) -> dict[str, int]:
        return self._group.stats

    async def send_many(self, payloads: Sequence[bytes], service: Service) -> None:
        await self._group.send_many(payloads, service)

    async def send(self, payload: bytes, service: Service, *, confirm: bool = False) -> int | None:
        return await self._group.send(payload, service, confirm=confirm)

    async def flush(self) -> None:
        await self._group.flush()

    def events(self) -> AsyncIterator[Event]:
        return self._group

    def batches(self) -> AsyncIterator[PortEvent]:
        return self._group.batches()

    async def meet(self, members: int) -> None:
        await _meet(self._group, members)


class SharedLane:
    """Groups of a shared underlay in turn."""

    __slots__ = ("_at", "_first", "_names", "_turn", "_underlay")

    def __init__(self, underlay: SharedUnderlay, names: Sequence[str], chunk: int, is_resolved: bool = True) -> None:
        """`chunk`: messages of one call at most. `is_resolved`: names are looked up once, as programs should that send
        to the same groups again and again."""
        self._underlay = underlay
        self._turn = len(names)
        self._first = names[:1]
        each = [names[at % self._turn] for at in range(self._turn + chunk)]  # a slice needs no second one
        self._names: Sequence[str] = underlay.resolve(each) if is_resolved else each
        self._at = 0

    @property
    def stats(self) -> dict[str, int]:
        return self._underlay.stats

    async def send_many(self, payloads: Sequence[bytes], service: Service) -> None:
        at, stop = self._at, self._at + len(payloads)
        self._at = stop % self._turn
        await self._underlay.send_many(payloads, groups=self._names[at:stop], service=service)

    async def send(self, payload: bytes, service: Service, *, confirm: bool = False) -> int | None:
        return await self._underlay.send(payload, groups=self._first, service=service, confirm=confirm)

    async def flush(self) -> None:
        await self._underlay.flush()

    def events(self) -> AsyncIterator[Event]:
        return self._underlay.events()

    def batches(self) -> AsyncIterator[PortEvent]:
        return self._underlay.batches()

    async def meet(self, members: int) -> None:
        await _meet(self._underlay, members)


async def _meet(handle: Group | SharedUnderlay, members: int) -> None:
    async with asyncio.timeout(JOIN_TIMEOUT_S):
        while (view := handle.view) is None or len(view.members) < members:
            await asyncio.sleep(LOOK_S)


def group_names(run: str, count: int) -> list[str]:
    """The names of the groups of a run."""
    return [f"{run}-{number}" for number in range(count)]


async def join_own(node: Node, names: Sequence[str], orderer: str, anticipate: bool) -> None:
    """Join groups that have underlays of their own."""
    for start in range(0, len(names), AT_ONCE):
        joins = (
            node.join(name, orderer=orderer, anticipate=anticipate, timeout=JOIN_TIMEOUT_S)
            for name in names[start : start + AT_ONCE]
        )
        await asyncio.gather(*joins)


def resident_bytes() -> int:
    """Memory in use now; where the system does not tell, the most that ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def open_sockets() -> int:
    """Sockets of this process; 0 where the system does not tell."""
    found = 0
    for each in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # the one that lists them is gone
            found += os.readlink(each).startswith("socket:")
    return found
