"""From exact regions to a plan: units, merging, and the tables of the plan. On the driver, column by column.

A plan has a few numbers for each node, so it comes to the driver as Arrow columns: ten million nodes take about a
gigabyte. What is large, the subscriptions, stays on Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ordercast.errors import UsageError
from ordercast.pipeline.regions.costs import DEFAULT_MOVES, DEFAULT_RATE, PlanCosts, PlanLimits
from ordercast.pipeline.regions.merging import UNLIMITED, Merged, Units, merge, sweep
from ordercast.pipeline.regions.tiling import NOTHING, Floats, Ints, as_ints

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DRIVER_REGIONS: Final = 100_000
"""More units than these are merged on Spark first, by MinHash."""

SWEEP_REGIONS: Final = 1_000
"""For more units the report shows the rounds of the merging instead of a merging for each limit of waste."""


@dataclass(frozen=True, slots=True)
class PlanWishes:
    """What the plan is asked for."""

    costs: PlanCosts = field(default_factory=PlanCosts)
    limits: PlanLimits = field(default_factory=PlanLimits)
    moves: float = DEFAULT_MOVES  # below 1 a share of the nodes of the previous plan, else a number of nodes
    is_merged: bool = True

    def budget(self, nodes: int) -> int:
        """Nodes that may move."""
        return int(self.moves * nodes) if self.moves < 1 else int(self.moves)


class PreviousPlan(NamedTuple):
    """What is needed of the previous plan."""

    regions: dict[str, int]  # node -> region
    addresses: dict[int, int]  # region -> address
    next_region: int


class Planned(NamedTuple):
    """The tables of a plan, and how it came about."""

    tables: dict[str, pa.Table]
    merged: Merged
    points: list[tuple[float | None, int, float]]  # limit (None: after a round), regions, waste
    spark_rounds: int
    changes: PlanChanges | None
    budget: int


class PlanChanges(NamedTuple):
    """What differs from the previous plan."""

    moved: int
    came: int
    went: int
    kept_regions: int
    new_regions: int
    gone_regions: int
    flows: list[tuple[int, int, int]]  # from region, to region, nodes; the largest first


def plan(
    spark: SparkSession | None,
    nodes: pa.Table,
    groups: pa.Table,
    rates: Mapping[str, float] | None,
    wishes: PlanWishes,
    before: PreviousPlan | None = None,
    *,
    driver_regions: int = DRIVER_REGIONS,
) -> Planned:
    """`nodes`: node, exact, x1, x2, groups. `groups`: exact, group. `rates` of None: all groups alike."""
    nodes = nodes.sort_by("node")
    names = nodes["node"].to_pylist()
    exact = _column(nodes, "exact")
    was = as_ints([before.regions.get(name, NOTHING) for name in names]) if before else np.full(len(names), NOTHING)
    start = was if wishes.is_merged else np.full(len(names), NOTHING)
    unit_of, units, group_names = _units(exact, start, groups, rates, wishes.limits.size)
    rounds, budget = 0, wishes.budget(len(before.regions)) if before and wishes.is_merged else UNLIMITED
    if not wishes.is_merged:
        count = len(units.sizes)
        merged = Merged(np.arange(count, dtype=np.int64), [NOTHING] * count, 0, [(count, 0.0)], 0)
    else:
        joined, rounds = _joined_on_spark(spark, units, wishes, driver_regions)
        merged = merge(_combined(units, joined), wishes.costs, wishes.limits, budget)
        merged = merged._replace(regions=merged.regions[joined])
    numbers = _numbers(merged, before)
    region = numbers[merged.regions][unit_of]
    points = _points(units, merged, wishes)
    tables = {
        "nodes": nodes.add_column(1, "region", [_int_array(region)]),
        **_region_tables(units, merged.regions, numbers, group_names, wishes.limits, before),
        "exact_groups": groups.sort_by([("exact", "ascending"), ("group", "ascending")]),
    }
    changes = _changes(names, was, region, before) if before else None
    return Planned(tables, merged, points, rounds, changes, budget)


def before_of(nodes: pa.Table, regions: pa.Table) -> PreviousPlan:
    """The previous plan as its tables say."""
    of_nodes = dict(zip(nodes["node"].to_pylist(), nodes["region"].to_pylist(), strict=True))
    pairs = zip(regions["region"].to_pylist(), regions["address"].to_pylist(), strict=True)
    addresses = {region: address for region, address in pairs if address is not None}
    return PreviousPlan(of_nodes, addresses, max(regions["region"].to_pylist(), default=-1) + 1)


def _units(
    exact: Ints, was: Ints, groups: pa.Table, rates: Mapping[str, float] | None, most: int
) -> tuple[Ints, Units, list[str]]:
    """Which unit each node is in (nodes come by name), the units, and the names of the groups by their numbers."""
    order = np.lexsort((np.arange(len(exact)), was, exact))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (np.diff(exact[order]) != 0) | (np.diff(was[order]) != 0)
    # Nodes of one interest that are too many for a region are cut into parts of the size that it may have.
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    is_first |= (np.arange(len(order)) - starts) % most == 0
    unit_of = np.empty(len(order), dtype=np.int64)
    unit_of[order] = np.cumsum(is_first) - 1
    firsts = order[is_first]
    names, numbers = np.unique(np.asarray(groups["group"].to_pylist(), dtype=object), return_inverse=True)
    of_exact = _column(groups, "exact")
    by_exact = np.lexsort((numbers, of_exact))
    known, begins = np.unique(of_exact[by_exact], return_index=True)
    sets = dict(zip(known.tolist(), np.split(as_ints(numbers)[by_exact], begins[1:]), strict=True))
    given = [DEFAULT_RATE if rates is None else rates.get(name, DEFAULT_RATE) for name in names]
    units = Units(
        np.bincount(unit_of, minlength=len(firsts)).astype(np.int64),
        [sets[int(exact[place])] for place in firsts],
        as_ints(was[firsts]),
        np.asarray(given, dtype=np.float64),
    )
    return unit_of, units, [str(name) for name in names]


def _joined_on_spark(
    spark: SparkSession | None, units: Units, wishes: PlanWishes, driver_regions: int
) -> tuple[Ints, int]:
    """For each unit the number of the unit that it was put to on Spark, where there are too many for the driver."""
    count = len(units.sizes)
    if count <= driver_regions or spark is None:
        return np.arange(count, dtype=np.int64), 0
    if (units.was != NOTHING).any():
        raise UsageError(
            f"{count:,} units of nodes are too many to plan with a previous plan (at most {driver_regions:,}): "
            "plan without --previous"
        )
    import pyarrow as pa

    from ordercast.pipeline.regions.rounds import merge_on_spark

    lengths = [len(one) for one in units.sets]
    flat = np.concatenate(units.sets)
    held = {"region": np.repeat(np.arange(count), lengths), "group": flat, "rate": units.rates[flat]}
    least = np.array([float(units.rates[one].sum()) for one in units.sets])
    regions = spark.createDataFrame(pa.table({"region": np.arange(count), "size": units.sizes, "least": least}))
    placed, rounds = merge_on_spark(
        regions, spark.createDataFrame(pa.table(held)), wishes.costs, wishes.limits, driver_regions
    )
    found = placed.toArrow().sort_by("first")
    _, joined = np.unique(_column(found, "region"), return_inverse=True)
    return as_ints(joined), rounds


def _combined(units: Units, joined: Ints) -> Units:
    """Units that Spark has put together, as one unit each."""
    count = int(joined.max()) + 1 if len(joined) else 0
    if count == len(joined):
        return units
    members: list[list[int]] = [[] for _ in range(count)]
    for unit, place in enumerate(joined):
        members[place].append(unit)
    wants = np.array([float(units.rates[one].sum()) for one in units.sets])
    sizes = np.array([units.sizes[some].sum() for some in members], dtype=np.int64)
    return Units(
        sizes,
        [np.unique(np.concatenate([units.sets[unit] for unit in some])) for some in members],
        np.full(count, NOTHING, dtype=np.int64),
        units.rates,
        np.array([float((units.sizes[some] * wants[some]).sum()) for some in members]) / sizes,
        np.array([float(wants[some].min()) for some in members]),
    )


def _numbers(merged: Merged, before: PreviousPlan | None) -> Ints:
    """The lasting number of each region: the one that it had, or the next that none had."""
    fresh = before.next_region if before else 0
    found = []
    for keeps in merged.keeps:
        found.append(keeps if keeps != NOTHING else fresh)
        fresh += keeps == NOTHING
    return as_ints(found)


def _points(units: Units, merged: Merged, wishes: PlanWishes) -> list[tuple[float | None, int, float]]:
    if wishes.is_merged and len(units.sizes) <= SWEEP_REGIONS:
        return list(sweep(units, wishes.costs, wishes.limits))
    return [(None, regions, waste) for regions, waste in merged.steps]


def _region_tables(
    units: Units, regions: Ints, numbers: Ints, names: list[str], limits: PlanLimits, before: PreviousPlan | None
) -> dict[str, pa.Table]:
    import pyarrow as pa

    count, width = len(numbers), max(1, len(names))
    sizes = np.bincount(regions, units.sizes, count).astype(np.int64)
    lengths = np.array([len(one) for one in units.sets], dtype=np.int64)
    pairs = np.repeat(regions, lengths) * width + np.concatenate(units.sets)
    keys, places = np.unique(pairs, return_inverse=True)
    wanted = np.bincount(places, np.repeat(units.sizes, lengths)).astype(np.int64)
    of_region, of_group = keys // width, keys % width
    rates: Floats = np.bincount(of_region, units.rates[of_group], count).astype(np.float64)
    wants = np.array([float(units.rates[one].sum()) for one in units.sets])
    worst = np.zeros(count)
    share = np.divide(rates[regions] - wants, rates[regions], out=np.zeros(len(wants)), where=rates[regions] > 0)
    np.maximum.at(worst, regions, np.maximum(share, 0.0))
    received = sizes * rates
    waste = np.divide(
        received - np.bincount(regions, units.sizes * wants, count), received, out=np.zeros(count), where=received > 0
    )
    address = _addresses(numbers, sizes, limits, before)
    order = np.argsort(numbers)
    listed = {
        "region": _int_array(numbers[order]),
        "nodes": _int_array(sizes[order]),
        "groups": _int_array(np.bincount(of_region, minlength=count)[order]),
        "rate": pa.array(rates[order]),
        "waste": pa.array(np.maximum(waste, 0.0)[order]),
        "worst_waste": pa.array(worst[order]),
        "address": pa.array([address[place] for place in order], pa.int32()),
    }
    by_number = np.lexsort((of_group, numbers[of_region]))
    held = {
        "region": _int_array(numbers[of_region][by_number]),
        "group": pa.array([names[group] for group in of_group[by_number]], pa.string()),
        "wanted": _int_array(wanted[by_number]),
        "rate": pa.array(units.rates[of_group][by_number]),
    }
    return {"regions": pa.table(listed), "region_groups": pa.table(held)}


def _addresses(numbers: Ints, sizes: Ints, limits: PlanLimits, before: PreviousPlan | None) -> list[int | None]:
    """An address for each region of several nodes: the one that it had, or a free one, larger regions first."""
    found: list[int | None] = [None] * len(numbers)
    taken: set[int] = set()
    several = sorted(np.flatnonzero(sizes > 1).tolist(), key=lambda place: (-int(sizes[place]), int(numbers[place])))
    for place in several:
        had = before.addresses.get(int(numbers[place])) if before else None
        if had is not None and had < limits.addresses:
            found[place] = had
            taken.add(had)
    free = (address for address in range(limits.addresses) if address not in taken)
    for place in several:
        if found[place] is None:
            found[place] = next(free, None)
    return found


def _changes(names: list[str], was: Ints, region: Ints, before: PreviousPlan) -> PlanChanges:
    is_old = was != NOTHING
    moved = is_old & (was != region)
    flows = Counter(zip(was[moved].tolist(), region[moved].tolist(), strict=True))
    old, new = set(before.regions.values()), set(region.tolist())
    return PlanChanges(
        int(moved.sum()),
        int((~is_old).sum()),
        len(before.regions) - len(set(names) & before.regions.keys()),
        len(old & new),
        len(new - old),
        len(old - new),
        sorted(((*ends, nodes) for ends, nodes in flows.items()), key=lambda flow: (-flow[2], flow)),
    )


def _column(table: pa.Table, name: str) -> Ints:
    return as_ints(table[name].to_numpy())


def _int_array(values: Any) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.int32())
