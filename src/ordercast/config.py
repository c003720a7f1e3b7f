"""What can be set: per group (fixed when it is created, the same at all members) and per node (local timing).

Durations are nanoseconds in the code and end in `_ns`; the public API takes seconds where a person types them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from ordercast.errors import UsageError

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000

RecoveryMode = Literal["automatic", "manual"]
AlonePolicy = Literal["create", "wait", "leave"]
SlowPolicy = Literal["evict", "wait"]
MinMembers = int | Literal["majority", "all"]

MAX_DATAGRAM: Final = 65_000  # one UDP datagram over IPv4 holds 65,507 bytes; the rest is slack for headers
MIN_DATAGRAM: Final = 512
LAN_DATAGRAM: Final = 1_400  # payload that crosses Ethernet, tunnels and bridges without IP fragmentation
LOOPBACK_DATAGRAM: Final = 62_000  # loopback's MTU is 64 KB, so that a whole block is one datagram
MAX_BLOCK: Final = 60_000  # bytes of a block, its header included
MAX_MEMBERS: Final = 2_000  # of a group: a view of so many, and a cut with two of them, are segments of 1,400 bytes
MAX_GROUP_NAME: Final = 255
MAX_PRIORITY: Final = 15  # of a message; 0 is the usual one
MAX_FLOW_NAME: Final = 64
MAX_HEADER: Final = 1_024  # the small message that goes with join, leave and reset
MIN_PATIENCE_NS: Final = 100 * MS  # a busy member speaks so often: less could not be told from a pause
MAX_PATIENCE_NS: Final = 365 * 24 * 3_600 * SECOND
DEFAULT_ORDERER: Final = "token"  # fully symmetric, with all services, locks and calls
SITES_ORDERER: Final = "sites"  # needs a configuration of sites, which the node has
REGIONS_ORDERER: Final = "regions"  # needs a membership service
REGIONS_UNDERLAY: Final = "regions"  # of all regions: its tag is on every datagram, its address finds the service
REGION_FLOWS: Final = ("window", "demand", "qsm")  # how nodes pace what they send to regions; the first by default
REGION_PREFIX: Final = "region/"  # of one region, in traces
SITES_UNDERLAY: Final = "sites"  # carries the groups of such a node where no other underlay is named


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Amoeba's CreateGroup parameters (section 3): they travel in the welcome and hold for the group's life."""

    orderer: str = DEFAULT_ORDERER
    resilience: int = 0  # RESILIENT(k) for sends that name no service; 0 means AGREED
    max_members: int = 64
    history_bytes: int = 4 << 20  # what may be ordered and not yet consumed by everybody
    history_blocks: int = 4_096  # Amoeba's nr_buf: the same as a number of buffers, each of which takes a block
    max_message: int = 64 << 20
    datagram: int = LOOPBACK_DATAGRAM
    flow: str = "slow-start"  # flow and congestion control of token and timestamp, by name (RMP section 4.6)
    anticipate: bool = True  # the timestamp orderer: TOMPA's anticipation, else plain ABCAST
    shared: bool = False  # the underlay carries many groups, by a roster
    bootstrap: int = 1  # the group begins to work once a view has had so many members
    slow: SlowPolicy = "evict"  # what becomes of a member that does not receive; "wait" is Amoeba's and RMP's
    patience_ns: int = 10 * SECOND  # how long it may hold up the group before it is evicted

    def __post_init__(self) -> None:
        if not 1 <= self.max_members <= MAX_MEMBERS:
            raise UsageError(f"max_members must lie between 1 and {MAX_MEMBERS}, got {self.max_members}")
        is_number = isinstance(self.bootstrap, int) and not isinstance(self.bootstrap, bool)
        if not is_number or not 1 <= self.bootstrap <= self.max_members:
            most = f"max_members, which is {self.max_members}"
            raise UsageError(f"bootstrap is a number of members from 1 to {most}, got {self.bootstrap!r}")
        if not 0 <= self.resilience <= 255:
            raise UsageError(f"resilience must lie between 0 and 255, got {self.resilience}")
        if not MIN_DATAGRAM <= self.datagram <= MAX_DATAGRAM:
            raise UsageError(f"datagram must lie between {MIN_DATAGRAM} and {MAX_DATAGRAM} bytes, got {self.datagram}")
        if self.history_bytes < 8_192:
            raise UsageError(f"history_bytes must be at least 8192, got {self.history_bytes}")
        if not 2 <= self.history_blocks <= 65_536:
            raise UsageError(f"history_blocks must lie between 2 and 65536, got {self.history_blocks}")
        if not 1 <= self.max_message <= 1 << 30:
            raise UsageError(f"max_message must lie between 1 byte and 1 GiB, got {self.max_message}")
        # Which names there are, the underlay knows: the policies are parts, and this module stands below them.
        if not isinstance(self.flow, str) or not 0 < len(self.flow.encode()) <= MAX_FLOW_NAME:
            raise UsageError(f"flow is the name of a policy, such as 'slow-start' or 'open', got {self.flow!r}")
        if not isinstance(self.anticipate, bool):
            raise UsageError(f"anticipate is True (TOMPA) or False (ABCAST), got {self.anticipate!r}")
        if self.slow not in ("evict", "wait"):
            raise UsageError(f"slow is 'evict' or 'wait', got {self.slow!r}")
        if not MIN_PATIENCE_NS <= self.patience_ns <= MAX_PATIENCE_NS:
            raise UsageError(f"patience lies between 0.1 s and a year, got {self.patience_ns / SECOND:g} s")


@dataclass(frozen=True, slots=True)
class Demands:
    """What a joiner asks of an existing group; None accepts whatever the group has. Amoeba's JoinGroup parameters."""

    max_members: int | None = None
    history_bytes: int | None = None
    max_message: int | None = None
    history_blocks: int | None = None

    def refusal(self, config: GroupConfig) -> str:
        """Why a join with these limits cannot meet the group's parameters; empty where it can."""
        pairs = (
            ("max_members", self.max_members, config.max_members),
            ("history_bytes", self.history_bytes, config.history_bytes),
            ("history_blocks", self.history_blocks, config.history_blocks),
            ("max_message", self.max_message, config.max_message),
        )
        for name, have, need in pairs:
            if have is not None and have < need:
                return f"the group was created with {name}={need}, and this join provides only {have}"
        return ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Local timers. docs/design/overview.md section 7 gives the defaults; simulations and tests may shorten them."""

    heartbeat_busy_ns: int = 100 * MS
    suspect_busy_ns: int = 1_300 * MS  # silence of a member with regular heartbeats: no member is suspected sooner
    suspect_max_ns: int = 2_600 * MS  # of one with irregular ones, at the most
    heartbeat_rest_ns: int = 1 * SECOND
    suspect_rest_ns: int = 5 * SECOND
    probe_ns: int = 30 * MS  # silence of a member before its kernel is asked whether its process is there
    ack_quiet_ns: int = 30 * MS  # sequencer: a member that is asked answers after this at the latest
    nak_delay_ns: int = 2 * MS  # patience with reordering before a gap is reported
    nak_retry_ns: int = 20 * MS
    nak_max_ns: int = 60 * MS  # between two requests for the same, unless answers take longer: a group may wait for it
    retransmit_ns: int = 60 * MS  # first retransmission of an unaccepted block, before a round trip is known
    retransmit_min_ns: int = 20 * MS  # the shortest timeout: a busy peer on one core may take so long to be scheduled
    retransmit_max_ns: int = 2 * SECOND
    tries: int = 10
    nak_tries: int = 30  # requests for the same without an answer; with `nak_max_ns` longer than a pause of a second
    held_ns: int = 1 << 62  # how long a site may keep what we sent without ordering it, if it says so; never too long
    find_ns: int = 60 * MS  # between two discovery questions
    find_tries: int = 5  # unanswered questions before create=None makes the group
    invite_ns: int = 60 * MS  # between two invitations of a recovery
    invite_tries: int = 6  # unanswered invitations before a member counts as dead
    recovery_wait_ns: int = 1 * SECOND  # silence of a coordinator before the invited start again
    restart_wait_ns: int = 3 * SECOND  # for members that may hold what restarted ones have lost
    beacon_ns: int = 1 * SECOND
    linger_ns: int = 3 * SECOND  # how long a leaver serves repairs at most
    token_quiet_ns: int = 30 * MS  # RMP: how long the token site waits for data before it passes on with a NULL ACK
    confirm_ns: int = 5 * MS  # how long a token site waits for something to order before it only confirms the token
    caller_flush_ns: int = 60 * SECOND  # idle time after which a caller's numbers may be forgotten (RMP section 4.5)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 1 if name.endswith("tries") else 1_000  # shorter timers than a microsecond would only spin
            if not isinstance(value, int) or value < least:
                unit = "" if name.endswith("tries") else " nanoseconds"
                raise UsageError(f"Timing({name}=…) is a whole number of at least {least}{unit}, got {value!r}")


TIMINGS: Final[dict[str, Timing]] = {
    "usual": Timing(),
    # RMP sections 4.2, 4.4, 4.6 to the letter. Silence alone is no failure. What is not acknowledged in ten tries is,
    # with timers that follow the round trip, from a few milliseconds up to two seconds. That takes less than 5 s where
    # members are near, and 15 to 20 s where they are far. A site that delays for so long is removed, although it lives.
    "rmp": Timing(
        suspect_busy_ns=86_400 * SECOND,
        suspect_rest_ns=86_400 * SECOND,
        probe_ns=86_400 * SECOND,
        token_quiet_ns=1 * SECOND,
        confirm_ns=1 * MS,
        nak_max_ns=2 * SECOND,
        nak_tries=10,
        retransmit_min_ns=2 * MS,
        held_ns=1_000,
        find_tries=10,
        invite_ns=200 * MS,
        invite_tries=10,
        recovery_wait_ns=5 * SECOND,
    ),
}
"""Timings by name, for `Node(timing="rmp")`. docs/guides/operating.md has what they come to."""


def required_members(rule: MinMembers, previous: int, survivors: int, has_first: bool) -> bool:
    """Whether `survivors` of a view of `previous` members may go on (docs/design/overview.md section 3).

    `rule` is one member's `min_members`. A number asks for so many survivors, but never for more than the view had: in
    a view of three, `min_members=5` asks for all three. Otherwise such a group could never recover, not even with all
    of its members alive. It takes no messages then, but that is another question (`members_needed`). "majority" asks
    for more than half, or for half with the view's first member (`has_first`). "all" asks for every member. The judges
    of traces have a reading of their own, so that one error here shows.
    """
    if rule == "all":
        return survivors >= previous
    if rule == "majority":
        return 2 * survivors > previous or (2 * survivors == previous and has_first)
    return survivors >= min(rule, previous)


def members_needed(rule: MinMembers, bootstrap: int = 1, largest: int = 1) -> int:
    """How many members a view must have before a member with the rule `min_members` takes part in it.

    With fewer, the member sends nothing, gets no confirmation and no lock. A number asks for so many at any time; the
    words ask for nothing here. Beyond that the group waits for its `bootstrap` once: `largest` is the most members that
    a view of its chain has had. Joins, leaves and recoveries go on meanwhile, or nobody could mend it. The judges of
    traces have a reading of their own (`sim.checkers.attendance`).
    """
    least = rule if isinstance(rule, int) else 1
    return max(least, bootstrap) if largest < bootstrap else least


def keeps_others_out(rules: Iterable[MinMembers], members: int) -> bool:
    """Whether two parts of a view of so many members can never both go on: some rule asks for more than half."""
    return any(not required_members(rule, members, members // 2, False) for rule in rules)
