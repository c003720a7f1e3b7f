"""A small plain checker for the tests: what docs/trace.md says, message by message, with no thought of speed.

It shares no code and no data structure with the SQL checks nor with the simulator's checkers. Every range is taken
apart into single messages. It says which properties a trace violates, and nothing else. Groups are those of the
underlay (no lightweight ones). Forms of rows are not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from ordercast.service import AGREED_RANK, CAUSAL_RANK, FIFO_RANK, RELIABLE_RANK, RESILIENT_RANK, parse_service
from ordercast.trace.schema import Row

MAJORITY_RANK, SAFE_RANK = 6, 7
NEVER = 1 << 62

Message = tuple[str, int]


class Delivered(NamedTuple):
    message: Message
    n: int
    at_ns: int
    rank: int
    k: int
    position: int | None
    view: str | None  # as the row says
    stay: int
    index: int  # type: ignore[assignment]  # of the view in the life's list; -1 outside
    recovered: bool


class View(NamedTuple):
    id: str
    members: tuple[str, ...]
    came_with: tuple[str, ...]
    n: int
    at_ns: int
    stay: int


class Life:
    """One life in one underlay, read event by event."""

    def __init__(self, name: str, rows: list[Row], has_successor: bool) -> None:
        self.name = name
        self.views: list[View] = []
        self.ends: list[tuple[int, int, str]] = []  # per view: n, at_ns, how (next, cut, open)
        self.transitional: dict[int, int] = {}
        self.submits: dict[int, tuple[int, int, int, int]] = {}  # number -> n, at_ns, rank, k
        self.delivered: list[Delivered] = []
        self.held: dict[Message, int] = {}
        self.placed: dict[Message, int] = {}
        self.events: list[tuple[str, object]] = []
        self.confirmed: list[tuple[Message, int, int]] = []
        self.replies: list[tuple[Message, int]] = []
        self.heard: dict[Message, int] = {}
        self.locks: list[tuple[str | None, int, int]] = []
        self.outs: list[tuple[int, int]] = []
        self.gaps: list[tuple[Message, int]] = []
        self.filled: dict[Message, int] = {}
        self.stays = 0
        inside = False
        unlocks: list[tuple[str | None, int, int]] = []
        for row in rows:
            numbers = range(row.first or 0, (row.first or 0) + (row.count or 0))
            service = parse_service(row.service) if row.service else None
            if row.kind == "view":
                if inside:
                    self.ends.append((row.n, row.at_ns, "next"))
                else:
                    self.stays += 1
                inside = True
                self.views.append(
                    View(row.view or "", row.members or (), row.came_with or (), row.n, row.at_ns, self.stays)
                )
                self.events.append(("view", None))
            elif row.kind in ("leave", "stop", "crash"):
                self.outs.append((row.n, row.at_ns))
                if inside:
                    self.ends.append((row.n, row.at_ns, row.kind))
                    self.events.append(("cut", None))
                inside = False
            elif row.kind == "transitional" and inside:
                self.transitional.setdefault(len(self.views) - 1, row.n)
            elif row.kind == "submit" and service is not None:
                for number in numbers:
                    self.submits[number] = row.n, row.at_ns, service.rank, service.k
                    self.events.append(("submit", (name, number)))
            elif row.kind == "deliver" and service is not None:
                at = len(self.views) - 1 if inside else -1
                for number in numbers:
                    message = row.sender or "", number
                    place = None if row.position is None else row.position + number - (row.first or 0)
                    one = Delivered(
                        *(message, row.n, row.at_ns, service.rank, service.k, place, row.view),
                        *(self.stays if inside else 0, at, at in self.transitional),
                    )
                    self.delivered.append(one)
                    self.events.append(("deliver", one))
                    self.heard[message] = min(row.n, self.heard.get(message, NEVER))
                    self.filled[message] = NEVER
            elif row.kind == "redeliver":
                for number in numbers:
                    message = row.sender or "", number
                    self.heard[message] = min(row.n, self.heard.get(message, NEVER))
            elif row.kind in ("hold", "placed"):
                table = self.held if row.kind == "hold" else self.placed
                for number in numbers:
                    table.setdefault((row.sender or "", number), row.at_ns)
                    if row.kind == "hold":
                        self.filled[row.sender or "", number] = NEVER
            elif row.kind == "confirm":
                self.confirmed += [((row.sender or name, number), row.n, row.at_ns) for number in numbers]
            elif row.kind == "reply":
                self.replies.append(((row.sender or "", row.first or 0), row.n))
            elif row.kind == "lock":
                self.locks.append((row.detail, row.n, row.at_ns))
            elif row.kind == "unlock":
                unlocks.append((row.detail, row.n, row.at_ns))
            elif row.kind == "gap":
                self.gaps += [((row.sender or "", number), row.n) for number in numbers]
            elif row.kind == "repaired":
                for number in numbers:
                    self.filled[row.sender or "", number] = max(row.n, self.filled.get((row.sender or "", number), 0))
        if inside:
            self.ends.append((NEVER, NEVER, "gone" if has_successor else "open"))
        self.has = {one.message for one in self.delivered}
        self.held_locks = [
            (
                lock,
                at_ns,
                min(
                    [t for d, m, t in unlocks if d == lock and m > n] + [t for m, t in self.outs if m > n],
                    default=NEVER,
                ),
            )
            for lock, n, at_ns in self.locks
        ]


def violated(
    rows: Iterable[Row], *, clock: str = "virtual", quiet: bool = True, rules: object = "majority"
) -> set[str]:
    """The properties that the trace violates."""
    by_life: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_life[row.node, row.life].append(row)
    underlays = sorted(
        {row.underlay for each in by_life.values() for row in each if row.kind not in ("start", "stop", "crash")}
    )
    found: set[str] = set()
    for underlay in underlays:
        lives: dict[str, Life] = {}
        for (node, life), each in by_life.items():
            mine = [
                row
                for row in sorted(each, key=lambda row: row.n)
                if row.underlay == underlay or row.kind in ("stop", "crash")
            ]
            if any(row.underlay == underlay and row.kind not in ("start", "stop", "crash") for row in mine):
                newer = any(other == node and later > life for other, later in by_life)
                lives[f"{node}/{life}"] = Life(f"{node}/{life}", mine, newer)
        found |= _Judge(lives, clock, quiet, rules).found()
    return found


class _Judge:
    """All properties of one underlay."""

    def __init__(self, lives: dict[str, Life], clock: str, quiet: bool, rules: object) -> None:
        self.lives = lives
        self.timed = clock != "many"
        self.quiet = quiet
        self.rules = rules

    def found(self) -> set[str]:
        checks = {
            "integrity": self.integrity,
            "fifo": self.fifo,
            "causal": self.causal,
            "total_order": self.total_order,
            "virtual_synchrony": self.virtual_synchrony,
            "resilience": self.resilience,
            "liveness": self.liveness,
            "promises": self.promises,
        }
        return {name for name, holds in checks.items() if not holds()}

    def submit_of(self, message: Message) -> tuple[int, int, int, int] | None:
        life = self.lives.get(message[0])
        return life.submits.get(message[1]) if life is not None else None

    def rank_of(self, one: Delivered) -> int:
        submit = self.submit_of(one.message)
        return max(one.rank, submit[2]) if submit is not None else one.rank

    def integrity(self) -> bool:
        for life in self.lives.values():
            if len(life.has) < len(life.delivered):
                return False
            for one in life.delivered:
                submit = self.submit_of(one.message)
                if (
                    submit is None
                    or submit[2] > one.rank
                    or (submit[2] == one.rank == RESILIENT_RANK and submit[3] > one.k)
                ):
                    return False
                own = one.message[0] == life.name
                if submit[0] > one.n if own else self.timed and submit[1] > one.at_ns:
                    return False
            if any(self.submit_of(message) is None for message in life.heard):
                return False
        return True

    def fifo(self) -> bool:
        for life in self.lives.values():
            top: dict[str, Delivered] = {}
            for one in life.delivered:
                sender, number = one.message
                if self.rank_of(one) < FIFO_RANK or self.submit_of(one.message) is None:
                    continue
                last = top.get(sender)
                if last is not None and number < last.message[1]:
                    return False
                if not self._has_no_hole(life, one, last):
                    return False
                top[sender] = one
        return True

    def _has_no_hole(self, life: Life, one: Delivered, last: Delivered | None) -> bool:
        sender, number = one.message
        at = one.index
        if at < 0 or sender not in life.views[at].members:
            return True
        while life.views[at].stay == life.views[at - 1].stay and at > 0 and sender in life.views[at].came_with:
            at -= 1
        start = life.views[at]
        if last is not None and last.n >= start.n:
            low = last.message[1] + 1
        else:
            theirs = next((view for view in self.lives[sender].views if view.id == start.id), None)
            if theirs is None:
                return True
            low = min((m for m, submit in self.lives[sender].submits.items() if submit[0] > theirs.n), default=number)
            low = max(low, last.message[1] + 1 if last is not None else 0)
        return all(
            (sender, each) in life.has or self.lives[sender].submits[each][2] < FIFO_RANK for each in range(low, number)
        )

    def causal(self) -> bool:
        """The past of each message as a set; deliveries wait for the past of what they deliver."""
        past: dict[Message, frozenset[Message]] = {}
        state = {name: (0, frozenset[Message](), frozenset[Message]()) for name in self.lives}  # at, knows, saved
        seen: dict[str, list[Message]] = {name: [] for name in self.lives}
        moved, holds = True, True
        while moved:
            moved = False
            for name, life in self.lives.items():
                at, knows, saved = state[name]
                while at < len(life.events):
                    kind, what = life.events[at]
                    if kind == "submit":
                        message = what
                        if life.submits[message[1]][2] >= CAUSAL_RANK:  # type: ignore[index]
                            past[message] = knows  # type: ignore[index]
                            knows |= {message}  # type: ignore[arg-type]
                    elif kind == "deliver" and self.rank_of(what) >= CAUSAL_RANK:  # type: ignore[arg-type]
                        message = what.message  # type: ignore[attr-defined]
                        submit = self.submit_of(message)
                        if submit is not None and submit[2] >= CAUSAL_RANK:
                            if message not in past:
                                break
                            if any(message in past[effect] and effect[0] != message[0] for effect in seen[name]):
                                holds = False
                            seen[name].append(message)
                            knows |= past[message] | {message}
                    elif kind == "view":
                        saved = knows
                    elif kind == "cut":
                        knows = saved | {one for one in knows if one[0] == name}
                    at += 1
                moved = moved or at > state[name][0]
                state[name] = at, knows, saved
        return holds

    def ordered(self, life: Life) -> list[Delivered]:
        return [one for one in life.delivered if self.rank_of(one) >= AGREED_RANK and one.position is not None]

    def total_order(self) -> bool:
        at: dict[tuple[str | None, int | None], Message] = {}
        place: dict[tuple[str | None, Message], int | None] = {}
        for life in self.lives.values():
            top: dict[int, int] = {}
            for one in self.ordered(life):
                if at.setdefault((one.view, one.position), one.message) != one.message:
                    return False
                if place.setdefault((one.view, one.message), one.position) != one.position:
                    return False
                if (one.position or 0) < top.get(one.stay, -1):
                    return False
                top[one.stay] = one.position or 0
        least = MAJORITY_RANK if self._only_majorities() else SAFE_RANK
        strong = {
            name: [one.message for one in self.ordered(life) if self.rank_of(one) >= least]
            for name, life in self.lives.items()
        }
        for left, right in combinations(strong.values(), 2):
            both = set(left) & set(right)
            if [one for one in left if one in both] != [one for one in right if one in both]:
                return False
        return True

    def _only_majorities(self) -> bool:
        for life in self.lives.values():
            for index, view in enumerate(life.views[:-1]):
                after = life.views[index + 1]
                if after.stay != view.stay:
                    continue
                stayed = [one for one in view.members if one in after.came_with]
                if 2 * len(stayed) > len(view.members) or (
                    2 * len(stayed) == len(view.members) and view.members[0] in stayed
                ):
                    continue
                if index in life.transitional:
                    return False
                for name in set(view.members) - set(stayed):
                    other = self.lives.get(name)
                    index_there = (
                        next((i for i, one in enumerate(other.views) if one.id == view.id), -1) if other else -1
                    )
                    if other is None or index_there < 0 or other.ends[index_there][2] not in ("leave", "stop"):
                        return False
                    if index_there in other.transitional:
                        return False
        return True

    def virtual_synchrony(self) -> bool:
        lists: dict[str, tuple[str, ...]] = {}
        came_from: dict[str, dict[str, str | None]] = defaultdict(dict)
        for name, life in self.lives.items():
            for one in life.delivered:
                if one.index < 0 or (one.view is not None and one.view != life.views[one.index].id):
                    return False
            for index, view in enumerate(life.views):
                if lists.setdefault(view.id, view.members) != view.members:
                    return False
                before = life.views[index - 1] if index and life.views[index - 1].stay == view.stay else None
                came_from[view.id][name] = before.id if before is not None else None
        for life in self.lives.values():
            for view in life.views:
                mine = came_from[view.id][life.name]
                for other, theirs in came_from[view.id].items():
                    if other != life.name and (mine is not None and mine == theirs) != (other in view.came_with):
                        return False
                known = set(came_from[view.id]) - {life.name}
                if mine is None and set(view.came_with) - {life.name} and not set(view.came_with) & known:
                    return False
        return self._same_sets(came_from) and self._one_order() and not self._forks()

    def _same_sets(self, came_from: Mapping[str, Mapping[str, str | None]]) -> bool:
        for arrivals in came_from.values():
            for old in {before for before in arrivals.values() if before is not None}:
                sets = [
                    {
                        one.message
                        for one in self.ordered(self.lives[name])
                        if one.index >= 0 and self.lives[name].views[one.index].id == old
                    }
                    for name, before in arrivals.items()
                    if before == old
                ]
                if any(each != sets[0] for each in sets):
                    return False
        return True

    def _one_order(self) -> bool:
        after: dict[str, set[str]] = defaultdict(set)
        for life in self.lives.values():
            for left, right in zip(life.views, life.views[1:], strict=False):
                after[left.id].add(right.id)
        return not any(view in self._routes(after, view) for view in list(after))

    def _routes(self, after: Mapping[str, set[str]], view: str) -> set[str]:
        known: set[str] = set()
        left = list(after.get(view, ()))
        while left:
            one = left.pop()
            if one not in known:
                known.add(one)
                left += after.get(one, ())
        return known

    def _before(self) -> dict[str, set[str]]:
        before: dict[str, set[str]] = defaultdict(set)
        for life in self.lives.values():
            for left, right in zip(life.views, life.views[1:], strict=False):
                if left.stay == right.stay:
                    before[right.id].add(left.id)
        return before

    def rule(self, name: str) -> object:
        return self.rules.get(name.rpartition("/")[0], "majority") if isinstance(self.rules, Mapping) else self.rules

    def _is_strict(self, members: tuple[str, ...]) -> bool:
        return any(
            rule in ("majority", "all") or (isinstance(rule, int) and 2 * rule > len(members))
            for rule in map(self.rule, members)
        )

    def _forks(self) -> bool:
        before = self._before()
        members = {view.id: view.members for life in self.lives.values() for view in life.views}
        ends = set()
        for life in self.lives.values():
            for index, view in enumerate(life.views[1:], 1):
                old = life.views[index - 1]
                if old.stay == view.stay and index - 1 in life.transitional and self._is_strict(old.members):
                    ends.add(view.id)
        for left, right in combinations(sorted(ends), 2):
            left_line, right_line = self._routes(before, left) | {left}, self._routes(before, right) | {right}
            common = left_line & right_line
            if not common or left in right_line or right in left_line:
                continue
            last = [view for view in common if not any(view in self._routes(before, other) for other in common)]
            if any(self._is_strict(members[view]) for view in last):
                return True
        return False

    def resilience(self) -> bool:
        if not self.timed:
            return True
        for life in self.lives.values():
            for one in life.delivered:
                rank = self.rank_of(one)
                if rank < RESILIENT_RANK or one.index < 0 or self.submit_of(one.message) is None:
                    continue
                members = life.views[one.index].members
                if one.recovered:
                    if life.ends[one.index][2] != "next":
                        continue
                    members = life.views[one.index + 1].came_with
                have = set()
                for name in members:
                    other = self.lives.get(name)
                    if other is None or other.held.get(one.message, NEVER) > one.at_ns:
                        continue
                    if rank == RESILIENT_RANK or other.placed.get(one.message, NEVER) <= one.at_ns:
                        have.add(name)
                k = (self.submit_of(one.message) or (0, 0, 0, one.k))[3]
                if rank == SAFE_RANK:
                    enough = len(have) == len(members)
                elif rank == MAJORITY_RANK:
                    enough = 2 * len(have) > len(members)
                else:
                    enough = len(have - {life.name}) >= min(k, len(members) - 1)
                if not enough:
                    return False
        return True

    def settled(self) -> dict[str, Life]:
        busy = NEVER
        if self.timed:
            busy = max(
                [one.at_ns for life in self.lives.values() for one in life.delivered]
                + [submit[1] for life in self.lives.values() for submit in life.submits.values()],
                default=-1,
            )
        last: dict[str, list[str]] = defaultdict(list)
        for name, life in self.lives.items():
            if life.views and (life.ends[-1][2] == "open" or (life.ends[-1][2] == "stop" and life.ends[-1][1] > busy)):
                last[life.views[-1].id].append(name)
        found = {}
        for present in last.values():
            members = self.lives[present[0]].views[-1].members
            if all(self._is_enough(members, present, rule) for rule in map(self.rule, members)):
                found.update({name: self.lives[name] for name in present})
        return found

    def _is_enough(self, members: tuple[str, ...], present: list[str], rule: object) -> bool:
        if rule == "all":
            return len(present) >= len(members)
        if isinstance(rule, int):
            return len(present) >= min(rule, len(members))
        return 2 * len(present) > len(members) or (2 * len(present) == len(members) and members[0] in present)

    def stay(self, life: Life) -> list[View]:
        return [view for view in life.views if view.stay == life.views[-1].stay]

    def liveness(self) -> bool:
        if not self.quiet:
            return True
        settled = self.settled()
        first_view: dict[Message, set[str]] = defaultdict(set)
        for life in self.lives.values():
            for one in life.delivered:
                if one.index >= 0:
                    first_view[one.message].add(life.views[one.index].id)
        for source in settled.values():
            path = self.stay(source)
            for number, submit in source.submits.items():
                if submit[0] < path[0].n or submit[2] < RELIABLE_RANK:
                    continue
                message = source.name, number
                for life in settled.values():
                    theirs = self.stay(life)
                    if theirs[-1].id != path[-1].id or message in life.has:
                        continue
                    common = 0
                    while common < min(len(path), len(theirs)) and path[-1 - common].id == theirs[-1 - common].id:
                        common += 1
                    earlier = {view.id for view in path[: len(path) - common]}
                    if first_view[message] & earlier:
                        continue
                    if earlier and not first_view[message] and submit[0] < path[len(path) - common].n:
                        continue
                    return False
        return self._callers_reached_all(settled) and self._no_gap(settled)

    def _callers_reached_all(self, settled: dict[str, Life]) -> bool:
        for source in self.lives.values():
            if source.views or not source.submits:
                continue
            for life in settled.values():
                views = {view.id for view in self.stay(life)}
                for one in life.delivered:
                    if one.message[0] != source.name or self.rank_of(one) < RELIABLE_RANK or one.index < 0:
                        continue
                    view = life.views[one.index].id
                    for other in settled.values():
                        if (
                            view in views
                            and view in {each.id for each in self.stay(other)}
                            and one.message not in other.has
                        ):
                            return False
        return True

    def _no_gap(self, settled: dict[str, Life]) -> bool:
        for life in settled.values():
            path = self.stay(life)
            for message, n in life.gaps:
                if n < path[0].n or life.filled.get(message, -1) > n:
                    continue
                noticed = max((index for index, view in enumerate(life.views) if view.n < n), default=0)
                later = life.views[noticed + 1 :]
                if later and not (
                    all(message[0] in view.came_with for view in later) and message[0] in life.views[-1].members
                ):
                    continue
                submit = self.submit_of(message)
                if submit is None or submit[2] >= RELIABLE_RANK:
                    return False
        return True

    def promises(self) -> bool:
        settled = self.settled() if self.quiet else {}
        for life in self.lives.values():
            for message, n, at_ns in life.confirmed:
                submit = self.submit_of(message)
                if submit is None or submit[2] < RELIABLE_RANK:
                    continue
                outside = not self.lives[message[0]].views
                times = [
                    one.at_ns for other in self.lives.values() for one in other.delivered if one.message == message
                ]
                if not times or (outside and self.timed and min(times) > at_ns):
                    return False
                if submit[2] >= RESILIENT_RANK and not self._kept(message, submit, n, settled):
                    return False
        return self._locks_are_single() and self._answers_are_single()

    def _kept(self, message: Message, submit: tuple[int, int, int, int], n: int, settled: dict[str, Life]) -> bool:
        source = self.lives[message[0]]
        own = next((one for one in source.delivered if one.message == message), None)
        if own is not None:
            view = source.views[own.index].id if own.index >= 0 else None
        else:
            inside = [at for at, each in enumerate(source.views) if each.n < n < source.ends[at][0]]
            if inside:
                view = source.views[inside[-1]].id
            else:
                seen = [
                    life.views[one.index]
                    for life in self.lives.values()
                    for one in life.delivered
                    if one.message == message and one.index >= 0
                ]
                view = min(seen, key=lambda each: each.at_ns).id if seen else None
        for life in settled.values():
            index = next((at for at, each in enumerate(life.views) if each.id == view), -1)
            if index < 0 or life.views[index].stay != life.views[-1].stay or index == len(life.views) - 1:
                continue
            few = True
            for left, right in zip(life.views[index:], life.views[index + 1 :], strict=False):
                lost = sum(name not in right.came_with for name in left.members)
                size = len(left.members)
                few &= lost <= (
                    size - 1 if submit[2] == SAFE_RANK else size // 2 if submit[2] == MAJORITY_RANK else submit[3]
                )
            if few and message not in life.has:
                return False
        return True

    def _locks_are_single(self) -> bool:
        held = [(lock, begin, end, life) for life in self.lives.values() for lock, begin, end in life.held_locks]
        for one, other in combinations(held, 2):
            if one[0] != other[0] or one[3] is other[3]:
                continue
            if not self.timed:
                if one[2] == other[2] == NEVER and self._see(one[3], other[3], NEVER):
                    return False
                continue
            begin = max(one[1], other[1])
            if begin < min(one[2], other[2]) and self._see(one[3], other[3], begin):
                return False
        return True

    def _see(self, one: Life, other: Life, at_ns: int) -> bool:
        def sees(left: Life, right: Life) -> bool:
            here = [view for view in left.views if view.at_ns <= at_ns]
            return not left.views or (bool(here) and right.name in here[-1].members)

        return sees(one, other) and sees(other, one)

    def _answers_are_single(self) -> bool:
        given: dict[Message, list[tuple[Life, int]]] = defaultdict(list)
        before = self._before()
        for life in self.lives.values():
            for message, n in life.replies:
                heard = life.heard.get(message, NEVER)
                if heard > n:
                    return False
                at = max(
                    (index for index, view in enumerate(life.views) if view.n < min(heard, n) < life.ends[index][0]),
                    default=-1,
                )
                for other, other_at in given[message]:
                    if not self._parted(before, other, other_at, life, at):
                        return False
                given[message].append((life, at))
        return True

    def _parted(self, before: Mapping[str, set[str]], one: Life, at: int, other: Life, other_at: int) -> bool:
        if at < 0 or other_at < 0 or one is other:
            return False
        left, right = one.views[at], other.views[other_at]
        if left.id == right.id:
            return False
        for life, index, view in ((one, at, right.id), (other, other_at, left.id)):
            stay = life.views[index].stay
            if any(each.id == view for each in life.views[index + 1 :] if each.stay == stay):
                return False
        shared = (self._routes(before, left.id) | {left.id}) & (self._routes(before, right.id) | {right.id})
        if not shared:
            return True
        last = next(
            view for view in shared if not any(view in self._routes(before, each) for each in shared if each != view)
        )
        members = next(view.members for life in self.lives.values() for view in life.views if view.id == last)
        return not self._is_strict(members)
