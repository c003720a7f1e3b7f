"""What all parts of one engine of regions read: views, exclusions, parcels, and what comes up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ordercast.config import MAX_BLOCK, SECOND, GroupConfig, Timing
from ordercast.engine import Note
from ordercast.errors import UsageError
from ordercast.orderers.regions.delivery import Deliveries, FifoDelivery
from ordercast.orderers.regions.exclusions import Exclusions
from ordercast.orderers.regions.given import GivenView
from ordercast.orderers.regions.lane import LaneWindow
from ordercast.orderers.regions.member_view import MemberView
from ordercast.orderers.regions.record import UNKNOWN
from ordercast.parts.courier import ConnectionNumbers, CourierTerms
from ordercast.parts.log import DATAGRAM_OVERHEAD
from ordercast.parts.rate import DEFAULT_POLICY, GROWTH, POLICIES
from ordercast.parts.share import ceiling_among, largest_block
from ordercast.underlay.regions.post import Post
from ordercast.view import Member
from ordercast.wire.courier import OVERHEAD_BYTES, PREFIX_BYTES
from ordercast.wire.header import HEADER_BYTES, MAX_SEGMENTS
from ordercast.wire.segments import Reassembly

MAX_VIEWS: Final = 8  # lanes to one region that are not drained: a sender opens no more
MAX_MEMBER_VIEWS: Final = 64  # that a member has at once, old ones included
SHARES: Final = 8  # parts of a window that are kept apart for senders that nobody knows yet
START_SHARE: Final = 4  # a token leaves after so many parts of the history,
WINDOW_START_SHARE: Final = 16  # or of the window: the first share of a sender is an eighth, and must not wait
BURST_NS: Final = 65_536_000  # of the courier's rate, at once: 262,144 bytes of 4 MB/s
MAX_SCALE: Final = 50.0  # then the pool of credits has room for OPEN and not for more
FORGOTTEN_KEPT: Final = 256  # forgotten views whose tokens are passed on, and whose names are answered DRAINED


@dataclass(frozen=True, slots=True)
class RegionTerms:
    """The tuning values of regions; docs/design/regions.md has the reasons."""

    token_ns: int = SECOND  # QSM section 2.3.2
    rate_policy: str = DEFAULT_POLICY  # `flow` of the configuration
    first_rate: float = 0.0  # datagrams a second of a new lane; 0: as the policy begins
    growth: float = GROWTH  # lambda of the policies
    courier_bytes_per_s: int = 4_000_000
    scale: float = 1.0  # rates and credits of the policies are divided by it: where a datagram stands for so many

    def __post_init__(self) -> None:
        if self.rate_policy not in POLICIES:
            raise UsageError(f"unknown rate policy {self.rate_policy!r}; this version has {', '.join(POLICIES)}")
        if self.token_ns < 1_000_000 or self.first_rate < 0 or not 1 <= self.scale <= MAX_SCALE:
            raise UsageError(
                "a token leaves every millisecond at most, and no lane begins with a negative rate or scale"
            )

    @property
    def is_windowed(self) -> bool:
        return self.rate_policy == "window"


def terms_of(config: GroupConfig) -> RegionTerms:
    """`flow` names the policy; a name that is of other orderers, as the default is, means the default here."""
    return RegionTerms(rate_policy=config.flow if config.flow in POLICIES else DEFAULT_POLICY)


class Forgotten(NamedTuple):
    """What is left of a view that has drained."""

    given: GivenView
    epoch: int  # that ended it


class RegionNode:
    __slots__ = (
        "config",
        "counters",
        "epoch",
        "exclusions",
        "fifo",
        "forgotten",
        "me",
        "notes",
        "parts",
        "post",
        "segment_bytes",
        "tag",
        "terms",
        "timing",
        "up",
        "views",
    )

    def __init__(
        self,
        me: Member,
        tag: int,
        config: GroupConfig,
        timing: Timing,
        terms: RegionTerms,
        connections: ConnectionNumbers | None = None,
    ) -> None:
        self.me = me
        self.tag = tag
        self.config = config
        self.timing = timing
        self.terms = terms
        self.counters: dict[str, int] = {}
        self.notes: list[Note] = []  # that leave with the pass
        self.epoch = 0
        self.exclusions = Exclusions()
        self.views: dict[int, MemberView] = {}  # that this node is a member of, old ones included
        self.forgotten: dict[int, Forgotten] = {}
        self.up = Deliveries()
        self.fifo = FifoDelivery(self.views, self.exclusions, self.up)
        # Segments are so much shorter than datagrams that each fits a parcel unchanged.
        self.parts = Reassembly(config.datagram - PREFIX_BYTES)
        self.segment_bytes = config.datagram - PREFIX_BYTES - HEADER_BYTES
        burst = max(BURST_NS * terms.courier_bytes_per_s // SECOND, 2 * config.datagram)
        terms_of_courier = CourierTerms(terms.courier_bytes_per_s, burst, datagram=config.datagram)
        self.post = Post(me.id, tag, timing, terms_of_courier, connections, self.counters)

    def window_of(self, given: GivenView) -> LaneWindow:
        """What a lane may have under way. Only `window` looks at the receivers' buffers."""
        if not self.terms.is_windowed:
            return LaneWindow(self.config.history_bytes, self.config.history_bytes, MAX_BLOCK, 1)
        ceiling = ceiling_among(given.members, self.config)
        members = min(len(given.members), SHARES)
        largest = largest_block(ceiling, members, self.config)
        return LaneWindow(ceiling, min(ceiling, 2 * largest), largest, members, DATAGRAM_OVERHEAD)

    def start_bytes(self, given: GivenView) -> int:
        """A token leaves when so much has come."""
        if self.terms.is_windowed:
            return ceiling_among(given.members, self.config) // WINDOW_START_SHARE
        return self.config.history_bytes // START_SHARE

    @property
    def token_bytes(self) -> int:
        """The largest body that the courier takes."""
        return (self.config.datagram - OVERHEAD_BYTES) * MAX_SEGMENTS

    @property
    def block_overhead(self) -> int:
        """That a small block takes of a buffer; a window counts it."""
        return DATAGRAM_OVERHEAD if self.terms.is_windowed else 0

    def tally(self, name: str, count: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + count

    def tidy(self, view: MemberView, sender: int) -> None:
        """Forget segments of blocks that are Lost, or beyond the final count of a dead sender."""
        record = view.records.get(sender)
        if record is None or not len(self.parts):
            return
        lane = (view.given.view, sender)
        for key in [key for key in self.parts if key[:2] == lane]:
            if record.has(key[2]) or UNKNOWN < record.final <= key[2]:
                self.parts.forget(key)

    def tidy_dead(self, view: MemberView) -> None:
        """Two complete rounds that knew of their deaths tell that there is nothing of these senders: segments that came
        are of blocks that nobody has whole."""
        if not len(self.parts):
            return
        dead = self.exclusions.as_of(view.cleaner, view.given.epoch)
        empty = {sender for sender, record in view.records.items() if record.is_empty and sender in dead}
        for key in [key for key in self.parts if key[0] == view.given.view and key[1] in empty]:
            self.parts.forget(key)

    def forget(self, view: MemberView) -> None:
        """Everybody has everything that was ever sent in it."""
        name = view.given.view
        del self.views[name]
        self.forgotten[name] = Forgotten(view.given, view.ended)
        while len(self.forgotten) > FORGOTTEN_KEPT:
            del self.forgotten[next(iter(self.forgotten))]
        for key in [key for key in self.parts if key[0] == name]:
            self.parts.forget(key)
        self.fifo.retry()
