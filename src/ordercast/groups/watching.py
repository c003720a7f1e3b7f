"""Notices when a channel makes no progress, and says why (docs/design/stalled.md).

Nothing may hang without saying for which member. The watch compares what was waiting with what is waiting a quarter of
a second later. It has no timer while nothing waits, and one for all ports of a channel. After a second without progress
it asks the engine for the reason, which costs nothing before that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER, StallReason, Waiting
from ordercast.groups.driven import LogLine
from ordercast.groups.status import GroupState, GroupStatus, Resumed, Stalled

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port
    from ordercast.view import View

STALL_NS: Final = SECOND  # without progress: this is what the guide promises
UNEXPLAINED_NS: Final = 5 * SECOND  # after this a wait must have a reason
TICK_NS: Final = 250 * MS  # between two looks, so that a stall is told at most this much late
SLOW_TICK_NS: Final = SECOND  # the same once it has been told
HELD_NS: Final = 100 * MS  # an application that has had something to receive for less than this is not blamed
LATE_NS: Final = SECOND  # a look that comes so late: this process stood still itself, and blames nobody for that
TOLD_AT_ONCE: Final = 1_024
"""Ports that are told of a stall in one pass. A shared underlay may have very many."""

NAMED_SESSIONS: Final = 3
"""Sessions that a text names; of more it tells the number."""

GIVEN: Final = ("given",)  # the mark of an application that has something to receive, however fast it does that
OUT: Final = ("out",)  # the mark of a node that is on its way in, for the first time or again
UNEXPLAINED: Final = "unexplained"  # in the trace: judges take it for a failure
WARNING: Final = "warning"
INFO: Final = "info"


class Standstill:
    """Since when something has been the same."""

    __slots__ = ("_mark", "since_ns")

    def __init__(self) -> None:
        self._mark: object = None
        self.since_ns = 0

    def update(self, now_ns: int, mark: object) -> int:
        """How long it has been like this; -1: nothing waits (`mark` is None). To be put out is no progress."""
        if mark is None:
            self._mark = None
            return -1
        if mark != self._mark:
            if mark != OUT or self._mark is None:
                self.since_ns = now_ns
            self._mark = mark
        return now_ns - self.since_ns

    def is_other(self, mark: object) -> bool:
        """Whether it has changed since."""
        return mark != self._mark

    def shift(self, by_ns: int) -> None:
        """So much of the time does not count."""
        self.since_ns += by_ns


class StallWatch:
    """What the applications on one channel wait for. `log` is for the driver, `counters` for whoever looks."""

    __slots__ = (
        "_candidate",
        "_channel",
        "_given",
        "_holding",
        "_is_short",
        "_is_told_holding",
        "_is_unexplained",
        "_requests",
        "_told",
        "_view",
        "_work",
        "asking",
        "due_ns",
        "log",
        "since_ns",
        "stalled",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._view: View | None = None
        self._is_short = False  # that view has too few members to begin
        # What may stand still
        self._work = Standstill()  # joins, leaves, sends and confirmations, and a ring that does not work
        self._requests = Standstill()  # locks and calls
        self._given = Standstill()  # the application of this node has something to receive
        self._holding = Standstill()  # what this node's application has not received, while others wait for it
        self.due_ns = NEVER  # when to look next; NEVER: nothing waits
        # What was found
        self.stalled: Waiting | None = None
        self.since_ns = 0
        self.asking: Waiting | None = None  # a lock or a call that takes long, and not for a fault of the group
        self._candidate: Waiting | None = None  # another reason than the one that was told: it has to last
        self._is_told_holding = False
        self._is_unexplained = False  # it has lasted for more than `UNEXPLAINED_NS` without a reason: always a bug
        # What is to be told
        self._told: deque[tuple[Port, Stalled | Resumed]] = deque()
        self.log: list[LogLine] = []

    # The pass.

    def after_pass(self, now_ns: int) -> int:
        """When to look again. Hot: once per pass; while something waits, most of them only compare two numbers."""
        due_ns = self.due_ns
        if due_ns != NEVER and not self._channel.consumption.receipts:
            self._given.update(now_ns, None)  # also where it has something again at the next look
        if (
            now_ns >= due_ns
            or (due_ns == NEVER and self._has_work())
            or (self.stalled is not None and self._has_moved())
        ):
            self._look(now_ns)
        if self._told:
            self._tell_some()
            if self._told:
                return now_ns
        return self.due_ns

    def _look(self, now_ns: int) -> None:
        work, requests, holding = self._work, self._requests, self._holding
        late_ns = now_ns - self.due_ns
        if late_ns > LATE_NS:
            for each in (work, requests, holding, self._given):
                each.shift(late_ns)
        work_ns = work.update(now_ns, self._work_mark())
        requests_ns = requests.update(now_ns, self._request_mark())
        holding_ns = holding.update(now_ns, self._holding_mark())
        waited_ns = self._given.update(now_ns, GIVEN if self._channel.consumption.receipts else None)
        asking, found, is_stuck = None, None, work_ns >= STALL_NS
        if is_stuck:
            found = self._channel.engine.waiting(now_ns)
        if requests_ns >= STALL_NS:
            asking = self._asked_of()
            if asking is None and not is_stuck:
                is_stuck, work_ns = True, requests_ns
                found = self._channel.engine.waiting(now_ns)
        self._is_unexplained = self._is_unexplained and is_stuck
        if found is not None and self._is_just_given(found, waited_ns):
            pass  # what was told before stays in force
        elif found is None and is_stuck:
            self._explain_later(now_ns, work_ns)
        elif found is not None or self.stalled is not None:
            self._follow(now_ns, found, now_ns - work_ns)
        self._follow_requests(asking, requests_ns)
        self._follow_holding(holding_ns)
        if max(work_ns, requests_ns, holding_ns) < 0:
            self.due_ns = NEVER
        else:
            is_told = self.stalled is not None or self.asking is not None or self._is_told_holding
            self.due_ns = now_ns + (SLOW_TICK_NS if is_told else TICK_NS)

    def _is_just_given(self, found: Waiting, waited_ns: int) -> bool:
        """Whether the application here would be blamed for what it has only just been given, as when the group goes on
        after another member held it up."""
        channel = self._channel
        if found.reason is not StallReason.NOT_RECEIVING or found.waiting_for != (str(channel.me),):
            return False
        return 0 <= waited_ns < HELD_NS and channel.view is not None

    def _has_work(self) -> bool:
        """Whether a mark would be there. Hot: once per pass of a member that only receives, so no mark is made."""
        channel = self._channel
        if channel.is_over:
            return False
        if channel.view is None or channel.leaving or self._has_too_few() or not channel.engine.is_working:
            return True
        for stream in channel.streams:
            if stream.outstanding or stream.ready or stream.queue.count:
                return True
        for port in channel.talkers:
            if port.is_waiting:
                return True
        return channel.consumption.has_unfinished and channel.engine.waits_for_application()

    def _has_too_few(self) -> bool:
        """Whether the view has too few members to begin. Nothing has to wait for that to be told. Hot, as above."""
        channel = self._channel
        if channel.view is not self._view:
            self._view = channel.view
            self._is_short = channel.engine.short_of() is not None
        return self._is_short

    def _has_moved(self) -> bool:
        """Whether what was stalled goes on: that is told at once."""
        return self.stalled is not None and self._work.is_other(self._work_mark())

    # What waits. None: nothing.

    def _work_mark(self) -> object:
        channel = self._channel
        if channel.is_over:
            return None
        view = channel.view
        if view is None:
            return OUT
        sends = [
            (stream.lowest_undelivered, stream.lowest_unsent)
            for stream in channel.streams
            if stream.outstanding or stream.ready or stream.queue.count
        ]
        if not sends and not channel.leaving and not self._has_too_few() and channel.engine.is_working:
            return None
        return (view.id, tuple(sends), len(channel.leaving), channel.is_leaving)

    def _request_mark(self) -> object:
        channel = self._channel
        if not channel.talkers or channel.view is None or not channel.engine.is_working:
            return None
        waiting = [port for port in channel.talkers if port.is_waiting]
        return tuple([(port.locks.marks(), port.calls.marks()) for port in waiting]) or None

    def _holding_mark(self) -> object:
        channel = self._channel
        consumption = channel.consumption
        if not consumption.has_unfinished or channel.is_over or channel.view is None:
            return None
        return (consumption.done_seq,) if channel.engine.waits_for_application() else None

    def _asked_of(self) -> Waiting | None:
        """The member that keeps a lock, or owes an answer; None: the group has not answered a request."""
        waiting = [port for port in self._channel.talkers if port.is_waiting]
        if any(port.locks.is_asking for port in waiting):
            return None
        for port in waiting:
            locks, names = port.locks, {each.id: str(each) for each in port.view.members} if port.view else {}
            for key in locks.wanted():
                return lock_waits(key, names.get(locks.held_by.get(key, 0), "another member"))
            for handler in port.calls.handlers():
                return call_waits(handler, names.get(locks.held_by.get(str(handler), 0), ""))
        return None

    # What comes of it.

    def _follow(self, now_ns: int, found: Waiting | None, since_ns: int) -> None:
        stalled, rows = self.stalled, self._channel.rows
        if found is None:
            if stalled is not None:
                self.stalled = self._candidate = None
                after_ns = now_ns - self.since_ns
                rows.resumed(now_ns, f"{wait_label(stalled)} after {after_ns / SECOND:.3f} s")
                verb = "left" if self._channel.is_over else "goes on"
                self._note(INFO, f"{verb} after {after_ns / SECOND:.1f} s without progress")
                self._tell(Resumed(stalled.reason, after_ns / SECOND))
            return
        if stalled is not None and is_same_wait(stalled, found):
            self.stalled, self._candidate = found, None
            return
        if stalled is not None and (self._candidate is None or not is_same_wait(self._candidate, found)):
            self._candidate = found  # recoveries go through many states: only one that lasts is told
            return
        if stalled is None:
            self.since_ns = since_ns
        self.stalled, self._candidate = found, None
        rows.stalled(now_ns, wait_label(found))
        self._note(WARNING, f"no progress for {(now_ns - self.since_ns) / SECOND:.1f} s: {found.text}")
        self._tell(Stalled(found.reason, found.waiting_for, self.since_ns / SECOND, found.text, found.have, found.need))

    def _explain_later(self, now_ns: int, work_ns: int) -> None:
        """Nothing explains it. For a moment that may be; what was told before stays in force."""
        if work_ns >= UNEXPLAINED_NS and not self._is_unexplained:
            self._is_unexplained = True
            self._channel.rows.stalled(now_ns, UNEXPLAINED)
            self._note(WARNING, f"no progress for {work_ns / SECOND:.1f} s, and no reason is known: please report this")

    def _follow_requests(self, asking: Waiting | None, requests_ns: int) -> None:
        before, self.asking = self.asking, asking
        if asking is not None and (before is None or not is_same_wait(before, asking)):
            self._note(INFO, f"waiting for {requests_ns / SECOND:.1f} s: {asking.text}")

    def _follow_holding(self, holding_ns: int) -> None:
        is_long = holding_ns >= STALL_NS
        if is_long and not self._is_told_holding:
            text = f"{self._slow_ones()} received nothing for"
            self._note(WARNING, f"{text} {holding_ns / SECOND:.1f} s, and the other members wait for it")
        elif self._is_told_holding and not is_long:
            self._note(INFO, "the application on this node receives again")
        self._is_told_holding = is_long

    def _slow_ones(self) -> str:
        """Whose application has not received. Where sessions have labels, they are named."""
        slow = [stream.session for stream in self._channel.streams if stream.label and stream.is_holding_up]
        if not slow:
            return "the application on this node has"
        named = ", ".join([repr(session.label) for session in slow[:NAMED_SESSIONS]])
        if len(slow) == 1:
            return f"the session {named} of this node has"
        more = f" and {len(slow) - NAMED_SESSIONS} more" if len(slow) > NAMED_SESSIONS else ""
        return f"the sessions {named}{more} of this node have"

    # Telling.

    def _note(self, level: str, text: str) -> None:
        self.log.append(LogLine("group", level, text))

    def _tell(self, event: Stalled | Resumed) -> None:
        for stream in self._channel.streams:
            if stream.base is not None:
                self._told.append((stream.base, event))
            if not stream.is_fed:
                self._told.extend([(port, event) for port in stream.ports.values()])

    def _tell_some(self) -> None:
        told = self._told
        for _ in range(min(len(told), TOLD_AT_ONCE)):
            port, event = told.popleft()
            if port.gone is None:
                port.notify(event)

    # Questions.

    def status_of(self, port: Port) -> GroupStatus:
        """What a group is doing now."""
        found, since_ns, stream = self.stalled, self.since_ns, port.stream
        state = GroupState.STALLED
        if port.gone is not None:
            found, state = None, GroupState.LEFT
        elif found is None:
            found, since_ns = self.asking, self._requests.since_ns
            if port.is_leaving:
                state = GroupState.LEAVING
            elif port.view is None:
                state = GroupState.JOINING
            elif not self._channel.engine.is_working:
                state = GroupState.RECOVERING
            else:
                state = GroupState.WORKING
        return GroupStatus(
            state,
            port.view,
            port.view.members if port.view is not None else (),
            found.reason if found is not None else None,
            found.waiting_for if found is not None else (),
            since_ns / SECOND if found is not None else None,
            found.text if found is not None else "",
            stream.queue.count + sum([packed.messages for packed in stream.ready]),
            sum([out.messages for out in stream.outstanding.values()]),
            found.have if found is not None else 0,
            found.need if found is not None else 0,
        )


def is_same_wait(one: Waiting, other: Waiting) -> bool:
    """Whether both wait for the same, whatever the texts."""
    return one.reason is other.reason and one.waiting_for == other.waiting_for


def wait_label(waiting: Waiting) -> str:
    """For the trace: the reason, and who is waited for."""
    return f"{waiting.reason.name.lower()}: {', '.join(waiting.waiting_for)}".rstrip(": ")


def lock_waits(key: str, holder: str) -> Waiting:
    """A task here wants a lock that another member holds."""
    return Waiting(StallReason.LOCK, (holder,), f"lock {key!r} is held by {holder}")


def call_waits(handler: int, holder: str) -> Waiting:
    """A task here waits for the answer to a call."""
    if not holder:
        return Waiting(StallReason.CALL, (), f"handler {handler} is held by no member")
    return Waiting(StallReason.CALL, (holder,), f"{holder} holds handler {handler}, and has not answered a call")
