"""What the archive needs of the file system, as one object: tests replace it by a disk that fills up or crashes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ordercast.archive.errors import ArchiveLocked
from ordercast.engine import Buffer

WRITE_BUFFERS: Final = 512
"""Buffers of one `writev`; Linux takes 1024."""


class Files:
    """The real file system. Nothing here is durable before `sync`, and no name before `sync_folder`."""

    def create(self, path: Path) -> int:
        """A new file to append to."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)

    def open(self, path: Path) -> int:
        """A file that is there, to append to."""
        return os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, fd: int, buffers: Sequence[Buffer]) -> int:
        """Append as much as the disk takes; returns how much."""
        return os.writev(fd, buffers)

    def patch(self, path: Path, data: bytes) -> None:
        """Replace the first bytes of a file, and make that durable. They are less than a sector, so this is atomic."""
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(files: Files, fd: int, buffers: Sequence[Buffer]) -> None:
    """Append all of it. An `OSError` in the middle leaves a part behind, which the caller removes."""
    todo = [memoryview(buffer).cast("B") for buffer in buffers]
    todo = [view for view in todo if len(view)]
    at = 0
    while at < len(todo):
        written = files.write(fd, todo[at : at + WRITE_BUFFERS])
        while at < len(todo) and written >= len(todo[at]):
            written -= len(todo[at])
            at += 1
        if written:
            todo[at] = todo[at][written:]


def lock(path: Path) -> int:
    """Hold the lock file until the descriptor is closed or the process ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 64, 0).decode(errors="replace").strip()
        os.close(fd)
        who = f"process {holder}" if holder.isdecimal() else "another process"
        raise ArchiveLocked(
            f"{who} records into {path.parent}: a folder has one recorder, choose another folder"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
