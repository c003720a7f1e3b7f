"""Streams of sites and the horizon over them, against their definitions (`orderers/sites/`)."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import InvariantViolation
from ordercast.orderers.sites.horizon import MIN_WINDOW, Horizon, window_of
from ordercast.orderers.sites.stream import Held, SourceStream
from ordercast.service import AGREED_RANK, FIFO_RANK, SAFE_RANK
from ordercast.wire.cuts import CUT_ENTRIES, MAX_PROMISES, Due, Skip, joined

HERE, THERE = 0, 1
BOTH = 0b11
WINDOW = 100


def held(seq: int, lts: int, rank: int = AGREED_RANK, site: int = THERE, origin: int = 7, mask: int = BOTH) -> Held:
    return Held(site, seq, lts, rank, origin, mask)


def pruned(seq: int, lts: int, is_safe: bool = False) -> Skip:
    return Skip(seq, seq, lts, 1 << THERE, lts if is_safe else 0)


def horizon(window: int = WINDOW) -> Horizon:
    """At a daemon of site 0, in a view with site 1 whose clocks begin at 1."""
    return Horizon(HERE, (HERE, THERE), 1, window)


def seqs(blocks: list[Held]) -> list[int]:
    return [block.seq for block in blocks]


# ---- prefix and justified clock


def test_an_update_counts_when_the_prefix_reaches_it() -> None:
    stream = SourceStream(THERE, 1, WINDOW)
    assert not stream.promise(2, 9)
    assert stream.add(held(2, 6))
    assert (stream.prefix, stream.clock) == (0, 1)
    assert stream.missing() == [(1, 2)]
    assert stream.add(held(1, 5))
    assert (stream.prefix, stream.clock) == (2, 9)
    assert stream.missing() == []


def test_a_stream_refuses_what_it_has_and_what_lies_beyond_its_window() -> None:
    stream = SourceStream(THERE, 1, 4)
    assert stream.add(held(1, 2))
    assert not stream.add(held(1, 2))
    assert stream.add(held(5, 9))
    assert not stream.add(held(5, 9))
    assert not stream.add(held(6, 10))
    assert not stream.skip(pruned(1, 2))
    assert not stream.skip(pruned(6, 10))
    assert not stream.skip(Skip(3, 2, 5, 1, 0))


def test_promises_beyond_the_prefix_are_bounded_and_the_newest_stay() -> None:
    stream = SourceStream(THERE, 1, WINDOW)
    for seq in range(2, MAX_PROMISES + 12):
        stream.promise(seq, 10 * seq)
    promises = stream.cut().promises
    assert len(promises) == MAX_PROMISES
    assert promises[-1] == (MAX_PROMISES + 11, 10 * (MAX_PROMISES + 11))


def test_overlapping_skips_close_the_gap_once() -> None:
    stream = SourceStream(THERE, 1, WINDOW)
    stream.skip(Skip(3, 5, 30, 2, 0))
    stream.skip(Skip(4, 8, 50, 2, 45))
    assert stream.prefix == 0
    stream.skip(Skip(1, 3, 20, 2, 0))
    assert (stream.prefix, stream.clock) == (8, 50)
    assert [(skip.first, skip.upto) for skip in stream.cut().skips] == [(1, 8)]


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_prefix_and_clock_are_as_defined_whatever_comes_in_which_order(chance: Random) -> None:
    count = chance.randint(1, 12)
    stamps = sorted(chance.sample(range(2, 60), count))
    stream = SourceStream(THERE, 1, WINDOW)
    known: set[int] = set()
    clocks = {0: 1}
    for _ in range(3 * count):
        seq = chance.randint(1, count)
        lts = stamps[seq - 1]
        match chance.randrange(3):
            case 0:
                stream.add(held(seq, lts))
                known.add(seq)
            case 1:
                first = chance.randint(max(1, seq - 3), seq)
                stream.skip(Skip(first, seq, lts, 1 << THERE, 0))
                known |= set(range(first, seq + 1))
            case 2:
                lts = chance.randint(lts, stamps[seq] - 1 if seq < count else 99)
                stream.promise(seq, lts)
        clocks[seq] = max(clocks.get(seq, 0), lts)
        prefix = next(each for each in range(count + 1) if each + 1 not in known)
        assert stream.prefix == prefix
        assert stream.clock == max(clock for each, clock in clocks.items() if each <= prefix)
        gaps = {each for first, stop in stream.missing() for each in range(first, stop)}
        assert gaps == set(range(1, max(clocks) + 1)) - known


# ---- SKIPs


def test_skips_join_only_where_nothing_is_lost() -> None:
    plain, safe = pruned(1, 5), pruned(2, 6, is_safe=True)
    assert joined(plain, safe) == Skip(1, 2, 6, 2, 6)
    assert joined(Skip(1, 2, 6, 2, 6), pruned(3, 7)) is None  # would wait for the stability of a block that needs none
    assert joined(Skip(1, 2, 6, 2, 6), pruned(3, 7, is_safe=True)) == Skip(1, 3, 7, 2, 6)
    assert joined(plain, pruned(3, 7)) is None
    assert joined(plain, pruned(2, 7)._replace(mask=4)) is None


def test_a_skip_that_is_destined_to_this_site_is_refused() -> None:
    assert not horizon().skip(THERE, Skip(1, 1, 5, BOTH, 0))
    assert not horizon().skip(9, pruned(1, 5))
    assert not horizon().add(held(1, 5, mask=1 << THERE))


def test_a_block_becomes_a_skip_that_says_whether_it_is_safe() -> None:
    assert held(3, 9, SAFE_RANK).as_skip() == Skip(3, 3, 9, BOTH, 9)
    assert held(3, 9).as_skip() == Skip(3, 3, 9, BOTH, 0)


# ---- delivery


def test_agreed_blocks_are_delivered_up_to_the_horizon_in_the_order_of_positions() -> None:
    both = horizon()
    both.add(held(1, 5))
    both.add(held(1, 3, site=HERE))
    both.add(held(2, 5, site=HERE))
    both.add(held(2, 8))
    assert [(block.lts, block.site) for block in both.take(9)] == [(3, HERE), (5, HERE), (5, THERE)]
    both.update(HERE, 2, 8, 1)
    assert [(block.lts, block.site) for block in both.take(9)] == [(8, THERE)]
    assert both.delivered == 8


def test_nobody_delivers_past_a_safe_block_above_the_stable_line() -> None:
    both = horizon()
    both.add(held(1, 5, SAFE_RANK))
    both.add(held(2, 6))
    both.update(HERE, 0, 9, 4)
    both.update(THERE, 2, 9, 4)
    assert both.take(9) == []
    both.raise_aru(HERE, 9)
    assert both.take(9) == []
    both.raise_aru(THERE, 5)
    assert seqs(both.take(9)) == [1, 2]


def test_a_skipped_safe_block_holds_up_as_well() -> None:
    both = horizon()
    both.skip(THERE, Skip(1, 3, 7, 1 << THERE, 6))
    both.add(held(4, 8))
    both.add(held(1, 5, site=HERE))
    both.update(HERE, 1, 9, 1)
    assert [block.lts for block in both.take(9)] == [5]
    both.raise_stable(6)
    assert both.take(9) == []
    both.raise_stable(7)
    assert [block.lts for block in both.take(9)] == [8]
    assert both.arus() == (7, 7)


def test_fifo_blocks_wait_only_for_ordered_ones_of_their_sender() -> None:
    both = horizon()
    both.add(held(1, 5, origin=7))
    both.add(held(2, 6, FIFO_RANK, origin=7))
    both.add(held(3, 7, FIFO_RANK, origin=8))
    both.add(held(5, 9, FIFO_RANK, origin=8))
    assert seqs(both.take(9)) == [3]
    both.update(HERE, 0, 5, 1)
    assert seqs(both.take(9)) == [1, 2]
    assert both.take(9) == []  # block 5 waits for block 4
    both.add(held(4, 8, origin=9))
    assert seqs(both.take(9)) == [5]


def test_a_block_that_was_delivered_on_arrival_is_not_delivered_again() -> None:
    both = horizon()
    block = held(1, 5, FIFO_RANK)
    block.is_delivered = True
    both.add(block)
    assert both.take(9) == []


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_take_is_as_defined(chance: Random) -> None:
    """Sort everything that is known, cut at the horizon, and at the first SAFE above the stable line."""
    both = horizon()
    known: dict[tuple[int, int], tuple[str, int]] = {}  # position -> kind, end of the wait
    left: list[tuple[int, Held | Skip]] = []
    for site in (HERE, THERE):
        lts = 1
        for seq in range(1, chance.randint(1, 7)):
            lts += chance.randint(1, 3)
            rank = chance.choice((AGREED_RANK, SAFE_RANK))
            block = held(seq, lts, rank, site)
            left.append((site, block if site == HERE or chance.random() < 0.6 else block.as_skip()._replace(mask=2)))
    for site in (HERE, THERE):  # coalesce some
        mine = [each for each in left if each[0] == site and not isinstance(each[1], Held)]
        for (_, a), (_, b) in pairwise(mine):
            one = joined(a, b) if isinstance(a, Skip) and isinstance(b, Skip) and chance.random() < 0.5 else None
            if one is not None and (site, a) in left:
                left.remove((site, a))
                left[left.index((site, b))] = (site, one)
                break
    chance.shuffle(left)
    got: list[tuple[int, int]] = []
    arus = {HERE: 1, THERE: 1}
    while left:
        site, item = left.pop()
        if isinstance(item, Held):
            both.add(item)
            known[item.lts, site] = ("SAFE" if item.rank == SAFE_RANK else "AGREED", item.lts)
        else:
            both.skip(site, item)
            if item.safe:
                known[item.safe, site] = ("skip", item.lts)
        raised = chance.choice((HERE, THERE))
        arus[raised] = max(arus[raised], chance.randint(1, 20))
        both.raise_aru(raised, arus[raised])
        got += [(block.lts, block.site) for block in both.take(chance.choice((1, 99)))]
        wanted = _defined(known, both.horizon, min(arus.values()))
        assert got == wanted[: len(got)]
        both.release()
    got += [(block.lts, block.site) for block in both.take(99)]
    assert got == _defined(known, both.horizon, min(arus.values()))


def _defined(known: dict[tuple[int, int], tuple[str, int]], upto: int, stable: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for position, (kind, end) in sorted(known.items()):
        if position[0] > upto or (kind != "AGREED" and end > stable):
            break
        if kind != "skip":
            found.append(position)
    return found


# ---- what is kept


def test_released_is_what_is_delivered_and_stable() -> None:
    both = horizon()
    for seq in range(1, 5):
        both.add(held(seq, 10 * seq))
    both.update(HERE, 0, 30, 20)
    both.update(THERE, 4, 40, 30)
    both.take(1)
    assert both.release() == 1
    both.take(9)
    assert both.release() == 1
    cut = both.cuts()[THERE]
    assert (cut.released, cut.prefix, [block.seq for block in cut.blocks]) == (2, 4, [3, 4])


def test_a_daemon_that_keeps_more_than_a_window_does_not_report_it() -> None:
    both = horizon(window=3)
    for seq in range(1, 7):
        both.add(held(seq, 10 * seq))
        both.update(HERE, 0, 10 * seq, 1)
    both.take(9)
    assert both.horizon == 60
    assert both.report == 30
    both.raise_stable(20)
    both.release()
    assert both.report == 50


def test_a_site_stamps_only_while_its_window_has_room() -> None:
    both = horizon(window=3)
    assert [both.room(seq) for seq in range(5)] == [3, 2, 1, 0, 0]
    both.add(held(1, 5, site=HERE))
    both.update(THERE, 0, 5, 5)
    both.take(9)
    both.raise_aru(HERE, 5)
    both.release()
    assert both.room(3) == 1


def test_windows_of_all_sources_share_one_bound() -> None:
    assert window_of(1) == CUT_ENTRIES
    assert window_of(4) * 4 == CUT_ENTRIES
    assert window_of(1_000) == MIN_WINDOW


# ---- recovery


def due(block: Held) -> Due:
    return Due(block.lts, block.site, block.seq, block.rank, block.origin, block.mask)


def test_a_remainder_is_settled_in_order_without_what_was_delivered() -> None:
    both = horizon()
    early, first, second = held(1, 4, FIFO_RANK), held(2, 5), held(4, 9)
    elsewhere = held(3, 7, mask=1 << THERE)
    both.add(early)
    both.add(first)
    assert both.take(9) == [early]
    dues = [due(block) for block in (early, first, elsewhere, second)]
    assert both.lacking(dues) == [due(second)]
    with pytest.raises(InvariantViolation):
        both.settle(dues)
    both = horizon()
    for block in (held(1, 4, FIFO_RANK), held(2, 5), held(4, 9)):
        both.add(block)
    both.take(9)
    assert both.lacking(dues) == []
    assert [block.lts for block in both.settle(dues)] == [5, 9]


def test_positions_must_rise() -> None:
    both = horizon()
    both.add(held(1, 5))
    both.add(held(2, 9))
    both.update(HERE, 0, 5, 1)
    late = held(1, 3, site=HERE)
    both.take(9)
    both.streams[HERE].add(late)
    with pytest.raises(InvariantViolation):
        both.settle([due(late)])


def test_a_daemon_outside_of_the_view_has_no_horizon() -> None:
    with pytest.raises(InvariantViolation):
        Horizon(3, (0, 1), 1)
