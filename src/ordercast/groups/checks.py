"""What may stand in a message, a name or a header, and how long a call may be. The API's other checks are in `api/`."""

from __future__ import annotations

from typing import Final

from ordercast.config import MAX_BLOCK, MAX_GROUP_NAME, MAX_HEADER, MAX_PRIORITY, REGIONS_ORDERER, SITES_ORDERER
from ordercast.errors import UnsupportedService, UsageError
from ordercast.service import (
    AGREED_RANK,
    FIFO_RANK,
    MAJORITY_RANK,
    RANK_NAMES,
    RELIABLE_RANK,
    RESILIENT_RANK,
    SAFE_RANK,
    UNRELIABLE_RANK,
    Service,
)

TYPE_MIN: Final = -(1 << 15)
TYPE_MAX: Final = (1 << 15) - 1

CALL_HEAD_BYTES: Final = 512
"""Room for what the block of a call holds beside its payload: heads, a name of 255 bytes with its life, an address."""

MAX_CALL: Final = MAX_BLOCK - CALL_HEAD_BYTES
"""Bytes of a call, and of an answer: each is one block."""


_ALL: Final = tuple(range(len(RANK_NAMES)))

GIVEN: Final[dict[str, tuple[int, ...]]] = {
    "token": _ALL,
    "sequencer": (RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, SAFE_RANK),
    "timestamp": (RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, MAJORITY_RANK, SAFE_RANK),
    SITES_ORDERER: tuple([rank for rank in _ALL if rank not in (RESILIENT_RANK, MAJORITY_RANK)]),
    REGIONS_ORDERER: (UNRELIABLE_RANK, RELIABLE_RANK, FIFO_RANK),
}
"""The ranks of the services of each orderer, for texts: a client of a daemon has no orderers. A test compares."""


def check_kind(service: object, type_: object) -> None:
    """Raise if these are no service and no type."""
    if not isinstance(service, Service):
        raise UsageError(f"a service is AGREED, SAFE, RESILIENT(k), ..., not {service!r}")
    if not isinstance(type_, int) or not TYPE_MIN <= type_ <= TYPE_MAX:
        raise UsageError(f"a type is a number from {TYPE_MIN} to {TYPE_MAX}, not {type_!r}")


def check_priority(priority: object, orderer: str, group: str) -> None:
    """Raise if it is no priority, or if the group's orderer has none but 0."""
    if not isinstance(priority, int) or not 0 <= priority <= MAX_PRIORITY:
        raise UsageError(f"a priority is a number from 0, the usual one, to {MAX_PRIORITY}, not {priority!r}")
    if priority and orderer != SITES_ORDERER:
        raise UsageError(
            f"the {orderer} orderer of {group!r} has no priorities: leave priority out, or use a group with "
            f"orderer={SITES_ORDERER!r}"
        )


def check_name(name: str) -> None:
    """Raise if no group, and no underlay, may have this name."""
    if not name or len(name.encode()) > MAX_GROUP_NAME:
        raise UsageError(f"the name of a group has 1 to {MAX_GROUP_NAME} bytes, got {len(name.encode())}")


def check_header(header: bytes) -> None:
    """Raise if it is too long to go with a join, leave or reset."""
    if len(header) > MAX_HEADER:
        raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}")


def unsupported(orderer: str, group: str, service: Service) -> UnsupportedService:
    """The error of an underlay that cannot give a service: what it has instead, and which orderers have that one."""
    given = GIVEN.get(orderer, ())
    stronger = [rank for rank in given if rank > service.rank]
    if stronger:
        instead = f": use {_word(min(stronger))}, which promises more"
    elif given:
        instead = f": its strongest is {_word(max(given))}"
    else:
        instead = ""
    others = [repr(name) for name, ranks in GIVEN.items() if service.rank in ranks]
    choice = ", ".join(others[:-1]) + " or " + others[-1] if len(others) > 1 else others[0]
    return UnsupportedService(
        f"the {orderer} orderer of {group!r} cannot give {service}{instead}, or join a group with orderer={choice}"
    )


def _word(rank: int) -> str:
    return f"{RANK_NAMES[rank]}(k)" if rank == RESILIENT_RANK else RANK_NAMES[rank]


def no_feeds(group: str, orderer: str) -> UsageError:
    """The error of a group that has no feeds."""
    return UsageError(f'{group!r} has the orderer {orderer!r}; feeds need orderer="regions"')


def no_locks(group: str, orderer: str) -> UsageError:
    """The error of a group that has no locks, handlers and calls."""
    return UsageError(f'{group!r} has the orderer {orderer!r}; locks, handlers, calls need orderer="token"')
