"""What one member knows of one sender in one view."""

from __future__ import annotations

from ordercast.orderers.regions.record import MAX_AHEAD, SenderRecord
from ordercast.parts.ranges import from_numbers


def a_record(*blocks: int, answers: bool = True) -> SenderRecord:
    record = SenderRecord(5, False)
    for block in blocks:
        assert record.wants(block, answers)
        record.take(block, b"x", answers)
    return record


def test_a_prefix_grows_over_what_came_before_its_turn() -> None:
    record = a_record(0, 2, 3)
    assert (record.prefix, record.top, record.missing(6)) == (1, 4, [1, 4, 5])
    record.take(1, b"x", True)
    assert (record.prefix, record.missing(4)) == (4, [])


def test_a_block_is_taken_once_and_not_far_beyond_what_is_missing() -> None:
    record = a_record(0)
    assert not record.wants(0, True)
    assert record.wants(MAX_AHEAD, True)
    assert not record.wants(1 + MAX_AHEAD, True)


def test_every_member_keeps_a_block_until_ack_and_its_cachers_until_purge() -> None:
    """docs/design/regions.md, "Keeping"."""
    record = a_record(0, 1, 2, 3)
    record.ack = 3
    record.free((True, False))
    assert sorted(record.kept) == [0, 2, 3]
    record.purge = 2
    record.free((True, False))
    assert sorted(record.kept) == [2, 3]
    assert record.kept_bytes == 2


def test_a_cacher_takes_a_block_again_that_it_gave_away() -> None:
    record = a_record(0, answers=False)
    record.ack = 1
    record.free((False,))
    assert not record.kept
    assert record.wants(0, True)
    assert not record.take(0, b"x", True), "it is not new"
    assert record.kept
    record.purge = 1
    record.free((True,))
    assert not record.wants(0, True)


def test_lost_counts_as_had_and_is_never_taken() -> None:
    record = a_record(0, 2)
    assert record.lose_all(from_numbers([0, 1]))
    assert (record.prefix, record.lost) == (3, {1})
    assert not record.wants(1, True)
    assert not record.lose_all(from_numbers([1]))


def test_refused_blocks_are_not_taken() -> None:
    record = a_record(0)
    record.verdicts.refused[9] = from_numbers([1])
    assert not record.wants(1, True)
    assert record.wants(2, True)


def test_the_own_prefix_passes_over_blocks_of_other_partitions() -> None:
    record = a_record(0, 2)
    assert record.own_prefix((True, False), 5) == 4
    assert record.own_prefix((True, False), 2) == 3, "beyond the span nothing is known of"
    assert record.own_prefix((False, True), 9) == 1


def test_an_entry_is_needed_until_everybody_was_told() -> None:
    record = a_record(0)
    assert record.needs_entry(False)
    record.ack = record.purge = 1
    assert record.needs_entry(False), "there is news"
    record.has_news = False
    assert not record.needs_entry(False)
    assert record.needs_entry(True), "the final count of a dead sender is asked for"
    record.close(1)
    assert record.needs_entry(False)


def test_a_record_is_drained_when_all_is_delivered_purged_and_counted() -> None:
    record = a_record(0)
    assert SenderRecord(5, False).is_drained()
    record.ack = record.purge = record.next = 1
    record.free((True,))
    assert not record.is_drained()
    record.close(1)
    assert record.is_drained()
