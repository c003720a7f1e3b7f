"""What whole timestamp orderers say where the paper has one message at a time: batches, repetitions, the wrong order.

TOMPA section 3.2; docs/design/timestamp.md, deviation 2. Datagrams are carried by hand.
"""

from __future__ import annotations

import pytest
from tests.paper.tompa import Host, Word, ack_of, decision_of, hosts_with_clocks, nexts_of, vectors_of

from ordercast.wire.header import Kind
from ordercast.wire.stamps import ASKS, Acked, encode_stamps

CLOCKS = (14, 15, 16)


@pytest.fixture
def hosts() -> dict[int, Host]:
    return hosts_with_clocks(*CLOCKS)


def data_of(host: Host, payload: bytes) -> Word:
    (data,) = [word for word in host.send(payload) if word.kind == Kind.DATA]
    return data


def test_blocks_that_come_together_are_acknowledged_together(hosts: dict[int, Host]) -> None:
    """Proposals one after the other; clock and vector are those of the moment at which the datagram leaves."""
    blocks = [data_of(hosts[1], b"m") for _ in range(3)]
    (word,) = hosts[2].hear(*blocks)
    first = blocks[0].number
    assert (word.kind, word.to) == (Kind.STAMPS, 1)
    assert word.stamps.acks == [Acked(1, first, (16, 17, 18))]
    assert (word.stamps.clock, nexts_of(word, (first, 0, 0))) == (18, (first + 3, 0, 0))
    assert word.stamps.nexts == (), "all of it can be derived"


def test_one_datagram_for_all_serves_several_senders(hosts: dict[int, Host]) -> None:
    blocks = [data_of(hosts[1], b"m"), data_of(hosts[2], b"m")]
    (word,) = hosts[3].hear(*blocks)
    assert (word.kind, word.to) == (Kind.STAMPS, 0)
    assert word.stamps.acks == [Acked(1, blocks[0].number, (17,)), Acked(2, 0, (18,))]


def test_decisions_and_acknowledgements_go_together(hosts: dict[int, Host]) -> None:
    """The paper counts 3N messages (section 1); one pass says all that it has to say in one."""
    mine, other = data_of(hosts[1], b"m"), data_of(hosts[2], b"m")
    acks = [ack_of(hosts[host].hear(mine), (1, mine.number)) for host in (2, 3)]
    (word,) = hosts[1].hear(*acks, other)
    assert (word.kind, word.to) == (Kind.DECISION, 0)
    assert [(each.origin, each.number) for each in word.stamps.decisions] == [(1, mine.number)]
    assert [(each.origin, each.first) for each in word.stamps.acks] == [(2, 0)]


def test_the_bounds_of_a_batch_stand_with_its_last_decision(hosts: dict[int, Host]) -> None:
    """Host 3 has acknowledged both blocks of host 1 at clock 18: what it expects next comes after that. What the first
    decision could say besides is about the second block alone."""
    blocks = [data_of(hosts[1], b"m") for _ in range(2)]
    first = blocks[0].number
    said = [hosts[host].hear(*blocks) for host in (2, 3)]
    hosts[1].hear(*said[0])
    (word,) = hosts[1].hear(*said[1])
    one, two = word.stamps.decisions
    assert (one.stamp, two.stamp) == ((17, 3), (18, 3))
    assert one.bounds is None
    assert two.bounds is not None
    assert two.bounds.listed == (), "all expect the same"
    assert vectors_of(two.bounds, {1: (first + 2, 0, 0)}) == ([first + 2, 0, 0], [(19, 3)] * 3)


def test_a_sender_decides_its_blocks_in_order(hosts: dict[int, Host]) -> None:
    """Design note, Proposals are made in the sender's order. The acknowledgement of the first block is lost; host 3 has
    said it once more with the second."""
    blocks = [data_of(hosts[1], b"m") for _ in range(2)]
    keys = [(1, block.number) for block in blocks]
    acks = {
        host: [ack_of(hosts[host].hear(block), key) for block, key in zip(blocks, keys, strict=True)] for host in (2, 3)
    }
    hosts[1].hear(acks[2][0])
    hosts[1].hear(acks[2][1])
    only = acks[3][1].stamps
    (acked,) = only.acks
    assert (acked.first, len(acked.numbers)) == (keys[0][1], 2), "both, in one run"
    alone = only._replace(acks=[Acked(1, keys[1][1], acked.numbers[1:])])
    assert hosts[1].hear(acks[3][1]._replace(body=encode_stamps(alone))) == [], "the first is not complete"
    (word,) = hosts[1].hear(acks[3][0])
    assert [(each.origin, each.number) for each in word.stamps.decisions] == keys
    stamps = [each.stamp for each in word.stamps.decisions]
    assert stamps == sorted(stamps)


def test_a_block_that_overtakes_another_of_its_sender_waits_for_it(hosts: dict[int, Host]) -> None:
    """Section 3.2.1: "The sequencing of messages received from the same source is assumed"."""
    first, second = [data_of(hosts[1], b"m") for _ in range(2)]
    assert hosts[2].hear(second) == [], "neither proposed for nor acknowledged"
    (word,) = hosts[2].hear(first)
    assert word.stamps.acks == [Acked(1, first.number, (16, 17))]


def test_a_block_that_comes_twice_is_acknowledged_twice_with_one_proposal(hosts: dict[int, Host]) -> None:
    """Its first acknowledgement was lost, or its sender would not send it again."""
    block, other = data_of(hosts[1], b"m"), data_of(hosts[3], b"m")
    first = ack_of(hosts[2].hear(block), (1, block.number))
    hosts[2].hear(other)
    again = ack_of(hosts[2].hear(block), (1, block.number))
    assert again.stamps.acks == first.stamps.acks == [Acked(1, block.number, (16,))]
    assert (first.stamps.clock, again.stamps.clock) == (16, 17), "what it says besides is of now"
    assert nexts_of(again, (block.number, 0, 0)) == (block.number + 1, 0, 1)


def test_who_asks_for_a_decision_gets_it_again_and_without_bounds(hosts: dict[int, Host]) -> None:
    """docs/design/timestamp.md, Timers, AGAIN. The bounds are old by then."""
    block = data_of(hosts[1], b"m")
    key = (1, block.number)
    acks = {host: ack_of(hosts[host].hear(block), key) for host in (2, 3)}
    hosts[1].hear(acks[2])
    _, decided = decision_of(hosts[1].hear(acks[3]))
    assert hosts[1].hear(acks[3]) == [], "it has crossed the decision, and asks for nothing"
    asking = acks[3]._replace(body=encode_stamps(acks[3].stamps._replace(flags=ASKS)))
    (word,) = hosts[1].hear(asking)
    assert (word.kind, word.to) == (Kind.DECISION, 3)
    assert word.stamps.decisions == [decided._replace(bounds=None)]
    hosts[3].hear(word)
    assert hosts[3].delivered == [key]


def test_a_decision_that_comes_twice_is_delivered_once(hosts: dict[int, Host]) -> None:
    block = data_of(hosts[1], b"m")
    acks = [ack_of(hosts[host].hear(block), (1, block.number)) for host in (2, 3)]
    word, _ = decision_of([said for ack in acks for said in hosts[1].hear(ack)])
    for _ in range(3):
        hosts[2].hear(word)
    hosts[2].hear(word, block, word)
    assert hosts[2].delivered == [(1, block.number)]


def test_a_decision_on_what_was_never_acknowledged_is_nothing(hosts: dict[int, Host]) -> None:
    """Nobody can have decided it: it needs our own proposal."""
    block = data_of(hosts[1], b"m")
    acks = [ack_of(hosts[host].hear(block), (1, block.number)) for host in (2, 3)]
    word, decided = decision_of([said for ack in acks for said in hosts[1].hear(ack)])
    wrong = decided._replace(number=decided.number + 1)
    hosts[2].hear(word._replace(body=encode_stamps(word.stamps._replace(decisions=[wrong]))))
    assert hosts[2].delivered == []
    hosts[2].hear(word)
    assert hosts[2].delivered == [(1, block.number)]
