"""The acknowledgements of one block, as its sender collects them. TOMPA sections 3.2.2.3 and 3.2.3.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ordercast.wire.stamps import Bound

Stamp = tuple[int, int]

STRANGERS: Final = 8  # acknowledgements that are kept of who is not known as a member yet


class Vote(NamedTuple):
    """What one member acknowledged: the number that it proposes, its clock, and whom it expects which block from next,
    as of the view at place `view`."""

    number: int
    clock: int
    view: int
    nexts: tuple[int, ...]


class Votes:
    __slots__ = ("_votes",)

    def __init__(self) -> None:
        self._votes: dict[int, Vote] = {}

    def add(self, member: int, vote: Vote, members: int) -> None:
        """`members`: how many there are; more than a few others are not believed."""
        if member in self._votes or len(self._votes) < members + STRANGERS:
            self._votes[member] = vote

    def forget(self, member: int, before: int) -> None:
        """What it acknowledged before it came in with the view at place `before`, or came in again: its queue is empty
        since."""
        vote = self._votes.get(member)
        if vote is not None and vote.view < before:
            del self._votes[member]

    def lacking(self, members: Iterable[int]) -> list[int]:
        """Who has not acknowledged yet."""
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
