"""Members and views: the agreed lists that are delivered in order with messages (docs/design/overview.md section 2).

A view id is `counter@name/life`: the creator's own counter, never used twice in that life (RMP section 3.1).
A *ring* is a chain of views without failure between them; its 64-bit id is Amoeba's incarnation number made unique,
so that datagrams of an old incarnation, or of another underlay on the same address, are never taken for ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from ordercast.config import MinMembers, keeps_others_out, members_needed
from ordercast.service import RESILIENT, RESILIENT_RANK, Service

Address = tuple[str, int]

# Origin id 0 is no node: it marks the log entries that the group itself makes (membership changes).
GROUP_ORIGIN: Final = 0


def node_id(name: str, life: int) -> int:
    """The 64-bit origin of everything that one life of a node sends; never 0."""
    return int.from_bytes(blake2b(f"{name}/{life}".encode(), digest_size=8).digest(), "big") or 1


def id_of(member: str) -> int:
    """The origin of the node that is written as name/life; 0 if the text is not of that form."""
    name, _, life = member.rpartition("/")
    return node_id(name, int(life)) if life.isdecimal() and len(life) < 20 else 0


def group_tag(name: str) -> int:
    """The 32 bits by which a node sorts datagrams to its underlays; collisions are resolved by the ring id."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4, person=b"oc-tag").digest(), "big")


def ring_id(name: str, creator: int, counter: int) -> int:
    """The id of the ring of the underlay `name` that begins with view `counter` of `creator`."""
    text = f"{name}\0{creator}\0{counter}".encode()
    return int.from_bytes(blake2b(text, digest_size=8, person=b"oc-ring").digest(), "big") or 1


def next_counter(highest: int, now_ns: int) -> int:
    """The counter of a new view. It starts from the clock (RMP section 3.1), so that a node that leaves a group and
    creates it again in the same life does not repeat itself, and it rises by at least one. So counters rise along every
    chain of views: fencing tokens are made of them."""
    return max(highest + 1, now_ns // 1_000_000)


class Reason(IntEnum):
    """Why a view was made."""

    CREATE = 0
    JOIN = 1
    LEAVE = 2
    RESET = 3  # a recovery after a failure
    DISSOLVE = 4  # the ring ends, and its members join a larger one; or its last member left
    LOCK = 5  # granted, or, where the view is the one before, denied
    UNLOCK = 6
    EXPEL = 7  # a member that does not receive was evicted, or one was expelled by `Group.expel`
    RESTART = 8  # a recovery in which members took part that were restarted with their folder


DEPARTURES: Final = frozenset((Reason.LEAVE, Reason.EXPEL))  # the view is without its subject
MAY_RETURN: Final = 1  # the `serial` of an expulsion after which the member may come back
RECOVERIES: Final = frozenset((Reason.RESET, Reason.RESTART))  # the view begins a ring after a failure


@dataclass(frozen=True, slots=True)
class Member:
    """One life of a node in a view. `str(member)` is name/life, and of a session that has a label label@name/life."""

    id: int
    """64 bits made of name and life: the origin of everything that it sends. Of a session that has a label, its label
    is a part of the name."""
    name: str
    """The name of the node."""
    life: int
    """Which life of the node this is; it grows with each restart."""
    address: Address
    """Where it receives, as (host, port)."""
    buffer_bytes: int = 0
    """The receive buffer of its socket, which bounds what all senders have under way."""
    has_multicast: bool = True
    """It hears multicasts; otherwise it gets copies of its own (RMP section 3.4)."""
    ttl: int = 1
    """How many hops it asked multicasts to go. The largest of all members holds (RMP section 3.1)."""
    min_members: MinMembers = "majority"
    """How many members it wants to go on after a failure. The largest of all members holds (RMP section 4.4)."""
    label: str = field(default="", repr=False)
    """In the view of a lightweight group: the session of the node that is meant. Empty: the node's own."""

    def __str__(self) -> str:
        return f"{self.label}@{self.name}/{self.life}" if self.label else f"{self.name}/{self.life}"

    def session(self, label: str) -> Member:
        """A session of this node as a member of a group, with an id of its own."""
        if not label:
            return self
        return replace(self, id=node_id(f"{label}@{self.name}", self.life), label=label)


@dataclass(frozen=True, slots=True)
class View:
    """An agreed list of members, delivered in order with the messages."""

    counter: int
    """The first part of the view's id: the creator's own counter, never used twice in its life."""
    creator: str
    """The second part: the member that made the view, as name/life."""
    ring: int
    """64 bits that name the chain of views without a failure between them that this one is part of."""
    incarnation: int
    """Counts the recoveries of the group. Components (`sites`) do not count them: 0."""
    seq: int
    """The view's own sequence number in the log of its underlay."""
    position: int
    """The first position that a message after the view can have."""
    members: tuple[Member, ...]
    """The members in their order. The first one leads: with the sequencer orderer it is the sequencer."""
    numbers: dict[int, int]
    """The next block number of each origin, so that nothing is delivered twice."""
    reason: Reason = Reason.CREATE
    """Why the view was made."""
    subject: str = ""
    """The member that joined, left, was expelled or coordinated the reset, as name/life."""
    header: bytes = b""
    """The small message that the subject gave with its join, leave or reset. After an expulsion: by which member, and
    why, as text."""
    prior: tuple[int, ...] = ()
    """The members of the view before (ids, in order), a quorum of which decides this one. Empty for the first view of a
    ring, and where nothing changed."""
    prior_rules: tuple[MinMembers, ...] = ()
    """What `min_members` each of them asked for."""
    came_with: tuple[str, ...] = ()
    """The members that come with *this node* from its previous view; each node fills it in for itself."""
    group: str = ""
    """The lightweight group whose view this is, on a shared underlay; empty for the view of an underlay."""
    locks: dict[str, int] = field(default_factory=dict)
    """The locks that are held: name or number, and the id of the holder."""
    tokens: dict[str, int] = field(default_factory=dict)
    """The fencing token of each lock that is held: the counter of the view that granted it. Counters rise along a chain
    of views, through recoveries, too. So a later grant of any lock has a larger token."""
    callers: dict[int, int] = field(default_factory=dict)
    """The next number of each caller that is no member (RMP section 4.5)."""
    awaited: dict[int, int] = field(default_factory=dict)
    """After a reset: blocks of these origins below these numbers come again before a member can join."""
    lock: str = ""
    """The lock that was asked for or given back."""
    serial: int = 0
    """The number of the request that this view answers. Of an expulsion: 1 if the member may come back."""
    largest_before: int = 0
    """The most members that a view of the chain before this one had."""
    components: tuple[tuple[str, ...], ...] = ()
    """Where several components go on (`sites`), after a merge: which members came together from which of them, as
    name/life; empty otherwise. In the view of a group these are members of the group, and the components
    come in the order of their first members, without those that have none. The underlay's own view begins with this
    node's component."""
    rosters: tuple[tuple[int, ...], ...] = ()
    """The same policy: the nodes (ids) that have one and the same roster of groups. If there are several such sets, the
    first of each tells the others its roster before anything else."""

    @property
    def id(self) -> str:
        """The name of the view: counter@creator."""
        return f"{self.counter}@{self.creator}"

    @property
    def may_part(self) -> bool:
        """Whether two parts of it may go on after a failure: less than a majority is enough for every member."""
        return not keeps_others_out([member.min_members for member in self.members], len(self.members))

    @property
    def rank(self) -> tuple[int, str]:
        """The total order of view ids, for ties between rings that meet."""
        return (self.counter, self.creator)

    @property
    def largest(self) -> int:
        """The most members that a view of the chain has had, up to this one."""
        return max(self.largest_before, len(self.members))

    def shortage(self, origin: int, bootstrap: int) -> tuple[int, int] | None:
        """How many members there are and how many it takes, where they are too few for this member to take part
        (`config.members_needed`); None where they are enough."""
        member = self.member(origin)
        need = members_needed(member.min_members if member is not None else 1, bootstrap, self.largest)
        return (len(self.members), need) if len(self.members) < need else None

    @property
    def leader(self) -> Member:
        """The first member."""
        return self.members[0]

    @property
    def ttl(self) -> int:
        """How far multicasts to the group go: the largest that a member asked for."""
        return max(member.ttl for member in self.members)

    def given(self, service: Service) -> Service:
        """What a service comes to in this view: RESILIENT(k) has at most as many holders as there are other members.

        Nothing else is weakened: a service that the group's orderer cannot give is refused.
        """
        most = len(self.members) - 1
        return RESILIENT(most) if service.rank == RESILIENT_RANK and service.k > most else service

    def member(self, origin: int) -> Member | None:
        """The member with this id; None if it is not in the view."""
        for member in self.members:
            if member.id == origin:
                return member
        return None

    def holder(self, lock: str) -> str:
        """Who holds a lock, as name/life; empty: nobody. Where it is a session that has a label, its node is named: the
        underlay knows of nodes only."""
        origin = self.locks.get(lock)
        if origin is None:
            return ""
        found = self.member(origin)
        if found is not None:
            return str(found)
        for member in self.members:
            if member.label and node_id(member.name, member.life) == origin:
                return f"{member.name}/{member.life}"
        return f"{origin:016x}"

    def index(self, origin: int) -> int:
        """The member number of `origin` (0 is the leader), or -1."""
        for index, member in enumerate(self.members):
            if member.id == origin:
                return index
        return -1
