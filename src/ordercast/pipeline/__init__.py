"""The data pipeline on Spark: it verifies, measures and reports over traces, and reads and writes groups as streams."""
