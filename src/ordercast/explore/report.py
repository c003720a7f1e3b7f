"""What a search found, as text and as JSON, with the command that replays it."""

from __future__ import annotations

import shlex
from typing import Any, Final

from ordercast.explore.deviations import show_path
from ordercast.explore.path import Exploration, run_path
from ordercast.explore.scenarios import DEFAULT_CRASHES, DEFAULT_STEPS, find_scenario
from ordercast.explore.search import Failure, Job, SearchResult
from ordercast.groups.engines import EngineFactory

MOST_REASONS: Final = 8  # reasons for being stuck that are listed, the most frequent first


def replay_command(what: Exploration, job: Job) -> str:
    """What shows one path again, step by step."""
    words = [*_common(what), "--variant", str(job.variant), "--replay", show_path(job.path)]
    return shlex.join(words)


def search_command(what: Exploration, deviations: int) -> str:
    """What makes the same search again."""
    words = [*_common(what), "--deviations", str(deviations)]
    if what.families != find_scenario(what.scenario, what.orderer).families:
        words += ["--faults", ",".join(what.families) or "none"]
    if what.steps != DEFAULT_STEPS:
        words += ["--steps", str(what.steps)]
    if what.crashes != DEFAULT_CRASHES:
        words += ["--crashes", str(what.crashes)]
    if what.variant is not None:
        words += ["--variant", str(what.variant)]
    return shlex.join(words)


def _common(what: Exploration) -> list[str]:
    words = ["ordercast", "explore", "--orderer", what.orderer, "--scenario", what.scenario]
    words += ["--members", str(len(what.members))]
    if what.min_members != "majority":
        words += ["--min-members", str(what.min_members)]
    if what.only:
        words += ["--only", ",".join(what.only)]
    return words


def transcript(what: Exploration, job: Job, engines: EngineFactory | None = None) -> list[str]:
    """What everybody does along a path."""
    notes: list[str] = []
    run_path(what, job.variant, job.path, engines=engines, notes=notes)
    return notes


def summary(result: SearchResult, engines: EngineFactory | None = None) -> list[str]:
    """Lines for people."""
    what = result.what
    paths = " + ".join(f"{count:,}" for count in result.paths)
    rate = sum(result.paths) / result.seconds if result.seconds else 0.0
    lines = [
        f"{what.scenario}, {what.orderer}, {len(what.members)} members"
        + (f" and {len(what.newcomers)} newcomer" if what.newcomers else "")
        + f": up to {result.deviations} deviations ({', '.join(what.families) or 'none'}) "
        f"at the first {what.steps} decision points",
        f"{sum(result.paths):,} paths ({paths} with 0, 1, ... deviations), {result.states:,} states, "
        f"{result.cut:,} paths ended in a state seen before, {result.seconds:.1f} s, {rate:.0f} paths/s",
    ]
    if result.stuck:
        lines.append(f"{sum(result.stuck.values()):,} groups had too few members left to go on:")
        lines += [f"  {count:>6,}  {reason}" for reason, count in result.stuck.most_common(MOST_REASONS)]
    if result.held:
        end = "the bound is explored completely" if result.is_complete else "time ran out before the bound was reached"
        lines.append(f"no failure; {end}")
        return lines
    for failure in result.failures:
        kind = failure.findings[0].kind
        lines += ["", f"FAILURE {kind} ({result.failed[kind]:,} paths): {failure.findings[0].text}"]
        lines += [f"replay: {replay_command(what, failure.job)}"]
        lines += transcript(what, failure.job, engines)
    return lines


def as_json(result: SearchResult) -> dict[str, Any]:
    what = result.what
    return {
        "scenario": what.scenario,
        "orderer": what.orderer,
        "members": len(what.members),
        "newcomers": len(what.newcomers),
        "deviations": result.deviations,
        "faults": list(what.families),
        "steps": what.steps,
        "crashes": what.crashes,
        "min_members": what.min_members,
        "held": result.held,
        "complete": result.is_complete,
        "paths": result.paths,
        "states": result.states,
        "cut": result.cut,
        "stuck": dict(result.stuck.most_common()),
        "failed": dict(result.failed),
        "failures": [_failure(what, failure) for failure in result.failures],
        "seconds": round(result.seconds, 3),
        "command": search_command(what, result.deviations),
    }


def _failure(what: Exploration, failure: Failure) -> dict[str, Any]:
    return {
        "variant": failure.job.variant,
        "path": show_path(failure.job.path),
        "findings": [{"kind": finding.kind, "text": finding.text} for finding in failure.findings],
        "command": replay_command(what, failure.job),
    }
