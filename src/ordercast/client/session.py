"""The session of a client with a daemon: frames in, frames out, events for its seats. No socket, loop or clock.

It is the `NodeBackend` of the public API over a connection. Send queue, blocks, batches and watches are those of an
embedded node; the daemon has the roster, the order and the views (docs/design/daemon.md). The connection may be lost
and made again, to the same daemon or another one: what was on its way is told as `Uncertain`, what is queued goes out
afterwards, and groups are joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ordercast.api.seat import BaseSeat, JoinRequest, Seat, Waited
from ordercast.api.stats import all_node_stats
from ordercast.client.calling import ClientCalls
from ordercast.client.queries import ClientQueries, DaemonQuery
from ordercast.client.receiving import ClientReceiving
from ordercast.client.seats import ClientBase, ClientSeat, Portion
from ordercast.client.sending import FRAME_NAMES, ClientSending
from ordercast.config import GroupConfig
from ordercast.errors import GroupFailed, NotMember, OrdercastError, UsageError
from ordercast.groups.caller import Call
from ordercast.groups.checks import check_name
from ordercast.groups.events import Left, PortEvent, Uncertain
from ordercast.groups.naming import NameQuery
from ordercast.groups.queue import SendQueue
from ordercast.groups.status import Resumed, Stalled
from ordercast.service import AGREED, RESILIENT, Service
from ordercast.view import Address, Member, View
from ordercast.wire.client_frames import ClientHello, encode_hello, encode_join, encode_leave
from ordercast.wire.daemon_frames import (
    ViewReader,
    Welcome,
    decode_answer,
    decode_confirm,
    decode_credit,
    decode_failed,
    decode_left,
    decode_resumed,
    decode_stalled,
    decode_transitional,
    decode_uncertain,
    supported,
)
from ordercast.wire.frames import VERSION, FrameKind

WINDOW_BYTES: Final = 2 << 20
"""Bytes of events that a daemon may have on their way to a client, or in it, before the application takes some."""


class ClientDriver(Protocol):
    """What writes the frames of a session."""

    def wake(self) -> None:
        """Have `pump` called soon."""

    def hurry(self) -> None:
        """Have it called now, if that was not done in this turn of the loop."""

    def now_s(self) -> float:
        """As `time.monotonic()` has it."""


class ClientSession:
    """One client, over all its connections."""

    def __init__(self, label: str, driver: ClientDriver, window: int = WINDOW_BYTES) -> None:
        self._driver = driver
        self.label = label  # as asked for; the daemon's choice once it has made one
        self._is_named = bool(label)  # by the application
        self.sending = ClientSending()
        self.receiving = ClientReceiving(self, window)
        self.calls = ClientCalls(self)
        # the connection
        self.welcome: Welcome | None = None  # None: there is none
        self._terms: Welcome | None = None  # of the last one
        self._secret = b""
        self._out: list[bytes] = []  # frames that are to leave
        self.waits_for = "the first connection"
        self.lost_since = 0.0
        # the underlay
        self.view: View | None = None
        self._views = ViewReader()
        self.failure: str | None = None
        self.stalled: Stalled | None = None
        # groups
        self.seats: dict[str, ClientSeat] = {}  # open ones, in the order of joining
        self.base: ClientBase | None = None
        self.is_fed = False  # the base receives everything
        self._leaves: list[tuple[int, ClientSeat, bytes]] = []  # each when own messages below a number have left
        self.turn = 0  # rises from event to event
        # the API
        self._news: dict[ClientSeat, None] = {}
        self._queries = ClientQueries()

    # State.

    @property
    def is_connected(self) -> bool:
        return self.welcome is not None

    @property
    def queue(self) -> SendQueue:
        return self.sending.queue

    @property
    def terms(self) -> Welcome:
        """What the daemon has said last; there was one before anything of a client can be used."""
        if self._terms is None:
            raise UsageError("this client has not been connected yet: await connect(...)")
        return self._terms

    @property
    def member(self) -> Member:
        return self.terms.daemon.session(self.terms.label)

    @property
    def config(self) -> GroupConfig:
        return self.terms.config

    @property
    def defaults(self) -> GroupConfig:
        return self.terms.config

    @property
    def carrier(self) -> str | None:
        return self.terms.underlay

    @property
    def default_service(self) -> Service:
        resilience = self.config.resilience
        return RESILIENT(resilience) if resilience else AGREED

    @property
    def has_events(self) -> bool:
        """Whether the application has events to take. It has no hand on a group before its join has returned, and what
        such a group is told meanwhile does not count."""
        return any(seat.has_events for seat in self._places() if seat is self.base or seat.stay)

    def supports(self, service: Service) -> bool:
        return supported(self.terms.ranks, service)

    def stats(self) -> dict[str, int]:
        return all_node_stats({"bytes_in": self.receiving.received_bytes, "bytes_out": self.sending.sent_bytes})

    # The connection.

    def hello(self) -> bytes:
        """The first frame of a connection."""
        return encode_hello(ClientHello(VERSION, self.label, self._secret, self.receiving.window))

    def on_welcome(self, welcome: Welcome) -> None:
        """The daemon has opened the session: what was open before is opened again."""
        self._end_leaving("left while there was no connection")
        step = welcome.next_number - self.queue.next_number
        self.sending.on_welcome(welcome)
        self.receiving.on_welcome(welcome.config.max_message)
        self.welcome = self._terms = welcome
        self.label, self._secret = welcome.label, welcome.secret
        self.failure = self.stalled = None
        self._join([seat for seat in self.seats.values() if not seat.is_leaving])
        self.calls.on_welcome(step)
        for seat in self._places():
            seat.changed()
        self._driver.wake()

    def on_label_taken(self) -> None:
        """The daemon has another session of this label. Where a daemon has chosen it, as each does for its own clients,
        the next one is asked for another."""
        if not self._is_named:
            self.label, self._secret = "", b""

    def on_lost(self, text: str, now_s: float) -> None:
        """The connection is gone. Groups will be joined again; what was on its way may have arrived or not."""
        self.waits_for = text
        if self.welcome is None:
            return
        self.welcome = None
        self.lost_since = now_s
        self._out.clear()
        self.failure = self.stalled = None
        self.sending.on_lost(text)
        self.calls.on_lost(self.queue.next_number, text)
        self._queries.fail(NotMember(f"the connection to the daemon was lost: {text}"))
        self._leaves.clear()
        self._depart(Left(False, True, text))
        self._end_leaving(f"left while the connection was lost: {text}")

    # What the API asks for.

    def wake(self) -> None:
        self._driver.wake()

    def hurry(self) -> None:
        self._driver.hurry()

    def note(self, seat: ClientSeat) -> None:
        """Something happened to the seat."""
        self._news[seat] = None

    def check_new(self, name: str) -> None:
        """Raise if a group cannot be joined."""
        check_name(name)
        if name in self.seats:
            raise UsageError(f"this client is in {name!r} already; use that handle, or leave first")
        if name == self.terms.underlay:
            raise UsageError(f"{name!r} is the name of the underlay itself; give the group another one")
        self.sending.handle_of(name)

    def open(self, group: str, request: JoinRequest) -> Seat:
        self.check_new(group)
        return self.open_many([group], request.header)[0]

    def open_many(self, names: Sequence[str], header: bytes) -> list[ClientSeat]:
        """Begin to join groups that `check_new` has passed."""
        seats = [ClientSeat(self, name, self.sending.handle_of(name), header) for name in names]
        for seat in seats:
            self.seats[seat.group] = seat
        if self.welcome is not None:
            self._join(seats)
        self._driver.wake()
        return seats

    def attach(self, underlay: str, request: JoinRequest) -> BaseSeat:  # noqa: ARG002 - the daemon has attached it
        if underlay != self.terms.underlay:
            raise UsageError(
                f"the groups of this client are on the underlay {self.terms.underlay!r} of its daemon, not on "
                f"{underlay!r}: leave underlay out, or connect to another daemon"
            )
        if self.base is None:
            self.base = ClientBase(self, underlay, 0)
            self.base.view = self.view
            self.note(self.base)
            self._driver.wake()
        return self.base

    def feed(self) -> None:
        """From here on the base receives the events of all groups."""
        if not self.is_fed and self.base is not None:
            self.is_fed = True
            self.base.take_over(list(self.seats.values()))

    def leave(self, seat: ClientSeat, header: bytes) -> None:
        """Leave after what was sent. A client without a connection is in no group, and out with the next pump."""
        if seat is self.base:
            self._end_base()
        elif self.welcome is not None:
            self._leaves.append((self.queue.end_number, seat, header))
        self._driver.wake()

    def ask(self, what: str, argument: str = "") -> DaemonQuery:
        """Ask the daemon about itself; the query comes back in `take_settled`."""
        query = self._queries.ask(what, argument)
        if self.welcome is None:
            self._queries.fail(NotMember(f"there is no connection to a daemon: {self.waits_for}"))
        self._driver.wake()
        return query

    def finish(self, portion: Portion) -> None:
        """One seat has finished with bytes of the daemon."""
        if self.receiving.finish(portion):
            self._driver.wake()

    def tell(self, seat: ClientSeat, event: PortEvent, portion: Portion | None = None) -> None:
        """An event of one seat, or of the base where that receives everything."""
        if self.is_fed and self.base is not None:
            seat = self.base
        seat.add(event, portion)

    # The rest of a `NodeBackend`.

    def seat(self, group: str) -> Seat | None:
        return self.seats.get(group)

    def shared_underlay_of(self, group: str) -> str | None:  # noqa: ARG002 - it may be any
        return self.terms.underlay

    def take_news(self) -> Sequence[Seat]:
        news, self._news = self._news, {}
        return list(news)

    def take_settled(self) -> Sequence[Waited]:
        settled: list[Waited] = [*self._queries.settled, *self.sending.settled, *self.calls.settled]
        self._queries.settled.clear()
        self.sending.settled.clear()
        self.calls.settled.clear()
        return settled

    async def locate(self, contact: str | Address) -> Address:
        raise UsageError(f"a client finds groups through its daemon: leave {contact!r} out")

    def ask_names(self, address: Address) -> NameQuery:
        raise UsageError(f"a client asks its daemon only, not {address}: `ordercast groups` lists what is there")

    def forget_names(self, query: NameQuery) -> None:
        """There is none."""

    def begin_call(self, group: str, call: Call) -> None:  # noqa: ARG002 - there is none
        raise UsageError(f"a client of a daemon calls no group: send to {group!r}, or use a Node of its own")

    def forget_call(self, group: str, call: Call) -> None:
        """There is none."""

    def calls_to(self, group: str) -> Sequence[Call]:  # noqa: ARG002 - there is none
        return ()

    def fail(self, error: OrdercastError) -> None:
        """The client has stopped."""
        self.sending.fail(error)
        self.calls.fail(error)
        self._queries.fail(error)

    # What leaves.

    def pump(self) -> list[bytes]:
        """The frames that may leave now. Hot: once for each turn in which something was sent."""
        if self.welcome is None:
            self._end_leaving("left while there was no connection")
            return []
        out = self._out
        self._queries.pump(out)
        self.calls.pump(out)
        if self.sending.pump(out):
            self._news.update(self.sending.waiting)
        self.calls.pump_released(out)
        if self._leaves:
            self._send_leaves()
        self._end_base()
        self.receiving.pump(out)
        self._out = []
        return out

    def _send_leaves(self) -> None:
        """Leaves whose messages have left."""
        number = self.queue.next_number
        headers: dict[bytes, list[int]] = {}
        for _, seat, header in [leave for leave in self._leaves if leave[0] <= number]:
            headers.setdefault(header, []).append(seat.number)
        self._leaves = [leave for leave in self._leaves if leave[0] > number]
        for header, handles in headers.items():
            for start in range(0, len(handles), FRAME_NAMES):
                self._out.append(encode_leave(handles[start : start + FRAME_NAMES], header))

    def _join(self, seats: Sequence[ClientSeat]) -> None:
        headers: dict[bytes, list[tuple[int, str]]] = {}
        for seat in seats:
            headers.setdefault(seat.header, []).append((seat.number, seat.group))
        for header, groups in headers.items():
            for start in range(0, len(groups), FRAME_NAMES):
                self._out.append(encode_join(groups[start : start + FRAME_NAMES], header))
            self.sending.knows([handle for handle, _ in groups])

    # What comes.

    def on_frame(self, kind: int, body: bytes) -> None:
        """A frame of the daemon after its WELCOME. Raises WireError where it is malformed."""
        if kind == FrameKind.DELIVER:
            self.receiving.deliver(body)
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:  # others are of a later version
            handler(self, body)

    def _on_view(self, body: bytes) -> None:
        receiving = self.receiving
        portion, view = receiving.portion(body), self._views.read(body)
        self.failure = self.stalled = None
        if not view.group:
            self.view = view
            if self.base is not None:
                self.base.on_view(view)
            receiving.hand(self.base if self.is_fed else None, view, portion)
            return
        seat = self.seats.get(view.group)
        if seat is None:
            self.finish(portion)
            return
        seat.on_view(view)
        if self.base is not None:
            self.note(self.base)
        self.tell(seat, view, portion)

    def _on_transitional(self, body: bytes) -> None:
        portion, signal = self.receiving.portion(body), decode_transitional(body)
        self.receiving.signal(signal, portion)

    def _on_uncertain(self, body: bytes) -> None:
        portion, notice = self.receiving.portion(body), decode_uncertain(body)
        self.receiving.for_group(notice.group, Uncertain(*notice), portion)

    def _on_left(self, body: bytes) -> None:
        portion, notice = self.receiving.portion(body), decode_left(body)
        self.finish(portion)
        left = Left(notice.wanted, notice.returning, notice.text, notice.group)
        if not left.group:
            self._depart(left)
            return
        seat = self.seats.get(left.group)
        if seat is None:
            return
        if left.returning:
            seat.view = None
            seat.stay += 1
            seat.changed()
            self.tell(seat, left)
        else:
            self._end_seat(seat, left)
            self._end_base()

    def _depart(self, left: Left) -> None:
        """This client is in no group for now: the daemon is out of its underlay, or the connection is lost."""
        was_in, self.view = self.view is not None, None
        for seat in [seat for seat in self.seats.values() if seat.view is not None]:
            seat.view = None
            seat.stay += 1
            seat.changed()
            if not seat.is_leaving and not self.is_fed:
                seat.add(Left(left.wanted, True, left.text, seat.group), None)
        if self.base is not None:
            self.base.view = None
            self.base.changed()
            if self.is_fed and was_in:
                self.base.add(Left(left.wanted, True, left.text), None)

    def _end_seat(self, seat: ClientSeat, left: Left) -> None:
        self.seats.pop(seat.group, None)
        self.tell(seat, left)
        seat.end(left)
        error = NotMember(f"this client is no longer in {seat.group!r}: {left.text}")
        self.sending.fail_group(seat, error)
        self.calls.end_seat(seat, error)
        if self.base is not None:
            self.note(self.base)

    def _end_leaving(self, text: str) -> None:
        """There is no connection: the groups that are being left are out, all at once."""
        seats = dict.fromkeys([seat for seat in self.seats.values() if seat.is_leaving])
        if seats:
            self.sending.lose_waiting(seats)
            for seat in seats:
                self._end_seat(seat, Left(True, False, text, seat.group))
        self._end_base()

    def _end_base(self) -> None:
        """The base has been left, and with it all groups; the daemon has what was sent before."""
        base = self.base
        if base is not None and base.is_leaving and not self.seats and not (self.is_connected and self.queue.count):
            left = Left(True, False, "left")
            base.add(left, None)
            base.end(left)
            self.base = None
            self.is_fed = False

    def _on_failed(self, body: bytes) -> None:
        portion, failed = self.receiving.portion(body), decode_failed(body)
        self.failure = failed.text
        self.sending.fail(GroupFailed(f"the underlay of the daemon has failed ({failed.text})"))
        self.receiving.everywhere(failed, portion)

    def _on_stalled(self, body: bytes) -> None:
        portion, notice = self.receiving.portion(body), decode_stalled(body)
        since = self._driver.now_s() - notice.seconds
        self.stalled = Stalled(notice.reason, notice.waiting_for, since, notice.text, notice.have, notice.need)
        self.receiving.everywhere(self.stalled, portion)

    def _on_resumed(self, body: bytes) -> None:
        portion, (reason, after) = self.receiving.portion(body), decode_resumed(body)
        self.stalled = None
        self.receiving.everywhere(Resumed(reason, after), portion)

    def _on_credit(self, body: bytes) -> None:
        self.sending.on_credit(decode_credit(body))
        self._driver.hurry()

    def _on_confirm(self, body: bytes) -> None:
        self.sending.on_confirm(decode_confirm(body))
        self._news.update(self.sending.waiting)  # there may be room again

    def _on_grant(self, body: bytes) -> None:
        self.calls.on_grant(body)

    def _on_answered(self, body: bytes) -> None:
        self.calls.on_answered(body)

    def _on_answer(self, body: bytes) -> None:
        self._queries.on_answer(decode_answer(body))

    def _places(self) -> list[ClientSeat]:
        return [*self.seats.values(), *([self.base] if self.base is not None else [])]


_HANDLERS: Final[dict[int, Callable[[ClientSession, bytes], None]]] = {
    FrameKind.VIEW: ClientSession._on_view,
    FrameKind.TRANSITIONAL: ClientSession._on_transitional,
    FrameKind.LEFT: ClientSession._on_left,
    FrameKind.UNCERTAIN: ClientSession._on_uncertain,
    FrameKind.FAILED: ClientSession._on_failed,
    FrameKind.STALLED: ClientSession._on_stalled,
    FrameKind.RESUMED: ClientSession._on_resumed,
    FrameKind.CREDIT: ClientSession._on_credit,
    FrameKind.CONFIRM: ClientSession._on_confirm,
    FrameKind.ANSWER: ClientSession._on_answer,
    FrameKind.GRANT: ClientSession._on_grant,
    FrameKind.ANSWERED: ClientSession._on_answered,
}
