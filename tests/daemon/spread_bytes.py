"""Bytes of Spread's clients, written from the reference and not with the code under test."""

from __future__ import annotations

from struct import pack
from typing import Final

NULL_CHOICE: Final = b"NULL".ljust(90, b"\0")
LITTLE_PLAIN: Final = bytes.fromhex("80000080")
BIG_PLAIN: Final = bytes(4)

JOIN: Final = 0x010000
LEAVE: Final = 0x020000
KILL: Final = 0x040000
FIFO: Final = 0x04
AGREED: Final = 0x10
SAFE: Final = 0x20
SELF_DISCARD: Final = 0x40


def field(name: bytes) -> bytes:
    assert len(name) < 32
    return name + bytes(32 - len(name))


def hello(name: bytes, version: tuple[int, ...] = (5, 0, 1), flags: int = 1) -> bytes:
    return bytes((*version, flags, len(name))) + name


def little(type_: int, me: bytes, groups: list[bytes], body: bytes = b"", mess_type: int = 0) -> bytes:
    """What a little-endian client sends."""
    hint = bytes((0x80, mess_type & 0xFF, mess_type >> 8 & 0xFF, 0x80))
    head = pack("<I", type_ | 0x80000080) + field(me) + pack("<i", len(groups)) + hint + pack("<i", len(body))
    return head + b"".join(map(field, groups)) + body


def big(type_: int, me: bytes, groups: list[bytes], body: bytes = b"", mess_type: int = 0) -> bytes:
    """What a big-endian client sends, as Java does."""
    hint = bytes((0, mess_type >> 8 & 0xFF, mess_type & 0xFF, 0))
    head = pack(">I", type_) + field(me) + pack(">i", len(groups)) + hint + pack(">i", len(body))
    return head + b"".join(map(field, groups)) + body
