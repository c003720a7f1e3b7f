"""What callers get wrong, said at the call: arguments that several calls of the API share (STYLE rule 8)."""

from __future__ import annotations

from typing import Final

from ordercast.config import MAX_BLOCK, MinMembers
from ordercast.errors import MessageTooLarge, UsageError
from ordercast.service import Service
from ordercast.wire.calls import HANDLERS
from ordercast.wire.views import MAX_LOCK_NAME

Payload = bytes | bytearray | memoryview

TYPE_MIN: Final = -(1 << 15)
TYPE_MAX: Final = (1 << 15) - 1

CALL_HEAD_BYTES: Final = 512
"""Room for what the block of a call holds beside its payload: heads, a name of 255 bytes with its life, an address."""

MAX_CALL: Final = MAX_BLOCK - CALL_HEAD_BYTES
"""Bytes of a call, and of an answer: each is one block."""


def as_bytes(payload: object) -> bytes:
    """A payload as bytes of its own; anything that is no buffer is the caller's mistake."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes, bytearray or memoryview, not {type(payload).__name__}")


def as_header(header: object) -> bytes:
    """The small message that goes with a join, leave or reset, as bytes of its own."""
    if isinstance(header, bytes | bytearray | memoryview):
        return bytes(header)
    raise TypeError(f"a header is bytes, bytearray or memoryview, not {type(header).__name__}")


def check_number(word: str, value: object) -> None:
    """Raise if it is no whole number: it goes into datagrams, and what cannot would stop the node."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{word} is a whole number, not {value!r}")


def check_timeout(timeout: object) -> None:
    """Raise if it is no number of seconds, nor None."""
    if timeout is not None and (not isinstance(timeout, int | float) or timeout != timeout):
        raise UsageError(f"timeout is a number of seconds or None, not {timeout!r}")


def check_min_members(min_members: MinMembers) -> None:
    """Raise if it is neither a number of members nor one of the two words."""
    if min_members in ("majority", "all"):
        return
    if not isinstance(min_members, int) or isinstance(min_members, bool) or min_members < 1:
        raise UsageError(f'min_members is a number of at least 1, "majority" or "all", not {min_members!r}')


def check_kind(service: object, type_: object) -> None:
    """Raise if these are no service and no type."""
    if not isinstance(service, Service):
        raise UsageError(f"a service is AGREED, SAFE, RESILIENT(k), ..., not {service!r}")
    if not isinstance(type_, int) or not TYPE_MIN <= type_ <= TYPE_MAX:
        raise UsageError(f"a type is a number from {TYPE_MIN} to {TYPE_MAX}, not {type_!r}")


def check_handler(handler: object) -> int:
    """A handler: one of the first six locks (RMP section 3.3)."""
    if not isinstance(handler, int) or isinstance(handler, bool) or not 0 <= handler < HANDLERS:
        raise UsageError(f"a handler is a number from 0 to {HANDLERS - 1}, not {handler!r}")
    return handler


def check_call(size: int, what: str) -> None:
    """Raise if a call, or an answer, does not fit a block."""
    if size > MAX_CALL:
        raise MessageTooLarge(f"{what} of {size} bytes exceeds {MAX_CALL}: it has to fit one block")


def as_lock(key: object) -> str:
    """The name under which the group knows a lock: a number is its digits."""
    if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
        key = str(key)
    if not isinstance(key, str):
        raise UsageError(f"a lock is named by a text or by a number from 0 on, not by {key!r}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the name {key!r} of a lock has no UTF-8 form: {error.reason}") from None
    if not 0 < size <= MAX_LOCK_NAME:
        raise UsageError(f"the name of a lock has 1 to {MAX_LOCK_NAME} bytes, got {size}")
    return key
