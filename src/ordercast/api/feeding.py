"""Feeds: what is to be sent is asked of the program when it may leave (QSM section 2.5, the pull interface).

A program that makes messages on demand has the newest ones in each block, and nothing waits in a queue. Its function is
called after a pass in which rate and window permit something; an empty answer makes the feed inactive until `signal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from ordercast.api.checks import Payload, as_bytes, check_group_name
from ordercast.api.seat import BaseSeat, Seat
from ordercast.errors import UsageError
from ordercast.service import Service

FEED_MESSAGES: Final = 4_096
"""Messages that a feed is asked for at once."""

GroupFeed = Callable[[int, int], Iterable[Payload]]
"""`fn(room_bytes, max_messages)`: messages to the group, at most so many, and about so many bytes."""

NodeFeed = Callable[[int, int], Iterable[tuple[str, Payload]]]
"""The same with the name of the group of each message."""

_Given = TypeVar("_Given")


class Feed(Generic[_Given]):
    """A function that is asked for messages. Made by `feed`; `signal` wakes it, `stop` ends it."""

    def __init__(
        self,
        seat: Seat,
        fn: Callable[[int, int], Iterable[_Given]],
        offer: Callable[[Sequence[_Given]], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        if not callable(fn):
            raise UsageError(f"a feed is a function fn(room_bytes, max_messages), not {fn!r}")
        self._seat = seat
        self._fn = fn
        self._offer = offer
        self._loop = loop
        self._rest: list[_Given] = []  # given, and not taken yet
        self._is_stopped = False
        self.is_active = True

    def _start(self) -> None:
        """It is the feed of its handle now."""
        self._seat.expect_feed(True)

    def signal(self) -> None:
        """The function has something again."""
        if not self._is_stopped and not self.is_active:
            self.is_active = True
            self._seat.expect_feed(True)
            self._seat.wake()

    def stop(self) -> None:
        """The function is not called again."""
        if not self._is_stopped:
            self._is_stopped = True
            self.is_active = False
            self._seat.expect_feed(False)

    def _settle(self) -> None:
        """A pass has ended: ask, where something may leave."""
        seat = self._seat
        if not self.is_active or seat.gone is not None or seat.error is not None or seat.is_leaving:
            return
        room = seat.feed_room()
        if room <= 0:
            return
        try:
            given = self._rest or list(self._fn(room, FEED_MESSAGES))
            if not given:
                self.is_active = False
                seat.expect_feed(False)
                return
            taken = self._offer(given[:FEED_MESSAGES])
        except Exception as error:
            self.stop()
            text = f"the feed of {seat.group!r} has stopped: its function, or a message that it gave, is wrong"
            self._loop.call_exception_handler({"message": text, "exception": error})
            return
        self._rest = given[taken:]
        seat.wake()


def group_offer(seat: Seat, service: Service, type_: int) -> Callable[[Sequence[Payload]], int]:
    """What queues the messages of a group's feed."""

    def offer(given: Sequence[Payload]) -> int:
        payloads = [as_bytes(payload) for payload in given]
        lengths = list(map(len, payloads))
        seat.check(max(lengths), service, type_)
        return seat.offer_many(payloads, service, type_, lengths)

    return offer


def node_offer(seat: BaseSeat, service: Service, type_: int) -> Callable[[Sequence[tuple[str, Payload]]], int]:
    """What queues the messages of a node's feed, in their order."""

    def offer(given: Sequence[tuple[str, Payload]]) -> int:
        for name, _ in given:
            check_group_name(name)
        payloads = [as_bytes(payload) for _, payload in given]
        lengths = list(map(len, payloads))
        seat.check(max(lengths), service, type_)
        taken = 0
        for (name, _), payload in zip(given, payloads, strict=True):
            if seat.send_to(payload, service, type_, [name]) < 0:
                break
            taken += 1
        return taken

    return offer
