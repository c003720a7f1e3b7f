"""Flow and congestion control: the window, and the size of packets. RMP section 4.6 and figure 4.2."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ordercast.config import MS, SECOND, Timing
from ordercast.errors import InvariantViolation, UsageError
from ordercast.parts.rtt import RoundTrip
from ordercast.parts.window import LOST_KEPT, POLICIES, FlowPolicy, Open, SlowStart, make_policy, packet_size

MIN, MAX = 1_000, 60_000


def policy(name: str = "slow-start", ceiling: int = 1 << 20) -> FlowPolicy:
    made = make_policy(name, MIN, MAX)
    made.limit(ceiling)
    return made


def round_trip(flow: FlowPolicy, numbers: count[int], packet: int = MAX) -> int:
    """Send as much as may leave in packets of at most `packet` bytes, then have it all acknowledged; how many left."""
    sent = []
    room, largest = flow.room()
    while room > 0:
        size = min(room, largest, packet)
        number = next(numbers)
        flow.sent(number, size)
        sent.append(number)
        room, largest = flow.room()
    for number in sent:
        flow.acked(number)
    return len(sent)


def grown(window: int, packet: int = MIN) -> tuple[FlowPolicy, count[int]]:
    """Slow start that has come to that window, with nothing under way."""
    flow, numbers = policy(ceiling=window), count()
    while flow.window < window:
        round_trip(flow, numbers, packet)
    assert flow.in_flight == 0
    return flow, numbers


# Figure 4.2. ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "available", "offered", "size"),
    [
        (10_000, 10_000, 60_000, 5_000),  # half of the window at a time
        (10_000, 10_000, 2_000, 2_000),  # all that is offered
        (10_000, 3_000, 60_000, 3_000),  # what there is room for
        (10_000, 1_000, 60_000, 1_000),  # just a smallest packet
        (10_000, 999, 60_000, 0),  # silly: less than a smallest packet, while others are under way
        (10_000, 999, 10, 0),  # even if it would do: the figure asks for no P there
        (10_000, 0, 60_000, 0),
        (10_000, -4_000, 60_000, 0),  # the window was halved below what is under way
        (1_500, 1_500, 60_000, 1_000),  # half of it would be less than a smallest packet
        (1_000, 1_000, 60_000, 1_000),
        (600, 600, 60_000, 600),  # a window below a smallest packet that is all free: nothing to wait for
        (600, 599, 60_000, 0),
        (1 << 20, 1 << 20, 1 << 20, 60_000),  # the largest packet
        (1 << 20, 1_500, 1 << 20, 1_500),
        (10_001, 10_001, 60_000, 5_000),  # whole bytes
    ],
)
def test_packets_have_the_size_of_the_figure(window: int, available: int, offered: int, size: int) -> None:
    """RMP figure 4.2."""
    assert packet_size(window, available, offered, MIN, MAX) == size


def test_less_than_a_smallest_packet_may_be_offered_and_leaves_whole() -> None:
    """RMP figure 4.2: S is raised to MIN_PACKET after P was taken, so that it is a bound and not a length."""
    assert packet_size(10_000, 10_000, 10, MIN, MAX) == MIN


@given(
    window=st.integers(1, 1 << 22),
    under_way=st.integers(0, 1 << 22),
    offered=st.integers(1, 1 << 22),
    smallest=st.integers(1, 10_000),
    more=st.integers(0, 60_000),
)
@settings(max_examples=500, deadline=None)
def test_a_packet_is_within_all_its_bounds_or_waits(
    window: int, under_way: int, offered: int, smallest: int, more: int
) -> None:
    """RMP figure 4.2."""
    available, largest = window - under_way, smallest + more
    size = packet_size(window, available, offered, smallest, largest)
    if size == 0:
        assert under_way
        assert available < smallest
    else:
        assert 0 < size <= min(available, largest)
        assert size <= max(window // 2, smallest)
        assert size >= min(offered, available, largest, window // 2)


# Slow start. ----------------------------------------------------------------------------------------------------------


def test_the_window_begins_with_one_packet() -> None:
    flow = policy()
    assert (flow.window, flow.in_flight, flow.room()) == (MIN, 0, (MIN, MIN))
    flow.sent(0, 10)
    assert flow.room() == (0, 0), "a window of one packet holds one packet, however small"
    flow.acked(0)
    assert flow.room() == (2 * MIN, MIN)


def test_slow_start_doubles_the_window_with_each_round_trip() -> None:
    """RMP section 4.6: from 1 to W in L log2 W. It does while packets are of one size."""
    flow, numbers = policy(), count()
    seen = []
    for _ in range(8):
        assert round_trip(flow, numbers, MIN) == flow.window // (2 * MIN)
        seen.append(flow.window // MIN)
    assert seen == [2, 4, 8, 16, 32, 64, 128, 256]


def test_the_window_grows_linearly_while_packets_grow_with_it() -> None:
    """RMP section 4.6: O(W) for windows below two times the largest packet, since two packets fill each of them."""
    flow, numbers = grown(8 * MIN)
    flow.limit(1 << 20)
    while flow.window < 2 * MAX:
        before = flow.window
        assert flow.room() == (before - before % 2, before // 2)
        assert round_trip(flow, numbers) == 2
        assert flow.window == before + 2 * MIN
    assert flow.room()[1] == MAX


def test_a_packet_counts_until_its_first_ack_and_only_that_opens_the_window() -> None:
    flow, _ = grown(16 * MIN)
    flow.limit(1 << 20)
    flow.sent(100, 5_000)
    flow.sent(101, 2_000)
    assert (flow.in_flight, flow.room()[0]) == (7_000, 9_000)
    flow.acked(100)
    flow.acked(100)
    flow.acked(7)
    assert (flow.in_flight, flow.window) == (2_000, 17 * MIN)


def test_the_window_grows_no_further_than_receivers_allow() -> None:
    """docs/design/overview.md section 6: slow start works below the ceiling instead of probing by losing."""
    flow, numbers = grown(40_000)
    round_trip(flow, numbers)
    assert flow.window == 40_000
    flow.limit(1 << 20)
    assert flow.window == 40_000, "it grows with ACKs, not with hopes"
    round_trip(flow, numbers, MIN)
    assert flow.window == 80_000


def test_what_the_network_bears_is_not_forgotten_while_receivers_allow_less() -> None:
    """The ceiling falls when others begin to send, and rises when they end."""
    flow, numbers = grown(40_000)
    flow.limit(12_345)
    assert flow.window == 12_345
    round_trip(flow, numbers, MIN)
    assert flow.window == 12_345
    flow.limit(1 << 20)
    assert flow.window == 40_000
    flow.limit(12_000)
    assert flow.nacked(7_000)
    assert flow.window == 6_000, "half of what was really under way"
    flow.limit(1 << 20)
    assert flow.window == 6_000


@pytest.mark.parametrize("name", POLICIES)
def test_one_packet_may_leave_however_little_receivers_allow(name: str) -> None:
    flow = policy(name, ceiling=5)
    assert flow.window == MIN
    assert flow.room() == (MIN, MIN)


# Losses. --------------------------------------------------------------------------------------------------------------


def test_an_expired_timer_halves_the_window_each_time() -> None:
    """RMP section 4.6, algorithm (3)."""
    flow, _ = grown(64 * MIN)
    flow.sent(500, 4_000)
    flow.timed_out(500)
    assert flow.window == 32 * MIN
    flow.timed_out(500)
    assert flow.window == 16 * MIN
    assert flow.in_flight == 4_000, "it is still under way"
    flow.timed_out(501)
    flow.acked(500)
    flow.timed_out(500)
    assert flow.window == 17 * MIN, "neither what was never sent nor what has arrived is lost"


def test_nacks_halve_the_window_once_for_each_lost_packet() -> None:
    """RMP section 4.6: multiple NACKs on the same packet do not each decrease the window."""
    flow, _ = grown(64 * MIN)
    flow.sent(500, MIN)
    flow.acked(500)
    assert flow.nacked(500), "the token site had it, another member has not"
    assert [flow.nacked(500) for _ in range(5)] == [False] * 5
    assert flow.window == 32 * MIN
    assert flow.nacked(501)
    assert flow.window == 16 * MIN


def test_a_fourth_lost_packet_is_one_too_many_to_remember() -> None:
    """RMP section 4.6: a cache of the last three."""
    flow, _ = grown(1_024 * MIN)
    assert [flow.nacked(number) for number in (1, 2, 3)] == [True] * 3
    assert [flow.nacked(number) for number in (3, 2, 1)] == [False] * 3
    assert flow.nacked(4)
    assert [flow.nacked(number) for number in (2, 3, 4)] == [False] * LOST_KEPT
    assert flow.window == 64 * MIN
    assert flow.nacked(1), "forgotten"
    assert flow.window == 32 * MIN


def test_a_nack_on_a_packet_whose_timer_has_expired_tells_nothing_new() -> None:
    """RMP section 4.6: a NACK is treated the same as an expired timer."""
    flow, _ = grown(64 * MIN)
    flow.sent(500, MIN)
    flow.timed_out(500)
    assert not flow.nacked(500)
    assert flow.window == 32 * MIN


def test_a_timer_that_expires_again_takes_no_more_of_the_cache() -> None:
    flow, _ = grown(1_024 * MIN)
    flow.nacked(1)
    flow.nacked(2)
    flow.sent(3, MIN)
    for _ in range(4):
        flow.timed_out(3)
    assert not flow.nacked(1)


def test_the_window_is_never_halved_below_one_packet() -> None:
    flow, _ = grown(5 * MIN)
    assert [flow.nacked(number) for number in range(6)] == [True, True, True, False, False, False]
    assert flow.window == MIN
    assert flow.room() == (MIN, MIN)


def test_after_losses_nothing_leaves_until_what_is_under_way_fits_the_window_again() -> None:
    flow, _ = grown(16 * MIN)
    for number in range(100, 108):
        flow.sent(number, 2 * MIN)
    flow.timed_out(100)
    flow.timed_out(101)
    assert (flow.window, flow.in_flight) == (4 * MIN, 16 * MIN)
    waited = []
    for number in range(102, 108):
        flow.acked(number)
        waited.append(flow.room()[0])
    assert waited == [0, 0, 0, 0, 3 * MIN, 6 * MIN]
    assert flow.window == 10 * MIN


def test_acks_of_what_was_under_way_do_not_undo_a_halving() -> None:
    """The deviation in the module's docstring: with the packets' own sizes the window would end above where it was."""
    flow, _ = grown(16 * MAX, packet=MAX)
    for number in range(10_000, 10_016):
        flow.sent(number, MAX)
    flow.nacked(10_000)
    for number in range(10_000, 10_016):
        flow.acked(number)
    assert flow.window == 8 * MAX + 16 * MIN


def test_a_new_ring_begins_anew() -> None:
    flow, _ = grown(64 * MIN)
    flow.sent(500, 4_000)
    flow.nacked(499)
    flow.restart()
    assert (flow.window, flow.in_flight) == (MIN, 0)
    flow.acked(500)
    assert flow.window == MIN, "it belonged to the ring before"
    flow.sent(500, 900)  # blocks without a place leave again, under their numbers
    flow.acked(500)
    assert (flow.window, flow.in_flight) == (2 * MIN, 0)
    assert flow.nacked(499)


# What may leave. ------------------------------------------------------------------------------------------------------


def test_no_packet_holds_more_than_half_of_the_window() -> None:
    """RMP section 4.6: a small amount of utilization for fewer, larger packets."""
    for window in range(2 * MIN, 40 * MIN, 777):
        flow = policy("open", ceiling=window)
        assert flow.room()[1] == window // 2


def test_packets_that_follow_one_another_leave_no_silly_rest() -> None:
    """What `room` allows in one go is what figure 4.2 allows packet by packet."""
    flow = policy("open", ceiling=10_500)
    flow.sent(0, 4_700)
    assert flow.room() == (5_250, 5_250), "550 bytes behind that packet would be a silly packet"
    flow.acked(0)
    flow.sent(1, 3_500)
    assert flow.room() == (7_000, 5_250), "1,750 bytes behind it are none"


@given(ceiling=st.integers(MIN, 300_000), under_way=st.lists(st.integers(1, 30_000), max_size=6))
@settings(max_examples=300, deadline=None)
def test_all_that_may_leave_in_one_go_may_leave_packet_by_packet(ceiling: int, under_way: list[int]) -> None:
    flow = policy("open", ceiling)
    for number, size in enumerate(under_way):
        flow.sent(number, size)
    room, largest = flow.room()
    left = 0
    for number in count(100):
        size = packet_size(flow.window, flow.window - flow.in_flight, MAX, MIN, MAX)
        if not size:
            break
        assert size <= largest
        flow.sent(number, size)
        left += size
    assert left == room


def test_an_open_window_is_what_the_receivers_allow() -> None:
    flow = policy("open", ceiling=100_000)
    flow.sent(0, 50_000)
    flow.timed_out(0)
    assert not flow.nacked(0)
    assert (flow.window, flow.in_flight, flow.room()) == (100_000, 50_000, (50_000, 50_000))
    flow.acked(0)
    flow.acked(0)
    flow.limit(30_000)
    assert flow.room() == (30_000, 15_000)
    flow.sent(1, 15_000)
    flow.restart()
    assert (flow.window, flow.in_flight) == (30_000, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_a_number_leaves_for_the_first_time_once(name: str) -> None:
    flow = policy(name)
    flow.sent(0, 10)
    with pytest.raises(InvariantViolation, match="block 0"):
        flow.sent(0, 10)


def test_policies_go_by_their_names() -> None:
    assert isinstance(make_policy("slow-start", MIN, MAX), SlowStart)
    made = make_policy("open", MIN, MAX)
    assert isinstance(made, Open)
    assert not isinstance(made, SlowStart)
    with pytest.raises(UsageError, match="'slow-start', 'open'"):
        make_policy("fast", MIN, MAX)
    with pytest.raises(InvariantViolation):
        make_policy("open", MAX, MIN)


class Window(RuleBasedStateMachine):
    """Any sequence of what may happen to a sender, beside the plainest account of it."""

    @initialize(name=st.sampled_from(sorted(POLICIES)), smallest=st.integers(1, 5_000), more=st.integers(0, 60_000))
    def begin(self, name: str, smallest: int, more: int) -> None:
        self.flow = make_policy(name, smallest, smallest + more)
        self.is_slow = name == "slow-start"
        self.smallest = smallest
        self.ceiling = smallest + more
        self.borne = smallest if self.is_slow else 1 << 40
        self.under_way: dict[int, int] = {}
        self.lost: list[int] = []
        self.numbers = count()

    def lose(self, number: int) -> None:
        if number not in self.lost:
            self.lost = [*self.lost, number][-LOST_KEPT:]
        if self.is_slow:
            self.borne = max(min(self.borne, self.ceiling) // 2, self.smallest)

    @rule(ceiling=st.integers(0, 1 << 22))
    def limit(self, ceiling: int) -> None:
        self.flow.limit(ceiling)
        self.ceiling = max(ceiling, self.smallest)

    @rule(part=st.floats(0.001, 1))
    def send(self, part: float) -> None:
        room, largest = self.flow.room()
        if room:
            size = max(1, int(largest * part))
            number = next(self.numbers)
            self.flow.sent(number, size)
            self.under_way[number] = size
            assert self.flow.in_flight <= self.flow.window

    @rule(number=st.integers(0, 40))
    def ack(self, number: int) -> None:
        self.flow.acked(number)
        if self.under_way.pop(number, 0) and self.borne < self.ceiling:
            self.borne = min(self.borne + self.smallest, self.ceiling)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def ack_one(self, data: st.DataObject) -> None:
        self.ack(data.draw(st.sampled_from(sorted(self.under_way))))

    @rule(number=st.integers(0, 40))
    def time_out(self, number: int) -> None:
        if number in self.under_way:
            self.lose(number)
        self.flow.timed_out(number)

    @rule(number=st.integers(0, 40))
    def nack(self, number: int) -> None:
        before = self.flow.window
        if number not in self.lost:
            self.lose(number)
        assert self.flow.nacked(number) == (self.flow.window < before)
        assert not self.flow.nacked(number)

    @rule()
    def restart(self) -> None:
        self.flow.restart()
        self.under_way.clear()
        self.lost.clear()
        if self.is_slow:
            self.borne = self.smallest

    @invariant()
    def holds(self) -> None:
        flow = self.flow
        assert flow.window == min(self.borne, self.ceiling) >= self.smallest
        assert flow.in_flight == sum(self.under_way.values()) >= 0
        room, largest = flow.room()
        assert (room == 0) == (largest == 0)
        assert largest <= room <= max(flow.window - flow.in_flight, 0)
        assert room or self.under_way, "who waits, waits for an ACK"


Window.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestWindow = Window.TestCase


# Timers. --------------------------------------------------------------------------------------------------------------


def test_timers_follow_the_round_trip_and_its_variance_double_and_are_clamped() -> None:
    """RMP section 4.6, algorithms (1) and (4): they are parts/rtt.py's, and hold for all that is acknowledged."""
    timing = Timing()
    assert (timing.retransmit_max_ns, timing.tries) == (2 * SECOND, 10)
    rtt = RoundTrip(timing)
    steady = RoundTrip(timing)
    for took in (50, 150) * 50:
        rtt.sample(took * MS)
        steady.sample(100 * MS)
    assert steady.timeout_ns(0) < 105 * MS, "the mean where nothing varies"
    assert 250 * MS < rtt.timeout_ns(0) < 350 * MS, "the mean and four deviations where it does"
    first = rtt.timeout_ns(0)
    waits = [rtt.timeout_ns(tries) for tries in range(timing.tries)]
    assert waits == [min(first << tries, 2 * SECOND) for tries in range(timing.tries)]
    assert waits[-1] == 2 * SECOND
    assert rtt.timeout_ns(0) == first, "with the ACK it is back at the estimate"
