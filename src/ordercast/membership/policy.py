"""What an underlay asks of its membership: how it gets from view to view (docs/design/overview.md sections 5 and 7).

A policy is a state machine like an orderer: inputs are calls, datagrams go to the Outbox, and every change of state
that concerns the underlay is a value that `take` returns. The underlay carries it out before it does anything else.
docs/design/membership.md has the states, and says how policies other than `quorum` fit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeVar

from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import Departed, Outbox, Refused, Waiting
from ordercast.membership.past import PastRings
from ordercast.orderers.orderer import Suspicion
from ordercast.view import Address, View
from ordercast.wire.returns import Kept

NO_RING: Final = -1  # no ring has this id; 0 is what nodes outside a ring send
NOTE: Final = "membership"  # the kind of the notes that report transitions, with who and why
WARNING: Final = "warning"  # of those that report what a person has to mend


class Phase(Enum):
    JOINING = auto()
    MEMBER = auto()
    LINGERING = auto()  # out of the group, serving repairs until all members have the leave
    CLOSED = auto()


class DepartureCause(Enum):
    """Why this node is out of its view; the value is the text that its application sees."""

    LEFT = "left"
    LEFT_UNJOINED = "left while there was no working group"
    LEFT_STUCK = "left while the group did not work"
    LEFT_IN_RECOVERY = "left while the group was being re-formed"
    EXCLUDED = "the group was re-formed without this node"
    SUPERSEDED = "another ring of this group works, and this one does not"
    DISSOLVED = "this ring of the group joins a larger one"
    UNDECIDED = "the join was ordered, and the group failed before it was decided"


class Newcomer(NamedTuple):
    """What this node says of itself when it looks for the others."""

    next_block: int  # the number of the first block that it will submit
    called: Mapping[int, int]  # calls from outside below these numbers were delivered to it in other rings


class OldView(NamedTuple):
    """A view that members of a new one come from."""

    view: View
    upto: int  # the last sequence number that is delivered in it, or in views on the way to the new one
    members: tuple[int, ...]  # members of the new view that come along, and have delivered the same


class Install(NamedTuple):
    """A new ring begins with `view`. `Membership.installed` follows."""

    view: View
    config: GroupConfig
    counter: int  # the highest counter of a view that is known here
    came_from: tuple[OldView, ...] = ()  # this node's own first; empty where it is new. A merge has several
    orphans: Sequence[tuple[int, int, bytes]] = ()  # blocks of senders that are gone: this node submits them
    awaited: Mapping[int, int] = {}  # member -> its blocks below this number will come again


class Excluded(NamedTuple):
    """This node is out of its ring against its will; own blocks that it did not see delivered have an unknown outcome.

    With `is_returning` it comes back as a new member: the underlay calls `start`.
    """

    why: DepartureCause
    is_returning: bool
    was_leaving: bool  # it had asked to leave
    resets: tuple[MinMembers, ...]  # what its own calls of reset() asked for: they end with this


class LeftRing(NamedTuple):
    """This node wanted to leave, and is out without an ordered leave; or it was `expelled`, and nobody has told it that
    this is decided. `is_serving`: for its application. It stays in its ring, which may need its vote
    (`Silence.SERVING`)."""

    why: DepartureCause
    is_serving: bool = False
    expelled: Departed | None = None


class Dissolved(NamedTuple):
    """The ring has ended in order, at the same sequence number for all of its members.

    DISSOLVED: blocks without a sequence number come along, and the underlay calls `start`. LEFT: this node had asked to
    leave.
    """

    why: DepartureCause


class Closed(NamedTuple):
    """This node is no member, and no member needs it any more."""


class Visited(NamedTuple):
    """This node was in a ring without a word to its application (`Silence.VISITING`), and is out again. What it had
    before it brought along, and the underlay calls `start`."""


Transition = Install | Excluded | LeftRing | Dissolved | Closed | Refused | Visited


class Silence(Enum):
    """Why the application hears nothing of the ring that this node is in. It leaves that ring in order."""

    NONE = auto()
    WITHDRAWN = auto()  # a join that was given up is ordered all the same
    VISITING = auto()  # an earlier request is ordered only now, and this node has sent in another ring since
    SERVING = auto()  # its leave could not be ordered, or its expulsion is not known to be decided, and the application
    # is out: it votes, and leaves when it can

    @property
    def is_guest(self) -> bool:
        """Whether it has sent nothing in this ring, and sends nothing."""
        return self in (Silence.WITHDRAWN, Silence.VISITING)

    @property
    def is_unwanted(self) -> bool:
        """Whether it is in the ring for the sake of the others alone."""
        return self in (Silence.WITHDRAWN, Silence.SERVING)


OrdererT_contra = TypeVar("OrdererT_contra", contravariant=True)


class Membership(Protocol[OrdererT_contra]):
    """One underlay's membership at one node, from the first search to the end."""

    phase: Phase
    ring: int  # the ring that this node is in, or NO_RING
    is_whole: bool  # there is a ring, and it works; otherwise only retransmission goes on
    silence: Silence
    past: PastRings  # those that this node was in before
    attempts: deque[int]  # requests to join of this node that a group may still come to, those of all its engines
    direct_ring: int  # the ring while its traffic concerns the orderer alone; else NO_RING: `on_heard` is told of it

    # Inputs

    def start(self, now_ns: int, newcomer: Newcomer, out: Outbox) -> None:
        """Look for the others. A member of a ring that is out for its application is `Closed` instead."""

    def installed(self, now_ns: int, orderer: OrdererT_contra, out: Outbox) -> None:
        """The underlay has carried out an `Install`; `orderer` works in the new ring."""

    def on_control(
        self, now_ns: int, kind: int, source: Address, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        """A datagram of membership or recovery. Raises WireError on nonsense; the underlay counts it."""

    def on_stranger(
        self, now_ns: int, source: Address, kind: int, ring: int, origin: int, body: bytes | memoryview, out: Outbox
    ) -> None:
        """A datagram of another ring. Raises WireError on nonsense."""

    def on_heard(self, now_ns: int, origin: int) -> None:
        """A datagram of the ring has come from `origin`."""

    def on_suspects(self, now_ns: int, suspicions: list[Suspicion], out: Outbox) -> None:
        """The orderer suspects members."""

    def on_applied(self, now_ns: int, views: list[View], out: Outbox) -> None:
        """The orderer has applied views that were ordered; their delivery follows in order with messages."""

    def on_delivered(self, now_ns: int, view: View, out: Outbox) -> bool:
        """An ordered view is about to be delivered: whether this node is a member in it."""

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        """Leave in order; where there is no working ring, at once."""

    def retire(self, now_ns: int, header: bytes) -> None:
        """A restarted member is to leave before it is back (`resume`). It is out for its application, and serves."""

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        """Amoeba's ResetGroup."""

    # The pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        """Once per pass, after everything was received."""

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int: ...

    def take(self) -> Transition | None:
        """The next transition, to be carried out now; to be asked after every input."""

    # Questions

    @property
    def is_at_rest(self) -> bool:
        """Whether no member is being brought in and no recovery goes on."""

    @property
    def state(self) -> str:
        """A word for people: `working`, or the step of a recovery."""

    def resume(self, view: View, config: GroupConfig) -> None:
        """A restarted member is back: `Install` of this view follows."""

    def kept(self) -> Kept | None:
        """What this node must not forget of its ring, over a restart; None where it is in none."""

    def waiting(self) -> Waiting | None:
        """What keeps this node out of a ring that works, or its last change from being decided; None: nothing."""

    def was_in(self, ring: int) -> bool:
        """Whether this node was in the ring before."""

    def newcomers(self) -> list[Address]:
        """Members of the view that were not heard in the ring yet."""
