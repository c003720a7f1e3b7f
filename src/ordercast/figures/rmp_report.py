"""Section 5 of the RMP paper beside what `rmp.py` measured: claims, tables and pictures."""

from __future__ import annotations

from typing import Final

from ordercast.figures.report import (
    Chart,
    Claim,
    ClaimStatus,
    Curve,
    CurveKind,
    FigureTable,
    PaperReport,
    Picture,
    cells,
)
from ordercast.figures.rmp import TRANSFER_BYTES, RmpFigures

PAPER_AGGREGATE_KB_S: Final = 7_384.0
PAPER_SINGLE_KB_S: Final = 1_070.0
PAPER_LATENCY_MS: Final = 4.0
STEADY: Final = 0.15  # "roughly constant": the span, as a share of the largest
ABOUT: Final = (
    "Section 5 on the network `ethernet`: one 10 Mb/s segment (1250 KB/s), half duplex, 0.3 ms of processor time for "
    "each packet at each end and 0.1 us for each byte. The paper prints no cost of a packet; these come from what such "
    "machines were measured at. The orderer is `token`. Transfers of {size:g} MB after a warm-up; the paper sends 5 "
    "MB. Every trace is judged."
)


def rmp_report(found: RmpFigures) -> PaperReport:
    """Everything in the one form."""
    return PaperReport(
        "rmp",
        "RMP, section 5",
        ABOUT.format(size=TRANSFER_BYTES / 1e6),
        tuple(_claims(found)),
        tuple(_tables(found)),
        tuple(_pictures(found)),
        found.violations,
    )


# Claims. --------------------------------------------------------------------------------------------------------------


def _claims(found: RmpFigures) -> list[Claim]:
    return [
        *_aggregate_claims(found),
        *_single_claims(found),
        *_latency_claims(found),
        _packet_claim(found),
        *(_ladder_claims(found) if found.rungs else ()),
        Claim(
            "5",
            "throughput over an internetwork",
            "98 KB/s, limited by the routing daemon",
            "",
            ClaimStatus.NOT_MEASURED,
            "the paper says nothing of that path that could be simulated",
        ),
    ]


def _aggregate_claims(found: RmpFigures) -> list[Claim]:
    alone = [point for point in found.aggregate if point.sources == 1]
    last = max(alone, key=lambda point: point.members)
    many = [point for point in found.aggregate if point.sources >= 4]
    several = ", ".join(f"{point.aggregate_of_wire:.2f}" for point in alone)
    return [
        Claim(
            "5, figure 5.1",
            f"aggregate throughput, 1 source, {last.members} members",
            "7384 KB/s, 5.91 times the wire, with 8 members",
            f"{last.aggregate_kb_s:.0f} KB/s, {last.aggregate_of_wire:.2f} times; "
            f"from {alone[0].members} members on {several}",
            ClaimStatus.PARTLY,
            "it breaks the limit of the wire in the same proportion. Ours is higher: a block of 60 KB needs one "
            "sequence number where the paper orders each packet, and the model charges senders nothing for the copy to "
            "their own application",
        ),
        Claim(
            "5, figure 5.1",
            "4 and 8 sources",
            "not reproducible: collisions starve senders",
            ", ".join(f"{p.sources} of {p.members}: {p.aggregate_of_wire:.2f}" for p in many if p.members == 8) or "-",
            ClaimStatus.NOT_MEASURED,
            "the model has no collisions: nodes take turns",
        ),
    ]


def _single_claims(found: RmpFigures) -> list[Claim]:
    first = found.single[0]
    shares = ", ".join(f"{point.single_of_wire:.0%}" for point in found.single)
    span = 1 - min(p.single_kb_s for p in found.single) / max(p.single_kb_s for p in found.single)
    return [
        Claim(
            "5, abstract",
            "throughput to one destination",
            "1070 KB/s, 86 % of the wire",
            f"{first.single_kb_s:.0f} KB/s, {first.single_of_wire:.0%}",
            ClaimStatus.PARTLY,
            "higher for the same reasons. On this wire 95 % is all that 1400-byte packets can have",
        ),
        Claim(
            "5, figure 5.2",
            "the same to more destinations",
            "roughly constant; above what any protocol without multicast can reach from two destinations on",
            f"{shares} of the wire",
            ClaimStatus.REPRODUCED if span <= STEADY else ClaimStatus.DIFFERS,
        ),
    ]


def _latency_claims(found: RmpFigures) -> list[Claim]:
    times = ", ".join(f"{point.mean_ms:.2f}" for point in found.latency)
    return [
        Claim(
            "abstract",
            "latency to one destination",
            "4.0 ms",
            f"{found.latency[0].mean_ms:.2f} ms",
            ClaimStatus.DIFFERS,
            "the paper prints neither the size of its messages nor what a packet cost its processors. With the cost of "
            "a plain UDP packet on such machines, which our model has, two hops take no longer than this: the other "
            "milliseconds are its implementation's",
        ),
        Claim(
            "5, figure 5.3",
            "the same to more destinations",
            "almost constant",
            f"{times} ms",
            ClaimStatus.PARTLY,
            "a message that its sender or its receiver orders itself takes one hop (0.9 to 1.1 ms), any other two (1.7 "
            "ms). With 3 members a third of them take two, with 8 three quarters",
        ),
    ]


def _packet_claim(found: RmpFigures) -> Claim:
    loads = ", ".join(_offered(cost.offered_of_wire) for cost in found.costs)
    counts = ", ".join(f"{cost.per_data:.2f}" for cost in found.costs)
    return Claim(
        "5",
        "multicasts per data packet",
        "up to 3 at low load, slightly more than 1 at high load",
        f"at {loads}: {counts}",
        ClaimStatus.PARTLY if found.costs[0].per_data > 3 else ClaimStatus.REPRODUCED,
        "at the lightest loads the heartbeats of the failure detector count; the paper has none",
    )


def _ladder_claims(found: RmpFigures) -> list[Claim]:
    rungs = {rung.service: rung for rung in found.rungs}
    ratio = rungs["AGREED"].mean_us / rungs["FIFO"].mean_us
    rates = [rung.throughput_mb_s for rung in found.rungs]
    return [
        Claim(
            "1, 3.2",
            "latency of totally ordered against source ordered packets",
            "approximately twice",
            f"{ratio:.2f} times",
            ClaimStatus.REPRODUCED if 1.6 <= ratio <= 2.4 else ClaimStatus.DIFFERS,
            "on the network `lan`, eight members",
        ),
        Claim(
            "1",
            "throughput over all services",
            "does not change significantly",
            f"{min(rates):.0f} to {max(rates):.0f} MB/s",
            ClaimStatus.REPRODUCED if min(rates) >= 0.9 * max(rates) else ClaimStatus.DIFFERS,
        ),
    ]


def _offered(share: float) -> str:
    return f"{share:.0%}" if share else "saturated"


# Tables. --------------------------------------------------------------------------------------------------------------


def _tables(found: RmpFigures) -> list[FigureTable]:
    return [
        FigureTable(
            "Figure 5.1: aggregate throughput, sources are destinations",
            ("sources", "members", "aggregate KB/s", "times the wire", "each KB/s"),
            tuple(
                cells(
                    (
                        point.sources,
                        point.members,
                        f"{point.aggregate_kb_s:.0f}",
                        point.aggregate_of_wire,
                        f"{point.single_kb_s:.0f}",
                    )
                )
                for point in found.aggregate
            ),
        ),
        FigureTable(
            "Figure 5.2: throughput of one sender that is no destination",
            ("destinations", "KB/s", "of the wire"),
            tuple((str(p.destinations), f"{p.single_kb_s:.0f}", f"{p.single_of_wire:.0%}") for p in found.single),
        ),
        FigureTable(
            "Figure 5.3: latency from application to application",
            ("destinations", "mean ms", "p99 ms"),
            tuple(cells((point.destinations, point.mean_ms, point.p99_ms)) for point in found.latency),
            "One message of 100 bytes goes back and forth between two members; the others listen.",
        ),
        FigureTable(
            "Datagrams per data packet",
            ("offered", "delivered KB/s", "data packets", "all datagrams", "per data packet", "kinds"),
            tuple(
                cells(
                    (
                        _offered(cost.offered_of_wire),
                        f"{cost.delivered_kb_s:.0f}",
                        cost.data,
                        cost.datagrams,
                        cost.per_data,
                        ", ".join(f"{kind} {count}" for kind, count in cost.by_kind.items()),
                    )
                )
                for cost in found.costs
            ),
            f"{found.plan.members} members send messages of 1000 bytes. The light loads have the paper's timer of one "
            "second before a NULL ACK.",
        ),
        *([_ladder_table(found)] if found.rungs else []),
    ]


def _ladder_table(found: RmpFigures) -> FigureTable:
    return FigureTable(
        "The ladder of services",
        ("service", "mean us", "p50 us", "p99 us", "MB/s at each"),
        tuple(
            cells((rung.service, rung.mean_us, rung.p50_us, rung.p99_us, rung.throughput_mb_s), digits=1)
            for rung in found.rungs
        ),
        "`ordercast sim --ladder`: eight members on `lan`; a message of 100 bytes every millisecond for the "
        "latency, 12 MB of 1 KB messages from all members for the throughput.",
    )


# Pictures. ------------------------------------------------------------------------------------------------------------


def _pictures(found: RmpFigures) -> list[Picture]:
    return [
        Picture(
            "rmp",
            "RMP: aggregate throughput, throughput of one sender and latency, over the group size",
            (_aggregate_chart(found), _single_chart(found), _latency_chart(found)),
        )
    ]


def _aggregate_chart(found: RmpFigures) -> Chart:
    sources = sorted({point.sources for point in found.aggregate})
    most = max(point.members for point in found.aggregate)
    curves = [
        Curve(
            f"{count} source{'s' if count > 1 else ''}",
            tuple((point.members, point.aggregate_kb_s) for point in found.aggregate if point.sources == count),
        )
        for count in sources
    ]
    curves.append(Curve("paper: 1 source, 7384 KB/s", ((8.0, PAPER_AGGREGATE_KB_S),), CurveKind.PAPER))
    curves.append(Curve("the wire", ((1.0, found.wire_kb_s), (float(most), found.wire_kb_s)), CurveKind.PAPER))
    return Chart("figure 5.1: aggregate throughput", "members, the sources included", "KB/s", tuple(curves))


def _single_chart(found: RmpFigures) -> Chart:
    wire = found.wire_kb_s
    points = [(float(point.destinations), point.single_kb_s) for point in found.single]
    return Chart(
        "figure 5.2: one sender",
        "destinations",
        "KB/s at each",
        (
            Curve("token", tuple(points)),
            Curve("at most without multicast", tuple((n, wire / n) for n, _ in points), CurveKind.MODEL),
            Curve("paper: 1070 KB/s", ((1.0, PAPER_SINGLE_KB_S),), CurveKind.PAPER),
            Curve("the wire", ((1.0, wire), (points[-1][0], wire)), CurveKind.PAPER),
        ),
    )


def _latency_chart(found: RmpFigures) -> Chart:
    return Chart(
        "figure 5.3: latency",
        "destinations",
        "ms",
        (
            Curve("token, mean", tuple((point.destinations, point.mean_ms) for point in found.latency)),
            Curve("token, p99", tuple((point.destinations, point.p99_ms) for point in found.latency)),
            Curve("paper: 4.0 ms", ((1.0, PAPER_LATENCY_MS),), CurveKind.PAPER),
        ),
    )
