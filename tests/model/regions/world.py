"""The world of the model: a membership service, senders that are no members, members with records, and a network that
loses and delays. Every step is a method; chance and explorers choose the steps. Rounds are in `rounds.py`.

Blocks that members or senders give one another arrive at once, later, or never. Answers to a NAK, and ACKs, arrive at
once: their loss is the loss of the round that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tests.model.regions.rules import Rules
from tests.model.regions.state import Content, Lane, Message, Node, Opening, Record, RegionView, Sender, Token, ViewId

T = TypeVar("T")
Choose = Callable[[Sequence[T]], T]

NOW: Final = "now"
LATE: Final = "late"
NEVER: Final = "never"
FROM_SENDER: Final = -1


class Violation(Exception):
    """The name of the judge, a colon, and what it found."""


class Late(tuple[int, ViewId, int, int, int]):
    """A block under way: to whom, view, sender, block, from whom."""


class World:
    def __init__(self, rules: Rules, fate: Callable[[], str], nodes: int, regions: int, r: int, senders: int) -> None:
        self.rules = rules
        self.fate = fate  # of a block that is sent: NOW, LATE or NEVER
        self.r = r
        self.regions = range(regions)
        self.nodes = [Node(each) for each in range(nodes)]
        self.senders = [Sender(each, epochs=[0] * regions) for each in range(senders)]
        self.views: dict[ViewId, RegionView] = {}
        # What the service has decided, by epoch
        self.tiles: list[dict[int, ViewId]] = [{}]
        self.excluded: list[frozenset[int]] = [frozenset()]
        self.dead: list[frozenset[int]] = [frozenset()]  # senders
        for region in self.regions:
            self.tiles[0][region] = self._make_view(region, 0, range(region, nodes, regions), ())
        self.content: dict[tuple[ViewId, int, int], Content] = {}
        self.late: list[Late] = []
        self.tokens: list[Token] = []
        self.suspects: Callable[[int], frozenset[int]] = lambda _: frozenset()  # of a starter, without a rule
        self.losses: list[tuple[int, ViewId, int, int]] = []  # node, view, sender, block
        self.told: list[tuple[int, ViewId, int, int]] = []  # node, view, sender, count that an OPEN named there
        self.log: list[tuple[object, ...]] = []

    # The membership service. -----------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return len(self.tiles) - 1

    def _make_view(self, region: int, epoch: int, members: Sequence[int], parents: Sequence[ViewId]) -> ViewId:
        view = RegionView(ViewId(region, epoch), tuple(sorted(members)), tuple(parents))
        self.views[view.id] = view
        return view.id

    def region_of(self, node: int) -> int:
        return next(region for region, view in self.tiles[-1].items() if node in self.views[view].members)

    def exclude(self, node: int) -> None:
        self._change(lambda members: members[self.region_of(node)].discard(node), self.excluded[-1] | {node})

    def move(self, node: int, region: int) -> None:
        def moved(members: dict[int, set[int]]) -> None:
            members[self.region_of(node)].discard(node)
            members[region].add(node)

        self._change(moved, self.excluded[-1])

    def declare_dead(self, sender: int) -> None:
        self._change(lambda _: None, self.excluded[-1], self.dead[-1] | {sender})

    def _change(
        self,
        change: Callable[[dict[int, set[int]]], None],
        excluded: frozenset[int],
        dead: frozenset[int] | None = None,
    ) -> None:
        """One epoch for each change."""
        old = self.tiles[-1]
        members = {region: set(self.views[view].members) for region, view in old.items()}
        change(members)
        tile = dict(old)
        for region, now in members.items():
            if now != set(self.views[old[region]].members):
                parents = [
                    view for view in old.values() if view.region == region or now & set(self.views[view].members)
                ]
                tile[region] = self._make_view(region, len(self.tiles), sorted(now), tuple(parents))
        self.tiles.append(tile)
        self.excluded.append(excluded)
        self.dead.append(self.dead[-1] if dead is None else dead)
        self.say("epoch", self.last, {view: self.views[view].members for view in tile.values()}, excluded)

    def is_up(self, node: int) -> bool:
        return self.nodes[node].is_alive and node not in self.excluded[-1]

    def is_settled(self, view: ViewId) -> bool:
        """Every sender that the service takes for alive has left the view, and the whole region knows its final count
        (docs/design/regions.md). The service tells nodes of it with an epoch."""
        if not self.rules.close:
            return True
        for sender in self.senders:
            if sender.id not in self.dead[-1]:
                lane = sender.lanes.get(view)
                if self.tiles[sender.epochs[view.region]][view.region].epoch <= view.epoch:
                    return False
                if lane is not None and not lane.is_closed:
                    return False
        return True

    # Senders. --------------------------------------------------------------------------------------------------------

    def send(self, sender: Sender) -> None:
        sender.messages += 1
        for region in self.regions:
            view = self.views[self.tiles[sender.epochs[region]][region]]
            lane = sender.lanes.get(view.id)
            if lane is None:
                earlier = [
                    (other, each.count)
                    for other, each in sender.lanes.items()
                    if self.rules.open_names_all or other in view.parents
                ]
                lane = sender.lanes[view.id] = Lane()
                self._put(sender, view, lane, Opening(tuple(earlier)))
            self._put(sender, view, lane, Message(sender.messages))
        tile = self.tiles[max(sender.epochs)]
        audience = frozenset(node for view_id in tile.values() for node in self.views[view_id].members)
        sender.sent.append((sender.messages, audience))

    def _put(self, sender: Sender, view: RegionView, lane: Lane, content: Content) -> None:
        block = lane.count
        lane.count += 1
        lane.kept.add(block)
        self.content[view.id, sender.id, block] = content
        self.say("send", sender.id, view.id, block, content)
        self.cast(sender, view, block)

    def cast(self, sender: Sender, view: RegionView, block: int) -> None:
        for node in view.members:
            self._carry(node, view.id, sender.id, block, FROM_SENDER)

    def repeat_tail(self, sender: Sender, view: ViewId) -> None:
        if self.rules.repeat_tail:
            self.cast(sender, self.views[view], sender.lanes[view].count - 1)

    def install(self, sender: Sender, region: int) -> None:
        if self.rules.all_regions_at_once:
            sender.epochs = [max(sender.epochs) + 1] * len(self.regions)
        else:
            sender.epochs[region] += 1

    def is_closing(self, sender: Sender, view: ViewId) -> bool:
        """Whether the sender has left the view, and does not know yet that the region has heard of it."""
        has_left = self.tiles[sender.epochs[view.region]][view.region] != view
        return has_left and not sender.lanes[view].is_closed

    def say_close(self, sender: Sender, view: ViewId, node: int) -> None:
        """CLOSE to one member."""
        if self.rules.close and self.is_up(node) and view not in self.nodes[node].forgotten and self.fate() == NOW:
            record = self.nodes[node].record(view, sender.id)
            record.final = sender.lanes[view].count
            record.cutoff = max(record.cutoff, record.final)

    def answer_nak(self, sender_id: int, node: int, view: ViewId, blocks: Sequence[int]) -> None:
        """Data to all, or GONE to who asked."""
        sender = self.senders[sender_id]
        lane = sender.lanes.get(view)
        if not sender.is_alive or lane is None:
            return
        for block in blocks:
            if block in lane.kept:
                self.cast(sender, self.views[view], block)
            elif block < lane.count:
                self.nodes[node].record(view, sender_id).gone.add(block)

    # Members. --------------------------------------------------------------------------------------------------------

    def partitions(self, view: RegionView, excluded: frozenset[int]) -> tuple[tuple[int, ...], ...]:
        """Living members of each partition, in the order of their addresses."""
        members = view.members
        if not self.rules.original_partitions:
            members = tuple(node for node in members if node not in excluded)
        if not self.rules.movers_stay:
            members = tuple(node for node in members if node in self.views[self.tiles[-1][view.id.region]].members)
        count = max(1, len(members) // self.r)
        found: list[list[int]] = [[] for _ in range(count)]
        for index, node in enumerate(members):
            if node not in excluded:
                found[index % count].append(node)
        return tuple(map(tuple, found))

    def answers_for(self, partitions: Sequence[Sequence[int]], node: int, block: int) -> bool:
        cachers = partitions[block % len(partitions)]
        return node in cachers or (not cachers and self.rules.orphans)

    def give(self, giver: int, node: int, view: ViewId, sender: int, block: int) -> None:
        """A member sends a block to another one, if it keeps it."""
        if giver == node or not self.is_up(giver) or view in self.nodes[giver].forgotten:
            return
        record = self.nodes[giver].records.get((view, sender))
        if record is not None and block in record.kept:
            self._carry(node, view, sender, block, giver)

    def _carry(self, node: int, view: ViewId, sender: int, block: int, source: int) -> None:
        fate = self.fate()
        if fate == NOW:
            self.take(node, view, sender, block, source)
        elif fate == LATE:
            self.late.append(Late((node, view, sender, block, source)))

    def take(self, node_id: int, view: ViewId, sender: int, block: int, source: int) -> None:
        """A block comes."""
        node = self.nodes[node_id]
        if not self.is_up(node_id) or view in node.forgotten or node.epoch < view.epoch:
            return
        if self.rules.final_count and source == FROM_SENDER and sender in self.dead[node.token_epoch.get(view, 0)]:
            return
        record = node.record(view, sender)
        if block in record.lost or (self.rules.refuse and block in record.refused):
            return
        may_keep = block >= record.purge and self._should_keep(node, view, record, block)
        if block in record.got and not (self.rules.take_again and may_keep and block not in record.kept):
            return
        record.got.add(block)
        if may_keep:
            record.kept.add(block)
        content = self.content[view, sender, block]
        if isinstance(content, Opening):
            for other, count in content.counts:
                if node_id in self.views[other].members and other not in node.forgotten:
                    self.told.append((node_id, other, sender, count))
                    if self.rules.open_raises_cutoff:
                        earlier = node.record(other, sender)
                        earlier.cutoff = max(earlier.cutoff, count)
        self.say("got", node_id, view, sender, block, source)
        self.deliver(node)

    def _should_keep(self, node: Node, view: ViewId, record: Record, block: int) -> bool:
        partitions = self.partitions(self.views[view], self.excluded[node.epoch])
        return self.answers_for(partitions, node.id, block) or (self.rules.keep_until_ack and block >= record.ack)

    def free(self, node: Node, record: Record, partitions: Sequence[Sequence[int]]) -> None:
        """Drop what ACK and purge allow."""
        record.kept = {
            block
            for block in record.kept
            if block >= record.purge
            and (self.answers_for(partitions, node.id, block) or (self.rules.keep_until_ack and block >= record.ack))
        }

    def lose(self, node: Node, view: ViewId, sender: int, block: int) -> None:
        """A verdict: Lost is reported here, unless the block is here."""
        record = node.record(view, sender)
        if block in record.got or block in record.lost:
            return
        record.lost.add(block)
        self.losses.append((node.id, view, sender, block))
        self.say("lost", node.id, view, sender, block)
        for other in self.views[view].members:
            kept = self.nodes[other].records.get((view, sender))
            if self.is_up(other) and kept is not None and block in kept.kept:
                raise Violation(f"lost: {block} of sender {sender} in {view} at {node.id}, and {other} keeps it")
        lane = self.senders[sender].lanes.get(view)
        if self.senders[sender].is_alive and lane is not None and block in lane.kept:
            raise Violation(f"lost: {block} of sender {sender} in {view} at {node.id}, and the sender keeps it")
        self.deliver(node)

    # Delivery. -------------------------------------------------------------------------------------------------------

    def deliver(self, node: Node) -> None:
        has_more = True
        while has_more:
            has_more = False
            for (view, sender), record in list(node.records.items()):
                if self._deliver_next(node, view, sender, record):
                    record.next += 1
                    has_more = True

    def _deliver_next(self, node: Node, view: ViewId, sender: int, record: Record) -> bool:
        """Whether the next block of a lane may be passed."""
        block = record.next
        if block not in record.got:
            if block not in record.lost:
                return False
            return block > 0 or not self.rules.lost_open_waits or self._has_finished_all(node, view, sender)
        match self.content[view, sender, block]:
            case Opening(counts):
                return all(self._has_finished(node, other, sender, count) for other, count in counts)
            case Message(number):
                before = node.delivered.setdefault(sender, [])
                self.say("deliver", node.id, view, sender, block, number)
                if before and number <= before[-1]:
                    raise Violation(f"fifo: {node.id} delivers {number} of sender {sender} after {before[-1]}")
                before.append(number)
                return True

    def _has_finished(self, node: Node, view: ViewId, sender: int, count: int) -> bool:
        if view in node.forgotten or node.id not in self.views[view].members:
            return True
        record = node.record(view, sender)
        if record.next >= count:
            return True
        if sender not in self.dead[node.epoch]:
            return False
        if self.rules.final_count:
            return record.final is not None and record.next >= record.final
        return record.next >= record.cutoff

    def _has_finished_all(self, node: Node, view: ViewId, sender: int) -> bool:
        """All earlier views of this node in which it knows of the sender."""
        earlier = [each for each in self.views if each.epoch < view.epoch and (each, sender) in node.records]
        for each in earlier:
            final = node.records[each, sender].final
            if not self._has_finished(node, each, sender, 1 << 30 if final is None else final):
                return False
        return True

    # Forgetting. -----------------------------------------------------------------------------------------------------

    def forget(self, node: Node, view: ViewId) -> None:
        """An old view has drained, as far as this node can know."""
        if view in node.forgotten or self.tiles[node.epoch][view.region] == view or not self.is_settled(view):
            return
        for sender in self.senders:
            record = node.records.get((view, sender.id))
            if record is not None and not record.is_empty:
                if record.purge < record.known or record.next < record.purge:
                    return
                if self.rules.close and (record.final is None or record.purge < record.final):
                    return
            elif self.rules.close and sender.id in self.dead[-1] and not self._knows_dead(node, view, sender.id):
                return
        node.forgotten.add(view)
        node.records = {key: record for key, record in node.records.items() if key[0] != view}
        self.say("forget", node.id, view)
        self.deliver(node)

    def _knows_dead(self, node: Node, view: ViewId, sender: int) -> bool:
        """A dead sender of which nobody has spoken: two complete rounds that knew of its death tell that there is
        nothing of it."""
        return sender in self.dead[node.epoch] and sender in self.dead[node.cleaner.get(view, 0)]

    def say(self, *words: object) -> None:
        self.log.append(words)
