"""READ FIRST: what the public API stands on. Two small protocols, so that the same API runs on different kinds of node.

`Seat` is one membership of one group. `NodeBackend` is what a node needs besides: it opens seats, calls groups that the
node is not in, and says what has changed. `ordercast.api.local` implements both over a `Host` in this process. A client
of a daemon can implement them over a connection.

Nothing here calls back. A driver runs passes; after each pass `OpenGroups.settle` (`ordercast.api.handles`) asks the
backend which seats have news, and wakes the tasks that waited for it. The small records (`Watch`, `Asked`,
`LockRequest`, `Call`) have a field `waiter` for that: the API puts a future there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ordercast.api.resolved import ResolvedGroups
from ordercast.config import AlonePolicy, Demands, GroupConfig, MinMembers, RecoveryMode
from ordercast.engine import Reset
from ordercast.errors import OrdercastError
from ordercast.groups.caller import Call
from ordercast.groups.calls import Asked
from ordercast.groups.events import Left, PortEvent
from ordercast.groups.locks import LockRequest
from ordercast.groups.naming import NameQuery
from ordercast.groups.requests import PendingReply
from ordercast.groups.status import GroupStatus
from ordercast.groups.watches import Watch
from ordercast.service import Service
from ordercast.view import Address, Member, View

SLICE: Final = 2_000
"""Groups of a shared underlay that are opened or left in one go."""

Respond = Callable[[PendingReply, bytes], Awaitable[None]]
"""What `Request.reply` calls: sends an answer that this member owes."""


class Waited(Protocol):
    """Something that a task waits for. It is settled: it has its result or its error."""

    waiter: Any


class Seat(Protocol):
    """One membership of one group at one node."""

    # State.

    @property
    def group(self) -> str:
        """The name of the group."""

    @property
    def member(self) -> Member:
        """This node, as views of the group name it."""

    @property
    def view(self) -> View | None:
        """The newest view; None before the first one, and while this node is out."""

    @property
    def is_member(self) -> bool: ...

    @property
    def is_leaving(self) -> bool:
        """A leave was asked for. It stays true when the node is out; a leave that had to be ordered and could not is
        taken back."""

    @property
    def gone(self) -> Left | None:
        """How the membership ended; None while it lasts, or while the node is on its way back."""

    @property
    def refusal(self) -> str | None:
        """Why the group refused the join."""

    @property
    def failure(self) -> str | None:
        """Why calls fail until a reset."""

    @property
    def is_working(self) -> bool:
        """Whether this node is in the group, and no recovery is under way."""

    def short_of(self) -> tuple[int, int] | None:
        """How many members there are and how many this member needs, where they are too few to take part."""

    @property
    def error(self) -> OrdercastError | None:
        """Why the whole node has stopped."""

    @property
    def config(self) -> GroupConfig: ...

    @property
    def default_service(self) -> Service:
        """What a send that names no service gets."""

    @property
    def status(self) -> GroupStatus:
        """What it is doing now."""

    def stats(self) -> dict[str, int]:
        """Counters, by the names of `ordercast.api.stats`."""

    # Sending. Every `check` raises what stands against the call, the node's own `error` first.

    def check(self, size: int, service: Service, type_: int) -> None:
        """Check a message before it is offered."""

    def check_priority(self, priority: int) -> None:
        """Check the priority of messages before they are offered."""

    def check_open(self) -> None:
        """Check that the group takes calls."""

    @property
    def has_room(self) -> bool:
        """Whether the send queue takes another message."""

    def expect_room(self, is_waiting: bool) -> None:
        """A task begins to wait for room in the queue, or has ended that: news of the seat are wanted meanwhile."""

    @property
    def end_number(self) -> int:
        """The number of the next message that is offered."""

    def try_offer(self, payload: bytes, service: Service, type_: int) -> int:
        """`check` and `offer` in one for the usual case: the number, or -1: call them one after the other.

        Hot: once per `send`. It returns -1 where a check would raise, the node's `error` included.
        """

    def offer(self, payload: bytes, service: Service, type_: int = 0, priority: int = 0) -> int:
        """Queue one message that was checked: its number, or -1: the queue is full."""

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int = 0,
        lengths: list[int] | None = None,
        priority: int = 0,
    ) -> int:
        """Queue messages from the first on: how many were taken. The sequences must not be changed afterwards."""

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        """Wait for own messages [first, stop) to be delivered here."""

    def expect_feed(self, is_active: bool) -> None:
        """A feed begins to wait until something may leave, or has ended that. Raises where the orderer has none."""

    def feed_room(self) -> int:
        """Bytes that a feed may give now; each room is told once."""

    def flush(self) -> Watch | None:
        """Wait for everything that was offered; None where it is delivered."""

    def forget(self, watch: Watch) -> None:
        """No task waits for it any more."""

    # Receiving.

    @property
    def has_events(self) -> bool: ...

    def take(self) -> PortEvent | None:
        """The next event. Asking for it says that the application has finished with the event before."""

    # Calls and locks.

    def check_locks(self) -> None:
        """Check that the group has locks, handlers and calls."""

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        """Queue a call of this member; None: the queue is full."""

    def forget_call(self, asked: Asked) -> None:
        """No task waits for the answer any more."""

    def respond_by(self, respond: Respond) -> None:
        """What `Request.reply` of this group's requests is to call."""

    def answer(self, owed: PendingReply, payload: bytes) -> bool:
        """Answer a call; False: the queue is full."""

    def lock(self, key: str, tries_once: bool = False) -> LockRequest:
        """Ask for a lock. `tries_once`: a denial ends the request, with `LockDenied`."""

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:
        """Ask for a handler, as for a lock. Its requests come to the `inbox` of the result."""

    def give_up(self, request: LockRequest) -> None:
        """Release a lock or a handler, or no longer ask for it."""

    # Membership.

    def leave(self, header: bytes = b"", is_ordered: bool = False) -> None:
        """Begin to leave, in order, after what was sent. A join that has not ended is given up.

        Where the group fails before that, the node is out without a leave. With `is_ordered` it stays, and `is_leaving`
        turns false.
        """

    def expel(self, member: int, why: str) -> None:
        """Ask the group to go on without another member. A view without it follows, or a reset that knows nothing of
        this."""

    def reset(self, min_members: MinMembers, header: bytes = b"") -> None:
        """Begin Amoeba's ResetGroup; `take_resets` tells how it ended."""

    # Passes.

    def wake(self) -> None:
        """Something was asked of this seat: it is to be done soon, together with what else is asked until then."""

    def hurry(self) -> None:
        """The same, and a task waits for it: it may be done at once."""

    def take_settled(self) -> Sequence[Waited]:
        """What was settled since the last call."""

    def take_changed(self) -> bool:
        """Whether `view`, `gone`, `refusal`, `default_service` or the resets may have changed since the last call."""

    def take_resets(self) -> Sequence[Reset]:
        """The resets that ended since the last call."""

    def fail(self, error: OrdercastError) -> None:
        """The node has stopped: everything that is waited for is settled with `error`, which every check raises."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a join asks for. `NodeBase.join` documents the fields."""

    config: GroupConfig
    create: bool | None = None
    min_members: MinMembers = "majority"
    recovery: RecoveryMode = "automatic"
    demands: Demands = field(default_factory=Demands)
    header: bytes = b""
    ttl: int | None = None
    contact: Address | None = None
    alone: AlonePolicy = "create"
    underlay: str | None = None
    """The shared underlay that carries the group; None: one of its own."""


class PendingGroups(Protocol):
    """Groups that a session joins, or leaves, together."""

    @property
    def is_over(self) -> bool:
        """This node is in all of them, or out of all of them. Asked after each pass; it forgets what is done."""

    def check(self) -> None:
        """Raise where one of them was left before it was joined."""


class BaseSeat(Seat, Protocol):
    """The place of a session in a shared underlay itself: what is not about one group only."""

    @property
    def groups(self) -> list[str]:
        """The groups that the session is in, by name, in the order in which they were opened."""

    @property
    def slow_groups(self) -> list[str]:
        """Those that the underlay waits for, because the application does not receive there."""

    @property
    def slice_size(self) -> int:
        """How many groups are joined, or left, in one go."""

    def feed(self) -> None:
        """From here on `take` gives the events of all groups of the session on the underlay, in one order."""

    def send_to(self, payload: bytes, service: Service, type_: int, groups: Sequence[str], priority: int = 0) -> int:
        """Queue one message to groups that the session need not be in: its number, or -1: the queue is full."""

    def check_calls(self, group: str) -> None:
        """Raise if the orderer has no calls."""

    def call_outside(self, payload: bytes, service: Service, handler: int, type_: int, group: str) -> Asked | None:
        """Queue a call to a group that the session is not in; None: the queue is full. Raises what stands against
        it."""

    def forget_outside(self, asked: Asked) -> None:
        """No task waits for its answer any more."""

    def offer_many_to(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        groups: Sequence[str],
        priority: int = 0,
    ) -> int:
        """Queue messages, each to its own group, which the session is in: how many were taken."""

    def resolve(self, names: Sequence[str]) -> ResolvedGroups:
        """Look names up for `offer_many_to`. Raises where the session is not in one of these groups."""

    def check_new(self, names: Sequence[str]) -> None:
        """Raise if one of these groups cannot be joined."""

    def check_in(self, names: Sequence[str]) -> None:
        """Raise if this node is not in one of these groups."""

    def join_many(self, names: Sequence[str], header: bytes) -> PendingGroups:
        """Begin to join groups. Where one of them cannot be joined, none is."""

    def leave_many(self, names: Sequence[str], header: bytes) -> PendingGroups:
        """Begin to leave groups, each named once."""

    def leave_all(self) -> None:
        """Begin to leave the underlay, and with it all groups of the session on it."""


class NodeBackend(Protocol):
    """What a node stands on: a host in this process, or a connection to a daemon."""

    @property
    def member(self) -> Member:
        """This node, as views name it."""

    @property
    def defaults(self) -> GroupConfig:
        """What a group is created with where `join` says nothing else."""

    @property
    def carrier(self) -> str | None:
        """The shared underlay that carries every group of this node; None: `join` says what carries a group."""

    def stats(self) -> dict[str, int]:
        """Counters of the whole node."""

    async def locate(self, contact: str | Address) -> Address:
        """The address of a node that the application named. It may take a while, where a name is looked up."""

    def ask_names(self, address: Address) -> NameQuery:
        """Ask another node which groups it is in; the query comes back in `take_settled`."""

    def forget_names(self, query: NameQuery) -> None:
        """No task waits for it any more."""

    # Groups.

    def open(self, group: str, request: JoinRequest) -> Seat:
        """Begin to find, join or create a group. The seat's `view` or `refusal` tells what became of it."""

    def attach(self, underlay: str, request: JoinRequest) -> BaseSeat:
        """Begin to find, join or create a shared underlay, without any group."""

    def shared_underlay_of(self, group: str) -> str | None:
        """The shared underlay of this node that has a group of this name, which the node need not be in."""

    def seat(self, group: str) -> Seat | None:
        """The open seat of a group, also on its way in or out."""

    def take_news(self) -> Sequence[Seat]:
        """The seats that something happened to since the last call."""

    # Calls to groups that this node is not in.

    def begin_call(self, group: str, call: Call) -> None:
        """Send a call; it comes back in `take_settled`."""

    def forget_call(self, group: str, call: Call) -> None:
        """No task waits for it any more."""

    def calls_to(self, group: str) -> Sequence[Call]:
        """The calls to a group that are under way."""

    def take_settled(self) -> Sequence[Waited]:
        """The calls and queries that were settled since the last call of this."""

    def fail(self, error: OrdercastError) -> None:
        """The node has stopped: the calls that are under way are settled with `error`."""
