"""The quorum policy by itself: each input, and the transition that it leads to (`membership.policy`)."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.quorums import local_member, member_of, view_of

from ordercast.config import LAN_DATAGRAM, Demands, GroupConfig, RecoveryMode, Timing
from ordercast.engine import NEVER, Failed, Outbox, Refused, Reset
from ordercast.membership.policy import (
    NO_RING,
    NOTE,
    Closed,
    DepartureCause,
    Excluded,
    Install,
    LeftRing,
    Membership,
    Newcomer,
    Phase,
    Silence,
    Transition,
)
from ordercast.membership.quorum import QuorumMembership
from ordercast.membership.quorum.local import Wishes
from ordercast.membership.quorum.patience import LONGEST
from ordercast.membership.quorum.recovery import MAX_SENIORITY
from ordercast.membership.quorum.resets import PendingResets
from ordercast.orderers import ORDERERS, LoggedOrderer
from ordercast.orderers.orderer import Start, Suspicion, SuspicionReason
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.header import HEADER, Kind
from ordercast.wire.returns import Returned, encode_returned
from ordercast.wire.views import (
    NO_BALLOT,
    Asking,
    Ballot,
    Proposal,
    Ring,
    decode_check,
    encode_asking,
    encode_decision,
    encode_ended,
    encode_invite,
    encode_refusal,
    encode_result,
    encode_ring,
    encode_suspects,
    encode_welcome,
)
from ordercast.wire.writer import DatagramWriter

CONFIG = GroupConfig("sequencer")


def member(name: str) -> Member:
    return Member(node_id(name, 0), name, 0, (f"10.0.0.{ord(name)}", 7_000))


class Node:
    """A policy, and what an underlay does with an `Install`."""

    def __init__(
        self, create: bool | None = None, recovery: RecoveryMode = "automatic", name: str = "a", is_started: bool = True
    ) -> None:
        self.me = member(name)
        self.writer = DatagramWriter(1, self.me.id, LAN_DATAGRAM)
        local = local_member(self.me, self.writer, Timing())
        wishes = Wishes(create, "majority", recovery == "manual", Demands(), b"hello")
        self.policy: Membership[LoggedOrderer] = QuorumMembership(local, wishes, CONFIG, {})
        self.out = Outbox()
        self.now_ns = 0
        if is_started:
            self.policy.start(0, Newcomer(4, {9: 2}), self.out)

    def search(self) -> Transition:
        """Until the search for the group ends."""
        while (transition := self.policy.take()) is None:
            self.now_ns = self.policy.deadline_ns()
            assert self.now_ns < NEVER
            self.policy.expire(self.now_ns, self.out)
            self.policy.after_batch(self.now_ns, self.out)
        return transition

    def install(self, install: Transition | None) -> LoggedOrderer:
        assert isinstance(install, Install)
        self.writer.ring = install.view.ring
        orderer = ORDERERS["sequencer"](
            self.me, self.writer, install.config, Timing(), install.view, 4, install.counter, {}
        )
        orderer.install(self.now_ns, Start(), self.out)
        self.policy.installed(self.now_ns, orderer, self.out)
        return orderer

    def control(self, kind: Kind, body: bytes, ring: int = 0, source: str = "b") -> Transition | None:
        other = member(source)
        self.policy.on_control(self.now_ns, kind, other.address, ring, other.id, body, self.out)
        return self.policy.take()

    def notes(self) -> list[str]:
        return [note.detail for note in self.out.notes if note.kind == NOTE]

    def sent(self) -> list[int]:
        return [HEADER.unpack_from(b"".join(send.buffers))[1] for send in self.out.sends]


def two_members(recovery: RecoveryMode = "automatic") -> Node:
    """The node `a` in a view of its own and `b`."""
    node = Node(recovery=recovery)
    view = View(5, "b/0", 77, 0, 0, 0, (node.me, member("b")), {node.me.id: 4}, Reason.CREATE, "b/0")
    node.install(Install(view, CONFIG, 5))
    node.out.notes.clear()
    node.out.sends.clear()
    return node


def frozen_leaver() -> tuple[Node, bytes]:
    """The node `a` in a view of `b` and its own, which is frozen, and that it is asked to leave; an invitation of `b`,
    which it has answered. Without `b` it may not go on."""
    node, bob = Node(), member("b")
    view = View(5, "b/0", 77, 0, 0, 0, (bob, node.me), {node.me.id: 4}, Reason.CREATE, "b/0")
    node.install(Install(view, CONFIG, 5))
    node.policy.on_suspects(0, [Suspicion(bob.id, SuspicionReason.SILENCE)], node.out)
    node.policy.leave(0, b"bye", node.out)
    invite = encode_invite(Ballot(9, 0, MAX_SENIORITY, bob.id), "majority", False, b"")
    assert node.control(Kind.INVITE, invite, 77) is None
    return node, invite


def given_up(node: Node) -> Transition:
    """Until its leave is given up."""
    while (left := node.policy.take()) is None:
        node.now_ns = node.policy.deadline_ns()
        node.policy.expire(node.now_ns, node.out)
    return left


def test_a_newcomer_that_finds_no_group_creates_it() -> None:
    node = Node()
    assert (node.policy.phase, node.policy.ring) == (Phase.JOINING, NO_RING)
    install = node.search()
    assert isinstance(install, Install)
    view = install.view
    assert (view.reason, view.members, view.header) == (Reason.CREATE, (node.me,), b"hello")
    assert (view.numbers, view.callers) == ({node.me.id: 4}, {9: 2})
    assert install.came_from == ()
    node.install(install)
    assert node.policy.phase is Phase.MEMBER
    assert node.policy.ring == node.policy.direct_ring == view.ring
    assert node.policy.is_whole
    assert node.policy.take() is None
    assert node.notes() == [f"view {view.id} installed: create of a/0; members a/0"]


def test_a_newcomer_that_must_not_create_is_refused() -> None:
    node = Node(create=False)
    refused = node.search()
    assert isinstance(refused, Refused)
    assert "create=None" in refused.text
    assert node.policy.phase is Phase.CLOSED
    assert node.policy.deadline_ns() == NEVER
    assert node.notes() == [f"the join was refused: {refused.text}"]


def test_a_member_refuses_a_newcomer_and_says_why() -> None:
    node = Node()
    assert node.control(Kind.REFUSE, encode_refusal("other", "full")) is None
    assert node.control(Kind.REFUSE, encode_refusal("g", "full")) == Refused("full")


def test_a_welcome_to_an_attempt_that_was_given_up_is_declined() -> None:
    node = Node()
    node.policy.leave(0, b"", node.out)
    assert node.policy.take() == LeftRing(DepartureCause.LEFT_UNJOINED)
    assert node.policy.phase is Phase.CLOSED  # no member was asked to let it in
    view = View(1, "b/0", 5, 0, 0, 0, (member("b"), node.me), {node.me.id: 4}, Reason.JOIN, "a/0")
    assert node.control(Kind.WELCOME, encode_welcome("g", 1, CONFIG, view)) is None
    assert node.policy.phase is Phase.CLOSED


def test_a_suspicion_stops_the_ring_and_says_who_and_why() -> None:
    node = two_members()
    silent = Suspicion(member("b").id, SuspicionReason.SILENCE)
    node.policy.on_suspects(0, [silent], node.out)
    assert not node.policy.is_whole
    assert (node.policy.phase, node.policy.direct_ring, node.policy.ring) == (Phase.MEMBER, NO_RING, 77)
    assert node.policy.state == "inviting"
    assert node.sent() == [Kind.INVITE]
    assert node.notes() == [
        "b/0 is suspected: it was silent for too long",
        "recovery begins: this member coordinates",
    ]
    assert node.out.notes[0].origin == silent.member


def test_half_of_a_view_with_its_first_member_goes_on_and_names_the_view_that_it_comes_from() -> None:
    """RMP section 4.4, with the deviation that half with the first member is a majority."""
    node = two_members()
    node.policy.on_suspects(0, [Suspicion(member("b").id, SuspicionReason.SILENCE)], node.out)
    install = node.search()
    assert isinstance(install, Install)
    assert (install.view.members, install.view.reason) == ((node.me,), Reason.RESET)
    (old,) = install.came_from
    assert (old.view.ring, old.upto, old.members) == (77, install.view.seq - 1, (node.me.id,))
    assert node.policy.was_in(77)
    assert not node.policy.was_in(install.view.ring)
    node.install(install)
    assert node.policy.ring == install.view.ring
    assert [text.partition(":")[0] for text in node.notes()[-2:]] == [
        "recovery committed",
        f"view {install.view.id} installed",
    ]


def test_stragglers_of_a_past_ring_are_told_the_commit() -> None:
    node = two_members()
    node.policy.on_suspects(0, [Suspicion(member("b").id, SuspicionReason.SILENCE)], node.out)
    node.install(node.search())
    node.out.sends.clear()
    node.policy.on_stranger(node.now_ns, member("b").address, Kind.SYNC, 77, member("b").id, b"", node.out)
    node.policy.on_stranger(node.now_ns, member("b").address, Kind.SYNC, 12345, member("b").id, b"", node.out)
    assert node.sent() == [Kind.COMMIT]
    assert HEADER.unpack_from(b"".join(node.out.sends[0].buffers))[5] == 77


def test_a_commit_without_this_node_excludes_it_and_it_comes_back() -> None:
    node = two_members()
    view = View(6, "b/0", 78, 1, 1, 0, (member("b"),), {}, Reason.RESET, "b/0")
    body = encode_result(NO_BALLOT, Proposal(NO_BALLOT, True, 0, (), view))
    assert node.control(Kind.COMMIT, body, ring=77) == Excluded(DepartureCause.EXCLUDED, True, False, ())
    assert (node.policy.phase, node.policy.ring) == (Phase.JOINING, NO_RING)
    assert node.notes() == ["excluded from view 5@b/0: the group was re-formed without this node"]


def test_a_log_that_is_kept_for_others_is_dropped_while_the_node_comes_back() -> None:
    """Otherwise its timer would be overdue for as long as the join takes, and the process would do nothing else."""
    node = two_members()
    orderer = node.install(Install(view_of("ab"), CONFIG, 5))
    node.policy.on_suspects(0, [Suspicion(member("b").id, SuspicionReason.SILENCE)], node.out)
    node.control(Kind.ENDED, encode_ended("g"), ring=node.policy.ring)
    assert node.policy.phase is Phase.JOINING
    node.policy.past.keep_log(0, 77, orderer, {member("b").id})
    node.now_ns = node.policy.past.deadline_ns()
    node.policy.expire(node.now_ns, node.out)
    assert node.policy.deadline_ns() > node.now_ns
    assert not node.policy.past.is_keeping


def test_with_manual_recovery_the_application_is_told_and_nothing_is_decided() -> None:
    """Amoeba section 4.2: calls fail until ResetGroup."""
    node = two_members("manual")
    assert node.control(Kind.SUSPECT, encode_suspects([member("b").id]), ring=77) is None
    (failed,) = node.out.upcalls
    assert isinstance(failed, Failed)
    assert failed.suspects == ("b/0",)
    assert (node.policy.state, node.policy.deadline_ns()) == ("failed", NEVER)
    assert node.notes() == ["b/0 is suspected: another member suspects it"]


def test_a_failed_member_tells_one_that_was_restarted_that_it_is_there() -> None:
    """Nobody coordinates before `reset`. A restarted member that heard nothing would say that it waits for this one."""
    node = two_members("manual")
    node.control(Kind.SUSPECT, encode_suspects([member("b").id]), ring=77)
    node.out.sends.clear()
    view = View(5, "b/0", 77, 0, 0, 0, (node.me, member("b")), {node.me.id: 4}, Reason.CREATE, "b/0")
    back = replace(member("b"), id=node_id("b", 1), life=1)
    returned = Returned("g", NO_BALLOT, back, 0, (member("b").id, back.id), view, True, None)
    assert node.control(Kind.RETURN, encode_returned(returned), view.ring) is None
    ((address, body),) = [
        (send.to, bytes(send.buffers[1])) for send in node.out.sends if send.buffers[0][1] == Kind.CHECK
    ]
    assert (address, decode_check(body)[1]) == (back.address, ())
    assert node.policy.state == "failed"


def test_a_reset_that_finds_too_few_members_fails() -> None:
    node = two_members("manual")
    node.policy.reset(0, 2, b"", node.out)
    while not node.out.upcalls:
        node.now_ns = node.policy.deadline_ns()
        assert node.now_ns < NEVER
        node.policy.expire(node.now_ns, node.out)
        node.policy.after_batch(node.now_ns, node.out)
    assert node.out.upcalls == [
        Reset(0, "the group stays failed: 1 of its members answered, and this reset asked for 2", 2)
    ]
    assert node.policy.take() is None
    assert node.policy.state == "failed"


def test_a_reset_counts_a_restarted_member_that_has_come_back() -> None:
    resets = PendingResets()
    resets.add(3, b"")
    resets.add(4, b"")
    base = view_of("abcd")
    later = replace(member_of("c"), id=node_id("c", 1), life=1)
    view = replace(base, members=(*base.members[:2], later))
    assert [(reset.size, reset.rule) for reset in resets.end(base, view)] == [(3, 3), (0, 4)]


def test_a_reset_outside_a_ring_fails_at_once() -> None:
    node = Node()
    node.policy.reset(0, 1, b"", node.out)
    assert node.out.upcalls == [Reset(0, "this node is not a member", 1)]


def test_a_leave_while_the_ring_is_frozen_does_not_wait() -> None:
    node = two_members("manual")
    node.policy.on_suspects(0, [Suspicion(member("b").id, SuspicionReason.SILENCE)], node.out)
    node.policy.leave(0, b"", node.out)
    assert node.policy.take() == LeftRing(DepartureCause.LEFT_UNJOINED)
    assert node.policy.phase is Phase.CLOSED


def test_a_leaver_of_a_frozen_ring_stays_for_the_round_with_a_restarted_member() -> None:
    """Both waits begin with the first sign of it. If the leaver went in the moment in which it proposes, the restarted
    member would be bound to a view with one that is gone."""
    node, timing, cleo = Node(), Timing(), member("c")
    view = View(5, "b/0", 77, 0, 0, 0, (member("b"), node.me, cleo), {node.me.id: 4}, Reason.CREATE, "b/0")
    node.install(Install(view, CONFIG, 5))
    node.policy.leave(0, b"", node.out)
    back = Member(node_id("c", 1), "c", 1, cleo.address)
    returned = Returned("g", NO_BALLOT, back, 0, (cleo.id, back.id), view, True, None)
    assert node.control(Kind.RETURN, encode_returned(returned), view.ring, source="c") is None
    assert not node.policy.is_whole
    while (left := node.policy.take()) is None:
        node.now_ns = node.policy.deadline_ns()
        node.policy.expire(node.now_ns, node.out)
    assert left == LeftRing(DepartureCause.LEFT_STUCK, is_serving=True)
    assert node.now_ns == timing.restart_wait_ns + timing.recovery_wait_ns


def test_a_restarted_member_whose_join_is_not_received_here_is_not_told_that_it_has_left() -> None:
    """It would join as a new member, and its vote would be gone."""
    node, cleo = two_members(), member("c")
    view = View(6, "b/0", 77, 0, 1, 0, (node.me, member("b"), cleo), {node.me.id: 4}, Reason.JOIN, "c/0")
    view = replace(view, prior=(node.me.id, member("b").id), prior_rules=("majority", "majority"))
    back = Member(node_id("c", 1), "c", 1, cleo.address)
    returned = Returned("g", NO_BALLOT, back, 0, (cleo.id, back.id), view, True, None)
    assert node.control(Kind.RETURN, encode_returned(returned), view.ring, source="c") is None
    assert Kind.HERE not in node.sent()
    assert Kind.INVITE in node.sent(), "its former life is over"


def test_a_leaver_of_a_frozen_ring_is_out_for_its_application_and_votes_on() -> None:
    """For as long as a join that was given up: no application waits for either."""
    node, invite = frozen_leaver()
    timing = Timing()
    assert given_up(node) == LeftRing(DepartureCause.LEFT_STUCK, is_serving=True)
    assert node.now_ns == timing.linger_ns
    assert (node.policy.phase, node.policy.silence, node.policy.ring) == (Phase.MEMBER, Silence.SERVING, 77)
    assert node.policy.kept() is not None, "a restart must not take its vote away"
    find = encode_asking(Asking("g", member("c"), 1, 1, 0, Demands(), b""))
    while (end := node.policy.take()) is None:
        node.out.sends.clear()
        assert node.control(Kind.FIND, find, source="c") is None
        assert Kind.HERE not in node.sent(), "newcomers need not wait for it"
        assert node.control(Kind.INVITE, invite, 77) is None
        assert {Kind.CUT, Kind.DENY} & set(node.sent())
        node.now_ns = node.policy.deadline_ns()
        node.policy.expire(node.now_ns, node.out)
    assert end == LeftRing(DepartureCause.LEFT_STUCK)
    assert node.policy.phase is Phase.CLOSED
    assert node.now_ns == (1 + LONGEST) * timing.linger_ns


def test_a_leaver_that_votes_on_leaves_in_order_when_the_ring_has_recovered() -> None:
    node, _ = frozen_leaver()
    given_up(node)
    view = View(6, "b/0", 78, 1, 1, 0, (member("b"), node.me), {node.me.id: 4}, Reason.RESET, "b/0")
    install = node.control(Kind.COMMIT, encode_result(NO_BALLOT, Proposal(NO_BALLOT, True, 0, (), view)), ring=77)
    node.out.sends.clear()
    orderer = node.install(install)
    orderer.expire(node.now_ns, node.out)
    assert Kind.PROPOSE in node.sent()
    assert node.policy.silence is Silence.SERVING


def test_a_restarted_member_that_is_to_leave_does_so_once_it_is_back() -> None:
    node, bob = Node(is_started=False), member("b")
    node.policy.retire(0, b"bye")
    assert (node.policy.phase, node.policy.deadline_ns()) == (Phase.LINGERING, LONGEST * Timing().linger_ns)
    node.policy.resume(View(6, "b/0", 78, 1, 1, 0, (bob, node.me), {}, Reason.RESTART, "b/0"), CONFIG)
    orderer = node.install(node.policy.take())
    orderer.expire(node.now_ns, node.out)
    assert Kind.PROPOSE in node.sent()


def test_a_restarted_member_that_is_to_leave_looks_for_no_group_when_its_ring_is_over() -> None:
    node = Node(is_started=False)
    node.policy.retire(0, b"")
    node.out.sends.clear()
    node.policy.start(0, Newcomer(4, {}), node.out)
    assert node.policy.take() == Closed()
    assert node.sent() == []
    assert (node.policy.phase, node.policy.deadline_ns()) == (Phase.CLOSED, NEVER)


def test_a_newcomer_that_gave_up_and_is_let_in_votes_in_a_frozen_ring_for_long_and_shows_it_to_nobody() -> None:
    node, bob, timing = Node(), member("b"), Timing()
    seen = Ring("g", 5, 1, "b/0", 1, True, bob, CONFIG)
    assert node.control(Kind.HERE, encode_ring(seen)) is None
    node.policy.leave(0, b"", node.out)
    assert node.policy.take() == LeftRing(DepartureCause.LEFT_UNJOINED)
    view = View(1, "b/0", 5, 0, 3, 0, (bob, node.me), {node.me.id: 4}, Reason.JOIN, "a/0", b"hello")
    node.install(node.control(Kind.WELCOME, encode_welcome("g", node.policy.attempts[-1], CONFIG, view)))
    assert not node.policy.attempts, "this node's next search must not take it again: this one votes by it"
    assert node.control(Kind.DECIDED, encode_decision(view.seq, asks=False), view.ring) is None
    node.policy.on_suspects(0, [Suspicion(bob.id, SuspicionReason.SILENCE)], node.out)
    invite = encode_invite(Ballot(9, 0, MAX_SENIORITY, bob.id), "majority", False, b"")
    find = encode_asking(Asking("g", member("c"), 1, 1, 0, Demands(), b""))
    while node.policy.phase is Phase.MEMBER:
        node.out.sends.clear()
        assert node.control(Kind.FIND, find, source="c") is None
        assert Kind.HERE not in node.sent()
        assert node.control(Kind.INVITE, invite, 5) is None
        assert {Kind.CUT, Kind.DENY} & set(node.sent())
        node.now_ns = node.policy.deadline_ns()
        node.policy.expire(node.now_ns, node.out)
    assert node.policy.take() == LeftRing(DepartureCause.LEFT_STUCK)
    assert node.now_ns == LONGEST * timing.linger_ns


def sources_of_naks(node: Node) -> list[tuple[str, int]]:
    """Where requests for the old log went since the last call."""
    found = [send.to for send in node.out.sends if HEADER.unpack_from(b"".join(send.buffers))[1] == Kind.NAK]
    node.out.sends.clear()
    return found


def test_a_member_that_missed_the_commit_asks_all_members_of_the_next_ring_for_the_old_log() -> None:
    """The one that told it may be gone by now, and all of them keep that log for it."""
    node = two_members()
    members = (member("b"), member("c"), node.me, member("d"))
    view = View(6, "b/0", 78, 1, 3, 0, members, {node.me.id: 4}, Reason.RESET, "b/0")
    body = encode_result(NO_BALLOT, Proposal(NO_BALLOT, False, 0, (), view))
    assert node.control(Kind.COMMIT, body, ring=77, source="c") is None, "entries before the view are missing"
    asked = sources_of_naks(node)
    for _ in range(3):
        node.now_ns = node.policy.deadline_ns()
        node.policy.expire(node.now_ns, node.out)
        asked += sources_of_naks(node)
    assert asked == [member(name).address for name in "cdbc"]


def test_a_member_that_missed_the_commit_and_was_told_by_a_leaver_asks_the_members() -> None:
    node = two_members()
    view = View(6, "b/0", 78, 1, 3, 0, (member("b"), node.me), {node.me.id: 4}, Reason.RESET, "b/0")
    body = encode_result(NO_BALLOT, Proposal(NO_BALLOT, False, 0, (), view))
    assert node.control(Kind.COMMIT, body, ring=77, source="z") is None
    node.now_ns = node.policy.deadline_ns()
    node.policy.expire(node.now_ns, node.out)
    assert sources_of_naks(node) == [member("z").address, member("b").address]
