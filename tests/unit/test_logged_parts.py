"""What log-based orderers share: receiving, the send window, leaving, recovery and answers to NAKs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.rings import RING, VIEW, A, B, C, block_of, ring_of

from ordercast.config import GroupConfig
from ordercast.engine import Change, Outbox
from ordercast.errors import InvariantViolation, WireError
from ordercast.orderers.logged.leaving import Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.recovery import LogRecovery
from ordercast.orderers.logged.replies import known_lead, send_held, send_repairs
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.parts.outgoing import Outgoing
from ordercast.parts.table import Table
from ordercast.service import AGREED_RANK, SAFE, SAFE_RANK
from ordercast.view import GROUP_ORIGIN, Reason
from ordercast.wire.block import HEAD
from ordercast.wire.ordering import Acks, Assignment, Lead, Missing
from ordercast.wire.views import pack_change

FIRST = VIEW.seq + 1
LEAVE = replace(
    VIEW,
    counter=2,
    seq=FIRST,
    members=(A,),
    reason=Reason.LEAVE,
    subject="b/0",
    prior=(A.id, B.id),
    prior_rules=("majority",) * 2,
)


def kinds(out: Outbox) -> list[str]:
    return [note.kind for note in out.notes]


# The ring


def test_a_view_that_is_applied_changes_members_and_numbers() -> None:
    ring = ring_of(A)
    assert ring.is_first
    assert ring.apply(LEAVE) == VIEW
    assert ring.take_views() == [LEAVE]
    assert ring.take_views() == []
    assert B.id not in ring.log.next_number
    assert ring.counter == 2
    assert not ring.has_left


def test_a_ring_ends_for_a_member_with_its_own_leave() -> None:
    ring = ring_of(B)
    ring.apply(LEAVE)
    assert ring.has_left
    assert not ring.is_first


# Receiving


def test_a_block_is_received_when_it_and_its_sequence_number_are_here() -> None:
    ring, out = ring_of(A), Outbox()
    receiver = Receiver(ring, SAFE_RANK)
    head = receiver.hold(B.id, 0, block_of(0), out)
    assert head is not None
    assert head.rank == AGREED_RANK
    assert list(receiver.advance(out)) == []
    receiver.assign(FIRST, B.id, 0, 1)
    assert [(entry.seq, entry.origin, entry.number) for entry in receiver.advance(out)] == [(FIRST, B.id, 0)]
    assert kinds(out) == ["hold", "placed"]
    assert receiver.last_strong_seq == 0


def test_an_entry_whose_order_the_trace_knows_is_not_reported_again() -> None:
    ring, out = ring_of(A), Outbox()
    receiver = Receiver(ring, SAFE_RANK)
    receiver.hold(B.id, 0, block_of(0, service=SAFE), out)
    receiver.reported.add((B.id, 0))
    receiver.assign(FIRST, B.id, 0, 1)
    assert len(list(receiver.advance(out))) == 1
    assert kinds(out) == ["hold"]
    assert receiver.last_strong_seq == FIRST


def test_the_log_stops_where_the_caller_stops() -> None:
    ring, out = ring_of(A), Outbox()
    receiver = Receiver(ring, SAFE_RANK)
    for number in range(3):
        receiver.hold(B.id, number, block_of(number), out)
    receiver.assign(FIRST, B.id, 0, 3)
    for entry in receiver.advance(out):
        assert entry.number == 0
        break
    assert ring.log.received == FIRST


def test_nothing_is_received_after_our_own_leave() -> None:
    ring, out = ring_of(B), Outbox()
    receiver = Receiver(ring, SAFE_RANK)
    receiver.hold(A.id, 0, block_of(0), out)
    receiver.assign(FIRST, A.id, 0, 1)
    ring.apply(LEAVE)
    assert list(receiver.advance(out)) == []


def test_a_change_of_another_ring_is_refused() -> None:
    ring, out = ring_of(A), Outbox()
    receiver = Receiver(ring, SAFE_RANK)
    with pytest.raises(WireError, match="belongs elsewhere"):
        receiver.hold(GROUP_ORIGIN, FIRST, pack_change(replace(LEAVE, ring=RING + 1)), out)
    with pytest.raises(WireError, match="not the group's"):
        receiver.hold(B.id, 0, pack_change(LEAVE), out)
    assert not ring.log.blocks


def test_a_newcomer_has_a_name_as_soon_as_its_join_is_received() -> None:
    ring, out = ring_of(A), Outbox()
    receiver = Receiver(ring, SAFE_RANK)
    join = replace(VIEW, counter=2, seq=FIRST, members=(A, B, C), reason=Reason.JOIN, subject="c/0")
    receiver.hold(GROUP_ORIGIN, FIRST, pack_change(join), out)
    receiver.assign(FIRST, GROUP_ORIGIN, FIRST, 1)
    (entry,) = receiver.advance(out)
    assert receiver.apply(entry, out) == VIEW
    assert ring.view.members == (A, B, C)
    assert [(note.kind, note.detail) for note in out.notes if note.kind == "name"] == [("name", "c/0")]


def test_contradicting_sequence_numbers_are_counted_and_dropped() -> None:
    ring = ring_of(A)
    receiver = Receiver(ring, SAFE_RANK)
    receiver.assign(FIRST, A.id, 0, 1)
    receiver.assign(FIRST, B.id, 0, 1)
    assert ring.counters == {"bad_assignments": 1}
    assert ring.log.assignments == {FIRST: (A.id, 0)}


# The send window


def submit(window: SendWindow, count: int, out: Outbox) -> list[bytes]:
    blocks = [block_of(0, [bytes(1_000)]) for _ in range(count)]
    for block in blocks:
        window.take(0, block, HEAD.unpack_from(block), out)
    return blocks


def test_a_block_is_kept_under_the_next_number() -> None:
    ring, out = ring_of(A), Outbox()
    window = SendWindow(ring)
    blocks = submit(window, 2, out)
    assert ring.next_block == 2
    assert list(ring.log.blocks) == [(A.id, 0), (A.id, 1)]
    assert [(note.kind, note.head) for note in out.notes] == [("hold", HEAD.unpack_from(block)) for block in blocks]


def test_room_shrinks_with_what_is_out_and_comes_back_when_it_is_stable() -> None:
    config = GroupConfig(history_bytes=65_536)
    ring, out = ring_of(A, config=config), Outbox()
    window = SendWindow(ring, has_policy=False)
    share = window.share()
    room, largest = window.room(share)
    assert room >= largest > 0
    while not window.is_full(share, largest):
        submit(window, 1, out)
    assert window.room(share) == (0, largest)
    for number in range(ring.next_block):
        window.outgoing.stable(number)
    assert window.room(share) == (room, largest)


def test_senders_share_the_ceiling() -> None:
    ring, out = ring_of(A), Outbox()
    window = SendWindow(ring)
    begin = window.share()
    assert begin == max(window.ceiling // 4, window.largest)
    receiver = Receiver(ring, SAFE_RANK)
    submit(window, 1, out)
    receiver.assign(FIRST, A.id, 0, 1)
    for entry in receiver.advance(out):
        assert window.ordered(0, entry)
    assert window.share() == window.ceiling
    assert window.share_among(2) == window.ceiling // 2
    receiver.hold(B.id, 0, block_of(0), out)
    receiver.assign(FIRST + 1, B.id, 0, 1)
    for entry in receiver.advance(out):
        assert not window.ordered(0, entry), "another member answers for it"
    assert window.share() == window.ceiling // 2


def test_many_small_blocks_use_the_window_up() -> None:
    config = GroupConfig(history_blocks=16)
    ring, out = ring_of(A, config=config), Outbox()
    window = SendWindow(ring)
    submit(window, 31, out)
    assert not window.is_used_up(window.ceiling)
    submit(window, 1, out)
    assert window.is_used_up(window.ceiling)


def test_an_own_block_is_kept_once() -> None:
    ring = ring_of(A)
    window = SendWindow(ring)
    window.keep(0, 0, block_of(0))
    with pytest.raises(InvariantViolation, match="own block 0"):
        window.keep(0, 0, block_of(0))


# Leaving


def test_our_own_leave_is_asked_for_until_it_is_received() -> None:
    ring = ring_of(B)
    leaving = Leaving(ring)
    assert not leaving.takes(Change(Reason.LEAVE, A)), "another member's leave is no business of ours"
    assert leaving.takes(Change(Reason.LEAVE, B, b"bye"))
    assert leaving.is_asked
    assert leaving.request() == Change(Reason.LEAVE, B, b"bye")
    ring.apply(LEAVE)
    assert leaving.applied() == B
    leaving.received()
    assert (leaving.is_asked, leaving.is_retired, leaving.request()) == (False, True, None)


def test_a_leaver_is_served_while_it_may_not_know_of_its_leave() -> None:
    ring = ring_of(A)
    leaving, table = Leaving(ring), Table(VIEW, A.id, VIEW.seq)
    ring.apply(LEAVE)
    leaving.applied()
    table.apply(LEAVE)
    assert leaving.leavers(table) == (B.address,)
    table.learn(B.id, LEAVE.seq)
    assert leaving.leavers(table) == ()


# Recovery


def broken_ring() -> tuple[RingState, LogRecovery, Receiver]:
    """Blocks 0 and 1 of B are held, the first is received; own block 0 is not ordered; 3 entries were spoken of."""
    ring, out = ring_of(A), Outbox()
    receiver, outgoing = Receiver(ring, SAFE_RANK), Outgoing(A.id, ring.timing)
    for number in range(2):
        receiver.hold(B.id, number, block_of(number), out)
    receiver.assign(FIRST, B.id, 0, 1)
    assert len(list(receiver.advance(out))) == 1
    ring.log.hold(A.id, 0, block_of(0))
    outgoing.keep(0, A.id, 0, block_of(0), 1_100)
    ring.next_block = 1
    ring.log.highest = FIRST + 2
    return ring, LogRecovery(ring, receiver, outgoing), receiver


def test_a_cut_tells_what_is_held_and_assigned() -> None:
    ring, recovery, receiver = broken_ring()
    receiver.assign(FIRST + 1, B.id, 1, 1)
    cut = recovery.cut(None)
    assert (cut.received, cut.decided, cut.next_block) == (FIRST, VIEW.seq, 1)
    assert cut.assignments == (Assignment(FIRST + 1, B.id, 1, 1),)
    assert set(cut.held) == {(A.id, 0, 1), (B.id, 1, 1)}
    assert cut.view == ring.view


def test_the_agreed_remainder_replaces_what_was_assigned_otherwise() -> None:
    ring, recovery, receiver = broken_ring()
    receiver.assign(FIRST + 1, A.id, 0, 1)
    lacking = recovery.adopt(FIRST + 2, [Assignment(FIRST + 1, B.id, 1, 2)])
    assert lacking == [FIRST + 2], "block 2 of B is not here"
    assert recovery.lacking(FIRST + 1) == []
    assert ring.log.assignments[FIRST + 1] == (B.id, 1)


def test_what_lies_beyond_the_agreed_end_is_void() -> None:
    _, recovery, receiver = broken_ring()
    receiver.assign(FIRST + 1, B.id, 1, 1)
    recovery.discard_beyond(FIRST)
    assert list(receiver.advance(Outbox())) == []
    recovery.check_reached(FIRST)
    with pytest.raises(InvariantViolation, match=f"reach {FIRST + 1} and reached {FIRST}"):
        recovery.check_reached(FIRST + 1)


def test_the_remainder_is_reported_once_although_it_is_delivered_later() -> None:
    _, recovery, receiver = broken_ring()
    receiver.assign(FIRST + 1, B.id, 1, 1)
    out = Outbox()
    recovery.note_remainder(FIRST + 1, out)
    recovery.note_remainder(FIRST + 1, out)
    assert kinds(out) == ["placed"]
    assert [entry.number for entry in receiver.advance(out)] == [1]
    assert kinds(out) == ["placed"]


def test_own_blocks_that_were_never_ordered_are_left_over() -> None:
    ring, recovery, _ = broken_ring()
    assert recovery.leftovers() == [(0, block_of(0))]
    assert recovery.undelivered(FIRST) == 0
    assert ring.next_block == 1


# Answers


def test_a_nak_is_answered_with_blocks_and_their_sequence_numbers() -> None:
    ring, _, receiver = broken_ring()
    out = Outbox()
    missing = [Missing(GROUP_ORIGIN, FIRST, 2, 0, 0), Missing(A.id, 0, 1, 0, 0)]
    assert send_repairs(ring, receiver.repairs, B.address, missing, out) == [(FIRST, B.id, 0)]
    assert [send.to for send in out.sends] == [B.address] * 2
    assert ring.counters["repairs"] == 2
    assert known_lead(ring, FIRST + 9, 2) == Lead(FIRST, VIEW.seq, FIRST, 2)


def test_a_sender_is_told_what_is_held_only_while_it_is_a_member() -> None:
    ring, out = ring_of(A), Outbox()
    send_held(ring, C.id, Acks(FIRST, 0), C.id, 3, out)
    assert out.sends == []
    send_held(ring, B.id, Acks(FIRST, 0), B.id, 3, out)
    assert [send.to for send in out.sends] == [B.address]
