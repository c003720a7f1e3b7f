"""Systematic exploration of small groups: every order of failures within a bound (docs/explore.md)."""
