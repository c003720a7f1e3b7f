"""Changes that wait for their New List (RMP section 4.3): List Change Requests, our own and those of others.

Every member keeps all requests that it hears, and the token site orders them; the member that asked repeats its own
until it sees the answer, with the back-off of all acknowledged packets (section 4.6), and after ten tries in vain it is
a fault (4.4). What nobody repeats is forgotten, so that a newcomer that gave up is not let in.

Deviation: the paper's only acknowledgement is the New List. Here a change may have to wait, for what is not safe or for
the decision on the change before it. So the token site says that it has a request which comes again (`noted`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ordercast.config import MS, Timing
from ordercast.engine import NEVER, Change, Outbox, To
from ordercast.errors import WireError
from ordercast.orderers.logged.changes import ChangeKey, PendingChanges, key_of
from ordercast.orderers.logged.expelling import is_current, renewed
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.rtt import RoundTrip
from ordercast.view import DEPARTURES, Reason, View, id_of
from ordercast.wire.header import Kind
from ordercast.wire.token import encode_change

FORGET_NS: Final = 600 * MS  # what is not repeated for so long is forgotten, or for longer where it comes rarely
MISSED: Final = 3  # repetitions that may be missed, at the pace at which they came, before it is forgotten
YIELD_NS: Final = 5 * MS  # a lock that another member was denied is not asked for again before this time
MAX_JOINED: Final = 64  # joins remembered as answered
MAX_DONE: Final = 8_192  # lock requests remembered as answered; at the bound the oldest half is forgotten


class OwnRequest:
    """A request that this member makes, or sponsors."""

    __slots__ = ("change", "due_ns", "is_sent", "since_ns", "tries", "vain")

    def __init__(self, change: Change, due_ns: int) -> None:
        self.change = change
        self.since_ns = due_ns  # when it was sent first
        self.due_ns = due_ns
        self.is_sent = False
        self.tries = 0  # how often it was repeated
        self.vain = 0  # how often since a token site has said that it has it


class Heard:
    """When a request came last, and how long it took to come again."""

    __slots__ = ("at_ns", "pace_ns")

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns
        self.pace_ns = 0


class ChangeRequests:
    __slots__ = (
        "_denied",
        "_done",
        "_heard",
        "_joined",
        "_own",
        "_rtt",
        "_timing",
        "_yields_ns",
        "due_ns",
        "noted",
        "pending",
    )

    def __init__(self, view: View, timing: Timing, rtt: RoundTrip) -> None:
        self._timing = timing
        self._rtt = rtt
        self.pending = PendingChanges(view.seq, view.awaited)
        self._heard: dict[ChangeKey, Heard] = {}
        self._own: dict[ChangeKey, OwnRequest] = {}
        self.noted: dict[int, ChangeKey] = {}  # members -> the last request of theirs that came again
        self._yields_ns: dict[ChangeKey, int] = {}  # own requests that leave others time to ask
        self._denied: dict[str, int] = {}  # lock -> the member that was denied it last
        self.due_ns = NEVER  # when `repeated` has something to do
        self._done: dict[tuple[int, str], int] = {}  # member and lock -> the last request that was answered
        self._joined: deque[int] = deque(maxlen=MAX_JOINED)  # attempts of newcomers that were let in; they may be gone

    def ask(self, now_ns: int, change: Change) -> None:
        """A request of ours, or one that we sponsor: to be repeated until it is answered or taken back.

        A member that knows first that a lock is free would get it again and again: it lets one that was denied it ask.
        """
        key = key_of(change)
        own = self._own.get(key)
        if own is None or own.change != change:
            due_ns = now_ns
            if change.reason == Reason.LOCK and self._denied.pop(change.lock, change.member.id) != change.member.id:
                self._yields_ns[key] = due_ns = now_ns + YIELD_NS
            self._own[key] = OwnRequest(change, due_ns)
            self.due_ns = min(self.due_ns, due_ns)
        self.hear(now_ns, change)

    def hear(self, now_ns: int, change: Change) -> bool:
        """A request; whether it came before and waits."""
        key = key_of(change)
        is_lock = change.reason in (Reason.LOCK, Reason.UNLOCK)
        if is_lock and change.serial <= self._done.get((change.member.id, change.lock), -1):
            return False  # an echo of what was answered
        if change.reason == Reason.JOIN and change.serial in self._joined:
            return False
        heard = self._heard.get(key)
        if not self.pending.add(change):
            return False
        if heard is None:
            self._heard[key] = Heard(now_ns)
        else:
            heard.pace_ns = max(now_ns - heard.at_ns, heard.pace_ns // 2)  # a duplicate says nothing of the pace
            heard.at_ns = now_ns
        self.due_ns = min(self.due_ns, now_ns + FORGET_NS)
        return heard is not None

    def on_propose(self, now_ns: int, ring: RingState, origin: int, change: Change) -> None:
        """A member asks for a change."""
        member = ring.view.member(origin)
        if member is None or ring.has_left:
            return
        if change.reason in (Reason.LEAVE, Reason.LOCK, Reason.UNLOCK):
            if change.member.id != origin:
                raise WireError("a change in the name of another member")
            change = change._replace(member=member)
        elif change.reason == Reason.EXPEL:
            expelled = ring.view.member(change.member.id)
            if expelled is None or not is_current(ring, change):
                return  # an echo
            change = change._replace(member=expelled)
        elif change.reason == Reason.JOIN and ring.view.member(change.member.id) is not None:
            return  # an echo
        if self.hear(now_ns, change):
            self.noted[origin] = key_of(change)

    @property
    def is_exhausted(self) -> bool:
        """Ten tries in vain."""
        return bool(self._own) and any(own.vain > self._timing.tries for own in self._own.values())

    def is_in_vain(self, tries: int) -> bool:
        """Whether a request of ours was repeated so often, and no token site says that it has it."""
        return any(own.vain >= tries for own in self._own.values())

    def take_noted(self) -> list[int]:
        """Members whose requests came again, and still wait."""
        noted, self.noted = self.noted, {}
        return [origin for origin, key in noted.items() if key in self.pending]

    def acknowledged(self, now_ns: int) -> None:
        """The token site has our requests: they wait there, and nobody is at fault, for some time."""
        for own in self._own.values():
            if own.since_ns > now_ns - self._timing.held_ns:
                own.vain = 0

    def drop(self, key: ChangeKey) -> None:
        self._own.pop(key, None)
        self._yields_ns.pop(key, None)
        self._heard.pop(key, None)
        self.pending.drop(key)

    def waiting(self, now_ns: int) -> list[Change]:
        """What waits, oldest first, but for expulsions: others may wait for what their member does not let pass."""
        self._forget(now_ns)
        yields_ns = self._yields_ns
        found = [change for key, change in self.pending.items() if yields_ns.get(key, now_ns) <= now_ns]
        found.sort(key=_goes_last)
        return found

    def speak(self, now_ns: int, ring: RingState, is_here: bool, out: Outbox) -> None:
        """At the end of a pass: send our own requests that are due."""
        for change in self.repeated(now_ns, is_here):
            out.sends.append(ring.writer.control(To.ALL, Kind.PROPOSE, encode_change(renewed(ring, change))))

    def repeated(self, now_ns: int, is_here: bool = False) -> list[Change]:
        """Our own requests that are due to be sent (again). `is_here`: we are the token site, and they wait for us."""
        if self.due_ns > now_ns:
            return []
        self._forget(now_ns)
        due = [own for own in self._own.values() if own.due_ns <= now_ns]
        if any(own.vain for own in due):
            self._rtt.expired()  # not for a request that only has to wait
        for own in due:
            if own.is_sent:
                own.tries += 1
                own.vain = 0 if is_here else own.vain + 1
            own.is_sent = True
            own.due_ns = now_ns + self._rtt.timeout_ns(own.tries)
        self.due_ns = min([own.due_ns for own in self._own.values()], default=NEVER)
        if self.pending:
            self.due_ns = min(self.due_ns, now_ns + FORGET_NS)
        # The try after the last one waits: a fault is found instead, unless we do not know where the token is.
        return [own.change for own in due if own.vain != self._timing.tries + 1]

    def _forget(self, now_ns: int) -> None:
        """What nobody repeats; of what we repeat, newcomers that no longer ask us."""
        least_ns = max(FORGET_NS, MISSED * self._rtt.timeout_ns(0))
        for key, change in self.pending.items():
            heard = self._heard[key]
            is_old = now_ns - heard.at_ns > max(least_ns, MISSED * heard.pace_ns)
            if is_old and (key not in self._own or change.reason == Reason.JOIN):
                self.drop(key)

    def answered(self, view: View) -> None:
        """A New List has been received: what it answers waits no longer."""
        for key, change in self.pending.items():
            if str(change.member) != view.subject:
                continue
            if change.reason in (Reason.LOCK, Reason.UNLOCK):
                if key[2] == view.lock and change.serial <= view.serial:
                    self.drop(key)
            elif view.reason == Reason.DISSOLVE or change.reason == view.reason:
                self.drop(key)
            elif change.reason in DEPARTURES and view.reason in DEPARTURES:
                self.drop(key)  # it is out, whatever was asked for first
        if view.reason == Reason.JOIN:
            self._joined.append(view.serial)
        elif view.reason in (Reason.LOCK, Reason.UNLOCK):
            self._finish(view)
        elif view.reason in DEPARTURES:
            self._done = {done: serial for done, serial in self._done.items() if view.member(done[0]) is not None}

    def _finish(self, view: View) -> None:
        member = id_of(view.subject)
        if len(self._done) >= MAX_DONE:
            self._done = dict(list(self._done.items())[MAX_DONE // 2 :])
        self._done[member, view.lock] = max(view.serial, self._done.get((member, view.lock), 0))
        if view.reason == Reason.LOCK and view.locks.get(view.lock) != member:
            if len(self._denied) >= MAX_DONE:
                self._denied.clear()
            self._denied[view.lock] = member
        elif self._denied.get(view.lock) == member:
            del self._denied[view.lock]


def _goes_last(change: Change) -> bool:
    return change.reason != Reason.EXPEL
