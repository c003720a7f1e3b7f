"""`ordercast report`: what it does is in `ordercast.pipeline.report`."""

from __future__ import annotations

import argparse

from ordercast.cli.extras import need
from ordercast.pipeline.report import job
from ordercast.pipeline.report.job import EXAMPLES, HELP, configure


def run(args: argparse.Namespace) -> int:
    """Do the job, where Spark is installed."""
    need("spark", "ordercast report")
    return job.run(args)


__all__ = ["EXAMPLES", "HELP", "configure", "run"]
