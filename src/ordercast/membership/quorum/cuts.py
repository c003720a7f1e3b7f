"""How the logs of the survivors become one, as pure functions: the agreed remainder, and what senders left behind.

docs/design/overview.md section 7: recovery orders nothing new. In Amoeba section 4.2 the coordinator fetches from the
member with the highest sequence number. Here blocks travel in segments and apart from their sequence numbers: one
survivor may know a sequence number and another hold its block, so the remainder is computed over all cuts.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.membership.quorum.rule import is_of_earlier_stay, vote_of
from ordercast.view import View
from ordercast.wire.ordering import Assignment
from ordercast.wire.returns import Returned
from ordercast.wire.views import Cut


class Remainder(NamedTuple):
    """Sequence numbers up to and including `upto` are agreed; the member `top` has everything up to `received`."""

    start: int  # lowest "received" of all
    received: int  # highest "received" of all
    top: int  # the member that has it
    upto: int
    beyond: tuple[tuple[int, int, int], ...]  # (sequence number, origin, block number) above `received`


class Answers:
    """What members said to an invitation, by their ids in the ring: cuts of those that have a log, and what restarted
    ones have kept. Until `grace_ns` those are waited for that may hold what the restarted ones have lost."""

    __slots__ = ("cuts", "grace_ns", "returned")

    def __init__(self, cuts: dict[int, Cut], grace_ns: int) -> None:
        self.cuts = cuts
        self.returned: dict[int, Returned] = {}
        self.grace_ns = grace_ns

    def __contains__(self, member: int) -> bool:
        return member in self.cuts or member in self.returned

    @property
    def votes(self) -> dict[int, Cut]:
        """Of all that answered. Restarted members vote by what they kept."""
        return {**self.cuts, **{member: vote_of(each) for member, each in self.returned.items()}}

    def last_view(self, base: View) -> View:
        """The last one of `base` and those that restarted members received: a change that nobody has in a log."""
        return max([base, *[each.view for each in self.returned.values()]], key=lambda view: view.seq)

    def forget_earlier_stays(self, last: View) -> bool:
        """Whether somebody has answered for a stay that was over before `last`, where its node has come back."""
        found = [member for member, vote in self.votes.items() if is_of_earlier_stay(member, vote.view, last)]
        for member in found:
            self.cuts.pop(member, None)
            self.returned.pop(member, None)
        return bool(found)

    def ids_of(self, origin: int) -> set[int]:
        """The ids for which a member speaks: its own, and those of its former lives."""
        former = [each.formerly for each in self.returned.values() if each.member.id == origin]
        return {origin, *(member for members in former for member in members)}


def agree(cuts: dict[int, Cut]) -> Remainder:
    """The longest run of sequence numbers that some survivor knows and whose blocks some survivor holds."""
    top = max(sorted(cuts), key=lambda member: cuts[member].received)
    received = cuts[top].received
    assignments: dict[int, tuple[int, int]] = {}
    for member in sorted(cuts):
        for placed in cuts[member].assignments:
            for offset in range(placed.count):
                assignments.setdefault(placed.seq + offset, (placed.origin, placed.number + offset))
    held = holders(cuts)
    beyond = []
    seq = received + 1
    while (key := assignments.get(seq)) is not None and key in held:
        beyond.append((seq, *key))
        seq += 1
    return Remainder(min(cut.received for cut in cuts.values()), received, top, seq - 1, tuple(beyond))


def holders(cuts: dict[int, Cut]) -> dict[tuple[int, int], list[int]]:
    """Which members hold a block that is not received everywhere."""
    found: dict[tuple[int, int], list[int]] = {}
    for member in sorted(cuts):
        for origin, first, count in cuts[member].held:
            for number in range(first, first + count):
                found.setdefault((origin, number), []).append(member)
    return found


def orphans(cuts: dict[int, Cut], numbers: dict[int, int], gone: list[int]) -> list[tuple[int, int]]:
    """Blocks of senders that are gone, without holes from their next number on: the coordinator may submit them."""
    held = holders(cuts)
    found = []
    for origin in gone:
        number = numbers.get(origin, 0)
        while (origin, number) in held:
            found.append((origin, number))
            number += 1
    return found


def clip_assignments(assignments: list[Assignment], start: int, upto: int) -> tuple[Assignment, ...]:
    """Runs cut to (start, upto]."""
    found = []
    for seq, origin, number, count in assignments:
        first, stop = max(seq, start + 1), min(seq + count, upto + 1)
        if first < stop:
            found.append(Assignment(first, origin, number + first - seq, stop - first))
    return tuple(found)
