"""An underlay as one node has it: the engine, what it wants of the world, and the sessions that use it.

A pass works on channels (docs/design/host.md): the sessions' streams submit what the engine has room for, the engine
concludes, and its upcalls become events of the ports. The channel follows the node's membership of the underlay. A
group with an underlay of its own has the underlay's views; those of a group on a shared one are the roster's
(`groups/shared.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from ordercast.engine import (
    NEVER,
    Denied,
    Departed,
    Failed,
    Joined,
    LogLost,
    Outbox,
    Refused,
    RepeatedCall,
    Reset,
    Run,
    Transitional,
    UnknownOutcome,
    Upcall,
)
from ordercast.errors import GroupFailed, MessageTooLarge, NotMember, OrdercastError, UsageError
from ordercast.groups.checks import check_kind, unsupported
from ordercast.groups.consumption import Consumption
from ordercast.groups.directory import Placement
from ordercast.groups.driven import LogLine
from ordercast.groups.engines import GroupEngine
from ordercast.groups.events import Left, PortEvent, Uncertain
from ordercast.groups.port import PendingLeave, Port
from ordercast.groups.queued import NO_NUMBER
from ordercast.groups.reception import Reception
from ordercast.groups.rows import Meter, Rows
from ordercast.groups.session import Session
from ordercast.groups.shared import PASS_CHANGES, SharedGroups
from ordercast.groups.stream import Stream
from ordercast.groups.watching import StallWatch
from ordercast.service import AGREED, RESILIENT, Service
from ordercast.trace.recorder import Recorder
from ordercast.view import Member, View

PASS_ROUNDS: Final = 4
"""Rounds of submit and after_batch in one pass, where delivering has made new room; then the driver gets its turn."""


class ChannelStage(Enum):
    IN = auto()  # the underlay, or on the way in
    LEAVING = auto()  # the engine has been told to leave
    OVER = auto()  # out for good


class Channel:
    """One underlay at one node. Its `engine` is driven by the `Host` only."""

    __slots__ = (
        "_news",
        "_stage",
        "armed_ns",
        "consumption",
        "deadline_ns",
        "engine",
        "failure",
        "leaving",
        "max_message",
        "me",
        "next_block",
        "order",
        "out",
        "received",
        "reception",
        "rows",
        "sent",
        "shared",
        "streams",
        "supported",
        "talkers",
        "underlay",
        "usual",
        "view",
        "watching",
    )

    def __init__(
        self,
        placement: Placement,
        me: Member,
        engine: GroupEngine,
        order: int,
        *,
        next_block: int,
        recorder: Recorder | None,
    ) -> None:
        # what it is
        self.underlay = placement.underlay
        self.me = me
        self.engine = engine
        self.order = order
        # membership of the underlay
        self.view: View | None = None  # None: not a member
        self.failure: str | None = None  # why calls fail until a reset
        self._stage = ChannelStage.IN
        # sessions
        self.streams: list[Stream] = []
        self.leaving: dict[Port, PendingLeave] = {}  # ports that are on their way out
        self.talkers: dict[Port, None] = {}  # ports that use locks or calls
        self._news: dict[Port, None] = {}  # ports that something happened to, or that ended, since `take_news`
        # the engine's, as of the last view
        self.supported: set[Service] = set()
        self.usual: Service | None = None  # one of them
        self.max_message = engine.config.max_message
        # traffic
        self.out = Outbox()
        self.next_block = next_block
        self.rows = Rows(recorder, self.underlay, str(me), self.name_of if placement.is_shared else None)
        self.consumption = Consumption()
        self.reception = Reception(self, placement.is_shared)
        sites = engine.interest.far_daemons if engine.interest is not None else None
        self.sent = Meter(sites)
        self.received = Meter(sites)
        # driving
        self.deadline_ns = -1
        self.armed_ns = NEVER
        self.watching = StallWatch(self)
        # What a shared underlay has besides; it needs the rest.
        self.shared = SharedGroups(self) if placement.is_shared else None

    @property
    def log(self) -> list[LogLine]:
        """View changes, suspicions and stalls of this pass, for the driver's log."""
        return self.watching.log

    @property
    def is_leaving(self) -> bool:
        """The engine has been told to leave."""
        return self._stage is ChannelStage.LEAVING

    @property
    def is_over(self) -> bool:
        """This node is out of the underlay for good."""
        return self._stage is ChannelStage.OVER

    @property
    def default_service(self) -> Service:
        """What a send that names no service gets."""
        resilience = self.engine.config.resilience
        return RESILIENT(resilience) if resilience else AGREED

    def is_short(self) -> bool:
        """Whether the view has too few members for this node to send (`config.members_needed`)."""
        view = self.view
        return view is not None and view.shortage(self.me.id, self.engine.config.bootstrap) is not None

    def name_of(self, number: int) -> str:
        return self.shared.roster.name_of(number) if self.shared is not None else ""

    # Ports.

    @property
    def ports(self) -> list[Port]:
        """Of all sessions, in the order of opening within each; on a shared underlay with their base ports."""
        streams = self.streams
        if len(streams) == 1:
            return list(streams[0].ports.values())
        bases = [stream.base for stream in streams if stream.base is not None]
        return bases + [port for stream in streams for port in stream.ports.values()]

    @property
    def _port_count(self) -> int:
        return sum([len(stream.ports) + (stream.base is not None) for stream in self.streams])

    def attach(self, session: Session, group: str, header: bytes = b"") -> Port:
        """Open a group for a session. Where this node is in the group's own underlay already, the port begins with its
        view. `header`: of the join, on a shared underlay."""
        if self.shared is not None:
            self.check_many([group])
            return self.attach_many(session, [group], header)[0]
        self._check_staying()
        stream = self._stream_of(session)
        port = stream.ports[group] = session.ports[group] = Port(group, 0, stream)
        self.reception.attach(port)
        if self.view is not None:
            port.on_view(self.view)
            port.tell(self.view)
        return port

    def check_many(self, groups: Sequence[str]) -> None:
        """Raise if one of these lightweight groups cannot be opened."""
        if self.shared is None:
            raise UsageError(f"{self.underlay!r} carries one group only; a shared underlay is made by attach")
        self._check_staying()
        if len(set(groups)) < len(groups):
            twice = next(group for at, group in enumerate(groups) if group in groups[:at])
            raise UsageError(f"{twice!r} is named twice; join each group once")

    def attach_many(self, session: Session, groups: Sequence[str], header: bytes) -> list[Port]:
        """Open lightweight groups for a session, which `check_many` has passed."""
        stream = self._stream_of(session)
        ports = [Port(group, NO_NUMBER, stream, header) for group in groups]
        for port in ports:
            stream.ports[port.group] = session.ports[port.group] = port
            if self.shared is not None:
                self.shared.attach(port)
        return ports

    def attach_base(self, session: Session) -> Port:
        """The place of a session in the underlay itself, which keeps the node in it without any group."""
        self._check_staying()
        stream = self._stream_of(session)
        if stream.base is None:
            stream.base = base = Port("", 0, stream)
            if self.view is not None:
                base.on_view(self.view)
        return stream.base

    def _check_staying(self) -> None:
        if self.is_leaving:
            raise UsageError(f"this node is leaving the underlay {self.underlay!r}; wait until it is out")

    def _stream_of(self, session: Session) -> Stream:
        stream = session.streams.get(self.underlay)
        if stream is None:
            stream = Stream(self, session, session.numbers.get(self.underlay, 0))
            if self.shared is not None:
                self.shared.enter(stream)
            session.streams[self.underlay] = stream
            self.streams.append(stream)
        return stream

    def add_talker(self, port: Port) -> None:
        """The port uses locks or calls from now on: each pass asks it what it has to say."""
        self.talkers[port] = None

    def take_news(self) -> list[Port]:
        """The ports that something may have happened to since the last call, those that have ended included."""
        if self.shared is None:
            for port in self.ports:
                self._news[port] = None
        else:
            # There may be very many: only those that have an event or a change, and those whose tasks wait.
            for stream in self.streams:
                self._news.update(stream.waiting)
                if stream.watches.settled:  # any port of the session tells of them
                    some = stream.base or next(iter(stream.ports.values()), None)
                    if some is not None:
                        self._news[some] = None
            self._news.update(self.talkers)
        news, self._news = self._news, {}
        return list(news)

    def note(self, port: Port) -> None:
        """Something happened to the port."""
        self._news[port] = None

    def check_service(self, service: Service, group: str) -> None:
        """Raise if the underlay cannot give a service."""
        if service not in self.supported:
            if not self.engine.supports(service):
                raise unsupported(self.engine.config.orderer, group, service)
            self.supported.add(service)
            self.usual = service

    def check_message(self, size: int, service: Service, type_: int, group: str) -> None:
        """Raise what is wrong with a message before it is taken."""
        check_kind(service, type_)
        self.check_service(service, group)
        max_message = self.engine.config.max_message
        if size > max_message:
            raise MessageTooLarge(f"{size} bytes exceed max_message={max_message}, set when {group!r} was created")

    # One pass.

    def expire(self, now_ns: int) -> None:
        if self.engine.deadline_ns() <= now_ns:  # otherwise a leave is due, or the watch
            self.engine.expire(now_ns, self.out)

    def finish(self, now_ns: int) -> None:
        """Submit what there is room for, let the engine conclude, and take what it has for the application."""
        engine, out = self.engine, self.out
        if self.leaving:
            for port in self.leaving:
                port.finish_taken()
            self.consumption.pass_leaving()
        consumption = self.consumption
        if consumption.done_seq > consumption.consumed_seq:
            seq = consumption.take()
            if not self.is_over:
                engine.consume(now_ns, seq, out)
        if consumption.is_awaited and not consumption.receipts:
            consumption.is_awaited = False
            engine.resume(now_ns, out)
        wants_pass = False
        if self.shared is not None:
            self.shared.left = PASS_CHANGES
        for turn in range(PASS_ROUNDS):
            has_moved = False
            if self.shared is not None and self.shared.has_operations:
                self.shared.offer(now_ns)
            for stream in self.streams if self.shared is None else self.shared.in_turn():
                if (stream.ready or not stream.queue.is_waiting) and stream.submit(now_ns):
                    has_moved = True
            for port in self.talkers:
                if port.has_steps:
                    port.take_steps(now_ns)
                    has_moved = True
            if not has_moved and turn:
                break
            if self.talkers:
                engine.wait_for_others(any(port.is_waiting for port in self.talkers))
            if self.leaving:
                self._leave(now_ns)
            engine.after_batch(now_ns, out)
            # The lists are emptied before they are worked through: an error must not hand anything over twice.
            if out.upcalls:
                upcalls, out.upcalls = out.upcalls, []
                upcalls = self._enter(now_ns, upcalls)
            else:
                upcalls = []
            if out.notes:
                notes, out.notes = out.notes, []
                for level, text in self.rows.notes(now_ns, notes, self.reception.names):
                    self.log.append(LogLine("membership", level, text))
            if self.shared is not None:
                self._pace(now_ns, upcalls, self.shared)
            else:
                for upcall in upcalls:
                    self._on_upcall(now_ns, upcall)
        else:
            wants_pass = True
        if self.shared is not None and (self.shared.has_operations or self.shared.is_behind):
            wants_pass = True
        if consumption.is_awaited and not consumption.receipts:
            wants_pass = True
        if self.leaving and any(
            leave.header is not None and port.may_leave(now_ns, leave) for port, leave in self.leaving.items()
        ):
            wants_pass = True
        if self.shared is not None:
            for stream in [stream for stream in self.streams if stream.is_ending]:
                if self.view is None or not stream.queue.owes_large:
                    self._end_stream(stream)
        self.rows.traffic(now_ns, self.sent, self.received)
        self.deadline_ns = now_ns if wants_pass else engine.deadline_ns()
        for leave in self.leaving.values():
            self.deadline_ns = min(self.deadline_ns, leave.due_ns)
        self.deadline_ns = min(self.deadline_ns, self.watching.after_pass(now_ns))

    def stop(self, now_ns: int) -> None:
        """The node stops, or is no longer needed here: the last traffic rows, and nobody waits any longer."""
        self.rows.traffic(now_ns, self.sent, self.received, last=True)
        for port in self.ports:
            port.fail(NotMember(f"the node has stopped, and with it its part of {port.title!r}"))

    def _enter(self, now_ns: int, upcalls: list[Upcall]) -> list[Upcall]:
        """Come in before the notes of the same pass are written: they are about senders that the first view names.

        The upcalls that are left; all of them where the pass does not begin a membership.
        """
        for upcall in upcalls:
            if type(upcall) is Joined:
                break
        else:
            return upcalls
        if self.shared is not None:
            self._pace(now_ns, (), self.shared, is_urgent=True)
        entered = next((at for at, upcall in enumerate(upcalls) if isinstance(upcall, View)), -1) + 1
        for upcall in upcalls[:entered]:
            self._on_upcall(now_ns, upcall)
        return upcalls[entered:]

    def _pace(self, now_ns: int, upcalls: Sequence[Upcall], shared: SharedGroups, *, is_urgent: bool = False) -> None:
        """Take what the engine says, up to a bound for each pass: one operation may be about very many groups, and for
        so long the others would hear nothing of this node. What is about its own membership waits for nothing."""
        waiting = shared.waiting
        waiting.extend(upcalls)
        if is_urgent or any(not isinstance(upcall, Run | View | Transitional) for upcall in upcalls):
            shared.left = 1 << 62
        while shared.go_on(now_ns) and waiting:
            upcall = waiting.popleft()
            if isinstance(upcall, Run):
                done = self.reception.run(now_ns, upcall.deliveries)
                if done < len(upcall.deliveries):
                    waiting.appendleft(Run(upcall.deliveries[done:]))
            else:
                self._on_upcall(now_ns, upcall)

    def _leave(self, now_ns: int) -> None:
        """Ports whose messages are out leave. With the last port the node leaves the underlay: one that tells of that
        goes last."""
        shared = self.shared
        ports = self._port_count
        staying = ports - sum([leave.header is None for leave in self.leaving.values()])
        if shared is not None and staying > 1 and len(self.leaving) == ports and self._leave_all(now_ns):
            return
        for port, leave in sorted(self.leaving.items(), key=lambda each: not each[0].group and bool(each[1].header)):
            header = leave.header
            if header is None or not port.may_leave(now_ns, leave):
                continue
            if staying == 1:
                self._stage = ChannelStage.LEAVING
                self.engine.leave(now_ns, header, self.out)
            elif shared is None or not port.group or not shared.leave(port, header):
                if shared is not None and port.group and port.view is not None:
                    shared.write_leave(now_ns, port)
                group = port.group if shared is not None else ""
                self.end_port(now_ns, port, Left(wanted=True, returning=False, text="left", group=group))
            staying -= 1
            leave.header, leave.due_ns = None, NEVER

    def _leave_all(self, now_ns: int) -> bool:
        """All groups of a shared underlay are left at once: the view without this node says so for all of them. Where
        one has a header to tell its group, they are left one by one."""
        header = b""
        for port, leave in self.leaving.items():
            if leave.header is None:
                continue
            if (leave.header and port.group) or not port.may_leave(now_ns, leave):
                return False
            header = leave.header or header
        self._stage = ChannelStage.LEAVING
        self.engine.leave(now_ns, header, self.out)
        for leave in self.leaving.values():
            leave.header, leave.due_ns = None, NEVER
        return True

    # What the engine says.

    def _on_upcall(self, now_ns: int, upcall: Upcall) -> None:
        if isinstance(upcall, Run):
            self.reception.run(now_ns, upcall.deliveries)
        elif isinstance(upcall, View):
            self._on_view(now_ns, upcall)
        elif isinstance(upcall, Transitional):
            for stream in self.streams:
                stream.is_parting = self.view is not None and self.view.may_part
            self.rows.transitional(now_ns)
            if self.shared is not None:
                self.shared.on_transitional(upcall.came_with)
            else:
                self._add(upcall)
        elif isinstance(upcall, Joined):
            self.rows.join(now_ns)
        elif isinstance(upcall, Failed):
            self.failure = upcall.text
            for port in self.ports:
                port.fail(GroupFailed(f"{port.title!r} has failed ({upcall.text}); call reset()"))
            self._stage = ChannelStage.IN if self.is_leaving else self._stage  # a left one only serves the others
            for port, leave in list(self.leaving.items()):
                if leave.is_ordered:
                    del self.leaving[port]
                    port.stay()
                    if self.shared is not None:
                        self.shared.take_back(port)
                elif leave.header is None:
                    leave.header = b""  # the engine has forgotten it, and is told again: it goes without
            self._add(upcall)
        elif isinstance(upcall, UnknownOutcome):
            for stream in self.streams:
                stream.forget_unknown(upcall.number, upcall.stop)
        elif isinstance(upcall, LogLost):
            for port in self.ports:
                port.tell(Uncertain(0, 0, port.group if self.shared is not None else "", upcall.text))
        elif isinstance(upcall, Departed):
            self._on_departed(now_ns, upcall)
        elif isinstance(upcall, Reset):
            if upcall.size:
                self.failure = None
            for port in self.ports:
                port.resets += (upcall,)
                port.changed()
        elif isinstance(upcall, Denied):
            any(port.on_denied(upcall.lock) for port in self.ports)  # the first of the group is told
        elif isinstance(upcall, RepeatedCall):
            self.reception.repeat(now_ns, upcall)
        elif isinstance(upcall, Refused):
            for port in self.ports:
                port.refusal = upcall.text
                port.changed()
            self._end(now_ns, Left(wanted=False, returning=False, text=upcall.text))

    def _on_view(self, now_ns: int, view: View) -> None:
        self.view = view
        self.failure = None
        is_short = self.is_short()
        for stream in self.streams:
            stream.is_parting = False
            stream.is_short = is_short and not stream.is_system
        config = self.engine.config
        if self.reception.install(view, config.max_message):
            for stream in self.streams:
                stream.restart_large()
        self.supported.clear()
        self.usual = None
        self.max_message = config.max_message
        self.rows.view(now_ns, view)
        if self.shared is not None:
            self.shared.on_view(now_ns, view)
            return
        for port in self.ports:
            port.on_view(view, now_ns)
        self._add(view)

    def _on_departed(self, now_ns: int, gone: Departed) -> None:
        for stream in self.streams:
            if stream.label:
                stream.rows.leave(now_ns, gone.text)
        self.rows.leave(now_ns, gone.text)
        self.view = None
        ports = self.ports
        told = [
            port for stream in self.streams for port in stream.listeners if self.shared is None or port.view is not None
        ]
        for port in ports:
            port.finish_taken()
        self.reception.on_departed(self.engine.config.max_message)
        self.consumption.is_awaited = gone.is_waiting
        for port in ports:
            port.on_departed()
        if self.shared is not None:
            self.shared.on_departed()
        for stream in self.streams:
            stream.restart_large()
        left = Left(gone.wanted, gone.returning, gone.text)
        if not gone.returning:
            self._end(now_ns, left)
        elif self.shared is not None:
            for port in told:
                port.tell(replace(left, group=port.group))
        elif told:
            self._add(left)
        for leave in self.leaving.values():
            if leave.header is None and not self.is_leaving:
                leave.header = b""  # its leave has gone with the roster: it is out as it is

    def _add(self, event: PortEvent) -> None:
        """An event of the underlay is one of every group that it carries."""
        ports = [port for stream in self.streams for port in stream.listeners]
        if self.shared is not None:
            for port in ports:
                port.tell(event)
        elif ports:
            receipt = self.consumption.add(-1, len(ports))
            for port in ports:
                port.add(event, receipt)

    def _end(self, now_ns: int, left: Left) -> None:
        self._stage = ChannelStage.OVER
        for port in self.ports:
            self.end_port(now_ns, port, replace(left, group=port.group) if self.shared is not None else left)

    def end_port(self, now_ns: int, port: Port, left: Left) -> None:
        """The port is out for good. A stream ends with its last port."""
        stream, session = port.stream, port.stream.session
        if port is stream.base:
            stream.base = None
            stream.is_fed = False
        else:
            del stream.ports[port.group]
            del session.ports[port.group]
        self.reception.detach(port)
        if self.shared is not None:
            self.shared.detach(port)
        self.leaving.pop(port, None)
        self.talkers.pop(port, None)
        self.note(port)
        error: OrdercastError = NotMember(f"this node is no longer in {port.title!r}: {left.text}")
        stream.watches.fail_group(port, error)
        if not stream.ports and stream.base is None:
            stream.fail(error)
            if stream.label and self.view is not None:
                stream.rows.leave(now_ns, left.text)
            stream.is_ending = stream.queue.owes_large and not self.is_over and self.view is not None
            if stream.is_ending:
                stream.queue.cut()
            else:
                self._end_stream(stream)
        port.end(left)

    def _end_stream(self, stream: Stream) -> None:
        """Its numbers are kept: a later stream of the session goes on with them."""
        session = stream.session
        session.numbers[self.underlay] = stream.resume
        del session.streams[self.underlay]
        self.streams.remove(stream)
        self.reception.forget(stream)
        if self.shared is not None:
            self.shared.exit(stream)
