"""A disk that fills up, that stops at any step as a killed process does, and that may forget what was not synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from ordercast.archive.builder import FrameBuilder, Sealed
from ordercast.archive.files import Files
from ordercast.archive.log import ArchiveLog
from ordercast.engine import Buffer


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class Disk(Files):
    """Real files, and a say in what happens to them. Step `crash_at` is the last one, and is done half where it can."""

    def __init__(self, crash_at: int = -1, room: int = 1 << 40) -> None:
        self.steps: list[str] = []
        self.room = room
        self.sync_error: OSError | None = None
        self._crash_at = crash_at
        self._open: dict[int, Path] = {}
        self._durable: dict[Path, int] = {}  # bytes of each file that have reached the disk
        self._unsynced: list[
            tuple[str, Path, Path | bytes | None]
        ] = []  # changes of names since the last sync of the folder

    def _step(self, word: str) -> bool:
        """Whether the process dies in this step."""
        self.steps.append(word)
        if 0 <= self._crash_at < len(self.steps) - 1:
            raise Crash
        return len(self.steps) - 1 == self._crash_at

    def create(self, path: Path) -> int:
        dies = self._step("create")
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        fd = super().create(path)
        self._open[fd] = path
        self._durable[path] = 0
        self._unsynced.append(("create", path, None))
        self._die(dies)
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._open[fd] = path
        self._durable.setdefault(path, path.stat().st_size)
        return fd

    def write(self, fd: int, buffers: Sequence[Buffer]) -> int:
        dies = self._step("write")
        data = b"".join(buffers)
        if dies:
            super().write(fd, [data[: len(data) // 2]])
            raise Crash
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = super().write(fd, [data[: self.room]])
        self.room -= done
        return done

    def sync(self, fd: int) -> None:
        dies = self._step("sync")
        if self.sync_error is not None:
            raise self.sync_error
        self._durable[self._open[fd]] = os.fstat(fd).st_size
        self._die(dies)

    def truncate(self, fd: int, size: int) -> None:
        dies = self._step("truncate")
        self.room += max(0, os.fstat(fd).st_size - size)
        super().truncate(fd, size)
        self._durable[self._open[fd]] = min(size, self._durable[self._open[fd]])
        self._die(dies)

    def patch(self, path: Path, data: bytes) -> None:
        dies = self._step("patch")
        if not dies:
            super().patch(path, data)
        self._die(dies)

    def rename(self, old: Path, new: Path) -> None:
        dies = self._step("rename")
        super().rename(old, new)
        self._durable[new] = self._durable.pop(old, new.stat().st_size)
        for fd, path in self._open.items():
            if path == old:
                self._open[fd] = new
        self._unsynced.append(("rename", old, new))
        self._die(dies)

    def remove(self, path: Path) -> None:
        dies = self._step("remove")
        self._unsynced.append(("remove", path, path.read_bytes()))
        self.room += path.stat().st_size
        super().remove(path)
        self._die(dies)

    def sync_folder(self, folder: Path) -> None:  # noqa: ARG002 - there is one
        dies = self._step("sync_folder")
        self._unsynced.clear()
        self._die(dies)

    def _die(self, dies: bool) -> None:
        if dies:
            raise Crash

    # The power fails.

    def lose_power(self, rng: Random) -> None:
        """Forget some of what was not synced: ends of files, and names, the newest first."""
        for word, path, other in reversed(self._unsynced[rng.randrange(len(self._unsynced) + 1) :]):
            if word == "create" and path.exists():
                path.unlink()
            elif word == "remove" and isinstance(other, bytes):
                path.write_bytes(other)
            elif word == "rename" and isinstance(other, Path) and other.exists():
                other.rename(path)
                self._durable[path] = self._durable.get(other, 0)
        for path, size in self._durable.items():
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, rng.randint(size, path.stat().st_size))


def forget(log: ArchiveLog) -> None:
    """The process that had the log is gone: the system closes what it had open."""
    for fd in {log._fd, log._lock}:
        if fd >= 0:
            os.close(fd)
    log._fd = log._lock = -1


VIEW = "7@a/1"


def frame(begin: int, first: int, count: int, *, size: int = 10, at_ns: int = 0, sender: str = "a/1") -> Sealed:
    """Messages at `[first, first + count)`, whose values tell their positions; it covers from `begin` on."""
    builder = FrameBuilder()
    values = [value_of(position, size) for position in range(first, first + count)]
    lengths = [len(value) for value in values]
    builder.add(first, VIEW, sender, first + 100, "AGREED", at_ns or first, 3, lengths, b"".join(values))
    return builder.seal(begin)


def value_of(position: int, size: int = 10) -> bytes:
    return b"%d." % position + b"x" * (position % size)


def frames(first: int, count: int, each: int = 3, size: int = 10) -> Iterator[Sealed]:
    """So many frames in a row; every second begins behind a position that no message has."""
    begin = first
    for number in range(count):
        start = begin + number % 2
        yield frame(begin, start, each, size=size)
        begin = start + each
