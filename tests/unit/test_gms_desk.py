"""The desk of a replica (docs/design/gms.md), with nodes that the test plays."""

from __future__ import annotations

import random

import pytest
from tests.unit.gms_samples import SERVICE, member

from ordercast.config import SECOND, Timing
from ordercast.engine import NEVER
from ordercast.gms.desk import CONFIRM_NS, Desk, desk_id
from ordercast.gms.gathering import BATCH_NS, BATCHES_AT_ONCE, STALE_NS, VIEW_NS, VIEWS_AT_ONCE
from ordercast.gms.vigil import DEAD_NS, DOUBT_NS, EVERYBODY_NS, LOOK_NS, MOST_ASKED, QUIET_NS, SILENT_NS, Vigil
from ordercast.membership.epochs import EpochNews, decode_news
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.parts.courier import Courier
from ordercast.view import Member, group_tag
from ordercast.wire.courier import Parcel, decode_courier_ack, encode_courier_ack, open_part, part_head
from ordercast.wire.gms import (
    Ask,
    EpochBatch,
    NodeAnswer,
    NodeRequest,
    NodeStanding,
    Replica,
    Told,
    decode_answer,
    decode_replica,
    encode_request,
    encode_standing,
    encode_who,
    signature_of,
)
from ordercast.wire.header import HEADER, MAGIC, Kind
from ordercast.wire.intake import Intake
from ordercast.wire.pages import PagedBodies, cut_pages, read_page
from ordercast.wire.regions import Accusation, Accused, encode_accused

TAG = group_tag(REGIONS_UNDERLAY)
ME = member("desk", port=7_000)
A, B, C = [member(name) for name in "abc"]


class Caller:
    """A node with a courier, and what it was told."""

    def __init__(self, me: Member) -> None:
        self.me = me
        self.courier = Courier(me.id, Timing())
        self.intake = Intake(TAG, {})
        self.pages = PagedBodies()
        self.told: list[tuple[int, NodeAnswer]] = []
        self.news: list[EpochNews] = []
        self.others: list[tuple[int, bytes]] = []
        self.number = 0

    def take(self, now_ns: int, data: bytes) -> None:
        for datagram in self.intake.read(now_ns, memoryview(data), 0):
            if datagram.kind == Kind.COURIER_ACK:
                self.courier.on_ack(now_ns, decode_courier_ack(datagram.body))
            elif datagram.kind == Kind.SERVICE:
                self.others.append((datagram.kind, bytes(datagram.body)))
            else:
                parcel = self.courier.on_part(open_part(datagram))
                if parcel is not None:
                    self._open(parcel)

    def _open(self, parcel: Parcel) -> None:
        if parcel.kind not in (Kind.TOLD, Kind.EPOCH):
            self.others.append((parcel.kind, bytes(parcel.body)))
            return
        page = read_page(parcel.body)
        whole = self.pages.add(page)
        if whole is not None and parcel.kind == Kind.TOLD:
            self.told.append((page.serial, decode_answer(whole)))
        elif whole is not None:
            self.news.append(decode_news(whole))


class Office:
    """A desk that leads, and its callers."""

    def __init__(self) -> None:
        self.now_ns = SECOND
        self.is_cut_off = False  # from the other replicas
        self.desk = Desk(ME, Timing(), 0)
        self.callers = {node.id: Caller(node) for node in (A, B, C)}
        self.desk.follow(self.now_ns, ME)
        self.desk.order_own(0, NodeRequest(Ask.FOUND, service=SERVICE))
        self.wait(BATCH_NS)

    def run(self) -> None:
        """Passes until nothing more leaves; batches are ordered at once."""
        for _ in range(200):
            self.desk.expire(self.now_ns)
            self.desk.finish(self.now_ns)
            if self.desk.wants_batch:
                batch = self.desk.next_batch(self.now_ns)
                if batch is not None and not self.is_cut_off:
                    self.order(batch)
                    continue
            if not self.exchange():
                return

    def order(self, batch: EpochBatch) -> None:
        self.desk.applied(self.now_ns, batch, self.desk.directory.apply(batch))

    def exchange(self) -> int:
        sends = list(self.desk.out.sends)
        self.desk.out.sends.clear()
        for to, buffers, _ in sends:
            for caller in self.callers.values():
                if caller.me.address == to:
                    caller.take(self.now_ns, b"".join(buffers))
        moved = len(sends)
        for caller in self.callers.values():
            output = caller.courier.step(self.now_ns)
            for part in output.parts:
                self.receive(caller.me, part_head(TAG, part) + bytes(part.parcel.body))
            for ack in output.acks:
                head = HEADER.pack(MAGIC, Kind.COURIER_ACK, 0, 0, TAG, 0, caller.me.id, 1)
                self.receive(caller.me, head + encode_courier_ack(ack))
            moved += len(output.parts) + len(output.acks)
        return moved

    def receive(self, source: Member, data: bytes) -> None:
        self.desk.receive(self.now_ns, source.address, memoryview(data), 0)

    def wait(self, by_ns: int) -> None:
        end_ns = self.now_ns + by_ns
        self.run()
        while self.now_ns < end_ns:
            self.now_ns = min(end_ns, self.now_ns + SECOND // 20)
            self.run()

    def say(self, node: Member, kind: Kind, body: bytes, number: int = 0) -> None:
        self.callers[node.id].courier.post(self.desk.id, Parcel(int(kind), 0, node.id, number, body))
        self.run()

    def ask(self, node: Member, request: NodeRequest, number: int | None = None) -> None:
        caller = self.callers[node.id]
        if number is None:
            caller.number += 1
            number = caller.number
        for page in cut_pages(number, encode_request(request)):
            self.callers[node.id].courier.post(self.desk.id, Parcel(int(Kind.ASK), 0, node.id, number, page))
        self.run()

    def register(self, *nodes: Member) -> None:
        for node in nodes:
            self.ask(node, NodeRequest(Ask.REGISTER, member=node))
        self.wait(2 * BATCH_NS)

    def join(self, node: Member, *names: str, is_named: bool = True) -> None:
        listed = tuple(sorted(names))
        signature = signature_of(listed)
        self.ask(node, NodeRequest(Ask.JOIN, None, False, signature, listed if is_named else (), service=SERVICE))

    def told(self, node: Member) -> list[Told]:
        return [answer.what for _, answer in self.callers[node.id].told]

    def neighbours(self, node: Member) -> list[str]:
        state = self.desk.directory.node(node.id)
        assert state is not None
        region = self.desk.directory.regions.get(state.region)
        return [each.name for each in region.view.members] if region is not None else []

    def kinds(self, node: Member) -> list[int]:
        return [kind for kind, _ in self.callers[node.id].others]


def test_a_question_is_answered_with_the_leader() -> None:
    office = Office()
    head = HEADER.pack(MAGIC, Kind.WHO, 0, 0, TAG, 0, A.id, 5)
    office.receive(A, head + encode_who(0))
    office.run()
    ((kind, body),) = office.callers[A.id].others
    assert kind == Kind.SERVICE
    expected = Replica(SERVICE, 1, desk_id(ME), ME.address, desk_id(ME), ME.address)
    assert decode_replica(body) == expected
    office.receive(A, head + encode_who(SERVICE + 1))
    office.run()
    assert len(office.callers[A.id].others) == 1, "another service is meant"


def test_a_node_is_registered_and_gets_a_snapshot() -> None:
    office = Office()
    office.register(A)
    assert office.told(A) == [Told.WAIT, Told.DONE]
    (news,) = office.callers[A.id].news
    assert news.epoch.is_whole
    assert news.request == 1


def test_an_answer_is_given_again() -> None:
    office = Office()
    office.register(A)
    office.join(A, "fx")
    office.wait(SECOND)
    office.callers[A.id].told.clear()
    office.callers[A.id].number -= 1
    office.join(A, "fx")
    assert [answer.numbers for _, answer in office.callers[A.id].told] == [((1, 2),)]
    assert len(office.desk.directory.regions) == 1


def test_a_region_has_a_few_views_at_once_and_then_one_in_a_second() -> None:
    office = Office()
    office.register(A, B, C)
    for node in (A, B, C):
        office.join(node, "fx")
        office.wait(BATCH_NS)
    assert VIEWS_AT_ONCE == 3
    assert office.neighbours(A) == ["a", "b", "c"]
    office.join(C, "news")  # the fourth view of the region
    office.wait(BATCH_NS)
    assert office.neighbours(A) == ["a", "b", "c"]
    office.wait(VIEW_NS)
    assert office.neighbours(A) == ["a", "b"]
    assert office.neighbours(C) == ["c"]


def test_after_a_few_batches_at_once_there_are_five_in_a_second() -> None:
    office = Office()
    office.register(A)
    office.wait(BATCHES_AT_ONCE * BATCH_NS)
    for number in range(2 * BATCHES_AT_ONCE):
        office.join(A, f"group {number}")
    office.wait(0)
    before = office.desk.directory.epoch
    assert before >= BATCHES_AT_ONCE
    office.wait(SECOND)
    assert office.desk.directory.epoch - before <= SECOND // BATCH_NS + 1


def test_who_asks_before_the_service_has_begun_is_told_when_it_has() -> None:
    office = Office()
    office.desk = Desk(ME, Timing(), 0)
    head = HEADER.pack(MAGIC, Kind.WHO, 0, 0, TAG, 0, A.id, 5)
    office.receive(A, head + encode_who(0))
    office.run()
    assert [decode_replica(body).leader for _, body in office.callers[A.id].others] == [0]
    office.desk.follow(office.now_ns, ME)
    office.run()
    assert len(office.callers[A.id].others) == 1, "nothing is found yet"
    office.desk.order_own(0, NodeRequest(Ask.FOUND, service=SERVICE))
    office.run()
    assert [decode_replica(body).leader for _, body in office.callers[A.id].others] == [0, desk_id(ME)]


def test_names_are_asked_of_one_node_only() -> None:
    office = Office()
    office.register(A, B)
    names = [f"g{index}" for index in range(300)]
    office.join(A, *names, is_named=False)
    office.join(B, *names, is_named=False)
    assert office.told(A)[-1] is Told.NAMES
    assert office.told(B)[-1] is Told.WAIT
    office.callers[A.id].number -= 1
    office.join(A, *names)
    office.wait(SECOND)
    office.callers[B.id].number -= 1
    office.join(B, *names, is_named=False)
    office.wait(VIEW_NS)
    assert office.told(B)[-1] is Told.NUMBERS
    assert office.neighbours(B) == ["a", "b"]


def test_names_that_are_not_those_of_the_signature_are_counted_and_dropped() -> None:
    office = Office()
    office.register(A)
    office.ask(A, NodeRequest(Ask.JOIN, None, False, signature_of(["x"]), ("y",), service=SERVICE))
    office.ask(A, NodeRequest(Ask.EXCLUDE, text="no node may"))
    office.wait(SECOND)
    assert office.desk.counters["malformed"] == 2
    assert office.neighbours(A) == []


def office_of_three() -> Office:
    """Three nodes in one region."""
    office = Office()
    office.register(A, B, C)
    for node in (A, B, C):
        office.join(node, "fx")
    office.wait(2 * VIEW_NS)
    return office


def test_an_accused_node_is_asked_and_excluded_only_if_it_is_silent() -> None:
    office = office_of_three()
    assert office.neighbours(A) == ["a", "b", "c"]
    for accused in (B, C):
        office.say(A, Kind.ACCUSE, encode_accused(Accused(accused.id, 1, 1, Accusation.TOKEN)))
    office.wait(SECOND // 2)
    assert Kind.PING in office.kinds(B)
    epoch = office.desk.directory.epoch
    office.say(B, Kind.PONG, encode_standing(NodeStanding(SERVICE, epoch)))
    office.wait(DEAD_NS)
    assert office.neighbours(A) == ["a", "b"]
    assert Kind.OUT in office.kinds(C)
    assert Kind.OUT not in office.kinds(B)
    assert office.callers[A.id].news[-1].epoch.excluded == (C.id,)


def test_where_one_does_not_answer_its_neighbours_are_asked_as_well() -> None:
    """A cut takes several: the region would find them one after the other, each after seconds."""
    office = office_of_three()
    office.say(A, Kind.ACCUSE, encode_accused(Accused(B.id, 1, 1, Accusation.TOKEN)))
    office.wait(DOUBT_NS + SECOND // 2)
    assert Kind.PING in office.kinds(C)
    assert Kind.PING in office.kinds(A)
    office.say(A, Kind.PONG, encode_standing(NodeStanding(SERVICE, office.desk.directory.epoch)))
    asked = office.kinds(A).count(Kind.PING)
    office.wait(DEAD_NS)
    assert office.neighbours(A) == ["a"]
    assert office.kinds(A).count(Kind.PING) == asked, "once, as it has answered"


def test_where_one_does_not_answer_other_regions_are_asked_as_well() -> None:
    """Their own leader may be cut off: without its token they would wait for seconds before they accuse anybody."""
    office = Office()
    office.register(A, B, C)
    for node, group in ((A, "fx"), (B, "fx"), (C, "news")):
        office.join(node, group)
    office.wait(2 * VIEW_NS)
    pong = encode_standing(NodeStanding(SERVICE, office.desk.directory.epoch))
    office.say(C, Kind.PONG, pong)
    office.say(A, Kind.ACCUSE, encode_accused(Accused(B.id, 1, 1, Accusation.TOKEN)))
    office.wait(DOUBT_NS - LOOK_NS)
    assert Kind.PING not in office.kinds(C)
    office.wait(2 * LOOK_NS)
    assert Kind.PING in office.kinds(C)
    office.say(C, Kind.PONG, pong)
    office.wait(DEAD_NS - DOUBT_NS)
    assert office.desk.directory.node(C.id) is not None
    assert office.desk.directory.node(B.id) is None


def test_everybody_is_not_asked_again_at_once() -> None:
    vigil = Vigil()
    vigil.suspect_everybody(SECOND, [1, 2])
    assert vigil.look(SECOND, (), ()).pings == [1, 2]
    vigil.heard(SECOND, 2)
    vigil.suspect_everybody(SECOND + EVERYBODY_NS - 1, [2])
    assert 2 not in vigil.look(SECOND + EVERYBODY_NS - 1, (), ()).pings
    vigil.suspect_everybody(SECOND + EVERYBODY_NS, [2])
    assert 2 in vigil.look(SECOND + EVERYBODY_NS, (), ()).pings


def test_a_large_service_does_not_ask_everybody() -> None:
    """The answers of thousands would keep it from its work."""
    vigil = Vigil()
    vigil.suspect_everybody(SECOND, range(MOST_ASKED + 1))
    assert vigil.look(SECOND, (), ()).pings == []
    vigil.suspect_everybody(SECOND, range(MOST_ASKED))
    assert len(vigil.look(SECOND, (), ()).pings) == MOST_ASKED


def test_a_node_that_nobody_watches_has_to_send_heartbeats() -> None:
    office = Office()
    office.register(A, B)
    for _ in range(8):
        office.wait(SECOND)
        office.say(A, Kind.PONG, encode_standing(NodeStanding(SERVICE, 99)))
    assert 8 * SECOND > SILENT_NS + DEAD_NS
    assert office.desk.directory.node(A.id) is not None
    assert office.desk.directory.node(B.id) is None


def test_a_region_that_is_gone_as_a_whole_is_found_by_its_silence() -> None:
    """Nobody is left there to accuse anybody."""
    office = Office()
    office.register(A, B, C)
    for node in (A, B):
        office.join(node, "fx")
    for nodes, until_ns in (([A.id, B.id, C.id], 22 * SECOND), ([C.id], QUIET_NS + 2 * DEAD_NS)):
        while office.now_ns < until_ns:
            office.wait(SECOND)
            office.say(C, Kind.PONG, encode_standing(NodeStanding(SERVICE, office.desk.directory.epoch)))
        assert list(office.desk.directory.nodes) == nodes


@pytest.mark.parametrize("what", [Ask.CONFIRM, Ask.SYNC])
def test_a_short_request_among_the_pages_of_a_long_one_costs_none_of_them(what: Ask) -> None:
    """The node has heard that the first pages have come, and does not send them again: its join would never end."""
    office = Office()
    office.register(A)
    names = tuple([f"group {number:06}" for number in range(10_000)])
    caller = office.callers[A.id]
    first, *others = cut_pages(2, encode_request(joining(names)))
    office.say(A, Kind.ASK, first, 2)
    assert caller.told[-1][1].pages == 1
    office.ask(A, NodeRequest(what, service=SERVICE, epoch=1), 0)
    for page in others:
        office.say(A, Kind.ASK, page, 2)
    office.wait(VIEW_NS)
    assert caller.told[-1][1].numbers == ((1, len(names) + 1),)


def joining(names: tuple[str, ...]) -> NodeRequest:
    return NodeRequest(Ask.JOIN, None, False, signature_of(names), names, service=SERVICE)


def test_a_node_that_does_not_confirm_is_excluded() -> None:
    office = Office()
    office.register(A, B)
    office.join(A, "fx")
    office.wait(VIEW_NS)
    office.join(B, "fx")
    office.wait(VIEW_NS)
    assert office.desk.directory.owed == {A.id: [office.desk.directory.epoch]}
    for _ in range(3):
        office.wait(CONFIRM_NS // 3 - VIEW_NS)
        for node in (A, B):
            office.say(node, Kind.PONG, encode_standing(NodeStanding(SERVICE, office.desk.directory.epoch)))
    assert office.neighbours(A) == ["a", "b"]
    office.wait(3 * VIEW_NS)
    assert office.desk.directory.node(A.id) is None
    assert office.desk.directory.node(B.id) is not None


def test_a_confirmation_is_answered_when_it_counts() -> None:
    office = Office()
    office.register(A, B)
    office.join(A, "fx")
    office.wait(VIEW_NS)
    office.join(B, "fx")
    office.wait(VIEW_NS)
    epoch = office.desk.directory.epoch
    office.ask(A, NodeRequest(Ask.CONFIRM, service=SERVICE, epoch=epoch), 0)
    office.wait(BATCH_NS)
    assert office.desk.directory.settled == office.desk.directory.epoch
    serial, answer = office.callers[A.id].told[-1]
    assert (serial, answer.what, answer.epoch) == (0, Told.DONE, epoch)
    assert office.callers[A.id].news[-1].epoch.settled == office.desk.directory.epoch


def test_a_node_that_lacks_epochs_gets_them_again() -> None:
    office = Office()
    office.register(A)
    first = office.desk.directory.epoch
    office.join(A, "fx")
    office.wait(SECOND)
    office.callers[A.id].news.clear()
    office.ask(A, NodeRequest(Ask.SYNC, service=SERVICE, epoch=first), 0)
    (news,) = office.callers[A.id].news
    assert (news.since, news.epoch.is_whole) == (first, False)
    office.callers[A.id].news.clear()
    office.ask(A, NodeRequest(Ask.SYNC, service=SERVICE), 0)
    (news,) = office.callers[A.id].news
    assert news.epoch.is_whole


def test_a_node_that_was_given_up_is_asked_how_far_it_is_although_it_speaks() -> None:
    """What had been on its way to it is lost. Without the question it would hear of nothing until its next heartbeat,
    ten seconds later: nodes that came back after a cut did not get their view."""
    office = Office()
    office.register(A, B)
    for node in (A, B):
        office.join(node, "fx")
    office.wait(2 * VIEW_NS)
    deaf = office.callers.pop(A.id)
    office.join(B, "fy")  # another region: A is told, and does not hear it
    accuse = Parcel(int(Kind.ACCUSE), 0, A.id, 0, encode_accused(Accused(C.id, 1, 1, Accusation.TOKEN)))
    for _ in range(300):  # of 50 ms each: the desk gives up. A word of it comes before each pass
        office.now_ns += SECOND // 20
        deaf.courier.post(office.desk.id, accuse)
        for part in deaf.courier.step(office.now_ns).parts:
            office.receive(A, part_head(TAG, part) + bytes(part.parcel.body))
        office.desk.expire(office.now_ns)
        office.desk.finish(office.now_ns)
        batch = office.desk.next_batch(office.now_ns) if office.desk.wants_batch else None
        if batch is not None:
            office.order(batch)
        for to, buffers, _ in office.desk.out.sends:
            datagram = b"".join(buffers)
            if to == A.address and datagram[1] == Kind.COURIER_ACK:
                deaf.take(office.now_ns, datagram)
        office.exchange()
    office.callers[A.id] = deaf
    office.wait(3 * SECOND)
    assert Kind.PING in office.kinds(A)
    deaf.news.clear()
    office.say(A, Kind.PONG, encode_standing(NodeStanding(SERVICE, 3)))
    assert deaf.news[-1].epoch.number == office.desk.directory.epoch


def test_a_node_that_has_not_taken_an_epoch_gets_it_again_when_it_says_how_far_it_is() -> None:
    """It had no leader when the epoch came, which its courier has acknowledged. Its region would stand still."""
    office = Office()
    office.register(A)
    office.join(A, "fx")
    office.wait(SECOND)
    caller = office.callers[A.id]
    last = caller.news[-1].epoch.number
    caller.news.clear()
    office.say(A, Kind.PONG, encode_standing(NodeStanding(SERVICE, last - 1)))
    assert [news.epoch.number for news in caller.news] == [last]
    office.say(A, Kind.PONG, encode_standing(NodeStanding(SERVICE, last)))
    assert len(caller.news) == 1, "it has it"


def test_a_new_leader_asks_everybody_how_far_they_are() -> None:
    office = Office()
    office.register(A)
    office.join(A, "fx")
    office.wait(SECOND)
    office.desk.follow(office.now_ns, None)
    office.callers[A.id].others.clear()
    office.callers[A.id].news.clear()
    office.ask(A, NodeRequest(Ask.SYNC, service=SERVICE), 0)
    assert office.kinds(A) == [Kind.LEADER], "only the leader takes it"
    office.desk.follow(office.now_ns, ME)
    office.run()
    assert office.kinds(A)[-1] == Kind.PING
    assert office.callers[A.id].news == []
    office.say(A, Kind.PONG, encode_standing(NodeStanding(SERVICE, 2)))
    assert [news.epoch.number for news in office.callers[A.id].news] == [3]


def test_a_leader_whose_batches_do_not_come_back_names_none() -> None:
    office = Office()
    office.register(A)
    office.is_cut_off = True
    office.ask(A, NodeRequest(Ask.DEPART, service=SERVICE))
    for patience_ns, leader in ((STALE_NS // 2, desk_id(ME)), (STALE_NS, 0)):
        office.wait(patience_ns)
        office.callers[A.id].others.clear()
        office.receive(A, HEADER.pack(MAGIC, Kind.WHO, 0, 0, TAG, 0, A.id, 5) + encode_who(0))
        office.run()
        found = [decode_replica(body).leader for kind, body in office.callers[A.id].others if kind == Kind.SERVICE]
        assert found == [leader]
    office.desk.failed(office.now_ns)
    office.is_cut_off = False
    office.wait(BATCH_NS)
    state = office.desk.directory.node(A.id)
    assert state is not None
    assert state.leaving


def test_a_stranger_hears_that_it_is_out() -> None:
    office = Office()
    office.ask(A, NodeRequest(Ask.SYNC, service=SERVICE), 0)
    assert office.kinds(A) == [Kind.OUT]
    office.ask(B, NodeRequest(Ask.DEPART, service=SERVICE))
    assert office.told(B) == [Told.DONE], "it is gone already"


@pytest.mark.parametrize("seed", range(5))
def test_nonsense_is_counted_and_dropped(seed: int) -> None:
    rng = random.Random(seed)
    office = Office()
    office.register(A)
    office.join(A, "fx")
    office.wait(SECOND)
    before = office.desk.directory.epoch
    for _ in range(300):
        kind = rng.choice([Kind.WHO, Kind.ASK, Kind.PONG, Kind.ACCUSE, Kind.COURIER_ACK, Kind.DATA, Kind.EPOCH])
        head = HEADER.pack(MAGIC, kind, 0, 0, TAG, 0, A.id, rng.getrandbits(8))
        office.receive(A, head + rng.randbytes(rng.randint(1, 90)))
        if kind in (Kind.ASK, Kind.PONG, Kind.ACCUSE):
            office.say(B, kind, rng.randbytes(rng.randint(1, 60)))
    office.run()
    assert office.desk.counters["malformed"] > 100
    assert office.desk.directory.epoch == before
    assert office.desk.deadline_ns < NEVER
