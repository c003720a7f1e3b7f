"""The worked examples of sections 2.2 and 3.3 of the paper TOMPA: every queue and every vector of figures 1, 3 and 4.

Three hosts each multicast one message, m1, m2 and m3, and receive them in three different orders. Before that their
clocks are 14, 15 and 16. First on the queue and the votes alone, then on whole orderers, whose datagrams are compared
with the figures.

Where print and rule differ, the rule is tested:
- figure 1, step 2, host1: m2 has 16.1 in print; it proposed 17.1 in step 1, and nothing has changed that. Section 3.3,
  step 3, names the same 16.1 in its text.
- figure 4, step 6: min_next_mid of m3 is `m2_id` where `m2_id+1` is printed, and `m3_id+1` where `m3_id` is printed.
"""

from __future__ import annotations

import pytest
from tests.paper.tompa import Shown, Site, Vectors, Word, ack_of, decision_of, hosts_with_clocks, nexts_of, vectors_of

from ordercast.orderers.timestamp.queue import Key, Stamp
from ordercast.orderers.timestamp.votes import Vote
from ordercast.wire.header import Kind
from ordercast.wire.stamps import Decided

HOSTS = (1, 2, 3)
CLOCKS = (14, 15, 16)
ARRIVALS = {1: (3, 1, 2), 2: (2, 1, 3), 3: (1, 3, 2)}  # host -> whose message comes first, second, third

# A queue is written as in the figures: the message of host k, its timestamp, whether it is deliverable.
Queue = list[tuple[int, float, str]]

STEP_1: dict[int, Queue] = {
    1: [(3, 15.1, "ud"), (1, 16.1, "ud"), (2, 17.1, "ud")],
    2: [(2, 16.2, "ud"), (1, 17.2, "ud"), (3, 18.2, "ud")],
    3: [(1, 17.3, "ud"), (3, 18.3, "ud"), (2, 19.3, "ud")],
}
AFTER_ALL: Queue = [(1, 17.3, "dl"), (3, 18.3, "dl"), (2, 19.3, "dl")]

ABCAST: dict[int, dict[int, Queue]] = {  # figure 1: whose decision has come -> host -> its queue
    1: {
        1: [(3, 15.1, "ud"), (2, 17.1, "ud"), (1, 17.3, "dl")],
        2: [(2, 16.2, "ud"), (1, 17.3, "dl"), (3, 18.2, "ud")],
        3: [(1, 17.3, "dl"), (3, 18.3, "ud"), (2, 19.3, "ud")],
    },
    2: {
        1: [(3, 15.1, "ud"), (1, 17.3, "dl"), (2, 19.3, "dl")],
        2: [(1, 17.3, "dl"), (3, 18.2, "ud"), (2, 19.3, "dl")],
        3: [(1, 17.3, "dl"), (3, 18.3, "ud"), (2, 19.3, "dl")],
    },
    3: dict.fromkeys(HOSTS, AFTER_ALL),
}
TOMPA: dict[int, dict[int, Queue]] = {  # figures 3 and 4: steps 3, 5 and 7
    1: {
        1: [(1, 17.3, "dl"), (2, 18.3, "ud"), (3, 18.3, "ud")],
        2: [(1, 17.3, "dl"), (2, 18.3, "ud"), (3, 18.3, "ud")],
        3: [(1, 17.3, "dl"), (3, 18.3, "ud"), (2, 19.3, "ud")],
    },
    2: {host: [(1, 17.3, "dl"), (3, 18.3, "ud"), (2, 19.3, "dl")] for host in HOSTS},
    3: dict.fromkeys(HOSTS, AFTER_ALL),
}
# Whose decision has come -> how many of m1, m3, m2 hosts 1, 2 and 3 have delivered.
DELIVERED = {False: {1: (0, 0, 1), 2: (0, 1, 1), 3: (3, 3, 3)}, True: {1: (1, 1, 1), 2: (1, 1, 1), 3: (3, 3, 3)}}

# Figures 3 and 4, steps 2, 4 and 6: message -> host -> ack_ts and next_mid, as what is added to m1_id, m2_id, m3_id.
ACKNOWLEDGED: dict[int, dict[int, tuple[float, tuple[int, int, int]]]] = {
    1: {1: (16.1, (1, 0, 1)), 2: (17.2, (1, 1, 0)), 3: (17.3, (1, 0, 0))},
    2: {1: (17.1, (1, 1, 1)), 2: (16.2, (0, 1, 0)), 3: (19.3, (1, 1, 1))},
    3: {1: (15.1, (0, 0, 1)), 2: (18.2, (1, 1, 1)), 3: (18.3, (1, 0, 1))},
}
# The same steps: message -> its final timestamp, min_next_mid and max_next_ts.
TIMESTAMPED: dict[int, tuple[float, tuple[int, int, int], tuple[float, float, float]]] = {
    1: (17.3, (1, 0, 0), (18.3, 18.3, 18.3)),
    2: (19.3, (0, 1, 0), (17.2, 20.3, 17.2)),
    3: (18.3, (0, 0, 1), (16.1, 19.3, 19.3)),
}


def stamp(written: float) -> Stamp:
    """17.3 is number 17 of host 3."""
    number, _, host = f"{written:.1f}".partition(".")
    return int(number), int(host)


def queue(ids: dict[int, int], columns: Queue) -> list[Shown]:
    return [((message, ids[message]), stamp(written), label) for message, written, label in columns]


def plus(ids: dict[int, int], added: tuple[int, int, int]) -> list[int]:
    """m1_id, m2_id, m3_id and what is added to each."""
    return [ids[host] + more for host, more in zip(HOSTS, added, strict=True)]


# The pure parts. ------------------------------------------------------------------------------------------------------


class Example:
    """Step 1 has happened: all have received all three messages."""

    def __init__(self, *, anticipate: bool, sparse: bool = False) -> None:
        self.ids = dict.fromkeys(HOSTS, 0)
        self.sites = {
            me: Site(me, HOSTS, clock, anticipate=anticipate, sparse=sparse)
            for me, clock in zip(HOSTS, CLOCKS, strict=True)
        }
        self.acks: dict[int, dict[int, Vote]] = {message: {} for message in HOSTS}
        for me, messages in ARRIVALS.items():
            for message in messages:
                self.acks[message][me] = self.sites[me].receive((message, self.ids[message]))

    def decide(self, message: int) -> tuple[Decided, Vectors]:
        """All acknowledgements of a message reach its sender, and its decision all."""
        for host, vote in self.acks[message].items():
            assert not self.sites[message].decisions(), "not before all have acknowledged"
            self.sites[message].collect((message, self.ids[message]), host, vote)
        ((decided, vectors),) = self.sites[message].decisions()
        for site in self.sites.values():
            site.hear(decided, vectors)
        return decided, vectors


@pytest.mark.parametrize("anticipate", [False, True])
def test_hosts_timestamp_what_they_receive_in_their_own_order(anticipate: bool) -> None:
    """Figures 1 and 3, step 1."""
    example = Example(anticipate=anticipate)
    for me, site in example.sites.items():
        assert site.shown == queue(example.ids, STEP_1[me])
        assert site.delivered == []


@pytest.mark.parametrize("message", HOSTS)
def test_acknowledgements_name_what_is_expected_next(message: int) -> None:
    """Figures 3 and 4, the left side of steps 2, 4 and 6."""
    example = Example(anticipate=True)
    for host, (written, added) in ACKNOWLEDGED[message].items():
        vote = example.acks[message][host]
        assert (vote.number, host) == stamp(written)
        assert vote.clock == vote.number, "one acknowledgement for each message, at once"
        assert list(vote.nexts) == plus(example.ids, added)


@pytest.mark.parametrize(("anticipate", "sparse"), [(False, False), (True, False), (True, True)])
def test_decisions_reorder_the_queues_as_in_the_figures(anticipate: bool, sparse: bool) -> None:
    """Figure 1, steps 2 to 4; figures 3 and 4, steps 3, 5 and 7, and the right side of steps 2, 4 and 6."""
    example = Example(anticipate=anticipate, sparse=sparse)
    order: list[Key] = [(message, 0) for message in (1, 3, 2)]
    for message in HOSTS:
        decided, vectors = example.decide(message)
        final, upto, bounds = TIMESTAMPED[message]
        assert decided.stamp == stamp(final)
        assert vectors == (plus(example.ids, upto), [stamp(written) for written in bounds])
        for me, site in example.sites.items():
            assert site.shown == queue(example.ids, (TOMPA if anticipate else ABCAST)[message][me])
        found = [site.delivered for site in example.sites.values()]
        assert found == [order[:count] for count in DELIVERED[anticipate][message]]


def test_abcast_keeps_a_deliverable_message_behind_one_that_ends_up_later() -> None:
    """Section 2.3, remark 5: "This is the case of m1 in host1"; section 3.3, step 3: "at the end of this step, m1 may
    be delivered to the upper layer at the 3 hosts"."""
    plain, anticipating = Example(anticipate=False), Example(anticipate=True)
    for example in (plain, anticipating):
        example.decide(1)
    assert [len(site.delivered) for site in plain.sites.values()] == [0, 0, 1]
    assert [len(site.delivered) for site in anticipating.sites.values()] == [1, 1, 1]


# Whole orderers. ------------------------------------------------------------------------------------------------------


class Wired:
    """The same with three orderers: each datagram in a pass of its own."""

    def __init__(self, *, anticipate: bool) -> None:
        self.hosts = hosts_with_clocks(*CLOCKS, anticipate=anticipate)
        data = {me: host.foresee(b"m%d" % me) for me, host in self.hosts.items()}
        self.ids = {me: word.number for me, word in data.items()}
        self.acks: dict[int, dict[int, Word]] = {message: {} for message in HOSTS}
        for me, messages in ARRIVALS.items():
            for message in messages:
                if message == me:
                    said = self.hosts[me].send(b"m%d" % me)
                    assert said == [data[me]], "what the others have received is this, and nothing else is said"
                else:
                    said = self.hosts[me].hear(data[message])
                    self.acks[message][me] = ack_of(said, (message, self.ids[message]))

    def decide(self, message: int) -> Decided:
        said: list[Word] = []
        for word in self.acks[message].values():
            assert not said, "not before all have acknowledged"
            said = self.hosts[message].hear(word)
        word, decided = decision_of(said)
        for me, host in self.hosts.items():
            if me != message:
                host.hear(word)
        return decided


@pytest.mark.parametrize("message", HOSTS)
def test_orderers_acknowledge_as_in_the_figures(message: int) -> None:
    """Figures 3 and 4, the left side of steps 2, 4 and 6, read off the datagrams."""
    wired = Wired(anticipate=True)
    assert set(wired.acks[message]) == {1, 2, 3} - {message}
    for host, word in wired.acks[message].items():
        written, added = ACKNOWLEDGED[message][host]
        stamps = word.stamps
        (acked,) = stamps.acks
        assert (acked.origin, acked.first) == (message, wired.ids[message])
        assert [(number, host) for number in acked.numbers] == [stamp(written)]
        assert stamps.clock == stamp(written)[0]
        assert list(nexts_of(word, list(wired.ids.values()))) == plus(wired.ids, added)


@pytest.mark.parametrize("anticipate", [False, True])
def test_orderers_decide_and_deliver_as_in_the_figures(anticipate: bool) -> None:
    """Figures 1, 3 and 4: what the senders multicast, and who delivers what after each step."""
    wired = Wired(anticipate=anticipate)
    order = [(message, wired.ids[message]) for message in (1, 3, 2)]
    for message in HOSTS:
        decided = wired.decide(message)
        assert (decided.origin, decided.number) == (message, wired.ids[message])
        final, upto, bounds = TIMESTAMPED[message]
        assert decided.stamp == stamp(final)
        expected = (plus(wired.ids, upto), [stamp(written) for written in bounds])
        named = {host: plus(wired.ids, added) for host, (_, added) in ACKNOWLEDGED[message].items()}
        assert vectors_of(decided.bounds, named) == (expected if anticipate else ([], []))
        found = [host.delivered for host in wired.hosts.values()]
        assert found == [order[:count] for count in DELIVERED[anticipate][message]]


def test_without_anticipation_nobody_says_what_it_expects() -> None:
    """Section 2.1: an acknowledgement of ABCAST is a timestamp."""
    wired = Wired(anticipate=False)
    for message in HOSTS:
        for word in wired.acks[message].values():
            assert word.stamps.nexts == ()
            assert word.stamps.acks


def test_a_message_of_its_own_costs_one_multicast_an_acknowledgement_of_each_other_and_one_multicast() -> None:
    """Section 1 counts 3N messages for each; where all hear a multicast it is N + 1, and a host asks itself nothing."""
    first, *others = hosts_with_clocks(1, 1, 1, 1).values()
    (data,) = first.send(b"m")
    assert (data.kind, data.to) == (Kind.DATA, 0)
    acks = [word for host in others for word in host.hear(data)]
    assert [(word.kind, word.source, word.to) for word in acks] == [(Kind.STAMPS, host.me, 1) for host in others]
    said = [word for ack in acks for word in first.hear(ack)]
    assert [(word.kind, word.to) for word in said] == [(Kind.DECISION, 0)]
    assert [word for host in others for word in host.hear(*said)] == []
    assert all(host.delivered == [(1, 1)] for host in (first, *others))
