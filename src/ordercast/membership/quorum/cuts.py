"""The pure decisions of a recovery: what the survivors can still agree on, who may go on, which proposal binds.

DESIGN section 7: recovery places nothing new. Amoeba section 4.2 has the coordinator fetch from whoever has the highest
sequence number; with segments and separate accepts one survivor may know a place and another hold its block, so the
remainder is computed over all cuts.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.config import MinMembers, required_members
from ordercast.view import Reason, View
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut, Proposal


class Remainder(NamedTuple):
    """Places up to and including `upto` are agreed; `top` says who has everything up to `received`."""

    start: int  # lowest "received" of all
    received: int  # highest "received" of all
    top: int  # the member that has it
    upto: int
    beyond: tuple[tuple[int, int, int], ...]  # (place, origin, number) above `received`


def agree(cuts: dict[int, Cut]) -> Remainder:
    """The longest run of places that some survivor can place and some survivor holds."""
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
    """Who holds which blocks that are not received everywhere."""
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


def may_go_on(
    rules: list[MinMembers], base: View, survivors: set[int], departed: set[int], change_is_known: bool
) -> bool:
    """Whether the survivors satisfy every rule in the base view and, if its change is uncertain, in the one before.

    There who has `departed` for certain, or is known to know of the change, counts as present: it cannot be part of
    another quorum.
    """
    lists = [[member.id for member in base.members]]
    if not change_is_known and base.prior:
        lists.append(list(base.prior))
        if base.reason == Reason.LEAVE and base.member(base.prior[0]) is None:
            # The leader ordered its own leave: it knows, and will never be part of another quorum of that view.
            departed = departed | {base.prior[0]}
    for members in lists:
        counted = survivors if members is lists[0] else survivors | departed
        present = [member for member in members if member in counted]
        for rule in rules:
            if not required_members(rule, len(members), len(present), members[0] in counted):
                return False
    return True


def keeps_others_out(rules: list[MinMembers], members: int) -> bool:
    """Whether two parts of a view of so many members can never both go on: some rule asks for more than half."""
    return any(not required_members(rule, members, members // 2, False) for rule in rules)


def binding(cuts: dict[int, Cut]) -> Proposal | None:
    """The proposal that somebody may have committed already, and that therefore has to be proposed again.

    Paxos: the accepted one with the highest ballot. Less strict where that is safe. A fresh proposal is committed first
    by who made it: if that one is here, still in the old ring, nobody has. And only when all members of its view have
    accepted it: one of them here that did not, and now has promised more, rules it out.
    """
    accepted = [cut.accepted for cut in cuts.values() if cut.accepted is not None]
    if not accepted:
        return None
    last = max(accepted, key=lambda proposal: proposal.ballot)
    if last.fresh:
        if last.ballot.node in cuts:
            return None
        for member in last.view.members:
            cut = cuts.get(member.id)
            if cut is not None and (cut.accepted is None or cut.accepted.ballot != last.ballot):
                return None
    return last


def clip_assignments(assignments: list[Assignment], start: int, upto: int) -> tuple[Assignment, ...]:
    """Runs cut to (start, upto]."""
    found = []
    for seq, origin, number, count in assignments:
        first, stop = max(seq, start + 1), min(seq + count, upto + 1)
        if first < stop:
            found.append(Assignment(first, origin, number + first - seq, stop - first))
    return tuple(found)
