"""`ordercast measure`: what it does is in `ordercast.pipeline.measure`."""

from __future__ import annotations

import argparse

from ordercast.cli.extras import need
from ordercast.pipeline.measure import job
from ordercast.pipeline.measure.job import EXAMPLES, HELP, configure


def run(args: argparse.Namespace) -> int:
    """Do the job, where Spark is installed."""
    need("spark", "ordercast measure")
    return job.run(args)


__all__ = ["EXAMPLES", "HELP", "configure", "run"]
