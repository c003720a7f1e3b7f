"""`python -m ordercast.pipeline.verify`, and what `spark-submit` is given."""

from __future__ import annotations

import sys

from ordercast.pipeline.verify.job import main

if __name__ == "__main__":
    sys.exit(main())
