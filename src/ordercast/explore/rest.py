"""The judge of liveness: on a quiet network the group comes to rest, or it must not be able to.

*Rest*: all live nodes that want to be in are in one view, the view has nobody else, and a message of each of them
reaches all. *Legally stuck* is decided from lives and links alone. Nobody asks an engine what it thinks.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

from ordercast.config import MinMembers
from ordercast.explore.actor import Actor
from ordercast.explore.arena import Arena
from ordercast.explore.safety import ChainJudge, ViewFacts, is_quorum
from ordercast.service import AGREED
from ordercast.view import node_id

REST_TICKS: Final = 30_000  # a quiet network may take so long to bring the group to rest
LEGAL_TICKS: Final = 6_000  # the same where it may be stuck for good reason: only safety is watched
PROBE_TICKS: Final = 3_000  # a probe that was lost with a view is sent again after this


SERVING_TICKS: Final = 1_500  # a leaver that is gone sooner after the last failure may have been of no use


class Disturbances:
    """What has been done to nodes and links, and when: what an absence from a view can be put down to."""

    __slots__ = ("crashed", "departed", "links", "proposals")

    def __init__(self) -> None:
        self.crashed: dict[str, int] = {}  # member -> tick
        self.departed: dict[str, int] = {}  # leaver that is out -> until when it serves the others
        self.proposals: dict[
            str, dict[str, int]
        ] = {}  # coordinator -> member that it proposed to -> when, the last time
        self.links: dict[tuple[str, str], int] = {}  # (source, target) -> the last tick at which it lost something

    @property
    def is_none(self) -> bool:
        return not self.crashed and not self.links

    def gone(self) -> dict[str, int]:
        """Members that nobody can count on, and since when: they crashed, or left and have served the others for long
        enough. A leaver must have been there for a while since the last failure: nobody may have been able to ask it
        before."""
        quiet = max([*self.links.values(), *self.crashed.values()], default=0)
        found = {member: until for member, until in self.departed.items() if until <= quiet + SERVING_TICKS}
        return found | self.crashed

    def note_proposal(self, tick: int, coordinator: str, member: str) -> None:
        self.proposals.setdefault(coordinator, {})[member] = tick

    def proposed(self, since: int) -> list[set[str]]:
        """For each coordinator since then: itself and the members that it proposed to."""
        found = []
        for coordinator, members in self.proposals.items():
            asked = {member for member, tick in members.items() if tick >= since}
            if asked:
                found.append({coordinator, *asked})
        return found

    def apart(self, one: str, other: str, since: int) -> bool:
        """Whether one may have missed what the other said, or the other way round."""
        return max(self.links.get((one, other), -1), self.links.get((other, one), -1)) >= since


def why_stuck(
    rule: MinMembers, judge: ChainJudge, live: set[str], pending: list[tuple[str, str]], done: Disturbances
) -> str:
    """Why the group may be unable to go on although all links work; empty if it must come to rest: one ring can.

    Enough members must be alive of the last view that a live node has (and of those behind it, if there are: a member
    that decided alone may have taken them with it), of each view that a join or leave which was asked for could make
    of it, and of each view that a recovery could have made of these and not finished.
    """
    reasons = [_why_ring_stuck(rule, views, live, pending, done) for views in judge.last_views(live)]
    return min(reasons, key=bool) if reasons else "no live node has a view"


def _why_ring_stuck(
    rule: MinMembers, views: list[ViewFacts], live: set[str], pending: list[tuple[str, str]], done: Disturbances
) -> str:
    candidates = [view.members for view in views]
    for verb, who in pending:
        for base in list(candidates):
            if verb == "leave" and who in base:
                candidates.append(tuple(name for name in base if name != who))
            elif verb == "join" and who not in base:
                candidates.append((*base, who))
    for base in dict.fromkeys(candidates):
        if not base:
            return "all members have left"
        if not is_quorum(rule, base, live):
            return f"of {' '.join(base)} only {_names(base, live)} live"
        proposal = _unfinished(rule, base, live, views[0], done)
        if proposal:
            return f"a recovery may have proposed {' '.join(proposal)}, of which only {_names(proposal, live)} live"
    return ""


def _unfinished(
    rule: MinMembers, base: tuple[str, ...], live: set[str], last: ViewFacts, done: Disturbances
) -> tuple[str, ...]:
    """A view that a recovery from `base` may have proposed, and that cannot be finished any more.

    It has a member that is dead by now and was alive after `base` was there. A member is left out only where something
    kept it from one of those that are in. And a coordinator must have spoken of a proposal to those that are in.
    """
    gone = done.gone()
    dead = [name for name in base if name not in live and gone.get(name, -1) >= last.at]
    proposed = done.proposed(last.at)
    if not dead or not proposed:
        return ()
    for size in range(1, len(base) + 1):
        for chosen in combinations(base, size):
            if not is_quorum(rule, base, set(chosen)) or not any(name in dead for name in chosen):
                continue
            if not any(members.issuperset(chosen) for members in proposed):
                continue
            absent = [name for name in base if name not in chosen]
            if all(_may_miss(name, chosen, last.at, done) for name in absent) and any(
                not is_quorum(rule, order, live) for order in _orders(chosen)
            ):
                return chosen
    return ()


def _may_miss(name: str, chosen: tuple[str, ...], since: int, done: Disturbances) -> bool:
    return name in done.gone() or any(done.apart(name, other, since) for other in chosen)


def _orders(members: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The view may have any of its members first: a coordinator puts itself there."""
    return [(first, *(name for name in members if name != first)) for first in members]


def _names(members: tuple[str, ...], live: set[str]) -> str:
    return " ".join(name for name in members if name in live) or "none"


class RestJudge:
    """Follows a quiet run until it is at rest."""

    __slots__ = ("_arena", "_before", "_judge", "_probe_tick", "_rounds")

    def __init__(self, arena: Arena, judge: ChainJudge) -> None:
        self._arena = arena
        self._judge = judge
        self._probe_tick = -1
        self._before: dict[tuple[str, str], int] = {}
        self._rounds = 0

    def wanted(self) -> list[Actor]:
        return [actor for actor in self._arena.actors if actor.is_up and actor.wants_in]

    def is_at_rest(self) -> bool:
        """Asked after every tick; sends the probes when everybody is in one view."""
        wanted = self.wanted()
        if not is_one_view(self._arena.actors):
            self._probe_tick = -1
            return False
        tick = self._arena.tick
        if self._probe_tick < 0 or tick - self._probe_tick > PROBE_TICKS:
            self._probe_tick = tick
            self._rounds += 1
            counts = self._judge.delivered
            self._before = {
                (str(actor), str(sender)): counts.get(str(actor), {}).get(str(sender), 0)
                for actor in wanted
                for sender in wanted
            }
            for actor in wanted:
                actor.send(b"%s probe %d" % (actor.name.encode(), self._rounds), AGREED)
            return not wanted
        counts = self._judge.delivered
        return all(counts.get(actor, {}).get(sender, 0) > before for (actor, sender), before in self._before.items())

    def unrest(self) -> str:
        """What is missing, in words."""
        texts = []
        for actor in self._arena.actors:
            if not actor.is_up:
                continue
            view = actor.view
            if actor.wants_in and view is None:
                texts.append(f"{actor} is not in the group")
            elif actor.wants_in and view is not None:
                texts.append(f"{actor} has {view.id} ({' '.join(map(str, view.members))})")
            elif view is not None:
                texts.append(f"{actor} wants to leave and is in {view.id}")
        return "; ".join(texts)


def is_one_view(actors: list[Actor]) -> bool:
    """All that are up and want to be in are in one view, which is a view of them alone; the others are out."""
    found = None
    names = set()
    for actor in actors:
        if actor.host is None:
            continue
        view = actor.view
        if not actor.wants_in:
            if view is not None:
                return False
            continue
        if view is None or (found is not None and view.id != found.id):
            return False
        found = view
        names.add(str(actor))
    return found is None or {str(member) for member in found.members} == names


def is_formed(actors: list[Actor]) -> bool:
    """All of them are in one view, which may have others, too."""
    views = {actor.view.id if actor.view is not None else "" for actor in actors}
    view = actors[0].view
    return len(views) == 1 and view is not None and all(view.member(node_id(a.name, a.life)) for a in actors)
