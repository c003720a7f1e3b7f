"""The body of the timestamp orderer's datagrams (docs/design/timestamp.md): STAMPS, DECISION and SYNC have the same.

It says how far its sender is and what it knows of others, then its acknowledgements (proposed timestamps, TOMPA section
3.2.2.2), then its decisions (section 3.2.3.1), each with its bounds `min_next_mid` and `max_next_ts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ordercast.errors import WireError
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.ordering import open_behind, pack_behind
from ordercast.wire.views import MAX_MEMBERS

Buffer = bytes | bytearray | memoryview

# sequence number of the view, clock, highest, own blocks sent, own blocks decided; rows, nexts, runs, decisions, flags
STAMPS: Final = Struct("<QQQQQHHHHH")
NEXT: Final = Struct("<Q")
ACKED: Final = Struct("<QQH")  # origin, first block, blocks; the proposed numbers follow, as far behind the clock
DECIDED: Final = Struct("<QQQQQH")  # origin, block, number and member of the timestamp, view, bounds
BOUND: Final = Struct("<QQH")  # next block, number of the timestamp, its member by its index in the view
if (STAMPS.size, ACKED.size, DECIDED.size, BOUND.size) != (50, 18, 42, 18):
    raise AssertionError("timestamps have fixed sizes on the wire")

ASKS: Final = 1  # the decisions on what is acknowledged have not come
WANTS: Final = 2  # all are to say what they have received

MAX_ACKED: Final = 4_096  # blocks of one run; more are acknowledged in several

Stamp = tuple[int, int]  # number and member


class Acked(NamedTuple):
    """Proposed numbers for consecutive blocks of `origin`."""

    origin: int
    first: int
    numbers: tuple[int, ...]


class Bound(NamedTuple):
    """From one member, blocks at and above `upto` get timestamps not below (number, member); `member` is an index."""

    upto: int
    number: int
    member: int


class Decided(NamedTuple):
    """`view` is the sequence number of the view that has decided; the bounds are of its members, in their order."""

    origin: int
    number: int
    stamp: Stamp
    view: int
    bounds: tuple[Bound, ...] = ()


class Stamps(NamedTuple):
    """`rows` as in `parts/table.py`; `nexts`: the next block that is expected from each member of the view."""

    view: int
    clock: int
    highest: int
    sent: int
    decided: int
    rows: tuple[int, ...]
    nexts: tuple[int, ...] = ()
    acks: Sequence[Acked] = ()
    decisions: Sequence[Decided] = ()
    flags: int = 0


def encode_stamps(stamps: Stamps) -> bytes:
    view, clock, highest, sent, decided, rows, nexts, acks, decisions, flags = stamps
    parts = [
        STAMPS.pack(view, clock, highest, sent, decided, len(rows), len(nexts), len(acks), len(decisions), flags),
        pack_behind(highest, rows),
    ]
    parts.extend([NEXT.pack(each) for each in nexts])
    for origin, first, numbers in acks:
        parts.append(ACKED.pack(origin, first, len(numbers)))
        parts.append(pack_behind(clock, numbers))
    for origin, number, stamp, view_seq, bounds in decisions:
        parts.append(DECIDED.pack(origin, number, *stamp, view_seq, len(bounds)))
        parts.extend([BOUND.pack(*bound) for bound in bounds])
    return b"".join(parts)


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
    nexts = tuple([each for (each,) in NEXT.iter_unpack(data[rows_end:nexts_end])])
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
        end = at + BOUND.size * bounds_n
        if bounds_n > MAX_MEMBERS or end > size or max(number, stamp_number, view_seq) > MAX_NUMBER:
            raise WireError("decision out of range")
        bounds = tuple([Bound(*each) for each in BOUND.iter_unpack(data[at:end])])
        if any(bound.number > MAX_NUMBER or bound.upto > MAX_NUMBER for bound in bounds):
            raise WireError("bound out of range")
        decisions.append(Decided(origin, number, (stamp_number, member), view_seq, bounds))
        at = end
    if at != size:
        raise WireError("timestamps of odd size")
    return Stamps(view, clock, highest, sent, decided, rows, nexts, acks, decisions, flags)
