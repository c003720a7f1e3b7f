"""When entries go up: in the order of the log (sequencer), and by service (token, timestamp)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.rings import VIEW, A, B, block_of, ring_of

from ordercast.engine import Denied, Outbox, Run
from ordercast.orderers.logged.delivery import UNASSIGNED, ServiceDelivery
from ordercast.orderers.logged.in_order import InOrderDelivery, ViewDelivery, first_safe
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.service import (
    AGREED,
    FIFO,
    FIFO_RANK,
    MAJORITY,
    MAJORITY_RANK,
    RELIABLE,
    RELIABLE_RANK,
    RESILIENT,
    RESILIENT_RANK,
    SAFE,
    SAFE_RANK,
    Service,
)
from ordercast.view import Member, Reason

FIRST = VIEW.seq + 1


class Parts:
    """A member of a ring of two with all that delivery needs."""

    def __init__(self, me: Member = A, strong_rank: int = RESILIENT_RANK) -> None:
        self.ring: RingState = ring_of(me)
        self.receiver = Receiver(self.ring, strong_rank)
        self.window = SendWindow(self.ring)
        self.delivery = ServiceDelivery(self.ring, self.window, strong_rank)
        self.out = Outbox()

    def arrive(self, number: int, service: Service) -> None:
        block = block_of(number, service=service)
        head = self.receiver.hold(B.id, number, block, self.out)
        assert head is not None
        self.delivery.arrived(B.id, number, block, head.rank, head.flags)

    def order(self, seq: int, number: int, count: int = 1) -> None:
        self.receiver.assign(seq, B.id, number, count)
        assert len(list(self.receiver.advance(self.out))) == count

    def delivered(self) -> list[int]:
        """The block numbers that have gone up since the last call."""
        self.delivery.deliver(self.out)
        found = [each.number for run in self.out.upcalls if isinstance(run, Run) for each in run.deliveries]
        self.out.upcalls.clear()
        return found


def test_reliable_blocks_go_up_on_arrival_and_only_once() -> None:
    parts = Parts()
    parts.arrive(1, RELIABLE)
    assert parts.delivered() == [1]
    parts.arrive(0, RELIABLE)
    assert parts.delivered() == [0]
    parts.order(FIRST, 0, 2)
    assert parts.delivered() == []
    assert parts.delivery.delivered == FIRST + 1


def test_fifo_blocks_wait_for_those_before_them() -> None:
    parts = Parts()
    parts.arrive(1, FIFO)
    assert parts.delivered() == []
    parts.arrive(0, FIFO)
    assert parts.delivered() == [0, 1]


def test_fifo_blocks_follow_an_ordered_block_of_their_sender() -> None:
    parts = Parts()
    parts.arrive(0, AGREED)
    parts.arrive(1, FIFO)
    assert parts.delivered() == []
    parts.order(FIRST, 0)
    assert parts.delivered() == [0, 1]


@pytest.mark.parametrize("service", [RESILIENT(1), MAJORITY, SAFE], ids=str)
def test_strong_blocks_wait_until_the_table_says_that_others_have_them(service: Service) -> None:
    parts = Parts()
    parts.arrive(0, service)
    parts.order(FIRST, 0)
    assert parts.delivered() == []
    assert parts.receiver.last_strong_seq == FIRST
    parts.delivery.table.learn(A.id, FIRST)
    parts.delivery.table.learn(B.id, FIRST)
    assert parts.delivered() == [0]


def test_the_strong_rank_says_from_which_service_on_entries_wait() -> None:
    """Timestamp: a decision shows that all hold the block."""
    parts = Parts(strong_rank=MAJORITY_RANK)
    parts.arrive(0, RESILIENT(1))
    parts.arrive(1, MAJORITY)
    parts.order(FIRST, 0, 2)
    assert parts.delivered() == [0]


def test_recovery_delivers_what_waited() -> None:
    parts = Parts()
    parts.arrive(0, SAFE)
    parts.order(FIRST, 0)
    parts.delivery.recover(FIRST, parts.out)
    assert parts.delivery.safe == FIRST
    assert [type(upcall) for upcall in parts.out.upcalls] == [Run]


def test_what_everybody_holds_and_we_have_delivered_is_freed() -> None:
    parts = Parts()
    parts.arrive(0, AGREED)
    parts.order(FIRST, 0)
    for member in (A, B):
        parts.delivery.table.learn(member.id, FIRST)
    assert not parts.delivery.purge_safe(), "it is not delivered here"
    assert parts.delivered() == [0]
    assert parts.delivery.purge_safe()
    assert parts.ring.log.entries == {}
    assert not parts.delivery.purge_safe()


def test_tickets_that_are_not_given_back_are_the_backlog() -> None:
    parts = Parts()
    delivery = parts.delivery
    parts.arrive(0, RELIABLE)
    parts.arrive(1, RELIABLE)
    delivery.deliver(parts.out)
    (run,) = [upcall for upcall in parts.out.upcalls if isinstance(upcall, Run)]
    tickets = [each.seq for each in run.deliveries]
    assert [each.position for each in run.deliveries] == [UNASSIGNED] * 2
    before = delivery.backlog
    delivery.consume(tickets[0])
    assert delivery.backlog == before // 2
    delivery.consume(tickets[1])
    assert delivery.backlog == 0
    assert not delivery.is_overrun()


def test_an_application_that_takes_nothing_is_overrun() -> None:
    parts = Parts()
    number = 0
    while not parts.delivery.is_overrun():
        assert number < 100_000
        assert parts.delivery.arrived_unreliable(B.id, number, block_of(number, [bytes(40_000)]))
        number += 1
    assert parts.delivery.backlog > parts.window.ceiling // 2


def test_unreliable_duplicates_are_dropped() -> None:
    parts = Parts()
    assert parts.delivery.arrived_unreliable(B.id, 5, block_of(0))
    assert not parts.delivery.arrived_unreliable(B.id, 5, block_of(0))


def test_nothing_is_delivered_twice_in_the_next_ring() -> None:
    parts, later = Parts(), Parts()
    parts.arrive(1, RELIABLE)
    assert parts.delivered() == [1]
    memory = parts.delivery.memory()
    later.delivery.inherit(memory)
    assert memory.early
    later.arrive(1, RELIABLE)
    later.arrive(0, RELIABLE)
    assert later.delivered() == [0]
    assert later.delivery.memory().ticket > memory.ticket


def test_what_has_not_gone_up_is_not_remembered() -> None:
    parts = Parts()
    parts.arrive(0, RELIABLE)
    assert parts.delivery.fresh
    assert not parts.delivery.memory().early


def test_weak_blocks_of_a_newcomer_begin_with_its_next_number() -> None:
    parts = Parts()
    parts.delivery.forget(B.id)
    parts.arrive(0, RELIABLE)
    assert parts.delivered() == [], "it has left, as far as we know"
    parts.delivery.admit(B.id)
    parts.delivery.arrived(B.id, 0, block_of(0), RELIABLE_RANK, 0)
    parts.delivery.arrived(B.id, 0, block_of(0), FIFO_RANK, 0)
    assert parts.delivered() == [0]


# In the order of the log


def test_in_order_everything_goes_up_but_safe_blocks_wait() -> None:
    ring, out = ring_of(A), Outbox()
    receiver, window = Receiver(ring, SAFE_RANK), SendWindow(ring, has_policy=False)
    delivery = InOrderDelivery(ring, window.outgoing)
    for number, service in enumerate((RELIABLE, SAFE, FIFO)):
        receiver.hold(B.id, number, block_of(number, service=service), out)
    receiver.assign(FIRST, B.id, 0, 3)
    assert len(list(receiver.advance(out))) == 3
    delivery.deliver(out)
    assert delivery.delivered == FIRST
    delivery.safe = FIRST + 1
    delivery.deliver(out)
    assert delivery.delivered == FIRST + 2
    assert [each.number for run in out.upcalls if isinstance(run, Run) for each in run.deliveries] == [0, 1, 2]


def test_in_order_only_what_is_consumed_here_is_forgotten() -> None:
    ring, out = ring_of(A), Outbox()
    receiver, window = Receiver(ring, SAFE_RANK), SendWindow(ring, has_policy=False)
    delivery = InOrderDelivery(ring, window.outgoing)
    for number in range(2):
        receiver.hold(B.id, number, block_of(number), out)
    receiver.assign(FIRST, B.id, 0, 2)
    cost = sum(entry.cost for entry in receiver.advance(out))
    delivery.deliver(out)
    assert delivery.purge(FIRST + 1) == 0
    delivery.consume(FIRST + 9)
    assert delivery.consumed == FIRST + 1
    assert delivery.purge(FIRST + 1) == cost


def test_a_view_that_changed_nothing_is_told_to_the_member_that_asked_for_it() -> None:
    denied = replace(VIEW, seq=FIRST, reason=Reason.LOCK, subject="a/0", lock="door")
    mine, other = Outbox(), Outbox()
    ViewDelivery(ring_of(A)).deliver(denied, mine)
    ViewDelivery(ring_of(B)).deliver(denied, other)
    assert mine.upcalls == [Denied("door")]
    assert other.upcalls == []


def test_only_the_creator_of_a_ring_knows_that_all_have_the_first_view() -> None:
    """A newcomer knows nothing of the others; after a recovery a member may be named and not have heard of it."""
    assert first_safe(VIEW) == VIEW.seq
    assert first_safe(replace(VIEW, reason=Reason.RESET)) == VIEW.seq - 1
    assert first_safe(replace(VIEW, reason=Reason.JOIN)) == VIEW.seq - 1
