"""What a node takes along: own blocks to its next ring, and what was delivered to its next engine of the underlay."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, Protocol

from ordercast.engine import Outbox, UnknownOutcome
from ordercast.membership.policy import Newcomer
from ordercast.orderers import LoggedOrderer
from ordercast.parts.memory import DeliveryMemory
from ordercast.underlay.vacancy import Vacancy
from ordercast.wire.block import come_after
from ordercast.wire.header import Kind

EVERYTHING: Final = 1 << 62  # as a sequence number, or a ticket: what an engine consumes that nobody listens to


class Former(Protocol):
    """An engine of this node whose application is out, and that others may still need."""

    @property
    def is_closed(self) -> bool: ...

    def give_way(self, ring: int, is_guest: bool) -> None:
        """The next engine of the node is in this ring now, perhaps without a word to its application. It has the same
        id. So this engine ends if it is in the same ring, which has let the node in again because it knows of the
        leave: a member votes once. And two that make views would number them by the same clock."""


class Legacy(NamedTuple):
    """What this node's next engine of the same underlay takes over."""

    memory: DeliveryMemory
    endings: dict[int, tuple[Kind, bytes]]  # of rings that it was in
    attempts: deque[int]  # to join, which a ring may come to only now: one object, as each is accepted by one engine
    formers: tuple[Former, ...] = ()  # engines before that still serve

    @property
    def is_empty(self) -> bool:
        memory = self.memory
        return not (self.formers or self.endings or self.attempts or memory.early or memory.called or memory.recent)


class Luggage:
    """Between rings."""

    __slots__ = ("_aside", "backlog", "formers", "next_block")

    def __init__(self, next_block: int) -> None:
        self.next_block = next_block
        self.backlog: list[tuple[int, bytes]] = []  # own blocks without a sequence number, while there is no ring
        self._aside: DeliveryMemory | None = None  # as it was before a ring of which the application hears nothing
        self.formers: tuple[Former, ...] = ()  # engines of this node that still serve in rings before

    def newcomer(self, memory: DeliveryMemory) -> Newcomer:
        """What this node says of itself when it looks for a ring."""
        return Newcomer(self.backlog[0][0] if self.backlog else self.next_block, memory.called)

    def bring(
        self, memory: DeliveryMemory, is_silent: bool, ring: int, known: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """There is a new ring: the blocks to send in it, and the number of the block after them.

        `is_silent`: the application hears nothing of it. This node sends nothing there, so that its next block has the
        number that the ring knows (`known`). What it has is for later.
        """
        for former in self.formers:
            former.give_way(ring, is_silent)
        self.formers = tuple([each for each in self.formers if not each.is_closed])
        if is_silent:
            if self._aside is None:
                self._aside = memory
            return [], known
        backlog, self.backlog = self.backlog, []
        return backlog, self.next_block

    def bequeath(self, me: Former, is_looking: bool) -> tuple[Former, ...]:
        """The engines that the next one of this node has to know: those that are or may come into a ring. `is_looking`:
        this one cannot, since it has only looked for one."""
        return tuple([each for each in (*self.formers, me) if not each.is_closed and not (each is me and is_looking)])

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
