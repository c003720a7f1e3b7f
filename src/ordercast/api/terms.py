"""What a join, or an attach, asks for: its arguments checked, as a `JoinRequest`."""

from __future__ import annotations

from typing import Final

from ordercast.api.checks import check_min_members, check_number
from ordercast.api.seat import JoinRequest
from ordercast.config import AlonePolicy, Demands, GroupConfig, MinMembers, RecoveryMode
from ordercast.errors import UsageError

MAX_BUFFERS: Final = 1 << 40
"""Bytes of history that may be asked for; far above what any machine has."""

MAX_TTL: Final = 255
"""IP's time to live has one byte."""


def as_request(
    defaults: GroupConfig,
    *,
    orderer: str,
    create: bool | None,
    min_members: MinMembers,
    recovery: RecoveryMode,
    resilience: int | None,
    max_members: int | None,
    buffers: int | None,
    nr_buf: int | None,
    max_message: int | None,
    flow: str | None,
    anticipate: bool | None,
    ttl: int | None,
    alone: AlonePolicy,
    bootstrap: int | None,
) -> JoinRequest:
    """Raise what is wrong. Header, contact and underlay are the caller's to add."""
    if create is not None and not isinstance(create, bool):
        raise UsageError(f"create is True, False or None, not {create!r}")
    if recovery not in ("automatic", "manual"):
        raise UsageError(f'recovery is "automatic" or "manual", not {recovery!r}')
    if alone not in ("create", "wait", "leave"):
        raise UsageError(f'alone is "create", "wait" or "leave", not {alone!r}')
    check_min_members(min_members)
    limits = {
        "resilience": resilience,
        "max_members": max_members,
        "buffers": buffers,
        "nr_buf": nr_buf,
        "max_message": max_message,
        "ttl": ttl,
        "bootstrap": bootstrap,
    }
    for word, limit in limits.items():
        if limit is not None:
            check_number(word, limit)
    if buffers is not None and buffers > MAX_BUFFERS:
        raise UsageError(f"buffers are at most {MAX_BUFFERS} bytes, not {buffers}")
    if ttl is not None and not 0 <= ttl <= MAX_TTL:
        raise UsageError(f"a ttl lies between 0 and {MAX_TTL}, not {ttl}")
    return JoinRequest(
        config=GroupConfig(
            orderer=orderer,
            resilience=defaults.resilience if resilience is None else resilience,
            max_members=defaults.max_members if max_members is None else max_members,
            history_bytes=defaults.history_bytes if buffers is None else buffers,
            history_blocks=defaults.history_blocks if nr_buf is None else nr_buf,
            max_message=defaults.max_message if max_message is None else max_message,
            datagram=defaults.datagram,
            flow=defaults.flow if flow is None else flow,
            anticipate=defaults.anticipate if anticipate is None else anticipate,
            bootstrap=defaults.bootstrap if bootstrap is None else bootstrap,
        ),
        create=create,
        min_members=min_members,
        recovery=recovery,
        demands=Demands(max_members, buffers, max_message, nr_buf),
        ttl=ttl,
        alone=alone,
    )
