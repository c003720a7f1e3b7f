"""What scripts say about sites, and what becomes of it. `sim/script.py` has the language.

    nodes a b c; multicast off
    site east a b; site west c
    pipe east <-> west latency 30ms rate 2Mbit queue 64kB loss 1%
    cut site east -> west
    run 300ms
    mend site east -> west
    split a | b
    show pipes

Before the first statement `pipe` says what a pipe is like; later it changes it for what comes from then on. Words that
cannot be read raise `ValueError`, with what to write; the parser adds the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.sim.network import Network
from ordercast.sim.pipes import Direction, Pipes
from ordercast.sim.topology import WAN, Topology, plain_topology
from ordercast.sites.units import parse_bytes, parse_duration, parse_rate

SITES_HELP: Final = (
    "write: cut site east -> west, mend site east -> west, partition site east | west,north, split a | b,c, "
    "pipe east <-> west latency 30ms rate 2Mbit queue 64kB loss 1%"
)


class SiteAct(NamedTuple):
    """One thing that a script does to sites. `sides`: names of sites, or of the nodes of a split."""

    verb: str
    sides: tuple[tuple[str, ...], ...]
    changes: tuple[tuple[str, Any], ...] = ()
    is_mutual: bool = False  # of a pipe: both directions


@dataclass(slots=True)
class SiteWords:
    """What a script has said about sites so far."""

    crews: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pipes: list[SiteAct] = field(default_factory=list)  # before the first statement

    def setting(self, words: Sequence[str], nodes: Sequence[str]) -> bool:
        """True if the words were a setting."""
        match words:
            case ["site", name, first, *rest]:
                self._add(name, (first, *rest), nodes)
            case ["site", *_]:
                raise ValueError("a site has a name and nodes, as in: site east a b")
            case ["pipe", *_]:
                act = self.act(words, nodes)
                if act is None:
                    raise ValueError(SITES_HELP)
                self.pipes.append(act)
            case _:
                return False
        return True

    def act(self, words: Sequence[str], nodes: Sequence[str]) -> SiteAct | None:
        """What a statement does to sites; None: it is about something else."""
        match words:
            case [("cut" | "mend") as verb, "site", sources, "->", targets]:
                return SiteAct(f"{verb}-site", (self._sites(sources), self._sites(targets)))
            case ["partition", "site", side, "|", other]:
                return SiteAct("partition-site", (self._sites(side), self._sites(other)))
            case ["split", side, "|", other]:
                return SiteAct("split", self._halves(side, other, nodes))
            case ["pipe", "all", *rest] if self.crews:
                everywhere = tuple(self.crews)
                return SiteAct("pipe", (everywhere, everywhere), _changes(rest))
            case ["pipe", sources, ("->" | "<->") as arrow, targets, *rest]:
                sides = (self._sites(sources), self._sites(targets))
                return SiteAct("pipe", sides, _changes(rest), arrow == "<->")
            case [("pipe" | "split"), *_] | [("cut" | "mend" | "partition"), "site", *_]:
                raise ValueError(f"cannot read {' '.join(words)!r}; {SITES_HELP}")
        return None

    def topology(self, nodes: Sequence[str]) -> Topology | None:
        """What the script has said; None: nothing. Every node must be in a site."""
        if not self.crews:
            return None
        placed = [name for crew in self.crews.values() for name in crew]
        for name in nodes:
            if name not in placed:
                raise ValueError(f"node {name!r} is in no site; where there are sites every node is in one")
        try:
            topology = plain_topology(self.crews)
        except UsageError as error:
            raise ValueError(str(error)) from None
        models = topology.models
        for act in self.pipes:
            for direction in directions(act):
                models[direction] = replace(models[direction], **dict(act.changes))
        return plain_topology(self.crews, WAN, models)

    def _add(self, name: str, crew: tuple[str, ...], nodes: Sequence[str]) -> None:
        if name in self.crews:
            raise ValueError(f"there is a site {name!r} already")
        for node in crew:
            if node not in nodes:
                raise ValueError(f"there is no node {node!r}; name the nodes first, then their sites")
            for other, names in self.crews.items():
                if node in names:
                    raise ValueError(f"node {node!r} is in site {other} already")
        if len(set(crew)) < len(crew):
            raise ValueError(f"site {name!r} names a node twice")
        self.crews[name] = crew

    def _sites(self, word: str) -> tuple[str, ...]:
        names = tuple(word.split(","))
        for name in names:
            if name not in self.crews:
                sites = f"the sites are {', '.join(self.crews)}" if self.crews else "name sites first: site east a b"
                raise ValueError(f"there is no site {name!r}; {sites}")
        return names

    def _halves(self, side: str, other: str, nodes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        if not self.crews:
            raise ValueError("a split is inside a site, and there are none; write: partition a | b,c")
        halves = (tuple(side.split(",")), tuple(other.split(",")))
        homes = {name: site for site, crew in self.crews.items() for name in crew}
        for name in (*halves[0], *halves[1]):
            if name not in nodes:
                raise ValueError(f"there is no node {name!r}; the nodes are {', '.join(nodes)}")
        if len({homes.get(name, "") for half in halves for name in half}) > 1:
            raise ValueError("a split is inside one site; between sites write: partition site east | west")
        return halves


def _changes(words: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    if not words:
        raise ValueError(f"nothing is said about the pipe; {SITES_HELP}")
    if len(words) % 2:
        raise ValueError(f"cannot read {' '.join(words)!r}; {SITES_HELP}")
    return tuple(_change(words[at], words[at + 1]) for at in range(0, len(words), 2))


def _change(key: str, word: str) -> tuple[str, Any]:
    """A property of `PipeModel` and its value."""
    match key:
        case "latency" | "jitter":
            return f"{key}_ns", parse_duration(word)
        case "rate":
            return "bits_per_s", parse_rate(word)
        case "queue":
            return "queue_bytes", parse_bytes(int(word) if word.isdecimal() else word)
        case "loss" | "duplicate" | "reorder":
            return key, _share(word)
    raise ValueError(f"cannot read {key!r} of a pipe; {SITES_HELP}")


def _share(word: str) -> float:
    """`5%` or `0.05`; all of it is a share, too."""
    try:
        share = float(word[:-1]) / 100 if word.endswith("%") else float(word)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{word!r} is no share; write 5% or 0.05")
    return share


# What becomes of it. -------------------------------------------------------------------------------------------------


def directions(act: SiteAct) -> list[Direction]:
    """The pipes that an act names."""
    sources, targets = act.sides
    found = [(source, target) for source in sources for target in targets if source != target]
    is_mutual = act.is_mutual or act.verb == "partition-site"
    return found + ([(target, source) for source, target in found] if is_mutual else [])


def act_on(network: Network, pipes: Pipes, act: SiteAct) -> None:
    """Do it now."""
    if act.verb == "split":
        network.split(act.sides)
        return
    for source, target in directions(act):
        match act.verb:
            case "cut-site" | "partition-site":
                pipes.cut(source, target)
            case "mend-site":
                pipes.mend(source, target)
            case "pipe":
                pipes.change(source, target, **dict(act.changes))


def cut_nodes(pipes: Pipes, act: SiteAct) -> Iterator[tuple[str, str]]:
    """The directions between nodes that an act cuts or mends."""
    if act.verb == "split":
        one, other = act.sides
        for source in one:
            for target in other:
                yield source, target
                yield target, source
    elif act.verb != "pipe":
        for source, target in directions(act):
            yield from ((near, far) for near in pipes.nodes_of(source) for far in pipes.nodes_of(target))


def pipe_texts(pipes: Pipes) -> list[str]:
    """What each pipe has carried, by kind."""
    texts = []
    for (source, target), pipe in pipes.all.items():
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(pipe.counters.by_kind.items()))
        texts.append(f"{source}>{target}: {kinds or 'nothing'}")
    return texts
