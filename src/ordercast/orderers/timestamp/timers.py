"""The timers of a member of a timestamp ring."""

from __future__ import annotations

from enum import IntEnum, auto


class TimestampTimer(IntEnum):  # its members are keys of a table on the hot path: an int hashes in C
    RETRANSMIT = auto()
    AGAIN = auto()  # decisions do not come: acknowledge again
    BEHIND = auto()  # others have received more than we
    BEAT = auto()
    LEAVE = auto()
    LAG = auto()  # as the first member: a change waits until all have the last
