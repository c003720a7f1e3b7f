"""Several orderers under the same load: the same messages at the same times on each, and how long they wait.

`waits.py` defines the wait of a message at a receiver and its two parts, t1 and t2; `comparison.py` has the plan and
the results.

A small message of the sequencer, and of a quiet token ring, reaches its receivers together with its sequence number:
there is no wait at a receiver, only before it. So the time from the submit to the delivery at receivers is also told.

*Datagrams per message* are all datagrams of all members from the first submit to the last delivery, divided by the
messages of that time. A multicast counts once, and heartbeats count. The count comes from the network: `tx` rows stand
for up to 100 ms and would blur where a run begins and ends.

Members form a group and warm it up before anything counts. The first tenth of each sender's messages is left out of the
latencies. Each sender's arrivals are a Poisson process, drawn from the seed and nothing else. A *saturated* group gets
everything at once, and its flow control decides when it leaves. Every trace is judged by all checkers.
"""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ordercast.config import SECOND, GroupConfig
from ordercast.errors import UsageError
from ordercast.sim.comparison import SATURATED, Comparison, ComparisonPlan, PlannedRun, Point, load_name
from ordercast.sim.lab import DATAGRAM, LIMIT_NS, Lab, MeasurementFailed
from ordercast.sim.waits import Wait, latency_of, times_of, waits
from ordercast.wire.header import Kind, detail_of

MAX_JOBS: Final = 64
SKIPPED: Final = 0.1  # of each sender's messages: they find the group idle
SATURATING_BYTES: Final = 300_000  # of each sender, or as many messages as of any other load if these are more

Progress = Callable[[int, int, str], None]
"""Called with (runs done, runs in all, what was done last)."""


@dataclass(slots=True)
class Sample:
    """What one run gave."""

    waits: list[Wait]
    messages: int
    datagrams: Counter[str]  # by kind, as traces call them
    took_ns: int  # from the first submit to the last delivery
    events: int  # that were judged
    violations: int


def compare(plan: ComparisonPlan, jobs: int = 1, progress: Progress | None = None) -> Comparison:
    """Run everything, `jobs` runs at a time: the result does not depend on how many."""
    if not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs lies between 1 and {MAX_JOBS}, not {jobs}")
    runs = plan.runs()
    samples: list[Sample] = []
    points: list[Point] = []
    for done, (run, sample) in enumerate(zip(runs, _samples(plan, runs, jobs), strict=True), start=1):
        samples.append(sample)
        if len(samples) == plan.seeds:
            points.append(point_of(run, samples))
            samples = []
        if progress is not None:
            progress(done, len(runs), f"{run.variant}, {run.nodes} nodes, {load_name(run.load)}")
    return Comparison(plan, points)


def _samples(plan: ComparisonPlan, runs: Sequence[PlannedRun], jobs: int) -> Iterator[Sample]:
    work = partial(measure, plan)
    if jobs == 1:
        yield from map(work, runs)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(runs))) as pool:
        yield from pool.imap(work, runs)


def measure(plan: ComparisonPlan, run: PlannedRun) -> Sample:
    """One run, judged."""
    service = plan.parsed_service()
    config = GroupConfig(orderer=run.variant.orderer, datagram=DATAGRAM, anticipate=run.variant.anticipate)
    lab = Lab(config, plan.network_model(), run.nodes, f"{run.seed}/compare")
    lab.warm(service)
    world = lab.world
    speakers = lab.members[-plan.senders :] if plan.senders else lab.members
    each = -(-plan.messages // len(speakers))
    had = [member.delivered for member in lab.members]
    sent = world.network.counters.sent_by_kind
    before = sent.copy()
    begin_ns = world.now_ns
    if run.load == SATURATED:
        each = max(each, -(-SATURATING_BYTES // max(plan.size, 1)))
        for member in speakers:
            member.send(each, service, plan.size)
    else:
        for index, member in enumerate(speakers):
            for at_ns in arrivals(f"{run.seed}/arrivals/{index}", each, run.load / len(speakers)):
                world.at(begin_ns + at_ns, lambda member: member.send(1, service, plan.size), member)
    total = each * len(speakers)

    def is_over() -> bool:
        return all(member.delivered - count >= total for member, count in zip(lab.members, had, strict=True))

    limit_ns = LIMIT_NS + (int(2 * total / run.load * SECOND) if run.load else 0)
    if not world.run_until(is_over, begin_ns + limit_ns):
        raise MeasurementFailed(f"{total} messages of {run.variant} were not delivered in {limit_ns // SECOND} s")
    datagrams = sent - before
    end_ns = world.now_ns
    lab.rest()
    return Sample(
        list(waits(lab.rows(begin_ns), int(each * SKIPPED))),
        total,
        by_detail(datagrams),
        end_ns - begin_ns,
        len(lab.rows(0)),
        lab.violations(),
    )


def arrivals(seed: str, count: int, per_s: float) -> Iterator[int]:
    """When one sender has a message to send, in nanoseconds from the beginning: a Poisson process."""
    rng = random.Random(seed)
    at_s = 0.0
    for _ in range(count):
        at_s += rng.expovariate(per_s)
        yield int(at_s * SECOND)


def by_detail(datagrams: Mapping[str, int]) -> Counter[str]:
    """Counts of kinds as the network names them, by the words of the trace."""
    found: Counter[str] = Counter()
    for name, count in datagrams.items():
        kind = Kind.__members__.get(name.upper())
        found[name if kind is None else detail_of(kind)] += count
    return found


def point_of(run: PlannedRun, samples: Sequence[Sample]) -> Point:
    """The seeds of one case put together."""
    everything = [wait for sample in samples for wait in sample.waits]
    messages = sum(sample.messages for sample in samples)
    datagrams: Counter[str] = Counter()
    for sample in samples:
        datagrams += sample.datagrams
    return Point(
        str(run.variant),
        run.nodes,
        run.load,
        messages,
        sum(wait.messages for wait in everything),
        latency_of(everything),
        times_of([(wait.t1_ns, wait.messages) for wait in everything]),
        times_of([(wait.t2_ns, wait.messages) for wait in everything]),
        times_of([(wait.since_submit_ns, wait.messages) for wait in everything]),
        tuple(
            times_of([(wait.t1_ns + wait.t2_ns, wait.messages) for wait in sample.waits]).mean_us for sample in samples
        ),
        messages * SECOND / max(1, sum(sample.took_ns for sample in samples)),
        datagrams.total() / messages,
        {kind: count / messages for kind, count in sorted(datagrams.items())},
        sum(sample.events for sample in samples),
        sum(sample.violations for sample in samples),
    )
