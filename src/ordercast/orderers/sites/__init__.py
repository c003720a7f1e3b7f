"""Spread's order over sites: Lamport timestamps, one stream for each site."""
