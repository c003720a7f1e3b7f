"""Property group_fifo: messages of one sender to one group come in the order sent, across regions, views and moves.

A message that goes to two regions has a number in each; what both have in common is its serial, the count of what its
sender handed over. REGIONS: FIFO is per sender and group.

Reading.

- *Order*: per life, sender and group the serials of FIFO messages rise. A serial that comes again, by another region,
  does not rise. What is out of order by its numbers is fifo's.
- *Holes*: of two messages that a life delivered while it was in the group without interruption, everything between them
  that the sender carried to the group, in any region, is there, or was told to be lost: the life was in some region of
  the group all the time. A message counts for a group if the life was in it when it installed the view that carried
  the message: one that goes to several groups may come by another one, from a sender that does not know yet that the
  life is in this one, and owes it nothing to this one.
  Not what a sender carried in an earlier stay than the later one of the two: it was excluded in
  between, and its final count may lie below.
- What goes to several groups is judged in each, and reported once. Later properties do not report it again.
"""

from __future__ import annotations

from ordercast.service import FIFO_RANK
from ordercast.sim.checkers.ranges import Range, RangeSet, merged, subtract
from ordercast.sim.checkers.region_records import Attendee, CarriedMessages, GroupSpan, Piece, RegionalTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult

NAME = "group_fifo"


def check(regional: RegionalTrace, explained: Explained | None = None) -> PropertyResult:
    """Judge the order of each sender's messages to each group, at each life."""
    result = PropertyResult(NAME, "delivered ranges")
    explained = explained if explained is not None else Explained()
    sent_to: dict[tuple[str, str], list[CarriedMessages]] = {}
    for line in regional.sent.values():
        for sent in line:
            if sent.rank >= FIFO_RANK and sent.serial is not None:
                for group in sent.groups:
                    sent_to.setdefault((sent.sender, group), []).append(sent)
    for life in regional.lives.values():
        _Walk(regional, life, explained, result).check(sent_to)
    return result


class _Walk:
    """What one life delivered."""

    __slots__ = ("by_group", "explained", "have", "life", "regional", "reported", "result")

    def __init__(self, regional: RegionalTrace, life: Attendee, explained: Explained, result: PropertyResult) -> None:
        self.regional = regional
        self.life = life
        self.explained = explained
        self.result = result
        self.by_group: dict[tuple[str, str], list[Piece]] = {}
        self.have: dict[str, list[Range]] = {}  # serials, by sender
        self.reported: set[tuple[str, Range]] = set()

    def check(self, sent_to: dict[tuple[str, str], list[CarriedMessages]]) -> None:
        serials: dict[str, list[Range]] = {}
        for piece in self.life.pieces:
            found = piece.sent.serials(*piece.span)
            if found is None:
                continue
            serials.setdefault(piece.sent.sender, []).append(found)
            if piece.sent.rank >= FIFO_RANK:
                for group in piece.sent.groups:
                    self.by_group.setdefault((piece.sent.sender, group), []).append(piece)
        self.have = {sender: merged(spans) for sender, spans in serials.items()}
        for (sender, group), pieces in self.by_group.items():
            self._check_order(sender, group, pieces)
        for (sender, group), pieces in self.by_group.items():
            for span in self.life.spans.get(group, ()):
                within = [piece for piece in pieces if self.life.was_in(span, piece)]
                if len(within) > 1:
                    self._check_holes(sender, group, span, within, sent_to.get((sender, group), []))

    def _check_order(self, sender: str, group: str, pieces: list[Piece]) -> None:
        top = -1
        for piece in pieces:
            first, stop = piece.sent.serials(*piece.span) or (0, 0)
            self.result.checked += 1
            if first >= top:
                top = stop
                continue
            if id(piece) in self.explained.misordered:
                continue
            self.explained.misordered.add(id(piece))
            self.result.report(
                f"{self.life.member} delivered message {first} of {sender} to {group} at n={piece.given.n}, by "
                f"{piece.sent.region}, after message {top - 1}",
                member=self.life.member,
                other=sender,
                sender=sender,
                span=piece.span,
                view=piece.given.view,
            )

    def _check_holes(
        self, sender: str, group: str, span: GroupSpan, pieces: list[Piece], sent: list[CarriedMessages]
    ) -> None:
        spans = [(piece.sent.serials(*piece.span) or (0, 0), piece.sent.stay) for piece in pieces]
        low = min(first for (first, _), _ in spans)
        tops: dict[int, int] = {}  # by stay of the sender: the last serial that came
        for (_, stop), stay in spans:
            tops[stay] = max(tops.get(stay, 0), stop)
        holes, excused = RangeSet(), RangeSet()
        for one in sent:
            whole = one.serials(one.first, one.stop)
            high = tops.get(one.stay, 0)
            if whole is None or whole[1] <= low or whole[0] >= high:
                continue
            numbers = self.regional.missing(self.life, one)
            known = self.explained.unexplained(self.life.member, one.region, sender, numbers)
            for first, stop in subtract([(one.first, one.stop)], known):
                told = one.serials(first, stop) or (0, 0)
                excused.add(*told)  # delivered or lost by this region, or reported
            for first, stop in known:
                gap = one.serials(first, stop) or (0, 0)
                if max(gap[0], low) < min(gap[1], high):
                    holes.add(max(gap[0], low), min(gap[1], high))
        for hole in subtract(subtract(holes.ranges(), self.have.get(sender, [])), excused.ranges()):
            if (sender, hole) in self.reported:
                continue
            self.reported.add((sender, hole))
            self._explain(sender, hole, sent)
            self.result.report(
                f"{self.life.member} was in {group} from n={span.n} on and never got message {hole[0]} of {sender} to "
                f"it, though it delivered {low} and {max(tops.values()) - 1}",
                member=self.life.member,
                other=sender,
                sender=sender,
                span=hole,
            )

    def _explain(self, sender: str, hole: Range, sent: list[CarriedMessages]) -> None:
        for one in sent:
            first, stop = one.serials(one.first, one.stop) or (0, 0)
            low, high = max(first, hole[0]), min(stop, hole[1])
            if low < high:
                span = one.first + low - first, one.first + high - first
                self.explained.add_missing(self.life.member, one.region, sender, [span])
