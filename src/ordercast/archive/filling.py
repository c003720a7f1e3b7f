"""Filling a gap: frames go to a temporary file, which gets its name when it is whole and durable."""

from __future__ import annotations

from ordercast.archive.builder import Sealed
from ordercast.archive.errors import ArchiveFull
from ordercast.archive.files import write_all
from ordercast.archive.headers import segment_name
from ordercast.archive.store import SegmentFile, SegmentStore
from ordercast.errors import InvariantViolation


class Filler:
    """Writes frames into one gap, from its low end on."""

    __slots__ = ("_base", "_fd", "_segment", "_store", "at", "stop")

    def __init__(self, store: SegmentStore, begin: int, stop: int) -> None:
        self.at = begin  # the position that comes next
        self.stop = stop
        self._store = store
        self._base = store.base_at(begin)
        self._segment: SegmentFile | None = None
        self._fd = -1

    def append(self, sealed: Sealed) -> None:
        """Write one frame, which begins at `at` and stays within the gap. Raises ArchiveFull as the log does."""
        store, head = self._store, sealed.head
        if head.begin != self.at or head.stop > self.stop:
            raise InvariantViolation(f"a frame [{head.begin}, {head.stop}) does not go on at {self.at}")
        segment = self._segment
        if segment is not None and segment.size + head.nbytes > store.config.segment_bytes:
            self._publish()
            segment = None
        if segment is None:
            segment = self._begin(head.begin)
        try:
            write_all(store.files, self._fd, sealed.buffers)
        except OSError as error:
            self.abandon()
            raise ArchiveFull(error.errno, f"{store.folder} cannot be written: {error.strerror}") from error
        segment.size += head.nbytes
        segment.stop = self.at = head.stop
        segment.last_ns = max(segment.last_ns, head.last_ns)

    def finish(self) -> None:
        """Make what was appended a part of the archive."""
        if self._segment is not None:
            self._publish()

    def abandon(self) -> None:
        """Forget what was appended since the last whole segment: `at` goes back to its end."""
        segment, self._segment = self._segment, None
        if segment is not None:
            self._store.files.close(self._fd)
            self._store.files.remove(segment.path)
            self.at = segment.head.first

    def _begin(self, first: int) -> SegmentFile:
        path = self._store.folder / f"filling-{first:020}.tmp"
        if path.exists():
            self._store.files.remove(path)  # an earlier filler was given up half-way
        self._fd, self._segment = self._store.create(path, first, first, self._base)
        return self._segment

    def _publish(self) -> None:
        store, segment = self._store, self._segment
        if segment is None:
            return
        try:
            if store.is_durable:
                store.files.sync(self._fd)
            path = store.folder / segment_name(segment.head.first)
            store.files.rename(segment.path, path)
            if store.is_durable:
                store.files.sync_folder(store.folder)
        except OSError as error:
            self.abandon()
            raise ArchiveFull(error.errno, f"{store.folder} cannot be written: {error.strerror}") from error
        store.files.close(self._fd)
        self._segment = None
        segment.path = path
        store.add(segment)
