"""The configured daemons, this one among them, and the view of a component as this policy keeps it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from ordercast.config import Timing
from ordercast.engine import Buffer, Outbox
from ordercast.errors import UsageError, WireError
from ordercast.view import Address, Member, Reason, View, node_id, ring_id
from ordercast.wire.components import MAX_DAEMONS, DaemonLife, NamedView, body_number, mask_of
from ordercast.wire.cuts import MAX_SITES, Due, SourceCut, ViewId
from ordercast.wire.writer import DatagramWriter

LIVES_KEPT: Final = 4_096  # members that were made of lives; the oldest is made again
POSITION_BITS: Final = 24  # of a position below the LTS


class GatherReason(Enum):
    """Why a daemon leaves its view, or one round for the next."""

    SUSPICION = "a daemon is suspected"
    TOKEN_LOST = "the token is lost"
    LINK_DEAD = "a link is dead"
    RESTARTED = "a daemon was restarted"
    MOVED_ON = "a daemon is in another view"
    MERGE = "another component was found"
    ASKED = "another daemon asks for it"
    INVITED = "a coordinator invites"
    SILENT = "the coordinator is silent"
    OUTBID = "the coordinator is in another round"
    RELEASED = "the others go on without this daemon"
    UNANSWERED = "daemons did not accept in time"
    UNFETCHED = "blocks of the remainder did not come"
    OUTDATED = "a daemon has promised a higher ballot"


class Daemon(NamedTuple):
    """One daemon of the configuration. Its index is its place in the list."""

    name: str
    site: int
    address: Address


class Daemons:
    """All of them. One life of a daemon becomes a member; nothing but its index and life is taken from datagrams."""

    __slots__ = ("_daemons", "_members", "fingerprint")

    def __init__(self, daemons: Sequence[Daemon], fingerprint: int = 0) -> None:
        """`fingerprint`: of the whole configuration."""
        if not 0 < len(daemons) <= MAX_DAEMONS:
            raise UsageError(f"a configuration has 1 to {MAX_DAEMONS} daemons, got {len(daemons)}")
        if len({each.name for each in daemons}) < len(daemons):
            raise UsageError("two daemons of the configuration have the same name: give each its own")
        for each in daemons:
            if not 0 <= each.site < MAX_SITES:
                raise UsageError(f"daemon {each.name!r} is in site {each.site}: sites have numbers below {MAX_SITES}")
        self.fingerprint = fingerprint
        self._daemons = tuple(daemons)
        self._members: dict[DaemonLife, Member] = {}

    def __len__(self) -> int:
        return len(self._daemons)

    def index(self, name: str) -> int:
        for index, each in enumerate(self._daemons):
            if each.name == name:
                return index
        raise UsageError(f"no daemon of the configuration has the name {name!r}")

    def address(self, index: int) -> Address:
        return self._daemons[index].address

    def name(self, index: int) -> str:
        return self._daemons[index].name

    def site(self, index: int) -> int:
        return self._daemons[index].site

    def member(self, life: DaemonLife) -> Member:
        """Raises WireError where there is no such daemon."""
        member = self._members.get(life)
        if member is None:
            if life.index >= len(self._daemons):
                raise WireError("a daemon that is not in the configuration")
            daemon = self._daemons[life.index]
            member = Member(
                node_id(daemon.name, life.life), daemon.name, life.life, daemon.address, has_multicast=False
            )
            if len(self._members) >= LIVES_KEPT:
                del self._members[next(iter(self._members))]
            self._members[life] = member
        return member

    def id(self, life: DaemonLife) -> int:
        return self.member(life).id

    def name_of(self, origin: int, life: int) -> str:
        """The name of the daemon of which one life has this id; "": of none. Costs a hash for each daemon."""
        return next((each.name for each in self._daemons if node_id(each.name, life) == origin), "")


class LocalDaemon(NamedTuple):
    """This daemon. `name` is the underlay's."""

    name: str
    me: Member
    life: DaemonLife
    daemons: Daemons
    writer: DatagramWriter
    timing: Timing
    rng: random.Random

    @property
    def index(self) -> int:  # type: ignore[override]  # tuple.index is not missed
        return self.life.index

    def send(self, index: int, kind: int, body: Buffer, out: Outbox, ring: int = 0, number: int | None = None) -> None:
        """To the daemon `index`. These datagrams cross views: they carry no ring, except what is about one view."""
        out.sends.append(self.writer.control(self.daemons.address(index), kind, body, ring, number))

    def send_long(self, index: int, kind: int, body: bytes, out: Outbox) -> None:
        self.send(index, kind, body, out, number=body_number(body))


class ComponentView(NamedTuple):
    """A view of components: its members in the order of their indices."""

    view: View
    lives: tuple[DaemonLife, ...]
    creator: DaemonLife
    id: ViewId

    @property
    def mask(self) -> int:
        return mask_of([life.index for life in self.lives])

    @property
    def named(self) -> NamedView:
        return NamedView(self.id.counter, self.creator, self.lives)

    def life(self, index: int) -> DaemonLife | None:
        for life in self.lives:
            if life.index == index:
                return life
        return None


def component_view(
    local: LocalDaemon, named: NamedView, first_lts: int, reason: Reason, came_with: tuple[str, ...] = ()
) -> ComponentView:
    """Raises WireError where a daemon is not in the configuration."""
    creator = local.daemons.member(named.creator)
    members = tuple([local.daemons.member(life) for life in named.members])
    view = View(
        named.counter,
        str(creator),
        ring_id(local.name, creator.id, named.counter),
        0,
        0,
        first_lts << POSITION_BITS,
        members,
        {},
        reason,
        str(creator),
        came_with=came_with,
    )
    return ComponentView(view, named.members, named.creator, ViewId(named.counter, creator.id))


class Frozen(NamedTuple):
    """What the streams of a view say when they stop."""

    sites: tuple[int, ...]
    sources: tuple[SourceCut, ...]  # for each of them, in the same order
    arus: tuple[int, ...]
    delivered: int
    clock: int
    is_synced: bool


class OldStreams(Protocol):
    """What the membership asks of the engine: the streams of the view that this daemon is in."""

    def freeze(self) -> Frozen:
        """Stop, and tell the cut. Nothing is stamped, reported or delivered until a view is installed. May come again:
        blocks that were fetched since are then in the cut."""

    def raise_clock(self, clock: int) -> None:
        """A view with this first LTS was accepted."""

    def lacking(self, dues: Sequence[Due]) -> list[Due]:
        """What of a remainder is destined to this daemon and not here."""

    def packet(self, site: int, seq: int) -> bytes | None:
        """A block with its stamp, for a daemon that lacks it; None where it is not here."""

    def take_packet(self, site: int, seq: int, packet: bytes) -> bool:
        """A block that was fetched: whether it was new. Raises WireError where it is not that block."""
