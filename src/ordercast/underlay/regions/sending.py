"""Lanes of one node: opening, sending, acknowledgements, closing (QSM sections 2.3 and 2.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ordercast.config import MAX_BLOCK
from ordercast.engine import NEVER, Outbox, Send
from ordercast.orderers.regions.given import GivenView
from ordercast.orderers.regions.lane import RegionLane
from ordercast.orderers.regions.partitions import leader_of, partition_count, partitions_of
from ordercast.orderers.regions.upcalls import LaneAcked
from ordercast.parts.rate import MIN_RATE, SendingRate, first_rate_of, policy_of
from ordercast.service import UNRELIABLE_RANK
from ordercast.underlay.regions.node import MAX_VIEWS, RegionNode
from ordercast.view import Address
from ordercast.wire.block import FRAGMENTED, head_of
from ordercast.wire.courier import PREFIX_BYTES, Parcel
from ordercast.wire.header import Kind
from ordercast.wire.regions import (
    MAX_EARLIER,
    Accusation,
    Accused,
    EarlierView,
    LaneClosing,
    LaneOpening,
    decode_ack,
    decode_numbers,
    encode_close,
    encode_numbers,
    encode_open,
)
from ordercast.wire.segments import pieces, segments_of, train

TAIL_ROUNDS: Final = 2  # token intervals without an ACK that frees something: the last block is sent again
DOUBTED_TAILS: Final = 2  # of these in a row: the service is to ask whether the region lives


class LaneDesk:
    __slots__ = (
        *("_accused", "_acked", "_by_view", "_closing", "_confirmed"),
        *("_live", "_node", "_taken", "_tiles", "_unreliable"),
    )

    def __init__(self, node: RegionNode) -> None:
        self._node = node
        self._tiles: dict[int, GivenView] = {}  # region -> its view, as of the installed epoch
        self._live: dict[int, RegionLane] = {}  # region -> lane
        self._by_view: dict[int, RegionLane] = {}  # all of them
        self._closing: dict[int, RegionLane] = {}  # view -> lane, in the order in which they were opened
        self._taken: dict[int, int] = {}  # region -> blocks that were ever taken for it
        self._acked: dict[int, int] = {}  # region -> what LaneAcked told last
        self._confirmed = 0
        self._unreliable = 0
        self._accused: list[Accused] = []

    # What the owner sees

    @property
    def tiles(self) -> dict[int, GivenView]:
        return self._tiles

    def lanes(self) -> Iterator[RegionLane]:
        yield from self._closing.values()
        yield from self._live.values()

    @property
    def is_at_rest(self) -> bool:
        return not self._closing and all(lane.is_stable for lane in self._live.values())

    @property
    def is_acknowledged(self) -> bool:
        return not any(lane.kept for lane in self.lanes())

    def undrained(self, region: int) -> int:
        return sum([lane.given.region == region for lane in self._closing.values()])

    # Epochs

    def install(self, now_ns: int, epoch: int, views: Sequence[GivenView], ended: Sequence[int]) -> None:
        """All regions at once: otherwise two messages to one group could reach a member that moved in the wrong
        order."""
        for region, lane in list(self._live.items()):
            if lane.given.view in ended:
                del self._live[region]
                lane.end(now_ns, epoch)
                self._closing[lane.given.view] = lane
        for region in [region for region, view in self._tiles.items() if view.view in ended]:
            del self._tiles[region]
        for view in views:
            if view.view not in ended:
                self._tiles[view.region] = view

    def to_confirm(self, epoch: int) -> int:
        """The last epoch for which every lane that it, or an earlier one, ended is settled; 0: nothing new."""
        if epoch <= self._confirmed:
            return 0
        open_ends = [lane.ended for lane in self._closing.values() if not lane.is_settled]
        last = min([epoch, *[each - 1 for each in open_ends]])
        if last <= self._confirmed:
            return 0
        self._confirmed = last
        return last

    # Sending

    def room(self, now_ns: int, region: int) -> tuple[int, int]:
        node, config = self._node, self._node.config
        if region not in self._tiles:
            return 0, MAX_BLOCK
        lane = self._live.get(region)
        if lane is None:
            if self.undrained(region) >= MAX_VIEWS or len(self._closing) >= MAX_EARLIER:
                return 0, MAX_BLOCK
            # What it will have once it is open, which takes its first block.
            lane = RegionLane(self._tiles[region], self._first_rate(now_ns), node.window_of(self._tiles[region]))
            opening = encode_open(self._opening())
            lane.add(now_ns, opening, -1, segments_of(len(opening), node.config.datagram - PREFIX_BYTES), 0)
        lane.rate.expire(now_ns)
        return lane.room(config.history_bytes, config.history_blocks, node.segment_bytes), lane.window.largest

    def submit(self, now_ns: int, region: int, blocks: Sequence[bytes], out: Outbox) -> int:
        taken = 0
        for block in blocks:
            head = head_of(block)
            if self.room(now_ns, region)[0] <= 0:
                break
            if head.rank == UNRELIABLE_RANK and not head.flags & FRAGMENTED:
                if region not in self._live and not self._is_member(region):
                    self._open(now_ns, region, out)  # nothing else tells our name
                self._send_unreliable(now_ns, region, block, out)
            else:
                lane = self._live.get(region) or self._open(now_ns, region, out)
                self._send_block(now_ns, lane, block, self._taken.get(region, 0), out)
            self._taken[region] = self._taken.get(region, 0) + 1
            taken += 1
        self._tell_acked(region)
        return taken

    def _open(self, now_ns: int, region: int, out: Outbox) -> RegionLane:
        """Block 0: how many blocks this node sent in earlier views that may not be drained yet."""
        node = self._node
        given = self._tiles[region]
        lane = self._live[region] = RegionLane(given, self._first_rate(now_ns), node.window_of(given))
        self._by_view[lane.given.view] = lane
        self._send_block(now_ns, lane, encode_open(self._opening()), -1, out)
        return lane

    def _is_member(self, region: int) -> bool:
        me = self._node.me.id
        return any(member.id == me for member in self._tiles[region].members)

    def _opening(self) -> LaneOpening:
        me = self._node.me
        earlier = [EarlierView(each.given.region, view, each.count) for view, each in self._closing.items()]
        return LaneOpening(self._node.epoch, me.name, me.life, me.address, tuple(earlier))

    def _first_rate(self, now_ns: int) -> SendingRate:
        terms = self._node.terms
        policy = policy_of(terms.rate_policy, terms.growth, MIN_RATE / terms.scale)
        first = terms.first_rate or first_rate_of(terms.rate_policy)
        return SendingRate(now_ns, policy, first, terms.scale)

    def _send_block(self, now_ns: int, lane: RegionLane, block: bytes, ordinal: int, out: Outbox) -> None:
        node = self._node
        segments = segments_of(len(block), node.config.datagram - PREFIX_BYTES)
        number = lane.add(now_ns, block, ordinal, segments, TAIL_ROUNDS * node.terms.token_ns)
        me, given = node.me.id, lane.given
        body = train(Kind.DATA, node.tag, given.view, me, number, block, node.config.datagram - PREFIX_BYTES)
        for address in self._targets(given):
            out.sends.append(Send(address, *body))
        view = node.views.get(given.view)
        record = view.record(me) if view is not None else None
        if view is not None and record is not None:
            # Own blocks are delivered at once, and are a member's as any others from then on.
            record.take(number, block, view.answered[number % view.count])
            record.next = record.prefix
            view.fresh_bytes += len(block) + view.overhead
            # They count as received (2.4): otherwise the sample of a member that sends alone would be 0, and the least.
            view.meter.add(now_ns, segments)
            if ordinal >= 0:
                node.up.deliver(given, me, number, block)

    def _send_unreliable(self, now_ns: int, region: int, block: bytes, out: Outbox) -> None:
        node, given = self._node, self._tiles[region]
        self._unreliable += 1
        lane = self._live.get(region)
        size = node.config.datagram - PREFIX_BYTES
        segments = segments_of(len(block), size)
        if lane is not None:
            lane.rate.take(now_ns, segments)
        me = node.me.id
        body = train(Kind.UNRELIABLE, node.tag, given.view, me, self._unreliable, block, size)
        for address in self._targets(given):
            out.sends.append(Send(address, *body))
        view = node.views.get(given.view)
        if view is not None:
            view.meter.add(now_ns, segments)
            node.up.deliver(given, me, -1, block)

    def _targets(self, given: GivenView) -> list[Address]:
        """The region's multicast address; copies to members that do not hear it, and where it is cheaper. A sender that
        is no member may have no multicast, where all members have it."""
        me, out = self._node.me, self._node.exclusions.out_of(given.epoch)
        others = [member for member in given.members if member.id != me.id and member.id not in out]
        if given.address is None or len(others) == 1 or not me.has_multicast:
            return [member.address for member in others]
        copies = [member.address for member in others if not member.has_multicast]
        return [given.address, *copies] if len(copies) < len(others) else copies

    # What regions say

    def on_ack(self, now_ns: int, parcel: Parcel) -> None:
        lane = self._by_view.get(parcel.ring)
        ack = decode_ack(parcel.body)
        if lane is not None:
            lane.on_ack(now_ns, ack, TAIL_ROUNDS * self._node.terms.token_ns)
            self._after_progress(lane)

    def on_nak(self, now_ns: int, peer: int, parcel: Parcel, out: Outbox) -> None:
        """Segments that a whole partition lacks: by multicast to all, or GONE to who asked."""
        node = self._node
        segments = decode_numbers(parcel.body)
        lane = self._by_view.get(parcel.ring)
        if lane is None or parcel.origin != node.me.id:
            return
        count = partition_count(lane.given)
        if parcel.number >= count:
            return
        datagram = node.config.datagram - PREFIX_BYTES
        answer = lane.answer(parcel.number, count, segments, node.segment_bytes)
        targets = self._targets(lane.given)
        for number, block, runs in answer.blocks:
            for first, stop in runs:
                lane.rate.take(now_ns, stop - first)
                node.post.count_repairs(node.me.id, stop - first)
                body = pieces(Kind.DATA, node.tag, parcel.ring, node.me.id, number, block, datagram, first, stop)
                for address in targets:
                    out.sends.append(Send(address, *body))
        if answer.gone.runs:
            node.post.send(peer, Parcel(Kind.GONE, parcel.ring, node.me.id, 0, encode_numbers(answer.gone)))

    def on_drained(self, parcel: Parcel) -> None:
        lane = self._closing.get(parcel.ring)
        if lane is not None:
            lane.drain()
            self._after_progress(lane)

    def _after_progress(self, lane: RegionLane) -> None:
        if lane.ended and lane.is_done:
            self._closing.pop(lane.given.view, None)
            self._by_view.pop(lane.given.view, None)
        self._tell_acked(lane.given.region)

    def _tell_acked(self, region: int) -> None:
        """UNRELIABLE blocks need no acknowledgement."""
        lanes = [lane for lane in self._closing.values() if lane.given.region == region]
        live = self._live.get(region)
        if live is not None:
            lanes.append(live)
        open_first = [lane.first_open for lane in lanes if lane.first_open >= 0]
        count = min(open_first, default=self._taken.get(region, 0))
        if count > self._acked.get(region, 0):
            self._acked[region] = count
            self._node.up.add(LaneAcked(region, count))

    # Time

    def expire(self, now_ns: int, out: Outbox) -> None:
        for lane in list(self.lanes()):
            lane.rate.expire(now_ns)
            if lane.tail_ns <= now_ns:
                self._repeat_tail(now_ns, lane, out)
            if lane.close_ns <= now_ns:
                self._close(now_ns, lane)

    def _repeat_tail(self, now_ns: int, lane: RegionLane, out: Outbox) -> None:
        """Nobody may know of it."""
        node = self._node
        number = lane.count - 1
        block = lane.kept[number]
        datagram = node.config.datagram - PREFIX_BYTES
        body = train(Kind.DATA, node.tag, lane.given.view, node.me.id, number, block, datagram)
        for address in self._targets(lane.given):
            out.sends.append(Send(address, *body))
        lane.tail_ns = now_ns + TAIL_ROUNDS * node.terms.token_ns
        segments = segments_of(len(block), datagram)
        lane.rate.take(now_ns, segments)
        node.tally("tails_repeated")
        node.tally("retransmissions", segments)
        lane.tails += 1
        if lane.tails >= DOUBTED_TAILS:
            # Perhaps all of its members are gone: then nobody there accuses anybody.
            given = lane.given
            leader = leader_of(partitions_of(given, node.exclusions.out_of(given.epoch)))
            self._accused.append(Accused(leader, given.view, node.epoch, Accusation.SILENCE))

    def take_accused(self) -> list[Accused]:
        accused, self._accused = self._accused, []
        return accused

    def _close(self, now_ns: int, lane: RegionLane) -> None:
        """CLOSE to one member after the other, beginning with the leader, until all of them have everything."""
        node = self._node
        given = lane.given
        out = node.exclusions.out_of(given.epoch)
        living = [member.id for member in given.members if member.id not in out]
        lane.close_ns = now_ns + node.terms.token_ns
        if not living:
            lane.drain()  # nobody is left who could lack anything
            self._after_progress(lane)
            return
        peer = living[lane.closings % len(living)]
        lane.closings += 1
        body = encode_close(LaneClosing(lane.count, lane.ended))
        node.post.send(peer, Parcel(Kind.CLOSE, given.view, node.me.id, 0, body))

    def deadline_ns(self) -> int:
        due_ns = NEVER
        for lane in self.lanes():
            due_ns = min(due_ns, lane.tail_ns, lane.close_ns, lane.rate.deadline_ns())
        return due_ns
