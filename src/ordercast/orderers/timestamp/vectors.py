"""The vector of what a member expects next (TOMPA section 3.2.2.2, next_mid), and how little of it is sent.

A block says what its sender had delivered when it sent it (`wire.block.after_of`), and the sender keeps which block it
then had next of each member: the *base*. All members have proposed for everything below the base, since all of it was
decided. So a member expects no less than the base. It lists only senders of which it may expect more. Rejected: the
differences to the last vector that was sent, which a lost datagram would break. docs/design/timestamp.md, "Sparse
vectors", has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ordercast.parts.log import Log
from ordercast.wire.block import after_of
from ordercast.wire.stamps import Acked, Next, Stamps

UNKNOWN: Final[tuple[int, ...]] = ()  # a vector that could not be read: it gives no bounds


class Vectors:
    """Bound: a few numbers for each member, and one copy of them for all blocks that were sent together."""

    __slots__ = ("_base", "_base_at", "_log", "_seqs", "expected")

    def __init__(self, log: Log, members: Sequence[int], seq: int) -> None:
        """`seq`: of our first view in this ring."""
        self._log = log
        self.expected = dict(log.next_number)  # origin -> the first block that we have not proposed for
        self._seqs = dict.fromkeys(members, seq)  # member -> its last block that we have received is not behind this
        self._base: dict[int, int] = {}
        self._base_at = -1  # the sequence number at which it was copied

    def admit(self, member: int, seq: int) -> None:
        self.expected[member] = self._log.next_number[member]
        self._seqs[member] = seq

    def forget(self, member: int) -> None:
        self.expected.pop(member, None)
        self._seqs.pop(member, None)

    def received(self, origin: int, seq: int) -> None:
        """A block is received."""
        self._seqs[origin] = seq

    def base(self) -> Mapping[int, int]:
        """What a block that is sent now has as its base."""
        log = self._log
        if self._base_at != log.received:
            self._base_at = log.received
            self._base = dict(log.next_number)
        return self._base

    def expected_of(self, members: Sequence[int]) -> tuple[int, ...]:
        """The whole vector."""
        expected = self.expected
        return tuple([expected.get(member, 0) for member in members])

    def nexts(self, members: Sequence[int], acks: Sequence[Acked]) -> tuple[Next, ...]:
        """What has to be said of it in a datagram with these acknowledgements.

        A sender is left out if the last of its blocks that is acknowledged here is the last that we have proposed for,
        or if everything of it that we have proposed for was delivered where the acknowledged blocks come from when they
        were sent.
        """
        log, expected, seqs, told = self._log, self.expected, self._seqs, ends_of(acks)
        since = min([after_of(log.blocks[acked.origin, acked.first]) for acked in acks])
        listed = []
        for index, member in enumerate(members):
            number = expected.get(member, 0)
            end = told.get(member)
            if end is not None:
                if end == number:
                    continue
            elif number == log.next_number.get(member) and seqs.get(member, since + 1) <= since:
                continue
            listed.append(Next(index, number))
        return tuple(listed)


def ends_of(acks: Sequence[Acked]) -> dict[int, int]:
    """Origin -> one past its last block that is acknowledged."""
    ends: dict[int, int] = {}
    for origin, first, numbers in acks:
        ends[origin] = max(first + len(numbers), ends.get(origin, 0))
    return ends


def read_nexts(stamps: Stamps, members: Sequence[int], base: Mapping[int, int]) -> tuple[int, ...]:
    """The whole vector of an acknowledgement of a block with this base, in the order of `members`."""
    listed, told = dict(stamps.nexts), ends_of(stamps.acks)
    if listed and max(listed) >= len(members):
        return UNKNOWN
    found = []
    for index, member in enumerate(members):
        number = listed.get(index)
        if number is None:
            number = told.get(member)
        if number is None:
            number = base.get(member)
        if number is None:
            return UNKNOWN
        found.append(number)
    return tuple(found)
