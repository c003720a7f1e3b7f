"""What the applications of clients saw and did: evidence for the judge (`judge.py`), in plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class SeenMessage(NamedTuple):
    """One message that an application got. Of a client of Spread `number` and `position` are -1."""

    at_ns: int
    sender: str
    number: int
    position: int
    groups: tuple[str, ...]
    tag: str


class SeenView(NamedTuple):
    """One view. Of a client of Spread `id` is empty, and `members` are private groups."""

    at_ns: int
    group: str
    id: str
    members: tuple[str, ...]
    reason: str
    subject: str
    header: bytes


class SeenSignal(NamedTuple):
    """A transitional signal."""

    at_ns: int
    group: str


class SeenLeft(NamedTuple):
    """The end of a membership; `returning`: it goes on later."""

    at_ns: int
    group: str
    wanted: bool
    returning: bool


SeenEvent = SeenMessage | SeenView | SeenSignal | SeenLeft


class Fate(StrEnum):
    """What became of a send, as its sender knows it."""

    WAITING = "waiting"
    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"
    UNKNOWN = "unknown"  # OutcomeUnknown
    REFUSED = "refused"  # it never left


@dataclass(slots=True)
class Sent:
    """One message that an application sent."""

    tag: str
    groups: tuple[str, ...]
    is_open: bool  # to groups by their names, of which its sender need not be a member
    asked_ns: int
    accepted_ns: int = -1
    fate: Fate = Fate.WAITING


@dataclass(slots=True)
class ClientLife:
    """One process of one client, from its start to its end."""

    client: str
    label: str
    number: int
    sent: dict[str, Sent] = field(default_factory=dict)
    queues: dict[str, list[SeenEvent]] = field(default_factory=dict)  # by what it receives from: a group, or ""
    wanted: set[str] = field(default_factory=set)  # groups that it wants to be in
    left: set[str] = field(default_factory=set)  # groups that it has left of its own will, ever
    uncertain: int = 0
    losses: int = 0  # of its connection, as its groups were told
    is_killed: bool = False
    is_closed: bool = False  # it has said goodbye
    is_disturbed: bool = False  # stalled, paused, killed or cut, at any time
    problems: list[str] = field(default_factory=list)


def payload_of(tag: str, size: int) -> bytes:
    """At least its tag; the rest tells whether it is whole."""
    head = f"{tag}|{size}|".encode()
    rest = max(0, size - len(head))
    return head + (head * (rest // len(head) + 1))[:rest]


def tag_of(payload: bytes) -> str:
    """The tag of a payload; empty where it is not as its sender made it."""
    head, bar, rest = payload.partition(b"|")
    size, second, _ = rest.partition(b"|")
    tag = head.decode(errors="replace")
    if not bar or not second or not size.isdigit() or payload != payload_of(tag, int(size)):
        return ""
    return tag
