"""The events that one handle of regions has received and its application has not taken."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.groups.consumption import EVENT_BYTES, PORT_BYTES, Consumption, Receipt
from ordercast.groups.events import PortEvent
from ordercast.groups.status import Resumed, Stalled


class ReceivedEvents:
    """A queue of events with their receipts. Asking for the next one says that the application is done with the last.

    Two lists make a queue, as in `groups/port.py`: an empty deque would take ten times the memory."""

    __slots__ = ("_consumption", "_events", "_taken", "_taking", "held_bytes", "notices")

    def __init__(self, consumption: Consumption) -> None:
        self._consumption = consumption
        self._events: list[tuple[PortEvent, Receipt | None]] = []  # newest last
        self._taking: list[tuple[PortEvent, Receipt | None]] = []  # before these, oldest last
        self._taken: Receipt | None = None  # of the event that the application works on
        # These overtake all others: the last `Stalled` and the `Resumed` that ends it.
        self.notices: list[PortEvent] | None = None
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._taking or self._events or self.notices)

    @property
    def is_holding_up(self) -> bool:
        """The regions wait for the application to receive here."""
        waiting = (*self._taking, *self._events, (None, self._taken))
        return any(receipt is not None and receipt.seq >= 0 for _, receipt in waiting)

    def add(self, event: PortEvent, receipt: Receipt | None) -> None:
        """Hot: once per block."""
        self._events.append((event, receipt))
        if receipt is not None:
            self.held_bytes += receipt.size

    def tell(self, event: PortEvent) -> None:
        """An event that holds no buffer."""
        self.add(event, self._consumption.hold(EVENT_BYTES, 1))

    def may_hold(self, size: int) -> bool:
        """Whether so many bytes more may stay here while the regions go on."""
        return self.held_bytes + size <= PORT_BYTES and self._consumption.has_room(size)

    def notify(self, event: Stalled | Resumed) -> None:
        """Ahead of everything else."""
        before = self.notices[-1:] if self.notices and isinstance(event, Resumed) else []
        self.notices = [*before, event]

    def take(self) -> PortEvent | None:
        taken = self._taken
        if taken is not None:
            self._taken = None
            self._finish(taken)
        if self.notices:
            return self.notices.pop(0)
        if not self._taking:
            if not self._events:
                return None
            self._events.reverse()
            self._taking, self._events = self._events, self._taking
        event, receipt = self._taking.pop()
        if receipt is not None:
            if receipt.seq >= 0:
                self._taken = receipt
            else:
                self._finish(receipt)
        return event

    def take_all(self) -> list[tuple[PortEvent, Receipt | None]]:
        """Everything, in order, for another handle to receive."""
        found = [*reversed(self._taking), *self._events]
        self._taking, self._events = [], []
        self.held_bytes = 0
        return found

    def take_over(self, found: Sequence[tuple[PortEvent, Receipt | None]]) -> None:
        """What others had, in the order in which it came."""
        self._events += sorted(found, key=_turn_of)
        self.held_bytes += sum([receipt.size for _, receipt in found if receipt is not None])

    def release(self) -> None:
        """What was received can still be taken; it holds no buffer any more."""
        self.notices = None
        if self._taken is not None:
            taken, self._taken = self._taken, None
            self._finish(taken)
        for events in (self._taking, self._events):
            for at, (event, receipt) in enumerate(events):
                if receipt is not None:
                    events[at] = (event, None)
                    self._finish(receipt)

    def _finish(self, receipt: Receipt) -> None:
        self.held_bytes -= receipt.size
        self._consumption.finish(receipt)


def _turn_of(queued: tuple[PortEvent, Receipt | None]) -> int:
    return queued[1].turn if queued[1] is not None else 0
