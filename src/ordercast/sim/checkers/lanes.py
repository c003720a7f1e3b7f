"""Integrity, fifo and liveness of lanes: what one sender has in a region view, whether it is a member of it or not.

Reading of docs/trace.md for underlays `region/N`.

- *Integrity*: as everywhere, and a message was carried by a block of its sender before it is delivered. Rows name no
  groups; those of the `carry` row count, and the life is in one of them when it delivers.
- *Fifo*: numbers of FIFO messages rise per life, region and sender. There are no holes: what was owed to a life until
  it delivered a later number of the same lane, or of a later view of the region, is there or was told to be lost. A
  sender need not be a member. Numbers of an earlier stay of the sender are not owed: when it was excluded, its final
  count may have been below them.
- *Liveness*, at a quiet end. Everything that a living sender carried in a view that it is not a member of was delivered
  by every life that installed the view, is still there, and is in a group of it since before; or was told to be lost.
  (`regional` says it of senders that are members.) What a living sender submitted was carried.
"""

from __future__ import annotations

from ordercast.service import FIFO_RANK, RELIABLE_RANK
from ordercast.sim.checkers.ranges import merged, size_of, subtract
from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.region_records import Attendee, Piece, RegionalTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text


def check_integrity(regional: RegionalTrace, result: PropertyResult) -> None:
    """Report what the index rejected."""
    for life in regional.lives.values():
        result.checked += len(life.deliveries)
    for one in regional.rejected:
        result.report(
            f"{one.member} delivered {span_text(one.given.sender, one.span)} at n={one.given.n} in "
            f"{one.given.region}, {one.what}",
            member=one.member,
            other=one.other,
            sender=one.given.sender,
            span=one.span,
            view=one.given.view,
        )


def check_fifo(regional: RegionalTrace, result: PropertyResult, explained: Explained) -> None:
    """Judge the order of each lane at each life."""
    by_lane: dict[tuple[str, str, str], list[Piece]] = {}
    for life in regional.lives.values():
        for piece in life.pieces:
            if piece.sent.rank >= FIFO_RANK:
                by_lane.setdefault((life.member, piece.sent.region, piece.sent.sender), []).append(piece)
    for (member, region, sender), pieces in by_lane.items():
        last: Piece | None = None
        for piece in pieces:
            result.checked += 1
            if last is None or piece.first >= last.stop:
                last = piece
                continue
            explained.misordered.add(id(piece))
            explained.add_missing(member, region, sender, [piece.span])
            result.report(
                f"{member} delivered {span_text(sender, piece.span)} at n={piece.given.n} in {region} after "
                f"{span_text(sender, last.span)} at n={last.given.n}",
                member=member,
                other=sender,
                sender=sender,
                span=piece.span,
                view=piece.given.view,
            )
    for region, sender in regional.sent:
        for life, install, sent, until in regional.owed(region, sender, FIFO_RANK):
            later = by_lane.get((life.member, region, sender))
            if not later or later[-1].given.n < install.n:
                continue
            for hole in regional.missing(life, sent):
                after = _next_of(life, later, hole[1], sent.stay, install.stay, until)
                if after is None:
                    continue
                explained.add_missing(life.member, region, sender, [hole])
                result.report(
                    f"{life.member} delivered {span_text(sender, after.span)} at n={after.given.n} in {region} without "
                    f"{span_text(sender, hole)}, which goes to it, too",
                    member=life.member,
                    other=sender,
                    sender=sender,
                    span=hole,
                    view=sent.view,
                )


def _next_of(life: Attendee, pieces: list[Piece], number: int, sender_stay: int, stay: int, until: int) -> Piece | None:
    """A delivery of a later number, in the same stays, while the earlier one was owed."""
    return next(
        (
            piece
            for piece in pieces
            if piece.first >= number
            and piece.given.n < until
            and piece.sent.stay == sender_stay
            and life.stay(piece.given.n) == stay
        ),
        None,
    )


def check_liveness(regional: RegionalTrace, result: PropertyResult, explained: Explained) -> None:
    """Judge what senders outside a view had to get to its members by the end, and that lanes carried everything."""
    for region, sender in regional.sent:
        source = regional.lives[sender]
        for life, install, sent, until in regional.owed(region, sender, RELIABLE_RANK):
            if sender in install.members or not source.survives(sent.stay):
                continue
            if until != FOREVER or not life.survives(install.stay):
                continue
            result.checked += sent.stop - sent.first
            lacking = regional.missing(life, sent)
            for span in explained.unexplained(life.member, region, sender, lacking):
                result.report(
                    f"{life.member} never delivered {span_text(sender, span)} of {region}, though it was in view "
                    f"{sent.view}, the sender has a lane there, and the run ended quietly",
                    member=life.member,
                    other=sender,
                    sender=sender,
                    span=span,
                    view=sent.view,
                )
    for source in regional.lives.values():
        for region in source.submits:
            _check_carried(regional, source, region, result)


def _check_carried(regional: RegionalTrace, source: Attendee, region: str, result: PropertyResult) -> None:
    """A living sender carries what was submitted."""
    due = merged(
        (row.first or 0, (row.first or 0) + (row.count or 0))
        for row in source.submits[region]
        if row.service != "UNRELIABLE" and source.survives(source.stay(row.n))
    )
    result.checked += size_of(due)
    carried = merged((sent.first, sent.stop) for sent in regional.sent.get((region, source.member), ()))
    for span in subtract(due, carried):
        result.report(
            f"{source.member} submitted {span_text(source.member, span)} to {region}, and no block carried it, though "
            "it is still there and the run ended quietly",
            member=source.member,
            sender=source.member,
            span=span,
        )
