"""The protocols that the Amoeba paper compares with: what its text says of their packets, step by step."""

from __future__ import annotations

import pytest

from ordercast.figures.broadcasts import described_cost
from ordercast.figures.described import (
    ALL,
    ANSWER,
    ASK,
    DATA,
    ORDER,
    CentralAcknowledged,
    Reaction,
    Recorded,
    RepliedTo,
    RotatingToken,
)
from ordercast.figures.saturation import described_capacity
from ordercast.sim.network import ETHERNET_10, IDEAL


def test_the_central_site_waits_for_each_node_before_the_next_broadcast() -> None:
    """Amoeba section 5, of Navaratnam, Chanson and Neufeld."""
    site = CentralAcknowledged(0, 3)
    assert CentralAcknowledged(2, 3).send(7) == Reaction([(0, ASK, 2, 7)])
    assert site.receive(2, ASK, 2, 7).sends == [(ALL, DATA, 2, 7)]
    assert site.receive(1, ASK, 1, 0) == Reaction()
    assert site.receive(1, ANSWER, 2, 7) == Reaction()
    assert site.receive(2, ANSWER, 2, 7).sends == [(ALL, DATA, 1, 0)]


def test_each_ordering_word_moves_the_token() -> None:
    """Amoeba section 5, of Chang and Maxemchuk."""
    first, second = RotatingToken(0, 3), RotatingToken(1, 3)
    assert first.receive(2, DATA, 2, 0).sends == [(ALL, ORDER, 2, 0)]
    assert second.receive(2, DATA, 2, 0) == Reaction()
    taken = second.receive(0, ORDER, 2, 0)
    assert taken.ready == [(2, 0)]
    assert taken.sends == [(0, ANSWER, 2, 0)], "it has nothing to order, and says that it has the token"
    assert second.receive(2, DATA, 2, 1).sends == [(ALL, ORDER, 2, 1)]
    assert first.receive(2, DATA, 2, 1) == Reaction()


def test_the_first_reply_ends_a_call() -> None:
    """Amoeba section 5, of Cheriton and Zwaenepoel."""
    caller = RepliedTo(0, 3)
    caller.send(0)
    assert caller.receive(1, ANSWER, 0, 0).done == [0]
    assert caller.receive(2, ANSWER, 0, 0).done == []


def test_the_retransmission_computer_waits_for_the_recorder() -> None:
    """Amoeba section 5, of Tseung."""
    computer, recorder, user = Recorded(0, 4), Recorded(3, 4), Recorded(1, 4)
    assert computer.receive(1, ASK, 1, 0).sends == [(ALL, DATA, 1, 0)]
    assert computer.receive(2, ASK, 2, 0) == Reaction()
    assert recorder.receive(0, DATA, 1, 0).sends == [(0, ANSWER, 1, 0)]
    assert user.receive(0, DATA, 1, 0).sends == []
    assert computer.receive(3, ANSWER, 1, 0).sends == [(ALL, DATA, 2, 0)]


@pytest.mark.parametrize("members", [3, 6])
def test_packets_are_those_of_figure_5(members: int) -> None:
    assert described_cost(CentralAcknowledged, members, IDEAL).datagrams == members + 1
    assert described_cost(RepliedTo, members, IDEAL).datagrams == members
    assert described_cost(Recorded, members, IDEAL, extra=2).datagrams == 3
    quiet = described_cost(RotatingToken, members, IDEAL)
    assert (quiet.datagrams, quiet.interrupts) == (3, 2 * (members - 1) + 1)


def test_a_busy_token_takes_two_packets_and_a_quiet_one_three() -> None:
    _, packets = described_capacity(RotatingToken, 6, ETHERNET_10)
    assert 2 <= packets < 2.1


def test_all_members_get_every_message() -> None:
    for make, extra in ((CentralAcknowledged, 0), (RotatingToken, 0), (RepliedTo, 0), (Recorded, 2)):
        cost = described_cost(make, 5, ETHERNET_10, extra=extra)
        assert cost.violations == 0
        assert cost.all_ms > 0
