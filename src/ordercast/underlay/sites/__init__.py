"""The engine of `sites`: rings, hops, streams and components behind one `Engine` (docs/design/sites.md)."""

from ordercast.underlay.sites.engine import SitesEngine, sites_engines

__all__ = ["SitesEngine", "sites_engines"]
