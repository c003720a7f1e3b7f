"""Members and views: the agreed lists that are delivered in order with messages (DESIGN section 2).

A view id is `counter@name/life`: the creator's own counter, never used twice in that life (RMP section 3.1).
A *ring* is a chain of views without failure between them; its 64-bit id is Amoeba's incarnation number made unique,
so that datagrams of an old incarnation, or of a foreign group on the same address, are never taken for ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from ordercast.config import MinMembers

Address = tuple[str, int]

# Origin id 0 is no node: it marks the log entries that the group itself makes (membership changes).
GROUP_ORIGIN: Final = 0


def node_id(name: str, life: int) -> int:
    """The 64-bit origin of everything that one life of a node sends; never 0."""
    return int.from_bytes(blake2b(f"{name}/{life}".encode(), digest_size=8).digest(), "big") or 1


def id_of(member: str) -> int:
    """The origin of who is written as name/life; 0 where that is nobody's name."""
    name, _, life = member.rpartition("/")
    return node_id(name, int(life)) if life.isdecimal() and len(life) < 20 else 0


def group_tag(name: str) -> int:
    """The 32 bits by which a node sorts datagrams to its groups; collisions are resolved by the ring id."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4, person=b"oc-tag").digest(), "big")


def ring_id(group: str, creator: int, counter: int) -> int:
    """The id of the ring that begins with view `counter` of `creator`."""
    text = f"{group}\0{creator}\0{counter}".encode()
    return int.from_bytes(blake2b(text, digest_size=8, person=b"oc-ring").digest(), "big") or 1


def next_counter(highest: int, now_ns: int) -> int:
    """The counter of a new view. It starts from the clock (RMP section 3.1), so that a node that leaves a group and
    creates it again in the same life does not repeat itself, and it rises by at least one."""
    return max(highest + 1, now_ns // 1_000_000)


class Reason(IntEnum):
    """Why a view was made."""

    CREATE = 0
    JOIN = 1
    LEAVE = 2
    RESET = 3
    DISSOLVE = 4
    LOCK = 5  # granted, or, where the view is the one before, denied
    UNLOCK = 6


@dataclass(frozen=True, slots=True)
class Member:
    """One life of a node in a view. `buffer_bytes` is its socket's receive buffer, which bounds all senders.

    `has_multicast`: it hears multicasts, else it gets copies (RMP section 3.4). `ttl` and `min_members` are what it
    asked for when it came: of the whole view the largest holds (sections 3.1 and 4.4).
    """

    id: int
    name: str
    life: int
    address: Address
    buffer_bytes: int = 0
    has_multicast: bool = True
    ttl: int = 1
    min_members: MinMembers = "majority"

    def __str__(self) -> str:
        return f"{self.name}/{self.life}"


@dataclass(frozen=True, slots=True)
class View:
    """An agreed list of members. The first member leads: for the sequencer orderer it is the sequencer.

    `seq` is the view's own place in the log of its underlay, `position` the first message position after it.
    `numbers` holds the next block number of each origin, so that nothing comes twice (DESIGN section 7).
    `prior` lists the members (ids, in order) of the view before, while it is not certain that all know of this one.
    `locks` says who holds which lock, by its name or number; `callers` holds the next number of each caller that is no
    member (RMP section 4.5). `awaited`, after a reset: blocks below these numbers come again before anybody joins.
    `came_with` names the members that come with *this node* from its previous view; each node fills it in for itself.
    """

    counter: int
    creator: str
    ring: int
    incarnation: int
    seq: int
    position: int
    members: tuple[Member, ...]
    numbers: dict[int, int]
    reason: Reason = Reason.CREATE
    subject: str = ""  # who joined, left, or coordinated the reset, as name/life
    header: bytes = b""
    prior: tuple[int, ...] = ()
    came_with: tuple[str, ...] = ()
    locks: dict[str, int] = field(default_factory=dict)
    callers: dict[int, int] = field(default_factory=dict)
    awaited: dict[int, int] = field(default_factory=dict)
    lock: str = ""  # that was asked for or given back
    serial: int = 0  # of the request that this view answers

    @property
    def id(self) -> str:
        return f"{self.counter}@{self.creator}"

    @property
    def rank(self) -> tuple[int, str]:
        """Total order of view ids, for ties between rings that meet."""
        return (self.counter, self.creator)

    @property
    def leader(self) -> Member:
        return self.members[0]

    @property
    def ttl(self) -> int:
        """How far multicasts to the group go: as far as any member asked for."""
        return max(member.ttl for member in self.members)

    def member(self, origin: int) -> Member | None:
        for member in self.members:
            if member.id == origin:
                return member
        return None

    def index(self, origin: int) -> int:
        """The member number of `origin` (0 is the leader), or -1."""
        for index, member in enumerate(self.members):
            if member.id == origin:
                return index
        return -1
