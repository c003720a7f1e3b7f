"""What lies in the folder of an archive, and how far it can be read. Writer and reader share it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ordercast.archive.errors import ArchiveDamaged, ForeignFile, NoArchive, WrongGroup
from ordercast.archive.frame import Frame
from ordercast.archive.headers import (
    ALIGNMENT,
    FRAME_BYTES,
    FRAME_MAGIC,
    NAME,
    SEGMENT_HEAD,
    FrameHead,
    SegmentHead,
    open_frame_head,
    open_segment_head,
)

LOCK_NAME: Final = "recorder.lock"
FILLING: Final = re.compile(r"filling-\d{20}\.tmp")
FORK: Final = re.compile(r"fork-\d{20}-\d+\.ocl")

HEAD_WINDOW: Final = 4_096
"""Bytes that are read at a time while only the headers of frames are looked at."""

SEARCH_WINDOW: Final = 1 << 20
"""Bytes that are read at a time while a good frame is looked for behind a bad one."""

MAX_HEAD_BYTES: Final = SEGMENT_HEAD.size + (1 << 16)


class FolderListing(NamedTuple):
    """The files of a folder, sorted."""

    segments: list[tuple[int, Path]]  # by first position
    filling: list[Path]
    forks: list[Path]
    foreign: list[Path]


def list_folder(folder: Path) -> FolderListing:
    """What lies in the folder. Names that begin with a dot belong to the system and are ignored."""
    try:
        entries = sorted(entry.name for entry in os.scandir(folder))
    except FileNotFoundError:
        raise NoArchive(f"there is no folder {folder}") from None
    except NotADirectoryError:
        raise NoArchive(f"{folder} is no folder; an archive is one") from None
    listing = FolderListing([], [], [], [])
    for name in entries:
        path = folder / name
        if name == LOCK_NAME or name.startswith("."):
            continue
        if match := NAME.fullmatch(name):
            listing.segments.append((int(match[1]), path))
        elif FILLING.fullmatch(name):
            listing.filling.append(path)
        elif FORK.fullmatch(name):
            listing.forks.append(path)
        else:
            listing.foreign.append(path)
    return listing


def refuse_foreign(folder: Path, foreign: Iterable[Path]) -> None:
    """Raise ForeignFile if there is any."""
    for path in foreign:
        raise ForeignFile(
            f"{path.name} in {folder} does not belong to an archive, which needs a folder of its own: move it away"
        )


def read_head(fd: int, path: Path, first: int) -> SegmentHead | None:
    """The header of a segment; None if it is torn."""
    head = open_segment_head(os.pread(fd, MAX_HEAD_BYTES, 0), path.name)
    if head is not None and head.first != first:
        raise ForeignFile(f"{path.name} says that it begins at {head.first}: it was renamed, give it its name back")
    return head


def check_owner(head: SegmentHead, path: Path, group: str | None, archive: bytes | None) -> None:
    """Raise WrongGroup if a segment is not of this group, or not of this archive."""
    if group is not None and head.group != group:
        raise WrongGroup(f"{path} is of the group {head.group!r}, not of {group!r}: choose another folder")
    if archive is not None and head.archive != archive:
        raise WrongGroup(f"{path} is of another archive than the segments before it: one folder holds one archive")


def frame_heads(fd: int, at: int, size: int, begin: int) -> Iterator[tuple[int, FrameHead]]:
    """Headers of frames, with their offsets, as long as they are whole and consecutive; no body is read.

    A frame from position `begin` on is expected at offset `at`. Ends before the first bytes that are no such frame, and
    before a frame that would reach beyond `size`.
    """
    window, base = b"", at
    while at + FRAME_BYTES <= size:
        if at + FRAME_BYTES > base + len(window):
            window, base = os.pread(fd, HEAD_WINDOW, at), at
        head = open_frame_head(window, at - base)
        if head is None or head.begin != begin or at + head.nbytes > size:
            return
        yield at, head
        at += head.nbytes
        begin = head.stop


def read_frame(fd: int, group: str, at: int, head: FrameHead) -> Frame | None:
    """One frame; None if the file has become shorter meanwhile."""
    data = os.pread(fd, head.nbytes, at)
    return Frame(group, head, data) if len(data) == head.nbytes else None


def find_frame(fd: int, group: str, at: int, size: int) -> tuple[int, FrameHead] | None:
    """The next whole frame at or behind `at`: good frames behind bad bytes mean damage, not a torn end."""
    at = -(-at // ALIGNMENT) * ALIGNMENT
    while at + FRAME_BYTES <= size:
        window = os.pread(fd, SEARCH_WINDOW, at)
        place = window.find(FRAME_MAGIC)
        while place >= 0:
            if place + FRAME_BYTES > len(window):
                break
            if place % ALIGNMENT == 0 and (head := open_frame_head(window, place)) is not None:
                frame = read_frame(fd, group, at + place, head)
                if frame is not None and frame.is_intact:
                    return at + place, head
            place = window.find(FRAME_MAGIC, place + 1)
        if len(window) < SEARCH_WINDOW:
            return None
        at += len(window) - FRAME_BYTES
    return None


def damage(path: Path, at: int, later: FrameHead) -> ArchiveDamaged:
    """The error for good frames behind bad bytes."""
    return ArchiveDamaged(
        f"{path} is damaged at byte {at}: the frames from position {later.begin} on are whole, so this is no torn end. "
        "Nothing was changed; restore the file from a copy, or move it away and let the recorder catch up (--refill)"
    )
