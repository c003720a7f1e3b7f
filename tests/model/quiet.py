"""What the rule does on a quiet network: nodes that are down stay down, everything that is sent arrives.

The dead take with them whatever the living do not hold. Then the living do everything but begin something new, and
where that is not enough they recover, ballot after ballot. `comes_to_rest` says whether the group gets there.
"""

from __future__ import annotations

from typing import Final

from tests.model.judge import is_at_rest
from tests.model.rule import Promise, Proposal, Rules, is_committed, is_decided, mask_of, next_change, nodes_of
from tests.model.world import (
    ABSENT,
    Ballot,
    Ring,
    Violation,
    World,
    can_be_welcomed,
    install,
    possible_proposals,
    put,
    put_ballot,
    put_ring,
    welcome,
)

MAX_ROUNDS: Final = 12


def comes_to_rest(rules: Rules, world: World, up: int) -> tuple[bool, int]:
    """Whether the nodes that are up come to rest, and how many recoveries that takes."""
    quiet = Quiet(rules, world, up)
    return quiet.run()


def living_part(rules: Rules, world: World, up: int) -> World:
    """The same world without what only the dead hold."""
    rings = []
    last = max((world.at[node] + (world.out >> node & 1) for node in nodes_of(up)), default=ABSENT)
    for index, ring in enumerate(world.rings[: last + 1]):
        is_over = any(world.at[node] + (world.out >> node & 1) > index for node in nodes_of(up))
        length = max((_available(rules, world, index, node) for node in nodes_of(up)), default=0)
        rings.append(
            ring._replace(
                log=ring.log[: max(length, 0)],
                held=tuple(held if up >> node & 1 else ABSENT for node, held in enumerate(ring.held)),
                known=_of_living(ring.known, up),
                promised=_of_living(ring.promised, up),
                accepted=_of_living(ring.accepted, up),
                ballots=_shown(ring, up),
                committed=ring.committed if is_over else None,
            )
        )
    at = tuple(index if up >> node & 1 else ABSENT for node, index in enumerate(world.at))
    return World(tuple(rings), at, world.out & up)


def _of_living(values: tuple[int, ...], up: int) -> tuple[int, ...]:
    return tuple(value if up >> node & 1 else 0 for node, value in enumerate(values))


def _shown(ring: Ring, up: int) -> tuple[Ballot, ...]:
    """A proposal is known to the living where it is the last one that one of them accepted."""
    held = {ring.accepted[node] for node in nodes_of(up)}
    return tuple(
        Ballot(proposal=each.proposal) if number in held else Ballot() for number, each in enumerate(ring.ballots, 1)
    )


def _available(rules: Rules, world: World, index: int, node: int) -> int:
    """How much of a ring's log the node has, counted from the beginning of the ring."""
    ring = world.rings[index]
    if world.out >> node & 1:
        return ABSENT  # a node that is out answers with the view, but need not keep the log
    if world.at[node] > index:
        if not rules.keep_log:
            return ABSENT
        end = ring.committed
        assert end is not None
        if node not in end.members and not rules.learner_first:
            return ABSENT  # a newcomer of a later ring
        return max(ring.held[node], end.length)
    length = ring.held[node]
    if rules.accept_with_log and ring.accepted[node]:
        made = ring.ballots[ring.accepted[node] - 1].proposal
        assert made is not None
        length = max(length, made.length)
    return length


class Quiet:
    """One run. The world changes step by step until it rests or nothing moves any more."""

    __slots__ = ("ends", "rules", "up", "world")

    def __init__(self, rules: Rules, world: World, up: int) -> None:
        self.rules = rules
        self.up = up
        self.ends: list[Proposal | None] = [ring.committed for ring in world.rings]
        self.world = living_part(rules, world, up)

    def run(self) -> tuple[bool, int]:
        for rounds in range(MAX_ROUNDS):
            while self._one_pass():
                pass
            if is_at_rest(self.world, self.up & ~self._answered()):
                return True, rounds
            if not any(self._recover(index) for index in reversed(range(len(self.world.rings)))):
                return False, rounds
        return False, MAX_ROUNDS

    # ---- without failure

    def _one_pass(self) -> bool:
        """Let each node do what it can; whether anything changed."""
        before = self.world
        for index in range(len(before.rings)):
            for node in nodes_of(self.up):
                if self.world.at[node] < index and can_be_welcomed(self.world, index, node):
                    self._welcome(index, node)
                if self.world.at[node] == index and not self.world.out >> node & 1:
                    if self._is_told(index):
                        self._install(index, node)
                    elif not (self.world.rings[index].promised[node] and self.rules.freeze):
                        self._take(index, node)
        return self.world is not before

    def _answered(self) -> int:
        """The leavers that others tell that their leave is decided. They need not hold it, and keep their votes."""
        if not self.rules.answer_leavers:
            return 0
        return mask_of(
            node
            for node in nodes_of(self.up)
            if (index := self.world.at[node]) != ABSENT
            and (place := self.world.rings[index].left_at(node)) > -1
            and any(self.world.rings[index].known[other] > place for other in nodes_of(self.up))
        )

    def _welcome(self, index: int, node: int) -> None:
        ring = self.world.rings[index]
        place = ring.joined_at(node)
        for other in self._here(index):
            if ring.held[other] <= place:
                continue
            is_first = other == ring.log[place].by and not ring.promised[other]
            if is_first or self.rules.welcome_by_any:
                self.world = welcome(self.rules, self.world, index, node)
                return

    def _is_told(self, index: int) -> bool:
        """Whether a node that is up knows how the ring ended, and says so."""
        if self.world.rings[index].committed is None:
            return False
        return any(
            self.world.at[node] > index
            or (self.world.at[node] == index and self.world.out >> node & 1 and self.rules.answer_old)
            for node in nodes_of(self.up)
        )

    def _take(self, index: int, node: int) -> None:
        ring = self.world.rings[index]
        held = ring.held[node]
        if held < len(ring.log) and self._can_fetch(index, node, held + 1):
            ring = ring._replace(held=put(ring.held, node, held + 1))
        place = next_change(ring.log, ring.known[node], ring.held[node])
        if place >= 0:
            holders = ring.holders(place + 1) & self.up
            knows = any(ring.known[other] > place for other in nodes_of(self.up))
            if knows or is_decided(self.rules, ring.view, ring.log, place, holders):
                ring = ring._replace(known=put(ring.known, node, place + 1))
        if ring is not self.world.rings[index]:
            self.world = put_ring(self.world, index, ring)

    def _can_fetch(self, index: int, node: int, length: int) -> bool:
        """Whether the node has `log[:length]`, from where its own log begins, or can get what it lacks."""
        first = max(_available(self.rules, self.world, index, node), 0)
        return all(self._is_there(index, place) for place in range(first, length))

    def _is_there(self, index: int, place: int) -> bool:
        return any(
            self._begin(index, node) <= place < _available(self.rules, self.world, index, node)
            for node in nodes_of(self.up)
        )

    def _begin(self, index: int, node: int) -> int:
        """Where the node's log begins: a newcomer that did not learn first has nothing before its join."""
        ring = self.world.rings[index]
        return 0 if node in ring.view or self.rules.learner_first else max(ring.joined_at(node), 0)

    def _here(self, index: int) -> list[int]:
        return [node for node in nodes_of(self.up) if self.world.at[node] == index and not self.world.out >> node & 1]

    def _install(self, index: int, node: int) -> None:
        end = self.world.rings[index].committed
        assert end is not None
        if node not in end.members or self._can_fetch(index, node, end.length):
            self.world = install(self.rules, self.world, index, node)

    # ---- recovery

    def _recover(self, index: int) -> bool:
        """One ballot of all that are up; whether it ended the ring."""
        ring = self.world.rings[index]
        here = [node for node in self._here(index) if ring.is_inside(node)]
        if ring.committed is not None or not here:
            return False
        ballot = 1 + max(ring.promised)
        promised = tuple(ballot if node in here else number for node, number in enumerate(ring.promised))
        self.world = put_ring(self.world, index, ring._replace(promised=promised))
        shown = tuple(Promise(node, ring.held[node], ring.known[node], ring.accepted[node]) for node in here)
        found = list(possible_proposals(self.rules, ring, ballot, shown))
        if not found:
            return False
        proposal, needed = max(found, key=lambda each: len(each[0].members))
        able = [
            node for node in here if not self.rules.accept_with_log or self._can_fetch(index, node, proposal.length)
        ]
        if not is_committed(self.rules, proposal, ballot, needed, mask_of(able)):
            return False
        if self.ends[index : index + 1] not in ([], [None], [proposal]):
            raise Violation(f"two successors of view {ring.view}: {self.ends[index]} and {proposal}")
        # What the members hold now, they hold because they accepted.
        accepted = tuple(ballot if node in able else number for node, number in enumerate(ring.accepted))
        ballots = (*ring.ballots, *(Ballot(),) * (ballot - len(ring.ballots)))
        ring = ring._replace(promised=promised, accepted=accepted, committed=proposal)
        ring = ring._replace(ballots=put_ballot(ring._replace(ballots=ballots), ballot, Ballot(proposal=proposal)))
        self.world = put_ring(self.world, index, ring)
        for node in self._here(index):
            self._install(index, node)
        return True
