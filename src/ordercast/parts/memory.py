"""What a node remembers of its deliveries from ring to ring: nothing may be delivered twice in one life of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ordercast.parts.recent import Recent


class DeliveryMemory(NamedTuple):
    """What passes from the orderer of one ring to that of the next."""

    ticket: int = 0  # of the last delivery
    early: Mapping[tuple[int, int], int] = {}  # (origin, number) delivered without a sequence number
    called: Mapping[int, int] = {}  # caller -> one past the last call of its that was delivered
    recent: Mapping[int, Recent] = {}  # caller -> its UNRELIABLE calls
