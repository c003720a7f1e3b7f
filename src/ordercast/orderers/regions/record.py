"""One member's knowledge of one sender in one view (QSM section 2.3.3; docs/design/regions.md).

All prefixes are counts. A block is *had* if it has come, or if it is Lost. It is *kept* for others: by every member
until ACK covers it, by its cachers until purge does. It *waits* until those before it are delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.parts.ranges import EMPTY, NumberSet, contains, from_runs, members_of, union
from ordercast.wire.regions import LaneOpening

MAX_AHEAD: Final = 65_536  # blocks beyond the first that is missing; those beyond are dropped
UNKNOWN: Final = -1  # a final count
MAX_VERDICT: Final = 65_536  # blocks that one verdict is carried out for; the rest comes with the next token


class Verdicts:
    """What is known of blocks that may be lost. Of a starter also what its next token asks."""

    __slots__ = ("asked", "candidates", "carried", "gone", "refused")

    def __init__(self) -> None:
        self.carried = EMPTY  # Lost: passed on, also where the block is here
        self.gone = EMPTY  # the sender does not keep them
        self.refused: dict[int, NumberSet] = {}  # by the starter whose verdict is awaited
        self.asked = EMPTY
        self.candidates = EMPTY

    def refuses(self, block: int) -> bool:
        return any(contains(each, block) for each in self.refused.values())

    def forget_below(self, block: int) -> None:
        self.carried, self.gone = at_least(self.carried, block), at_least(self.gone, block)


def at_least(numbers: NumberSet, least: int) -> NumberSet:
    """Without what is below."""
    if not numbers.runs or numbers.runs[0][0] >= least:
        return numbers
    return from_runs([(max(first, least), stop) for first, stop in numbers.runs], numbers.limit)


class SenderRecord:
    __slots__ = (
        "_ahead",
        "ack",
        "cutoff",
        "early",
        "final",
        "freed",
        "has_news",
        "is_active",
        "is_own",
        "kept",
        "kept_bytes",
        "lost",
        "next",
        "opening",
        "prefix",
        "purge",
        "sender",
        "top",
        "verdicts",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, sender: int, is_own: bool) -> None:
        self.sender = sender
        self.is_own = is_own  # its blocks were delivered when they were sent
        # Had
        self.prefix = 0
        self._ahead: set[int] = set()  # beyond the first that is missing
        self.top = 0  # the highest, plus one
        self.lost: set[int] = set()  # of these: not here, and never will be
        # Kept
        self.kept: dict[int, bytes] = {}
        self.kept_bytes = 0
        self.freed = (0, 0)  # ack and purge for which `free` has been done
        # Delivery
        self.next = 0
        self.waiting: dict[int, bytes] = {}
        self.waiting_bytes = 0
        self.early: set[int] = set()  # delivered before their turn
        self.opening: LaneOpening | None = None
        # What tokens say
        self.cutoff = 0
        self.ack = 0
        self.purge = 0
        self.final = UNKNOWN
        self.verdicts = Verdicts()
        self.has_news = False  # that not all members have been told
        self.is_active = False  # something has come since the last token

    def resume(self, count: int) -> None:
        """Of a sender that is out: so many blocks are all that it sent, and everybody has had them."""
        self.prefix = self.top = self.next = self.cutoff = self.ack = self.purge = self.final = count
        self.freed = (count, count)

    @property
    def is_empty(self) -> bool:
        return not self.top and not self.cutoff and self.final == UNKNOWN

    @property
    def known(self) -> int:
        """Blocks that are known to exist."""
        return max(self.cutoff, self.top)

    def has(self, block: int) -> bool:
        return block < self.prefix or block in self._ahead

    def wants(self, block: int, answers: bool) -> bool:
        """Whether a block is to be taken: it is missing, or to be kept and is not (a cacher takes it again)."""
        if block < self.prefix or block in self._ahead:
            if block in self.kept or block < self.purge or block in self.lost:
                return False
            return answers or block >= self.ack
        return block < self.prefix + MAX_AHEAD and not (self.verdicts.refused and self.verdicts.refuses(block))

    def take(self, block: int, body: bytes, answers: bool) -> bool:
        """A block that is wanted has come whole; whether it is new here."""
        is_new = self._have(block)
        if block >= self.purge and (answers or block >= self.ack):
            self.kept[block] = body
            self.kept_bytes += len(body)
        if is_new:
            self.has_news = self.is_active = True
        return is_new

    def lose(self, block: int) -> bool:
        """A verdict; whether it is one for this member."""
        if self.has(block) or block >= self.prefix + MAX_AHEAD:
            return False
        self._have(block)
        self.lost.add(block)
        self.has_news = True
        return True

    def lose_all(self, blocks: NumberSet) -> bool:
        """Carry verdicts out, and on."""
        if not blocks.runs:
            return False
        verdicts = self.verdicts
        verdicts.carried = at_least(union(verdicts.carried, blocks), self.purge)
        return any(self.lose(block) for block in members_of(at_least(blocks, self.prefix), MAX_VERDICT))

    def _have(self, block: int) -> bool:
        if block == self.prefix:
            self.prefix += 1
            ahead = self._ahead
            while self.prefix in ahead:
                ahead.discard(self.prefix)
                self.prefix += 1
        elif block > self.prefix:
            if block in self._ahead:
                return False
            self._ahead.add(block)
        else:
            return False
        if block >= self.top:
            self.top = block + 1
        return True

    def missing(self, stop: int) -> list[int]:
        """Blocks below that have not come."""
        first = self.prefix
        if first >= stop:
            return []
        ahead = self._ahead
        return [block for block in range(first, min(stop, first + MAX_AHEAD)) if block not in ahead]

    def own_prefix(self, answered: Sequence[bool], span: int) -> int:
        """How many blocks from the first on it has, or does not answer for. Beyond the span nothing is known of."""
        block, count, ahead = self.prefix, len(answered), self._ahead
        while block in ahead or (block < span and not answered[block % count]):
            block += 1
        return block

    def raise_cutoff(self, count: int) -> None:
        if count > self.cutoff:
            self.cutoff = count
            self.has_news = True

    def close(self, final: int) -> None:
        """The sender's final count is told, perhaps again: it wants to hear that everybody knows it."""
        self.final = max(self.final, final)
        self.cutoff = max(self.cutoff, final)
        self.has_news = True

    def free(self, answered: Sequence[bool]) -> None:
        """Drop what ACK and purge allow."""
        ack, purge = self.ack, self.purge
        if self.freed == (ack, purge):
            return
        self.freed = (ack, purge)
        count = len(answered)
        done = [block for block in self.kept if block < purge or (block < ack and not answered[block % count])]
        for block in done:
            self.kept_bytes -= len(self.kept.pop(block))
        self.verdicts.forget_below(purge)
        if self.lost:
            least = min(purge, self.next)
            self.lost = {block for block in self.lost if block >= least}

    def needs_entry(self, is_dead: bool) -> bool:
        """Whether a token has something to say or to ask about this sender."""
        if self.has_news or self.purge < self.known:
            return True
        return is_dead and self.final == UNKNOWN and not self.is_empty

    @property
    def is_finished(self) -> bool:
        """Everything that is known to exist is delivered or Lost, and everybody has it."""
        return self.purge >= self.known and self.next >= self.purge and not self.kept

    def is_drained(self) -> bool:
        """And nothing more will come."""
        return self.is_empty or (self.is_finished and UNKNOWN < self.final <= self.purge)

    def keeping(self, numbers: NumberSet) -> list[int]:
        """Which of these blocks are kept here."""
        return sorted([block for block in self.kept if contains(numbers, block)]) if numbers.runs else []
