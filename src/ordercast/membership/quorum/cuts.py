"""The decisions of a recovery, as pure functions: the agreed remainder, the quorum, the binding proposal, the commit.

docs/design/overview.md section 7: recovery orders nothing new. In Amoeba section 4.2 the coordinator fetches from the
member with the highest sequence number. Here blocks travel in segments and apart from their sequence numbers: one
survivor may know a sequence number and another hold its block, so the remainder is computed over all cuts.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ordercast.config import MinMembers, required_members
from ordercast.view import Reason, View, id_of
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut, Proposal


class Remainder(NamedTuple):
    """Sequence numbers up to and including `upto` are agreed; the member `top` has everything up to `received`."""

    start: int  # lowest "received" of all
    received: int  # highest "received" of all
    top: int  # the member that has it
    upto: int
    beyond: tuple[tuple[int, int, int], ...]  # (sequence number, origin, block number) above `received`


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


def may_go_on(
    rules: list[MinMembers], base: View, survivors: set[int], departed: set[int], change_is_known: bool
) -> bool:
    """Whether the survivors satisfy every rule in the base view and, if its change is uncertain, in the one before.

    In the view before, members in `departed` count as present: they have left for certain, or are known to know of the
    change, so they cannot be part of another quorum.
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


class QuorumVerdict(NamedTuple):
    """Whether the members that answered may make the next view."""

    may_go_on: bool
    is_only_part: bool  # the rules let no other part of the view go on
    found: int  # members of the view that answered


def judge(
    cuts: Mapping[int, Cut], base: View, rule: MinMembers, is_override: bool, departed: AbstractSet[int]
) -> QuorumVerdict:
    """The rule of `reset` alone, or every rule of the view: also of members that are gone (RMP section 4.4).

    A number given to `reset` is a promise to its caller: it is not lowered to the size of a smaller view. `base` is the
    view at the end of the remainder. A member that is known to know of its change will never be in a
    quorum of the view before it, nor will the one that made the change.
    """
    survivors = set(cuts)
    rules = [rule]
    if not is_override:
        rules += [cut.rule for cut in cuts.values()]
        rules += [member.min_members for member in base.members]
    is_known = any(cut.safe >= base.seq for cut in cuts.values()) or all(
        member.id in survivors for member in base.members
    )
    informed = [cut.departed for cut in cuts.values() if cut.view.seq == base.seq]
    gone = set(departed).union(*informed, [id_of(base.creator)])
    found = len([member for member in base.members if member.id in survivors])
    is_promised = not (is_override and isinstance(rule, int)) or found >= rule
    return QuorumVerdict(
        is_promised and may_go_on(rules, base, survivors, gone, is_known),
        keeps_others_out(rules, len(base.members)),
        found,
    )


def keeps_others_out(rules: list[MinMembers], members: int) -> bool:
    """Whether two parts of a view of so many members can never both go on: some rule asks for more than half."""
    return any(not required_members(rule, members, members // 2, False) for rule in rules)


def binding(cuts: dict[int, Cut]) -> Proposal | None:
    """The proposal that may have been committed already, and therefore has to be proposed again.

    Paxos: the accepted one with the highest ballot. Less strict where that is safe. A fresh proposal is committed first
    by its coordinator: if that one is here, still in the old ring, it is not committed. And it is committed only when
    all members of its view have accepted it: one of them here that did not, and now has promised more, rules it out.
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


def is_accepted(proposal: Proposal, answered: AbstractSet[int], acknowledged: AbstractSet[int]) -> bool:
    """Whether a proposal is committed: all members of its view have accepted it, or, where it is proposed again, all
    members that answered this round."""
    needed = {member.id for member in proposal.view.members} if proposal.fresh else answered
    return needed <= acknowledged


def clip_assignments(assignments: list[Assignment], start: int, upto: int) -> tuple[Assignment, ...]:
    """Runs cut to (start, upto]."""
    found = []
    for seq, origin, number, count in assignments:
        first, stop = max(seq, start + 1), min(seq + count, upto + 1)
        if first < stop:
            found.append(Assignment(first, origin, number + first - seq, stop - first))
    return tuple(found)
