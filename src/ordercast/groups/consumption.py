"""How far the application has finished with what an engine delivered: what `Engine.consume` is told.

A delivery goes to the ports of its group, a view to all ports. It is finished with when all of these ports are. The
engine is told the highest sequence number up to which everything is finished with, so that one slow port keeps the
buffers of its whole channel. The queue has no bound of its own: what is not consumed stays in the history of the
underlay, and the history is bounded (Amoeba section 3: a member that never receives blocks the group).

The ports of a shared underlay must not hold up one another so soon. Each of them may *hold* blocks on its own account:
these count as consumed, and stay in memory until the port has finished with them. When a port, or all of them together,
hold as much as they may, what comes next has a receipt as above.
"""

from __future__ import annotations

from collections import deque
from typing import Final

PORT_BYTES: Final = 4 << 20
"""Blocks that one port of a shared underlay holds on its own account. Beyond it the port holds up the underlay."""

SESSION_BYTES: Final = 16 << 20
"""The same for all ports of one labelled session together, also where it receives all its groups in one order."""

HELD_BYTES: Final = 64 << 20
"""The same for all ports of an underlay together; a block that several hold counts once."""

EVENT_BYTES: Final = 512
"""What a view or another event without a buffer counts as."""

PORT_EVENTS: Final = 16
"""For so many events of each port there is room besides: very many groups that are joined at once have very many views
before anybody can receive them."""


class Receipt:
    """One delivery or event, and the ports that have not finished with it."""

    __slots__ = ("leaving", "remaining", "seq", "size", "turn")

    def __init__(self, seq: int, remaining: int, size: int = 0, turn: int = 0) -> None:
        self.seq = seq  # finished with this receipt, everything up to `seq` is; -1: an event that holds no buffer
        self.remaining = remaining  # ports
        self.leaving = 0  # those of them that are leaving: nobody may receive there any more
        self.size = size  # bytes that the ports hold on their own account; the engine waits for none of them
        self.turn = turn  # rises from event to event; on a shared underlay only


class Consumption:
    """The receipts of one channel, in the order of delivery."""

    __slots__ = ("_turn", "consumed_seq", "done_seq", "held_bytes", "is_awaited", "ports", "receipts")

    def __init__(self) -> None:
        self.receipts: deque[Receipt] = deque()
        self.done_seq = -1
        self.consumed_seq = -1  # what the engine was told
        self.held_bytes = 0  # by ports on their own account
        self.ports = 0  # of a shared underlay
        self.is_awaited = False  # the engine comes back when the application has received what is here
        self._turn = 0

    def add(self, seq: int, ports: int) -> Receipt:
        """`ports` ports got a delivery, or an event (seq -1). `Reception.run` does the same in place."""
        self._turn += 1
        receipt = Receipt(seq, ports, 0, self._turn)
        self.receipts.append(receipt)
        return receipt

    def has_room(self, size: int) -> bool:
        """Whether ports may hold so much more."""
        return self.held_bytes + size <= HELD_BYTES + PORT_EVENTS * EVENT_BYTES * self.ports

    def hold(self, size: int, ports: int) -> Receipt:
        """`ports` ports hold a delivery, or an event, on their own account."""
        self._turn += 1
        self.held_bytes += size
        return Receipt(-1, ports, size, self._turn)

    def pass_over(self, seq: int) -> None:
        """A delivery that no port gets is finished with as soon as everything before it is."""
        if self.receipts:
            last = self.receipts[-1]
            last.seq = max(last.seq, seq)
        else:
            self.done_seq = max(self.done_seq, seq)

    def finish(self, receipt: Receipt) -> None:
        """One port has finished with it. Hot: once per block."""
        receipt.remaining -= 1
        if receipt.remaining:
            return
        if receipt.size:
            self.held_bytes -= receipt.size
            return
        receipts = self.receipts
        while receipts and not receipts[0].remaining:
            seq = receipts.popleft().seq
            if seq > self.done_seq:
                self.done_seq = seq

    def pass_leaving(self) -> None:
        """What only leaving ports have counts as finished with: what they sent must not wait for their receiving."""
        for receipt in self.receipts:
            if receipt.remaining > receipt.leaving:
                break
            self.done_seq = max(self.done_seq, receipt.seq)

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell the engine."""
        return self.done_seq > self.consumed_seq or (self.is_awaited and not self.receipts)

    @property
    def has_unfinished(self) -> bool:
        """Whether ports have deliveries that keep buffers of the engine. It looks no further than the first one."""
        for receipt in self.receipts:  # noqa: SIM110 - a generator costs more than the look
            if receipt.seq >= 0:
                return True
        return False

    def take(self) -> int:
        """The sequence number that the engine is to be told; -1: nothing new."""
        if self.done_seq <= self.consumed_seq:
            return -1
        self.consumed_seq = self.done_seq
        return self.done_seq

    def on_departed(self) -> None:
        """What is queued belongs to a log that this node has left: finishing with it frees nothing any more."""
        self.done_seq = self.consumed_seq = -1
        for receipt in self.receipts:
            receipt.seq = -1
