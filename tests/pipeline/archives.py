"""Small archives for tests of streams, written as a recorder writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ordercast.archive.builder import FrameBuilder
from ordercast.archive.log import ArchiveLog, LogConfig

GROUP = "prices"
BASE_NS = 1_750_000_000_123_456_789


def value_of(position: int) -> bytes:
    return b"value %d" % position


def write(
    folder: Path,
    positions: Iterable[int],
    *,
    per_frame: int = 10,
    segment_bytes: int = 1 << 20,
    group: str = GROUP,
    values: Callable[[int], bytes] = value_of,
) -> None:
    """Append messages at these positions, in frames of so many; positions between them belong to no ordered message."""
    log = ArchiveLog.open(folder, group, LogConfig(fsync="never", segment_bytes=segment_bytes))
    wanted = list(positions)
    if wanted and log.stop is None:
        log.start(wanted[0])
    builder = FrameBuilder()
    for at in range(0, len(wanted), per_frame):
        begin = log.stop
        assert begin is not None
        for position in wanted[at : at + per_frame]:
            value = values(position)
            builder.add(
                position, "1@ann/1", "ann/1", position, "AGREED", BASE_NS + position * 1_000_000, 3, [len(value)], value
            )
        log.append(builder.seal(begin))
    log.close()


def hole(folder: Path, stop: int, group: str = GROUP) -> None:
    """Positions up to `stop` that no recorder has."""
    log = ArchiveLog.open(folder, group, LogConfig(fsync="never"))
    gap = log.start(stop)
    assert gap is not None
    log.declare_hole(*gap)
    log.close()


def open_gap(folder: Path, stop: int, group: str = GROUP) -> None:
    """Positions up to `stop` on which the recorder has not caught up."""
    log = ArchiveLog.open(folder, group, LogConfig(fsync="never"))
    assert log.start(stop) is not None
    log.close()


def last_segment(folder: Path) -> Path:
    return max(folder.glob("segment-*.ocl"))


def remove_first(folder: Path) -> None:
    """What retention does: the oldest segment goes."""
    min(folder.glob("segment-*.ocl")).unlink()
