"""Changes of members and locks: what waits to be ordered, and the view that one of them makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ordercast.engine import Change
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.changes import next_view
from ordercast.view import GROUP_ORIGIN, Reason, View, next_counter
from ordercast.wire.views import pack_change

MAX_CHANGES: Final = 1_024  # changes that wait; beyond it they are not heard, and are asked for again

ChangeKey = tuple[int, int, str, int]


def key_of(change: Change) -> ChangeKey:
    """Newcomers have one request each, of the latest attempt; locks may have several."""
    return (change.reason, change.member.id, change.lock, change.serial if change.lock else 0)


def join_key(member: int) -> ChangeKey:
    """The key of a newcomer's join."""
    return (Reason.JOIN, member, "", 0)


class PendingChanges:
    """Changes that wait, in the order in which they are to be ordered."""

    __slots__ = ("_awaited", "_changes", "last_seq")

    def __init__(self, last_seq: int, awaited: Mapping[int, int]) -> None:
        self._changes: dict[ChangeKey, Change] = {}
        # Of the last change of members, or of the ring's first view: all have to have it before the next.
        self.last_seq = last_seq
        self._awaited = dict(awaited)  # origin -> its blocks below this come again before anybody comes or goes

    def __bool__(self) -> bool:
        return bool(self._changes)

    def __contains__(self, key: ChangeKey) -> bool:
        return key in self._changes

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes.values())

    @property
    def first(self) -> Change:
        return next(iter(self._changes.values()))

    def add(self, change: Change, goes_first: bool = False) -> bool:
        """A request. One that is repeated keeps its turn; what it asks for now counts, since a newcomer that has given
        up one attempt is in the next. False at the bound."""
        key = key_of(change)
        if key not in self._changes:
            if len(self._changes) >= MAX_CHANGES:
                return False
            if goes_first:
                self._changes = {key: change, **self._changes}
                return True
        self._changes[key] = change
        return True

    def take(self) -> Change:
        return self._changes.pop(next(iter(self._changes)))

    def drop(self, key: ChangeKey) -> None:
        self._changes.pop(key, None)

    def items(self) -> list[tuple[ChangeKey, Change]]:
        """A copy: the caller may drop some of them."""
        return list(self._changes.items())

    def applied(self, view: View) -> None:
        """A change of members is received; the next waits until all have it."""
        self.last_seq = view.seq
        self._awaited = {}

    def is_due(self, safe: int, numbers: Mapping[int, int]) -> bool:
        """Whether one waits and may be ordered: all have the last one, and what survivors send again is received."""
        return bool(self._changes) and safe >= self.last_seq and not self.has_awaited(numbers)

    # What survivors of a failure send again

    def expect(self, awaited: Mapping[int, int]) -> None:
        self._awaited = dict(awaited)

    def is_awaited(self, origin: int) -> bool:
        return origin in self._awaited

    def awaited(self, numbers: Mapping[int, int]) -> list[int]:
        """The senders of what is still to come."""
        return list(self._awaited) if self.has_awaited(numbers) else []

    def has_awaited(self, numbers: Mapping[int, int]) -> bool:
        """Whether something is still to come: a member that was left behind and comes back may have delivered it."""
        if self._awaited:
            self._awaited = {
                origin: number for origin, number in self._awaited.items() if numbers.get(origin, number) < number
            }
        return bool(self._awaited)


def order_change(
    ring: RingState,
    now_ns: int,
    change: Change,
    numbers: Mapping[int, int],
    callers: Mapping[int, int],
    after: int = 0,
) -> bytes | None:
    """Assign the next sequence number to the view that a change makes. Its block; None where it changes nothing.

    A newcomer comes directly after the member `after`, at the end where that is none.
    """
    log, seq = ring.log, ring.log.received + 1
    counter = next_counter(ring.counter, now_ns)
    most = ring.config.max_members
    view = next_view(ring.view, change, counter, most, seq, log.position, numbers, callers, ring.me, after)
    if view is None:
        return None
    block = pack_change(view)
    log.hold(GROUP_ORIGIN, seq, block)
    log.assign(seq, GROUP_ORIGIN, seq)
    return block
