"""What an application may ask of an underlay."""

from __future__ import annotations

from ordercast.config import MAX_GROUP_NAME, MAX_HEADER, MAX_MEMBERS, GroupConfig, MinMembers, RecoveryMode
from ordercast.errors import UsageError
from ordercast.orderers import unsupported_names


def check_terms(name: str, header: bytes, config: GroupConfig, rule: MinMembers, recovery: RecoveryMode) -> None:
    """With which an underlay begins."""
    if not 0 < len(name.encode()) <= MAX_GROUP_NAME:
        raise UsageError(f"a group name has 1 to {MAX_GROUP_NAME} bytes, got {len(name.encode())}")
    check_header(header)
    unknown = unsupported_names(config)
    if unknown:
        raise UsageError(unknown)
    check_rule(rule)
    if recovery not in ("automatic", "manual"):
        raise UsageError(f"recovery is 'automatic' or 'manual', got {recovery!r}")


def check_header(header: bytes) -> None:
    if len(header) > MAX_HEADER:
        raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}; send the rest as a message")


def check_rule(rule: MinMembers) -> None:
    if rule not in ("majority", "all") and not (isinstance(rule, int) and 1 <= rule <= MAX_MEMBERS):
        raise UsageError(f"min_members is a number from 1 to {MAX_MEMBERS}, 'majority' or 'all', got {rule!r}")
