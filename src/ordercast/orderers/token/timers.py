"""The timers of a member of a token ring."""

from __future__ import annotations

from enum import IntEnum, auto


class TokenTimer(IntEnum):  # its members are keys of a table on the hot path: an int hashes in C
    CONFIRM = auto()  # nothing to order yet: tell the site before that the token is here
    NULL = auto()  # quiet for long enough: send the token round once
    TOKEN = auto()  # no sign that the next site has it
    RETRANSMIT = auto()
    BEAT = auto()
    LEAVE = auto()
    UNRELIABLE = auto()  # UNRELIABLE blocks may go on
    CALLS = auto()  # calls that wait in vain are forgotten
