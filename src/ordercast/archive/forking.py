"""Moving the tail of an archive away that this member alone was given (docs/design/archive.md, *Left behind*).

An interrupted fork leaves copies behind and is done again: nothing is cut off before its copy is durable.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from ordercast.archive.builder import Sealed
from ordercast.archive.errors import ArchiveDamaged
from ordercast.archive.files import write_all
from ordercast.archive.folder import frame_heads, read_frame
from ordercast.archive.store import SegmentFile, SegmentStore


def fork(store: SegmentStore, at: int, upto: int) -> list[Path]:
    """Move `[at, upto)` out of the archive; it ends where a gap or nothing begins. Returns the files it went to."""
    moved: list[Path] = []
    for segment in reversed([each for each in store.segments if at <= each.head.first < upto]):
        path = _free_name(store, segment.head.first)
        store.files.rename(segment.path, path)
        store.remove(segment)
        moved.append(path)
    cut = [segment for segment in store.segments if segment.head.first < at < segment.stop]
    moved += [_fork_tail(store, segment, at) for segment in cut]
    store.files.sync_folder(store.folder)
    return moved


def _free_name(store: SegmentStore, first: int) -> Path:
    names = (store.folder / f"fork-{first:020}-{number}.ocl" for number in count())
    return next(path for path in names if not path.exists())


def _fork_tail(store: SegmentStore, segment: SegmentFile, at: int) -> Path:
    """Copy the frames of a segment from `at` on to a file of their own, then cut them off."""
    path = _free_name(store, at)
    copy, _ = store.create(path, at, at, segment.head.base)
    keep: Sealed | None = None
    size, stop = segment.head.nbytes, segment.head.first
    fd = os.open(segment.path, os.O_RDONLY)
    try:
        for place, frame_head in frame_heads(fd, segment.head.nbytes, segment.size, segment.head.first):
            if frame_head.stop <= at:
                size, stop = place + frame_head.nbytes, frame_head.stop
                continue
            frame = read_frame(fd, store.group, place, frame_head)
            if frame is None:
                raise ArchiveDamaged(f"{segment.path} became shorter while it was read")
            if frame.begin < at:
                keep = frame.cut(frame.begin, at)
            write_all(store.files, copy, frame.part(at, frame.stop).buffers)
        store.files.sync(copy)
    finally:
        os.close(fd)
        store.files.close(copy)
    to = store.files.open(segment.path)
    try:
        store.files.truncate(to, size)
        segment.size, segment.stop = size, stop
        if keep is not None:
            write_all(store.files, to, keep.buffers)
            segment.size, segment.stop = size + keep.head.nbytes, keep.head.stop
        store.files.sync(to)
    finally:
        store.files.close(to)
    return path
