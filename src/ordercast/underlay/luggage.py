"""What a node takes along: own blocks to its next ring, and what was delivered to its next engine of the underlay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from ordercast.engine import Outbox, UnknownOutcome
from ordercast.membership.policy import Newcomer
from ordercast.orderers import LoggedOrderer
from ordercast.parts.memory import DeliveryMemory
from ordercast.underlay.vacancy import Vacancy
from ordercast.wire.block import come_after
from ordercast.wire.header import Kind

EVERYTHING: Final = 1 << 62  # as a sequence number, or a ticket: what an engine consumes that nobody listens to


class Legacy(NamedTuple):
    """What this node's next engine of the same underlay takes over."""

    memory: DeliveryMemory
    endings: dict[int, tuple[Kind, bytes]]  # of rings that it was in
    attempts: deque[int]  # to join, which a ring may come to only now: one object, as each is accepted by one engine
    former: Callable[[], None] | None = None  # ends an engine before that serves on in its ring

    @property
    def is_empty(self) -> bool:
        memory = self.memory
        return not (self.former or self.endings or self.attempts or memory.early or memory.called or memory.recent)


class Luggage:
    """Between rings."""

    __slots__ = ("_aside", "backlog", "former", "next_block")

    def __init__(self, next_block: int) -> None:
        self.next_block = next_block
        self.backlog: list[tuple[int, bytes]] = []  # own blocks without a sequence number, while there is no ring
        self._aside: DeliveryMemory | None = None  # as it was before a ring of which the application hears nothing
        self.former: Callable[[], None] | None = None  # ends an engine of this node that serves on in its ring

    def newcomer(self, memory: DeliveryMemory) -> Newcomer:
        """What this node says of itself when it looks for a ring."""
        return Newcomer(self.backlog[0][0] if self.backlog else self.next_block, memory.called)

    def bring(self, memory: DeliveryMemory, is_silent: bool, known: int) -> tuple[list[tuple[int, bytes]], int]:
        """There is a new ring: the blocks to send in it, and the number of the block after them.

        `is_silent`: the application hears nothing of it. This node sends nothing there, so that its next block has the
        number that the ring knows (`known`). What it has is for later.
        """
        if is_silent:
            if self._aside is None:
                self._aside = memory
            return [], known
        former, self.former = self.former, None
        if former is not None:  # both would make views, and number them by the same clock
            former()
        backlog, self.backlog = self.backlog, []
        return backlog, self.next_block

    def take_aside(self, memory: DeliveryMemory) -> DeliveryMemory:
        """A ring of which the application heard nothing is over: what was delivered before it."""
        aside, self._aside = self._aside, None
        return aside if aside is not None else memory

    def keep_anew(self, leftovers: list[tuple[int, bytes]]) -> None:
        """The ring has ended for all: what its blocks come after is a sequence number that ends with it."""
        self.backlog = [(number, come_after(block, 0)) for number, block in leftovers]

    def drop(self, orderer: LoggedOrderer | Vacancy, out: Outbox) -> None:
        """Own blocks that were not delivered here: what becomes of them is not known."""
        lowest = orderer.undelivered()
        if lowest < orderer.next_block:
            out.upcalls.append(UnknownOutcome(lowest, orderer.next_block))
        elif self.backlog:
            out.upcalls.append(UnknownOutcome(self.backlog[0][0], self.next_block))
        self.backlog = []
