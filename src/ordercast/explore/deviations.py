"""What can be done to a run at a decision point, and which of it is worth doing there.

A run without deviations is the default schedule: every datagram arrives after one tick, in order, and timers run when
they are due. Each deviation costs one of the budget, also one that cuts many links at once: failures of a network are
seldom failures of one link.

A deviation is offered only where it makes a difference *now* (`menu`). A cut that hits nothing that is under way is
the same as the cut at the next decision point where it does, and a crash of a node that nothing comes from and nothing
goes to is the same as a later one. That leaves one of many equal runs, as sleep sets would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.explore.actor import Packet
from ordercast.wire.header import Kind

FAMILIES: Final[dict[str, str]] = {
    "cut": "some nodes are no longer heard by the others, which they still hear",
    "split": "two parts that do not hear each other",
    "isolate": "one node is cut off from all others",
    "link": "one node is no longer heard by one other, besides what is cut already",
    "crash": "a node dies: after what it sent last, or before",
    "lose": "what is under way from one node to another is lost",
    "late": "what is under way from one node to another comes a few ticks later, behind what follows it",
    "stale": "what is under way from one node to another comes much later, when a recovery may have passed",
    "pause": "a node stands still for a while: its timers, and what comes for it, wait",
}
DEFAULT_FAMILIES: Final = ("cut", "split", "crash")

LATE_TICKS: Final = 3
STALE_TICKS: Final = 1_500
PAUSE_TICKS: Final = 150

# Datagrams that come again and again while nothing happens. An instant with no other kind is no decision point: what
# can go wrong there can go wrong at the next one. Everything else is interesting, also a kind that is added later.
PERIODIC: Final = frozenset(
    map(int, (Kind.SYNC, Kind.STATUS, Kind.CONFIRM, Kind.BEACON, Kind.FIND, Kind.HERE, Kind.CHECK))
)

Links = frozenset[tuple[int, int]]


class PathError(UsageError):
    """A path that cannot be followed: it makes no sense, or it does not fit the run."""


class Deviation(NamedTuple):
    """At decision point `step` of the run, `kind` is done to `whom`. As text: `3:cut:ab>cd`."""

    step: int
    kind: str
    whom: str

    def __str__(self) -> str:
        return f"{self.step}:{self.kind}:{self.whom}" if self.whom else f"{self.step}:{self.kind}"


Path = tuple[Deviation, ...]

KINDS: Final = ("cut", "split", "isolate", "link", "heal", "crash", "kill", "lose", "late", "stale", "pause", "act")


def parse_path(text: str) -> Path:
    """What `show_path` wrote."""
    found: list[Deviation] = []
    for word in text.replace(",", " ").split():
        step, _, rest = word.partition(":")
        kind, _, whom = rest.partition(":")
        if not step.isdigit() or kind not in KINDS:
            raise PathError(f"{word!r} is no deviation; write STEP:KIND:WHOM, as in 3:cut:ab>cd or 5:crash:a")
        if found and found[-1].step > int(step):
            raise PathError(f"{word!r} comes before {found[-1]}: the steps of a path do not fall")
        found.append(Deviation(int(step), kind, whom))
    return tuple(found)


def show_path(path: Iterable[Deviation]) -> str:
    return " ".join(map(str, path))


@cache
def one_way(names: str) -> dict[str, Links]:
    """`ab>cd`: what a and b send does not reach c and d."""
    found: dict[str, Links] = {}
    for side, other in _sides(names):
        found[f"{side}>{other}"] = _links(names, side, other)
    return found


@cache
def two_way(names: str) -> dict[str, Links]:
    """`ab|cd`: nothing goes between them."""
    found: dict[str, Links] = {}
    for side, other in _sides(names):
        if names[0] in side:
            found[f"{side}|{other}"] = _links(names, side, other) | _links(names, other, side)
    return found


@cache
def alone(names: str) -> dict[str, Links]:
    """`c`: nothing goes between c and the others."""
    found: dict[str, Links] = {}
    for name in names:
        rest = names.replace(name, "")
        found[name] = _links(names, name, rest) | _links(names, rest, name)
    return found


@cache
def single(names: str) -> dict[str, Links]:
    return {
        f"{source}>{target}": _links(names, source, target) for source in names for target in names if source != target
    }


# What takes the place of all cuts that there are: a failure of a switch, not of a cable.
NETS: Final[dict[str, Callable[[str], dict[str, Links]]]] = {"cut": one_way, "split": two_way, "isolate": alone}


def _sides(names: str) -> list[tuple[str, str]]:
    return [
        ("".join(side), "".join(name for name in names if name not in side))
        for size in range(1, len(names))
        for side in combinations(names, size)
    ]


def _links(names: str, sources: str, targets: str) -> Links:
    return frozenset((names.index(source), names.index(target)) for source in sources for target in targets)


def is_interesting(packets: Sequence[Packet]) -> bool:
    return any(packet.kind not in PERIODIC for packet in packets)


class Situation(NamedTuple):
    """What a menu depends on."""

    names: str  # of all nodes, by index
    up: frozenset[int]
    cuts: Links
    busy: Links  # links that carry something interesting now, cut or not
    crashes_left: int
    acts: tuple[str, ...]  # what the scenario's programs may do besides


def menu(families: Sequence[str], here: Situation) -> list[tuple[str, str]]:
    """The deviations that make a difference now, as (kind, whom), in an order that is always the same."""
    names, cuts, busy = here.names, here.cuts, here.busy
    open_links = busy - cuts
    lost = busy & cuts
    found: list[tuple[str, str]] = []
    if lost:
        found.append(("heal", ""))
    offered: set[Links] = set()
    for family in families:
        if family in NETS:
            for text, links in NETS[family](names).items():
                if busy & links != lost and links not in offered:
                    offered.add(links)
                    found.append((family, text))
        elif family == "crash" and here.crashes_left:
            sources = {source for source, _ in open_links}
            touched = sources | {target for _, target in open_links}
            found += [("crash", names[index]) for index in sorted(touched & here.up)]
            found += [("kill", names[index]) for index in sorted(sources & here.up)]
        elif family == "pause":
            found += [("pause", names[index]) for index in sorted({target for _, target in open_links} & here.up)]
        elif family in ("link", "lose", "late", "stale"):
            found += [(family, f"{names[source]}>{names[target]}") for source, target in sorted(open_links)]
    found += [("act", act) for act in here.acts]
    return found


def links_of(names: str, kind: str, whom: str) -> Links:
    """The links that a deviation is about; UsageError if there are no such nodes."""
    table = NETS.get(kind, single)(names)
    if whom not in table:
        raise PathError(f"{kind}:{whom} names no links of {names}; write {kind}:{next(iter(table))}")
    return table[whom]
