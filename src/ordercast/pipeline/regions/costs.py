"""What a plan weighs, and what it must keep to. docs/design/planner.md has the reasons for the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ordercast.config import MAX_MEMBERS
from ordercast.errors import UsageError

DEFAULT_RATE: Final = 1.0  # messages a second of a group that nobody measured: it is not assumed to be silent
DEFAULT_MOVES: Final = 0.05  # of the nodes of the previous plan


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """In packets a second, as one machine handles them. All are at least 0."""

    send: float = 1.0
    """For each message a second that has to be sent into one region more: the sender makes one packet more."""

    recv: float = 0.1
    """For each message a second that one node receives and did not want: it is dropped inside a block."""

    token: float = 1.0
    """For each region: its token and its acknowledgements, at one round a second."""

    def __post_init__(self) -> None:
        for name in ("send", "recv", "token"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"the cost {name} is {getattr(self, name)}; it has to be a number from 0 on")


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What no region may pass."""

    addresses: int = 1_024
    """Multicast addresses of the pool. A region with one node needs none; one that gets none is sent copies."""

    size: int = MAX_MEMBERS
    """Nodes of a region: as many as a view can name."""

    waste: float = 0.10
    """Of what a node receives, the share that it did not subscribe to."""

    def __post_init__(self) -> None:
        if self.addresses < 0:
            raise UsageError(f"--addresses is {self.addresses}; it has to be 0 or more")
        if not 1 <= self.size <= MAX_MEMBERS:
            raise UsageError(f"--size is {self.size}; it has to be 1 to {MAX_MEMBERS}, as many as a view can name")
        if not 0 <= self.waste <= 1:
            raise UsageError(f"--waste is {self.waste}; it is a share, from 0 to 1")
