"""How members learn that a change is decided, and how a leaver learns that it may go (`membership.quorum.deciding`)."""

from __future__ import annotations

from tests.unit.quorums import LAST_SEQ, Party, joined, left, member_of, party_of, view_of

from ordercast.engine import NEVER, To
from ordercast.membership.quorum.deciding import CREATOR_TRIES, MAX_RETRY_NS, RETRY_NS, Deciding
from ordercast.view import Address, Reason, View
from ordercast.wire.header import Kind
from ordercast.wire.views import decode_decision, encode_decision


class Voter:
    """One member, and its part in a decision."""

    def __init__(self, name: str, change: View) -> None:
        self.party: Party = party_of(name, change)
        self.deciding = Deciding(self.party.local, self.party.orderer)
        self.change = change
        self.now_ns = 0

    def start(self) -> None:
        self.deciding.on_change(self.now_ns, self.change, self.party.out)

    @property
    def knows(self) -> bool:
        return self.party.orderer.decided >= self.change.seq

    def hear(self, kind: Kind, source: str, asks: bool = False, seq: int = LAST_SEQ) -> None:
        other = member_of(source)
        body = encode_decision(seq, asks)
        assert self.deciding.on_message(kind, other.address, other.id, body, self.party.out) == seq

    def wait(self) -> None:
        self.now_ns = self.deciding.deadline_ns()
        assert self.now_ns < NEVER
        self.deciding.expire(self.now_ns, self.party.out)

    def said(self) -> list[tuple[Address, Kind, bool]]:
        """To whom, what, and whether an answer is asked for."""
        found = []
        for to, kind, body in self.party.sent():
            seq, asks = decode_decision(body)
            assert seq == LAST_SEQ
            found.append((to, kind, asks))
        return found


def address(name: str) -> Address:
    return member_of(name).address


def voter(name: str, change: View) -> Voter:
    found = Voter(name, change)
    found.start()
    return found


# Changes


def test_where_the_orderer_and_one_receiver_are_a_quorum_nothing_is_said() -> None:
    change = joined("abc", "ab")
    for name in "abc":
        member = voter(name, change)
        assert member.knows
        assert member.said() == []
        assert not member.deciding
        assert member.deciding.deadline_ns() == NEVER


def test_a_receiver_votes_and_knows_where_it_makes_the_quorum() -> None:
    bob = voter("b", joined("abcd", "abc"))
    assert bob.said() == [(address("a"), Kind.VOTE, False)]
    assert bob.knows
    assert not bob.deciding


def test_a_decision_that_overtakes_its_change_counts_when_the_change_comes() -> None:
    dora = Voter("d", joined("abcde", "abcd"))
    log = dora.party.orderer.log
    log.received = LAST_SEQ - 1
    dora.hear(Kind.DECIDED, "a")
    assert not dora.knows
    assert log.highest == LAST_SEQ, "what others speak of is looked for"
    log.received = LAST_SEQ
    dora.start()
    assert dora.knows
    assert dora.said() == [(address("a"), Kind.VOTE, False)], "it has a vote all the same, and asks for nothing"
    assert dora.deciding.deadline_ns() == NEVER


def test_the_member_that_ordered_a_change_counts_votes_and_tells_all() -> None:
    ann = voter("a", joined("abcde", "abcd", creator="b"))
    assert ann.said() == [(address("b"), Kind.VOTE, False)]
    bob = voter("b", joined("abcde", "abcd", creator="b"))
    assert not bob.knows
    assert bob.deciding
    bob.hear(Kind.VOTE, "c")
    assert not bob.knows, "half of the view before, without its first member"
    bob.hear(Kind.VOTE, "e")
    assert not bob.knows, "the newcomer has no vote"
    assert bob.said() == []
    bob.hear(Kind.VOTE, "a")
    assert bob.knows
    assert bob.said() == [(To.ALL, Kind.DECIDED, False)]
    assert not bob.deciding


def test_a_newcomer_learns_from_others_that_its_join_is_decided() -> None:
    dan = voter("d", joined("abcd", "abc"))
    assert not dan.knows
    assert dan.said() == [(address("a"), Kind.VOTE, True)]
    dan.hear(Kind.DECIDED, "a")
    assert dan.knows
    assert dan.deciding.deadline_ns() == NEVER


def test_a_change_that_is_known_to_be_decided_already_needs_no_wait() -> None:
    dan = Voter("d", joined("abcde", "abcd", creator="b"))
    dan.party.orderer.decide(LAST_SEQ)
    dan.start()
    assert not dan.deciding


def test_a_change_that_changed_nothing_needs_no_decision() -> None:
    bob = Voter("b", joined("abcde", "abcd", creator="b"))
    bob.start()
    assert bob.deciding
    bob.deciding.on_change(0, view_of("abcde", reason=Reason.LOCK), bob.party.out)
    assert not bob.deciding
    assert bob.said() == []


def test_the_orderer_is_asked_first_and_then_all() -> None:
    dan = voter("d", joined("abcdef", "abcde"))
    assert dan.said() == [(address("a"), Kind.VOTE, True)]
    assert dan.deciding.deadline_ns() == RETRY_NS
    dan.deciding.expire(RETRY_NS - 1, dan.party.out)
    assert dan.said() == []
    for _ in range(CREATOR_TRIES):
        dan.wait()
        assert dan.said() == [(address("a"), Kind.VOTE, True)]
    waits = []
    for _ in range(4):
        before_ns = dan.now_ns
        dan.wait()
        waits.append(dan.now_ns - before_ns)
        assert dan.said() == [(To.ALL, Kind.VOTE, True)]
    assert max(waits) == MAX_RETRY_NS


def test_the_orderer_of_a_change_asks_all() -> None:
    ann = voter("a", joined("abcdef", "abcde"))
    assert ann.said() == []
    ann.wait()
    assert ann.said() == [(To.ALL, Kind.VOTE, True)]


def test_a_member_that_knows_answers_with_the_decision() -> None:
    bob = voter("b", joined("abcd", "abc"))
    bob.said()
    bob.hear(Kind.VOTE, "d")
    assert bob.said() == [], "it does not ask"
    bob.hear(Kind.VOTE, "d", asks=True)
    assert bob.said() == [(address("d"), Kind.DECIDED, False)]


def test_a_member_that_does_not_know_answers_with_its_vote() -> None:
    bob = voter("b", joined("abcdef", "abcde"))
    bob.said()
    assert not bob.knows
    bob.hear(Kind.VOTE, "f", asks=True)
    assert bob.said() == [(address("f"), Kind.VOTE, False)]


def test_where_the_orderer_has_left_and_is_gone_the_others_find_the_quorum() -> None:
    """Its own leave was the last that it ordered: it is asked first, then all others, and each member counts."""
    bob = voter("b", left("bcde", "abcde", creator="a"))
    assert bob.said() == [(address("a"), Kind.VOTE, True)]
    for _ in range(CREATOR_TRIES):
        bob.wait()
        assert bob.said() == [(address("a"), Kind.VOTE, True)]
    bob.wait()
    assert bob.said() == [(To.ALL, Kind.VOTE, True)]
    assert not bob.knows
    bob.hear(Kind.VOTE, "c")
    assert bob.knows, "the leaver holds it, too"
    assert bob.said() == [], "others ask for themselves"


def test_where_the_orderer_is_unknown_all_are_told() -> None:
    bob = voter("b", view_of("abcde", "abcde", Reason.LOCK, creator="g"))
    assert bob.said() == [(To.ALL, Kind.VOTE, True)]


def test_a_newcomer_votes_so_that_it_is_heard_and_greets_again_where_it_is_welcomed_again() -> None:
    carol = Voter("c", joined("abc", "ab"))
    carol.deciding.on_change(0, carol.change, carol.party.out, is_new=True)
    assert carol.knows
    assert carol.said() == [(address("a"), Kind.VOTE, False)]
    carol.deciding.greet(address("b"), LAST_SEQ, carol.party.out)
    assert carol.said() == [(address("b"), Kind.VOTE, False)]


def test_what_is_not_received_here_cannot_be_known() -> None:
    bob = voter("b", joined("abcdef", "abcde"))
    bob.said()
    for kind in (Kind.VOTE, Kind.DEPART, Kind.DECIDED):
        bob.hear(kind, "c", asks=True, seq=LAST_SEQ + 1)
    assert bob.said() == []
    assert not bob.knows


def test_a_frozen_ring_decides_by_ballots() -> None:
    bob = voter("b", joined("abcdef", "abcde"))
    bob.deciding.stop()
    assert not bob.deciding
    assert bob.deciding.deadline_ns() == NEVER


def test_where_nothing_is_open_nothing_is_ever_said() -> None:
    bob = voter("b", joined("abc", "ab"))
    bob.deciding.expire(NEVER, bob.party.out)
    assert bob.said() == []
    assert bob.deciding.deadline_ns() == NEVER


# Leaving


def leaver(change: View) -> Voter:
    """The member that leaves, with its leave decided and delivered."""
    name = change.subject.partition("/")[0]
    found = voter(name, change)
    found.party.orderer.decide(LAST_SEQ)
    found.said()
    found.deciding.depart(found.now_ns, found.party.out)
    return found


def test_a_leaver_asks_until_a_quorum_of_the_others_knows() -> None:
    dan = leaver(left("abc", "abcd"))
    assert dan.said() == [(address(name), Kind.DEPART, False) for name in "abc"]
    assert not dan.deciding.may_go
    dan.hear(Kind.DECIDED, "b")
    assert not dan.deciding.may_go
    assert dan.deciding
    dan.wait()
    assert dan.said() == [(address(name), Kind.DEPART, False) for name in "ac"]
    dan.hear(Kind.DECIDED, "a")
    assert dan.deciding.may_go
    assert dan.deciding, "while it is here, it may as well tell the last one"
    dan.hear(Kind.DECIDED, "c")
    assert not dan.deciding


def test_a_leaver_stays_until_the_member_that_counts_on_it_knows() -> None:
    """The sequencer has it in its table, and would suspect it."""
    dan = leaver(left("abc", "abcd"))
    dan.hear(Kind.DECIDED, "b")
    dan.hear(Kind.DECIDED, "c")
    assert not dan.deciding.may_go
    dan.hear(Kind.DECIDED, "a")
    assert dan.deciding.may_go


def test_a_member_in_a_later_ring_knows_enough() -> None:
    dan = leaver(left("abc", "abcd"))
    dan.deciding.on_informed(member_of("a").id)
    dan.deciding.on_informed(member_of("b").id)
    assert dan.deciding.may_go


def test_a_leaver_does_not_ask_those_that_are_known_to_know() -> None:
    dan = voter("d", left("abc", "abcd"))
    dan.said()
    for name in "ab":
        dan.deciding.on_informed(member_of(name).id)
    assert not dan.deciding.may_go, "its own leave is not delivered yet"
    dan.deciding.depart(0, dan.party.out)
    assert dan.said() == [(address("c"), Kind.DEPART, False)]
    assert dan.deciding.may_go


def test_only_members_of_the_view_without_it_let_a_leaver_go() -> None:
    dan = leaver(left("abc", "abcd"))
    dan.deciding.on_informed(member_of("e").id)
    dan.deciding.on_informed(member_of("d").id)
    assert not dan.deciding.may_go


def test_a_vote_of_a_member_that_has_none_does_not_count() -> None:
    ann = voter("a", joined("abcdef", "abcde"))
    for name in "fg":
        ann.hear(Kind.VOTE, name)
    assert not ann.knows
    for name in "bc":
        ann.hear(Kind.VOTE, name)
    assert ann.knows


def test_who_knows_only_an_earlier_change_does_not_count() -> None:
    dan = leaver(left("abc", "abcd"))
    dan.hear(Kind.DECIDED, "a", seq=LAST_SEQ - 1)
    dan.hear(Kind.DECIDED, "b", seq=LAST_SEQ - 1)
    assert not dan.deciding.may_go


def test_a_leaver_tells_what_it_asks() -> None:
    """It has delivered its leave, so its leave is decided: whoever is asked knows that from then on."""
    bob = voter("b", left("abcdef", "abcdefg"))
    bob.said()
    assert not bob.knows
    bob.hear(Kind.DEPART, "g")
    assert bob.knows
    assert not bob.deciding
    assert bob.said() == [(address("g"), Kind.DECIDED, False)]


def test_a_leaver_goes_on_asking_until_enough_have_answered() -> None:
    dan = leaver(left("abc", "abcd", creator="b"))
    dan.said()
    dan.hear(Kind.DECIDED, "b")
    assert dan.deciding
    dan.wait()
    assert [to for to, _, _ in dan.said()] == [address("a"), address("c")]
