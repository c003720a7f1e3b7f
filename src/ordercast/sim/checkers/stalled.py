"""Whether members say that they make no progress, and blame the right ones: out of the trace, lives and faults.

Nothing is asked of the engines. Three sentences:

- A wait of more than five seconds has a reason.
- At the end of a run that stands still every life that is up and waits has told so, and has not said since that it goes
  on. A life waits that wants to be in and has no view, or whose view names one that is not up or is elsewhere.
- An application is blamed for not receiving only if the scenario let it be late, and a member is counted as missing
  only if it is down, out, elsewhere or was in trouble, or if the group soon goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ordercast.config import SECOND
from ordercast.sim.checkers.stuck import LifeSpan, Trouble
from ordercast.trace.schema import Row

UNEXPLAINED: Final = "unexplained"
NOTICED_NS: Final = 10 * SECOND
"""So long after a life came into its last view, or asked to join, it has noticed that nothing goes on: silence at rest
is suspicious after 5 s, and a second without progress is told a quarter of a second late at most."""
BLAME_NS: Final = 3 * SECOND
"""So long after an application receives again, or a member answers again, others may not know of it."""


class LateApplication(NamedTuple):
    """A time in which the application on a node did not receive, or did it late."""

    node: str
    begin_ns: int
    end_ns: int


def stall_failures(
    rows: Iterable[Row],
    lives: Sequence[LifeSpan],
    troubles: Sequence[Trouble],
    late: Sequence[LateApplication],
    end_ns: int,
    *,
    is_stuck: bool,
) -> list[str]:
    """What is wrong with what members said about standing still. `is_stuck`: the run ended so, and may."""
    told = [row for row in rows if row.kind in ("stalled", "resumed", "view", "leave") and row.group is None]
    told.sort(key=lambda row: (row.at_ns, row.node, row.n))
    texts = _unexplained(told) + _wrongly_blamed(told, lives, troubles, late)
    return texts + (_silent(told, lives, end_ns) if is_stuck else [])


def _unexplained(rows: Iterable[Row]) -> list[str]:
    return [
        f"stalled: {row.node}/{row.life} has waited for 5 s at {row.at_ns / SECOND:.3f} s and knows no reason"
        for row in rows
        if row.kind == "stalled" and row.detail == UNEXPLAINED
    ]


def _silent(rows: Iterable[Row], lives: Sequence[LifeSpan], end_ns: int) -> list[str]:
    """Lives that wait at the end and do not say so."""
    up = {life.member: life for life in lives if life.is_up and life.is_wanted}
    views: dict[str, tuple[int, str, tuple[str, ...]]] = {}
    is_told: dict[str, bool] = {}
    for row in rows:
        member = f"{row.node}/{row.life}"
        if row.kind == "view":
            views[member] = (row.at_ns, row.view or "", row.members or ())
        elif row.kind == "leave":
            views[member] = (row.at_ns, "", ())
        else:
            is_told[member] = row.kind == "stalled"
    texts: list[str] = []
    for member, life in up.items():
        wishes = [wish.at_ns for wish in life.wishes]
        since_ns, view, members = views.get(member, (0, "", ()))
        since_ns = max([since_ns, life.began_ns, *wishes])
        is_whole = view and all(each in up and views.get(each, (0, "", ()))[1] == view for each in members)
        if not is_whole and end_ns - since_ns >= NOTICED_NS and not is_told.get(member, False):
            where = f"in {view}" if view else "outside"
            texts.append(f"stalled: {member} is {where} since {since_ns / SECOND:.3f} s and does not say that it waits")
    return texts


def _wrongly_blamed(
    told: Sequence[Row], lives: Sequence[LifeSpan], troubles: Sequence[Trouble], late: Sequence[LateApplication]
) -> list[str]:
    spans = {life.member: life for life in lives}
    views: dict[str, str] = {}
    texts: list[str] = []
    for row in told:
        reporter, at_ns = f"{row.node}/{row.life}", row.at_ns
        if row.kind in ("view", "leave"):
            views[reporter] = (row.view or "") if row.kind == "view" else ""
        if row.kind != "stalled":
            continue
        reason, _, named = (row.detail or "").partition(": ")
        for member in named.split(", ") if named else ():
            name, span = member.rpartition("/")[0], spans.get(member)
            if reason == "not_receiving":
                is_fair = any(each.node == name and each.begin_ns <= at_ns <= each.end_ns + BLAME_NS for each in late)
            elif reason == "no_quorum":
                is_fair = (
                    span is None
                    or not span.began_ns <= at_ns <= span.ended_ns
                    or views.get(member, "") != views.get(reporter, "")
                    or views.get(member) == ""  # it has left, and a reporter that was restarted has no view either
                    or any(name in each.nodes and _is_near(each, at_ns) for each in troubles)
                    or _is_left_behind(told, row, member)
                )
            else:
                continue
            if not is_fair:
                at = f"{reporter} at {at_ns / SECOND:.3f} s"
                texts.append(f"stalled: {at} says {reason} and blames {member}, which did nothing wrong")
    return texts


def _is_near(trouble: Trouble, at_ns: int) -> bool:
    return trouble.begin_ns <= at_ns <= trouble.end_ns + BLAME_NS


def _is_left_behind(told: Sequence[Row], row: Row, member: str) -> bool:
    """Whether the group soon went on without a member: on slow links answers come too late for a recovery."""
    return any(
        each.kind == "view"
        and (each.node, each.life) == (row.node, row.life)
        and row.at_ns <= each.at_ns <= row.at_ns + BLAME_NS
        and member not in (each.members or ())
        for each in told
    )
