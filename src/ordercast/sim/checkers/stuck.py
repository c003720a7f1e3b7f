"""Whether a group that stands still may do so: decided from lives, views and faults, and from nothing of the engines.

Views form a chain, and the members of each view decide the next one (docs/design/membership.md). When all links work
again, the lives that are up must go on, unless they are no quorum of a view that the chain may have. There are four
such views, and so four reasons (`Excuse`). Each is a sentence:

- *Too few of the last view*: the last view that any life installed, dead or alive, is decided. Lives that are no quorum
  of it may not go on. Members that finished their leave without trouble are out of it: what they waited for is that the
  view without them is decided.
- *A join under way*: a life that is dead now asked to join and may have been ordered into the view; its view may be
  decided although nobody installed it. A life that cancelled its join and is up is not dead: it votes until its leave
  is finished. The same holds for a last view that only dead lives installed after a join: no life that is up needs to
  know that it is decided, so the view before it counts as well.
- *A leave under way*: the same for a leave, also where the leaver was restarted: it may have kept the view without it.
  A member that gave its leave up because nobody answered it for long counts as crashed. So does one that left while all
  others were down, and was gone when they were restarted.
- *A proposal under way*: a recovery may have proposed a view to some of the members while the rest did not answer, and
  one life that is up may have accepted it. That needs a failure after another one: some of the proposed members died
  after the recovery began.

Only what happened since the group was last whole and at peace can be under way (`_Lives.storm_ns`). At most one change
follows the last installed view: the next one is ordered only when this one is known to be decided, and then it is
installed. Lives without a view are no reason to stand still: where no life that wants to be in stands on a chain, they
must make a new group, and where one of several chains can go on, all must come to it. A life stands on a chain while it
is in one of its views, or in none because a view of it names it already. That may be one which nobody installed: a life
that came in (a `join` row) and has installed nothing stands on the chains of the members that can have let it in.
One that left, and crashed while it still served, has kept its last view: its next life stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from itertools import combinations
from typing import Final, NamedTuple

from ordercast.config import MS, SECOND
from ordercast.sim.checkers.chain import InstalledView, chain_of, installed_views
from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.views import Rules, may_go_on
from ordercast.trace.schema import Row

CALM_NS: Final = 10 * SECOND
"""A group that is whole and has seen nothing happen for so long has nothing open: silence is noticed after 5 s at most,
and a recovery takes less than the rest."""
SUSPECT_NS: Final = 500 * MS
"""Shorter silence leads to no recovery, and keeps no leaver from being answered."""
ANSWER_NS: Final = 1 * SECOND
"""A coordinator may have stopped waiting for a member so long before it answers again."""
RECOVERY_NS: Final = 10 * SECOND
"""How long after the end of a failure a recovery from it may still be under way."""
NOTICED_NS: Final = 7 * SECOND
"""So long after a crash the others have suspected the dead member, also at rest, and have begun to recover."""
LINGER_NS: Final = 4 * SECOND
"""How long a leaver or a cancelled join serves at most, and a little more."""
PATIENCE_NS: Final = 1 * SECOND
"""A leaver votes and serves until it is not needed. It gives up after a while, but not sooner than this after it asked,
however long its group has not worked. Where recovery is manual it may do so as soon as the group has failed."""
FORGET_NS: Final = 5 * SECOND
"""After so long nobody orders a join that its asker no longer repeats."""
SERVED_NS: Final = 3 * SECOND
"""How long a leaver serves at least, if its question is not answered."""
QUESTION_NS: Final = 400 * MS
"""In so long a question comes through that is repeated twice as often at least."""
MAX_ABSENT: Final = 8
"""Of so many members in trouble all subsets are tried as those that a proposal leaves out; of more only all of them."""


class Excuse(StrEnum):
    """Why a group may stand still."""

    TOO_FEW = "too few of the last view"
    JOIN = "a join under way"
    LEAVE = "a leave under way"
    PROPOSAL = "a proposal under way"


@dataclass(frozen=True, slots=True)
class Wish:
    """An application asks to join or to leave."""

    at_ns: int
    is_join: bool


@dataclass(frozen=True, slots=True)
class LifeSpan:
    """One life of a node, from its start to its crash, and what its application asked for. `member` is name/life."""

    member: str
    began_ns: int
    ended_ns: int = FOREVER  # FOREVER: it is up at the end
    wishes: tuple[Wish, ...] = ()
    is_wanted: bool = True  # at the end: its application wants to be in
    former: str = ""  # the life before it, if this one began with what that one had kept: it has its vote

    @property
    def is_up(self) -> bool:
        return self.ended_ns == FOREVER


@dataclass(frozen=True, slots=True)
class Trouble:
    """A time in which these nodes may not have answered some others: a pause, a cut, a partition, loss. Crashes are the
    ends of lives."""

    begin_ns: int
    end_ns: int
    nodes: frozenset[str]
    is_pause: bool = False  # their processes stood still: they answered nobody
    side: frozenset[str] = frozenset()  # one side of a partition: nothing passed between it and the others

    def separates(self, member: str, host: str) -> bool:
        """Whether nothing that one life said can have been answered by the other."""
        name, other = member.rpartition("/")[0], host.rpartition("/")[0]
        return (self.is_pause and other in self.nodes) or (name in self.side) != (other in self.side)


def excuse_of(
    rows: Iterable[Row],
    lives: Sequence[LifeSpan],
    troubles: Sequence[Trouble],
    rules: Rules,
    *,
    is_manual: bool = False,
) -> Excuse | None:
    """Why the lives that are up may stand still at the end of a run whose faults have ended; None: they may not.

    `is_manual`: applications call for recoveries, so a leave in a group that has failed ends at once.
    """
    facts = _Lives(rows, lives, troubles, patience_ns=0 if is_manual else PATIENCE_NS)
    found: list[Excuse] = []
    for view in facts.last_views():
        excuse = _Judgement(facts, view, rules).excuse()
        if excuse is None:
            return None
        found.append(excuse)
    return min(found, key=list(Excuse).index, default=None)


# Facts. --------------------------------------------------------------------------------------------------------------


class _Phase(Enum):
    ASKING = auto()  # outside, and wants to join
    IN = auto()
    LEFT = auto()  # was in, asked to leave, and is out
    CANCELLED = auto()  # asked to leave before it was in


class _Departure(NamedTuple):
    """A leave that has ended."""

    asked_ns: int = -1
    at_ns: int = -1
    view: str = ""  # that the life was in; empty after a cancelled join


@dataclass(slots=True)
class _State:
    """How far a life has come at some time."""

    phase: _Phase = _Phase.ASKING
    view: str = ""  # that it is in
    asked_ns: int = 0  # when it asked to join last, or was put out and came back by itself
    came_ns: int = -1  # when it came in, if it has installed no view since
    leave_ns: int = -1  # when it asked to leave its present stay first
    is_again: bool = False  # it has asked to join again, in the instant of its departure
    departures: list[_Departure] = field(default_factory=list)


class _Lives:
    """The lives, what they installed and when."""

    __slots__ = ("_events", "_patience_ns", "_troubles", "lives", "states", "storm_ns", "views")

    def __init__(
        self, rows: Iterable[Row], lives: Sequence[LifeSpan], troubles: Sequence[Trouble], *, patience_ns: int
    ) -> None:
        self.lives = {life.member: life for life in lives}
        self._patience_ns = patience_ns
        self._troubles = troubles
        self._events: dict[str, list[tuple[int, int, Wish | Row]]] = {life.member: [] for life in lives}
        for life in lives:
            self._events[life.member] += [(wish.at_ns, -1, wish) for wish in life.wishes]
        seen = [
            row
            for row in rows
            if row.kind in ("join", "view", "leave") and row.group is None and f"{row.node}/{row.life}" in self.lives
        ]
        self.views = installed_views(seen)
        for row in seen:
            self._events[f"{row.node}/{row.life}"].append((row.at_ns, row.n, row))
        for events in self._events.values():
            events.sort(key=lambda event: event[:2])
        self.states = {member: self.state_at(member, FOREVER) for member in self.lives}
        self.storm_ns = self._storm_ns()

    def last_views(self) -> list[InstalledView]:
        """The ends of all chains on which a life stands that is up and wants to be in."""
        followed = {earlier for view in self.views.values() for earlier in view.before}
        wanting = [
            (member, state)
            for member, state in self.states.items()
            if self.lives[member].is_up and self.lives[member].is_wanted
        ]
        held = {state.view for _, state in wanting}
        formers = [(former, self.states[former]) for member, _ in wanting for former in self.former_of(member)]
        held |= {state.view or self._served_in(former, state) for former, state in formers}
        # One that a view has let in may not have installed it, and may have been restarted since.
        outside = [(member, state) for member, state in [*wanting, *formers] if not state.view]
        held |= {
            name
            for name, view in self.views.items()
            if any(member in view.members and state.asked_ns <= view.first_ns for member, state in outside)
        }
        came = [(member, state) for member, state in outside if state.came_ns >= 0]
        held |= {host for member, state in came for host in self._hosts_of(member, state)}
        return [view for name, view in self.views.items() if name not in followed and held & chain_of(self.views, name)]

    def _hosts_of(self, member: str, came: _State) -> set[str]:
        """The views of the members that can have let in one that asked, and came in: they were up, and did not stand
        still or behind a partition all the while."""
        at_ns = came.came_ns
        lasting = [each for each in self._troubles if each.begin_ns <= came.asked_ns and at_ns <= each.end_ns]
        up = [life.member for life in self.lives.values() if life.began_ns < at_ns <= life.ended_ns]
        hosts = [host for host in up if not any(each.separates(member, host) for each in lasting)]
        return {state.view for host in hosts if (state := self.state_at(host, at_ns)).view}

    def _served_in(self, member: str, state: _State) -> str:
        """The view in which a dead life still served when it crashed; empty if it did not."""
        last = state.departures[-1] if state.departures else _Departure()
        return last.view if self.lives[member].ended_ns - last.at_ns <= LINGER_NS else ""

    def former_of(self, member: str) -> list[str]:
        """The former lives of one that was restarted with what they kept, and that has not come in since. One whose
        application gave it up on its way back has voted on, and its next life has that vote."""
        found: list[str] = []
        life = self.lives[member]
        while life.former and not self._has_come_in(life.member):
            if life.former not in self.lives:
                break
            found.append(life.former)
            life = self.lives[life.former]
        return found

    def _has_come_in(self, member: str) -> bool:
        return any(isinstance(event, Row) and event.kind == "view" for _, _, event in self._events[member])

    def has_heir(self, member: str) -> bool:
        """Whether a life is up that was restarted with what this one kept, and still asks to come in."""
        return any(
            life.is_up and life.is_wanted and member in self.former_of(name)
            for name, life in self.lives.items()
            if life.former
        )

    def departure(self, member: str, view: InstalledView) -> _Departure:
        """The leave of a life that counts where this view is the last: its leave from the view, or from one before
        that nobody heard of, so that no view since is without it. Otherwise the last leave that has to do with it."""
        state, chain = self.states[member], [self.views[name] for name in chain_of(self.views, view.id)]
        names = {"", *(each.id for each in chain)}
        leaves = [each for each in state.departures if each.view in names]
        if member in view.members:
            left = next((each for each in reversed(leaves) if each.view), None)
            if left is not None:
                begin_ns = self.views[left.view].first_ns
                is_stale = not state.view and all(member in each.members for each in chain if each.first_ns >= begin_ns)
                if left.at_ns >= view.first_ns or is_stale:
                    return left
            leaves = [each for each in leaves if not each.view]
        return leaves[-1] if leaves else _Departure()

    def state_at(self, member: str, at_ns: int) -> _State:
        """What had become of a life just before a time."""
        state = _State()
        for event_ns, _, event in self._events[member]:
            if event_ns >= at_ns:
                break
            if isinstance(event, Wish):
                if not event.is_join:
                    if state.leave_ns < 0:
                        state.leave_ns = event_ns
                    state.is_again = False
                elif state.phase is _Phase.IN or (state.phase is _Phase.ASKING and state.leave_ns >= 0):
                    state.is_again = True  # it is on its way out, or gives up its join
                else:
                    state.phase, state.leave_ns, state.asked_ns = _Phase.ASKING, -1, event_ns
            elif event.kind == "view":
                state.phase, state.view, state.came_ns = _Phase.IN, event.view or "", -1
            elif event.kind == "join":
                state.came_ns = event_ns
            else:
                if state.leave_ns >= 0:
                    state.phase = _Phase.LEFT if state.phase is _Phase.IN else _Phase.CANCELLED
                    state.departures.append(_Departure(state.leave_ns, event_ns, state.view))
                if state.leave_ns < 0 or state.is_again:
                    # Excluded, or its ring was dissolved: then it comes back by itself.
                    state.phase, state.leave_ns, state.is_again = _Phase.ASKING, -1, False
                    state.asked_ns = event_ns
                state.view, state.came_ns = "", -1
        return state

    def frozen_ns(self, members: Sequence[str]) -> int:
        """When a view with dead members is frozen at the latest, so that no change is ordered any more."""
        ends = [self.lives[member].ended_ns for member in members]
        longest_ns = max((trouble.end_ns - trouble.begin_ns for trouble in self._troubles), default=0)
        return min(ends) + NOTICED_NS + longest_ns

    # Peace and trouble. ----------------------------------------------------------------------------------------------

    def _storm_ns(self) -> int:
        """When the last run of events began that found the group whole and at peace; 0: it never was."""
        times = {life.began_ns for life in self.lives.values()} | {life.ended_ns for life in self.lives.values()}
        times |= {wish.at_ns for life in self.lives.values() for wish in life.wishes}
        times |= {trouble.begin_ns for trouble in self._troubles}
        ordered = sorted(times - {FOREVER})
        for at, time_ns in reversed(list(enumerate(ordered))):
            calm_ns = max(ordered[at - 1] if at else 0, 0)
            ends = [trouble.end_ns for trouble in self._troubles if trouble.begin_ns < time_ns]
            if time_ns - max([calm_ns, *ends]) >= CALM_NS and self._is_whole(time_ns):
                return time_ns
        return 0

    def _is_whole(self, at_ns: int) -> bool:
        """Whether all lives that were up and wanted to be in were in one view, and nobody else in it."""
        inside: set[str] = set()
        views: set[str] = set()
        for life in self.lives.values():
            if not life.began_ns < at_ns <= life.ended_ns:
                continue
            state = self.state_at(life.member, at_ns)
            if state.phase is _Phase.IN:
                inside.add(life.member)
                views.add(state.view)
            elif state.phase is _Phase.ASKING:
                return False
        return len(views) == 1 and set(self.views[views.pop()].members) == inside

    def moments(self, from_ns: int) -> list[int]:
        """Times from `from_ns` on at which it changes which members answer, or whether a recovery is under way."""
        begins = [trouble.begin_ns for trouble in self._troubles]
        begins += [life.ended_ns for life in self.lives.values() if not life.is_up]
        times = {from_ns, *begins, *(begin_ns + SUSPECT_NS for begin_ns in begins)}
        return sorted(at_ns for at_ns in times if at_ns >= from_ns)

    def is_absent(self, member: str, at_ns: int) -> bool:
        """Whether a coordinator may have had no answer from a life that was up."""
        name = member.rpartition("/")[0]
        return any(
            trouble.begin_ns <= at_ns <= trouble.end_ns + ANSWER_NS and name in trouble.nodes
            for trouble in self._troubles
        )

    def is_recovering(self, members: Sequence[str], from_ns: int, at_ns: int) -> bool:
        """Whether a failure of one of these, not over at `from_ns`, may have been noticed and be recovered from."""
        names = {member.rpartition("/")[0] for member in members}
        if any(
            trouble.end_ns >= max(from_ns, trouble.begin_ns + SUSPECT_NS)
            and trouble.begin_ns + SUSPECT_NS <= at_ns <= trouble.end_ns + RECOVERY_NS
            and trouble.nodes & names
            for trouble in self._troubles
        ):
            return True
        ended = [self.lives[member].ended_ns for member in members if member in self.lives]
        return any(end_ns + SUSPECT_NS <= at_ns for end_ns in ended)

    def _was_answerable(self, from_ns: int) -> bool:
        """Whether there was a time without trouble, long enough for an answer, while a leaver still served.

        Where recovery is manual, a group that has noticed a failure answers nobody before its reset.
        """
        at_ns = from_ns
        while at_ns + QUESTION_NS <= from_ns + SERVED_NS:
            until_ns = at_ns + QUESTION_NS
            ends = [
                each.end_ns if self._patience_ns or each.end_ns - each.begin_ns < SUSPECT_NS else FOREVER
                for each in self._troubles
                if each.begin_ns < until_ns and each.end_ns > at_ns
            ]
            if not ends:
                return True
            at_ns = max(ends)
        return False

    def had_listeners(self, leaver: str, members: Sequence[str], from_ns: int) -> bool:
        """Whether another of these was up for long enough to be told, while a leaver still served; in the life that it
        had, or in one that was restarted with what that one kept."""
        others = {member for member in members if member != leaver}
        return any(
            min(life.ended_ns, from_ns + SERVED_NS) - max(life.began_ns, from_ns) >= QUESTION_NS
            for name, life in self.lives.items()
            if name in others or others.intersection(self.former_of(name))
        )

    def was_ignored(self, departure: _Departure, members: Sequence[str], *, is_last: bool) -> bool:
        """Whether a leaver may have gone unanswered: something failed around its leave, and it waited in vain.

        `members`: of the view that it wanted to leave, or not to join. A cancelled join is out at once, and waits for
        its answer behind the scenes. So does a leaver whose leave is decided and that the others may not know of.
        `is_last`: no view followed that one until it was gone, so a failure of one of its members was not over, however
        long ago it was.
        """
        if departure.view and not self._was_answerable(departure.at_ns):
            return True
        if departure.view and departure.at_ns - departure.asked_ns < self._patience_ns:
            return False
        gone_ns = departure.at_ns + (0 if departure.view else LINGER_NS)
        since_ns = 0 if is_last else departure.asked_ns - NOTICED_NS
        if any(since_ns <= self.lives[member].ended_ns <= gone_ns for member in members):
            return True
        return any(
            trouble.begin_ns + SUSPECT_NS <= min(gone_ns, trouble.end_ns)
            and (trouble.end_ns + ANSWER_NS >= departure.asked_ns or (is_last and not self._patience_ns))
            for trouble in self._troubles
        )


# Judgement. ----------------------------------------------------------------------------------------------------------


class _Judgement:
    """Whether one chain may stand still at its last view."""

    __slots__ = ("_facts", "_rules", "_view", "_voters")

    def __init__(self, facts: _Lives, view: InstalledView, rules: Rules) -> None:
        self._facts = facts
        self._view = view
        self._rules = rules
        self._voters = {member for member in facts.lives if not self._is_out(member) and self._serves(member)}

    def _is_out(self, member: str) -> bool:
        """Whether it was in the last view and has left it since, or before and nobody heard of it, also if it joins
        again."""
        return member in self._view.members and bool(self._facts.departure(member, self._view).view)

    def _serves(self, member: str) -> bool:
        """Whether it is up, and not gone unheard. A leaver or a cancelled join serves until it is not needed; after
        that somebody who is up knows what it knew."""
        state, departure = self._facts.states[member], self._facts.departure(member, self._view)
        # One that asks again after it gave up its join is no longer the one that may have been let in.
        has_gone = state.phase in (_Phase.LEFT, _Phase.CANCELLED) or (
            state.phase is _Phase.ASKING and departure.at_ns >= self._view.first_ns and not departure.view
        )
        is_there = self._facts.lives[member].is_up or self._facts.has_heir(member)
        return is_there and not (has_gone and self._is_unheard(member))

    def _is_unheard(self, member: str) -> bool:
        facts, departure = self._facts, self._facts.departure(member, self._view)
        left = facts.views.get(departure.view, self._view)
        later = [facts.views[name].first_ns for name in chain_of(facts.views, self._view.id)]
        is_last = all(first_ns <= left.first_ns or first_ns >= departure.at_ns for first_ns in later)
        if departure.view and not facts.had_listeners(member, left.members, departure.at_ns):
            return True
        return facts.was_ignored(departure, left.members, is_last=is_last)

    def _end_ns(self, member: str) -> int:
        """Until when a life that does not vote any more could accept a proposal."""
        life = self._facts.lives[member]
        return self._facts.departure(member, self._view).at_ns if life.is_up else life.ended_ns

    def _is_quorum(self, members: Sequence[str], present: Iterable[str]) -> bool:
        here = set(present)
        survivors = [member for member in members if member in here]
        return bool(survivors) and may_go_on(tuple(members), survivors, self._rules)

    def _is_quorum_of_any(self, members: Sequence[str], present: Sequence[str]) -> bool:
        """The same for a proposal, whichever member made it: that one comes first in it."""
        orders = ([first, *(member for member in members if member != first)] for first in members)
        return all(self._is_quorum(order, present) for order in orders)

    def excuse(self) -> Excuse | None:
        facts, voters = self._facts, self._voters
        left = {member for member in self._view.members if facts.lives[member].is_up and self._is_out(member)}
        if not self._is_quorum([member for member in self._view.members if member not in left], voters):
            return Excuse.TOO_FEW
        # Members that left unheard are no longer there, and a view without them need not be decided.
        unheard = {member for member in left if self._is_unheard(member)}
        last = [member for member in self._view.members if member not in left or member in unheard]
        if not self._is_quorum(last, voters):
            return Excuse.LEAVE
        doubt = self._doubt_of_the_last()
        if doubt is not None:
            return doubt
        changed = [(last, voters)]
        for excuse, members in self._changes(last):
            newcomer = {member for member in members[len(last) :] if self._serves(member)}
            if not self._is_quorum(members, voters | newcomer):
                return excuse
            changed.append((members, voters | newcomer))
        return Excuse.PROPOSAL if any(self._is_proposed(last, *each) for each in changed) else None

    def _doubt_of_the_last(self) -> Excuse | None:
        """A view that only dead lives installed needs quorums of those before it, up to one that a life knows."""
        left, seen = [self._view], {self._view.id}
        while left:
            view = left.pop()
            if view.by & self._voters:
                continue
            for earlier in view.before:
                known = self._facts.views[earlier]
                if earlier in seen:
                    continue
                seen.add(earlier)
                if not self._is_quorum(known.members, self._voters):
                    return _EXCUSES.get(view.reason, Excuse.PROPOSAL)
                if view.reason == "reset":
                    left.append(known)  # the quorum of that ring has to agree on its last view as well
        return None

    def _changes(self, last: Sequence[str]) -> Iterator[tuple[Excuse, list[str]]]:
        """The views that one change may have made of the last one."""
        facts = self._facts
        until_ns = max(facts.frozen_ns(last), self._view.first_ns)
        for member, life in facts.lives.items():
            state = facts.states[member]
            if member in last:
                is_there = life.is_up or facts.has_heir(member)  # a restarted one may have kept the view without it
                if is_there and state.phase is _Phase.IN and 0 <= state.leave_ns <= until_ns:
                    yield Excuse.LEAVE, [each for each in last if each != member]
            elif state.phase in (_Phase.ASKING, _Phase.CANCELLED):
                is_withdrawn = life.is_up and state.phase is _Phase.CANCELLED
                end_ns = facts.departure(member, self._view).at_ns if is_withdrawn else life.ended_ns
                is_heard = end_ns >= facts.storm_ns and end_ns + FORGET_NS >= self._view.first_ns
                if is_heard and state.asked_ns <= until_ns:
                    yield Excuse.JOIN, [*last, member]

    def _is_proposed(self, last: Sequence[str], members: Sequence[str], voters: set[str]) -> bool:
        """Whether a recovery may have left a proposal to these members without enough of those that it names."""
        facts = self._facts
        begin_ns = max(self._view.first_ns, facts.storm_ns)
        for at_ns in facts.moments(begin_ns):
            there = [member for member in members if member in voters or self._end_ns(member) > at_ns]
            if all(member in voters for member in there) or not facts.is_recovering(members, begin_ns, at_ns):
                continue  # nobody died later, or there was no recovery
            absent = [member for member in there if member in voters and facts.is_absent(member, at_ns)]
            for missing in _subsets(absent):
                proposed = [member for member in there if member not in missing]
                accepting = [member for member in proposed if member in voters]
                promised = self._is_quorum(members, proposed) and self._is_quorum(last, proposed)
                if accepting and promised and not self._is_quorum_of_any(proposed, accepting):
                    return True
        return False


_EXCUSES: Final = {"join": Excuse.JOIN, "leave": Excuse.LEAVE}


def _subsets(members: Sequence[str]) -> Iterator[frozenset[str]]:
    if len(members) > MAX_ABSENT:
        yield frozenset(members)
        return
    for size in range(len(members) + 1):
        for chosen in combinations(members, size):
            yield frozenset(chosen)
