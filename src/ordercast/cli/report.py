"""`ordercast report`: what it does is in `ordercast.pipeline.report`."""

from __future__ import annotations

from ordercast.pipeline.report.job import EXAMPLES, HELP, configure, run

__all__ = ["EXAMPLES", "HELP", "configure", "run"]
