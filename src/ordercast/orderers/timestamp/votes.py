"""The acknowledgements of one block, as its sender collects them. TOMPA sections 3.2.2.3 and 3.2.3.1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ordercast.wire.stamps import Bound, Bounds

Stamp = tuple[int, int]

STRANGERS: Final = 8  # acknowledgements that are kept of nodes that are not known as members yet


class Vote(NamedTuple):
    """What one member acknowledged: the number that it proposes, its clock, and which block it expects next of each
    member of the view at `view` (none where that is not known)."""

    number: int
    clock: int
    view: int
    nexts: tuple[int, ...]


class Votes:
    __slots__ = ("_early", "_votes", "base")

    def __init__(self, base: Mapping[int, int] | None = None) -> None:
        """`base`: the next block of each origin when the block was sent, as `Vectors` has it."""
        self.base = base if base is not None else {}
        self._votes: dict[int, Vote] = {}
        self._early: dict[int, Vote] = {}  # of nodes that are no members yet

    def add(self, member: int, vote: Vote) -> None:
        self._votes[member] = vote

    def add_early(self, newcomer: int, vote: Vote) -> None:
        """Of a node that has come in with a view that is not here yet, as it seems: a few of them are kept."""
        if newcomer in self._early or len(self._early) < STRANGERS:
            self._early[newcomer] = vote

    def admit(self, member: int, view: int) -> None:
        """It has come in with the view at `view`. What it acknowledged in an earlier stay counts no more: its
        queue is empty since."""
        self._votes.pop(member, None)
        vote = self._early.pop(member, None)
        if vote is not None and vote.view >= view:
            self._votes[member] = vote

    def lacking(self, members: Iterable[int]) -> list[int]:
        """The members that have not acknowledged yet."""
        votes = self._votes
        return [member for member in members if member not in votes]

    def is_complete(self, members: Sequence[int], view: int) -> bool:
        """Whether all have, and none of them in a later view, whose members we do not know."""
        votes = self._votes
        for member in members:
            vote = votes.get(member)
            if vote is None or vote.view > view:
                return False
        return True

    def decide(self, members: Sequence[int]) -> Stamp:
        """The greatest of the proposals of all members; all must have acknowledged."""
        votes = self._votes
        return max([(votes[member].number, member) for member in members])

    def bounds(self, members: Sequence[int], view: int) -> Bounds | None:
        """`min_next_mid` and `max_next_ts` in one; none where a member voted in another view.

        For each k the smallest expected block of all acknowledgements, and the greatest timestamp that may follow those
        which named that block. Where all named the same block, that is the greatest of all, and k is not listed.
        """
        votes = [self._votes[member] for member in members]
        if any(vote.view != view or len(vote.nexts) != len(members) for vote in votes):
            return None
        follows = [(vote.clock + 1, members[index], index) for index, vote in enumerate(votes)]
        listed = []
        for k, named in enumerate(zip(*[vote.nexts for vote in votes], strict=True)):
            upto = min(named)
            if named.count(upto) < len(named):
                number, _, index = max([follows[at] for at, each in enumerate(named) if each == upto])
                listed.append(Bound(k, upto, number, index))
        number, _, index = max(follows)
        return Bounds(number, index, tuple(listed))
