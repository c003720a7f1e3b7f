"""The routes of a configuration of sites: one tree for each source site, as text and as a picture.

The trees are those of the orderer (`orderers/sites/routes.py`) while all sites are there. The picture needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, pi, sin, sqrt
from pathlib import Path
from typing import Any, Final

from ordercast.orderers.sites.routes import SiteRoutes
from ordercast.sim.plots import STYLE, load_matplotlib
from ordercast.sites import SitesConfig

PANEL_INCHES: Final = 2.9
DOTS_PER_INCH: Final = 120
COLOUR: Final = "#4477aa"
SOURCE_COLOUR: Final = "#bb5566"
MARGIN: Final = 1.45  # around the circle on which the sites stand
SHRINK: Final = 15  # points that an arrow keeps away from the middle of a site


@dataclass(frozen=True, slots=True)
class RouteStep:
    """One link of a tree."""

    parent: str
    site: str
    weight: int
    distance: int  # from the source
    depth: int  # links from the source


@dataclass(frozen=True, slots=True)
class RouteTree:
    """How the packets of one site reach all others; parents come before their children."""

    source: str
    steps: tuple[RouteStep, ...]


def route_trees(config: SitesConfig) -> list[RouteTree]:
    """The trees of all sites, in the order of the configuration."""
    routes = SiteRoutes(config.weights())
    routes.change_sites((1 << len(config.sites)) - 1)
    return [RouteTree(site.name, tuple(_steps(config, routes, site.index, site.index, 0, 1))) for site in config.sites]


def _steps(
    config: SitesConfig, routes: SiteRoutes, source: int, here: int, distance: int, depth: int
) -> list[RouteStep]:
    found: list[RouteStep] = []
    for child in routes.children(source, here):
        parent, site = config.sites[here].name, config.sites[child].name
        weight = config.weight(parent, site)
        found.append(RouteStep(parent, site, weight, distance + weight, depth))
        found += _steps(config, routes, source, child, distance + weight, depth + 1)
    return found


def tree_lines(trees: Sequence[RouteTree]) -> list[str]:
    """For people: each site below the one that it gets packets from, with its distance."""
    lines: list[str] = []
    for tree in trees:
        lines.append(f"from {tree.source}" + ("" if tree.steps else ": no other site"))
        lines += [f"{'  ' * step.depth}{step.site}  {step.distance}" for step in tree.steps]
    return lines


def draw_trees(trees: Sequence[RouteTree], path: Path) -> None:
    """Write a picture with a panel for each source; its name says whether it is SVG or PNG."""
    matplotlib = load_matplotlib()
    from matplotlib.figure import Figure

    names = [tree.source for tree in trees]
    places = {name: _place(at, len(names)) for at, name in enumerate(names)}
    columns = ceil(sqrt(len(trees)))
    rows = ceil(len(trees) / columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(PANEL_INCHES * columns, PANEL_INCHES * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for at in range(rows * columns):
            axis = axes[at // columns][at % columns]
            axis.set_axis_off()
            if at < len(trees):
                _draw_tree(axis, trees[at], places)
        # The date would make two pictures of one file differ.
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _place(at: int, count: int) -> tuple[float, float]:
    """On a circle, the first at the top."""
    angle = pi / 2 - 2 * pi * at / count
    return cos(angle), sin(angle)


def _draw_tree(axis: Any, tree: RouteTree, places: dict[str, tuple[float, float]]) -> None:
    axis.set_title(f"from {tree.source}", fontsize=9)
    axis.set_xlim(-MARGIN, MARGIN)
    axis.set_ylim(-MARGIN, MARGIN)
    axis.set_aspect("equal")
    for step in tree.steps:
        (x, y), (to_x, to_y) = places[step.parent], places[step.site]
        arrow = {"arrowstyle": "-|>", "color": COLOUR, "shrinkA": SHRINK, "shrinkB": SHRINK}
        axis.annotate("", xy=(to_x, to_y), xytext=(x, y), arrowprops=arrow)
        middle = (x + to_x) / 2, (y + to_y) / 2
        label = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        axis.text(*middle, str(step.weight), fontsize=7, ha="center", va="center", bbox=label)
    for name, (x, y) in places.items():
        colour = SOURCE_COLOUR if name == tree.source else COLOUR
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": colour}
        axis.text(x, y, name, fontsize=8, ha="center", va="center", bbox=box)
