"""The numbers of the QSM paper's figures beside what `qsm.py` measured: claims, tables and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ordercast.figures.qsm import (
    FIRST_RATE,
    FIVE,
    LARGE,
    PAPER_ACKS,
    PAPER_JGROUPS,
    PAPER_RATES,
    PAPER_REPAIR,
    QsmFigures,
    QsmPlan,
)
from ordercast.figures.qsm_pictures import pictures, smoothed
from ordercast.figures.qsm_words import ABOUT, WHY
from ordercast.figures.region_lab import COURIER_BYTES, HISTORY_BLOCKS, LONG, REPAIRS, RegionRun
from ordercast.figures.report import (
    Cell,
    Claim,
    ClaimStatus,
    FigureTable,
    PaperReport,
    cells,
)
from ordercast.parts.rate import MIN_RATE

NEAR: Final = 0.1  # of the paper's number: this near is the same
FLAT: Final = 0.03  # a rate that changes by no more than that is flat


def qsm_report(found: QsmFigures) -> PaperReport:
    """Everything in the one form."""
    about = ABOUT.format(
        long=LONG,
        least=MIN_RATE,
        blocks=f"{HISTORY_BLOCKS:,}",
        first=FIRST_RATE,
        growth=found.plan.growth,
        courier=COURIER_BYTES // 1_000,
    )
    tables = (
        _groups(found),
        _sizes(found),
        _overhead(found),
        _partitions(found),
        _regions(found),
        _tokens(found),
        _senders(found),
    )
    return PaperReport(
        "qsm",
        "QSM, figures 1 and 9 to 20",
        about,
        tuple(_claims(found)),
        tables,
        tuple(pictures(found)),
        found.violations,
    )


# Tables. --------------------------------------------------------------------------------------------------------------


def _table(title: str, columns: tuple[str, ...], rows: Sequence[Sequence[Cell]], notes: str = "") -> FigureTable:
    return FigureTable(title, columns, tuple(cells(row) for row in rows), notes)


def _change(now: float, before: float) -> str:
    return f"{100 * (now / before - 1):+.1f} %" if before else ""


def _groups(found: QsmFigures) -> FigureTable:
    rows: list[list[Cell]] = []
    for name, all_, paper in (("one for all groups", found.shared(), {}), ("one each", found.owned(), PAPER_JGROUPS)):
        for run, each in all_:
            said = f"{paper[run.groups]} % (JGroups)" if run.groups in paper else "" if paper else "flat"
            share = f"{100 * each.control_share:.1f} %"
            rows.append([name, run.groups, round(each.rate), _change(each.rate, all_[0][1].rate), said, share])
    columns = ("underlays", "groups", "messages/s", "change", "paper", "control at the sender")
    return _table("Figure 1: groups", columns, rows, WHY["groups"])


def _sizes(found: QsmFigures) -> FigureTable:
    rows: list[list[Cell]] = []
    for run, each in [*found.by_size(), *found.large()]:
        late_s, share = each.repaired_s or (0.0, 0.0)
        rows.append(
            [
                run.nodes,
                round(each.rate),
                PAPER_RATES.get(1 if run.nodes == 2 else run.nodes, ""),
                round(each.deviation),
                f"{min(each.rates):.0f} to {max(each.rates):.0f}",
                late_s,
                f"{100 * share:.2f} %",
                each.acknowledged_s,
            ]
        )
    columns = (
        *("nodes", "messages/s", "paper", "deviation", "least and most in a second"),
        *("recovery latency, rounds", "recovery rate", "acknowledgement, rounds"),
    )
    return _table("Figures 9 and 17 to 20: nodes", columns, rows, WHY["sizes"])


def _overhead(found: QsmFigures) -> FigureTable:
    rows: list[list[Cell]] = []
    for run, each in found.captured():
        others = ("token", "ack", "courier-ack", "nak", "pull")
        rows.append(
            [
                run.nodes,
                f"{100 * each.control_share:.2f} %",
                f"{100 * each.share(*REPAIRS):.1f} %",
                *[f"{100 * each.share(kind):.1f} %" for kind in others],
            ]
        )
    columns = (
        "nodes",
        "control",
        "of it push and pulled",
        "token",
        "ack of the region",
        "ack of the courier",
        "nak",
        "pull",
    )
    return _table("Figures 10 and 11: overhead at the sender", columns, rows, WHY["overhead"])


def _partitions(found: QsmFigures) -> FigureTable:
    rows: list[list[Cell]] = []
    lines = [*found.undivided(), *found.by_replicas()]
    for run, each in dict(lines).items():
        partitions = max(1, run.nodes // run.replicas)
        late_s = each.repaired_s[0] if each.repaired_s else 0.0
        plain = found.found.get(found.plan.scale(run.nodes))
        change = _change(each.rate, plain.rate) if plain is not None else ""
        rows.append([run.nodes, run.replicas, partitions, round(each.rate), change, late_s, each.acknowledged_s])
    columns = (
        *("nodes", "replicas (R)", "partitions", "messages/s", "against R = 5"),
        *("recovery latency, rounds", "acknowledgement, rounds"),
    )
    return _table("Figures 12 and 13: partitions", columns, rows, WHY["partitions"])


def _regions(found: QsmFigures) -> FigureTable:
    all_ = found.by_regions()
    rows: list[list[Cell]] = []
    for run, each in all_:
        share = f"{each.rate / all_[0][1].rate * run.regions:.2f}"
        rows.append([run.regions, round(each.rate), round(each.rate * run.regions), share])
    columns = ("regions", "messages/s", "packets/s", "messages, times k, of those with one region")
    return _table("Figure 14: regions of a group", columns, rows, WHY["regions"])


def _tokens(found: QsmFigures) -> FigureTable:
    rows: list[list[Cell]] = []
    for run, each in found.by_tokens():
        late_s = each.repaired_s[0] if each.repaired_s else 0.0
        rounds = late_s * run.tokens_per_s
        rows.append([f"{run.tokens_per_s:g}", round(each.rate), late_s, rounds, each.acknowledged_s])
    columns = ("tokens/s", "messages/s", "recovery, s", "in rounds", "acknowledgement, s")
    return _table("Figure 15: token rates", columns, rows, WHY["tokens"])


def _senders(found: QsmFigures) -> FigureTable:
    all_ = found.by_senders()
    rows: list[list[Cell]] = []
    for run, each in all_:
        paper = {1: "100 %", 2: "more", 10: "80 %"}.get(run.senders, "")
        rows.append([run.senders, round(each.rate), f"{100 * each.rate / all_[0][1].rate:.0f} %", paper])
    return _table("Figure 16: senders", ("senders", "messages/s in all", "of one", "paper"), rows, WHY["senders"])


# Claims. --------------------------------------------------------------------------------------------------------------


def _claims(found: QsmFigures) -> Iterator[Claim]:
    for section, what, paper, key, judge in CLAIMS:
        figures = [int(word) for word in re.findall(r"\d+", section)]
        is_there = any(found.is_whole(each, _runs_of(found.plan, key)) for each in figures)
        text, status = judge(found) if is_there else NOTHING
        why = "" if status is ClaimStatus.NOT_MEASURED else WHY.get(key, "")
        yield Claim(section, what, paper, text, status, why)


def _runs_of(plan: QsmPlan, key: str) -> list[RegionRun] | None:
    """The runs of a claim that is about a part of its figure."""
    match key:
        case "flat":
            return list(map(plan.grouped, plan.shared))
        case "own":
            return list(map(plan.owned, plan.own))
        case "scale":
            return list(map(plan.scale, plan.sizes))
    return None


Judged = tuple[str, ClaimStatus]
NOTHING: Final[Judged] = ("", ClaimStatus.NOT_MEASURED)


def _status(is_so: bool, is_partly: bool = False) -> ClaimStatus:
    return ClaimStatus.REPRODUCED if is_so else ClaimStatus.PARTLY if is_partly else ClaimStatus.DIFFERS


def _flat(found: QsmFigures) -> Judged:
    rates = [each.rate for _, each in found.shared()]
    if len(rates) < 2:
        return NOTHING
    most = max(abs(rate / rates[0] - 1) for rate in rates)
    groups = found.shared()[-1][0].groups
    return f"{rates[0]:,.0f} messages/s with 1 group, {rates[-1]:,.0f} with {groups:,}", _status(most <= FLAT)


def _baseline(found: QsmFigures) -> Judged:
    all_ = found.owned()
    if len(all_) < 2:
        return NOTHING
    changes = [f"{_change(each.rate, all_[0][1].rate)} with {run.groups}" for run, each in all_[1:]]
    last = all_[-1][1].rate / all_[0][1].rate
    return ", ".join(changes), _status(last <= 0.5, last <= 1 - FLAT)


def _scaling(found: QsmFigures) -> Judged:
    rates = {run.nodes: each.rate for run, each in found.by_size()}
    if not {2, LARGE} <= rates.keys() or 9 not in found.figures:
        return NOTHING
    is_near = all(abs(rates[max(2, nodes)] / rate - 1) <= NEAR for nodes, rate in PAPER_RATES.items())
    text = ", ".join(f"{rate:,.0f} with {nodes}" for nodes, rate in rates.items())
    return text, ClaimStatus.FITTED if is_near else _status(False, rates[LARGE] < rates[2])


def _sharing(found: QsmFigures) -> Judged:
    all_ = found.captured()
    if len(all_) < 2:
        return NOTHING
    shares = [each.control_share for _, each in all_]
    text = ", ".join(f"{100 * each.control_share:.1f} % with {run.nodes}" for run, each in all_)
    return text, _status(shares == sorted(shares, reverse=True), shares[-1] < max(shares))


def _pushing(found: QsmFigures) -> Judged:
    all_ = found.captured()
    if len(all_) < 2:
        return NOTHING
    shares = [each.share(*REPAIRS) for _, each in all_]
    text = ", ".join(f"{100 * share:.0f} % with {run.nodes}" for share, (run, _) in zip(shares, all_, strict=True))
    return text, _status(shares[0] > 0.9 and shares[-1] < shares[0], shares[0] > 0.9 or shares[-1] < shares[0])


def _five_by_five(found: QsmFigures) -> Judged:
    one = found.plan.partitioned(found.plan.middle, found.plan.middle)
    five = found.plan.partitioned(found.plan.middle, FIVE)
    if not {one, five} <= found.found.keys() or not {12, 13} & set(found.figures):
        return NOTHING
    more = found.found[five].rate / found.found[one].rate - 1
    return f"{100 * more:.0f} % higher", _status(0.1 <= more <= 0.3, more > FLAT)


def _beyond_five(found: QsmFigures) -> Judged:
    rates = {run.replicas: each.rate for run, each in found.by_replicas()}
    if len(rates) < 3 or FIVE not in rates:
        return NOTHING
    best_beyond = max(rate for replicas, rate in rates.items() if replicas > FIVE)
    text = ", ".join(f"{rate:,.0f} with R = {replicas}" for replicas, rate in rates.items())
    return text, _status(best_beyond <= rates[FIVE] * (1 + FLAT))


def _by_k(found: QsmFigures) -> Judged:
    all_ = found.by_regions()
    if len(all_) < 2:
        return NOTHING
    packets = [each.rate * run.regions for run, each in all_]
    times = [rate / packets[0] for rate in packets]
    text = f"packets/s go from {packets[0]:,.0f} to {packets[-1]:,.0f}, messages/s from {all_[0][1].rate:,.0f} to "
    return text + f"{all_[-1][1].rate:,.0f}", _status(all(time >= 1 for time in times), min(times) > 0.9)


def _token_rates(found: QsmFigures) -> Judged:
    all_ = found.by_tokens()
    if len(all_) < 3:
        return NOTHING
    late = [each.repaired_s[0] for _, each in all_ if each.repaired_s]
    rates = [each.rate for _, each in all_]
    is_falling = late == sorted(late, reverse=True)
    has_ends = max(rates) * (1 - FLAT) > max(rates[0], rates[-1])
    text = f"from {late[0]:.1f} s at {all_[0][0].tokens_per_s:g} tokens/s to {late[-1]:.2f} s at "
    text += f"{all_[-1][0].tokens_per_s:g}; {rates[0]:,.0f}, at most {max(rates):,.0f}, {rates[-1]:,.0f} messages/s"
    return text, _status(is_falling and has_ends, late[-1] < late[0])


def _more_senders(found: QsmFigures) -> Judged:
    rates = {run.senders: each.rate for run, each in found.by_senders()}
    if not {1, 2, 10} <= rates.keys():
        return NOTHING
    parts = {senders: rate / rates[1] for senders, rate in rates.items()}
    text = ", ".join(f"{100 * part:.0f} % with {senders}" for senders, part in parts.items() if senders > 1)
    return text, _status(parts[2] > 1 and abs(parts[10] - 0.8) <= NEAR, parts[2] > 1 or parts[10] < 1)


def _swings(found: QsmFigures) -> Judged:
    all_ = {run.nodes: each for run, each in found.by_size()}
    middle, largest = found.plan.middle, found.plan.largest
    if middle == largest or not {middle, largest} <= all_.keys() or not {17, 18} & set(found.figures):
        return NOTHING
    texts = []
    shares = {}
    for nodes in (middle, largest):
        smooth = smoothed(all_[nodes].rates)
        shares[nodes] = (max(smooth) - min(smooth)) / max(smooth)
        texts.append(f"{nodes} nodes: {min(smooth):,.0f} to {max(smooth):,.0f}")
    deviations = ", ".join(f"{each.deviation:,.0f} with {nodes}" for nodes, each in all_.items() if nodes > 1)
    is_so = shares[middle] < 0.25 and shares[largest] > 0.4
    return "; ".join([*texts, f"deviation {deviations}"]), _status(is_so, shares[largest] > shares[middle])


def _repair_rounds(found: QsmFigures) -> Judged:
    late = {run.nodes: each.repaired_s[0] for run, each in found.by_size() if each.repaired_s}
    if len(late) < 3 or 19 not in found.figures:
        return NOTHING
    is_near = all(abs(each / PAPER_REPAIR - 1) <= 2 * NEAR for each in late.values())
    grown = max(late.values()) / PAPER_REPAIR
    return ", ".join(f"{each:.1f} with {nodes}" for nodes, each in late.items()), _status(is_near, grown < 2)


def _ack_rounds(found: QsmFigures) -> Judged:
    took = {run.nodes: each.acknowledged_s for run, each in found.by_size()}
    if not {2, LARGE} <= took.keys() or 20 not in found.figures:
        return NOTHING
    text = ", ".join(f"{each:.1f} with {nodes}" for nodes, each in took.items())
    is_so = took[LARGE] <= PAPER_ACKS[LARGE] and took[2] < 1.5 < took[LARGE]
    return text, _status(is_so, took[LARGE] > took[2])


CLAIMS: Final[tuple[tuple[str, str, str, str, Callable[[QsmFigures], Judged]], ...]] = (
    ("figure 1", "rate over the number of groups", "independent of it", "flat", _flat),
    (
        "figure 1",
        "rate with a protocol for each group",
        "JGroups: -6 % with 2, -20 % with 32, almost -60 % with 256",
        "own",
        _baseline,
    ),
    ("figure 9", "rate over the number of nodes", "from 9,850 with 1 to 6,500 with 71 packets/s", "scale", _scaling),
    ("figure 10", "control at the sender over nodes", "decreases", "sharing", _sharing),
    ("figure 11", "forwarded packets (push)", "over 90 % at small scales, then less", "push", _pushing),
    ("figure 12, 13", "25 nodes: 5 partitions against 1", "almost 20 % higher", "five", _five_by_five),
    ("figure 13", "replicas beyond 5", "not worthwhile", "beyond", _beyond_five),
    (
        "figure 14",
        "k regions",
        "messages fall slightly less than by 1/k; packets rise to the maximum of the sender",
        "k",
        _by_k,
    ),
    (
        "figure 15",
        "token rate",
        "recovery time falls with it; throughput suffers at both ends",
        "ticks",
        _token_rates,
    ),
    ("figure 16", "senders", "two are faster than one; ten have 80 %", "more", _more_senders),
    (
        "figure 17, 18",
        "rate over time",
        "25 nodes: a few per cent; 71: 3,000 to 9,000 over minutes; the deviation grows with size",
        "swings",
        _swings,
    ),
    ("figure 19", "recovery latency", "2.5 rounds, independent of size", "late", _repair_rounds),
    ("figure 20", "acknowledgement latency", "slightly over 1 round, up to 3.5 in larger systems", "acks", _ack_rounds),
)
