"""Bugs of the whole engine of sites, as `ordercast fuzz --orderer sites` finds them: where their seeds begin."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.site_groups import DENSE_FROM, SITES, WIDE_FROM

FIRST: Final = 1
"""Seed 0 has many daemons: a run that never comes to rest takes long there."""
FIRST_WIDE: Final = WIDE_FROM + 5
"""Links differ, and trees have inner sites. The seeds before it take long."""
FIRST_DENSE: Final = DENSE_FROM + 13
"""Something happens all the time. The seeds before it take long."""

Code = str | tuple[str, ...]


def full_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int, *, is_slow: bool = False) -> Bug:
    """One that needs many daemons: from seed 0 on."""
    return Bug(name, function, old, new, breaks, bound, SITES, is_slow=is_slow)


def sites_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int, *, is_slow: bool = False) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=FIRST, is_slow=is_slow)


def wide_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int, *, is_slow: bool = False) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=FIRST_WIDE, is_slow=is_slow)


def dense_bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int, *, is_slow: bool = False) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=FIRST_DENSE, is_slow=is_slow)
