"""READ FIRST: what an adapter of a client protocol has of the daemon. One `SessionSeat` for each connection.

An adapter speaks one protocol on one connection: Ordercast's own, or Spread's. It asks `Seats.open(label, user)` for a
seat, with itself as the `SeatUser`, and works on that only. It knows no host, port, channel or engine.

    seat = seats.open("alice", adapter)        # UsageError: the label is taken, or cannot be
    seat.join("prices")                        # the view comes as an event; `leave` likewise
    if seat.room > 0:                          # bytes that the daemon takes now; more is refused (-1), nothing is lost
        number = seat.send(b"7", ["prices"], AGREED)
    while room_in_my_socket and (event := seat.take()) is not None: ...
    seat.close(SessionEnd.LOST, "connection reset")

Rules:

- Nothing here blocks and nothing calls back in the middle of a call. After each pass of the daemon that brought news,
  `SeatUser.settle()` is called: events may be there, `room` may have grown, watches may have ended.
- Events come in one order over all groups of the session. `take()` gives the next one, and says that the adapter has
  finished with the one before: what it keeps of that (bytes in a write buffer) is on its own account from then on, and
  it bounds that. What it does not take is held here, and `Limits` says what becomes of a session that holds too much.
- Events are those of the API: `Batch` (unopened: `batch.block`; `MixedBatch` has messages of several groups), `View`
  (`view.group` names the group, "" is the underlay; `view.came_with` says who came along), `Transitional`, `Left`
  (`left.group`; "" with `returning` means that the daemon is out of the underlay, and all groups come back),
  `Uncertain`, `Failed`, `Stalled`, `Resumed`.
- A view after a leave has in its `header` why the session left (`wire.endings.read_ending`), where the leave was not
  one of the program's own: it disconnected, its connection was lost, it was kicked.
- A caller's mistake raises `UsageError` or another `OrdercastError` at the call, with a text for the client. The seat
  is as it was before.
- A seat ends once: by `close`, or by the daemon (too slow, or the daemon stops). Of the latter the adapter hears by
  `SeatUser.ended`; every later call does nothing or raises `NotMember`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ordercast.config import SECOND, GroupConfig
from ordercast.daemon.calls import SessionCalls
from ordercast.daemon.lagging import Lags
from ordercast.errors import NotMember, UsageError
from ordercast.groups.checks import check_priority
from ordercast.groups.events import Batch, PortEvent
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.watches import Watch
from ordercast.service import RESILIENT_RANK, Service
from ordercast.view import Member, View
from ordercast.wire.block import FRAGMENTED, GROUPED, MULTI, head_of, service_of, type_of
from ordercast.wire.endings import Ending, SessionEnd, encode_ending

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What sessions may take of the daemon's memory, and what becomes of one that takes too much."""

    session_bytes: int = 8 * MIB
    """Of events that wait for one session. At twice as much or more the underlay waits for it
    (`groups.consumption.SESSION_BYTES`), so that its memory is bounded."""
    patience_ns: int = 1 * SECOND
    """A session beyond its limit that does not take as much as that within this time is disconnected: what waits for it
    would be older than this before it has it. One that takes more slows senders down, as a member does. 0: it is
    disconnected at the limit, and nobody is ever slowed down."""
    total_bytes: int = 48 * MIB
    """The same for all sessions together; a block that several wait for counts once. Beyond it the session goes that
    holds most."""
    is_blocking: bool = False
    """A session that does not receive is not disconnected: the underlay waits for it, and with it every group."""
    max_sessions: int = 4_096
    """At the bound a new session is refused."""
    window_bytes: int = 1 * MIB
    """What one session may have in its send queue."""
    windows_bytes: int = 128 * MIB
    """The same for all sessions together: with many of them each window is smaller."""
    least_window_bytes: int = 64 * KIB
    """But no smaller than this."""


class SeatUser(Protocol):
    """An adapter, as the daemon sees it."""

    def settle(self) -> None:
        """A pass has brought something for the seat. Called outside of the adapter's own calls."""

    def ended(self, ending: Ending) -> None:
        """The daemon has closed the seat. The adapter tells its client why, if it can, and closes the connection."""


class PassMaker(Protocol):
    """What runs the passes of the daemon's host."""

    def now_ns(self) -> int: ...

    def wake(self) -> None: ...


class SessionSeat:
    """One session of the daemon: one client."""

    __slots__ = (
        "_again",
        "_calls",
        "_host",
        "_passes",
        "_seats",
        "base",
        "behind_from",
        "behind_ns",
        "ending",
        "label",
        "session",
        "taken_bytes",
        "user",
    )

    def __init__(self, seats: Seats, label: str, user: SeatUser) -> None:
        self._seats = seats
        self._host = seats.host
        self._passes = seats.passes
        self.user = user
        self.label = label
        self.session = self._host.open_session(label)
        try:
            self.base: Port = self._host.attach(
                self._passes.now_ns(), seats.underlay, config=seats.config, session=self.session
            )
        except BaseException:
            self._host.close_session(self.session)
            raise
        self.base.stream.feed()
        self._again: dict[str, bytes] = {}  # groups that are joined again when the leave has ended, and the headers
        self._calls: SessionCalls | None = None
        self.taken_bytes = 0  # of all events
        self.behind_ns = -1  # since when it holds more than it may; -1: it does not
        self.behind_from = 0  # what it had taken by then
        self.ending: Ending | None = None

    # State.

    @property
    def member(self) -> Member:
        """The session, as views of groups name it: `str(member)` is label@name/life."""
        return self.base.me

    @property
    def underlay(self) -> str:
        return self.base.underlay

    @property
    def config(self) -> GroupConfig:
        """Of the underlay, as it was created."""
        return self.base.engine.config

    @property
    def default_service(self) -> Service:
        return self.base.default_service

    @property
    def is_in_underlay(self) -> bool:
        """Whether the daemon is in a view. Before that, sends and joins wait."""
        return self.base.view is not None

    @property
    def daemons(self) -> View | None:
        """The view of the underlay: its members are daemons."""
        return self.base.view

    @property
    def groups(self) -> list[str]:
        """The groups that the session is in, in the order of its joins."""
        return [name for name, port in self.base.stream.ports.items() if port.is_member and not port.is_leaving]

    def view_of(self, group: str) -> View | None:
        """The newest view of a group that the session is in."""
        port = self.base.stream.ports.get(group)
        return port.view if port is not None else None

    # Groups.

    def join(self, group: str, header: bytes = b"") -> None:
        """Begin to join a group. `View`s of it follow as events. A group that is just being left is joined again."""
        self._check_open()
        port = self.base.stream.ports.get(group)
        if port is not None and port.is_leaving:
            if group in self._again:
                raise UsageError(f"{group!r} is being joined already")
            self._again[group] = header
            return
        self._host.open_many(self.base, [group], header)
        self._passes.wake()

    def leave(self, group: str, header: bytes = b"") -> None:
        """Begin to leave a group, after what was sent; `Left` follows as an event. `header` goes to the others."""
        self._check_open()
        if self._again.pop(group, None) is not None:
            return
        port = self.base.stream.ports.get(group)
        if port is None or port.is_leaving:
            raise NotMember(f"this session is not in {group!r}: join it first")
        self._host.leave(port, header)
        self._passes.wake()

    def has(self, group: str) -> bool:
        """Whether the session is in a group, or on its way in."""
        port = self.base.stream.ports.get(group)
        return (port is not None and not port.is_leaving) or group in self._again

    def is_ready(self, group: str) -> bool:
        """Whether blocks may be sent to a group as a member: one that is left and joined again has to wait."""
        port = self.base.stream.ports.get(group)
        return port is not None and not port.is_leaving

    # Sending.

    @property
    def room(self) -> int:
        """Bytes that may be sent now; 0 or less: wait for `settle`."""
        stream = self.base.stream
        waiting = stream.queue.queued_bytes + sum([len(packed.block) for packed in stream.ready])
        return self._seats.window_bytes - waiting

    @property
    def next_number(self) -> int:
        """The number of the next message. Numbers count the messages of the session, over all groups."""
        return self.base.end_number

    @property
    def delivered_number(self) -> int:
        """All own messages below this are delivered here; the fate of the others is not known yet."""
        return self.base.stream.lowest_undelivered

    def send(self, payload: bytes, groups: Sequence[str], service: Service, type_: int = 0, priority: int = 0) -> int:
        """Send one message to groups that the session need not be in: its number, or -1: there is no room."""
        self._check_open()
        stream = self.base.stream
        check_priority(priority, self.config.orderer, groups[0] if groups else "")
        if len(groups) == 1:
            port = stream.ports.get(groups[0])
            if port is not None and not port.is_leaving:
                port.check(len(payload), service, type_)
                number = port.offer(payload, service, type_, priority)
                self._note_sent()
                return number
        number = stream.offer_to(groups, payload, service, type_, priority)
        self._note_sent()
        return number

    def send_many(
        self, payloads: Sequence[bytes], groups: Sequence[str], service: Service, type_: int = 0, priority: int = 0
    ) -> int:
        """Send messages that follow one another: how many were taken, from the first on. `groups`: one group that the
        session is in, or the group of each message. The sequence must not be changed afterwards."""
        self._check_open()
        if not payloads:
            return 0
        stream = self.base.stream
        lengths = list(map(len, payloads))
        ports = [self._port(group) for group in groups]
        ports[0].check(max(lengths), service, type_)
        check_priority(priority, self.config.orderer, groups[0])
        if len(ports) == 1:
            taken = stream.queue.offer_many(payloads, service, type_, lengths, ports[0], None, priority)
        else:
            taken = stream.offer_many_to(payloads, service, type_, lengths, ports, priority=priority)
        self._note_sent()
        return taken

    def send_all(
        self, payloads: Sequence[bytes], groups: Sequence[str], service: Service, type_: int = 0, priority: int = 0
    ) -> int:
        """Send messages that follow one another, each to all of these groups, which the session need not be in: how
        many were taken, from the first on."""
        self._check_open()
        if not payloads:
            return 0
        check_priority(priority, self.config.orderer, groups[0] if groups else "")
        taken = self.base.stream.offer_all_to(groups, payloads, service, type_, priority)
        self._note_sent()
        return taken

    def send_block(self, block: bytes, group: str) -> bool:
        """Send the messages of a block to a group that the session is in, without opening it. False: no room.

        The block is as `wire/block.py` packs it, of messages to one group; its number, group and label are filled in
        here. Raises WireError where it is malformed.
        """
        self._check_open()
        head = head_of(block)
        port = self._port(group)
        if head.flags & (GROUPED | MULTI | FRAGMENTED):
            raise UsageError("a block to several groups, or a fragment, is opened by the adapter")
        priority = head.k if head.rank != RESILIENT_RANK else 0
        if priority:
            check_priority(priority, self.config.orderer, group)
        port.check(0, service_of(head.rank, head.k), type_of(block))
        taken = self.base.queue.offer_block(block, head, port, priority)
        self._note_sent()
        return taken

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        """Wait for own messages [first, stop), the next to be sent: `take_settled` gives it back when they are
        delivered here with their service, or when their fate is known to be unknown."""
        return self.base.stream.watch(first, stop, service)

    def flush(self, stop: int) -> Watch | None:
        """Wait until all own messages below `stop` are delivered here; None: they are."""
        stream = self.base.stream
        return stream.watches.flush(stop) if stream.lowest_undelivered < stop else None

    def take_settled(self) -> Sequence[Watch]:
        """The waits that have ended since the last call."""
        if self._calls is not None:
            return self._calls.take()
        return [watch for watch in self.base.take_settled() if isinstance(watch, Watch)]

    # Locks and calls, where the orderer has them (`daemon/calls.py`).

    @property
    def has_locks(self) -> bool:
        return self.base.engine.gives_locks

    @property
    def uses_calls(self) -> bool:
        return self._calls is not None

    @property
    def calls(self) -> SessionCalls:
        if self._calls is None:
            self._calls = SessionCalls(self)
        return self._calls

    def touch(self, port: Port) -> None:
        """Something was asked of one of its ports: a pass is wanted."""
        self._host.touch(port)
        self._passes.wake()

    # Receiving.

    @property
    def has_events(self) -> bool:
        return self.base.has_events

    @property
    def held_bytes(self) -> int:
        """Of the events that wait to be taken."""
        return self.base.stream.held_bytes

    @property
    def is_holding_up(self) -> bool:
        """The whole underlay waits for this session to receive."""
        return self.base.is_holding_up

    def take(self) -> PortEvent | None:
        """The next event; None: there is none. The adapter has finished with the one before."""
        base = self.base
        event = base.take()
        if isinstance(event, Batch):
            self.taken_bytes += len(event.block) or sum(map(len, event.messages))
        if base.has_consumed and base.engine.waits_for_application():
            self._touch()
        return event

    def note_lag(self, out_bytes: int) -> None:
        """Of the events that the adapter has taken, so much has not been received by the client, as far as is known."""
        lags = self._seats.lags
        lags.note(self._passes.now_ns(), self, self.held_bytes + out_bytes, self.taken_bytes - out_bytes)
        lags.tell(self.base.engine.interest)

    # The end.

    def close(self, why: SessionEnd, text: str = "") -> None:
        """The session is over: it leaves all groups, in order, after what it has sent. The others see why. Doing so
        twice is harmless."""
        if self.ending is None:
            self._seats.end(self, Ending(why, text))

    # In detail.

    def settle_groups(self) -> None:
        """Groups that were left and are to be joined again may be out by now."""
        for group in [group for group in self._again if group not in self.base.stream.ports]:
            self._host.open_many(self.base, [group], self._again.pop(group))
            self._passes.wake()

    def _port(self, group: str) -> Port:
        port = self.base.stream.ports.get(group)
        if port is None or port.is_leaving:
            raise NotMember(f"this session is not in {group!r}: join it, or send the message from outside")
        return port

    def _note_sent(self) -> None:
        """Until its messages are delivered, each pass is one that the adapter is told of: room grows, also where the
        messages go to groups that the session is not in, and bring it nothing."""
        self.base.stream.waiting[self.base] = None
        self._touch()

    def note_delivered(self) -> None:
        """The adapter has been told of what was delivered: where that is everything, it waits for nothing."""
        stream = self.base.stream
        if stream.waiting and stream.lowest_undelivered == stream.queue.end_number:
            stream.waiting.pop(self.base, None)

    def _touch(self) -> None:
        self._host.touch(self.base)
        self._passes.wake()

    def _check_open(self) -> None:
        if self.ending is not None:
            raise NotMember(f"the session {self.label!r} has ended ({self.ending.why}): {self.ending.text}")


class Seats:
    """All sessions of one daemon. It is told of each pass (`runtime.driver.PassListener`)."""

    __slots__ = (
        "_behind",
        "_by_base",
        "_closing",
        "_waiting",
        "config",
        "endings",
        "host",
        "lags",
        "limits",
        "passes",
        "refused",
        "underlay",
    )

    def __init__(
        self, host: Host, passes: PassMaker, underlay: str, config: GroupConfig, limits: Limits | None = None
    ) -> None:
        self.host = host
        self.passes = passes
        self.underlay = underlay
        self.config = config
        self.limits = limits if limits is not None else Limits()
        self._by_base: dict[Port, SessionSeat] = {}  # in the order of opening
        self._closing: dict[Port, SessionSeat] = {}  # on their way out of their groups
        self._behind: dict[SessionSeat, None] = {}  # those that hold more than they may
        self._waiting: dict[str, list[SeatUser]] = {}  # labels that are being left, and who wants them
        self.endings = dict.fromkeys(SessionEnd, 0)  # how many sessions ended how
        self.lags = Lags(self.limits.session_bytes, self.limits.patience_ns, self.limits.is_blocking)
        self.refused = 0

    def __len__(self) -> int:
        return len(self._by_base)

    @property
    def all(self) -> list[SessionSeat]:
        """Those that are open."""
        return list(self._by_base.values())

    @property
    def window_bytes(self) -> int:
        """What one session may have in its send queue now."""
        limits = self.limits
        share = limits.windows_bytes // max(1, len(self._by_base))
        return max(limits.least_window_bytes, min(limits.window_bytes, share))

    @property
    def held_bytes(self) -> int:
        """Of the events that wait for all sessions."""
        for seat in self._by_base.values():
            return seat.base.channel.consumption.held_bytes
        return 0

    @property
    def is_closing(self) -> bool:
        """Whether sessions have ended that are not out of their groups yet."""
        return bool(self._closing)

    def named(self, label: str) -> SessionSeat | None:
        return next((seat for seat in self._by_base.values() if seat.label == label), None)

    def is_leaving(self, label: str) -> bool:
        """Whether a session of this label has ended and is not out of its groups yet: try again soon."""
        return any(seat.label == label for seat in self._closing.values())

    def wait_for(self, label: str, user: SeatUser) -> None:
        """Have `user.settle()` called when a label that is being left is free."""
        self._waiting.setdefault(label, []).append(user)

    def open(self, label: str, user: SeatUser) -> SessionSeat:
        """A session with this label, which is unique at the daemon. Raises UsageError."""
        if len(self._by_base) >= self.limits.max_sessions:
            self.refused += 1
            raise UsageError(
                f"this daemon has {self.limits.max_sessions} sessions, and takes no more: raise max_sessions, or "
                "connect to another daemon"
            )
        seat = SessionSeat(self, label, user)
        self._by_base[seat.base] = seat
        self.passes.wake()
        return seat

    def end(self, seat: SessionSeat, ending: Ending) -> None:
        """A session is over."""
        seat.ending = ending
        self.endings[ending.why] += 1
        self._by_base.pop(seat.base, None)
        self.lags.forget(seat)
        self.lags.tell(seat.base.engine.interest)
        if seat.base.gone is None:
            self.host.touch(seat.base)
        self.host.close_session(seat.session, encode_ending(*ending))
        if seat.session.streams:
            self._closing[seat.base] = seat
        self.passes.wake()

    def put_out(self, seat: SessionSeat, why: SessionEnd, text: str) -> None:
        """The daemon ends a session, and its adapter is told."""
        if seat.ending is None:
            self.end(seat, Ending(why, text))
            seat.user.ended(Ending(why, text))

    # What the driver calls.

    def settle_ports(self, ports: Sequence[Port]) -> None:
        """A pass has ended that brought something for these ports of sessions."""
        bases = dict.fromkeys([port.stream.base or port for port in ports])
        bases.update(dict.fromkeys(ports))  # a base that has ended is no longer its stream's
        for base in bases:
            closing = self._closing.get(base)
            if closing is not None:
                while closing.take() is not None:
                    pass  # nobody is there to have it
                continue
            seat = self._by_base.get(base)
            if seat is None:
                continue
            if seat._again:
                seat.settle_groups()
            if base.gone is not None:
                text = base.refusal or base.gone.text
                self.put_out(seat, SessionEnd.STOPPED, f"the daemon is out of {self.underlay!r}: {text}")
                continue
            seat.user.settle()
            seat.note_delivered()
            if seat.held_bytes > self.limits.session_bytes or seat.behind_ns >= 0:
                self._behind[seat] = None
        if self._closing:
            self._settle_closing()
        if not self.limits.is_blocking:
            self.check_slow(self.passes.now_ns())
            self._spare_memory()

    def _settle_closing(self) -> None:
        """Labels of sessions that are out are free. A session that has left its place in the underlay may still be on
        its way out of a group whose join was under way."""
        for base, seat in list(self._closing.items()):
            if not seat.session.streams:
                del self._closing[base]
                for user in self._waiting.pop(seat.label, ()):
                    user.settle()

    @property
    def has_slow(self) -> bool:
        """Whether a session holds more than it may: `check_slow` is to be called again soon."""
        return bool(self._behind)

    def check_slow(self, now_ns: int) -> None:
        """Put out the sessions that have held more than they may for too long."""
        limits = self.limits
        for seat in list(self._behind):
            if seat.ending is not None or seat.held_bytes <= limits.session_bytes:
                del self._behind[seat]
                seat.behind_ns = -1
                continue
            has_moved = seat.taken_bytes - seat.behind_from >= limits.session_bytes
            if seat.behind_ns < 0 or (has_moved and limits.patience_ns):
                seat.behind_ns, seat.behind_from = now_ns, seat.taken_bytes
            if now_ns - seat.behind_ns >= limits.patience_ns and not limits.is_blocking:
                del self._behind[seat]
                text = f"it did not receive: {seat.held_bytes} bytes wait for it, and {limits.session_bytes} may"
                self.put_out(seat, SessionEnd.SLOW, text)

    def _spare_memory(self) -> None:
        """All sessions together hold too much: the one goes that holds most. At most one in each pass: what it held is
        free only when it is out."""
        if self.held_bytes <= self.limits.total_bytes or self._closing:
            return
        seat = max(self._by_base.values(), key=lambda seat: seat.held_bytes)
        self.put_out(
            seat,
            SessionEnd.SLOW,
            f"it did not receive: {seat.held_bytes} bytes wait for it, more than for any other session, and "
            f"{self.limits.total_bytes} may wait for all of them",
        )

    def stop(self, text: str) -> None:
        """The daemon stops: all sessions end."""
        for seat in self.all:
            self.put_out(seat, SessionEnd.STOPPED, text)
