"""Property 5, virtual_synchrony: members that go together from view to view deliver the same in between.

Reading.

- Members *go together* from V to V' if both installed V' straight after V, without a `leave` between, and name each
  other in `came_with`. They must have delivered the same set of AGREED-or-stronger messages in V. Of lightweight
  groups only what goes to a group that the member is in is compared: certainly in it, that is during the whole
  period, or by positions between the first ordered delivery after coming in and the last one before going out, or in a
  view of the group that both were in and that the one without the message did not leave. A message to several groups
  is owed to the members of each of them, also where the one that delivered it is in another one (atomicity over
  groups). Rows of unknown targets count as delivered but are owed only among members with the same groups all the time.
- `came_with` itself must be true, or a protocol could excuse itself: a member that installed V' straight after the
  same V is in it, a member that came from elsewhere is not, and a joiner (first view, or the first after a `leave`)
  came alone.
- Views are delivered in order: there is one order of all views of an underlay (or group) that suits every member.
- A member delivers only in the view that it is in at that moment, and a session in that of its daemon.
- A view id has one list of members, in one order (ring order), at all members.
- Where the members asked for a majority (or for so many that no two parts can have them), the history of views does
  not fork: of two recoveries from failures with a common ancestor one is an ancestor of the other (`views.forks`).
- With components that go on and merge, what differs is in `components.py`: `came_with` is a class of those that came
  from the same view, and the transitional signal stands at the same place for all of it.
- Views of a lightweight group are judged in the same way, over the messages to that group that lie between them,
  where the rows carry `came_with`. Where they stand in the stream of the underlay is judged in `group_views.py`, unless
  a difference that was reported here explains it.

What property 1 rejected is owed to nobody, and is not missing where it was delivered. A range that several members lack
is one violation, not one for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ordercast.service import AGREED_RANK
from ordercast.sim.checkers import components, group_views
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.ranges import Range, merged, subtract
from ordercast.sim.checkers.records import DeliveryRow, Local, MemberPeriod, UnderlayTrace, is_ordered
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text
from ordercast.sim.checkers.views import Rules, forks, recoveries, sort_views

NAME = "virtual_synchrony"

Sets = dict[str, list[Range]]  # sender -> numbers
Line = tuple[Local, list[MemberPeriod]]


def check(
    trace: Trace,
    explained: Explained | None = None,
    *,
    min_members: Rules = "majority",
    has_components: bool = False,
) -> PropertyResult:
    """Judge views, and what is delivered in them. `min_members`: what the members asked for, one rule or one each."""
    result = PropertyResult(NAME, "views and pairs of views")
    explained = explained if explained is not None else Explained()
    for underlay in trace.underlays.values():
        found = result.total
        for local in underlay.locals.values():
            _check_place(local, underlay, result)
        lines: list[Line] = [(local, local.periods) for local in underlay.locals.values() if local.periods]
        _check_views(underlay, None, lines, result, explained, has_components)
        _check_forks(underlay, [line for line in lines if line[0].host is None], min_members, result)
        if underlay.lightweight:
            _check_groups(underlay, result, explained, has_components)
        if has_components and result.total == found:  # a view that lies about who came would be reported twice
            components.check_signals(underlay, result)
    return result


def _check_groups(underlay: UnderlayTrace, result: PropertyResult, explained: Explained, has_components: bool) -> None:
    by_group: dict[str, list[Line]] = {}
    for local in underlay.locals.values():
        for group, periods in local.group_periods.items():
            by_group.setdefault(group, []).append((local, periods))
    told: set[str] = set()
    for group, lines in sorted(by_group.items()):
        found = result.total
        _check_views(underlay, group, lines, result, explained, has_components)
        if result.total > found:
            told.add(group)
    group_views.check_missed(underlay, result, told, has_components)
    group_views.check_places(underlay, result, explained, told)
    if not told:
        group_views.check_order(underlay, result)


def _check_place(local: Local, underlay: UnderlayTrace, result: PropertyResult) -> None:
    """A member delivers only in the view in which it is at that moment."""
    if local.is_session and not local.periods:
        return  # its daemon is not in the trace
    for delivery in local.deliveries:
        period = delivery.period
        if period is not None and (delivery.view == period.view or delivery.view is None):
            continue
        current = local.host is None and local.group_periods and _is_group_view(local, delivery)
        if delivery.tainted or (period is not None and current):
            continue
        where = f"is in view {period.view}" if period is not None else "is in no view"
        result.report(
            f"{local.member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n} in view "
            f"{delivery.view} of {underlay.name}, but {where} then",
            member=local.member,
            sender=delivery.sender,
            span=delivery.span,
            view=delivery.view,
        )


def _is_group_view(local: Local, delivery: DeliveryRow) -> bool:
    """The row may name the view of its lightweight group instead of that of the underlay."""
    return any(
        period.view == delivery.view and period.n < delivery.n < period.stop_n
        for group in delivery.targets or ()
        for period in local.group_periods.get(group, ())
    )


def _check_views(
    underlay: UnderlayTrace,
    group: str | None,
    lines: list[Line],
    result: PropertyResult,
    explained: Explained,
    has_components: bool,
) -> None:
    lists: dict[str, MemberPeriod] = {}
    installs: dict[str, list[tuple[Local, MemberPeriod]]] = {}
    written = [line for line in lines if group is not None or line[0].host is None]
    for local, periods in written:
        for period in periods:
            result.checked += 1
            first = lists.setdefault(period.view, period)
            if first.members != period.members:
                result.report(
                    f"view {period.view} of {group or underlay.name} is {_names(period.members)} at {local.member}, "
                    f"but {_names(first.members)} at {first.member}",
                    member=local.member,
                    other=first.member,
                    view=period.view,
                )
            installs.setdefault(period.view, []).append((local, period))
    _check_view_order(underlay, group, written, result)
    for view, arrivals in installs.items():
        if group is not None and any(not period.came_with for _, period in arrivals):
            continue
        if has_components:
            components.check_classes(view, [period for _, period in arrivals], result)
        else:
            _check_came_with(view, arrivals, result)
    for previous, part in components.classes_of(lines, has_components):
        if len(part) > 1 and all(period.came_with for _, period in installs[part[0][1].view]):
            _check_same_set(underlay, group, previous, part[0][1].view, part, result, explained)


def _check_came_with(view: str, arrivals: list[tuple[Local, MemberPeriod]], result: PropertyResult) -> None:
    previous = {period.member: period.prev.view if period.prev is not None else None for _, period in arrivals}
    for local, period in arrivals:
        came = set(period.came_with)
        mine = previous[local.member]
        for member, theirs in previous.items():
            if member == local.member:
                continue
            together = mine is not None and theirs == mine
            if together != (member in came):
                claim = "leaves out" if together else "names"
                result.report(
                    f"came_with of view {view} at {local.member} (from {mine or 'outside'}) {claim} {member}, which "
                    f"came from {theirs or 'outside'}",
                    member=local.member,
                    other=member,
                    view=view,
                )
        if mine is None and came - {local.member} and not came & (previous.keys() - {local.member}):
            result.report(
                f"{local.member} came into view {view} from outside, but names {_names(sorted(came))} in came_with",
                member=local.member,
                view=view,
            )


def _check_view_order(underlay: UnderlayTrace, group: str | None, lines: list[Line], result: PropertyResult) -> None:
    """What cannot be sorted was delivered in different orders."""
    rank = sort_views([periods for _, periods in lines])
    stuck = {period.view for _, periods in lines for period in periods if period.view not in rank}
    if not stuck:
        return
    place_of: dict[tuple[str, str], str] = {}
    for local, periods in lines:
        views = [period.view for period in periods if period.view in stuck]
        for at, left_view in enumerate(views):
            for right_view in views[at + 1 :]:
                other = place_of.get((right_view, left_view))
                if other is not None and other != local.member:
                    result.report(
                        f"{local.member} installed view {left_view} before {right_view}, {other} the other way round",
                        member=local.member,
                        other=other,
                        view=right_view,
                    )
                    return
                place_of.setdefault((left_view, right_view), local.member)
    result.report(f"views {', '.join(sorted(stuck))} of {group or underlay.name} have no common order")


def _check_forks(underlay: UnderlayTrace, lines: list[Line], rules: Rules, result: PropertyResult) -> None:
    """No two parts of a group that only one may continue have gone on."""
    periods = [line for _, line in lines]
    result.checked += len(recoveries(periods))
    for ancestor, left, right in forks(periods, rules):
        result.report(
            f"two parts of {underlay.name} went on from view {ancestor}: {_names(left.came_with)} to {left.view} and "
            f"{_names(right.came_with)} to {right.view}, though only one may have enough members",
            member=right.member,
            other=left.member,
            view=ancestor,
        )


def _check_same_set(
    underlay: UnderlayTrace,
    group: str | None,
    previous: str,
    view: str,
    part: list[tuple[Local, MemberPeriod]],
    result: PropertyResult,
    explained: Explained,
) -> None:
    result.checked += len(part) - 1
    olds = [(local, period.prev) for local, period in part if period.prev is not None]
    lacks: dict[tuple[str, Range], list[str]] = {}
    holder: dict[tuple[str, Range], str] = {}
    accepted = [_sets(_ordered(local, old)) for local, old in olds]
    whole_view = group is None
    if whole_view and not underlay.lightweight and all(each == accepted[0] for each in accepted[1:]):
        return
    everything = [_sets(_with_rejected(local, old)) for local, old in olds]
    if whole_view and underlay.lightweight:
        if any(delivery.targets is None for _, old in olds for delivery in old.deliveries):
            _compare_classes(olds, accepted, everything, lacks, holder)
        to_groups = _by_group(olds)
        for each in sorted(to_groups):
            _compare_group(each, to_groups[each], olds, everything, lacks, holder)
        _compare_some(_goes_to_everyone, olds, everything, lacks, holder)
    elif whole_view:
        _compare([local.member for local, _ in olds], accepted, everything, lacks, holder)
    else:
        _compare_some(lambda delivery: group in (delivery.targets or ()), olds, everything, lacks, holder)
    for (sender, span), members in sorted(lacks.items()):
        open_members = [
            one for one in dict.fromkeys(members) if explained.unexplained(one, underlay.name, sender, [span])
        ]
        if not open_members:
            continue
        for member in open_members:
            explained.add_missing(member, underlay.name, sender, [span])
        had = holder[sender, span]
        result.report(
            f"{', '.join(open_members)} went with {had} from view {previous} to {view} without "
            f"{span_text(sender, span)}, which {had} delivered in {previous}",
            member=open_members[0],
            other=had,
            sender=sender,
            span=span,
            view=previous,
        )


def _compare_classes(
    olds: list[tuple[Local, MemberPeriod]],
    accepted: list[Sets],
    everything: list[Sets],
    lacks: dict[tuple[str, Range], list[str]],
    holder: dict[tuple[str, Range], str],
) -> None:
    """Members that were in the same groups all the time: they also have the same of what names no group."""
    classes: dict[frozenset[str], list[int]] = {}
    for at, (local, old) in enumerate(olds):
        classes.setdefault(_groups_throughout(local, old), []).append(at)
    for groups, ats in classes.items():
        if all(_is_constant(olds[at][0], olds[at][1], groups) for at in ats):
            members = [olds[at][0].member for at in ats]
            _compare(members, [accepted[at] for at in ats], [everything[at] for at in ats], lacks, holder)


def _compare(
    members: list[str],
    accepted: list[Sets],
    everything: list[Sets],
    lacks: dict[tuple[str, Range], list[str]],
    holder: dict[tuple[str, Range], str],
) -> None:
    """Members that must all have the same."""
    if all(each == accepted[0] for each in accepted[1:]):
        return
    for source, theirs in zip(members, accepted, strict=True):
        for member, mine in zip(members, everything, strict=True):
            _note_lacks(source, theirs, member, mine, lacks, holder)


def _note_lacks(
    source: str,
    theirs: Sets,
    member: str,
    mine: Sets,
    lacks: dict[tuple[str, Range], list[str]],
    holder: dict[tuple[str, Range], str],
) -> None:
    if source == member:
        return
    for sender, ranges in theirs.items():
        for span in subtract(ranges, mine.get(sender, [])):
            holder.setdefault((sender, span), source)
            lacks.setdefault((sender, span), []).append(member)


def _compare_some(
    is_meant: Callable[[DeliveryRow], bool],
    olds: list[tuple[Local, MemberPeriod]],
    everything: list[Sets],
    lacks: dict[tuple[str, Range], list[str]],
    holder: dict[tuple[str, Range], str],
) -> None:
    """Compare what `is_meant` picks, among members that all should have it."""
    picked = [_sets(filter(is_meant, _ordered(local, old))) for local, old in olds]
    if all(each == picked[0] for each in picked[1:]):
        return
    for (source, _), theirs in zip(olds, picked, strict=True):
        for (local, _), mine in zip(olds, everything, strict=True):
            _note_lacks(source.member, theirs, local.member, mine, lacks, holder)


def _by_group(olds: list[tuple[Local, MemberPeriod]]) -> dict[str, dict[int, list[DeliveryRow]]]:
    """What each of these members delivered to each lightweight group in its period, the member in it or not."""
    found: dict[str, dict[int, list[DeliveryRow]]] = {}
    for at, (local, old) in enumerate(olds):
        for delivery in _ordered(local, old):
            for group in delivery.targets or ():
                found.setdefault(group, {}).setdefault(at, []).append(delivery)
    return found


def _compare_group(
    group: str,
    to_group: dict[int, list[DeliveryRow]],
    olds: list[tuple[Local, MemberPeriod]],
    everything: list[Sets],
    lacks: dict[tuple[str, Range], list[str]],
    holder: dict[tuple[str, Range], str],
) -> None:
    """Messages to one lightweight group, which those of its members owe that go together with one that has them."""
    inside = [
        at
        for at, (local, old) in enumerate(olds)
        if any(begin < old.stop_n and end > old.n for begin, end, _ in local.group_spans.get(group, ()))
    ]
    sets = {at: _sets(to_group.get(at, ())) for at in {*inside, *to_group}}
    first = next(iter(sets.values()))
    if not inside or all(each == first for each in sets.values()):
        return
    for at in inside:
        local, old = olds[at]
        windows = _windows(local, old, group)
        whole_views = {one.view for one in local.group_periods.get(group, ()) if one.cut is None}
        for source, delivered in sorted(to_group.items()):
            if at == source:
                continue
            lines = olds[source][0].group_periods.get(group, [])
            owed = (
                d
                for d in delivered
                if any(low <= (d.position or 0) < high for low, high in windows) or _view_at(lines, d.n) in whole_views
            )
            _note_lacks(olds[source][0].member, _sets(owed), local.member, everything[at], lacks, holder)


def _view_at(periods: list[MemberPeriod], n: int) -> str | None:
    """The view of a lightweight group in which event `n` lies."""
    return next((period.view for period in periods if period.n < n < period.stop_n), None)


def _windows(local: Local, old: MemberPeriod, group: str) -> list[tuple[float, float]]:
    """Positions at which the member was certainly in the group during the period."""
    windows: list[tuple[float, float]] = []
    for begin, end, _ in local.group_spans.get(group, ()):
        if begin >= old.stop_n or end <= old.n:
            continue
        low, high = float("-inf"), float("inf")
        inside = [d for d in old.deliveries if is_ordered(d) and begin < d.n < end]
        if begin > old.n:
            low = float(inside[0].position or 0) if inside else float("inf")
        if end < old.stop_n:
            high = float(inside[-1].position or 0) + 1 if inside else float("-inf")
        if low < high:
            windows.append((low, high))
    return windows


def _groups_throughout(local: Local, old: MemberPeriod) -> frozenset[str]:
    return frozenset(group for group in local.group_spans if local.in_group(group, old.n, old.stop_n))


def _is_constant(local: Local, old: MemberPeriod, groups: frozenset[str]) -> bool:
    """It was in no other group for a part of the period."""
    return all(
        group in groups or all(begin >= old.stop_n or end <= old.n for begin, end, _ in spans)
        for group, spans in local.group_spans.items()
    )


def _goes_to_everyone(delivery: DeliveryRow) -> bool:
    return delivery.targets == ()


def _ordered(local: Local, period: MemberPeriod) -> Iterable[DeliveryRow]:
    if period.group is None:
        return [delivery for delivery in period.deliveries if is_ordered(delivery)]
    return [d for d in local.deliveries if period.n < d.n < period.stop_n and is_ordered(d)]


def _with_rejected(local: Local, period: MemberPeriod) -> Iterable[DeliveryRow]:
    """The same, with what property 1 rejected: that is not missing as well."""
    rows = period.deliveries if period.group is None else local.deliveries
    return [d for d in rows if period.n < d.n < period.stop_n and d.rank >= AGREED_RANK and d.position is not None]


def _sets(deliveries: Iterable[DeliveryRow]) -> Sets:
    spans: dict[str, list[Range]] = {}
    for delivery in deliveries:
        known = spans.get(delivery.sender)
        if known is None:
            known = spans[delivery.sender] = []
        known.append((delivery.first, delivery.stop))
    return {sender: merged(ranges) for sender, ranges in spans.items()}


def _names(members: Iterable[str]) -> str:
    return "[" + " ".join(members) + "]"
