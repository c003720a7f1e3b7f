"""Which groups a node is in: the question of another node, and the answer (RMP section 3.3, explicit naming).

Both travel as NAMES under a tag that no group has. The number of the datagram joins an answer to its question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import MAX_GROUP_NAME
from ordercast.errors import WireError
from ordercast.view import group_tag
from ordercast.wire.codec import Reader, Writer

Buffer = bytes | bytearray | memoryview

NAMELESS_TAG: Final = group_tag("")  # a group's name is not empty
MAX_NAMES: Final = 64  # of one answer; a node in more groups tells those that it has been in longest

_QUESTION: Final = 0
_ANSWER: Final = 1


def encode_question() -> bytes:
    return Writer().u8(_QUESTION).bytes()


def encode_names(names: Sequence[str]) -> bytes:
    writer = Writer().u8(_ANSWER).u16(min(len(names), MAX_NAMES))
    for name in names[:MAX_NAMES]:
        writer.text(name)
    return writer.bytes()


def decode_names(body: Buffer) -> list[str] | None:
    """The names of an answer; None: it is a question."""
    reader = Reader(memoryview(body))
    what = reader.u8()
    if what > _ANSWER:
        raise WireError("neither a question for names nor an answer")
    names = None
    if what == _ANSWER:
        count = reader.u16()
        if count > MAX_NAMES:
            raise WireError("too many names")
        names = [reader.text(MAX_GROUP_NAME) for _ in range(count)]
    reader.end()
    return names
