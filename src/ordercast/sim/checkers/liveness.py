"""Property 7, liveness: when the run ends quietly, what had to arrive has arrived, and no gap is open.

Reading.

- *Ends quietly* is known to the harness only: nothing in flight, network whole, time enough for suspicion and
  recovery. A run that ends cut off or in haste is checked with `quiet=False`, and liveness is not judged.
- *Stayed in*: the member's last stay is open (no `leave`, `stop`, `crash`, later life), and it is not stranded. It is
  stranded if the members that are still in its last view are too few to go on: the others crashed, left, or went on
  without it. What is too few is said by `min_members` (`views.is_enough`): with "majority" half of the view or less,
  unless it is half with the first member; with a number fewer members than that, or than the view has; with "all",
  which also suits groups that recover by hand, one missing member. Of several rules every one counts. A majority that
  hangs in a view with dead members is *not* excused.
- Nodes that are stopped when all is over stayed in: a `stop` in a view, after the last submit and delivery of the
  underlay by the run clock, ends the run and not the stay. Where clocks cannot be compared a `stop` is a departure.
- *Since it last came in*: messages submitted after the first view of that stay.
- *The view of the first delivery and went on since*: every member that came through the same views as the sender, from
  that view to the end. The view is the earliest of the sender's views in which any member delivered the message. A
  member that joined later, or went through another component of a partition, owes nothing. A message that was never
  delivered is a violation if any member should have delivered it.
- *A caller* (it never was in a view: multi-RPC) may give up or die at any time, so nothing is owed because it was
  submitted. But if one member that stayed in delivered a message of it, all members owe that message that were in that
  view and went on since: the group makes no difference between its senders.
- Lightweight groups: owed by members that came into the group before the submit, by the run clock (where clocks
  cannot be compared, before any view that they share with the sender), and are in it to the end. No
  member owes messages with unknown targets. Of a caller's message to such groups the members owe it that were in one of
  them during that whole view. And a member owes the group views that name it (`group_views.py`).
- A session stayed in if its daemon did, and the session did not end before.
- *A gap is open* at a member that stayed in if nothing of `repaired`, `hold`, `deliver` has filled it since; unless it
  is of UNRELIABLE messages, or was noticed in an earlier view and its sender did not come along: what no survivor has
  is lost with its view.
- Regions: `lanes.py`.
"""

from __future__ import annotations

from ordercast.service import RELIABLE_RANK
from ordercast.sim.checkers import components, group_views, lanes
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.ranges import Range, merged, size_of, subtract
from ordercast.sim.checkers.records import FOREVER, Local, MemberPeriod, Submit, UnderlayTrace
from ordercast.sim.checkers.region_records import RegionalTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text
from ordercast.sim.checkers.views import Rules, may_go_on

NAME = "liveness"


def check(
    trace: Trace,
    explained: Explained | None = None,
    *,
    clock: str = "virtual",
    quiet: bool = True,
    min_members: Rules = "majority",
    has_components: bool = False,
    regional: RegionalTrace | None = None,
) -> PropertyResult:
    """Judge what every member that stayed in had to deliver by the end."""
    result = PropertyResult(NAME, "messages owed to members")
    explained = explained if explained is not None else Explained()
    if not quiet:
        result.judged = False
        result.note = "the run did not end quietly"
        return result
    for underlay in trace.underlays.values():
        settled = settled_members(underlay, min_members, comparable=clock != "many")
        for local in settled.values():
            _check_sender(
                *(underlay, local, settled, result, explained),
                comparable=clock != "many",
                has_components=has_components,
            )
            _check_gaps(underlay, local, result)
        for local in underlay.locals.values():
            if local.is_outside:
                _check_caller(underlay, local, settled, result, explained)
        if underlay.lightweight:
            _check_group_views(settled, result)
        if has_components:
            components.check_rest(settled, result)
    if regional:
        lanes.check_liveness(regional, result, explained)
    return result


def settled_members(
    underlay: UnderlayTrace, min_members: Rules = "majority", *, comparable: bool = True
) -> dict[str, Local]:
    """The members that stayed in: in a last view that still has enough of its members to go on."""
    busy_ns = _last_traffic_ns(underlay) if comparable else FOREVER
    last = {member: last_segment(local, busy_ns) for member, local in underlay.locals.items()}
    views: dict[str, list[str]] = {}
    lists: dict[str, tuple[str, ...]] = {}
    for member, period in last.items():
        if period is not None and underlay.locals[member].host is None:
            views.setdefault(period.view, []).append(member)
            lists[period.view] = period.members
    settled: dict[str, Local] = {}
    for view, present in views.items():
        if may_go_on(lists[view], present, min_members):
            settled.update((member, underlay.locals[member]) for member in present)
    for member, host in underlay.hosts.items():
        if host in settled and last[member] is not None:
            settled[member] = underlay.locals[member]
    return settled


def last_segment(local: Local, busy_ns: int) -> MemberPeriod | None:
    """The period in which the run ended for it: open, or closed by a `stop` after all traffic of the underlay."""
    period = local.periods[-1] if local.periods else None
    if period is None or period.is_open or (period.cut == "stop" and period.end_ns > busy_ns):
        return period
    return None


def _last_traffic_ns(underlay: UnderlayTrace) -> int:
    """When the last message was submitted or delivered."""
    return max(
        (
            event.at_ns
            for local in underlay.locals.values()
            for events in (local.submits, local.deliveries)
            for event in events[-1:]
        ),
        default=-1,
    )


def stay_of(period: MemberPeriod) -> list[MemberPeriod]:
    """The periods from coming in up to `period`, in order."""
    path = [period]
    while path[-1].prev is not None:
        path.append(path[-1].prev)
    path.reverse()
    return path


def _check_sender(
    underlay: UnderlayTrace,
    source: Local,
    settled: dict[str, Local],
    result: PropertyResult,
    explained: Explained,
    *,
    comparable: bool,
    has_components: bool,
) -> None:
    if not source.submits:
        return
    last = source.periods[-1]
    path = stay_of(last)
    owed = [submit for submit in source.submits if submit.n > path[0].n and submit.rank >= RELIABLE_RANK]
    if not owed:
        return
    by_targets: dict[tuple[str, ...], list[Submit]] = {}
    for submit in owed:
        if submit.targets is not None:
            by_targets.setdefault(submit.targets, []).append(submit)
    earlier = _EarlierDeliveries(underlay, source.member, [period.view for period in path])
    lacks: dict[Range, list[str]] = {}
    for member, local in settled.items():
        their_last = local.periods[-1]
        if their_last.view != last.view:
            continue
        theirs = stay_of(their_last)
        since = _common_suffix(path, theirs, has_components)
        delivered = local.delivered.get(source.member)
        have = delivered.ranges() if delivered is not None else []
        for targets, submits in by_targets.items():
            due = merged((one.first, one.stop) for one in _addressed(local, targets, submits, comparable=comparable))
            if since > 0 and due:
                due = subtract(due, earlier.before(since))
                due = subtract(due, _submitted_before(owed, path[since], underlay, source.member))
            result.checked += size_of(due)
            missing = explained.unexplained(member, underlay.name, source.member, subtract(due, have))
            for span in missing:
                lacks.setdefault(span, []).append(member)
    for span, members in sorted(lacks.items()):
        result.report(
            f"{', '.join(members)} never delivered {span_text(source.member, span)}, though they were there, the "
            f"sender stayed in view {last.view}, and the run ended quietly",
            member=members[0],
            other=source.member,
            sender=source.member,
            span=span,
            view=last.view,
        )


def _check_group_views(settled: dict[str, Local], result: PropertyResult) -> None:
    """Members of the last view of the underlay have the views of their groups that others installed in it."""
    parts: dict[str, list[tuple[Local, MemberPeriod]]] = {}
    for local in settled.values():
        parts.setdefault(local.periods[-1].view, []).append((local, local.periods[-1]))
    for one in group_views.missed_views(parts.values()):
        result.report(
            f"{', '.join(one.members)} never installed view {one.view} of {one.group}, which names them and "
            f"{one.holder} installed in view {one.underlay_view}, though the run ended quietly",
            member=one.members[0],
            other=one.holder,
            view=one.view,
        )


def _check_caller(
    underlay: UnderlayTrace, source: Local, settled: dict[str, Local], result: PropertyResult, explained: Explained
) -> None:
    """What one member delivered of a sender outside, all members of that view owe."""
    sender = source.member
    views = {
        member: {period.view: period for period in stay_of(local.periods[-1])} for member, local in settled.items()
    }
    by_view: dict[tuple[str, tuple[str, ...]], list[Range]] = {}
    for member, local in settled.items():
        for delivery in local.deliveries:
            if delivery.sender != sender or delivery.tainted or delivery.rank < RELIABLE_RANK:
                continue
            period, targets = delivery.period, delivery.targets
            if period is not None and targets is not None and period.view in views[member]:
                by_view.setdefault((period.view, targets), []).append(delivery.span)
    lacks: dict[tuple[str, Range], list[str]] = {}
    for (view, targets), spans in by_view.items():
        due = merged(spans)
        for member, local in settled.items():
            if view not in views[member]:
                continue
            there = views[member][view]
            if not local.is_owed(targets, there.n, there.stop_n):
                continue
            result.checked += size_of(due)
            delivered = local.delivered.get(sender)
            missing = subtract(due, delivered.ranges() if delivered is not None else [])
            for span in explained.unexplained(member, underlay.name, sender, missing):
                lacks.setdefault((view, span), []).append(member)
    for (view, span), members in sorted(lacks.items()):
        result.report(
            f"{', '.join(members)} never delivered {span_text(sender, span)} of a caller, which others delivered in "
            f"view {view}, though they were there and the run ended quietly",
            member=members[0],
            other=sender,
            sender=sender,
            span=span,
            view=view,
        )


def _submitted_before(owed: list[Submit], start: MemberPeriod, underlay: UnderlayTrace, sender: str) -> list[Range]:
    """Never delivered, and submitted before the view `start`: owed by the members of that time, not by later ones."""
    old = merged((submit.first, submit.stop) for submit in owed if submit.n < start.n)
    for local in underlay.locals.values():
        delivered = local.delivered.get(sender)
        if delivered is not None and old:
            old = subtract(old, delivered.ranges())
    return old


class _EarlierDeliveries:
    """What anyone delivered of one sender in the first views of its path; computed only if somebody joined later."""

    __slots__ = ("by_view", "known", "sender", "underlay", "views")

    def __init__(self, underlay: UnderlayTrace, sender: str, views: list[str]) -> None:
        self.underlay = underlay
        self.sender = sender
        self.views = views
        self.by_view: dict[str, list[Range]] | None = None
        self.known: dict[int, list[Range]] = {}

    def before(self, index: int) -> list[Range]:
        """What was delivered by any member in a view of the path before `index`."""
        if self.by_view is None:
            self.by_view = {}
            for local in self.underlay.locals.values():
                for period in local.periods:
                    spans = self.by_view.setdefault(period.view, [])
                    spans.extend(d.span for d in period.deliveries if d.sender == self.sender and not d.tainted)
        found = self.known.get(index)
        if found is None:
            found = merged(span for view in self.views[:index] for span in self.by_view.get(view, ()))
            self.known[index] = found
        return found


def _common_suffix(path: list[MemberPeriod], theirs: list[MemberPeriod], has_components: bool) -> int:
    """The index in `path` from which both went through the same views to the end; with components in one class."""
    length = 0
    while length < min(len(path), len(theirs)) and path[-1 - length].view == theirs[-1 - length].view:
        length += 1
        if has_components and set(path[-length].came_with) != set(theirs[-length].came_with):
            break
    return len(path) - length


def _addressed(local: Local, targets: tuple[str, ...], submits: list[Submit], *, comparable: bool) -> list[Submit]:
    """Those of the submits to `targets` that certainly go to this member."""
    if not targets:
        return submits
    spans = [local.group_spans[group][-1] for group in targets if group in local.group_spans]
    begins = [(at_ns, n) for n, stop_n, at_ns in spans if stop_n >= local.periods[-1].stop_n]
    if not begins:
        return []
    at_ns, n = min(begins)
    if comparable:
        return [submit for submit in submits if submit.at_ns > at_ns]
    return submits if n < stay_of(local.periods[-1])[0].n else []


def _check_gaps(underlay: UnderlayTrace, local: Local, result: PropertyResult) -> None:
    if not local.gaps:
        return
    last = local.periods[-1]
    path = stay_of(last)
    for gap in local.gaps:
        if gap.n < path[0].n or gap.first is None:
            continue
        result.checked += 1
        sender = gap.sender
        noticed = local.period_at(gap.n)
        if noticed is not last and (sender is None or not _came_along(noticed, underlay.host(sender))):
            continue
        filled = [
            (row.first, row.first + max(row.count or 1, 1))
            for row in local.repaired
            if row.n > gap.n and row.sender == sender and row.first is not None
        ]
        if sender is not None:
            filled.extend((first, stop) for first, stop, _ in local.holds.get(sender, ()))
            delivered = local.delivered.get(sender)
            filled.extend(delivered.ranges() if delivered is not None else ())
            source = underlay.locals.get(sender)
            if source is not None:
                filled.extend((one.first, one.stop) for one in source.submits if one.rank < RELIABLE_RANK)
        for span in subtract([(gap.first, gap.first + max(gap.count or 1, 1))], merged(filled)):
            result.report(
                f"{local.member} noticed a gap at n={gap.n}, and {span_text(sender or 'position', span)} is still "
                f"open at the end",
                member=local.member,
                other=sender,
                sender=sender,
                span=span,
                view=last.view,
            )


def _came_along(period: MemberPeriod | None, sender: str) -> bool:
    """Did the sender come along through all later views?"""
    while period is not None and period.next is not None:
        period = period.next
        if sender not in period.came_with:
            return False
    return period is not None and sender in period.members
