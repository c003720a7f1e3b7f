"""What a group is doing, and the two events that tell when it stops and goes on (docs/guides/stalled.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ordercast.engine import StallReason
from ordercast.view import Member, View


class GroupState(StrEnum):
    """In one word. The values compare equal to their text: `group.status.state == "working"`."""

    JOINING = "joining"
    WORKING = "working"
    RECOVERING = "recovering"
    STALLED = "stalled"
    LEAVING = "leaving"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Stalled:
    """Something has made no progress for a second; again when the reason changes. It may overtake ordered events."""

    reason: StallReason
    """Why."""
    waiting_for: tuple[str, ...]
    """The members that it waits for, as name/life; empty where nobody in particular is missing."""
    since: float
    """When progress ended, in seconds, as `time.monotonic()` has it."""
    text: str
    """The same in words."""
    have: int = 0
    """How many members there are, where a number is what is missing."""
    need: int = 0
    """How many it takes."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was `Stalled` goes on. It may overtake ordered events."""

    reason: StallReason
    """What it had waited for last."""
    after: float
    """How long it stood still, in seconds."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """What a group is doing at one moment."""

    state: GroupState
    """`stalled` while a `Stalled` is in force, whatever it is on its way to."""
    view: View | None
    """The newest view; None when this node is out."""
    members: tuple[Member, ...]
    """Those of the view."""
    reason: StallReason | None
    """What it waits for; also of a lock that another member holds, or a call, which are no `Stalled`."""
    waiting_for: tuple[str, ...]
    """The members that it waits for, as name/life."""
    since: float | None
    """When progress ended, in seconds, as `time.monotonic()` has it."""
    text: str
    """The same in words; empty where it waits for nothing."""
    queued: int
    """Messages that were sent and have not left this node."""
    unconfirmed: int
    """Messages that have left it and are not delivered here."""
    have: int = 0
    """How many members there are, where a number is what is missing."""
    need: int = 0
    """How many it takes."""
