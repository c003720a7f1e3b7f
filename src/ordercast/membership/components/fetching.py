"""Fetching the blocks of a remainder that this daemon lacks, directly from daemons that hold them.

Requests are spread over the holders. Each block is asked for of one holder a few times, so that repeated segments fill
the gaps of a long block, and then of the next one. Whoever holds blocks answers as long as it is in the old view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.engine import Outbox
from ordercast.membership.components.daemons import LocalDaemon
from ordercast.wire.components import (
    MAX_FETCH,
    MAX_FETCH_RUN,
    ComponentProposal,
    Fetch,
    Fetched,
    encode_fetch,
    encode_fetched,
)
from ordercast.wire.cuts import Due
from ordercast.wire.header import Kind

SAME_TRIES: Final = 3  # of one holder, before the next
FETCH_ROUNDS: Final = 3  # through all holders without a single new block, before it is given up
BATCH: Final = 256  # blocks that are asked for at a time, of all holders together
ANSWER_BLOCKS: Final = 64  # that one request is answered with
ANSWER_BYTES: Final = 1 << 20


class Fetching:
    """One remainder on its way to one daemon."""

    __slots__ = ("_answered", "_holders", "_local", "_others", "_ring", "_tries", "due_ns")

    def __init__(self, local: LocalDaemon, ring: int, proposal: ComponentProposal) -> None:
        """`ring`: of the old view."""
        self._local = local
        self._ring = ring
        self._holders: dict[tuple[int, int], list[int]] = {}  # (site, sequence number) -> indices
        for run in proposal.holders:
            who = [proposal.members[place].index for place in run.holders]
            who = [index for index in who if index != local.index]
            for seq in range(run.first, run.first + run.count):
                self._holders[run.site, seq] = who
        # Of a block without holders somebody of the old view has it all the same, or this is no true proposal.
        old = proposal.old_views[proposal.classes[proposal.own].view]
        members = set(proposal.members)
        self._others = [life.index for life in old.members if life in members and life.index != local.index]
        self._answered: set[int] = set()
        self._tries = 0
        self.due_ns = 0

    def ask(self, now_ns: int, lacking: Sequence[Due], out: Outbox) -> None:
        wanted: dict[int, list[Due]] = {}
        for place, due in enumerate(lacking[:BATCH]):
            who = self._who(due)
            if who:
                wanted.setdefault(who[(place + self._tries // SAME_TRIES) % len(who)], []).append(due)
        for index, dues in wanted.items():
            body = encode_fetch(Fetch(self._local.life, _runs(dues)))
            self._local.send(index, Kind.FETCH, body, out, self._ring)
        self._tries += 1
        self.due_ns = now_ns + self._local.timing.invite_ns

    def on_answer(self, index: int, is_new: bool) -> None:
        self._answered.add(index)
        if is_new:
            self._tries -= self._tries % SAME_TRIES  # this holder answers: go on with it
            self._tries = max(self._tries - SAME_TRIES, 0)

    def silent(self, lacking: Sequence[Due]) -> list[int] | None:
        """The holders that never answered, once all were asked often enough in vain; None until then."""
        most = max([len(self._who(due)) for due in lacking], default=0)
        if self._tries < FETCH_ROUNDS * SAME_TRIES * max(most, 1):
            return None
        return sorted({index for due in lacking for index in self._who(due)} - self._answered)

    def again(self, now_ns: int) -> None:
        """It was given up, and nothing better is known yet."""
        self._tries = 0
        self.due_ns = now_ns + self._local.timing.invite_ns

    def _who(self, due: Due) -> list[int]:
        return self._holders.get((due.site, due.seq)) or self._others


def answer(local: LocalDaemon, ring: int, fetch: Fetch, packets: Sequence[tuple[int, int, bytes]], out: Outbox) -> None:
    """Send blocks of the old view: (site, sequence number, packet)."""
    for site, seq, packet in packets:
        body = encode_fetched(Fetched(local.life, site, seq, packet))
        local.send(fetch.me.index, Kind.FETCH, body, out, ring, site << 56 | seq)


def _runs(dues: Sequence[Due]) -> tuple[tuple[int, int, int], ...]:
    """(site, first, count) of blocks, no more than a request takes."""
    runs: list[tuple[int, int, int]] = []
    for site, seq in sorted([(due.site, due.seq) for due in dues]):
        if runs:
            last, first, count = runs[-1]
            if (last, first + count) == (site, seq) and count < MAX_FETCH_RUN:
                runs[-1] = (last, first, count + 1)
                continue
        if len(runs) == MAX_FETCH:
            break
        runs.append((site, seq, 1))
    return tuple(runs)
