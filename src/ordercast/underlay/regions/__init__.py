"""The engine of regions (docs/design/regions.md)."""
