"""Rates, sizes, times and shares as a person writes them. What cannot be read raises `ValueError`, with what to write.

All arithmetic is exact: `1.5ms` is 1,500,000 ns on every machine.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

SIZES: Final[dict[str, int]] = {
    "B": 1,
    "kB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
BITS: Final[dict[str, int]] = {"bit": 1, "kbit": 1_000, "Mbit": 1_000_000, "Gbit": 1_000_000_000}
TIMES: Final[dict[str, int]] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

MAX_DIGITS: Final = 18  # of a number, so that a slip of the finger costs an error and no memory

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)(/s)?\Z", re.ASCII)


def parse_rate(value: object) -> int:
    """Bits per second from `"2Mbit"` or `"250kB/s"`. A bare number is refused: some count bits and some bytes."""
    help_text = 'write bits or bytes per second with a unit, as in "2Mbit" or "250kB/s"'
    number, unit, _ = _split(value, help_text)
    bits = BITS[unit] if unit in BITS else 8 * SIZES[unit] if unit in SIZES else 0
    if not bits:
        raise ValueError(f"{value!r} has no unit of a rate; {help_text}. The units are {', '.join((*BITS, *SIZES))}")
    return int(number * bits)


def parse_bytes(value: object) -> int:
    """Bytes from `"64kB"`, `"64KiB"` or a whole number."""
    help_text = 'write bytes as in 65536, "64kB" or "64KiB"'
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    number, unit, is_rate = _split(value, help_text)
    if unit not in SIZES or is_rate:
        raise ValueError(f"{value!r} has no unit of a size; {help_text}. The units are {', '.join(SIZES)}")
    return int(number * SIZES[unit])


def parse_duration(value: object) -> int:
    """Nanoseconds from `"35ms"`, `"1.5s"` or `"200us"`; 0 needs no unit."""
    help_text = 'write a time with its unit, as in "35ms", "1.5s" or "200us"'
    if value == 0 and not isinstance(value, bool):
        return 0
    number, unit, is_rate = _split(value, help_text)
    if unit not in TIMES or is_rate:
        raise ValueError(f"{value!r} has no unit of time; {help_text}")
    return int(number * TIMES[unit])


def parse_share(value: object) -> float:
    """A probability from `0.05` or `"5%"`: from 0 up to, not including, 1."""
    help_text = 'write a share from 0 up to, not including, 1, as in 0.05 or "5%"'
    share = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    elif isinstance(value, str) and re.fullmatch(r"\d{1,3}(\.\d{1,9})?%", value, re.ASCII):
        share = float(Fraction(value[:-1]) / 100)
    if not 0 <= share < 1:
        raise ValueError(f"{value!r} is no share; {help_text}")
    return share


def _split(value: object, help_text: str) -> tuple[Fraction, str, bool]:
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match is None or len(match[1]) > MAX_DIGITS:
        raise ValueError(f"{value!r} cannot be read; {help_text}")
    return Fraction(match[1]), match[2], match[3] is not None
