"""What a join, or an attach, asks for: its arguments, and those checked, as a `JoinRequest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

from ordercast.api.checks import check_min_members, check_number
from ordercast.api.seat import JoinRequest
from ordercast.config import (
    REGION_FLOWS,
    REGIONS_ORDERER,
    SECOND,
    SITES_ORDERER,
    AlonePolicy,
    Demands,
    GroupConfig,
    MinMembers,
    RecoveryMode,
    SlowPolicy,
)
from ordercast.errors import UsageError

PATIENCE_S: Final = 10.0
"""How long a member may hold up the group by default, before it is evicted."""


class UnderlayTerms(TypedDict, total=False):
    """What `Node.join`, `Node.attach` and their blocking twins say of an underlay. `Node.join` documents the words."""

    orderer: str | None
    create: bool | None
    min_members: MinMembers
    recovery: RecoveryMode
    resilience: int | None
    max_members: int | None
    buffers: int | None
    nr_buf: int | None
    max_message: int | None
    flow: str | None
    anticipate: bool | None
    ttl: int | None
    alone: AlonePolicy
    bootstrap: int | None
    slow: SlowPolicy
    patience: float


PLAIN_TERMS: Final[UnderlayTerms] = {
    "orderer": None,
    "create": None,
    "min_members": "majority",
    "recovery": "automatic",
    "resilience": None,
    "max_members": None,
    "buffers": None,
    "nr_buf": None,
    "max_message": None,
    "flow": None,
    "anticipate": None,
    "ttl": None,
    "alone": "create",
    "bootstrap": None,
    "slow": "evict",
    "patience": PATIENCE_S,
}
"""What is meant where a word is left out. None: what the node has, or the group."""

MAX_BUFFERS: Final = 1 << 40
"""Bytes of history that may be asked for; far above what any machine has."""

MAX_PATIENCE_S: Final = 365 * 24 * 3_600
"""A year; who wants to wait for longer has `slow="wait"`."""

MAX_TTL: Final = 255
"""IP's time to live has one byte."""


_NOT_ON_SITES: Final[dict[str, tuple[object, str]]] = {
    "create": (None, "a daemon begins as a component of its own, and components merge: leave create out"),
    "min_members": ("majority", "every component of sites goes on; a program can look at View.members before it acts"),
    "recovery": ("automatic", "components of sites go on and merge by themselves: leave recovery out"),
    "resilience": (None, "sites does not give RESILIENT(k): send with SAFE, which every member of the view has"),
    "max_members": (None, "the configuration of sites says which daemons there are: leave max_members out"),
    "flow": (None, "the configuration of sites has the windows of its rings and links: leave flow out"),
    "anticipate": (None, "only the timestamp orderer anticipates: leave anticipate out"),
    "alone": ("create", "a daemon that is alone is a component of its own, and goes on: leave alone out"),
    "bootstrap": (None, "every component of sites works from the beginning; wait for the view that you need"),
    "slow": ("evict", "nobody is put out of an underlay of sites: leave slow out, and take messages as they come"),
    "patience": (10.0, "nobody is put out of an underlay of sites: leave patience out"),
}
"""What an underlay of sites cannot be asked for: the value that asks for nothing, and what to do instead."""


def check_sites(given: Mapping[str, object]) -> None:
    """Raise if something is asked for that `sites` has not."""
    for word, (plain, text) in _NOT_ON_SITES.items():
        if given[word] != plain:
            raise UsageError(f"{word}={given[word]!r} does not go with orderer='sites': {text}")


_NOT_ON_REGIONS: Final[dict[str, tuple[object, str]]] = {
    "create": (None, "the membership service knows every group: leave create out"),
    "min_members": ("majority", "the membership service decides who is in: leave min_members out"),
    "recovery": ("automatic", "the membership service decides who is in: leave recovery out"),
    "resilience": (None, "regions give UNRELIABLE, RELIABLE and FIFO only; RESILIENT(k) needs another orderer"),
    "max_members": (None, "a group on regions has no bound of its own: leave max_members out"),
    "nr_buf": (None, "regions count bytes: use buffers="),
    "anticipate": (None, "only the timestamp orderer anticipates: leave anticipate out"),
    "alone": ("create", "a node without the service goes on receiving, and waits: leave alone out"),
    "bootstrap": (None, "a group on regions works from the beginning; wait for the view that you need"),
    "slow": ("evict", "nobody is put out of regions for being slow: leave slow out, and take messages as they come"),
    "patience": (10.0, "nobody is put out of regions for being slow: leave patience out"),
}
"""The same for regions."""


def check_regions(given: Mapping[str, object]) -> None:
    """Raise if something is asked for that `regions` has not."""
    for word, (plain, text) in _NOT_ON_REGIONS.items():
        if given[word] != plain:
            raise UsageError(f"{word}={given[word]!r} does not go with orderer='regions': {text}")
    if given["flow"] not in (None, *REGION_FLOWS):
        raise UsageError(
            f"flow={given['flow']!r} does not go with orderer='regions', which paces by "
            f"{', '.join(map(repr, REGION_FLOWS))}: choose one of these, or leave flow out for {REGION_FLOWS[0]!r}"
        )


def check_carried(orderer: str, given: UnderlayTerms, contact: object) -> None:
    """Raise if words that came with a join do not exist, or go with no underlay of this orderer. The error says what to
    do instead: told to give them to `attach`, a program would only hear it there."""
    check_words(given)
    terms: UnderlayTerms = {**PLAIN_TERMS, **given}
    check_contact(orderer, contact)
    if orderer == SITES_ORDERER:
        check_sites(terms)
    if orderer == REGIONS_ORDERER:
        check_regions(terms)


def check_words(given: UnderlayTerms) -> None:
    """Raise if a join, or an attach, has a word that there is not."""
    unknown = sorted(given.keys() - PLAIN_TERMS.keys())
    if unknown:
        raise TypeError(f"join and attach have no argument {unknown[0]!r}")


def check_contact(orderer: str, contact: object) -> None:
    """Raise if the members of an underlay of this orderer are not found through one of them."""
    if contact is not None and orderer == SITES_ORDERER:
        raise UsageError("the configuration of sites says where the daemons are: leave contact out")
    if contact is not None and orderer == REGIONS_ORDERER:
        raise UsageError("regions are found by their membership service: leave contact out")


def regions_request(defaults: GroupConfig) -> JoinRequest:
    """A join on regions that asks for nothing in particular: any node that is on regions has it."""
    return as_request(defaults, {"orderer": REGIONS_ORDERER})


def as_request(defaults: GroupConfig, given: UnderlayTerms) -> JoinRequest:
    """Raise what is wrong. Header, contact and underlay are the caller's to add."""
    check_words(given)
    terms: UnderlayTerms = {**PLAIN_TERMS, **given}
    orderer = terms["orderer"] or defaults.orderer
    create, recovery, alone, slow = terms["create"], terms["recovery"], terms["alone"], terms["slow"]
    min_members, patience, resilience = terms["min_members"], terms["patience"], terms["resilience"]
    max_members, max_message, bootstrap = terms["max_members"], terms["max_message"], terms["bootstrap"]
    buffers, nr_buf, flow, anticipate, ttl = (
        terms["buffers"], terms["nr_buf"], terms["flow"], terms["anticipate"], terms["ttl"],
    )  # fmt: skip
    if create is not None and not isinstance(create, bool):
        raise UsageError(f"create is True, False or None, not {create!r}")
    if recovery not in ("automatic", "manual"):
        raise UsageError(f'recovery is "automatic" or "manual", not {recovery!r}')
    if alone not in ("create", "wait", "leave"):
        raise UsageError(f'alone is "create", "wait" or "leave", not {alone!r}')
    if slow not in ("evict", "wait"):
        raise UsageError(f'slow is "evict" or "wait", not {slow!r}')
    if isinstance(patience, bool) or not isinstance(patience, int | float) or not 0.1 <= patience <= MAX_PATIENCE_S:
        raise UsageError(f"patience is a number of seconds from 0.1 to {MAX_PATIENCE_S:,}, not {patience!r}")
    check_min_members(min_members)
    if orderer == SITES_ORDERER:
        check_sites(terms)
    if orderer == REGIONS_ORDERER:
        check_regions(terms)
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
    if max_members is not None and isinstance(min_members, int) and min_members > max_members:
        raise UsageError(f"min_members={min_members} can never be met: the group has at most {max_members} members")
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
            flow=_flow(orderer, flow, defaults),
            anticipate=defaults.anticipate if anticipate is None else anticipate,
            bootstrap=defaults.bootstrap if bootstrap is None else bootstrap,
            slow=slow,
            patience_ns=round(patience * SECOND),
        ),
        create=create,
        min_members=min_members,
        recovery=recovery,
        demands=Demands(max_members, buffers, max_message, nr_buf),
        ttl=ttl,
        alone=alone,
    )


def _flow(orderer: str, asked: str | None, defaults: GroupConfig) -> str:
    """Regions have policies of their own."""
    if asked is not None:
        return asked
    return REGION_FLOWS[0] if orderer == REGIONS_ORDERER else defaults.flow
