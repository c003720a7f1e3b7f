"""Spread's sites: rings inside of them, hops between them, one tree for each source. docs/design/sites.md."""
