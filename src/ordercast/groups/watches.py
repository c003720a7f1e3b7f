"""Waits for own messages: confirmed sends, and flushes. They come back settled, and the API wakes their tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

from ordercast.errors import InvariantViolation, OrdercastError
from ordercast.groups.events import NO_POSITION
from ordercast.groups.queued import Target
from ordercast.service import RESILIENT_RANK, Service


class Watch:
    """Somebody waits for own messages [first, stop): until they are delivered here, or their fate is known."""

    __slots__ = ("error", "first", "group", "position", "remaining", "service", "stop", "waiter")

    def __init__(self, first: int, stop: int, service: Service | None, group: Target | None = None) -> None:
        self.group = group  # None: a flush, or messages to several groups
        self.first = first
        self.stop = stop
        self.service = service  # None: a flush
        self.remaining = stop - first
        self.position = NO_POSITION  # of message `first`
        self.error: OrdercastError | None = None
        self.waiter: Any = None  # the API's: a future


_STOP: Final = attrgetter("stop")


class Watches:
    """All that wait on one stream. `settled` is for the API to take."""

    __slots__ = ("_confirms", "_flushes", "settled")

    def __init__(self) -> None:
        self._confirms: list[Watch] = []  # disjoint, rising
        self._flushes: list[Watch] = []  # rising
        self.settled: list[Watch] = []

    def confirm(self, first: int, stop: int, service: Service, group: Target | None = None) -> Watch:
        """Messages [first, stop) have just been offered; `group`: where all of them go to one."""
        watch = Watch(first, stop, service, group)
        self._confirms.append(watch)
        return watch

    def flush(self, stop: int) -> Watch:
        """Until everything below `stop` is delivered."""
        watch = Watch(stop, stop, None)
        self._flushes.append(watch)
        return watch

    @property
    def has_flushes(self) -> bool:
        return bool(self._flushes)

    def forget(self, watch: Watch) -> None:
        """Nobody waits for it any more."""
        for watches in (self._confirms, self._flushes):
            if watch in watches:
                watches.remove(watch)

    def delivered(self, first: int, count: int, position: int) -> Iterator[tuple[Watch, Service]]:
        """Own messages [first, first + count) were delivered here: the confirmed sends that this settles."""
        stop = first + count
        watches = self._confirms
        at = bisect_right(watches, first, key=_STOP)
        while at < len(watches) and watches[at].first < stop:
            watch = watches[at]
            watch.remaining -= min(stop, watch.stop) - max(first, watch.first)
            if watch.service is None:
                raise InvariantViolation("a flush stands among the confirmed sends")
            if first <= watch.first and watch.service.is_ordered:
                watch.position = position + watch.first - first
            if watch.remaining:
                at += 1
                continue
            del watches[at]
            self.settled.append(watch)
            yield watch, watch.service

    def flushed(self, lowest: int) -> None:
        """Everything below `lowest` is delivered."""
        while self._flushes and self._flushes[0].stop <= lowest:
            self.settled.append(self._flushes.pop(0))

    def fail(self, error: OrdercastError) -> None:
        """All waits end with `error`."""
        for watch in (*self._confirms, *self._flushes):
            watch.error = error
            self.settled.append(watch)
        self._confirms.clear()
        self._flushes.clear()

    def fail_group(self, group: Target, error: OrdercastError) -> None:
        """Waits for messages to one group end with `error`: it has been left before these were sent."""
        self._settle([watch for watch in self._confirms if watch.group is group], error)

    def lose(self, first: int, stop: int, error: OrdercastError) -> None:
        """Messages [first, stop) are lost: waits for one of them, or for everything before something later, end so."""
        self._settle([watch for watch in self._confirms if watch.first < stop and watch.stop > first], error)
        self._settle([watch for watch in self._flushes if watch.stop > first], error)

    def part(self, first: int, stop: int, error: OrdercastError, least_rank: int = RESILIENT_RANK) -> None:
        """Messages [first, stop) were delivered, and members that go on elsewhere may lack them: waits for what has to
        survive its sender end so. `least_rank`: of the services that are not confirmed."""
        self._settle(
            [
                watch
                for watch in self._confirms
                if watch.first < stop
                and watch.stop > first
                and watch.service is not None
                and watch.service.rank >= least_rank
            ],
            error,
        )

    def _settle(self, watches: list[Watch], error: OrdercastError) -> None:
        for watch in watches:
            watch.error = error
            self.forget(watch)
            self.settled.append(watch)
