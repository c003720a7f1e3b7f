"""Amoeba's sequencer orderer (docs/design/sequencer.md)."""

from ordercast.orderers.sequencer.sequencer import Sequencer

__all__ = ["Sequencer"]
