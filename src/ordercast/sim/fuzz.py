"""Many random scenarios, one for each seed, on several processors; the result does not depend on how many.

A failing seed comes with the command that replays it and the first things that were wrong. Whatever a run does, it
ends: events are bounded by the scenario (a livelock is a failure), and `HANG_S` of processor time end a loop inside an
engine.
"""

from __future__ import annotations

import multiprocessing
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Final

from ordercast.errors import UsageError
from ordercast.sim.chance import drawn_scenario
from ordercast.sim.checkers.stuck import Excuse
from ordercast.sim.many_groups import MANY_GROUPS, drawn_groups
from ordercast.sim.many_run import run_groups
from ordercast.sim.regions.plan import REGIONS, check_profile, drawn_regions
from ordercast.sim.regions.run import run_regions
from ordercast.sim.run import Outcome, Patch, run_scenario
from ordercast.sim.scenario import PROFILES, SESSIONS, check_anticipate, check_orderer
from ordercast.sim.sessions.plan import drawn_sessions
from ordercast.sim.sessions.run import run_sessions
from ordercast.sim.site_groups import SITES, drawn_site_groups

HANG_S: Final = 120.0
CHUNK: Final = 2  # seeds that a process takes at a time; more would leave one process working alone at the end
FIRST_FAILURES: Final = 5
MAX_JOBS: Final = 64

_TIME: Final = re.compile(r" at \d.*")


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What is kept of one run."""

    seed: int
    failures: tuple[str, ...]
    command: str
    digest: str
    submitted: int
    delivered: int
    views: int
    locks: int
    calls: int
    answers: int
    events: int
    is_quiet: bool
    excuse: Excuse | None
    is_deserted: bool
    is_short: bool
    virtual_ns: int
    cpu_s: float  # the only part that two runs may not share

    @property
    def held(self) -> bool:
        return not self.failures


@dataclass(slots=True)
class FuzzReport:
    """All seeds of one fuzzing, in their order."""

    orderer: str
    first_seed: int
    runs: int
    anticipate: bool | None = None  # as asked for
    profile: str = "all"
    results: list[SeedResult] = field(default_factory=list)

    @property
    def failed(self) -> list[SeedResult]:
        return [result for result in self.results if not result.held]

    @property
    def held(self) -> bool:
        return len(self.results) == self.runs and not self.failed

    def summary(self) -> list[str]:
        """Lines for people."""
        ends = self._ends()
        lines = [
            f"{len(self.results)} runs from seed {self.first_seed}, {len(self.failed)} failed: "
            f"{ends['quiet']} came to rest, {ends['stuck_legally']} could not go on, "
            f"{ends['deserted']} had no member left, {ends['short']} waited for more members",
            f"{sum(result.delivered for result in self.results)} deliveries, "
            f"{sum(result.views for result in self.results)} views, "
            f"{sum(result.locks for result in self.results)} locks granted, "
            f"{sum(result.calls for result in self.results)} calls from outside, "
            f"{sum(result.answers for result in self.results)} answers, "
            f"{sum(result.events for result in self.results)} events, "
            f"{sum(result.virtual_ns for result in self.results) / 1e9:.0f} s of virtual time in "
            f"{sum(result.cpu_s for result in self.results):.1f} s of CPU",
            "stuck: " + ", ".join(f"{count} {reason}" for reason, count in self._excuses().items()),
        ]
        if self.failed:
            lines.append("failed: " + ", ".join(f"{count} {kind}" for kind, count in self._kinds().items()))
        for result in self.failed:
            lines.append(f"seed {result.seed}: {result.command}")
            lines += [f"    {text}" for text in result.failures[:FIRST_FAILURES]]
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "orderer": self.orderer,
            "profile": self.profile,
            "anticipate": check_anticipate(self.orderer, self.anticipate),
            "first_seed": self.first_seed,
            "runs": len(self.results),
            "held": self.held,
            "failed": [
                {"seed": result.seed, "command": result.command, "failures": list(result.failures)}
                for result in self.failed
            ],
            "failed_by_kind": self._kinds(),
            "ends": dict(self._ends()),
            "stuck": self._excuses(),
            "submitted": sum(result.submitted for result in self.results),
            "delivered": sum(result.delivered for result in self.results),
            "views": sum(result.views for result in self.results),
            "locks": sum(result.locks for result in self.results),
            "calls": sum(result.calls for result in self.results),
            "answers": sum(result.answers for result in self.results),
            "events": sum(result.events for result in self.results),
            "virtual_s": sum(result.virtual_ns for result in self.results) / 1e9,
            "cpu_s": round(sum(result.cpu_s for result in self.results), 3),
        }

    def _ends(self) -> Counter[str]:
        ends: Counter[str] = Counter({"quiet": 0, "stuck_legally": 0, "deserted": 0, "short": 0})
        for result in self.results:
            ends["quiet"] += result.is_quiet
            ends["stuck_legally"] += result.excuse is not None
            ends["deserted"] += result.is_deserted
            ends["short"] += result.is_short
        return ends

    def _excuses(self) -> dict[str, int]:
        """How many runs could not go on, by reason; every reason is named."""
        return {excuse.value: sum(result.excuse is excuse for result in self.results) for excuse in Excuse}

    def _kinds(self) -> dict[str, int]:
        """How many runs failed, by the kind of the first failure of each: what stands before its colon."""
        kinds = Counter(_TIME.sub("", result.failures[0].partition(":")[0]) for result in self.failed)
        return dict(kinds.most_common())


def fuzz(
    orderer: str = "sequencer",
    first_seed: int = 0,
    runs: int = 1_000,
    jobs: int = 1,
    progress: Callable[[int, SeedResult], None] | None = None,
    *,
    anticipate: bool | None = None,
    profile: str = "all",
) -> FuzzReport:
    """Run `runs` random scenarios from `first_seed` on, `jobs` at a time.

    `progress` is called after each run with how many are done, and the last one.
    `profile`: what they are about; "many-groups": programs with many groups on one underlay.
    """
    if orderer == REGIONS:
        check_profile(profile)
    elif orderer != SITES:
        check_orderer(orderer, anticipate)
    if runs < 1 or jobs < 1 or first_seed < 0:
        raise UsageError("runs and jobs begin at 1, first-seed at 0")
    profiles = (*PROFILES, MANY_GROUPS, SESSIONS)
    if profile not in profiles:
        raise UsageError(f"there is no profile {profile!r}; choose one of {', '.join(profiles)}")
    work = partial(run_seed, orderer, anticipate=anticipate, profile=profile)
    report = FuzzReport(orderer, first_seed, runs, anticipate, profile)
    for result in _results(work, range(first_seed, first_seed + runs), min(jobs, runs, MAX_JOBS)):
        report.results.append(result)
        if progress is not None:
            progress(len(report.results), result)
    return report


def run_seed(
    orderer: str,
    seed: int,
    patch: Patch | None = None,
    *,
    anticipate: bool | None = None,
    profile: str = "all",
) -> SeedResult:
    """One seed, with what is worth keeping of it."""
    begin = time.process_time()
    with _hang_guard(HANG_S):
        if profile == SESSIONS:
            outcome = run_sessions(drawn_sessions(seed, orderer), patch)
        elif orderer == REGIONS:
            outcome = run_regions(drawn_regions(seed), patch)
        elif orderer == SITES:
            outcome = run_groups(drawn_site_groups(seed), patch)
        elif profile == MANY_GROUPS:
            outcome = run_groups(drawn_groups(seed, orderer, anticipate), patch)
        else:
            outcome = run_scenario(drawn_scenario(profile, seed, orderer, anticipate), patch)
    return _result(seed, outcome, time.process_time() - begin)


def seeds_until_caught(patch: Patch, orderer: str = "sequencer", limit: int = 100, first_seed: int = 0) -> int | None:
    """How many seeds it takes to catch a planted bug: 1 if the first one shows it, None if none of `limit` does."""
    for count in range(1, limit + 1):
        if not run_seed(orderer, first_seed + count - 1, patch).held:
            return count
    return None


def _results(work: Callable[[int], SeedResult], seeds: Iterable[int], jobs: int) -> Iterator[SeedResult]:
    """In the order of the seeds, whichever is done first."""
    if jobs == 1:
        yield from map(work, seeds)
        return
    # Spawned, not forked: a child shares no state with its parent that a seed could come to depend on.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(work, seeds, CHUNK)


def _result(seed: int, outcome: Outcome, cpu_s: float) -> SeedResult:
    return SeedResult(
        seed,
        tuple(outcome.failures),
        outcome.command,
        outcome.digest,
        outcome.stats.submitted,
        outcome.stats.delivered,
        outcome.stats.views,
        outcome.stats.locks,
        outcome.stats.calls,
        outcome.stats.answers,
        outcome.stats.events,
        outcome.is_quiet,
        outcome.excuse,
        outcome.is_deserted,
        outcome.is_short,
        outcome.stats.virtual_ns,
        cpu_s,
    )


@contextmanager
def _hang_guard(seconds: float) -> Iterator[None]:
    """End a loop inside an engine with an exception, where the system has timers of that kind.

    By the processor time of this process: a run that another program holds up is not one that hangs.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"a run took more than {seconds:g} s of processor time: a loop inside an engine?")

    before = signal.signal(signal.SIGPROF, on_alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
