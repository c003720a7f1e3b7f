"""Rows of `chaos.py --orderer regions`: fifteen nodes in two regions of overlap, and three replicas of their service.

Ten nodes are in one set of groups and five in another; all are in five groups more. So there is a region of ten, with
two partitions, and one of five. All nodes send to all of their groups. In every row each datagram is lost with a
probability of 5 %, also those of the replicas; on loopback nodes lose what they receive, and replicas nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic, time_ns

from chaos_group import SHOWN_VIOLATIONS, Outcome
from chaos_namespaces import Namespaces

from ordercast.cli.children import Saying
from ordercast.cli.demo_regions import EXAMINED
from ordercast.cli.proof import prove
from ordercast.cli.region_processes import RegionProcesses, RegionsVenue

NAME = "ocr"
LARGE, SMALL = "metals", "energy"
CREWS = {LARGE: [f"m{number}" for number in range(10)], SMALL: [f"e{number}" for number in range(5)]}
EVERYBODY = [name for crew in CREWS.values() for name in crew]
REPLICAS = ["g0", "g1", "g2"]
PARTITIONS = 2
"""Of the region of ten: a member's partition is its place in the view, modulo this."""

PACE_S = 0.2
"""Between two batches of a node, of 25 messages of 100 bytes, and between two messages that it has confirmed."""

SHARE_GOAL = 0.2
"""Of the datagrams that bring repairs: those of the sender of the blocks."""

EXCLUDED_GOAL_S = 5.0
"""Nobody watches a member better than the courier of its predecessor, which doubts after half a second; then the
service asks for two and a half."""

SERVED_GOAL_S = 10.0
"""The same, where the replica that leads the service is killed in the same moment."""

STOOD_GOAL_S = 1.0
"""Blocks go on while nobody acknowledges them, as far as windows reach."""

RETURN_GOAL_S = 5.0
STORM_STEPS = 15
STORM_PAUSE_S = 2.0
"""Less than it takes until a member that is silent is excluded."""
FREEZE_S = (4.0, 8.0)
"""More."""

OUTAGE_S = 10.0
PUT_OUT = ("outage", "storm")
"""Rows in which nodes are put out that live."""


class RegionsNetwork:
    """Eighteen namespaces on a bridge, or loopback."""

    def __init__(self, *, is_loopback: bool) -> None:
        self.is_loopback = is_loopback
        self._namespaces = Namespaces(NAME, [*EVERYBODY, *REPLICAS], is_loopback=is_loopback)

    def obstacle(self) -> str | None:
        return self._namespaces.obstacle()

    def up(self) -> None:
        self._namespaces.up()

    def down(self) -> None:
        self._namespaces.down()

    def calm(self) -> None:
        self._namespaces.heal()
        self._namespaces.lose(0.0)

    def cut(self, names: Collection[str]) -> None:
        """These are cut off from all others."""
        self._namespaces.cut([name for name in (*EVERYBODY, *REPLICAS) if name not in names], names)

    def heal(self) -> None:
        self._namespaces.heal()

    def lose(self, loss: float, processes: RegionProcesses) -> None:
        if self._namespaces.loses:
            self._namespaces.lose(loss)
        else:
            processes.lose(loss)

    def dropped(self, answers: Mapping[str, Saying]) -> int:
        """Datagrams, or trains of them, on their way to nodes."""
        if self._namespaces.loses:
            return sum(self._namespaces.drops(name) for name in answers)
        return sum(said["dropped"] for said in answers.values())

    def venue(self, trace: Path) -> RegionsVenue:
        if self.is_loopback:
            return RegionsVenue(trace, CREWS, REPLICAS, pace_s=PACE_S)
        names = [*EVERYBODY, *REPLICAS]
        hosts = {name: self._namespaces.host(name) for name in names}
        prefixes = {name: self._namespaces.command(name) for name in names}
        return RegionsVenue(trace, CREWS, REPLICAS, hosts, prefixes, insecure=True, pace_s=PACE_S)


@dataclass(slots=True)
class RegionsOptions:
    loss: float
    seconds: float
    traces: Path
    network: RegionsNetwork


@contextlib.asynccontextmanager
async def regions_at_work(outcome: Outcome, options: RegionsOptions) -> AsyncIterator[RegionProcesses]:
    """Nodes that send; behind it everything comes to rest and is judged."""
    trace = Path(tempfile.mkdtemp(prefix=f"regions-{outcome.scenario}-", dir=options.traces))
    network = options.network
    network.calm()
    processes = RegionProcesses(network.venue(trace))
    processes.write_info({"bench": "chaos", "scenario": outcome.scenario, "loss": options.loss})
    outcome.goal_s, outcome.back_goal_s = STOOD_GOAL_S, RETURN_GOAL_S
    outcome.notes.append(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    try:
        await processes.start_replicas(REPLICAS)
        await processes.start(EVERYBODY)
        await processes.until(EVERYBODY)
        network.lose(options.loss, processes)
        processes.send()
        await asyncio.sleep(options.seconds / 2)
        yield processes
        await asyncio.sleep(options.seconds / 2)
        answers, faults = await processes.drain()
        dropped = network.dropped(answers)
        await processes.stop()
    finally:
        await processes.kill()
    for text in faults[:SHOWN_VIOLATIONS]:
        outcome.demand(False, text)
    put_out = [name for name, said in answers.items() if said["left"]]
    if put_out and outcome.scenario not in PUT_OUT:
        outcome.views = (outcome.views or 0) + len(put_out)
    outcome.notes += [f"the service has put out nodes that live: {' '.join(put_out)}"] if put_out else []
    _tell_repairs(outcome, answers, dropped)
    outcome.demand(not options.loss or dropped > 0, "nothing was dropped, so this proves nothing")
    outcome.notes.append(f"load of the machine behind: {os.getloadavg()[0]:.1f}")
    judge(outcome, processes)


def judge(outcome: Outcome, processes: RegionProcesses) -> None:
    """Add what the traces say to a row."""
    proof = prove(processes.venue.trace, processes.crashed, with_spark=False, say=print, wanted=EXAMINED)
    outcome.confirmed += proof.confirmed
    outcome.broken += proof.lost
    outcome.held &= proof.held
    outcome.notes += proof.evidence[:SHOWN_VIOLATIONS]
    unheld = [f"{name}: {one.word}" for name, one in proof.properties.items() if one.word != "held"]
    outcome.notes.append(f"{proof.events:,} events examined by {proof.by}" + "".join([f"; {text}" for text in unheld]))


def _tell_repairs(outcome: Outcome, answers: Mapping[str, Saying], dropped: int) -> None:
    """Who has repaired, as far as those know it that live in the end, and were never put out."""

    def total(key: str) -> int:
        return sum(said["counts"][key] for said in answers.values() if not said["left"])

    asked = total("repairs") - total("sent.push") - total("sent.pulled")
    again = total("retransmissions")
    everything = total("repairs") + again
    share = (total("own_repairs") + again) / everything if everything else 0.0
    if share > SHARE_GOAL and outcome.scenario == "losses":
        outcome.also_missed = f"senders made more than {100 * SHARE_GOAL:g} % of the repairs"
    delivered = [said["delivered"] for said in answers.values()]
    outcome.notes.append(
        f"{dropped:,} packets were dropped on their way to nodes, which received {min(delivered):,} to "
        f"{max(delivered):,} messages; repairs: {total('sent.push'):,} pushed, {total('sent.pulled'):,} pulled, "
        f"{asked:,} asked of senders, {again:,} sent again unasked; of all {everything:,} the sender's own were "
        f"{100 * share:.1f} % ({total('own_repairs'):,} asked, pushed or pulled)"
    )


# The scenarios


async def losses(outcome: Outcome, options: RegionsOptions) -> None:
    """Nothing else happens."""
    async with regions_at_work(outcome, options) as processes:
        await processes.watch()
        await asyncio.sleep(options.seconds)
        answers = await processes.ask()
        outcome.stood_s = _longest(answers, "stood_ms")
        outcome.notes.append(f"the longest confirmed send took {_longest(answers, 'confirm_ms'):.2f} s")


async def leader(outcome: Outcome, options: RegionsOptions) -> None:
    """The leader of the larger region, which starts its tokens."""
    async with regions_at_work(outcome, options) as processes:
        victim = (await _ring(processes))[0]
        await _kill(outcome, processes, [victim], processes.crash([victim]))


async def holder(outcome: Outcome, options: RegionsOptions) -> None:
    """A member that does not start tokens, in the pass in which one has come: nothing of that pass leaves."""
    async with regions_at_work(outcome, options) as processes:
        victim = (await _ring(processes))[3]
        await _kill(outcome, processes, [victim], processes.crash_holder(victim))


async def cachers(outcome: Outcome, options: RegionsOptions) -> None:
    """Four of five members of a partition at once: a single one keeps its blocks."""
    async with regions_at_work(outcome, options) as processes:
        victims = (await _ring(processes))[1::PARTITIONS][:-1]
        await _kill(outcome, processes, victims, processes.crash(victims))


async def replica(outcome: Outcome, options: RegionsOptions) -> None:
    """A replica that follows. Nobody but the others notices."""
    outcome.views = 0
    async with regions_at_work(outcome, options) as processes:
        leading = await processes.leading_replica()
        victim = next(name for name in REPLICAS if name != leading)
        await processes.watch()
        await processes.crash_replica(victim)
        await asyncio.sleep(options.seconds)
        answers = await processes.until(EVERYBODY)
        outcome.stood_s = _longest(answers, "stood_ms")
        await _restart_replica(outcome, processes, victim)


async def service(outcome: Outcome, options: RegionsOptions) -> None:
    """The replica that leads, and at the same moment a member of the larger region: the next one has to exclude it."""
    async with regions_at_work(outcome, options) as processes:
        leading = await processes.leading_replica()
        victim = (await _ring(processes))[-1]
        began_s = monotonic()
        await processes.watch()
        await processes.crash_replica(leading)
        killing = asyncio.create_task(_kill(outcome, processes, [victim], processes.crash([victim]), SERVED_GOAL_S))
        heir = await processes.leading_replica([leading])
        outcome.notes.append(f"{heir} led the service {monotonic() - began_s:.2f} s after {leading} was killed")
        await killing
        await _restart_replica(outcome, processes, leading)


async def outage(outcome: Outcome, options: RegionsOptions) -> None:
    """Three nodes of one region, two of the other and a replica are cut off: they are put out, and come back."""
    async with regions_at_work(outcome, options) as processes:
        leading = await processes.leading_replica()
        lost = [*(await _ring(processes))[::4], *CREWS[SMALL][-2:]]
        others = [name for name in EVERYBODY if name not in lost]
        await processes.watch()
        options.network.cut([*lost, next(name for name in REPLICAS if name != leading)])
        began_s = monotonic()
        answers = await processes.until(others)
        excluded_s = monotonic() - began_s
        outcome.stood_s = max(float(answers[name]["stood_ms"]) for name in others) / 1e3
        if excluded_s > EXCLUDED_GOAL_S:
            outcome.also_missed = f"excluded after more than {EXCLUDED_GOAL_S:g} s"
        await asyncio.sleep(max(0.0, OUTAGE_S - excluded_s))
        options.network.heal()
        began_s = monotonic()
        await processes.until(EVERYBODY)
        outcome.back_s = monotonic() - began_s
        outcome.notes.append(f"{' '.join(lost)} cut off: in no view {excluded_s:.2f} s later")


async def _kill(
    outcome: Outcome,
    processes: RegionProcesses,
    victims: Collection[str],
    killing: Awaitable[None],
    within_s: float = EXCLUDED_GOAL_S,
) -> None:
    """Kill nodes, wait until nobody has them in a view, and start them again."""
    others = [name for name in EVERYBODY if name not in victims]
    await processes.watch()
    await killing
    began_s = monotonic()
    answers = await processes.until(others)
    excluded_s = monotonic() - began_s
    outcome.stood_s = _longest(answers, "stood_ms")
    if excluded_s > within_s:
        outcome.also_missed = f"excluded after more than {within_s:g} s"
    outcome.notes.append(
        f"{' '.join(victims)} killed: in no view {excluded_s:.2f} s later; meanwhile nothing of others was delivered "
        f"for {outcome.stood_s:.2f} s at most, and a confirmed send took up to {_longest(answers, 'confirm_ms'):.2f} s"
    )
    began_s = monotonic()
    up_s = await processes.start(victims)
    await processes.until(EVERYBODY)
    # A new interpreter needs a second of a processor, which busy nodes do not leave to it.
    outcome.back_s = monotonic() - began_s - up_s
    outcome.notes.append(f"restarted processes took {up_s:.2f} s to come up; from then on the time back counts")


async def _restart_replica(outcome: Outcome, processes: RegionProcesses, name: str) -> None:
    began_s = monotonic()
    await processes.start_replicas([name])
    outcome.notes.append(f"{name} was restarted, and had the directory {monotonic() - began_s:.2f} s later")


class Storm:
    """Faults by chance, one after the other, whatever came of those before. One replica is down at a time: of two that
    are left the service could not spare one. Half of the nodes are never killed, so that there is somebody to judge.
    They are in both partitions of a view of ten, each of which is every other node: what all cachers of a partition
    take with them when they die may be lost."""

    def __init__(self, processes: RegionProcesses, rng: Random) -> None:
        self._processes = processes
        self._rng = rng
        self._mortals = [name for crew in CREWS.values() for name in crew[: -(-len(crew) // 2)]]
        self._replica: asyncio.Task[None] | None = None  # that comes back
        self.counts: Counter[str] = Counter()

    async def step(self) -> None:
        does = self._rng.choice(
            (self._kill, self._kill, self._restart, self._restart, self._pause, self._freeze, self._kill_replica)
        )
        self.counts[does.__name__.strip("_")] += 1
        await does()
        await asyncio.sleep(self._rng.uniform(0.0, STORM_PAUSE_S))

    async def end(self) -> None:
        """All processes run."""
        await self._start(self._down)
        if self._replica is not None:
            await self._replica

    @property
    def _down(self) -> list[str]:
        return [name for name in self._mortals if name not in self._processes.children]

    async def _kill(self) -> None:
        """One or two."""
        up = [name for name in self._mortals if name not in self._down]
        await self._processes.crash(self._rng.sample(up, min(len(up), self._rng.choice((1, 2)))))

    async def _restart(self) -> None:
        if self._down:
            await self._start([self._rng.choice(self._down)])

    async def _start(self, names: Collection[str]) -> None:
        await self._processes.start(names)

    async def _pause(self) -> None:
        await self._processes.pause(
            self._rng.choice(list(self._processes.children)), self._rng.uniform(0.1, STORM_PAUSE_S)
        )

    async def _freeze(self) -> None:
        """So long that it is put out although it lives, and comes back."""
        up = [name for name in self._mortals if name not in self._down]
        if up:
            await self._processes.pause(self._rng.choice(up), self._rng.uniform(*FREEZE_S))

    async def _kill_replica(self) -> None:
        """Whichever it is; it comes back at once."""
        if self._replica is None or self._replica.done():
            name = self._rng.choice(REPLICAS)
            await self._processes.crash_replica(name)
            self._replica = asyncio.create_task(self._processes.start_replicas([name]))


async def storm(outcome: Outcome, options: RegionsOptions) -> None:
    """All of it by chance: nothing waits until what was done before has come to an end."""
    seed = time_ns() % 1_000_000
    async with regions_at_work(outcome, options) as processes:
        storm = Storm(processes, Random(seed))
        for _ in range(STORM_STEPS):
            await storm.step()
        await storm.end()
        began_s = monotonic()
        await processes.until(EVERYBODY)
        outcome.back_s = monotonic() - began_s
        did = ", ".join([f"{count} x {word}" for word, count in storm.counts.items()])
        outcome.notes.append(f"seed {seed}: {did}; all were together {outcome.back_s:.2f} s after the last had started")


REGION_SCENARIOS = {
    "losses": losses,
    "leader": leader,
    "holder": holder,
    "cachers": cachers,
    "replica": replica,
    "service": service,
    "outage": outage,
    "storm": storm,
}
CUTS = ("outage",)
"""Rows that loopback does not have."""


# Helpers


async def _ring(processes: RegionProcesses) -> list[str]:
    """The members of the larger region in the order of their view; the first one leads it."""
    ring: list[str] = (await processes.ask())[CREWS[LARGE][0]]["ring"]
    return ring


def _longest(answers: Mapping[str, Saying], key: str) -> float:
    return max(float(said[key]) for said in answers.values()) / 1e3
