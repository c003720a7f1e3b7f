"""Property regional: what a region promises instead of virtual synchrony (QSM sections 2.3 and 2.3.3).

Reading.

- *Survivors* of a region view are those that installed it and whose stay is open at the end. At a quiet end they
  delivered alike: what one of them delivered in the view, each other one to whom it is owed (`region_records.py`)
  delivered too, or was told that it is lost.
- If the sender lives and is a member of the view, they delivered, or were told to be lost, everything that it carried
  there. (`lanes.py` says it of senders outside.)
- A delivery names the view whose lane carried the message.
- *Lost* is told of blocks that the lane has. Nothing is both lost and delivered at one life. A loss is legal where the
  sender has gone from the stay in which it sent, or a member of the view has gone: somebody had to take the last copy
  along. Of what was confirmed to the sender a member has to have gone. Which members keep a block is not in the trace,
  so that one of them is enough here; `all or nothing while a cacher lives` is more.
"""

from __future__ import annotations

from ordercast.service import RELIABLE_RANK
from ordercast.sim.checkers.ranges import Range, merged, subtract
from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.region_records import Attendee, CarriedMessages, LostBlocks, RegionalTrace
from ordercast.sim.checkers.region_views import is_within
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text

NAME = "regional"


def check(regional: RegionalTrace, explained: Explained | None = None, *, quiet: bool = True) -> PropertyResult:
    """Judge deliveries and losses in region views; what is missing, at a quiet end only."""
    result = PropertyResult(NAME, "messages owed to members, and losses")
    explained = explained if explained is not None else Explained()
    for life in regional.lives.values():
        _check_views(life, result)
        _check_both(life, result)
        for loss in life.losses:
            if is_within(life, loss):
                _check_loss(regional, life, loss, result)
    if not quiet:
        result.note = "the run did not end quietly: what is missing was not judged"
        return result
    had = _had_by_survivors(regional)
    for region, sender in regional.sent:
        _check_alike(regional, region, sender, had, result, explained)
    return result


def _had_by_survivors(regional: RegionalTrace) -> dict[CarriedMessages, list[Range]]:
    found: dict[CarriedMessages, list[Range]] = {}
    for life in regional.lives.values():
        for piece in life.pieces:
            install = life.views.get((piece.sent.region, piece.sent.view))
            if install is not None and life.survives(install.stay):
                found.setdefault(piece.sent, []).append(piece.span)
    return {sent: merged(spans) for sent, spans in found.items()}


def _check_views(life: Attendee, result: PropertyResult) -> None:
    for piece in life.pieces:
        result.checked += 1
        if piece.given.view != piece.sent.view and is_within(life, piece.given):
            result.report(
                f"{life.member} delivered {span_text(piece.sent.sender, piece.span)} at n={piece.given.n} in view "
                f"{piece.given.view}, though its sender carried it in view {piece.sent.view}",
                member=life.member,
                other=piece.sent.sender,
                sender=piece.sent.sender,
                span=piece.span,
                view=piece.given.view,
            )


def _check_both(life: Attendee, result: PropertyResult) -> None:
    if not life.lost:
        return
    for piece in life.pieces:
        kept = life.lacks(piece.sent, [piece.span])
        for span in subtract([piece.span], kept):
            result.report(
                f"{life.member} delivered {span_text(piece.sent.sender, span)} at n={piece.given.n}, and was told that "
                "it is lost",
                member=life.member,
                other=piece.sent.sender,
                sender=piece.sent.sender,
                span=span,
                view=piece.sent.view,
            )


def _check_loss(regional: RegionalTrace, life: Attendee, loss: LostBlocks, result: PropertyResult) -> None:
    result.checked += 1
    members = regional.views[loss.region, loss.view]
    last = regional.lanes.get((loss.region, loss.view, loss.sender), 0)
    has_lost_members = any(regional.has_ended(member, loss.region, loss.view) for member in members)
    if loss.stop - 1 > last:
        what = f"of which the last is {last}"
    elif not has_lost_members and not _has_gone(regional, loss):
        what = "though the sender and all members of the view are still there"
    elif not has_lost_members and _was_confirmed(regional, loss):
        what = "which held messages that were confirmed, though all members of the view are still there"
    else:
        return
    result.report(
        f"{life.member} was told at n={loss.n} that blocks {loss.first} to {loss.stop - 1} of {loss.sender} are lost "
        f"in view {loss.view} of {loss.region}, {what}",
        member=life.member,
        other=loss.sender,
        sender=loss.sender,
        span=(loss.first, loss.stop),
        view=loss.view,
    )


def _lost_in(regional: RegionalTrace, loss: LostBlocks) -> list[CarriedMessages]:
    return [
        sent
        for sent in regional.sent.get((loss.region, loss.sender), ())
        if sent.view == loss.view and sent.block is not None and loss.first <= sent.block < loss.stop
    ]


def _has_gone(regional: RegionalTrace, loss: LostBlocks) -> bool:
    source = regional.lives.get(loss.sender)
    if source is None:
        return False
    stays = {sent.stay for sent in regional.sent.get((loss.region, loss.sender), ()) if sent.view == loss.view}
    return any(not source.survives(stay) for stay in stays) or not stays


def _was_confirmed(regional: RegionalTrace, loss: LostBlocks) -> bool:
    source = regional.lives.get(loss.sender)
    confirmed = source.confirmed.get(loss.region) if source is not None else None
    if confirmed is None:
        return False
    return any(
        confirmed.missing(sent.first, sent.stop) != [(sent.first, sent.stop)] for sent in _lost_in(regional, loss)
    )


def _check_alike(
    regional: RegionalTrace,
    region: str,
    sender: str,
    had: dict[CarriedMessages, list[Range]],
    result: PropertyResult,
    explained: Explained,
) -> None:
    source = regional.lives[sender]
    for life, install, sent, until in regional.owed(region, sender, RELIABLE_RANK):
        if until != FOREVER or not life.survives(install.stay):
            continue
        is_everything = sender in install.members and source.survives(sent.stay)
        due = [(sent.first, sent.stop)] if is_everything else had.get(sent, [])
        result.checked += sum(stop - first for first, stop in due)
        lacking = regional.missing(life, sent)
        missing = subtract(lacking, subtract(lacking, due))
        for span in explained.unexplained(life.member, region, sender, missing):
            explained.add_missing(life.member, region, sender, [span])
            why = "its sender lives" if is_everything else "another survivor delivered it"
            result.report(
                f"{life.member} never delivered {span_text(sender, span)} of {region}, and was not told that it is "
                f"lost, though it is in view {sent.view} to the end and {why}",
                member=life.member,
                other=sender,
                sender=sender,
                span=span,
                view=sent.view,
            )
