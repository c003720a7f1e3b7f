"""Changes that wait for their New List (RMP section 4.3): List Change Requests, our own and those of others.

Every member keeps all requests that it hears, and whoever is token site orders them; the one that asked repeats its own
until it sees the answer. What nobody repeats is forgotten, so that a newcomer that gave up is not let in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ordercast.config import MS
from ordercast.engine import NEVER, Change
from ordercast.view import Reason, View, id_of

MAX_CHANGES: Final = 1_024  # requests that wait; beyond it they are not heard, and are repeated
REPEAT_NS: Final = 60 * MS
FORGET_NS: Final = 600 * MS  # unrepeated
MAX_DONE: Final = 8_192  # lock requests remembered as answered; at the bound the oldest half is forgotten

Key = tuple[int, int, str, int]


class PendingChanges:
    __slots__ = ("_changes", "_done", "_own", "due_ns")

    def __init__(self) -> None:
        self._changes: dict[Key, tuple[Change, int]] = {}  # in order of arrival, with when it was heard last
        self._own: dict[Key, Change] = {}
        self.due_ns = NEVER  # when `repeated` has something to do
        self._done: dict[tuple[int, str], int] = {}  # member and lock -> the last request that was answered

    def __bool__(self) -> bool:
        return bool(self._changes)

    def ask(self, now_ns: int, change: Change) -> None:
        """A request of ours, or one that we sponsor: to be repeated until it is answered or taken back."""
        key = key_of(change)
        if self._own.get(key) != change:
            self._own[key] = change
            self.due_ns = now_ns
        self.hear(now_ns, change)

    def hear(self, now_ns: int, change: Change) -> None:
        key = key_of(change)
        is_lock = change.reason in (Reason.LOCK, Reason.UNLOCK)
        if is_lock and change.serial <= self._done.get((change.member.id, change.lock), -1):
            return  # an echo of what was answered
        if key in self._changes or len(self._changes) < MAX_CHANGES:
            self._changes[key] = (change, now_ns)
            self.due_ns = min(self.due_ns, now_ns + FORGET_NS)

    def drop(self, key: Key) -> None:
        self._own.pop(key, None)
        self._changes.pop(key, None)

    def waiting(self, now_ns: int) -> Iterator[Change]:
        """What waits, oldest first."""
        self._forget(now_ns)
        for change, _ in self._changes.values():
            yield change

    def repeated(self, now_ns: int) -> list[Change]:
        """Our own requests that are due to be sent (again)."""
        if self.due_ns > now_ns:
            return []
        self._forget(now_ns)
        if self._own:
            self.due_ns = now_ns + REPEAT_NS
        else:
            self.due_ns = now_ns + FORGET_NS if self._changes else NEVER
        return list(self._own.values())

    def _forget(self, now_ns: int) -> None:
        """What nobody repeats; of what we repeat, newcomers that no longer ask us."""
        for key, (change, heard_ns) in list(self._changes.items()):
            if now_ns - heard_ns > FORGET_NS and (key not in self._own or change.reason == Reason.JOIN):
                self.drop(key)

    def answered(self, view: View) -> None:
        """A New List has been received: what it answers waits no longer."""
        for key, (change, _) in list(self._changes.items()):
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


def key_of(change: Change) -> Key:
    """Newcomers have one request each, of the latest attempt; locks may have several."""
    return (change.reason, change.member.id, change.lock, change.serial if change.lock else 0)
