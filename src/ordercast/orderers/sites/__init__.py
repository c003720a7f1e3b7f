"""Spread: rings inside sites, hops between them, components that go on and merge (docs/design/sites.md)."""
