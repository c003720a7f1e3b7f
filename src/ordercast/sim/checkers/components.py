"""Components that go on side by side and merge: what extended virtual synchrony asks for besides (docs/trace.md).

Reading. Every part of a partition goes on, so a view may come from several views. What differs from a quorum:

- *A class* is what goes together: members of one view that go to the same next one and name the same `came_with`. Not
  all that come from one view need be one class: what some of them delivered others may never get. All members of a
  class name it alike, and nobody names a member that came from elsewhere.
- *The signal* (`transitional`) parts what a view promises to all its members from what it promises to the class. It
  stands at the same place for all members of a class: none delivered before it what another one delivered after it. If
  a failure took a member away that had not left, all of them have it. A session has the signal of each of its groups
  that lost a member with the daemon's view; a member that writes the underlay's views has it for all its groups. After
  the signal of a group nothing of the group is delivered in a later view of the underlay until the group has its view.
- A member delivers nothing in the view of a group that names a member whose daemon is not in the view of the underlay.
- *Safe delivery*: what was delivered as SAFE before the signal is delivered in that view of the underlay, before or
  after the signal, by every member of the group view whose daemon did not end in it; after the signal, by every member
  whose node is in the next `came_with` of the underlay. It must have been in that group view and not have left it. A
  member that is still in the view at the end owes it if the run ended quietly.
- *Self delivery*: what anybody delivered in a view its sender, if it is in a group of it, delivers, too, before it goes
  on from that view; and if it is still in that view, by a quiet end.
- At a quiet end nobody is between the signal and the view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ordercast.service import RELIABLE_RANK, SAFE_RANK
from ordercast.sim.checkers.ranges import Range, merged, subtract
from ordercast.sim.checkers.records import FOREVER, DeliveryRow, Local, MemberPeriod, UnderlayTrace, is_ordered
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text

Arrival = tuple[Local, MemberPeriod]
Sides = tuple[dict[str, list[Range]], dict[str, list[Range]]]  # sender -> numbers, before and after the signal


def classes_of(
    lines: Iterable[tuple[Local, list[MemberPeriod]]], has_components: bool
) -> Iterator[tuple[str, list[Arrival]]]:
    """What goes together: the view that it came from, and the members with their periods of the next one."""
    parts: dict[tuple[str, str, frozenset[str]], list[Arrival]] = {}
    for local, periods in lines:
        for period in periods:
            if period.prev is not None:
                came = frozenset(period.came_with) if has_components else frozenset[str]()
                parts.setdefault((period.prev.view, period.view, came), []).append((local, period))
    for (previous, _, _), part in parts.items():
        yield previous, part


def check_classes(view: str, arrivals: list[MemberPeriod], result: PropertyResult) -> None:
    """All that are named in one `came_with` came from the same view and name the same list."""
    by_member = {period.member: period for period in arrivals}
    pairs = [
        (period, by_member[name])
        for period in sorted(arrivals, key=lambda one: one.member)
        for name in period.came_with
        if name in by_member and name != period.member
    ]
    for period, other in pairs:
        mine, theirs = (one.prev.view if one.prev is not None else None for one in (period, other))
        if mine is None or mine != theirs:
            result.report(
                f"came_with of view {view} at {period.member} (from {mine or 'outside'}) names {other.member}, which "
                f"came from {theirs or 'outside'}",
                member=period.member,
                other=other.member,
                view=view,
            )
            return
    votes = Counter(frozenset(period.came_with) for period in arrivals)
    for pair in pairs:
        if set(pair[0].came_with) == set(pair[1].came_with):
            continue
        # The odd one is the one whose list fewer members have.
        odd, even = sorted(pair, key=lambda one: (votes[frozenset(one.came_with)], len(one.came_with), one.member))
        result.report(
            f"came_with of view {view} is [{' '.join(odd.came_with)}] at {odd.member}, but "
            f"[{' '.join(even.came_with)}] at {even.member}, and one of them names both",
            member=odd.member,
            other=even.member,
            view=view,
        )
        return
    for period in arrivals:
        if period.prev is None and set(period.came_with) != {period.member}:
            result.report(
                f"{period.member} came into view {view} from outside, but names [{' '.join(period.came_with)}] in "
                f"came_with",
                member=period.member,
                view=view,
            )
            return


# The signal ----------------------------------------------------------------------------------------------------------


class _Signals:
    """Where the signal stands in a period, and whether it must be there."""

    __slots__ = ("_known", "underlay")

    def __init__(self, underlay: UnderlayTrace) -> None:
        self.underlay = underlay
        self._known: dict[int, float] = {}  # by id() of a period of a group; the trace keeps it alive

    def place(self, local: Local, period: MemberPeriod) -> float:
        """The event at which a period of the underlay or of a group has its signal."""
        if period.group is None or period.transitional_n < FOREVER or local.host is not None:
            return period.transitional_n
        if id(period) not in self._known:
            self._known[id(period)] = self._place(local, period)
        return self._known[id(period)]

    def _place(self, local: Local, period: MemberPeriod) -> float:
        for here in local.periods:  # the underlay's signal is that of all groups which lose a member
            if period.n < here.transitional_n < period.stop_n and self._loses(here, period):
                return here.transitional_n
        return FOREVER

    def is_due(self, local: Local, period: MemberPeriod) -> bool:
        """Whether a failure took a member away from it."""
        if period.group is None:
            return self._loses(period, period)
        return any(
            here.next is not None and period.n < here.next.n < period.stop_n and self._loses(here, period)
            for here in local.periods
        )

    def _loses(self, here: MemberPeriod, period: MemberPeriod) -> bool:
        """Whether a member of the period is lost where its underlay goes on from `here`."""
        if here.next is None:
            return False
        came = here.next.came_with
        lost = {self.underlay.host(member) for member in period.members} & (set(here.members) - set(came))
        return any(not self._left(node, here.view) for node in lost)

    def _left(self, node: str, view: str) -> bool:
        local = self.underlay.locals.get(node)
        there = next((one for one in local.periods if one.view == view), None) if local is not None else None
        return there is not None and there.cut in ("leave", "stop") and there.transitional_n == FOREVER


def check_signals(underlay: UnderlayTrace, result: PropertyResult) -> None:
    """The signal stands at the same place for all that go together, of the underlay and of each group."""
    signals = _Signals(underlay)
    lines = [(local, local.periods) for local in underlay.nodes]
    for _, part in classes_of(lines, True):
        _check_class(signals, None, part, result)
    by_group: dict[str, list[tuple[Local, list[MemberPeriod]]]] = {}
    for local in underlay.locals.values():
        for group, periods in local.group_periods.items():
            by_group.setdefault(group, []).append((local, periods))
    for group, group_lines in sorted(by_group.items()):
        for _, part in classes_of(group_lines, True):
            if any(local.host is not None for local, _ in part):  # others have the underlay's, which was judged
                _check_class(signals, group, part, result)
    for local in underlay.locals.values():
        if local.periods:
            _check_ghosts(underlay, local, result)
            if local.host is not None:
                _check_endings(local, result)


def _check_class(signals: _Signals, group: str | None, part: list[Arrival], result: PropertyResult) -> None:
    result.checked += 1
    olds = [(local, period.prev) for local, period in part if period.prev is not None]
    places = [signals.place(local, old) for local, old in olds]
    previous, view = olds[0][1].view, part[0][1].view
    what = f"of {group}" if group is not None else f"of {signals.underlay.name}"
    without = [
        local.member
        for (local, _), at in zip(olds, places, strict=True)
        if at == FOREVER and (group is None or local.host is not None)  # a node without it was told of already
    ]
    if without and any(signals.is_due(local, old) for local, old in olds):
        having = [local.member for (local, _), at in zip(olds, places, strict=True) if at < FOREVER]
        result.report(
            f"{', '.join(sorted(without))} went from view {previous} {what} to {view} without the transitional signal, "
            f"though a failure took a member away",
            member=min(without),
            other=min(having, default=None),
            view=previous,
        )
        return
    sides = {
        local.member: _sides(local, old, at) for (local, old), at in zip(olds, places, strict=True) if at < FOREVER
    }
    for one, other, sender, span in _parted(sides):
        result.report(
            f"{one} delivered {span_text(sender, span)} on another side of the transitional signal {what} than "
            f"{other}, with which it went from view {previous} to {view}",
            member=one,
            other=other,
            sender=sender,
            span=span,
            view=previous,
        )
        return


def _sides(local: Local, period: MemberPeriod, signal_n: float) -> Sides:
    """What a member delivered before the signal, and after it."""
    before: dict[str, list[Range]] = {}
    after: dict[str, list[Range]] = {}
    for delivery in filter(is_ordered, local.delivered_in(period)):
        if period.group is None or period.group in (delivery.targets or ()):
            side = before if delivery.n < signal_n else after
            side.setdefault(delivery.sender, []).append(delivery.span)
    return before, after


def _parted(sides: dict[str, Sides]) -> Iterator[tuple[str, str, str, Range]]:
    """Messages before the signal of one member and after that of another: the odd one, the other, the message."""
    senders = sorted({sender for each in sides.values() for side in each for sender in side})
    for sender in senders:
        early = {name: merged(each[0].get(sender, ())) for name, each in sides.items()}
        late = {name: merged(each[1].get(sender, ())) for name, each in sides.items()}
        both = _common(merged(one for ones in early.values() for one in ones), late.values())
        if both:
            first = (both[0][0], both[0][0] + 1)
            before = sorted(name for name, ones in early.items() if not subtract([first], ones))
            after = sorted(name for name, ones in late.items() if not subtract([first], ones))
            odd, others = (before, after) if len(before) < len(after) else (after, before)
            yield odd[0], others[0], sender, both[0]


def _common(one: list[Range], others: Iterable[list[Range]]) -> list[Range]:
    other = merged(span for spans in others for span in spans)
    return subtract(one, subtract(one, other))


def _check_ghosts(underlay: UnderlayTrace, local: Local, result: PropertyResult) -> None:
    """It delivers in views of groups whose members are all hosted in the view of the underlay."""
    known: set[tuple[str, str]] = set()
    for delivery in local.deliveries:
        here = delivery.period
        for group in delivery.targets or () if here is not None and not delivery.tainted else ():
            period = local.group_period_at(group, delivery.n)
            if here is None or period is None or (here.view, period.view) in known:
                continue
            known.add((here.view, period.view))
            gone = [name for name in period.members if underlay.host(name) not in here.members]
            if gone:
                result.report(
                    f"{local.member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n} in view "
                    f"{period.view} of {group}, which names {gone[0]}: its node is not in view {here.view}",
                    member=local.member,
                    other=gone[0],
                    sender=delivery.sender,
                    span=delivery.span,
                    view=period.view,
                )
                return


def _check_endings(local: Local, result: PropertyResult) -> None:
    """After the signal of a group its view ends with that of the underlay."""
    for group, periods in local.group_periods.items():
        for period in periods:
            if period.transitional_n == FOREVER:
                continue
            there = local.period_at(period.transitional_n)
            for delivery in local.delivered_in(period):
                if (
                    period.transitional_n < delivery.n
                    and group in (delivery.targets or ())
                    and delivery.period is not there
                    and not delivery.tainted
                ):
                    result.report(
                        f"{local.member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n} in "
                        f"view {delivery.view}, after the transitional signal of view {period.view} of {group} and "
                        f"before its next view",
                        member=local.member,
                        sender=delivery.sender,
                        span=delivery.span,
                        view=period.view,
                    )
                    break


# Safe delivery and self delivery -------------------------------------------------------------------------------------


class _Owed(NamedTuple):
    """A SAFE message, and who has to deliver it in which view of the underlay."""

    delivery: DeliveryRow
    group: str | None
    view: str  # of the group, or of the underlay
    members: tuple[str, ...]


def check_deliveries(underlay: UnderlayTrace, result: PropertyResult, explained: Explained, *, quiet: bool) -> None:
    """Judge safe delivery and self delivery."""
    _Deliveries(underlay, quiet).check(result, explained)


class _Deliveries:
    """What was delivered in which view of the underlay, by whom."""

    __slots__ = ("by_view", "quiet", "signals", "underlay")

    def __init__(self, underlay: UnderlayTrace, quiet: bool) -> None:
        self.underlay = underlay
        self.quiet = quiet
        self.signals = _Signals(underlay)
        found: dict[tuple[str, str], dict[str, list[Range]]] = {}  # member and view -> sender -> numbers
        for local in underlay.locals.values():
            for delivery in local.deliveries:
                if delivery.period is not None:
                    line = found.setdefault((local.member, delivery.period.view), {})
                    line.setdefault(delivery.sender, []).append(delivery.span)
        self.by_view = {key: {sender: merged(ones) for sender, ones in line.items()} for key, line in found.items()}

    def check(self, result: PropertyResult, explained: Explained) -> None:
        lacks: dict[tuple[str, str, Range], list[str]] = {}
        holder: dict[tuple[str, str, Range], str] = {}
        for owed in self._owed():
            result.checked += 1
            one, here = owed.delivery, owed.delivery.period
            for name in owed.members:
                if here is None or not self._owes(name, here.view, owed):
                    continue
                have = self.by_view.get((name, here.view), {}).get(one.sender, [])
                missing = subtract([one.span], have)
                for span in explained.unexplained(name, self.underlay.name, one.sender, missing):
                    explained.add_missing(name, self.underlay.name, one.sender, [span])
                    lacks.setdefault((here.view, one.sender, span), []).append(name)
                    holder.setdefault((here.view, one.sender, span), one.member)
        for (view, sender, span), names in sorted(lacks.items()):
            had = holder[view, sender, span]
            result.report(
                f"{', '.join(names)} did not deliver {span_text(sender, span)} in view {view}, which {had} delivered "
                f"there as SAFE",
                member=min(names),
                other=had,
                sender=sender,
                span=span,
                view=view,
            )
        self._check_own(result, explained)

    def _owed(self) -> Iterator[_Owed]:
        """Each SAFE message once for each list of members that it is promised to."""
        known: set[tuple[str, Range, str, str, tuple[str, ...]]] = set()
        for local in self.underlay.locals.values():
            for delivery in local.deliveries:
                here = delivery.period
                if delivery.rank != SAFE_RANK or delivery.tainted or here is None:
                    continue
                for period in _periods_of(local, delivery):
                    is_late = self.signals.place(local, period) < delivery.n
                    members = period.members
                    if is_late and here.next is None:
                        continue  # the trace does not say who was to come along
                    if is_late and here.next is not None:
                        came = here.next.came_with
                        members = tuple(name for name in members if self.underlay.host(name) in came)
                    key = delivery.sender, delivery.span, here.view, period.view, members
                    if key not in known:
                        known.add(key)
                        yield _Owed(delivery, period.group, period.view, members)

    def _owes(self, name: str, view: str, owed: _Owed) -> bool:
        local = self.underlay.locals.get(name)
        if local is None or name == owed.delivery.member:
            return False
        if owed.group is not None:
            mine = next((one for one in local.group_periods.get(owed.group, ()) if one.view == owed.view), None)
            if mine is None or mine.cut is not None:
                return False
        return self._is_over(local, view)

    def _is_over(self, local: Local, view: str) -> bool:
        """Whether a member has delivered all that it will in a view of the underlay in which it did not end."""
        there = next((one for one in local.periods if one.view == view), None)
        return there is not None and (there.next is not None or (there.is_open and self.quiet))

    def _check_own(self, result: PropertyResult, explained: Explained) -> None:
        anyone: dict[tuple[str, str], list[Range]] = {}  # sender and view -> numbers
        for local in self.underlay.locals.values():
            for delivery in local.deliveries:
                if delivery.period is not None and delivery.rank >= RELIABLE_RANK and not delivery.tainted:
                    anyone.setdefault((delivery.sender, delivery.period.view), []).append(delivery.span)
        for (sender, view), spans in sorted(anyone.items()):
            source = self.underlay.locals[sender]
            result.checked += 1
            if not self._is_over(source, view):
                continue
            own = source.delivered.get(sender)
            missing = subtract(merged(spans), own.ranges() if own is not None else [])
            there = next(one for one in source.periods if one.view == view)
            due = [
                (max(first, submit.first), min(stop, submit.stop))
                for first, stop in missing
                for submit in source.submits_in(first, stop)
                if submit.rank >= RELIABLE_RANK and source.is_owed(submit.targets, submit.n, there.stop_n)
            ]
            for span in explained.unexplained(sender, self.underlay.name, sender, merged(due)):
                for local in self.underlay.locals.values():  # what its sender lacks, others lack because of that
                    if any(one.view == view for one in local.periods):
                        explained.add_missing(local.member, self.underlay.name, sender, [span])
                result.report(
                    f"{sender} went without its own message {span_text(sender, span)}, which was delivered in view "
                    f"{view}",
                    member=sender,
                    sender=sender,
                    span=span,
                    view=view,
                )


def _periods_of(local: Local, delivery: DeliveryRow) -> list[MemberPeriod]:
    """The group views in which a message was delivered; without lightweight groups the view of the underlay."""
    if delivery.targets == ():
        return [delivery.period] if delivery.period is not None and local.host is None else []
    found = [local.group_period_at(group, delivery.n) for group in delivery.targets or ()]
    return [period for period in found if period is not None]


# The end -------------------------------------------------------------------------------------------------------------


def check_rest(settled: dict[str, Local], result: PropertyResult) -> None:
    """At a quiet end nobody waits between the signal and the view."""
    for local in settled.values():
        waiting = [local.periods[-1]] if local.host is None else list(local.group_current.values())
        for period in waiting:
            result.checked += 1
            if period.transitional_n < FOREVER:
                of = f" of {period.group}" if period.group is not None else ""
                result.report(
                    f"{local.member} is between the transitional signal of view {period.view}{of} and the next view, "
                    f"though the run ended quietly",
                    member=local.member,
                    view=period.view,
                )


__all__ = ["check_classes", "check_deliveries", "check_rest", "check_signals", "classes_of"]
