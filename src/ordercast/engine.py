"""READ FIRST: the contract between a protocol and the world (docs/design/overview.md section 5).

Protocols are plain state machines. Inputs are calls, outputs go to an `Outbox`; time and chance are arguments. The
same object runs behind a real socket (`ordercast.runtime`) and in the simulator (`ordercast.sim`). In both of them
`ordercast.groups.host.Host` drives it.

One pass of a driver: drain (`receive` for each batch of datagrams, or `expire`, `submit`, `consume`), process
(`after_batch`, once), then write the trace, then let `out.sends` leave in order, then hand `out.upcalls` over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from ordercast.config import MinMembers
from ordercast.view import Address, Member, Reason, View

Buffer = bytes | bytearray | memoryview

NEVER: Final = 1 << 62  # a deadline that does not come


class To:
    """Symbolic destinations. `ALL`: the members; `ANYONE`: the underlay's address and all static peers.

    `MULTICAST`: the underlay's address alone, for what is forwarded (RMP section 3.4); nothing if there is none.
    """

    __slots__ = ()

    ALL: Final[Address] = ("*all", 0)
    MULTICAST: Final[Address] = ("*multicast", 0)
    ANYONE: Final[Address] = ("*anyone", 0)


class Send(NamedTuple):
    """One transmission: the buffers, concatenated, are a train of `stride`-sized datagrams (0: one datagram)."""

    to: Address
    buffers: Sequence[Buffer]
    stride: int


class Delivery(NamedTuple):
    """One ordered block on its way to the application. `block` is opened only by the receiving API."""

    seq: int  # rises with each delivery of the underlay, not by one; `Engine.consume` takes it back
    position: int  # position of its first message
    origin: int
    number: int  # block number of the origin
    block: bytes


class Run(NamedTuple):
    """Consecutive ordered blocks that leave an orderer in one step."""

    deliveries: list[Delivery]


class Transitional(NamedTuple):
    """What follows, up to the next view, was brought together by recovery."""

    view: str
    group: str = ""  # on a shared underlay
    came_with: tuple[str, ...] = ()  # of an engine whose parts go on: the members that go on with this one


class Joined(NamedTuple):
    """This node came into the group; its first View follows."""


class Failed(NamedTuple):
    """A member is suspected and recovery is manual (or found too few): outstanding calls fail at once."""

    suspects: tuple[str, ...]
    text: str


class Refused(NamedTuple):
    """The join came to nothing; the engine is closed."""

    text: str


class Departed(NamedTuple):
    """This node is out of the group: it left (`wanted`), was excluded, or its ring dissolved into another.

    With `returning` the engine is already on its way back as a new member; with `is_waiting` it begins that when
    `Engine.resume` tells it that the application receives again.
    """

    wanted: bool
    returning: bool
    text: str
    is_waiting: bool = False


class UnknownOutcome(NamedTuple):
    """Own blocks from `number` up to `stop` were dropped on exclusion: others may or may not deliver them."""

    number: int
    stop: int


class LogLost(NamedTuple):
    """Members were restarted, and those that had a log are no quorum: what only the others held may be gone."""

    view: str  # in which it was delivered, where it was
    text: str


class Reset(NamedTuple):
    """The calls of `reset()` on this node that asked for `rule` have ended: the size of the new group, or 0 with the
    reason. Without a rule: all of its calls."""

    size: int
    text: str
    rule: MinMembers | None = None


class Denied(NamedTuple):
    """A lock that this node asked for is held by another member (RMP section 4.3: a denied request is answered)."""

    lock: str


class RepeatedCall(NamedTuple):
    """A call that was delivered here has come again: its answer was lost, or was never given (RMP section 4.5)."""

    origin: int
    number: int
    block: bytes


Upcall = (
    Run
    | View
    | Transitional
    | Joined
    | Failed
    | Refused
    | Departed
    | UnknownOutcome
    | LogLost
    | Reset
    | Denied
    | RepeatedCall
)


class StallReason(Enum):
    """Why something does not go on. docs/guides/stalled.md says what to do about each."""

    NO_QUORUM = "too few members answer"
    RECOVERY = "the group is being re-formed"
    NOT_RECEIVING = "an application does not receive"
    JOIN = "the join is not answered"
    NETWORK = "the network is blocked, or a member does not answer"
    BOOTSTRAP = "the group has too few members to begin"
    FAILED = "the group has failed, and waits for reset()"
    # Of the application's own making: these are shown and logged, and are no `Stalled`.
    LOCK = "another member holds the lock"
    CALL = "the holder of the handler has not answered"


class Waiting(NamedTuple):
    """What keeps an engine from going on. `waiting_for`: members, as name/life."""

    reason: StallReason
    waiting_for: tuple[str, ...]
    text: str
    have: int = 0  # members, where a number of them is what is missing
    need: int = 0


class Note(NamedTuple):
    """An event inside a protocol, for the trace or the log.

    `kind` is a kind of docs/trace.md; or `name`: `detail` is the name of the origin; or `membership`: `detail` says
    what has changed and why, once per transition, and the runtime logs it; or `warning`: the same of what a person has
    to mend. `block` is the block whose header names
    messages, sender number and service; None if `first` and `count` do. `first`/`count` of gap and repaired are block
    numbers or sequence numbers, as `detail` says.
    """

    kind: str
    origin: int
    block: Buffer | None = None
    position: int = -1
    first: int = -1
    count: int = 0  # type: ignore[assignment]  # tuple.count is not missed
    detail: str = ""
    head: tuple[int, int, int, int, int, int] | None = None  # of the block, where it has been read already


@dataclass(slots=True)
class Outbox:
    """Everything that one pass wants of the world."""

    sends: list[Send] = field(default_factory=list)  # in the order in which they must leave
    upcalls: list[Upcall] = field(default_factory=list)  # their relative order IS the guarantee
    notes: list[Note] = field(default_factory=list)  # for trace and log


class Engine(Protocol):
    """What the driver and the simulator see of one underlay."""

    def start(self, now_ns: int, out: Outbox) -> None:
        """Begin to find, join or create the group."""

    def room(self, now_ns: int) -> tuple[int, int]:
        """Bytes that may leave now, and the largest block: the driver packs no more. (0, _) is back-pressure."""

    def after(self) -> int:
        """The sequence number up to which this node has delivered: blocks that are packed now come after it."""

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        """Take blocks from the application, in order; how many were taken. Fewer is back-pressure."""

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        """The application has taken everything up to and including the delivery `seq`: its buffers are free again."""

    def waits_for_application(self) -> bool:
        """Whether `consume` is urgent: others wait for buffers that the application holds. Otherwise it may come with
        the next pass."""

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        """A batch of `stride`-sized datagrams (0 or len(data): one). `data` is reused: what is kept is copied."""

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        """The network says that no process listens at `address`, and gives back `quoted`, the beginning of a datagram
        that was sent there. Anybody may have said so: the engine judges by what is quoted."""

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        """Deliver, acknowledge, send NAKs: once per pass, after everything was received."""

    def expire(self, now_ns: int, out: Outbox) -> None:
        """Run what is due. The caller ends the pass with `after_batch`."""

    def deadline_ns(self) -> int:
        """When `expire` has to be called next; NEVER if not at all."""

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        """Leave in order; `Departed(wanted=True)` follows."""

    def expel(self, now_ns: int, member: int, why: str, out: Outbox) -> None:
        """Ask the group to go on without another member; a View without it follows, unless the group fails before."""

    def resume(self, now_ns: int, out: Outbox) -> None:
        """After `Departed(is_waiting=True)`: the application has received everything up to that."""

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        """Amoeba's ResetGroup: recover with the members that are alive; `Reset` follows."""

    def lock(self, now_ns: int, lock: str, out: Outbox) -> None:
        """Ask for a lock. A View in which this node holds it follows, or `Denied`."""

    def unlock(self, now_ns: int, lock: str, out: Outbox) -> None:
        """Give a lock back; a View without it follows."""

    def wait_for_others(self, is_waiting: bool) -> None:
        """Before `after_batch`: whether the application waits for what another member has to do, a lock or an answer.
        A group in which a member waits is not at rest: a failure is noticed sooner."""

    def answers(self, origin: int, number: int) -> bool:
        """Whether this node acknowledges the call: as the token site that ordered it, or that hears it again."""

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        """Send an answer or an acknowledgement (`wire.calls.encode_reply`) to a caller that is no member."""

    def audience(self) -> list[Address]:
        """Where `To.ALL` goes when there is no multicast: all members but this node."""

    def copies(self) -> list[Address]:
        """Members that hear no multicast, and get a copy of each (RMP section 3.4). The list is not to be changed."""

    @property
    def ttl(self) -> int:
        """How far multicasts of the underlay go (RMP section 3.1)."""

    @property
    def is_working(self) -> bool:
        """Whether this node is in a ring that works: neither on its way in, nor in a recovery."""

    def waiting(self, now_ns: int) -> Waiting | None:
        """What keeps this node from going on, and which members it waits for; None: nothing that it knows of. To be
        asked where something has made no progress for long, never in a pass that works."""

    def short_of(self) -> tuple[int, int] | None:
        """Members that the group has, and that it needs before it begins to work; None: it has enough."""

    def is_at_rest(self) -> bool:
        """Nothing is outstanding or buffered: every simulation has to come to this at its end."""

    @property
    def is_closed(self) -> bool:
        """The engine has nothing left to do. After `Departed(wanted=True)` it may serve repairs for a while before."""

    def carry(self) -> object:
        """What was delivered to this node, and a later membership of the same life must not repeat; None: nothing."""

    def inherit(self, memory: object) -> None:
        """Before `start`: what the engine of the last membership carried."""

    def durable(self) -> bytes | None:
        """What this node must not forget over a restart, if that has changed since the last call: it has to be on disk
        before anything of the pass leaves. Nothing is to be kept any more where it is empty."""

    def restore(self, entry: bytes) -> None:
        """Before `start`: what an earlier life kept, as `durable` gave it. Raises WireError where it is not that."""


class Change(NamedTuple):
    """A membership change that an orderer is asked to order like a message."""

    reason: Reason
    member: Member
    header: bytes = b""
    next_block: int = 0  # of an expulsion: the sequence number of the view in which it was asked for
    lock: str = ""
    serial: int = 0  # of a join: the attempt; of a lock: the request, rising per member; of an expulsion: MAY_RETURN
    callers: Mapping[int, int] = {}  # of a join: calls from outside below these numbers were delivered to the newcomer
