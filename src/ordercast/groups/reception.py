"""What an engine delivers on one channel: blocks are routed to the ports of their group.

A block that no port here wants is passed over: it counts as consumed when everything before it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ordercast.engine import Delivery, RepeatedCall
from ordercast.errors import WireError
from ordercast.groups.calls import shown_call
from ordercast.groups.consumption import Receipt
from ordercast.groups.events import NO_POSITION, Batch, CallBatch, MixedBatch
from ordercast.groups.group_views import session_name
from ordercast.groups.open_calls import pass_by
from ordercast.groups.opened_block import OpenedBlock
from ordercast.groups.port import Port
from ordercast.groups.queued import NOBODY
from ordercast.groups.requests import Incoming, read_call
from ordercast.groups.stream import MIXED, Stream, row_runs, runs_of
from ordercast.service import AGREED_RANK
from ordercast.view import View
from ordercast.wire.block import (
    CALLED,
    CHANGE,
    ENTRY,
    FRAGMENTED,
    GROUPED,
    HEAD_BYTES,
    MULTI,
    ROSTER,
    Head,
    groups_of,
    head_of,
    label_of,
    payload_bytes,
    roster_body,
    service_of,
)
from ordercast.wire.fragments import Assembler, Whole

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.shared import SharedGroups

MAX_NAMES: Final = 4_096
"""Names of senders remembered, those of earlier views included; at the bound only the present members' are kept."""


class Reception:
    """The receiving side of one channel. `streams` is the channel's list of sessions."""

    __slots__ = (
        "_assembler",
        "_channel",
        "_consumption",
        "_me",
        "_previous",
        "_routes",
        "_rows",
        "_streams",
        "_view",
        "dropped_fragments",
        "is_shared",
        "names",
        "unreadable_blocks",
    )

    def __init__(self, channel: Channel, is_shared: bool) -> None:
        self._channel = channel
        self._me = channel.me
        self._streams = channel.streams
        self._consumption = channel.consumption
        self._rows = channel.rows
        # routing
        self.is_shared = is_shared  # otherwise all blocks are of one group, whatever they say
        self._routes: dict[int, list[Port]] = {}  # group number -> the ports of all sessions
        # the stream of deliveries
        self._view: View | None = None
        self._previous: dict[str, int] = {}  # label of a session -> position of its last ordered message
        self._assembler = Assembler(channel.max_message)
        self.names: dict[int, str] = {channel.me.id: str(channel.me)}  # of senders
        # counters
        self.unreadable_blocks = 0
        self.dropped_fragments = 0

    # Ports.

    def attach(self, port: Port) -> None:
        self._routes.setdefault(port.number, []).append(port)
        port.stream.wanted.add(port.number)

    def detach(self, port: Port) -> None:
        port.stream.forget_number(port)
        ports = [other for other in self._routes.pop(port.number, ()) if other is not port]
        if ports:
            self._routes[port.number] = ports
        port.stream.wanted.discard(port.number)

    def renumber(self, find: Callable[[str], int]) -> None:
        """All groups have other numbers, which `find` gives; NOBODY: the group is not there any more. Streams have
        forgotten the old ones."""
        ports = [port for found in self._routes.values() for port in found]
        self._routes.clear()
        for stream in self._streams:
            stream.wanted.clear()
        for port in ports:
            port.number = find(port.group)
            if port.number > NOBODY:
                self.attach(port)

    @property
    def is_assembling(self) -> bool:
        """Whether parts of large messages have come."""
        return not self._assembler.is_empty

    def drop_open(self, number: int) -> None:
        """A node came into a group that may not have got the beginnings of large messages to it: they begin again."""
        dropped = self._assembler.drop_to(number)
        for stream in self._streams:
            if (self._me.id, stream.label) in dropped:
                stream.restart_large()

    def ports_of(self, number: int) -> Sequence[Port]:
        """The ports of a group, of all sessions."""
        return self._routes.get(number, ())

    def forget(self, stream: Stream) -> None:
        """A labelled session is out of the underlay: it counts anew if it comes back."""
        if stream.label:
            self._previous.pop(stream.label, None)

    # What the engine says.

    def run(self, now_ns: int, deliveries: Sequence[Delivery]) -> int:
        """Blocks in their order; how many of them this pass came to. Hot: one turn per block; benches measure it as
        part of `deliver`."""
        names, me, consumption = self.names, self._me.id, self._consumption
        routes, is_shared, streams = self._routes, self.is_shared, self._streams
        view = self._view.id if self._view else ""
        shared, group, done, label = self._channel.shared, 0, 0, ""
        for seq, position, origin, number, block in deliveries:
            done += 1
            try:
                head = head_of(block)
                if is_shared:
                    label = label_of(block)
            except WireError:
                self.unreadable_blocks += 1
                consumption.pass_over(seq)
                continue
            first, count, rank, k, flags, _ = head
            if is_shared:
                if flags & (ROSTER | GROUPED | MULTI):
                    self._run_shared(now_ns, seq, position, origin, label, number, block, head)
                    if flags & ROSTER and shared is not None and shared.left <= 0:
                        return done
                    continue
                group = ENTRY.unpack_from(block, HEAD_BYTES)[0]
            ports = routes.get(group)
            sender = names.get(origin) or f"{origin:016x}"
            if label:
                sender = session_name(sender, label)
            stream: Stream | None = None
            if origin == me:
                # One session is the usual case, and owns blocks of before it came in, too.
                stream = streams[0] if len(streams) == 1 else self._sender(number, label)
            batch: Batch | None
            call: Incoming | None = None
            if flags & CALLED:
                call = self._open_call(origin, number, position, block, label)
                if call is not None and shared is not None and self._view is not None:
                    pass_by(shared.streams, me, call, group, self._view.locks)
                if call is None or ports is None:
                    if stream is not None and call is not None and not call.is_outside:
                        stream.delivered(now_ns, number, first, count, position)
                    consumption.pass_over(seq)
                    continue
                sender, service, size = call.sender, call.service, len(call.payload)
                if call.is_outside:
                    stream = None  # a call from before this node came in
                batch = CallBatch(shown_call(call, ports[0].group))
            elif flags & (FRAGMENTED | CHANGE | ROSTER):
                batch = None
                if flags & FRAGMENTED:
                    whole = self._assemble(origin, block, stream)
                    if whole is not None:
                        name = ports[0].group if ports is not None else ""
                        shown_at = position if whole.service.is_ordered else NO_POSITION
                        batch = Batch(
                            b"", name, view, sender, first, 1, shown_at, whole.service, [whole.payload], whole.type
                        )
                if stream is not None:
                    stream.outstanding.pop(number, None)
                    if batch is not None:
                        stream.queue.delivered_large(first)
                if batch is None:
                    consumption.pass_over(seq)
                    continue
                service, size = batch.service, len(batch.messages[0])
            else:
                service, size = service_of(rank, k), payload_bytes(block, head)
                shown_at = position if rank >= AGREED_RANK else NO_POSITION
                name = ports[0].group if ports is not None else ""
                batch = Batch(block, name, view, sender, first, count, shown_at, service)
            if ports is not None:
                previous = self._previous
                for port in ports if is_shared else ports[:1]:  # each is another session's
                    if shared is not None:
                        shared.signal(now_ns, port)
                    mine, last = port.stream.label, position + count - 1
                    before = previous.get(mine, -1)
                    port.stream.rows.deliver(now_ns, group, sender, first, count, service, position, before, size)
                    if rank >= AGREED_RANK:
                        previous[mine] = last
            if stream is not None:
                stream.delivered(now_ns, number, first, count, position)
            if ports is None:
                consumption.pass_over(seq)
                continue
            if is_shared:
                handed = [(port, batch) for port in ports]
                if call is not None:  # what a session has no part in, it sees
                    handed = [
                        (port, CallBatch(port.calls.deliver(call)) if port.takes_calls else batch) for port in ports
                    ]
                self._hand_out(seq, max(len(block), size), handed)
                continue
            if call is not None:
                batch = CallBatch(ports[0].calls.deliver(call))
            receipt = Receipt(seq, len(ports))
            consumption.receipts.append(receipt)
            for port in ports:
                port.messages_delivered += count
                port.add(batch, receipt)
        return done

    def _run_shared(
        self, now_ns: int, seq: int, position: int, origin: int, label: str, number: int, block: bytes, head: Head
    ) -> None:
        """A block that only shared underlays have: an operation on the roster, or messages to several groups."""
        shared, consumption = self._channel.shared, self._consumption
        first, count, flags = head.first, head.count, head.flags
        stream = self._sender(number, label) if origin == self._me.id else None
        try:
            if shared is None or flags & ROSTER:
                if shared is not None:
                    shared.on_operation(now_ns, position, origin, roster_body(block, head))
                    if origin == self._me.id:
                        shared.system.outstanding.pop(number, None)
                consumption.pass_over(seq)
                return
            groups = groups_of(block, head)
            if isinstance(groups, int):
                raise WireError("a block to one group")
        except WireError:
            self.unreadable_blocks += 1
            consumption.pass_over(seq)
            return
        sender = session_name(self.names.get(origin) or f"{origin:016x}", label)
        view = self._view.id if self._view else ""
        # Names are looked up when they are asked for, in the roster of now: there may be another one by then.
        opened = OpenedBlock(block, head, sender, position, view, shared.roster.current_names)
        whole_bytes = 0
        if flags & FRAGMENTED:
            whole = self._assemble(origin, block, stream)
            if stream is not None:
                stream.outstanding.pop(number, None)
                if whole is not None:
                    stream.queue.delivered_large(first)
            if whole is None:
                consumption.pass_over(seq)
                return
            opened.fill(whole.payload, whole.type)
            whole_bytes = len(whole.payload)
        parts = self._parts(opened, groups, bool(flags & MULTI))
        if stream is not None:
            stream.delivered(now_ns, number, first, count, position)
        if not parts:
            consumption.pass_over(seq)
            return
        self._signal(now_ns, shared, parts, groups if flags & MULTI else ())
        if self._rows.is_on:
            for each in dict.fromkeys([port.stream for port, _ in parts]):
                is_whole = any(batch.count == count for port, batch in parts if port.stream is each)
                previous = self._write(now_ns, each, opened, groups, bool(flags & MULTI), is_whole)
                if head.rank >= AGREED_RANK:
                    self._previous[each.label] = previous
        self._hand_out(seq, max(len(block), whole_bytes), parts)

    def _signal(
        self, now_ns: int, shared: SharedGroups, parts: Sequence[tuple[Port, Batch]], groups: Sequence[int]
    ) -> None:
        """Whoever gets a block hears of a recovery before it. `groups`: of a message that a session gets by one of its
        groups only. It counts in the others as well, so their signals do not come behind it."""
        for port, _ in parts:
            shared.signal(now_ns, port)
        for number in groups:
            for port in self._routes.get(number, ()):
                shared.signal(now_ns, port)

    def _hand_out(self, seq: int, size: int, parts: Sequence[tuple[Port, Batch]]) -> None:
        """Give a block of `size` bytes to ports of a shared underlay. Those that may hold it do."""
        consumption = self._consumption
        held: Receipt | None = None
        waited: Receipt | None = None
        for port, batch in parts:
            port.messages_delivered += batch.count
            if port.may_hold(size):
                if held is None:
                    held = consumption.hold(size, 0)
                held.remaining += 1
                port.add(batch, held)
            else:
                if waited is None:
                    waited = consumption.add(seq, 0)
                waited.remaining += 1
                port.add(batch, waited)
        if waited is None:
            consumption.pass_over(seq)

    def _parts(self, opened: OpenedBlock, groups: Sequence[int], is_multi: bool) -> list[tuple[Port, MixedBatch]]:
        """What each port, or each session that receives all groups in one order, gets of a block to several groups."""
        routes = self._routes
        if is_multi:
            # A session gets it once, by the first of its groups, and learns of all.
            found: dict[int, Port] = {}
            for number in groups:
                for port in routes.get(number, ()):
                    found.setdefault(id(port.stream), port)
            return [(port, MixedBatch(opened, port.group, None, groups)) for port in found.values()]
        parts: list[tuple[Port, MixedBatch]] = []
        has_others = False
        for stream in self._streams:
            if not stream.is_fed or stream.base is None:
                has_others = has_others or bool(stream.ports)
                continue
            picked = stream.wanted.pick(groups)
            if picked is None or picked:
                parts.append((stream.base, MixedBatch(opened, "", picked, groups, is_multi=False)))
        if not has_others or routes.keys().isdisjoint(groups):
            return parts
        indexes: dict[int, list[int]] = {}
        for index, number in enumerate(groups):
            if number in routes:
                indexes.setdefault(number, []).append(index)
        parts += [
            (port, MixedBatch(opened, port.group, index, None))
            for number, index in indexes.items()
            for port in routes[number]
            if not port.stream.is_fed
        ]
        return parts

    def _write(
        self, now_ns: int, stream: Stream, opened: OpenedBlock, groups: Sequence[int], is_multi: bool, is_whole: bool
    ) -> int:
        """The rows of a block to several groups: one for each run of messages to one group that the session wants, or,
        if it wants all of it and it mixes many groups, one. The position of the last message that it wants.

        Where blocks are pruned, who has to hold a message depends on its group: there no row mixes groups.
        """
        rows, head, position, service = stream.rows, opened.head, opened.position, opened.service
        previous = self._previous.get(stream.label, -1)
        if is_multi:
            size = sum(map(len, opened.payloads))
            rows.deliver_many(now_ns, groups, opened.sender, head.first, head.count, service, position, previous, size)
            return position + head.count - 1
        may_mix = is_whole and self._channel.engine.interest is None
        for number, start, stop in row_runs(groups) if may_mix else runs_of(groups):
            if number == MIXED:
                rows.deliver(
                    now_ns, MIXED, opened.sender, head.first, head.count, service, position, previous, opened.size
                )
                previous = position + head.count - 1
            elif any(port.stream is stream for port in self._routes.get(number, ())):
                size = sum(map(len, opened.payloads[start:stop]))
                at = position + start
                rows.deliver(
                    now_ns, number, opened.sender, head.first + start, stop - start, service, at, previous, size
                )
                previous = at + stop - start - 1
        return previous

    def repeat(self, now_ns: int, again: RepeatedCall) -> None:
        """A call that was delivered here has come again."""
        call = self._open_call(again.origin, again.number, -1, again.block)
        if call is None:
            return
        group = ENTRY.unpack_from(again.block, HEAD_BYTES)[0] if self.is_shared else 0
        port = next((port for port in self._routes.get(group, ()) if not port.stream.label), None)
        if port is not None and port.calls.again(call):
            self._rows.redeliver(now_ns, group, call.sender, call.first, call.service, len(call.payload))

    def install(self, view: View, max_message: int) -> bool:
        """The next deliveries are in this view. True: members dropped the large messages that are half delivered."""
        self._view = view
        present = {member.id: str(member) for member in view.members}
        if len(self.names) + len(present) > MAX_NAMES:
            self.names.clear()
            self.names[self._me.id] = str(self._me)
        self.names.update(present)
        if len(view.came_with) < len(view.members):
            # Somebody is new and has no beginning of the large messages that are half delivered: all drop theirs, and
            # the senders begin again. This node may be the new one, and its group another than before.
            self._assembler = Assembler(max_message)
            return True
        self._assembler.retire(present)
        return False

    def on_departed(self, max_message: int) -> None:
        """This node is out: what comes next belongs to another log."""
        self._view = None
        self._previous.clear()
        self._assembler = Assembler(max_message)
        self._consumption.on_departed()

    # In detail.

    def _sender(self, number: int, label: str) -> Stream | None:
        """The session that sent own block `number`. UNRELIABLE blocks have none, and are known by their label."""
        shared = self._channel.shared
        if shared is None:
            return next((stream for stream in self._streams if number in stream.outstanding), None)
        stream = shared.streams.get(label)
        return stream if stream is not None and (number < 0 or number in stream.outstanding) else None

    def _open_call(self, origin: int, number: int, position: int, block: bytes, label: str = "") -> Incoming | None:
        try:
            call = read_call(origin, number, position, block, self._view.id if self._view else "", self.names)
        except WireError:
            self.unreadable_blocks += 1
            return None
        if origin not in self.names:
            if len(self.names) >= MAX_NAMES:
                self.names.clear()
                self.names.update((member.id, str(member)) for member in (self._view.members if self._view else ()))
            self.names[origin] = call.sender
        return call._replace(sender=session_name(call.sender, label)) if label and not call.is_outside else call

    def _assemble(self, origin: int, block: bytes, stream: Stream | None) -> Whole | None:
        """The large message that a fragment completes. `stream`: the sender of an own one."""
        try:
            whole = self._assembler.add(origin, block)
        except WireError:
            self.dropped_fragments += 1
            return None
        if stream is not None:
            stream.is_large_open = whole is None
        return whole
