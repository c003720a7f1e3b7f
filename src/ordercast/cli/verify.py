"""`ordercast verify`: the guarantees, judged on Spark. What it does is in `ordercast.pipeline.verify.job`."""

from __future__ import annotations

import argparse

from ordercast.cli.extras import need
from ordercast.pipeline.verify import job
from ordercast.pipeline.verify.job import EXAMPLES, HELP, configure


def run(args: argparse.Namespace) -> int:
    """Do the job, where Spark is installed."""
    need("spark", "ordercast verify")
    return job.run(args)


__all__ = ["EXAMPLES", "HELP", "configure", "run"]
