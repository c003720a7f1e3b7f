"""What an application may ask of an underlay."""

from __future__ import annotations

from ordercast.config import MAX_HEADER, MAX_MEMBERS, MinMembers
from ordercast.errors import UsageError


def check_header(header: bytes) -> None:
    if len(header) > MAX_HEADER:
        raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}; send the rest as a message")


def check_rule(rule: MinMembers) -> None:
    if rule not in ("majority", "all") and not (isinstance(rule, int) and 1 <= rule <= MAX_MEMBERS):
        raise UsageError(f"min_members is a number from 1 to {MAX_MEMBERS}, 'majority' or 'all', got {rule!r}")
