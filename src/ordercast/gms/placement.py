"""Where a plan puts nodes: regions by names of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ordercast.errors import UsageError

MAX_REGION: Final = (1 << 31) - 1  # numbers of regions in a plan, as its Parquet has them

Placed = tuple[tuple[str, int], ...]
"""Names of nodes and labels of regions, from 1 on: 0 is no label."""


def labels_of(placement: Mapping[str, int]) -> Placed:
    """The labels that replicas order, the same for the same placement."""
    if not isinstance(placement, Mapping):
        raise UsageError(f"a placement maps names of nodes to numbers of regions; it is {placement!r}")
    for name, region in placement.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"a placement has names of nodes, not {name!r}")
        if isinstance(region, bool) or not isinstance(region, int) or not 0 <= region < MAX_REGION:
            raise UsageError(f"the placement of {name} is {region!r}; it has to be a region's number, 0 or more")
    return tuple(sorted((name, region + 1) for name, region in placement.items()))
