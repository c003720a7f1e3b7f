"""Amoeba's sequencer orderer (docs/design/sequencer.md)."""

from ordercast.orderers.sequencer.sequencer import RANKS, Sequencer

__all__ = ["RANKS", "Sequencer"]
