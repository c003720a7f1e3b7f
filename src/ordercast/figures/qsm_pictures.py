"""The pictures of `qsm_report.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ordercast.figures.qsm import PAPER_ACKS, PAPER_JGROUPS, PAPER_RATES, PAPER_REPAIR, QsmFigures
from ordercast.figures.region_lab import REPAIRS
from ordercast.figures.report import Chart, Curve, CurveKind, Picture


def pictures(found: QsmFigures) -> Iterator[Picture]:
    yield Picture("qsm-scale", "QSM: rate over groups, nodes, regions and senders", tuple(_rates(found)))
    yield Picture(
        "qsm-recovery",
        "QSM: what partitions and tokens make of the rate, and what recovery takes",
        tuple(_recovery(found)),
    )
    yield Picture("qsm-overhead", "QSM: control at the sender, and its kinds", tuple(_overhead(found)))
    yield Picture("qsm-time", "QSM: the sending rate over time, and its deviation", tuple(_over_time(found)))


def smoothed(rates: Sequence[float], over: int = 20) -> list[float]:
    """The paper's moving average in figure 17."""
    return [sum(rates[at : at + over]) / over for at in range(len(rates) - over + 1)] or list(rates)


def _curve(name: str, points: Iterable[tuple[float, float]]) -> Curve:
    return Curve(name, tuple(points))


def _paper(name: str, points: Iterable[tuple[float, float]]) -> Curve:
    return Curve(name, tuple((float(x), float(y)) for x, y in points), CurveKind.PAPER)


def _rates(found: QsmFigures) -> Iterator[Chart]:
    shared = [(run.groups, each.rate) for run, each in found.shared()]
    curves = [
        _curve("one underlay", shared),
        _curve("one each", [(run.groups, each.rate) for run, each in found.owned()]),
    ]
    if shared:
        first = shared[0][1]
        jgroups = [(groups, first * (100 + change) / 100) for groups, change in PAPER_JGROUPS.items()]
        curves.append(_paper("paper: JGroups, of the same first rate", jgroups))
    yield Chart("figure 1", "groups", "messages/s", tuple(curves), is_log=True)
    yield Chart(
        "figures 9 and 12",
        "nodes",
        "messages/s",
        (
            _curve("partitions of 5", [(run.nodes, each.rate) for run, each in found.by_size()]),
            _curve("one partition", [(run.nodes, each.rate) for run, each in found.undivided()]),
            _paper("paper", PAPER_RATES.items()),
        ),
    )
    regions = found.by_regions()
    yield Chart(
        "figure 14",
        "regions",
        "a second",
        (
            _curve("messages", [(run.regions, each.rate) for run, each in regions]),
            _curve("packets", [(run.regions, each.rate * run.regions) for run, each in regions]),
        ),
    )
    senders = [(run.senders, each.rate) for run, each in found.by_senders()]
    curves = [_curve("ours", senders)]
    if senders:
        curves.append(_paper("paper: 80 % with 10", [(10, 0.8 * senders[0][1])]))
    yield Chart("figure 16", "senders", "messages/s in all", tuple(curves))


def _recovery(found: QsmFigures) -> Iterator[Chart]:
    nodes = f"{found.plan.middle} nodes"
    tokens, sizes = found.by_tokens(), found.by_size()
    replicas = [(run.replicas, each.rate) for run, each in found.by_replicas()]
    yield Chart("figure 13", "replicas", "messages/s", (_curve(nodes, replicas),))
    rates = [(run.tokens_per_s, each.rate) for run, each in tokens]
    yield Chart("figure 15: rate", "tokens/s", "messages/s", (_curve(nodes, rates),), is_log=True)
    late = [(run.tokens_per_s, each.repaired_s[0]) for run, each in tokens if each.repaired_s]
    yield Chart("figure 15: recovery", "tokens/s", "s", (_curve(nodes, late),), is_log=True)
    last = max(PAPER_ACKS)
    yield Chart(
        "figure 19: recovery",
        "nodes",
        "rounds",
        (
            _curve("ours", [(run.nodes, each.repaired_s[0]) for run, each in sizes if each.repaired_s]),
            _paper("paper", [(1, PAPER_REPAIR), (last, PAPER_REPAIR)]),
        ),
    )
    yield Chart(
        "figure 20: acknowledgement",
        "nodes",
        "rounds",
        (
            _curve("ours", [(run.nodes, each.acknowledged_s) for run, each in sizes]),
            _paper("paper", PAPER_ACKS.items()),
        ),
    )


def _overhead(found: QsmFigures) -> Iterator[Chart]:
    captured = found.captured()
    shares = [(run.nodes, 100 * each.control_share) for run, each in captured]
    yield Chart("figure 10", "nodes", "control at the sender, %", (_curve("ours", shares),))
    kinds = (
        ("push and pulled", REPAIRS),
        ("token", ("token",)),
        ("ack", ("ack", "courier-ack")),
        ("rest", ("nak", "pull")),
    )
    yield Chart(
        "figure 11",
        "nodes",
        "of control, %",
        tuple(
            [_curve(name, [(run.nodes, 100 * each.share(*words)) for run, each in captured]) for name, words in kinds]
        ),
    )


def _over_time(found: QsmFigures) -> Iterator[Chart]:
    plan = found.plan
    curves = []
    for nodes in dict.fromkeys((plan.middle, plan.largest)):
        each = found.found.get(plan.scale(nodes))
        points = list(enumerate(smoothed(each.rates)))[::5] if each is not None else []
        curves.append(_curve(f"{nodes} nodes", [(float(at), rate) for at, rate in points]))
    yield Chart("figure 17", "s", "messages/s, mean of 20 s", tuple(curves))
    deviations = [(run.nodes, each.deviation) for run, each in found.by_size()]
    yield Chart("figure 18", "nodes", "deviation, messages/s", (_curve("ours", deviations),))
