"""What comes up from an engine of regions, besides `Joined` and `Departed` (docs/design/regions.md)."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.engine import Delivery, Departed, Joined
from ordercast.orderers.regions.given import GivenEpoch


class LaneRun(NamedTuple):
    """Blocks of one or several lanes of a region, in the order of delivery. Own blocks are among them, at once, where
    this node is in the region. `position` of a delivery is -1, `number` its block in the lane."""

    region: int
    view: str
    deliveries: list[Delivery]


class LaneAcked(NamedTuple):
    """Own blocks to a region are stable at its cachers: all below `count` of those that `submit` ever took for it,
    counted over all views."""

    region: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed


class BlocksLost(NamedTuple):
    """Nobody has these blocks of a lane: they will not be delivered here. Block 0 is OPEN, without messages."""

    region: int
    view: str
    origin: int
    first: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed


class Installed(NamedTuple):
    """An epoch holds for sending from here on, in all regions; what is delivered may still be of views before it."""

    epoch: GivenEpoch


RegionUpcall = LaneRun | LaneAcked | BlocksLost | Installed | Joined | Departed
