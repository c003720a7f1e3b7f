"""What is missing, when it is asked for, and what is answered (Amoeba section 4.1, RMP section 4.2)."""

from __future__ import annotations

from ordercast.config import MS, Timing
from ordercast.engine import NEVER, Note
from ordercast.parts.log import MAX_GONE, Log
from ordercast.parts.repairs import ASSIGNMENTS_ALONE, PER_NAK, Repairs
from ordercast.parts.rtt import RoundTrip
from ordercast.service import AGREED
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.block import pack_run
from ordercast.wire.ordering import Missing

A, B = 11, 22
DATAGRAM = 600
TIMING = Timing()
DUE_NS = TIMING.nak_delay_ns
LATE_NS = 1_000 * MS


def block(size: int = 1) -> bytes:
    return pack_run(0, AGREED, [bytes(size)])


def make() -> tuple[Log, Repairs]:
    log = Log(0, 1_000, {A: 0, B: 0}, 100, DATAGRAM)
    return log, Repairs(log, TIMING, DATAGRAM, RoundTrip(TIMING))


def notes(found: list[Note]) -> list[tuple[str, int]]:
    return [(note.kind, note.first) for note in found]


def test_a_gap_in_the_order_is_asked_for_after_a_while() -> None:
    """What is only reordered comes by itself."""
    log, repairs = make()
    assert not repairs.is_wanted(False)
    assert repairs.deadline_ns() == NEVER
    log.highest = 3
    assert repairs.is_wanted(False)
    assert notes(repairs.look(0, False)) == [("gap", 1), ("gap", 2), ("gap", 3)]
    assert repairs.due_seqs(DUE_NS - 1) == []
    assert repairs.deadline_ns() == DUE_NS
    assert repairs.due_seqs(DUE_NS) == [Missing(GROUP_ORIGIN, 1, 3, 0, 0)]


def test_a_gap_that_closes_is_told_and_not_asked_for() -> None:
    log, repairs = make()
    log.highest = 1
    repairs.look(0, False)
    log.hold(A, 0, block())
    log.assign(1, A, 0)
    assert repairs.due_seqs(DUE_NS) == [], "it has come since the last look"
    assert [entry.seq for entry in log.advance()] == [1]
    assert notes(repairs.look(DUE_NS, False)) == [("repaired", 1)]
    assert not repairs.is_wanted(False)


def test_at_the_end_of_a_ring_no_gap_is_open() -> None:
    log, repairs = make()
    log.highest = 2
    repairs.look(0, False)
    assert notes(repairs.close()) == [("repaired", 1), ("repaired", 2)]
    assert repairs.close() == []


def test_a_block_whose_order_is_known_is_asked_for_by_its_name() -> None:
    """RMP section 4.6: its sender learns of the loss."""
    log, repairs = make()
    log.assign(1, A, 0)
    repairs.look(0, False)
    assert repairs.due_by_tries(DUE_NS) == {1: [Missing(A, 0, 1, 0, 0)]}


def test_where_only_the_order_is_lost_the_order_alone_is_asked_for_first() -> None:
    log, repairs = make()
    log.hold(A, 0, block())
    log.highest = 1
    repairs.look(0, False)
    assert repairs.due_by_tries(DUE_NS) == {1: [Missing(GROUP_ORIGIN, 1, 1, *ASSIGNMENTS_ALONE)]}
    assert repairs.due_by_tries(LATE_NS) == {2: [Missing(GROUP_ORIGIN, 1, 1, 0, 0)]}


def test_a_leader_asks_senders_for_blocks_before_those_that_it_has() -> None:
    log, repairs = make()
    log.hold(A, 2, block())
    log.hold(B, 0, block())
    assert notes(repairs.look(0, True)) == [("gap", 0), ("gap", 1)]
    assert repairs.due_blocks(DUE_NS) == {A: [Missing(A, 0, 1, 0, 0), Missing(A, 1, 1, 0, 0)]}
    assert repairs.look(DUE_NS, False) == [], "one that led before asks on, and notices nothing new"


def test_every_hole_ahead_of_a_block_is_found_and_not_the_first_only() -> None:
    log, repairs = make()
    for number in (0, 2, 3, 6):
        log.hold(A, number, block())
    log.hold(B, 1, block())
    assert repairs.holes(lambda _origin, _block: True) == [(A, 1), (A, 4), (A, 5), (B, 0)]


def test_a_hole_counts_only_where_the_block_behind_it_reveals_it() -> None:
    log, repairs = make()
    for number in (1, 3):
        log.hold(A, number, block(number))
    log.hold(B, 1, block(1))
    assert repairs.holes(lambda origin, held: origin == A and held == block(3)) == [(A, 2)]


def test_callers_have_no_holes() -> None:
    log, repairs = make()
    repairs.callers.add(A)
    log.hold(A, 2, block())
    assert repairs.holes(lambda _origin, _block: True) == []


def test_callers_number_as_they_like() -> None:
    log, repairs = make()
    repairs.callers.add(A)
    log.hold(A, 2, block())
    assert repairs.look(0, True) == []


def test_an_orderer_that_knows_better_says_what_is_missing() -> None:
    _, repairs = make()
    repairs.look(0, True, [(B, 7)])
    assert repairs.due_blocks(DUE_NS) == {B: [Missing(B, 7, 1, 0, 0)]}


def test_only_the_missing_part_of_a_block_is_asked_for() -> None:
    log, repairs = make()
    body = memoryview(bytes(DATAGRAM))
    assert repairs.add(0, A, 0, 0, 2, body[:568]) is None
    assert repairs.add(0, A, 0, 2, 2, body[:10]) is None
    log.assign(1, A, 0)
    repairs.look(0, False)
    assert repairs.due_seqs(LATE_NS) == [Missing(GROUP_ORIGIN, 1, 1, 1, 2)]


def test_a_block_whose_parts_still_come_is_not_asked_for() -> None:
    log, repairs = make()
    log.assign(1, A, 0)
    repairs.look(0, False)
    repairs.add(DUE_NS, A, 0, 0, 2, memoryview(bytes(568)))
    assert repairs.due_seqs(DUE_NS) == []
    assert repairs.due_seqs(LATE_NS) != []


def test_the_last_part_makes_a_block_whole_and_old_parts_are_forgotten() -> None:
    log, repairs = make()
    whole = block(1_000)
    parts = [whole[:568], whole[568:]]
    assert repairs.add(0, A, 0, 0, 1, memoryview(parts[0])) is None
    assert repairs.add(1, A, 0, 1, 1, memoryview(parts[1])) == whole
    repairs.add(2, B, 0, 0, 1, memoryview(parts[0]))
    assert len(repairs.partial) == 1
    log.hold(B, 0, whole)
    assert repairs.is_old(B, 0)
    repairs.look(3, False)
    assert len(repairs.partial) == 0


def test_answers_bring_blocks_and_their_order() -> None:
    log, repairs = make()
    one, two = block(), block(5)
    log.hold(A, 0, one)
    log.hold(B, 0, two)
    log.assign(1, A, 0)
    assert len(list(log.advance())) == 1
    assert repairs.answer([Missing(GROUP_ORIGIN, 1, 2, 0, 0)]) == ([(A, 0, one, 0, 0)], [(1, A, 0)])
    assert repairs.answer([Missing(GROUP_ORIGIN, 1, 1, *ASSIGNMENTS_ALONE)]) == ([], [(1, A, 0)])
    assert repairs.answer([Missing(B, 0, 1, 0, 0), Missing(B, 9, 1, 0, 0)]) == ([(B, 0, two, 0, 0)], [])
    assert repairs.answer([Missing(B, 0, 1, 40, 50)]) == ([], []), "it has no such part"


def test_one_request_brings_a_bounded_number_of_blocks() -> None:
    log, repairs = make()
    for number in range(PER_NAK + 10):
        log.hold(A, number, block())
    blocks, _ = repairs.answer([Missing(A, 0, PER_NAK + 10, 0, 0)])
    assert len(blocks) == PER_NAK


def test_late_parts_of_a_member_that_has_left_are_old() -> None:
    log, repairs = make()
    for number in (0, 1):
        log.hold(A, number, block())
        log.assign(number + 1, A, number)
    assert len(list(log.advance())) == 2
    log.dismiss(A)
    assert repairs.is_old(A, 1)
    assert not repairs.is_old(A, 2), "it may have come again"
    for other in range(100, 100 + MAX_GONE):
        log.next_number[other] = 1
        log.dismiss(other)
    assert len(log.gone) == MAX_GONE
    assert not repairs.is_old(A, 1), "others have left since"
