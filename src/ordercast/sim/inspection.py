"""What the simulator reads of an engine beyond its contract.

A driver needs `Engine` only. A judge also wants to know how much an engine buffers and what keeps it from resting.
Whether a group may stand still is decided without it (`checkers/stuck.py`). Nothing in `sim` reads other internals of
an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast


class Inspectable(Protocol):
    """An engine that a simulation can look into."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Rare events, by name."""

    @property
    def peak_bytes(self) -> int:
        """The most that it held and could not yet free."""

    @property
    def peak_blocks(self) -> int:
        """The same in blocks."""

    @property
    def is_ordering(self) -> bool:
        """Whether the next sequence number is this member's to assign."""

    def describe(self) -> str:
        """What it is doing, in words, for a run that does not come to rest."""


def inspect(engine: object) -> Inspectable:
    """An engine as judges see it. The cast is the only one: engines do not declare this, since no driver needs it."""
    return cast("Inspectable", engine)


def peaks(engine: object) -> tuple[int, int]:
    """The most bytes and blocks that an engine held; 0 where it does not count them (`sites`)."""
    return getattr(engine, "peak_bytes", 0), getattr(engine, "peak_blocks", 0)
