"""The ordering disciplines, by the names that `join(orderer=…)` takes."""

from typing import Final

from ordercast.orderers.orderer import Orderer
from ordercast.orderers.sequencer import Sequencer

ORDERERS: Final[dict[str, type[Orderer]]] = {"sequencer": Sequencer}

__all__ = ["ORDERERS", "Orderer"]
