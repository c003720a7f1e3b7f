"""A member that was restarted with what it kept: what it answers, and what is on disk before it does.

docs/design/restarts.md has the argument.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.channels import make_host, open_ports
from tests.unit.fake_engine import Exchange, fake

from ordercast.config import MS, SECOND, Demands, GroupConfig, Timing
from ordercast.engine import Outbox, StallReason
from ordercast.errors import UsageError
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.storing import Entries
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.returning import MAX_FOREIGN, Returning
from ordercast.membership.quorum.roles import NO_LOG
from ordercast.membership.quorum.waiting import return_waits
from ordercast.parts.probing import Probing
from ordercast.sim.folders import SimFolder
from ordercast.underlay.keeping import Keeping
from ordercast.view import Member, Reason, View, group_tag, node_id
from ordercast.wire.header import Kind
from ordercast.wire.returns import (
    MAX_FORMER,
    Kept,
    Returned,
    decode_kept,
    decode_returned,
    encode_kept,
    encode_returned,
)
from ordercast.wire.views import (
    NO_BALLOT,
    Asking,
    Ballot,
    Cut,
    Proposal,
    Ring,
    decode_ballot,
    decode_result,
    decode_welcome,
    encode_asking,
    encode_ballot,
    encode_check,
    encode_cut,
    encode_invite,
    encode_result,
    encode_ring,
    encode_welcome,
)
from ordercast.wire.writer import DatagramWriter

CONFIG = GroupConfig()


def member(name: str, life: int = 0) -> Member:
    return Member(node_id(name, life), name, life, ("10.0.0.1", ord(name)))


A, B, C = (member(name) for name in "abc")
VIEW = View(7, "a/0", 99, 0, 12, 40, (A, B, C), {each.id: 3 for each in (A, B, C)}, Reason.RESET)
LOW, HIGH = Ballot(1, 12, 65_535, A.id), Ballot(2, 12, 65_534, C.id)
PROPOSAL = Proposal(HIGH, True, 12, (), replace(VIEW, counter=8, ring=100, seq=13, members=(C, A)))
KEPT = Kept(CONFIG, (B.id,), VIEW, True, HIGH, PROPOSAL, (98, b"how it ended"))


def local(me: Member) -> LocalMember:
    writer, rng = DatagramWriter(group_tag("prices"), me.id, 1_400), random.Random(1)
    return LocalMember("prices", me, writer, Timing(), rng, Probing(writer, Timing(), rng, {}))


def returning(kept: Kept = KEPT, life: int = 1) -> Returning:
    return Returning(local(member("b", life)), kept, 0)


def hear(
    part: Returning, kind: Kind, body: bytes, ring: int = VIEW.ring, origin: int = A.id
) -> list[tuple[int, bytes]]:
    """What it answers, as (kind, body)."""
    out = Outbox()
    part.on_control(10 * MS, kind, A.address, ring, origin, body, out)
    return said(out)


def said(out: Outbox) -> list[tuple[int, bytes]]:
    return [(send.buffers[0][1], bytes(send.buffers[1])) for send in out.sends]


def test_what_is_kept_comes_back_as_it_was() -> None:
    assert decode_kept(encode_kept(KEPT)) == KEPT
    returned = Returned("prices", HIGH, member("b", 1), 0, (B.id, 5), VIEW, False, None)
    assert decode_returned(encode_returned(returned)) == returned


def test_a_promise_of_a_former_life_binds() -> None:
    """The argument of Paxos needs it: two coordinators must not both have its promise."""
    [(kind, body)] = hear(returning(), Kind.INVITE, encode_invite(LOW, "majority", False, b""))
    assert kind == Kind.DENY
    assert decode_ballot(body) == HIGH


def test_an_answer_to_an_invitation_shows_what_was_kept_and_is_on_disk_before() -> None:
    part = returning()
    ballot = Ballot(3, 12, 65_535, A.id)
    [(kind, body)] = hear(part, Kind.INVITE, encode_invite(ballot, "majority", False, b""))
    returned = decode_returned(body)
    assert kind == Kind.RETURN
    assert (returned.ballot, returned.accepted, returned.view.id) == (ballot, PROPOSAL, VIEW.id)
    assert returned.formerly == (B.id, member("b", 1).id)
    assert part.kept.promised == ballot


def test_an_accepted_proposal_is_kept_before_it_is_acknowledged() -> None:
    part = returning(KEPT._replace(accepted=None, promised=NO_BALLOT))
    [(kind, _)] = hear(part, Kind.RESULT, encode_result(HIGH, PROPOSAL))
    assert kind == Kind.RESULT_ACK
    assert part.kept.accepted == PROPOSAL
    assert part.kept.promised == HIGH


def test_it_waits_for_the_coordinator_and_then_for_the_members_that_did_not_answer_that_one() -> None:
    """It hears the coordinator alone: others are there if that one says so, and as long as its word is fresh."""
    part, ballot = returning(), Ballot(3, 12, 65_535, A.id)
    alone = return_waits(10 * MS, part)
    assert (alone.reason, alone.waiting_for) == (StallReason.NO_QUORUM, ("a/0", "c/0"))
    hear(part, Kind.INVITE, encode_invite(ballot, "majority", False, b""))
    led = return_waits(20 * MS, part)
    assert (led.reason, led.waiting_for) == (StallReason.RECOVERY, ("a/0",))
    hear(part, Kind.CHECK, encode_check(HIGH, [A.id, B.id, C.id]))  # of another round
    assert return_waits(20 * MS, part) == led
    hear(part, Kind.CHECK, encode_check(ballot, [A.id, B.id]))
    told = return_waits(20 * MS, part)
    assert (told.reason, told.waiting_for) == (StallReason.RECOVERY, ("c/0",))
    assert return_waits(10 * SECOND, part) == alone


def test_a_member_that_asks_a_former_life_of_this_node_is_there() -> None:
    """It waits for a coordinator that has died, and says nothing to the life that has come back."""
    part = returning(KEPT._replace(promised=Ballot(3, 12, 65_535, B.id)))
    hear(part, Kind.CHECK, encode_check(Ballot(3, 12, 65_535, B.id), []))
    waiting = return_waits(20 * MS, part)
    assert (waiting.reason, waiting.waiting_for) == (StallReason.RECOVERY, ("c/0",))


def test_a_coordinator_that_a_former_life_has_answered_is_there() -> None:
    """It does not ask twice. It says that it is there, and not yet which members are missing."""
    part = returning()
    hear(part, Kind.CHECK, encode_check(HIGH._replace(node=A.id), []))
    alone = return_waits(20 * MS, part)
    assert (alone.reason, alone.waiting_for) == (StallReason.RECOVERY, ("c/0",))
    part = returning(KEPT._replace(promised=HIGH._replace(node=A.id)))
    hear(part, Kind.CHECK, encode_check(HIGH._replace(node=A.id), []))
    waiting = return_waits(20 * MS, part)
    assert (waiting.reason, waiting.waiting_for) == (StallReason.RECOVERY, ("a/0",))


def test_nobody_is_missed_before_it_had_time_to_speak() -> None:
    """A member with a log is silent until it knows that the coordinator it waits for is gone."""
    part = returning()
    part.start(10 * MS, Outbox())
    waiting = return_waits(SECOND, part)
    assert (waiting.reason, waiting.waiting_for) == (StallReason.RECOVERY, ("a/0", "c/0"))
    assert return_waits(3 * SECOND, part).reason is StallReason.NO_QUORUM


def test_restarted_members_that_fall_silent_are_missed() -> None:
    """They show themselves about once in a second."""
    part = returning(KEPT._replace(promised=NO_BALLOT, accepted=None))
    body = encode_returned(Returned("prices", NO_BALLOT, member("c", 1), 0, (C.id,), VIEW, True, None))
    hear(part, Kind.RETURN, body, origin=member("c", 1).id)
    assert return_waits(2 * SECOND, part).waiting_for == ("a/0",)
    assert return_waits(6 * SECOND, part).waiting_for == ("a/0", "c/0")


def test_the_vote_of_a_member_whose_leave_is_not_decided_is_missed() -> None:
    """Both views have to agree: the one with it, and the one without it."""
    left = replace(VIEW, members=(A, B), reason=Reason.LEAVE, subject="c/0", creator="c/0")
    left = replace(left, prior=(C.id, A.id, B.id), prior_rules=("all", "all", "all"))
    part = returning(KEPT._replace(view=left, is_decided=False, promised=NO_BALLOT, accepted=None))
    body = encode_returned(Returned("prices", NO_BALLOT, member("a", 1), 0, (A.id,), left, False, None))
    hear(part, Kind.RETURN, body)
    waiting = return_waits(SECOND, part)
    assert (waiting.reason, waiting.waiting_for) == (StallReason.NO_QUORUM, ("c/0",))


def test_a_member_that_has_left_is_asked_for_its_vote_while_that_may_be_missing() -> None:
    """Its leave is not decided without it, it coordinates nothing, and no other member of the view before is there."""
    left = replace(VIEW, members=(B,), seq=13, reason=Reason.LEAVE, subject="a/0", creator="a/0")
    left = replace(left, prior=(A.id, B.id), prior_rules=("all", "all"))
    part = returning(KEPT._replace(view=left, is_decided=False, promised=NO_BALLOT, accepted=None))
    part.expire(20 * MS, Outbox())
    assert part.kept.promised == NO_BALLOT, "its own vote is not enough"
    hear(part, Kind.WELCOME, encode_welcome("prices", 0, CONFIG, left))
    out, now_ns = Outbox(), part.deadline_ns()
    part.expire(now_ns, out)
    assert [send.buffers[0][1] for send in out.sends if send.to == A.address] == [Kind.INVITE]
    cut = Cut(13, 12, (), (), left, 3, None)
    [(kind, body)] = hear(part, Kind.CUT, encode_cut(part.kept.promised, cut))
    assert kind == Kind.RESULT
    assert [str(each) for each in decode_result(body)[1].view.members] == ["b/1"]
    assert part.successor is None
    assert [kind for kind, _ in hear(part, Kind.RESULT_ACK, encode_ballot(part.kept.promised))] == [Kind.COMMIT]
    assert part.successor is not None


def test_a_member_that_was_heard_and_is_gone_is_not_waited_for_without_an_end() -> None:
    """It forms the group by itself, although nobody answers: the one that it has heard is asked a few times."""
    small = replace(VIEW, members=tuple(replace(each, min_members=1) for each in (A, B, C)))
    part = returning(KEPT._replace(view=small, promised=NO_BALLOT, accepted=None))
    back = Returned("prices", NO_BALLOT, member("c", 1), 0, (C.id,), small, True, None)
    hear(part, Kind.RETURN, encode_returned(back), origin=back.member.id)
    asked = 0
    while part.successor is None:
        out = Outbox()
        part.expire(part.deadline_ns(), out)
        asked += any(send.buffers[0][1] == Kind.INVITE for send in out.sends)
        assert asked <= Timing().invite_tries + 1
    assert [str(each) for each in part.successor.view.members] == ["b/1"]


def test_a_proposal_of_its_own_to_members_that_are_gone_again_does_not_bind() -> None:
    """b, a and c are a quorum of five. Before a and c accept the view that b proposes they go down again, and d and e
    come. b has not committed that view: with d and e it makes another."""
    five = replace(VIEW, members=tuple(member(name) for name in "abcde"))
    part, me = returning(KEPT._replace(view=five, promised=NO_BALLOT, accepted=None)), member("b", 1)
    now_ns, present = 10 * MS, "ac"

    def answer(ballot: Ballot, out: Outbox) -> None:
        for name in present:
            body = encode_returned(
                Returned("prices", ballot, member(name, 1), 0, (member(name).id, member(name, 1).id), five, True, None)
            )
            part.on_control(now_ns, Kind.RETURN, member(name).address, VIEW.ring, member(name, 1).id, body, out)

    def proposed() -> list[str]:
        return sorted(map(str, part.kept.accepted.view.members)) if part.kept.accepted is not None else []

    answer(NO_BALLOT, Outbox())
    while proposed() != ["b/1", "d/1", "e/1"] and now_ns < 60 * SECOND:
        out, now_ns = Outbox(), part.deadline_ns()
        part.expire(now_ns, out)
        if Kind.INVITE in [kind for kind, _ in said(out)] and part.kept.promised.node == me.id:
            answer(part.kept.promised, Outbox())
        if proposed() == ["a/1", "b/1", "c/1"] and present == "ac":
            present = "de"
            answer(NO_BALLOT, Outbox())
    assert proposed() == ["b/1", "d/1", "e/1"]


def test_nobody_votes_in_the_place_of_a_member_that_has_left_and_is_decided_to_be_out() -> None:
    left = replace(VIEW, members=(B, C), seq=13, reason=Reason.LEAVE, subject="a/0", creator="a/0")
    left = replace(left, prior=(A.id, B.id, C.id), prior_rules=("majority", "majority", "majority"))
    part = returning(KEPT._replace(view=left, is_decided=True, promised=NO_BALLOT, accepted=None))
    hear(part, Kind.WELCOME, encode_welcome("prices", 1, CONFIG, left))
    out = Outbox()
    part.expire(part.deadline_ns(), out)
    assert A.address not in [send.to for send in out.sends]


def test_a_straggler_of_the_ring_before_is_told_how_it_ended() -> None:
    answer = hear(returning(), Kind.INVITE, encode_invite(LOW, "majority", False, b""), ring=98)
    assert answer == [(Kind.COMMIT, b"how it ended")]


def test_a_commit_that_names_a_former_life_makes_it_a_member_of_that_ring() -> None:
    part = returning(KEPT._replace(formerly=(A.id,)))
    hear(part, Kind.COMMIT, encode_result(HIGH, PROPOSAL))
    assert part.successor is None
    assert not part.is_over
    assert (part.kept.view.ring, part.kept.formerly[0], part.kept.promised) == (100, A.id, NO_BALLOT)


def test_a_commit_without_it_makes_it_a_newcomer() -> None:
    part = returning()
    hear(part, Kind.COMMIT, encode_result(HIGH, PROPOSAL))
    assert part.is_over


def test_another_ring_is_asked_before_it_is_joined() -> None:
    """It may be the next ring, with this member in it: its beacon has overtaken the COMMIT."""
    me = member("b", 1)
    view = replace(VIEW, counter=9, ring=101, seq=14, members=(C, me))
    beacon = encode_ring(Ring("prices", 101, 9, "c/0", 2, True, C, CONFIG))
    part, out = returning(), Outbox()
    part.on_control(5 * SECOND, Kind.BEACON, C.address, 0, C.id, beacon, out)
    assert [(send.to, send.buffers[0][1]) for send in out.sends] == [(C.address, Kind.RETURN)]
    part.on_control(6 * SECOND, Kind.BEACON, C.address, 0, C.id, beacon, Outbox())
    assert not part.is_over
    hear(part, Kind.COMMIT, encode_result(HIGH, PROPOSAL._replace(view=view)))
    assert part.successor is not None
    assert part.successor.view == view


def test_another_ring_that_does_not_follow_is_joined() -> None:
    part, beacon = returning(), encode_ring(Ring("prices", 101, 9, "c/0", 2, True, C, CONFIG))
    for second, is_over in ((5, False), (6, False), (8, True)):
        part.on_control(second * SECOND, Kind.BEACON, C.address, 0, C.id, beacon, Outbox())
        assert part.is_over is is_over


def test_a_smaller_ring_of_strangers_is_not_joined_soon() -> None:
    """A newcomer that heard nobody has made it. Members of the last view may be silent for now, and need this vote."""
    stranger = member("z")
    part = returning()
    for size, second, is_over in ((1, 5, False), (1, 9, False), (1, 34, False), (1, 36, True)):
        beacon = encode_ring(Ring("prices", 101, 9, "z/0", size, True, stranger, CONFIG))
        part.on_control(second * SECOND, Kind.BEACON, stranger.address, 0, stranger.id, beacon, Outbox())
        assert part.is_over is is_over
    part, beacon = returning(), encode_ring(Ring("prices", 101, 9, "z/0", 9, True, stranger, CONFIG))
    for second, is_over in ((5, False), (8, True)):  # larger than ours was: the group may be there now
        part.on_control(second * SECOND, Kind.BEACON, stranger.address, 0, stranger.id, beacon, Outbox())
        assert part.is_over is is_over


def test_each_other_ring_has_its_own_time_to_say_that_it_follows() -> None:
    """One that is heard for the first time may be the next one, although another has been heard long before."""
    me, part, out = member("b", 1), returning(), Outbox()
    part.on_control(
        5 * SECOND, Kind.BEACON, A.address, 0, A.id, encode_ring(Ring("prices", 55, 9, "z/0", 1, True, A, CONFIG)), out
    )
    beacon = encode_ring(Ring("prices", 101, 9, "c/0", 2, True, C, CONFIG))
    out = Outbox()
    part.on_control(9 * SECOND, Kind.BEACON, C.address, 0, C.id, beacon, out)
    assert not part.is_over
    assert [(send.to, send.buffers[0][1]) for send in out.sends] == [(C.address, Kind.RETURN)]
    view = replace(VIEW, counter=9, ring=101, seq=14, members=(C, me))
    hear(part, Kind.COMMIT, encode_result(HIGH, PROPOSAL._replace(view=view)))
    assert part.successor is not None


def test_of_very_many_other_rings_the_first_are_forgotten() -> None:
    part = returning()
    for ring in range(200, 200 + MAX_FOREIGN + 1):
        beacon = encode_ring(Ring("prices", ring, 9, "c/0", 2, True, C, CONFIG))
        part.on_control(5 * SECOND, Kind.BEACON, C.address, 0, C.id, beacon, Outbox())
    beacon = encode_ring(Ring("prices", 200, 9, "c/0", 2, True, C, CONFIG))
    part.on_control(9 * SECOND, Kind.BEACON, C.address, 0, C.id, beacon, Outbox())
    assert not part.is_over


def test_a_member_that_left_tells_that_the_last_view_is_decided() -> None:
    """This one has received it, too, and waits for a vote that nobody needs any more."""
    left = replace(VIEW, members=(B,), seq=13, reason=Reason.EXPEL, subject="a/0", creator="b/0")
    left = replace(left, prior=(A.id, B.id), prior_rules=("majority", "majority"))
    part = returning(KEPT._replace(view=left, is_decided=False, promised=NO_BALLOT, accepted=None))
    for serial, is_decided in ((0, False), (2**62, False), (1, True), (0, True), (2**62, True)):
        hear(part, Kind.WELCOME, encode_welcome("prices", serial, CONFIG, left))
        assert (part.kept.view, part.kept.is_decided) == (left, is_decided)
    part.expire(part.deadline_ns() + 1, Outbox())
    assert part.successor is not None, "it is the only member of that view, and goes on at once"


def test_a_member_that_left_tells_the_last_view() -> None:
    part = returning(KEPT._replace(accepted=None))
    later = replace(VIEW, counter=9, seq=20, members=(B,), prior=(A.id, B.id, C.id), prior_rules=("majority",) * 3)
    hear(part, Kind.WELCOME, encode_welcome("prices", 1, CONFIG, later))
    assert (part.kept.view.seq, part.kept.is_decided) == (20, True)
    out = Outbox()
    part.expire(part.deadline_ns() + 1, out)
    assert part.successor is not None, "it is the only member of that view, and goes on at once"
    assert part.successor.view.reason == Reason.RESTART


def test_a_newcomer_that_is_alone_in_the_last_view_begins_with_it() -> None:
    """All others left after it had joined, and it heard nothing of that."""
    alone = replace(VIEW, members=(A,), reason=Reason.LEAVE, subject="b/0", prior=(A.id, B.id, C.id))
    alone = replace(alone, prior_rules=("majority",) * 3)
    kept = KEPT._replace(view=alone, is_decided=True, promised=NO_BALLOT, accepted=None)
    find = encode_asking(Asking("prices", A, 77, 1, 0, Demands(), b""))
    ((kind, body),) = hear(returning(kept), Kind.FIND, find)
    assert (kind, *decode_welcome(body)[1:]) == (Kind.WELCOME, 77, kept.config, alone), "the answer to this attempt"
    other = encode_asking(Asking("prices", C, 77, 1, 0, Demands(), b""))
    ((kind, _),) = hear(returning(kept), Kind.FIND, other)
    assert kind == Kind.HERE, "nobody else is let in by that"


def test_ballots_of_a_restarted_member_are_below_all_others() -> None:
    assert Ballot(1, 0, NO_LOG, A.id) < Ballot(1, 0, 65_535 - 2_000, A.id)


def test_only_so_many_former_lives_are_kept_with_the_first_among_them() -> None:
    kept = KEPT._replace(formerly=tuple(range(1, MAX_FORMER + 1)))
    formerly = returning(kept).kept.formerly
    assert len(formerly) == MAX_FORMER
    assert (formerly[0], formerly[-1]) == (1, member("b", 1).id)


def test_what_has_not_changed_is_not_stored_again() -> None:
    keeping = Keeping(local(B))
    assert keeping.changed(None) is None
    assert keeping.changed(KEPT) == encode_kept(KEPT)
    assert keeping.changed(KEPT) is None
    assert keeping.changed(KEPT._replace(promised=Ballot(9, 0, 0, 1))) is not None
    assert keeping.changed(None) == b""
    assert keeping.changed(None) is None


def test_a_leave_that_was_decided_is_nothing_to_come_back_to() -> None:
    without = replace(VIEW, members=(A, C), prior=(A.id, B.id, C.id), prior_rules=("majority",) * 3)
    for is_decided in (True, False):
        keeping = Keeping(local(member("b", 1)))
        keeping.restore(encode_kept(KEPT._replace(view=without, is_decided=is_decided)), 0)
        assert (keeping.returning is None) == is_decided


OWN = Ring("prices", VIEW.ring, 9, "c/0", 2, False, C, CONFIG)  # it does not work


def let_go() -> tuple[Keeping, Kept]:
    """A new life of b, which the ring had let go before it crashed."""
    without = replace(VIEW, members=(A, C), prior=(A.id, B.id, C.id), prior_rules=("majority",) * 3)
    kept = KEPT._replace(view=without, is_decided=True, promised=NO_BALLOT, accepted=None)
    keeping = Keeping(local(member("b", 1)))
    keeping.restore(encode_kept(kept), 7)
    return keeping, kept


def tell(keeping: Keeping, kind: Kind, body: bytes, ring: int = VIEW.ring) -> list[tuple[int, bytes]]:
    out = Outbox()
    assert not keeping.on_control(MS, kind, A.address, ring, A.id, body, out), "it looks for the group beside that"
    return said(out)


def test_a_member_that_crashed_after_its_leave_tells_the_last_view_to_those_that_come_back() -> None:
    """Nobody else may know it, and they would wait for the vote of a member that has left."""
    keeping, kept = let_go()
    assert not tell(keeping, Kind.RETURN, b"", VIEW.ring + 1), "of another ring it knows nothing"
    assert not tell(keeping, Kind.BEACON, encode_ring(OWN._replace(is_working=True))), (
        "members that work need not be told"
    )
    ((kind, body),) = tell(keeping, Kind.RETURN, b"")
    assert kind == Kind.WELCOME
    assert decode_welcome(body)[1:] == (1, kept.config, kept.view)
    stored = keeping.changed(None)
    assert stored is not None
    assert decode_kept(stored) == kept._replace(formerly=(B.id, member("b", 1).id)), "this life may crash as well"
    assert keeping.changed(KEPT) == encode_kept(KEPT)
    assert keeping.changed(None) == b""
    assert not tell(keeping, Kind.RETURN, b""), "it has come in, and its entry is another"


def test_a_member_that_crashed_after_its_leave_answers_a_coordinator_that_waits_for_it() -> None:
    """It ordered its own leave, which was decided with its vote, and nobody has received that."""
    keeping, kept = let_go()
    ((kind, body),) = tell(keeping, Kind.HERE, encode_ring(OWN))
    assert (kind, decode_returned(body).view, decode_returned(body).is_decided) == (Kind.RETURN, kept.view, True)
    ballot = Ballot(3, 12, 1, A.id)
    ((kind, body),) = tell(keeping, Kind.INVITE, encode_invite(ballot, "majority", False, b""))
    assert (kind, decode_returned(body).ballot) == (Kind.RETURN, ballot)
    stored = keeping.changed(None)
    assert stored is not None
    assert decode_kept(stored).promised == ballot
    ((kind, body),) = tell(keeping, Kind.INVITE, encode_invite(ballot._replace(round=2), "majority", False, b""))
    assert (kind, decode_ballot(body)) == (Kind.DENY, ballot)
    tell(keeping, Kind.COMMIT, b"")
    assert keeping.changed(None) == b"", "the ring is over, and its members know how"


def test_a_shared_underlay_keeps_nothing() -> None:
    assert Keeping(local(B)).changed(KEPT._replace(config=GroupConfig(shared=True))) is None


def test_a_foreign_entry_says_what_to_do() -> None:
    folder = SimFolder()
    folder.put("prices", b"of another version")
    host = Host("b", 1, B.address, buffer_bytes=1 << 20, rng=random.Random(1), store=folder)
    with pytest.raises(UsageError, match="another version wrote it"):
        host.open(0, "prices", config=CONFIG)


class Refusing(SimFolder):
    """A disk that takes nothing."""

    __slots__ = ()

    def put(self, underlay: str, entry: bytes) -> None:
        raise OSError(f"no room for {underlay}: {len(entry)} bytes")


def test_nothing_leaves_where_it_could_not_be_stored() -> None:
    """A pass stores, then writes its trace, then sends. Here it creates the group, and nobody hears of it."""
    host = Host("b", 1, B.address, buffer_bytes=1 << 20, rng=random.Random(1), store=Refusing())
    port = host.open(0, "prices", config=CONFIG)
    kinds: list[int] = []

    def create() -> None:
        while True:
            kinds.extend([send.buffers[0][1] for _, send in host.finish(host.deadline_ns())])
            host.expire(host.deadline_ns())

    with pytest.raises(OSError, match="no room for prices"):
        create()
    assert set(kinds) == {Kind.FIND}
    assert port.engine.view is not None


def test_an_engine_that_keeps_nothing_needs_no_folder() -> None:
    host = Host("b", 1, B.address, buffer_bytes=1 << 20, rng=random.Random(1), engines=Exchange())
    host.open(0, "prices", config=CONFIG)
    host.finish(0)


def keep(entries: Entries, port: Port, entry: bytes) -> None:
    """The engine of a port has this to keep."""
    fake(port).kept = entry
    entries.keep([port.channel])


def test_an_engine_that_votes_on_after_its_membership_is_not_replaced_by_the_next_one() -> None:
    """Its entry is of this life: the next engine of the node would be the same member once more."""
    folder, exchange = SimFolder(), Exchange()
    folder.put("prices", b"of a former life")
    entries, host = Entries(folder), make_host(exchange)
    [port] = open_ports(host, "prices")
    entries.restore("prices", fake(port))
    keep(entries, port, b"a vote of this life")
    entries.restore("prices", fake(port))
    assert fake(port).restored == [b"of a former life"]
    keep(entries, port, b"")
    assert not folder


def test_the_entry_of_the_last_engine_stands() -> None:
    """One that has gone on voting after its membership must not take the entry of the next membership with it."""
    folder, exchange = SimFolder(), Exchange()
    entries, hosts = Entries(folder), [make_host(exchange, name) for name in "xy"]
    (_, first), (_, _, second) = open_ports(hosts[0], "logs", "prices"), open_ports(hosts[1], "logs", "news", "prices")
    assert first.channel.order < second.channel.order
    keep(entries, first, b"a vote")
    keep(entries, second, b"the next membership")
    for late in (b"a later vote", b""):
        keep(entries, first, late)
        assert folder.get("prices") == b"the next membership"
    keep(entries, second, b"")
    keep(entries, first, b"the last vote")
    assert folder.get("prices") == b"the last vote"
