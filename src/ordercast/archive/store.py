"""The segment files of one archive that is open for writing: which there are, and how a new one is made.

The writer, the filler of gaps and the fork share one `SegmentStore`. It is used by one thread at a time; the list of
segments is replaced, never changed, because the event loop looks at it from another thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import time_ns
from typing import Final, Literal

from ordercast.archive.errors import ArchiveFull
from ordercast.archive.files import Files, write_all
from ordercast.archive.headers import SegmentHead, pack_segment_head
from ordercast.errors import UsageError

Fsync = Literal["always", "interval", "never"]
FSYNCS: Final = ("always", "interval", "never")

SEGMENT_BYTES: Final = 64 << 20
MIN_SEGMENT_BYTES: Final = 4_096
INTERVAL_MS: Final = 100


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How an archive is written. `keep_bytes` and `keep_age_ns` of 0 keep everything."""

    fsync: Fsync = "interval"
    interval_ms: int = INTERVAL_MS
    segment_bytes: int = SEGMENT_BYTES
    keep_bytes: int = 0
    keep_age_ns: int = 0
    refill: bool = False  # treat missing segment files as a gap, and ask other recorders for them

    def __post_init__(self) -> None:
        if self.fsync not in FSYNCS:
            raise UsageError(f"fsync is one of {', '.join(FSYNCS)}, not {self.fsync!r}")
        if self.interval_ms < 1:
            raise UsageError(f"the interval between two fsyncs is at least 1 ms, not {self.interval_ms}")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise UsageError(f"a segment has at least {MIN_SEGMENT_BYTES} bytes, not {self.segment_bytes}")
        if self.keep_bytes < 0 or self.keep_age_ns < 0:
            raise UsageError("keep_bytes and keep_age_ns are 0 (keep everything) or more")


@dataclass(slots=True)
class SegmentFile:
    """One file that is whole up to `size`."""

    path: Path
    head: SegmentHead
    size: int
    stop: int  # it covers [head.first, stop)
    last_ns: int  # of its newest message


class SegmentStore:
    """The files of one archive, by first position."""

    __slots__ = ("archive", "config", "files", "folder", "group", "segments")

    def __init__(self, folder: Path, group: str, config: LogConfig, files: Files, archive: bytes) -> None:
        self.folder = folder
        self.group = group
        self.config = config
        self.files = files
        self.archive = archive
        self.segments: list[SegmentFile] = []

    @property
    def is_durable(self) -> bool:
        """Whether files are made durable at all."""
        return self.config.fsync != "never"

    @property
    def base(self) -> int:
        """Where the newest epoch begins."""
        return self.segments[-1].head.base if self.segments else 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges `[first, stop)` between segments: other recorders may have them, or they are declared holes."""
        pairs = pairwise(self.segments)
        return [(one.stop, two.head.first) for one, two in pairs if one.stop < two.head.first]

    def base_at(self, position: int) -> int:
        """Where the epoch of a position begins."""
        return max((each.head.base for each in self.segments if each.head.base <= position), default=0)

    def add(self, segment: SegmentFile) -> None:
        self.segments = sorted([*self.segments, segment], key=lambda each: each.head.first)

    def remove(self, segment: SegmentFile) -> None:
        self.segments = [each for each in self.segments if each is not segment]

    def create(self, path: Path, first: int, after: int, base: int) -> tuple[int, SegmentFile]:
        """A new file with a header, durable with its name unless nothing is; after an error nothing of it is left."""
        head = SegmentHead(self.group, self.archive, first, after, time_ns(), base=base)
        packed = pack_segment_head(head)
        fd = -1
        try:
            fd = self.files.create(path)
            write_all(self.files, fd, (packed,))
            if self.is_durable:
                self.files.sync(fd)
                self.files.sync_folder(self.folder)
        except OSError as error:
            if fd >= 0:
                self.files.close(fd)
                self.files.remove(path)
            raise ArchiveFull(error.errno, f"{self.folder} cannot be written: {error.strerror}") from error
        return fd, SegmentFile(path, head._replace(nbytes=len(packed)), len(packed), first, 0)
