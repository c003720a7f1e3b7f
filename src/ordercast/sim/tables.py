"""What `ordercast sim --ladder` and `--figures` and `ordercast compare` print for people."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.sim.comparison import Comparison, load_name
from ordercast.sim.figures import Figures, Rung


def ladder_lines(rungs: Sequence[Rung]) -> list[str]:
    """The ladder as a table."""
    rows: list[tuple[str, ...]] = [
        ("service", "mean us", "p50 us", "p99 us", "at others us", "MB/s each", "violations")
    ]
    for rung in rungs:
        times = (rung.mean_us, rung.p50_us, rung.p99_us, rung.others_mean_us, rung.throughput_mb_s)
        rows.append((rung.service, *(f"{number:.1f}" for number in times), str(rung.violations)))
    return _table(rows)


def figures_lines(found: Figures) -> list[str]:
    """The figures as tables."""
    lines = [
        f"the wire has {found.wire_kb_s:.0f} KB/s; transfers of {found.transfer_bytes / 1e6:g} MB after a warm-up",
        "",
        "figure 5.1: aggregate throughput, sources are destinations",
    ]
    rows: list[tuple[str, ...]] = [("sources", "members", "aggregate KB/s", "times the wire", "each KB/s")]
    rows += [
        (
            str(one.sources),
            str(one.members),
            f"{one.aggregate_kb_s:.0f}",
            f"{one.aggregate_of_wire:.2f}",
            f"{one.single_kb_s:.0f}",
        )
        for one in found.aggregate
    ]
    lines += [*_table(rows), "", "figure 5.2: throughput of one sender that is no destination"]
    rows = [("destinations", "KB/s", "of the wire")]
    rows += [(str(one.destinations), f"{one.single_kb_s:.0f}", f"{one.single_of_wire:.0%}") for one in found.single]
    lines += [*_table(rows), "", "figure 5.3: latency from application to application"]
    rows = [("destinations", "mean ms", "p99 ms")]
    rows += [(str(one.destinations), f"{one.mean_ms:.2f}", f"{one.p99_ms:.2f}") for one in found.latency]
    lines += [*_table(rows), "", f"datagrams per data packet, {found.costs[0].members} members sending"]
    rows = [("offered", "delivered KB/s", "data", "all", "per data packet", "kinds")]
    for cost in found.costs:
        offered = f"{cost.offered_of_wire:.0%}" if cost.offered_of_wire else "saturated"
        kinds = ", ".join(f"{kind} {count}" for kind, count in cost.by_kind.items())
        rows.append(
            (offered, f"{cost.delivered_kb_s:.0f}", str(cost.data), str(cost.datagrams), f"{cost.per_data:.2f}", kinds)
        )
    lines += _table(rows)
    return lines if found.held else [*lines, "FAILED: the checkers found violations, or sockets dropped datagrams"]


def comparison_lines(found: Comparison) -> list[str]:
    """The comparison as a table, and what anticipation saves where that was measured."""
    plan = found.plan
    model = plan.network_model()
    network = ", ".join([plan.network, *plan.troubles()])
    lines = [
        f"{plan.service}, {plan.size} bytes, {plan.senders or 'all'} sending; {network}, "
        f"{model.latency_ns / 1_000:g} us a hop and up to {model.jitter_ns / 1_000:g} us more",
        "reception to delivery at each receiver, in us: t1 until its sequence number is known, t2 from then on.",
        "From submit: mean until the delivery at receivers. A message with its number waits before it comes.",
        "",
    ]
    parts = [f"{part}{word}" for part in ("", "t1 ", "t2 ") for word in ("mean", "p50", "p95")]
    rows: list[tuple[str, ...]] = [
        ("nodes", "load", "orderer", *parts, "from submit", "delivered/s", "datagrams", "each message takes")
    ]
    for point in found.points:
        parts = [
            f"{us:.1f}"
            for times in (point.latency, point.t1, point.t2)
            for us in (times.mean_us, times.p50_us, times.p95_us)
        ]
        load = load_name(point.load_per_s)
        counts = (
            f"{point.from_submit.mean_us:.1f}",
            f"{point.delivered_per_s:.0f}",
            f"{point.datagrams_per_message:.2f}",
        )
        kinds = ", ".join(f"{kind} {count:.2f}" for kind, count in point.datagrams_by_kind.items() if count >= 0.005)
        rows.append((str(point.nodes), load, point.orderer, *parts, *counts, kinds))
    lines += _table(rows)
    reductions = found.reductions()
    if reductions:
        lines += ["", "what anticipation saves; t2's share of the latency without it is all that it could"]
        rows = [("nodes", "load", "latency", "t2", "t2's share")]
        rows += [
            (
                str(one.nodes),
                load_name(one.load_per_s),
                f"{one.latency:.1f} %",
                f"{one.t2:.1f} %",
                f"{one.t2_share:.1f} %",
            )
            for one in reductions
        ]
        lines += _table(rows)
    runs = len(found.points) * plan.seeds
    verdict = (
        "every guarantee held" if found.held else "FAILED: the checkers found violations, or sockets dropped something"
    )
    return [*lines, "", f"{verdict}: {runs} runs, {found.events:,} events examined"]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns: words to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    words = {column for column in range(len(widths)) if not rows[-1][column][:1].isdigit()}
    return [
        "  ".join(
            cell.ljust(width) if column in words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
