"""What travels and what is remembered: views, blocks, records of members, lanes of senders, tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class ViewId(NamedTuple):
    """A region's view is named by the epoch that made it."""

    region: int
    epoch: int


class RegionView(NamedTuple):
    id: ViewId
    members: tuple[int, ...]  # the original list
    parents: tuple[ViewId, ...]  # views of the epoch before that had this region, or members of this view


class Message(NamedTuple):
    """Sent once, to all regions: the sender's n-th."""

    number: int


class Opening(NamedTuple):
    """Block 0: how many blocks the sender sent in each earlier view."""

    counts: tuple[tuple[ViewId, int], ...]


Content = Message | Opening


@dataclass(slots=True)
class Lane:
    """A sender in one view."""

    count: int = 0
    kept: set[int] = field(default_factory=set)
    ack: int = 0
    is_closed: bool = False  # the region has said that all of it knows the final count


@dataclass(slots=True)
class Record:
    """One member's knowledge of one sender in one view. Prefixes are counts."""

    got: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # reported here
    carried: set[int] = field(default_factory=set)  # verdicts that it passes on, also of blocks that it has
    gone: set[int] = field(default_factory=set)  # the sender does not keep them
    refused: dict[int, set[int]] = field(default_factory=dict)  # block -> starters whose verdict is awaited
    next: int = 0  # to be delivered
    cutoff: int = 0
    ack: int = 0
    purge: int = 0
    final: int | None = None
    # of a starter: what its next token asks
    asked: set[int] = field(default_factory=set)
    candidates: set[int] = field(default_factory=set)

    def has(self, block: int, lost_counts: bool) -> bool:
        return block in self.got or (lost_counts and block in self.lost)

    @property
    def is_empty(self) -> bool:
        return not self.got and not self.lost and not self.cutoff and self.final is None

    @property
    def known(self) -> int:
        """Blocks that are known to exist."""
        return max([self.cutoff, *[block + 1 for block in self.got | self.lost]])


@dataclass(slots=True)
class Node:
    id: int
    is_alive: bool = True
    epoch: int = 0
    records: dict[tuple[ViewId, int], Record] = field(default_factory=dict)
    forgotten: set[ViewId] = field(default_factory=set)
    delivered: dict[int, list[int]] = field(default_factory=dict)  # sender -> numbers of its messages
    token_epoch: dict[ViewId, int] = field(default_factory=dict)  # of the newest token that was here
    clean: dict[ViewId, tuple[int, int]] = field(default_factory=dict)  # epochs of the last two complete rounds
    cleaner: dict[ViewId, int] = field(default_factory=dict)  # the older of these, as tokens told

    def record(self, view: ViewId, sender: int) -> Record:
        return self.records.setdefault((view, sender), Record())


@dataclass(slots=True)
class Sender:
    id: int
    is_alive: bool = True
    epochs: list[int] = field(default_factory=list)  # installed, for each region
    lanes: dict[ViewId, Lane] = field(default_factory=dict)
    messages: int = 0
    sent: list[tuple[int, frozenset[int]]] = field(default_factory=list)  # number, and who is to get it


class Stop(NamedTuple):
    """One visit of a token: who, of which partition, and whether it is the first there, back there, or at its end."""

    node: int
    partition: int
    is_first: bool = False
    is_return: bool = False
    is_end: bool = False


@dataclass(slots=True)
class Entry:
    """What a token says of one sender."""

    cutoff: int
    ack: int
    purge: int
    lost: set[int]
    gone: set[int]
    final: int | None
    is_dead: bool
    is_seen: bool  # since the starter's visit
    is_closed: bool  # the starter knew the final count, so that all members learn it in this round
    asked: set[int]
    candidates: set[int]
    maximum: int = 0
    own: int | None = None  # None: nobody has spoken
    full: int | None = None
    naks: set[int] | None = None  # of the predecessor
    predecessor: int = -1
    common: set[int] | None = None
    lack: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Token:
    view: ViewId
    starter: int
    epoch: int
    clean: int  # epoch of the starter's last complete round
    cleaner: int  # and of the one before
    path: tuple[Stop, ...]
    partitions: tuple[tuple[int, ...], ...]
    place: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
