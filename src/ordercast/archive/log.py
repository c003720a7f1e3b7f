"""The writer: appends frames, begins new segments and epochs, makes durable, and removes old segments.

docs/design/archive.md has the states of the folder and what each crash leaves. Nothing here knows groups: the recorder
says what to append. Everything here may wait for the disk; a recorder calls it in a thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic_ns, time_ns
from uuid import uuid4

from ordercast.archive import forking
from ordercast.archive.builder import Sealed, seal_mark
from ordercast.archive.errors import ArchiveFull, GapGone, OtherLog, SyncFailed
from ordercast.archive.files import Files, lock, write_all
from ordercast.archive.filling import Filler
from ordercast.archive.folder import LOCK_NAME
from ordercast.archive.headers import EMPTY, HOLE, segment_name
from ordercast.archive.recovery import recover
from ordercast.archive.store import (
    FSYNCS,
    INTERVAL_MS,
    MIN_SEGMENT_BYTES,
    Fsync,
    LogConfig,
    SegmentFile,
    SegmentStore,
)
from ordercast.errors import InvariantViolation, UsageError

__all__ = ["FSYNCS", "INTERVAL_MS", "MIN_SEGMENT_BYTES", "ArchiveLog", "Fsync", "LogConfig"]


class ArchiveLog:
    """One archive, open for writing. Made by `ArchiveLog.open`; `words` says what the recovery did."""

    __slots__ = ("_dirty_ns", "_fd", "_is_dirty", "_is_torn", "_lock", "_store", "words")

    def __init__(self, store: SegmentStore, lock_fd: int) -> None:
        self.words: list[str] = []
        self._store = store
        self._lock = lock_fd
        self._fd = -1  # of the last segment, which is written to
        self._is_torn = False  # a failed write may have left a part behind the segment's `size`
        # durability
        self._is_dirty = False
        self._dirty_ns = 0  # since when something waits to be made durable

    @classmethod
    def open(cls, folder: Path, group: str, config: LogConfig | None = None, files: Files | None = None) -> ArchiveLog:
        """Open or begin the archive of `group`; recovers what a crash has left. Raises what `errors` names."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock_fd = lock(folder / LOCK_NAME)
        except OSError as error:
            raise UsageError(f"{folder} cannot hold an archive: {error.strerror}") from error
        store = SegmentStore(folder, group, config or LogConfig(), files or Files(), uuid4().bytes)
        log = cls(store, lock_fd)
        try:
            log.words = recover(store)
            if store.segments:
                log._reopen()
                log._is_dirty = store.is_durable  # it is not known whether the end has reached the disk
        except BaseException:
            log.close()
            raise
        return log

    # State.

    @property
    def folder(self) -> Path:
        return self._store.folder

    @property
    def group(self) -> str:
        return self._store.group

    @property
    def config(self) -> LogConfig:
        return self._store.config

    @property
    def archive(self) -> bytes:
        """16 bytes that no other archive has."""
        return self._store.archive

    @property
    def segments(self) -> tuple[SegmentFile, ...]:
        return tuple(self._store.segments)

    @property
    def first(self) -> int | None:
        """The first position covered; None while the archive is empty."""
        segments = self._store.segments
        return segments[0].head.first if segments else None

    @property
    def stop(self) -> int | None:
        """The position that comes next; None while the archive is empty."""
        segments = self._store.segments
        return segments[-1].stop if segments else None

    @property
    def base(self) -> int:
        """Where the newest epoch begins: positions of the archive are this much greater than the group's."""
        return self._store.base

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges `[first, stop)` between segments: other recorders may have them, or they are declared holes."""
        return self._store.gaps

    @property
    def total_bytes(self) -> int:
        return sum(segment.size for segment in self._store.segments)

    # Writing.

    def start(self, first: int) -> tuple[int, int] | None:
        """Positions from `first` on are appended from now on; returns the gap that this leaves behind, if any."""
        stop = self.stop
        if stop is not None and first < stop:
            raise OtherLog(
                f"{self.folder} ends before position {stop}, and recording was to go on at position {first}: the group "
                f"{self.group!r} was created anew, or went on without what this member had delivered; begin a new "
                "epoch (--new-epoch)"
            )
        if stop == first:
            return None
        self._rotate(first, self.base)
        return (stop, first) if stop is not None else None

    def begin_epoch(self, first: int) -> tuple[int, int] | None:
        """The group counts from 0 again: its position 0 is where the archive ends. It goes on at its position `first`.

        What is missing in earlier epochs is declared a hole, because other recorders can no longer be asked for it.
        Returns the gap before `first`, if any.
        """
        base = self.stop
        if base is None:
            raise InvariantViolation("an archive that is empty has no epoch that could end")
        for begin, stop in self.gaps:
            self.declare_hole(begin, stop)
        last = self._store.segments[-1]
        if not first and last.stop == last.head.first:
            # Nothing was recorded in it, and the new segment has the same name.
            self._let_go()
            self._store.files.remove(last.path)
            self._store.remove(last)
        self._rotate(base + first, base)
        return (base, base + first) if first else None

    def append(self, sealed: Sealed) -> None:
        """Write one frame, which begins where the archive ends. With fsync "always" it is durable afterwards.

        Raises ArchiveFull: nothing of it was kept, everything before is, and the same frame may be tried again.
        """
        head = sealed.head
        if head.begin != self.stop:
            raise InvariantViolation(f"a frame from {head.begin} on was to be appended to an archive up to {self.stop}")
        segment = self._store.segments[-1]
        if segment.stop > segment.head.first and segment.size + head.nbytes > self.config.segment_bytes:
            self._rotate(head.begin, self.base)
            segment = self._store.segments[-1]
        self._write(segment, sealed)
        if self.config.fsync == "always":
            self.sync()

    def cover(self, stop: int) -> None:
        """No message has a position below `stop` that is not here."""
        if self.stop is not None and self.stop < stop:
            self.append(seal_mark(EMPTY, self.stop, stop, time_ns()))

    @property
    def sync_due_ns(self) -> int | None:
        """When `sync` is due, on the monotonic clock; None if nothing waits. Half the interval is for doing it."""
        if not self._is_dirty or self.config.fsync != "interval":
            return None
        return self._dirty_ns + self.config.interval_ms * 500_000

    def sync(self) -> None:
        """Make durable what was appended."""
        if self._is_dirty and self._fd >= 0:
            try:
                self._store.files.sync(self._fd)
            except OSError as error:
                # The kernel forgets what it could not write: only reading the file again tells what is there.
                raise SyncFailed(error.errno, f"{self.folder} cannot be made durable: {error.strerror}") from error
        self._is_dirty = False

    def retain(self, now_ns: int | None = None) -> list[SegmentFile]:
        """Remove the oldest segments beyond the limits of size and age; returns them."""
        store, config, removed = self._store, self.config, []
        oldest_ns = (time_ns() if now_ns is None else now_ns) - config.keep_age_ns if config.keep_age_ns else None
        total = self.total_bytes
        while len(store.segments) > 1:
            segment = store.segments[0]
            is_too_much = config.keep_bytes and total > config.keep_bytes
            if not is_too_much and (oldest_ns is None or segment.last_ns >= oldest_ns):
                break
            try:
                store.files.remove(segment.path)
            except OSError as error:
                raise ArchiveFull(error.errno, f"{segment.path} cannot be removed: {error.strerror}") from error
            total -= segment.size
            removed.append(segment)
            store.remove(segment)
        if removed and store.is_durable:
            store.files.sync_folder(self.folder)
        return removed

    def close(self) -> None:
        """Make durable, unless fsync is "never", and release the folder."""
        try:
            if self._fd >= 0:
                try:
                    if self._store.is_durable:
                        self.sync()
                finally:
                    self._let_go()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    # Gaps and forks.

    def fill(self, begin: int) -> Filler:
        """Write frames into the gap that begins at `begin`."""
        for first, stop in self.gaps:
            if first == begin:
                return Filler(self._store, first, stop)
        raise GapGone(f"there is no gap at {begin} in {self.folder} any more")

    def declare_hole(self, begin: int, stop: int) -> None:
        """No recorder has `[begin, stop)`, the beginning of a gap: record that in the archive, for every reader."""
        filler = self.fill(begin)
        filler.append(seal_mark(HOLE, begin, stop, time_ns()))
        filler.finish()

    def fork(self, at: int, upto: int) -> list[Path]:
        """Move `[at, upto)` out of the archive; it ends where a gap or nothing begins. Returns the files it went to."""
        self._let_go()
        try:
            return forking.fork(self._store, at, upto)
        finally:
            if self._store.segments:
                self._reopen()

    # In detail.

    def _let_go(self) -> None:
        if self._fd >= 0:
            self._store.files.close(self._fd)
            self._fd = -1

    def _reopen(self) -> None:
        self._fd = self._store.files.open(self._store.segments[-1].path)

    def _write(self, segment: SegmentFile, sealed: Sealed) -> None:
        files = self._store.files
        try:
            if self._is_torn:
                files.truncate(self._fd, segment.size)
                self._is_torn = False
            self._is_torn = True
            write_all(files, self._fd, sealed.buffers)
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

    def _take_back(self, segment: SegmentFile) -> None:
        """Remove the part of a frame that was written, so that a reader and the next try find a clean end."""
        try:
            self._store.files.truncate(self._fd, segment.size)
            self._is_torn = False
        except OSError:
            pass  # the next try begins with it; a reader, or a recovery, takes it for a torn end

    def _rotate(self, first: int, base: int) -> None:
        """Begin a new segment, which covers from `first` on."""
        if self._fd >= 0:
            if self._store.is_durable:
                self.sync()
            self._is_dirty = False
        stop = self.stop
        fd, segment = self._store.create(self.folder / segment_name(first), first, -1 if stop is None else stop, base)
        self._let_go()
        self._fd = fd
        self._is_torn = False
        self._store.add(segment)
        self.retain()
