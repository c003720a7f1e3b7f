"""The configuration of a sites underlay: which daemons there are, in which sites, and what lies between the sites.

Spread sections 3.1 and 3.2. `config.py` has the record, `reading.py` reads it from TOML and `spread_conf.py` from
a `spread.conf`.
"""

from __future__ import annotations

from ordercast.sites.config import DaemonSpec, LinkSpec, Site, SitesConfig
from ordercast.sites.reading import load_sites, parse_sites
from ordercast.sites.spread_conf import SpreadConf, load_spread_conf, parse_spread_conf

__all__ = [
    "DaemonSpec",
    "LinkSpec",
    "Site",
    "SitesConfig",
    "SpreadConf",
    "load_sites",
    "load_spread_conf",
    "parse_sites",
    "parse_spread_conf",
]
