"""The writer: appends frames, begins new segments, makes durable, removes what is too old, and recovers after a crash.

States of the folder and what each crash leaves are in docs/design/archive.md. Nothing here knows of groups: whoever
records says what to append. All of it may block on the disk; a recorder calls it in a thread.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Final, Literal
from uuid import uuid4

from ordercast.archive.errors import ArchiveDamaged, ArchiveFull, DataLoss, GapGone, OtherLog, SyncFailed
from ordercast.archive.files import Files, lock, write_all
from ordercast.archive.folder import (
    LOCK_NAME,
    check_owner,
    damage,
    find_frame,
    frame_heads,
    names_in,
    read_frame,
    read_head,
    refuse_foreign,
)
from ordercast.archive.segment import (
    EMPTY,
    HOLE,
    SEGMENT_HEAD,
    Frame,
    Sealed,
    SegmentHead,
    pack_segment_head,
    seal_mark,
    segment_name,
)
from ordercast.errors import InvariantViolation, UsageError

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
    refill: bool = False  # where segment files are missing: treat that as a gap, to be caught up from others

    def __post_init__(self) -> None:
        if self.fsync not in FSYNCS:
            raise UsageError(f"fsync is one of {', '.join(FSYNCS)}, not {self.fsync!r}")
        if self.interval_ms < 1:
            raise UsageError(f"the interval between two fsyncs is at least 1 ms, not {self.interval_ms}")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise UsageError(f"a segment has at least {MIN_SEGMENT_BYTES} bytes, not {self.segment_bytes}")
        if self.keep_bytes < 0 or self.keep_age_ns < 0:
            raise UsageError("what is kept is a size and an age of 0 (everything) or more")


@dataclass(slots=True)
class Segment:
    """One file that is whole up to `size`."""

    path: Path
    head: SegmentHead
    size: int
    stop: int  # it covers [head.first, stop)
    last_ns: int  # of its newest message


class Log:
    """One archive, open for writing. Made by `Log.open`; `words` is what the recovery has to say."""

    def __init__(self, folder: Path, group: str, config: LogConfig, files: Files, lock_fd: int) -> None:
        self.folder = folder
        self.group = group
        self.config = config
        self.words: list[str] = []
        self.archive = uuid4().bytes
        # the files
        self._files = files
        self._lock = lock_fd
        self._segments: list[Segment] = []  # by first position; the last one is written to
        self._fd = -1
        self._is_torn = False  # a failed write may have left a part behind `size`
        self._cut: set[Path] = set()  # had a torn end when the log was opened
        # durability
        self._is_dirty = False
        self._dirty_ns = 0  # since when something waits to be made durable

    @classmethod
    def open(cls, folder: Path, group: str, config: LogConfig | None = None, files: Files | None = None) -> Log:
        """Open or begin the archive of `group`; recovers what a crash has left. Raises what `errors` names."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock_fd = lock(folder / LOCK_NAME)
        except OSError as error:
            raise UsageError(f"{folder} cannot hold an archive: {error.strerror}") from error
        log = cls(folder, group, config or LogConfig(), files or Files(), lock_fd)
        try:
            log._recover()
        except BaseException:
            log.close()
            raise
        return log

    # State.

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def first(self) -> int | None:
        """The first position covered; None while there is nothing."""
        return self._segments[0].head.first if self._segments else None

    @property
    def stop(self) -> int | None:
        """The position that comes next; None while there is nothing."""
        return self._segments[-1].stop if self._segments else None

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges `[first, stop)` between segments: to be caught up from others, or to be declared holes."""
        pairs = pairwise(self._segments)
        return [(one.stop, two.head.first) for one, two in pairs if one.stop < two.head.first]

    @property
    def total_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # Writing.

    def start(self, first: int) -> tuple[int, int] | None:
        """What is appended from now on begins at position `first`; the gap that this leaves behind, if any."""
        stop = self.stop
        if stop is not None and first < stop:
            raise OtherLog(
                f"the group {self.group!r} goes on at position {first}, and {self.folder} has it up to {stop - 1}: the "
                "group was created anew, or went on without what this member had delivered; record into a new folder"
            )
        if stop == first:
            return None
        self._rotate(first)
        return (stop, first) if stop is not None else None

    def append(self, sealed: Sealed) -> None:
        """Write one frame, which begins where the archive ends. With fsync "always" it is durable afterwards.

        Raises ArchiveFull: nothing of it was kept, everything before is, and the same frame may be tried again.
        """
        head = sealed.head
        if head.begin != self.stop:
            raise InvariantViolation(f"a frame from {head.begin} on was to be appended to an archive up to {self.stop}")
        segment = self._segments[-1]
        if segment.stop > segment.head.first and segment.size + head.nbytes > self.config.segment_bytes:
            self._rotate(head.begin)
            segment = self._segments[-1]
        self._write(segment, sealed)
        if self.config.fsync == "always":
            self.sync()

    def cover(self, stop: int) -> None:
        """No message has a position below `stop` that is not here."""
        if self.stop is not None and self.stop < stop:
            self.append(seal_mark(EMPTY, self.stop, stop, time_ns()))

    @property
    def sync_due_ns(self) -> int | None:
        """When `sync` is due, on the monotonic clock; None where nothing waits. Half the interval is for doing it."""
        if not self._is_dirty or self.config.fsync != "interval":
            return None
        return self._dirty_ns + self.config.interval_ms * 500_000

    def sync(self) -> None:
        """Make durable what was appended."""
        if self._is_dirty and self._fd >= 0:
            try:
                self._files.sync(self._fd)
            except OSError as error:
                # What the kernel could not write it forgets: only reading the file again tells what is there.
                raise SyncFailed(error.errno, f"{self.folder} cannot be made durable: {error.strerror}") from error
        self._is_dirty = False

    def retain(self, now_ns: int | None = None) -> list[Segment]:
        """Remove the oldest segments that are beyond what is to be kept; which."""
        config, removed = self.config, []
        oldest_ns = (time_ns() if now_ns is None else now_ns) - config.keep_age_ns if config.keep_age_ns else None
        total = self.total_bytes
        while len(self._segments) > 1:
            segment = self._segments[0]
            is_too_much = config.keep_bytes and total > config.keep_bytes
            if not is_too_much and (oldest_ns is None or segment.last_ns >= oldest_ns):
                break
            try:
                self._files.remove(segment.path)
            except OSError as error:
                raise ArchiveFull(error.errno, f"{segment.path} cannot be removed: {error.strerror}") from error
            total -= segment.size
            removed.append(segment)
            self._segments = self._segments[1:]
        if removed and config.fsync != "never":
            self._files.sync_folder(self.folder)
        return removed

    def close(self) -> None:
        """Make durable, unless that is never done, and let go of the folder."""
        try:
            if self._fd >= 0:
                try:
                    if self.config.fsync != "never":
                        self.sync()
                finally:
                    self._files.close(self._fd)
                    self._fd = -1
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    # Gaps.

    def fill(self, begin: int) -> Filler:
        """Write frames into the gap that begins at `begin`."""
        for first, stop in self.gaps:
            if first == begin:
                return Filler(self, first, stop)
        raise GapGone(f"there is no gap at {begin} in {self.folder} any more")

    def declare_hole(self, begin: int, stop: int) -> None:
        """Nobody has `[begin, stop)`, with which a gap begins: say so in the archive, for every reader."""
        filler = self.fill(begin)
        filler.append(seal_mark(HOLE, begin, stop, time_ns()))
        filler.finish()

    # Left behind.

    def fork(self, at: int, upto: int) -> list[Path]:
        """Move what lies in `[at, upto)`, which ends where a gap or nothing begins, out of the archive; to which files.

        Interrupted, it leaves copies behind, and is done again: nothing is cut off before its copy is durable.
        """
        moved: list[Path] = []
        for segment in reversed([each for each in self._segments if at <= each.head.first < upto]):
            if segment is self._segments[-1]:
                self._let_go()
            path = self._fork_name(segment.head.first)
            self._files.rename(segment.path, path)
            self._segments = [each for each in self._segments if each is not segment]
            moved.append(path)
        cut = [segment for segment in self._segments if segment.head.first < at < segment.stop]
        moved += [self._fork_tail(segment, at) for segment in cut]
        if self._fd < 0 and self._segments:
            self._fd = self._files.open(self._segments[-1].path)
        self._files.sync_folder(self.folder)
        return moved

    def _fork_name(self, first: int) -> Path:
        names = (self.folder / f"fork-{first:020}-{number}.ocl" for number in count())
        return next(path for path in names if not path.exists())

    def _fork_tail(self, segment: Segment, at: int) -> Path:
        """Copy what a segment has from `at` on to a file of its own, and cut it off."""
        head = SegmentHead(self.group, self.archive, at, at, time_ns())
        path = self._fork_name(at)
        copy = self._create(path, pack_segment_head(head))
        keep: Sealed | None = None
        size, stop = segment.head.nbytes, segment.head.first
        fd = os.open(segment.path, os.O_RDONLY)
        try:
            for place, frame_head in frame_heads(fd, segment.head.nbytes, segment.size, segment.head.first):
                if frame_head.stop <= at:
                    size, stop = place + frame_head.nbytes, frame_head.stop
                    continue
                frame = read_frame(fd, self.group, place, frame_head)
                if frame is None:
                    raise ArchiveDamaged(f"{segment.path} became shorter while it was read")
                if frame.begin < at:
                    keep = frame.cut(frame.begin, at)
                write_all(self._files, copy, rewrite(frame, at, frame.stop).buffers)
            self._files.sync(copy)
        finally:
            os.close(fd)
            self._files.close(copy)
        is_active = segment is self._segments[-1] and self._fd >= 0
        to = self._fd if is_active else self._files.open(segment.path)
        try:
            self._files.truncate(to, size)
            segment.size, segment.stop = size, stop
            if keep is not None:
                write_all(self._files, to, keep.buffers)
                segment.size, segment.stop = size + keep.head.nbytes, keep.head.stop
            self._files.sync(to)
        finally:
            if not is_active:
                self._files.close(to)
        return path

    def _let_go(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    # In detail.

    def _write(self, segment: Segment, sealed: Sealed) -> None:
        try:
            if self._is_torn:
                self._files.truncate(self._fd, segment.size)
                self._is_torn = False
            self._is_torn = True
            write_all(self._files, self._fd, sealed.buffers)
        except OSError as error:
            self._take_back(segment)
            raise ArchiveFull(error.errno, f"{self.folder} cannot be written: {error.strerror}") from error
        self._is_torn = False
        if not self._is_dirty:
            self._is_dirty, self._dirty_ns = True, monotonic_ns()
        head = sealed.head
        segment.size += head.nbytes
        segment.stop = head.stop
        segment.last_ns = max(segment.last_ns, head.last_ns)

    def _take_back(self, segment: Segment) -> None:
        """Remove the part of a frame that got into the file, so that a reader and the next try find a clean end."""
        try:
            self._files.truncate(self._fd, segment.size)
            self._is_torn = False
        except OSError:
            pass  # the next try begins with it; a reader, or a recovery, takes it for a torn end

    def _rotate(self, first: int) -> None:
        """Begin a new segment, which covers from `first` on."""
        if self._fd >= 0:
            if self.config.fsync != "never":
                self.sync()
            self._is_dirty = False
        stop = self.stop
        head = SegmentHead(self.group, self.archive, first, -1 if stop is None else stop, time_ns())
        path = self.folder / segment_name(first)
        packed = pack_segment_head(head)
        fd = self._create(path, packed)
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = fd
        self._is_torn = False
        self._segments.append(Segment(path, head._replace(nbytes=len(packed)), len(packed), first, 0))
        self.retain()

    def _create(self, path: Path, packed: bytes) -> int:
        """A new file with a header, durable with its name unless nothing is; nothing of it stays if that fails."""
        fd = -1
        try:
            fd = self._files.create(path)
            write_all(self._files, fd, (packed,))
            if self.config.fsync != "never":
                self._files.sync(fd)
                self._files.sync_folder(self.folder)
        except OSError as error:
            if fd >= 0:
                self._files.close(fd)
                self._files.remove(path)
            raise ArchiveFull(error.errno, f"{self.folder} cannot be written: {error.strerror}") from error
        return fd

    def _recover(self) -> None:
        names = names_in(self.folder)
        refuse_foreign(self.folder, names.foreign)
        for path in names.filling:
            self.words.append(f"{path.name} was being filled when the recorder ended; it is begun anew")
            self._files.remove(path)
        archive: bytes | None = None
        for at, (first, path) in enumerate(names.segments):
            segment = self._recover_segment(first, path, archive, is_last=at == len(names.segments) - 1)
            if segment is None:
                continue
            if self._segments and segment.head.first < self._segments[-1].stop:
                raise ArchiveDamaged(
                    f"{path} begins at {first}, which {self._segments[-1].path.name} has, too: move one of them away"
                )
            archive = segment.head.archive
            self._segments.append(segment)
        self._check_gaps()
        if archive is not None:
            self.archive = archive
            self._fd = self._files.open(self._segments[-1].path)
            self._is_dirty = self.config.fsync != "never"  # nobody knows whether the end has reached the disk

    def _check_gaps(self) -> None:
        """What is missing between two segments, and was not when the second was begun, somebody has taken away."""
        for one, two in pairwise(self._segments):
            if one.stop == two.head.first or two.head.after < two.head.first:
                continue
            if one.path in self._cut:
                # The end of an older segment had not reached the disk (fsync "never"): from now on a gap like others.
                two.head = two.head._replace(after=one.stop)
                self._files.patch(two.path, pack_segment_head(two.head)[: SEGMENT_HEAD.size])
                continue
            text = f"the segment with positions {one.stop} to {two.head.first - 1} is missing from {self.folder}"
            if not self.config.refill:
                raise DataLoss(f"{text}: put it back, or have it fetched from other recorders (--refill)")
            self.words.append(f"{text}; other recorders are asked for it")

    def _recover_segment(self, first: int, path: Path, archive: bytes | None, is_last: bool) -> Segment | None:
        """A segment that is whole: a torn end is cut off. None where there was nothing in it, and it was removed."""
        fd = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            head = read_head(fd, path, first)
            if head is None:
                if (later := find_frame(fd, self.group, SEGMENT_HEAD.size, size)) is not None:
                    raise damage(path, 0, later[1])
                self.words.append(f"{path.name} was just begun when the recorder ended; there was nothing in it yet")
                self._files.remove(path)
                return None
            check_owner(head, path, self.group, archive)
            segment = Segment(path, head, head.nbytes, head.first, 0)
            for at, frame_head in frame_heads(fd, head.nbytes, size, head.first):
                # Older segments were closed in order; their bodies are checked by who reads them.
                if is_last:
                    frame = read_frame(fd, self.group, at, frame_head)
                    if frame is None or not frame.is_intact:
                        break
                segment.size = at + frame_head.nbytes
                segment.stop = frame_head.stop
                segment.last_ns = max(segment.last_ns, frame_head.last_ns)
            if segment.size < size:
                if (later := find_frame(fd, self.group, segment.size + 1, size)) is not None:
                    raise damage(path, segment.size, later[1])
                self._cut_off(segment, size)
            return segment
        finally:
            os.close(fd)

    def _cut_off(self, segment: Segment, size: int) -> None:
        self._cut.add(segment.path)
        self.words.append(
            f"{segment.path.name} had a torn end: {size - segment.size} bytes behind position {segment.stop - 1} were "
            "cut off, a frame whose writing was interrupted"
        )
        fd = self._files.open(segment.path)
        try:
            self._files.truncate(fd, segment.size)
            if self.config.fsync != "never":
                self._files.sync(fd)
        finally:
            self._files.close(fd)


class Filler:
    """Writes frames into one gap: to a file beside the segments, which gets its name when it is whole and durable."""

    def __init__(self, log: Log, begin: int, stop: int) -> None:
        self.at = begin  # the position that comes next
        self.stop = stop
        self._log = log
        self._segment: Segment | None = None
        self._fd = -1

    def append(self, sealed: Sealed) -> None:
        """Write one frame, which begins at `at` and stays within the gap. Raises ArchiveFull as `Log.append` does."""
        log, head = self._log, sealed.head
        if head.begin != self.at or head.stop > self.stop:
            raise InvariantViolation(f"a frame [{head.begin}, {head.stop}) does not go on at {self.at}")
        segment = self._segment
        if segment is not None and segment.size + head.nbytes > log.config.segment_bytes:
            self._publish()
        if self._segment is None:
            self._begin(head.begin)
        segment = self._segment
        if segment is None:
            raise InvariantViolation("a filler has a segment once it has begun one")
        try:
            write_all(log._files, self._fd, sealed.buffers)
        except OSError as error:
            self.abandon()
            raise ArchiveFull(error.errno, f"{log.folder} cannot be written: {error.strerror}") from error
        segment.size += head.nbytes
        segment.stop = self.at = head.stop
        segment.last_ns = max(segment.last_ns, head.last_ns)

    def finish(self) -> None:
        """What was appended becomes a part of the archive."""
        if self._segment is not None:
            self._publish()

    def abandon(self) -> None:
        """What was appended since the last whole segment is forgotten: `at` goes back to where that ended."""
        segment, self._segment = self._segment, None
        if segment is not None:
            self._log._files.close(self._fd)
            self._log._files.remove(segment.path)
            self.at = segment.head.first

    def _begin(self, first: int) -> None:
        log = self._log
        head = SegmentHead(log.group, log.archive, first, first, time_ns())
        packed = pack_segment_head(head)
        path = log.folder / f"filling-{first:020}.tmp"
        if path.exists():
            log._files.remove(path)  # of one that was given up half-way
        self._fd = log._create(path, packed)
        self._segment = Segment(path, head._replace(nbytes=len(packed)), len(packed), first, 0)

    def _publish(self) -> None:
        log, segment = self._log, self._segment
        if segment is None:
            return
        try:
            if log.config.fsync != "never":
                log._files.sync(self._fd)
            path = log.folder / segment_name(segment.head.first)
            log._files.rename(segment.path, path)
            if log.config.fsync != "never":
                log._files.sync_folder(log.folder)
        except OSError as error:
            self.abandon()
            raise ArchiveFull(error.errno, f"{log.folder} cannot be written: {error.strerror}") from error
        log._files.close(self._fd)
        self._segment = None
        segment.path = path
        # A new list: another thread may look at the old one just now.
        log._segments = sorted([*log._segments, segment], key=lambda each: each.head.first)


def rewrite(frame: Frame, begin: int, stop: int) -> Sealed:
    """The part of a frame that lies in `[begin, stop)`, as it is where that is all of it."""
    begin, stop = max(begin, frame.begin), min(stop, frame.stop)
    return frame.sealed() if (begin, stop) == (frame.begin, frame.stop) else frame.cut(begin, stop)
