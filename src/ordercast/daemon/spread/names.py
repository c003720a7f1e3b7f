"""Names as Spread's clients know them: private names, private groups, and fields of 32 bytes.

Spread's client protocol, section 2 of the reference. A session `alice` of the daemon `east1` is `#alice#east1` to
Spread's clients and the member `alice@east1/life` to everybody else. Labels of sessions have no `@` and no `/`, which
private names may have: they are written with `!`, which no private name has. Sessions of other kinds get a private
name that begins with `!`, so that it is nobody else's.
"""

from __future__ import annotations

from base64 import b32encode
from functools import lru_cache
from hashlib import blake2b
from typing import Final

MAX_PRIVATE_NAME: Final = 10
MAX_DAEMON_NAME: Final = 19
FIELD_BYTES: Final = 32
MAX_GROUP: Final = FIELD_BYTES - 1  # a NUL follows
LOWEST: Final = 0x24  # of the bytes that names may have: above '#', so that no name looks like a private group
HIGHEST: Final = 0x7E
NODE_NAME: Final = "!node"
"""The private name of a node's own session: a program that is its own daemon."""

_ESCAPES: Final = {"@": "!a", "/": "!s"}


def is_legal(name: bytes, most: int) -> bool:
    """Whether clients may give this private name (of at most 10 bytes), or join a group of this name (31)."""
    return 0 < len(name) <= most and all(LOWEST <= byte <= HIGHEST for byte in name)


def label_of(private_name: bytes) -> str:
    """The label of the session that has this private name, which is legal."""
    text = private_name.decode("ascii")
    for char, escaped in _ESCAPES.items():
        text = text.replace(char, escaped)
    return text


@lru_cache(maxsize=4_096)
def name_of(label: str) -> bytes:
    """The private name that a session of this label has for Spread's clients."""
    if not label:
        return NODE_NAME.encode()
    text = label
    for char, escaped in _ESCAPES.items():
        text = text.replace(escaped, char)
    name = text.encode()
    return name if is_legal(name, MAX_PRIVATE_NAME) else b"!" + _digest(label, MAX_PRIVATE_NAME - 1)


@lru_cache(maxsize=4_096)
def daemon_name(node: str) -> bytes:
    """The name of a daemon. Names that do not fit are shortened, with a part that tells them apart."""
    name = node.encode()
    if is_legal(name, MAX_DAEMON_NAME):
        return name
    legal = bytes([byte for byte in name if LOWEST <= byte <= HIGHEST])
    return legal[:10] + b"!" + _digest(node, MAX_DAEMON_NAME - 11)


@lru_cache(maxsize=4_096)
def private_group(label: str, node: str) -> bytes:
    """The private group of a session: `#name#daemon`, at most 31 bytes."""
    return b"#%b#%b" % (name_of(label), daemon_name(node))


@lru_cache(maxsize=4_096)
def private_group_of(member: str) -> bytes:
    """The private group of a member that is written as label@name/life or name/life. Hot: once per block."""
    session, _, _ = member.rpartition("/")
    label, _, node = session.rpartition("@")
    return private_group(label, node)


def field(name: bytes) -> bytes:
    """A name in its 32 bytes. One that is too long is cut: clients written in C need the NUL."""
    return name[:MAX_GROUP].ljust(FIELD_BYTES, b"\0")


def read_field(data: bytes) -> bytes:
    """The name in a field: what stands after the first NUL is garbage (section 1, rule 8)."""
    return data.partition(b"\0")[0][:MAX_GROUP]


def group_text(name: bytes) -> str:
    """The group of this name; empty where no group can have it."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def _digest(text: str, size: int) -> bytes:
    return b32encode(blake2b(text.encode(), digest_size=10).digest()).lower()[:size]
