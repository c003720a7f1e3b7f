"""What the groups of a channel need of a roster: `Roster` where one ring goes on, `ExchangeRoster` where parts do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ordercast.groups.records import GroupChange, GroupRecord
from ordercast.view import View


class AnyRoster(Protocol):
    """The groups of a shared underlay, at the place of the stream up to which this node has read."""

    unreadable: int  # blocks that nobody can read

    @property
    def is_seeded(self) -> bool:
        """Whether this node has the groups as all others have them. Otherwise it submits no operation."""

    @property
    def groups(self) -> dict[str, GroupRecord]: ...

    @property
    def next_number(self) -> int: ...

    @property
    def unseeded(self) -> frozenset[int]:
        """Nodes that are known not to have the groups."""

    def find(self, name: str) -> GroupRecord | None:
        """The group with this name."""

    def at(self, number: int) -> GroupRecord | None:
        """The group with this number."""

    def name_of(self, number: int) -> str:
        """The name of the group that has this number, or had it lately; empty: it is not known."""

    @property
    def current_names(self) -> Callable[[int], str]:
        """`name_of` for what is delivered now and opened later, when numbers may be others."""

    def on_transitional(self) -> None:
        """What follows, up to the next view, was brought together by recovery."""

    def on_view(self, seq: int, view: View) -> list[GroupChange]:
        """The underlay has this view from here on."""

    def apply(self, seq: int, origin: int, body: bytes | memoryview) -> list[GroupChange]:
        """One roster block of `origin`. `seq` rises from entry to entry."""

    def take_renumbered(self) -> bool:
        """Whether all groups have other numbers since the last call."""

    def must_seed(self) -> bool:
        """Whether this node has to begin to tell others its roster."""

    def seed(self, limit: int) -> Iterator[bytes]:
        """What it tells them, in bodies of at most about `limit` bytes, each made when it is asked for."""
