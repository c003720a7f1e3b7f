"""Calls from outside, on their way to a place (RMP section 4.5).

A caller numbers its calls; the next one that is expected stands in the log's numbers, and with them in every view. The
first-packet flag makes a new entry. Calls without acknowledgement may be lost: a call says which earlier ones it needs.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import SECOND
from ordercast.parts.log import Log
from ordercast.wire.calls import needs_of

MAX_CALLERS: Final = 1_024  # entries in the view; beyond it those that were silent longest are flushed
MAX_WAITING: Final = 256  # calls of one caller that wait for a place
WAIT_NS: Final = 6 * SECOND  # a call that waits and is not repeated for so long belongs to a caller that has given up
MAX_NEW: Final = 256  # callers whose first call waits for a place


class Calls:
    __slots__ = ("_begins", "_first", "_heard_ns", "_mine", "_placed_ns", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, set[int]] = {}  # caller -> numbers held and not placed
        self._heard_ns: dict[int, int] = {}  # caller with something waiting -> when it was heard last
        self._begins: dict[int, int] = {}  # caller -> the first of its calls that is still to come
        self._first: dict[int, int] = {}  # caller without an entry -> the number it begins with
        self._mine: dict[tuple[int, int], None] = {}  # calls that this site acknowledges when they are delivered
        self._placed_ns: dict[int, int] = {}  # caller -> when it last got a place here

    def may_hold(self, log: Log, origin: int, number: int, is_first: bool) -> bool:
        """Whether a call that is not old makes sense here."""
        expected = log.next_number.get(origin)
        waiting = self._waiting.get(origin, ())
        if expected is not None:
            return number in waiting or len(waiting) < MAX_WAITING
        if origin in self._first:
            return number > self._first[origin] and len(waiting) < MAX_WAITING
        return is_first and len(self._first) < MAX_NEW

    def begin_with(self, origin: int, number: int) -> None:
        """The caller's first that is still to come: nothing before it will be sent again, whatever it says it needs.

        The paper ignores the flag where there is an entry. Ours may be from a time before a part of the group was lost
        that had acknowledged more: then nothing of the caller would ever get a place again.
        """
        self._begins[origin] = number

    def held(self, now_ns: int, log: Log, origin: int, number: int, is_first: bool) -> None:
        self._waiting.setdefault(origin, set()).add(number)
        self._heard_ns[origin] = now_ns
        if origin not in log.next_number and is_first:
            self._first.setdefault(origin, number)

    def become_member(self, origin: int) -> None:
        """What it sent counts as a member's from here on."""
        self._waiting.pop(origin, None)
        self._first.pop(origin, None)
        self._heard_ns.pop(origin, None)

    def heard(self, now_ns: int, origin: int) -> None:
        """A call that waits here has come again."""
        if origin in self._heard_ns:
            self._heard_ns[origin] = now_ns

    def expire(self, now_ns: int, log: Log) -> int:
        """Forget what waits in vain; when to look again, 0: nothing waits."""
        for origin, heard_ns in list(self._heard_ns.items()):
            if origin not in self._waiting:
                del self._heard_ns[origin]
            elif now_ns - heard_ns >= WAIT_NS:
                for number in self._waiting.pop(origin):
                    log.drop(origin, number)
                self._first.pop(origin, None)
                self._begins.pop(origin, None)
                del self._heard_ns[origin]
        return min(self._heard_ns.values()) + WAIT_NS if self._heard_ns else 0

    def next_of(self, log: Log, origin: int) -> tuple[int, bytes] | None:
        """The next call of `origin` that may get a place."""
        waiting = self._waiting.get(origin)
        if not waiting:
            return None
        expected = log.next_number.get(origin, self._first.get(origin))
        for number in sorted(waiting):
            block = log.blocks.get((origin, number))
            if block is None or expected is None or number < max(expected, self._begins.get(origin, 0)):
                waiting.discard(number)
                log.drop(origin, number)
            elif needs_of(block) <= expected or self._begins.get(origin) == number:
                return number, block
            else:
                break
        if not waiting:
            del self._waiting[origin]
        return None

    def received(self, now_ns: int, log: Log, origin: int) -> None:
        """A call has its place, and everything before it is here. What the caller sent before it and nobody placed in
        time never gets a place."""
        self._first.pop(origin, None)
        self._begins.pop(origin, None)
        self._placed_ns[origin] = now_ns
        self.drop_old(log, origin)

    def drop_old(self, log: Log, origin: int) -> None:
        waiting = self._waiting.get(origin)
        if waiting is None:
            return
        for number in [number for number in waiting if number < log.next_number.get(origin, 0)]:
            waiting.discard(number)
            log.drop(origin, number)
        if not waiting:
            del self._waiting[origin]

    def origins(self) -> list[int]:
        return list(self._waiting)

    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def kept(self, now_ns: int, log: Log, callers: set[int], flush_ns: int) -> dict[int, int]:
        """The entries that stay in the next view."""
        placed = self._placed_ns
        for origin in callers:
            placed.setdefault(origin, now_ns)  # it came with the view: its time begins here
        found = [origin for origin in callers if now_ns - placed[origin] <= flush_ns or origin in self._waiting]
        if len(found) > MAX_CALLERS:
            found = sorted(found, key=lambda origin: placed[origin])[-MAX_CALLERS // 2 :]
        for origin in [origin for origin in placed if origin not in callers]:
            del placed[origin]
        return {origin: log.next_number[origin] for origin in found if origin in log.next_number}

    # Who acknowledges

    def take_up(self, origin: int, number: int) -> None:
        """This site will acknowledge the call."""
        if len(self._mine) >= MAX_CALLERS:
            del self._mine[next(iter(self._mine))]
        self._mine[origin, number] = None

    def is_mine(self, origin: int, number: int) -> bool:
        if (origin, number) in self._mine:
            del self._mine[origin, number]
            return True
        return False
