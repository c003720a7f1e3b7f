"""The totals as text, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ordercast.pipeline.measure.groups import is_rest
from ordercast.pipeline.measure.measures import Measures

FEW_GROUPS: Final = 5  # up to which each of them is shown with its members
SHOWN_GROUPS: Final = 10  # of more; the tables have all that have figures of their own

SHOWN_NODES: Final = 5  # of those with waste
SHOWN_LINKS: Final = 30  # of those between sites, the busiest; the tables have all
_OF_LINK: Final = ("tx", "data", "bytes", "rx")

STAGES: Final = {
    "send": "send to delivery",
    "reception": "reception to delivery",
    "t1": "  until placed (t1)",
    "t2": "  then (t2)",
}


def summary_lines(found: Measures) -> list[str]:
    """All runs, one below the other."""
    lines: list[str] = []
    for one in found.runs:
        span = found.spans[one.name]
        seconds = (span.ended_ns - span.began_ns) / 1e9
        lines += ["", f"run {one.name}: {one.info.orderer}, {one.info.source}, {seconds:.1f} s, {span.events:,} events"]
        for part in (_throughput, _latency, _groups, _datagrams, link_lines, _regions, _changes):
            told = part(found, one.name)
            if len(told) > 1:
                lines += ["", *(f"  {line}" for line in columns(told))]
    return lines


def duration(ns: float | None) -> str:
    """A time with a unit that suits it."""
    if ns is None:
        return "-"
    for limit, unit, digits in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if abs(ns) < limit:
            return f"{ns / unit:.3g} {digits}" if ns else "0"
    return f"{ns / 1e9:.3g} s"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as aligned lines: the first column to the left, numbers to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _throughput(found: Measures, run: str) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("throughput", "sent", "delivered", "seconds", "messages/s", "MB/s")]
    members = found.rows("member_totals", run=run)
    groups = found.rows("group_totals", run=run)
    for group in _shown(groups):
        rows.append(_rate(f"group {group['group']}", group, group["messages"]))
        rows += (
            []
            if len(groups) > FEW_GROUPS
            else [
                _rate(f"  {member['node']}", member, member["delivered"])
                for member in members
                if member["group"] == group["group"]
            ]
        )
    return rows


def _shown(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Few groups as they are; of many the busiest, and last those that have their figures together."""
    if len(groups) <= FEW_GROUPS:
        return groups
    named = sorted((one for one in groups if not is_rest(one["group"])), key=lambda one: -one["deliveries"])
    return [*named[:SHOWN_GROUPS], *(one for one in groups if is_rest(one["group"]))]


def _groups(found: Measures, run: str) -> list[Sequence[str]]:
    """Where there are several groups: send to delivery in each of them, by service."""
    rows: list[Sequence[str]] = [("send to delivery", "deliveries", "mean", "p50", "p90", "p99", "p99.9", "max")]
    groups = found.rows("group_totals", run=run)
    totals = found.rows("latency_totals", run=run, stage="send") if len(groups) > 1 else []
    for group in _shown(groups):
        rows += [
            (f"{group['group']}, {row['service']}", *_times(row)) for row in totals if row["group"] == group["group"]
        ]
    return rows


def _rate(name: str, row: dict[str, Any], delivered: int) -> Sequence[str]:
    per_s, bytes_per_s = row["messages_per_s"], row["bytes_per_s"]
    return (
        name,
        f"{row['sent']:,}",
        f"{delivered:,}",
        f"{row['seconds']:.2f}",
        "-" if per_s is None else f"{per_s:,.0f}",
        "-" if bytes_per_s is None else f"{bytes_per_s / 1e6:.2f}",
    )


def _latency(found: Measures, run: str) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("latency", "deliveries", "mean", "p50", "p90", "p99", "p99.9", "max")]
    totals = found.rows("latency_by_service", run=run)
    for service in dict.fromkeys(row["service"] for row in totals):
        rows.append((service or "-", *("",) * 7))
        for stage, name in STAGES.items():
            rows += [
                (f"  {name}", *_times(row)) for row in totals if (row["service"], row["stage"]) == (service, stage)
            ]
    return rows


def _times(row: dict[str, Any]) -> Sequence[str]:
    times = (duration(row[key]) for key in ("mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"))
    return (f"{row['messages']:,}", *times)


def _datagrams(found: Measures, run: str) -> list[Sequence[str]]:
    totals: dict[str, dict[str, dict[str, Any]]] = {}
    for total in found.rows("datagram_totals", run=run):
        totals.setdefault(total["kind"], {})[total["direction"]] = total
    rows: list[Sequence[str]] = [("datagrams", "sent", "a message", "received", "a delivery")]
    for kind in sorted(totals, key=lambda kind: -totals[kind].get("tx", {}).get("datagrams", 0)):
        cells = [kind or "-"]
        for direction in ("tx", "rx"):
            row = totals[kind].get(direction, {"datagrams": 0, "per_message": 0.0})
            each = row["per_message"]
            cells += [f"{row['datagrams']:,}", "-" if each is None else f"{each:.3f}"]
        rows.append(cells)
    return rows


def link_lines(found: Measures, run: str) -> list[Sequence[str]]:
    """Where there are sites: what went from one to another, by its senders, and what came of it."""
    info = next(one.info for one in found.runs if one.name == run)
    sites = info.parameters.get("sites")
    site_of = sites if isinstance(sites, dict) else {}
    totals: dict[tuple[str, str], dict[str, int]] = {}
    for row in found.rows("link_totals", run=run):
        here, there = site_of.get(row["node"], row["node"]), row["site"]
        link = (here, there) if row["direction"] == "tx" else (there, here)
        total = totals.setdefault(link, dict.fromkeys(_OF_LINK, 0))
        total[row["direction"]] += row["datagrams"]
        if row["direction"] == "tx":
            total["bytes"] += row["bytes"]
            total["data"] += row["datagrams"] if row["kind"] == "data" else 0
    busiest = sorted(totals, key=lambda link: (-totals[link]["bytes"], link))
    rows: list[Sequence[str]] = [("from site to site", "sent", "of it data", "bytes", "received")]
    return rows + [
        (f"{here} > {there}", *(f"{totals[here, there][key]:,}" for key in _OF_LINK))
        for here, there in busiest[:SHOWN_LINKS]
    ]


def _regions(found: Measures, run: str) -> list[Sequence[str]]:
    """Where the trace has regions: what their traffic is, and what nodes received in vain."""
    rows: list[Sequence[str]] = [("regions", "count", "of all")]
    for row in found.rows("region_totals", run=run):
        rows += [
            ("regions with traffic", f"{row['regions']:,}", ""),
            ("blocks sent", f"{row['blocks']:,}", ""),
            ("blocks lost, at all members", f"{row['lost_blocks']:,}", ""),
            ("control, bytes", f"{row['control_bytes']:,}", _share(row["control_share"])),
            ("tokens", f"{row['tokens']:,}", ""),
            ("repairs by push", f"{row['pushed']:,}", ""),
            ("repairs by pull", f"{row['pulled']:,}", ""),
            ("messages received and not wanted", f"{row['wasted']:,}", _share(row["waste_share"])),
        ]
    worst = sorted(found.rows("region_waste", run=run), key=lambda row: (-(row["share"] or 0.0), row["node"]))
    return rows + [
        (f"  at {row['node']} in {row['region']}", f"{row['wasted']:,}", _share(row["share"]))
        for row in worst[:SHOWN_NODES]
        if row["wasted"]
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _changes(found: Measures, run: str) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("", "count", "least", "p50", "greatest")]
    rows += [
        (f"view change: {row['reason'] or '-'}", f"{row['views']:,}", *_least_to_most(row))
        for row in found.rows("view_totals", run=run)
    ]
    rows += [
        (f"view of one of {row['groups']:,} groups: {row['reason'] or '-'}", f"{row['views']:,}", "-", "-", "-")
        for row in found.rows("group_view_totals", run=run)
    ]
    for table, stage, name in (
        ("repair_totals", "repair", "gap repaired"),
        ("rotation_totals", "rotation", "token round"),
    ):
        rows += [
            (name, f"{row['messages']:,}", *_least_to_most(row)) for row in found.rows(table, run=run, stage=stage)
        ]
    never = found.rows("repair_totals", run=run, stage="open")
    return rows + [("gap never repaired", f"{row['messages']:,}", "-", "-", "-") for row in never]


def _least_to_most(row: dict[str, Any]) -> Sequence[str]:
    return [duration(row[key]) for key in ("min_ns", "p50_ns", "max_ns")]
