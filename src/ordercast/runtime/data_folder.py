"""The folder of a node (`Node(data_dir=...)`): what it must not forget over a restart (docs/design/restarts.md).

One file has the node's name and life, and one file each underlay's entry. A file is written beside its place, synced,
renamed and the folder synced: after a crash it is the old one or the new one, and never a part. A lock keeps two
processes out of one folder: two lives of one node at once would vote twice.
"""

from __future__ import annotations

import fcntl
import os
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from ordercast.errors import OrdercastError, UsageError, WireError
from ordercast.wire.codec import Reader, Writer

MAGIC: Final = b"ocd1"  # version 1 of the files; another version takes another number
HEAD: Final = Struct("<4sIQ")  # magic, checksum of the rest, its bytes
LOCK_NAME: Final = "node.lock"
NODE_NAME: Final = "node"
SUFFIX: Final = ".entry"
TEMPORARY: Final = ".new"


class StoreFailed(OrdercastError):
    """What this node has promised could not be stored: it stops before anything leaves that depends on it."""


class DataFolder:
    """Implements `groups.storing.Store`. Held from its making to `close`."""

    __slots__ = ("_lock", "folder", "life", "name")

    def __init__(self, folder: str | Path, name: str | None, default: str, life: int | None, now_ns: int) -> None:
        """`name` and `life` as the caller gave them. Without a name the one in the folder counts, or `default`."""
        self.folder = Path(folder)
        self._lock = self._take_lock()
        try:
            kept = self._read_node()
            if kept is not None and name is not None and kept[0] != name:
                raise UsageError(
                    f"{self.folder} belongs to the node {kept[0]!r}, not to {name!r}: give that name, or each node a "
                    "folder of its own"
                )
            last = kept[1] if kept is not None else -1
            if life is not None and life <= last:
                raise UsageError(f"life={life} is over: {self.folder} has seen life {last}; leave out life=")
            self.name = kept[0] if kept is not None else default if name is None else name
            self.life = max(now_ns, last + 1) if life is None else life
            self._write(NODE_NAME, Writer().text(self.name).i64(self.life).bytes())
        except BaseException:
            self.close()
            raise

    def get(self, underlay: str) -> bytes:
        """The entry of an underlay; empty if there is none."""
        body = self._read(_file_of(underlay))
        if body is None:
            return b""
        reader = Reader(body)
        try:
            name = reader.text()
        except WireError:
            name = ""
        if name != underlay:
            raise self._damage(_file_of(underlay), f"is not of {underlay!r}")
        return reader.rest()

    def put(self, underlay: str, entry: bytes) -> None:
        """Store an entry, or remove it where it is empty. On disk when this returns."""
        name = _file_of(underlay)
        try:
            if entry:
                self._write(name, Writer().text(underlay).raw(entry).bytes())
            else:
                (self.folder / name).unlink(missing_ok=True)
                self._sync()
        except OSError as error:
            raise StoreFailed(
                f"{self.folder / name} cannot be written ({error.strerror}): the node stops, as it may not promise "
                "what it could forget. Make room there, and start it again"
            ) from error

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # Files.

    def _take_lock(self) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be the folder of a node: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise UsageError(
                f"{self.folder} is in use by another node, perhaps of another process: stop that one first, or give "
                "each node a folder of its own"
            ) from None
        return lock

    def _read_node(self) -> tuple[str, int] | None:
        body = self._read(NODE_NAME)
        if body is None:
            return None
        reader = Reader(body)
        try:
            found = reader.text(), reader.i64()
            reader.end()
        except WireError as error:
            raise self._damage(NODE_NAME, str(error)) from error
        return found

    def _read(self, name: str) -> bytes | None:
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.folder / name} cannot be read: {error.strerror}") from error
        if len(data) < HEAD.size:
            raise self._damage(name, "is too short")
        magic, checksum, size = HEAD.unpack_from(data)
        body = data[HEAD.size :]
        if magic != MAGIC:
            raise self._damage(name, "is no file of a node, or of another version")
        if len(body) != size or crc32(body) != checksum:
            raise self._damage(name, "does not match its checksum")
        return body

    def _write(self, name: str, body: bytes) -> None:
        path, beside = self.folder / name, self.folder / f"{name}{TEMPORARY}"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            data = memoryview(HEAD.pack(MAGIC, crc32(body), len(body)) + body)
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(beside, path)
        self._sync()

    def _sync(self) -> None:
        """The names of files are the folder's: they are on disk when it is."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _damage(self, name: str, what: str) -> UsageError:
        return UsageError(
            f"{self.folder / name} {what}: a disk or a person has changed it. Move the folder away to start this node "
            "as a new one; its former life then counts as crashed, and must not be started again"
        )


def _file_of(underlay: str) -> str:
    return blake2b(underlay.encode(), digest_size=16, person=b"oc-entry").hexdigest() + SUFFIX
