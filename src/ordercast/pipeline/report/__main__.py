"""`python -m ordercast.pipeline.report`, and what `spark-submit` is given."""

from __future__ import annotations

import sys

from ordercast.pipeline.report.job import main

if __name__ == "__main__":
    sys.exit(main())
