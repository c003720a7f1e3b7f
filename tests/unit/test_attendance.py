"""A node's side of the membership service (docs/design/gms.md), with answers that the test writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.gms_samples import ALICE, BOB, REPLICA, SERVICE, VIEW

from ordercast.config import SECOND, Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.errors import WireError
from ordercast.membership.attendance import (
    ASK_NS,
    ASK_TRIES,
    GAP_NS,
    INLINE_NAMES,
    PAGE_WINDOW,
    SWITCH_NS,
    WATCH_NS,
    Attendance,
)
from ordercast.membership.epochs import EpochNews, encode_news
from ordercast.membership.given import Attending
from ordercast.membership.open_request import RequestNumbers
from ordercast.orderers.regions.given import GivenEpoch, GivenView, RegionGroups
from ordercast.wire.courier import Parcel
from ordercast.wire.gms import (
    Ask,
    NodeAnswer,
    NodeRequest,
    NodeStanding,
    Replica,
    Told,
    decode_request,
    decode_standing,
    encode_answer,
    encode_replica,
    encode_standing,
)
from ordercast.wire.header import HEADER, Kind
from ordercast.wire.pages import PagedBodies, cut_pages, read_page
from ordercast.wire.regions import Accusation, Accused
from ordercast.wire.segments import Datagram

LEADER = REPLICA.leader


class Hand:
    """Holds an attendance, and plays the service."""

    def __init__(self, *addresses: tuple[str, int], numbers: RequestNumbers | None = None) -> None:
        self.now_ns = 0
        self.out = Outbox()
        self.attendance = Attendance(ALICE, Timing(), addresses, numbers)
        self.asked: list[tuple[int, NodeRequest]] = []
        self.ponged: list[NodeStanding] = []
        self.others: list[int] = []
        self._pages = PagedBodies()

    def stands(self, state: Attending) -> bool:
        return self.attendance.state is state

    def start(self) -> Hand:
        self.attendance.start(self.now_ns, self.out)
        return self

    def questions(self) -> list[tuple[str, int]]:
        sends, self.out.sends[:] = list(self.out.sends), []
        assert {HEADER.unpack_from(bytes(send.buffers[0]))[1] for send in sends} <= {Kind.WHO}
        return [send.to for send in sends]

    def meet(self, replica: Replica = REPLICA) -> Hand:
        body = memoryview(encode_replica(replica))
        datagram = Datagram(int(Kind.SERVICE), 0, 0, 0, replica.desk, 1, body)
        self.attendance.on_datagram(self.now_ns, replica.address, datagram, self.out)
        return self

    def sort(self) -> None:
        """Look at what it has sent."""
        for peer, _, parcel, _ in self.attendance.take_parcels():
            self.others.append(peer)
            if parcel.kind == Kind.ASK:
                page = read_page(parcel.body)
                whole = self._pages.add(page)
                if whole is not None:
                    self.asked.append((page.serial, decode_request(whole)))
            elif parcel.kind == Kind.PONG:
                self.ponged.append(decode_standing(parcel.body))

    def last(self) -> tuple[int, NodeRequest]:
        self.sort()
        return self.asked[-1]

    def forget_pages(self) -> None:
        """As a leader that leads anew."""
        self._pages.clear()

    def say(self, kind: Kind, body: bytes, sender: int = LEADER) -> None:
        self.attendance.on_parcel(self.now_ns, sender, Parcel(int(kind), 0, sender, 0, body))

    def answer(self, what: Told, epoch: int = 1, *, service: int = SERVICE, **fields: Any) -> None:
        number = self.last()[0]
        made = NodeAnswer(what, service, epoch)._replace(**fields)
        for page in cut_pages(number, encode_answer(made)):
            self.say(Kind.TOLD, page)

    def tell(self, epoch: GivenEpoch, since: int = 0, request: int = 0) -> None:
        for page in cut_pages(epoch.number, encode_news(EpochNews(since, request, epoch))):
            self.say(Kind.EPOCH, page)

    def install(self, number: int) -> None:
        """An epoch that follows the last request, and is installed at once."""
        self.tell(epoch(number), number - 1, self.last()[0])
        assert [each.number for each in self.attendance.take_epochs()] == [number]
        self.attendance.installed(self.now_ns, number)

    def wait(self, by_ns: int) -> None:
        """Let time pass, and timers with it."""
        end_ns = self.now_ns + by_ns
        while self.attendance.deadline_ns() <= end_ns:
            self.now_ns = max(self.now_ns, self.attendance.deadline_ns())
            self.attendance.expire(self.now_ns, self.out)
            self.sort()
        self.now_ns = end_ns


def epoch(number: int, *views: GivenView, is_whole: bool = False, mine: int = 0, **fields: Any) -> GivenEpoch:
    return GivenEpoch(SERVICE, number, 0, mine, views, is_whole=is_whole)._replace(**fields)


def registered() -> Hand:
    hand = Hand().start().meet()
    hand.answer(Told.DONE)
    hand.tell(epoch(1, is_whole=True), request=1)
    assert [each.number for each in hand.attendance.take_epochs()] == [1]
    hand.attendance.installed(hand.now_ns, 1)
    return hand


def test_it_asks_everybody_and_the_listed_replicas_until_one_answers() -> None:
    hand = Hand(("10.0.0.9", 7_000)).start()
    assert hand.questions() == [To.ANYONE, ("10.0.0.9", 7_000)]
    assert hand.stands(Attending.SEARCHING)
    hand.wait(SECOND)
    assert len(hand.questions()) >= 4
    hand.meet(REPLICA._replace(leader=0))
    assert hand.stands(Attending.SEARCHING), "a replica without a leader is of no use"
    hand.meet()
    assert hand.stands(Attending.ASKING)
    number, request = hand.last()
    assert (number, request.what, request.member) == (1, Ask.REGISTER, ALICE)
    assert hand.others == [LEADER]


def test_it_is_in_when_the_service_has_registered_it() -> None:
    hand = registered()
    assert hand.stands(Attending.IN)
    assert hand.attendance.pending() == 0
    assert hand.attendance.service == SERVICE


def test_a_request_is_repeated_until_it_is_answered_and_then_another_replica_is_asked() -> None:
    hand = registered()
    hand.attendance.join(hand.now_ns, ["fx"])
    assert hand.attendance.pending() == 1
    hand.sort()
    first = len(hand.asked)
    hand.wait(ASK_NS + 1)
    assert hand.asked[first - 1 :] == [hand.asked[first - 1]] * 2
    hand.questions()
    hand.wait((1 << ASK_TRIES) * ASK_NS)
    assert hand.questions(), "it looks for the leader again"
    assert hand.stands(Attending.IN), "and is still known"
    other = REPLICA._replace(leader=0x55, epoch=20)
    hand.meet(other)
    number, request = hand.last()
    assert (number, request.what) == (2, Ask.JOIN)
    assert 0x55 in hand.others


def test_few_names_are_told_at_once_and_many_by_their_signature_first() -> None:
    hand = registered()
    hand.attendance.join(hand.now_ns, ["b", "a"])
    assert hand.last()[1].names == ("a", "b")
    hand.answer(Told.NUMBERS, numbers=((7, 8), (3, 4)))
    table = hand.attendance.table
    assert table.number("a") == 0, "nobody would get anything before its regions are known"
    hand.install(2)
    assert (table.number("a"), table.number("b"), table.name(3), table.name(4)) == (7, 3, "b", "")
    many = [f"g{index:05}" for index in range(40_000)]
    hand.attendance.follow(hand.now_ns, many)
    number, request = hand.last()
    assert request.what is Ask.FOLLOW
    assert (request.names, request.signature and request.signature.count) == ((), 40_000)
    hand.answer(Told.NAMES)
    hand.sort()
    assert hand.asked[-1][1].names == (), "only a window of its pages has left"
    hand.answer(Told.WAIT, pages=PAGE_WINDOW)
    assert hand.last() == (number, request._replace(names=tuple(many)))
    hand.answer(Told.NUMBERS, numbers=((100, 40_100),))
    assert hand.attendance.pending() == 0
    hand.install(3)
    assert table.number(many[-1]) == 40_099


def test_pages_that_the_leader_has_lost_are_sent_again() -> None:
    hand = registered()
    names = [f"group/{number:06}" for number in range(20_000)]
    hand.attendance.join(hand.now_ns, names)
    hand.answer(Told.NAMES)
    hand.answer(Told.WAIT, pages=3)
    hand.answer(Told.WAIT, pages=0)
    hand.forget_pages()
    hand.wait(ASK_NS)
    hand.answer(Told.WAIT, pages=PAGE_WINDOW)
    assert hand.last()[1].names == tuple(names)


def test_requests_are_numbered_over_all_registrations_of_a_life() -> None:
    """Another service does not know them, but the former one may, when the node is back with it."""
    numbers = RequestNumbers()
    asked = []
    for _ in range(2):
        hand = Hand(numbers=numbers).start().meet()
        asked.append(hand.last())
    assert [(number, request.what) for number, request in asked] == [(1, Ask.REGISTER), (2, Ask.REGISTER)]


def test_requests_that_wait_are_put_together() -> None:
    hand = registered()
    for name in ("a", "b", "c"):
        hand.attendance.join(hand.now_ns, [name])
    assert hand.last()[1].names == ("a",)
    hand.answer(Told.NUMBERS, numbers=((1, 2),))
    assert hand.last()[1].names == ("b", "c")
    hand.attendance.join(hand.now_ns, ["b"])
    hand.answer(Told.NUMBERS, numbers=((2, 4),))
    assert hand.attendance.pending() == 0, "what is wanted already is not asked for again"
    hand.attendance.leave(hand.now_ns, ["a", "c", "x"])
    assert hand.last()[1].runs == ((1, 2), (3, 4)), "also where their epochs are still to come"
    hand.answer(Told.DONE)
    hand.install(2)
    assert [hand.attendance.table.number(name) for name in ("a", "b", "c")] == [0, 2, 0]


def test_a_group_that_is_left_and_followed_has_no_number_before_its_regions_are_told_again() -> None:
    hand = registered()
    hand.attendance.join(hand.now_ns, ["fx"])
    hand.answer(Told.NUMBERS, numbers=((4, 5),))
    hand.install(2)
    table = hand.attendance.table
    assert table.number("fx") == 4
    hand.attendance.leave(hand.now_ns, ["fx"])
    hand.attendance.follow(hand.now_ns, ["fx"])
    hand.answer(Told.DONE)
    assert (table.number("fx"), hand.last()[1].what) == (0, Ask.FOLLOW)
    hand.answer(Told.NUMBERS, numbers=((4, 5),))
    assert table.number("fx") == 0
    hand.install(3)
    assert table.number("fx") == 4
    assert INLINE_NAMES > 3


def test_an_epoch_waits_for_the_answer_to_the_request_that_it_contains() -> None:
    """An engine that installs it must know the numbers of the groups that the node has joined with it."""
    hand = registered()
    hand.attendance.join(hand.now_ns, ["fx"])
    number, _ = hand.last()
    hand.tell(
        epoch(3, VIEW, mine=4, groups=(RegionGroups(4, ((9, 10),)),)),
        since=1,
        request=number,
    )
    assert hand.attendance.take_epochs() == []
    hand.answer(Told.NUMBERS, epoch=3, numbers=((9, 10),))
    assert [each.number for each in hand.attendance.take_epochs()] == [3]
    assert hand.attendance.table.regions(9) == (), "not before it is installed"
    hand.attendance.installed(hand.now_ns, 3)
    assert hand.attendance.table.regions(9) == (4,)
    assert hand.attendance.table.regions(10) == ()


def test_epochs_are_handed_on_in_order_and_a_gap_is_asked_for() -> None:
    hand = registered()
    hand.tell(epoch(5), since=4)
    hand.tell(epoch(4), since=1)
    assert [each.number for each in hand.attendance.take_epochs()] == [4, 5]
    hand.tell(epoch(9), since=7)
    assert hand.attendance.take_epochs() == []
    hand.wait(GAP_NS + 1)
    assert hand.last()[1] == NodeRequest(Ask.SYNC, service=SERVICE, epoch=5)
    hand.tell(epoch(12, VIEW, is_whole=True, mine=4))
    assert [each.number for each in hand.attendance.take_epochs()] == [12]
    hand.tell(epoch(11), since=5)
    assert hand.attendance.take_epochs() == []


def test_regions_of_a_group_follow_the_epochs() -> None:
    hand = registered()
    other = VIEW._replace(region=5, view=0x78)
    hand.tell(epoch(2, VIEW, other, groups=(RegionGroups(4, ((1, 9),)), RegionGroups(5, ((3, 4), (8, 20))))), since=1)
    hand.tell(epoch(3, ended=(0x77,)), since=2)
    assert len(hand.attendance.take_epochs()) == 2
    table = hand.attendance.table
    hand.attendance.installed(hand.now_ns, 2)
    assert [table.regions(number) for number in (0, 1, 3, 4, 8, 9, 20)] == [(), (4,), (4, 5), (4,), (4, 5), (5,), ()]
    hand.attendance.installed(hand.now_ns, 3)
    assert [table.regions(number) for number in (1, 3, 9)] == [(), (5,), (5,)]


def test_a_ping_is_answered_and_a_new_leader_is_followed() -> None:
    hand = registered()
    hand.say(Kind.PING, encode_replica(REPLICA))
    hand.sort()
    assert hand.ponged == [NodeStanding(SERVICE, 1)]
    elected = REPLICA._replace(desk=0x55, leader=0x55, epoch=20)
    hand.say(Kind.PING, encode_replica(elected), sender=0x55)
    hand.sort()
    assert hand.others[-1] == 0x55
    hand.say(Kind.PING, encode_replica(REPLICA._replace(service=1)), sender=LEADER)
    hand.sort()
    assert hand.others[-1] == 0x55, "of another service"


def test_others_who_name_a_leader_that_denies_it_are_asked_less_and_less_often() -> None:
    hand = registered()
    denial = REPLICA._replace(desk=LEADER, leader=0)
    named = REPLICA._replace(desk=0x56)  # what another replica says all the time
    asked = 0
    hand.say(Kind.LEADER, encode_replica(denial))
    for _ in range(1_000):
        hand.now_ns += SECOND // 200
        hand.attendance.expire(hand.now_ns, hand.out)
        asked += len(hand.questions())
        hand.meet(named)
        hand.sort()
        if hand.others:
            hand.others.clear()
            hand.say(Kind.LEADER, encode_replica(denial))
    assert 5 <= asked <= 16, "in five seconds"
    hand.meet(REPLICA._replace(desk=LEADER))
    hand.sort()
    assert hand.others == [LEADER], "its own word counts at once"


def test_a_node_that_nobody_watches_sends_heartbeats() -> None:
    hand = registered()
    hand.wait(3 * SECOND)
    assert len(hand.ponged) >= 2
    hand.tell(epoch(2, VIEW, mine=4), since=1)
    hand.wait(SECOND)
    count = len(hand.ponged)
    hand.wait(5 * SECOND)
    assert len(hand.ponged) == count, "now its region watches it"
    hand.wait(2 * WATCH_NS)
    assert len(hand.ponged) in (count + 1, count + 2), "its region would not tell it that the service is gone"
    count = len(hand.ponged)
    alone = VIEW._replace(view=0x79, members=(ALICE,))
    hand.tell(epoch(3, alone, ended=(0x77,), mine=4), since=2)
    hand.wait(3 * SECOND)
    assert len(hand.ponged) > count


def test_a_node_that_is_out_comes_back_as_new_with_its_groups() -> None:
    hand = registered()
    hand.attendance.join(hand.now_ns, ["fx"])
    hand.answer(Told.NUMBERS, numbers=((1, 2),))
    hand.attendance.follow(hand.now_ns, ["news"])
    hand.answer(Told.NUMBERS, numbers=((2, 3),))
    hand.say(Kind.OUT, encode_standing(NodeStanding(SERVICE, 0)))
    assert hand.stands(Attending.IN), "that was before its registration"
    hand.say(Kind.OUT, encode_standing(NodeStanding(SERVICE, 7)))
    assert hand.stands(Attending.OUT)
    assert hand.attendance.deadline_ns() == NEVER
    hand.attendance.join(hand.now_ns, ["late"])
    hand.start()
    number, request = hand.last()
    assert (request.what, request.is_back) == (Ask.REGISTER, True)
    hand.answer(Told.DONE, epoch=9)
    assert hand.last()[1].names == ("fx", "late")
    hand.answer(Told.NUMBERS, numbers=((1, 2), (5, 6)))
    assert (hand.last()[1].what, hand.last()[1].names) == (Ask.FOLLOW, ("news",))
    assert hand.last()[0] > number


def test_another_service_will_do_when_the_own_one_is_gone() -> None:
    hand = registered()
    hand.attendance.join(hand.now_ns, ["fx"])
    other = REPLICA._replace(service=77, leader=0x55)
    hand.meet(other)
    assert hand.stands(Attending.IN), "its own service may still answer"
    hand.wait((1 << ASK_TRIES) * ASK_NS + SWITCH_NS)
    hand.meet(other)
    assert hand.stands(Attending.OUT)
    hand.start()
    assert hand.last()[1].what is Ask.REGISTER
    assert hand.last()[1].is_back is False, "the new service has never seen it"
    assert hand.others[-1] == 0x55


def test_a_node_departs_in_order() -> None:
    hand = registered()
    hand.attendance.depart(hand.now_ns)
    assert hand.last()[1].what is Ask.DEPART
    hand.answer(Told.WAIT)
    assert hand.stands(Attending.IN)
    hand.answer(Told.DONE)
    assert hand.stands(Attending.LEFT)
    unheard = Hand().start()
    unheard.attendance.depart(0)
    assert unheard.stands(Attending.LEFT)


def test_a_confirmation_is_repeated_until_it_is_answered() -> None:
    hand = registered()
    hand.attendance.confirm(hand.now_ns, 5)
    hand.wait(3 * SECOND)
    said = [request for _, request in hand.asked if request.what is Ask.CONFIRM]
    assert len(said) >= 3
    assert said[0].epoch == 5
    for page in cut_pages(0, encode_answer(NodeAnswer(Told.DONE, SERVICE, 5))):
        hand.say(Kind.TOLD, page)
    hand.wait(3 * SECOND)
    assert [request for _, request in hand.asked if request.what is Ask.CONFIRM] == said


def test_accusations_go_to_the_leader_and_one_of_the_leader_makes_it_look_for_another() -> None:
    hand = registered()
    hand.attendance.accuse(hand.now_ns, Accused(BOB.id, 0x77, 1, Accusation.TOKEN))
    assert [each.parcel.kind for each in hand.attendance.take_parcels()] == [Kind.ACCUSE]
    hand.questions()
    hand.attendance.accuse(hand.now_ns, Accused(LEADER, 0, 1, Accusation.PARCEL))
    hand.attendance.accuse(hand.now_ns, Accused(BOB.id, 0x77, 1, Accusation.TOKEN))
    assert hand.attendance.take_parcels() == []
    hand.wait(1)
    assert hand.questions()
    hand.meet(REPLICA._replace(leader=0x55))
    kinds = [each.parcel.kind for each in hand.attendance.take_parcels() if each.peer == 0x55]
    assert Kind.ACCUSE in kinds


def test_a_refusal_is_noted_and_the_next_request_follows() -> None:
    hand = registered()
    hand.attendance.join(hand.now_ns, ["fx"])
    hand.last()
    hand.attendance.follow(hand.now_ns, ["news"])
    hand.answer(Told.REFUSED, text="full")
    assert hand.attendance.refusals == ["full"]
    assert hand.last()[1].what is Ask.FOLLOW


def test_nonsense_is_malformed_and_strangers_are_not_heard() -> None:
    hand = registered()
    for kind in (Kind.TOLD, Kind.EPOCH, Kind.OUT, Kind.PING, Kind.LEADER):
        with pytest.raises(WireError):
            hand.say(kind, b"\xff" * 7)
    hand.say(Kind.OUT, encode_standing(NodeStanding(SERVICE, 99)), sender=0x1234)
    assert hand.stands(Attending.IN)
