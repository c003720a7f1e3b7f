"""The transition to the next view, made of the proposal that everybody has accepted."""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.config import MS
from ordercast.errors import InvariantViolation
from ordercast.membership.components.daemons import ComponentView, LocalDaemon, component_view
from ordercast.membership.components.taking_part import ComponentState, TakingPart
from ordercast.membership.policy import OldView
from ordercast.view import Reason, View
from ordercast.wire.components import ComponentProposal, DaemonLife, NamedView
from ordercast.wire.cuts import Ballot, Result

KEPT: Final = 8  # rounds, and views
STRANGER_NS: Final = 10 * MS  # a daemon of an old view is answered at most this often


class ComponentInstall(NamedTuple):
    """A new view begins. `ComponentsMembership.installed` follows, before any other input.

    The engine delivers `result.remainder.before` in the old view, the signal, `result.remainder.after`, then the view.
    """

    view: View
    first_lts: int  # its clocks begin here
    came_from: tuple[OldView, ...]  # one for each class, this daemon's own first; `upto` is the horizon, an LTS
    roster_groups: tuple[tuple[int, ...], ...]  # ids; the first of each speaks for it. Several: rosters are exchanged
    result: Result | None  # how this daemon leaves its old view; None: it has just started


class Endings:
    """The rounds that ended in a view here, whose stragglers are answered, and the views that this daemon was in."""

    __slots__ = ("_rounds", "_told_ns", "_views")

    def __init__(self) -> None:
        self._rounds: dict[Ballot, tuple[DaemonLife, ...]] = {}
        self._views: dict[int, tuple[DaemonLife, ...]] = {}  # by ring
        self._told_ns: dict[int, int] = {}  # by index: until when a daemon of an old view is not answered again

    def add(self, ballot: Ballot, members: tuple[DaemonLife, ...], old: ComponentView) -> None:
        """The oldest goes."""
        self._rounds[ballot] = members
        self._views[old.view.ring] = old.lives
        if len(self._rounds) > KEPT:
            del self._rounds[next(iter(self._rounds))]
        if len(self._views) > KEPT:
            del self._views[next(iter(self._views))]

    def ended_with(self, ballot: Ballot, life: DaemonLife) -> bool:
        """Whether the round ended in a view that this daemon is a member of."""
        return life in self._rounds.get(ballot, ())

    def straggler(self, now_ns: int, local: LocalDaemon, ring: int, origin: int) -> DaemonLife | None:
        """The daemon of an old view that speaks; None where it is none, or was answered just now."""
        for life in self._views.get(ring, ()):
            if local.daemons.id(life) == origin and self._told_ns.get(life.index, 0) <= now_ns:
                self._told_ns[life.index] = now_ns + STRANGER_NS
                return life
        return None


def transition(local: LocalDaemon, part: TakingPart) -> tuple[ComponentView, ComponentInstall, ComponentProposal]:
    """The next view, what the engine is told of it, and the proposal that it is made of."""
    proposal, result = part.proposal, part.bound
    if proposal is None or result is None or part.state is not ComponentState.ACCEPTED:
        raise InvariantViolation("a view is installed that was not accepted")
    members = [local.daemons.member(life) for life in proposal.members]
    origins = []
    for each in proposal.classes:
        old = component_view(local, proposal.old_views[each.view], 0, Reason.RESET)
        origins.append(OldView(old.view, each.horizon, tuple([members[place].id for place in each.members])))
    own = origins.pop(proposal.own)
    came_with = tuple([str(members[place]) for place in proposal.classes[proposal.own].members])
    named = NamedView(proposal.counter, part.coordinator, proposal.members)
    view = component_view(local, named, proposal.first_lts, Reason.RESET, came_with)
    groups = tuple([tuple([members[place].id for place in group]) for group in proposal.roster_groups])
    return view, ComponentInstall(view.view, proposal.first_lts, (own, *origins), groups, result), proposal
