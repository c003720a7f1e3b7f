"""Calls from outside, until they are ordered (RMP section 4.5).

A caller numbers its calls; the next one that is expected stands in the log's numbers, and with them in every view. The
first-packet flag makes a new entry. Calls without acknowledgement may be lost: a call says which earlier ones it needs.

Deviation: silence alone does not flush an entry. A caller that was cut off tries again with the first-packet flag when
it is back, and where its entry was flushed its call would be carried out twice. Entries go where they are many.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import SECOND
from ordercast.engine import Note, Outbox
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.token.rotation import Rotation
from ordercast.orderers.token.timers import TokenTimer
from ordercast.orderers.token.vigilance import Vigilance
from ordercast.parts.log import Log
from ordercast.parts.timers import Timers
from ordercast.wire.block import head_of
from ordercast.wire.calls import asks_for_answer, needs_of, open_call

MAX_CALLERS: Final = 1_024  # entries in the view; beyond it those that were silent longest are flushed
KEPT_CALLERS: Final = 128  # entries that stay however long their callers are silent: 2 KB of each view
MAX_WAITING: Final = 256  # calls of one caller that wait to be ordered
WAIT_NS: Final = 6 * SECOND  # a call that waits and is not repeated for so long belongs to a caller that has given up
MAX_NEW: Final = 256  # callers whose first call waits to be ordered


class PendingCalls:
    __slots__ = ("_begins", "_first", "_heard_ns", "_mine", "_spoke_ns", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, set[int]] = {}  # caller -> numbers held and not ordered
        self._heard_ns: dict[int, int] = {}  # caller with something waiting -> when it was heard last
        self._begins: dict[int, int] = {}  # caller -> the first of its calls that is still to come
        self._first: dict[int, int] = {}  # caller without an entry -> the number it begins with
        self._mine: dict[tuple[int, int], None] = {}  # calls that this site acknowledges when they are delivered
        self._spoke_ns: dict[int, int] = {}  # caller with an entry -> when a call of it, new or repeated, was heard

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
        that had acknowledged more: then nothing of the caller would ever be ordered again.
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
        """A call has come, for the first time or again."""
        if origin in self._heard_ns:
            self._heard_ns[origin] = now_ns
        if origin in self._spoke_ns:
            self._spoke_ns[origin] = now_ns

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
        """The next call of `origin` that may be ordered."""
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
        """A call is received. What the caller sent before it and nobody ordered in time is never ordered."""
        self._first.pop(origin, None)
        self._begins.pop(origin, None)
        self._spoke_ns[origin] = now_ns
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
        """The entries that stay in the next view: those of callers that were heard last, and of all heard lately."""
        spoke_ns = self._spoke_ns
        for origin in callers:
            spoke_ns.setdefault(origin, now_ns)  # it came with the view: its time begins here
        for origin in [origin for origin in spoke_ns if origin not in callers]:
            del spoke_ns[origin]
        found = sorted(callers, key=lambda origin: (spoke_ns[origin], origin))
        if len(found) > KEPT_CALLERS:
            old, kept = found[:-KEPT_CALLERS], found[-KEPT_CALLERS:]
            found = [origin for origin in old if now_ns - spoke_ns[origin] <= flush_ns or origin in self._waiting]
            found += kept
        if len(found) > MAX_CALLERS:
            found = found[-MAX_CALLERS // 2 :]
        return {origin: log.next_number[origin] for origin in found if origin in log.next_number}

    # Acknowledging

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


class OutsideCalls:
    """The `CallTaker` of a token ring: what a member does with calls that come from outside."""

    __slots__ = ("_delivery", "_log", "_receiver", "_ring", "_rotation", "_timers", "_vigilance", "_window", "pending")

    def __init__(
        self,
        ring: RingState,
        receiver: Receiver,
        delivery: ServiceDelivery,
        window: SendWindow,
        rotation: Rotation,
        timers: Timers[TokenTimer],
        vigilance: Vigilance,
    ) -> None:
        self._ring = ring
        self._log = ring.log
        self._vigilance = vigilance
        self._receiver = receiver
        self._delivery = delivery
        self._window = window
        self._rotation = rotation
        self._timers = timers
        self.pending = PendingCalls()

    @property
    def allowance(self) -> int:
        """A share like that of a member that has just begun to send; what callers have out counts for all of them."""
        return self._window.ceiling // (2 * (len(self._ring.view.members) + len(self._ring.callers)))

    def wait_for_others(self, is_waiting: bool) -> None:
        self._vigilance.wait(is_waiting)

    def answers(self, origin: int, number: int) -> bool:
        return self.pending.is_mine(origin, number)

    def on_call(self, now_ns: int, origin: int, number: int, is_first: bool, block: bytes, out: Outbox) -> bool:
        """A call from outside; False if it was delivered here before. (Section 4.5.)"""
        ring, log, pending = self._ring, self._log, self.pending
        if ring.is_frozen or ring.has_left or ring.view.member(origin) is not None:
            return True
        pending.heard(now_ns, origin)
        if number < log.next_number.get(origin, 0) or self._delivery.has_called(origin, number):
            if log.seq_of(origin, number) > self._delivery.delivered:
                return True  # its answer follows its delivery
            if asks_for_answer(block):
                self._vigilance.on_reminder(now_ns)
            if self._rotation.is_holding:
                pending.take_up(origin, number)
            return False
        if not head_of(block).rank and not asks_for_answer(block):
            return self._on_unreliable_call(origin, number, block, out)
        if is_first and origin in log.next_number:
            pending.begin_with(origin, number)
        if (origin, number) in log.blocks or not pending.may_hold(log, origin, number, is_first):
            return True
        if self._receiver.hold(origin, number, block, out, from_outside=True) is not None:
            self.wait(now_ns, origin, number, is_first)
        return True

    def wait(self, now_ns: int, origin: int, number: int, is_first: bool) -> None:
        """A call is held, and waits to be ordered."""
        self.pending.held(now_ns, self._log, origin, number, is_first)
        self._timers.set_earlier(TokenTimer.CALLS, now_ns + WAIT_NS)

    def expire(self, now_ns: int) -> None:
        due_ns = self.pending.expire(now_ns, self._log)
        if due_ns:
            self._timers.set(TokenTimer.CALLS, due_ns)

    def _on_unreliable_call(self, origin: int, number: int, block: bytes, out: Outbox) -> bool:
        """An UNRELIABLE call is delivered where it arrives; the token site acknowledges it."""
        if self._delivery.is_overrun():
            self._ring.count("overrun_drops")
            return True
        is_new = self._delivery.arrived_unreliable(origin, number, block, number)
        if is_new:
            out.notes.append(Note("name", origin, detail=open_call(block)[0].caller))
            out.notes.append(Note("hold", origin, block))
        if self._rotation.is_holding:
            self.pending.take_up(origin, number)
        return is_new
