"""A group of regions as somebody holds it. Groups that nobody has asked for have none: they are rows in tables.

The base port stands for the node itself: all its groups at once, and groups that it only sends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.errors import NotMember, OrdercastError, UsageError
from ordercast.groups.checks import TYPE_MAX, TYPE_MIN, check_kind, no_locks, unsupported
from ordercast.groups.events import Left, Lost, PortEvent
from ordercast.groups.regions.received import ReceivedEvents
from ordercast.groups.regions.waits import LaneWait
from ordercast.groups.status import Resumed, Stalled
from ordercast.groups.watches import Watch
from ordercast.service import Service
from ordercast.view import Member, View

if TYPE_CHECKING:
    from ordercast.groups.regions.channel import RegionChannel


class RegionPort:
    """One group, or the node (`group` is empty then)."""

    __slots__ = (
        "_epoch",
        "_open_waits",
        "_view",
        "channel",
        "end_number",
        "events",
        "feed_bytes",
        "gone",
        "group",
        "is_changed",
        "is_leaving",
        "is_starved",
        "messages_delivered",
        "messages_sent",
        "shown",
    )

    def __init__(self, group: str, channel: RegionChannel) -> None:
        self.group = group
        self.channel = channel
        # membership
        self._view: View | None = None  # as of `_epoch`
        self._epoch = -2
        self.shown: View | None = None  # the last one that the application was told of
        self.gone: Left | None = None
        self.is_leaving = False
        self.is_changed = True
        # sending
        self.end_number = 0  # counts what was offered here; only waits know it
        self._open_waits: list[LaneWait] = []  # for messages that are not all offered yet
        self.feed_bytes = -1  # what a feed may give now; -1: there is no feed, or it has nothing
        self.messages_sent = 0
        # receiving
        self.events = ReceivedEvents(channel.consumption)
        self.is_starved = False  # the application has asked for an event, and there was none
        self.messages_delivered = 0

    # State.

    @property
    def driven(self) -> RegionChannel:
        return self.channel

    @property
    def title(self) -> str:
        return self.group or self.channel.underlay

    @property
    def number(self) -> int:
        """The service's number of the group; 0: not known yet."""
        return self.channel.table.number(self.group)

    @number.setter
    def number(self, number: int) -> None:
        raise AttributeError(f"the service numbers groups, not the caller ({number})")

    @property
    def me(self) -> Member:
        return self.channel.me

    @property
    def is_member(self) -> bool:
        if self.gone is not None:
            return False
        return self.channel.joined.is_in(self.group) if self.group else self.channel.is_in

    @property
    def view(self) -> View | None:
        """Derived when it is asked for, once for each epoch."""
        if not self.is_member:
            return None
        channel = self.channel
        if self._epoch != channel.views.epoch or self._view is None:
            self._epoch = channel.views.epoch
            found = channel.derive(self)
            if found is None:
                return self._view
            if self._view is None or found.id != self._view.id or found.members != self._view.members:
                self._view = found
        return self._view

    # Sending.

    def check(self, size: int, service: Service, type_: int) -> None:
        """Raise what is wrong with a message before it is taken."""
        self.check_open()
        check_kind(service, type_)
        self.channel.check_message(size, service, self.title)

    def check_open(self) -> None:
        if self.gone is not None or self.is_leaving:
            raise NotMember(f"this node is not in {self.title!r}: {self.gone.text if self.gone else 'it is leaving'}")

    def check_locks(self) -> None:
        self.check_open()
        raise no_locks(self.title, self.channel.engine.config.orderer)

    @property
    def has_room(self) -> bool:
        sending = self.channel.sending
        if not self.group:
            return sending.has_room and not self.channel.handles.is_refused
        return sending.has_room and sending.route_of(self.number).has_room

    def try_offer(self, payload: bytes, service: Service, type_: int) -> int:
        """`check` and `offer` in one for the usual case: the number, or -1: ask them. Hot: once per `send`."""
        channel = self.channel
        if (
            self.gone is None
            and not self.is_leaving
            and service in channel.supported
            and len(payload) <= channel.max_message
            and (type_.__class__ is int and TYPE_MIN <= type_ <= TYPE_MAX)
        ):
            return self.offer(payload, service, type_)
        return -1

    def offer(self, payload: bytes, service: Service, type_: int = 0, priority: int = 0) -> int:  # noqa: ARG002
        """Queue one message that was checked; its number here, or -1: the queue is full."""
        sending = self.channel.sending
        route = sending.route_of(self.number)
        if not sending.has_room or not route.has_room:
            return -1
        sending.offer(payload, service, type_, self, route)
        self.end_number += 1
        return self.end_number - 1

    def offer_many(
        self, payloads: Sequence[bytes], service: Service, type_: int = 0, lengths: list[int] | None = None
    ) -> int:
        """Queue messages from the first on; how many were taken."""
        taken = self.channel.sending.offer_many(payloads, service, type_, lengths, self)
        self.end_number += taken
        if self._open_waits:
            self._close_waits()
        return taken

    def offer_to(self, groups: Sequence[str], payload: bytes, service: Service, type_: int) -> int:
        """Queue one message to groups that this node need not be in; its number here, or -1: the queue is full."""
        if not self.channel.address(groups, payload, service, type_):
            return -1
        self.end_number += 1
        return self.end_number - 1

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        """Wait for own messages [first, stop), which have been offered or are about to be."""
        watch = Watch(first, stop, service)
        sending = self.channel.sending
        route = sending.route_of(self.number) if self.group else None
        if stop <= self.end_number:
            sending.watch(watch, route)
        else:
            self._open_waits.append(sending.watch(watch, is_whole=False))
        return watch

    def flush(self) -> Watch | None:
        """Wait for everything that was offered to the group, or to all; None where it is acknowledged."""
        return self.channel.sending.flush(self.number if self.group else 0)

    def forget(self, watch: Watch) -> None:
        self._open_waits = [wait for wait in self._open_waits if wait.watch is not watch]
        self.channel.sending.forget(watch)

    def _close_waits(self) -> None:
        sending = self.channel.sending
        for wait in self._open_waits:
            if wait.watch.stop <= self.end_number:
                sending.mark(wait, sending.route_of(self.number))
        self._open_waits = [wait for wait in self._open_waits if wait.watch.stop > self.end_number]

    def expect_feed(self, is_active: bool) -> None:
        """A feed begins to ask for room, or has ended that."""
        feeding = self.channel.handles.feeding
        if is_active:
            feeding[self] = None
            self.feed_bytes = 0
        else:
            feeding.pop(self, None)
            self.feed_bytes = -1

    def lose(self, first: int, count: int) -> None:
        """What waits for a group of regions is not lost with a membership."""

    # Receiving.

    @property
    def has_events(self) -> bool:
        return bool(self.events) or self._has_new_view

    @property
    def _has_new_view(self) -> bool:
        """An epoch has changed the view since the application was told of one. A node that receives all groups at once
        is told when that happens."""
        handles = self.channel.handles
        if not self.group or self.shown is None or handles.is_fed or handles.is_still:
            return False
        view = self.view
        return view is not None and view is not self.shown

    def take(self) -> PortEvent | None:
        """The next event. Asking for it says that the application has finished with the one before."""
        event = self.events.take()
        if event is None and self._has_new_view:
            self.show_view()
            event = self.events.take()
        self.is_starved = event is None
        return event

    def show_view(self) -> None:
        """Tell the application of the view, where it is another than the last one."""
        view = self.view
        if view is not None and view is not self.shown:
            self.shown = view
            self.channel.show(view)
            self.events.tell(view)

    def tell(self, event: Left | Lost) -> None:
        self.events.tell(event)
        self.channel.note(self)

    def notify(self, event: Stalled | Resumed) -> None:
        self.events.notify(event)
        self.channel.note(self)

    # Membership.

    def changed(self) -> None:
        """The API is to look at this port after the pass."""
        self.is_changed = True
        self.channel.note(self)

    def out(self) -> None:
        """This node is out of the service, and on its way back."""
        self._view = self.shown = None
        self.changed()

    def end(self, left: Left) -> None:
        """Out for good. What was received can still be taken."""
        self.gone = left
        self._view = None
        self.events.release()
        self.events.add(left, None)
        self.changed()


def check_supported(service: Service, channel: RegionChannel, group: str) -> None:
    """Raise if regions do not give a service."""
    if service not in channel.supported:
        if not channel.engine.supports(service):
            raise unsupported(channel.engine.config.orderer, group, service)
        channel.supported.add(service)


def fail(port: RegionPort, error: OrdercastError) -> None:
    """Everything that is waited for ends with `error`."""
    port.channel.sending.fail(error)


def no_resets(group: str) -> UsageError:
    """The error of calls that only groups with a log have."""
    return UsageError(
        f'{group!r} has the orderer "regions": the membership service decides who is in, and there is nothing to reset '
        "and nobody to expel here"
    )
