"""Seats of a client: what the public API stands on, over a connection to a daemon (`api/seat.py` has the protocols)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.api.resolved import ResolvedGroups
from ordercast.api.seat import SLICE, Respond, Waited
from ordercast.api.stats import all_group_stats
from ordercast.api.underway import PortsUnderway
from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import Reset, StallReason
from ordercast.errors import GroupFailed, MessageTooLarge, NotMember, OrdercastError, UsageError
from ordercast.groups.calls import Asked
from ordercast.groups.checks import check_kind, check_priority, no_feeds, no_locks, unsupported
from ordercast.groups.events import Batch, Left, PortEvent, Uncertain
from ordercast.groups.locks import LockRequest
from ordercast.groups.queued import NOBODY
from ordercast.groups.requests import Inbox, PendingReply
from ordercast.groups.status import GroupState, GroupStatus
from ordercast.groups.watches import Watch
from ordercast.service import Service
from ordercast.view import Member, View

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ordercast.client.session import ClientSession


class Portion:
    """Bytes that the daemon has sent, and the seats that have not finished with them."""

    __slots__ = ("connection", "remaining", "size")

    def __init__(self, connection: int, size: int, remaining: int = 1) -> None:
        """`connection`: the number of the one on which they came."""
        self.connection = connection
        self.size = size
        self.remaining = remaining


class ClientSeat:
    """One membership of one group, through a daemon. It is also what its messages in the send queue are for."""

    def __init__(self, session: ClientSession, group: str, handle: int, header: bytes = b"") -> None:
        self.session = session
        self.group = group
        self.number = handle  # what stands in blocks for the group
        self.header = header  # of the join; kept for a return
        # membership
        self.view: View | None = None
        self.gone: Left | None = None
        self.refusal: str | None = None
        self.is_leaving = False
        self.error: OrdercastError | None = None
        self.is_changed = True
        self.signalled = ""  # the view whose end was told last
        self.stay = 0  # counts memberships: an answer is owed in one of them
        self.respond: Respond | None = None  # the API's
        # received
        self._events: deque[tuple[int, PortEvent, Portion | None]] = deque()  # with the turn in which each came
        self._taken: Portion | None = None
        # counters
        self.messages_sent = 0
        self.messages_delivered = 0

    def __repr__(self) -> str:
        return f"<seat of {self.session.member} in {self.group!r}>"

    # State.

    @property
    def member(self) -> Member:
        return self.session.member

    @property
    def is_member(self) -> bool:
        return self.view is not None

    @property
    def failure(self) -> str | None:
        return self.session.failure

    @property
    def is_working(self) -> bool:
        return self.view is not None and self.session.is_connected and self.session.failure is None

    def short_of(self) -> tuple[int, int] | None:
        return None

    @property
    def config(self) -> GroupConfig:
        return self.session.config

    @property
    def default_service(self) -> Service:
        return self.session.default_service

    @property
    def status(self) -> GroupStatus:
        session, view = self.session, self.view
        state, reason, text = GroupState.WORKING, None, ""
        if self.gone is not None:
            state = GroupState.LEFT
        elif not session.is_connected:
            state, reason, text = GroupState.RECOVERING, StallReason.NETWORK, session.waits_for
        elif self.is_leaving:
            state = GroupState.LEAVING
        elif session.stalled is not None:
            stalled = session.stalled
            state, reason, text = GroupState.STALLED, stalled.reason, stalled.text
        elif view is None:
            state = GroupState.JOINING
        waiting_for = session.stalled.waiting_for if state == GroupState.STALLED and session.stalled else ()
        since = session.stalled.since if state == GroupState.STALLED and session.stalled else session.lost_since
        return GroupStatus(
            state,
            view,
            view.members if view is not None else (),
            reason,
            waiting_for,
            since if reason is not None else None,
            text,
            session.queue.count,
            session.sending.unconfirmed,
        )

    def stats(self) -> dict[str, int]:
        queue = self.session.queue
        return all_group_stats(
            {
                "messages_sent": self.messages_sent,
                "messages_delivered": self.messages_delivered,
                "queued_messages": queue.count,
                "queued_bytes": queue.queued_bytes,
                "held_bytes": sum([portion.size for _, _, portion in self._events if portion is not None]),
            }
        )

    # Sending.

    def check(self, size: int, service: Service, type_: int) -> None:
        self.check_open()
        check_kind(service, type_)
        session = self.session
        if not session.supports(service):
            raise unsupported(session.config.orderer, self.group, service)
        if size > session.config.max_message:
            raise MessageTooLarge(
                f"{size} bytes exceed max_message={session.config.max_message}, set when the daemon was started"
            )

    def check_priority(self, priority: int) -> None:
        check_priority(priority, self.config.orderer, self.group)

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        if self.gone is not None or self.is_leaving:
            raise NotMember(f"this node is not in {self.group!r}: {self.gone.text if self.gone else 'it is leaving'}")
        failure = self.session.failure
        if failure is not None:
            raise GroupFailed(f"{self.group!r} has failed ({failure}); it works again when its daemons find each other")

    @property
    def has_room(self) -> bool:
        return self.session.sending.has_room

    def expect_room(self, is_waiting: bool) -> None:
        waiting = self.session.sending.waiting
        if is_waiting:
            waiting[self] = None
        else:
            waiting.pop(self, None)

    @property
    def end_number(self) -> int:
        return self.session.queue.end_number

    def try_offer(self, payload: bytes, service: Service, type_: int) -> int:
        """Hot: once per `send`."""
        session = self.session
        queue = session.queue
        if (
            self.view is not None
            and self.gone is None
            and not self.is_leaving
            and self.error is None
            and session.failure is None
            and session.supports(service)
            and len(payload) <= session.config.max_message
            and type_.__class__ is int
            and -32768 <= type_ <= 32767
            and session.sending.has_room
        ):
            number = queue.end_number
            queue.offer(payload, service, type_, self)
            return number
        return -1

    def offer(self, payload: bytes, service: Service, type_: int = 0, priority: int = 0) -> int:
        queue = self.session.queue
        if not queue.has_room:
            return -1
        number = queue.end_number
        queue.offer(payload, service, type_, self, priority)
        return number

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int = 0,
        lengths: list[int] | None = None,
        priority: int = 0,
    ) -> int:
        return self.session.queue.offer_many(payloads, service, type_, lengths, self, None, priority)

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        return self.session.sending.watch(first, stop, service, self if self is not self.session.base else None)

    def expect_feed(self, is_active: bool) -> None:
        if is_active:
            raise no_feeds(self.group, self.config.orderer)

    def feed_room(self) -> int:
        return 0

    def flush(self) -> Watch | None:
        watch = self.session.sending.flush()
        self.session.wake()
        return watch

    def forget(self, watch: Watch) -> None:
        self.session.sending.forget(watch)

    def lose(self, first: int, count: int) -> None:
        """Own messages were on their way when the connection was lost."""
        if self.gone is None:
            self.session.tell(self, Uncertain(first, count, self.group))

    # Receiving.

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take(self) -> PortEvent | None:
        taken = self._taken
        if taken is not None:
            self._taken = None
            self.session.finish(taken)
        if not self._events:
            return None
        _, event, self._taken = self._events.popleft()
        if isinstance(event, Batch):
            self.messages_delivered += event.count
        return event

    def add(self, event: PortEvent, portion: Portion | None) -> None:
        """Queue an event. Hot: once per block."""
        session = self.session
        session.turn += 1
        if self.is_leaving and portion is not None:
            session.finish(portion)
            portion = None
        self._events.append((session.turn, event, portion))
        session.note(self)

    def take_over(self, seats: Sequence[ClientSeat]) -> None:
        """This is the base: what others have queued comes here, in one order, before what follows."""
        found = [event for seat in (self, *seats) for event in seat.give_over()]
        self._events.extend(sorted(found, key=lambda queued: queued[0]))
        self.session.note(self)

    def give_over(self) -> list[tuple[int, PortEvent, Portion | None]]:
        """What has not been taken: the base receives everything from here on."""
        events, self._events = list(self._events), deque()
        return events

    def release(self) -> None:
        """Nobody may receive here any more. What is here can still be taken, and the daemon waits for it no longer."""
        held = [portion for _, _, portion in self._events if portion is not None]
        if self._taken is not None:
            held.append(self._taken)
            self._taken = None
        if held:
            self._events = deque([(turn, event, None) for turn, event, _ in self._events])
            for portion in held:
                self.session.finish(portion)

    # Calls and locks.

    def check_locks(self) -> None:
        self.check_open()
        if not self.session.terms.has_locks:
            raise no_locks(self.group, self.config.orderer)

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        return self.session.calls.call(self, payload, service, handler, type_)

    def forget_call(self, asked: Asked) -> None:
        self.session.calls.forget(asked)

    def respond_by(self, respond: Respond) -> None:
        self.respond = respond

    def answer(self, owed: PendingReply, payload: bytes) -> bool:
        if self.error is not None:
            raise self.error
        return self.session.calls.answer(self, owed, payload)

    def lock(self, key: str, tries_once: bool = False) -> LockRequest:
        return self.session.calls.claim(self, key, None, tries_once)

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:
        return self.session.calls.claim(self, str(handler), Inbox(), tries_once)

    def give_up(self, request: LockRequest) -> None:
        self.session.calls.give_up(request)

    # Membership.

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:  # noqa: ARG002 - order is the daemon's
        if self.gone is None and not self.is_leaving:
            self.is_leaving = True
            self.release()
            self.session.leave(self, header)

    def expel(self, member: int, why: str) -> None:  # noqa: ARG002
        raise UsageError("a client of a daemon expels nobody: stop the other program, or its daemon")

    def reset(self, min_members: MinMembers, header: bytes = b"") -> None:  # noqa: ARG002
        raise UsageError("daemons recover by themselves: a client resets no group")

    # Passes.

    def wake(self) -> None:
        self.session.wake()

    def hurry(self) -> None:
        if self.error is None:
            self.session.hurry()

    def take_settled(self) -> Sequence[Waited]:
        return ()  # the backend tells of all of them

    def take_changed(self) -> bool:
        is_changed, self.is_changed = self.is_changed, False
        return is_changed

    def take_resets(self) -> Sequence[Reset]:
        return ()

    def fail(self, error: OrdercastError) -> None:
        self.error = error
        self.session.sending.fail(error)

    # The session.

    def changed(self) -> None:
        self.is_changed = True
        self.session.note(self)

    def on_view(self, view: View) -> None:
        self.view = view
        self.changed()

    def end(self, left: Left) -> None:
        """Out for good. What was received can still be taken."""
        self.gone = left
        self.view = None
        self.release()
        self.changed()


class GroupList:
    """Groups that a message is for, by name; this client need not be in them."""

    __slots__ = ("_session", "names")

    def __init__(self, session: ClientSession, names: Sequence[str]) -> None:
        self._session = session
        self.names = tuple(names)

    def numbers(self) -> Sequence[int] | None:
        return [self._session.sending.handle_of(name) for name in self.names]

    def lose(self, first: int, count: int) -> None:
        """Told to the base where it receives everything, or else by the first of them that this client is in."""
        session = self._session
        seat: ClientSeat | None = session.base if session.is_fed else None
        if seat is None:
            seat = next((session.seats[name] for name in self.names if name in session.seats), None)
        if seat is not None:
            session.tell(seat, Uncertain(first, count, seat.group if seat is not session.base else ""))


class CalledGroup:
    """One group that a call is for; this client is not in it."""

    __slots__ = ("_session", "group", "messages_sent", "number")

    def __init__(self, session: ClientSession, group: str) -> None:
        self._session = session
        self.group = group
        self.number = session.sending.handle_of(group)
        self.messages_sent = 0

    def lose(self, first: int, count: int) -> None:
        """Who waits for the answer is told."""


class ClientBase(ClientSeat):
    """The client's place in the underlay of its daemon: what is not about one group only."""

    _addressed: GroupList | None = None  # the last groups that it has sent to: messages to the same ones share blocks

    @property
    def groups(self) -> list[str]:
        return [name for name, seat in self.session.seats.items() if seat.is_member and not seat.is_leaving]

    @property
    def slow_groups(self) -> list[str]:
        return []  # the daemon waits for the client as a whole, and disconnects it

    @property
    def slice_size(self) -> int:
        return SLICE

    def feed(self) -> None:
        self.session.feed()

    def send_to(self, payload: bytes, service: Service, type_: int, groups: Sequence[str], priority: int = 0) -> int:
        session = self.session
        if not service.is_ordered and len(set(groups)) > 1:
            raise UsageError(
                f"a message to several groups is AGREED or stronger, got {service}: with less it could come before its "
                "groups have their names. Send it to each of them"
            )
        for name in groups:
            session.sending.handle_of(name)  # raises where there are too many
        if not session.queue.has_room:
            return -1
        number = session.queue.end_number
        names = tuple(dict.fromkeys(groups))
        if self._addressed is None or self._addressed.names != names:
            self._addressed = GroupList(session, names)
        session.queue.offer_addressed(payload, service, type_, self._addressed, priority)
        return number

    def check_calls(self, group: str) -> None:
        if not self.session.terms.has_locks:
            raise no_locks(group, self.config.orderer)

    def call_outside(self, payload: bytes, service: Service, handler: int, type_: int, group: str) -> Asked | None:
        return self.session.calls.call(self, payload, service, handler, type_, CalledGroup(self.session, group))

    def forget_outside(self, asked: Asked) -> None:
        self.session.calls.forget(asked)

    def offer_many_to(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        groups: Sequence[str],
        priority: int = 0,
    ) -> int:
        seats = self._seats_of(groups)
        queue = self.session.queue
        if seats.count(seats[0]) == len(seats):
            return queue.offer_many(payloads, service, type_, lengths, seats[0], None, priority)
        return queue.offer_many(payloads, service, type_, lengths, seats[0], seats, priority)

    def resolve(self, names: Sequence[str]) -> ResolvedGroups:
        self._seats_of(names)
        return ResolvedGroups(names, self)

    @property
    def roster_count(self) -> int:
        return 0

    def numbers_of(self, names: Sequence[str]) -> Sequence[int]:
        seats = self.session.seats
        return [seats[name].number if name in seats else NOBODY for name in names]

    def holds(self, numbers: npt.NDArray[np.uint32]) -> bool:  # noqa: ARG002 - a client looks names up each time
        return False

    def check_new(self, names: Sequence[str]) -> None:
        self.check_open()
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise UsageError(f"{twice!r} is named twice; join each group once")
        for name in names:
            self.session.check_new(name)

    def check_in(self, names: Sequence[str]) -> None:
        self._seats_of(names)

    def join_many(self, names: Sequence[str], header: bytes) -> PortsUnderway:
        return PortsUnderway(self.session.open_many(names, header), False)

    def leave_many(self, names: Sequence[str], header: bytes) -> PortsUnderway:
        seats = self._seats_of(names)
        for seat in seats:
            seat.leave(header)
        return PortsUnderway(seats, True)

    def leave_all(self) -> None:
        for seat in list(self.session.seats.values()):
            seat.leave()
        self.leave()

    def _seats_of(self, names: Sequence[str]) -> list[ClientSeat]:
        seats = self.session.seats
        try:
            found = list(map(seats.__getitem__, names))
        except KeyError as error:
            name = error.args[0]
            raise NotMember(f"this client is not in {name!r}: join it, or send(payload, groups=[{name!r}])") from None
        leaving = next((seat.group for seat in found if seat.is_leaving), None)
        if leaving is not None:
            raise NotMember(f"this client is leaving {leaving!r}: wait until it is out, and join it again")
        return found
