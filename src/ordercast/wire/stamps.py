"""The body of the timestamp orderer's datagrams (docs/design/timestamp.md): STAMPS, DECISION and SYNC have the same.

It says how far its sender is and what it knows of others, then its acknowledgements (proposed timestamps, TOMPA section
3.2.2.2), then its decisions (section 3.2.3.1), some with bounds, `min_next_mid` and `max_next_ts`. The vectors are
sparse: what the reader can derive is left out (docs/design/timestamp.md, "Sparse vectors").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import MAX_MEMBERS
from ordercast.errors import WireError
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.ordering import open_behind, pack_behind

Buffer = bytes | bytearray | memoryview

# sequence number of the view, clock, highest, own blocks sent, own blocks decided; rows, nexts, runs, decisions, flags
STAMPS: Final = Struct("<QQQQQHHHHH")
NEXT: Final = Struct("<HQ")  # a member by its index in the view, the block that is expected next of it
ACKED: Final = Struct("<QQH")  # origin, first block, blocks; the proposed numbers follow, as far behind the clock
DECIDED: Final = Struct("<QQQQQH")  # origin, block, number and member of the timestamp, view, 0 or bounds + 1
TOP: Final = Struct("<IH")  # the greatest bound: how far above the decided timestamp, its member's index in the view
BOUND: Final = Struct("<HQIH")  # a member, next block, how far below the greatest bound, its member
if (STAMPS.size, NEXT.size, ACKED.size, DECIDED.size, TOP.size, BOUND.size) != (50, 10, 18, 42, 6, 16):
    raise AssertionError("timestamps have fixed sizes on the wire")

ASKS: Final = 1  # the decisions on what is acknowledged have not come
WANTS: Final = 2  # all are to say what they have received
BEHIND: Final = 8  # the application of its sender does not receive: it proposes for nothing until it does
HURRIES: Final = 4  # a change waits for what is under way: to be proposed for also where an application is behind

MAX_ACKED: Final = 4_096  # blocks of one run; more are acknowledged in several
MAX_APART: Final = 0xFFFF_FFFF  # how far two timestamps of one decision may be apart; it has no bounds beyond it

Stamp = tuple[int, int]  # number and member


class Acked(NamedTuple):
    """Proposed numbers for consecutive blocks of `origin`."""

    origin: int
    first: int
    numbers: tuple[int, ...]


class Next(NamedTuple):
    """The next block that is expected of a member, which is an index in the view."""

    member: int
    number: int


class Bound(NamedTuple):
    """Of `sender`, blocks at and above `upto` get timestamps not below (number, member). Both members are indexes."""

    sender: int
    upto: int
    number: int
    member: int


class Bounds(NamedTuple):
    """The bounds of one decision: where its acknowledgements did not all expect the same block, and one for the rest.

    Of a sender that is not listed, blocks that the reader has proposed for since it acknowledged the decided one get
    timestamps not below (number, member).
    """

    number: int
    member: int
    listed: tuple[Bound, ...] = ()


class Decided(NamedTuple):
    """`view` is the sequence number of the view that has decided; the indexes of the bounds are of its members."""

    origin: int
    number: int
    stamp: Stamp
    view: int
    bounds: Bounds | None = None


class Stamps(NamedTuple):
    """`rows` as in `parts/table.py`; `nexts`: what is expected next of members where the reader cannot derive it."""

    view: int
    clock: int
    highest: int
    sent: int
    decided: int
    rows: tuple[int, ...]
    nexts: tuple[Next, ...] = ()
    acks: Sequence[Acked] = ()
    decisions: Sequence[Decided] = ()
    flags: int = 0


def encode_stamps(stamps: Stamps) -> bytes:
    view, clock, highest, sent, decided, rows, nexts, acks, decisions, flags = stamps
    parts = [
        STAMPS.pack(view, clock, highest, sent, decided, len(rows), len(nexts), len(acks), len(decisions), flags),
        pack_behind(highest, rows),
    ]
    parts.extend([NEXT.pack(*each) for each in nexts])
    for origin, first, numbers in acks:
        parts.append(ACKED.pack(origin, first, len(numbers)))
        parts.append(pack_behind(clock, numbers))
    for origin, number, stamp, view_seq, bounds in decisions:
        if bounds is None or not _is_near(stamp, bounds):
            parts.append(DECIDED.pack(origin, number, *stamp, view_seq, 0))
            continue
        top, member, listed = bounds
        parts.append(DECIDED.pack(origin, number, *stamp, view_seq, len(listed) + 1))
        parts.append(TOP.pack(top - stamp[0], member))
        parts.extend([BOUND.pack(sender, upto, top - lower, whose) for sender, upto, lower, whose in listed])
    return b"".join(parts)


def _is_near(stamp: Stamp, bounds: Bounds) -> bool:
    """Whether the distances fit the wire. Clocks follow decisions, so only a forged one tears them so far apart."""
    top, _, listed = bounds
    return 0 <= top - stamp[0] <= MAX_APART and all(0 <= top - bound.number <= MAX_APART for bound in listed)


def decode_stamps(body: Buffer) -> Stamps:
    """Raises WireError on what cannot be true; nothing is allocated that the body does not hold."""
    data = memoryview(body)
    size = len(data)
    if size < STAMPS.size:
        raise WireError("timestamps too short")
    view, clock, highest, sent, decided, rows_n, nexts_n, acks_n, decisions_n, flags = STAMPS.unpack_from(data)
    at = STAMPS.size
    rows_end = at + 4 * rows_n
    nexts_end = rows_end + NEXT.size * nexts_n
    if rows_n > MAX_MEMBERS + 1 or nexts_n > MAX_MEMBERS or nexts_end > size:
        raise WireError("table of timestamps out of range")
    if max(view, clock, highest, sent, decided) > MAX_NUMBER or decided > sent:
        raise WireError("timestamps contradict themselves")
    rows = open_behind(highest, data[at:rows_end])
    nexts = tuple([Next(*each) for each in NEXT.iter_unpack(data[rows_end:nexts_end])])
    if nexts and (not _is_rising([each.member for each in nexts]) or max([each.number for each in nexts]) > MAX_NUMBER):
        raise WireError("expected blocks out of range")
    at = nexts_end
    acks = []
    for _ in range(acks_n):
        if at + ACKED.size > size:
            raise WireError("acknowledgement cut off")
        origin, first, count = ACKED.unpack_from(data, at)
        at += ACKED.size
        if not 0 < count <= MAX_ACKED or at + 4 * count > size or first > MAX_NUMBER:
            raise WireError("acknowledgement out of range")
        acks.append(Acked(origin, first, open_behind(clock, data[at : at + 4 * count])))
        at += 4 * count
    decisions = []
    for _ in range(decisions_n):
        if at + DECIDED.size > size:
            raise WireError("decision cut off")
        origin, number, stamp_number, member, view_seq, bounds_n = DECIDED.unpack_from(data, at)
        at += DECIDED.size
        end = at + TOP.size + BOUND.size * (bounds_n - 1) if bounds_n else at
        if bounds_n > MAX_MEMBERS + 1 or end > size or max(number, stamp_number, view_seq) > MAX_NUMBER:
            raise WireError("decision out of range")
        bounds = _open_bounds(stamp_number, data[at:end]) if bounds_n else None
        decisions.append(Decided(origin, number, (stamp_number, member), view_seq, bounds))
        at = end
    if at != size:
        raise WireError("timestamps of odd size")
    return Stamps(view, clock, highest, sent, decided, rows, nexts, acks, decisions, flags)


def _open_bounds(stamp_number: int, data: memoryview) -> Bounds:
    above, member = TOP.unpack_from(data)
    top = stamp_number + above
    listed = []
    for sender, upto, below, whose in BOUND.iter_unpack(data[TOP.size :]):
        if upto > MAX_NUMBER or below > top:
            raise WireError("bound out of range")
        listed.append(Bound(sender, upto, top - below, whose))
    if top > MAX_NUMBER or not _is_rising([bound.sender for bound in listed]):
        raise WireError("bounds out of range")
    return Bounds(top, member, tuple(listed))


def _is_rising(indexes: list[int]) -> bool:
    """Whether they are indexes of different members, in order."""
    return all(before < after for before, after in pairwise(indexes)) and (not indexes or indexes[-1] < MAX_MEMBERS)
