"""Rate control of a sender by what a region receives: formulas (1) to (4) of QSM section 2.4.

Every member measures how many new datagrams it receives in a second. The token finds the least of these, the sender
gets its share (1), sends a little faster than that (2), and has credits for it (4), whose growth is adjusted until the
rate is what it should be (3). All rates are datagrams a second, as a float: nothing here needs to be exact.

The paper gives k, Delta and rho. The other constants are ours:

- `GROWTH` (lambda) = 0.1. A mean over ten seconds lags by five, so a rate grows by 2 % a second at best. A member with
  a hiccup has a mean that is lower by up to a tenth, until its losses are repaired. In a region of 71 some member
  nearly always has one: with 0.05 such a region sinks to mu_min, with 0.1 it does about what the paper's did
  (`tests/paper/test_qsm_rates.py`). The price: where receivers are at their limit, up to 9 % of what is sent is lost.
- `MIN_RATE` (mu_min) = 100: from there it takes about four minutes to 10,000, as in section 3.8.
- `POOL` (C), `LOW`, `HIGH`, `STEP` (Delta_max) = 64, 32, 64, 32 credits: a block of 60,000 bytes takes 44 datagrams of
  1,400. A block may leave when there is a credit, and what it takes beyond is paid later.

Deviations:

- alpha is held between `LEAST_ALPHA` and `MOST_ALPHA`. Formula (3) is an integrator: while a sender has nothing to send
  its measured rate is low, and alpha would grow until the first burst swamps the region.
- Formula (3) takes the actual rate of the last `ADJUSTED_OVER` intervals and not of k = 10. With the delay of a mean
  over ten seconds and rho = 0.5, alpha swings for ever around a component that sends a fifth too much.
- The pool never has more than C credits: where the timer is late, what elapsed beyond that is lost. That bounds bursts.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from ordercast.config import REGION_FLOWS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import InvariantViolation, UsageError

SAMPLES: Final = 10  # k: intervals that a mean is taken over
INTERVAL_NS: Final = SECOND  # Delta
INERTIA: Final = 0.5  # rho
GROWTH: Final = 0.1  # lambda
MIN_RATE: Final = 100.0  # mu_min
MAX_RATE: Final = 1e7  # beyond it nothing is measured, and a report is not believed
POOL: Final = 64.0  # C
LOW: Final = 32.0  # C_low
HIGH: Final = 64.0  # C_high
STEP: Final = 32.0  # Delta_max
LEAST_ALPHA: Final = 0.5
MOST_ALPHA: Final = 2.0
ADJUSTED_OVER: Final = 1  # intervals whose actual rate formula (3) takes
DEMAND_FIRST_RATE: Final = 10_000.0  # from mu_min each change of members would cost minutes
UNPACED: Final = 1 << 20  # credits of a sender without a rate
FULL: Final = 0.9  # of its rate: a sender that sent so much had more to send
LAG: Final = 3  # intervals after which a report tells of what was sent


def fair_share(least_rate: float, senders: int) -> float:
    """Formula (1): what the slowest member receives, divided among those that send."""
    return least_rate / max(1, senders)


def adjusted(alpha: float, wanted: float, actual: float) -> float:
    """Formula (3): alpha follows the ratio of the rate that is wanted to the actual one."""
    return min(MOST_ALPHA, max(LEAST_ALPHA, alpha + INERTIA * (wanted / actual - 1)))


class RateMeter:
    """How many events there were in each of the last intervals, and their mean: a k-sample moving average."""

    __slots__ = ("_begin_ns", "_count", "_counts", "_interval_ns")

    def __init__(self, now_ns: int, samples: int = SAMPLES, interval_ns: int = INTERVAL_NS) -> None:
        if samples < 1 or interval_ns < 1:
            raise InvariantViolation(f"a mean over {samples} intervals of {interval_ns} ns")
        self._interval_ns = interval_ns
        self._begin_ns = now_ns  # of the interval that runs
        self._count = 0
        self._counts: deque[int] = deque(maxlen=samples)

    def add(self, now_ns: int, count: int) -> None:
        self.roll(now_ns)
        self._count += count

    def roll(self, now_ns: int) -> int:
        """Conclude the intervals that are over; how many. Of a long silence only as many as the mean has are looked
        at."""
        passed = (now_ns - self._begin_ns) // self._interval_ns
        if passed <= 0:
            return 0
        self._begin_ns += passed * self._interval_ns
        self._counts.append(self._count)
        self._count = 0
        for _ in range(min(passed - 1, self._counts.maxlen or 0)):
            self._counts.append(0)
        return passed

    def mean(self, last: int = 0) -> float:
        """Events a second, over all intervals that are kept, or over the `last` of them. 0 before the first is over."""
        counts = list(self._counts)[-last:] if last else self._counts
        return sum(counts) * SECOND / (len(counts) * self._interval_ns) if counts else 0.0

    def whole_mean(self) -> float:
        """The same over k intervals, those before the first as empty. A lane is younger than its view: receivers have
        counted for longer than its sender."""
        return sum(self._counts) * SECOND / ((self._counts.maxlen or 1) * self._interval_ns)

    @property
    def intervals(self) -> int:
        """How many intervals the mean is over."""
        return len(self._counts)

    @property
    def next_ns(self) -> int:
        """When the interval that runs is over."""
        return self._begin_ns + self._interval_ns


# Formula (2), by policies. -------------------------------------------------------------------------------------------


class RatePolicy(Protocol):
    """What a report of the region makes of the rate of a sender."""

    def rate(self, before: float, reported: float, senders: int = 1) -> float:
        """The rate from now on. `reported`: formula (1), with m = `senders`."""

    def sent(self, rate: float, mean: float, last: float) -> None:
        """An interval is over: the rate that held, the mean of what was sent, and what was sent in this one."""


class QsmPolicy:
    """The paper's: (1 + lambda) times what is reported, and at least mu_min."""

    __slots__ = ("_growth", "_least")

    def __init__(self, growth: float = GROWTH, least: float = MIN_RATE) -> None:
        self._growth = growth
        self._least = least

    def rate(self, before: float, reported: float, senders: int = 1) -> float:  # noqa: ARG002
        return max(self._least, (1 + self._growth) * reported)

    def sent(self, rate: float, mean: float, last: float) -> None:
        """It takes every report alike."""


class DemandPolicy:
    """Ignores reports of times in which the sender had nothing to send: they tell what was sent, not what the region
    can receive. A report counts in full where the sender used its whole rate for as long as a mean is taken over.
    Otherwise it counts where less was received than sent: then the rate falls by as much, once for a loss, which means
    of several seconds tell of."""

    __slots__ = ("_full", "_growth", "_least", "_means", "_pause")

    def __init__(self, growth: float = GROWTH, least: float = MIN_RATE) -> None:
        self._growth = growth
        self._least = least
        self._full = 0  # intervals in a row in which it had more to send
        self._means: deque[float] = deque(maxlen=LAG)  # of what was sent
        self._pause = 0  # intervals in which reports tell of a loss that has had its effect

    def rate(self, before: float, reported: float, senders: int = 1) -> float:  # noqa: ARG002
        if self._full >= SAMPLES:
            return max(self._least, (1 + self._growth) * reported)
        # A report lags behind: what was sent is the least of the last means, so that a burst that has just begun does
        # not look like a loss.
        wanted = min(self._means, default=0.0) / (1 + self._growth)
        if reported >= wanted or self._pause:
            return before
        self._pause = LAG
        return max(self._least, before * reported / wanted)

    def sent(self, rate: float, mean: float, last: float) -> None:
        self._full = min(self._full + 1, SAMPLES) if last >= FULL * rate else 0
        self._means.append(mean)
        self._pause = max(0, self._pause - 1)


class WindowPolicy:
    """No rate at all (`MAX_RATE`), as long as receivers keep up: what is under way is bounded by a window, which is
    their buffers' (`parts/share.py`), and acknowledgements make room in it.

    Where a member received less in all than this sender sent, the rate becomes formula (2) of what it received, until
    there was no such report for as long as a mean is taken over. Formula (1) is not asked for a share: beside a sender
    with little to send, the fair share of one with much would be half of what it sends, then half of that.
    """

    __slots__ = ("_calm", "_growth", "_least", "_means", "_pause")

    def __init__(self, growth: float = GROWTH, least: float = MIN_RATE) -> None:
        self._growth = growth
        self._least = least
        self._means: deque[float] = deque(maxlen=LAG)  # of what was sent
        self._pause = 0  # intervals in which reports tell of a loss that has had its effect
        self._calm = 0  # intervals without such a report

    def rate(self, before: float, reported: float, senders: int = 1) -> float:
        received = reported * max(1, senders)
        if received < min(self._means, default=0.0) / (1 + self._growth):
            if self._pause:
                return before
            self._pause, self._calm = LAG, 0
            return max(self._least, (1 + self._growth) * received)
        return before if self._calm < SAMPLES else MAX_RATE

    def sent(self, rate: float, mean: float, last: float) -> None:  # noqa: ARG002
        self._means.append(mean)
        self._pause = max(0, self._pause - 1)
        self._calm = min(SAMPLES, self._calm + 1)


POLICIES: Final = REGION_FLOWS
DEFAULT_POLICY: Final = POLICIES[0]


def policy_of(name: str, growth: float = GROWTH, least: float = MIN_RATE) -> RatePolicy:
    """The policy that a configuration names."""
    if name == "window":
        return WindowPolicy(growth, least)
    if name == "qsm":
        return QsmPolicy(growth, least)
    if name == "demand":
        return DemandPolicy(growth, least)
    raise UsageError(f"unknown rate policy {name!r}; this version has {', '.join(map(repr, POLICIES))}")


def first_rate_of(name: str) -> float:
    """Of a sender of which nobody has heard."""
    return {"window": MAX_RATE, "demand": DEMAND_FIRST_RATE}.get(name, MIN_RATE)


# Formula (4). --------------------------------------------------------------------------------------------------------


class CreditPool:
    """A pool of credits. A send takes some; below `LOW` a timer brings them back at the given rate, up to `HIGH`.

    scale: all four constants are divided by it. A simulation in which a datagram stands for twenty has the bursts of
    the twenty, and not of 64 times as many."""

    __slots__ = ("_begin_ns", "_due_ns", "_level", "_rate", "_scale")

    def __init__(self, rate: float, scale: float = 1.0) -> None:
        self._rate = rate
        self._scale = scale
        self._level = POOL / scale
        self._begin_ns = 0  # since when the timer runs
        self._due_ns = NEVER

    @property
    def level(self) -> float:
        return self._level

    @property
    def may_send(self) -> bool:
        return self._level > 0

    def set_rate(self, rate: float) -> None:
        """For timers that are set from now on: one that runs is short."""
        self._rate = rate

    def take(self, now_ns: int, count: int) -> None:
        """Something was sent. A block may take more than there is."""
        self._level -= count
        if self._level < LOW / self._scale and self._due_ns == NEVER:
            self._arm(now_ns)

    def expire(self, now_ns: int) -> None:
        """Bring back what the time that has passed is worth, which may be longer than the timer was set for."""
        if now_ns < self._due_ns:
            return
        self._level = min(POOL / self._scale, self._level + (now_ns - self._begin_ns) * self._rate / SECOND)
        self._due_ns = NEVER
        if self._level < HIGH / self._scale:
            self._arm(now_ns)

    def deadline_ns(self) -> int:
        return self._due_ns

    def _arm(self, now_ns: int) -> None:
        self._begin_ns = now_ns
        wait_ns = min(HIGH / self._scale - self._level, STEP / self._scale) * SECOND / self._rate
        self._due_ns = now_ns + max(1, round(wait_ns))


# A sender. -----------------------------------------------------------------------------------------------------------


class SendingRate:
    """How fast one lane sends. Drive it: `expire` when `deadline_ns` has come, `take` for what leaves, `report` for the
    rate in each ACK."""

    __slots__ = ("_credits", "_meter", "_policy", "_rate", "alpha", "reports")

    def __init__(self, now_ns: int, policy: RatePolicy, first: float = MIN_RATE, scale: float = 1.0) -> None:
        self._policy = policy
        self._rate = first
        self._meter = RateMeter(now_ns)
        self._credits = CreditPool(first, scale)
        self.alpha = 1.0
        self.reports = 0  # that were believed

    @property
    def rate(self) -> float:
        """mu_snd."""
        return self._rate

    @property
    def actual(self) -> float:
        """What was really sent, as receivers measure theirs."""
        return self._meter.mean()

    @property
    def is_paced(self) -> bool:
        """Whether there is a rate; otherwise something else bounds what leaves."""
        return self._rate < MAX_RATE

    @property
    def may_send(self) -> bool:
        return not self.is_paced or self._credits.may_send

    @property
    def credits(self) -> int:
        """Datagrams that may leave now; a block that takes more may leave where this is above 0."""
        if not self.is_paced:
            return UNPACED
        return max(0, -int(-self._credits.level // 1))

    def take(self, now_ns: int, datagrams: int) -> None:
        self._conclude(now_ns)
        self._meter.add(now_ns, datagrams)
        if self.is_paced:
            self._credits.take(now_ns, datagrams)

    def report(self, now_ns: int, reported: float, senders: int = 1) -> bool:
        """The region's answer, and among how many it was shared; False where it cannot be true."""
        if not 0 <= reported <= MAX_RATE:
            return False
        self._conclude(now_ns)
        self._rate = min(MAX_RATE, self._policy.rate(self._rate, reported, senders))
        self.reports += 1
        self._credits.set_rate(self.alpha * self._rate)
        return True

    def expire(self, now_ns: int) -> None:
        self._conclude(now_ns)
        self._credits.expire(now_ns)

    def deadline_ns(self) -> int:
        """Of credits. Intervals are concluded when something happens: a lane at rest needs no timer."""
        return self._credits.deadline_ns() if self.is_paced else NEVER

    def _conclude(self, now_ns: int) -> None:
        """Formula (3), at most once in an interval."""
        passed = self._meter.roll(now_ns)
        if not passed:
            return
        if passed > 1:
            # Nothing was sent in the intervals after the first: the policy hears of a pause once.
            self._policy.sent(self._rate, self._meter.whole_mean(), 0.0)
            return
        last = self._meter.mean(ADJUSTED_OVER)
        self._policy.sent(self._rate, self._meter.whole_mean(), last)
        if last > 0 and self.is_paced:
            self.alpha = adjusted(self.alpha, self._rate, last)
            self._credits.set_rate(self.alpha * self._rate)
