"""The index of regions (docs/trace.md, "Regions"): lives with their stays, region views and groups; what senders
carried, and who delivered it.

How the columns are read:

- A *stay* of a life ends with a `leave` that names no group, `stop`, `crash`, or a later life of the node. A `stop`
  after the last submit and delivery of all regions ends the run and not the stay, where clocks can be compared.
- A life is *in* a region view from its `view` row on, to the end of the stay: it has to finish a view that has ended.
- It is in a group from `join`, or from a `view` row of the group, to `leave` or the end of the stay.
- What a message is, is said by two rows of its sender: `submit` (service, serial) and `carry` (view, block, groups).
  *Carried messages* are ranges of numbers for which both say the same.
- A message is *owed* to a life that installed its view, as long as the life is in one of its groups since before: it
  came into the group not after it installed the view, by its own clock, or before the message was carried, where
  clocks can be compared.
- Deliveries that integrity rejects (not submitted, not carried, twice, too early, to groups that the life is not in)
  are ignored by every later property.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from ordercast.service import UNRELIABLE_RANK
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.ranges import Range, RangeSet, merged, subtract
from ordercast.sim.checkers.records import FOREVER
from ordercast.trace.naming import REGIONS, is_region, is_regional
from ordercast.trace.schema import Row

ENDS: Final = frozenset(("stop", "crash"))


class CarriedMessages(NamedTuple):
    """Messages of one sender in one region with one view, block, service and list of groups."""

    region: str
    sender: str
    first: int
    stop: int
    view: str
    block: int | None  # None: UNRELIABLE
    begin: int | None  # the block in which its first message begins
    serial: int | None  # of `first`
    groups: tuple[str, ...]
    rank: int
    at_ns: int  # when it was carried
    stay: int  # of the sender

    def serials(self, first: int, stop: int) -> Range | None:
        """The serials of a part of it."""
        return None if self.serial is None else (self.serial + first - self.first, self.serial + stop - self.first)


class RegionEntry(NamedTuple):
    """A life installs a region view."""

    n: int
    at_ns: int
    region: str
    view: str
    members: tuple[str, ...]
    stay: int


class GroupSpan(NamedTuple):
    """A life is in a group during events `[n, stop_n)`."""

    n: int
    stop_n: int
    at_ns: int


class LostBlocks(NamedTuple):
    """A `lost` row: blocks `[first, stop)` of a lane."""

    n: int
    region: str
    view: str
    sender: str
    first: int
    stop: int


class Given(NamedTuple):
    """A `deliver` row."""

    n: int
    at_ns: int
    region: str
    view: str | None
    sender: str
    first: int
    stop: int
    rank: int

    @property
    def span(self) -> Range:
        return self.first, self.stop


class Piece(NamedTuple):
    """What of a `deliver` row was sent together, and no rule of integrity rejects."""

    given: Given
    sent: CarriedMessages
    first: int
    stop: int

    @property
    def span(self) -> Range:
        return self.first, self.stop


class Attendee:
    """One life of a node in regions."""

    __slots__ = (
        "carries",
        "confirmed",
        "cuts",
        "deliveries",
        "group_views",
        "has_regions",
        "installs",
        "losses",
        "lost",
        "member",
        "pieces",
        "spans",
        "submits",
        "views",
    )

    def __init__(self, member: str) -> None:
        self.member = member
        self.has_regions = False
        self.cuts: list[tuple[int, int, str]] = []  # (n, at_ns, kind) of the ends of its stays
        self.installs: list[RegionEntry] = []
        self.views: dict[tuple[str, str], RegionEntry] = {}  # (region, view)
        self.group_views: list[Row] = []
        self.spans: dict[str, list[GroupSpan]] = {}
        # messages
        self.submits: dict[str, list[Row]] = {}  # by region
        self.carries: dict[str, list[Row]] = {}
        self.confirmed: dict[str, RangeSet] = {}
        self.deliveries: list[Given] = []
        self.losses: list[LostBlocks] = []
        self.pieces: list[Piece] = []
        self.lost: dict[tuple[str, str, str], RangeSet] = {}  # (region, view, sender) -> blocks

    def stay(self, n: int) -> int:
        """In which of its stays the event `n` lies."""
        return bisect_left(self.cuts, n, key=lambda cut: cut[0])

    def survives(self, stay: int) -> bool:
        """Whether a stay is open at the end of the trace."""
        return stay == len(self.cuts)

    def is_in(self, groups: tuple[str, ...], n: int) -> bool:
        """Whether it is in one of these groups at event `n`."""
        return any(span.n <= n < span.stop_n for group in groups for span in self.spans.get(group, ()))

    def was_in(self, span: GroupSpan, piece: Piece) -> bool:
        """Whether it was in a group, in this time, from when it installed the view that carried these messages until it
        delivered them."""
        install = self.views.get((piece.sent.region, piece.sent.view))
        return install is not None and span.n <= install.n and piece.given.n < span.stop_n

    def lacks(self, sent: CarriedMessages, ranges: list[Range]) -> list[Range]:
        """What of these messages was not said to be lost here."""
        blocks = self.lost.get((sent.region, sent.view, sent.sender))
        if blocks is None or sent.block is None or sent.begin is None or not ranges:
            return ranges
        if not blocks.missing(sent.block, sent.block + 1):
            return []
        if subtract([(sent.begin, sent.block)], blocks.missing(sent.begin, sent.block)):
            return subtract(ranges, [(sent.first, sent.first + 1)])  # parts of its first message are in earlier blocks
        return ranges


class Rejected(NamedTuple):
    """A delivery that integrity rejects, or blames: `what` completes the sentence."""

    member: str
    given: Given
    span: Range
    what: str
    other: str | None = None


class RegionalTrace:
    """The index. `rejected` is found while it is built, since it decides what the others look at."""

    __slots__ = ("_firsts", "_submitted", "comparable", "delivered", "lanes", "lives", "rejected", "sent", "views")

    def __init__(self, trace: Trace, *, comparable: bool = True) -> None:
        self.comparable = comparable
        self.lives: dict[str, Attendee] = {}
        self.rejected: list[Rejected] = []
        self.views: dict[tuple[str, str], tuple[str, ...]] = {}  # as the first that installed it has it
        self.sent: dict[tuple[str, str], list[CarriedMessages]] = {}  # (region, sender), by number
        self._firsts: dict[tuple[str, str], list[int]] = {}
        self._submitted: dict[tuple[str, str], list[Range]] = {}
        self.lanes: dict[tuple[str, str, str], int] = {}  # (region, view, sender) -> last block
        self.delivered: dict[tuple[str, str, str], RangeSet] = {}  # (member, region, sender)
        if not trace.has_regions:
            return
        newest: dict[str, int] = {}
        for node, life in trace.lives:
            newest[node] = max(newest.get(node, life), life)
        busy_ns = _last_traffic_ns(trace) if comparable else FOREVER
        for (node, life), rows in trace.lives.items():
            attendee = self.lives[f"{node}/{life}"] = Attendee(f"{node}/{life}")
            self._walk(trace, attendee, rows, busy_ns)
            if life < newest[node]:
                self._cut(attendee, FOREVER - 1, FOREVER, "gone")
        for attendee in self.lives.values():
            for region, submits in attendee.submits.items():
                spans = [(row.first or 0, (row.first or 0) + (row.count or 0)) for row in submits]
                self._submitted[region, attendee.member] = merged(spans)
            for region in attendee.carries:
                self._send(trace, attendee, region)
        for attendee in self.lives.values():
            self._deliver(attendee)

    def __bool__(self) -> bool:
        """Whether the trace has regions."""
        return bool(self.lives)

    def sent_in(self, region: str, sender: str, first: int, stop: int) -> list[CarriedMessages]:
        """What touches these numbers."""
        line = self.sent.get((region, sender), [])
        firsts = self._firsts.get((region, sender), [])
        low = max(bisect_right(firsts, first) - 1, 0)
        return [one for one in line[low : bisect_left(firsts, stop)] if one.stop > first]

    def until(self, life: Attendee, install: RegionEntry, sent: CarriedMessages) -> int | None:
        """Up to which event these messages are owed to a life that installed their view; None: not at all."""
        ends = [
            span.stop_n
            for group in sent.groups
            for span in life.spans.get(group, ())
            if span.stop_n > install.n
            and (span.at_ns <= install.at_ns or (self.comparable and span.at_ns <= sent.at_ns))
            and life.stay(span.n) == install.stay
        ]
        return max(ends, default=None)

    def missing(self, life: Attendee, sent: CarriedMessages) -> list[Range]:
        """What of these messages a life neither delivered nor was told to be lost."""
        have = self.delivered.get((life.member, sent.region, sent.sender))
        gaps = have.missing(sent.first, sent.stop) if have is not None else [(sent.first, sent.stop)]
        return life.lacks(sent, gaps)

    def owed(
        self, region: str, sender: str, least: int
    ) -> Iterator[tuple[Attendee, RegionEntry, CarriedMessages, int]]:
        """Messages of a lane that have at least this rank, with each life that they are owed to, and until when."""
        installed = [
            (life, install) for life in self.lives.values() for install in life.installs if install.region == region
        ]
        by_view: dict[str, list[tuple[Attendee, RegionEntry]]] = {}
        for life, install in installed:
            by_view.setdefault(install.view, []).append((life, install))
        for sent in self.sent.get((region, sender), ()):
            if sent.rank < least:
                continue
            for life, install in by_view.get(sent.view, ()):
                until = self.until(life, install, sent)
                if until is not None:
                    yield life, install, sent, until

    def has_ended(self, member: str, region: str, view: str) -> bool:
        """Whether a member of a view went out of it, or never came in: it may have had what nobody has any more."""
        life = self.lives.get(member)
        install = life.views.get((region, view)) if life is not None else None
        return life is None or install is None or not life.survives(install.stay)

    # Building.

    def _walk(self, trace: Trace, life: Attendee, rows: list[Row], busy_ns: int) -> None:
        for row in rows:
            kind, underlay = row.kind, row.underlay
            if kind in ENDS:
                if kind != "stop" or row.at_ns <= busy_ns:
                    self._cut(life, row.n, row.at_ns, kind)
                continue
            if not is_regional(underlay):
                continue
            life.has_regions = True
            if underlay == REGIONS:
                self._group_row(life, row)
            elif is_region(underlay):
                self._region_row(trace, life, row)

    def _cut(self, life: Attendee, n: int, at_ns: int, kind: str) -> None:
        life.cuts.append((n, at_ns, kind))
        for group in life.spans:
            self._leave(life, group, n)

    def _leave(self, life: Attendee, group: str, n: int) -> None:
        spans = life.spans.get(group)
        if spans and spans[-1].stop_n == FOREVER:
            spans[-1] = spans[-1]._replace(stop_n=n)

    def _group_row(self, life: Attendee, row: Row) -> None:
        if row.kind == "leave":
            if row.group is None:
                self._cut(life, row.n, row.at_ns, row.kind)
            else:
                self._leave(life, row.group, row.n)
        elif row.kind in ("join", "view") and row.group is not None:
            spans = life.spans.setdefault(row.group, [])
            if not spans or spans[-1].stop_n != FOREVER:
                spans.append(GroupSpan(row.n, FOREVER, row.at_ns))
            if row.kind == "view":
                life.group_views.append(row)

    def _region_row(self, trace: Trace, life: Attendee, row: Row) -> None:
        region, kind = row.underlay, row.kind
        if kind == "view":
            if row.view is not None and row.members:
                stay = len(life.cuts)
                install = RegionEntry(row.n, row.at_ns, region, row.view, tuple(row.members), stay)
                life.installs.append(install)
                life.views.setdefault((region, row.view), install)
                self.views.setdefault((region, row.view), tuple(row.members))
            return
        if row.first is None or row.count is None:
            return  # the well_formed checker names it
        stop = row.first + row.count
        if kind == "submit" and row.count > 0:
            life.submits.setdefault(region, []).append(row)
        elif kind == "carry":
            life.carries.setdefault(region, []).append(row)
        elif kind == "confirm":
            life.confirmed.setdefault(region, RangeSet()).add(row.first, stop)
        elif kind == "deliver" and row.sender is not None:
            service = trace.service(row.service)
            rank = service[0] if service is not None else UNRELIABLE_RANK
            life.deliveries.append(Given(row.n, row.at_ns, region, row.view, row.sender, row.first, stop, rank))
        elif kind == "lost" and row.sender is not None and row.view is not None:
            life.losses.append(LostBlocks(row.n, region, row.view, row.sender, row.first, stop))
            life.lost.setdefault((region, row.view, row.sender), RangeSet()).add(row.first, stop)

    def _send(self, trace: Trace, life: Attendee, region: str) -> None:
        """Cut what was carried where submits begin and end."""
        submits = life.submits.get(region, [])
        firsts = [row.first or 0 for row in submits]
        line: list[CarriedMessages] = []
        for row in life.carries[region]:
            first, view = row.first or 0, row.view or ""
            if row.position is not None:
                lane = region, view, life.member
                self.lanes[lane] = max(self.lanes.get(lane, 0), row.position)
            begin = row.prev_position if row.prev_position is not None else row.position
            stop = first + (row.count or 0)
            for submit in submits[max(bisect_right(firsts, first) - 1, 0) : bisect_left(firsts, stop)]:
                begins, ends = submit.first or 0, (submit.first or 0) + (submit.count or 0)
                low, high = max(first, begins), min(stop, ends)
                if low < high:
                    service = trace.service(submit.service)
                    serial = submit.position + low - begins if submit.position is not None else None
                    line.append(
                        CarriedMessages(
                            *(region, life.member, low, high, view, row.position, begin, serial),
                            *(tuple(row.groups or ()), service[0] if service is not None else UNRELIABLE_RANK),
                            *(row.at_ns, life.stay(row.n)),
                        )
                    )
                    begin = row.position
        line.sort(key=lambda one: one.first)
        self.sent[region, life.member] = line
        self._firsts[region, life.member] = [one.first for one in line]

    def _deliver(self, life: Attendee) -> None:
        for given in life.deliveries:
            unknown = subtract([given.span], self._submitted.get((given.region, given.sender), []))
            for span in unknown:
                self.rejected.append(Rejected(life.member, given, span, "which was not submitted"))
            parts = self.sent_in(given.region, given.sender, given.first, given.stop)
            carried = merged([*unknown, *((max(one.first, given.first), min(one.stop, given.stop)) for one in parts)])
            for span in subtract([given.span], carried):
                self.rejected.append(Rejected(life.member, given, span, "which no block of its sender carried"))
            for sent in parts:
                self._take(life, given, sent)

    def _take(self, life: Attendee, given: Given, sent: CarriedMessages) -> None:
        first, stop = max(given.first, sent.first), min(given.stop, sent.stop)
        have = self.delivered.setdefault((life.member, sent.region, sent.sender), RangeSet())
        twice = have.add(first, stop)
        if twice is not None:
            self.rejected.append(Rejected(life.member, given, twice, "which it had delivered before"))
            return
        if sent.at_ns > given.at_ns and (self.comparable or sent.sender == life.member):
            what = f"before it was carried at {sent.at_ns} ns"
            self.rejected.append(Rejected(life.member, given, (first, stop), what, given.sender))
            return
        if given.rank < sent.rank:
            what = "under a weaker service than its submit asked for"
            self.rejected.append(Rejected(life.member, given, (first, stop), what, given.sender))
        if not life.is_in(sent.groups, given.n):
            what = f"though it was in none of {', '.join(sent.groups)}"
            self.rejected.append(Rejected(life.member, given, (first, stop), what))
            return
        life.pieces.append(Piece(given, sent, first, stop))


def _last_traffic_ns(trace: Trace) -> int:
    """When the last message of any region was submitted or delivered."""
    return max(
        (
            row.at_ns
            for rows in trace.lives.values()
            for row in rows
            if row.kind in ("submit", "deliver") and is_region(row.underlay)
        ),
        default=-1,
    )
