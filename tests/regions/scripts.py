"""Runs written by hand, for rules that chance hardly ever needs: each holds with its rule, and breaks without it. They
are those of `tests/model/regions/scripts.py`."""

# ruff: noqa: ARG001, ARG005 - what drops datagrams looks at some of what it is given

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.regions.judge import Violation, judge
from tests.regions.world import TOKEN_NS, Link, Place, World

from ordercast.config import MS, SECOND
from ordercast.engine import Outbox
from ordercast.service import UNRELIABLE
from ordercast.wire.header import Kind
from ordercast.wire.segments import Datagram


def _world(nodes: int, r: int, seed: int = 1) -> World:
    """One region, and a sender outside of it, which comes last."""
    world = World(random.Random(seed), nodes + 1, r, Link())
    world.join({index: 1 if index < nodes else 0 for index in range(nodes + 1)})
    world.run_for(300 * MS)
    return world


def _end(world: World) -> None:
    world.drops = lambda datagram, source, target: False
    _rest(world)
    judge(world)


def told_of_a_block() -> None:
    """Nobody has block 1 of the old view, its sender is dead and did not say CLOSE, and OPEN of the new view tells that
    there is one."""
    world = _world(3, 1)
    sender = world.places[3]
    world.drops = lambda datagram, source, target: (
        (datagram.ring == 1_001 and datagram.number == 1 and datagram.kind == Kind.DATA) or datagram.kind == Kind.CLOSE
    )
    world.send(sender)
    world.run_for(1 * MS)
    world.exclude(2)
    world.run_for(200 * MS)
    world.send(sender)
    world.run_for(5 * MS)
    world.crash(3)
    _end(world)


def _lost_opening(is_old_view_still: bool) -> None:
    """Nobody has block 2 of the old view but for a copy on its way, and nobody the OPEN that tells of it; the sender is
    dead. In the new view OPEN is lost. Who does not finish the old view first, or takes the late copy from the dead
    sender's hand after it was finished, delivers the sender's messages in the wrong order."""
    world = _world(3, 1)
    sender = world.places[3]
    kept: list[bytes] = []

    def drops(datagram: Datagram, source: Place, target: Place) -> bool:
        is_data = datagram.kind == Kind.DATA
        is_old = datagram.ring == 1_001
        is_token = datagram.kind == Kind.REGION_TOKEN and is_old and is_old_view_still
        is_block = is_data and (datagram.number == 2 if is_old else datagram.number == 0)
        return is_token or is_block or datagram.kind == Kind.CLOSE

    world.drops = drops
    world.taps.append(kept.append)
    world.send(sender)
    world.send(sender)
    block = next(data for data in kept if data[1] == Kind.DATA and data[24] == 2)
    world.run_for(1 * MS)
    world.exclude(2)
    world.run_for(200 * MS)
    world.send(sender)
    world.run_for(5 * MS)
    world.crash(3)
    world.exclude(3)
    world.run_for(200 * MS + 12 * TOKEN_NS)
    if is_old_view_still:
        world.push(world.places[0], world.places[1], block)
    else:
        world.deliver(world.places[1], sender, block)
    world.run_for(5 * MS)
    _end(world)


def lost_opening() -> None:
    _lost_opening(True)


def dead_hand() -> None:
    _lost_opening(False)


def late_copy() -> None:
    """Block 2 of a dead sender is nowhere but on its way to member 1, and arrives there while the verdict is made.
    Whoever lacks it refuses it meanwhile: the verdict holds for all."""
    for when in range(0, 60, 2):
        world = _world(3, 3)
        sender = world.places[3]
        kept: list[bytes] = []
        world.drops = lambda datagram, source, target: datagram.kind == Kind.DATA and datagram.number == 2
        world.taps.append(kept.append)
        for _ in range(3):
            world.send(sender)
        block = next(data for data in kept if data[1] == Kind.DATA and data[24] == 2)
        world.run_for(5 * MS)
        world.crash(3)
        world.exclude(3)
        world.run_for(200 * MS)
        world.run_for(when * 10 * MS)
        world.push(world.places[2], world.places[1], block)
        _end(world)


def delivered_and_kept_by_nobody() -> None:
    """Member 1, the only cacher of block 1, is excluded; member 0 has delivered the block and dropped it, member 2
    lacks it, the living sender has an ACK for it. Nobody will ever have it to give."""
    world = _world(3, 1)
    sender = world.places[3]

    def drops(datagram: Datagram, source: Place, target: Place) -> bool:
        return target.index == 2 and datagram.number == 1 and datagram.kind in (Kind.DATA, Kind.PUSH, Kind.PULLED)

    world.drops = drops
    world.send(sender)
    world.run_for(4 * TOKEN_NS)
    world.crash(1)
    world.exclude(1)
    world.run_for(1 * MS)
    _end(world)


def found_after_all() -> None:
    """Block 2 of a dead sender comes to member 1 after it was asked for the last time and before the verdict: member 0
    has refused it, and has to take it later."""
    for when in range(40):
        world = _world(3, 3)
        sender = world.places[3]
        kept: list[bytes] = []
        world.drops = lambda datagram, source, target: datagram.kind == Kind.DATA and datagram.number == 2
        world.taps.append(kept.append)
        for _ in range(3):
            world.send(sender)
        block = next(data for data in kept if data[1] == Kind.DATA and data[24] == 2)
        world.run_for(5 * MS)
        world.crash(3)
        world.exclude(3)
        world.run_for(200 * MS + when * 10 * MS)
        # The starter's token is lost from now on: its verdict never comes, and it is excluded.
        world.push(world.places[1], world.places[2], block)
        world.crash(0)
        world.exclude(0)
        _end(world)


def _lacking(world: World) -> None:
    """The first member gets block 2 of the first view from nobody."""
    repairs = (Kind.DATA, Kind.PUSH, Kind.PULLED)
    world.drops = lambda datagram, source, target: (
        datagram.kind in repairs and datagram.number == 2 and target.index == 0 and datagram.ring == 1_001
    )


def _received(world: World, member: int, sender: int, expected: list[int]) -> None:
    """This member has delivered these messages of the sender, in this order."""
    seen = world.places[member].seen.delivered.get(world.places[sender].member.id, [])
    numbers = [number for number, _ in seen]
    if numbers != expected:
        raise Violation(f"fifo: member {member} has delivered {numbers} and not {expected}")


def purged_and_waiting() -> None:
    """A member lacks a block of the first of three views. Everybody has what was sent in the second one: it is purged,
    and the OPEN of the third does not name it. Found by row `storm` of `chaos.py --orderer regions`."""
    world = _world(5, 2)
    sender = world.places[5]
    _lacking(world)
    world.send(sender)
    world.send(sender)
    world.run_for(400 * MS)
    for leaver in (4, 3):
        world.exclude(leaver)
        world.run_for(400 * MS)
        world.send(sender)
        world.send(sender)
        world.run_for(10 * SECOND)
    _received(world, 0, 5, [1])
    world.drops = lambda datagram, source, target: False
    while len(world.places[0].seen.delivered[sender.member.id]) < 2:
        world.run_for(MS)
    _received(world, 0, 5, [1, 2, 3, 4, 5, 6])  # nothing else has to come first
    _end(world)


def back_again() -> None:
    """A member lacks the last block of a node that is excluded, and comes back with its id: its OPEN knows nothing of
    its former lane. Found by row `outage` of `chaos.py --orderer regions`."""
    world = _world(4, 2)
    _lacking(world)
    world.send(world.places[3])
    world.send(world.places[3])
    world.run_for(300 * MS)
    world.exclude(3)
    world.run_for(5 * SECOND)
    world.come_back(3, 1)
    world.run_for(500 * MS)
    world.send(world.places[3])
    world.send(world.places[3])
    world.run_for(2 * SECOND)
    _received(world, 1, 3, [1, 2, 1, 2])  # the world counts anew
    _received(world, 0, 3, [1])
    world.drops = lambda datagram, source, target: False
    world.run_for(10 * SECOND)
    _received(world, 0, 3, [1, 2, 1, 2])


def given_up() -> None:
    """The starter of the rounds does not reach the sender for so long that its courier gives up, and the ACK is gone.
    Everybody has had everything: no token speaks of the sender any more."""
    world = _world(2, 2)
    heals_ns = world.now_ns + 20 * SECOND
    world.drops = lambda datagram, source, target: source.index == 0 and target.index == 2 and world.now_ns < heals_ns
    world.send(world.places[2])
    world.run_until(heals_ns)
    _acked(world, 2, 0)
    world.run_for(5 * TOKEN_NS)
    _acked(world, 2, 1)
    _end(world)


def all_gone() -> None:
    """All members of a region stop at once: nobody there accuses anybody, so a sender has to."""
    world = _world(2, 2)
    world.send(world.places[2])
    world.run_for(SECOND)
    if world.places[2].source.accused:
        raise Violation("accused: a region that acknowledges everything")
    world.crash(0)
    world.crash(1)
    world.send(world.places[2])
    world.run_for(4 * TOKEN_NS + 20 * MS)
    if {each.node for each in world.places[2].source.accused} != {world.places[0].member.id}:
        raise Violation("accused: not the leader of a region that does not answer")
    _end(world)


def out_and_back() -> None:
    """A member hears by a snapshot of another one that was put out and is back, and of a third one that is out. It goes
    on without the first in the view of before, and with it in the view of between."""
    world = _world(4, 5)
    world.crash(2)
    world.send(world.places[4])
    world.run_for(TOKEN_NS // 2)
    missed = world.places[1].source.under_way
    world.exclude(2)
    missed.clear()
    world.come_back(2, 1)
    missed.clear()
    world.run_for(200 * MS)
    world.send(world.places[4])
    _skip(world, 1, lambda: world.exclude(0))
    _rest(world)
    _acked(world, 4, 2)


def out_twice() -> None:
    """A member knows that another one was out, and hears by a snapshot that it is out again."""
    world = _world(4, 5)
    world.exclude(0)
    world.run_for(3 * TOKEN_NS)
    world.come_back(0, 1)
    world.run_for(3 * TOKEN_NS)
    world.crash(0)
    world.send(world.places[4])
    _skip(world, 1, lambda: world.exclude(0))
    _rest(world)
    _acked(world, 4, 1)


def unsettled() -> None:
    """Nobody has a block of a sender, whose view has ended with an epoch before the snapshot that it gets. Who hears
    that this epoch is settled forgets the view, and says DRAINED to whoever speaks of it: the sender would take that
    for an acknowledgement."""
    world = _world(2, 2)
    place = world.places[2]
    world.drops = lambda datagram, source, target: place in (source, target)
    world.send(place)
    world.run_for(TOKEN_NS)
    world.move(0, 2)
    world.make_node()
    _skip(world, 2, lambda: world.join({3: 3}))
    for _ in range(20):
        world.settle()
        world.run_for(TOKEN_NS)
    _end(world)
    for member in range(2):
        _received(world, member, 2, [1])


def gone_for_long() -> None:
    """The service was away for a minute, and the leader has doubled its patience several times, when the other member
    is put out at last."""
    world = _world(2, 2)
    world.crash(1)
    world.send(world.places[2])
    world.run_for(60 * TOKEN_NS)
    world.exclude(1)
    world.run_for(3 * TOKEN_NS)
    _acked(world, 2, 1)
    _end(world)


def lagging() -> None:
    """An application receives a little now and then, and lags behind all the same: its member holds a token, but not
    for as long as that."""
    world = _world(2, 5)
    slow, place = world.places[1], world.places[2]
    slow.consumes = False
    world.sizes = [1_000]
    for _ in range(30):
        world.send(place, UNRELIABLE)
        world.run_for(2 * MS)
    world.send(place)
    for ticket in range(1, 21):
        world.run_for(TOKEN_NS // 4)
        slow.engine.consume(world.now_ns, ticket, Outbox())
        world.send(place, UNRELIABLE)
    if place.seen.acked[1] <= 30:
        raise Violation("acked: the region stands still")


def _skip(world: World, index: int, decide: Callable[[], None]) -> None:
    """The service decides, and a node gets a snapshot instead of that and of all that is on its way to it."""
    source = world.places[index].source
    decide()
    source.under_way.clear()
    source.tell(world.now_ns, world.service.snapshot(source.node))


def _acked(world: World, sender: int, expected: int) -> None:
    found = world.places[sender].seen.acked.get(1, 0)
    if found != expected:
        raise Violation(f"acked: {found} of {world.places[sender].member} and not {expected}")


def _rest(world: World) -> None:
    """Without the judge: it does not know that a node which came back is new."""
    if not world.come_to_rest(30 * SECOND):
        raise Violation("rest: it does not come to rest")


SCRIPTS: Final[dict[str, Callable[[], None]]] = {
    "OPEN does not raise the cutoff": told_of_a_block,
    "blocks of a dead sender are taken from its hand": dead_hand,
    "an OPEN that is lost waits for nothing": lost_opening,
    "candidates are not refused": late_copy,
    "refusals do not end": found_after_all,
    "who has delivered a block counts as keeping it": delivered_and_kept_by_nobody,
    "the sender's GONE is not heard": delivered_and_kept_by_nobody,
    "a block that comes in its turn does not wake views that wait for it": purged_and_waiting,
    "a node that comes back opens its lane at once": back_again,
    "who asks for an acknowledgement by sending again is not heard": given_up,
    "a sender accuses nobody": all_gone,
    "a snapshot puts out nodes with the last exclusion": out_and_back,
    "who was out, and is out again, was out once": out_twice,
    "epochs are confirmed while lanes are open": unsettled,
    "a snapshot ends lanes with itself": unsettled,
    "a token that went to who is out is waited for": gone_for_long,
    "an application that lags holds a token anew with all that it receives": lagging,
}
"""By the planted bug that each of them catches."""
