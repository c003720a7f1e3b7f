"""The log of one member: holding, placing, receiving, purging (Amoeba section 4.1)."""

from __future__ import annotations

from ordercast.parts.log import DATAGRAM_OVERHEAD, Log, runs_of
from ordercast.service import AGREED, SAFE
from ordercast.wire.block import come_after, pack_run
from ordercast.wire.ordering import Assignment

A, B, STRANGER = 11, 22, 99
AHEAD = 100


def make(start: int = 0) -> Log:
    return Log(start, 1_000, {A: 0, B: 0}, AHEAD, 1_400)


def block(count: int = 1, text: bytes = b"m", after: int = 0) -> bytes:
    return come_after(pack_run(0, AGREED, [text] * count), after)


def test_a_place_is_received_when_it_and_all_before_it_are_placed_and_held() -> None:
    log = make()
    log.hold(A, 0, block(3))
    log.hold(A, 1, block(2))
    log.assign(2, A, 1)
    assert list(log.advance()) == []
    log.assign(1, A, 0)
    first, second = log.advance()
    assert (first.seq, first.position, second.seq, second.position) == (1, 1_000, 2, 1_003)
    assert (log.received, log.highest, log.position, log.next_number[A]) == (2, 2, 1_005, 2)


def test_a_hole_stops_the_log() -> None:
    log = make()
    for number in (0, 2):
        log.hold(A, number, block())
    log.assign(1, A, 0, 3)
    assert [entry.seq for entry in log.advance()] == [1]
    assert log.missing(10) == [2]
    log.hold(A, 1, block())
    assert [entry.seq for entry in log.advance()] == [2, 3]
    assert log.missing(10) == []


def test_whoever_stops_asking_stops_the_log_there() -> None:
    log = make()
    for number in range(3):
        log.hold(A, number, block())
    log.assign(1, A, 0, 3)
    for entry in log.advance():
        if entry.seq == 2:
            break
    assert log.received == 2
    assert [entry.seq for entry in log.advance()] == [3]


def test_blocks_that_are_old_known_strange_or_too_far_ahead_are_not_kept() -> None:
    log = make()
    assert log.hold(A, 0, block())
    assert not log.hold(A, 0, block()), "known"
    assert not log.hold(STRANGER, 0, block())
    assert not log.hold(A, AHEAD, block()), "too far ahead"
    log.assign(1, A, 0)
    list(log.advance())
    assert not log.hold(A, 0, block()), "old"
    assert log.hold(A, AHEAD, block()), "not too far any more"


def test_places_that_contradict_are_refused() -> None:
    log = make()
    assert log.assign(1, A, 0)
    assert log.assign(1, A, 0), "the same again"
    assert not log.assign(1, B, 0)
    assert not log.assign(AHEAD + 1, A, 0), "too far ahead"
    assert log.assign(0, B, 5), "long past: nobody cares"
    assert log.assignments == {1: (A, 0)}


def test_what_is_stable_is_forgotten_and_its_cost_is_free_again() -> None:
    log = make()
    for number in range(3):
        log.hold(A, number, block(1, bytes(2_000)))
    log.assign(1, A, 0, 3)
    list(log.advance())
    cost = log.cost(block(1, bytes(2_000)))
    assert cost == len(block(1, bytes(2_000))) + 2 * DATAGRAM_OVERHEAD
    assert (log.unstable_bytes, log.active) == (3 * cost, {A: 3})
    assert [entry.seq for entry in log.purge(2)] == [1, 2]
    assert log.purge(2) == []
    assert (log.stable, log.unstable_bytes) == (2, cost)
    assert [entry.seq for entry in log.purge(99)] == [3], "no further than what is received"
    assert (log.active, log.unstable_bytes) == ({}, 0)


def test_the_reach_of_a_sender_ends_at_a_hole() -> None:
    log = make()
    for number in (0, 1, 3):
        log.hold(A, number, block())
    assert log.reach(A) == 2
    log.hold(A, 2, block())
    assert log.reach(A) == 4
    assert log.reach(STRANGER) == 0


def test_the_reach_of_a_sender_ends_where_its_cause_is_missing() -> None:
    log = make()
    log.hold(A, 0, block())
    log.hold(A, 1, block(after=1))
    assert log.reach(A) == 1, "its second block comes after a place that is not here"
    log.hold(B, 0, block())
    log.assign(1, B, 0)
    list(log.advance())
    assert log.reach(A) == 2


def test_blocks_are_found_by_place_and_by_number_until_they_are_stable() -> None:
    log = make()
    log.hold(A, 0, block(text=b"zero"))
    log.hold(A, 1, block(text=b"one"))
    log.assign(1, A, 0)
    list(log.advance())
    log.assign(2, A, 1)
    assert log.block_at(1) == (A, 0, block(text=b"zero"))
    assert log.block_at(2) == (A, 1, block(text=b"one"))
    assert log.block_at(3) is None
    assert log.find_block(A, 0) == block(text=b"zero")
    assert log.find_block(A, 1) == block(text=b"one")
    log.purge(1)
    assert log.block_at(1) is None
    assert log.find_block(A, 0) is None


def test_a_preview_tells_what_receiving_would_come_to() -> None:
    log = make()
    log.hold(A, 0, block(5))
    log.hold(B, 0, pack_run(0, SAFE, [b"x"]))
    log.assign(1, A, 0)
    log.assign(2, B, 0)
    assert log.preview(2) == (1_006, {A: 1, B: 1}, None)
    assert (log.received, log.position) == (0, 1_000), "nothing has happened"
    assert log.preview(1) == (1_005, {A: 1, B: 0}, None)


def test_runs_join_what_follows_in_place_and_number() -> None:
    assert list(runs_of([])) == []
    assert list(runs_of([(1, A, 5), (2, A, 6), (3, B, 0), (4, A, 7), (6, A, 8)])) == [
        Assignment(1, A, 5, 2),
        Assignment(3, B, 0, 1),
        Assignment(4, A, 7, 1),
        Assignment(6, A, 8, 1),
    ]


def test_a_cut_names_what_is_placed_and_held_beyond() -> None:
    log = make()
    for number in (0, 1, 3):
        log.hold(A, number, block())
    log.hold(B, 0, block())
    log.assign(2, A, 1, 2)
    assert log.assigned_runs(1, 10) == [Assignment(2, A, 1, 2)]
    assert log.held_runs() == [(A, 0, 2), (A, 3, 1), (B, 0, 1)]
