"""What is done when an archive is opened for writing: the folder is read, and what a crash left behind is mended.

docs/design/archive.md, *Writing*, has each case. A recovery that is interrupted is done again from the start.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from ordercast.archive.errors import ArchiveDamaged, DataLoss
from ordercast.archive.folder import (
    check_owner,
    damage,
    find_frame,
    frame_heads,
    list_folder,
    read_frame,
    read_head,
    refuse_foreign,
)
from ordercast.archive.headers import SEGMENT_HEAD, pack_segment_head
from ordercast.archive.store import SegmentFile, SegmentStore


def recover(store: SegmentStore) -> list[str]:
    """Fill the store from its folder; returns what was mended, in words. Raises what `errors` names."""
    recovery = _Recovery(store)
    recovery.run()
    return recovery.words


class _Recovery:
    __slots__ = ("_cut", "_store", "words")

    def __init__(self, store: SegmentStore) -> None:
        self.words: list[str] = []
        self._store = store
        self._cut: set[Path] = set()  # files that had a torn end

    def run(self) -> None:
        store = self._store
        listing = list_folder(store.folder)
        refuse_foreign(store.folder, listing.foreign)
        for path in listing.filling:
            self.words.append(f"{path.name} was being filled when the recorder ended; it is begun anew")
            store.files.remove(path)
        archive: bytes | None = None
        segments: list[SegmentFile] = []
        for at, (first, path) in enumerate(listing.segments):
            segment = self._open(first, path, archive, is_last=at == len(listing.segments) - 1)
            if segment is None:
                continue
            if segments and segment.head.first < segments[-1].stop:
                raise ArchiveDamaged(
                    f"{path} begins at position {first}, which {segments[-1].path.name} has too: move one of them away"
                )
            archive = segment.head.archive
            segments.append(segment)
        store.segments = segments
        self._check_gaps()
        if archive is not None:
            store.archive = archive

    def _check_gaps(self) -> None:
        """Positions between two segments that were there when the second was begun: a file is missing."""
        store = self._store
        for one, two in pairwise(store.segments):
            if one.stop == two.head.first or two.head.after < two.head.first:
                continue
            if one.path in self._cut:
                # The end of an older segment had not reached the disk (fsync "never"): from now on an ordinary gap.
                two.head = two.head._replace(after=one.stop)
                store.files.patch(two.path, pack_segment_head(two.head)[: SEGMENT_HEAD.size])
                continue
            text = f"the segment with positions {one.stop} to {two.head.first - 1} is missing from {store.folder}"
            if not store.config.refill:
                raise DataLoss(f"{text}: put it back, or have it fetched from other recorders (--refill)")
            self.words.append(f"{text}; other recorders are asked for it")

    def _open(self, first: int, path: Path, archive: bytes | None, is_last: bool) -> SegmentFile | None:
        """A segment that is whole, its torn end cut off. None if it was empty: then the file was removed."""
        store = self._store
        fd = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            head = read_head(fd, path, first)
            if head is None:
                if (later := find_frame(fd, store.group, SEGMENT_HEAD.size, size)) is not None:
                    raise damage(path, 0, later[1])
                self.words.append(f"{path.name} was just begun when the recorder ended; there was nothing in it yet")
                store.files.remove(path)
                return None
            check_owner(head, path, store.group, archive)
            segment = SegmentFile(path, head, head.nbytes, head.first, 0)
            for at, frame_head in frame_heads(fd, head.nbytes, size, head.first):
                # Older segments were closed in order; readers check their bodies.
                if is_last:
                    frame = read_frame(fd, store.group, at, frame_head)
                    if frame is None or not frame.is_intact:
                        break
                segment.size = at + frame_head.nbytes
                segment.stop = frame_head.stop
                segment.last_ns = max(segment.last_ns, frame_head.last_ns)
            if segment.size < size:
                if (later := find_frame(fd, store.group, segment.size + 1, size)) is not None:
                    raise damage(path, segment.size, later[1])
                self._cut_off(segment, size)
            return segment
        finally:
            os.close(fd)

    def _cut_off(self, segment: SegmentFile, size: int) -> None:
        files = self._store.files
        self._cut.add(segment.path)
        self.words.append(
            f"{segment.path.name} had a torn end: {size - segment.size} bytes behind position {segment.stop - 1} were "
            "cut off, a frame whose writing was interrupted"
        )
        fd = files.open(segment.path)
        try:
            files.truncate(fd, segment.size)
            if self._store.is_durable:
                files.sync(fd)
        finally:
            files.close(fd)
