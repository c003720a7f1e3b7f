"""Spread section 3.2, the Hop protocol (figures 3.1 and 3.2): one test for each rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.paper.spread import TIMING, Hops, Wires, packet

from ordercast.config import MAX_BLOCK, MIN_DATAGRAM, MS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.orderers.sites.hop import LINE_BYTES, MAX_QUEUED, HopFailure, HopLink, HopTerms
from ordercast.orderers.sites.horizon import window_of
from ordercast.orderers.sites.ring import MAX_FOREIGN
from ordercast.wire.header import Kind
from ordercast.wire.segments import Datagram
from ordercast.wire.sites import (
    LINK,
    MAX_LINK_SEQ,
    PACKET_OVERHEAD,
    SITE_SHIFT,
    STAMP_BYTES,
    HopAck,
    LinkPacket,
    SiteUpdate,
    encode_update,
)

FAST = HopTerms(bytes_per_s=1_000_000_000, burst_bytes=10_000_000)
START_NS = SECOND


def link(terms: HopTerms = FAST) -> HopLink:
    return HopLink(terms, TIMING)


def losing(hops: Hops, *seqs: int, times: int = 1) -> None:
    """Lose the packets with these link sequences, so often."""
    left = dict.fromkeys(seqs, times)

    def loses(_: int, datagram: Datagram) -> bool:
        if datagram.kind != Kind.PACKET:
            return False
        seq = LINK.unpack_from(datagram.body)[0] & MAX_LINK_SEQ
        left[seq] = left.get(seq, 0) - 1
        return left[seq] >= 0

    hops.wires.loses = loses


def times_of(hops: Hops, end: int, what: str) -> list[int]:
    """When an end said something of a kind, in nanoseconds from the beginning."""
    return [at_ns - START_NS for at_ns, said, output in hops.outputs if said == end and getattr(output, what)]


def test_a_packet_is_handed_on_at_once_although_earlier_ones_are_missing() -> None:
    """Section 3.2, non-blocking: packets are forwarded despite the loss of packets ordered earlier."""
    end = link()
    assert [end.received(START_NS, seq) for seq in (1, 4, 3, 9)] == [True] * 4
    assert (end.aru, end.missing) == (1, 5)


def test_packets_arrive_in_both_directions_of_one_link() -> None:
    """Section 3.2: a hop link is bi-directional, so each side can send to the other."""
    hops = Hops(FAST)
    hops.queue(0, range(1, 6))
    hops.queue(1, range(11, 16))
    hops.run()
    assert hops.got == ([11, 12, 13, 14, 15], [1, 2, 3, 4, 5])
    assert all(end.is_at_rest for end in hops.ends)


def test_a_gap_is_asked_for_after_a_short_wait() -> None:
    """Section 3.2: it sets a timer to wait for a short time to see if the missing packets were just delayed."""
    hops = Hops(FAST)
    losing(hops, 2, 3)
    hops.queue(0, range(1, 6))
    hops.run()
    assert times_of(hops, 1, "missing") == [1 * MS + FAST.nak_ns]
    assert [output.missing for _, _, output in hops.outputs if output.missing] == [[(2, 4)]]
    assert hops.got[1] == [1, 4, 5, 2, 3]


def test_a_packet_that_is_only_late_is_not_asked_for() -> None:
    """Section 3.2: the missing packets were just delayed or reordered in the network."""
    end = link()
    for seq in (1, 3):
        end.received(START_NS, seq)
    end.step(START_NS)
    end.received(START_NS + FAST.nak_ns - 1, 2)
    assert not end.step(START_NS + FAST.nak_ns).missing
    assert (end.aru, end.missing) == (3, 0)


def test_a_nack_is_repeated_until_all_missing_packets_have_come() -> None:
    """Section 3.2: the link nack will be resent with the current list every time the timer expires."""
    hops = Hops(FAST)
    losing(hops, 2, times=4)
    hops.queue(0, range(1, 4))
    hops.run()
    assert len(times_of(hops, 1, "missing")) == 4
    assert hops.got[1] == [1, 3, 2]
    assert all(end.is_at_rest and not end.is_dead for end in hops.ends)


def test_a_packet_is_not_asked_for_again_before_the_answer_can_be_there() -> None:
    """Deviation: each missing packet has its own timer, which follows the round trip of the link."""
    wires = Wires()
    wires.latency_ns = 150 * MS
    hops = Hops(FAST, wires)
    hops.queue(0, range(1, 100))  # the ends learn the round trip by their ACKs
    hops.queue(1, range(1, 100))
    hops.run()
    losing(hops, 101)
    hops.queue(0, range(100, 105))
    hops.run()
    assert len(times_of(hops, 1, "missing")) == 1
    assert hops.got[1][-5:] == [100, 102, 103, 104, 101]


def test_a_packet_that_was_asked_for_too_often_makes_its_sender_dead_although_other_data_comes() -> None:
    """Section 3.2: this membership change occurs even if the receiver has received other data from the sender."""
    hops = Hops(HopTerms(requests=3, burst_bytes=1_000_000))
    losing(hops, 2, times=1_000)
    hops.queue(0, range(1, 4))
    asked = 0
    for number in range(4, 1_000):
        hops.queue(0, [number])
        hops.run(hops.wires.now_ns + 50 * MS)
        asked = len(times_of(hops, 1, "missing"))
        if hops.ends[1].is_dead:
            break
    assert hops.ends[1].failure is HopFailure.UNANSWERED
    assert asked == 4  # three that were not answered, and the one at whose time it was found out
    assert len(hops.got[1]) == number - 1
    assert not hops.ends[0].is_dead


def test_the_sender_answers_a_nack_from_its_open_packets() -> None:
    """Section 3.2: upon a link nack the sender adds the requested packets to the queue of data to be sent."""
    end = link()
    for number in range(1, 6):
        end.queue(packet(number))
    end.step(START_NS)
    end.on_nak(((2, 4), (5, 9)))
    assert [seq for seq, _ in end.step(START_NS).packets] == [2, 3, 5]
    assert end.resent == 3


def test_a_packet_that_is_asked_for_twice_before_it_leaves_leaves_once() -> None:
    """Section 3.2: the queue of data to be sent has it already."""
    end = link()
    end.queue(packet(1))
    end.step(START_NS)
    end.on_nak(((1, 2),))
    end.on_nak(((1, 2),))
    assert [seq for seq, _ in end.step(START_NS).packets] == [1]


def test_retransmissions_count_as_sent_data() -> None:
    """Section 3.2: the retransmitted packets will be included as sent data in the flow control calculations."""
    size = packet(1).size + LINE_BYTES
    end = link(HopTerms(bytes_per_s=size * 10, burst_bytes=size * 3))
    for number in range(1, 4):
        end.queue(packet(number))
    assert len(end.step(START_NS).packets) == 3
    end.on_nak(((1, 4),))
    assert end.step(START_NS).packets == []
    assert end.deadline_ns() <= START_NS + SECOND // 10
    assert [seq for seq, _ in end.step(START_NS + SECOND // 10).packets] == [1]
    assert [seq for seq, _ in end.step(START_NS + SECOND).packets] == [2, 3]


def test_the_bucket_bounds_what_leaves_at_once_and_over_time() -> None:
    """Section 3.2: a token/leaky bucket regulator limits what can be sent at one time and the maximum overall rate."""
    size = packet(1).size + LINE_BYTES
    terms = HopTerms(bytes_per_s=size * 100, burst_bytes=size * 10)
    hops = Hops(terms)
    hops.queue(0, range(1, 201))
    hops.run()
    assert len(hops.got[1]) == 200
    at_once = sum(bytes_ for at_ns, _, bytes_ in hops.left if at_ns == START_NS)
    assert at_once == size * 10
    for at_ns, _, _ in hops.left:
        until = sum(bytes_ for other_ns, _, bytes_ in hops.left if other_ns <= at_ns)
        assert until <= size * 10 + size * 100 * (at_ns - START_NS) // SECOND
    assert hops.left[-1][0] - START_NS == 1_900 * MS  # as fast as the rate allows, and no slower


def test_a_packet_larger_than_the_bucket_leaves_when_the_bucket_is_full() -> None:
    """A bucket that could never let it pass would stop the link."""
    end = link(HopTerms(bytes_per_s=1_000, burst_bytes=100))
    for number in (1, 2):
        end.queue(packet(number, b"x" * 1_000))
    assert len(end.step(START_NS).packets) == 1
    assert end.step(START_NS + SECOND // 2).packets == []
    assert len(end.step(START_NS + 2 * SECOND).packets) == 1


def test_the_window_bounds_what_is_outstanding() -> None:
    """Section 3.2: a sliding window, which limits the total outstanding packets on the link."""
    end = link(HopTerms(window=4, burst_bytes=1_000_000))
    for number in range(1, 11):
        end.queue(packet(number))
    assert [seq for seq, _ in end.step(START_NS).packets] == [1, 2, 3, 4]
    end.on_ack(START_NS, HopAck(2, 0, 0, 0, 0))
    assert [seq for seq, _ in end.step(START_NS).packets] == [5, 6]
    assert (end.out, end.waiting) == (4, 4)


def test_an_ack_frees_packets_up_to_and_including_its_aru() -> None:
    """Figure 3.2 removes those below it; erratum."""
    end = link()
    for number in range(1, 4):
        end.queue(packet(number))
    end.step(START_NS)
    end.on_ack(START_NS, HopAck(3, 0, 0, 0, 0))
    assert end.out == 0
    end.on_nak(((3, 4),))
    assert end.step(START_NS).packets == []


def test_an_old_ack_frees_nothing_again() -> None:
    """Figure 3.2: only if s_other_end_aru < ack.link_aru."""
    end = link()
    for number in range(1, 6):
        end.queue(packet(number))
    end.step(START_NS)
    for aru in (4, 2, 4):
        end.on_ack(START_NS, HopAck(aru, 0, 0, 0, 0))
    assert (end.out, end.strange) == (1, 0)


def test_an_ack_is_sent_a_short_time_after_the_first_packet() -> None:
    """Figure 3.2: if pkt_count == 1, Event_Queue(Hop_Send_Ack, ShortHopAckTimeout)."""
    end = link()
    end.received(START_NS, 1)
    end.received(START_NS + MS, 2)
    assert end.step(START_NS + MS).ack is None
    assert end.deadline_ns() == START_NS + FAST.ack_short_ns
    ack = end.step(START_NS + FAST.ack_short_ns).ack
    assert ack is not None
    assert (ack.aru, ack.max_sent) == (2, 0)


def test_an_ack_is_sent_at_once_after_so_many_packets() -> None:
    """Figure 3.2: if pkt_count > Max_Count_Between_Acks, Send_Link_Ack; the count begins anew with it."""
    end = link(HopTerms(ack_packets=4))
    acks = []
    for seq in range(1, 13):
        end.received(START_NS, seq)
        acks.append(end.step(START_NS).ack)
    assert [ack.aru for ack in acks if ack is not None] == [5, 10]


def test_an_ack_tells_what_was_sent_so_that_the_loss_of_the_last_packet_is_noticed() -> None:
    """Section 3.2: an Ack is a copy of the receiver's link_aru and the sender's highest_linkseq."""
    hops = Hops(FAST)
    losing(hops, 3)
    hops.queue(0, range(1, 4))
    hops.run()
    assert hops.got[1] == [1, 2, 3]
    assert times_of(hops, 1, "missing")[0] <= FAST.ack_short_ns + 1 * MS + FAST.nak_ns


def test_acks_go_on_after_a_long_time_while_anything_is_open() -> None:
    """Figure 3.2: Hop_Send_Ack queues itself again after LongHopAckTimeout."""
    end = link()
    end.queue(packet(1))
    end.step(START_NS)
    at_ns = [START_NS]
    for _ in range(3):
        at_ns.append(end.deadline_ns())
        assert end.step(at_ns[-1]).ack is not None
    assert [later - earlier for earlier, later in pairwise(at_ns)] == [
        FAST.ack_short_ns,
        FAST.ack_long_ns,
        FAST.ack_long_ns,
    ]


def test_a_link_where_everything_is_acknowledged_is_silent() -> None:
    """Deviation from figure 3.2, which sends ACKs forever."""
    hops = Hops(FAST)
    hops.queue(0, range(1, 100))
    hops.run()
    assert [end.deadline_ns() for end in hops.ends] == [NEVER, NEVER]
    assert hops.wires.next_ns() == NEVER


def test_a_lost_ack_is_repeated_when_the_sender_shows_that_it_lacks_it() -> None:
    """Deviation: ACKs end, so the one that ends them may be lost."""
    hops = Hops(FAST)
    lost: list[int] = []

    def loses(to: int, datagram: Datagram) -> bool:
        if to == 0 and datagram.kind == Kind.HOP_ACK and len(lost) < 3:
            lost.append(datagram.kind)
            return True
        return False

    hops.wires.loses = loses
    hops.queue(0, range(1, 4))
    hops.run()
    assert len(lost) == 3
    assert [end.out for end in hops.ends] == [0, 0]
    assert all(end.is_at_rest for end in hops.ends)


def test_highest_seq_rises_also_while_the_aru_lags() -> None:
    """Erratum of figure 3.2: otherwise packets after a gap would be asked for, although they came."""
    end = link()
    for seq in (1, 3, 4, 5):
        end.received(START_NS, seq)
    assert (end.aru, end.missing) == (1, 1)
    end.step(START_NS)
    assert end.step(START_NS + FAST.nak_ns).missing == [(2, 3)]


def test_the_aru_moves_up_to_the_lowest_missing_packet() -> None:
    """Figure 3.2: r_link_aru := lowest_missing_linkseq - 1, or r_highest_seq if there is none."""
    end = link()
    arus = []
    for seq in (1, 4, 7, 2, 3, 6, 5):
        end.received(START_NS, seq)
        arus.append(end.aru)
    assert arus == [1, 1, 1, 2, 4, 4, 7]


def test_duplicates_are_not_handed_on() -> None:
    """Figure 3.2: if duplicate packet, return Null."""
    end = link()
    assert [end.received(START_NS, seq) for seq in (1, 1, 3, 3, 2, 2)] == [True, False, True, False, True, False]
    assert end.duplicates == 3


def test_an_unreliable_packet_is_neither_numbered_nor_repeated() -> None:
    """Section 3.3: unreliable messages need none of the support provided to reliable messages."""
    end = link()
    end.queue(packet(1))
    end.queue(packet(2, is_reliable=False))
    end.queue(packet(3))
    assert [seq for seq, _ in end.step(START_NS).packets] == [1, 0, 2]
    assert end.out == 2
    assert link().received(START_NS, 0)


def test_a_site_that_forwards_drops_unreliable_packets_where_its_link_is_behind() -> None:
    """Not in the paper, which bounds them at their own site only."""
    slow = link(HopTerms(bytes_per_s=100_000, burst_bytes=2_000))
    count = 0
    while slow.passes(one := packet(count, bytes(1_000), is_reliable=False)):
        slow.queue(one)
        count += 1
    assert 2 <= count <= 10  # 50 ms of the rate
    assert slow.passes(packet(count, priority=3, is_reliable=False))  # urgent ones up to 150 ms
    assert slow.step(SECOND).packets
    slow.step(2 * SECOND)
    assert slow.passes(packet(count, is_reliable=False))


def test_an_unreliable_block_goes_on_as_a_whole_or_not_at_all() -> None:
    slow = link(HopTerms(bytes_per_s=100_000, burst_bytes=2_000))
    whole = [packet(1, bytes(1_000), is_reliable=False)._replace(segment=each, last=40) for each in range(41)]
    for each in whole:
        assert slow.passes(each)
        slow.queue(each)
    late = [packet(2, bytes(1_000), is_reliable=False)._replace(segment=each, last=40) for each in range(41)]
    assert not any(slow.passes(each) for each in late)
    # Where the first segment was lost before, what waits has a bound all the same.
    stray = packet(3, bytes(1_000), is_reliable=False)._replace(segment=1, last=2)
    count = 0
    while slow.passes(stray):
        slow.queue(stray)
        count += 1
    assert count <= MAX_BLOCK // 1_000 + 10


def test_lost_packets_are_sent_again_by_the_parent_of_the_link() -> None:
    """Section 3.2, fast retransmits: the immediate parent of the link where the loss occurred handles them."""
    first, second = Hops(FAST), Hops(FAST)
    losing(second, 2, 5)
    first.queue(0, range(1, 8))
    first.run()
    for number in first.got[1]:
        second.queue(0, [number])
    second.run()
    assert sorted(second.got[1]) == list(range(1, 8))
    assert (first.ends[0].resent, second.ends[0].resent) == (0, 2)


def test_urgent_packets_leave_first_and_the_rest_gets_a_fifth() -> None:
    """SITES section 5: strict with a floor of 20 % for the rest, and the order of link queues."""
    end = link()
    for number in range(1, 101):
        end.queue(packet(number, priority=0))
        end.queue(packet(1_000 + number, priority=2))
    order = [each.number for _, each in end.step(START_NS).packets]
    assert order[:4] == [1_001, 1_002, 1_003, 1_004]
    first = order[:100]
    assert len([number for number in first if number < 1_000]) == 20
    assert sorted(order) == [*range(1, 101), *range(1_001, 1_101)]
    assert [number for number in order if number < 1_000] == list(range(1, 101))


def test_a_link_is_kept_over_a_view_change_with_its_round_trip_and_new_numbers() -> None:
    """SITES section 3: links between representatives that live are kept."""
    wires = Wires()
    wires.latency_ns = 100 * MS
    hops = Hops(FAST, wires)
    hops.queue(0, range(1, 50))
    hops.queue(1, range(1, 50))
    hops.run()
    hops.queue(0, range(50, 60))  # under way when the view ends
    for end in hops.ends:
        end.restart()
        assert end.is_at_rest
    while hops.wires.next_ns() != NEVER:
        hops.wires.take()
    hops.outputs.clear()
    losing(hops, 2)
    hops.queue(0, range(100, 104))
    hops.run()
    assert hops.got[1][-4:] == [100, 102, 103, 101]
    assert len(times_of(hops, 1, "missing")) == 1  # a fresh estimate would have asked twice within the round trip


def test_what_the_other_end_cannot_have_said_is_counted_and_dropped() -> None:
    """An ACK of what was never sent; more sent than the window allows."""
    end = link(HopTerms(peer_window=100))
    end.on_ack(START_NS, HopAck(1, 0, 0, 0, 0))
    end.on_ack(START_NS, HopAck(0, 101, 0, 0, 0))
    assert not end.received(START_NS, 101)
    assert end.strange == 3
    assert end.missing == 0
    assert end.received(START_NS, 100)


def test_a_link_with_more_packets_than_it_may_hold_is_dead() -> None:
    """Section 3.2: otherwise, the system will be forced to block eventually due to buffering."""
    end = link(HopTerms(window=1))
    one = packet(1, b"x")
    for _ in range(MAX_QUEUED + 2):
        end.queue(one)
    assert end.failure is HopFailure.OVERRUN
    assert end.waiting == MAX_QUEUED


def test_a_slow_link_that_all_sources_send_to_is_not_dead() -> None:
    """Each of them may have a window of blocks under way, of the smallest segments. A site that forwards has no say in
    that, and a view without the slow site would merge with it again at once."""
    slow, one = link(HopTerms(window=1)), packet(1, b"x")
    segments = -(-(MAX_BLOCK + STAMP_BYTES) // (MIN_DATAGRAM - PACKET_OVERHEAD))
    for sites in (2, 64):
        assert window_of(sites) * sites * segments <= MAX_QUEUED
        assert window_of(sites) * sites * segments <= MAX_FOREIGN
    for _ in range(100_000):  # 20 daemons with 4 MiB each, in datagrams of a LAN: more than there was room for
        slow.queue(one)
    assert not slow.is_dead


def test_more_gaps_than_one_nack_names_are_asked_for_a_little_later() -> None:
    """A HOP_NAK has at most 64 ranges."""
    end = link()
    for seq in range(1, 401, 2):
        end.received(START_NS, seq)
    end.step(START_NS)
    asked: list[int] = []
    while len(asked) < 199:
        at_ns = end.deadline_ns()
        missing = end.step(at_ns).missing
        assert len(missing) <= 64
        asked += [first for first, _ in missing]
    assert sorted(set(asked)) == list(range(2, 400, 2))
    assert not end.is_dead


@pytest.mark.parametrize("terms", [{"window": 0}, {"window": 65_536}, {"peer_window": 0}, {"requests": 0}])
def test_terms_that_cannot_work_are_refused(terms: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        HopTerms(**terms)


def update(site: int, seq: int, clock: int) -> LinkPacket:
    return LinkPacket(
        int(Kind.UPDATE), 1, site << SITE_SHIFT | seq, 0b11, encode_update(SiteUpdate(site, seq, clock, 0))
    )


def test_of_the_updates_of_a_source_the_newest_waits() -> None:
    """Section 3.2: aggregated control information. A token makes an UPDATE with each rotation, faster than a slow link
    takes them; and one may be overtaken on its way here."""
    end = link(HopTerms(bytes_per_s=1_000, burst_bytes=300))
    for number in (1, 2):
        end.queue(packet(number))
    assert len(end.step(START_NS).packets) == 1
    for clock in (5, 9, 7):
        end.queue(update(0, 1, clock))
        end.queue(update(1, 1, clock))
    assert end.waiting == 3
    later = [each for second in (1, 2) for _, each in end.step(START_NS + second * SECOND).packets]
    assert later[1:] == [update(0, 1, 9), update(1, 1, 9)]
    end.queue(update(0, 2, 11))
    assert end.waiting == 1


def test_control_packets_follow_one_another_no_faster_than_the_line_takes_them() -> None:
    """Section 3.2: aggregated control information. A burst of them would stand before a slow line, and what they say
    would be old when it comes. Data behind them goes with them."""
    end = link(HopTerms(bytes_per_s=10_000, burst_bytes=100_000, ack_short_ns=SECOND))
    each_ns = (update(0, 1, 1).size + LINE_BYTES) * SECOND // 10_000
    end.queue(update(0, 1, 1))
    end.queue(update(1, 1, 1))
    end.queue(packet(7))
    assert [seq for seq, _ in end.step(START_NS).packets] == [1]
    end.queue(update(1, 2, 2))
    assert end.deadline_ns() == START_NS + each_ns
    assert not end.step(START_NS + each_ns - 1).packets
    later = end.step(START_NS + each_ns).packets
    assert [(seq, each.kind) for seq, each in later] == [(2, Kind.UPDATE), (3, Kind.PACKET)]
    assert later[0][1].body == update(1, 2, 2).body, "the newest has taken the place of the one that waited"


def test_data_does_not_wait_for_the_pace_of_control_packets() -> None:
    """It has the burst of the bucket, as before."""
    end = link(HopTerms(bytes_per_s=10_000, burst_bytes=100_000))
    end.queue(update(0, 1, 1))
    for number in range(1, 6):
        end.queue(packet(number))
    assert len(end.step(START_NS).packets) == 6
