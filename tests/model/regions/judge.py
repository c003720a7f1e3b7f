"""What must hold when faults have ended and a quiet network has brought everything to rest.

`fifo` (and once), and the half of `lost` that looks at who keeps a block at the time of the verdict, are judged while a
run goes on (`world.py`). The judges here know what was sent, delivered and reported lost, and who lives.
"""

from __future__ import annotations

from tests.model.regions.state import Message, ViewId
from tests.model.regions.world import Violation, World


def judge(world: World) -> None:
    lost = {(view, sender, block) for node, view, sender, block in world.losses if world.is_up(node)}
    _judge_complete(world, lost)
    _judge_regional(world, lost)
    _judge_lost(world, lost)
    _judge_told(world)
    _judge_rest(world)


def _message(world: World, view: ViewId, sender: int, block: int) -> int:
    """The number of the message in a block; 0 of OPEN."""
    content = world.content[view, sender, block]
    return content.number if isinstance(content, Message) else 0


def _judge_complete(world: World, lost: set[tuple[ViewId, int, int]]) -> None:
    """What a living sender sent is delivered by everybody that it was for, or lost by all accounts."""
    excused = {(sender, _message(world, view, sender, block)) for view, sender, block in lost}
    for sender in world.senders:
        for number, audience in sender.sent if sender.is_alive else ():
            for node in audience:
                has_it = number in world.nodes[node].delivered.get(sender.id, ())
                if world.is_up(node) and not has_it and (sender.id, number) not in excused:
                    raise Violation(f"complete: {node} lacks {number} of the living sender {sender.id}")


def _judge_regional(world: World, lost: set[tuple[ViewId, int, int]]) -> None:
    """Members of a view that live have delivered the same of it, what was lost apart."""
    for view in world.views.values():
        for sender in world.senders:
            numbers = {
                _message(world, view.id, sender.id, block)
                for (other, source, block) in world.content
                if other == view.id and source == sender.id and (other, source, block) not in lost
            }
            sets = {
                node: numbers & set(world.nodes[node].delivered.get(sender.id, ()))
                for node in view.members
                if world.is_up(node)
            }
            if len({frozenset(each) for each in sets.values()}) > 1:
                raise Violation(f"regional: {view.id}, sender {sender.id}: {sets}")


def _judge_lost(world: World, lost: set[tuple[ViewId, int, int]]) -> None:
    """All or nothing, while a cacher lives."""
    for view, sender, block in sorted(lost):
        number = _message(world, view, sender, block)
        partitions = world.partitions(world.views[view], world.excluded[-1])
        if not number or not partitions[block % len(partitions)]:
            continue
        for node in world.views[view].members:
            if world.is_up(node) and number in world.nodes[node].delivered.get(sender, ()):
                raise Violation(f"lost: {block} of sender {sender} in {view}: {node} has delivered it, a cacher lives")


def _judge_told(world: World) -> None:
    """No gap is silent: what an OPEN says to exist in a view that the member was in is delivered or reported lost."""
    reported = set(world.losses)
    for node, view, sender, count in world.told:
        for block in range(1, count) if world.is_up(node) else ():
            number = _message(world, view, sender, block)
            if (
                number not in world.nodes[node].delivered.get(sender, ())
                and (node, view, sender, block) not in reported
            ):
                raise Violation(f"told: {node} was told of {block} of sender {sender} in {view}, and of nothing else")


def _judge_rest(world: World) -> None:
    """Everything that is known to exist is delivered or lost, nobody refuses anything, and old views are forgotten."""
    for node in world.nodes:
        if not world.is_up(node.id):
            continue
        for (view, sender), record in node.records.items():
            where = f"{node.id} in {view}, sender {sender}"
            if record.next < record.known:
                raise Violation(f"rest: {where}: {record.next} of {record.known} delivered")
            if record.refused:
                raise Violation(f"rest: {where}: {sorted(record.refused)} refused")
            if world.tiles[-1][view.region] != view and not record.is_empty:
                raise Violation(f"rest: {where}: an old view is not forgotten")
        for each in world.views.values():
            is_old = world.tiles[-1][each.id.region] != each.id
            if is_old and node.id in each.members and each.id.epoch <= node.epoch and each.id not in node.forgotten:
                raise Violation(f"rest: {node.id} has not forgotten {each.id}")
