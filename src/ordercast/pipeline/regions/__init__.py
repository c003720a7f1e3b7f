"""The region planner: which nodes share a region of overlap (QSM 1.3), from what they subscribe to. On Spark."""
