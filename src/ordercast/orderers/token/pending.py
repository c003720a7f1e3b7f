"""Changes that wait for their New List (RMP section 4.3): List Change Requests, our own and those of others.

Every member keeps all requests that it hears, and the token site orders them; the member that asked repeats its own
until it sees the answer. What nobody repeats is forgotten, so that a newcomer that gave up is not let in.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import NEVER, Change
from ordercast.errors import WireError
from ordercast.orderers.logged.changes import ChangeKey, PendingChanges, key_of
from ordercast.orderers.logged.ring import RingState
from ordercast.view import Reason, View, id_of

REPEAT_NS: Final = 60 * MS
FORGET_NS: Final = 600 * MS  # unrepeated
YIELD_NS: Final = 5 * MS  # a lock that another member was denied is not asked for again before this time
MAX_DONE: Final = 8_192  # lock requests remembered as answered; at the bound the oldest half is forgotten


class ChangeRequests:
    __slots__ = ("_denied", "_done", "_heard_ns", "_own", "_yields_ns", "due_ns", "pending")

    def __init__(self, view: View) -> None:
        self.pending = PendingChanges(view.seq, view.awaited)
        self._heard_ns: dict[ChangeKey, int] = {}  # request -> when it was heard last
        self._own: dict[ChangeKey, Change] = {}
        self._yields_ns: dict[ChangeKey, int] = {}  # own requests that leave others time to ask
        self._denied: dict[str, int] = {}  # lock -> the member that was denied it last
        self.due_ns = NEVER  # when `repeated` has something to do
        self._done: dict[tuple[int, str], int] = {}  # member and lock -> the last request that was answered

    def ask(self, now_ns: int, change: Change) -> None:
        """A request of ours, or one that we sponsor: to be repeated until it is answered or taken back.

        A member that knows first that a lock is free would get it again and again: it lets one that was denied it ask.
        """
        key = key_of(change)
        if self._own.get(key) != change:
            self._own[key] = change
            due_ns = now_ns
            if change.reason == Reason.LOCK and self._denied.pop(change.lock, change.member.id) != change.member.id:
                self._yields_ns[key] = due_ns = now_ns + YIELD_NS
            self.due_ns = min(self.due_ns, due_ns)
        self.hear(now_ns, change)

    def hear(self, now_ns: int, change: Change) -> None:
        key = key_of(change)
        is_lock = change.reason in (Reason.LOCK, Reason.UNLOCK)
        if is_lock and change.serial <= self._done.get((change.member.id, change.lock), -1):
            return  # an echo of what was answered
        if self.pending.add(change):
            self._heard_ns[key] = now_ns
            self.due_ns = min(self.due_ns, now_ns + FORGET_NS)

    def on_propose(self, now_ns: int, ring: RingState, origin: int, change: Change) -> None:
        """A member asks for a change."""
        member = ring.view.member(origin)
        if member is None or ring.has_left:
            return
        if change.reason in (Reason.LEAVE, Reason.LOCK, Reason.UNLOCK):
            if change.member.id != origin:
                raise WireError("a change in the name of another member")
            change = change._replace(member=member)
        elif change.reason == Reason.JOIN and ring.view.member(change.member.id) is not None:
            return  # an echo
        self.hear(now_ns, change)

    def drop(self, key: ChangeKey) -> None:
        self._own.pop(key, None)
        self._yields_ns.pop(key, None)
        self._heard_ns.pop(key, None)
        self.pending.drop(key)

    def waiting(self, now_ns: int) -> list[Change]:
        """What waits, oldest first."""
        self._forget(now_ns)
        yields_ns = self._yields_ns
        return [change for key, change in self.pending.items() if yields_ns.get(key, now_ns) <= now_ns]

    def repeated(self, now_ns: int) -> list[Change]:
        """Our own requests that are due to be sent (again)."""
        if self.due_ns > now_ns:
            return []
        self._forget(now_ns)
        yields_ns = self._yields_ns
        if self._own:
            later = [due_ns for due_ns in yields_ns.values() if due_ns > now_ns]
            self.due_ns = min([*later, now_ns + REPEAT_NS])
        else:
            self.due_ns = now_ns + FORGET_NS if self.pending else NEVER
        return [change for key, change in self._own.items() if yields_ns.get(key, now_ns) <= now_ns]

    def _forget(self, now_ns: int) -> None:
        """What nobody repeats; of what we repeat, newcomers that no longer ask us."""
        for key, change in self.pending.items():
            is_old = now_ns - self._heard_ns[key] > FORGET_NS
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
        if view.reason in (Reason.LOCK, Reason.UNLOCK):
            self._finish(view)
        elif view.reason == Reason.LEAVE:
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
