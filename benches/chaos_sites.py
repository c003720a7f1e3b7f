"""Rows of `chaos.py --orderer sites`: three sites of three daemons, each node its own daemon, all of them sending.

Two in a hundred packets between sites are lost in every row. Between namespaces they also take 10 to 25 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from chaos_group import SHOWN_VIOLATIONS, Outcome
from chaos_wan import CREWS, EVERYBODY, LOSS, Wan

from ordercast.cli.children import Saying
from ordercast.cli.proof import prove
from ordercast.cli.site_processes import SiteProcesses

PACE_S = 0.1
"""Between two batches of one daemon, of forty messages of 100 bytes. Nine processes have to share a small machine."""

CUT_S = 5.0
BLINK_S = 0.5
CUT_GOAL_S = 3.0
"""Silence is suspicious after 1.3 to 2.6 s; then the parts form their views."""
MERGE_GOAL_S = 3.0
KILL_GOAL_S = 1.3
"""The time after which silence is suspicious: a process that is gone is noticed earlier."""
RETURN_GOAL_S = 5.0
DOWN_S = 2.0
PAUSE_S = 1.0
SETTLE_S = 2.0
"""How long after a pause views are watched."""


@dataclass(slots=True)
class SitesOptions:
    seconds: float
    traces: Path
    wan: Wan


@contextlib.asynccontextmanager
async def sites_at_work(outcome: Outcome, options: SitesOptions) -> AsyncIterator[SiteProcesses]:
    """Daemons that send; behind it everything comes to rest and is judged."""
    trace = Path(tempfile.mkdtemp(prefix=f"sites-{outcome.scenario}-", dir=options.traces))
    wan = options.wan
    wan.calm()
    processes = SiteProcesses(wan.venue(trace))
    processes.write_info({"bench": "chaos", "scenario": outcome.scenario, "loss": LOSS})
    outcome.notes.append(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    try:
        await processes.start(EVERYBODY)
        wan.lose(LOSS, processes)
        await processes.until([EVERYBODY])
        processes.tell("pace", seconds=PACE_S)
        processes.tell("send")
        await asyncio.sleep(options.seconds / 2)
        yield processes
        await asyncio.sleep(options.seconds / 2)
        wan.count()
        drained = await processes.drain()
        await processes.stop()
    finally:
        await processes.kill()
    outcome.notes.append(f"load of the machine behind: {os.getloadavg()[0]:.1f}; {wan.carried() or _lost(drained)}")
    judge(outcome, processes)


def judge(outcome: Outcome, processes: SiteProcesses) -> None:
    """Add what the traces say to a row."""
    for text in processes.disagreements()[:SHOWN_VIOLATIONS]:
        outcome.demand(False, text)
    proof = prove(processes.venue.trace, processes.crashed, with_spark=False, say=print)
    outcome.confirmed += proof.confirmed
    outcome.broken += proof.lost
    outcome.held &= proof.held
    outcome.notes += proof.evidence[:SHOWN_VIOLATIONS]
    unheld = [f"{name}: {one.word}" for name, one in proof.properties.items() if one.word != "held"]
    outcome.notes.append(f"{proof.events:,} events examined by {proof.by}" + "".join([f"; {text}" for text in unheld]))


# The scenarios


async def cut(outcome: Outcome, options: SitesOptions) -> None:
    """One site is cut off from the other two."""
    await _cut(outcome, options, [["east"], ["west", "north"]])


async def one_way(outcome: Outcome, options: SitesOptions) -> None:
    """The same, but it hears the other two."""
    await _cut(outcome, options, [["east"], ["west", "north"]], is_one_way=True)


async def apart(outcome: Outcome, options: SitesOptions) -> None:
    """All sites are cut off from one another."""
    await _cut(outcome, options, [[site] for site in CREWS])


async def blink(outcome: Outcome, options: SitesOptions) -> None:
    """A short cut is no failure yet."""
    async with sites_at_work(outcome, options) as processes:
        before = await processes.ask()
        await _watch(processes)
        options.wan.cut([[site] for site in CREWS], processes)
        await asyncio.sleep(BLINK_S)
        options.wan.heal(processes)
        await asyncio.sleep(SETTLE_S)
        after = await processes.ask()
        outcome.views = sum(after[name]["views"] - before[name]["views"] for name in after)
        stood_ms = {name: said["stood_ms"] for name, said in after.items()}
    outcome.notes.append(f"deliveries stood still for {_range(stood_ms)} ms")


async def _cut(
    outcome: Outcome, options: SitesOptions, parts: Sequence[Collection[str]], *, is_one_way: bool = False
) -> None:
    """With `is_one_way` the first part still hears the others."""
    outcome.goal_s, outcome.back_goal_s = CUT_GOAL_S, MERGE_GOAL_S
    wan = options.wan
    daemons = [[name for site in part for name in CREWS[site]] for part in parts]
    async with sites_at_work(outcome, options) as processes:
        await _watch(processes)
        began_s = monotonic()
        if is_one_way:
            (muted,) = parts[0]
            wan.mute(muted, processes)
        else:
            wan.cut(parts, processes)
        before = await processes.until(daemons, delivering=True)
        parted_s = monotonic() - began_s
        outcome.stood_s = max(said["stood_ms"] for said in before.values()) / 1e3
        await asyncio.sleep(max(0.0, CUT_S - parted_s))
        after = await processes.ask()
        ordered = {name: after[name]["ordered"] - before[name]["ordered"] for name in after}
        outcome.demand(all(ordered.values()), f"not every daemon went on while the sites were apart: {ordered}")
        await _watch(processes)
        began_s = monotonic()
        wan.heal(processes)
        merged = await processes.until([EVERYBODY], delivering=True)
        outcome.back_s = monotonic() - began_s
    outcome.notes.append(
        f"each part had its view {parted_s:.2f} s after the cut; while apart each daemon delivered {_range(ordered)} "
        f"ordered messages; the merge held up deliveries for {max(said['stood_ms'] for said in merged.values()):.0f} ms"
    )


async def kill(outcome: Outcome, options: SitesOptions) -> None:
    """A daemon that is not its site's representative."""
    await _kill(outcome, options, "w2")


async def kill_first(outcome: Outcome, options: SitesOptions) -> None:
    """The representative of its site, which has its links."""
    await _kill(outcome, options, "w1")


async def _kill(outcome: Outcome, options: SitesOptions, victim: str) -> None:
    outcome.goal_s, outcome.back_goal_s = KILL_GOAL_S, RETURN_GOAL_S
    others = [name for name in EVERYBODY if name != victim]
    async with sites_at_work(outcome, options) as processes:
        before = await processes.ask()
        await _watch(processes)
        await processes.crash(victim)
        alone = await processes.until([others], delivering=True)
        outcome.stood_s = max(said["stood_ms"] for said in alone.values()) / 1e3
        each = ", ".join([f"{name} {said['stood_ms']:.0f}" for name, said in alone.items()])
        outcome.notes.append(f"without deliveries, in ms: {each}")
        routes = [
            name for name in others if _count(alone, name, "routes_computed") > _count(before, name, "routes_computed")
        ]
        outcome.demand(not routes, f"routes have changed at {', '.join(routes)}")
        opened = [name for name in others if _count(alone, name, "links_opened") > _count(before, name, "links_opened")]
        outcome.notes.append(
            f"links were opened at {', '.join(opened) or 'none'}, routes computed at {', '.join(routes) or 'none'}"
        )
        if victim != CREWS["west"][0]:
            outcome.demand(not opened, "no representative has failed, and links were opened")
        await asyncio.sleep(DOWN_S)
        began_s = monotonic()
        up_s = await processes.start([victim])
        options.wan.lose(LOSS, processes, [victim])
        processes.children[victim].tell("pace", seconds=PACE_S)
        processes.children[victim].tell("send")
        await processes.until([EVERYBODY], delivering=True)
        # A new interpreter needs a second of a processor, which eight busy daemons do not leave to it.
        outcome.back_s = monotonic() - began_s - up_s
        outcome.notes.append(f"the restarted process took {up_s:.2f} s to come up; from then on the time back counts")


async def pause(outcome: Outcome, options: SitesOptions) -> None:
    """A stopped process is no failure yet; first one inside of a site, then a representative."""
    outcome.views = 0
    async with sites_at_work(outcome, options) as processes:
        for name in ("w2", "w1"):
            before = await processes.ask()
            await _watch(processes)
            await processes.pause(name, PAUSE_S)
            await asyncio.sleep(SETTLE_S)
            after = await processes.ask()
            views = sum(after[each]["views"] - before[each]["views"] for each in after)
            outcome.views += views
            stood_ms = {each: said["stood_ms"] for each, said in after.items() if each != name}
            outcome.notes.append(
                f"{name} stopped for {PAUSE_S:g} s: {views} views at all daemons together, its own loop stood still "
                f"for {after[name]['lag_ms']:.0f} ms, deliveries of the others for {_range(stood_ms)} ms"
            )


SITE_SCENARIOS = {
    "cut": cut,
    "one-way": one_way,
    "apart": apart,
    "blink": blink,
    "kill": kill,
    "kill-first": kill_first,
    "pause": pause,
}


# Helpers


async def _watch(processes: SiteProcesses) -> None:
    """From now on daemons note how long deliveries, and they themselves, stand still."""
    processes.tell("watch")
    await processes.ask()


def _count(answers: Mapping[str, Saying], name: str, key: str) -> int:
    count: int = answers[name]["counts"][key]
    return count


def _range(values: Mapping[str, float]) -> str:
    return f"{min(values.values()):,.0f} to {max(values.values()):,.0f}"


def _lost(answers: Mapping[str, Saying]) -> str:
    lost, dropped = (sum(said[key] for said in answers.values()) for key in ("lost", "dropped"))
    return f"daemons have lost {lost:,} datagrams of other sites, and cuts dropped {dropped:,}"
