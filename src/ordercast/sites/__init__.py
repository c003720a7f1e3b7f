"""The configuration of a sites underlay: which daemons there are, in which sites, and what lies between the sites.

Spread sections 3.1 and 3.2. `config.py` has the record, `reading.py` reads it from TOML.
"""

from __future__ import annotations

from ordercast.sites.config import DaemonSpec, LinkSpec, Site, SitesConfig
from ordercast.sites.reading import load_sites, parse_sites

__all__ = ["DaemonSpec", "LinkSpec", "Site", "SitesConfig", "load_sites", "parse_sites"]
