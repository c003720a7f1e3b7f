"""The deliveries that the order timeline of the report is drawn from.

A report has room for some ten thousand of them. Of a run that has more it keeps all around crashes and view changes,
and elsewhere every so many: chosen by a hash of sender and number, so that a message that is kept is kept at all
members, and an order stays an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

ROOM: Final = 24_000  # deliveries in one report
MOST_WINDOWS: Final = 6  # in one run


class Choice(NamedTuple):
    """What is kept of one run: all in the `windows` (first, last; in ns), elsewhere one of `every`."""

    run: str
    every: int = 1
    windows: tuple[tuple[int, int], ...] = ()


def choose(run: str, rows: int, span_ns: tuple[int, int], moments: Sequence[int], room: int) -> Choice:
    """Half of the room for windows around `moments`, the most important first, half for the rest."""
    if rows <= room:
        return Choice(run)
    began_ns, ended_ns = span_ns
    chosen = sorted(moments[:MOST_WINDOWS])
    every = -(-2 * rows // room)
    if not chosen:
        return Choice(run, max(2, every // 2))
    wide = (ended_ns - began_ns) * room // (2 * rows * len(chosen))
    windows: list[tuple[int, int]] = []
    for moment in chosen:
        first, last = max(began_ns, moment - wide // 2), min(ended_ns, moment + wide // 2)
        if windows and first <= windows[-1][1]:
            first = windows.pop()[0]
        windows.append((first, last))
    return Choice(run, every, tuple(windows))


def timeline(events: DataFrame, choices: Iterable[Choice]) -> DataFrame:
    """The chosen deliveries, in the order of each node."""
    wanted: Column = F.lit(False)
    for choice in choices:
        here = F.pmod(F.xxhash64("sender", "first"), F.lit(choice.every)) == 0
        for first, last in choice.windows:
            here = here | F.col("at_ns").between(first, last)
        wanted = wanted | ((F.col("run") == choice.run) & here)
    return events.where(
        (F.col("kind") == "deliver") & F.col("first").isNotNull() & (F.col("count") > 0) & wanted
    ).select("run", "node", "life", "n", "at_ns", "sender", "first", "count", "service", "position")
