"""What one node has sent and received, by kind of datagram. Four rows of numbers, and no object for a datagram."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ordercast.wire.header import FORWARD, Kind, detail_of

KINDS: Final = FORWARD  # kinds are below the flag
DATA_KINDS: Final = frozenset(
    {Kind.DATA, Kind.UNRELIABLE, Kind.CARRIER, Kind.PACKET, Kind.REQUEST, Kind.ORDERED}
)  # blocks on their first way. All other kinds are control, also blocks that are sent again, pushed or pulled

BLOCK_KINDS: Final = DATA_KINDS | {Kind.REPAIR, Kind.PUSH, Kind.PULLED}  # all that carry blocks


class NodeTally:
    """Datagrams and bytes of one node over all its lives. A multicast counts once where it is sent.

    The lists have one number for each kind: `received[Kind.REGION_TOKEN]`. Lost, cut and dropped datagrams are not in
    `received`.
    """

    __slots__ = ("cut", "dropped", "lost", "received", "received_bytes", "sent", "sent_bytes")

    def __init__(self) -> None:
        self.sent = [0] * KINDS
        self.sent_bytes = [0] * KINDS
        self.received = [0] * KINDS
        self.received_bytes = [0] * KINDS
        self.lost = 0  # by chance or in a hiccup
        self.cut = 0  # by a cut or a partition
        self.dropped = 0  # because the socket buffer was full

    @property
    def sent_control(self) -> int:
        return _control(self.sent)

    @property
    def received_control(self) -> int:
        return _control(self.received)

    def control_share(self, is_of_bytes: bool = False) -> float:
        """The share of control in all that the node sends and receives, as a capture at its interface shows it (QSM
        section 3.3)."""
        rows = (self.sent_bytes, self.received_bytes) if is_of_bytes else (self.sent, self.received)
        everything = sum(map(sum, rows))
        return sum(map(_control, rows)) / everything if everything else 0.0

    def by_detail(self) -> Counter[str]:
        """All datagrams, sent and received, by the words of the trace: `token`, `ack`, `push`."""
        return details((self.sent, self.received))


def details(rows: Iterable[list[int]]) -> Counter[str]:
    """Rows by kind, added up by the words of the trace."""
    found: Counter[str] = Counter()
    for row in rows:
        for kind, number in enumerate(row):
            if number:
                found[detail_of(kind)] += number
    return found


def _control(row: list[int]) -> int:
    return sum(row) - sum(row[kind] for kind in DATA_KINDS)
