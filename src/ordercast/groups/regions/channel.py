"""Regions as one node has them: one engine, all groups, and the handles that somebody has asked for.

The `Host` drives it beside its channels (docs/design/host.md). A group costs a row in tables of numbers. Everything
that costs more, as a queue of events or a view, is made when somebody asks for the group's handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ordercast.engine import NEVER, Departed, Joined, Note, Outbox
from ordercast.errors import MessageTooLarge, NotMember, OrdercastError, UsageError
from ordercast.groups.checks import check_kind, check_name
from ordercast.groups.consumption import Consumption
from ordercast.groups.driven import LogLine
from ordercast.groups.events import Left
from ordercast.groups.regions.asking import RegionRequests
from ordercast.groups.regions.engines import RegionalEngine
from ordercast.groups.regions.handles import RegionHandles
from ordercast.groups.regions.joined import JoinedGroups
from ordercast.groups.regions.lanes import SentNumbers
from ordercast.groups.regions.port import RegionPort, check_supported
from ordercast.groups.regions.reception import RegionReception
from ordercast.groups.regions.rows import RegionRows
from ordercast.groups.regions.sending import RegionSending
from ordercast.groups.regions.targets import CurrentTable, NamedTarget
from ordercast.groups.regions.views import RegionViews
from ordercast.groups.regions.watching import RegionStalls
from ordercast.groups.rows import Meter
from ordercast.groups.watches import Watch
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.orderers.regions.upcalls import BlocksLost, Installed, LaneAcked, LaneRun, RegionUpcall
from ordercast.service import FIFO, Service
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, Reason, View

PASS_ROUNDS: Final = 4
"""Rounds of submit and after_batch in one pass, where acknowledgements have made room; then others have a turn."""

CONSUMED_SHARE: Final = 8
"""When the application has finished with this part of `history_blocks` the engine is told at once, else with the next
pass."""


class RegionChannel:
    """All groups of one node on regions. Its `engine` is driven by the `Host` only."""

    __slots__ = (
        "_is_over",
        "_make",
        "_now_ns",
        "armed_ns",
        "base",
        "consumption",
        "deadline_ns",
        "engine",
        "handles",
        "is_in",
        "joined",
        "log",
        "me",
        "order",
        "out",
        "received",
        "reception",
        "requests",
        "rows",
        "sending",
        "sent",
        "supported",
        "table",
        "views",
        "watching",
    )

    def __init__(
        self,
        me: Member,
        make: Callable[[], RegionalEngine],
        order: int,
        *,
        recorder: Recorder | None,
        sent: SentNumbers,
    ) -> None:
        """`make`: an engine, and another one whenever this node was excluded. `sent`: by this node, before it left all
        regions and came back."""
        # what it is
        self.me = me
        self._make = make
        self.engine = engine = make()
        self.table = CurrentTable(engine.table)
        self.order = order
        self.out = Outbox()
        self.supported: set[Service] = set()
        # membership
        self.is_in = False  # the service knows this node
        self._is_over = False
        self.views = RegionViews(me)
        self.joined = JoinedGroups()
        self.requests = RegionRequests(engine)
        # handles
        self.consumption = Consumption()
        self.handles = RegionHandles()
        self.base = RegionPort("", self)
        # traffic
        self.rows = RegionRows(recorder, str(me), self.name_of)
        self.sending = RegionSending(engine, self.table, self.views, self.rows, self.out, self.joined, sent)
        self.reception = RegionReception(self)
        self.sent = Meter()
        self.received = Meter()
        # driving
        self.log: list[LogLine] = []
        self.watching = RegionStalls(self)
        self._now_ns = 0  # of the last pass
        self.deadline_ns = NEVER
        self.armed_ns = NEVER

    @property
    def underlay(self) -> str:
        return REGIONS_UNDERLAY

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_consumption_urgent(self) -> bool:
        """Whether the engine is to be told soon that the application has received."""
        done = self.consumption.done_seq - self.consumption.consumed_seq
        if done > 0 and self.engine.is_held_up:
            return True  # the whole region waits
        return done >= max(1, self.engine.config.history_blocks // CONSUMED_SHARE)

    @property
    def max_message(self) -> int:
        return self.engine.config.max_message

    @property
    def default_service(self) -> Service:
        return FIFO  # the strongest that regions have

    def name_of(self, number: int) -> str:
        """The name of a group; empty: not known here."""
        return self.table.name(number)

    def target_of(self, number: int) -> NamedTarget:
        """The group of this number, for messages that wait until this node is back in the service."""
        return NamedTarget(self.joined.name(number) or self.name_of(number), self.table)

    def listens(self) -> frozenset[Address]:
        return self.engine.listens()

    # Groups.

    def check_new(self, names: Sequence[str]) -> None:
        """Raise if one of these groups cannot be joined."""
        if self._is_over or self.requests.departs:
            raise NotMember("this node is leaving its regions: wait until it is out, and join again")
        numbers = self.joined.numbers
        for name in names:
            check_name(name)
            if name in numbers:
                raise UsageError(
                    f"this node is in {name!r} already, or on its way out; use that handle, or leave first"
                )
        if len(set(names)) != len(names):
            raise UsageError("a group is named twice")

    def join(self, names: Sequence[str]) -> None:
        """Begin to join groups. Where one of them cannot be joined, none is."""
        self.check_new(names)
        self.joined.join(names)
        self.requests.join(names)

    def open(self, name: str) -> RegionPort:
        """Begin to join a group, with a handle."""
        self.join([name])
        port = self.handles.ports[name] = RegionPort(name, self)
        self.note(port)
        return port

    def port(self, name: str) -> RegionPort | None:
        """The handle of a group that this node is in, or on its way into; made when it is first asked for."""
        port = self.handles.ports.get(name)
        if port is None and name in self.joined.numbers and name not in self.joined.leaving:
            port = self.handles.ports[name] = RegionPort(name, self)
            number = self.joined.numbers[name]
            if number:
                self.handles.by_number[number] = port
                if not self.handles.is_fed:
                    port.show_view()
                    self.reception.attach(port, number)
            self.note(port)
        return port

    def leave(self, names: Sequence[str]) -> None:
        """Leave groups, once what was sent to them has left."""
        for name in names:
            if name in self.joined.numbers and name not in self.joined.leaving:
                self.requests.leaves.setdefault(name, NEVER)
                port = self.handles.ports.get(name)
                if port is not None:
                    port.is_leaving = True

    def leave_all(self) -> None:
        """Leave everything, and the service."""
        self.requests.departs = True
        self.requests.leaves.setdefault("", NEVER)
        self.base.is_leaving = True
        for port in self.handles.ports.values():
            port.is_leaving = True

    def feed(self) -> None:
        """Receive all groups at the base port from here on."""
        if not self.handles.is_fed:
            self.handles.is_fed = True
            self.reception.feed(self.base, list(self.handles.ports.values()))

    # Sending.

    def check_message(self, size: int, service: Service, group: str) -> None:
        check_supported(service, self, group)
        if size > self.max_message:
            raise MessageTooLarge(f"{size} bytes exceed max_message={self.max_message}")

    def address(self, groups: Sequence[str], payload: bytes, service: Service, type_: int) -> bool:
        """Queue one message to groups that this node need not be in; False: the queue is full."""
        check_kind(service, type_)
        self.requests.follow(groups, self.joined)
        addressed = self.requests.addressed(groups, self.table)
        if self.sending.offer_addressed(payload, service, type_, addressed):
            return True
        self.handles.is_refused = True
        return False

    def offer_numbered(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        numbers: npt.NDArray[np.uint32],
    ) -> int:
        """Queue messages, each to a group of this node; how many were taken."""
        taken = self.sending.offer_numbered(payloads, service, type_, lengths, numbers, self)
        self.handles.is_refused = self.handles.is_refused or not taken
        return taken

    # Driving.

    @property
    def driven(self) -> RegionChannel:
        return self

    def start(self, now_ns: int) -> None:
        """Begin to look for the service."""
        self.engine.start(now_ns, self.out)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        """A batch of datagrams with the tag of regions."""
        self.received.add(data[1], -(-len(data) // stride), len(data))
        self.engine.receive(now_ns, source, data, stride, self.out)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        self.engine.unreachable(now_ns, address, quoted, self.out)

    def expire(self, now_ns: int) -> None:
        if self.engine.deadline_ns() <= now_ns:
            self.engine.expire(now_ns, self.out)

    def finish(self, now_ns: int) -> None:
        """Ask the service, submit what there is room for, and take what the engine has for the application."""
        self._now_ns = now_ns
        out, sending = self.out, self.sending
        self.requests.ask(now_ns)
        seq = self.consumption.take()
        if seq >= 0 and not self._is_over:
            self.engine.consume(now_ns, seq, out)
        wants_pass = False
        for turn in range(PASS_ROUNDS):
            has_moved = sending.submit(now_ns)
            if has_moved:
                self.handles.has_moved()
            if not has_moved and turn:
                break
            if self.requests.leaves:
                self._leave(now_ns)
            self.engine.after_batch(now_ns, out)
            if out.notes:
                self._take_notes(now_ns)  # before deliveries: a sender may have said its name just now
            for upcall in self.engine.take():
                self._on_upcall(now_ns, upcall)
        else:
            wants_pass = True
        if self.joined.leaving:
            self._went_out(now_ns)
        if sending.settled:
            self._settle()
        if self.handles.feeding:
            self._feed(now_ns)
        self.rows.node.traffic(now_ns, self.sent, self.received)
        due_ns = min(self.engine.deadline_ns(), self.watching.after_pass(now_ns), self.requests.due_ns)
        self.deadline_ns = now_ns if wants_pass else due_ns

    def take_news(self) -> list[RegionPort]:
        return self.handles.take_news()

    def note(self, port: RegionPort) -> None:
        """Something happened to a port."""
        self.handles.note(port)

    def stop(self, now_ns: int) -> None:
        """The node stops."""
        self.handles.is_still = True
        self.rows.node.traffic(now_ns, self.sent, self.received, last=True)
        self.sending.fail(NotMember("the node has stopped, and with it its part of all regions"))
        self._settle()

    def fail(self, error: OrdercastError) -> None:
        """The node cannot go on."""
        self.handles.is_still = True
        self.sending.fail(error)

    def unrest(self) -> list[str]:
        """What is still to be done, for who waits until nothing is."""
        texts = []
        if not self._is_over and not self.is_in:
            texts.append("this node is not in the service")
        if not self.engine.is_at_rest():
            texts.append("the engine is not at rest")
        if self.sending.count:
            texts.append(f"{self.sending.count} messages wait to be sent")
        if self.joined.joining or self.joined.leaving or self.requests.leaves:
            texts.append("groups are being joined or left")
        ports = [self.base] if self.handles.is_fed else self.handles.ports.values()
        if any(port.events for port in ports) or self.reception.has_backlog:
            texts.append("the application has not taken everything")
        return texts

    def take_settled(self) -> list[Watch]:
        settled, self.sending.settled = self.sending.settled, []
        return settled

    # What the engine says.

    def _on_upcall(self, now_ns: int, upcall: RegionUpcall) -> None:
        if isinstance(upcall, LaneRun):
            self.reception.run(now_ns, upcall)
        elif isinstance(upcall, LaneAcked):
            self.sending.acked(now_ns, upcall.region, upcall.count)
        elif isinstance(upcall, Installed):
            self._on_installed(now_ns, upcall)
        elif isinstance(upcall, BlocksLost):
            self.reception.lose(now_ns, upcall)
        elif isinstance(upcall, Joined):
            self._come_in(now_ns)
        elif isinstance(upcall, Departed):
            self._on_departed(now_ns, upcall)

    def _come_in(self, now_ns: int) -> None:
        if not self.is_in:
            self.is_in = True
            self.sending.begin()
            self.rows.join(now_ns)
            self.base.changed()

    def _on_installed(self, now_ns: int, installed: Installed) -> None:
        self._come_in(now_ns)
        has_moved = self.views.install(installed.epoch)
        came = self.joined.came_in(self.table, self.views.mine)
        for name, number in came:
            if self.rows.is_on:
                self.rows.join(now_ns, name)
            self.handles.number(name, number)
        self._went_out(now_ns)
        own = self.views.own
        for passed in self.views.passed:
            self.rows.view(now_ns, passed)
        if has_moved and own is not None:
            self.rows.view(now_ns, own)
        if has_moved or self.base.shown is None:
            self.base.changed()
            if self.handles.is_fed:
                self.base.show_view()
        self.requests.installed()
        self.sending.install(now_ns)
        if came:
            self.base.changed()
        if not self.handles.is_fed:
            self._show_views()

    def _show_views(self) -> None:
        """Newcomers get their first view, and who waits for an event gets the one that has changed."""
        for port in self.handles.ports.values():
            if (port.shown is None or port.is_starved) and port.is_member:
                port.show_view()
                if port.events:
                    self.note(port)

    def derive(self, port: RegionPort) -> View | None:
        """The view of a port's group, or of the node. None: the epoch has taken this node out of the group, and what
        ends its membership is still to come."""
        if not port.group:
            return self.views.of_node()
        regions = self.table.regions(self.joined.numbers.get(port.group, 0))
        if self.views.mine not in regions:
            return None
        found, before = self.views.of_regions(regions), port.shown
        if before is None:
            return replace(found, group=port.group, came_with=(str(self.me),))
        former = set(before.members)
        came_with = tuple([str(member) for member in found.members if member in former])
        reason = Reason.LEAVE if len(came_with) == len(found.members) else Reason.JOIN
        return replace(found, group=port.group, came_with=came_with, reason=reason)

    def show(self, view: View) -> None:
        """A view of a group is told to the application."""
        if view.group:
            self.rows.group_view(self._now_ns, view)

    def _went_out(self, now_ns: int) -> None:
        joined = self.joined
        if not joined.leaving:
            return
        for name in joined.went_out(self.table, self.views.mine, is_answered=self.requests.is_answered):
            self._end(now_ns, name, Left(wanted=True, returning=False, text="left", group=name))

    def _end(self, now_ns: int, name: str, left: Left) -> None:
        if self.rows.is_on:
            self.rows.leave(now_ns, name, left.text)
        self.joined.drop(name)
        port = self.handles.pop(name)
        if port is not None:
            port.end(left)
        self.base.changed()

    def _on_departed(self, now_ns: int, gone: Departed) -> None:
        self.is_in = False
        for name in list(self.joined.leaving):  # it is out of these as well, and does not come back to them
            self._end(now_ns, name, Left(wanted=True, returning=False, text="left", group=name))
        if gone.returning and self.base.is_leaving:
            gone = Departed(True, False, gone.text)  # it was on its way out
        self.rows.leave(now_ns, text=gone.text)
        self.views.forget()
        self.reception.depart()
        self.consumption.on_departed()
        self.sending.depart(now_ns)
        self.joined.depart()
        self.handles.by_number.clear()
        self.requests.depart()
        left = Left(gone.wanted, gone.returning, gone.text)
        if gone.returning:
            for port in self.handles.ports.values():
                port.out()
                if not self.handles.is_fed:
                    port.tell(replace(left, group=port.group))
            self.base.out()
            if self.handles.is_fed:
                self.base.tell(left)
            self._begin_again(now_ns)
            return
        self._is_over = True
        error = NotMember(f"this node is no longer in its regions: {gone.text}")
        self.sending.fail(error)
        for port in list(self.handles.ports.values()):
            port.end(replace(left, group=port.group))
        self.handles.ports.clear()
        self.joined.clear()
        self.base.end(left)

    def _begin_again(self, now_ns: int) -> None:
        """Come back as a new member: another engine is asked for everything."""
        engine = self.engine = self._make()
        self.table.table = engine.table
        self.sending.use(engine)
        self.requests.begin_again(engine, list(self.joined.numbers))
        engine.start(now_ns, self.out)
        self.requests.ask(now_ns)

    def _take_notes(self, now_ns: int) -> None:
        notes: list[Note] = self.out.notes
        self.out.notes = []
        for level, text in self.rows.node.notes(now_ns, notes, self.views.names):
            self.log.append(LogLine("membership", level, text))
        for note in notes:
            if note.kind == "name":  # of a sender that is in no view of this node
                self.views.names[note.origin] = note.detail

    # In detail.

    def _leave(self, now_ns: int) -> None:
        """Groups to which nothing waits to be sent are left; the service, when nothing waits at all."""
        ready = self.requests.take_leaves(now_ns, self.sending, self.joined, is_in=self.is_in)
        names = [name for name in ready if name]
        if names:
            self.joined.leave(names)
            self.requests.ask(now_ns)  # first of all for what is sent to them later
            self.engine.leave(now_ns, names)
        if len(names) < len(ready):
            self.requests.departs = False
            self.requests.leaves.clear()
            self.engine.depart(now_ns, self.out)

    def _settle(self) -> None:
        """The API takes what has come to its end from any port."""
        self.note(self.base)

    def _feed(self, now_ns: int) -> None:
        """Applications with a feed are asked where something may leave at once."""
        for port in self.handles.feeding:
            if port.feed_bytes < 0 or not self.is_in:
                continue
            if port.group:
                port.feed_bytes = self.sending.room(now_ns, port.number)
            else:
                port.feed_bytes = self.sending.any_room(now_ns)
            if port.feed_bytes > 0:
                self.note(port)
