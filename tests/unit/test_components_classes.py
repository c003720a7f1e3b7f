"""How a view of sites ends (`membership/components/`), against the definitions: classes, H, S, signal, remainder,
roster groups, the next view."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import InvariantViolation
from ordercast.membership.components.classes import (
    classes_of,
    conclude,
    first_lts,
    holders,
    lacks,
    lineage_after,
    next_counter,
    roster_groups,
)
from ordercast.orderers.sites.horizon import Horizon
from ordercast.orderers.sites.stream import Held
from ordercast.service import AGREED_RANK, SAFE_RANK
from ordercast.wire.cuts import Ballot, Class, Cut, Lineage, Listed, Remainder, Result, Skip, ViewId

VIEW = ViewId(4, 1)
OTHER_VIEW = ViewId(5, 2)
BALLOT = Ballot(7, 1)
FIRST = Listed(0, 1, AGREED_RANK, 0, 0)


def cut_of(daemon: int, horizon: Horizon, view: ViewId = VIEW, **changes: object) -> Cut:
    cut = Cut(
        daemon,
        horizon.site,
        view,
        horizon.sites,
        horizon.cuts(),
        horizon.arus(),
        horizon.delivered,
        horizon.clock,
        True,
        Lineage(view, None),
        None,
    )
    return cut._replace(**changes)  # type: ignore[arg-type]


def block(site: int, seq: int, lts: int, origin: int, mask: int = 0b111, rank: int = AGREED_RANK) -> Held:
    return Held(site, seq, lts, rank, origin, mask)


def three() -> list[Horizon]:
    """Daemons 0, 1, 2 in sites 0, 1, 2 of one view whose clocks begin at 1."""
    return [Horizon(site, (0, 1, 2), 1) for site in range(3)]


def told(horizons: list[Horizon]) -> list[Cut]:
    return [cut_of(daemon, horizon) for daemon, horizon in enumerate(horizons)]


def names(result: Result) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    before, after = result.remainder
    return [(due.site, due.seq) for due in before], [(due.site, due.seq) for due in after]


# ---- single rules


def test_what_one_holds_all_get_up_to_the_horizon_of_the_class() -> None:
    daemons = three()
    daemons[0].add(block(2, 1, 5, 2))
    for daemon in daemons[:2]:
        daemon.update(0, 0, 6, 1)
        daemon.update(1, 0, 6, 1)
    (only,) = classes_of(BALLOT, told(daemons[:2]))
    assert only.members == (0, 1)
    assert only.result.horizon == 5
    assert names(only.result) == ([(2, 1)], [])
    assert [due.seq for due in lacks(cut_of(1, daemons[1]), only.result.remainder)] == [1]
    assert lacks(cut_of(0, daemons[0]), only.result.remainder) == []
    assert holders(VIEW, told(daemons[:2])) == {(2, 1): [0]}


def test_beyond_the_horizon_only_the_blocks_of_the_class_are_delivered_after_the_signal() -> None:
    daemons = three()
    daemons[0].add(block(0, 1, 5, 0))
    daemons[0].add(block(2, 1, 6, 2))
    (only,) = classes_of(BALLOT, told(daemons[:2]))
    assert only.result.horizon == 1
    assert names(only.result) == ([], [(0, 1)])


def test_the_signal_stands_before_a_safe_block_that_a_lost_site_may_lack() -> None:
    daemons = three()
    for daemon in daemons[:2]:
        daemon.add(block(0, 1, 5, 0))
        daemon.add(block(0, 2, 6, 0, rank=SAFE_RANK))
        daemon.add(block(0, 3, 7, 0))
        for site in range(3):
            daemon.update(site, 0 if site else 3, 9, 9 if site < 2 else 5)
    (only,) = classes_of(BALLOT, told(daemons[:2]))
    assert (only.result.horizon, only.result.stable) == (9, 5)
    assert names(only.result) == ([(0, 1)], [(0, 2), (0, 3)])
    daemons[1].raise_aru(2, 6)
    (only,) = classes_of(BALLOT, told(daemons[:2]))
    assert names(only.result) == ([(0, 1), (0, 2), (0, 3)], [])


def test_a_skip_helps_only_sites_that_its_blocks_are_not_destined_to() -> None:
    daemons = three()
    daemons[0].skip(2, Skip(1, 1, 5, 0b110, 0))
    daemons[0].add(block(2, 2, 6, 2))
    for daemon in daemons[:2]:
        daemon.update(0, 0, 9, 1)
        daemon.update(1, 0, 9, 1)
    (only,) = classes_of(BALLOT, told(daemons[:2]))  # site 1 should have got block 1, which nobody here holds
    assert only.result.horizon == 1


def test_a_class_splits_from_those_that_cannot_follow() -> None:
    daemons = three()
    daemons[0].skip(2, Skip(1, 1, 5, 0b110, 0))
    daemons[0].add(block(2, 2, 6, 2))
    daemons[0].update(0, 0, 9, 1)
    daemons[0].update(1, 0, 9, 1)
    assert [each.seq for each in daemons[0].take(9)] == [2]
    first, second = classes_of(BALLOT, told(daemons[:2]))
    assert (first.members, first.result.horizon) == ((0,), 6)
    assert (second.members, second.result.horizon) == ((1,), 1)
    assert first.result.id != second.result.id


def test_bound_members_keep_their_result_and_unbound_ones_form_classes_anew() -> None:
    cuts = told(three())
    bound = classes_of(Ballot(6, 2), cuts)[0].result
    classes = classes_of(BALLOT, [cuts[0]._replace(bound=bound), cuts[1], cuts[2]._replace(bound=bound)])
    assert [each.members for each in classes] == [(0, 2), (1,)]
    assert classes[0].result is bound
    assert classes[1].result.id.ballot == BALLOT


def test_views_never_share_a_class() -> None:
    cuts = told(three())
    cuts[1] = cuts[1]._replace(view=OTHER_VIEW)
    assert [each.members for each in classes_of(BALLOT, cuts)] == [(0, 2), (1,)]


def test_the_next_view_begins_above_everything_that_anybody_spoke_of() -> None:
    cuts = told(three())
    assert first_lts(cuts) == 2
    source = cuts[1].sources[0]
    held = Result(classes_of(BALLOT, cuts)[0].result.id, (0,), 1, 1, Remainder((), ()))
    for changed, lts in (
        (cuts[1]._replace(clock=50), 51),
        (cuts[1]._replace(arus=(1, 60, 1)), 61),
        (cuts[1]._replace(sources=(source._replace(blocks=(Listed(3, 70, 4, 1, 7),)), *cuts[1].sources[1:])), 71),
        (cuts[1]._replace(sources=(source._replace(skips=(Skip(3, 3, 80, 1, 0),)), *cuts[1].sources[1:])), 81),
        (cuts[1]._replace(sources=(source._replace(promises=((9, 90),)), *cuts[1].sources[1:])), 91),
        (cuts[1]._replace(bound=held), 2),
    ):
        assert first_lts([cuts[0], changed, cuts[2]]) == lts


def test_the_counter_is_above_all_views_and_the_ballot() -> None:
    cuts = told(three())
    assert next_counter(Ballot(2, 0), cuts) == 5
    assert next_counter(Ballot(9, 0), cuts) == 10
    assert next_counter(Ballot(2, 0), [cuts[0]._replace(view=OTHER_VIEW), cuts[1]]) == 6


def test_roster_groups_are_classes_with_a_synced_member_and_lineages_otherwise() -> None:
    cuts = [cut._replace(is_synced=False) for cut in told(three())]
    cuts[1] = cuts[1]._replace(lineage=Lineage(OTHER_VIEW, None))
    classes = classes_of(BALLOT, cuts)
    assert roster_groups(classes, cuts) == ((0, 2), (1,))
    cuts[2] = cuts[2]._replace(is_synced=True)
    assert roster_groups(classes, cuts) == ((0, 1, 2),)


def test_a_lineage_is_the_last_view_in_sync_and_the_class_that_left_it() -> None:
    cut = told(three())[0]
    result = classes_of(BALLOT, [cut])[0].result
    assert lineage_after(cut, result) == Lineage(VIEW, result.id)
    assert lineage_after(cut._replace(is_synced=False), result) == cut.lineage


def test_a_delivery_that_nobody_can_reach_is_our_own_bug() -> None:
    with pytest.raises(InvariantViolation):
        classes_of(BALLOT, [told(three())[0]._replace(delivered=50)])


# ---- against the definitions, word by word


class Truth(NamedTuple):
    """A stream as it was stamped, and UPDATEs."""

    blocks: list[Held]
    promises: list[tuple[int, int]]


def _history(chance: Random) -> tuple[list[Truth], list[Horizon]]:
    """Three streams, and four daemons in three sites that have got some of them."""
    truths = []
    for site in range(3):
        lts, blocks = 1, []
        for seq in range(1, chance.randint(1, 6)):
            lts += chance.randint(1, 4)
            mask = chance.randint(0, 7) | 1 << site
            rank = chance.choice((AGREED_RANK, SAFE_RANK))
            blocks.append(block(site, seq, lts, chance.choice((site, site + 3 if site == 0 else site)), mask, rank))
        truths.append(Truth(blocks, [(len(blocks), lts + chance.randint(0, 9))]))
    horizons = [Horizon(site, (0, 1, 2), 1) for site in (0, 1, 2, 0)]
    for horizon in horizons:
        for source, truth in enumerate(truths):
            for each in truth.blocks:
                if chance.random() < 0.75:
                    _pass_on(horizon, each)
            if chance.random() < 0.6:
                seq, clock = truth.promises[0]
                horizon.update(source, seq, clock, 1)
    line = min(horizon.horizon for horizon in horizons)
    for horizon in horizons:
        if chance.random() < 0.5:
            horizon.raise_stable(chance.randint(1, line))
        horizon.take(chance.choice((0, 1, 99)))
        if chance.random() < 0.5:
            horizon.release()
    return truths, horizons


def _pass_on(horizon: Horizon, each: Held) -> None:
    if each.mask >> horizon.site & 1:
        horizon.add(block(each.site, each.seq, each.lts, each.origin, each.mask, each.rank))
    else:
        horizon.skip(each.site, each.as_skip())


def _reach(truths: list[Truth], cuts: list[Cut], site: int) -> int:
    """H_t by its definition, from the cuts and what the view has stamped."""
    clocks = []
    for source, truth in enumerate(truths):
        mine = [cut.sources[source] for cut in cuts]
        held = {each.seq for cut in mine for each in cut.blocks}
        stable = max(cut.released for cut in mine)
        skipped = {
            seq for cut in mine for skip in cut.skips for seq in range(skip.first, skip.upto + 1)
            if not skip.mask >> site & 1
        }  # fmt: skip
        run = 0
        while run + 1 <= stable or run + 1 in held or run + 1 in skipped:
            run += 1
        known = {0: 1} | {each.seq: each.lts for each in truth.blocks if each.seq in held}
        found = [clock for seq, clock in known.items() if seq <= run]
        found += [skip.lts for cut in mine for skip in cut.skips if skip.upto <= run]
        found += [cut.clock for cut in mine if cut.prefix <= run]
        found += [clock for cut in mine for seq, clock in cut.promises if seq <= run]
        clocks.append(max(found))
    return min(clocks)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_classes_are_as_defined(chance: Random) -> None:
    truths, horizons = _history(chance)
    here = sorted(chance.sample(range(4), chance.randint(1, 4)))
    cuts = [cut_of(daemon, horizons[daemon]) for daemon in here]
    classes = classes_of(BALLOT, chance.sample(cuts, len(cuts)))
    assert sorted(daemon for each in classes for daemon in each.members) == here
    stable = min(max(cut.arus[site] for cut in cuts) for site in range(3))
    reach = {cut.daemon: _reach(truths, cuts, cut.site) for cut in cuts}
    delivered = {cut.daemon: cut.delivered for cut in cuts}
    held = {(due[0], due[1]) for due in holders(VIEW, cuts)}
    left = set(here)
    for each in classes:
        members, result = set(each.members), each.result
        furthest = max(delivered[daemon] for daemon in left)
        whole = min(reach[daemon] for daemon in left)
        assert members == (left if furthest <= whole else {daemon for daemon in left if reach[daemon] >= furthest})
        left -= members
        assert result.horizon == min(reach[daemon] for daemon in members)
        assert result.stable == stable
        _check_remainder(truths, held, cuts, each)


def _check_remainder(truths: list[Truth], held: set[tuple[int, int]], cuts: list[Cut], each: Class) -> None:
    sites = {cut.site for cut in cuts if cut.daemon in each.members}
    horizon, stable = each.result.horizon, each.result.stable
    everything = sorted((item for truth in truths for item in truth.blocks), key=lambda item: (item.lts, item.site))
    done = min(cut.delivered for cut in cuts if cut.daemon in each.members)
    wanted = [
        item
        for item in everything
        if (item.site, item.seq) in held
        and any(item.mask >> site & 1 for site in sites)
        and (item.lts <= horizon or item.origin in each.members)
        and item.lts >= done
    ]
    before = []
    for item in wanted:
        if item.lts > horizon or (item.rank == SAFE_RANK and item.lts > stable):
            break
        before.append((item.site, item.seq))
    after = [(item.site, item.seq) for item in wanted[len(before) :]]
    assert names(each.result) == (before, after)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_member_can_settle_its_remainder_from_what_the_others_hold(chance: Random) -> None:
    """And what it has delivered before the signal stands before the signal of its class."""
    _, horizons = _history(chance)
    cuts = [cut_of(daemon, horizon) for daemon, horizon in enumerate(horizons)]
    outcome = conclude(BALLOT, cuts)
    assert outcome.first_lts > max(
        each.lts for cut in cuts for source in cut.sources for each in source.blocks or [FIRST]
    )
    who = holders(VIEW, cuts)
    for each in outcome.classes:
        before, after = each.result.remainder
        for daemon in each.members:
            horizon = horizons[daemon]
            if after:
                assert horizon.delivered <= after[0].lts
            for due in horizon.lacking([*before, *after]):
                giver = horizons[who[due.site, due.seq][0]].streams[due.site].held[due.seq]
                assert horizon.add(block(due.site, due.seq, giver.lts, giver.origin, giver.mask, giver.rank))
            got = horizon.settle(before) + horizon.settle(after)
            assert [item.lts for item in got] == sorted(item.lts for item in got)
