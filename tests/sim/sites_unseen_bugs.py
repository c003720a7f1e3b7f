"""Mutations of the engine of sites that nothing objects to, each with the reason."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

SITES_UNSEEN: Final[tuple[Bug, ...]] = ()
