"""The courier: reliable, paced unicast (QSM section 2.3.3)."""

from __future__ import annotations

import pytest
from tests.unit.couriers import TIMING, Post, parcel

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import InvariantViolation, UsageError
from ordercast.parts.courier import DOUBT_TRIES, DOUBTS, MAX_PEERS, MAX_WAITING, Courier, CourierFailure, CourierTerms
from ordercast.wire.courier import MAX_WINDOW, CourierAck, Parcel, ParcelPart, cut_parcel
from ordercast.wire.header import Kind


def bodies(post: Post, node: int) -> list[int]:
    return [each.number for _, each in post.got[node]]


def test_a_parcel_arrives_and_its_acknowledgement_brings_rest() -> None:
    post = Post([1, 2])
    assert post.send(1, 2, parcel(1)) == [True]
    assert not post.couriers[1].is_at_rest
    post.run()
    assert post.got[2] == [(1, parcel(1))]
    assert post.is_at_rest()
    assert post.couriers[1].deadline_ns() == NEVER


def test_a_parcel_of_many_parts_is_put_together() -> None:
    post = Post([1, 2])
    large = parcel(1, 50_000)
    post.send(1, 2, large)
    post.run()
    assert post.got[2] == [(1, large)]
    assert len(post.sent) == 38


def test_a_segment_of_a_block_keeps_its_place_in_the_block() -> None:
    post = Post([1, 2])
    segment = Parcel(int(Kind.REPAIR), 3, 4, 5, b"segment", 7, 43)
    post.send(1, 2, segment)
    post.run()
    assert post.got[2] == [(1, segment)]


def test_what_is_lost_is_sent_again_until_it_arrives() -> None:
    post = Post([1, 2], loss=1.0)
    post.send(1, 2, parcel(1))
    post.run(500 * MS)
    assert len(post.sent) > 2
    post.loss = 0.0
    post.run()
    assert bodies(post, 2) == [1]
    assert post.couriers[1].resent > 1
    assert post.is_at_rest()


def test_a_gap_does_not_hold_up_what_comes_after_it_and_is_filled_before_its_time_is_over() -> None:
    post = Post([1, 2])
    post.loss = 1.0
    post.send(1, 2, parcel(0))
    post.loss = 0.0
    post.send(1, 2, *[parcel(number) for number in range(1, 5)])
    post.run(TIMING.retransmit_ns - 1)
    assert bodies(post, 2) == [1, 2, 3, 4, 0]


def test_after_its_tries_it_gives_up_with_a_verdict_and_drops_what_waited() -> None:
    post = Post([1, 2])
    post.down.add(2)
    post.send(1, 2, *[parcel(number) for number in range(5)])
    post.run()
    ((node, verdict),) = post.given_up
    assert (node, verdict.peer, verdict.verdict, verdict.parcels) == (1, 2, CourierFailure.UNANSWERED, 5)
    assert max(sum(part.seq == seq for _, part in post.sent) for seq in range(1, 6)) == TIMING.tries
    assert post.couriers[1].is_at_rest


def test_a_peer_that_was_given_up_is_reached_again_by_a_new_connection() -> None:
    post = Post([1, 2])
    post.send(1, 2, parcel(0))
    post.run()
    post.down.add(2)
    post.send(1, 2, parcel(1))
    post.run()
    post.down.clear()
    post.send(1, 2, parcel(2), parcel(3, 5_000))
    post.run()
    assert bodies(post, 2) == [0, 2, 3]
    assert len({part.connection for _, part in post.sent}) == 2


def test_a_peer_that_is_silent_is_doubted_once_long_before_it_is_given_up() -> None:
    post = Post([1, 2])
    post.down.add(2)
    post.send(1, 2, parcel(0))
    while not post.doubted:
        post.now_ns = post.couriers[1].deadline_ns()
        post.step(1)
    doubted_ns = post.now_ns
    assert not post.given_up
    post.run()
    assert post.doubted == [(1, 2)]
    assert [node for node, _ in post.given_up] == [1]
    assert doubted_ns < post.now_ns // 2


def test_fewer_tries_are_enough_to_doubt_a_peer_where_round_trips_are_long() -> None:
    """Busy processors make them long. Five tries would take 31 timeouts, and somebody who was killed would hold up its
    region for all that time."""
    post = Post([1, 2], jitter_ns=400 * MS, seed=1)
    for number in range(20):
        post.send(1, 2, parcel(number))
        post.run()
    post.down.add(2)
    began_ns = post.now_ns
    post.send(1, 2, parcel(20))
    while not post.doubted:
        post.now_ns = post.couriers[1].deadline_ns()
        post.step(1)
    tries = sum(at_ns >= began_ns for at_ns, _ in post.sent)
    assert DOUBT_TRIES <= tries < DOUBTS
    assert post.now_ns - began_ns >= SECOND
    post.run()
    assert post.doubted == [(1, 2)]


def test_a_later_life_at_the_same_place_takes_nothing_that_was_meant_for_the_earlier() -> None:
    post = Post([1, 2])
    post.send(1, 2, parcel(0))
    post.run()
    post.couriers[2] = Courier(22, TIMING)
    post.send(1, 2, parcel(1))
    post.run()
    assert bodies(post, 2) == [0]
    assert post.couriers[2].strange
    assert [verdict.verdict for _, verdict in post.given_up] == [CourierFailure.UNANSWERED]


def test_urgent_parcels_leave_before_repairs() -> None:
    terms = CourierTerms(bytes_per_s=10_000, burst_bytes=1_000)
    post = Post([1, 2], terms)
    post.send(1, 2, *[parcel(number, 1_000) for number in range(3)], is_urgent=False)
    post.send(1, 2, parcel(9))
    post.run()
    assert bodies(post, 2) == [0, 9, 1, 2]


@pytest.mark.parametrize("again", [Kind.PUSH, Kind.PULLED])
def test_a_segment_that_is_on_its_way_is_not_taken_again_and_one_that_has_come_is(again: Kind) -> None:
    """A token asks again for what has not come: in a region of five at its limit queues had each repair several times,
    and it did not come out of one hiccup (docs/figures.md, QSM, figure 9)."""
    post = Post([1, 2], loss=1.0)
    segment = Parcel(int(Kind.PUSH), 3, 4, 5, b"segment", 7, 43)
    others = [segment._replace(segment=8), segment._replace(number=6), segment._replace(ring=9)]
    assert post.send(1, 2, segment, *others, segment._replace(kind=int(again))) == [True] * 5
    post.loss = 0.0
    post.run()
    assert [each for _, each in post.got[2]] == [segment, *others]
    post.send(1, 2, segment)
    post.run()
    assert [each for _, each in post.got[2]] == [segment, *others, segment]


def test_one_rate_bounds_what_goes_to_all_peers() -> None:
    terms = CourierTerms(bytes_per_s=100_000, burst_bytes=2_000)
    post = Post(range(5), terms)
    for peer in range(1, 5):
        post.send(0, peer, *[parcel(number, 1_000) for number in range(50)], is_urgent=False)
    post.run()
    assert all(bodies(post, peer) == list(range(50)) for peer in range(1, 5))
    for index, (at_ns, _) in enumerate(post.sent):
        assert (index + 1) * 1_000 <= 2_000 + 1_100 + 100_000 * at_ns / SECOND
    assert post.now_ns >= 2 * SECOND


def test_a_part_that_is_late_and_waits_for_the_bucket_is_late_once() -> None:
    terms = CourierTerms(bytes_per_s=1_000, burst_bytes=1_500)
    post = Post([1, 2], terms)
    post.down.add(2)
    post.send(1, 2, parcel(0, 1_300))
    post.run(5 * SECOND)
    assert 2 <= len(post.sent) <= 5


def test_peers_take_turns() -> None:
    terms = CourierTerms(bytes_per_s=100_000, burst_bytes=2_000)
    post = Post(range(3), terms)
    post.send(0, 1, *[parcel(number, 1_000) for number in range(40)])
    post.send(0, 2, parcel(0, 1_000))
    post.run()
    assert [part.to for _, part in post.sent].index(2) < 4


def test_no_more_than_a_window_is_out() -> None:
    post = Post([1, 2], CourierTerms(window=8))
    post.down.add(2)
    post.send(1, 2, *[parcel(number) for number in range(50)])
    assert len(post.sent) == 8
    post.down.clear()
    post.run()
    assert sorted(bodies(post, 2)) == list(range(50))


def test_too_many_repairs_are_refused_and_too_many_urgent_parcels_are_a_verdict() -> None:
    terms = CourierTerms(window=1, waiting_bytes=1_000)
    post = Post([1, 2], terms)
    post.down.add(2)
    assert post.send(1, 2, *[parcel(0, 300)] * 5, is_urgent=False) == [True, True, True, False, False]
    assert not post.given_up
    assert post.send(1, 2, parcel(0, 900)) == [False]
    ((_, verdict),) = post.given_up
    assert (verdict.verdict, verdict.parcels) == (CourierFailure.OVERRUN, 3)
    assert post.couriers[1].waiting(2) == 0


def test_the_number_of_parcels_that_wait_is_bounded_as_well() -> None:
    courier = Courier(1, TIMING)
    found = [courier.post(2, parcel(0, 0), is_urgent=False) for _ in range(MAX_WAITING + 5)]
    assert sum(found) == MAX_WAITING == courier.waiting(2)


def test_idle_peers_are_forgotten_and_met_again_where_they_are() -> None:
    post = Post([1, 2])
    post.send(1, 2, parcel(0))
    post.run()
    busy = post.couriers[2]
    for peer in range(10, 10 + MAX_PEERS):
        assert busy.post(peer, parcel(0))
    assert not busy.post(5, parcel(0)), "all of them are busy"
    busy.drop(10)
    assert busy.on_part(ParcelPart(1, 2, 1, 7, 0, 0, 0, parcel(6))) == parcel(6), "in the middle of the connection"


def test_a_courier_in_the_place_of_another_goes_on_behind_what_that_one_has_acknowledged() -> None:
    """A node that is put out gets another engine: what the former one had acknowledged never comes again."""
    sender, former, after = Courier(1, TIMING), Courier(2, TIMING), Courier(2, TIMING)
    for number in (1, 2):
        sender.post(2, parcel(number))
    lost, beyond = sender.step(0).parts
    assert former.on_part(beyond) == parcel(2)
    (late,) = former.step(0).acks

    sender.post(2, parcel(3))
    (third,) = sender.step(0).parts
    assert after.on_part(third) == parcel(3)
    sender.on_ack(MS, late)
    assert after.on_part(lost) == parcel(1)
    for ack in after.step(MS).acks:
        sender.on_ack(2 * MS, ack)
    assert sender.is_at_rest

    sender.post(2, parcel(4))
    (fourth,) = sender.step(2 * MS).parts
    assert after.on_part(fourth) == parcel(4)
    for ack in after.step(2 * MS).acks:
        sender.on_ack(3 * MS, ack)
    assert sender.is_at_rest


def test_numbers_that_run_out_begin_a_new_connection() -> None:
    post = Post([1, 2], CourierTerms(last_seq=300))
    for number in range(400):
        post.send(1, 2, parcel(number))
        post.run()
    assert bodies(post, 2) == list(range(400))
    assert len({part.connection for _, part in post.sent}) > 2
    assert max(part.seq for _, part in post.sent) <= 300


def test_a_peer_that_was_excluded_is_forgotten_without_a_verdict() -> None:
    post = Post([1, 2])
    post.down.add(2)
    post.send(1, 2, parcel(0))
    post.couriers[1].drop(2)
    post.run()
    assert not post.given_up
    assert post.couriers[1].is_at_rest


def test_what_no_honest_peer_says_is_counted_and_dropped() -> None:
    post = Post([1, 2])
    post.send(1, 2, parcel(0))
    post.run()
    courier = post.couriers[2]
    part = ParcelPart(1, 2, 1, 2, 0, 0, 0, parcel(5))
    assert courier.on_part(part._replace(to=99)) is None
    assert courier.on_part(part._replace(connection=0)) is None
    assert courier.strange == 2
    sender = post.couriers[1]
    for ack in (
        CourierAck(2, 1, 1, 5, 5),
        CourierAck(2, 1, 1, 1, 9),
        CourierAck(2, 1, 7, 1, 1),
        CourierAck(2, 99, 1, 1, 1),
        CourierAck(77, 1, 1, 1, 1),
        CourierAck(2, 1, 1, 1, 1, 0b10),
    ):
        sender.on_ack(0, ack)
    assert sender.strange == 6


def test_parts_that_contradict_each_other_make_no_parcel_and_do_not_pile_up() -> None:
    courier = Courier(2, TIMING)
    for seq in range(1, 5_000):
        part = ParcelPart(1, 2, 1, seq, 0, 0, 200, parcel(1))
        assert courier.on_part(part._replace(behind=min(seq - 1, 3))) is None
        courier.step(0)


def test_a_parcel_that_no_train_of_datagrams_holds_is_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation):
        cut_parcel(parcel(1, 400_000), 1_400)


@pytest.mark.parametrize("terms", [{"window": 0}, {"window": MAX_WINDOW + 1}, {"datagram": 100}, {"last_seq": 3}])
def test_terms_that_make_no_sense_are_refused(terms: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        CourierTerms(**terms)
