"""The rule of membership as pure functions: views, quorums, decided changes, proposals. One switch for each sentence.

Views form a chain. Each link is decided once, by the members of the view before it. A link is either a *change*, an
entry of the log of a ring (join, leave), or a *recovery*, which ends a ring and begins the next one by ballots (Paxos,
one instance for each ring).

Nodes are small integers, sets of nodes are bit masks, and everything else is a tuple. So a state hashes quickly, and
two states with the same facts are equal. What the members remember of each other is not modelled: a fact that was sent
stays, and a loss is a fact that nobody uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Final, NamedTuple

MESSAGE: Final = "m"
JOIN: Final = "j"
LEAVE: Final = "l"

View = tuple[int, ...]


class Entry(NamedTuple):
    """One entry of a log. `by` is the member that ordered it: only that member sends the first WELCOME."""

    kind: str
    node: int = -1
    by: int = -1

    @property
    def is_change(self) -> bool:
        return self.kind != MESSAGE


Log = tuple[Entry, ...]


class Proposal(NamedTuple):
    """How a ring ends: `log[:length]` is delivered, and the ring named by `ballot` begins with `members`."""

    ballot: int
    length: int
    members: View


class Promise(NamedTuple):
    """What one member shows when it promises a ballot: its log, the decisions that it knows, what it accepted last."""

    node: int
    held: int
    known: int
    accepted: int  # the ballot of the proposal that it accepted last, 0 for none


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: a state asks for its quorums very often
class Rules:
    """The sentences of the rule; a test turns off one at a time. The variants at the end are off by default."""

    # 1: quorums are made of the view alone
    min_members: int = 0  # 0: majority
    tie_needs_first: bool = True  # exactly half is enough with the first member only
    # 2: changes are decided one by one
    one_at_a_time: bool = True  # the next change is ordered when the last one is known to be decided
    decided_by_quorum: bool = True  # off: the member that orders a change takes it for decided
    # 3: nothing runs ahead of a decision
    hold_back: bool = True  # a view, and what stands behind it, waits until the view is known to be decided
    confirm_decided: bool = True  # and so do confirmations
    # 4: promises
    freeze: bool = True  # a member that has promised takes nothing more in that ring
    ballots_per_ring: bool = True  # off: a promise of the ring before binds in the next one as well
    # 5: promises of which quorums
    ask_before: bool = True  # of the view before a change that is not known to be decided
    ask_after: bool = True  # and of the view after it
    departed_do_not_count: bool = True
    # 6: the value
    repeat_accepted: bool = True  # the accepted proposal with the highest ballot is proposed again
    keep_ring_id: bool = True  # and it names the same ring
    longest_log: bool = True  # otherwise the longest log shown
    keep_change: bool = True  # with its last change, decided or not
    # 7: acceptance and commit
    accept_with_log: bool = True  # a member accepts when it holds the whole log of the proposal
    commit_by_old: bool = True  # the quorums of 5 have accepted
    commit_by_new: bool = True  # and a quorum of the new view
    # 8: leavers
    leaver_stays: bool = True  # until a quorum knows what it knows
    leaver_knows_last: bool = True  # of the last view that it knows to be decided, not of the one without it
    # 9: newcomers
    learner_first: bool = True  # a newcomer follows the log before its join is ordered
    cancelled_stays: bool = True  # a cancelled join stays until it is out again
    # 10: stragglers
    answer_old: bool = True  # a node that knows a committed view, an excluded one included, answers old members
    answer_leavers: bool = True  # a member that knows a decided view answers those that it does not list any more
    keep_log: bool = True  # and members keep the log of the ring before until all of its members have it
    # Variants, in place of what they name
    join_when_stable: bool = False  # V1, for learner_first: all members hold everything before a join is ordered
    stable_means_installed: bool = True  # and have come into the ring: a member left in the ring before does not count
    coordinator_first: bool = False  # V2: the coordinator is the first of the new view
    fresh_by_all: bool = False  # V3: a proposal that is made for the first time needs all of its members
    welcome_by_any: bool = False  # V4: any member that holds a join welcomes the newcomer, also while it is frozen
    rule_out_fresh: bool = False  # V5, with V2 and V3: a fresh proposal that cannot be committed any more does not bind
    leave_out: bool = False  # a coordinator may leave out survivors that promised

    def without(self, *names: str) -> Rules:
        """The same rules with these switches turned over."""
        return replace(self, **{name: not getattr(self, name) for name in names})


SWITCHES: Final = tuple(field.name for field in fields(Rules) if field.type == "bool" and field.default is True)
"""All switches; the variants, which are off by default, are not among them."""
ENGINES: Final = Rules(
    learner_first=False,
    join_when_stable=True,
    coordinator_first=True,
    fresh_by_all=True,
    welcome_by_any=True,
    rule_out_fresh=True,
)
"""The rule as the engines have it: with V1 to V5."""


# ---- sets of nodes


def mask_of(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


@cache
def nodes_of(mask: int) -> tuple[int, ...]:
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


@cache
def subsets(mask: int) -> tuple[int, ...]:
    """All subsets of a set, the empty one first."""
    found = [0]
    for node in nodes_of(mask):
        found += [each | 1 << node for each in found]
    return tuple(found)


# ---- views and quorums (rule 1)


@cache
def view_after(first: View, log: Log, length: int) -> View:
    """The view after `log[:length]` of a ring that began with `first`: newcomers are appended, the rest keep order."""
    view = first
    for entry in log[:length]:
        if entry.kind == JOIN:
            view = (*view, entry.node)
        elif entry.kind == LEAVE:
            view = tuple(node for node in view if node != entry.node)
    return view


@cache
def is_quorum(rules: Rules, view: View, present: int) -> bool:
    count = sum(present >> node & 1 for node in view)
    if rules.min_members:
        return count >= min(rules.min_members, len(view))
    if 2 * count == len(view):
        return not rules.tie_needs_first or not view or bool(present >> view[0] & 1)
    return 2 * count > len(view)


@cache
def changes(log: Log, length: int) -> tuple[int, ...]:
    """Where the changes of `log[:length]` stand."""
    return tuple(place for place in range(length) if log[place].is_change)


def next_change(log: Log, known: int, held: int) -> int:
    """The first change of `log[known:held]`; -1 if there is none."""
    for place in range(known, held):
        if log[place].is_change:
            return place
    return -1


# ---- changes without failure (rules 2 and 3)


def is_decided(rules: Rules, first: View, log: Log, place: int, holders: int) -> bool:
    """Whether the change at `place` is decided; `holders` have acknowledged it and everything before it."""
    if not rules.decided_by_quorum:
        return bool(holders)
    return is_quorum(rules, view_after(first, log, place), holders)


def deliverable(rules: Rules, log: Log, known: int, held: int) -> int:
    """How much of its log a member may deliver."""
    place = next_change(log, known, held) if rules.hold_back else -1
    return held if place < 0 else place


# ---- recovery (rules 5 to 7)


class Basis(NamedTuple):
    """What a coordinator reads from the promises: the longest log, and the views whose quorums it needs."""

    length: int
    needed: tuple[View, ...]
    is_proved: bool  # some promiser knows the last change of that log to be decided


def basis(rules: Rules, first: View, log: Log, promises: tuple[Promise, ...]) -> Basis:
    length = max(promise.held for promise in promises)
    places = changes(log, length)
    last = view_after(first, log, length)
    if not places or any(promise.known > places[-1] for promise in promises):
        return Basis(length, (last,), True)
    before = view_after(first, log, places[-1])
    asked = ((before,) if rules.ask_before else ()) + ((last,) if rules.ask_after else ())
    return Basis(length, asked, False)


def proposals(
    rules: Rules,
    first: View,
    log: Log,
    ballot: int,
    promises: tuple[Promise, ...],
    made: tuple[Proposal | None, ...],
) -> Iterator[tuple[Proposal, tuple[View, ...]]]:
    """What a coordinator may propose on these promises, each with the views whose quorums must accept it.

    `made` has the proposals of the ballots before. Several proposals are possible where the variants leave a choice.
    """
    if not promises:
        return
    found = basis(rules, first, log, promises)
    present = mask_of(promise.node for promise in promises)
    counted = present
    if not rules.departed_do_not_count:
        counted |= mask_of(entry.node for entry in log[: found.length] if entry.kind == LEAVE)
    if not all(is_quorum(rules, view, counted) for view in found.needed):
        return
    highest = max(promise.accepted for promise in promises)
    accepted = made[highest - 1] if highest and rules.repeat_accepted else None
    if accepted is not None and not (rules.rule_out_fresh and is_ruled_out(accepted, highest, promises)):
        yield (accepted if rules.keep_ring_id else accepted._replace(ballot=ballot)), found.needed
        return
    length, needed = found.length, found.needed
    if not rules.longest_log:
        length = min(promise.held for promise in promises)
    if not rules.keep_change and not found.is_proved:
        length, needed = changes(log, length)[-1], found.needed[:1]
    survivors = tuple(node for node in view_after(first, log, length) if present >> node & 1)
    for members in _member_lists(rules, survivors):
        yield Proposal(ballot, length, members), needed


def is_ruled_out(proposal: Proposal, ballot: int, promises: tuple[Promise, ...]) -> bool:
    """Whether these promises show that a proposal, made for the first time in this ballot, was not committed in it.

    Only its coordinator, the first member (V2), commits it, and only when all of its members have accepted it (V3). A
    coordinator that promises here has not done so and never will; nor will a member that has not accepted it.
    """
    if proposal.ballot != ballot:
        return False
    return any(
        promise.node == proposal.members[0] or (promise.node in proposal.members and promise.accepted != ballot)
        for promise in promises
    )


def _member_lists(rules: Rules, survivors: View) -> Iterator[View]:
    kept = mask_of(survivors)
    for mask in subsets(kept) if rules.leave_out else (kept,):
        members = tuple(node for node in survivors if mask >> node & 1)
        if rules.coordinator_first:
            for node in members:
                yield (node, *(other for other in members if other != node))
        elif members:
            yield members


def is_committed(rules: Rules, proposal: Proposal, ballot: int, needed: tuple[View, ...], accepted: int) -> bool:
    """Whether `accepted`, the members that accepted the proposal in this ballot, commit it."""
    if rules.commit_by_old and not all(is_quorum(rules, view, accepted) for view in needed):
        return False
    if rules.commit_by_new and not is_quorum(rules, proposal.members, accepted):
        return False
    if rules.fresh_by_all and proposal.ballot == ballot:
        return all(accepted >> node & 1 for node in proposal.members)
    return bool(accepted)
