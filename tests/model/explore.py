"""Explorers of the model: every interleaving, the same in canonical order, and random walks.

**Canonical order.** Facts only grow, so the state that a run ends in does not depend on the order of steps that are
independent. Every run can be sorted without changing its last state:

1. Ring by ring. A step in a ring needs nothing of a later ring, and a node that has gone on to the next ring takes no
   more steps in the ring before. So all steps in ring r come before all steps in ring r+1.
2. Within a ring: first the steps without failure, then the recovery. A member that has promised takes nothing more
   (rule 4), and steps without failure of the others do not ask who has promised.
3. Within a recovery: ballot by ballot. A member accepts in ballot b only before it promises a higher one. So what a
   promise of ballot b+1 shows does not change if everything of ballot b comes first.
4. Within a ballot: promises, the proposal, acceptances. Only the promises that the coordinator uses matter, so those
   and the proposal are one step. So are all acceptances.
5. Nodes that go on to the next ring do that before the first of them does anything there.
6. The last ballot matters only by what it leaves behind. If it commits, it also does when all accept. If it does not,
   one acceptance shows its proposal to the next coordinator as well as several do, and leaves the log in fewer places.
   So in the last ballot one member accepts, or all do.
7. A member that has not gone on to the next ring is told by any node that has, and then stands there as a member that
   has taken no step. If all that went on are down, their steps in the next ring change nothing for the others. So it
   is enough to look at members left behind before the first step in the next ring. One node that went on is the worst
   case for them: what several could tell or hand out, one may have to. (Where somebody leaves, all sets are tried: a
   leaver waits for a quorum of them.)

`canonical_steps` walks only sorted runs, in steps of that size. After the first ballot all members count as frozen:
what a member without a promise may still take, it may also have taken before. While no ballot has been, each state is
judged twice: as it is, and with all of its members frozen. `tests/model/test_explore.py` compares both explorers, rule
by rule, where both are small enough.

**Crashes** and departures are no steps (`world.py`): in each state the judge asks for each set of nodes that may be
down.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from tests.model.judge import check_safety, must_go_on
from tests.model.quiet import comes_to_rest
from tests.model.rule import LEAVE, Log, Promise, Rules, View, mask_of, nodes_of, subsets
from tests.model.world import (
    ABSENT,
    Ballot,
    Limits,
    Ring,
    Step,
    Violation,
    World,
    can_commit,
    commit,
    commit_by_coordinator,
    departable,
    install,
    may_recover,
    new_world,
    normal_steps,
    possible_proposals,
    put,
    put_ballot,
    put_ring,
    steps,
)

Steps = Callable[[Rules, Limits, World], Iterator[Step]]


@dataclass(slots=True)
class Result:
    """What an exploration found. `failure` is empty if every state held."""

    states: int = 0
    transitions: int = 0
    judged: int = 0  # states with a set of nodes that are down, in which the group has to go on
    healed: int = 0  # different ones of them, as the living see them
    seconds: float = 0.0  # of one core
    is_complete: bool = True
    failure: str = ""
    path: list[str] = field(default_factory=list)
    ends: set[tuple[View, Log, View]] = field(default_factory=set)  # first view and log of a ring, next view

    def __str__(self) -> str:
        end = "complete" if self.is_complete else "cut off"
        text = f"{self.states} states, {self.transitions} transitions, {self.judged} times asked to go on"
        return f"{text} ({self.healed} different), {self.seconds:.1f} s, {end}: {self.failure or 'holds'}"


# ---- canonical order


def canonical_steps(rules: Rules, limits: Limits, world: World) -> Iterator[Step]:
    """The steps of the first ring that somebody is in, in canonical order and size."""
    index = 0
    ring = world.rings[index]
    gone_on = [node for node in world.nodes if world.at[node] > index]
    if gone_on and not (rules.rule_out_fresh and ring.committed is not None and gone_on == [ring.committed.members[0]]):
        return  # somebody has not gone on: see 7. (V5: a coordinator goes on at once, and then the others may recover.)
    ballot = 1 + max(ring.promised)
    if ballot == 1:
        yield from normal_steps(rules, limits, world, index)
    if ballot <= limits.ballots and may_recover(limits, world, index):
        yield from _whole_ballots(rules, world, index, ballot, is_last=ballot == limits.ballots)
    if ring.committed is not None:
        here = mask_of(node for node in world.nodes if world.at[node] == index and not world.out >> node & 1)
        has_leaver = any(entry.kind == LEAVE for entry in ring.log)
        for chosen in subsets(here)[1:] if has_leaver else _ones_and_all(here):
            moved = world
            for node in nodes_of(chosen):
                moved = install(rules, moved, index, node)
            yield f"{nodes_of(chosen)} install {ring.committed.members}", forget(moved) if chosen == here else moved


def forget(world: World) -> World:
    """The same world without the ring that all nodes have left."""
    at = tuple(index - 1 if index > 0 else ABSENT for index in world.at)
    return world._replace(rings=world.rings[1:], at=at, out=0, past=world.past + 1)


def _ones_and_all(mask: int) -> list[int]:
    return [*(1 << node for node in nodes_of(mask)), mask] if mask & mask - 1 else [mask]


def _whole_ballots(rules: Rules, world: World, index: int, ballot: int, is_last: bool) -> Iterator[Step]:
    """A ballot with the promises that its coordinator uses, its proposal, and each set of members that accept it."""
    ring = world.rings[index]
    voters = [node for node in world.nodes if world.at[node] == index and ring.is_inside(node)]
    shown = [Promise(node, ring.held[node], ring.known[node], ring.accepted[node]) for node in voters]
    found = {
        each
        for count in range(1, len(shown) + 1)
        for promises in combinations(shown, count)
        for each in possible_proposals(rules, ring, ballot, promises)
    }
    promised = tuple(ballot if node in voters else number for node, number in enumerate(ring.promised))
    for proposal, needed in found:
        for accepted in _ones_and_all(mask_of(voters)) if is_last else subsets(mask_of(voters)):
            text = f"ballot {ballot}: {proposal} accepted by {nodes_of(accepted)}"
            made = Ballot(proposal=proposal, needed=needed, accepted=accepted)
            begun = ring._replace(promised=promised, ballots=put_ballot(ring, ballot, made))
            after = put_ring(world, index, begun)
            if can_commit(rules, after, index, ballot):
                done = commit_by_coordinator(rules, after, index, ballot)
                yield f"{text}, and committed", put_ring(done, index, _tidied(rules, done.rings[index], ballot))
            yield text, put_ring(world, index, _tidied(rules, commit(rules, begun, ballot), ballot))


def _tidied(rules: Rules, ring: Ring, ballot: int) -> Ring:
    """What is left of a ballot: who accepted what last. Proposals that nobody holds any more are forgotten."""
    made = ring.ballots[ballot - 1]
    same = [
        number
        for number, each in enumerate(ring.ballots, 1)
        if each.proposal == made.proposal and number != ballot and not rules.rule_out_fresh
    ]
    last = tuple(
        ballot if made.accepted >> node & 1 or number in same else number for node, number in enumerate(ring.accepted)
    )
    ballots = tuple(
        Ballot(proposal=each.proposal) if number in last else Ballot() for number, each in enumerate(ring.ballots, 1)
    )
    return ring._replace(accepted=last, ballots=ballots)


# ---- the search


class Search:
    """Goes through all states, or through random runs, and judges each state."""

    __slots__ = ("_healed", "begin", "limits", "liveness", "result", "rules", "seconds")

    def __init__(self, rules: Rules, limits: Limits, *, liveness: bool = True, seconds: float = 1e9) -> None:
        self.rules = rules
        self.limits = limits
        self.liveness = liveness
        self.seconds = seconds
        self.result = Result()
        self.begin = time.process_time()
        self._healed: dict[tuple[object, ...], tuple[bool, int]] = {}

    def exhaust(self, successors: Steps) -> Result:
        """Depth first. Seen states are kept as 64-bit hashes: among ten million a mix-up has a chance of 3 in 10^6."""
        result = self.result
        world = new_world(self.limits)
        seen = {hash(world)}
        stack: list[tuple[World, tuple[str, object] | None]] = [(world, None)]
        path: tuple[str, object] | None = None
        try:
            while stack:
                world, path = stack.pop()
                result.states += 1
                self._judge(world)
                if time.process_time() - self.begin > self.seconds:
                    result.is_complete = False
                    break
                for text, after in successors(self.rules, self.limits, world):
                    result.transitions += 1
                    key = hash(after)
                    if key not in seen:
                        seen.add(key)
                        stack.append((after, (text, path)))
        except Violation as error:
            result.failure = str(error)
            result.path = _unroll(path)
        result.seconds = time.process_time() - self.begin
        result.healed = len(self._healed)
        return result

    def wander(self, runs: int, seed: int, length: int = 40) -> Result:
        """Random runs; the steps of one kind share their weight."""
        result = self.result
        for run in range(runs):
            if time.process_time() - self.begin > self.seconds:
                result.is_complete = False
                break
            chance = random.Random(f"{seed}/{run}")
            weights: dict[str, float] = {}
            world = new_world(self.limits)
            result.path = []
            try:
                for _ in range(chance.randint(length // 4, length)):
                    found: dict[str, list[Step]] = {}
                    for step in steps(self.rules, self.limits, world):
                        found.setdefault(step[0].split()[1], []).append(step)
                    if not found:
                        break
                    kinds = sorted(found)
                    for kind in kinds:
                        weights.setdefault(kind, chance.choice((0.2, 1.0, 4.0)))
                    kind = chance.choices(kinds, [weights[kind] for kind in kinds])[0]
                    text, world = chance.choice(found[kind])
                    result.path.append(text)
                    result.states += 1
                    check_safety(self.rules, world)
                self._judge(world)
            except Violation as error:
                result.failure = str(error)
                break
        result.seconds = time.process_time() - self.begin
        result.healed = len(self._healed)
        return result

    def _judge(self, world: World) -> None:
        check_safety(self.rules, world)
        for ring in world.rings:
            if ring.committed is not None:
                self.result.ends.add((ring.view, ring.log[: ring.committed.length], ring.committed.members))
        if self.liveness:
            for up, departed in self._lives(world):
                self._judge_liveness(world, up, departed)

    def _lives(self, world: World) -> Iterator[tuple[int, int]]:
        """Who may be up, and who may have departed: all sets within the limit of crashes."""
        everybody = (1 << len(world.at)) - 1
        for departed in subsets(departable(self.rules, self.limits, world)):
            left = everybody & ~departed
            for count in range(self.limits.crashes + 1):
                for crashed in combinations([node for node in nodes_of(left) if is_missed(world, node)], count):
                    yield left & ~mask_of(crashed), departed

    def _judge_liveness(self, world: World, up: int, departed: int) -> None:
        if not must_go_on(world, up, departed, self.rules.min_members):
            return
        self.result.judged += 1
        for each in (world, frozen(world, up)) if self._is_running(world, up) else (world,):
            key = living_key(each, up)
            found = self._healed.get(key)
            if found is None:
                found = self._healed[key] = comes_to_rest(self.rules, each, up)
            rests, rounds = found
            if not rests:
                raise Violation(f"stuck: up {nodes_of(up)}, departed {nodes_of(departed)}; {describe(each)}")
            if rounds and is_unharmed(each, up, departed):
                raise Violation(f"a needless recovery: departed {nodes_of(departed)}; {describe(each)}")

    def _is_running(self, world: World, up: int) -> bool:
        """Whether a member that is up and has come furthest has not promised."""
        index = max(world.at[node] for node in nodes_of(up))
        return any(world.at[node] == index and not world.rings[index].promised[node] for node in nodes_of(up))


def living_key(world: World, up: int) -> tuple[object, ...]:
    """What those that are up can tell of the world. Worlds with the same key come to rest in the same way."""
    nodes = nodes_of(up)
    found: list[object] = [up, world.out & up]
    for index, ring in enumerate(world.rings):
        here = [node for node in nodes if world.at[node] == index]
        if not here:
            continue  # nobody is left there
        length = max(ring.held[node] for node in here)
        number = {0: 0}  # only the order of ballots matters, and only of those whose proposal somebody holds
        for ballot in sorted({ring.accepted[node] for node in here} - {0}):
            made = ring.ballots[ballot - 1].proposal
            assert made is not None
            number[ballot] = len(number)
            length = max(length, made.length)
            found.append((made.length, made.members))
        is_over = any(world.at[node] > index or world.out >> node & 1 for node in nodes)
        if is_over and ring.committed is not None:
            length = max(length, ring.committed.length)
            found.append(ring.committed)
        found += (index, ring.view, ring.log[:length])
        found += [
            (node, ring.held[node], ring.known[node], ring.promised[node] > 0, number.get(ring.accepted[node], -1))
            for node in nodes
        ]
    return tuple(found)


def is_missed(world: World, node: int) -> bool:
    """Whether it makes a difference that the node is down: it is in the group, or some log names it."""
    return world.at[node] != ABSENT or any(node in ring.last_view for ring in world.rings)


def frozen(world: World, up: int) -> World:
    """The same world after each member that is up has promised a ballot that leads to nothing."""
    index = max(world.at[node] for node in nodes_of(up))
    ring = world.rings[index]
    promised = ring.promised
    for node in nodes_of(up):
        if world.at[node] == index and ring.is_inside(node):
            promised = put(promised, node, max(1, promised[node]))
    return put_ring(world, index, ring._replace(promised=promised))


def is_unharmed(world: World, up: int, departed: int) -> bool:
    """Nobody is down, and nobody has begun to recover."""
    everybody = (1 << len(world.at)) - 1
    return up | departed == everybody and len(world.rings) == 1 and not any(world.rings[0].promised)


def describe(world: World) -> str:
    return f"at {world.at}, out {nodes_of(world.out)}, rings {world.rings}"


def _unroll(path: tuple[str, object] | None) -> list[str]:
    texts: list[str] = []
    rest: object = path
    while isinstance(rest, tuple):
        text, rest = rest
        texts.append(str(text))
    return texts[::-1]


CANONICAL: Final[Steps] = canonical_steps
INTERLEAVED: Final[Steps] = steps
