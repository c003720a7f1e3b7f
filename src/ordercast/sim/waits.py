"""How long messages wait at their receivers, out of a trace: section 2.3 of the TOMPA paper.

For each message at each member but its sender the wait is the time from the moment at which the member holds the
message (`hold`) to its delivery (`deliver`). It has two parts, divided by the moment at which the member learns the
message's final sequence number or timestamp (`placed`):

- t1, until that is known;
- t2, from then to the delivery: what waits for others. With timestamps these are messages that come before it and are
  not decided yet. The sequencer and the token write `placed` when the number *and all before it* are known, so their t2
  is only what services stronger than AGREED wait for.

A number that is known before the message is there counts from the message's arrival. What is delivered before it has a
number (RELIABLE, FIFO) has no t2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ordercast.sim.lab import MeasurementFailed
from ordercast.trace.schema import Row


class Wait(NamedTuple):
    """How long so many messages waited at one member."""

    t1_ns: int
    t2_ns: int
    since_submit_ns: int  # to the delivery
    messages: int


@dataclass(frozen=True, slots=True)
class Times:
    """Of all messages and receivers, in microseconds."""

    mean_us: float
    p50_us: float
    p95_us: float


class _Moments:
    """When one member had something of one sender: ranges of numbers, and a time for each."""

    __slots__ = ("_firsts", "_spans")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._spans: list[tuple[int, int]] = []  # stop, time

    def add(self, first: int, count: int, at_ns: int) -> None:
        at = bisect_right(self._firsts, first)
        self._firsts.insert(at, first)
        self._spans.insert(at, (first + count, at_ns))

    def at(self, number: int) -> tuple[int, int] | None:
        """The time of a number, and how far it is the same for those that follow."""
        index = bisect_right(self._firsts, number) - 1
        if index < 0 or self._spans[index][0] <= number:
            return None
        stop, at_ns = self._spans[index]
        return at_ns, stop


def waits(rows: Iterable[Row], skip: int = 0) -> Iterator[Wait]:
    """t1 and t2 of each message at each member but its sender, without the first `skip` of each sender."""
    begins: dict[str, int] = {}  # sender -> the first number that counts
    submits: dict[str, _Moments] = {}
    holds: dict[tuple[str, str], _Moments] = {}
    numbered: dict[tuple[str, str], _Moments] = {}
    deliveries: list[Row] = []
    for row in rows:
        if row.kind == "submit" and row.count:
            sender, number = f"{row.node}/{row.life}", row.first or 0
            begins.setdefault(sender, number + skip)
            submits.setdefault(sender, _Moments()).add(number, row.count, row.at_ns)
        elif row.kind in ("hold", "placed") and row.count and row.sender is not None:
            kind = holds if row.kind == "hold" else numbered
            kind.setdefault((row.node, row.sender), _Moments()).add(row.first or 0, row.count, row.at_ns)
        elif row.kind == "deliver" and row.count and row.sender is not None:
            deliveries.append(row)
    nothing = _Moments()
    for row in deliveries:
        sender, number = row.sender or "", row.first or 0
        stop = number + (row.count or 0)
        if sender == f"{row.node}/{row.life}" or sender not in begins:
            continue
        number = max(number, begins[sender])
        held = holds.get((row.node, sender), nothing)
        ordered = numbered.get((row.node, sender), nothing)
        while number < stop:
            submitted, came, known = submits[sender].at(number), held.at(number), ordered.at(number)
            if submitted is None or came is None:
                raise MeasurementFailed(f"{row.node} delivered message {number} of {sender} and never held it")
            upto = min(stop, submitted[1], came[1], stop if known is None else known[1])
            known_ns = row.at_ns if known is None else min(max(known[0], came[0]), row.at_ns)
            yield Wait(known_ns - came[0], row.at_ns - known_ns, row.at_ns - submitted[0], upto - number)
            number = upto


def latency_of(found: Sequence[Wait]) -> Times:
    return times_of([(wait.t1_ns + wait.t2_ns, wait.messages) for wait in found])


def times_of(values: Sequence[tuple[int, int]]) -> Times:
    """Mean and quantiles of nanoseconds that count several times each."""
    ordered = sorted(values)
    total = sum(count for _, count in ordered)
    if not total:
        return Times(0.0, 0.0, 0.0)
    stops = list(accumulate(count for _, count in ordered))
    p50, p95 = (ordered[bisect_right(stops, int(total * share))][0] for share in (0.5, 0.95))
    return Times(sum(value * count for value, count in ordered) / total / 1_000, p50 / 1_000, p95 / 1_000)
