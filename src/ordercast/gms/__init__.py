"""The membership service of regions (QSM section 2.2; docs/design/gms.md)."""
