"""What clients of daemons have seen of one group, in one form for native clients and for those of Spread; and whether
all of it can be true at once (docs/design/daemon.md, "What is shown of it").

Members are written as Spread does, `#client#daemon`, and views have the ids that Spread's clients get.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Final, Self

NETWORK: Final = "network"
"""The cause of a view that is neither one client's coming nor one client's going."""


@dataclass(frozen=True, slots=True)
class Transition:
    """How one client has come from one view of the group to the next."""

    client: str
    before: str
    """The view that ends; empty: the client was in none."""
    id: str
    members: tuple[str, ...]
    together: tuple[str, ...]
    """Its own vs_set, itself included, sorted."""
    sets: tuple[tuple[str, ...], ...]
    """All vs_sets, each sorted, of a client of Spread in a view that the network has caused; otherwise empty."""
    cause: str
    count: int
    """Of the messages in the view that ends, and"""
    checksum: int
    """over all their senders and bytes, in their order."""
    signal: tuple[int, int] | None
    """The same up to the transitional signal; None: there was none."""

    @classmethod
    def read(cls, said: dict[str, Any]) -> Self:
        """From JSON."""
        signal = said["signal"]
        return cls(
            said["client"],
            said["before"],
            said["id"],
            tuple(said["members"]),
            tuple(said["together"]),
            tuple(map(tuple, said["sets"])),
            said["cause"],
            said["count"],
            said["checksum"],
            (signal[0], signal[1]) if signal is not None else None,
        )


class Chronicle:
    """What one client sees, as it sees it. Each view is told at once, so that a killed client leaves its evidence."""

    __slots__ = (
        "_tell",
        "checksum",
        "client",
        "count",
        "delivered",
        "members",
        "signal",
        "view",
        "views",
    )

    def __init__(self, tell: Callable[..., None]) -> None:
        """`tell("view", …)` gets the fields of a `Transition`."""
        self._tell = tell
        self.client = ""  # as members are written
        self.view = ""
        self.members: tuple[str, ...] = ()
        self.delivered = 0  # of all views
        self.views = 0
        self.count = 0
        self.checksum = 0
        self.signal: tuple[int, int] | None = None

    def message(self, sender: str, payload: bytes) -> None:
        self.delivered += 1
        self.count += 1
        self.checksum = zlib.crc32(payload, zlib.crc32(sender.encode(), self.checksum))

    def on_signal(self) -> None:
        if self.signal is None:
            self.signal = (self.count, self.checksum)

    def on_view(
        self,
        id_: str,
        members: Iterable[str],
        together: Iterable[str],
        cause: str,
        sets: Sequence[Iterable[str]] = (),
    ) -> None:
        members = tuple(sorted(members))
        self._tell(
            "view",
            client=self.client,
            before=self.view,
            id=id_,
            members=members,
            together=sorted(together),
            sets=sorted(map(sorted, sets)),
            cause=cause,
            count=self.count,
            checksum=self.checksum,
            signal=self.signal,
        )
        self._begin(id_, members)
        self.views += 1

    def on_lost(self) -> None:
        """The client is out of the group for now."""
        self._begin("", ())

    def _begin(self, view: str, members: tuple[str, ...]) -> None:
        self.view, self.members = view, members
        self.count = self.checksum = 0
        self.signal = None


def disagreements(lives: Sequence[Sequence[Transition]]) -> list[str]:
    """What cannot be true at once of the transitions of several clients, each in its order. Empty: nothing."""
    found: list[str] = []
    into: dict[str, dict[str, Transition]] = defaultdict(dict)  # view -> client -> how it came there
    for life in lives:
        for each in life:
            if each.client in into[each.id]:
                found.append(f"{each.client} has come into {each.id} twice")
            into[each.id][each.client] = each
    for came in into.values():
        found += _of_one_view(came)
    found += _orders([[each.id for each in life] for life in lives])
    return found


def parting_faults(lives: Iterable[Sequence[Transition]], parts: Sequence[Collection[str]]) -> tuple[int, list[str]]:
    """All members of a view were cut into these parts, and merged: how many transitions from the one view to the others
    and back there were, and in which of them a client did not come with its part. Whether it is told the right sets of
    the others is `disagreements`' business: two of three parts may merge first."""
    everybody = {member for part in parts for member in part}
    checked, found = 0, []
    for life in lives:
        for before, after in pairwise(life):
            part = next((tuple(sorted(one)) for one in parts if after.client in one), ())
            parted = set(before.members) == everybody and after.members == part
            merged = before.members == part and set(after.members) == everybody
            if not part or after.before != before.id or not (parted or merged):
                continue
            checked += 1
            if after.together != part or (after.sets and part not in after.sets):
                found.append(f"{after.client} was told that it came into {after.id} with {_list(after.together)}")
    return checked, found


def _of_one_view(came: dict[str, Transition]) -> list[str]:
    """What the clients that have come into one view say of it."""
    found = []
    first = next(iter(came.values()))
    for name, each in came.items():
        if each.members != first.members:
            found.append(f"{name} and {first.client} have different members in {each.id}")
        if name not in each.together or not set(each.together) <= set(each.members):
            found.append(f"{name} has come into {each.id} with {_list(each.together)}")
        if each.sets:
            found += _of_sets(each, came)
    for one, other in combinations(came.values(), 2):
        is_with, is_back = other.client in one.together, one.client in other.together
        if is_with != is_back or (is_with and one.together != other.together):
            found.append(
                f"into {one.id} {one.client} has come with {_list(one.together)}, but {other.client} with "
                f"{_list(other.together)}"
            )
        elif is_with and one.before != other.before:
            found.append(f"{one.client} and {other.client} have come into {one.id} together, from different views")
        elif is_with and (one.count, one.checksum) != (other.count, other.checksum):
            found.append(
                f"{one.client} and {other.client} went together from {one.before} to {one.id}, with different messages "
                f"({one.count} and {other.count})"
            )
        elif is_with and one.signal != other.signal:
            found.append(
                f"{one.client} and {other.client} went together from {one.before} to {one.id}, with the signal at "
                f"different places ({one.signal} and {other.signal})"
            )
    return found


def _of_sets(each: Transition, came: dict[str, Transition]) -> list[str]:
    """All vs_sets that a client of Spread got: each member is in one of them, and its own set is what it says."""
    found = []
    if sorted([name for one in each.sets for name in one]) != list(each.members):
        found.append(f"the vs_sets of {each.client} in {each.id} are not its members")
    for name, other in came.items():
        theirs = next((one for one in each.sets if name in one), ())
        if other.before and theirs != other.together:
            found.append(
                f"{each.client} says that {name} came into {each.id} with {_list(theirs)}, but it came with "
                f"{_list(other.together)}"
            )
    return found


def _orders(lives: Sequence[Sequence[str]]) -> list[str]:
    """Views that two clients have in different orders."""
    found = []
    places = [{view: at for at, view in enumerate(life)} for life in lives]
    for one, other in combinations(range(len(lives)), 2):
        common = [places[other][view] for view in lives[one] if view in places[other]]
        if common != sorted(common):
            found.append(f"two clients have seen the same views in different orders: {lives[one]} and {lives[other]}")
    return found


def _list(names: Iterable[str]) -> str:
    return " ".join(names) or "nobody"
