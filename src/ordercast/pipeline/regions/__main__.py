"""`python -m ordercast.pipeline.regions`, and what `spark-submit` is given."""

from __future__ import annotations

import sys

from ordercast.pipeline.regions.job import main

if __name__ == "__main__":
    sys.exit(main())
