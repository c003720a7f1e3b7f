"""The numbers of the Spread paper beside what `spread.py` measured: claims, tables and a picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ordercast.figures.report import (
    Cell,
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
from ordercast.figures.spread import (
    DETOUR_SHARE,
    HOP_WINDOW,
    JHU,
    JHU_RUTGERS_BITS,
    JHU_UCSB_BITS,
    LATENCY_MS,
    LOSS,
    RING_PACKETS,
    RUTGERS,
    SIZE,
    SLOW_LINE,
    THREE,
    TWO,
    UCSB,
    USE,
    Gain,
    LanRate,
    Pruned,
    SpreadFigures,
)

SECTION: Final = "4"
PAPER_HOP: Final = {TWO: 1_149_511, THREE: 755_300}  # bits per second
PAPER_RING: Final = {TWO: 215_907, THREE: 159_387}
PAPER_GAIN: Final = {TWO: "5.3", THREE: "4.7"}
NEAR: Final = 0.05  # of the paper's number: this near is the same
LEAST_LESS: Final = 20.0  # per cent, by misrouting
MOST_LESS: Final = 50.0
SLIGHTLY: Final = 5.0  # per cent
LAN_LESS: Final = 5.0  # per cent that the LAN may lose by a slow link
ABOUT: Final = (
    "Section 4 on pipes with a bandwidth, a latency and a loss each (`sim/pipes.py`); one daemon and one receiver at "
    "each place; AGREED messages of {size} bytes from one sender; rates of payload. The paper gives rates and nothing "
    "about its network, so these are chosen. Bandwidths, so that hop has the paper's rates: JHU - UCSB {ju} kbit/s, "
    "JHU - Rutgers {jr} kbit/s, of which a link uses {use:.0%}. Latencies ({lat} ms one way for JHU - UCSB, JHU - "
    "Rutgers and UCSB - Rutgers), a loss of {loss:.0%} and a ring that sends {packets} packets in one rotation: there "
    "the ring has them as well. A link has a window of {window} packets. The ring is our Ring as one site of all "
    "daemons, with a copy for each over the same pipes. Every trace is judged."
)


def spread_report(found: SpreadFigures) -> PaperReport:
    """Everything in the one form."""
    about = ABOUT.format(
        size=SIZE,
        ju=JHU_UCSB_BITS // 1_000,
        jr=JHU_RUTGERS_BITS // 1_000,
        use=USE,
        lat=", ".join(f"{ms:g}" for ms in LATENCY_MS.values()),
        loss=LOSS,
        packets=RING_PACKETS,
        window=HOP_WINDOW,
    )
    tables = (_rates(found), _grid(found), _detours(found), _lans(found), _pipes(found))
    claims = (*_rate_claims(found), *_detour_claims(found), *_lan_claims(found), *_prune_claims(found))
    return PaperReport(
        "spread", "Spread, section 4", about, tuple(claims), tables, tuple(_pictures(found)), found.violations
    )


# Tables. --------------------------------------------------------------------------------------------------------------


def _rates(found: SpreadFigures) -> FigureTable:
    rows = []
    for one in found.gains:
        sites = one.sites
        row: list[Cell] = [", ".join(sites), one.source, one.messages, round(one.hop), PAPER_HOP[sites]]
        rows.append(cells([*row, round(one.ring), PAPER_RING[sites], one.times, PAPER_GAIN[sites]]))
    return FigureTable(
        "Hop and ring over the same wide area",
        ("sites", "source", "messages", "hop bit/s", "paper", "ring bit/s", "paper", "gain", "paper"),
        tuple(rows),
        "The paper's rates are averages over sources.",
    )


def _grid(found: SpreadFigures) -> FigureTable:
    rows = [
        cells([len(one.sites), f"{one.loss:.0%}", one.packets, round(one.hop), round(one.ring), one.times, _mark(one)])
        for one in found.grid
    ]
    return FigureTable(
        "The gain over loss and the ring's window",
        ("sites", "loss", "packets in a rotation", "hop bit/s", "ring bit/s", "gain", "both rates are the paper's"),
        tuple(rows),
        f"The same pipes with other losses, the same ring with other windows; {_messages(found)} messages. Both rates "
        f"count as the paper's within {NEAR:.0%}.",
    )


def _mark(one: Gain) -> str:
    return "yes" if _is_near(one.hop, PAPER_HOP[one.sites]) and _is_near(one.ring, PAPER_RING[one.sites]) else ""


def _detours(found: SpreadFigures) -> FigureTable:
    rows = [
        cells([f"{one.share:.0%}", one.source, round(one.optimal), round(one.misrouted), f"{one.less:.0f} %"])
        for one in found.detours
    ]
    return FigureTable(
        "Misrouting through UCSB",
        ("line UCSB - Rutgers, of JHU - Rutgers", "source", "best trees bit/s", "through UCSB bit/s", "less"),
        tuple(rows),
        "Three sites; all traffic between JHU and Rutgers goes by way of UCSB. The paper does not say what the line "
        "from UCSB to Rutgers carries.",
    )


def _lans(found: SpreadFigures) -> FigureTable:
    rows = []
    for one in found.lans:
        base = _lan_base(found, one)
        row: list[Cell] = [one.service, one.messages, one.state, round(one.local)]
        changes = (_change(one.local, base), _in_all(one, base), 100 * (one.delivered / base.delivered - 1))
        row += [""] * 3 if base is one else [f"{change:+.1f} %" for change in changes]
        rows.append(cells([*row, f"{one.wide / 1_000:.0f}"]))
    line = f"{SLOW_LINE.latency_ms:g} ms, {SLOW_LINE.bits_per_s // 1_000} kbit/s, {SLOW_LINE.loss:.0%} loss"
    return FigureTable(
        "The LAN beside a slow link",
        (
            "service",
            "messages",
            "link to the other site",
            "local bit/s",
            "change",
            "in all",
            "first to last delivery",
            "over the link, kbit/s",
        ),
        tuple(rows),
        f"A site of four daemons on `ethernet` (10 Mb/s); three of them are in a local group, one of these sends. The "
        f"link to the other site ({line}) is not there (none), without data (idle), or filled by the fourth daemon "
        "(busy). The local rate is that at which the messages leave their sender; all of them are delivered. In all: "
        "with what goes over the link, since that crosses the LAN as well. First to last delivery: the change of the "
        "rate between these two. It says little of a short run: AGREED messages come in bursts, with each word of the "
        "other site, up to 0.7 s apart, and the first and the last burst may have waited for different times.",
    )


def _change(rate: float, base: LanRate) -> float:
    """Per cent."""
    return 100 * (rate / base.local - 1)


def _in_all(one: LanRate, base: LanRate) -> float:
    return _change(one.local + one.wide, base)


def _lan_base(found: SpreadFigures, one: LanRate) -> LanRate:
    """The same without another site."""
    return next(
        other
        for other in found.lans
        if (other.service, other.messages, other.state) == (one.service, one.messages, "none")
    )


def _pipes(found: SpreadFigures) -> FigureTable:
    rows = []
    for one in found.prunes:
        for (source, target), use in one.pipes.items():
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(use.others.items()))
            row: list[Cell] = [
                ", ".join(one.members),
                one.source,
                f"{source} > {target}",
                use.data,
                f"{use.data_bytes / 1_000:.0f}",
            ]
            rows.append(cells([*row, use.others.total(), f"{use.other_bytes / 1_000:.0f}", kinds or "nothing"]))
    return FigureTable(
        "What each pipe carries",
        ("members at", "source", "pipe", "data packets", "KB", "control datagrams", "KB", "by kind"),
        tuple(rows),
        f"Three sites, best trees; {_messages(found)} messages ({_messages(found) * SIZE // 1_000} KB). `packet` is "
        "data, every other kind is control: SKIPs name the blocks that were pruned, UPDATEs have clocks and ARUs.",
    )


def _messages(found: SpreadFigures) -> int:
    return min(one.messages for one in (*found.gains, *found.grid))


# Claims. --------------------------------------------------------------------------------------------------------------


def _rate_claims(found: SpreadFigures) -> list[Claim]:
    claims = []
    for sites in (THREE, TWO):
        points = [one for one in found.gains if one.sites == sites and one.source == JHU]
        if not points:
            continue
        one = max(points, key=lambda point: point.messages)
        line = "JHU - Rutgers" if sites == THREE else "JHU - UCSB"
        claims.append(
            Claim(
                SECTION,
                f"throughput of hop, {', '.join(sites)}",
                f"{PAPER_HOP[sites]:,} bit/s",
                f"{one.hop:,.0f} bit/s",
                ClaimStatus.FITTED if _is_near(one.hop, PAPER_HOP[sites]) else ClaimStatus.DIFFERS,
                f"the bandwidth of the line {line} was chosen for this number",
            )
        )
        is_met = _is_near(one.ring, PAPER_RING[sites])
        claims.append(
            Claim(
                SECTION,
                f"gain over a ring, {', '.join(sites)}",
                f"{PAPER_GAIN[sites]} times: the ring has {PAPER_RING[sites]:,} bit/s",
                f"{one.times:.1f} times: {one.ring:,.0f} bit/s",
                ClaimStatus.FITTED if is_met else ClaimStatus.DIFFERS,
                f"both rates match at a loss of {LOSS:.0%} and {RING_PACKETS} packets in a rotation, the same point "
                "for two and for three sites, with latencies chosen for it. A ring sends one window in each rotation "
                "of its token, which takes all latencies in a row"
                f"{_other_sources(found, sites)}{_elsewhere(found, sites)}",
            )
        )
    claims += _source_claims(found)
    return claims


def _other_sources(found: SpreadFigures, sites: tuple[str, ...]) -> str:
    """The point is that of one source, and the paper's rates are averages."""
    others = [one for one in found.gains if one.sites == sites and one.source != JHU]
    if not others:
        return ""
    texts = [f"{one.ring:,.0f} bit/s with the source {one.source} ({one.times:.1f} times)" for one in others]
    return f". It matches for the source {JHU}; the ring has {' and '.join(texts)}"


def _elsewhere(found: SpreadFigures, sites: tuple[str, ...]) -> str:
    """How the gain depends on the window and on the loss."""
    grid = [one for one in found.grid if one.sites == sites]
    windows = [one for one in grid if one.loss == LOSS and one.packets != RING_PACKETS]
    losses = [one for one in grid if one.packets == RING_PACKETS and one.loss != LOSS]
    texts = []
    if windows:
        texts.append(", ".join(f"{one.times:.1f} with {one.packets} packets" for one in windows))
    if losses:
        texts.append(", ".join(f"{one.times:.1f} at a loss of {one.loss:.0%}" for one in losses))
    return f". Elsewhere the gain is {'; '.join(texts)}" if texts else ""


def _source_claims(found: SpreadFigures) -> list[Claim]:
    least = min(one.messages for one in found.gains)
    points = [one for one in found.gains if one.sites == THREE and one.messages == least]
    if len(points) < 2:
        return []
    rates = [one.hop for one in points]
    spread = 100 * (max(rates) / min(rates) - 1)
    return [
        Claim(
            SECTION,
            "the source makes a difference",
            "the values varied only slightly",
            f"{min(rates):,.0f} to {max(rates):,.0f} bit/s, {spread:.1f} %",
            ClaimStatus.REPRODUCED if spread <= SLIGHTLY else ClaimStatus.DIFFERS,
            "all trees are the same, as in the paper, and have the same narrowest line",
        )
    ]


def _detour_claims(found: SpreadFigures) -> list[Claim]:
    if not found.detours:
        return []
    own = [one for one in found.detours if one.source == JHU]
    within = [one for one in own if LEAST_LESS - 1 <= one.less <= MOST_LESS + 1]
    same = [one for one in own if one.share == 1.0]
    narrow = PAPER_HOP[THREE] * (1 - MOST_LESS / 100) / 1_000
    wide = PAPER_HOP[THREE] * (1 - LEAST_LESS / 100) / 1_000
    others = [one for one in found.detours if one.source != JHU]
    text = (
        "the rate is that of the line UCSB - Rutgers, which the paper does not give: a decrease of 20 to 50 % says "
        f"that it carried {narrow:.0f} to {wide:.0f} kbit/s"
    )
    if same:
        text += f". Where it carries as much as JHU - Rutgers, the detour changes the rate by {-same[0].less:+.0f} %"
    if others:
        less = ", ".join(f"{one.less:.0f} % with the source {one.source}" for one in others)
        text += f". At {DETOUR_SHARE:.0%} of it: {less}"
    return [
        Claim(
            SECTION,
            "UCSB forwards between JHU and Rutgers",
            "20 to 50 % less throughput",
            ", ".join(f"{one.less:.0f} % at {one.share:.0%}" for one in own) + " of JHU - Rutgers",
            ClaimStatus.FITTED if within else ClaimStatus.DIFFERS,
            text,
        )
    ]


def _lan_claims(found: SpreadFigures) -> list[Claim]:
    beside = [one for one in found.lans if one.state != "none"]
    if not beside:
        return []
    changes = [_change(one.local, _lan_base(found, one)) for one in beside]
    in_all = [_in_all(one, _lan_base(found, one)) for one in beside]
    local = [one.local for one in beside]
    return [
        Claim(
            SECTION,
            "local traffic beside wide area links",
            "can be supported at higher rates than wide area traffic",
            f"{min(local) / 1e6:.1f} to {max(local) / 1e6:.1f} Mbit/s beside a link of {SLOW_LINE.bits_per_s // 1_000} "
            f"kbit/s; against the same LAN alone {min(changes):+.1f} to {max(changes):+.1f} %, "
            f"with what goes over the link {min(in_all):+.1f} to {max(in_all):+.1f} %",
            ClaimStatus.REPRODUCED if min(changes) >= -LAN_LESS else ClaimStatus.PARTLY,
            f"asked for here: a local rate within {LAN_LESS:.0f} %. What goes over the link crosses the LAN twice, in "
            "the ring and on its way to the link, and its control traffic once. The latency of AGREED messages is "
            "another matter: each waits for a word of the other site. So a LAN that delivers more than `history_bytes` "
            "in a round trip to the other sites waits for them",
        )
    ]


def _prune_claims(found: SpreadFigures) -> list[Claim]:
    pruned = [one for one in found.prunes if RUTGERS not in one.members]
    if not pruned:
        return []
    one = pruned[0]
    idle = one.pipes[JHU, RUTGERS]
    busy = one.pipes[JHU, UCSB]
    share = 100 * idle.other_bytes / busy.data_bytes
    is_pruned = not idle.data and _is_near(one.rate, PAPER_HOP[TWO], 2 * NEAR)
    return [
        Claim(
            SECTION,
            "links differ, so that pruning is effective",
            "different hop links supported widely varying throughput",
            f"a group at JHU and UCSB has {one.rate:,.0f} bit/s on an underlay of three sites. Its messages take "
            f"{busy.data} data packets to UCSB and {idle.data} to Rutgers",
            ClaimStatus.REPRODUCED if is_pruned else ClaimStatus.DIFFERS,
            f"the line to Rutgers carries control only: {share:.0f} % of the bytes of the data that is pruned"
            + _through(found.prunes),
        )
    ]


def _through(prunes: Iterable[Pruned]) -> str:
    """What a site gets that only forwards."""
    for one in prunes:
        if JHU not in one.members:
            data = one.pipes[UCSB, JHU].data, one.pipes[JHU, RUTGERS].data
            return f". A group at UCSB and Rutgers passes through JHU: {data[0]} data packets come, {data[1]} go on"
    return ""


def _is_near(ours: float, papers: float, by: float = NEAR) -> bool:
    return abs(ours / papers - 1) <= by


# The picture. ---------------------------------------------------------------------------------------------------------


def _pictures(found: SpreadFigures) -> list[Picture]:
    charts = [chart for sites in (TWO, THREE) if (chart := _gain_chart(found, sites)) is not None]
    detours = _detour_chart(found)
    if detours is not None:
        charts.append(detours)
    caption = "Spread: hop's gain over the ring, by the ring's window and the loss; and what misrouting leaves"
    return [Picture("spread", caption, tuple(charts))] if charts else []


def _gain_chart(found: SpreadFigures, sites: tuple[str, ...]) -> Chart | None:
    points = [one for one in found.grid if one.sites == sites]
    if not points:
        return None
    curves = []
    for loss in dict.fromkeys(one.loss for one in points):
        line = tuple((float(one.packets), one.times) for one in points if one.loss == loss)
        curves.append(Curve(f"loss {loss:.0%}", line))
    most = float(max(one.packets for one in points))
    gain = PAPER_HOP[sites] / PAPER_RING[sites]
    curves.append(Curve(f"paper: {PAPER_GAIN[sites]} times", ((0.0, gain), (most, gain)), CurveKind.PAPER))
    return Chart(
        f"{len(sites)} sites", "packets that the ring sends in a rotation", "hop / ring, throughput", tuple(curves)
    )


def _detour_chart(found: SpreadFigures) -> Chart | None:
    points = sorted((100 * one.share, 100 - one.less) for one in found.detours if one.source == JHU)
    if not points:
        return None
    curves = [Curve("through UCSB", tuple(points))]
    for percent in (100 - MOST_LESS, 100 - LEAST_LESS):
        name = "paper: 20 to 50 % less" if percent == 100 - LEAST_LESS else ""
        curves.append(Curve(name, ((0.0, percent), (100.0, percent)), CurveKind.PAPER))
    return Chart(
        "Misrouting, three sites", "line UCSB - Rutgers, % of JHU - Rutgers", "throughput, % of the best", tuple(curves)
    )
