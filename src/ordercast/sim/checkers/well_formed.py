"""Before any property: is this a trace at all, as docs/trace.md describes one?

Reading. Per node and life `n` goes 0, 1, 2, … without gaps, and nothing follows a `crash`. View ids are
`counter@name/life`; a life writes each view once, with itself in `members` and in `came_with`, and `came_with` is part
of `members` (that members of one view agree on its list is property 5 and judged there). Rows name views that the life
installed, except those that may speak of another's view (`join`, `leave`, `transitional`, `gap`, …), those of a life
that never was in a view (non-member senders), and those of a session, which knows no views of the underlay; the view of
a `deliver` is property 5's. A session writes neither `hold` nor `placed`. A row that names several `groups` names no
`group`, and none of them twice. A `submit` is the sender's own, and its numbers go on where the last ended, per life
and underlay. `prev_position` is the last position of the ordered delivery before it in the same underlay and life;
after a `leave` of the underlay -1 is taken, too, since docs/trace.md does not say whether `here` outlives it. A
delivery weaker than AGREED that carries a position (CAUSAL given as AGREED) may count as ordered or not.

Regions: their rows name no group but in `groups` of `carry`, and no service stronger than FIFO; nothing is held, placed
or signalled there, and only there is something carried or lost. A view has no `came_with`. A `submit` has a serial
(`position`). A `carry` row is the sender's own, its numbers go on where the last ended, and its blocks count from 1 in
each view of a region; those of UNRELIABLE messages have none.
"""

from __future__ import annotations

import re
from typing import Final

from ordercast.service import AGREED_RANK, FIFO_RANK, RELIABLE_RANK
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.verdict import PropertyResult
from ordercast.trace.naming import REGIONS, is_region, is_regional
from ordercast.trace.schema import KINDS, Row

NAME = "well_formed"

VIEW_ID: Final = re.compile(r"\d+@.+/\d+")
DERIVED_ID: Final = re.compile(r"\d+@.+/\d+(#[0-9a-f]{8})?")  # of a group on several regions
MEMBER: Final = re.compile(r".+/\d+")
MESSAGE_KINDS: Final = frozenset({"submit", "hold", "placed", "deliver", "redeliver", "confirm"})
OWN_VIEW_KINDS: Final = frozenset({"submit", "hold", "placed", "redeliver", "confirm", "lock", "unlock", "reply"})
DAEMON_KINDS: Final = frozenset({"hold", "placed"})
KNOWN_KINDS: Final = frozenset(KINDS)
REGION_KINDS: Final = frozenset({"carry", "lost"})
NOT_OF_REGIONS: Final = frozenset({"hold", "placed", "transitional", "redeliver", "reply", "lock", "unlock"})


def check(trace: Trace) -> PropertyResult:
    """Judge the form of every row."""
    result = PropertyResult(NAME, "rows", checked=trace.row_count)
    for (node, life), rows in trace.lives.items():
        _Life(trace, f"{node}/{life}", result).check(rows)
    return result


class _Life:
    """The walk over one life."""

    __slots__ = (
        "blocks",
        "carried",
        "entered",
        "installed",
        "known_senders",
        "member",
        "next_number",
        "positions",
        "result",
        "trace",
    )

    def __init__(self, trace: Trace, member: str, result: PropertyResult) -> None:
        self.trace = trace
        self.member = member
        self.result = result
        self.next_number: dict[str, int] = {}
        self.positions: dict[str, set[int]] = {}  # underlay -> honest values of the next prev_position
        self.installed: dict[str, set[str]] = {}
        self.entered: set[str] = set()  # underlays of which it installed a view
        self.known_senders: set[str] = set()
        self.carried: dict[str, int] = {}  # region -> the number that the next carry begins with
        self.blocks: dict[tuple[str, str | None], int] = {}  # (region, view) -> the last block

    def check(self, rows: list[Row]) -> None:
        for row in rows:
            if row[4] == "view" and row[8] is not None:
                self.installed.setdefault(row[5], set()).add(row[8])
                if row[6] is None:
                    self.entered.add(row[5])
        seen: set[tuple[str, str | None, str]] = set()
        expected = 0
        crashed = False
        for row in rows:
            kind = row[4]
            if row[2] != expected:
                self._say(row, f"n={row[2]} where n={expected} was due")
            expected = row[2] + 1
            if crashed:
                self._say(row, f"a {kind} row follows its crash")
                crashed = False
            if kind in MESSAGE_KINDS:
                self._message(row, kind)
            elif kind == "view":
                self._view(row, seen)
            elif kind == "crash":
                crashed = True
            elif kind == "leave" and not self._is_lightweight(row):
                self.positions.setdefault(row[5], {-1}).add(-1)
            elif kind not in KNOWN_KINDS:
                self._say(row, f"unknown kind {kind!r}")
            if is_regional(row[5]) or kind in REGION_KINDS:
                self._regional(row, kind)
                continue
            if row[8] is not None and kind in OWN_VIEW_KINDS:
                installed = self.installed.get(row[5])
                if installed is not None and row[5] not in self.entered:
                    continue  # a session's view of the underlay is its daemon's
                if row[8] not in installed if installed is not None else kind not in ("submit", "hold", "confirm"):
                    self._say(row, f"a {kind} row names view {row[8]}, which it never installed")

    def _regional(self, row: Row, kind: str) -> None:
        """What regions ask for in addition."""
        if kind in NOT_OF_REGIONS or (kind in REGION_KINDS and not is_region(row.underlay)):
            self._say(row, f"a {kind} row in {row.underlay or 'no underlay'}")
        elif kind == "lost":
            if row.sender is None or row.view is None or (row.first or 0) < 0 or (row.count or 0) < 1:
                self._say(row, "a lost row without sender, view or blocks")
        elif kind == "carry":
            self._carry(row)
        elif kind in MESSAGE_KINDS:
            service = self.trace.service(row.service)
            if service is not None and service[0] > FIFO_RANK:
                self._say(row, f"a {kind} row of {row.service} in a region, where nothing is stronger than FIFO")
            if row.group is not None or row.groups is not None or not is_region(row.underlay):
                self._say(row, f"a {kind} row of regions that names a group, or no region")
            if kind == "submit" and (row.position is None or row.view is None):
                self._say(row, "a submit row of a region without a serial or the view that it addresses")

    def _carry(self, row: Row) -> None:
        service = self.trace.service(row.service)
        if service is None or row.first is None or row.count is None or not row.groups or row.view is None:
            self._say(row, "a carry row without numbers, groups, view or service")
            return
        if row.sender != self.member:
            self._say(row, f"it carried in the name of {row.sender}")
        due = self.carried.get(row.underlay, 0)
        if row.first != due or row.count < 0:
            self._say(row, f"a carry row starts at number {row.first} where {due} was due")
        self.carried[row.underlay] = row.first + row.count
        lane = row.underlay, row.view
        last = self.blocks.get(lane, 0)
        if (row.position is None) != (service[0] < RELIABLE_RANK):
            self._say(row, f"a carry row of {row.service} with block {row.position}")
        elif row.position is not None:
            begin = row.position if row.prev_position is None else row.prev_position
            if row.position not in ((last, last + 1) if last else (1,)) or not 1 <= begin <= row.position:
                self._say(row, f"block {row.position}, begun in block {begin}, follows block {last}")
            self.blocks[lane] = row.position

    def _is_lightweight(self, row: Row) -> bool:
        underlay = self.trace.underlays.get(row[5])
        return underlay is not None and row[6] in underlay.lightweight

    def _is_session(self, row: Row) -> bool:
        underlay = self.trace.underlays.get(row[5])
        return underlay is not None and self.member in underlay.hosts

    def _message(self, row: Row, kind: str) -> None:
        sender, first, count = row[11], row[12], row[13]
        if kind == "submit" and sender is None:
            sender = self.member
        if sender is None or first is None or count is None:
            self._say(row, f"a {kind} row without sender, first or count")
            return
        if first < 0 or count < 1:
            self._say(row, f"a {kind} row with first={first} and count={count}")
            return
        if sender not in self.known_senders:
            if MEMBER.fullmatch(sender) is None:
                self._say(row, f"sender {sender!r} is not name/life")
            self.known_senders.add(sender)
        if row[7] is not None and (row[6] is not None or len(set(row[7])) != len(row[7])):
            self._say(row, f"a {kind} row names the groups {', '.join(row[7])}, and one of them twice or alone")
        if kind in DAEMON_KINDS and self._is_session(row):
            self._say(row, f"a session wrote a {kind} row, which only daemons write")
        if kind == "submit":
            if self.trace.service(row[14]) is None:
                self._say(row, f"a submit row with service {row[14]!r}")
            if sender != self.member:
                self._say(row, f"it submitted in the name of {sender}")
            due = self.next_number.get(row[5], 0)
            if first != due:
                self._say(row, f"a submit starts at number {first} where {due} was due")
            self.next_number[row[5]] = first + count
        elif kind == "deliver":
            self._deliver(row, count)

    def _deliver(self, row: Row, count: int) -> None:
        service = self.trace.service(row[14])
        if service is None:
            self._say(row, f"a deliver row with service {row[14]!r}")
            return
        if row[8] is None:
            self._say(row, "a deliver row without a view")
        position = row[15]
        if position is None:
            if service[0] >= AGREED_RANK:
                self._say(row, f"a deliver row of {row[14]} without a position")
            return
        honest = self.positions.get(row[5])
        if service[0] < AGREED_RANK:  # it may count as ordered or not: both values are honest from here on
            self.positions[row[5]] = (honest or {-1}) | {position + count - 1}
            return
        if row[16] is None:
            self._say(row, f"a deliver row of {row[14]} without prev_position")
        elif row[16] not in honest if honest is not None else row[16] != -1:
            known = sorted(honest) if honest is not None else [-1]
            self._say(row, f"prev_position={row[16]}, but the last ordered delivery before it ended at {known[-1]}")
        if honest is None:
            self.positions[row[5]] = {position + count - 1}
        else:
            honest.clear()
            honest.add(position + count - 1)

    def _view(self, row: Row, seen: set[tuple[str, str | None, str]]) -> None:
        view, members = row.view, row.members
        if view is None or not members:
            self._say(row, "a view row without id or members")
            return
        is_derived = row.underlay == REGIONS and row.group is not None
        if (DERIVED_ID if is_derived else VIEW_ID).fullmatch(view) is None:
            self._say(row, f"view id {view!r} is not counter@name/life")
        key = row.underlay, row.group, view
        if is_derived:  # it holds again when a region has come and gone
            seen.difference_update([each for each in seen if each[:2] == key[:2] and each != key])
        if key in seen:
            self._say(row, f"view {view} was written twice")
        seen.add(key)
        if len(set(members)) != len(members):
            self._say(row, f"view {view} names a member twice")
        if self.member not in members and not is_regional(row.underlay):  # of regions, region_views says it
            self._say(row, f"view {view} does not hold the member that wrote it")
        if row.came_with is None:
            if row.group is None and not is_regional(row.underlay):
                self._say(row, f"view {view} has no came_with")
        elif self.member not in row.came_with or not set(row.came_with) <= set(members):
            self._say(row, f"came_with of view {view} is not a part of its members with the writer in it")

    def _say(self, row: Row, what: str) -> None:
        self.result.report(f"{self.member} at n={row.n}: {what}", member=self.member, sender=row.sender, view=row.view)
