"""What callers get wrong, said at the call: arguments that several calls of the API share (STYLE rule 8)."""

from __future__ import annotations

from ordercast.config import MinMembers
from ordercast.errors import UsageError

Payload = bytes | bytearray | memoryview


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
