"""The acknowledgements of one block, as its sender collects them. TOMPA sections 3.2.2.3 and 3.2.3.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ordercast.wire.stamps import Bound

Stamp = tuple[int, int]

STRANGERS: Final = 8  # acknowledgements that are kept of nodes that are not known as members yet


class Vote(NamedTuple):
    """What one member acknowledged: the number that it proposes, its clock, and whom it expects which block from next,
    as of the view at `view`."""

    number: int
    clock: int
    view: int
    nexts: tuple[int, ...]


class Votes:
    __slots__ = ("_early", "_votes")

    def __init__(self) -> None:
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

    def bounds(self, members: Sequence[int], view: int) -> tuple[Bound, ...]:
        """`min_next_mid` and `max_next_ts` in one, for each member; none where somebody voted in another view.

        For each k the smallest expected block of all acknowledgements, and the greatest timestamp that may follow those
        which named that block.
        """
        votes = [self._votes[member] for member in members]
        if any(vote.view != view or len(vote.nexts) != len(members) for vote in votes):
            return ()
        found = []
        for k in range(len(members)):
            upto = min([vote.nexts[k] for vote in votes])
            number, _, index = max(
                [(vote.clock + 1, members[index], index) for index, vote in enumerate(votes) if vote.nexts[k] == upto]
            )
            found.append(Bound(upto, number, index))
        return tuple(found)
