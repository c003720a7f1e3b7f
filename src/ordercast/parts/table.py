"""What each member is known to hold, up to which sequence number: what the rotation of RMP's token tells (section 4.2).

The paper counts passes: after N of them all members have accepted the token, and hold all before it. Deviation: each
TOKEN carries what is known of each member, so that a lost NULL ACK costs nothing and other datagrams contribute.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ordercast.view import DEPARTURES, View

REMEMBERED: Final = 8  # views whose lists are kept, to read tables of members that lag behind


class Table:
    __slots__ = ("_early", "_ids", "_leaver", "_leaves_at", "_me", "_rows", "_safe", "_sizes", "view")

    def __init__(self, view: View, me: int, known: int) -> None:
        """`known`: what all members of the first view are known to hold."""
        self._me = me
        self._rows = {member.id: known for member in view.members}
        self._rows[me] = view.seq
        self._leaver = 0  # of the last change, until it has its own leave
        self._leaves_at = 0
        self._ids: dict[int, list[int]] = {}  # sequence number of a view -> the members of its rows, in order
        self._sizes: deque[tuple[int, int]] = deque()  # sequence number and size of views for MaxN
        self._safe = -1  # -1: to be computed
        self._early: tuple[int, tuple[int, ...]] = (0, ())  # of a view that is not here yet
        self.view = view
        self._remember(view)

    def apply(self, view: View) -> None:
        """A change has been received here."""
        if self._leaver and self._leaver != self._me and view.member(self._leaver) is None:
            self._leaves_at = 0  # nothing is ordered after a leave before the leaver knows of it
            self._look_at_leaver()
        joiners = [member.id for member in view.members if self.view.member(member.id) is None]
        leavers = [member.id for member in self.view.members if view.member(member.id) is None]
        self.view = view
        for member in joiners:
            if member == self._leaver:
                self._leaver = 0  # it comes back: it has seen its own leave
            self._rows[member] = view.seq
        if leavers and view.reason in DEPARTURES:
            self._leaver, self._leaves_at = leavers[0], view.seq
            self._look_at_leaver()
        self._remember(view)
        self._safe = -1
        early, self._early = self._early, (0, ())
        if early[0] == view.seq:
            self.merge(*early)

    def _remember(self, view: View) -> None:
        self._ids[view.seq] = [member.id for member in view.members] + ([self._leaver] if self._leaver else [])
        if len(self._ids) > REMEMBERED:
            del self._ids[min(self._ids)]
        self._sizes.append((view.seq, len(view.members)))

    def learn(self, member: int, seq: int) -> None:
        if seq > self._rows.get(member, seq):
            self._rows[member] = seq
            self._safe = -1
            if member == self._leaver:
                self._look_at_leaver()

    def merge(self, view: int, rows: tuple[int, ...]) -> bool:
        """A table that somebody sent, as of the view at `view`; whether it says anything to us."""
        ids = self._ids.get(view)
        if ids is None or len(rows) > len(ids):
            if view > self.view.seq:
                self._early = (view, rows)  # a New List has the table as of the view that it brings
            return False  # of a forgotten view, or of none: what is true of it will be said again
        mine = self._rows
        for member, seq in zip(ids, rows, strict=False):
            if seq > mine.get(member, seq) and member != self._me:  # what we hold nobody knows better
                mine[member] = seq
                self._safe = -1
        if self._leaver:
            if view == self.view.seq and len(rows) < len(ids):
                mine[self._leaver] = self._leaves_at  # its sender knows that the leaver knows
            self._look_at_leaver()
        return True

    def _look_at_leaver(self) -> None:
        if self._leaver == self._me:
            return  # our own row goes on telling the others that we know
        if self._rows.get(self._leaver, self._leaves_at) >= self._leaves_at:
            self._rows.pop(self._leaver, None)
            self._leaver = 0
            self._safe = -1

    def rows(self) -> tuple[int, ...]:
        """What to send: as of `view`."""
        mine = self._rows
        members = [mine[member.id] for member in self.view.members]
        if self._leaver:
            members.append(mine[self._leaver])
        return tuple(members)

    @property
    def safe(self) -> int:
        """Every member holds everything up to this sequence number, a leaver that may not know it yet included."""
        if self._safe < 0:
            self._safe = min(self._rows.values())
        return self._safe

    @property
    def round(self) -> int:
        """Every member holds everything up to this sequence number: all that passing the token can bring about."""
        mine = self._rows
        return min([mine[member.id] for member in self.view.members])

    @property
    def leaver(self) -> int:
        """The member that left and is not known to know it; 0: none."""
        return self._leaver

    @property
    def others(self) -> list[int]:
        return [member for member in self._rows if member != self._me]

    def row(self, member: int) -> int:
        return self._rows.get(member, 0)

    def holders(self, seq: int) -> int:
        """How many members besides us are known to hold everything up to `seq`."""
        me = self._me
        return sum([row >= seq and member != me for member, row in self._rows.items()])

    @property
    def max_n(self) -> int:
        """RMP's MaxN: the most members of any view for a packet that is not stable (section 3.2)."""
        sizes = self._sizes
        while len(sizes) > 1 and sizes[1][0] <= self.safe:
            sizes.popleft()
        return max([size for _, size in sizes])
