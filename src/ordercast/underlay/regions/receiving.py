"""Blocks that come to a member: from senders, from members that push, and in answer to pulls.

Hot: `on_data` once for each block; `benches/regions_engine.py` measures it.
"""

from __future__ import annotations

from typing import Final

from ordercast.engine import Note
from ordercast.errors import WireError
from ordercast.orderers.regions.member_view import MemberView, SenderErrand
from ordercast.orderers.regions.record import SenderRecord, at_least
from ordercast.orderers.regions.visit import Errand
from ordercast.parts.ranges import (
    EMPTY,
    NumberSet,
    blocks_of,
    contains,
    from_numbers,
    intersection,
    members_of,
    pieces_of,
    union,
)
from ordercast.parts.recent import Recent
from ordercast.service import RELIABLE_RANK
from ordercast.underlay.regions.node import RegionNode
from ordercast.view import node_id
from ordercast.wire.block import FRAGMENTED, Head, head_of
from ordercast.wire.courier import Parcel
from ordercast.wire.header import HEADER_BYTES, MAX_SEGMENTS, Kind
from ordercast.wire.regions import decode_close, decode_numbers, decode_open, encode_drained, encode_numbers
from ordercast.wire.segments import Datagram, segments_of

Buffer = bytes | bytearray | memoryview

GIVEN: Final = 1_024  # blocks of which one errand, or one question, brings segments; the rest comes in the next round
BUSY: Final = 2_048  # parcels that wait for a peer: it is given no more
EARLY_BYTES: Final = 1 << 20  # blocks of views that are not known here yet
MAX_EARLY: Final = 4_096  # datagrams of them
# Times the history that a member keeps, or lets wait for a gap, of one sender. An honest one has half of that out: with
# less than it may have out, a member with a gap could not take what closes it.
KEPT: Final = 8
MAX_RECENT: Final = 2_048  # senders whose UNRELIABLE numbers are remembered


class MemberDesk:
    __slots__ = ("_early", "_early_bytes", "_early_count", "_node", "_recent")

    def __init__(self, node: RegionNode) -> None:
        self._node = node
        self._recent: dict[tuple[int, int], Recent] = {}  # by view and sender
        self._early: dict[int, list[Datagram]] = {}  # by view
        self._early_bytes = 0
        self._early_count = 0

    # Blocks of senders

    def on_data(self, now_ns: int, datagram: Datagram) -> None:
        """A whole block or a segment, from its sender's own hand."""
        view = self._node.views.get(datagram.ring)
        if view is None:
            self._keep_early(datagram)
            return
        sender = datagram.origin
        if sender in view.stopped:
            return  # it is dead, and its final count is asked for
        record = view.records.get(sender)
        if record is not None and datagram.number < record.purge:
            # Everybody has it, and its sender does not know: the ACK was lost. The next round brings another one.
            record.has_news = True
        self._take(now_ns, view, sender, datagram.number, datagram.segment, datagram.last, datagram.body)

    def _take(
        self, now_ns: int, view: MemberView, sender: int, number: int, segment: int, last: int, body: Buffer
    ) -> None:
        record = view.records.get(sender) or view.record(sender)
        if record is None:
            self._node.tally("crowded_senders")
            return
        answers = view.answered[number % view.count]
        if not record.wants(number, answers):
            self._node.tally("duplicates")
            return
        node = self._node
        history = node.config.history_bytes
        is_full = max(record.waiting_bytes, record.kept_bytes) >= KEPT * history and number != record.prefix
        if is_full or node.up.lag_bytes >= history:
            node.tally("overrun_drops")
            return
        if last:
            view.meter.add(now_ns, 1)
            whole = node.parts.add((view.given.view, sender, number), segment, last, body)
            if whole is None:
                return
        else:
            whole = _bytes_of(body)
            view.meter.add(now_ns, segments_of(len(whole), node.segment_bytes + HEADER_BYTES))
            if len(node.parts):
                node.parts.forget((view.given.view, sender, number))
        self._take_whole(view, record, number, whole, answers)

    def _take_whole(self, view: MemberView, record: SenderRecord, number: int, block: bytes, answers: bool) -> None:
        """A wanted block is whole. What is malformed is dropped before anything changes."""
        head: Head | None = None
        opening = None
        if number:
            head = head_of(block)
        else:
            opening = decode_open(block)
            if node_id(opening.name, opening.life) != record.sender:
                raise WireError("opening of a lane by somebody else")
        if not record.take(number, block, answers):
            return  # it is kept again
        view.fresh_bytes += len(block) + view.overhead
        node = self._node
        if opening is not None:
            record.opening = opening
            node.post.learn(record.sender, opening.address)
            node.notes.append(Note("name", record.sender, detail=f"{opening.name}/{opening.life}"))
            for each in opening.earlier:
                earlier = node.views.get(each.view)
                found = earlier.record(record.sender) if earlier is not None else None
                if found is not None:
                    found.raise_cutoff(each.final)
        elif (
            head is not None
            and head.rank == RELIABLE_RANK
            and not head.flags & FRAGMENTED
            and _has_name(view, record.sender)
        ):
            node.up.deliver(view.given, record.sender, number, block)
            record.early.add(number)
        elif number == record.next:
            # The usual case: it is the next one.
            node.up.deliver(view.given, record.sender, number, block)
            record.next += 1
            node.fifo.advance(view, record, has_passed=True)
            return
        else:
            record.waiting[number] = block
            record.waiting_bytes += len(block)
            if record.next != number and not record.has(record.next):
                return
        node.fifo.advance(view, record)

    def on_unreliable(self, now_ns: int, datagram: Datagram) -> None:
        """Without a lane: at most once, and in no order."""
        node = self._node
        view = node.views.get(datagram.ring)
        if view is None or datagram.origin in node.exclusions.out_of(view.given.epoch):
            return
        if not _has_name(view, datagram.origin):
            node.tally("nameless_drops")
            return
        block = _bytes_of(datagram.body)
        head_of(block)
        lane = (datagram.ring, datagram.origin)
        recent = self._recent.get(lane)
        if recent is None:
            if len(self._recent) >= MAX_RECENT:
                del self._recent[next(iter(self._recent))]
            recent = self._recent[lane] = Recent()
        if node.up.lag_bytes >= node.config.history_bytes:
            node.tally("overrun_drops")
        elif recent.is_new(datagram.number):
            view.meter.add(now_ns, segments_of(len(block), node.segment_bytes + HEADER_BYTES))
            node.up.deliver(view.given, datagram.origin, -1, block)

    # Views that are not known yet

    def _keep_early(self, datagram: Datagram) -> None:
        """Its sender has installed an epoch that is on its way to us."""
        node = self._node
        size = len(datagram.body)
        if datagram.ring in node.forgotten or not node.epoch:
            return
        if self._early_count >= MAX_EARLY or self._early_bytes + size > EARLY_BYTES:
            return
        kept = self._early.setdefault(datagram.ring, [])
        kept.append(datagram._replace(body=memoryview(bytes(datagram.body))))
        self._early_bytes += size
        self._early_count += 1

    def installed(self) -> list[Datagram]:
        """Datagrams of views that are known now; what is left is forgotten with the next epoch."""
        found = [each for view, kept in self._early.items() if view in self._node.views for each in kept]
        self._early = {view: kept for view, kept in self._early.items() if view not in self._node.views}
        if not found:
            self._early.clear()
        self._early_bytes = sum([len(each.body) for kept in self._early.values() for each in kept])
        self._early_count = sum([len(kept) for kept in self._early.values()])
        return found

    # Parcels of other members

    def on_piece(self, now_ns: int, peer: int, parcel: Parcel) -> None:
        """PUSH or PULLED."""
        node = self._node
        view = node.views.get(parcel.ring)
        if view is None or not _is_member(view, peer) or parcel.origin == node.me.id:
            return
        if peer in node.exclusions.out_of(view.given.epoch):
            return
        if peer == parcel.origin and peer in view.stopped:
            return
        record = view.records.get(parcel.origin)
        if record is not None and contains(record.verdicts.carried, parcel.number):
            if parcel.kind == Kind.PUSH and not record.has(parcel.number):
                self._tell_lost(peer, view, record, NumberSet(((parcel.number, parcel.number + 1),)))
            return
        self._take(now_ns, view, parcel.origin, parcel.number, parcel.segment, parcel.last, parcel.body)

    def on_pull(self, peer: int, parcel: Parcel) -> None:
        node = self._node
        segments = decode_numbers(parcel.body)
        view = node.views.get(parcel.ring)
        if view is None:
            self.answer_drained(peer, parcel.ring)
            return
        record = view.records.get(parcel.origin)
        if record is None or parcel.number >= view.count or not _is_member(view, peer):
            return
        self._give(view, record, Errand(peer, parcel.number, segments), Kind.PULLED)
        if record.verdicts.carried.runs:
            asked = from_numbers([each * view.count + parcel.number for each in members_of(blocks_of(segments), GIVEN)])
            self._tell_lost(peer, view, record, intersection(asked, record.verdicts.carried))

    def on_lost(self, peer: int, parcel: Parcel) -> None:
        view = self._node.views.get(parcel.ring)
        blocks = decode_numbers(parcel.body)
        record = view.record(parcel.origin) if view is not None and _is_member(view, peer) else None
        if view is not None and record is not None and record.lose_all(blocks):
            self._node.tidy(view, parcel.origin)
            self._node.fifo.advance(view, record)

    def on_gone(self, peer: int, parcel: Parcel) -> None:
        """The sender does not keep blocks that it was asked for."""
        view = self._node.views.get(parcel.ring)
        blocks = decode_numbers(parcel.body)
        record = view.records.get(peer) if view is not None else None
        if record is not None:
            record.verdicts.gone = at_least(union(record.verdicts.gone, blocks), record.purge)
            record.has_news = True

    def on_close(self, peer: int, parcel: Parcel) -> None:
        """A sender's final count in a view that it leaves."""
        closing = decode_close(parcel.body)
        view = self._node.views.get(parcel.ring)
        if view is None:
            self.answer_drained(peer, parcel.ring)
            return
        record = view.record(peer) if peer not in view.stopped else None
        if record is not None and closing.final >= record.top:
            record.close(closing.final)
            self._node.fifo.advance(view, record)

    def on_drained(self, peer: int, parcel: Parcel) -> None:
        view = self._node.views.get(parcel.ring)
        if view is not None and view.ended and _is_member(view, peer):
            view.is_drained = True

    def answer_drained(self, peer: int, view: int) -> None:
        forgotten = self._node.forgotten.get(view)
        if forgotten is not None:
            body = encode_drained(forgotten.epoch)
            self._node.post.send(peer, Parcel(Kind.DRAINED, view, self._node.me.id, 0, body))

    # What a token made necessary

    def push(self, view: MemberView, errands: list[SenderErrand]) -> None:
        for sender, errand in errands:
            record = view.records.get(sender)
            if record is not None:
                self._give(view, record, errand, Kind.PUSH)

    def pull(self, view: MemberView, errands: list[SenderErrand]) -> None:
        for sender, (peer, partition, segments) in errands:
            if segments.runs:
                parcel = Parcel(Kind.PULL, view.given.view, sender, partition, encode_numbers(segments))
                self._node.post.send(peer, parcel)

    def ask(self, view: MemberView, errands: list[SenderErrand]) -> None:
        out = self._node.exclusions.out_of(view.given.epoch)
        for sender, (_, partition, segments) in errands:
            if segments.runs and sender not in out:
                parcel = Parcel(Kind.REGION_NAK, view.given.view, sender, partition, encode_numbers(segments))
                self._node.post.send(sender, parcel)

    def _give(self, view: MemberView, record: SenderRecord, errand: Errand, kind: Kind) -> None:
        """Segments that are here, also of blocks that are not whole: together, members may have them all."""
        node = self._node
        post, step, name, sender = node.post, node.segment_bytes, view.given.view, record.sender
        peer, partition, segments = errand
        if post.courier.waiting(peer) > BUSY:
            return
        for divided in members_of(blocks_of(_without_limit(segments)), GIVEN):
            number = divided * view.count + partition
            block = record.kept.get(number)
            if block is not None:
                last = max(0, -(-len(block) // step) - 1)
                body = memoryview(block)
                for first, stop in pieces_of(segments, divided, last + 1):
                    for at in range(first, stop):
                        piece = body[at * step : (at + 1) * step]
                        if not post.send(peer, Parcel(kind, name, sender, number, piece, at, last), False):
                            return
            elif not record.has(number):
                for first, stop in pieces_of(segments, divided, MAX_SEGMENTS):
                    for at in range(first, stop):
                        found = node.parts.piece((name, sender, number), at)
                        if found is not None:
                            post.send(peer, Parcel(kind, name, sender, number, found[0], at, found[1]), False)

    def _tell_lost(self, peer: int, view: MemberView, record: SenderRecord, blocks: NumberSet) -> None:
        if blocks.runs:
            body = encode_numbers(blocks)
            self._node.post.send(peer, Parcel(Kind.LOST, view.given.view, record.sender, 0, body))


def _without_limit(segments: NumberSet) -> NumberSet:
    """What a set names for certain; a block that its limit cuts is among it."""
    return segments._replace(limit=EMPTY.limit)


def _bytes_of(body: Buffer) -> bytes:
    """Without a copy where a train was stripped."""
    if isinstance(body, memoryview):
        whole = body.obj
        return whole if isinstance(whole, bytes) and len(whole) == len(body) else bytes(body)
    return bytes(body)


def _has_name(view: MemberView, sender: int) -> bool:
    """Whether anything has told who that is: OPEN may be overtaken."""
    if sender in view.members:
        return True
    record = view.records.get(sender)
    return record is not None and record.opening is not None


def _is_member(view: MemberView, peer: int) -> bool:
    return peer in view.members
