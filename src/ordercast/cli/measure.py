"""`ordercast measure`: what it does is in `ordercast.pipeline.measure`."""

from __future__ import annotations

from ordercast.pipeline.measure.job import EXAMPLES, HELP, configure, run

__all__ = ["EXAMPLES", "HELP", "configure", "run"]
