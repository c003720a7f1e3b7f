"""A node that is a daemon of a configuration of sites: where it is, and what does not go with that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import UsageError
from ordercast.runtime.addresses import parse_peer
from ordercast.sites import DaemonSpec, Site, SitesConfig, load_sites

ANY_HOST = "127.0.0.1"  # what `Node(host=...)` has where nothing is said


class DaemonPlace(NamedTuple):
    """Where a daemon is. The hosts of `config` are addresses: names have been looked up."""

    config: SitesConfig
    daemon: DaemonSpec
    site: Site
    fingerprint: int  # of the configuration as it was written


def find_place(
    sites: object,
    site: str | None,
    name: str | None,
    *,
    host: str = ANY_HOST,
    port: int = 0,
    has_data_dir: bool = False,
    multicast: bool | None = None,
    look_up: Callable[[str], tuple[str, int]] = parse_peer,
) -> DaemonPlace | None:
    """The place of the node that these arguments of `Node` describe; None: it is no daemon of sites. It blocks where a
    host name is looked up."""
    if sites is None:
        if site is not None:
            raise UsageError(f"site={site!r} is a site of a configuration: give sites='wan.toml' as well")
        return None
    config = _configuration(sites)
    spec = _daemon(config, site, name)
    place = config.site(spec.site)
    if (host, port) != (ANY_HOST, 0):
        raise UsageError(
            f"the configuration of sites has {spec.name} at {spec.host}:{spec.port}: leave out host and port"
        )
    if has_data_dir:
        raise UsageError(
            "a daemon of sites keeps nothing over a restart: it comes back as a component of its own and merges; leave "
            "out data_dir, and use a node without sites for groups that are to survive a cold start"
        )
    if multicast is False and place.multicast is not None:
        raise UsageError(
            f"the daemons of site {place.name!r} multicast to {place.multicast[0]}:{place.multicast[1]}, and all of "
            "them have to hear it: leave out multicast=False, or take `multicast` out of the configuration"
        )
    fingerprint = config.fingerprint()
    daemons = tuple([replace(each, host=look_up(f"{each.host}:{each.port}")[0]) for each in config.daemons])
    config = replace(config, daemons=daemons)
    return DaemonPlace(config, config.daemon(spec.name), place, fingerprint)


def _configuration(sites: object) -> SitesConfig:
    if isinstance(sites, SitesConfig):
        return sites
    if isinstance(sites, str | Path):
        return load_sites(sites)
    raise UsageError(f"sites is the path of a TOML file, or a SitesConfig, not {sites!r}")


def _daemon(config: SitesConfig, site: str | None, name: str | None) -> DaemonSpec:
    """By its name; where none is given, the only one of the site."""
    if name is not None:
        spec = next((each for each in config.daemons if each.name == name), None)
        if spec is None:
            names = ", ".join([each.name for each in config.daemons])
            raise UsageError(f"there is no daemon {name!r} in the configuration of sites; it has {names}")
        if site is not None and config.site(site).name != spec.site:
            raise UsageError(f"the configuration has {name!r} in site {spec.site!r}, not in {site!r}")
        return spec
    if site is None:
        raise UsageError("say which daemon of the configuration this node is: Node('e1', sites=...)")
    found = config.daemons_of(site)
    if len(found) != 1:
        names = ", ".join([each.name for each in found]) or "none"
        raise UsageError(f"site {site!r} has {len(found)} daemons ({names}): say which one this node is, by its name")
    return found[0]
