"""The timers of a member of a sequencer ring."""

from __future__ import annotations

from enum import IntEnum, auto


class SequencerTimer(IntEnum):  # its members are keys of a table on the hot path: an int hashes in C
    QUIET = auto()  # delta t: acknowledge although nothing was sent
    BEAT = auto()
    RETRANSMIT = auto()
    TAIL = auto()  # the sequencer: somebody may have missed the last accept
    WANT = auto()  # no room: ask the sequencer for a status round
    PROPOSE = auto()  # ask for our own leave
