"""Orderers beside each other: the same messages at the same times on each, and how long they wait.

*Reception-to-delivery latency* is that of section 2.3 of the TOMPA paper, for each message at each member but its
sender: from the moment the member holds the message (`hold`) to its delivery (`deliver`). It has two parts, divided by
the moment at which the member learns the message's final place (`placed`):

- t1, until the place is known;
- t2, from then to the delivery: what waits for others. With timestamps these are messages that stand before it and are
  not decided yet. The sequencer and the token write `placed` when the place *and all before it* are known, so their t2
  is only what services stronger than AGREED wait for.

A small message of the sequencer, and of a quiet token ring, comes to its receivers together with its place: there is no
wait at a receiver, only before it. So the time from the submit to the delivery at receivers is told beside.

A place that is known before the message is there counts from the message's arrival. What is delivered before it has a
place (RELIABLE, FIFO) has no t2.

*Datagrams per message* are all that were sent by all members from the first submit to the last delivery, a multicast
once, heartbeats included, over the messages of that time: from the network's counters, since `tx` rows stand for up to
100 ms and would blur where a run begins and ends.

Members form a group and warm it up before anything counts; the first tenth of each sender's messages is left out of the
latencies. Each sender's arrivals are a Poisson process, drawn from the seed and nothing else. A *saturated* group gets
everything at once, and its flow control decides when it leaves. Every trace is judged by all checkers.
"""

from __future__ import annotations

import multiprocessing
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ordercast.config import MS, SECOND, GroupConfig
from ordercast.errors import UsageError
from ordercast.orderers import ORDERERS
from ordercast.service import Service, parse_service
from ordercast.sim.lab import DATAGRAM, LIMIT_NS, Lab, MeasurementFailed
from ordercast.sim.network import NETWORKS, NetworkModel
from ordercast.sim.scenario import ANTICIPATING, SERVICES
from ordercast.trace.schema import Row
from ordercast.wire.header import Kind, detail_of

MAX_NODES: Final = 64
MAX_LOAD: Final = 10_000_000.0
MAX_MESSAGES: Final = 1_000_000
MAX_SIZE: Final = 60_000
MAX_SEEDS: Final = 1_000
MAX_JITTER_MS: Final = 1_000.0
MAX_CHANCE: Final = 0.3
MAX_JOBS: Final = 64
SKIPPED: Final = 0.1  # of each sender's messages: they find the group idle
SATURATED: Final = 0.0
SATURATING_BYTES: Final = 300_000  # of each sender, or as many messages as of any other load if these are more
WORDS: Final = ("light", "medium", "heavy", "saturated")
LOADS: Final[dict[str, tuple[float, float, float]]] = {
    "ideal": (200.0, 5_000.0, 30_000.0),
    "loopback": (200.0, 5_000.0, 30_000.0),
    "lan": (200.0, 5_000.0, 30_000.0),
    "ethernet-10": (20.0, 80.0, 300.0),
    "ethernet": (20.0, 120.0, 500.0),
}
"""What light, medium and heavy are on each network, in messages a second, as measured there. Light: a message mostly
meets no other. Medium: some meet. Heavy: where members of the timestamp orderer, which takes most
datagrams, begin to wait for processors and wires: twenty of them on the lan, five on the ethernets."""

PLAIN: Final = "no-anticipate"
PACKED: Final = "anticipate"

Progress = Callable[[int, int, str], None]
"""Called with (runs done, runs in all, what was done last)."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An orderer, and whether it anticipates where it can."""

    orderer: str
    anticipate: bool = True

    def __str__(self) -> str:
        return self.orderer if self.anticipate else f"{self.orderer}:{PLAIN}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared with what; `UsageError` where it makes no sense."""

    variants: tuple[Variant, ...]
    nodes: tuple[int, ...] = (5,)
    loads: tuple[float, ...] = (1_000.0,)  # messages a second of all senders together; SATURATED: as many as it takes
    senders: int = 0  # the last so many; 0: all
    messages: int = 1_000  # of all senders together
    size: int = 100
    service: str = "AGREED"
    network: str = "lan"
    jitter_ms: float = -1.0  # -1: the network's own
    loss: float = 0.0
    reorder: float = 0.0
    seed: int = 0
    seeds: int = 1

    def __post_init__(self) -> None:
        for what, given, low, high in (
            ("nodes", self.nodes, 2, MAX_NODES),
            ("load", [load for load in self.loads if load != SATURATED], 0.001, MAX_LOAD),
            ("messages", [self.messages], 1, MAX_MESSAGES),
            ("size", [self.size], 0, MAX_SIZE),
            ("seeds", [self.seeds], 1, MAX_SEEDS),
            ("seed", [self.seed], 0, 1 << 62),
            ("senders", [self.senders], 0, min(self.nodes, default=0)),
            ("loss", [self.loss], 0, MAX_CHANCE),
            ("reorder", [self.reorder], 0, MAX_CHANCE),
            ("jitter-ms", [self.jitter_ms] if self.jitter_ms != -1 else [], 0, MAX_JITTER_MS),
        ):
            for value in given:
                if not low <= value <= high:
                    raise UsageError(f"--{what} lies between {low:g} and {high:g}, not {value:g}")
        for what, several in (("orderers", self.variants), ("nodes", self.nodes), ("load", self.loads)):
            if not several:
                raise UsageError(f"--{what} needs at least one value")
            if len(set(several)) < len(several):
                raise UsageError(f"--{what} names a value twice")
        if self.network not in NETWORKS:
            raise UsageError(f"there is no network {self.network!r}; choose one of {', '.join(NETWORKS)}")
        service = self.parsed_service()
        if not service.rank:
            raise UsageError(f"{service} messages get no place: there is nothing to wait for")
        for variant in self.variants:
            given_services = SERVICES[variant.orderer]
            if str(service).partition("(")[0] not in given_services:
                raise UsageError(f"the {variant.orderer} gives {', '.join(given_services)}, not {service}")

    def parsed_service(self) -> Service:
        try:
            return parse_service(self.service)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def network_model(self) -> NetworkModel:
        model = replace(NETWORKS[self.network], loss=self.loss, reorder=self.reorder)
        return model if self.jitter_ms < 0 else replace(model, jitter_ns=round(self.jitter_ms * MS))

    def troubles(self) -> list[str]:
        """What is wrong with the network, for people."""
        late_ms = NETWORKS[self.network].reorder_ns / MS
        words = [f"{100 * self.loss:g} % of datagrams lost"] if self.loss else []
        if self.reorder:
            words.append(f"{100 * self.reorder:g} % up to {late_ms:g} ms late")
        return words

    def runs(self) -> list[Run]:
        """One for each seed, orderer, size and load."""
        seeds = range(self.seed, self.seed + self.seeds)
        return [
            Run(variant, nodes, load, seed)
            for nodes in self.nodes
            for load in self.loads
            for variant in self.variants
            for seed in seeds
        ]


class Run(NamedTuple):
    """One run of a plan."""

    variant: Variant
    nodes: int
    load: float
    seed: int


class Wait(NamedTuple):
    """How long so many messages waited at one member."""

    t1_ns: int
    t2_ns: int
    since_submit_ns: int  # to the delivery
    messages: int


@dataclass(slots=True)
class Sample:
    """What one run gave."""

    waits: list[Wait]
    messages: int
    datagrams: Counter[str]  # by kind, as traces call them
    took_ns: int  # from the first submit to the last delivery
    events: int  # that were judged
    violations: int


@dataclass(frozen=True, slots=True)
class Times:
    """Of all messages and receivers, in microseconds."""

    mean_us: float
    p50_us: float
    p95_us: float


@dataclass(frozen=True, slots=True)
class Point:
    """One orderer with one group size under one load, all seeds together."""

    orderer: str  # with its variant
    nodes: int
    load_per_s: float  # 0: saturated
    messages: int
    deliveries: int  # that the times are of
    latency: Times
    t1: Times
    t2: Times
    from_submit: Times  # to the delivery at receivers
    seed_means_us: tuple[float, ...]  # the mean latency of each seed
    delivered_per_s: float
    datagrams_per_message: float
    datagrams_by_kind: dict[str, float]  # per message
    events: int
    violations: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """What anticipation saves at one group size and load, in per cent of the variant without it."""

    orderer: str
    nodes: int
    load_per_s: float
    latency: float
    t2: float
    t2_share: float  # of the latency without it: more than that cannot be saved


@dataclass(slots=True)
class Comparison:
    """All of a plan."""

    plan: Plan
    points: list[Point]

    @property
    def held(self) -> bool:
        return not any(point.violations for point in self.points)

    @property
    def events(self) -> int:
        return sum(point.events for point in self.points)

    def reductions(self) -> list[Reduction]:
        """Anticipation against its absence, where both were measured."""
        by_case = {(point.orderer, point.nodes, point.load_per_s): point for point in self.points}
        found = []
        for (name, nodes, load), point in by_case.items():
            plain = by_case.get((f"{name}:{PLAIN}", nodes, load))
            if plain is not None and plain.latency.mean_us:
                found.append(
                    Reduction(
                        name,
                        nodes,
                        load,
                        100 * (1 - point.latency.mean_us / plain.latency.mean_us),
                        100 * (1 - point.t2.mean_us / plain.t2.mean_us) if plain.t2.mean_us else 0.0,
                        100 * plain.t2.mean_us / plain.latency.mean_us,
                    )
                )
        return found

    def as_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "held": self.held,
            "events": self.events,
            "parameters": {
                **asdict(plan),
                "variants": [str(variant) for variant in plan.variants],
                "jitter_ms": plan.network_model().jitter_ns / MS,
            },
            "points": [asdict(point) for point in self.points],
            "reductions_percent": [asdict(reduction) for reduction in self.reductions()],
        }


# What was asked for. --------------------------------------------------------------------------------------------------


def parse_variant(word: str) -> Variant:
    """`token`, `timestamp`, `timestamp:no-anticipate`."""
    orderer, colon, variant = word.strip().partition(":")
    if orderer not in SERVICES or orderer not in ORDERERS:
        raise UsageError(f"there is no orderer {orderer!r}; choose some of {', '.join(ORDERERS)}")
    if not colon:
        return Variant(orderer)
    if orderer not in ANTICIPATING or variant not in (PLAIN, PACKED):
        known = ", ".join(f"{name}:{PLAIN}" for name in ANTICIPATING)
        raise UsageError(f"there is no variant {variant!r} of {orderer}; variants are {known}")
    return Variant(orderer, variant != PLAIN)


def parse_load(word: str, network: str) -> float:
    """Messages a second, or one of the words for it, which depend on the network."""
    word = word.strip()
    if word == WORDS[-1]:
        return SATURATED
    if word in WORDS:
        return LOADS[network][WORDS.index(word)]
    try:
        load = float(word)
    except ValueError:
        load = 0.0
    if not 0 < load <= MAX_LOAD:
        raise UsageError(
            f"a load is a number of messages per second up to {MAX_LOAD:g}, or {', '.join(WORDS)}, not {word!r}"
        )
    return load


def load_name(load: float) -> str:
    return f"{load:g}/s" if load else WORDS[-1]


# Measuring. -----------------------------------------------------------------------------------------------------------


def compare(plan: Plan, jobs: int = 1, progress: Progress | None = None) -> Comparison:
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


def _samples(plan: Plan, runs: Sequence[Run], jobs: int) -> Iterator[Sample]:
    work = partial(measure, plan)
    if jobs == 1:
        yield from map(work, runs)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(runs))) as pool:
        yield from pool.imap(work, runs)


def measure(plan: Plan, run: Run) -> Sample:
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


# What a trace says. ---------------------------------------------------------------------------------------------------


class _Moments:
    """When one member had something of one sender: ranges of numbers, and a time for each."""

    __slots__ = ("_firsts", "_spans")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._spans: list[tuple[int, int]] = []  # stop, time

    def add(self, first: int, count: int, at_ns: int) -> None:
        at = bisect_right(self._firsts, first)
        self._firsts.insert(at, first)
        self._spans.insert(at, (first + count, at_ns))

    def at(self, number: int) -> tuple[int, int] | None:
        """The time of a number, and how far it is the same for those that follow."""
        index = bisect_right(self._firsts, number) - 1
        if index < 0 or self._spans[index][0] <= number:
            return None
        stop, at_ns = self._spans[index]
        return at_ns, stop


def waits(rows: Iterable[Row], skip: int = 0) -> Iterator[Wait]:
    """t1 and t2 of each message at each member but its sender, without the first `skip` of each sender."""
    begins: dict[str, int] = {}  # sender -> the first number that counts
    submits: dict[str, _Moments] = {}
    holds: dict[tuple[str, str], _Moments] = {}
    places: dict[tuple[str, str], _Moments] = {}
    deliveries: list[Row] = []
    for row in rows:
        if row.kind == "submit" and row.count:
            sender, number = f"{row.node}/{row.life}", row.first or 0
            begins.setdefault(sender, number + skip)
            submits.setdefault(sender, _Moments()).add(number, row.count, row.at_ns)
        elif row.kind in ("hold", "placed") and row.count and row.sender is not None:
            kind = holds if row.kind == "hold" else places
            kind.setdefault((row.node, row.sender), _Moments()).add(row.first or 0, row.count, row.at_ns)
        elif row.kind == "deliver" and row.count and row.sender is not None:
            deliveries.append(row)
    nothing = _Moments()
    for row in deliveries:
        sender, number = row.sender or "", row.first or 0
        stop = number + (row.count or 0)
        if sender == f"{row.node}/{row.life}" or sender not in begins:
            continue
        number = max(number, begins[sender])
        held = holds.get((row.node, sender), nothing)
        placed = places.get((row.node, sender), nothing)
        while number < stop:
            submitted, came, known = submits[sender].at(number), held.at(number), placed.at(number)
            if submitted is None or came is None:
                raise MeasurementFailed(f"{row.node} delivered message {number} of {sender} and never held it")
            upto = min(stop, submitted[1], came[1], stop if known is None else known[1])
            known_ns = row.at_ns if known is None else min(max(known[0], came[0]), row.at_ns)
            yield Wait(known_ns - came[0], row.at_ns - known_ns, row.at_ns - submitted[0], upto - number)
            number = upto


def point_of(run: Run, samples: Sequence[Sample]) -> Point:
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


def latency_of(found: Sequence[Wait]) -> Times:
    return times_of([(wait.t1_ns + wait.t2_ns, wait.messages) for wait in found])


def times_of(values: Sequence[tuple[int, int]]) -> Times:
    """Mean and quantiles of nanoseconds that count several times each."""
    ordered = sorted(values)
    total = sum(count for _, count in ordered)
    if not total:
        return Times(0.0, 0.0, 0.0)
    stops = list(accumulate(count for _, count in ordered))
    p50, p95 = (ordered[bisect_right(stops, int(total * share))][0] for share in (0.5, 0.95))
    return Times(sum(value * count for value, count in ordered) / total / 1_000, p50 / 1_000, p95 / 1_000)
