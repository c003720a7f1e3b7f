"""Notices when nothing goes on over regions, and says why (docs/design/stalled.md). One watch for all groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ordercast.config import SECOND
from ordercast.engine import NEVER, StallReason, Waiting
from ordercast.groups.driven import LogLine
from ordercast.groups.status import GroupState, GroupStatus, Resumed, Stalled
from ordercast.groups.watching import (
    INFO,
    LATE_NS,
    OUT,
    SLOW_TICK_NS,
    STALL_NS,
    TICK_NS,
    UNEXPLAINED,
    UNEXPLAINED_NS,
    WARNING,
    Standstill,
    is_same_wait,
    wait_label,
)

if TYPE_CHECKING:
    from ordercast.groups.regions.channel import RegionChannel
    from ordercast.groups.regions.port import RegionPort

ACK_STALL_NS: Final = 4 * SECOND
"""Without progress of what was sent: a region acknowledges once in a round of its token, which takes a second, and a
repair takes up to three rounds."""

NAMED_GROUPS: Final = 3
"""Groups that a text names; of more it tells the number."""


class RegionStalls:
    """What the application waits for: to come in, joins and leaves, sends and their acknowledgements."""

    __slots__ = (
        "_channel",
        "_holding",
        "_is_told_holding",
        "_is_unexplained",
        "_work",
        "due_ns",
        "since_ns",
        "stalled",
    )

    def __init__(self, channel: RegionChannel) -> None:
        self._channel = channel
        self._work = Standstill()
        self._holding = Standstill()  # what this node's application has not received
        self._is_told_holding = False
        self._is_unexplained = False
        self.due_ns = NEVER  # when to look next; NEVER: nothing waits
        self.stalled: Waiting | None = None
        self.since_ns = 0

    def after_pass(self, now_ns: int) -> int:
        """When to look next."""
        if self.due_ns == NEVER:
            if self._mark() is not None or self._channel.consumption.has_unfinished:
                self._look(now_ns)
        elif now_ns >= self.due_ns or (self.stalled is not None and self._work.is_other(self._mark())):
            self._look(now_ns)
        return self.due_ns

    def _mark(self) -> object:
        channel = self._channel
        if channel.is_over:
            return None
        if not channel.is_in:
            return OUT
        joined, sends = channel.joined, channel.sending.marks()
        if sends is None and not joined.joining and not joined.leaving and not channel.requests.leaves:
            return None
        return (channel.views.epoch, sends, len(joined.joining), len(joined.leaving), len(channel.requests.leaves))

    @property
    def _patience_ns(self) -> int:
        channel = self._channel
        is_asking = channel.joined.joining or channel.joined.leaving or channel.requests.unnumbered
        return STALL_NS if is_asking or not channel.is_in else ACK_STALL_NS

    def _look(self, now_ns: int) -> None:
        channel, work, holding = self._channel, self._work, self._holding
        late_ns = now_ns - self.due_ns if self.due_ns < NEVER else 0
        if late_ns > LATE_NS:
            work.shift(late_ns)
            holding.shift(late_ns)
        work_ns = work.update(now_ns, self._mark())
        unfinished = channel.consumption.has_unfinished and not channel.is_over
        holding_ns = holding.update(now_ns, (channel.consumption.done_seq,) if unfinished else None)
        if work_ns >= self._patience_ns:
            found = channel.engine.waiting(now_ns) or self._own_reason()
            if found is None:
                self._explain_later(now_ns, work_ns)
            else:
                self._follow(now_ns, found, now_ns - work_ns)
        else:
            self._is_unexplained = False
            self._follow(now_ns, None, now_ns)
        is_long = holding_ns >= STALL_NS
        if is_long and not self._is_told_holding:
            self._note(WARNING, f"the application on this node has received nothing for {holding_ns / SECOND:.1f} s")
        self._is_told_holding = is_long
        if max(work_ns, holding_ns) < 0:
            self.due_ns = NEVER
        else:
            self.due_ns = now_ns + (SLOW_TICK_NS if self.stalled is not None or is_long else TICK_NS)

    def _own_reason(self) -> Waiting | None:
        """What the engine does not know: groups that the service has not numbered."""
        channel = self._channel
        names = [*channel.joined.joining, *channel.requests.unnumbered]
        if not names:
            return None
        shown = ", ".join(map(repr, names[:NAMED_GROUPS]))
        more = f" and {len(names) - NAMED_GROUPS} more" if len(names) > NAMED_GROUPS else ""
        return Waiting(StallReason.JOIN, (), f"the membership service has not placed {shown}{more}")

    def _follow(self, now_ns: int, found: Waiting | None, since_ns: int) -> None:
        stalled, rows = self.stalled, self._channel.rows.node
        if found is None:
            if stalled is not None:
                self.stalled = None
                after_ns = now_ns - self.since_ns
                rows.resumed(now_ns, f"{wait_label(stalled)} after {after_ns / SECOND:.3f} s")
                self._note(INFO, f"goes on after {after_ns / SECOND:.1f} s without progress")
                self._tell(Resumed(stalled.reason, after_ns / SECOND))
            return
        if stalled is not None and is_same_wait(stalled, found):
            self.stalled = found
            return
        if stalled is None:
            self.since_ns = since_ns
        self.stalled = found
        rows.stalled(now_ns, wait_label(found))
        self._note(WARNING, f"no progress for {(now_ns - self.since_ns) / SECOND:.1f} s: {found.text}")
        self._tell(Stalled(found.reason, found.waiting_for, self.since_ns / SECOND, found.text, found.have, found.need))

    def _explain_later(self, now_ns: int, work_ns: int) -> None:
        if work_ns >= UNEXPLAINED_NS and not self._is_unexplained:
            self._is_unexplained = True
            self._channel.rows.node.stalled(now_ns, UNEXPLAINED)
            self._note(WARNING, f"no progress for {work_ns / SECOND:.1f} s, and no reason is known: please report this")

    def _note(self, level: str, text: str) -> None:
        self._channel.log.append(LogLine("group", level, text))

    def _tell(self, event: Stalled | Resumed) -> None:
        channel = self._channel
        for port in [channel.base] if channel.handles.is_fed else [channel.base, *channel.handles.ports.values()]:
            if port.gone is None:
                port.notify(event)

    def status_of(self, port: RegionPort) -> GroupStatus:
        """What a group is doing now."""
        channel, found, view = self._channel, self.stalled, port.view
        if port.gone is not None:
            found, state = None, GroupState.LEFT
        elif found is not None:
            state = GroupState.STALLED
        elif port.is_leaving:
            state = GroupState.LEAVING
        else:
            state = GroupState.WORKING if view is not None else GroupState.JOINING
        sending = channel.sending
        return GroupStatus(
            state,
            view,
            view.members if view is not None else (),
            found.reason if found is not None else None,
            found.waiting_for if found is not None else (),
            self.since_ns / SECOND if found is not None else None,
            found.text if found is not None else "",
            sending.route_of(port.number).count if port.group else sending.count,
            0,
            found.have if found is not None else 0,
            found.need if found is not None else 0,
        )
