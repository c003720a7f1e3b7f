"""From blocks to deliveries: first in, first out in a lane, over views and moves (docs/design/regions.md).

Block 0 of a lane, OPEN, names how much its sender sent in earlier views: who was in one of them finishes it first. An
OPEN that is Lost waits for all earlier views of this member in which it knows of the sender. That of a node which came
back waits for what it had sent before it was excluded. RELIABLE is delivered as it comes.
"""

from __future__ import annotations

from collections import deque

from ordercast.engine import Delivery
from ordercast.orderers.regions.exclusions import Exclusions
from ordercast.orderers.regions.given import GivenView
from ordercast.orderers.regions.member_view import MemberView
from ordercast.orderers.regions.record import UNKNOWN, SenderRecord
from ordercast.orderers.regions.upcalls import BlocksLost, LaneRun, RegionUpcall


class Deliveries:
    """What comes up in a pass, in order, and what the application has not consumed yet."""

    __slots__ = ("_out", "_run", "_run_view", "lag_bytes", "ticket", "upcalls")

    def __init__(self) -> None:
        self.upcalls: list[RegionUpcall] = []
        self.ticket = 0
        self.lag_bytes = 0  # delivered and not consumed
        self._out: deque[tuple[int, int]] = deque()
        self._run: list[Delivery] = []
        self._run_view = 0  # of the run that is the last upcall; 0: it is something else

    def deliver(self, view: GivenView, origin: int, number: int, block: bytes) -> None:
        self.ticket += 1
        if view.view != self._run_view:
            self._run_view, self._run = view.view, []
            self.upcalls.append(LaneRun(view.region, view.id, self._run))
        self._run.append(Delivery(self.ticket, -1, origin, number, block))
        size = len(block)
        self._out.append((self.ticket, size))
        self.lag_bytes += size

    def lose(self, view: GivenView, origin: int, number: int) -> None:
        last = self.upcalls[-1] if self.upcalls else None
        if isinstance(last, BlocksLost) and (last.view, last.origin, last.first + last.count) == (
            view.id,
            origin,
            number,
        ):
            self.upcalls[-1] = last._replace(count=last.count + 1)
        else:
            self.add(BlocksLost(view.region, view.id, origin, number, 1))

    def add(self, upcall: RegionUpcall) -> None:
        self._run_view = 0
        self.upcalls.append(upcall)

    def take(self) -> list[RegionUpcall]:
        upcalls, self.upcalls, self._run_view = self.upcalls, [], 0
        return upcalls

    def consume(self, seq: int) -> None:
        out = self._out
        while out and out[0][0] <= seq:
            self.lag_bytes -= out.popleft()[1]


class FifoDelivery:
    """Which blocks have their turn."""

    __slots__ = ("_blocked", "_exclusions", "_up", "_views")

    def __init__(self, views: dict[int, MemberView], exclusions: Exclusions, up: Deliveries) -> None:
        self._views = views
        self._exclusions = exclusions
        self._up = up
        self._blocked: dict[int, set[int]] = {}  # sender -> views whose OPEN waits for earlier ones

    def advance(self, view: MemberView, record: SenderRecord, has_passed: bool = False) -> None:
        """Deliver what has its turn, and in other views what waits for it. `has_passed`: the owner has delivered a
        block that came in its turn.

        Views that wait must have their turn at once. OPEN names views up to the time when everybody *has* what was sent
        in them: one that everybody has, and that waits here for an earlier view, is not named by a later one. Both go
        on in the same moment, the earlier one first."""
        if (self._advance(view, record) or has_passed) and record.sender in self._blocked:
            self._retry(record.sender)

    def retry(self) -> None:
        """Views were forgotten, or senders excluded."""
        for sender in list(self._blocked):
            self._retry(sender)

    def _retry(self, sender: int) -> None:
        has_more = True
        while has_more:
            has_more = False
            waiting = [self._views[each] for each in self._blocked.get(sender, ()) if each in self._views]
            for view in sorted(waiting, key=lambda each: each.given.epoch):
                record = view.records.get(sender)
                has_more |= record is not None and self._advance(view, record)

    def _advance(self, view: MemberView, record: SenderRecord) -> bool:
        """Whether anything was passed."""
        at = record.next
        if not at and record.has(0) and not self._may_open(view, record):
            self._blocked.setdefault(record.sender, set()).add(view.given.view)
            return False
        given, sender, up = view.given, record.sender, self._up
        waiting, early, lost = record.waiting, record.early, record.lost
        while True:
            block = waiting.pop(at, None)
            if block is not None:
                record.waiting_bytes -= len(block)
                up.deliver(given, sender, at, block)
            elif at in lost:
                up.lose(given, sender, at)
            elif at in early:
                early.discard(at)
            elif at or not record.has(0):
                break
            at += 1
        if at == record.next:
            return False
        if not record.next:
            blocked = self._blocked.get(sender)
            if blocked is not None:
                blocked.discard(given.view)
                if not blocked:
                    del self._blocked[sender]
        record.next = at
        return True

    def _may_open(self, view: MemberView, record: SenderRecord) -> bool:
        if record.is_own:
            return True
        if not self._has_finished_former(view, record.sender):
            return False
        if 0 in record.lost or record.opening is None:
            return self._has_finished_all(view, record.sender)
        return all(self._has_finished(each.view, record.sender, each.final) for each in record.opening.earlier)

    def _has_finished_former(self, view: MemberView, sender: int) -> bool:
        """A node that was excluded and comes back has the same id, and its next OPEN knows nothing of what it had sent
        before. Of that, as much as the members of those views find comes first."""
        for earlier in self._views.values():
            made = earlier.given.epoch
            if made >= view.given.epoch or sender not in self._exclusions.as_of(view.given.epoch, made):
                continue
            record = earlier.records.get(sender)
            if sender in earlier.finished:
                continue
            if record is None or record.is_empty:
                if sender not in self._exclusions.as_of(earlier.cleaner, made):
                    return False  # others may have something of it
            elif record.final == UNKNOWN or record.next < record.final:
                return False
        return True

    def _has_finished(self, view: int, sender: int, count: int) -> bool:
        found = self._views.get(view)
        if found is None:
            return True  # forgotten, or never a member of it
        if sender in found.finished:
            return True
        record = found.records.get(sender)
        if record is not None and record.next >= count:
            return True
        if record is None or sender not in self._exclusions.out_of(found.given.epoch):
            return False
        return record.final != UNKNOWN and record.next >= record.final

    def _has_finished_all(self, view: MemberView, sender: int) -> bool:
        for earlier in self._views.values():
            record = earlier.records.get(sender)
            if record is None or earlier.given.epoch >= view.given.epoch:
                continue
            if record.final == UNKNOWN or record.next < record.final:
                return False
        return True
