"""A planted bug as data, and the modules that have some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEADING: Final = "ordercast.orderers.sequencer.role"
CHANGES: Final = "ordercast.parts.changes"
KEEPER: Final = "ordercast.orderers.logged.keeper"
SEQUENCER: Final = "ordercast.orderers.sequencer.sequencer"
CUTS: Final = "ordercast.membership.cuts"
REFORM: Final = "ordercast.membership.recovery"
UNDERLAY: Final = "ordercast.underlay"
LOG: Final = "ordercast.parts.log"
BLOCK: Final = "ordercast.wire.block"
TOKEN: Final = "ordercast.orderers.token.token"
PLACING: Final = "ordercast.orderers.token.ordering"
DELIVERY: Final = "ordercast.orderers.logged.delivery"
TABLE_OF_ROWS: Final = "ordercast.parts.table"
CALLS: Final = "ordercast.orderers.token.calls"
MEMBER_CALLS: Final = "ordercast.groups.calls"
MEMBER_LOCKS: Final = "ordercast.groups.locks"
TIMESTAMP: Final = "ordercast.orderers.timestamp.timestamp"
RECEIVING: Final = "ordercast.orderers.timestamp.receiving"
QUEUE: Final = "ordercast.orderers.timestamp.queue"
VOTES: Final = "ordercast.orderers.timestamp.votes"
TIMESTAMP_CHANGES: Final = "ordercast.orderers.timestamp.changes"


@dataclass(frozen=True, slots=True)
class Bug:
    """`bound`: seeds of the orderer, from its first seed on, within which it must be caught; 0 for one that is known
    not to be, and `breaks` says why."""

    name: str
    module: str
    old: str
    new: str
    breaks: str
    bound: int
    orderer: str = "sequencer"
