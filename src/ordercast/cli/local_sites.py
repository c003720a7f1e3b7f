"""Sites whose daemons are processes of this machine, for `bench` and `demo`: free ports, and their settings."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from ordercast.runtime.addresses import group_address
from ordercast.sites import DaemonSpec, LinkSpec, Site, SitesConfig

LOOPBACK: Final = "127.0.0.1"
RATE_BITS: Final = 10_000_000_000  # loopback has no line to fill
BURST_BYTES: Final = 4 << 20


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now. All of them are held until the last is found, so that no two are the same."""
    with ExitStack() as opened:
        found = []
        for _ in range(count):
            each = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            each.bind((LOOPBACK, 0))
            found.append(int(each.getsockname()[1]))
    return found


def settings_of_sites(run: str, daemons: Mapping[str, Sequence[str]], *, multicasts: bool = True) -> dict[str, Any]:
    """What member processes are told: sites with the names of their daemons, and free ports for these."""
    names = [name for site in daemons.values() for name in site]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    return {
        "sites": {site: {name: ports[name] for name in names} for site, names in daemons.items()},
        "multicast": {site: group_address(f"{run}-{site}") for site in daemons} if multicasts else {},
    }


def sites_of_settings(settings: Mapping[str, Any]) -> SitesConfig:
    """The configuration that such settings describe, in a member process."""
    multicast = {site: (str(host), int(port)) for site, (host, port) in settings["multicast"].items()}
    sites = tuple([Site(name, at, multicast.get(name)) for at, name in enumerate(settings["sites"])])
    daemons = [
        DaemonSpec(name, site, LOOPBACK, port)
        for site, ports in settings["sites"].items()
        for name, port in ports.items()
    ]
    return SitesConfig(sites, tuple(daemons), default_link=LinkSpec(bits_per_s=RATE_BITS, burst_bytes=BURST_BYTES))
