"""The source: an archive as a table and as a stream. An offset is a position; docs/design/pipeline.md, *Source*.

Spark makes a reader in a process of the driver, asks it for offsets and parts, and reads the parts by copies of it in
tasks. Nothing is remembered that a restart would miss: any range of positions can be read again, and gives the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ordercast.archive.errors import DataLoss, WrongGroup
from ordercast.archive.reader import OPEN, REMOVED, Archive, Loss
from ordercast.errors import UsageError
from ordercast.pipeline.stream.options import EARLIEST, LATEST, Place, SourceOptions
from ordercast.pipeline.stream.slices import Slice, batches_of, cut

if TYPE_CHECKING:
    import pyarrow

SCHEMA: Final = StructType(
    [
        StructField("group", StringType()),
        StructField("position", LongType()),
        StructField("view", StringType()),
        StructField("sender", StringType()),
        StructField("number", LongType()),
        StructField("service", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("type", ShortType()),
        StructField("value", BinaryType()),
    ]
)

NOWHERE: Final = -1
"""The offset of an archive that has nothing yet: whatever comes first comes behind it."""

Offset = dict[str, Any]


class ArchivePartition(InputPartition):
    """What one task reads."""

    def __init__(self, slices: Sequence[Slice], is_strict: bool) -> None:
        super().__init__(None)
        self.slices = list(slices)
        self.is_strict = is_strict


class _Positions:
    """The archive as both readers see it."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.archive = Archive(options.folder, group=options.group)
        self._said: set[Loss] = set()

    def bounds(self) -> tuple[int, int] | None:
        return self.archive.bounds()

    def resolve(self, word: str, place: Place, time_ns: int | None) -> int:
        """Where reading begins or ends; NOWHERE while there is nothing."""
        bounds = self.bounds()
        if bounds is None:
            if isinstance(place, int):
                raise UsageError(f"{word}={place}: {self.options.folder} has no position yet")
            return NOWHERE
        first, stop = bounds
        if time_ns is not None:
            return min(max(self.archive.position_at(time_ns), first), stop)
        if place == EARLIEST:
            return first
        if place == LATEST:
            return stop
        at = int(place)
        if at > stop:
            raise UsageError(f"{word}={at} lies beyond what {self.options.folder} has: it ends before {stop}")
        return at

    def losses(self, first: int, stop: int) -> list[Loss]:
        """What is not there of `[first, stop)`, as of the last look at the archive."""
        losses = self.archive.losses
        segments = self.archive.segments
        if segments and NOWHERE < first < segments[0].first:
            losses.insert(0, Loss(first, segments[0].first, REMOVED))
        return [
            loss._replace(begin=max(loss.begin, first), stop=min(loss.stop, stop))
            for loss in losses
            if loss.begin < stop and loss.stop > first
        ]

    def check(self, first: int, stop: int) -> None:
        """Raise DataLoss where something of `[first, stop)` is not there, or say so once and go on."""
        for loss in self.losses(first, stop):
            text = f"{self.options.folder}: {loss}"
            if self.options.fail_on_loss:
                raise DataLoss(f'{text}. To pass over what is lost: .option("failOnDataLoss", "false")')
            if loss not in self._said:
                self._said.add(loss)
                say(f"{text}; passed over, since failOnDataLoss is false")

    def parts(self, first: int, stop: int) -> list[ArchivePartition]:
        planned = cut(self.archive, first, stop, self.options.min_partitions)
        return [ArchivePartition(slices, self.options.fail_on_loss) for slices in planned]


def say(text: str) -> None:
    """To the log of the process, which Spark passes on to the standard error of its driver."""
    print(f"ordercast: {text}", file=sys.stderr, flush=True)


def read(partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one part."""
    if not isinstance(partition, ArchivePartition):
        return  # Spark's stand-in for "no parts"
    for part in partition.slices:
        try:
            yield from batches_of(part)
        except DataLoss as error:
            if partition.is_strict:
                raise
            say(f"{error}; passed over, since failOnDataLoss is false")


class TableReader(DataSourceReader):
    """`spark.read`: what there is between two offsets when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        positions = _Positions(options)
        start = positions.resolve("startingOffsets", options.start, options.start_ns)
        stop = positions.resolve("endingOffsets", options.end, options.end_ns)
        if not options.fail_on_loss and options.end == LATEST and options.end_ns is None and positions.archive.segments:
            stop = positions.archive.segments[-1].stop  # behind what the recorder has not caught up on
        waiting = [loss for loss in positions.archive.losses if loss.reason == OPEN]
        if waiting and stop == waiting[0].begin:
            say(f"{options.folder} is read up to position {stop - 1}: {waiting[0]}")
        if start > stop:
            raise UsageError(f"the range is empty: it begins at {start} and ends before {stop}")
        positions.check(start, stop)
        return positions.parts(start, stop)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`: behind a recorder that goes on, or over an archive that is finished."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._positions: _Positions | None = None
        self._initial: Offset | None = None
        self._target: int | None = None  # of Trigger.AvailableNow
        self._has_said_behind = False

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions]]:
        return StreamReader, (self._options,)  # what the driver remembers is of no use to tasks

    @property
    def positions(self) -> _Positions:
        if self._positions is None:
            self._positions = _Positions(self._options)
        return self._positions

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        if self._initial is None:
            options = self._options
            start = self.positions.resolve("startingOffsets", options.start, options.start_ns)
            self._initial = self._offset(start)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._stop()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        begin, stop = self._position(start), self._stop()
        if begin == NOWHERE < stop:
            begin = self.positions.archive.segments[0].first
        if self._target is not None:
            stop = min(stop, self._target)
        if stop <= begin:
            if NOWHERE < stop < begin and not self._has_said_behind:
                self._has_said_behind = True
                say(
                    f"{self._options.folder} ends before position {stop}, and the query has read up to {begin - 1}: it "
                    "waits for the recorder to catch up; is this the archive that it has read before?"
                )
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        stop = self._limited(begin, stop, most)
        self.positions.check(begin, stop)
        return {**self._offset(stop), "from": begin}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        stop = self._stop()
        return None if stop == NOWHERE else self._offset(stop)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # Spark keeps no first offset: it asks for it again at a restart, when "latest" is another place. So a batch
        # carries its own beginning.
        begin, stop = end.get("from", self._position(start)), self._position(end)
        if end == start or stop <= begin:
            return []
        bounds = self.positions.bounds()
        if bounds is None or stop > bounds[1]:
            # A restart asks again for what was read: it has to be there, or the batch would silently be another one.
            has = "nothing" if bounds is None else f"positions up to {bounds[1] - 1}"
            text = f"{self._options.folder} has {has}, and the query has to read up to {stop - 1} again"
            if self._options.fail_on_loss:
                raise DataLoss(f"{text}: let the recorder catch up, then start the query again")
            say(f"{text}; passed over, since failOnDataLoss is false")
        self.positions.check(begin, stop)
        return self.positions.parts(begin, stop)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition)

    # In detail.

    def _stop(self) -> int:
        bounds = self.positions.bounds()
        return NOWHERE if bounds is None else bounds[1]

    def _offset(self, position: int) -> Offset:
        return {"group": self.positions.archive.group if position != NOWHERE else "", "position": position}

    def _position(self, offset: Offset) -> int:
        group, position = offset.get("group", ""), offset.get("position")
        if not isinstance(position, int):
            raise UsageError(f"{offset} is no offset of an archive: the checkpoint is of another source")
        if group and self.positions.bounds() is not None and group != self.positions.archive.group:
            raise WrongGroup(
                f"{self._options.folder} is of the group {self.positions.archive.group!r}, and the checkpoint of the "
                f"query of {group!r}: choose the archive of that group, or a new checkpointLocation"
            )
        return position

    def _limited(self, begin: int, stop: int, most: int | None) -> int:
        """At most so many positions from `begin` on. Lost ones do not count, or a hole would make empty batches."""
        if most is None:
            return stop
        at = begin
        for loss in self.positions.losses(at, stop):
            if at + most <= loss.begin:
                break
            most -= loss.begin - at
            at = loss.stop
        return min(at + most, stop)
