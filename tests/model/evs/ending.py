"""How a round ends: the core's `conclude`, with switches that spoil the cuts or the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.evs.rules import Rules

from ordercast.membership.components.classes import classes_of, conclude, roster_groups, signal_index
from ordercast.service import AGREED_RANK
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.cuts import Ballot, Class, Cut, Due, Outcome, Remainder, SourceCut


def outcome_of(rules: Rules, ballot: Ballot, cuts: Sequence[Cut]) -> Outcome:
    """What the coordinator makes of a round."""
    spoilt = [_spoilt(rules, cut, cuts) for cut in cuts]
    outcome = conclude(ballot, spoilt)
    if not rules.cover:
        classes = tuple(_reached(each, cuts) for each in classes_of(ballot, [_undelivered(cut) for cut in spoilt]))
        outcome = outcome._replace(classes=classes, roster_groups=roster_groups(classes, cuts))
    if not rules.lineage:
        outcome = outcome._replace(roster_groups=tuple(sorted(each.members for each in outcome.classes)))
    if not rules.above_all:
        highest = max(source.clock for cut in cuts for source in cut.sources)
        outcome = outcome._replace(first_lts=highest + 1)
    if not rules.counter_of_all:
        own = next(cut for cut in cuts if cut.daemon == ballot.coordinator)
        outcome = outcome._replace(counter=own.view.counter + 1)
    return outcome


def _spoilt(rules: Rules, cut: Cut, cuts: Sequence[Cut]) -> Cut:
    """A cut without what a rule would look at."""
    if not rules.stay_bound:
        cut = cut._replace(bound=None)
    if not rules.split:
        cut = _undelivered(cut)
    if not rules.masked:
        cut = _with_sources(
            cut, [each._replace(skips=tuple(s._replace(mask=0) for s in each.skips)) for each in cut.sources]
        )
    if not rules.all_sites:
        present = {each.site for each in cuts if each.view == cut.view}
        arus = [aru if site in present else MAX_NUMBER for site, aru in zip(cut.sites, cut.arus, strict=True)]
        cut = cut._replace(arus=tuple(arus))
    if not rules.safe_signal:
        cut = _with_blocks(cut, rank=AGREED_RANK)
    if not rules.own_beyond:
        cut = _with_blocks(cut, origin=cut.daemon)
    return cut


def _undelivered(cut: Cut) -> Cut:
    return cut._replace(delivered=0)


def _with_sources(cut: Cut, sources: list[SourceCut]) -> Cut:
    return cut._replace(sources=tuple(sources))


def _with_blocks(cut: Cut, **values: int) -> Cut:
    return _with_sources(
        cut,
        [source._replace(blocks=tuple(block._replace(**values) for block in source.blocks)) for source in cut.sources],
    )


def _reached(each: Class, cuts: Sequence[Cut]) -> Class:
    """The same class with the naive H: for each source the furthest that a member has come, whatever the others get."""
    result = each.result
    pool = [cut for cut in cuts if cut.view == result.id.view]
    if any(cut.bound is not None and cut.bound.id == result.id for cut in pool):
        return each
    horizon = min(max(cut.sources[index].clock for cut in pool) for index in range(len(pool[0].sites)))
    mask = 0
    for cut in pool:
        mask |= (cut.daemon in each.members) << cut.site
    held = {
        Due(block.lts, source.site, block.seq, block.rank, block.origin, block.mask)
        for cut in pool
        for source in cut.sources
        for block in source.blocks
    }
    due = sorted(b for b in held if b.mask & mask and (b.lts <= horizon or b.origin in each.members))
    stop = signal_index(due, horizon, result.stable)
    remainder = Remainder(tuple(due[:stop]), tuple(due[stop:]))
    return Class(each.members, result._replace(horizon=horizon, remainder=remainder))
