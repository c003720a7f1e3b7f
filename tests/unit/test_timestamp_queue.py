"""The reception queue of the timestamp orderer (TOMPA sections 2.1 and 3.2)."""

from __future__ import annotations

import tracemalloc

from ordercast.orderers.timestamp.queue import Queued, ReceptionQueue

ME = 2
A, B, C = 1, 2, 3  # senders


def taken(queue: ReceptionQueue) -> list[tuple[int, int]]:
    found = []
    while (key := queue.take()) is not None:
        found.append(key)
    return found


def test_each_proposal_is_one_more_and_says_who_makes_it() -> None:
    """Section 3.2.2.2: local_ts <- local_ts + 1, mi_ts <- local_ts."""
    queue = ReceptionQueue(ME, 14)
    assert [queue.propose(A, 0), queue.propose(B, 7), queue.propose(A, 1)] == [15, 16, 17]
    assert list(queue) == [
        Queued((A, 0), (15, ME), False),
        Queued((B, 7), (16, ME), False),
        Queued((A, 1), (17, ME), False),
    ]
    assert (queue.clock, len(queue)) == (17, 3)


def test_nothing_leaves_before_it_is_decided_and_at_the_head() -> None:
    """Section 2.1.2, conditions 1 and 2."""
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.propose(B, 0)
    assert queue.take() is None
    assert queue.decide(B, 0, (2, ME))
    assert queue.take() is None, "A's is before it"
    assert queue.decide(A, 0, (9, C))
    assert taken(queue) == [(B, 0), (A, 0)]
    assert queue.take() is None
    assert len(queue) == 0


def test_of_equal_numbers_the_smaller_member_goes_first() -> None:
    """Section 2.1.1: the number is "postfixed" with the host."""
    queue = ReceptionQueue(ME)
    for origin in (A, B, C):
        queue.propose(origin, 0)
    for origin, member in ((A, 3), (B, 1), (C, 2)):
        queue.decide(origin, 0, (5, member))
    assert taken(queue) == [(B, 0), (C, 0), (A, 0)]


def test_a_decision_moves_the_clock_forward_and_never_back() -> None:
    """The step that the paper omits (docs/design/timestamp.md)."""
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.propose(A, 1)
    queue.decide(A, 0, (40, C))
    assert queue.clock == 40
    queue.decide(A, 1, (12, C))
    assert queue.clock == 40
    assert queue.propose(B, 0) == 41


def test_a_decision_counts_once_and_only_for_what_waits() -> None:
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    assert not queue.decide(A, 1, (90, C))
    assert not queue.decide(C, 0, (90, C))
    assert queue.decide(A, 0, (3, C))
    assert not queue.decide(A, 0, (90, C)), "a second one, even if it says otherwise"
    assert queue.clock == 3, "what does not count moves no clock"
    assert taken(queue) == [(A, 0)]
    assert not queue.decide(A, 0, (90, C))


def test_a_decided_block_goes_before_one_that_is_anticipated_at_the_same_timestamp() -> None:
    """No two finals are equal and the other's final is not smaller, so that it ends up behind."""
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.propose(C, 0)
    queue.anticipate(A, 0, (18, C))
    queue.decide(C, 0, (18, C))
    assert [entry.key for entry in queue] == [(C, 0), (A, 0)]
    assert taken(queue) == [(C, 0)], "although A's came first and A is the smaller"


def test_a_block_that_is_decided_where_it_was_anticipated_leaves() -> None:
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.anticipate(A, 0, (18, C))
    assert queue.take() is None
    queue.decide(A, 0, (18, C))
    assert taken(queue) == [(A, 0)]


def test_anticipation_raises_each_further_block_by_one() -> None:
    """Section 3.2.3.2: the greatest of mk_ts and max_next_ts(k) + delta, from min_next_mid(k) on."""
    queue = ReceptionQueue(ME, 10)
    for number in range(4):
        queue.propose(A, number)
    queue.propose(B, 2)
    queue.anticipate(A, 1, (30, C))
    assert [(entry.key, entry.stamp) for entry in queue] == [
        ((A, 0), (11, ME)),
        ((B, 2), (15, ME)),
        ((A, 1), (30, C)),
        ((A, 2), (31, C)),
        ((A, 3), (32, C)),
    ]


def test_anticipation_never_lowers_and_leaves_the_decided_alone() -> None:
    """Section 3.2.3.2: "If mk_state == undeliverable", and the greatest of the two."""
    queue = ReceptionQueue(ME, 20)
    queue.propose(A, 0)
    queue.propose(A, 1)
    queue.decide(A, 0, (21, ME))
    queue.anticipate(A, 0, (21, A))
    queue.anticipate(A, 0, (5, C))
    queue.anticipate(C, 0, (99, C))
    assert [(entry.stamp, entry.is_decided) for entry in queue] == [((21, ME), True), ((22, ME), False)]
    queue.anticipate(A, 0, (50, A))
    assert [entry.stamp for entry in queue] == [(21, ME), (51, A)]
    assert queue.clock == 22, "a bound is no proposal"
    assert taken(queue) == [(A, 0)]


def test_what_was_proposed_stays_what_is_acknowledged() -> None:
    """An acknowledgement may be sent again: of anticipation it says nothing."""
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.propose(A, 1)
    queue.anticipate(A, 0, (50, C))
    assert (queue.proposed(A, 0), queue.proposed(A, 1)) == (1, 2)
    queue.decide(A, 0, (50, C))
    assert queue.proposed(A, 0) == 0, "decided"
    assert queue.proposed(A, 9) == queue.proposed(C, 0) == 0, "not here"


def test_the_queue_knows_whose_blocks_are_open() -> None:
    queue = ReceptionQueue(ME)
    for key in ((C, 0), (A, 4), (C, 1)):
        queue.propose(*key)
    assert queue.open_origins() == [C, A]
    assert (queue.undecided(C), queue.undecided(A), queue.undecided(B)) == ([0, 1], [4], [])
    queue.decide(C, 0, (1, ME))
    queue.decide(A, 4, (2, ME))
    assert (queue.open_origins(), queue.undecided(C)) == ([C], [1])


def test_forgotten_bounds_leave_the_proposals() -> None:
    """docs/design/timestamp.md, Joins and leaves: who has left proposes no more, so nothing holds of what it said."""
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.propose(B, 0)
    queue.propose(C, 0)
    queue.anticipate(A, 0, (50, C))
    queue.decide(C, 0, (30, C))
    assert queue.take() is None
    queue.forget_bounds()
    assert list(queue) == [
        Queued((A, 0), (1, ME), False),
        Queued((B, 0), (2, ME), False),
        Queued((C, 0), (30, C), True),
    ]
    queue.decide(B, 0, (2, ME))
    assert queue.take() is None, "A's is before it again"
    queue.decide(A, 0, (3, A))
    assert taken(queue) == [(B, 0), (A, 0), (C, 0)]


def test_a_block_whose_place_is_known_from_elsewhere_holds_up_nobody() -> None:
    queue = ReceptionQueue(ME)
    for origin in (A, B, C):
        queue.propose(origin, 0)
    queue.decide(B, 0, (2, ME))
    queue.remove((A, 0))
    queue.remove((A, 0))
    queue.remove((A, 77))
    assert (len(queue), queue.open_origins(), queue.proposed(A, 0)) == (2, [C], 0)
    assert taken(queue) == [(B, 0)]
    assert not queue.decide(A, 0, (9, C)), "its decision comes too late to matter"
    queue.remove((C, 0))
    assert (len(queue), list(queue), queue.take()) == (0, [], None)


def test_a_decided_block_can_be_removed() -> None:
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.propose(B, 0)
    queue.decide(A, 0, (1, ME))
    queue.remove((A, 0))
    queue.decide(B, 0, (2, ME))
    assert taken(queue) == [(B, 0)]


def test_a_block_that_comes_again_in_a_later_life_of_its_number_is_another() -> None:
    """What a removed or taken block left behind in the heap must not speak for it."""
    queue = ReceptionQueue(ME)
    queue.propose(A, 0)
    queue.decide(A, 0, (5, A))
    queue.remove((A, 0))
    queue.propose(A, 0)
    assert queue.take() is None
    assert queue.decide(A, 0, (7, A))
    assert taken(queue) == [(A, 0)]


def test_bounds_that_move_blocks_again_and_again_take_no_more_room() -> None:
    """Every decision may move every block that waits: what is left behind in the heap is bounded."""
    queue = ReceptionQueue(ME)
    for number in range(20):
        queue.propose(A, number)
        queue.propose(C, number)
    queue.anticipate(A, 0, (100, C))
    tracemalloc.start()
    try:
        for number in range(101, 3_000):
            queue.anticipate(A, 0, (number, C))
        assert tracemalloc.get_traced_memory()[0] < 60_000
    finally:
        tracemalloc.stop()
    assert [entry.key for entry in queue] == [(C, number) for number in range(20)] + [
        (A, number) for number in range(20)
    ]
    for number in range(20):
        queue.decide(C, number, (50 + number, C))
    assert taken(queue) == [(C, number) for number in range(20)]
    for number in range(20):
        queue.decide(A, number, (3_000 + number, C))
    assert taken(queue) == [(A, number) for number in range(20)]
