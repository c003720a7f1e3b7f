"""What must hold when faults have ended: judged by what was sent, what was on the wire, what nodes saw, and who lives.

Nothing here knows an engine. The judges are those of `tests/model/regions/judge.py`.
"""

from __future__ import annotations

from itertools import pairwise

from tests.regions.world import Place, World

from ordercast.service import FIFO_RANK, UNRELIABLE_RANK
from ordercast.wire.regions import LaneOpening


class Violation(Exception):
    """The name of the judge, a colon, and what it found."""


def judge(world: World) -> None:
    judge_order(world)
    lost = {each for place in world.places if world.is_up(place) for each in place.seen.lost}
    _judge_complete(world, lost)
    _judge_regional(world, lost)
    _judge_lost(world, lost)
    _judge_told(world)
    _judge_acked(world)


def judge_order(world: World) -> None:
    """First in, first out, and nothing twice: of all nodes, also of those that died or were excluded."""
    for place in world.places:
        for origin, messages in place.seen.delivered.items():
            where = f"{place.member} of {world.by_id[origin].member}"
            numbers = [number for number, _ in messages]
            if len(set(numbers)) < len(numbers):
                raise Violation(f"once: {where}: {_first_double(numbers)} twice")
            ordered = [number for number, rank in messages if rank == FIFO_RANK]
            for before, after in pairwise(ordered):
                if after < before:
                    raise Violation(f"fifo: {where}: {after} after {before}")


def _first_double(numbers: list[int]) -> int:
    return next(number for index, number in enumerate(numbers) if number in numbers[:index])


def _message(world: World, view: str, origin: int, block: int) -> int:
    """The number of the message in a block; 0 of OPEN, and of what was never on the wire."""
    found = world.content.get((_name(view), origin, block), 0)
    return found if isinstance(found, int) else 0


def _name(view: str) -> int:
    """A region's views have distinct epochs; the origin's regions are told apart by the wire."""
    region, _, epoch = view.partition(":")
    return int(epoch) * 1_000 + int(region)


def _numbers(place: Place, origin: int) -> set[int]:
    return {number for number, _ in place.seen.delivered.get(origin, ())}


def _judge_complete(world: World, lost: set[tuple[str, int, int]]) -> None:
    """What a living sender sent reliably is delivered by everybody that it was for, or lost by all accounts."""
    excused = {(origin, _message(world, view, origin, block)) for view, origin, block in lost}
    for sender in world.places:
        if not world.is_up(sender):
            continue
        origin = sender.member.id
        for sent in sender.seen.sent:
            if sent.service.rank == UNRELIABLE_RANK:
                continue
            for node in sent.audience:
                place = world.by_id[node]
                is_excused = (origin, sent.number) in excused
                if world.is_up(place) and sent.number not in _numbers(place, origin) and not is_excused:
                    raise Violation(f"complete: {place.member} lacks {sent.number} of {sender.member}, which lives")


def _judge_regional(world: World, lost: set[tuple[str, int, int]]) -> None:
    """Members of a view that live have delivered the same of it, what was lost apart."""
    lost_blocks = {(_name(view), origin, block) for view, origin, block in lost}
    lanes: dict[tuple[int, int], set[int]] = {}
    for (view, origin, block), content in world.content.items():
        if isinstance(content, int) and (view, origin, block) not in lost_blocks:
            lanes.setdefault((view, origin), set()).add(content)
    for (view, origin), numbers in lanes.items():
        members = [world.by_id[member.id] for member in world.service.views[view].members]
        sets = {str(place.member): numbers & _numbers(place, origin) for place in members if world.is_up(place)}
        if len({frozenset(each) for each in sets.values()}) > 1:
            text = ", ".join(f"{name}: {sorted(numbers - each)} missing" for name, each in sets.items())
            raise Violation(f"regional: view {view}, of {world.by_id[origin].member}: {text}")


def _judge_lost(world: World, lost: set[tuple[str, int, int]]) -> None:
    """All or nothing, while a cacher lives."""
    for view, origin, block in sorted(lost):
        number = _message(world, view, origin, block)
        given = world.service.views[_name(view)]
        count = max(1, len(given.members) // given.partition_members)
        cachers = [member.id for index, member in enumerate(given.members) if index % count == block % count]
        if not number or not any(world.is_up(world.by_id[each]) for each in cachers):
            continue
        for member in given.members:
            place = world.by_id[member.id]
            if world.is_up(place) and number in _numbers(place, origin):
                sender = world.by_id[origin].member
                raise Violation(f"lost: {block} of {sender} in {view}: {place.member} has delivered it, a cacher lives")


def _judge_told(world: World) -> None:
    """No gap is silent: what an OPEN says to exist in a view that the member was in is delivered or reported lost, if
    the member has delivered something behind that OPEN."""
    for (view, origin, block), opening in world.content.items():
        if block or not isinstance(opening, LaneOpening):
            continue
        for member in world.service.views[view].members:
            place = world.by_id[member.id]
            name = _text(world, view)
            if not world.is_up(place) or max(place.seen.blocks.get((name, origin), {0})) < 1:
                continue
            if place.member.id == origin or (name, origin, 0) in place.seen.lost:
                continue  # it knows what it sent; or OPEN itself is lost, and has told nothing
            for earlier in opening.earlier:
                if member.id in {each.id for each in world.service.views[earlier.view].members}:
                    _judge_told_of(world, place, origin, earlier.view, earlier.final)


def _judge_told_of(world: World, place: Place, origin: int, view: int, final: int) -> None:
    name = _text(world, view)
    reported = {block for lost_view, lost_of, block in place.seen.lost if (lost_view, lost_of) == (name, origin)}
    gaps = set(range(1, final)) - place.seen.blocks.get((name, origin), set()) - reported
    if gaps:
        raise Violation(f"told: {place.member} was told of {sorted(gaps)} of {origin} in {name}, and of nothing else")


def _text(world: World, view: int) -> str:
    return f"{world.service.views[view].region}:{world.service.views[view].epoch}"


def _judge_acked(world: World) -> None:
    """A living sender has heard that everything is stable."""
    for place in world.places:
        for region, count in place.seen.taken.items() if world.is_up(place) else ():
            if place.seen.acked.get(region, 0) < count and region in place.seen.tiles:
                raise Violation(f"acked: {place.member}: {place.seen.acked.get(region, 0)} of {count} in {region}")
