"""Why a session of a daemon ended: what the header of its leaves says to all who see them (docs/design/daemon.md).

It is text, so that a person who prints `View.header` can read it: `session ended (slow): 9437184 bytes not received`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from ordercast.config import MAX_HEADER

_PREFIX: Final = b"session ended ("


class SessionEnd(StrEnum):
    """In one word."""

    CLOSED = "closed"  # the client said goodbye
    LOST = "lost"  # its connection broke, or nothing came from it for too long
    SLOW = "slow"  # it did not receive, and was disconnected at the byte limit
    PROTOCOL = "protocol"  # it sent what no client sends
    REPLACED = "replaced"  # the same client has connected again
    KICKED = "kicked"  # an operator, or a rule of the daemon, put it out
    STOPPED = "stopped"  # the daemon stops


class Ending(NamedTuple):
    """How a session ended, and the same in words."""

    why: SessionEnd
    text: str


def encode_ending(why: SessionEnd, text: str = "") -> bytes:
    """The header of its leaves; a text that is too long is cut."""
    head = _PREFIX + why.encode() + b")"
    if not text:
        return head
    return (head + b": " + text.encode(errors="replace"))[:MAX_HEADER]


def read_ending(header: bytes) -> Ending | None:
    """What a header says; None: it is one that a program gave with its leave."""
    if not header.startswith(_PREFIX):
        return None
    word, closed, rest = header[len(_PREFIX) :].partition(b")")
    try:
        why = SessionEnd(word.decode())
    except ValueError:  # also where it is no UTF-8
        return None
    if not closed or (rest and not rest.startswith(b": ")):
        return None
    return Ending(why, rest[2:].decode(errors="replace"))
