"""Restarts in the model: what a node must keep, so that its vote is as good as before (docs/design/restarts.md).

A node that is restarted loses what it does not keep, and goes on voting. Messages are left out: without them a log is
its changes, and a node that keeps the last view keeps all of it. Then a restart with everything kept changes nothing,
and every other one is a step that the explorer takes at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.model.explore import Steps
from tests.model.rule import Rules
from tests.model.world import ABSENT, Limits, Step, World, put, put_ring, steps

VIEW: Final = "view"  # the last one that it received
PROMISE: Final = "promise"
PROPOSAL: Final = "proposal"  # the accepted one
RING: Final = "ring"  # that it has gone on to the next ring: stored before the commit is told
EVERYTHING: Final = frozenset({VIEW, PROMISE, PROPOSAL, RING})


def restarted(world: World, node: int, kept: frozenset[str]) -> World:
    """The node after a restart."""
    index = world.at[node]
    if index == ABSENT:
        return world
    if RING not in kept and index > 0:
        world, index = world._replace(at=put(world.at, node, index - 1)), index - 1
    ring = world.rings[index]
    if VIEW not in kept and node in ring.view:
        ring = ring._replace(held=put(ring.held, node, 0), known=put(ring.known, node, 0))
    if PROMISE not in kept:
        # It has accepted nothing above what it promises: an acceptance is a promise as well.
        floor = ring.accepted[node] if PROPOSAL in kept else 0
        ring = ring._replace(promised=put(ring.promised, node, floor))
    if PROPOSAL not in kept:
        ring = ring._replace(accepted=put(ring.accepted, node, 0))
    return put_ring(world, index, ring)


def with_restarts(kept: frozenset[str]) -> Steps:
    """All steps, and at any time the restart of a node that keeps only this."""

    def successors(rules: Rules, limits: Limits, world: World) -> Iterator[Step]:
        for text, after in steps(rules, limits, world):
            yield text, _without_repeats(after)
        for node in world.nodes:
            after = restarted(world, node, kept)
            if after != world:
                yield f"{node} restarts", after

    return successors


def _without_repeats(world: World) -> World:
    """A node that forgets may say the same promise again; that is one fact."""
    rings = tuple(
        ring._replace(ballots=tuple(made._replace(promises=tuple(sorted(set(made.promises)))) for made in ring.ballots))
        for ring in world.rings
    )
    return world._replace(rings=rings)
