"""Reads a configuration of sites from TOML. `docs/guides/sites.md` describes the file.

Keys that are not known are errors, and so is everything that `config.py` refuses: the text names the file and the line,
and says what to do. The table `[simulation]` belongs to the simulator (`sim/topology.py`), which reads the same file;
`[node]`, `[clients]` and `[spread]` belong to `ordercast daemon` (`daemon/config.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ordercast.sites.config import DEFAULT_PORT, MAX_WEIGHT, MAX_WINDOW, DaemonSpec, LinkSpec, Site, SitesConfig
from ordercast.sites.config import first_problem as _first_problem
from ordercast.sites.tables import TomlTable, read_text
from ordercast.sites.units import parse_bytes, parse_rate
from ordercast.view import Address

TABLES: Final = ("defaults", "site", "daemon", "link", "simulation", "node", "clients", "spread")
LINK_TERMS: Final = ("weight", "rate", "burst", "window")
SITE_TERMS: Final = ("ring_window", "personal_window")


def load_sites(path: str | Path) -> SitesConfig:
    """Read a file; `UsageError` names it, the line, and what to do."""
    return parse_sites(read_text(path), str(path))


def parse_sites(text: str, name: str) -> SitesConfig:
    """Read a text. `name` stands for it in errors."""
    return read_sites(TomlTable.document(text, name))


def read_sites(root: TomlTable) -> SitesConfig:
    """Read a document."""
    root.only(TABLES, "a configuration of sites")
    defaults = root.table("defaults")
    defaults.only((*LINK_TERMS, *SITE_TERMS, "port"), "[defaults]")
    default_link = _link(defaults, "", "", LinkSpec())
    usual = Site("", 0)
    ring_window = defaults.whole("ring_window", usual.ring_window, 1, MAX_WINDOW)
    personal_window = defaults.whole("personal_window", min(usual.personal_window, ring_window), 1, MAX_WINDOW)
    if personal_window > ring_window:
        text = f"personal_window is {personal_window}, more than the ring_window of {ring_window}"
        defaults.wrong(f"{text}; one daemon cannot send more than all", "personal_window")
    port = defaults.whole("port", DEFAULT_PORT, 1, 65_535)
    sites = [_site(table, index, ring_window, personal_window) for index, table in enumerate(root.tables("site"))]
    daemons = [_daemon(table, port) for table in root.tables("daemon")]
    links: list[LinkSpec] = []
    tables: list[int] = []  # of each link: the table that it comes from
    for index, table in enumerate(root.tables("link")):
        table.only(("between", "from", "to", *LINK_TERMS), "a [[link]]")
        for source, target in table.directions("link"):
            links.append(_link(table, source, target, default_link))
            tables.append(index)
    problem = _first_problem(sites, daemons, links, default_link)
    if problem is not None:
        where = problem.where
        if where[:1] == ("link",):
            where = ("link", tables[int(where[1])], *_written(root, tables[int(where[1])], where[2:]))
        root.wrong(problem.text, *where)
    return SitesConfig(tuple(sites), tuple(daemons), tuple(links), default_link)


def _site(table: TomlTable, index: int, ring_window: int, personal_window: int) -> Site:
    table.only(("name", "multicast", *SITE_TERMS), "a [[site]]")
    window = table.whole("ring_window", ring_window, 1, MAX_WINDOW)
    # A site that only lowers its ring's window means both.
    own = personal_window if "personal_window" in table else min(personal_window, window)
    return Site(
        table.text("name"),
        index,
        table.read("multicast", None, _group_address),
        window,
        table.whole("personal_window", own, 1, MAX_WINDOW),
    )


def _daemon(table: TomlTable, port: int) -> DaemonSpec:
    table.only(("name", "site", "host", "port"), "a [[daemon]]")
    return DaemonSpec(table.text("name"), table.text("site"), table.text("host"), table.whole("port", port, 1, 65_535))


def _link(table: TomlTable, source: str, target: str, default: LinkSpec) -> LinkSpec:
    return LinkSpec(
        source,
        target,
        table.whole("weight", default.weight, 1, MAX_WEIGHT),
        table.read("rate", default.bits_per_s, parse_rate),
        table.read("burst", default.burst_bytes, parse_bytes),
        table.whole("window", default.window_packets, 1, MAX_WINDOW),
    )


def _group_address(value: object) -> Address:
    if isinstance(value, str):
        host, colon, port = value.rpartition(":")
        if colon and port.isascii() and port.isdecimal() and len(port) <= 5:
            return host, int(port)
    raise ValueError(f'{value!r} is no address; write a multicast address and a port, as in "239.192.7.1:4803"')


def _written(root: TomlTable, table: int, key: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The key as the file has it: a site of a link may stand under `between`."""
    (link,) = [each for index, each in enumerate(root.tables("link")) if index == table]
    return ("between",) if key in (("from",), ("to",)) and "between" in link else key
