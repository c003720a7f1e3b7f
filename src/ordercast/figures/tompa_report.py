"""The claim of the TOMPA paper beside what `tompa.py` measured: claims, tables and a picture."""

from __future__ import annotations

from typing import Final

from ordercast.figures.report import Chart, Claim, ClaimStatus, Curve, CurveKind, FigureTable, PaperReport, Picture
from ordercast.figures.tompa import HEAVY, MEDIUM, MESSAGES, SIZE, Condition, TompaFigures
from ordercast.sim.comparison import Point, Reduction, load_name

PAPER: Final = "approximately 30 to 40 %"
PAPER_LOW: Final = 30.0  # per cent
PAPER_HIGH: Final = 40.0
ROUNDING: Final = 0.5
ABOUT: Final = (
    "Latency from reception to delivery at every receiver, in its two parts (section 2.3): t1 until the decision, t2 "
    "from there to the delivery. Anticipation can only shorten t2. The orderer is `timestamp`, with anticipation "
    "(TOMPA) and without it (ABCAST). All members send {size}-byte AGREED messages at random (Poisson) on the network "
    "`lan`: 30 us for a hop. {messages} messages in each run; the same messages for both. Every trace is judged."
)
COLUMNS: Final = (
    "members",
    "load",
    "ABCAST us (t1 + t2)",
    "TOMPA us (t1 + t2)",
    "saved",
    "of t2",
    "t2's share",
    "datagrams, ABCAST / TOMPA",
)


def tompa_report(found: TompaFigures) -> PaperReport:
    """Everything in the one form."""
    return PaperReport(
        "tompa",
        "TOMPA, section 4",
        ABOUT.format(size=SIZE, messages=MESSAGES),
        tuple(_claims(found)),
        tuple(
            FigureTable(
                condition.name[0].upper() + condition.name[1:],
                COLUMNS,
                tuple(_row(*row) for row in found.rows(condition)),
                f"{condition.seeds} seed{'s' if condition.seeds > 1 else ''}.",
            )
            for condition in found.plan.conditions
        ),
        tuple(_pictures(found)),
        found.violations,
    )


def _row(tompa: Point, abcast: Point, saved: Reduction) -> tuple[str, ...]:
    return (
        str(saved.nodes),
        load_name(saved.load_per_s),
        _times(abcast),
        _times(tompa),
        f"{saved.latency:.0f} %",
        f"{saved.t2:.0f} %",
        f"{saved.t2_share:.0f} %",
        f"{abcast.datagrams_per_message:.2f} / {tompa.datagrams_per_message:.2f}",
    )


def _times(point: Point) -> str:
    return f"{point.latency.mean_us:.0f} ({point.t1.mean_us:.0f} + {point.t2.mean_us:.0f})"


# Claims. --------------------------------------------------------------------------------------------------------------


def _claims(found: TompaFigures) -> list[Claim]:
    rare = _family(found, "rare")
    claims = [
        Claim(
            "4",
            "less latency than ABCAST, rare long delays",
            PAPER,
            _span(rare),
            ClaimStatus.FITTED if _is_reached(rare) else ClaimStatus.PARTLY,
            "the condition was searched for: heavy load, all members send, and one datagram in 20 is up to 2 ms late "
            "on a network of 30 us. A message that is late at one member is undecided everywhere, and decided ones "
            f"stand behind it; anticipation moves it back. {_share(rare)}. The seeds are "
            "others than those of the search",
        )
    ]
    for name, begin in (
        ("independent exponential delays", "independent"),
        ("uniform delays", "uniform"),
        ("rare long delays, other loads", "the same"),
        ("the plain lan", "the plain"),
    ):
        saved = _family(found, begin)
        if saved:
            claims.append(_general(name, saved))
    return claims


def _general(name: str, saved: list[Reduction]) -> Claim:
    is_reached = _is_reached(saved)
    return Claim(
        "4",
        f"the same, {name}",
        PAPER,
        _span(saved),
        ClaimStatus.REPRODUCED if is_reached else ClaimStatus.DIFFERS,
        f"{_share(saved)}"
        + ("" if is_reached else ". The paper does not describe its network: its claim is not reproduced in general"),
    )


def _family(found: TompaFigures, begin: str) -> list[Reduction]:
    return [
        saved
        for condition in found.plan.conditions
        if condition.name.startswith(begin)
        for _, _, saved in found.rows(condition)
    ]


def _is_reached(saved: list[Reduction]) -> bool:
    return min(one.latency for one in saved) >= PAPER_LOW - ROUNDING


def _span(saved: list[Reduction]) -> str:
    return _percents([one.latency for one in saved])


def _share(saved: list[Reduction]) -> str:
    return f"t2, and so all that could be saved, is {_percents([one.t2_share for one in saved])} of ABCAST's latency"


def _percents(values: list[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


# The picture. ---------------------------------------------------------------------------------------------------------


def _pictures(found: TompaFigures) -> list[Picture]:
    charts = tuple(chart for load in (HEAVY, MEDIUM) if (chart := _chart(found, load)) is not None)
    caption = "TOMPA: what anticipation saves over the group size, on networks with rare long delays and with even ones"
    return [Picture("tompa", caption, charts)] if charts else []


def _chart(found: TompaFigures, load: float) -> Chart | None:
    curves = []
    most = 0
    for condition in found.plan.conditions:
        points = [(saved.nodes, saved.latency) for _, _, saved in found.rows(condition) if saved.load_per_s == load]
        if points:
            most = max(most, *(nodes for nodes, _ in points))
            curves.append(Curve(_short(condition), tuple((float(nodes), percent) for nodes, percent in points)))
    if not curves:
        return None
    for percent in (PAPER_LOW, PAPER_HIGH):
        name = f"paper: {PAPER_LOW:.0f} to {PAPER_HIGH:.0f} %" if percent == PAPER_HIGH else ""
        curves.append(Curve(name, ((0.0, percent), (float(most), percent)), CurveKind.PAPER))
    return Chart(f"{load:g} messages per second", "members", "latency saved by anticipation, %", tuple(curves))


def _short(condition: Condition) -> str:
    """For a legend."""
    if condition.reorder:
        return "rare long delays"
    if condition.spread_ms:
        return f"exponential, {condition.spread_ms:g} ms"
    return f"uniform, {condition.jitter_ms:g} ms" if condition.jitter_ms >= 0 else "plain lan"
