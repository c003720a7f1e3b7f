"""A planted bug as data, and the modules that have some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEADING: Final = "ordercast.orderers.sequencer.leading"
CHANGES: Final = "ordercast.parts.changes"
KEEPER: Final = "ordercast.parts.keeper"
SEQUENCER: Final = "ordercast.orderers.sequencer.sequencer"
CUTS: Final = "ordercast.membership.cuts"
REFORM: Final = "ordercast.membership.reform"
UNDERLAY: Final = "ordercast.underlay"
LOG: Final = "ordercast.parts.log"
BLOCK: Final = "ordercast.wire.block"
TOKEN: Final = "ordercast.orderers.token.token"
PLACING: Final = "ordercast.orderers.token.placing"
SENDING: Final = "ordercast.orderers.token.sending"
DELIVERY: Final = "ordercast.parts.delivery"
TABLE_OF_ROWS: Final = "ordercast.parts.table"
CALLS: Final = "ordercast.orderers.token.calls"
MEMBER_CALLS: Final = "ordercast.groups.calls"
MEMBER_LOCKS: Final = "ordercast.groups.locks"


@dataclass(frozen=True, slots=True)
class Bug:
    """`bound`: seeds of the orderer, from FIRST_SEED on, within which it must be caught."""

    name: str
    module: str
    old: str
    new: str
    breaks: str
    bound: int
    orderer: str = "sequencer"
