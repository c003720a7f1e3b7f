"""Bugs of the whole engine of sites, as `ordercast fuzz --orderer sites` finds them: where their seeds begin."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.site_groups import DENSE_FROM, SITES, WIDE_FROM

FIRST_WIDE: Final = WIDE_FROM + 5
"""Links differ, and trees have inner sites. The seeds before it take long."""
FIRST_DENSE: Final = DENSE_FROM + 13
"""Something happens all the time. The seeds before it take long."""

Code = str | tuple[str, ...]


def sites_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES)


def wide_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=FIRST_WIDE)


def dense_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=FIRST_DENSE)
