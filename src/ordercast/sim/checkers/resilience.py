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
- On a shared underlay the holders are the nodes that host members of the group view: of the views of its groups in
  which the life is at that moment. SAFE asks for all of these nodes. RESILIENT(k) and MAJORITY ask for enough of them,
  or for enough nodes of the underlay's view: any node that holds a message brings it to the next view, and an underlay
  that counts its own nodes knows no groups. The member `name@node` of a group is hosted by `node`.
- A session is judged by the views of its groups. Where one part goes on, those that recovered together are the
  `came_with` of its daemon's next view, as for the daemon: a group may have views of joins and leaves among what a
  recovery brought together, before those of the dead are gone from it. The session has the signal again in each of
  these views, as a member has it in a view on the way; what it delivers in one of them without the signal is promised
  by all members of that view. With components, or where the daemon's views are not known, the signals of the groups
  count: after that of a group, the `came_with` of the group's next view stands for its members.
- With components that go on and merge, safe delivery and self delivery belong here (`components.py`). They need no
  clock.
- A member has a range when it has all of it; rows of `hold` and `placed` may be cut differently from those of
  `deliver`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ordercast.service import MAJORITY_RANK, RESILIENT_RANK, SAFE_RANK
from ordercast.sim.checkers import components
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.records import FOREVER, DeliveryRow, HoldList, Local, MemberPeriod, UnderlayTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text

NAME = "resilience"

JUDGED_CLOCKS = ("virtual", "one-host")


def check(
    trace: Trace,
    explained: Explained | None = None,
    *,
    clock: str = "virtual",
    quiet: bool = True,
    has_components: bool = False,
) -> PropertyResult:
    """Judge every delivery that had to wait for others, and with components what others owe because of it."""
    result = PropertyResult(NAME, "delivered ranges")
    if clock not in JUDGED_CLOCKS:
        result.judged = has_components
        result.note = f"clock {clock!r}: times of different nodes cannot be compared"
    for underlay in trace.underlays.values():
        if clock in JUDGED_CLOCKS:
            _Underlay(underlay, result, has_components).check()
        if has_components:
            components.check_deliveries(
                underlay, result, explained if explained is not None else Explained(), quiet=quiet
            )
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


def hosts_of(members: Iterable[str], nodes: Iterable[str]) -> tuple[str, ...]:
    """Those of the nodes (`name/life`) that host one of the members: itself, or `session@name`."""
    members = set(members)
    names = {member.rpartition("/")[0].rpartition("@")[2] for member in members if "@" in member}
    return tuple(node for node in nodes if node in members or node.rpartition("/")[0] in names)


class _Underlay:
    """The times of possession of one underlay, computed once for each range and set of members."""

    __slots__ = ("has_components", "lists", "possessions", "result", "times", "underlay")

    def __init__(self, underlay: UnderlayTrace, result: PropertyResult, has_components: bool = False) -> None:
        self.underlay = underlay
        self.has_components = has_components
        self.result = result
        self.possessions: dict[tuple[str, str, bool], _Possession] = {}
        self.times: dict[tuple[str, int, int, bool, tuple[str, ...]], list[tuple[int, str]]] = {}
        self.lists = {  # of the underlay's views, for sessions
            period.view: period.members for local in underlay.locals.values() for period in local.periods
        }

    def check(self) -> None:
        for local in self.underlay.locals.values():
            for delivery in local.deliveries:
                if delivery.rank >= RESILIENT_RANK and not delivery.tainted:
                    self._check(local, delivery)

    def _check(self, local: Local, delivery: DeliveryRow) -> None:
        period = delivery.period
        is_recovered = delivery.after_transitional
        if period is not None and local.is_session:
            is_recovered = self._has_signals(local, delivery, period)
        if period is not None and not (local.is_session and self.has_components):
            if is_recovered and period.next is None:
                return
            nodes = period.next.came_with if is_recovered and period.next is not None else period.members
            hosts = hosts_of(self._group_members(local, delivery), nodes)
        elif local.is_session:
            nodes = self.lists.get(delivery.view or "", ())
            promised, is_recovered = self._promised(local, delivery)
            if promised is None:
                return
            hosts = hosts_of(promised, nodes)
        else:
            return
        hosts = hosts or nodes
        if not nodes:
            return  # the well_formed checker names it
        self.result.checked += 1
        if delivery.rank != SAFE_RANK and hosts != nodes and self._in_time(local, delivery, nodes):
            return
        if self._in_time(local, delivery, hosts):
            return
        at_ns = delivery.at_ns
        times = self._times(delivery, hosts)
        needed, what = self._needed(delivery, hosts), "held" if delivery.rank == RESILIENT_RANK else "held and placed"
        have = [member for when, member in times if when <= at_ns]
        if delivery.rank == RESILIENT_RANK:
            have = [member for member in have if member not in hosts_of((local.member,), hosts)]
        kind = "members that recovered together" if is_recovered else f"members of {delivery.view}"
        kind = f"other {kind}" if delivery.rank == RESILIENT_RANK else kind
        self.result.report(
            f"{local.member} delivered {span_text(delivery.sender, delivery.span)} at {at_ns} ns (n={delivery.n}) when "
            f"{len(have)} of the {needed} {kind} that its service asks for had it {what}: "
            f"{' '.join(sorted(have)) or '-'}",
            member=local.member,
            other=next((member for when, member in times if when > at_ns), None),
            sender=delivery.sender,
            span=delivery.span,
            view=delivery.view if period is None else period.view,
        )

    def _group_members(self, local: Local, delivery: DeliveryRow) -> set[str]:
        """Those of the group views in which the life delivered it; none on an underlay of its own."""
        periods = [local.group_period_at(group, delivery.n) for group in delivery.targets or ()]
        return {member for period in periods if period is not None for member in period.members}

    def _has_signals(self, local: Local, delivery: DeliveryRow, period: MemberPeriod) -> bool:
        """Whether a session has had the signal of this view of its daemon in the views of all groups that it delivers
        the message in."""
        found = [local.group_period_at(group, delivery.n) for group in delivery.targets or ()]
        groups = [one for one in found if one is not None]
        if not groups:
            return period.transitional_n < delivery.n
        return all(one.has_signal(period.n, delivery.n) for one in groups)

    def _promised(self, local: Local, delivery: DeliveryRow) -> tuple[set[str] | None, bool]:
        """Of a session: the members of its group views, and after the signal of a group those that came along to its
        next view; None if no view follows. And whether there was a signal."""
        members: set[str] = set()
        is_recovered = False
        for group in delivery.targets or ():
            period = local.group_period_at(group, delivery.n)
            if period is None:
                continue
            if period.transitional_n > delivery.n:
                members.update(period.members)
            elif period.next is None:
                return None, True
            else:
                is_recovered = True
                members.update(period.next.came_with)
        return members, is_recovered

    def _needed(self, delivery: DeliveryRow, members: tuple[str, ...]) -> int:
        """How many of the members have to have it; of RESILIENT(k) others than the one that delivers."""
        if delivery.rank == RESILIENT_RANK:
            return min(delivery.k, len(members) - 1)
        return len(members) if delivery.rank == SAFE_RANK else len(members) // 2 + 1

    def _in_time(self, local: Local, delivery: DeliveryRow, members: tuple[str, ...]) -> bool:
        times, at_ns = self._times(delivery, members), delivery.at_ns
        needed = self._needed(delivery, members)
        if delivery.rank != RESILIENT_RANK:
            return times[needed - 1][0] <= at_ns
        if needed <= 0 or times[needed][0] <= at_ns:
            return True
        if times[needed - 1][0] > at_ns:
            return False
        mine = hosts_of((local.member,), members)  # enough, unless the deliverer is one of them
        return all(member not in mine for _, member in times[:needed])

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
