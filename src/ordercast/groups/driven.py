"""What a `Host` drives, pass by pass: a `Channel`, a `Caller` that calls a group from outside, or its `Naming`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ordercast.engine import Outbox
from ordercast.groups.rows import Meter

if TYPE_CHECKING:
    from ordercast.groups.caller import Caller
    from ordercast.groups.naming import Naming
    from ordercast.groups.port import Port


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

    def take_news(self) -> Sequence[Port | Caller | Naming]:
        """What the API looks at after a pass."""


class Handle(Protocol):
    """What an application holds and a pass may be asked for: a port, a caller, or the naming."""

    @property
    def driven(self) -> Driven: ...
