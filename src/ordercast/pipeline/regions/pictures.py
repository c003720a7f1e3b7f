"""The pictures of a plan as SVG: overlap as a heat map, waste against the number of regions, who moves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CELLS: Final = 40  # regions in the heat map, the largest ones
MOST_BARS: Final = 20  # regions in the picture of moves, those with most of them
HEAT: Final = (120, 22, 90)  # px: left and top margin for names, size of a cell at most, right margin
CHART: Final = (720, 300)  # px
PADS: Final = (64, 76, 24, 44)  # px: left, right, top, bottom
BARS: Final = (720, 20, 120)  # px: width, height of a bar with its gap, left margin for names
SHADES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the legend


def heat_map(regions: pa.Table, region_groups: pa.Table) -> str:
    """Overlap of the largest regions, by rate. Each stands beside the one that it is most like."""
    sizes = regions["nodes"].to_numpy()
    numbers = regions["region"].to_numpy()
    chosen = np.lexsort((numbers, -sizes))[:MOST_CELLS]
    overlap = overlaps(numbers[chosen], region_groups)
    order = chain(overlap)
    chosen, overlap = chosen[order], overlap[np.ix_(order, order)]
    left, most, right = HEAT
    count = len(chosen)
    cell = max(10, min(most * 2, 720 // max(1, count)))
    width, height = left + count * cell + right, 40 + count * cell
    found = []
    for row in range(count):
        name = f"region {numbers[chosen[row]]} ({sizes[chosen[row]]:,})"
        y = 34 + row * cell
        found.append(f'<text x="{left - 6}" y="{y + cell / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        if count <= 24 or row % 2 == 0:
            x = left + row * cell + cell / 2
            found.append(f'<text x="{x:.1f}" y="26" text-anchor="middle">{numbers[chosen[row]]}</text>')
        for column in range(count):
            share = float(overlap[row, column])
            tip = f"regions {numbers[chosen[row]]} and {numbers[chosen[column]]}: {share:.1%} of their rate in common"
            x = left + column * cell
            found.append(
                f'<rect class="heat" x="{x}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
                f'style="fill:var(--accent);fill-opacity:{_shade(share):.3f}"><title>{escape(tip)}</title></rect>'
            )
    for place, share in enumerate(SHADES):
        x, y = width - right + 24, 34 + place * 22
        style = f"fill:var(--accent);fill-opacity:{_shade(share):.3f}"
        found.append(f'<rect x="{x}" y="{y}" width="18" height="18" style="{style}"/>')
        found.append(f'<text x="{x + 24}" y="{y + 13}">{share:.0%}</text>')
    more = regions.num_rows - count
    note = f'<p class="note">{more:,} smaller regions are not shown.</p>' if more else ""
    return _svg(width, max(height, 34 + len(SHADES) * 22), found, "overlap of regions") + note


def _shade(share: float) -> float:
    return 0.05 + 0.95 * share


def chain(overlap: Any) -> list[int]:
    """An order in which each follows the one that it has most in common with, of those that are left."""
    left = list(range(len(overlap)))
    found = [left.pop(0)] if left else []
    while left:
        last = found[-1]
        nearest = max(left, key=lambda place: (float(overlap[last, place]), -place))
        left.remove(nearest)
        found.append(nearest)
    return found


def overlaps(numbers: Any, region_groups: pa.Table) -> Any:
    """For each pair of these regions: rate of the groups in both, over that of the groups in either."""
    owners, rates = region_groups["region"].to_numpy(), region_groups["rate"].to_numpy()
    groups = region_groups["group"].to_pylist()
    wanted = {int(number): place for place, number in enumerate(numbers)}
    sets: list[dict[str, float]] = [{} for _ in numbers]
    for place in np.flatnonzero(np.isin(owners, numbers)):
        sets[wanted[int(owners[place])]][groups[place]] = float(rates[place])
    found = np.zeros((len(sets), len(sets)))
    for row, one in enumerate(sets):
        for column in range(row, len(sets)):
            other = sets[column]
            both = sum(rate for group, rate in one.items() if group in other)
            either = sum(one.values()) + sum(other.values()) - both
            found[row, column] = found[column, row] = both / either if either else float(one.keys() == other.keys())
    return found


def waste_chart(document: dict[str, Any]) -> str:
    """Waste over all nodes against the number of regions, with the plan marked."""
    points = sorted({(one["regions"], one["waste"]) for one in document["points"]})
    mark = (document["result"]["regions"], document["result"]["waste"])
    xs, ys = zip(*points, mark, strict=True)
    (width, height), (left, right, top, bottom) = CHART, PADS
    across, up = ticks(max(xs), least=1), ticks(max(*ys, 0.01))

    def at(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point[0] / across[-1], point[1] / up[-1]
        return left + x * (width - left - right), height - bottom - y * (height - top - bottom)

    found = []
    for value in up:
        x, y = at((0, value))
        found.append(f'<line class="grid" x1="{x:.1f}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{100 * value:.4g}%</text>')
    for value in across:
        x, y = at((value, 0.0))
        found.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{value:,.0f}</text>')
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, points))
    found.append(f'<polyline class="curve" points="{line}" style="stroke:var(--c0)"/>')
    for point in points:
        x, y = at(point)
        tip = f"{point[0]:,} regions, {point[1]:.2%} unwanted"
        found.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:var(--c0)"><title>{tip}</title></circle>')
    x, y = at(mark)
    found.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" style="fill:none;stroke:var(--c1);stroke-width:2.5"/>')
    # The curve falls: there is room to the right of a point, and above it.
    found.append(f'<text class="strong" x="{x + 10:.1f}" y="{y - 8:.1f}">the plan</text>')
    middle = (left + width - right) / 2
    found.append(f'<text class="axis" x="{middle}" y="{height - 6}" text-anchor="middle">regions</text>')
    found.append(f'<text class="axis" x="{left}" y="14">unwanted of what all nodes receive</text>')
    return _svg(width, height, found, "waste against the number of regions")


def changes_chart(flows: Sequence[tuple[int, int, int]]) -> str:
    """Nodes that leave regions, to the left, and that come from others, to the right. flows: from, to, nodes."""
    gone, came = Counter[int](), Counter[int]()
    for one, other, nodes in flows:
        gone[one] += nodes
        came[other] += nodes
    chosen = sorted(gone | came, key=lambda region: (-(gone[region] + came[region]), region))
    shown = chosen[:MOST_BARS]
    width, bar, left = BARS
    top = 26
    widest = max([gone[region] for region in shown] + [came[region] for region in shown])
    middle = left + (width - left) / 2
    unit = (width - left - 100) / 2 / widest  # room for a number at each end
    found = [
        f'<text class="axis" x="{middle - 8:.1f}" y="14" text-anchor="end">nodes that leave</text>',
        f'<text class="axis" x="{middle + 8:.1f}" y="14">nodes that come from other regions</text>',
    ]
    for row, region in enumerate(shown):
        y = top + row * bar
        found.append(f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">region {region}</text>')
        for nodes, color, towards in ((gone[region], "--c1", -1), (came[region], "--c0", 1)):
            if nodes:
                length = nodes * unit
                x = middle - length if towards < 0 else middle
                tip = f"{nodes:,} nodes {'leave' if towards < 0 else 'come to'} region {region}"
                found.append(
                    f'<rect class="move" x="{x:.1f}" y="{y}" width="{length:.1f}" height="{bar - 4}" '
                    f'style="fill:var({color})"><title>{tip}</title></rect>'
                )
                anchor = "end" if towards < 0 else "start"
                end = middle + towards * (length + 6)
                found.append(f'<text x="{end:.1f}" y="{y + 13}" text-anchor="{anchor}">{nodes:,}</text>')
    height = top + len(shown) * bar
    found.append(f'<line class="grid" x1="{middle:.1f}" x2="{middle:.1f}" y1="{top - 4}" y2="{height}"/>')
    more = len(chosen) - len(shown)
    note = f'<p class="note">{more:,} regions with fewer moves are not shown.</p>' if more else ""
    return _svg(width, height, found, "nodes that move") + note


def ticks(high: float, least: float = 0.0, about: int = 5) -> list[float]:
    """Round numbers from 0 to beyond `high`, about so many; not closer to each other than `least`."""
    rough = max(high / about, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return [place * step for place in range(max(1, math.ceil(high / step - 1e-9)) + 1)]


def _svg(width: float, height: float, parts: Sequence[str], label: str) -> str:
    drawn = "".join(parts)
    style = f"max-width:{width:.0f}px"
    return (
        f'<figure><svg viewBox="0 0 {width:.0f} {height:.0f}" style="{style}" role="img" aria-label="{escape(label)}">'
        f"{drawn}</svg></figure>"
    )
