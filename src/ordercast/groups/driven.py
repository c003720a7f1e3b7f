"""What a `Host` drives, pass by pass: a `Channel`, a `Caller` that calls a group from outside, or its `Naming`."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ordercast.engine import NEVER, Outbox
from ordercast.groups.rows import Meter

if TYPE_CHECKING:
    from ordercast.groups.caller import Caller
    from ordercast.groups.naming import Naming
    from ordercast.groups.port import Port
    from ordercast.groups.regions.port import RegionPort


class LogLine(NamedTuple):
    """What the driver is to log, since the core does not. `topic`: of the logger, below `ordercast`."""

    topic: str
    level: str  # as the method of a logger is called
    text: str


class Driven(Protocol):
    """For the type checker only. All kinds have all of it, so that the host asks none what it is."""

    deadline_ns: int  # when `expire` is due; set by each `finish`
    armed_ns: int  # under which the host's heap has it

    @property
    def underlay(self) -> str: ...

    @property
    def order(self) -> int:
        """Of opening, among all that one host drives: ties are broken by it, never by chance."""

    @property
    def out(self) -> Outbox: ...

    @property
    def sent(self) -> Meter: ...

    @property
    def log(self) -> list[LogLine]:
        """View changes, suspicions and stalls of this pass, for the driver's log."""

    @property
    def is_over(self) -> bool:
        """The application's part has ended."""

    def expire(self, now_ns: int) -> None:
        """Run what is due; `finish` follows."""

    def finish(self, now_ns: int) -> None:
        """End the pass. What is to leave stands in `out.sends`."""

    def take_news(self) -> Sequence[Port | Caller | Naming | RegionPort]:
        """What the API looks at after a pass."""


class Handle(Protocol):
    """What an application holds and a pass may be asked for: a port, a caller, or the naming."""

    @property
    def driven(self) -> Driven: ...


class Deadlines:
    """When each of them is due next. An entry that is not its `armed_ns` is stale."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Driven]] = []

    def push(self, driven: Driven) -> None:
        """Enter its deadline, unless an earlier entry will look at it anyway."""
        if driven.deadline_ns < driven.armed_ns:
            driven.armed_ns = driven.deadline_ns
            heappush(self._heap, (driven.armed_ns, driven.order, driven))

    def next_ns(self) -> int:
        """The first of all; NEVER if there is none."""
        heap = self._heap
        while heap:
            armed_ns, _, driven = heap[0]
            if armed_ns == driven.armed_ns:
                if armed_ns == driven.deadline_ns:
                    return armed_ns
                # The deadline has moved on since: most do in each pass, and are looked at only here.
                driven.armed_ns = NEVER
                self.push(driven)
            heappop(heap)
        return NEVER

    def pop(self) -> Driven:
        """The one whose deadline `next_ns` has told."""
        driven = heappop(self._heap)[2]
        driven.armed_ns = NEVER
        driven.deadline_ns = -1
        return driven

    def clear(self) -> None:
        self._heap.clear()
