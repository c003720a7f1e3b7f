"""The quorum rule: who decides the next view. docs/design/membership.md has the argument.

Views form a chain. Each link is decided once, by a quorum of the view before it:

- A change without a failure is an entry of the log. It is decided when a quorum of the view before it holds it and
  everything before it (`is_decided`). One change is decided before the next is ordered.
- After a failure the next view is decided by ballots. A proposal needs the promises of a quorum of the last view. Where
  no promise knows that the change which made that view is decided, it needs a quorum of the view before it as well
  (`needed`): with ties decided by the first member, quorums of consecutive views need not meet.
- A proposal that may have been committed is proposed again as it is (`binding`).
- A proposal is committed when quorums of the needed views and of its own view have accepted it (`is_committed`).

Everything here is a function of views and of what members said. Nobody that has departed, and nobody that is only
believed to know something, ever counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ordercast.config import MinMembers, required_members
from ordercast.view import View, id_of
from ordercast.wire.returns import Returned
from ordercast.wire.views import Cut, Proposal, ResetDemand


class Electorate(NamedTuple):
    """The members of one view in their order, and the rules of all of them."""

    members: tuple[int, ...]
    rules: tuple[MinMembers, ...]

    def is_quorum(self, present: AbstractSet[int]) -> bool:
        """Whether these members may act for the view: every member's rule is met (RMP section 4.4).

        It depends on the view alone. Others that are present do not count.
        """
        counted = [member for member in self.members if member in present]
        has_first = bool(counted) and counted[0] == self.members[0]
        return all(required_members(rule, len(self.members), len(counted), has_first) for rule in self.rules)


def electorate(view: View) -> Electorate:
    """The members of a view."""
    rules = dict.fromkeys(member.min_members for member in view.members)
    return Electorate(tuple(member.id for member in view.members), tuple(rules))


def electorate_before(view: View) -> Electorate:
    """The members of the view that a change was made of."""
    return Electorate(view.prior, tuple(dict.fromkeys(view.prior_rules)))


# Changes without a failure


def is_open(view: View) -> bool:
    """Whether the view was made by a change that has to be decided. The first view of a ring is decided already, and a
    change that changed nothing needs no decision."""
    return bool(view.prior)


def is_decided(view: View, holders: AbstractSet[int]) -> bool:
    """Whether the change that made a view is decided, if these members hold it and everything before it."""
    return not view.prior or electorate_before(view).is_quorum(holders)


def holders_known(view: View, me: int) -> set[int]:
    """The members that are known to hold a change when it is received: the one that ordered it, and the receiver."""
    return {id_of(view.creator), me}


def is_plain(view: View) -> bool:
    """Whether every member knows that the change is decided as soon as it receives it. Then nothing has to be said."""
    creator = id_of(view.creator)
    others = [member for member in {*view.prior, *(each.id for each in view.members)} if member != creator]
    return all(is_decided(view, {creator, member}) for member in others)


# After a failure


def needed(cuts: Mapping[int, Cut], base: View) -> list[Electorate]:
    """The views whose quorums have to promise and to accept. `base` is the view at the end of the longest log."""
    if not is_open(base) or any(cut.decided >= base.seq for cut in cuts.values()):
        return [electorate(base)]
    return [electorate(base), electorate_before(base)]


def are_quorums(electorates: Sequence[Electorate], present: AbstractSet[int]) -> bool:
    return all(each.is_quorum(present) for each in electorates)


def is_enough(rule: MinMembers, base: View, present: AbstractSet[int]) -> bool:
    """Whether a call of `reset` has what it asked for, where these members make the view after `base`.

    A number is a promise to its caller: it is not lowered to the size of a smaller view.
    """
    counted = [member.id for member in base.members if member.id in present]
    if isinstance(rule, int):
        return len(counted) >= rule
    return required_members(rule, len(base.members), len(counted), base.leader.id in present)


class Mandate(NamedTuple):
    """What lets the members that answered make the next view, out of a view of `size` members."""

    electorates: tuple[Electorate, ...]  # their quorums have to accept it
    rules: tuple[MinMembers, ...]  # by which they may go on
    is_by_reset: bool  # by the rule of a reset alone: all that answered have to accept it
    header: bytes  # that the view brings
    size: int


def mandate(cuts: Mapping[int, Cut], base: View, own: ResetDemand | None) -> Mandate | None:
    """Whether those that answered may make the view after `base`: they are quorums, or enough for a caller of `reset`.

    `own`: a reset coordinates, and its own demand comes first. Its minimum, or that of another caller, has to be met
    then, and is all that counts. A number says that so many are enough, whatever others do. A majority has to be one of
    every view that counts: otherwise two parts could both have it.
    """
    electorates, size = tuple(needed(cuts, base)), len(base.members)
    demands = ([own] if own is not None else []) + [demand for cut in cuts.values() for demand in cut.demands]
    met = next((demand for demand in demands if _is_met(demand.rule, base, electorates, cuts.keys())), None)
    header = met.header if met is not None else b""
    if own is None and are_quorums(electorates, cuts.keys()):
        return Mandate(electorates, electorate(base).rules, False, header, size)
    return Mandate((), (met.rule,), True, header, size) if met is not None else None


def _is_met(rule: MinMembers, base: View, electorates: Sequence[Electorate], present: AbstractSet[int]) -> bool:
    """Whether these members may make the view after `base` for a caller of `reset`."""
    if isinstance(rule, int):
        return is_enough(rule, base, present)
    return all(Electorate(each.members, (rule,)).is_quorum(present) for each in electorates)


def is_of_earlier_stay(member: int, view: View, last: View) -> bool:
    """Whether a vote of a member that has left by `view` is none in `last`: there it has come back. A node has the same
    id in both stays, and what it says for the first binds nobody in the second."""
    is_back = last.member(member) is not None or member in last.prior
    return view.seq < last.seq and view.member(member) is None and is_back


def binding(cuts: Mapping[int, Cut], lives: Iterable[Returned] = ()) -> Proposal | None:
    """The proposal that may have been committed already, and therefore has to be proposed again.

    Paxos: the accepted one with the highest ballot. A fresh proposal can be ruled out in two ways. Only its own
    coordinator commits it under its ballot: if that one promises here, it has not. And it is committed under that
    ballot only if all members of its view accept it: one that promises here and has not accepted it, never will.
    Nothing older can have been committed either, since a fresh proposal is made where nothing was binding. `lives`:
    those of these members that were restarted. A proposal may name any life of them, and they promise by the first.
    """
    first = {life: each.former for each in lives for life in each.formerly}
    accepted = [cut.accepted for cut in cuts.values() if cut.accepted is not None]
    if not accepted:
        return None
    last = max(accepted, key=lambda proposal: proposal.ballot)
    if last.fresh:
        if first.get(last.ballot.node, last.ballot.node) in cuts:
            return None
        for member in last.view.members:
            cut = cuts.get(first.get(member.id, member.id))
            if cut is not None and (cut.accepted is None or cut.accepted.ballot != last.ballot):
                return None
    return last


def is_committed(proposal: Proposal, electorates: Sequence[Electorate], accepted: AbstractSet[int]) -> bool:
    """Whether a proposal is decided: quorums of the needed views and of its own view have accepted it.

    A fresh one waits for all members of its view, so that all of them begin the new ring together.
    """
    if proposal.fresh and any(member.id not in accepted for member in proposal.view.members):
        return False
    return are_quorums([*electorates, electorate(proposal.view)], accepted)


# Members that were restarted


def vote_of(returned: Returned) -> Cut:
    """What a restarted member says as a voter: what it kept is as good as before, and of the log it has nothing."""
    view = returned.view
    decided = view.seq if returned.is_decided else max(view.seq - 1, 0)
    return Cut(0, decided, (), (), view, returned.next_block, returned.accepted)


def lacks_holders(
    electorates: Sequence[Electorate], base: View, votes: AbstractSet[int], holders: AbstractSet[int]
) -> bool:
    """Whether a member that is missing may hold what nobody here has: those with a log are no quorums by themselves,
    and not everybody is there. Where everybody is, nothing is lost that a living member holds."""
    is_whole = all(member.id in votes for member in base.members)
    return not is_whole and not are_quorums(electorates, holders)


# Leaving


def may_go(view: View, informed: AbstractSet[int]) -> bool:
    """Whether a member that has left may stop voting: a quorum of the view without it knows that the leave is decided,
    or has gone on to a later ring."""
    return electorate(view).is_quorum(informed)
