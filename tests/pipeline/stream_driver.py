"""A Spark driver of its own for tests that kill it: an archive read into Parquet files, until it is killed."""

from __future__ import annotations

import sys


def main(archive: str, output: str, checkpoint: str) -> None:
    from ordercast.pipeline.session import session

    with session("killed", "local[2]", rows=1_000, heap="512m") as spark:
        query = copy(spark, archive, output, checkpoint)
        query.awaitTermination()


def copy(spark, archive, output, checkpoint, **trigger):  # type: ignore[no-untyped-def]
    """The query under test: a few positions in each batch, so that a kill finds it in the middle of one."""
    frame = (
        spark.readStream.format("ordercast")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .option("minPartitions", "2")
        .load(archive)
    )
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start(output) if trigger else writer.start(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
