"""How long a member's own leave may wait to be ordered (docs/design/membership.md)."""

from __future__ import annotations

from tests.paper.tompa import Host, ack_of, hosts_with_clocks

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.membership.quorum.patience import LONGEST, LeavePatience

PATIENCE_NS = 3 * SECOND


def asked(host: Host) -> LeavePatience:
    """The host's leave, asked for at 0."""
    patience = LeavePatience(PATIENCE_NS)
    patience.header = b""
    patience.propose(0, host.engine.view.members[host.me - 1], host.engine)
    return patience


def broadcast(sender: Host, other: Host) -> None:
    """One message that both receive."""
    (data,) = sender.send(b"m")
    other.hear(*sender.hear(ack_of(other.hear(data), (sender.me, data.number))))


def test_nothing_is_due_where_no_leave_is_asked_for() -> None:
    patience = LeavePatience(PATIENCE_NS)
    assert patience.due_ns == NEVER
    assert not patience.is_over(LONGEST * PATIENCE_NS)


def test_a_leave_that_nothing_moves_is_given_up() -> None:
    patience = asked(hosts_with_clocks(1, 1)[1])
    assert patience.due_ns == PATIENCE_NS
    assert not patience.is_over(PATIENCE_NS - 1)
    assert patience.is_over(PATIENCE_NS)


def test_a_group_that_moves_is_waited_for_within_a_bound() -> None:
    """It may be slow, and the leave may be ordered next. The bound counts from the first time that it was asked for."""
    hosts = hosts_with_clocks(1, 1)
    patience = asked(hosts[2])
    for turn in range(1, LONGEST):
        broadcast(hosts[1], hosts[2])
        assert not patience.is_over(turn * PATIENCE_NS)
        assert patience.due_ns == (turn + 1) * PATIENCE_NS
    broadcast(hosts[1], hosts[2])
    assert patience.is_over(LONGEST * PATIENCE_NS)


def test_the_next_ring_does_not_begin_the_bound_anew() -> None:
    hosts = hosts_with_clocks(1, 1)
    patience = asked(hosts[2])
    late_ns = LONGEST * PATIENCE_NS - SECOND
    patience.propose(late_ns, hosts[2].engine.view.members[1], hosts[2].engine)
    assert patience.due_ns == LONGEST * PATIENCE_NS


def test_a_leaver_that_nobody_hears_serves_for_its_patience_and_longer_while_others_need_it() -> None:
    patience = LeavePatience(PATIENCE_NS)
    assert patience.serve(SECOND, comes_back=False) == SECOND + PATIENCE_NS
    patience.heard(4 * SECOND)
    assert patience.serve_until(4 * SECOND) == 4 * SECOND + PATIENCE_NS


def test_a_member_that_was_evicted_serves_for_the_longest_time_and_no_longer() -> None:
    patience = LeavePatience(PATIENCE_NS)
    end_ns = patience.serve(SECOND, comes_back=True)
    assert end_ns == SECOND + LONGEST * PATIENCE_NS
    patience.heard(end_ns)
    assert patience.serve_until(end_ns) <= end_ns


def test_an_eviction_does_not_shorten_what_a_later_leave_may_serve() -> None:
    patience = LeavePatience(PATIENCE_NS)
    patience.serve(SECOND, comes_back=True)
    late_ns = 100 * SECOND
    end_ns = patience.serve(late_ns, comes_back=False)
    patience.heard(end_ns)
    assert patience.serve_until(end_ns) == end_ns + PATIENCE_NS
