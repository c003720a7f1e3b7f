"""Whole nodes on regions, and their membership service, in virtual time."""
