"""`ordercast plan`: what it does is in `ordercast.pipeline.regions`."""

from __future__ import annotations

import argparse

from ordercast.cli.extras import need
from ordercast.pipeline.regions import job
from ordercast.pipeline.regions.job import EXAMPLES, HELP, configure


def run(args: argparse.Namespace) -> int:
    """Do the job, where Spark is installed."""
    need("spark", "ordercast plan")
    return job.run(args)


__all__ = ["EXAMPLES", "HELP", "configure", "run"]
