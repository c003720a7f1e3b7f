"""The index that all checkers share: rows by node life, views as periods of its time, messages as ranges.

Built once per trace. How the columns of docs/trace.md are read:

- A member is `name/life`. The events of a life are taken in the order of `n`, whatever order the rows come in.
- A *period* is what lies between the `view` row of an underlay and the next one at the same life. It is cut off by
  `leave`, `stop`, `crash`, or by a later life of the same node; otherwise the last one is open. Periods that follow
  one another without a cut form a *stay*: `prev` and `next` link them, and nothing links across a cut, because a
  member that left comes back as a joiner.
- A group with an underlay of its own bears the underlay's name, and every member gets every message. A group of any
  other name, or with a `view` row of its own, is *lightweight*: its members are those of its views, and without a view
  it has none. `join`, `leave` and `transitional` that name no lightweight group are those of the underlay. Where there
  are lightweight groups, a message whose row names no group (it mixes them) has unknown targets and is never said to be
  owed to anyone.
- A *session* `client@daemon` writes views of groups but none of the underlay: it is in those of its daemon, which
  `sessions.py` finds. Of a session whose daemon is not in the trace they are not known.
- What a message was asked to be is said by its `submit`. A delivery may claim more (CAUSAL delivered as AGREED),
  never less.
- Rows of regions (underlays `regions` and `region/N`) are not here: `region_records.py` has an index of their own.
- A delivery that property 1 rejects (spurious, twice, to groups that the life is not in) is *tainted* here and ignored
  by every later property. One that names other groups than its submit is judged on as if it named those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from ordercast.service import RESILIENT_RANK, parse_service
from ordercast.sim.checkers.ranges import Range, RangeSet
from ordercast.sim.checkers.records import (
    EVERYONE,
    FOREVER,
    UNKNOWN,
    DeliveryRow,
    Departure,
    Local,
    MemberPeriod,
    Submit,
    Targets,
    UnderlayTrace,
)
from ordercast.sim.checkers.sessions import seat_session
from ordercast.sim.checkers.verdict import split_member
from ordercast.trace.naming import is_regional
from ordercast.trace.schema import Row


class Trace:
    """The index. `problems` of property 1 are found while it is built, since they decide what the others look at."""

    __slots__ = (
        "_services",
        "delivery_rows",
        "duplicates",
        "has_regions",
        "lives",
        "misnamed",
        "row_count",
        "spurious",
        "strays",
        "underlays",
        "weakened",
    )

    def __init__(self, rows: Iterable[Row]) -> None:
        self.lives: dict[tuple[str, int], list[Row]] = {}
        self.underlays: dict[str, UnderlayTrace] = {}
        self.row_count = 0
        self.has_regions = False
        self.spurious: list[tuple[DeliveryRow, UnderlayTrace]] = []
        self.duplicates: list[tuple[DeliveryRow, UnderlayTrace, Range]] = []
        self.weakened: list[tuple[DeliveryRow, UnderlayTrace, Submit]] = []
        self.misnamed: list[tuple[DeliveryRow, UnderlayTrace, Submit]] = []
        self.strays: list[tuple[DeliveryRow, UnderlayTrace]] = []
        self.delivery_rows = 0
        self._services: dict[str | None, tuple[int, int] | None] = {None: None}
        self._group(rows)
        newest: dict[str, int] = {}
        for node, life in self.lives:
            newest[node] = max(newest.get(node, life), life)
        for (node, life), life_rows in self.lives.items():
            self._walk(f"{node}/{life}", life_rows, is_gone=life < newest[node])
        for underlay in self.underlays.values():
            self._seat(underlay)
            self._taint(underlay)

    def service(self, text: str | None) -> tuple[int, int] | None:
        """Rank and k of a service's text, or None if it is none."""
        try:
            return self._services[text]
        except KeyError:
            pass
        parsed: tuple[int, int] | None = None
        try:
            service = parse_service(str(text))
            parsed = service.rank, service.k
        except ValueError:
            parsed = None
        self._services[text] = parsed
        return parsed

    def _group(self, rows: Iterable[Row]) -> None:
        lives = self.lives
        last_key: tuple[str, int] | None = None
        bucket: list[Row] = []
        count = 0
        for row in rows:
            key = row[0], row[1]
            count += 1
            if key != last_key:
                last_key = key
                bucket = lives.setdefault(key, [])
            bucket.append(row)
            if row[6] is not None:
                if (row[6] != row[5] or row[4] == "view") and not is_regional(row[5]):
                    self._underlay(row[5]).lightweight.add(row[6])
            elif row[7] and not is_regional(row[5]):
                self._underlay(row[5]).lightweight.update(row[7])
        self.row_count = count
        for bucket in lives.values():
            if any(left[2] > right[2] for left, right in pairwise(bucket)):
                bucket.sort(key=lambda row: row[2])

    def _underlay(self, name: str) -> UnderlayTrace:
        found = self.underlays.get(name)
        if found is None:
            found = self.underlays[name] = UnderlayTrace(name)
        return found

    def _walk(self, member: str, rows: list[Row], *, is_gone: bool) -> None:
        # Hot: one step per row (benchmark: test_checkers_speed). Plain indexes, since a field of a NamedTuple costs
        # more: 3 at_ns, 5 underlay, 6 group, 7 groups, 8 view, 11 sender, 12 first, 13 count, 14 service, 15 position.
        services = self._services
        locals_here: dict[str, Local] = {}
        targets_of: dict[tuple[str, str | None, tuple[str, ...] | None], Targets] = {}
        for row in rows:
            kind = row[4]
            if kind == "tx" or kind == "rx":
                continue
            name = row[5]
            local = locals_here.get(name)
            if local is None:
                if kind in ("start", "stop", "crash"):
                    for each in locals_here.values():
                        if kind != "start":
                            self._leave(each, row[2], row[3], kind)
                    continue
                if is_regional(name):
                    self.has_regions = True
                    continue
                underlay = self._underlay(name)
                local = locals_here[name] = underlay.locals[member] = Local(member, name)
            sender, first, count = row[11], row[12], row[13]
            if kind == "hold" or kind == "placed":
                if sender is not None and first is not None and count is not None:
                    table = local.holds if kind == "hold" else local.placed
                    spans = table.get(sender)
                    if spans is None:
                        spans = table[sender] = []
                    spans.append((first, first + count, row[3]))
            elif kind == "deliver" or kind == "submit":
                if kind == "submit" and sender is None:
                    sender = member
                service = services.get(row[14]) or self.service(row[14])
                if sender is None or first is None or count is None or first < 0 or count < 1 or service is None:
                    continue  # the well_formed checker names it
                key = name, row[6], row[7]
                try:
                    targets = targets_of[key]
                except KeyError:
                    targets = targets_of[key] = self._targets(*key)
                if kind == "submit":
                    if local.submits and first < local.submits[-1].stop:
                        continue  # numbers given twice: the well_formed checker names it
                    submit = Submit(row[2], row[3], first, first + count, service[0], service[1], targets)
                    local.submits.append(submit)
                    local.submit_firsts.append(first)
                    local.events.append(submit)
                    continue
                current = local.current
                delivery = DeliveryRow(
                    member,
                    row[2],
                    row[3],
                    sender,
                    first,
                    first + count,
                    service[0],
                    service[1],
                    row[15],
                    row[8],
                    current,
                    targets,
                    current is not None and current.transitional_n < FOREVER,
                )
                local.deliveries.append(delivery)
                local.events.append(delivery)
                if current is not None:
                    current.deliveries.append(delivery)
            elif kind == "view":
                self._view(local, row)
            elif kind == "transitional":
                group = row[6]
                is_own = group not in self.underlays[name].lightweight
                current = local.current if is_own else local.group_current.get(str(group))
                if current is not None:
                    current.transitional_n = min(current.transitional_n, row[2])
                    current.signals.append(row[2])
            elif kind == "join":
                if row[6] in self.underlays[name].lightweight:
                    self._enter_group(local, str(row[6]), row[2], row[3])
            elif kind == "leave":
                if row[6] in self.underlays[name].lightweight:
                    self._leave_group(local, str(row[6]), row[2], row[3], "leave")
                else:
                    self._leave(local, row[2], row[3], "leave")
            elif kind == "stop" or kind == "crash":
                for each in locals_here.values():
                    self._leave(each, row[2], row[3], kind)
            elif kind == "confirm":
                local.confirms.append(row)
            elif kind == "lock":
                local.locks.append(row)
            elif kind == "unlock":
                local.unlocks.append(row)
            elif kind == "reply":
                local.replies.append(row)
            elif kind == "redeliver":
                local.redeliveries.append(row)
            elif kind == "gap":
                local.gaps.append(row)
            elif kind == "repaired":
                local.repaired.append(row)
        if is_gone and rows:
            for each in locals_here.values():
                self._leave(each, rows[-1][2] + 1, rows[-1][3], "gone")

    def _targets(self, name: str, group: str | None, groups: tuple[str, ...] | None) -> Targets:
        lightweight = self.underlays[name].lightweight
        if not lightweight:
            return EVERYONE
        named = tuple(groups) if groups else (group,) if group is not None else None
        if named is None:
            return UNKNOWN
        return named if all(each in lightweight for each in named) else EVERYONE  # the underlay's own name

    def _view(self, local: Local, row: Row) -> None:
        if row.view is None or not row.members:
            return
        members, came_with = tuple(row.members), tuple(row.came_with or ())
        if row.group is not None:
            before = local.group_current.get(row.group)
            self._enter_group(local, row.group, row.n, row.at_ns)
            line = local.group_periods.setdefault(row.group, [])
            period = MemberPeriod(
                local.member, row.group, row.view, members, came_with, row.n, row.at_ns, before, local.stays
            )
            local.group_current[row.group] = period
            line.append(period)
        else:
            before = local.current
            if before is None:
                local.stays += 1
            period = MemberPeriod(
                local.member,
                None,
                row.view,
                members,
                came_with,
                row.n,
                row.at_ns,
                before,
                local.stays,
                row.detail or "",
            )
            local.current = period
            local.periods.append(period)
            local.events.append(period)
        if before is not None:
            before.next = period
            before.stop_n = row.n
            before.end_ns = row.at_ns

    def _enter_group(self, local: Local, group: str, n: int, at_ns: int) -> None:
        spans = local.group_spans.setdefault(group, [])
        if not spans or spans[-1][1] != FOREVER:
            spans.append([n, FOREVER, at_ns])

    def _leave_group(self, local: Local, group: str, n: int, at_ns: int, cut: str) -> None:
        spans = local.group_spans.get(group)
        if spans and spans[-1][1] == FOREVER:
            spans[-1][1] = n
        period = local.group_current.pop(group, None)
        if period is not None:
            period.stop_n, period.end_ns, period.cut = n, at_ns, cut

    def _leave(self, local: Local, n: int, at_ns: int, cut: str) -> None:
        local.cuts.append((n, at_ns))
        for group in list(local.group_spans):
            self._leave_group(local, group, n, at_ns, cut)
        if local.current is not None:
            local.current.stop_n, local.current.end_ns, local.current.cut = n, at_ns, cut
            local.current = None
            local.events.append(Departure(n))

    def _seat(self, underlay: UnderlayTrace) -> None:
        """Find the views of sessions. What a daemon's end cuts off, its sessions lose as well."""
        for member, local in underlay.locals.items():
            name, life = split_member(member)
            if "@" not in name or not seat_session(underlay, local, self.lives[name, life or 0]):
                continue
            last = local.periods[-1] if local.periods else None
            if last is not None and last.cut is not None and last.stop_n != int(last.stop_n):
                self._leave(local, int(last.stop_n) + 1, last.end_ns, last.cut)

    def _taint(self, underlay: UnderlayTrace) -> None:
        senders = {
            member: (local, local.submits[-1].stop) for member, local in underlay.locals.items() if local.submits
        }
        for local in underlay.locals.values():
            delivered = local.delivered
            self.delivery_rows += len(local.deliveries)
            for delivery in local.deliveries:
                found = senders.get(delivery.sender)
                if found is None or delivery.stop > found[1] or delivery.first < found[0].submit_firsts[0]:
                    delivery.tainted = True
                    self.spurious.append((delivery, underlay))
                    continue
                spans = delivered.get(delivery.sender)
                if spans is None:
                    spans = delivered[delivery.sender] = RangeSet()
                twice = spans.add(delivery.first, delivery.stop)
                if twice is not None:
                    delivery.tainted = True
                    self.duplicates.append((delivery, underlay, twice))
                    continue
                index = bisect_right(found[0].submit_firsts, delivery.first) - 1
                delivery.submit = index
                submit = found[0].submits[index]
                if submit.stop <= delivery.first:
                    delivery.tainted = True  # a hole among the submits, which the well_formed checker names
                    delivery.submit = -1
                    continue
                if submit.rank > delivery.rank:
                    self.weakened.append((delivery, underlay, submit))
                    delivery.rank = submit.rank
                if delivery.rank == RESILIENT_RANK and submit.rank == RESILIENT_RANK:
                    if submit.k > delivery.k:
                        self.weakened.append((delivery, underlay, submit))
                    delivery.k = submit.k
                if delivery.targets is None:
                    delivery.targets = submit.targets if delivery.stop <= submit.stop else None
                if underlay.lightweight:
                    self._address(local, delivery, underlay, found[0])

    def _address(self, local: Local, delivery: DeliveryRow, underlay: UnderlayTrace, source: Local) -> None:
        """Compare the groups that a delivery names with those of its submits, and with those that the life is in."""
        targets = delivery.targets
        if targets is None:
            return
        for submit in source.submits_in(delivery.first, delivery.stop):
            if submit.targets is not None and set(submit.targets) != set(targets):
                self.misnamed.append((delivery, underlay, submit))
                delivery.targets = targets = submit.targets
                break
        if targets and not any(local.group_period_at(group, delivery.n) is not None for group in targets):
            delivery.tainted = True
            self.strays.append((delivery, underlay))
