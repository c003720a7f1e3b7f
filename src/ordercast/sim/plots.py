"""The figure of `ordercast compare`. matplotlib is an extra: it is imported here, when something is drawn.

Bars, since loads are words and numbers: for each orderer t1 below and t2, lighter, on top of it; under them the
datagrams of a message. Over the group size where there are several, one column of panels for each load; otherwise over
the load. The same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ordercast.sim.comparison import PLAIN, Comparison, Point, load_name

FORMATS: Final = (".png", ".svg")
COLOURS: Final = {"sequencer": "#4477aa", "token": "#ddaa33", "timestamp": "#117733", f"timestamp:{PLAIN}": "#bb5566"}
OTHER_COLOUR: Final = "#777777"
GREY: Final = "#666666"
TINT: Final = 0.4  # how much of the colour is left where t2 is
GROUP_WIDTH: Final = 0.82  # of the distance between two groups of bars
PANEL_INCHES: Final = (4.6, 3.1)
DOTS_PER_INCH: Final = 120
STYLE: Final = {
    "font.size": 9,
    "axes.axisbelow": True,
    "svg.hashsalt": "ordercast",  # for its identifiers: one comparison, one file
    "svg.fonttype": "none",  # text stays text, and can be searched
}
MS_FROM_US: Final = 2_000.0  # above it axes are in milliseconds


def load_matplotlib() -> Any:
    """The module matplotlib; `ImportError` says how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("a figure needs matplotlib: pip install 'ordercast[plot]'") from error
    return matplotlib


def draw(found: Comparison, path: Path) -> None:
    """Write the figure; its name says whether it is PNG or SVG."""
    matplotlib = load_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        panels = _panels(found)
        width, height = PANEL_INCHES
        # Without pyplot there is no window, no display and nothing global.
        figure = Figure(figsize=(max(7.0, width * len(panels)), 2 * height + 1.1), layout="constrained")
        axes = figure.subplots(2, len(panels), squeeze=False)
        for column, (title, groups) in enumerate(panels):
            _draw_latency(axes[0][column], title, groups, found)
            _draw_datagrams(axes[1][column], groups)
            axes[1][column].set_xlabel("members" if len(found.plan.nodes) > 1 else "load (messages per second)")
        figure.suptitle(_title(found), fontsize=10)
        handles, labels = _legend(found)
        figure.legend(
            handles, labels, loc="outside lower center", ncols=3 if len(panels) < 3 else len(labels), frameon=False
        )
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _title(found: Comparison) -> str:
    plan = found.plan
    words = [plan.service, f"{plan.size} bytes", f"{plan.senders or 'all'} sending", plan.network]
    if plan.jitter_ms >= 0:
        words.append(f"{plan.jitter_ms:g} ms of jitter")
    words += plan.troubles()
    if plan.seeds > 1:
        words.append(f"{plan.seeds} seeds")
    return "From reception to delivery: " + ", ".join(words)


Groups = list[tuple[str, dict[str, Point]]]
"""Labels of the horizontal axis, and the point of each orderer there."""


def _panels(found: Comparison) -> list[tuple[str, Groups]]:
    plan = found.plan
    points = {(point.nodes, point.load_per_s, point.orderer): point for point in found.points}
    names = [str(variant) for variant in plan.variants]
    if len(plan.nodes) > 1:
        return [
            (
                load_name(load).replace("/s", " messages/s"),
                [(str(nodes), {name: points[nodes, load, name] for name in names}) for nodes in plan.nodes],
            )
            for load in plan.loads
        ]
    (nodes,) = plan.nodes
    groups = [
        (load_name(load).removesuffix("/s"), {name: points[nodes, load, name] for name in names}) for load in plan.loads
    ]
    return [(f"{nodes} members", groups)]


def _draw_latency(axis: Any, title: str, groups: Groups, found: Comparison) -> None:
    highest = max((point.latency.mean_us for _, points in groups for point in points.values()), default=0.0)
    unit, divisor = ("ms", 1_000.0) if highest > MS_FROM_US else ("µs", 1.0)
    tops: dict[tuple[int, str], tuple[float, float]] = {}
    for index, (_, points) in enumerate(groups):
        for at, width, name in _bars(index, list(points)):
            point, colour = points[name], _colour(name)
            t1, t2 = point.t1.mean_us / divisor, point.t2.mean_us / divisor
            axis.bar(at, t1, width, color=colour)
            axis.bar(at, t2, width, bottom=t1, color=_tinted(colour), edgecolor=colour, linewidth=0.6)
            tops[index, name] = (at, t1 + t2)
    _label(axis, groups, f"mean latency ({unit})")
    axis.set_title(title, fontsize=9)
    axis.margins(y=0.14)
    for one in found.reductions():
        for index, (_, points) in enumerate(groups):
            if (points[one.orderer].nodes, points[one.orderer].load_per_s) == (one.nodes, one.load_per_s):
                at, top = tops[index, one.orderer]
                plain_at, plain_top = tops[index, f"{one.orderer}:{PLAIN}"]
                axis.annotate(
                    f"{-one.latency:+.0f} %".replace("-", "\N{MINUS SIGN}"),
                    ((at + plain_at) / 2, max(top, plain_top)),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=7,
                    color=GREY,
                )


def _draw_datagrams(axis: Any, groups: Groups) -> None:
    for index, (_, points) in enumerate(groups):
        for at, width, name in _bars(index, list(points)):
            axis.bar(at, points[name].datagrams_per_message, width, color=_colour(name))
    _label(axis, groups, "datagrams per message")


def _label(axis: Any, groups: Groups, text: str) -> None:
    axis.set_ylabel(text)
    axis.set_xticks(range(len(groups)), [label for label, _ in groups])
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _bars(index: int, names: Sequence[str]) -> list[tuple[float, float, str]]:
    """Where the bars of one group stand: centre, width, orderer."""
    width = GROUP_WIDTH / max(len(names), 2)
    first = index - width * (len(names) - 1) / 2
    return [(first + number * width, width * 0.92, name) for number, name in enumerate(names)]


def _legend(found: Comparison) -> tuple[list[Any], list[str]]:
    from matplotlib.patches import Patch

    names = [str(variant) for variant in found.plan.variants]
    handles = [Patch(color=_colour(name)) for name in names]
    handles += [Patch(color=GREY), Patch(facecolor=_tinted(GREY), edgecolor=GREY)]
    return handles, [*names, "t1: until its sequence number is known", "t2: until it is delivered"]


def _colour(name: str) -> str:
    return COLOURS.get(name, OTHER_COLOUR)


def _tinted(colour: str) -> tuple[float, float, float]:
    red, green, blue = (1 - TINT * (1 - int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue
