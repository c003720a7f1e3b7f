"""A quiet network: nothing is lost any more, and everybody does all that it can. Then a run must come to rest."""

from __future__ import annotations

from typing import Final

from tests.model.evs.daemon import EVERYTHING, WORKING
from tests.model.evs.judge import Violation
from tests.model.evs.world import World

MAX_TURNS: Final = 40  # recoveries and rounds of traffic; more is a livelock


def come_to_rest(world: World) -> None:
    """Recover where it is needed and let everything flow, until nothing happens any more. One-way cuts are healed."""
    world.cut_ways = frozenset()
    for _ in range(MAX_TURNS):
        did = recover(world)
        did |= _flow(world)
        if not did and is_at_rest(world):
            return
    waiting = [describe(world, daemon.id) for daemon in world.alive]
    raise Violation(f"rest: no rest after {MAX_TURNS} turns: {'; '.join(waiting)}")


def is_at_rest(world: World) -> bool:
    return all(
        daemon.state == WORKING
        and daemon.is_synced
        and not daemon.wishes
        and not daemon.pending
        and daemon.view.members == world.neighbours(daemon.id)
        for daemon in world.alive
    )


def describe(world: World, name: int) -> str:
    daemon = world.daemons[name]
    return (
        f"{name} {daemon.state} in {daemon.view.members}, in sync {daemon.is_synced}, wishes {daemon.wishes}, "
        f"pending {daemon.pending}, horizon {daemon.known.horizon}, stable {daemon.known.stable}"
    )


def recover(world: World) -> bool:
    """One round in each part of the network that needs one."""
    done: set[int] = set()
    did = False
    for daemon in world.alive:
        part = world.neighbours(daemon.id)
        if daemon.id in done:
            continue
        done |= set(part)
        if any(world.is_off(name) for name in part):
            index = world.start(daemon.id)
            for step in (world.invite, world.answer):
                for name in part:
                    step(index, name)
            world.conclude(index)
            for name in part:
                world.accept(index, name)
            for name in part:
                for other in part:
                    world.fetch(index, name, other)
                world.confirm(index, name)
            world.commit(index)
            for name in part:
                world.install(index, name)
            did = True
    return did


def _flow(world: World) -> bool:
    """Everything that is on its way arrives, and every token goes around twice."""
    did = False
    for _ in range(2):
        for daemon in world.alive:
            for source in daemon.view.sites:
                for supplier in world.suppliers(daemon.id, source):
                    items = world.items(supplier, daemon.id, source)
                    did |= world.transfer(supplier, daemon.id, source, items)
                    did |= world.update(supplier, daemon.id, source)
        for daemon in world.alive:
            busy = bool(daemon.wishes or daemon.pending or not daemon.is_synced)
            world.visit(daemon.id, EVERYTHING)
            did |= busy
            did |= world.pump(daemon.id, EVERYTHING)
            did |= world.release(daemon.id)
    return did
