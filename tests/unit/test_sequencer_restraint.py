"""What a member holds back from a sequencer that does not answer (docs/design/detector.md)."""

from __future__ import annotations

from ordercast.config import MS
from ordercast.orderers.sequencer.restraint import HELD_BACK_NS, UNANSWERED, UNANSWERED_BLOCKS, Restraint

NEAR_NS = 200_000
FAR_NS = 100 * MS


def restraint(round_trip_ns: int) -> Restraint:
    """With one round trip that was seen, up to the time 0."""
    found = Restraint()
    found.told(-round_trip_ns, received=5, safe=4)
    found.answered(0, safe=5)
    found.heard()
    return found


def test_two_datagrams_leave_without_an_answer_and_the_third_waits() -> None:
    near = restraint(NEAR_NS)
    for at_ns in (1 * MS, 2 * MS):
        assert not near.holds(at_ns)
        near.told(at_ns, received=5, safe=5)
    assert near.holds(3 * MS)
    assert near.next_ns(3 * MS) == 2 * MS + HELD_BACK_NS


def test_one_leaves_in_a_while_although_nothing_is_heard() -> None:
    near = restraint(NEAR_NS)
    near.told(1 * MS, 5, 5)
    near.told(2 * MS, 5, 5)
    at_ns = near.next_ns(3 * MS)
    assert not near.holds(at_ns)
    near.told(at_ns, 5, 5)
    assert near.holds(at_ns)
    assert near.next_ns(at_ns) == at_ns + HELD_BACK_NS


def test_a_word_of_the_sequencer_lets_everything_leave() -> None:
    near = restraint(NEAR_NS)
    for at_ns in (1 * MS, 2 * MS, 3 * MS):
        near.told(at_ns, 5, 5)
    assert near.holds(4 * MS)
    near.heard()
    assert not near.holds(4 * MS)


def test_new_blocks_wait_later_than_what_can_wait() -> None:
    near = restraint(NEAR_NS)
    for _ in range(UNANSWERED):
        near.told(1 * MS, 5, 5)
    assert near.holds(2 * MS)
    assert not near.holds(2 * MS, UNANSWERED_BLOCKS)
    near.told(2 * MS, 5, 5)
    assert near.holds(3 * MS, UNANSWERED_BLOCKS)


def test_over_a_far_link_nothing_is_held_back_that_could_not_have_been_answered() -> None:
    far = restraint(FAR_NS)
    for at_ns in range(0, 120 * MS, MS):
        assert not far.holds(at_ns)
        far.told(at_ns, 5, 5)
    assert far.holds(125 * MS)


def test_nothing_is_held_back_before_a_round_trip_is_known() -> None:
    new = Restraint()
    for at_ns in range(0, 500 * MS, MS):
        assert not new.holds(at_ns)
        new.told(at_ns, 5, 5)


def test_a_round_trip_ends_when_the_sequencer_knows_what_it_was_told() -> None:
    """What was said before, and what was safe before, is no answer. It took 59 ms, and is given a quarter more."""
    new = Restraint()
    new.told(0, received=5, safe=5)
    new.answered(1_000, safe=5)
    new.told(1 * MS, received=7, safe=5)
    new.answered(2 * MS, safe=6)
    new.told(50 * MS, received=7, safe=6)
    assert not new.holds(60 * MS)
    new.answered(60 * MS, safe=7)
    assert new.holds(75 * MS)
    new.heard()
    new.told(100 * MS, received=7, safe=7)
    new.told(170 * MS, received=7, safe=7)
    assert not new.holds(173 * MS)
    assert new.holds(174 * MS)


def test_another_sequencer_has_another_round_trip() -> None:
    near = restraint(NEAR_NS)
    for at_ns in (1 * MS, 2 * MS, 3 * MS):
        near.told(at_ns, 5, 5)
    near.restart()
    for at_ns in (4 * MS, 5 * MS, 6 * MS):
        near.told(at_ns, 6, 5)
    assert not near.holds(7 * MS)
