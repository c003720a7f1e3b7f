"""The contracts of an ordering discipline (docs/design/overview.md section 5), as the underlay and the membership use
them.

One object lives for one ring. Inputs are calls; outputs go to the Outbox. `Orderer` is what every discipline has.
`Recoverable` is what the quorum membership needs of a discipline with one contiguous log. `CallTaker` is what calls
from outside need; a discipline that does not take such calls has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Change, Outbox, Waiting
from ordercast.parts.log import Log
from ordercast.parts.memory import DeliveryMemory
from ordercast.view import Address, Member, View
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut, Proposal
from ordercast.wire.writer import DatagramWriter


class SuspicionReason(Enum):
    """Why a member is suspected."""

    SILENCE = "it was silent for too long"
    NO_ACKNOWLEDGEMENT = "it did not acknowledge a block in all tries"
    NO_REPAIR = "it did not answer requests for repair in all tries"
    NO_TOKEN = "it did not take the token in all tries"
    NO_CHANGE = "it did not take a request for a change in all tries"
    DECLINED = "it declined the join that was ordered for it"
    HEARSAY = "another member suspects it"


class Suspicion(NamedTuple):
    member: int
    why: SuspicionReason


class Standing(NamedTuple):
    """What this member is in its ring now."""

    leads: bool  # it answers for the ring to other rings and to newcomers
    orders: bool  # it gives the next sequence number
    admits: bool  # it takes requests of newcomers
    contact: Member  # the member that newcomers are to ask
    is_retired: bool  # it led, and its own leave or the end of the ring is ordered
    is_settled: bool  # every member has the last change
    may_go: bool  # it has left, and no member needs it any more
    leavers: tuple[Address, ...] = ()  # members that left and may still need what comes before their leave
    is_stalled: bool = False  # its application has held up the others for too long: it takes part in no recovery
    keeper: int = 0  # after it has left: the member that counts on it until it knows that it has its leave


class Usage(NamedTuple):
    """What is buffered here of the group's traffic."""

    held_bytes: int
    blocks: int


class Start(NamedTuple):
    """What a ring begins with, besides its view."""

    backlog: Sequence[tuple[int, bytes]] = ()  # own blocks without a sequence number
    orphans: Sequence[tuple[int, int, bytes]] = ()  # blocks of senders that are gone: this member submits them
    awaited: Mapping[int, int] = {}  # member -> its blocks below this number will come again
    memory: DeliveryMemory = DeliveryMemory()


class CallTaker(Protocol):
    """Locks, and calls from members and from outside (RMP sections 4.3 and 4.5)."""

    def wait_for_others(self, is_waiting: bool) -> None:
        """Whether the application here waits for a lock or an answer: others are then watched more closely."""

    @property
    def allowance(self) -> int:
        """Bytes that a caller outside may have out."""

    def answers(self, origin: int, number: int) -> bool:
        """Whether this member acknowledges the call."""

    def on_call(self, now_ns: int, origin: int, number: int, is_first: bool, block: bytes, out: Outbox) -> bool:
        """A call from outside, whole; False if it was delivered here before."""


class Orderer(Protocol):
    """What every discipline has."""

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counter: int,
        counters: dict[str, int],
    ) -> None: ...

    ranks: ClassVar[frozenset[int]]  # of the services that it gives
    gives_locks: ClassVar[bool]  # locks, handlers, and calls from outside

    @property
    def calls(self) -> CallTaker | None: ...

    @property
    def view(self) -> View:
        """As of what is received."""

    @property
    def next_block(self) -> int: ...

    @property
    def has_left(self) -> bool:
        """The log ends here for this node."""

    # Work in a ring that is whole

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view."""

    def greet(self) -> None:
        """This node is new: let the member that made the view hear it."""

    def take_views(self) -> list[View]:
        """Views applied since the last call; their delivery follows in order with messages."""

    def room(self, now_ns: int) -> tuple[int, int]: ...

    def after(self) -> int:
        """The sequence number up to which this member has delivered: blocks that are packed now come after it."""

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int: ...

    def consume(self, seq: int) -> None: ...

    def waits_for_application(self) -> bool: ...

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None: ...

    def on_segment(
        self,
        now_ns: int,
        origin: int,
        number: int,
        segment: int,
        last: int,
        body: memoryview,
        is_repair: bool,
        out: Outbox,
    ) -> None: ...

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None: ...

    def after_batch(self, now_ns: int, out: Outbox) -> None: ...

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int: ...

    def propose(self, now_ns: int, change: Change) -> None:
        """Order a join, a leave, a lock or the end of the ring like a message; work goes on."""

    def learn(self, member: int, seq: int) -> None:
        """A member says that it holds everything up to `seq`, which is received here."""

    def withdraw(self, member: int) -> None:
        """A newcomer has taken its request back: if its join is not ordered yet, it will not be."""

    def suspects(self, now_ns: int) -> list[Suspicion]: ...

    def blocked_by(self, now_ns: int) -> Waiting | None:
        """Which member holds up what has made no progress for long; None: no other, as far as this one knows."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding."""

    def standing(self) -> Standing: ...

    def usage(self) -> Usage: ...

    # The end of a ring

    def freeze(self) -> None:
        """Failures only: stop ordering, delivering and acknowledging."""

    def abandon(self, out: Outbox) -> None:
        """This node is out of the ring: what was missing is no gap any more."""

    def memory(self) -> DeliveryMemory:
        """What the orderer of the next ring has to know, so that nothing is delivered twice."""


class Recoverable(Protocol):
    """What the quorum membership needs of a discipline with one contiguous log."""

    @property
    def view(self) -> View: ...

    @property
    def log(self) -> Log: ...

    @property
    def callers(self) -> set[int]:
        """Origins in the log's numbers that are no members."""

    @property
    def consumed(self) -> int:
        """The application has taken everything up to this sequence number."""

    @property
    def leaver(self) -> Member | None:
        """The member that the last change took out of the view."""

    @property
    def decided(self) -> int:
        """The last change that is known to be decided. What stands behind a later one is not delivered."""

    def decide(self, seq: int) -> None:
        """The change at `seq`, which is received here, is decided."""

    def cut(self, accepted: Proposal | None) -> Cut:
        """What is held, assigned and known to be decided here."""

    def adopt(self, upto: int, assignments: Sequence[Assignment]) -> list[int]:
        """Learn the agreed remainder; the sequence numbers that are missing here."""

    def lacking(self, upto: int) -> list[int]: ...

    def note_remainder(self, upto: int, out: Outbox) -> None: ...

    def recover(self, upto: int, out: Outbox) -> None:
        """Deliver the agreed remainder of the old ring."""

    def leftovers(self) -> list[tuple[int, bytes]]:
        """Own blocks that never got a sequence number, in order."""

    def undelivered(self) -> int:
        """The lowest number of an own block that was not delivered here."""


class LoggedOrderer(Orderer, Recoverable, Protocol):
    """A discipline with one contiguous log: sequencer, token, timestamp."""
