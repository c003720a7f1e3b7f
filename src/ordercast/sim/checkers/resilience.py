"""Property 6, resilience: RESILIENT(k), MAJORITY and SAFE are not delivered before enough members have the message.

Amoeba section 4.2 (resilience degree), RMP section 3.2, docs/design/overview.md section 3. Reading.

- *Its view* is the view in which it is delivered. k counts members other than the one that delivers, capped at members
  - 1, and only `hold` matters. MAJORITY and SAFE count members, the deliverer included, that hold it and know its
  sequence number (`hold` and `placed`): more than half, or all.
- After `transitional` the `came_with` of the next view stands for the members, for the cap and the half too. If no
  view follows (crash, exclusion, end of the trace) the trace does not say which members recovered together, and
  nothing is judged.
- `Before` is by the run clock: at the same instant is in time, since a pass reads the clock after its last receive
  and before its first send. So this is judged where the clock is `virtual` or `one-host`.
- A member has a range when it has all of it; rows of `hold` and `placed` may be cut differently from those of
  `deliver`.
"""

from __future__ import annotations

from bisect import bisect_right

from ordercast.service import MAJORITY_RANK, RESILIENT_RANK, SAFE_RANK
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.records import FOREVER, DeliveryRow, HoldList, Local, UnderlayTrace
from ordercast.sim.checkers.verdict import PropertyResult, span_text

NAME = "resilience"

JUDGED_CLOCKS = ("virtual", "one-host")


def check(trace: Trace, *, clock: str = "virtual") -> PropertyResult:
    """Judge every delivery that had to wait for others."""
    result = PropertyResult(NAME, "delivered ranges")
    if clock not in JUDGED_CLOCKS:
        result.judged = False
        result.note = f"clock {clock!r}: times of different nodes cannot be compared"
        return result
    for underlay in trace.underlays.values():
        _Underlay(underlay, result).check()
    return result


class _Possession:
    """When one member came to have the numbers of one sender: spans sorted by number."""

    __slots__ = ("firsts", "spans")

    def __init__(self, spans: HoldList) -> None:
        self.spans = sorted(spans)
        self.firsts = [span[0] for span in self.spans]

    def since(self, first: int, stop: int) -> int:
        """The time from which it has all of `[first, stop)`; FOREVER if never."""
        spans = self.spans
        at = bisect_right(self.firsts, first) - 1
        if at < 0:
            return FOREVER
        while at > 0 and spans[at - 1][1] > first:  # only where ranges overlap: a second hold of the same message
            at -= 1
        latest = -1
        reached = first
        while reached < stop:
            if at >= len(spans) or spans[at][0] > reached:
                return FOREVER
            _, end, when = spans[at]
            at += 1
            if end <= reached:
                continue
            reached = end
            latest = max(latest, when)
        return latest


class _Underlay:
    """The times of possession of one underlay, computed once for each range and set of members."""

    __slots__ = ("possessions", "result", "times", "underlay")

    def __init__(self, underlay: UnderlayTrace, result: PropertyResult) -> None:
        self.underlay = underlay
        self.result = result
        self.possessions: dict[tuple[str, str, bool], _Possession] = {}
        self.times: dict[tuple[str, int, int, bool, tuple[str, ...]], list[tuple[int, str]]] = {}

    def check(self) -> None:
        for local in self.underlay.locals.values():
            for delivery in local.deliveries:
                if delivery.rank >= RESILIENT_RANK and not delivery.tainted:
                    self._check(local, delivery)

    def _check(self, local: Local, delivery: DeliveryRow) -> None:
        period = delivery.period
        if period is None:
            return
        members = period.members
        if delivery.after_transitional:
            if period.next is None:
                return
            members = period.next.came_with
        if not members:
            return  # the well_formed checker names it
        self.result.checked += 1
        times = self._times(delivery, members)
        at_ns = delivery.at_ns
        if delivery.rank == SAFE_RANK:
            needed, what = len(members), "held and placed"
            in_time = times[-1][0] <= at_ns
        elif delivery.rank == MAJORITY_RANK:
            needed, what = len(members) // 2 + 1, "held and placed"
            in_time = times[needed - 1][0] <= at_ns
        else:
            needed, what = min(delivery.k, len(members) - 1), "held"
            in_time = needed <= 0 or times[needed][0] <= at_ns
            if not in_time and times[needed - 1][0] <= at_ns:  # enough, unless the deliverer is one of them
                in_time = all(member != local.member for _, member in times[:needed])
        if in_time:
            return
        have = [member for when, member in times if when <= at_ns]
        if delivery.rank == RESILIENT_RANK:
            have = [member for member in have if member != local.member]
        kind = "members that recovered together" if delivery.after_transitional else f"members of {period.view}"
        kind = f"other {kind}" if delivery.rank == RESILIENT_RANK else kind
        self.result.report(
            f"{local.member} delivered {span_text(delivery.sender, delivery.span)} at {at_ns} ns (n={delivery.n}) when "
            f"{len(have)} of the {needed} {kind} that its service asks for had it {what}: "
            f"{' '.join(sorted(have)) or '-'}",
            member=local.member,
            other=next((member for when, member in times if when > at_ns), None),
            sender=delivery.sender,
            span=delivery.span,
            view=period.view,
        )

    def _times(self, delivery: DeliveryRow, members: tuple[str, ...]) -> list[tuple[int, str]]:
        """When each member had the range, sorted by time. All deliverers of a view share the answer."""
        both = delivery.rank >= MAJORITY_RANK
        key = delivery.sender, delivery.first, delivery.stop, both, members
        found = self.times.get(key)
        if found is None:
            found = []
            for member in members:
                since = self._since(member, delivery, placed=False)
                if both and since < FOREVER:
                    since = max(since, self._since(member, delivery, placed=True))
                found.append((since, member))
            found.sort()
            self.times[key] = found
        return found

    def _since(self, member: str, delivery: DeliveryRow, *, placed: bool) -> int:
        key = member, delivery.sender, placed
        possession = self.possessions.get(key)
        if possession is None:
            local = self.underlay.locals.get(member)
            table = {} if local is None else local.placed if placed else local.holds
            possession = self.possessions[key] = _Possession(table.get(delivery.sender, []))
        return possession.since(delivery.first, delivery.stop)
