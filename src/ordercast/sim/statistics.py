"""Numbers of a run: what applications did, what the network carried, how long messages took."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ordercast.config import SECOND
from ordercast.sim.cluster import Cluster
from ordercast.sim.inspection import inspect
from ordercast.sim.pipes import PipeCounters
from ordercast.sim.world import World
from ordercast.trace.schema import Row


@dataclass(slots=True)
class Statistics:
    """What a run did."""

    submitted: int = 0
    delivered: int = 0
    confirmed: int = 0
    uncertain: int = 0
    locks: int = 0  # granted
    calls: int = 0  # made by callers
    answers: int = 0  # that came back to callers and members, acknowledgements included
    peak_bytes: int = 0  # the most that an engine held and could not yet free; 0 where engines do not say
    peak_blocks: int = 0
    views: int = 0
    datagrams: dict[str, int] = field(default_factory=dict)  # sent, by kind; a multicast is one
    datagram_bytes: int = 0
    repairs: int = 0
    lost: int = 0
    socket_drops: int = 0
    counters: dict[str, int] = field(default_factory=dict)  # of the engines that were alive at the end
    virtual_ns: int = 0
    load_ns: int = 0  # from the first submit to the last delivery
    throughput_per_s: float = 0.0  # deliveries per receiver in that time
    latency_p50_ns: int = 0
    latency_p99_ns: int = 0
    events: int = 0
    pipes: dict[str, PipeCounters] = field(default_factory=dict)  # "east>west" -> what it carried; empty without sites

    def as_json(self) -> dict[str, Any]:
        return {
            "submitted": self.submitted,
            "delivered": self.delivered,
            "confirmed": self.confirmed,
            "uncertain": self.uncertain,
            "locks": self.locks,
            "calls": self.calls,
            "answers": self.answers,
            "peak_bytes": self.peak_bytes,
            "peak_blocks": self.peak_blocks,
            "views": self.views,
            "datagrams": dict(sorted(self.datagrams.items())),
            "datagram_bytes": self.datagram_bytes,
            "repairs": self.repairs,
            "lost": self.lost,
            "socket_drops": self.socket_drops,
            "counters": dict(sorted(self.counters.items())),
            "virtual_s": self.virtual_ns / SECOND,
            "throughput_per_s": round(self.throughput_per_s, 1),
            "latency_us": {"p50": self.latency_p50_ns / 1_000, "p99": self.latency_p99_ns / 1_000},
            "events": self.events,
            **({"pipes": {name: each.as_json() for name, each in self.pipes.items()}} if self.pipes else {}),
        }


def count(cluster: Cluster, rows: Sequence[Row]) -> Statistics:
    """From the trace where it knows, and from the network and the applications where it does not."""
    found = count_rows(cluster.world, rows)
    totals: Counter[str] = Counter()
    for member in cluster.members.values():
        found.confirmed += member.seen.confirmed
        found.uncertain += member.seen.uncertain
        found.locks += member.holding.granted
        found.answers += member.seen.answers
        found.peak_bytes = max(found.peak_bytes, member.seen.peak_bytes)
        found.peak_blocks = max(found.peak_blocks, member.seen.peak_blocks)
        if member.node.is_up and member.port is not None:
            totals.update(inspect(member.port.engine).counters)
    for caller in cluster.callers.values():
        found.calls += caller.calls
        found.answers += caller.answers
    found.counters = dict(totals)
    return found


def count_rows(world: World, rows: Sequence[Row]) -> Statistics:
    """What the trace and the network know."""
    found = Statistics()
    counters = world.network.counters
    found.virtual_ns = world.now_ns
    found.events = world.events
    found.datagrams = dict(counters.sent_by_kind)
    found.datagram_bytes = counters.sent_bytes
    found.repairs = counters.sent_by_kind["repair"]
    found.lost = counters.lost
    found.socket_drops = counters.socket_drops
    if world.network.pipes is not None:
        found.lost += sum(pipe.counters.lost for pipe in world.pipes.all.values())
        found.pipes = {f"{source}>{target}": pipe.counters for (source, target), pipe in world.pipes.all.items()}
    submits: dict[str, tuple[list[int], list[int]]] = {}  # sender -> first numbers, times
    ids: set[str] = set()
    receivers: set[tuple[str, int]] = set()
    first_ns = last_ns = -1
    for row in rows:
        if row.kind == "submit" and row.count:
            found.submitted += row.count
            firsts, times = submits.setdefault(f"{row.node}/{row.life}", ([], []))
            firsts.append(row.first or 0)
            times.append(row.at_ns)
            first_ns = row.at_ns if first_ns < 0 else min(first_ns, row.at_ns)
        elif row.kind == "view" and row.view is not None:
            ids.add(row.view)
    latencies: list[int] = []
    for row in rows:
        if row.kind != "deliver" or not row.count or row.sender is None:
            continue
        found.delivered += row.count
        receivers.add((row.node, row.life))
        last_ns = max(last_ns, row.at_ns)
        firsts, times = submits.get(row.sender, ([], []))
        at = bisect_right(firsts, row.first or 0) - 1
        if at >= 0:
            latencies.append(row.at_ns - times[at])
    found.views = len(ids)
    found.load_ns = max(0, last_ns - first_ns)
    if found.load_ns and receivers:
        found.throughput_per_s = found.delivered / len(receivers) * SECOND / found.load_ns
    latencies.sort()
    found.latency_p50_ns = quantile(latencies, 0.5)
    found.latency_p99_ns = quantile(latencies, 0.99)
    return found


def quantile(ordered: Sequence[int], share: float) -> int:
    """Of sorted values; 0 where there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0


def delivery_latencies(rows: Iterable[Row]) -> list[tuple[int, bool]]:
    """For each message and member: nanoseconds from submit to delivery, and whether it was the sender's own."""
    submits: dict[str, tuple[list[int], list[int]]] = {}
    deliveries: list[Row] = []
    for row in rows:
        if row.kind == "submit" and row.count:
            firsts, times = submits.setdefault(who(row), ([], []))
            firsts.append(row.first or 0)
            times.append(row.at_ns)
        elif row.kind == "deliver" and row.count and row.sender is not None:
            deliveries.append(row)
    found: list[tuple[int, bool]] = []
    for row in deliveries:
        firsts, times = submits.get(row.sender or "", ([], []))
        at = bisect_right(firsts, row.first or 0) - 1
        if at >= 0:
            found += [(row.at_ns - times[at], row.sender == who(row))] * (row.count or 0)
    return found


def steady_bytes_per_s(rows: Iterable[Row], skip: float = 0.1) -> float:
    """Payload a second at each member, without the first and the last part of what it got."""
    by_member: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row.kind == "deliver" and row.bytes:
            by_member.setdefault(who(row), []).append((row.at_ns, row.bytes))
    rates: list[float] = []
    for got in by_member.values():
        total = sum(size for _, size in got)
        so_far = 0
        inside: list[tuple[int, int]] = []
        for at_ns, size in got:
            so_far += size
            if skip * total <= so_far <= (1 - skip) * total:
                inside.append((at_ns, size))
        if len(inside) > 1 and inside[-1][0] > inside[0][0]:
            rates.append(sum(size for _, size in inside[1:]) * SECOND / (inside[-1][0] - inside[0][0]))
    return sum(rates) / len(rates) if rates else 0.0


def who(row: Row) -> str:
    """The life that wrote a row."""
    return f"{row.node}/{row.life}"


def mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
