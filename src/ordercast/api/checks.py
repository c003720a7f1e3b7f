"""What callers get wrong, said at the call: arguments that several calls of the API share."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from ordercast.config import MAX_GROUP_NAME, REGION_PREFIX, REGIONS_UNDERLAY, TIMINGS, MinMembers, Timing
from ordercast.errors import MessageTooLarge, UsageError
from ordercast.groups.checks import MAX_CALL
from ordercast.wire.calls import HANDLERS
from ordercast.wire.views import MAX_LOCK_NAME

Payload = bytes | bytearray | memoryview


def as_bytes(payload: object) -> bytes:
    """A payload as bytes of its own; anything that is no buffer is the caller's mistake."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes, bytearray or memoryview, not {type(payload).__name__}")


def as_payloads(payloads: Iterable[Payload]) -> list[bytes]:
    """Payloads as bytes of their own. Hot: each line that touches every message costs nanoseconds a message."""
    items = list(payloads)
    if set(map(type, items)) <= {bytes}:
        return items  # type: ignore[return-value]
    return [as_bytes(payload) for payload in items]


def as_header(header: object) -> bytes:
    """The small message that goes with a join, leave or reset, as bytes of its own."""
    if isinstance(header, bytes | bytearray | memoryview):
        return bytes(header)
    raise TypeError(f"a header is bytes, bytearray or memoryview, not {type(header).__name__}")


def check_group_name(name: object) -> None:
    """Raise if this cannot be the name of a group. Names appear in logs, reports and terminals."""
    if not isinstance(name, str):
        raise UsageError(f"a group's name is a str, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the group name {name!r} has no UTF-8 form: {error.reason}") from None
    if not 0 < size <= MAX_GROUP_NAME:
        raise UsageError(f"a group's name has 1 to {MAX_GROUP_NAME} bytes, got {size}")
    if not name.isprintable():  # most are: a hundred thousand are checked in one join
        for character in name:
            if unicodedata.category(character) == "Cc":
                raise UsageError(f"the group name {name!r} has the control character {character!r}: leave it out")
    if name == REGIONS_UNDERLAY or name.startswith(REGION_PREFIX):
        raise UsageError(f"{name!r} is what regions are called in datagrams and traces: give the group another name")


def check_underlay_name(name: object) -> None:
    """The same for an underlay. All regions of a node are one, which has a name of its own."""
    if name != REGIONS_UNDERLAY:
        check_group_name(name)


def check_number(word: str, value: object) -> None:
    """Raise if it is no whole number: it goes into datagrams, and anything else would stop the node there."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{word} is a whole number, not {value!r}")


def check_timeout(timeout: object) -> None:
    """Raise if it is neither a number of seconds nor None."""
    if timeout is not None and (not isinstance(timeout, int | float) or timeout != timeout):
        raise UsageError(f"timeout is a number of seconds or None, not {timeout!r}")


def as_timing(timing: object) -> Timing:
    """A `Timing`, given as such or by the name of one; None is the usual one."""
    if timing is None:
        return TIMINGS["usual"]
    if isinstance(timing, str) and timing in TIMINGS:
        return TIMINGS[timing]
    if not isinstance(timing, Timing):
        names = ", ".join(f'"{name}"' for name in TIMINGS)
        raise UsageError(f"timing is an ordercast.Timing, such as Timing(beacon_ns=...), or {names}, not {timing!r}")
    return timing


def check_min_members(min_members: MinMembers) -> None:
    """Raise if it is neither a number of members nor one of the two words."""
    if min_members in ("majority", "all"):
        return
    if not isinstance(min_members, int) or isinstance(min_members, bool) or min_members < 1:
        raise UsageError(f'min_members is a number of at least 1, "majority" or "all", not {min_members!r}')


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
