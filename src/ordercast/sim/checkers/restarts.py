"""Views that restarted members form: they follow the last view of the members' former lives, and leave nobody behind.

A restarted member begins a new life, so a trace does not say which view its former life was in when the group went on.
Here that is put together. Three sentences are judged:

- *One part goes on.* A view of restarted members comes after the last views of their former lives and after those that
  they made, or after a later one that a member which left by it was up to tell them. Of two views after failures with a
  common view behind them one comes after the other, where only a majority may go on.
  Such a view may itself be one that nobody has installed, or only others: restarted members were told that it is
  decided, stored it, and went on or were restarted again. What is on their disks is evidence of it (`KeptView`), and it
  is judged like any other.
- *Enough go on.* The members of such a view are, in this life or a former one, a quorum of the last view that it comes
  after. Members that asked to leave may be out of it. So may one whose expulsion nobody has delivered: it was up, and
  with its vote they are a quorum. Where a member re-formed the group by a reset, its number counts alone (Amoeba
  section 3).
- *Nothing is lost that a living member holds.* A member of the last view that is up and can be heard, for as long as
  restarted members have to wait for it, is in the view that they form. What it has delivered goes on with it. A
  newcomer that never installed that view, and has gone into another group of the name since, holds nothing of it. Nor
  does one that learned of it only when the lives of all others in it were over: from a restarted member, which may not
  have to wait any longer then. A member that was put out by the last change belongs to no view that follows, whether
  it knows of that or only a restarted member does, that has stored it (`KeptView`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from ordercast.config import MS, MinMembers
from ordercast.sim.checkers.chain import InstalledView, chain_of, installed_views
from ordercast.sim.checkers.stuck import LifeSpan, Trouble
from ordercast.sim.checkers.views import Rules, is_strict, may_go_on
from ordercast.trace.schema import Row

RESTART: Final = "restart"
FAILURES: Final = ("reset", RESTART)
EXPELLED: Final = "expelled by"  # how the reason of an expulsion begins
SLACK_NS: Final = 1_500 * MS
"""A member that has just begun to hear the others again may need so long to be heard by them."""


class KeptView(NamedTuple):
    """The last view in what a node put on its disk. Only those that recoveries made are known to be decided by that."""

    node: str
    at_ns: int
    id: str
    members: tuple[str, ...]
    reason: str


class ResetSpan(NamedTuple):
    """A reset that succeeded: what it asked for, how many members it was told of, and its time."""

    rule: MinMembers
    size: int
    begin_ns: int
    end_ns: int


class Expulsion(NamedTuple):
    """A time in which the group may have put out the member of a node: it did not receive, or others asked for it."""

    node: str
    begin_ns: int
    end_ns: int
    is_asked: bool = False  # by another member, which may not know that this one has crashed


def broken_restarts(
    rows: Sequence[Row],
    lives: Iterable[LifeSpan],
    troubles: Sequence[Trouble],
    rules: Rules,
    wait_ns: int,
    expulsions: Sequence[Expulsion] = (),
    resets: Sequence[ResetSpan] = (),
    kept: Sequence[KeptView] = (),
) -> list[str]:
    """What is wrong with the views of restarted members, in words. `wait_ns`: how long they wait for the others.
    `expulsions`: those that there may have been, whether somebody has delivered them or not."""
    known = {life.member: life for life in lives}
    views = linked_views(rows, known, rules, kept)
    if not any(view.reason == RESTART for view in views.values()):
        return []
    return [
        *_parts(views, rules),
        *_too_few(rows, views, known, rules, expulsions, resets),
        *_left_behind(rows, views, known, troubles, wait_ns, expulsions, kept),
    ]


def linked_views(
    rows: Iterable[Row], lives: dict[str, LifeSpan], rules: Rules, kept: Sequence[KeptView] = ()
) -> dict[str, InstalledView]:
    """All views. One that restarted members form comes after the last views of their former lives, too, after those
    that they have `kept` since, and after a later one that a member which has left can have told them."""
    views = installed_views(rows)
    restarts = [view for view in views.values() if view.reason == RESTART]
    if not restarts:
        return views
    shown = [(member, view.id) for view in sorted(views.values(), key=lambda each: each.first_ns) for member in view.by]
    first, last = dict(reversed(shown)), dict(shown)
    last_ns = max(view.first_ns for view in restarts)
    for view in views.values():
        if view.reason not in FAILURES:
            view.is_doubtful = all(lives[member].ended_ns <= last_ns for member in view.by if member in lives)
    for view in restarts:
        # The others were in a view before. One that has installed none came back for its vote alone: its application
        # is out, and the view comes after what its former life was in all the same.
        heirs = [lives[member] for member in view.members if member in lives and first.get(member, view.id) == view.id]
        for heir in heirs:
            former = heir.former
            made = _made_by(views, former)
            while former and former not in last and former in lives:
                former = lives[former].former
                made = made or _made_by(views, former)
            if former in last and last[former] != view.id:
                view.before[last[former]] = None
                for between in _kept_between(kept, views, views[last[former]], view, heir):
                    view.before[between] = None
            # It may have crashed before it delivered a change that it had ordered, and that others have delivered. If
            # it was in a newer view since, it had left that group and was in another one of the name.
            if made is None or (former in last and made.first_ns < views[last[former]].first_ns):
                continue
            if made.id in chain_of(views, view.id) or view.id in chain_of(views, made.id):
                continue
            view.before[made.id] = None
        since_ns = min((heir.began_ns for heir in heirs), default=view.first_ns)
        for told in _told_by_leavers(views, view, lives, rules, since_ns):
            view.before[told] = None
    return views


def _kept_between(
    kept: Sequence[KeptView], views: dict[str, InstalledView], last: InstalledView, view: InstalledView, heir: LifeSpan
) -> list[str]:
    """Views that the lives of a node have kept between its last one and this one, and have not installed."""
    found: list[str] = []
    before = last.id
    for each in kept:
        is_its_own = f"{each.node}/" == heir.member[: len(each.node) + 1] and each.reason in FAILURES
        if not is_its_own or not last.first_ns < each.at_ns < view.first_ns or each.id in (before, view.id):
            continue
        known = views.get(each.id)
        if known is None:
            known = views[each.id] = InstalledView(each.id, each.members, each.reason, each.at_ns)
        if not known.by:  # otherwise those that installed it say what it comes after
            known.before[before] = None
        before = each.id
        found.append(before)
    return found


def _made_by(views: dict[str, InstalledView], member: str) -> InstalledView | None:
    """The last view that a member made and somebody has installed: it had stored that before anybody heard of it."""
    made = [view for view in views.values() if member and view.id.partition("@")[2] == member]
    return max(made, key=lambda view: int(view.id.partition("@")[0]), default=None)


def _told_by_leavers(
    views: dict[str, InstalledView], view: InstalledView, lives: dict[str, LifeSpan], rules: Rules, since_ns: int
) -> list[str]:
    """Views that changes made of those before this one, and that restarted members can only know by the word of a
    member which has left. That one was up in time (from `since_ns` on), the members are enough of the view without it,
    and with its vote of the view that it was in. So no other view may follow that one: `branches` sees to it."""
    names = {member.rpartition("/")[0] for member in view.members}
    found: list[str] = []
    left, seen = list(view.before), chain_of(views, view.id)
    while left:
        before = views[left.pop()]
        for after in [each for each in views.values() if before.id in each.before and each.reason not in FAILURES]:
            if after.id in seen:
                continue
            seen.add(after.id)
            left.append(after.id)
            gone = [
                member
                for member in before.members
                if member not in after.members and _was_up(member, lives, since_ns, view.first_ns)
            ]
            present = [member for member in after.members if member.rpartition("/")[0] in names]
            voters = [member for member in before.members if member in present or member in gone]
            is_told = gone and len(present) == len(names) and not after.is_doubtful
            if is_told and may_go_on(after.members, present, rules) and may_go_on(before.members, voters, rules):
                found.append(after.id)
    return found


def _was_up(member: str, lives: dict[str, LifeSpan], from_ns: int, to_ns: int) -> bool:
    """Whether a life, or one that has what it kept, was up at some time between these."""
    name = member
    while name:
        life = lives.get(name)
        if life is not None and life.began_ns <= to_ns and life.ended_ns >= from_ns:
            return True
        name = next((each.member for each in lives.values() if each.former == name), "")
    return False


def _parts(views: dict[str, InstalledView], rules: Rules) -> list[str]:
    texts: list[str] = []
    ends = [view for view in views.values() if view.reason in FAILURES]
    lines = {view.id: chain_of(views, view.id) for view in ends}
    for left, right in combinations(ends, 2):
        if RESTART not in (left.reason, right.reason) or left.id in lines[right.id] or right.id in lines[left.id]:
            continue
        common = lines[left.id] & lines[right.id]
        if not common:
            continue
        behind = max(common, key=lambda name: (views[name].first_ns, name))
        if is_strict(views[behind].members, rules):
            texts.append(
                f"restart: view {behind} was followed by {left.id} ({left.reason}: {' '.join(left.members)}) and by "
                f"{right.id} ({right.reason}: {' '.join(right.members)})"
            )
    return texts


def _too_few(
    rows: Iterable[Row],
    views: dict[str, InstalledView],
    lives: dict[str, LifeSpan],
    rules: Rules,
    expulsions: Sequence[Expulsion],
    resets: Sequence[ResetSpan],
) -> list[str]:
    told = _told_expelled(rows)
    texts: list[str] = []
    for view in views.values():
        if view.reason != RESTART or not view.before:
            continue
        last = max([views[name] for name in view.before], key=lambda each: each.first_ns)
        names = {member.rpartition("/")[0] for member in view.members}
        # A member that asked to leave and did not come back, or was expelled, may be out of a view that nobody has
        # delivered. One that was expelled from the last view may learn only with this one that this is decided.
        expelled = {member for member, at_ns, left in told if at_ns < view.first_ns or left == last.id}
        asked = {
            member
            for member in last.members
            if member in expelled or (member in lives and _has_asked_to_leave(lives[member], view))
        }
        present = [member for member in last.members if member.rpartition("/")[0] in names]
        stayed = tuple(member for member in last.members if member in present or member not in asked)
        ways = [last.members, stayed]
        for member in [each for each in stayed if each not in present]:
            # Its expulsion may be the last change, which nobody has delivered. Then its vote was needed as well.
            is_voter = _may_vote_out(member, last, view, lives, expulsions)
            if is_voter and may_go_on(last.members, [*present, member], rules):
                ways.append(tuple(each for each in stayed if each != member))
        asked_for = [
            reset.rule
            for reset in resets
            if reset.size == len(view.members) and reset.begin_ns <= view.first_ns <= reset.end_ns
        ]
        if present and any(may_go_on(last.members, present, rule) for rule in asked_for):
            continue
        if not present or not any(may_go_on(way, present, rules) for way in ways):
            texts.append(
                f"restart: {view.id} ({' '.join(view.members)}) went on from {last.id} ({' '.join(last.members)}), and "
                "these are not enough of its members"
            )
    return texts


def _told_expelled(rows: Iterable[Row]) -> list[tuple[str, int, str | None]]:
    """Members that were told that the group has put them out, when, and in which view they were."""
    return [
        (f"{row.node}/{row.life}", row.at_ns, row.view)
        for row in rows
        if row.kind == "leave" and row.group is None and (row.detail or "").startswith(EXPELLED)
    ]


def _may_vote_out(
    member: str,
    last: InstalledView,
    view: InstalledView,
    lives: dict[str, LifeSpan],
    expulsions: Iterable[Expulsion],
) -> bool:
    """Whether a member may have been put out of the last view, and was up for the view after it all the same. Where
    another asked for it, it may have crashed before that, and be back with its folder: a crash is noticed later."""
    life = lives.get(member)
    if life is None or not _was_up(member, lives, view.first_ns, view.first_ns):
        return False
    node = member.rpartition("/")[0]
    return any(
        each.node == node
        and life.began_ns < each.end_ns
        and last.first_ns <= each.end_ns
        and each.begin_ns <= (view.first_ns if each.is_asked else min(life.ended_ns, view.first_ns))
        for each in expulsions
    )


def _left_behind(
    rows: Iterable[Row],
    views: dict[str, InstalledView],
    lives: dict[str, LifeSpan],
    troubles: Sequence[Trouble],
    wait_ns: int,
    expulsions: Sequence[Expulsion],
    kept: Sequence[KeptView],
) -> list[str]:
    """Members of a view that restarted ones went on from without them, although they could be heard."""
    went_ns: dict[str, int] = {}  # when a member was out of the group first
    for row in rows:
        if row.kind == "leave" and row.group is None:
            went_ns.setdefault(f"{row.node}/{row.life}", row.at_ns)
    came_ns = _came_ns(rows)
    expelled = {(member, left) for member, _, left in _told_expelled(rows)}
    texts: list[str] = []
    for view in views.values():
        if view.reason != RESTART or not view.by:
            continue  # in one that nobody has installed nobody has gone on
        since_ns = view.first_ns - wait_ns - SLACK_NS
        for before in view.before:
            for member in views[before].members:
                life = lives.get(member)
                if life is None or member in view.members or not life.began_ns < since_ns:
                    continue
                has_left = _has_asked_to_leave(life, view)
                is_away = went_ns.get(member, view.first_ns) < view.first_ns
                if _went_elsewhere(member, views, before, view):
                    continue
                if _came_last(member, views[before], came_ns.get((member, before), 0), since_ns, lives):
                    continue
                is_put_out = (member, before) in expelled or _is_stored_without(member, views[before], view, kept)
                if is_put_out and _may_vote_out(member, views[before], view, lives, expulsions):
                    continue  # its expulsion was the last change, and this view decided it
                if life.ended_ns <= view.first_ns or has_left or is_away or views[before].first_ns > since_ns:
                    continue
                if _is_troubled(troubles, since_ns, view.first_ns):
                    continue
                texts.append(f"restart: {view.id} went on from {before} without {member}, which was up and heard")
    return texts


def _went_elsewhere(member: str, views: dict[str, InstalledView], before: str, view: InstalledView) -> bool:
    """Whether a newcomer never learned that it had been let in, and was in another group of the name afterwards: it
    holds nothing that the restarted members could miss."""
    last = views[before]
    if member in last.by:
        return False
    since = [each for each in views.values() if member in each.by and last.first_ns < each.first_ns < view.first_ns]
    return bool(since) and all(before not in chain_of(views, each.id) for each in since)


def _came_ns(rows: Iterable[Row]) -> dict[tuple[str, str], int]:
    """When a member that was in no view installed one: by both."""
    inside: set[str] = set()
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        member = f"{row.node}/{row.life}"
        if row.group is not None or row.kind not in ("view", "leave"):
            continue
        if row.kind == "leave":
            inside.discard(member)
        elif member not in inside:
            inside.add(member)
            found[member, row.view or ""] = row.at_ns
    return found


def _came_last(member: str, last: InstalledView, came_ns: int, since_ns: int, lives: dict[str, LifeSpan]) -> bool:
    """Whether a newcomer learned that it had been let in when all others of that view had crashed: a restarted member
    has told it, and it has nothing of what they delivered. That was after `since_ns`: it was no member before."""
    others = [lives[each] for each in last.members if each != member and each in lives]
    return last.reason == "join" and came_ns > since_ns and all(life.ended_ns < came_ns for life in others)


def _is_stored_without(member: str, last: InstalledView, view: InstalledView, kept: Iterable[KeptView]) -> bool:
    """Whether a node that is in a view came back with the last one as an expulsion of that member has left it. Nobody
    else may have received that, the expelled one included."""
    names = {each.rpartition("/")[0] for each in view.members}
    entries = {  # the last of each node
        each.node: each for each in kept if each.node in names and each.at_ns < view.first_ns and each.id != view.id
    }
    without = tuple(each for each in last.members if each != member)
    return any(
        each.reason == "expel" and each.members == without and each.at_ns >= last.first_ns for each in entries.values()
    )


def _has_asked_to_leave(life: LifeSpan, view: InstalledView) -> bool:
    """Whether it did so before the view."""
    return any(not wish.is_join and wish.at_ns <= view.first_ns for wish in life.wishes)


def _is_troubled(troubles: Sequence[Trouble], from_ns: int, to_ns: int) -> bool:
    """Whether something may have kept any two from hearing each other."""
    return any(trouble.begin_ns <= to_ns and trouble.end_ns >= from_ns for trouble in troubles)
