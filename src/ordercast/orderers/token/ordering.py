"""What a token site gives a place to: blocks, calls from outside, and changes (RMP sections 4.2, 4.3 and 4.5)."""

from __future__ import annotations

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Change, Outbox
from ordercast.errors import InvariantViolation
from ordercast.orderers.token.calls import Calls
from ordercast.orderers.token.pending import PendingChanges
from ordercast.orderers.token.sending import TokenSender
from ordercast.parts.changes import MEMBERSHIP
from ordercast.parts.log import Entry, runs_of
from ordercast.view import Member, Reason, View
from ordercast.wire.block import ENTRY_BYTES, FRAGMENT, FRAGMENTED, HEAD, HEAD_BYTES
from ordercast.wire.writer import DatagramWriter


class TokenOrdering(TokenSender):
    """What waits for a place, and when it may get one."""

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counters: dict[str, int],
    ) -> None:
        super().__init__(me, writer, config, timing, view, next_block, counters)
        self._calls = Calls()
        self._pending_changes = PendingChanges()
        self._last_change = view.seq if view.reason in (Reason.JOIN, Reason.LEAVE) else 0
        self._awaited = dict(view.awaited)
        self._is_hurried = False  # the token goes round once, without waiting

    def _order(self, now_ns: int, changes: list[Change], out: Outbox) -> list[tuple[int, int, int]]:
        """Give places to what is here and has none: (place, origin, number) each."""
        log = self.log
        placed: list[tuple[int, int, int]] = []
        if changes and self._table.safe < self._last_safe_seq:
            return placed  # a change waits until what is strong is safe, and more of that would keep it waiting
        room = 2 * self._config.history_blocks - len(log.entries)
        if log.unstable_bytes > 2 * self._ceiling or not (self._ready or self._calls.is_waiting()):
            return placed
        keeps_out = any(change.reason in (Reason.JOIN, Reason.DISSOLVE) for change in changes)
        if self._calls.is_waiting():
            self._order_calls(now_ns, room, placed, out)
        blocks, numbers, seq = log.blocks, log.next_number, log.received + 1
        first = len(placed)
        for origin in list(self._ready):
            number = numbers.get(origin, -1)
            while len(placed) < room:
                block = blocks.get((origin, number))
                if block is None:
                    del self._ready[origin]
                    break
                if keeps_out and self._begins_long(origin, block):
                    break
                placed.append((seq, origin, number))
                seq += 1
                number += 1
        for run in runs_of(placed[first:]):
            if not log.assign(*run):
                raise InvariantViolation("somebody else has given a place that is the token site's to give")
        if placed:
            self._advance(now_ns, out)
            if log.received != seq - 1:
                raise InvariantViolation("the token site lacks a block that it gave a place")
        return placed

    def _order_calls(self, now_ns: int, room: int, placed: list[tuple[int, int, int]], out: Outbox) -> None:
        log, calls = self.log, self._calls
        for origin in calls.origins():
            while len(placed) < room and (found := calls.next_of(log, origin)) is not None:
                seq = log.received + 1
                calls.take_up(origin, found[0])
                log.assign(seq, origin, found[0])
                self._advance(now_ns, out)
                placed.append((seq, origin, found[0]))

    def _begins_long(self, origin: int, block: bytes) -> bool:
        """Whether the block begins a long message while somebody waits to join between messages."""
        if not HEAD.unpack_from(block)[4] & FRAGMENTED or origin in self._open or origin in self._awaited:
            return False
        return bool(FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[1] == 0)

    def _next_change(self, changes: list[Change]) -> Change | None:
        """The change to order now. The last change of members is known to all, and what is strong is safe.

        Nobody comes or goes before what survivors of a failure send again has its place: one that was left behind and
        comes back may have delivered it. Nobody comes in the middle of a long message.
        """
        safe, numbers = self._table.safe, self.log.next_number
        if not changes or safe < self._last_change or safe < self._last_safe_seq:
            return None
        if self._awaited:
            self._awaited = {
                origin: number for origin, number in self._awaited.items() if numbers.get(origin, number) < number
            }
        for change in changes:
            if change.reason in MEMBERSHIP and self._awaited:
                continue
            if change.reason in (Reason.JOIN, Reason.DISSOLVE) and self._open:
                continue
            if change.reason == Reason.JOIN and self._leaves_to_first():
                continue
            return change
        return None

    def _leaves_to_first(self) -> bool:
        """Of two members the first lets newcomers in. It may go on alone, so if it died right after a join that the
        other has ordered, nobody could tell whether it knew, and the others would have to wait for it for ever."""
        return len(self.view.members) == 2 and self.view.leader.id != self.me.id

    def _must_hurry(self, changes: list[Change]) -> bool:
        """Whether somebody waits for the token to go round."""
        log, safe = self.log, self._table.safe
        if self._table.round >= log.received:
            return False
        return bool(
            self._is_hurried
            or safe < self._last_safe_seq
            or (changes and safe < self._last_change)
            or log.unstable_bytes > self._ceiling // 8
            or 2 * len(log.entries) >= self._config.history_blocks
        )

    def _on_special(self, now_ns: int, entry: Entry) -> None:
        super()._on_special(now_ns, entry)
        if entry.origin in self.callers:
            self._repairs.callers = self.callers
            self._calls.received(now_ns, self.log, entry.origin)
