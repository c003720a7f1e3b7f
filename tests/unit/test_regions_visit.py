"""A token at members, for one sender. QSM section 2.3.3."""

from __future__ import annotations

from itertools import pairwise

from ordercast.orderers.regions.partitions import Partitions, Stop, answered_by
from ordercast.orderers.regions.record import SenderRecord
from ordercast.orderers.regions.visit import Errand, Visit, VisitOutcome, conclude_entry, new_entry, visit_entry
from ordercast.parts.ranges import EMPTY, NumberSet, from_numbers, segments_of_blocks
from ordercast.wire.regions import FINAL, REPORTED, SEEN, TokenEntry
from ordercast.wire.segments import Reassembly

SENDER = 50


def a_record(*blocks: int) -> SenderRecord:
    record = SenderRecord(SENDER, False)
    for block in blocks:
        record.take(block, b"x", True)
    return record


class Round:
    """A token that one starter sends around members, each with its record."""

    def __init__(self, partitions: Partitions, records: dict[int, SenderRecord], out: frozenset[int] = frozenset()):
        self.partitions = partitions
        self.records = records
        self.out = out
        self.parts = Reassembly(0)
        self.number = 0

    def at(self, node: int, entry: TokenEntry | None, stop: Stop, before: int = 0, starter: int = 1) -> VisitOutcome:
        mine = next(index for index, each in enumerate(self.partitions) if node in each)
        answered = answered_by(self.partitions, mine)
        record = self.records[node]
        visit = Visit(node, mine, starter, self.number, 11, stop, before, self.partitions, self.out, self.out, answered)
        is_start = entry is None
        return visit_entry(visit, record, entry or new_entry(record, SENDER in self.out, True), self.parts, is_start)

    def go(self, starter: int = 1) -> list[VisitOutcome]:
        """A whole round through one partition; its visits."""
        self.number += 1
        (ring,) = self.partitions
        visits = [self.at(ring[0], None, Stop(ring[0], 0, is_first=True), starter=starter)]
        for before, node in pairwise(ring):
            visits.append(self.at(node, visits[-1].entry, Stop(node, 0), before, starter))
        visits.append(self.at(ring[0], visits[-1].entry, Stop(ring[0], 0, is_return=True), ring[-1], starter))
        conclude_entry(self.records[starter], visits[-1].entry, self.out, False)
        return visits


def segments(*blocks: int) -> NumberSet:
    return segments_of_blocks(from_numbers(blocks))


def test_the_first_round_finds_the_cutoff_and_the_next_what_is_missing() -> None:
    """What was sent lately may be in a socket: a full round of delay."""
    round_ = Round(((1, 2),), {1: a_record(0, 1, 2), 2: a_record(0, 2)})
    visits = round_.go()
    assert not any(visit.pushes or visit.pulls for visit in visits)
    assert (round_.records[1].cutoff, round_.records[1].ack, round_.records[1].purge) == (3, 1, 1)
    visits = round_.go()
    assert visits[1].entry.naks == segments(1)
    assert visits[2].pushes == [Errand(2, 0, segments(1))], "the successor pushes what its predecessor lacks"


def test_a_member_pulls_from_its_predecessor_with_one_request() -> None:
    records = {1: a_record(0, 1, 2), 2: a_record(0)}
    for record in records.values():
        record.cutoff = 3
    visits = Round(((1, 2),), records).go()
    assert visits[1].pulls == [Errand(1, 0, segments(1, 2))]


def test_what_a_whole_partition_lacks_is_asked_of_the_sender() -> None:
    records = {1: a_record(0, 2), 2: a_record(0, 2)}
    for record in records.values():
        record.cutoff = 3
    visits = Round(((1, 2),), records).go()
    assert visits[2].naks == [Errand(SENDER, 0, segments(1))]
    assert not visits[2].entry.flags & REPORTED


def test_segments_that_have_come_are_not_asked_for() -> None:
    records = {1: a_record(0, 1), 2: a_record(0)}
    records[1].cutoff = 2
    round_ = Round(((1, 2),), records)
    round_.parts.add((11, SENDER, 1), 0, 2, b"a")
    visits = round_.go()
    assert visits[1].pulls == [Errand(1, 0, from_numbers([257, 258]))]


def test_blocks_of_another_partition_are_pulled_from_its_leader_once_ack_covers_them() -> None:
    round_ = Round(((1, 3), (2, 4)), {1: a_record(0)})
    record = round_.records[1]
    record.cutoff = 4
    stop = Stop(1, 0, is_first=True)
    assert round_.at(1, None, stop).pulls == []
    record.ack = 3
    assert round_.at(1, None, stop).pulls == [Errand(2, 1, segments(0))], "block 1, divided by two"


def test_blocks_of_a_partition_without_members_are_asked_of_the_sender_and_of_others() -> None:
    round_ = Round(((1, 3), ()), {1: a_record(0, 2)})
    round_.records[1].cutoff = 3
    found = round_.at(1, None, Stop(1, 0, is_first=True))
    assert found.naks == [Errand(SENDER, 1, segments(0))]
    assert found.pulls == [Errand(3, 1, segments(0))]
    assert found.entry.own == 1, "it answers for them"


def test_an_entry_that_was_made_later_sets_the_cutoff_only() -> None:
    late = new_entry(a_record(0, 1), False, False)
    assert not late.flags & SEEN
    record = SenderRecord(SENDER, False)
    late = late._replace(maximum=2, own=2, full=2)
    assert conclude_entry(record, late, frozenset(), False) == (False, False)
    assert (record.cutoff, record.ack, record.purge) == (2, 0, 0)
    assert record.has_news, "the next token has an entry from its start"


def test_a_verdict_takes_three_rounds_and_nobody_takes_the_block_in_the_last() -> None:
    records = {1: a_record(0, 2), 2: a_record(0, 2)}
    for record in records.values():
        record.cutoff = 3
    round_ = Round(((1, 2),), records, out=frozenset({SENDER}))
    round_.go()
    assert records[1].verdicts.asked == from_numbers([1])
    round_.go()
    assert records[1].verdicts.candidates == from_numbers([1])
    assert records[2].wants(1, True)
    visits = round_.go()
    assert not records[2].wants(1, True)
    assert visits[2].entry.candidates == from_numbers([1])
    assert records[1].lost == {1}
    visits = round_.go()
    assert visits[1].has_lost
    assert records[2].lost == {1}
    assert not records[2].verdicts.refused


def test_who_keeps_a_block_ends_the_way_to_a_verdict() -> None:
    records = {1: a_record(0, 2), 2: a_record(0, 1, 2)}
    for record in records.values():
        record.cutoff = 3
    round_ = Round(((1, 2),), records, out=frozenset({SENDER}))
    round_.go()
    round_.go()
    assert records[1].verdicts.candidates == EMPTY
    records[2].kept.clear()
    round_.go()
    assert records[1].verdicts.candidates == from_numbers([1]), "having delivered it is not enough"


def test_the_final_count_of_a_dead_sender_is_the_maximum_of_a_round_after_one_that_knew() -> None:
    record = a_record(0, 1)
    entry = new_entry(record, True, True)._replace(maximum=4)
    conclude_entry(record, entry, frozenset({SENDER}), False)
    assert record.final == 4


def test_a_final_count_travels_and_raises_the_cutoff() -> None:
    records = {1: a_record(0), 2: a_record(0)}
    records[1].close(3)
    visits = Round(((1, 2),), records).go()
    assert visits[0].entry.flags & FINAL
    assert (records[2].final, records[2].cutoff) == (3, 3)


def test_holders_outside_of_a_partition_push_what_somebody_lacks_to_its_leader() -> None:
    round_ = Round(((1, 3), (2, 4)), {1: a_record(0, 1, 3)}, out=frozenset({SENDER}))
    entry = new_entry(round_.records[1], True, True)._replace(asked=from_numbers([1]))
    found = round_.at(1, entry, Stop(1, 0, is_first=True))
    assert found.pushes == [Errand(2, 1, segments(0))]
    assert found.entry.asked == EMPTY
