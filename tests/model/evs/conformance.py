"""Runs of the real engine of sites against the model: each change of a view is one that the rules compute.

The facts of a run (`recording.py`) are followed daemon by daemon. What the model's rules say is worked out from the
cuts that the members of the next view have shown for its ballot (`ending.py`), and compared with what each of them did:

- *promise*: ballots rise, and a daemon installs the round that it has promised last.
- *cut*: it is about the view that the daemon is in, and says what it has delivered there. Nothing is delivered between
  the cut and the end of the view.
- *bound*: a daemon is bound by the first result that it has accepted in this view; every later cut says so.
- *held*: who accepts lacks nothing of its remainder.
- *clock*: it is not below the first LTS of a proposal that was accepted.
- *round*: all members of the view have shown a cut for its ballot; *commit*: all of them have accepted it.
- *class*, *horizon*, *stable*, *remainder*, *signal*: who leaves the old view together; H; S; which blocks are still
  delivered, and which of them before the signal. *came_with* has the same daemons.
- *first LTS*, *counter*, *rosters*: of the next view.
- *lineage*, *synced*: which copy of the rosters a daemon has, and whether it is in sync.
- *settled*: exactly the blocks of the remainder that a daemon has not delivered before are delivered at the end.
- *trace*: in the trace, what stands before the signal is delivered before it, and nothing of it behind it.

`python -m tests.model.evs.conformance 0 300` checks 300 runs from seed 0 on.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.model.evs.ending import outcome_of
from tests.model.evs.recording import (
    PLACE_BITS,
    Accepted,
    Began,
    Delivered,
    Fact,
    Installed,
    Promised,
    recorded,
)
from tests.model.evs.rules import Rules
from tests.sim.bug import Bug
from tests.sim.planting import planted

from ordercast.errors import InvariantViolation
from ordercast.membership.components.installing import ComponentInstall
from ordercast.orderers.sites.progress import ExchangeProgress
from ordercast.service import FIFO_RANK
from ordercast.sim.many_run import run_groups
from ordercast.sim.site_groups import drawn_site_groups
from ordercast.trace.schema import Row
from ordercast.view import View, id_of
from ordercast.wire.components import SiteCut, decode_site_cut, encode_site_cut
from ordercast.wire.cuts import Ballot, Class, Cut, Due, Lineage, Remainder, Result, ViewId

RULES: Final = Rules()
SITE_BITS: Final = 8  # of a place


class Deviation(NamedTuple):
    """One thing in a run that the model does not allow."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class Ended(NamedTuple):
    """How a daemon left a view, as the model says."""

    daemon: int
    view: View
    before: frozenset[int]  # places
    after: frozenset[int]


@dataclass(slots=True)
class Known:
    """One daemon, as far as the facts have come."""

    view: View
    name: ViewId
    lineage: Lineage
    promised: Ballot = Ballot(0, 0)  # noqa: RUF009 - a tuple
    cut: Cut | None = None  # the last one that it has shown in this view
    bound: Result | None = None
    clock: int = 0  # it may not be below
    last: int = 0  # the place of the last ordered block
    progress: ExchangeProgress = field(default_factory=ExchangeProgress)
    leaving: Installed | None = None  # the old view ends
    settled: list[int] = field(default_factory=list)


class Report(NamedTuple):
    """What became of a run."""

    deviations: list[Deviation]
    views: int  # of several daemons
    classes: int  # that left a view
    signals: int  # with blocks behind them


class Follower:
    """Goes through the facts of one run."""

    __slots__ = ("_accepted", "_cuts", "_delivered", "_found", "_known", "_owed", "ended", "report")

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._cuts: dict[Ballot, dict[int, SiteCut]] = {}
        self._accepted: dict[Ballot, set[int]] = {}
        self._delivered: dict[str, set[int]] = {}  # view -> places that somebody has delivered
        self._owed: list[tuple[int, str, frozenset[int]]] = []  # daemon, view, places that it has not delivered
        self._found: list[Deviation] = []
        self.ended: list[Ended] = []
        self.report = Report(self._found, 0, 0, 0)

    def follow(self, facts: Iterable[Fact]) -> Report:
        for fact in facts:
            match fact:
                case Promised():
                    self._on_promised(fact)
                case Accepted():
                    self._on_accepted(fact)
                case Installed():
                    self._on_installed(fact)
                case Began():
                    self._on_began(fact)
                case Delivered():
                    self._on_delivered(fact)
        for daemon, view, places in self._owed:
            # An INTEREST is a block that nobody delivers.
            missed = places & self._delivered.get(view, set())
            self._ask("settled", not missed, daemon, f"left out {sorted(missed)} at the end of {view}")
        return self.report

    def _ask(self, check: str, holds: bool, daemon: int, text: str) -> None:
        if not holds:
            known = self._known.get(daemon)
            names = {member.id: str(member) for member in known.view.members} if known is not None else {}
            self._found.append(Deviation(check, f"{names.get(daemon, hex(daemon))} {text}"))

    # Rounds

    def _on_promised(self, fact: Promised) -> None:
        known, shown = self._known[fact.daemon], fact.shown
        cut, me = shown.cut, fact.daemon
        self._ask("promise", shown.ballot > known.promised, me, f"promised {shown.ballot} after {known.promised}")
        self._ask("cut", cut.view == known.name, me, f"showed a cut of {cut.view} in {known.view.id}")
        told = known.last >> SITE_BITS
        # An INTEREST counts as delivered, and nobody gets it.
        reach = min([source.clock for source in cut.sources])
        is_true = told == cut.delivered or told < cut.delivered <= reach
        self._ask("cut", is_true, me, f"has delivered up to LTS {told}, and says {cut.delivered}")
        is_bound = _same_result(cut.bound, known.bound)
        self._ask("bound", is_bound, me, f"shows {_told(cut.bound)} and is bound to {_told(known.bound)}")
        self._ask("clock", cut.clock >= known.clock, me, f"has the clock {cut.clock}, and accepted {known.clock}")
        self._ask("lineage", cut.lineage == known.lineage, me, f"says {cut.lineage}, and comes from {known.lineage}")
        is_synced = known.progress.is_complete
        self._ask("synced", cut.is_synced == is_synced, me, f"says {cut.is_synced} in {known.view.id}")
        known.promised, known.cut = shown.ballot, cut
        is_coordinator = shown.ballot.coordinator == me
        self._cuts.setdefault(shown.ballot, {})[me] = shown if is_coordinator else _as_told(shown)

    def _on_accepted(self, fact: Accepted) -> None:
        known, me = self._known[fact.daemon], fact.daemon
        self._ask("held", not fact.lacking, me, f"accepted {fact.ballot} and lacks {fact.lacking} blocks")
        if known.bound is None:
            known.bound = fact.bound
        is_bound = fact.bound is not None and _same_result(fact.bound, known.bound)
        self._ask("bound", is_bound, me, f"accepted {_told(fact.bound)} and was bound to {_told(known.bound)}")
        known.clock = max(known.clock, fact.first_lts)
        self._accepted.setdefault(fact.ballot, set()).add(me)

    # Views

    def _on_installed(self, fact: Installed) -> None:
        me, install = fact.daemon, fact.install
        view = install.view
        if install.result is None:
            name = ViewId(view.counter, id_of(view.creator))
            self._known[me] = known = Known(view, name, Lineage(name, None))
            is_alone = [member.id for member in view.members] == [me] and len(install.roster_groups) == 1
            self._ask("round", is_alone, me, f"begins with {view.id} of {len(view.members)}")
            known.progress.begin(install.roster_groups)
            return
        known = self._known[me]
        self._ask("promise", fact.ballot == known.promised, me, f"installs {fact.ballot} after {known.promised}")
        known.leaving = fact
        members = [member.id for member in view.members]
        shown = self._cuts.get(fact.ballot, {})
        missing = [str(member) for member in view.members if member.id not in shown]
        self._ask("round", not missing, me, f"has {missing} in {view.id}, of whom there is no cut for it")
        silent = [str(member) for member in view.members if member.id not in self._accepted.get(fact.ballot, ())]
        self._ask("commit", not silent, me, f"installs {view.id}, which {silent} have not accepted")
        if not missing:
            self._compare(known, fact, [shown[member] for member in members])

    def _compare(self, known: Known, fact: Installed, shown: Sequence[SiteCut]) -> None:
        """What the model makes of these cuts is what the daemon does."""
        me, install = fact.daemon, fact.install
        view, result = install.view, install.result
        try:
            outcome = outcome_of(RULES, fact.ballot, [each.cut for each in shown])
        except InvariantViolation as error:
            self._ask("class", False, me, f"installs {view.id}, of cuts that contradict each other: {error}")
            return
        mine = next(each for each in outcome.classes if me in each.members)
        # The cut of a bound daemon names its result, and need not repeat it.
        bound = known.cut.bound if known.cut is not None else None
        want = mine.result if bound is None else bound
        if result is None or not install.came_from:
            self._ask("class", False, me, f"installs {view.id} from nowhere")
            return
        own, *others = install.came_from
        is_same = set(own.members) == set(mine.members) and set(result.members) == set(want.members)
        rest = {frozenset(each.members) for each in others}
        is_same &= rest == {frozenset(each.members) for each in outcome.classes if each is not mine}
        self._ask("class", is_same and result.id == want.id, me, f"leaves {known.view.id} by {_told(result)}")
        is_same = result.horizon == want.horizon == own.upto
        self._ask("horizon", is_same, me, f"leaves {known.view.id} at {result.horizon}, not {want.horizon}")
        self._ask("stable", result.stable == want.stable, me, f"has S {result.stable}, not {want.stable}")
        due, wanted = _all(result.remainder), _all(want.remainder)
        self._ask("remainder", due == wanted, me, f"has {len(due)} blocks, not {len(wanted)}, of {known.view.id}")
        place = len(result.remainder.before), len(want.remainder.before)
        self._ask("signal", place[0] == place[1], me, f"has the signal behind {place[0]} blocks, not {place[1]}")
        came = [str(member) for member in view.members if member.id in mine.members]
        self._ask("came_with", list(view.came_with) == came, me, f"says {view.came_with} in {view.id}, not {came}")
        is_same = (
            install.first_lts == outcome.first_lts and view.position >> SITE_BITS + PLACE_BITS == outcome.first_lts
        )
        self._ask("first LTS", is_same, me, f"begins {view.id} at {install.first_lts}, not {outcome.first_lts}")
        counter = max(outcome.counter, 1 + max([each.counter for each in shown]))
        self._ask("counter", view.counter == counter, me, f"installs {view.id}, and the counter is {counter}")
        rosters = {_in_order(group, view) for group in outcome.roster_groups}
        is_same = set(install.roster_groups) == rosters and len(install.roster_groups) == len(rosters)
        self._ask("rosters", is_same, me, f"has {install.roster_groups} in {view.id}, not {sorted(rosters)}")
        self._note(known, fact, Class(mine.members, want))

    def _note(self, known: Known, fact: Installed, mine: Class) -> None:
        site = known.cut.site if known.cut is not None else 0
        before, after = mine.result.remainder
        ended = Ended(fact.daemon, known.view, _places(before, site), _places(after, site))
        self.ended.append(ended)
        is_first = fact.daemon == min(mine.members)
        report = self.report
        self.report = Report(
            self._found,
            report.views + (fact.ballot.coordinator == fact.daemon and len(fact.install.view.members) > 1),
            report.classes + is_first,
            report.signals + (is_first and bool(after)),
        )

    def _on_began(self, fact: Began) -> None:
        me = fact.daemon
        known, leaving = self._known[me], self._known[me].leaving
        if leaving is None:
            return  # its first view
        result = leaving.install.result
        is_synced = known.progress.is_complete
        self._ask("synced", fact.was_synced == is_synced, me, f"left {known.view.id} and says {fact.was_synced}")
        if result is not None:
            before, after = result.remainder
            site = known.cut.site if known.cut is not None else 0
            last = known.last
            due = frozenset([place for place in (*_places(before, site), *_places(after, site)) if place > last])
            strange = [place for place in known.settled if place not in due]
            self._ask("settled", not strange, me, f"delivered {strange} at the end of {known.view.id}")
            self._owed.append((me, known.view.id, due - frozenset(known.settled)))
            lineage = Lineage(known.name, result.id) if is_synced else known.lineage
        else:
            lineage = known.lineage
        self._enter(known, leaving.install, lineage)

    def _enter(self, known: Known, install: ComponentInstall, lineage: Lineage) -> None:
        known.view = install.view
        known.name = ViewId(install.view.counter, id_of(install.view.creator))
        known.lineage = lineage
        known.cut = known.bound = known.leaving = None
        known.clock = known.last = 0
        known.settled = []
        known.progress = ExchangeProgress()
        known.progress.begin(install.roster_groups)

    def _on_delivered(self, fact: Delivered) -> None:
        known = self._known[fact.daemon]
        for origin, body in fact.parts:
            known.progress.on_body(origin, body)
        self._delivered.setdefault(known.view.id, set()).update(fact.places)
        if known.leaving is not None:
            known.settled += fact.places
        elif fact.places:
            self._ask(
                "cut", known.cut is None, fact.daemon, f"delivered {fact.places} of {known.view.id} behind its cut"
            )
            known.last = max(known.last, *fact.places)


def check_trace(ended: Iterable[Ended], rows: Iterable[Row]) -> Iterator[Deviation]:
    """Where the signal stands in the trace of each daemon's own session."""
    by_view = {(each.daemon, each.view.id): each for each in ended}
    signalled: set[tuple[str, str]] = set()
    for row in sorted(rows, key=lambda row: (row.node, row.life, row.n)):
        if row.view is None or "@" in row.node:
            continue
        name = f"{row.node}/{row.life}"
        if row.kind == "transitional" and row.group is None:
            signalled.add((name, row.view))
        elif row.kind == "deliver" and row.position is not None and row.position >= 0:
            each = by_view.get((id_of(name), row.view))
            place = row.position >> PLACE_BITS
            is_behind = (name, row.view) in signalled
            if each is not None and place in (each.before if is_behind else each.after):
                where = "behind" if is_behind else "before"
                yield Deviation("trace", f"{name} delivered {row.position} of {row.view} {where} the signal")


# ---- helpers


def _as_told(shown: SiteCut) -> SiteCut:
    """As the coordinator gets it."""
    return decode_site_cut(encode_site_cut(shown))


def _all(remainder: Remainder) -> tuple[Due, ...]:
    return (*remainder.before, *remainder.after)


def _places(dues: Iterable[Due], site: int) -> frozenset[int]:
    """Ordered blocks that are for a site."""
    return frozenset([due.lts << SITE_BITS | due.site for due in dues if due.mask >> site & 1 and due.rank > FIFO_RANK])


def _same_result(one: Result | None, other: Result | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.id == other.id and _all(one.remainder) == _all(other.remainder)


def _in_order(group: tuple[int, ...], view: View) -> tuple[int, ...]:
    """In the order of the view: the first one speaks."""
    return tuple([member.id for member in view.members if member.id in group])


def _told(result: Result | None) -> str:
    return "nothing" if result is None else f"part {result.id.part} of round {result.id.ballot.number}"


# ---- runs


def check_run(seed: int, bug: Bug | None = None) -> Report:
    """One random run of the whole engine, with a planted bug or without."""
    facts: list[Fact] = []

    @contextmanager
    def patch() -> Iterator[None]:
        with ExitStack() as stack:
            if bug is not None:
                stack.enter_context(planted(bug))
            nonlocal facts
            facts = stack.enter_context(recorded())
            yield

    outcome = run_groups(drawn_site_groups(seed), patch)
    follower = Follower()
    report = follower.follow(facts)
    report.deviations.extend(check_trace(follower.ended, outcome.rows))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Check runs of the engine of sites against the model.")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("runs", type=int)
    given = parser.parse_args()
    views = classes = signals = bad = 0
    kinds: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.runs):
        report = check_run(seed)
        views, classes, signals = views + report.views, classes + report.classes, signals + report.signals
        kinds.update({each.check for each in report.deviations})
        bad += bool(report.deviations)
        for each in report.deviations[:3]:
            print(f"seed {seed}: {each}")
    texts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "none"
    print(f"{given.runs} runs, {views} views, {classes} classes, {signals} signals with blocks behind them")
    print(f"{bad} runs with deviations: {texts}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
