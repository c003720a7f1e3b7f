"""What `ordercast sim` with its flags and `ordercast compare` print for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.sim.comparison import Comparison, load_name
from ordercast.sim.ladder import Rung
from ordercast.sim.pipes import PipeCounters


def ladder_lines(rungs: Sequence[Rung]) -> list[str]:
    """The ladder as a table."""
    rows: list[tuple[str, ...]] = [
        ("service", "mean us", "p50 us", "p99 us", "at others us", "MB/s each", "violations")
    ]
    for rung in rungs:
        times = (rung.mean_us, rung.p50_us, rung.p99_us, rung.others_mean_us, rung.throughput_mb_s)
        rows.append((rung.service, *(f"{number:.1f}" for number in times), str(rung.violations)))
    return aligned(rows)


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
    lines += aligned(rows)
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
        lines += aligned(rows)
    runs = len(found.points) * plan.seeds
    verdict = (
        "every guarantee held" if found.held else "FAILED: the checkers found violations, or sockets dropped something"
    )
    return [*lines, "", f"{verdict}: {runs} runs, {found.events:,} events examined"]


def pipe_lines(pipes: Mapping[str, PipeCounters]) -> list[str]:
    """What each pipe between sites carried, with the kinds of datagrams; nothing where there are no sites."""
    rows: list[tuple[str, ...]] = [("pipe", "carried", "bytes", "full", "lost", "cut", "by kind")]
    for name, each in pipes.items():
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(each.by_kind.items()))
        numbers = (each.datagrams, each.bytes, each.queue_drops, each.lost, each.cut)
        rows.append((name, *map(str, numbers), kinds or "-"))
    return aligned(rows) if pipes else []


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
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
