"""The search: all paths with no deviation, then all with one, and so on up to the bound.

A path is replayed, and each decision point behind its last deviation gives one longer path for each thing that can be
done there. A run that comes to a state which was seen before ends there: what follows from it is, or will be, explored
from the path that came first, which has no more deviations than this one. So within the bound nothing is left out.

The result does not depend on how many processes work. They take paths in their order, and each keeps the states that it
has seen itself; the paths that gave it those come earlier in the order, so a run is never cut short that would not be
cut by the one set of all states, which the search keeps.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.explore.deviations import Deviation, Path, show_path
from ordercast.explore.path import Exploration, PathResult, run_path
from ordercast.explore.safety import Finding
from ordercast.groups.engines import EngineFactory

CHUNK: Final = 8  # paths that a process takes at a time
MAX_JOBS: Final = 64

Progress = Callable[[int, int, int], None]
"""Called with (deviations, paths done of these, paths of these)."""


class Job(NamedTuple):
    """One path of one variant of the scenario."""

    variant: int
    path: Path

    def __str__(self) -> str:
        return f"{self.variant}: {show_path(self.path) or 'the default schedule'}"


class Failure(NamedTuple):
    """A path that something is wrong on."""

    job: Job
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class SearchResult:
    """What a search has seen."""

    what: Exploration
    deviations: int
    failures: list[Failure] = field(default_factory=list)  # the first of each kind of finding
    failed: Counter[str] = field(default_factory=Counter)  # paths, by the kind of their first finding
    paths: list[int] = field(default_factory=list)  # by the number of deviations
    states: int = 0
    cut: int = 0  # paths that came to a state that was seen before
    stuck: Counter[str] = field(default_factory=Counter)  # groups that could not go on, by reason
    is_complete: bool = False  # everything within the bound was explored
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        return not self.failures


def explore(
    what: Exploration,
    deviations: int,
    *,
    seconds: float | None = None,
    jobs: int = 1,
    keep_going: bool = False,
    engines: EngineFactory | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """Explore a scenario up to `deviations`; stop at the first failure unless `keep_going`, and after `seconds`."""
    if engines is not None and jobs > 1:
        raise UsageError("other engines than the real ones are explored with one job: they do not travel to processes")
    begin = time.monotonic()
    result = SearchResult(what, deviations)
    with _Workers(what, jobs, engines) as workers:
        is_over = partial(_is_over, begin, seconds)
        _search(result, workers, keep_going, is_over, progress)
    result.seconds = time.monotonic() - begin
    return result


def _is_over(begin: float, seconds: float | None) -> bool:
    return seconds is not None and time.monotonic() - begin > seconds


def _search(
    result: SearchResult,
    workers: _Workers,
    keep_going: bool,
    is_over: Callable[[], bool],
    progress: Progress | None,
) -> None:
    seen: set[bytes] = set()
    level = [Job(variant, ()) for variant in result.what.variants]
    for depth in range(result.deviations + 1):
        result.paths.append(0)
        following: list[Job] = []
        for job, found in zip(level, workers.run(level), strict=False):
            result.paths[depth] += 1
            is_cut = found.is_cut
            for point in found.points:
                if point.key in seen:
                    is_cut = True  # by a path of another process
                    break
                seen.add(point.key)
                if depth < result.deviations:
                    following += [
                        Job(job.variant, (*job.path, Deviation(point.step, kind, whom))) for kind, whom in point.choices
                    ]
            result.states = len(seen)
            result.cut += is_cut
            if not is_cut:
                _take(result, job, found)
            if progress is not None:
                progress(depth, result.paths[depth], len(level))
            if (result.failures and not keep_going) or is_over():
                return
        level = sorted(following, key=_rank)
    result.is_complete = True


def _take(result: SearchResult, job: Job, found: PathResult) -> None:
    if found.stuck:
        result.stuck[found.stuck] += 1
    if found.findings:
        kind = found.findings[0].kind
        if not result.failed[kind]:
            result.failures.append(Failure(job, found.findings))
        result.failed[kind] += 1


def _rank(job: Job) -> bytes:
    """An order that is always the same and favours no part of the bound: a search that runs out of time has tried a
    fair sample."""
    return blake2b(str(job).encode(), digest_size=8).digest()


class _Workers:
    """Runs paths, in this process or in several; results come in the order of the paths."""

    __slots__ = ("_engines", "_pool", "_seen", "_what")

    def __init__(self, what: Exploration, jobs: int, engines: EngineFactory | None) -> None:
        self._what = what
        self._engines = engines
        self._seen: set[bytes] = set()
        self._pool = None
        if jobs > 1:
            # Spawned, not forked: a child shares no state with its parent that a path could come to depend on.
            context = multiprocessing.get_context("spawn")
            self._pool = context.Pool(min(jobs, MAX_JOBS), _begin_worker, (what,))

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def run(self, jobs: Iterable[Job]) -> Iterator[PathResult]:
        if self._pool is not None:
            return self._pool.imap(_run_job, jobs, CHUNK)
        return (_run(self._what, job, self._engines, self._seen) for job in jobs)


def _run(what: Exploration, job: Job, engines: EngineFactory | None, seen: set[bytes]) -> PathResult:
    result = run_path(what, job.variant, job.path, engines=engines, seen=seen)
    seen.update([point.key for point in result.points])
    return result


_WORK: dict[str, tuple[Exploration, set[bytes]]] = {}  # of a worker process


def _begin_worker(what: Exploration) -> None:
    gc.freeze()  # modules and tables live as long as the process: looking at them again costs a tenth of the time
    _WORK["work"] = (what, set())


def _run_job(job: Job) -> PathResult:
    what, seen = _WORK["work"]
    return _run(what, job, None, seen)
