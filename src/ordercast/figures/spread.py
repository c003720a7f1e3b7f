"""Section 4 of the Spread paper, measured again: hop against ring over a wide area, misrouting, the LAN, and pruning.

The paper gives rates, and nothing about its network: no latency, loss or bandwidth, and no window. So these are chosen,
in this order:

- The bandwidth of the lines JHU - UCSB and JHU - Rutgers: hop then has the paper's rates for two and for three sites.
  Each line is for itself, since the paper's rates hardly depend on the source: with three sites the line to Rutgers is
  the narrowest one of every tree.
- Latencies, loss and the ring's window: where they are `LOSS` and `RING_PACKETS`, the ring has the paper's rates as
  well. `grid` shows what the gain is where loss and window are others.

The *ring* is our Ring as one site of all daemons, with a copy for each of them over the same lines (`site_lab.py`): the
production version that the paper compares with had "an adapted ring structure with direct point-to-point
dissemination". Rates are those of payload, from the first submit to the last delivery at the last receiver. There is a
daemon, and a receiver, at each place. Messages are AGREED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ordercast.config import SECOND
from ordercast.figures.site_lab import Lines, Moved, Places, SiteLab, WanLine, hops, one_ring
from ordercast.service import AGREED, FIFO, Service
from ordercast.sim.pipes import Direction

JHU: Final = "JHU"
UCSB: Final = "UCSB"
RUTGERS: Final = "Rutgers"
DAEMONS: Final = {JHU: "j", UCSB: "u", RUTGERS: "r"}
THREE: Final = (JHU, UCSB, RUTGERS)
TWO: Final = (JHU, UCSB)

MORE: Final = 100_000
MESSAGES: Final = 10_000
FEWER: Final = 1_000
SIZE: Final = 1_024

LOSS: Final = 0.03
RING_PACKETS: Final = 3  # of one daemon, in one rotation
LATENCY_MS: Final = {(JHU, UCSB): 42.0, (JHU, RUTGERS): 21.0, (UCSB, RUTGERS): 51.0}
JHU_UCSB_BITS: Final = 1_444_000
JHU_RUTGERS_BITS: Final = 977_000
DETOUR_SHARE: Final = 0.65  # of that, what UCSB - Rutgers carries, where nothing else is said
USE: Final = 0.9  # of a line, by the bucket of its link: the rest is for ACKs and signs of life
HOP_WINDOW: Final = 256

LAN_PLACES: Final = {"east": ("e1", "e2", "e3", "e4"), "west": ("w1",)}
LAN_GROUPS: Final = {"e1": "wide", "w1": "wide", "e2": "local", "e3": "local", "e4": "local"}
SLOW_LINE: Final = WanLine(100.0, 128_000, 0.02)
LAN_MESSAGES: Final = 3_000
WARM_NS: Final = 5 * SECOND  # of wide traffic, before the local rate is measured
ENDLESS: Final = 1_000_000  # messages

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SpreadPlan:
    """What is measured. The points of a smaller plan are points of a larger one, number for number."""

    rates: tuple[tuple[tuple[str, ...], str, int], ...] = (
        (TWO, JHU, MESSAGES),
        (THREE, JHU, MESSAGES),
        *((TWO, source, FEWER) for source in TWO),
        *((THREE, source, FEWER) for source in THREE),
    )  # sites, source, messages
    losses: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1)
    windows: tuple[int, ...] = (2, 3, 5, 15, 60)
    grids: tuple[tuple[str, ...], ...] = (TWO, THREE)
    detours: tuple[tuple[float, str], ...] = (
        (1.0, JHU),
        (0.8, JHU),
        (DETOUR_SHARE, JHU),
        (0.5, JHU),
        (DETOUR_SHARE, UCSB),
        (DETOUR_SHARE, RUTGERS),
    )  # of JHU - Rutgers, and the source
    lans: tuple[tuple[str, int], ...] = (
        ("AGREED", MORE),
        ("AGREED", MESSAGES),
        ("AGREED", LAN_MESSAGES),
        ("FIFO", LAN_MESSAGES),
    )
    states: tuple[str, ...] = ("none", "idle", "busy")  # of the line to the other site
    prunes: tuple[tuple[tuple[str, ...], str], ...] = (
        (THREE, JHU),
        (TWO, JHU),
        ((UCSB, RUTGERS), UCSB),
    )  # where the group has members, and the source
    seed: int = 0


FULL: Final = SpreadPlan()
QUICK: Final = SpreadPlan(
    rates=((TWO, JHU, FEWER), (THREE, JHU, FEWER)),
    losses=(LOSS,),
    windows=(RING_PACKETS, 15),
    grids=(TWO,),
    detours=((DETOUR_SHARE, JHU),),
    lans=(("AGREED", LAN_MESSAGES),),
    states=("none", "busy"),
    prunes=((TWO, JHU),),
)


@dataclass(frozen=True, slots=True)
class Gain:
    """Hop and ring over the same lines."""

    sites: tuple[str, ...]
    source: str
    messages: int
    loss: float
    packets: int  # of one daemon in one rotation of the ring
    hop: float  # bits per second
    ring: float

    @property
    def times(self) -> float:
        return self.hop / self.ring


@dataclass(frozen=True, slots=True)
class Detour:
    """UCSB forwards between JHU and Rutgers."""

    share: float  # what UCSB - Rutgers carries, of JHU - Rutgers
    source: str
    optimal: float  # bits per second
    misrouted: float

    @property
    def less(self) -> float:
        """Per cent."""
        return 100 * (1 - self.misrouted / self.optimal)


@dataclass(frozen=True, slots=True)
class LanRate:
    """Local traffic of one site."""

    service: str
    messages: int
    state: str  # of the line to the other site
    local: float  # bits per second that leave the sender
    delivered: float  # from the first delivery to the last
    wide: float


@dataclass(frozen=True, slots=True)
class PipeUse:
    """What one pipe carried in one transfer."""

    data: int  # datagrams
    data_bytes: int
    others: Counter[str]
    other_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """A group with members at some of three sites."""

    members: tuple[str, ...]
    source: str
    rate: float  # bits per second
    pipes: dict[Direction, PipeUse]


@dataclass(slots=True)
class SpreadFigures:
    """All of it."""

    plan: SpreadPlan
    gains: list[Gain] = field(default_factory=list)
    grid: list[Gain] = field(default_factory=list)
    detours: list[Detour] = field(default_factory=list)
    lans: list[LanRate] = field(default_factory=list)
    prunes: list[Pruned] = field(default_factory=list)
    violations: int = 0


def spread_figures(plan: SpreadPlan = FULL, progress: Progress | None = None) -> SpreadFigures:
    """Everything that section 4 of the paper shows."""
    tell = progress if progress is not None else _say_nothing
    found = SpreadFigures(plan)
    runs = _Runs(plan, found, tell)
    for sites, source, messages in plan.rates:
        found.gains.append(runs.gain(sites, source, messages, LOSS, RING_PACKETS))
    for sites in plan.grids:
        for loss in plan.losses:
            for packets in plan.windows:
                found.grid.append(runs.gain(sites, JHU, FEWER, loss, packets))
    for share, source in plan.detours:
        optimal = runs.hop(THREE, source, FEWER, LOSS)
        found.detours.append(Detour(share, source, optimal, runs.hop(THREE, source, FEWER, LOSS, share)))
    for name, messages in plan.lans:
        for state in plan.states:
            found.lans.append(runs.lan(name, messages, state))
    for members, source in plan.prunes:
        found.prunes.append(runs.prune(members, source))
    return found


def places_of(sites: tuple[str, ...]) -> Places:
    """One daemon at each."""
    return {site: (DAEMONS[site],) for site in sites}


def lines_between(loss: float, detour_share: float = DETOUR_SHARE) -> Lines:
    bits = {(JHU, UCSB): JHU_UCSB_BITS, (JHU, RUTGERS): JHU_RUTGERS_BITS}
    bits[UCSB, RUTGERS] = int(JHU_RUTGERS_BITS * detour_share)
    return {ends: WanLine(LATENCY_MS[ends], bits[ends], loss) for ends in bits}


class _Runs:
    """Each run once."""

    __slots__ = ("_found", "_hops", "_rings", "_seed", "_tell")

    def __init__(self, plan: SpreadPlan, found: SpreadFigures, tell: Progress) -> None:
        self._found = found
        self._tell = tell
        self._seed = f"spread/{plan.seed}"
        self._hops: dict[tuple[object, ...], float] = {}
        self._rings: dict[tuple[object, ...], float] = {}

    def gain(self, sites: tuple[str, ...], source: str, messages: int, loss: float, packets: int) -> Gain:
        hop = self.hop(sites, source, messages, loss)
        return Gain(sites, source, messages, loss, packets, hop, self.ring(sites, source, messages, loss, packets))

    def hop(
        self, sites: tuple[str, ...], source: str, messages: int, loss: float, misrouted: float | None = None
    ) -> float:
        """`misrouted`: UCSB forwards between the other two, over a line with this share."""
        key = (sites, source, messages, loss, misrouted)
        if key not in self._hops:
            lines = lines_between(loss, DETOUR_SHARE if misrouted is None else misrouted)
            avoided = (UCSB, RUTGERS) if misrouted is None else (JHU, RUTGERS)
            config = hops(
                places_of(sites), lines, window=HOP_WINDOW, use=USE, detours=[avoided] if len(sites) > 2 else []
            )
            way = "hop" if misrouted is None else f"through UCSB at {misrouted:.0%}"
            self._tell(f"{way}: {len(sites)} sites, {messages} messages of {source}, loss {loss:.0%}")
            lab = SiteLab(places_of(sites), lines, config, self._seed)
            self._hops[key] = lab.transfer(DAEMONS[source], messages, SIZE).bits_per_s
            self._end(lab)
        return self._hops[key]

    def ring(self, sites: tuple[str, ...], source: str, messages: int, loss: float, packets: int) -> float:
        key = (sites, source, messages, loss, packets)
        if key not in self._rings:
            self._tell(f"ring: {len(sites)} sites, {messages} messages of {source}, loss {loss:.0%}, window {packets}")
            places = places_of(sites)
            lab = SiteLab(places, lines_between(loss), one_ring(places, packets), self._seed, has_multicast=False)
            self._rings[key] = lab.transfer(DAEMONS[source], messages, SIZE).bits_per_s
            self._end(lab)
        return self._rings[key]

    def lan(self, name: str, messages: int, state: str) -> LanRate:
        """Local traffic where there is no other site, where there is one, and while its line is full."""
        self._tell(f"LAN: {messages} {name} messages, other site: {state}")
        places: Places = LAN_PLACES if state != "none" else {"east": LAN_PLACES["east"]}
        lines = {("east", "west"): SLOW_LINE}
        config = hops(places, lines, window=HOP_WINDOW, use=USE)
        lab = SiteLab(places, lines, config, self._seed, network="ethernet", groups=LAN_GROUPS)
        if state == "busy":
            lab.programs["e1"].send(ENDLESS, SIZE, AGREED)
            lab.world.run_until(lab.world.now_ns + WARM_NS)
        far = lab.programs.get("w1")
        before = far.delivered if far is not None else 0
        moved: Moved = lab.transfer("e3", messages, SIZE, _service(name))
        arrived = far.delivered - before if far is not None else 0
        lab.programs["e1"].stop()
        self._end(lab)
        wide = arrived * SIZE * 8 * SECOND / moved.ns
        return LanRate(name, messages, state, moved.sent_bits_per_s, moved.steady_bits_per_s, wide)

    def prune(self, members: tuple[str, ...], source: str) -> Pruned:
        self._tell(f"pruning: members at {', '.join(members)}, source {source}")
        places, lines = places_of(THREE), lines_between(LOSS)
        config = hops(places, lines, window=HOP_WINDOW, use=USE, detours=[(UCSB, RUTGERS)])
        groups = {DAEMONS[site]: "wide" if site in members else "other" for site in THREE}
        lab = SiteLab(places, lines, config, self._seed, groups=groups)
        before = lab.counted()
        moved = lab.transfer(DAEMONS[source], FEWER, SIZE)
        after = lab.counted()
        self._end(lab)
        pipes = {}
        for each, (datagrams, sizes) in after.items():
            sent, nbytes = datagrams - before[each][0], sizes - before[each][1]
            data, data_bytes = sent.pop("packet", 0), nbytes.pop("packet", 0)
            pipes[each] = PipeUse(data, data_bytes, sent, nbytes.total())
        return Pruned(members, source, moved.bits_per_s, pipes)

    def _end(self, lab: SiteLab) -> None:
        lab.rest()
        self._found.violations += lab.violations()


def _service(name: str) -> Service:
    return FIFO if name == "FIFO" else AGREED


def _say_nothing(_text: str) -> None:
    """Nobody watches."""
