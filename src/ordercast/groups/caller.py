"""A caller that is no member of the group it calls (RMP section 4.5): numbers, tries, and what comes back.

`CallEngine` speaks to the group: CALL datagrams until a REPLY comes, under flow control (section 4.6). `Caller` is the
application's side. The `Host` drives it where a member has its `Channel`. It is opened by the first call, and
closed again before the group may have forgotten its numbers: the next call then begins anew, with the first-packet
flag. Message and call numbers go on for the life of the node.

Deviations from the paper, with reasons:
- The first-packet flag also means that the window is one call until something comes back: a second call that carried
  the flag could make the group begin with it, and take the first, when it comes later, for an old one.
- Each call says which earlier calls it needs (`wire/calls.py`), so that those without acknowledgement may be lost
  without holding up what follows. A call that nobody waits for any more is still repeated while a later one needs it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ordercast.config import LAN_DATAGRAM, MAX_BLOCK, Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.errors import OrdercastError, WireError
from ordercast.groups.checks import CALL_HEAD_BYTES
from ordercast.groups.driven import LogLine
from ordercast.groups.rows import Meter, Rows
from ordercast.parts.log import DATAGRAM_OVERHEAD
from ordercast.parts.rtt import RoundTrip
from ordercast.parts.window import SlowStart
from ordercast.service import UNRELIABLE_RANK, Service
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, group_tag
from ordercast.wire.calls import (
    ACKNOWLEDGED,
    FIRST,
    NO_HANDLER,
    RELAY,
    WANTS_ACK,
    WANTS_AGAIN,
    CallHead,
    Reply,
    decode_reply,
    encode_call,
    pack_call,
)
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.intake import Intake
from ordercast.wire.writer import DatagramWriter

TRIES_IN_VAIN: Final = 3
"""Then the group's name and the first-packet flag come back: the ring may have been re-formed, or have forgotten us."""

MAX_UNDER_WAY: Final = 128
"""Calls that nobody has acknowledged. A member keeps a few hundred that wait for a place."""

WINDOW_BYTES: Final = 128 << 10
"""The most that one caller has under way. It does not know the members' buffers, which all senders share."""

_REPLY: Final = int(Kind.REPLY)

NAMELESS_ROOM: Final = 64
"""What header and flags of a CALL take of a datagram, and some to spare."""


class Call:
    """One call, from the application's word to what came of it."""

    __slots__ = (
        "answer",
        "block",
        "due_ns",
        "error",
        "first",
        "handler",
        "is_abandoned",
        "is_acknowledged",
        "is_over",
        "number",
        "payload",
        "position",
        "sent_ns",
        "service",
        "to",
        "tries",
        "type",
        "waiter",
        "wants_ack",
        "wants_again",
    )

    def __init__(
        self,
        payload: bytes,
        service: Service,
        *,
        handler: int | None = None,
        type_: int = 0,
        to: Address | None = None,
        wants_ack: bool = True,
        wants_again: bool = False,
    ) -> None:
        # what is asked
        self.payload = payload
        self.service = service
        self.handler = handler
        self.type = type_
        self.to = to  # a member that passes it on
        self.wants_ack = wants_ack  # something is to come back
        self.wants_again = wants_again
        # on its way
        self.number = -1  # not sent yet
        self.first = -1  # number of its message
        self.block = b""
        self.tries = 0
        self.sent_ns = 0
        self.due_ns = NEVER
        self.is_acknowledged = False  # delivered, and the answer is still to come
        self.is_abandoned = False  # nobody waits for it
        # what came of it
        self.is_over = False
        self.answer: bytes | None = None
        self.position = -1
        self.error: OrdercastError | None = None
        self.waiter: Any = None  # the API's: a future


class CallEngine:
    """The calls that are under way from one node to one group."""

    __slots__ = (
        "_contact",
        "_contacts",
        "_due_ns",
        "_group",
        "_intake",
        "_is_first",
        "_is_unheard",
        "_last_needed",
        "_me",
        "_rtt",
        "_timing",
        "_turn",
        "_unacknowledged",
        "_under_way",
        "_window",
        "_writer",
        "counters",
        "ended",
        "used_ns",
    )

    def __init__(self, group: str, me: Member, timing: Timing, datagram: int, contacts: list[Address]) -> None:
        self._group = group
        self._me = me
        self._timing = timing
        self._contacts = contacts  # nodes that pass a call on where there is no multicast
        self._writer = DatagramWriter(group_tag(group), me.id, datagram)
        self.counters: dict[str, int] = {}
        self._intake = Intake(self._writer.tag, self.counters)
        # what the group has told
        self._is_first = True  # nothing yet
        self._contact: Address | None = None  # of the member that answered last
        self._is_unheard = False  # it was reached through a contact, and not by multicast
        self._turn = 0
        # under way
        self._under_way: dict[int, Call] = {}  # by number, rising
        self._unacknowledged = 0  # of them
        self._last_needed = 0  # one past the last call that the group is known to have delivered
        # As members' sockets count: also a short call takes a whole buffer there.
        self._window = SlowStart(self._cost(LAN_DATAGRAM), self._cost(MAX_BLOCK))
        self._window.limit(WINDOW_BYTES)
        self._rtt = RoundTrip(timing)
        self._due_ns = NEVER  # no call is due before
        self.used_ns = 0
        self.ended: list[Call] = []

    # The application's side.

    def may_leave(self, call: Call) -> bool:
        """Whether a call fits the window."""
        if not self._unacknowledged:
            return True
        if self._is_first or self._unacknowledged >= MAX_UNDER_WAY:
            return False
        return self._cost(len(call.payload) + CALL_HEAD_BYTES) <= self._window.room()[0]

    def send(self, now_ns: int, call: Call, number: int, first: int, out: Outbox) -> None:
        """Number a call and let it leave. `first` is the number of its message."""
        flags = (WANTS_ACK if call.wants_ack else 0) | (WANTS_AGAIN if call.wants_again else 0)
        handler = NO_HANDLER if call.handler is None else call.handler
        head = CallHead(self._needs(), flags, handler, str(self._me), self._me.address)
        call.number, call.first = number, first
        call.block = pack_call(first, call.service, head, call.payload, call.type)
        call.sent_ns = now_ns
        if call.wants_ack:
            self._under_way[number] = call
            self._unacknowledged += 1
            self._window.sent(number, self._cost(len(call.block)))
            self._wait(now_ns, call, self._rtt.timeout_ns(0))
        else:
            self._end(call)
        self._transmit(now_ns, call, out)

    def forget(self, call: Call) -> None:
        """Nobody waits for it any more. It stays under way while a later one needs it."""
        call.is_abandoned = True
        self._give_up()

    @property
    def is_at_rest(self) -> bool:
        return not self._under_way

    # The engine.

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:  # noqa: ARG002
        for datagram in self._intake.read(now_ns, data, stride):
            if datagram.kind != Kind.REPLY:
                continue
            try:
                reply = decode_reply(datagram.body)
            except WireError:
                self._intake.reject()
                continue
            call = self._under_way.get(datagram.number)
            if reply.caller != self._me.id or call is None:
                self.counters["late_replies"] = self.counters.get("late_replies", 0) + 1
                continue
            self._writer.ring = datagram.ring
            self._contact = source
            self._is_first = False
            self._on_reply(now_ns, call, reply)

    def expire(self, now_ns: int, out: Outbox) -> None:
        self._intake.expire(now_ns)
        if self._due_ns > now_ns:
            return
        self._due_ns = NEVER
        for number, call in list(self._under_way.items()):
            if call.due_ns > now_ns:
                self._due_ns = min(self._due_ns, call.due_ns)
                continue
            call.tries += 1
            if not call.is_acknowledged:
                self._window.timed_out(number)
                self._rtt.expired()
            if call.tries == TRIES_IN_VAIN:
                self._is_unheard = False  # neither way works: both are tried again
            self._wait(now_ns, call, self._rtt.timeout_ns(call.tries))
            self._transmit(now_ns, call, out)

    def deadline_ns(self) -> int:
        return min(self._due_ns if self._under_way else NEVER, self._intake.due_ns)

    def audience(self) -> list[Address]:
        return []

    # In detail.

    def _needs(self) -> int:
        """What must have been delivered before the next call: whatever has a place, and is not given up."""
        for number, call in reversed(self._under_way.items()):
            if not call.is_abandoned and call.service.rank != UNRELIABLE_RANK:
                return number + 1
        return self._last_needed

    def _give_up(self) -> None:
        """End abandoned calls that nobody needs."""
        while self._under_way:
            number, last = next(reversed(self._under_way.items()))
            if not last.is_abandoned:
                break
            del self._under_way[number]
            self._window.timed_out(number)
            self._leave_window(last)
            last.is_over = True

    def _cost(self, size: int) -> int:
        """What a block takes of a member's socket buffer."""
        return size + DATAGRAM_OVERHEAD * -(-size // (self._writer.datagram - HEADER_BYTES))

    def _leave_window(self, call: Call) -> None:
        if not call.is_acknowledged:
            self._unacknowledged -= 1
            self._window.acked(call.number)

    def _wait(self, now_ns: int, call: Call, timeout_ns: int) -> None:
        if call.is_acknowledged:
            timeout_ns = self._timing.retransmit_max_ns  # it is only to be reminded of the answer
        call.due_ns = now_ns + timeout_ns
        self._due_ns = min(self._due_ns, call.due_ns)

    def _transmit(self, now_ns: int, call: Call, out: Outbox) -> None:
        self.used_ns = now_ns
        is_in_vain = call.tries >= TRIES_IN_VAIN
        # Parts of two tries must fit each other: what takes several datagrams always has the name.
        by_name = self._is_first or is_in_vain or len(call.block) + NAMELESS_ROOM > self._writer.datagram
        to, flags = self._route(call, is_in_vain)
        if self._is_first or (is_in_vain and call is self._lowest()):
            flags |= FIRST
        body = encode_call(flags, self._group if by_name else "", call.block)
        out.sends.append(self._writer.control(to, Kind.CALL, body, 0 if by_name else self._writer.ring, call.number))

    def _lowest(self) -> Call | None:
        """The one that may carry the flag: of a higher one the group would take those before it for old ones, and what
        was delivered is not to be delivered by a group that was made anew."""
        return next((call for call in self._under_way.values() if not call.is_acknowledged), None)

    def _route(self, call: Call, is_in_vain: bool) -> tuple[Address, int]:
        """Where a try goes, and whether its receiver has to pass it on."""
        if call.to is not None:
            return call.to, RELAY
        contacts = self._contacts
        if self._me.has_multicast and not self._is_unheard and not (is_in_vain and contacts and call.tries % 2):
            return To.MULTICAST, 0
        if self._contact is not None and (not call.tries or not contacts):
            return self._contact, RELAY
        if not contacts:
            return To.MULTICAST, 0  # to nobody: without a contact the call waits for its time to be up
        self._turn += 1
        return contacts[self._turn % len(contacts)], RELAY

    def _on_reply(self, now_ns: int, call: Call, reply: Reply) -> None:
        number = call.number
        if not call.tries:
            self._rtt.sample(now_ns - call.sent_ns)
        elif call.tries >= TRIES_IN_VAIN and not call.is_acknowledged:
            self._is_unheard = bool(self._contacts)
        if reply.allowance:
            self._window.limit(min(reply.allowance, WINDOW_BYTES))
        self._leave_window(call)
        call.is_acknowledged = True
        if call.service.rank != UNRELIABLE_RANK:
            self._last_needed = max(self._last_needed, number + 1)
        if reply.status == ACKNOWLEDGED and call.handler is not None:
            self._wait(now_ns, call, self._timing.retransmit_max_ns)
            return
        del self._under_way[number]
        call.answer, call.position = reply.payload, reply.position
        self._end(call)
        self._give_up()

    def _end(self, call: Call) -> None:
        call.is_over = True
        if not call.is_abandoned:
            self.ended.append(call)


class Caller:
    """The application's side of the calls to one group."""

    __slots__ = (
        "_idle_ns",
        "_next_call",
        "_next_number",
        "_queue",
        "_rows",
        "_waiting",
        "armed_ns",
        "deadline_ns",
        "engine",
        "group",
        "is_over",
        "order",
        "out",
        "received",
        "sent",
        "settled",
    )

    def __init__(
        self,
        group: str,
        me: Member,
        timing: Timing,
        order: int,
        *,
        datagram: int,
        contacts: list[Address],
        resume: tuple[int, int],
        recorder: Recorder | None,
    ) -> None:
        """`resume`: the next message and block number. Calls are numbered on from the blocks of a membership before,
        and the blocks of a later one from the calls: for the group they are one sequence of one sender."""
        self.group = group
        self.engine = CallEngine(group, me, timing, datagram, contacts)
        self.order = order
        self.out = Outbox()
        self._rows = Rows(recorder, group, str(me))
        self._next_number, self._next_call = resume
        # calls
        self._queue: deque[Call] = deque()
        self._waiting: dict[Call, None] = {}  # that the application waits for
        self.settled: list[Call] = []
        # driving
        self._idle_ns = timing.caller_flush_ns // 2  # after so long at rest it is closed
        self.is_over = False
        self.deadline_ns = -1
        self.armed_ns = NEVER
        self.sent = Meter()
        self.received = Meter()

    @property
    def driven(self) -> Caller:
        """What a pass works on when a call is made: the caller itself."""
        return self

    @property
    def underlay(self) -> str:
        """Groups that are called have an underlay of their own."""
        return self.group

    @property
    def log(self) -> list[LogLine]:
        """A caller sees no views."""
        return []

    @property
    def resume(self) -> tuple[int, int]:
        return self._next_number, self._next_call

    @property
    def waiting(self) -> list[Call]:
        """The calls whose outcome the application waits for."""
        return list(self._waiting)

    @property
    def is_at_rest(self) -> bool:
        return not self._queue and self.engine.is_at_rest

    def offer(self, call: Call) -> None:
        """Take a call; it comes back in `settled`. The caller waits for that, so that the queue is bounded by it."""
        self._queue.append(call)
        self._waiting[call] = None

    def forget(self, call: Call) -> None:
        """Nobody waits for its outcome any more. Where it has left, it may be carried out."""
        self._waiting.pop(call, None)
        if call in self._queue:
            self._queue.remove(call)
        elif not call.is_over:
            self.engine.forget(call)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        """A batch of the group's datagrams: only replies are for callers."""
        if data[1] == _REPLY:
            self.received.add(_REPLY, -(-len(data) // stride), len(data))
        self.engine.receive(now_ns, source, data, stride, self.out)

    def expire(self, now_ns: int) -> None:
        self.engine.expire(now_ns, self.out)

    def finish(self, now_ns: int) -> None:
        """Let calls leave as the window opens, and take what has come back."""
        self._take(now_ns)
        while self._queue and self.engine.may_leave(self._queue[0]):
            call = self._queue.popleft()
            self._rows.submit(now_ns, 0, self._next_number, 1, call.service, len(call.payload))
            self.engine.send(now_ns, call, self._next_call, self._next_number, self.out)
            self._next_call += 1
            self._next_number += 1
        self._take(now_ns)
        close_ns = self.engine.used_ns + self._idle_ns if self.is_at_rest else NEVER
        self.is_over = close_ns <= now_ns
        self._rows.traffic(now_ns, self.sent, self.received)
        self.deadline_ns = min(self.engine.deadline_ns(), close_ns)

    def take_news(self) -> list[Caller]:
        return [self]

    def fail(self, error: OrdercastError) -> None:
        """All waits end with `error`."""
        for call in self._waiting:
            call.error = error
            call.is_over = True
            self.settled.append(call)
        self._waiting.clear()
        self._queue.clear()

    def stop(self, now_ns: int) -> None:
        """The last traffic rows."""
        self._rows.traffic(now_ns, self.sent, self.received, last=True)

    def _take(self, now_ns: int) -> None:
        ended, self.engine.ended = self.engine.ended, []
        for call in ended:
            if call.wants_ack:
                self._rows.confirm(now_ns, 0, call.first, 1, call.service, call.position)
            self._waiting.pop(call, None)
            self.settled.append(call)
