"""`ordercast verify`: the guarantees, judged on Spark. What it does is in `ordercast.pipeline.verify.job`."""

from __future__ import annotations

from ordercast.pipeline.verify.job import EXAMPLES, HELP, configure, run

__all__ = ["EXAMPLES", "HELP", "configure", "run"]
