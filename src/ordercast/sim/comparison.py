"""What `compare.py` measures: the plan, its runs, the points that they give, and what people type for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from ordercast.config import MS
from ordercast.errors import UsageError
from ordercast.orderers import ORDERERS
from ordercast.service import Service, parse_service
from ordercast.sim.network import NETWORKS, NetworkModel
from ordercast.sim.scenario import ANTICIPATING, SERVICES
from ordercast.sim.waits import Times

MAX_NODES: Final = 64
MAX_LOAD: Final = 10_000_000.0
MAX_MESSAGES: Final = 1_000_000
MAX_SIZE: Final = 60_000
MAX_SEEDS: Final = 1_000
MAX_JITTER_MS: Final = 1_000.0
MAX_CHANCE: Final = 0.3
SATURATED: Final = 0.0
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


@dataclass(frozen=True, slots=True)
class Variant:
    """An orderer, and whether it anticipates where it can."""

    orderer: str
    anticipate: bool = True

    def __str__(self) -> str:
        return self.orderer if self.anticipate else f"{self.orderer}:{PLAIN}"


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
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
    spread_ms: float = 0.0  # each datagram takes so much longer on average, exponentially distributed
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
            ("spread-ms", [self.spread_ms], 0, MAX_JITTER_MS),
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
            raise UsageError(f"{service} messages are not ordered: there is nothing to wait for")
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
        model = replace(
            NETWORKS[self.network], loss=self.loss, reorder=self.reorder, spread_ns=round(self.spread_ms * MS)
        )
        return model if self.jitter_ms < 0 else replace(model, jitter_ns=round(self.jitter_ms * MS))

    def troubles(self) -> list[str]:
        """What is wrong with the network, for people."""
        late_ms = NETWORKS[self.network].reorder_ns / MS
        words = [f"{100 * self.loss:g} % of datagrams lost"] if self.loss else []
        if self.spread_ms:
            words.append(f"exponential delays of {self.spread_ms:g} ms on average")
        if self.reorder:
            words.append(f"{100 * self.reorder:g} % up to {late_ms:g} ms late")
        return words

    def runs(self) -> list[PlannedRun]:
        """One for each seed, orderer, size and load."""
        seeds = range(self.seed, self.seed + self.seeds)
        return [
            PlannedRun(variant, nodes, load, seed)
            for nodes in self.nodes
            for load in self.loads
            for variant in self.variants
            for seed in seeds
        ]


class PlannedRun(NamedTuple):
    """One run of a plan."""

    variant: Variant
    nodes: int
    load: float
    seed: int


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

    plan: ComparisonPlan
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
        if network not in LOADS:
            raise UsageError(f"what {word} means was not measured on {network!r}; give a number of messages per second")
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
