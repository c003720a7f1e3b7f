"""Sites in the simulator: which node is in which of them, and what the pipes between them are like.

The file is the configuration of the daemons (`ordercast.sites`) with a table `[simulation]` more, so that one file
describes an underlay and the network that it is tried on:

    [simulation]
    network = "lan"             # inside each site
    latency = "60ms"            # of every pipe that is not listed
    queue = "128KiB"
    loss = "0.1%"

    [[simulation.pipe]]
    between = ["east", "west"]  # or from = "east" and to = "west": one direction
    latency = "35ms"
    bandwidth = "12Mbit"        # by default the rate of the link

Machines of the world have the addresses of their daemons. Hosts that are given by name get addresses of 10.64.0.0/10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ordercast.errors import UsageError
from ordercast.sim.network import NETWORKS
from ordercast.sim.pipes import Direction, PipeModel
from ordercast.sites import DaemonSpec, LinkSpec, Site, SitesConfig
from ordercast.sites.config import MAX_RATE, MIN_RATE, is_literal
from ordercast.sites.reading import read_sites
from ordercast.sites.tables import TomlTable, read_text
from ordercast.sites.units import parse_bytes, parse_duration, parse_rate, parse_share
from ordercast.view import Address

WAN: Final = PipeModel(latency_ns=30_000_000, bits_per_s=10_000_000, queue_bytes=128 << 10)
"""A pipe that nothing is said about: 30 ms, 10 Mb/s, a queue of 128 KiB (a tenth of a second), no loss."""
MAX_LATENCY_NS: Final = 60_000_000_000
MIN_QUEUE: Final = 1_500  # bytes
MAX_QUEUE: Final = 1 << 30

_PIPE_KEYS: Final = ("latency", "jitter", "bandwidth", "queue", "loss", "duplicate", "reorder")


@dataclass(frozen=True, slots=True)
class SitePipe:
    """One direction between two sites, and what it is like."""

    source: str
    target: str
    model: PipeModel


@dataclass(frozen=True, slots=True)
class Topology:
    """Sites with a medium and a multicast scope each, and a pipe for every direction between two of them."""

    config: SitesConfig
    """What engines are told; every host is an IPv4 address."""
    pipes: tuple[SitePipe, ...]
    network: str = "lan"
    """The network inside each site, by its name."""

    def __post_init__(self) -> None:
        names = [site.name for site in self.config.sites]
        wanted = {(source, target) for source in names for target in names if source != target}
        given = [(each.source, each.target) for each in self.pipes]
        if len(given) != len(wanted) or set(given) != wanted:
            raise UsageError(f"{len(names)} sites have {len(wanted)} pipes, one for each direction; got {len(given)}")
        if self.network not in NETWORKS:
            raise UsageError(f"there is no network {self.network!r}; choose one of {', '.join(NETWORKS)}")
        for daemon in self.config.daemons:
            if not is_literal(daemon.host):
                raise UsageError(f"daemon {daemon.name} needs an IPv4 address in a simulation, not {daemon.host!r}")

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes: the daemons, in the order of the configuration."""
        return tuple(daemon.name for daemon in self.config.daemons)

    @property
    def places(self) -> dict[str, str]:
        """Node -> its site."""
        return {daemon.name: daemon.site for daemon in self.config.daemons}

    @property
    def models(self) -> dict[Direction, PipeModel]:
        return {(each.source, each.target): each.model for each in self.pipes}

    def nodes_of(self, sites: Sequence[str]) -> tuple[str, ...]:
        """The nodes of these sites."""
        return tuple(daemon.name for daemon in self.config.daemons if daemon.site in sites)

    def address_of(self, node: str) -> Address:
        return self.config.daemon(node).address

    def as_json(self) -> dict[str, Any]:
        """What `topology_from_json` reads, of plain types."""

        def record(each: Site | DaemonSpec | LinkSpec | PipeModel) -> dict[str, Any]:
            return {name: getattr(each, name) for name in each.__slots__}

        config = self.config
        return {
            "sites": [record(each) for each in config.sites],
            "daemons": [record(each) for each in config.daemons],
            "links": [record(each) for each in config.links],
            "default_link": record(config.default_link),
            "pipes": [{"source": each.source, "target": each.target, **record(each.model)} for each in self.pipes],
            "network": self.network,
        }


def plain_topology(
    sites: Mapping[str, Sequence[str]],
    pipe: PipeModel = WAN,
    pipes: Mapping[Direction, PipeModel] | None = None,
    *,
    network: str = "lan",
    links: Sequence[LinkSpec] = (),
) -> Topology:
    """Sites with the names of their nodes; every pipe is like `pipe`, but those of `pipes`."""
    daemons = [
        DaemonSpec(name, site, f"10.{1 + index}.{number // 250}.{1 + number % 250}")
        for index, (site, names) in enumerate(sites.items())
        for number, name in enumerate(names)
    ]
    config = SitesConfig(tuple(Site(name, index) for index, name in enumerate(sites)), tuple(daemons), tuple(links))
    given = pipes or {}
    unknown = [each for direction in given for each in direction if each not in sites]
    if unknown:
        raise UsageError(f"there is no site {unknown[0]!r}; the sites are {', '.join(sites)}")
    made = tuple(
        SitePipe(source, target, given.get((source, target), pipe))
        for source in sites
        for target in sites
        if source != target
    )
    return Topology(config, made, network)


# Reading. ------------------------------------------------------------------------------------------------------------


def load_topology(path: str | Path) -> Topology:
    """Read a file; `UsageError` names it, the line, and what to do."""
    return parse_topology(read_text(path), str(path))


def parse_topology(text: str, name: str) -> Topology:
    """Read a text. `name` stands for it in errors."""
    root = TomlTable.document(text, name)
    config = read_sites(root)
    table = root.table("simulation")
    table.only(("network", "pipe", *_PIPE_KEYS), "[simulation]")
    network = table.text("network", "lan")
    if network not in NETWORKS:
        table.wrong(f"there is no network {network!r}; choose one of {', '.join(NETWORKS)}", "network")
    names = [site.name for site in config.sites]
    _model(table, WAN)  # where there are no pipes, too, its words are read
    models = {
        (source, target): _model(table, replace(WAN, bits_per_s=config.link(source, target).bits_per_s))
        for source in names
        for target in names
        if source != target
    }
    listed: dict[Direction, int] = {}
    for pipe in table.tables("pipe"):
        pipe.only(("between", "from", "to", *_PIPE_KEYS), "a [[simulation.pipe]]")
        for direction in pipe.directions("pipe"):
            source, target = direction
            for site in direction:
                if site not in names:
                    text = f"there is no site {site!r}; the sites are {', '.join(names)}"
                    pipe.wrong(text, _key_of(pipe, direction, site))
            if source == target:
                pipe.wrong(f"a pipe from {source} to itself; a pipe joins two different sites")
            if direction in listed:
                first = listed[direction]
                pipe.wrong(f"the pipe from {source} to {target} is on line {first}, too; keep one of them")
            listed[direction] = pipe.line()
            models[direction] = _model(pipe, models[direction])
    return Topology(_addressed(config), tuple(SitePipe(*each, model) for each, model in models.items()), network)


def _model(table: TomlTable, default: PipeModel) -> PipeModel:
    """What a table says about a pipe, and what holds where it says nothing."""
    return replace(
        default,
        latency_ns=table.read("latency", default.latency_ns, _time),
        jitter_ns=table.read("jitter", default.jitter_ns, _time),
        bits_per_s=table.read("bandwidth", default.bits_per_s, _bandwidth),
        queue_bytes=table.read("queue", default.queue_bytes, _queue),
        loss=table.read("loss", default.loss, parse_share),
        duplicate=table.read("duplicate", default.duplicate, parse_share),
        reorder=table.read("reorder", default.reorder, parse_share),
    )


def _time(value: object) -> int:
    return _within(parse_duration(value), 0, MAX_LATENCY_NS, f"{value!r} is too long; write a time of at most 60s")


def _bandwidth(value: object) -> int:
    return _within(parse_rate(value), MIN_RATE, MAX_RATE, f"{value!r} is out of range; write 1kbit to 1000Gbit")


def _queue(value: object) -> int:
    return _within(parse_bytes(value), MIN_QUEUE, MAX_QUEUE, f"{value!r} is out of range; write 1500 bytes to 1GiB")


def _within(number: int, least: int, most: int, text: str) -> int:
    if not least <= number <= most:
        raise ValueError(text)
    return number


def _key_of(pipe: TomlTable, direction: Direction, site: str) -> str:
    if "between" in pipe:
        return "between"
    return "from" if site == direction[0] else "to"


def _addressed(config: SitesConfig) -> SitesConfig:
    """The same with an address for every host that is a name. One name gets one address."""
    hosts = dict.fromkeys(daemon.host for daemon in config.daemons if not is_literal(daemon.host))
    addresses = {host: f"10.{64 + index // 250}.0.{1 + index % 250}" for index, host in enumerate(hosts)}
    daemons = (replace(daemon, host=addresses.get(daemon.host, daemon.host)) for daemon in config.daemons)
    return replace(config, daemons=tuple(daemons))


def topology_from_json(values: Mapping[str, Any]) -> Topology:
    """Read what `Topology.as_json` wrote; `TypeError` or `KeyError` where it is something else."""
    sites = tuple(
        Site(**{**site, "multicast": tuple(site["multicast"]) if site.get("multicast") else None})
        for site in values["sites"]
    )
    config = SitesConfig(
        sites,
        tuple(DaemonSpec(**daemon) for daemon in values["daemons"]),
        tuple(LinkSpec(**link) for link in values["links"]),
        LinkSpec(**values["default_link"]),
    )
    pipes = []
    for each in values["pipes"]:
        rest = {name: value for name, value in each.items() if name not in ("source", "target")}
        pipes.append(SitePipe(each["source"], each["target"], PipeModel(**rest)))
    return Topology(config, tuple(pipes), values["network"])
