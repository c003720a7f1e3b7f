"""What real engines of sites do between two views, written down while they run: the facts that `conformance.py` reads.

A trace has views, signals and deliveries. It has no cuts, no ballots and no acceptances. These are taken where the
parts of the engine hand them to one another; nothing is changed by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from ordercast.engine import Delivery
from ordercast.membership.components.installing import ComponentInstall
from ordercast.membership.components.membership import ComponentsMembership
from ordercast.membership.components.taking_part import TakingPart
from ordercast.underlay.sites.streams import ViewStreams
from ordercast.wire.block import ROSTER, head_of, roster_body
from ordercast.wire.components import SiteCut
from ordercast.wire.cuts import Ballot, Result

PLACE_BITS: Final = 16  # of a position: the message's place in its block


class Promised(NamedTuple):
    """A daemon has promised a ballot, and this is its cut."""

    daemon: int
    shown: SiteCut


class Accepted(NamedTuple):
    """A daemon says that it holds its remainder."""

    daemon: int
    ballot: Ballot
    first_lts: int  # of the proposal
    bound: Result | None
    lacking: int  # blocks


class Installed(NamedTuple):
    """A daemon goes into its next view; what it still delivers in the old one follows."""

    daemon: int
    ballot: Ballot
    install: ComponentInstall


class Began(NamedTuple):
    """The old view has ended, its remainder included."""

    daemon: int
    was_synced: bool


class Delivered(NamedTuple):
    """Blocks that the engine hands up, in order: the place (LTS and site) of ordered ones, and parts of rosters."""

    daemon: int
    places: tuple[int, ...]
    parts: tuple[tuple[int, bytes], ...]  # origin and body


Fact = Promised | Accepted | Installed | Began | Delivered


@contextmanager
def recorded() -> Iterator[list[Fact]]:
    """The facts of all engines that run meanwhile, in the order in which they happen."""
    facts: list[Fact] = []
    who: dict[int, tuple[object, int]] = {}  # by identity, with the object, so that no other one gets it

    def on_membership(each: ComponentsMembership, result: object, *args: Any, **_: Any) -> None:  # noqa: ARG001
        who[id(each)] = (each, args[1].id)

    def on_promise(part: TakingPart, shown: SiteCut, *_: Any) -> None:
        who[id(part)] = (part, shown.cut.daemon)
        facts.append(Promised(shown.cut.daemon, shown))

    def on_progress(part: TakingPart, has_accepted: bool, *_: Any) -> None:
        if has_accepted and part.proposal is not None:
            lacking = len(part.lacking())
            facts.append(Accepted(who[id(part)][1], part.promised, part.proposal.first_lts, part.bound, lacking))

    def on_take(each: ComponentsMembership, install: ComponentInstall | None, *_: Any) -> None:
        if install is not None:
            facts.append(Installed(who[id(each)][1], each.promised, install))

    def on_installed(each: ComponentsMembership, _result: None, _now_ns: int, _streams: object, *rest: Any) -> None:
        facts.append(Began(who[id(each)][1], rest[0]))

    def on_deliveries(streams: ViewStreams, found: list[Delivery], *_: Any) -> None:
        if found:
            facts.append(_delivered(streams.me, found))

    watched: tuple[tuple[type, str, Callable[..., None]], ...] = (
        (ComponentsMembership, "__init__", on_membership),
        (TakingPart, "promise", on_promise),
        (TakingPart, "progress", on_progress),
        (ComponentsMembership, "take", on_take),
        (ComponentsMembership, "installed", on_installed),
        (ViewStreams, "deliveries", on_deliveries),
        (ViewStreams, "settle", on_deliveries),
    )
    sound = [(owner, name, vars(owner)[name]) for owner, name, _ in watched]
    for (owner, name, method), (_, _, note) in zip(sound, watched, strict=True):
        setattr(owner, name, _noted(method, note))
    try:
        yield facts
    finally:
        for owner, name, method in sound:
            setattr(owner, name, method)


def _noted(method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    def noted(self: object, *args: Any, **named: Any) -> Any:
        # A view ends inside of `installed`: the fact comes before what follows from it.
        is_first = method.__name__ == "installed"
        if is_first:
            note(self, None, *args, **named)
        result = method(self, *args, **named)
        if not is_first:
            note(self, result, *args, **named)
        return result

    return noted


def _delivered(daemon: int, found: list[Delivery]) -> Delivered:
    places = tuple([each.position >> PLACE_BITS for each in found if each.position >= 0])
    parts: list[tuple[int, bytes]] = []
    for each in found:
        head = head_of(each.block)
        if head.flags & ROSTER:
            parts.append((each.origin, bytes(roster_body(each.block, head))))
    return Delivered(daemon, places, tuple(parts))
