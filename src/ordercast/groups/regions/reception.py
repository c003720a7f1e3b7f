"""What regions deliver: whole blocks for who receives all groups at once, parts of them for handles of single groups.

Groups without a handle have none of this: what comes for them waits in one list, the *backlog*, until somebody asks for
the group's handle or for all groups. It holds up the regions as any application does that does not receive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ordercast.errors import WireError
from ordercast.groups.consumption import Receipt
from ordercast.groups.events import NO_POSITION, Batch, Lost, MixedBatch, PortEvent
from ordercast.groups.opened_block import OpenedBlock
from ordercast.groups.regions.port import RegionPort
from ordercast.orderers.regions.upcalls import BlocksLost, LaneRun
from ordercast.wire.block import (
    CALLED,
    CHANGE,
    FRAGMENTED,
    MULTI,
    ROSTER,
    groups_of,
    head_of,
    payload_bytes,
    service_of,
)
from ordercast.wire.fragments import Assembler, Whole

if TYPE_CHECKING:
    from ordercast.groups.regions.channel import RegionChannel

MAX_SENDERS: Final = 65_536
"""Senders whose next number is known, for `Lost`; at the bound all are forgotten, and `Lost` says -1."""

MAX_LOST: Final = 1_024
"""`Lost` events in the backlog; the oldest go first."""

MAX_ASSEMBLERS: Final = 8
"""Regions of which fragments are put together: as many as a node may be in the views of."""


class BacklogBlock:
    """A block in the backlog: the messages whose groups have no handle, by the number of their group."""

    __slots__ = ("block", "opened", "parts", "receipt")

    def __init__(self, receipt: Receipt, block: Batch | None, opened: OpenedBlock | None) -> None:
        self.receipt = receipt
        self.block = block  # of one group
        self.opened = opened
        self.parts: dict[int, list[int] | None] = {}  # group -> which messages; None: all


class RegionReception:
    """The receiving side of one node on regions."""

    __slots__ = (
        "_assemblers",
        "_backlog",
        "_channel",
        "_lost",
        "_next",
        "dropped_fragments",
        "unreadable_blocks",
        "unwanted",
    )

    def __init__(self, channel: RegionChannel) -> None:
        self._channel = channel
        self._backlog: deque[BacklogBlock] = deque()
        self._lost: deque[tuple[int, Lost]] = deque(maxlen=MAX_LOST)  # with its turn
        self._assemblers: dict[int, Assembler] = {}  # by region
        self._next: dict[tuple[int, int], int] = {}  # region and sender -> the number of its next message
        # counters
        self.unreadable_blocks = 0
        self.dropped_fragments = 0
        self.unwanted = 0  # messages of groups that this node is not in

    @property
    def is_assembling(self) -> bool:
        return any(not each.is_empty for each in self._assemblers.values())

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    # What the engine says.

    def run(self, now_ns: int, run: LaneRun) -> None:
        """Blocks in their order. Hot: one turn per block."""
        channel = self._channel
        consumption, names, rows = channel.consumption, channel.views.names, channel.rows
        region, view, nexts = run.region, run.view, self._next
        base = channel.base if channel.handles.is_fed else None
        wanted, is_on = channel.joined.wanted, rows.is_on
        if len(nexts) > MAX_SENDERS:
            nexts.clear()
        for seq, _, origin, _, block in run.deliveries:
            try:
                head = head_of(block)
                if head.flags & (CALLED | CHANGE | ROSTER):
                    raise WireError("not messages")
                groups = groups_of(block, head)
            except WireError:
                self.unreadable_blocks += 1
                consumption.pass_over(seq)
                continue
            first, count, rank, k, flags, _ = head
            sender = names.get(origin) or f"{origin:016x}"
            nexts[region, origin] = first + count
            whole: Whole | None = None
            if flags & FRAGMENTED:
                whole = self._assemble(region, origin, block)
                if whole is None:
                    consumption.pass_over(seq)
                    continue
            service = service_of(rank, k)
            if isinstance(groups, int):
                if wanted.pick((groups,)) is not None:
                    self.unwanted += count
                    consumption.pass_over(seq)
                    continue
                size = len(whole.payload) if whole is not None else payload_bytes(block, head)
                if is_on:
                    rows.deliver(now_ns, region, view, sender, first, count, service, size)
                batch = Batch(
                    block if whole is None else b"",
                    channel.name_of(groups),
                    view,
                    sender,
                    first,
                    count,
                    NO_POSITION,
                    service,
                    None if whole is None else [whole.payload],
                    0 if whole is None else whole.type,
                )
                if base is not None:
                    base.messages_delivered += count
                    base.events.add(batch, consumption.add(seq, 1))
                    channel.note(base)
                else:
                    self._hand_out(seq, groups, batch, max(len(block), size))
                continue
            opened = OpenedBlock(block, head, sender, NO_POSITION, view, channel.name_of)
            if whole is not None:
                opened.fill(whole.payload, whole.type)
            picked = wanted.pick(groups)
            if picked is not None and not picked:
                self.unwanted += count
                consumption.pass_over(seq)
                continue
            is_multi = bool(flags & MULTI)
            if is_on:
                marks = None if picked is None or is_multi else _marks(picked, count)
                size = len(whole.payload) if whole is not None else opened.size
                rows.deliver(now_ns, region, view, sender, first, count, service, size, marks)
            if base is None:
                self._divide(seq, opened, groups, picked, is_multi)
                continue
            mixed = MixedBatch(opened, "", None if is_multi else picked, groups, is_multi=is_multi)
            base.messages_delivered += mixed.count
            self.unwanted += count - mixed.count
            base.events.add(mixed, consumption.add(seq, 1))
            channel.note(base)

    def lose(self, now_ns: int, lost: BlocksLost) -> None:
        """Blocks of a lane will not come. Any of the groups may have had messages in them."""
        channel = self._channel
        sender = channel.views.name_of(lost.origin)
        channel.rows.lost(now_ns, lost.region, lost.view, sender, lost.first, lost.count)
        if not lost.first:
            lost = lost._replace(first=1, count=lost.count - 1)  # block 0 holds no messages
        if not lost.count:
            return
        event = Lost(sender, self._next.get((lost.region, lost.origin), -1), lost.count)
        if channel.handles.is_fed:
            channel.base.tell(event)
            return
        for port in channel.handles.ports.values():
            if port.is_member:
                port.tell(Lost(event.sender, event.first, event.count, port.group))
        if len(channel.handles.ports) < len(channel.joined.numbers):
            self._lost.append((channel.consumption.hold(0, 0).turn, event))

    def depart(self) -> None:
        self._assemblers.clear()
        self._next.clear()

    # Handles.

    def attach(self, port: RegionPort, number: int) -> None:
        """A group has a handle from here on: what has come for it before is its."""
        found: list[tuple[PortEvent, Receipt | None]] = []
        for kept in list(self._backlog):
            if number not in kept.parts:
                continue
            index = kept.parts.pop(number)
            if kept.opened is None:
                event: Batch | None = kept.block
            else:
                event = MixedBatch(kept.opened, port.group, index, None)
            if event is None:
                continue
            found.append((event, self._share(kept)))
            port.messages_delivered += event.count
        if self._lost:
            for turn, lost in self._lost:
                found.append((Lost(lost.sender, lost.first, lost.count, port.group), Receipt(-1, 1, 0, turn)))
            if len(self._channel.handles.ports) >= len(self._channel.joined.numbers):
                self._lost.clear()  # every group has been told
        if found:
            port.events.take_over(found)

    def feed(self, base: RegionPort, ports: Sequence[RegionPort]) -> None:
        """All groups are received at once from here on: what has come before follows in the same order."""
        found = [event for port in ports for event in port.events.take_all()]
        for kept in self._backlog:
            event: Batch | None = kept.block
            if kept.opened is not None:
                index = sorted([at for part in kept.parts.values() for at in part or ()])
                event = MixedBatch(kept.opened, "", index, kept.opened.column(), is_multi=False)
            if event is not None:
                found.append((event, kept.receipt))
                base.messages_delivered += event.count
        for turn, lost in self._lost:
            found.append((lost, Receipt(-1, 1, 0, turn)))
        self._backlog.clear()
        self._lost.clear()
        base.events.take_over(found)
        self._channel.note(base)

    # In detail.

    def _assemble(self, region: int, origin: int, block: bytes) -> Whole | None:
        assembler = self._assemblers.get(region)
        if assembler is None:
            if len(self._assemblers) >= MAX_ASSEMBLERS:
                oldest = self._assemblers.pop(next(iter(self._assemblers)))
                self.dropped_fragments += int(not oldest.is_empty)
            assembler = self._assemblers[region] = Assembler(self._channel.max_message)
        try:
            return assembler.add(origin, block)
        except WireError:
            self.dropped_fragments += 1
            return None

    def _hand_out(self, seq: int, number: int, batch: Batch, size: int) -> None:
        """A block of one group, for its handle or for the backlog."""
        channel = self._channel
        port = channel.handles.by_number.get(number)
        if port is not None:
            self._add(port, batch, self._receipt(seq, port, size))
            return
        kept = BacklogBlock(self._receipt(seq, None, size), batch, None)
        kept.parts[number] = None
        self._backlog.append(kept)

    def _divide(
        self, seq: int, opened: OpenedBlock, groups: Sequence[int], picked: list[int] | None, is_multi: bool
    ) -> None:
        """A block of several groups, for their handles; the rest goes to the backlog."""
        channel = self._channel
        by_number, size = channel.handles.by_number, len(opened.block) or opened.size
        parts: dict[int, list[int]] = {}
        if is_multi:
            # A node gets it once, by the first of its groups, and learns of all.
            mine = [groups[at] for at in (picked if picked is not None else range(len(groups)))]
            number = next((each for each in mine if each in by_number), mine[0])
            parts[number] = list(range(opened.head.count))
        else:
            for at in picked if picked is not None else range(len(groups)):
                parts.setdefault(groups[at], []).append(at)
        consumption = channel.consumption
        rest: dict[int, list[int] | None] = {}
        held: Receipt | None = None
        waited: Receipt | None = None
        for number, index in parts.items():
            port = by_number.get(number)
            if port is None:
                rest[number] = index
                continue
            batch = MixedBatch(opened, port.group, None if is_multi else index, groups if is_multi else None)
            if port.events.may_hold(size):
                held = held if held is not None else consumption.hold(size, 0)
                held.remaining += 1
                self._add(port, batch, held)
            else:
                waited = waited if waited is not None else consumption.add(seq, 0)
                waited.remaining += 1
                self._add(port, batch, waited)
        if rest:
            waited = waited if waited is not None else consumption.add(seq, 0)
            waited.remaining += 1
            kept = BacklogBlock(waited, None, opened)
            kept.parts.update(rest)
            self._backlog.append(kept)
        if waited is None:
            consumption.pass_over(seq)

    def _add(self, port: RegionPort, batch: Batch, receipt: Receipt) -> None:
        port.show_view()  # before the first message of an epoch
        port.messages_delivered += batch.count
        port.events.add(batch, receipt)
        self._channel.note(port)

    def _receipt(self, seq: int, port: RegionPort | None, size: int) -> Receipt:
        """On the port's own account where it may hold so much; otherwise the regions wait for it."""
        consumption = self._channel.consumption
        if port is not None and port.events.may_hold(size):
            receipt = consumption.hold(size, 1)
            consumption.pass_over(seq)
            return receipt
        return consumption.add(seq, 1)

    def _share(self, kept: BacklogBlock) -> Receipt:
        """The receipt of a part of a block that leaves the backlog."""
        if kept.parts:
            kept.receipt.remaining += 1
        else:
            self._backlog.remove(kept)
        return kept.receipt


def _marks(picked: list[int], count: int) -> list[bool]:
    found = [False] * count
    for at in picked:
        found[at] = True
    return found
