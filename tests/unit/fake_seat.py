# ruff: noqa: ARG002 - a fake takes what the contract names, and uses what it needs
"""A seat and a backend without host, port and engine: what a client of a daemon would have, shrunk to one process.

Every seat of a `FakeBackend` echoes: what is offered is delivered at once, in order, to the seat itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from ordercast.api.handles import OpenGroups
from ordercast.api.node import NodeBase
from ordercast.api.seat import BaseSeat, JoinRequest, Respond, Waited
from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import Reset
from ordercast.errors import GroupFailed, NotMember, OrdercastError, Unhandled, UsageError
from ordercast.groups.caller import Call
from ordercast.groups.calls import Asked
from ordercast.groups.checks import check_priority
from ordercast.groups.events import Batch, Left, PortEvent
from ordercast.groups.locks import LockRequest
from ordercast.groups.naming import NameQuery
from ordercast.groups.requests import Inbox, PendingReply
from ordercast.groups.status import GroupState, GroupStatus
from ordercast.groups.watches import Watch
from ordercast.service import AGREED, Service
from ordercast.view import Address, Member, Reason, View, node_id

ME = Member(node_id("fake", 1), "fake", 1, ("127.0.0.1", 1))


class FakeSeat:
    """One membership. `capacity`: how many messages it takes before the next pass."""

    def __init__(self, backend: FakeBackend, group: str, config: GroupConfig) -> None:
        self._backend = backend
        self.group = group
        self.config = config
        self.member = ME
        self.view: View | None = None
        self.is_member = False
        self.is_leaving = False
        self.gone: Left | None = None
        self.refusal: str | None = None
        self.failure: str | None = None
        self.error: OrdercastError | None = None
        self.shortage: tuple[int, int] | None = None
        self.default_service: Service = AGREED
        self.capacity = 4
        self.offered: list[tuple[bytes, Service, int]] = []
        self.end_number = 0
        self._position = 0
        self._events: deque[PortEvent] = deque()
        self._watches: list[Watch] = []
        self._settled: list[Waited] = []
        self._resets: list[Reset] = []
        self.expelled: list[tuple[int, str]] = []
        self._held: dict[str, LockRequest] = {}

    def stats(self) -> dict[str, int]:
        return {"offered": self.end_number}

    @property
    def status(self) -> GroupStatus:
        state = GroupState.WORKING if self.is_member else GroupState.LEFT
        return GroupStatus(state, self.view, (), None, (), None, "", len(self.offered), 0)

    # Sending.

    def check(self, size: int, service: Service, type_: int) -> None:
        self.check_open()

    def check_priority(self, priority: int) -> None:
        check_priority(priority, "token", self.group)

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        if self.gone is not None or self.is_leaving:
            raise NotMember(f"not in {self.group!r}")
        if self.failure is not None:
            raise GroupFailed(self.failure)

    def expect_room(self, is_waiting: bool) -> None: ...

    @property
    def has_room(self) -> bool:
        return len(self.offered) < self.capacity

    def try_offer(self, payload: bytes, service: Service, type_: int) -> int:
        is_open = self.is_member and not self.is_leaving and self.failure is None and self.error is None
        return self.offer(payload, service, type_) if is_open else -1

    def offer(self, payload: bytes, service: Service, type_: int = 0, priority: int = 0) -> int:
        if not self.has_room:
            return -1
        self.offered.append((payload, service, type_))
        self.end_number += 1
        return self.end_number - 1

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int = 0,
        lengths: list[int] | None = None,
        priority: int = 0,
    ) -> int:
        taken = payloads[: self.capacity - len(self.offered)]
        for payload in taken:
            self.offer(payload, service, type_)
        return len(taken)

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        watch = Watch(first, stop, service)
        self._watches.append(watch)
        return watch

    def flush(self) -> Watch | None:
        if not self.offered:
            return None
        watch = Watch(self.end_number, self.end_number, None)
        self._watches.append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    # Receiving.

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take(self) -> PortEvent | None:
        return self._events.popleft() if self._events else None

    # Calls and locks.

    def expect_feed(self, is_active: bool) -> None:
        raise NotImplementedError

    def feed_room(self) -> int:
        raise NotImplementedError

    def check_locks(self) -> None:
        self.check_open()

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        number = self.offer(payload, service, type_)
        if number < 0:
            return None
        asked = Asked(number, handler)
        if str(handler) in self._held:
            asked.answer = payload[::-1]
        else:
            asked.error = Unhandled(f"nobody holds handler {handler}")
        self._settled.append(asked)
        return asked

    def forget_call(self, asked: Asked) -> None: ...

    def respond_by(self, respond: Respond) -> None: ...

    def answer(self, owed: PendingReply, payload: bytes) -> bool:
        return True

    def lock(self, key: str, tries_once: bool = False) -> LockRequest:
        request = self._held[key] = LockRequest(key, None, tries_once)
        request.is_held = True
        self._settled.append(request)
        return request

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:
        request = self.lock(str(handler), tries_once)
        request.inbox = Inbox()
        return request

    def give_up(self, request: LockRequest) -> None:
        request.is_held = False
        self._held.pop(request.key, None)

    # Membership.

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:
        self.is_leaving = True
        self.wake()

    def expel(self, member: int, why: str) -> None:
        self.expelled.append((member, why))
        self.wake()

    def reset(self, min_members: MinMembers, header: bytes = b"") -> None:
        if isinstance(min_members, int) and min_members > 1:
            self._resets.append(Reset(0, "only 1 member is alive"))
        else:
            self._resets.append(Reset(1, ""))
            self.failure = None
        self.wake()

    # Passes.

    def wake(self) -> None:
        self._backend.wake(self)

    def hurry(self) -> None:
        self.wake()

    def run_pass(self) -> None:
        """Deliver what was offered; come in, or go out."""
        if self.view is None and self.gone is None and not self.is_leaving and self.refusal is None:
            self.view = View(1, str(ME), 1, 1, 0, 0, (ME,), {}, Reason.CREATE, str(ME))
            self.is_member = True
            self._events.append(self.view)
        first = self.end_number - len(self.offered)
        for at, (payload, service, type_) in enumerate(self.offered):
            number = first + at
            batch = Batch(b"", self.group, "1@fake/1", str(ME), number, 1, self._position, service, [payload], type_)
            self._events.append(batch)
            for watch in self._watches:
                if watch.first <= number < watch.stop:
                    watch.remaining -= 1
                    if number == watch.first:
                        watch.position = self._position
            self._position += 1
        self.offered.clear()
        self._settled += [watch for watch in self._watches if not watch.remaining]
        self._watches = [watch for watch in self._watches if watch.remaining]
        if self.is_leaving and self.gone is None:
            self.gone = Left(wanted=True, returning=False, text="left")
            self.is_member = False
            self.view = None
            self._events.append(self.gone)

    def take_settled(self) -> Sequence[Waited]:
        settled, self._settled = self._settled, []
        return settled

    def take_changed(self) -> bool:
        return True

    def take_resets(self) -> Sequence[Reset]:
        resets, self._resets = self._resets, []
        return resets

    @property
    def is_working(self) -> bool:
        return self.is_member

    def short_of(self) -> tuple[int, int] | None:
        return self.shortage

    def fail(self, error: OrdercastError) -> None:
        self.error = error
        for watch in self._watches:
            watch.error = error
            self._settled.append(watch)


class FakeBackend:
    """Seats by name. It runs a pass for each turn of the loop in which something was asked."""

    def __init__(self) -> None:
        self.defaults = GroupConfig()
        self.member = ME
        self.carrier: str | None = None
        self.seats: dict[str, FakeSeat] = {}
        self.refuse = ""
        self.listener: OpenGroups | None = None
        self._asked: dict[FakeSeat, None] = {}
        self._news: list[FakeSeat] = []

    def stats(self) -> dict[str, int]:
        return {}

    async def locate(self, contact: str | Address) -> Address:
        return ("127.0.0.1", 2)

    def ask_names(self, address: Address) -> NameQuery:
        raise NotImplementedError

    def forget_names(self, query: NameQuery) -> None: ...

    def open(self, group: str, request: JoinRequest) -> FakeSeat:
        seat = self.seats[group] = FakeSeat(self, group, request.config)
        if self.refuse:
            seat.refusal = self.refuse
            seat.gone = Left(wanted=False, returning=False, text=self.refuse)
        seat.wake()
        return seat

    def attach(self, underlay: str, request: JoinRequest) -> BaseSeat:
        raise UsageError("a client has no shared underlays")

    def shared_underlay_of(self, group: str) -> str | None:
        return None

    def seat(self, group: str) -> FakeSeat | None:
        seat = self.seats.get(group)
        return seat if seat is not None and seat.gone is None else None

    def wake(self, seat: FakeSeat) -> None:
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._run)
        self._asked[seat] = None

    def _run(self) -> None:
        asked, self._asked = self._asked, {}
        for seat in asked:
            seat.run_pass()
            self._news.append(seat)
        if self.listener is not None:
            self.listener.settle()

    def take_news(self) -> Sequence[FakeSeat]:
        news, self._news = self._news, []
        return news

    def begin_call(self, group: str, call: Call) -> None:
        call.answer = b"from " + group.encode()
        call.is_over = True
        asyncio.get_running_loop().call_soon(call.waiter.set_result, None)

    def forget_call(self, group: str, call: Call) -> None: ...

    def calls_to(self, group: str) -> Sequence[Call]:
        return []

    def take_settled(self) -> Sequence[Waited]:
        return []

    def fail(self, error: OrdercastError) -> None: ...


class FakeClient(NodeBase):
    """A node that has neither host nor sockets."""

    def __init__(self) -> None:
        self.backend = FakeBackend()
        super().__init__(self.backend)
        self.backend.listener = self._open

    def stop(self, error: OrdercastError) -> None:
        self._open.fail(error)

    async def close(self) -> None:
        for group in self.groups:
            await group.leave()
