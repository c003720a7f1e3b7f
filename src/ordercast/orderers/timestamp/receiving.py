"""What a member does with blocks: propose, decide, receive. TOMPA sections 2.1 and 3.2; docs/design/timestamp.md.

As a receiver it proposes a timestamp for each block, in its sender's order, and owes an acknowledgement to who answers
for the block; as a sender it decides the greatest proposal. What leaves the reception queue gets the next place of the
log. No datagram is sent from here: what is to be said is left for `timestamp.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Note, Outbox
from ordercast.errors import InvariantViolation
from ordercast.orderers.logged.sender import Sender
from ordercast.orderers.timestamp.queue import Key, ReceptionQueue, Stamp
from ordercast.orderers.timestamp.votes import Vote, Votes
from ordercast.parts.log import Entry
from ordercast.service import MAJORITY_RANK, RESILIENT_RANK
from ordercast.view import GROUP_ORIGIN, Member, View, id_of
from ordercast.wire.block import ENTRY_BYTES, FRAGMENT, FRAGMENTED, HEAD, HEAD_BYTES, LAST
from ordercast.wire.stamps import ASKS, Acked, Bound, Decided, Stamps
from ordercast.wire.writer import DatagramWriter

MAX_LATER: Final = 4_096  # decisions of a later view that are kept; the others are asked for again


class Receiver(Sender):
    """The queue of one member, and the votes on what it answers for."""

    strong_rank: ClassVar[int] = MAJORITY_RANK  # a decision shows that all hold the block: RESILIENT waits for no more

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
        self._members = [member.id for member in view.members]
        self._coordinator = id_of(view.creator)  # answers for blocks of senders that are gone
        # Receiving
        self._queue = ReceptionQueue(me.id)
        self._expected = dict(self.log.next_number)  # origin -> the first block that we have not proposed for
        self._come: dict[int, int] = {}  # origin -> one past the last of its blocks that has come
        self._held_back: dict[int, None] = {}  # whose next block is here and may not be proposed for now
        self._long: set[int] = set()  # members whose long message is half proposed
        self._told_decided: set[Key] = set()  # decided and not received: their decision is in the trace
        self._later: list[Decided] = []  # by members of a view that we do not have yet
        # Answering
        self._votes: dict[Key, Votes] = {}
        self._since = dict.fromkeys(self._members, view.seq)  # member -> place of the view that it came in with
        self._decisions: dict[Key, tuple[Stamp, int]] = {}  # and the view's place; until all have received the block
        self._next_decision: dict[int, int] = {}  # origin that we answer for -> its first undecided block
        self._has_votes = False
        # What is to be said
        self._owed: dict[int, dict[Key, None]] = {}  # who answers -> what is to be acknowledged
        self._asks = False  # some of it again: the decision does not come
        self._fresh_decisions: list[Decided] = []
        self._repeats: dict[int, list[Key]] = {}  # member -> decisions that it lacks
        self._held_due: dict[int, None] = {}  # senders to reassure
        self._news: set[int] = set()  # who waits to hear what we have received
        self._tell_all = False
        self._own_strong: deque[int] = deque()  # places of what waits for others, and we answer for
        # Changes
        self._is_closing = False  # no long message begins
        self._is_draining = False  # nothing is proposed for

    # Dissemination: blocks come, and are proposed for

    def _take(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> bool:  # noqa: ARG002
        """A whole block has come; whether it is new."""
        head = self._hold(origin, number, block, out)
        if head is None:
            self._on_old(origin, number)
            return False
        if origin == GROUP_ORIGIN or self.is_frozen:
            return True
        self._arrived(origin, number, block, head)
        self._come[origin] = max(number + 1, self._come.get(origin, 0))
        if number == self._expected.get(origin):
            self._propose_from(origin)
        return True

    def _on_old(self, origin: int, number: int) -> None:
        """Somebody sends again what we have: our word about it was lost, or it has to wait."""
        self._count("duplicates")
        if self.is_frozen or self.has_left or origin == GROUP_ORIGIN:
            return
        if self._queue.proposed(origin, number):
            self._owe(origin, number)
        elif (origin, number) in self.log.blocks and number >= self._expected.get(origin, number + 1):
            self._held_due[origin] = None

    def _propose_from(self, origin: int) -> None:
        """Propose for all that is here of a sender without a hole, in its order (section 3.2.2.2)."""
        blocks, queue, me = self.log.blocks, self._queue, self.me.id
        number = self._expected.get(origin)
        if number is None:
            return
        while (block := blocks.get((origin, number))) is not None:
            flags = HEAD.unpack_from(block)[4]
            if not self._may_propose(origin, block, flags):
                self._held_back[origin] = None
                break
            if flags & FRAGMENTED:
                # What a gone sender began will not be completed.
                is_open = not flags & LAST and origin in self._members
                (self._long.add if is_open else self._long.discard)(origin)
            proposed = queue.propose(origin, number)
            self._expected[origin] = number + 1
            votes = self._votes.get((origin, number))
            if votes is not None:
                votes.add(me, Vote(proposed, queue.clock, self.view.seq, self._nexts()))
                self._has_votes = True
            else:
                self._owe(origin, number)
            number += 1

    def _may_propose(self, origin: int, block: bytes, flags: int) -> bool:
        """Without our word there is no decision: so nobody overruns us, and nothing stands before a change of ours."""
        if self._is_draining or self._is_overrun() or self._is_full():
            return False
        if self._is_closing and flags & FRAGMENTED and origin not in self._long:
            return bool(FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[1])  # in the middle it has to go on
        return True

    def _is_full(self) -> bool:
        """What is received takes too much room. It goes without any decision of others: they have all that we have."""
        log = self.log
        return log.unstable_bytes > 2 * self._ceiling or len(log.entries) > 2 * self._config.history_blocks

    def _release(self) -> None:
        """Propose for what was held back, if that may be now."""
        waiting, self._held_back = self._held_back, {}
        for origin in waiting:
            self._propose_from(origin)

    def _answerer(self, origin: int) -> int:
        """Who decides the blocks of `origin`: itself, and the coordinator of the last recovery for who is gone."""
        return origin if self.view.member(origin) is not None else self._coordinator

    def _owe(self, origin: int, number: int) -> None:
        answerer = self._answerer(origin)
        if answerer != self.me.id:
            self._owed.setdefault(answerer, {})[origin, number] = None

    def _nexts(self) -> tuple[int, ...]:
        """The paper's next_mid."""
        if not self._config.anticipate:
            return ()
        expected = self._expected
        return tuple([expected.get(member, 0) for member in self._members])

    # Decision

    def _on_acked(self, member: int, acked: Acked, stamps: Stamps) -> None:
        """An acknowledgement (section 3.2.2.3). One that asks wants the decision, where there is one."""
        origin, first, numbers = acked
        if self._answerer(origin) != self.me.id or stamps.view < self._since.get(member, 0):
            return  # not ours to decide, or of an earlier stay of that member
        for offset, proposed in enumerate(numbers):
            key = (origin, first + offset)
            votes = self._votes.get(key)
            if votes is None:
                if stamps.flags & ASKS and key in self._decisions:
                    self._repeats.setdefault(member, []).append(key)
                continue
            vote = Vote(proposed, stamps.clock, stamps.view, stamps.nexts)
            if self.view.member(member) is None:
                votes.add_early(member, vote)
            else:
                votes.add(member, vote)
                self._has_votes = True

    def _answer_for(self, origin: int, number: int) -> None:
        self._votes[origin, number] = Votes()
        self._next_decision.setdefault(origin, number)

    def _decide(self, out: Outbox) -> None:
        """Decide what all have acknowledged, each sender's blocks in order (section 3.2.3.1)."""
        self._has_votes = False
        members, view = self._members, self.view.seq
        for origin, number in list(self._next_decision.items()):
            while (votes := self._votes.get((origin, number))) is not None and votes.is_complete(members, view):
                stamp = votes.decide(members)
                bounds = votes.bounds(members, view) if self._config.anticipate else ()
                decided = Decided(origin, number, stamp, view, bounds)
                del self._votes[origin, number]
                self._decisions[origin, number] = (stamp, view)
                self._fresh_decisions.append(decided)
                self._on_decided(decided, out)
                number += 1
            self._next_decision[origin] = number

    def _on_decided(self, decided: Decided, out: Outbox) -> None:
        """A final timestamp (section 3.2.3.2)."""
        origin, number, stamp, view, bounds = decided
        if view != self.view.seq:
            # Earlier ones stand before the change that we have; for later ones the change must come first.
            if self.view.seq < view <= self.log.received + self.log.ahead and len(self._later) < MAX_LATER:
                self._later.append(decided._replace(bounds=()))
            return
        if not self._queue.decide(origin, number, stamp):
            return  # it is here already, or we have never acknowledged it, and nobody can have decided it
        block = self.log.blocks[origin, number]
        out.notes.append(Note("placed", origin, block))
        self._told_decided.add((origin, number))
        self._anticipate(bounds)

    def _anticipate(self, bounds: Sequence[Bound]) -> None:
        if len(bounds) != len(self._members) or not self._config.anticipate:
            return
        members = self._members
        for origin, (upto, number, index) in zip(members, bounds, strict=True):
            if index < len(members):
                self._queue.anticipate(origin, upto, (number, members[index]))

    # Receiving: what leaves the queue has the next place

    def _receive(self, now_ns: int, out: Outbox) -> None:
        """Until the head of the queue is not decided, or our own leave has been received."""
        log, queue = self.log, self._queue
        while True:
            before = log.received
            seq = before + 1
            assignments, blocks = log.assignments, log.blocks
            while True:
                key = assignments.get(seq)
                if key is None:
                    key = queue.take()
                    if key is None:
                        break
                    if not log.assign(seq, *key):
                        raise InvariantViolation(f"place {seq} is further ahead than the window allows")
                elif key not in blocks:
                    break
                else:
                    queue.remove(key)
                seq += 1
                if key[0] == GROUP_ORIGIN:
                    break  # what follows is decided by other members, and perhaps known already
            if seq == before + 1:
                break
            self._advance(now_ns, out)
            if log.received < seq - 1 and not self.has_left:
                raise InvariantViolation("the queue let go of a block that is not here")
            for known in range(seq, log.received + 1):  # places behind a change that somebody has told us
                queue.remove((log.entries[known].origin, log.entries[known].number))
            if self._last_safe_seq > before:
                self._note_strong(before)
            if self.has_left:
                break
        self._table.learn(self.me.id, log.received)

    def _note_placed(self, entry: Entry, out: Outbox) -> None:
        key = (entry.origin, entry.number)
        if key in self._told_decided:
            self._told_decided.discard(key)
        else:
            super()._note_placed(entry, out)

    def _on_own_placed(self, entry: Entry) -> None:
        super()._on_own_placed(entry)
        # Whoever told us its place has it from us, or from who had: decided or not, that is over.
        key = (entry.origin, entry.number)
        if self._votes.pop(key, None) is not None:
            self._next_decision[entry.origin] = max(entry.number + 1, self._next_decision.get(entry.origin, 0))

    def _note_strong(self, before: int) -> None:
        """Somebody waits to hear that we have received it: who answers for it, and tells all."""
        entries = self.log.entries
        for seq in range(before + 1, self.log.received + 1):
            entry = entries[seq]
            if entry.rank >= self.strong_rank and not entry.is_change:
                answerer = self._answerer(entry.origin)
                if answerer == self.me.id:
                    self._own_strong.append(seq)
                else:
                    self._news.add(answerer)

    def _announce_strong(self) -> None:
        """What we may deliver others may, too, when they know what we know."""
        while self._own_strong and self._own_strong[0] <= self.delivered:
            self._own_strong.popleft()
            self._tell_all = True

    def _may_deliver(self, entry: Entry) -> bool:
        return entry.rank == RESILIENT_RANK or super()._may_deliver(entry)

    def _purge_safe(self) -> None:
        before = self.log.stable
        super()._purge_safe()
        if self._decisions and self.log.stable > before:
            numbers = self.log.next_number
            self._decisions = {
                key: decided
                for key, decided in self._decisions.items()
                if self.log.seq_of(*key) or key[1] >= numbers.get(key[0], 0)
            }
