"""What travels in the model: blocks, rosters, and the names of views, sessions and group views."""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.orderers.sites.stream import Held
from ordercast.service import AGREED_RANK, FIFO_RANK, SAFE_RANK
from ordercast.wire.cuts import Skip, ViewId

FIFO: Final = FIFO_RANK
AGREED: Final = AGREED_RANK
SAFE: Final = SAFE_RANK

DATA: Final = "data"
JOIN: Final = "join"
LEAVE: Final = "leave"
INTEREST: Final = "interest"
ROSTER: Final = "roster"

Session = tuple[int, int]  # daemon, number
Position = tuple[int, int]  # LTS, site
BlockId = tuple[ViewId, int, int]  # view, site, sequence number
Lists = tuple[tuple[int, frozenset[Session]], ...]  # group, members


class GroupViewId(NamedTuple):
    """`position@counter@creator`."""

    position: Position
    view: tuple[int, ...]


class Roster(NamedTuple):
    """What the speaker of a roster group says."""

    speaks_for: tuple[int, ...]
    lists: Lists
    ids: tuple[tuple[int, GroupViewId], ...]
    changed: frozenset[int]  # groups that need a new view in any case


class Block(NamedTuple):
    view: ViewId
    site: int
    seq: int
    lts: int
    origin: int
    kind: str
    rank: int
    groups: tuple[int, ...]
    mask: int
    session: Session | None = None  # of JOIN, LEAVE
    roster: Roster | None = None

    @property
    def id(self) -> BlockId:
        return (self.view, self.site, self.seq)

    @property
    def position(self) -> Position:
        return (self.lts, self.site)

    def held(self) -> Held:
        return Held(self.site, self.seq, self.lts, self.rank, self.origin, self.mask)

    def as_skip(self) -> Skip:
        return self.held().as_skip()

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.view.counter}.{self.view.creator}:{self.site}/{self.seq} at {self.lts} of {self.origin}"
        )


class View(NamedTuple):
    """A view of the underlay as it is installed."""

    id: ViewId
    members: tuple[int, ...]
    sites: tuple[int, ...]
    first_lts: int
    roster_groups: tuple[tuple[int, ...], ...]


class Send(NamedTuple):
    rank: int
    groups: tuple[int, ...]


class Join(NamedTuple):
    group: int
    session: Session


class Leave(NamedTuple):
    group: int
    session: Session


Wish = Send | Join | Leave  # of a client


def mask_of(sites: tuple[int, ...] | set[int] | frozenset[int]) -> int:
    mask = 0
    for site in sites:
        mask |= 1 << site
    return mask
