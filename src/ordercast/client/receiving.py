"""What a client receives: blocks go to the seats of their groups, and the daemon learns what was consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ordercast.client.seats import ClientSeat, Portion
from ordercast.engine import Failed, Transitional
from ordercast.groups.events import Batch, MixedBatch, PortEvent, Uncertain
from ordercast.groups.opened_block import OpenedBlock
from ordercast.groups.status import Resumed, Stalled
from ordercast.wire.block import CALLED, FRAGMENTED, GROUPED, MULTI, groups_of, head_of, service_of
from ordercast.wire.client_frames import encode_consumed
from ordercast.wire.daemon_frames import DeliveryReader
from ordercast.wire.fragments import Assembler
from ordercast.wire.frames import PREFIX_BYTES

if TYPE_CHECKING:
    from ordercast.client.session import ClientSession

CONSUMED_SHARE: Final = 8
"""The daemon is told of what was consumed when it is this part of the window."""


class ClientReceiving:
    """The receiving side of one client."""

    __slots__ = (
        "_assembler",
        "_connection",
        "_consumed",
        "_held",
        "_parts",
        "_reader",
        "_received",
        "_session",
        "_told",
        "window",
    )

    def __init__(self, session: ClientSession, window: int) -> None:
        self._session = session
        self.window = window
        self._reader = DeliveryReader()
        self._assembler = Assembler(1)
        self._connection = 0  # counts them
        self._received = 0  # bytes of event frames, on this connection
        self._held = 0  # those of them that wait for the application
        self._parts = 0  # those that are part of a message whose end has not come
        self._consumed = 0
        self._told = 0

    @property
    def received_bytes(self) -> int:
        return self._received

    def on_welcome(self, max_message: int) -> None:
        """Another connection. Events of the one before that the application has not taken count no more."""
        self._reader, self._assembler = DeliveryReader(), Assembler(max_message)
        self._connection += 1
        self._received = self._held = self._parts = self._consumed = self._told = 0

    # Consumption.

    def portion(self, body: bytes) -> Portion:
        """What a frame of events counts as."""
        size = len(body) + PREFIX_BYTES
        self._received += size
        self._held += size
        return Portion(self._connection, size)

    def finish(self, portion: Portion) -> bool:
        """One seat has finished with bytes of the daemon. Whether the daemon is to be told now."""
        portion.remaining -= 1
        if portion.remaining or portion.connection != self._connection:
            return False
        self._held -= portion.size
        # Parts of a message count as consumed until it is whole: it may be larger than the window. Then they wait as it
        # does, and what was said cannot be taken back: so much less is consumed of what follows.
        self._consumed = max(self._consumed, self._received - self._held)
        return (self._consumed - self._told) * CONSUMED_SHARE >= self.window

    def pump(self, out: list[bytes]) -> None:
        """Tell the daemon what was consumed: much of it, or everything."""
        news = self._consumed - self._told
        if news * CONSUMED_SHARE >= self.window or (news and self._consumed == self._received):
            self._told = self._consumed
            out.append(encode_consumed(self._consumed))

    # Events.

    def deliver(self, body: bytes) -> None:
        """A DELIVER frame. Hot: once for each block."""
        session, portion = self._session, self.portion(body)
        position, view, sender, groups, block = self._reader.read(body)
        head = head_of(block)
        flags = head.flags
        name = next(iter(groups.values()))
        if flags & CALLED:
            seat = session.seats.get(name)
            event = session.calls.deliver(seat, block, head, sender, position, view) if seat is not None else None
            if event is None:
                session.finish(portion)
            else:
                self.hand(self.receiver(name), event, portion)
            return
        if not flags & (FRAGMENTED | GROUPED | MULTI):
            service = service_of(head.rank, head.k)
            batch = Batch(block, name, view, sender, head.first, head.count, position, service)
            self.hand(self.receiver(name), batch, portion)
            return
        opened = OpenedBlock(block, head, sender, position, view, lambda number: groups.get(number, ""))
        if flags & FRAGMENTED:
            whole = self._assembler.add(0, block)
            if whole is None:
                self._parts += portion.size
                session.finish(portion)  # otherwise a message larger than the window would never come
                return
            self._held += self._parts
            portion.size += self._parts
            self._parts = 0
            if not flags & MULTI:
                payloads = [whole.payload]
                batch = Batch(b"", name, view, sender, head.first, 1, position, whole.service, payloads, whole.type)
                self.hand(self.receiver(name), batch, portion)
                return
            opened.fill(whole.payload, whole.type)
        numbers = groups_of(block, head)
        column: Sequence[int] = (numbers,) if isinstance(numbers, int) else numbers
        if flags & MULTI:
            name = self._addressee([groups.get(number, "") for number in column])
            self.hand(self.receiver(name), MixedBatch(opened, name, None, column), portion)
        elif session.is_fed:
            self.hand(session.base, MixedBatch(opened, "", None, column, is_multi=False), portion)
        else:
            indexes: dict[str, list[int]] = {}
            for at, number in enumerate(column):
                indexes.setdefault(groups.get(number, ""), []).append(at)
            found = [(session.seats[each], index) for each, index in indexes.items() if each in session.seats]
            self._share(portion, len(found))
            for seat, index in found:
                seat.add(MixedBatch(opened, seat.group, index, None), portion)

    def _addressee(self, names: Sequence[str]) -> str:
        """The group in which a message to several is received: the first that this client is in. One that it is only on
        its way into would have the message before its first view."""
        seats = self._session.seats
        return next((name for name in names if name in seats and seats[name].is_member), "")

    def receiver(self, group: str) -> ClientSeat | None:
        """Where events of a group go."""
        session = self._session
        return session.base if session.is_fed else session.seats.get(group)

    def hand(self, seat: ClientSeat | None, event: PortEvent, portion: Portion) -> None:
        """Give an event to a seat, or to nobody."""
        if seat is None:
            self._session.finish(portion)
        else:
            seat.add(event, portion)

    def signal(self, signal: Transitional, portion: Portion) -> None:
        """The view of the daemons ends. Without a group it is for those that lose a member, once in each of their
        views, as at a node; where it is not said who goes on, all of them may."""
        session = self._session
        if signal.group or session.is_fed:
            self.for_group(signal.group, signal, portion)
            return
        found: list[tuple[ClientSeat, str]] = []
        for seat in session.seats.values():
            view = seat.view
            if view is not None and seat.signalled != view.id:
                nodes = {f"{each.name}/{each.life}" for each in view.members}
                if not signal.came_with or not nodes <= set(signal.came_with):
                    found.append((seat, view.id))
        self._share(portion, len(found))
        for seat, view_id in found:
            seat.signalled = view_id
            seat.add(Transitional(view_id, seat.group), portion)

    def for_group(self, group: str, event: Transitional | Uncertain, portion: Portion) -> None:
        """An event of one group; one without a group is of all of them."""
        if group:
            self.hand(self.receiver(group), event, portion)
        else:
            self.everywhere(event, portion)

    def everywhere(self, event: Transitional | Uncertain | Failed | Stalled | Resumed, portion: Portion) -> None:
        session = self._session
        seats: list[ClientSeat] = list(session.seats.values())
        if session.is_fed and session.base is not None:
            seats = [session.base]
        self._share(portion, len(seats))
        for seat in seats:
            seat.add(event, portion)
            seat.changed()

    def _share(self, portion: Portion, seats: int) -> None:
        portion.remaining = max(1, seats)
        if not seats:
            self._session.finish(portion)
