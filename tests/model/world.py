"""The world of the model: nodes, rings and facts, and every step that a node may take.

A world is a value. It has the facts that were ever made: what each node holds of each log, what it knows to be decided,
what it promised, proposed and accepted. A message is such a fact: it may be used late, by some, or by nobody. So the
network needs no state, and cuts, losses and delays need no step.

Neither do crashes and departures. A node that has stopped is a node that takes no more steps, and the steps of the
others do not depend on that. So each state stands for all states in which some of the nodes have stopped in it, and
the judge of liveness (`judge.py`) asks for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from tests.model.rule import (
    JOIN,
    LEAVE,
    MESSAGE,
    Entry,
    Log,
    Promise,
    Proposal,
    Rules,
    View,
    deliverable,
    is_committed,
    is_decided,
    is_quorum,
    mask_of,
    next_change,
    proposals,
    view_after,
)

ABSENT: Final = -1  # of a log that a node has nothing of, and of a ring that it is not in


class Ballot(NamedTuple):
    """One ballot of one ring. Promises are dropped when the proposal is made: no step reads them afterwards."""

    promises: tuple[Promise, ...] = ()
    proposal: Proposal | None = None
    needed: tuple[View, ...] = ()  # the views whose quorums must accept
    accepted: int = 0  # by these nodes


class Ring(NamedTuple):
    """A chain of views without failure, and the ballots that end it. The tuples have a value for each node."""

    view: View  # the first one
    log: Log
    held: tuple[int, ...]
    known: tuple[int, ...]  # the changes of log[:known] are known to be decided
    promised: tuple[int, ...]  # the highest ballot
    accepted: tuple[int, ...]  # the highest ballot whose proposal it accepted
    ballots: tuple[Ballot, ...]
    committed: Proposal | None  # a second one is a violation, so there is room for one

    @property
    def last_view(self) -> View:
        return view_after(self.view, self.log, len(self.log))

    def view_at(self, length: int) -> View:
        return view_after(self.view, self.log, length)

    def holders(self, length: int) -> int:
        """The nodes that acknowledged `log[:length]` while they had not promised."""
        return mask_of(node for node, held in enumerate(self.held) if held >= length)

    def joined_at(self, node: int) -> int:
        """Where the log has the node's join; ABSENT if it was there from the beginning, or never came."""
        for place, entry in enumerate(self.log):
            if entry.kind == JOIN and entry.node == node:
                return place
        return ABSENT

    def left_at(self, node: int) -> int:
        for place, entry in enumerate(self.log):
            if entry.kind == LEAVE and entry.node == node:
                return place
        return ABSENT

    def is_inside(self, node: int) -> bool:
        """Whether the node has a vote in this ring: it was there from the beginning, or holds its own join."""
        return node in self.view or -1 < self.joined_at(node) < self.held[node]


class World(NamedTuple):
    """The chain of rings, and where each node is in it."""

    rings: tuple[Ring, ...]
    at: tuple[int, ...]  # the last ring that the node came into, or ABSENT
    out: int  # nodes that know a committed view without them
    # how much has happened
    past: int = 0  # rings that all nodes have left, and that no step reads any more
    views: int = 1
    messages: int = 0
    leaves: int = 0

    @property
    def nodes(self) -> range:
        return range(len(self.at))


class Limits(NamedTuple):
    """How much may happen in a run."""

    members: int = 3
    joiners: int = 1
    messages: int = 1
    leaves: int = 0
    ballots: int = 2  # in each ring
    rings: int = 2
    views: int = 9  # changes and recoveries together, the first view included
    cancelled: int = 0  # joiners that wanted to withdraw from the beginning; their leaves are not counted
    crashes: int = 1


class Violation(Exception):
    """What the rule is there to prevent has happened."""


def put(values: tuple[int, ...], node: int, value: int) -> tuple[int, ...]:
    return (*values[:node], value, *values[node + 1 :])


def new_ring(view: View, size: int, ballots: int) -> Ring:
    inside = tuple(0 if node in view else ABSENT for node in range(size))
    nothing = (0,) * size
    return Ring(view, (), inside, nothing, nothing, nothing, (Ballot(),) * ballots, None)


def new_world(limits: Limits) -> World:
    size = limits.members + limits.joiners
    at = tuple(0 if node < limits.members else ABSENT for node in range(size))
    return World((new_ring(tuple(range(limits.members)), size, limits.ballots),), at, 0)


def put_ring(world: World, index: int, ring: Ring) -> World:
    return world._replace(rings=(*world.rings[:index], ring, *world.rings[index + 1 :]))


# ---- steps without failure

Step = tuple[str, World]


def normal_steps(rules: Rules, limits: Limits, world: World, index: int) -> Iterator[Step]:
    """What members of a ring may do while it works: order, take, learn that a change is decided."""
    ring = world.rings[index]
    for node in world.nodes:
        if world.at[node] != index:
            if can_be_welcomed(world, index, node):
                yield f"{node} is welcomed", welcome(rules, world, index, node)
            elif can_learn(rules, limits, world, index, node):
                yield f"{node} follows the log", follow(world, index, node)
            continue
        if (ring.promised[node] and rules.freeze) or world.out >> node & 1:
            continue
        held = ring.held[node]
        if held < len(ring.log):
            yield f"{node} takes {held}", put_ring(world, index, ring._replace(held=put(ring.held, node, held + 1)))
        place = next_change(ring.log, ring.known[node], held)
        if place >= 0 and is_decided(rules, ring.view, ring.log, place, ring.holders(place + 1)):
            learned = ring._replace(known=put(ring.known, node, place + 1))
            yield f"{node} knows {place} decided", put_ring(world, index, learned)
        for entry in orderable(rules, limits, world, index, node):
            text = f"{node} orders {entry.kind}{entry.node if entry.is_change else ''}"
            yield text, order(world, limits, index, node, entry)


def orderable(rules: Rules, limits: Limits, world: World, index: int, node: int) -> Iterator[Entry]:
    """What a member may append: it holds the whole log, as the token site or the sequencer does."""
    ring = world.rings[index]
    end = len(ring.log)
    view = ring.last_view
    if ring.held[node] != end or node not in view:
        return
    if world.messages < limits.messages:
        yield Entry(MESSAGE)
    place = next_change(ring.log, ring.known[node], end)
    if (place >= 0 and rules.one_at_a_time) or world.views >= limits.views:
        return
    for other in world.nodes:
        if other in view:
            if len(view) > 1 and (world.leaves < limits.leaves or limits.cancelled >> other & 1):
                yield Entry(LEAVE, other)
        elif other >= limits.members and ring.joined_at(other) == ABSENT and other not in ring.view:
            if rules.learner_first and not (world.at[other] == index and ring.held[other] >= 0):
                continue
            if rules.join_when_stable and not _is_stable(rules, world, index, view):
                continue
            yield Entry(JOIN, other, ABSENT if rules.welcome_by_any else node)


def _is_stable(rules: Rules, world: World, index: int, view: View) -> bool:
    """Whether all members of the view are known to hold the whole log of this ring, and to be in this ring."""
    ring = world.rings[index]
    if any(ring.held[member] < len(ring.log) for member in view):
        return False
    return not rules.stable_means_installed or all(world.at[member] == index for member in view)


def order(world: World, limits: Limits, index: int, node: int, entry: Entry) -> World:
    ring = world.rings[index]
    longer = ring._replace(log=(*ring.log, entry), held=put(ring.held, node, len(ring.log) + 1))
    is_counted = entry.kind == LEAVE and not limits.cancelled >> entry.node & 1
    return put_ring(world, index, longer)._replace(
        views=world.views + entry.is_change,
        messages=world.messages + (entry.kind == MESSAGE),
        leaves=world.leaves + is_counted,
    )


def can_be_welcomed(world: World, index: int, node: int) -> bool:
    """A newcomer without a log of this ring, whose join is ordered."""
    ring = world.rings[index]
    return ring.joined_at(node) > ABSENT and ring.held[node] == ABSENT and world.at[node] < index


def welcome(rules: Rules, world: World, index: int, node: int) -> World:
    """The newcomer's log begins with its join. All changes before it are decided, as rule 2 wants."""
    ring = world.rings[index]
    place = ring.joined_at(node)
    known = place if rules.one_at_a_time else 0
    ring = ring._replace(held=put(ring.held, node, place + 1), known=put(ring.known, node, known))
    return put_ring(world, index, ring)._replace(at=put(world.at, node, index), out=world.out & ~(1 << node))


def can_learn(rules: Rules, limits: Limits, world: World, index: int, node: int) -> bool:
    if not rules.learner_first or node < limits.members:
        return False
    return world.rings[index].held[node] == ABSENT and world.at[node] < index


def follow(world: World, index: int, node: int) -> World:
    """A learner begins with everything there is; what comes later it takes as members do."""
    ring = world.rings[index]
    ring = ring._replace(held=put(ring.held, node, 0))
    return put_ring(world, index, ring)._replace(at=put(world.at, node, index), out=world.out & ~(1 << node))


# ---- steps of a recovery


def can_promise(world: World, index: int, node: int, ballot: int) -> bool:
    ring = world.rings[index]
    if world.at[node] != index or world.out >> node & 1:
        return False
    return ring.promised[node] < ballot and ring.is_inside(node)


def promise(world: World, index: int, node: int, ballot: int) -> World:
    ring = world.rings[index]
    shown = Promise(node, ring.held[node], ring.known[node], ring.accepted[node])
    made = ring.ballots[ballot - 1]
    if made.proposal is None:
        made = made._replace(promises=tuple(sorted((*made.promises, shown))))
    ring = ring._replace(promised=put(ring.promised, node, ballot), ballots=put_ballot(ring, ballot, made))
    return put_ring(world, index, ring)


def put_ballot(ring: Ring, ballot: int, made: Ballot) -> tuple[Ballot, ...]:
    return (*ring.ballots[: ballot - 1], made, *ring.ballots[ballot:])


def possible_proposals(
    rules: Rules, ring: Ring, ballot: int, promises: tuple[Promise, ...]
) -> Iterator[tuple[Proposal, tuple[View, ...]]]:
    made = tuple(each.proposal for each in ring.ballots)
    return proposals(rules, ring.view, ring.log, ballot, promises, made)


def propose(world: World, index: int, ballot: int, proposal: Proposal, needed: tuple[View, ...]) -> World:
    ring = world.rings[index]
    return put_ring(world, index, ring._replace(ballots=put_ballot(ring, ballot, Ballot((), proposal, needed, 0))))


def can_accept(world: World, index: int, node: int, ballot: int) -> bool:
    ring = world.rings[index]
    if world.at[node] != index or world.out >> node & 1 or not ring.is_inside(node):
        return False
    return ring.promised[node] <= ballot and not ring.ballots[ballot - 1].accepted >> node & 1


def accept(rules: Rules, world: World, index: int, node: int, ballot: int) -> World:
    ring = world.rings[index]
    made = ring.ballots[ballot - 1]
    made = made._replace(accepted=made.accepted | 1 << node)
    ring = ring._replace(
        promised=put(ring.promised, node, max(ballot, ring.promised[node])),
        accepted=put(ring.accepted, node, ballot),
        ballots=put_ballot(ring, ballot, made),
    )
    return put_ring(world, index, commit(rules, ring, ballot))


def commit(rules: Rules, ring: Ring, ballot: int) -> Ring:
    """Notice that a proposal has been accepted by enough members. With V5 a fresh one waits for its coordinator."""
    made = ring.ballots[ballot - 1]
    assert made.proposal is not None
    if rules.rule_out_fresh and made.proposal.ballot == ballot:
        return ring
    if not is_committed(rules, made.proposal, ballot, made.needed, made.accepted):
        return ring
    if ring.committed not in (None, made.proposal):
        raise Violation(f"two successors of view {ring.view}: {ring.committed} and {made.proposal}")
    return ring._replace(committed=made.proposal)


def can_commit(rules: Rules, world: World, index: int, ballot: int) -> bool:
    """V5: whether the coordinator of a fresh proposal is still there, and sees that all members accepted it."""
    ring = world.rings[index]
    made = ring.ballots[ballot - 1]
    if not rules.rule_out_fresh or made.proposal is None or made.proposal.ballot != ballot:
        return False
    first = made.proposal.members[0]
    if world.at[first] != index or world.out >> first & 1 or ring.promised[first] > ballot:
        return False
    return is_committed(rules, made.proposal, ballot, made.needed, made.accepted)


def commit_by_coordinator(rules: Rules, world: World, index: int, ballot: int) -> World:
    ring = world.rings[index]
    end = ring.ballots[ballot - 1].proposal
    assert end is not None
    if ring.committed not in (None, end):
        raise Violation(f"two successors of view {ring.view}: {ring.committed} and {end}")
    return install(rules, put_ring(world, index, ring._replace(committed=end)), index, end.members[0])


def install(rules: Rules, world: World, index: int, node: int) -> World:
    """A node learns how its ring has ended: it goes on in the next ring, or it is out."""
    ring = world.rings[index]
    end = ring.committed
    assert end is not None
    if node not in end.members:
        return world._replace(out=world.out | 1 << node)
    rings = world.rings
    if len(rings) == index + 1:
        rings = (*rings, new_ring(end.members, len(world.at), len(ring.ballots)))
    views = world.views + (len(rings) > len(world.rings))
    world = world._replace(rings=rings, at=put(world.at, node, index + 1), views=views)
    if rules.ballots_per_ring:
        return world
    begun = rings[index + 1]
    return put_ring(world, index + 1, begun._replace(promised=put(begun.promised, node, ring.promised[node])))


def may_recover(limits: Limits, world: World, index: int) -> bool:
    return world.past + index + 1 < limits.rings and world.views < limits.views


def recovery_steps(rules: Rules, limits: Limits, world: World, index: int) -> Iterator[Step]:
    ring = world.rings[index]
    if may_recover(limits, world, index):
        for ballot, made in enumerate(ring.ballots, 1):
            for node in world.nodes:
                if can_promise(world, index, node, ballot):
                    yield f"{node} promises {ballot}", promise(world, index, node, ballot)
            if made.proposal is None:
                for proposal, needed in _all_proposals(rules, ring, ballot, made):
                    yield f"somebody proposes {proposal} in {ballot}", propose(world, index, ballot, proposal, needed)
                continue
            if can_commit(rules, world, index, ballot):
                yield f"{made.proposal.members[0]} commits {ballot}", commit_by_coordinator(rules, world, index, ballot)
            for node in world.nodes:
                if can_accept(world, index, node, ballot):
                    yield f"{node} accepts {ballot}", accept(rules, world, index, node, ballot)
    if ring.committed is not None:
        for node in world.nodes:
            if world.at[node] == index and not world.out >> node & 1:
                yield f"{node} installs {ring.committed.members}", install(rules, world, index, node)


def _all_proposals(rules: Rules, ring: Ring, ballot: int, made: Ballot) -> set[tuple[Proposal, tuple[View, ...]]]:
    """The proposals of all sets of promises that have arrived."""
    found: set[tuple[Proposal, tuple[View, ...]]] = set()
    for count in range(1, len(made.promises) + 1):
        for promises in combinations(made.promises, count):
            found.update(possible_proposals(rules, ring, ballot, promises))
    return found


def steps(rules: Rules, limits: Limits, world: World) -> Iterator[Step]:
    """Every step of every node."""
    for index in range(len(world.rings)):
        yield from normal_steps(rules, limits, world, index)
        yield from recovery_steps(rules, limits, world, index)


# ---- what each node has been given


def delivered(rules: Rules, ring: Ring, node: int) -> int:
    return deliverable(rules, ring.log, ring.known[node], ring.held[node])


def departable(rules: Rules, limits: Limits, world: World) -> int:
    """The nodes that may stop without anybody's missing them: leavers (rule 8), cancelled joins (rule 9)."""
    return mask_of(node for node in world.nodes if _may_depart(rules, limits, world, node))


def _may_depart(rules: Rules, limits: Limits, world: World, node: int) -> bool:
    """A leaver waits for a quorum of the last view that it knows to be decided to know that, or a later ring."""
    index = world.at[node]
    if index == ABSENT:
        return not rules.cancelled_stays and bool(limits.cancelled >> node & 1)
    ring = world.rings[index]
    if world.out >> node & 1:
        if node >= limits.members:
            return False  # it has asked to join, and may be named again until it withdraws
        assert ring.committed is not None
        last, known = ring.committed.members, len(ring.log) + 1
    elif -1 < (place := ring.left_at(node)) < ring.known[node]:
        known = ring.known[node] if rules.leaver_knows_last else place + 1
        last = ring.view_at(known)
    else:
        return not rules.cancelled_stays and bool(limits.cancelled >> node & 1) and not ring.is_inside(node)
    informed = mask_of(
        other for other in last if world.at[other] > index or (world.at[other] == index and ring.known[other] >= known)
    )
    return not rules.leaver_stays or is_quorum(rules, last, informed)
