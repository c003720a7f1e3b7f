"""What an underlay tells: views and ends as this node sees them, silence about some rings, and a line for people."""

from __future__ import annotations

from dataclasses import replace

from ordercast.engine import Departed, Outbox, Refused, Reset, Upcall
from ordercast.membership.policy import Excluded, Membership, Silence
from ordercast.orderers import LoggedOrderer
from ordercast.underlay.vacancy import Vacancy
from ordercast.view import Member, View


def view_after(previous: View | None, view: View, me: Member) -> View:
    """A view that was ordered, with the members that came along from the one before."""
    if previous is None:
        came_with: tuple[str, ...] = (str(me),)
    else:
        came_with = tuple(str(member) for member in view.members if previous.member(member.id))
    return replace(view, came_with=came_with)


def exclusion(excluded: Excluded, has_view: bool) -> list[Upcall]:
    """What the application hears of an exclusion: first what its calls of reset() come to."""
    why = excluded.why.value
    found: list[Upcall] = [Reset(0, why, rule) for rule in excluded.resets]
    if has_view or not excluded.is_returning:
        found.append(Departed(excluded.was_leaving, excluded.is_returning, why))
    return found


def hush(first: int, before: Silence, now: Silence, out: Outbox) -> None:
    """Keep the upcalls from `first` on from an application that is to hear nothing of a ring. It hears that it was
    refused, and everything up to the word that it has left."""
    if before is Silence.NONE and now is Silence.SERVING:
        return  # the last upcall is that word
    if now is not Silence.NONE or before is not Silence.NONE:
        out.upcalls[first:] = [each for each in out.upcalls[first:] if isinstance(each, Refused)]


def described(view: View | None, membership: Membership[LoggedOrderer], orderer: LoggedOrderer | Vacancy) -> str:
    """One line for people: where an engine is."""
    text = f"{membership.phase.name.lower()}, {membership.state}, {view.id if view is not None else 'no view'}"
    if isinstance(orderer, Vacancy):
        return text
    log = orderer.log
    return f"{text}, received {log.received} of {log.highest}, stable {log.stable}"
