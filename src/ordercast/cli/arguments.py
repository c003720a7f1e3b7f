"""Types of command-line arguments. Each says what is expected, and what was given instead.

They are given to `add_argument(type=…)`, so that bad input is refused before a command does anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from ordercast.api.checks import check_group_name
from ordercast.config import MinMembers
from ordercast.errors import UsageError

MAX_SEED: Final = 1 << 62
MAX_MIN_MEMBERS: Final = 1_000
MAX_POSITION: Final = (1 << 63) - 1


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`, both included."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low:,} to {high:,}, not {text!r}")
        return value

    return read


def decimal(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`, both included; no infinity, and nothing that is no number."""

    def read(text: str) -> float:
        value = _float(text)
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a number from {low:g} to {high:g}, not {text!r}")
        return value

    return read


def probability(text: str) -> float:
    """A probability of something that must not always happen."""
    value = _float(text)
    if value is None or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a probability of at least 0 and below 1, not {text!r}")
    return value


def min_members(text: str) -> MinMembers:
    """How many members of a view must be left for it to go on."""
    if text == "majority":
        return "majority"
    if text == "all":
        return "all"
    if not text.isdecimal() or not 1 <= int(text) <= MAX_MIN_MEMBERS:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 1 to {MAX_MIN_MEMBERS:,}, majority or all, not {text!r}"
        )
    return int(text)


def group_name(text: str) -> str:
    """The name of a group, by the rule of the API: text that a terminal, a log and a trace can show."""
    try:
        check_group_name(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
