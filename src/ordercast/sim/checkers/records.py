"""What the index is made of: submits, deliveries, periods of a view, and all of one life in one underlay.

`index.py` fills them in and says how the columns of a trace are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from ordercast.service import AGREED_RANK
from ordercast.sim.checkers.ranges import Range, RangeSet
from ordercast.trace.schema import Row

Targets = tuple[str, ...] | None
EVERYONE: Final[tuple[str, ...]] = ()  # every member of the underlay's view
UNKNOWN: Final[Targets] = None  # the row mixes groups and does not say which

FOREVER: Final = 1 << 62


class Submit:
    """A `submit` row: numbers `[first, stop)` of one sender life in one underlay."""

    __slots__ = ("at_ns", "clock", "first", "k", "n", "rank", "stop", "targets")

    def __init__(self, n: int, at_ns: int, first: int, stop: int, rank: int, k: int, targets: Targets) -> None:
        self.n = n
        self.at_ns = at_ns
        self.first = first
        self.stop = stop
        self.rank = rank
        self.k = k
        self.targets = targets
        self.clock: list[int] | None = None  # the causal past, filled in by the causal checker


class MemberPeriod:
    """The time of one life in one view, of an underlay (`group` is None) or of a lightweight group.

    `n` and `stop_n` are numbers of events. The views of a session's daemon stand between two of its events: `n` + 0.5.
    """

    __slots__ = (
        "at_ns",
        "came_with",
        "cut",
        "deliveries",
        "end_ns",
        "group",
        "member",
        "members",
        "n",
        "next",
        "prev",
        "reason",
        "signals",
        "stay",
        "stop_n",
        "transitional_n",
        "view",
    )

    def __init__(
        self,
        member: str,
        group: str | None,
        view: str,
        members: tuple[str, ...],
        came_with: tuple[str, ...],
        n: float,
        at_ns: int,
        prev: MemberPeriod | None,
        stay: int,
        reason: str = "",
    ) -> None:
        self.member = member
        self.group = group
        self.view = view
        self.members = members
        self.came_with = came_with
        self.n = n
        self.at_ns = at_ns
        self.prev = prev
        self.next: MemberPeriod | None = None
        self.stay = stay
        self.reason = reason
        self.stop_n: float = FOREVER  # number of the event that ended it
        self.end_ns = FOREVER
        self.cut: str | None = None  # leave, stop, crash or gone; None: open, or followed by `next`
        self.transitional_n: float = FOREVER
        self.signals: list[int] = []  # all of them: a group may keep its view over several recoveries
        self.deliveries: list[DeliveryRow] = []

    @property
    def is_open(self) -> bool:
        """The trace ended in this period."""
        return self.next is None and self.cut is None

    def has_signal(self, since: float, before: float) -> bool:
        """Whether one of its signals lies between these events."""
        at = bisect_right(self.signals, since)
        return at < len(self.signals) and self.signals[at] < before


class DeliveryRow:
    """A `deliver` row."""

    __slots__ = (
        "after_transitional",
        "at_ns",
        "first",
        "k",
        "member",
        "n",
        "period",
        "position",
        "rank",
        "sender",
        "stop",
        "submit",
        "tainted",
        "targets",
        "view",
    )

    def __init__(
        self,
        member: str,
        n: int,
        at_ns: int,
        sender: str,
        first: int,
        stop: int,
        rank: int,
        k: int,
        position: int | None,
        view: str | None,
        period: MemberPeriod | None,
        targets: Targets,
        after_transitional: bool,
    ) -> None:
        self.member = member
        self.n = n
        self.at_ns = at_ns
        self.sender = sender
        self.first = first
        self.stop = stop
        self.rank = rank
        self.k = k
        self.position = position
        self.view = view
        self.period = period
        self.targets = targets
        self.after_transitional = after_transitional
        self.submit = -1  # index of the submit that has `first`, in the sender's list
        self.tainted = False

    @property
    def span(self) -> Range:
        """The numbers it covers."""
        return self.first, self.stop


class Departure:
    """The point at which a life went out of an underlay."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


Event = Submit | DeliveryRow | MemberPeriod | Departure
HoldList = list[tuple[int, int, int]]  # (first, stop, at_ns)


class Local:
    """One life of one node in one underlay."""

    __slots__ = (
        "confirms",
        "current",
        "cuts",
        "delivered",
        "deliveries",
        "events",
        "gaps",
        "group_current",
        "group_periods",
        "group_spans",
        "holds",
        "host",
        "locks",
        "member",
        "periods",
        "placed",
        "redeliveries",
        "repaired",
        "replies",
        "stays",
        "submit_firsts",
        "submits",
        "underlay",
        "unlocks",
    )

    def __init__(self, member: str, underlay: str) -> None:
        self.member = member
        self.underlay = underlay
        self.host: str | None = None  # the daemon of a session, as name/life, if the trace has it
        # Time
        self.events: list[Event] = []
        self.periods: list[MemberPeriod] = []
        self.current: MemberPeriod | None = None
        self.stays = 0
        self.cuts: list[tuple[int, int]] = []  # (n, at_ns) of going out, in a view or not
        # Lightweight groups: periods, and spans [from n, to n) of membership, and the time of coming in
        self.group_periods: dict[str, list[MemberPeriod]] = {}
        self.group_current: dict[str, MemberPeriod] = {}
        self.group_spans: dict[str, list[list[int]]] = {}
        # Messages
        self.submits: list[Submit] = []
        self.submit_firsts: list[int] = []
        self.deliveries: list[DeliveryRow] = []
        self.delivered: dict[str, RangeSet] = {}
        self.holds: dict[str, HoldList] = {}
        self.placed: dict[str, HoldList] = {}
        # Rare rows, kept whole
        self.confirms: list[Row] = []
        self.locks: list[Row] = []
        self.unlocks: list[Row] = []
        self.replies: list[Row] = []
        self.redeliveries: list[Row] = []
        self.gaps: list[Row] = []
        self.repaired: list[Row] = []

    @property
    def is_outside(self) -> bool:
        """It sends, and never was in a view of the underlay or of a group: a caller (multi-RPC)."""
        return bool(self.submits) and not self.periods and not self.group_periods

    @property
    def is_session(self) -> bool:
        """It writes views of groups, but none of the underlay."""
        return self.host is not None or (not self.periods and bool(self.group_periods))

    def in_group(self, group: str, from_n: float, to_n: float) -> bool:
        """Was it in the lightweight group during all of `[from_n, to_n]`?"""
        return any(begin <= from_n and to_n <= end for begin, end, _ in self.group_spans.get(group, ()))

    def is_owed(self, targets: Targets, from_n: float, to_n: float) -> bool:
        """Was it, during all of `[from_n, to_n]`, certainly among those to whom these targets are addressed?"""
        if targets is None:
            return False
        return not targets or any(self.in_group(group, from_n, to_n) for group in targets)

    def period_at(self, n: float) -> MemberPeriod | None:
        """The underlay period in which event `n` lies."""
        index = bisect_right(self.periods, n, key=lambda period: period.n) - 1
        return self.periods[index] if index >= 0 and n < self.periods[index].stop_n else None

    def group_period_at(self, group: str, n: float) -> MemberPeriod | None:
        """The period of a lightweight group in which event `n` lies."""
        periods = self.group_periods.get(group, [])
        index = bisect_right(periods, n, key=lambda period: period.n) - 1
        return periods[index] if index >= 0 and n < periods[index].stop_n else None

    def delivered_in(self, period: MemberPeriod) -> list[DeliveryRow]:
        """What it delivered in a period of its own, of a group or of the underlay."""
        first = bisect_right(self.deliveries, period.n, key=lambda one: one.n)
        return self.deliveries[first : bisect_left(self.deliveries, period.stop_n, key=lambda one: one.n)]

    def submits_in(self, first: int, stop: int) -> list[Submit]:
        """Its submits that touch the numbers `[first, stop)`."""
        low = max(bisect_right(self.submit_firsts, first) - 1, 0)
        high = bisect_left(self.submit_firsts, stop)
        return [submit for submit in self.submits[low:high] if submit.stop > first]


class UnderlayTrace:
    """All lives that have a row in one underlay."""

    __slots__ = ("hosts", "lightweight", "locals", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.locals: dict[str, Local] = {}
        self.lightweight: set[str] = set()
        self.hosts: dict[str, str] = {}  # session -> its daemon

    @property
    def nodes(self) -> list[Local]:
        """The lives that are no sessions: those that write the views of the underlay."""
        return [local for local in self.locals.values() if local.host is None]

    def host(self, member: str) -> str:
        """The node that stands for a member in views of the underlay: itself, or the daemon of a session, which need
        not have written anything yet."""
        found = self.hosts.get(member)
        if found is None:
            daemon = daemon_of(member) if member not in self.locals else None
            found = daemon if daemon is not None and daemon in self.locals else member
        return found


def daemon_of(member: str) -> str | None:
    """The daemon that hosts `client@daemon/life`, as name/life; None for other names."""
    name, _, life = member.rpartition("/")
    client, _, daemon = name.rpartition("@")
    return f"{daemon}/{life}" if client and daemon else None


def is_ordered(delivery: DeliveryRow) -> bool:
    """A delivery that has a position in the total order and that no earlier property rejected."""
    return delivery.rank >= AGREED_RANK and delivery.position is not None and not delivery.tainted
