"""Spread section 3.2, the Ring protocol (figure 3.3): one test for each rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.paper.spread import TIMING, Rings, Wires, packet

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import InvariantViolation, UsageError
from ordercast.orderers.sites.passing import ALL, RingControl
from ordercast.orderers.sites.ring import RingTerms, SiteRing, merged_aru
from ordercast.wire.header import Kind
from ordercast.wire.segments import Datagram
from ordercast.wire.sites import (
    LINK,
    MAX_LINK_SEQ,
    MAX_RANGES,
    RESTS,
    SEEN,
    SiteToken,
    decode_site_token,
    encode_site_token,
)

NOW_NS = SECOND
MOST_OPEN = RingTerms().most_open
ME, NEXT, OTHER = 2, 3, 1  # in the ring 1, 2, 3


def ring(terms: RingTerms | None = None, members: tuple[int, ...] = (OTHER, ME, NEXT), me: int = ME) -> SiteRing:
    return SiteRing(me, members, terms or RingTerms(), TIMING, 100)


def token(number: int = 1, **fields: object) -> SiteToken:
    return SiteToken(number, site_lts=100)._replace(**fields)  # type: ignore[arg-type]


def passed_by(each: SiteRing, at_ns: int = NOW_NS) -> SiteToken:
    """The token that a daemon passes now."""
    return sent_token(each.step(at_ns).controls)


def sent_token(controls: list[RingControl]) -> SiteToken:
    (control,) = controls
    assert control.kind == Kind.SITE_TOKEN
    return decode_site_token(control.body)


def losing(rings: Rings, kind: Kind, times: int, to: int = 0, seq: int = 0) -> None:
    """Lose the next datagrams of a kind, to a daemon if `to` is given, with a link sequence if `seq` is."""
    left = [times]

    def loses(target: int, datagram: Datagram) -> bool:
        if datagram.kind != kind or (to and to != target) or not left[0]:
            return False
        if seq and LINK.unpack_from(datagram.body)[0] & MAX_LINK_SEQ != seq:
            return False
        left[0] -= 1
        return True

    rings.wires.loses = loses


# The token. ----------------------------------------------------------------------------------------------------------


def test_the_token_goes_around_in_the_order_of_the_ring() -> None:
    """Section 3.2: update the token with new information and send it to the next daemon in the ring."""
    rings = Rings(3)
    rings.send(3, [7])
    rings.run()
    holders = [daemon for daemon, _, _ in rings.visits]
    assert holders[:6] == [1, 2, 3, 1, 2, 3]
    assert [each.number for _, _, each in rings.visits] == list(range(1, len(holders) + 1))


def test_a_packet_reaches_all_daemons_of_the_site() -> None:
    """Section 3.2: for every reliable packet sent, a unique link_seq is assigned and the counter is incremented."""
    rings = Rings(3)
    for daemon in rings.ids:
        rings.send(daemon, [daemon * 10, daemon * 10 + 1])
    rings.run()
    assert {each: sorted(got) for each, got in rings.got.items()} == {
        1: [20, 21, 30, 31],
        2: [10, 11, 30, 31],
        3: [10, 11, 20, 21],
    }
    assert {each.aru for each in rings.rings.values()} == {6}


def test_packets_are_handed_up_at_once_although_earlier_ones_are_missing() -> None:
    """Section 3.2, non-blocking."""
    each = ring()
    assert [each.on_packet(NOW_NS, seq, packet(seq)) for seq in (2, 5, 2, 1)] == [True, True, False, True]
    assert each.aru == 2


def test_only_the_holder_stamps() -> None:
    """Section 3.2: for each message processed into the system, a new site_seq and site_lts value is assigned."""
    each = ring()
    assert each.room == 0
    with pytest.raises(InvariantViolation):
        each.stamp()
    with pytest.raises(InvariantViolation):
        each.queue_own(packet(1))
    each.on_token(NOW_NS, OTHER, token(site_seq=5, site_lts=200))
    assert each.is_holding
    assert each.room == RingTerms().individual(3)
    assert [each.stamp(), each.stamp()] == [(6, 201), (7, 202)]
    passed = passed_by(each)
    assert (passed.site_seq, passed.site_lts) == (7, 202)


def test_stamps_of_all_daemons_are_one_rising_sequence() -> None:
    """Section 3.2: site_seq combined with the site id is a unique identifier of every message sent in the system."""
    rings = Rings(3)
    for daemon in rings.ids:
        rings.send(daemon, range(daemon * 1_000, daemon * 1_000 + 150))
    rings.run()
    assert [seq for seq, _ in rings.stamps] == list(range(1, 451))
    assert all(earlier < later for (_, earlier), (_, later) in pairwise(rings.stamps))


def test_a_clock_that_was_heard_raises_the_time_stamps_of_the_whole_site() -> None:
    """Section 3.2: site_lts is the highest LTS value seen by any member of the ring so far."""
    rings = Rings(3)
    rings.rings[2].hear_clock(5_000)
    rings.step(2)
    rings.run()
    rings.send(3, [1])
    rings.run()
    assert rings.stamps == [(1, 5_001)]
    assert {each.state.clock for each in rings.rings.values()} == {5_001}


def test_a_duplicate_of_a_token_is_dropped() -> None:
    """Figure 3.3: drop token if it is malformed, a duplicate, or the wrong size."""
    each = ring()
    each.on_token(NOW_NS, OTHER, token())
    each.step(NOW_NS)
    each.on_token(NOW_NS, OTHER, token())
    assert not each.is_holding
    assert each.duplicates == 1


@pytest.mark.parametrize(
    ("origin", "changed"),
    [
        (9, {}),  # no daemon of the site
        (NEXT, {}),  # not the one before us
        (OTHER, {"number": 4}),  # the token would have had to pass us
        (OTHER, {"number": 2}),  # it is the next one's turn
        (OTHER, {"link_seq": 2 * MOST_OPEN + 1}),  # more than a site may have out
        (OTHER, {"site_lts": 99}),  # clocks do not fall
        (NEXT, {"number": 1, "flags": RESTS}),  # it cannot rest there with this number
        (OTHER, {"number": 3, "flags": RESTS}),
    ],
)
def test_a_token_that_cannot_be_is_counted_and_dropped(origin: int, changed: dict[str, int]) -> None:
    """Figure 3.3: drop token if it is malformed."""
    each = ring()
    each.on_token(NOW_NS, origin, token()._replace(**changed))  # type: ignore[arg-type]
    assert not each.is_holding
    assert each.strange == 1
    each.on_token(NOW_NS, OTHER, token())
    assert each.is_holding


# Reliability. --------------------------------------------------------------------------------------------------------


def test_the_next_holder_sends_what_the_token_asks_for_again() -> None:
    """Section 3.2: upon receiving the token a daemon will handle any retransmits requested by the previous holder."""
    rings = Rings(3)
    losing(rings, Kind.PACKET, 1, to=2, seq=2)
    rings.send(1, [11, 12, 13])
    rings.run()
    assert sorted(rings.got[2]) == [11, 12, 13]
    assert {each: ring.resent for each, ring in rings.rings.items()} == {1: 0, 2: 0, 3: 1}
    asked = [(daemon, each.wanted) for daemon, _, each in rings.visits if each.wanted]
    assert asked == [(2, ((2, 3),))]


def test_requests_are_answered_before_new_packets_are_sent() -> None:
    """Figure 3.3: the order of Ring_handle_token."""
    each = ring()
    for seq in (1, 2, 3):
        each.on_packet(NOW_NS, seq, packet(seq))
    each.on_token(NOW_NS, OTHER, token(link_seq=3, wanted=((2, 4),)))
    each.stamp()
    each.queue_own(packet(50))
    output = each.step(NOW_NS)
    assert [(seq, one.number) for seq, one in output.packets] == [(2, 2), (3, 3), (4, 50)]
    assert sent_token(output.controls).link_seq == 4


def test_a_daemon_asks_for_everything_that_was_numbered_and_has_not_come() -> None:
    """Figure 3.3: highest_seq := token.link_seq; add any link_seq values I am missing to the token."""
    each = ring()
    for seq in (1, 4):
        each.on_packet(NOW_NS, seq, packet(seq))
    each.on_token(NOW_NS, OTHER, token(link_seq=7))
    assert passed_by(each).wanted == ((2, 4), (5, 8))


def test_what_a_daemon_lacks_as_well_stays_on_the_token() -> None:
    """Section 3.2: the requests are those of the previous holder; one who lacks the same asks for it itself."""
    each = ring()
    each.on_packet(NOW_NS, 2, packet(2))
    each.on_token(NOW_NS, OTHER, token(link_seq=2, wanted=((1, 3),)))
    output = each.step(NOW_NS)
    assert [seq for seq, _ in output.packets] == [2]
    assert sent_token(output.controls).wanted == ((1, 2),)


def test_requests_that_the_share_does_not_cover_stay_on_the_token() -> None:
    """Section 3.2: retransmits count in flow_control, so they are bounded by it."""
    each = ring(RingTerms(window=6, personal_window=2))
    for seq in range(1, 6):
        each.on_packet(NOW_NS, seq, packet(seq))
    each.on_token(NOW_NS, OTHER, token(link_seq=5, wanted=((1, 6),)))
    output = each.step(NOW_NS)
    assert [seq for seq, _ in output.packets] == [1, 2]
    passed = sent_token(output.controls)
    assert (passed.wanted, passed.flow_control) == (((3, 6),), 2)


def test_the_list_of_requests_is_bounded() -> None:
    """A token asks for at most 64 ranges; the rest after these have come."""
    each = ring()
    for seq in range(2, 601, 2):
        each.on_packet(NOW_NS, seq, packet(seq))
    each.on_token(NOW_NS, OTHER, token(link_seq=600))
    wanted = passed_by(each).wanted
    assert len(wanted) == MAX_RANGES
    assert wanted[0] == (1, 2)


# The ARUs. -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "value", "modifier", "expected"),
    [
        (3, 5, 0, (3, ME)),  # "if the local value is less, then the token value is lowered"
        (3, 5, OTHER, (3, ME)),
        (7, 5, ME, (7, 0)),  # "the daemon raises the token value only if the modifier is this daemon's id"
        (7, 5, 0, (7, 0)),  # "or the modifier is zero"
        (7, 5, OTHER, (5, OTHER)),
        (5, 5, ME, (5, ME)),
        (5, 5, 0, (5, 0)),
    ],
)
def test_an_aru_is_lowered_by_anyone_and_raised_by_its_modifier(
    mine: int, value: int, modifier: int, expected: tuple[int, int]
) -> None:
    """Section 3.2: to update the link and site aru values on the token."""
    assert merged_aru(mine, value, modifier, ME) == expected


def test_the_two_arus_have_modifiers_of_their_own() -> None:
    """Erratum: with one modifier, who lowers link_aru would be the one that raises site_aru."""
    each = ring()
    each.on_packet(NOW_NS, 1, packet(1))
    each.set_horizon(150)
    sent = token(link_seq=3, link_aru=3, site_aru=40, site_modifier=OTHER, site_lts=200)
    each.on_token(NOW_NS, OTHER, sent)
    passed = passed_by(each)
    assert (passed.link_aru, passed.link_modifier) == (1, ME)
    assert (passed.site_aru, passed.site_modifier) == (40, OTHER)


def test_packets_are_kept_until_two_tokens_say_that_all_have_them() -> None:
    """Section 3.2: the lesser of this just calculated token aru value, and the value from the previous round."""
    each = ring()
    for seq in (1, 2, 3):
        each.on_packet(NOW_NS, seq, packet(seq))
    each.on_token(NOW_NS, OTHER, token(1, link_seq=3, link_aru=2, link_modifier=NEXT))
    each.step(NOW_NS)
    assert (each.ring_aru, each.open) == (0, 3)  # the token before said nothing yet
    each.on_token(NOW_NS, OTHER, token(4, link_seq=3, link_aru=3))
    each.step(NOW_NS)
    assert (each.ring_aru, each.open) == (2, 1)
    each.on_token(NOW_NS, OTHER, token(7, link_seq=3, link_aru=3))
    each.step(NOW_NS)
    assert (each.ring_aru, each.open) == (3, 0)  # up to and including: erratum of figure 3.3


def test_the_site_aru_is_the_smallest_horizon_of_its_daemons() -> None:
    """Section 3.2: the LTS number up to which all members of the site have received all messages."""
    rings = Rings(3)
    rings.follows_clock = False
    horizons = {1: 170, 2: 130, 3: 150}
    for daemon, horizon in horizons.items():
        rings.rings[daemon].hear_clock(200)
        rings.rings[daemon].set_horizon(horizon)
    rings.step(1)
    rings.run()
    assert [each.site_aru for each in rings.rings.values()] == [130, 130, 130]
    rings.rings[2].set_horizon(160)
    rings.step(2)
    rings.run()
    assert [each.site_aru for each in rings.rings.values()] == [150, 150, 150]


def test_no_daemon_frees_a_packet_that_another_one_lacks() -> None:
    """Section 3.2: it is used to control when a link can discard any local references to a packet."""
    rings = Rings(4)
    losing(rings, Kind.PACKET, 1_000, to=3, seq=2)
    rings.send(1, [11, 12, 13, 14])
    rings.run(rings.wires.now_ns + 200 * MS)
    assert [each.ring_aru for each in rings.rings.values()] == [1] * 4
    rings.wires.loses = None
    rings.run()
    assert [each.open for each in rings.rings.values()] == [0] * 4
    assert sorted(rings.got[3]) == [11, 12, 13, 14]


# Flow control. -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flow_control", "sent_before", "allowed"),
    [(0, 0, 10), (25, 0, 5), (25, 4, 9), (25, 8, 10), (30, 0, 0), (30, 3, 3), (40, 2, 0)],
)
def test_a_daemon_sends_the_lesser_of_its_limit_and_what_the_ring_has_left(
    flow_control: int, sent_before: int, allowed: int
) -> None:
    """Section 3.2: the lesser of its individual limit and the total limit minus flow_control plus its last."""
    each = ring(RingTerms(window=30, personal_window=10))
    each.on_token(NOW_NS, OTHER, token(1))
    for number in range(sent_before):
        each.queue_own(packet(number))
    assert len(each.step(NOW_NS).packets) == sent_before
    each.on_token(NOW_NS, OTHER, token(4, link_seq=sent_before, flow_control=flow_control))
    for number in range(20):
        each.queue_own(packet(100 + number))
    output = each.step(NOW_NS)
    assert len(output.packets) == allowed
    assert sent_token(output.controls).flow_control == max(0, flow_control - sent_before) + allowed


def test_a_rotation_never_has_more_packets_than_the_ring_allows() -> None:
    """Section 3.2: the number of packets which can be sent on the entire ring per round is a tuning parameter."""
    rings = Rings(4, RingTerms(window=10, personal_window=4), Wires(5, loss=0.05))
    for daemon in rings.ids:
        rings.send(daemon, range(daemon * 1_000, daemon * 1_000 + 100))
    rings.run()
    sent = [count for _, count, _ in rings.visits]
    assert max(sum(sent[at : at + 4]) for at in range(len(sent))) <= 10
    assert max(sent) == 2  # an equal part of the window, so that nobody is left with nothing


def test_what_does_not_fit_one_visit_leaves_with_the_next_ones() -> None:
    rings = Rings(2, RingTerms(window=8, personal_window=4))
    rings.send(2, range(1, 51))
    rings.run()
    assert rings.got[1] == list(range(1, 51))


def test_packets_of_other_sites_go_first_and_own_ones_get_a_fifth() -> None:
    """The share of the representative: what is under way already goes first, with the floor of SITES section 5."""
    each = ring(RingTerms(window=60, personal_window=20))
    for number in range(100):
        each.queue_foreign(packet(1_000 + number))
    each.on_token(NOW_NS, OTHER, token())
    for number in range(each.room):
        each.queue_own(packet(number))
    numbers = [one.number for _, one in each.step(NOW_NS).packets]
    assert len(numbers) == 20
    assert len([number for number in numbers if number < 1_000]) == 4


def test_unreliable_packets_count_in_flow_control_and_have_no_number() -> None:
    """Section 3.3: unreliable messages are still sent only when a daemon has the token because of flow control."""
    each = ring(RingTerms(window=6, personal_window=2))
    each.on_token(NOW_NS, OTHER, token())
    for number in range(3):
        each.queue_own(packet(number, is_reliable=False))
    output = each.step(NOW_NS)
    assert [seq for seq, _ in output.packets] == [0, 0]
    passed = sent_token(output.controls)
    assert (passed.flow_control, passed.link_seq) == (2, 0)
    assert each.open == 0


def test_unreliable_packets_of_other_sites_wait_for_one_rotation_at_most() -> None:
    each = ring(RingTerms(window=20, personal_window=10))
    taken = [each.queue_foreign(packet(number, is_reliable=False)) for number in range(30)]
    assert taken == [True] * 20 + [False] * 10
    assert each.queue_foreign(packet(99))  # what is reliable waits
    assert not each.is_overrun


def test_a_holder_sends_nothing_new_while_too_much_is_kept_for_a_daemon_that_lacks_it() -> None:
    """A bound that the paper leaves to its array: eight rotations beyond what all have."""
    each = ring()
    for seq in range(1, MOST_OPEN + 1):
        each.on_packet(NOW_NS, seq, packet(seq, b"x"))
    each.on_token(NOW_NS, OTHER, token(link_seq=MOST_OPEN, link_aru=0, link_modifier=NEXT))
    each.queue_own(packet(1))
    assert each.step(NOW_NS).packets == []
    assert (each.waiting, each.open) == (1, MOST_OPEN)


# The token that is lost, or rests. -----------------------------------------------------------------------------------


def test_a_token_is_passed_again_until_there_is_a_sign_of_it() -> None:
    """SITES section 3; Totem retransmits the token likewise."""
    rings = Rings(3)
    losing(rings, Kind.SITE_TOKEN, 3, to=2)
    rings.send(1, [1])
    rings.run()
    assert rings.got == {1: [], 2: [1], 3: [1]}
    assert not any(each.is_lost for each in rings.rings.values())


def test_a_packet_with_a_later_number_is_a_sign_of_the_token() -> None:
    """Only a later holder can have numbered it."""
    each = ring()
    each.on_token(NOW_NS, OTHER, token())
    each.step(NOW_NS)
    assert each.deadline_ns() != NEVER
    each.on_packet(NOW_NS + MS, 1, packet(1))
    assert each.deadline_ns() == NEVER


def test_a_daemon_that_gets_a_token_again_says_that_it_had_it() -> None:
    """Otherwise the daemon before it would pass it again until it gives up."""
    each = ring()
    each.on_token(NOW_NS, OTHER, token())
    each.step(NOW_NS)
    each.on_token(NOW_NS, OTHER, token())
    (control,) = each.step(NOW_NS).controls
    said = decode_site_token(control.body)
    assert (control.to, said.number) == (OTHER, 2)
    before = ring(me=OTHER)
    before.want()
    before.step(NOW_NS)
    before.on_token(NOW_NS, ME, said)
    assert before.deadline_ns() == NEVER
    assert not before.is_holding


def test_a_token_that_gives_no_sign_is_lost_and_its_receiver_is_suspected() -> None:
    """A token is never regenerated inside a view (SITES section 2): one that is lost for good ends the view."""
    rings = Rings(3, RingTerms(tries=4))
    rings.dead.add(2)
    rings.send(1, [1])
    rings.send(3, [2])
    while not rings.rings[1].is_lost:
        rings.run(rings.wires.now_ns + 10 * MS)
    assert rings.rings[1].suspect == 2
    assert not rings.rings[3].is_lost  # the one that passed it decides, and knows whom to suspect


def test_a_token_that_rests_at_a_daemon_that_crashed_is_lost_when_it_is_wanted() -> None:
    rings = Rings(3, RingTerms(tries=4))
    rings.send(2, [1])
    rings.run()
    (holder,) = [each for each, one in rings.rings.items() if one.is_holding]
    rings.dead.add(holder)
    other = holder % 3 + 1
    rings.send(other, [2])
    rings.run()
    assert rings.rings[other].is_lost
    assert rings.rings[other].suspect == holder


def test_a_token_rests_after_a_quiet_round_and_costs_nothing() -> None:
    """SITES section 3: an idle token rests after a quiet round and costs no processor."""
    rings = Rings(5)
    rings.send(3, range(10))
    rings.run()
    assert sum(each.is_holding for each in rings.rings.values()) == 1
    assert all(each.is_at_rest and each.deadline_ns() == NEVER for each in rings.rings.values())
    assert [each.quiet for _, _, each in rings.visits[-5:]] == [1, 2, 3, 4, 5]
    assert len(rings.visits) < 5 * 6


def test_a_daemon_with_something_to_send_wakes_the_token() -> None:
    rings = Rings(4)
    rings.send(2, [1])
    rings.run()
    (holder,) = [each for each, one in rings.rings.items() if one.is_holding]
    rings.wires.sent.clear()
    other = holder % 4 + 1
    rings.send(other, [2])
    assert rings.wires.sent[Kind.WAKE] == 1  # at once
    rings.run()
    assert rings.wires.sent[Kind.WAKE] == 1
    assert all(2 in rings.got[each] for each in rings.ids if each != other)


def test_a_clock_alone_wakes_the_token_after_a_moment() -> None:
    """Another site waits for a clock of this one that is as high (section 3.3, pseudo update messages)."""
    rings = Rings(3)
    rings.follows_clock = False
    rings.rings[2].hear_clock(5_000)
    rings.step(2)
    assert Kind.WAKE not in rings.wires.sent  # the daemon where the token rests may have heard it, too
    rings.run()
    assert rings.wires.sent[Kind.WAKE] == 1
    assert {each.state.clock for each in rings.rings.values()} == {5_000}


def test_a_token_that_goes_around_is_not_woken() -> None:
    """Packets with new numbers say that somebody has it."""
    rings = Rings(3)
    for daemon in rings.ids:
        rings.send(daemon, range(daemon * 1_000, daemon * 1_000 + 300))
    rings.run()
    assert rings.wires.sent[Kind.WAKE] <= 2  # of those that knew it at rest


def test_who_has_passed_the_token_and_has_no_sign_of_it_answers_those_that_want_it() -> None:
    """It passes the token again, and alone decides whether it is lost."""
    each = ring()
    each.on_token(NOW_NS, OTHER, token())
    each.step(NOW_NS)
    each.on_wake(OTHER, each.known)
    (control,) = each.step(NOW_NS).controls
    said = decode_site_token(control.body)
    assert (control.to, said.flags, said.number) == (OTHER, SEEN, 2)
    each.on_packet(NOW_NS, 1, packet(1))
    each.on_wake(OTHER, each.known)
    assert each.step(NOW_NS).controls == []  # it knows no more than the other


def test_a_daemon_that_did_not_hear_where_the_token_rests_finds_it() -> None:
    rings = Rings(3)
    rings.send(2, [1])
    losing(rings, Kind.SITE_TOKEN, 0)

    def loses_notices(_: int, datagram: Datagram) -> bool:
        return datagram.kind == Kind.SITE_TOKEN and decode_site_token(datagram.body).flags == RESTS

    rings.wires.loses = loses_notices
    rings.run(rings.wires.now_ns + 5 * SECOND)
    (holder,) = [each for each, one in rings.rings.items() if one.is_holding]
    other = holder % 3 + 1
    rings.send(other, [2])
    rings.run(rings.wires.now_ns + 5 * SECOND)
    assert all(2 in rings.got[each] for each in rings.ids if each != other)
    assert not any(each.is_lost for each in rings.rings.values())


def test_a_wake_of_a_stranger_is_counted_and_dropped() -> None:
    each = ring(me=OTHER)
    each.on_wake(9, 0)
    each.on_wake(NEXT, 1 << 50)
    assert each.strange == 2
    assert each.step(NOW_NS).controls == []


def test_news_of_a_daemon_keeps_the_token_going() -> None:
    """A clock or a horizon that has risen has to go around, or another site waits for it."""
    rings = Rings(3)
    rings.follows_clock = False
    rings.run()
    for daemon in rings.ids:
        rings.rings[daemon].hear_clock(150)
        rings.rings[daemon].set_horizon(140)
        rings.step(daemon)
    rings.run()
    assert {each.state for each in rings.rings.values()} == {(0, 150, 140)}
    assert rings.wires.sent.get(Kind.WAKE, 0) == 0  # the daemon where it rests has heard the same


def test_a_site_of_one_daemon_always_has_the_token() -> None:
    """Section 3.2: the Ring protocol is used when there is more than one active daemon in a site."""
    each = ring(members=(ME,))
    assert each.is_holding
    assert each.stamp() == (1, 101)
    each.queue_own(packet(1))
    each.queue_foreign(packet(2))
    each.hear_clock(120)
    each.set_horizon(110)
    assert each.step(NOW_NS) == ([], [])
    assert each.state == (1, 120, 110)
    assert each.is_holding
    assert each.is_at_rest
    assert not each.on_packet(NOW_NS, 1, packet(1))
    assert each.deadline_ns() == NEVER


def test_the_notice_that_the_token_rests_goes_to_all() -> None:
    each = ring()
    each.on_token(NOW_NS, OTHER, token(quiet=3, link_aru=0))
    (control,) = each.step(NOW_NS).controls
    assert control.to == ALL
    assert control.body == encode_site_token(token(quiet=3, flags=RESTS))
    assert each.step(NOW_NS).controls == []
    assert each.is_holding


@pytest.mark.parametrize("terms", [{"window": 5, "personal_window": 6}, {"window": 65_536}, {"tries": 0}])
def test_terms_that_cannot_work_are_refused(terms: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        RingTerms(**terms)
