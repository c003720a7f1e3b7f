"""The judges of the model. They see lives: what nodes were given, which of them are up, what all of them hold.

`check_safety` looks at one state. Everything it asks is about facts that stay, so a violation never heals. It uses the
quorums and decisions of the rule.

`must_go_on` says in which states a quiet network must let the group come to rest. It calls no function of the rule: it
walks the logs and counts by itself. Of recoveries it sees what nodes hold, the proposals that they accepted last and
the view that they were told; `is_at_rest` also sees whether a node is frozen. What it asks for is sufficient, not
exact: where it asks for nothing, some part may still be able to go on. It asks for members to go on when those
that are up, with those that were allowed to depart, are enough of every view that may be the last one. These are the
latest view that one of these nodes was shown, and every later view that any node holds, a dead one included. The living
cannot be asked to know a view that only the dead know, but they may not overrule it: they have to be enough of both.
A node that was allowed to depart may never be missed: it counts as present, and what it knew may not be lost.
"""

from __future__ import annotations

from tests.model.rule import JOIN, LEAVE, MESSAGE, Rules, View, changes, is_decided, is_quorum
from tests.model.world import ABSENT, Ring, Violation, World, delivered

# ---- safety


def check_safety(rules: Rules, world: World) -> None:
    """Raise Violation if the chain has forked, or if something that was promised to an application is lost."""
    for ring in world.rings:
        if ring.committed is not None:
            _check_end(rules, ring)


def _check_end(rules: Rules, ring: Ring) -> None:
    end = ring.committed
    assert end is not None
    may_split = 0 < 2 * rules.min_members <= len(ring.last_view)  # two parts may go on by choice
    beyond = [place for place in changes(ring.log, len(ring.log)) if place >= end.length]
    for node, held in enumerate(ring.held):
        if held == ABSENT:
            continue
        given = delivered(rules, ring, node)
        if node in end.members and given > end.length:
            raise Violation(f"{node} goes on, but delivered more than its ring had at its end")
        if not may_split and any(place < given for place in beyond) and _was_shown(rules, ring, node, beyond):
            raise Violation(f"{node} was shown a view that is not in the chain")
    if may_split:
        return
    for place in beyond:
        if is_decided(rules, ring.view, ring.log, place, ring.holders(place + 1)):
            raise Violation(f"the change at {place} was decided, and is not in the chain")
    for length in range(end.length + 1, len(ring.log) + 1):
        if ring.log[length - 1].kind == MESSAGE and _is_confirmed(rules, ring, length):
            raise Violation(f"the entry at {length - 1} was confirmed, and is lost")


def _was_shown(rules: Rules, ring: Ring, node: int, beyond: list[int]) -> bool:
    view_places = [place for place in beyond if place < delivered(rules, ring, node)]
    return any(node in ring.view_at(place + 1) for place in view_places)


def _is_confirmed(rules: Rules, ring: Ring, length: int) -> bool:
    """Whether a sender of a MAJORITY message may have been told that `log[:length]` is there to stay."""
    if rules.confirm_decided:
        for place in changes(ring.log, length):
            if not is_decided(rules, ring.view, ring.log, place, ring.holders(place + 1)):
                return False
    return is_quorum(rules, ring.view_at(length), ring.holders(length))


# ---- liveness


def must_go_on(world: World, up: int, departed: int, min_members: int = 0) -> bool:
    """Whether some part of the group may go on, and therefore has to."""
    present = up | departed
    shown = [_last_shown(world, node) for node in world.nodes if present >> node & 1]
    floor = max(shown, default=(ABSENT, 0))
    if floor[0] == ABSENT or not any(world.at[node] != ABSENT for node in world.nodes if up >> node & 1):
        return False
    return all(_enough(view, present, min_members) for view in _possible_views(world, floor))


def _last_shown(world: World, node: int) -> tuple[int, int]:
    """The latest view that the node knows to be one of the chain, as (ring, length of the log)."""
    index = world.at[node]
    if index == ABSENT or not _is_member(world.rings[index], node):
        return ABSENT, 0
    if world.out >> node & 1:
        return index + 1, 0
    return index, world.rings[index].known[node]


def _is_member(ring: Ring, node: int) -> bool:
    if node in ring.view:
        return True
    return any(entry.kind == JOIN and entry.node == node for entry in ring.log[: max(ring.held[node], 0)])


def _possible_views(world: World, floor: tuple[int, int]) -> list[View]:
    """The view at `floor`, and every later one that any node holds: in a log, or as a proposal that it accepted."""
    found: list[View] = []
    for index, ring in enumerate(world.rings):
        view = ring.view
        if (index, 0) >= floor:
            found.append(view)
        longest = max(ring.held)
        for place, entry in enumerate(ring.log[:longest]):
            if entry.kind == JOIN:
                view = (*view, entry.node)
            elif entry.kind == LEAVE:
                view = tuple(node for node in view if node != entry.node)
            if (index, place + 1) >= floor:
                found.append(view)
        if index >= floor[0]:
            held = [ring.ballots[ballot - 1].proposal for ballot in ring.accepted if ballot]
            found += [proposal.members for proposal in held if proposal is not None]
        elif index + 1 == floor[0] == len(world.rings) and ring.committed is not None:
            found.append(ring.committed.members)  # only excluded nodes have been shown it so far
    return found


def _enough(view: View, present: int, min_members: int) -> bool:
    there = [node for node in view if present >> node & 1]
    missing = len(view) - len(there)
    if min_members:
        return missing == 0 or len(there) >= min_members
    return len(there) > missing or (len(there) == missing and view[0] in there)


def is_at_rest(world: World, up: int) -> bool:
    """Whether every node that is up is in one view of exactly these, works and has everything, or knows it is out."""
    inside = [node for node in world.nodes if up >> node & 1 and _is_waiting_or_in(world, node)]
    if not inside:
        return True
    index = max(world.at[node] for node in inside)
    ring = world.rings[index]
    end = len(ring.log)
    for node in inside:
        if world.at[node] != index or ring.held[node] < end or ring.promised[node]:
            return False
        if any(ring.log[place].kind != MESSAGE for place in range(ring.known[node], end)):
            return False
    members = list(ring.view)
    for entry in ring.log:
        if entry.kind == JOIN:
            members.append(entry.node)
        elif entry.kind == LEAVE:
            members.remove(entry.node)
    return sorted(members) == sorted(inside)


def _is_waiting_or_in(world: World, node: int) -> bool:
    """Whether the node is a member as far as it knows: not out, and not past its own leave."""
    index = world.at[node]
    if index == ABSENT or world.out >> node & 1 or not _is_member(world.rings[index], node):
        return False
    ring = world.rings[index]
    return not any(
        entry.kind == LEAVE and entry.node == node and place < ring.known[node] for place, entry in enumerate(ring.log)
    )
