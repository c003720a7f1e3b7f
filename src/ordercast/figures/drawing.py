"""Pictures of reports as SVG. matplotlib is an extra: it is imported here, when something is drawn.

What was measured is solid with markers, a model is dashed, and what a paper prints is black. The same numbers give the
same bytes.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any, Final

from ordercast.figures.report import Chart, Curve, CurveKind, Picture
from ordercast.sim.plots import STYLE, load_matplotlib

COLOURS: Final = ("#4477aa", "#bb5566", "#117733", "#ddaa33", "#aa4499", "#44aa99", "#777777", "#cc7744")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
PAPER_COLOUR: Final = "#000000"
PANEL_INCHES: Final = (4.8, 4.4)  # with the legend, which stands below
PANELS: Final = 3  # at most, side by side: a page shows more of them too small to read
HEADROOM: Final = 1.06
SPACE: Final = 0.06  # between panels, as a share of their width


def draw(picture: Picture, folder: Path) -> Path:
    """Write the file of one picture; where it is."""
    matplotlib = load_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    path = folder / f"{picture.name}.svg"
    with matplotlib.rc_context(STYLE):
        width, height = PANEL_INCHES
        rows, columns = panels(len(picture.charts))
        # Without pyplot there is no window, no display and nothing global.
        layout = ConstrainedLayoutEngine(wspace=SPACE, hspace=SPACE if rows > 1 else None)
        figure = Figure(figsize=(width * columns, height * rows), layout=layout)
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for axis, chart in zip(axes, picture.charts, strict=False):
            _draw_chart(axis, chart)
        for axis in axes[len(picture.charts) :]:
            axis.remove()
        figure.savefig(path, metadata={"Date": None})
    return path


def panels(charts: int) -> tuple[int, int]:
    """Rows and columns: as few rows as there can be, and as evenly filled."""
    rows = ceil(charts / PANELS)
    return rows, ceil(charts / rows)


def _draw_chart(axis: Any, chart: Chart) -> None:
    colours: dict[str, str] = {}
    for curve in chart.curves:
        if curve.kind is CurveKind.PAPER:
            _draw_paper(axis, curve)
            continue
        # The model of a measured curve has its colour: their names begin alike, up to a colon.
        subject = curve.name.partition(":")[0]
        colour = colours.setdefault(subject, COLOURS[len(colours) % len(COLOURS)])
        marker = MARKERS[list(colours).index(subject) % len(MARKERS)]
        xs, ys = zip(*curve.points, strict=True) if curve.points else ((), ())
        if curve.kind is CurveKind.MODEL:
            axis.plot(xs, ys, color=colour, linestyle="--", linewidth=1.0, label=curve.name)
        else:
            axis.plot(xs, ys, color=colour, marker=marker, markersize=4, linewidth=1.3, label=curve.name)
    axis.set_title(chart.title, fontsize=9)
    axis.set_xlabel(chart.x)
    axis.set_ylabel(chart.y)
    if chart.is_log:
        _space_logarithmically(axis, sorted({x for curve in chart.curves for x, _ in curve.points}))
    else:
        axis.set_xlim(left=0)
    # A curve that leaves the panel at the top is cut there: all others stay readable.
    least = min((y for curve in chart.curves for _, y in curve.points), default=0.0)
    axis.set_ylim(min(0.0, HEADROOM * least), chart.y_most or HEADROOM * axis.get_ylim()[1])
    axis.grid(color="#e2e2e2", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=7, frameon=False)


def _space_logarithmically(axis: Any, places: list[float]) -> None:
    """Points over several orders of magnitude, each with its number below."""
    axis.set_xscale("log")
    axis.set_xticks(places, [f"{place:g}" for place in places])
    axis.minorticks_off()


def _draw_paper(axis: Any, curve: Curve) -> None:
    xs, ys = zip(*curve.points, strict=True)
    if len(curve.points) == 1:
        axis.plot(xs, ys, color=PAPER_COLOUR, marker="*", markersize=9, linestyle="none", label=curve.name, zorder=3)
    else:
        axis.plot(xs, ys, color=PAPER_COLOUR, linestyle=":", linewidth=1.2, label=curve.name)
