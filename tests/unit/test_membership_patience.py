"""How long a member's own leave may wait to be ordered (docs/design/membership.md)."""

from __future__ import annotations

import pytest
from tests.paper.tompa import Host, ack_of, hosts_with_clocks

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.membership.policy import Silence
from ordercast.membership.quorum.patience import LONGEST, LeavePatience
from ordercast.view import Reason

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


def test_a_leaver_serves_for_the_longest_time_and_is_not_asked_meanwhile_whether_its_leave_moves() -> None:
    patience = asked(hosts_with_clocks(1, 1)[1])
    assert patience.serve(SECOND) == SECOND + LONGEST * PATIENCE_NS
    assert patience.due_ns == NEVER


def test_a_change_that_takes_a_member_out_against_its_will_is_waited_for_longer_than_its_own_leave() -> None:
    patience = LeavePatience(PATIENCE_NS)
    assert patience.retired(SECOND, Reason.LEAVE) == SECOND + PATIENCE_NS
    for reason in (Reason.EXPEL, Reason.DISSOLVE):
        assert patience.retired(SECOND, reason) == SECOND + LONGEST * PATIENCE_NS


@pytest.mark.parametrize(
    ("silence", "times"), [(Silence.NONE, 1), (Silence.VISITING, 1), (Silence.WITHDRAWN, 10), (Silence.SERVING, 10)]
)
def test_in_a_frozen_ring_a_leave_that_no_application_waits_for_may_take_longer(silence: Silence, times: int) -> None:
    patience = asked(hosts_with_clocks(1, 1)[1])
    assert patience.freeze(SECOND, silence, has_failed=False) == SECOND + times * PATIENCE_NS
    assert (patience.due_ns, patience.is_asked) == (NEVER, True)


def test_where_recovery_is_manual_a_failure_ends_the_leave_of_an_application_and_it_may_ask_again() -> None:
    patience = asked(hosts_with_clocks(1, 1)[1])
    assert patience.freeze(SECOND, Silence.NONE, has_failed=True) == NEVER
    assert not patience.is_asked
    assert not patience.is_over(LONGEST * PATIENCE_NS)


def test_an_expulsion_waits_for_its_decision_longer_than_a_leave_that_was_asked_for() -> None:
    """Nobody here waits for that, and messages before it may still be delivered."""
    patience = LeavePatience(PATIENCE_NS)
    assert patience.retired(0, Reason.EXPEL) == LONGEST * PATIENCE_NS
    patience.header = b""
    assert patience.retired(0, Reason.EXPEL) == PATIENCE_NS


def test_a_member_whose_application_is_out_leaves_what_the_others_recover_to() -> None:
    patience = LeavePatience(PATIENCE_NS)
    assert patience.give_up(5) == 5 + LONGEST * PATIENCE_NS
    assert patience.is_asked
