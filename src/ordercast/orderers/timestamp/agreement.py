"""How members agree on timestamps: propose, acknowledge, decide. TOMPA sections 2.1 and 3.2; docs/design/timestamp.md.

As a receiver a member proposes a timestamp for each block, in its sender's order, and owes an acknowledgement to the
member that answers for the block; as a sender it decides the greatest proposal. No datagram is sent from here: what is
to be said is left in `OwedStamps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ordercast.engine import Note, Outbox
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.timestamp.owed import OwedStamps
from ordercast.orderers.timestamp.queue import Key, ReceptionQueue, Stamp
from ordercast.orderers.timestamp.vectors import Vectors, read_nexts
from ordercast.orderers.timestamp.votes import Vote, Votes
from ordercast.view import GROUP_ORIGIN, Member, id_of
from ordercast.wire.block import ENTRY_BYTES, FRAGMENT, FRAGMENTED, HEAD, HEAD_BYTES, LAST
from ordercast.wire.stamps import ASKS, Acked, Bounds, Decided, Next, Stamps

MAX_LATER: Final = 4_096  # decisions of a later view that are kept; the others are asked for again
UNREAD: Final = -1  # flags of a block whose head is not read yet


class Agreement:
    """The reception queue of one member, and the votes on what it answers for."""

    __slots__ = (
        "_coordinator",
        "_delivery",
        "_later",
        "_log",
        "_me",
        "_next_decision",
        "_receiver",
        "_ring",
        "_since",
        "_votes",
        "_window",
        "come",
        "decisions",
        "expected",
        "has_votes",
        "held_back",
        "is_closing",
        "is_draining",
        "is_hurried",
        "is_pressed",
        "long",
        "members",
        "owed",
        "queue",
        "vectors",
    )

    def __init__(
        self, ring: RingState, receiver: Receiver, delivery: ServiceDelivery, window: SendWindow, owed: OwedStamps
    ) -> None:
        view = ring.view
        self._ring = ring
        self._log = ring.log
        self._me = ring.me.id
        self._receiver = receiver
        self._delivery = delivery
        self._window = window
        self.owed = owed
        self.members = [member.id for member in view.members]
        self._coordinator = id_of(view.creator)  # answers for blocks of senders that are gone
        # Proposing
        self.queue = ReceptionQueue(ring.me.id)
        self.vectors = Vectors(ring.log, self.members, view.seq)
        self.expected = self.vectors.expected  # origin -> the first block that we have not proposed for
        self.come: dict[int, int] = {}  # origin -> one past the last of its blocks that has come
        self.held_back: dict[int, None] = {}  # senders whose next block is here and may not be proposed for now
        self.long: set[int] = set()  # members whose long message is half proposed
        self._later: list[Decided] = []  # by members of a view that we do not have yet
        self.is_closing = False  # no long message begins
        self.is_draining = False  # nothing is proposed for
        self.is_hurried = False  # a change waits for what is under way: there is a reserve for that
        self.is_pressed = False  # it is an expulsion: no application holds up what is under way
        # Deciding
        self._votes: dict[Key, Votes] = {}
        self._since = dict.fromkeys(self.members, view.seq)  # member -> sequence number of the view of its join
        self.decisions: dict[Key, tuple[Stamp, int]] = {}  # and the view's; until all have received the block
        self._next_decision: dict[int, int] = {}  # origin that we answer for -> its first undecided block
        self.has_votes = False

    # Dissemination: blocks come, and are proposed for

    def take(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """A whole block has come."""
        head = self._receiver.hold(origin, number, block, out)
        if head is None:
            self.on_old(origin, number)
            return
        if origin == GROUP_ORIGIN or self._ring.is_frozen:
            return
        self._delivery.arrived(origin, number, block, head.rank, head.flags)
        self.come[origin] = max(number + 1, self.come.get(origin, 0))
        if number == self.expected.get(origin):
            self.propose_from(origin, head.flags)

    def on_old(self, origin: int, number: int) -> None:
        """Somebody sends again what we have: our word about it was lost, or it has to wait."""
        ring = self._ring
        ring.count("duplicates")
        if ring.is_frozen or ring.has_left or origin == GROUP_ORIGIN:
            return
        if self.queue.proposed(origin, number):
            self.owe(origin, number)
        elif (origin, number) in self._log.blocks and number >= self.expected.get(origin, number + 1):
            self.owed.held[origin] = None

    def kept(self, number: int, block: bytes, rank: int, flags: int) -> None:
        """An own block is held here: we answer for it, and propose for it like the others."""
        me = self._me
        self._delivery.arrived(me, number, block, rank, flags)
        self.answer_for(me, number)
        if number == self.expected.get(me):
            self.propose_from(me, flags)

    def propose_from(self, origin: int, first_flags: int = UNREAD) -> None:
        """Propose for all that is here of a sender without a hole, in its order (section 3.2.2.2).

        `first_flags` are those of the first such block, where the caller has read them.
        """
        blocks, queue = self._log.blocks, self.queue
        number = self.expected.get(origin)
        if number is None:
            return
        flags = first_flags
        while (block := blocks.get((origin, number))) is not None:
            if flags == UNREAD:
                flags = HEAD.unpack_from(block)[4]
            if not self._may_propose(origin, block, flags):
                self.held_back[origin] = None
                break
            if flags & FRAGMENTED:
                # What a gone sender began will not be completed.
                if not flags & LAST and origin in self.members:
                    self.long.add(origin)
                else:
                    self.long.discard(origin)
            proposed = queue.propose(origin, number)
            self.expected[origin] = number + 1
            votes = self._votes.get((origin, number))
            if votes is not None:
                votes.add(self._me, Vote(proposed, queue.clock, self._ring.view.seq, self._own_nexts()))
                self.has_votes = True
            else:
                self.owe(origin, number)
            number += 1
            flags = UNREAD

    def _may_propose(self, origin: int, block: bytes, flags: int) -> bool:
        """Without our word there is no decision: so nobody overruns us, and nothing stands before a change of ours."""
        if self.is_draining or self.is_overrun or self.is_full():
            return False
        if self.is_closing and flags & FRAGMENTED and origin not in self.long:
            return bool(FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[1])  # in the middle it has to go on
        return True

    @property
    def is_overrun(self) -> bool:
        """Our application is so far behind that we propose for nothing more."""
        return self._delivery.is_overrun(self.is_hurried) and not self.is_pressed

    def is_full(self) -> bool:
        """What is received takes too much room. It goes without any decision of others: they have all that we have."""
        log = self._log
        return log.unstable_bytes > 2 * self._window.ceiling or len(log.entries) > 2 * self._ring.config.history_blocks

    def release(self) -> None:
        """Propose for what was held back, if that may be now."""
        waiting, self.held_back = self.held_back, {}
        for origin in waiting:
            self.propose_from(origin)

    def answerer(self, origin: int) -> int:
        """The member that decides the blocks of `origin`: itself, or the coordinator of recovery if it is gone."""
        return origin if self._ring.view.member(origin) is not None else self._coordinator

    def owe(self, origin: int, number: int) -> None:
        answerer = self.answerer(origin)
        if answerer != self._me:
            acks = self.owed.acks.get(answerer)
            if acks is None:
                acks = self.owed.acks[answerer] = {}
            acks[origin, number] = None

    def nexts(self, acks: Sequence[Acked]) -> tuple[Next, ...]:
        """The paper's next_mid, as far as it has to be said with these acknowledgements."""
        return self.vectors.nexts(self.members, acks) if acks and self._ring.config.anticipate else ()

    def _own_nexts(self) -> tuple[int, ...]:
        return self.vectors.expected_of(self.members) if self._ring.config.anticipate else ()

    # Decision

    def on_acked(self, member: int, stamps: Stamps) -> None:
        """Acknowledgements (section 3.2.2.3). One that asks wants the decision, where there is one."""
        if stamps.view < self._since.get(member, 0):
            return  # of an earlier stay of that member
        is_member, view = self._ring.view.member(member) is not None, stamps.view
        # A vector is in the order of its view's members, which we know of the view in force only.
        reads = self._ring.config.anticipate and view == self._ring.view.seq
        base: Mapping[int, int] | None = None
        nexts: tuple[int, ...] = ()
        for origin, first, numbers in stamps.acks:
            if self.answerer(origin) != self._me:
                continue  # not ours to decide
            for offset, proposed in enumerate(numbers):
                key = (origin, first + offset)
                votes = self._votes.get(key)
                if votes is None:
                    if stamps.flags & ASKS and key in self.decisions:
                        self.owed.repeats.setdefault(member, []).append(key)
                    continue
                if reads and votes.base is not base:  # blocks that were sent together share it
                    base = votes.base
                    nexts = read_nexts(stamps, self.members, base)
                vote = Vote(proposed, stamps.clock, view, nexts)
                if is_member:
                    votes.add(member, vote)
                    self.has_votes = True
                else:
                    votes.add_early(member, vote)

    def answer_for(self, origin: int, number: int) -> None:
        self._votes[origin, number] = Votes(self.vectors.base())
        self._next_decision.setdefault(origin, number)

    def lacking(self, key: Key) -> list[int]:
        """Which others have not acknowledged a block that we answer for."""
        votes = self._votes.get(key)
        return [member for member in votes.lacking(self.members) if member != self._me] if votes is not None else []

    def decided_upto(self, stop: int) -> int:
        """Own blocks below this are decided; `stop` where none was ever sent in this ring."""
        return self._next_decision.get(self._me, stop)

    def decide(self, out: Outbox) -> None:
        """Decide what all have acknowledged, each sender's blocks in order (section 3.2.3.1).

        The last of the decisions that are made together has the bounds: they only grow from one to the next.
        """
        self.has_votes = False
        members, view, anticipate = self.members, self._ring.view.seq, self._ring.config.anticipate
        for origin, number in list(self._next_decision.items()):
            votes = self._votes.get((origin, number))
            is_last = votes is None or not votes.is_complete(members, view)
            while votes is not None and not is_last:
                stamp = votes.decide(members)
                following = self._votes.get((origin, number + 1))
                is_last = following is None or not following.is_complete(members, view)
                bounds = votes.bounds(members, view) if anticipate and is_last else None
                decided = Decided(origin, number, stamp, view, bounds)
                del self._votes[origin, number]
                self.decisions[origin, number] = (stamp, view)
                self.owed.decisions.append(decided)
                self.on_decided(decided, out)
                number += 1
                votes = following
            self._next_decision[origin] = number

    def on_decided(self, decided: Decided, out: Outbox) -> None:
        """A final timestamp (section 3.2.3.2)."""
        origin, number, stamp, view, bounds = decided
        log, mine = self._log, self._ring.view.seq
        if view != mine:
            # Earlier ones stand before the change that we have; for later ones the change must come first.
            if mine < view <= log.received + log.ahead and len(self._later) < MAX_LATER:
                self._later.append(decided._replace(bounds=None))
            return
        acked = self.queue.decide(origin, number, stamp)
        if not acked:
            return  # it is here already, or we have never acknowledged it, and nobody can have decided it
        block = log.blocks[origin, number]
        out.notes.append(Note("placed", origin, block))
        self._receiver.reported.add((origin, number))
        if bounds is not None and self._ring.config.anticipate:
            self._anticipate(bounds, acked)

    def _anticipate(self, bounds: Bounds, acked: int) -> None:
        """`acked`: our clock when we acknowledged the decided block last. What we have proposed for since then we did
        not have when we acknowledged it, and of a sender that is not listed nobody else had it either."""
        members, queue = self.members, self.queue
        if bounds.member >= len(members):
            return
        top, listed = (bounds.number, members[bounds.member]), {bound.sender: bound for bound in bounds.listed}
        for index, origin in enumerate(members):
            bound = listed.get(index)
            if bound is None:
                first = queue.first_after(origin, acked)
                if first >= 0:
                    queue.anticipate(origin, first, top)
            elif bound.member < len(members):
                queue.anticipate(origin, bound.upto, (bound.number, members[bound.member]))

    def received(self, origin: int, number: int) -> None:
        """A block that we answer for is received. The member that told us its sequence number has it from us, or from
        a member that had: decided or not, that is over."""
        if self._votes.pop((origin, number), None) is not None:
            self._next_decision[origin] = max(number + 1, self._next_decision.get(origin, 0))

    def forget_stable(self) -> None:
        """Decisions on blocks that all have received are asked for no more."""
        if self.decisions:
            log, numbers = self._log, self._log.next_number
            self.decisions = {
                key: decided
                for key, decided in self.decisions.items()
                if log.seq_of(*key) or key[1] >= numbers.get(key[0], 0)
            }

    # Views

    def admit(self, newcomer: Member) -> None:
        view, member = self._ring.view, newcomer.id
        self.vectors.admit(member, view.seq)
        self._since[member] = view.seq
        for votes in self._votes.values():
            votes.admit(member, view.seq)
        self.come.pop(member, None)

    def forget(self, leaver: int) -> None:
        self.vectors.forget(leaver)
        self.come.pop(leaver, None)
        self.held_back.pop(leaver, None)
        self.owed.acks.pop(leaver, None)
        self.long.discard(leaver)
        for number in self.queue.undecided(leaver):
            self.queue.remove((leaver, number))  # it was expelled: nobody decides what it had sent

    def begin_view(self) -> None:
        """What was expected of a member that has left bounds nothing now: it proposes no more."""
        self.queue.forget_bounds()
        self.has_votes = True
        self.is_hurried = self.is_pressed = False

    def take_later(self, out: Outbox) -> None:
        """Decisions that waited for the view in force."""
        later, self._later = self._later, []
        for decided in later:
            self.on_decided(decided, out)
