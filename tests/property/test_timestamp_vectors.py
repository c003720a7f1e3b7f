"""The sparse vectors of acknowledgements on random runs of whole orderers: what is read is what was expected.

docs/design/timestamp.md, "Sparse vectors". Datagrams are carried by hand, in any order, some of them twice. The test
knows which blocks each host has been given, and what each sender had delivered when it sent.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.paper.tompa import Host, Word, hosts_with_clocks, nexts_of

from ordercast.orderers.timestamp.queue import Key
from ordercast.wire.header import Kind

PROFILE = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SPEAKING = (Kind.STAMPS, Kind.DECISION, Kind.SYNC)


class Carrier:
    """Hosts, and the datagrams on their way between them."""

    def __init__(self, clocks: list[int], blocks: int, seed: int) -> None:
        self.hosts = hosts_with_clocks(*clocks)
        self.members = tuple(self.hosts)
        first = {1: 1}  # host 1 has sent the message that gave the clocks
        self.start = {member: first.get(member, 0) for member in self.members}
        self.given: dict[int, set[Key]] = {member: set() for member in self.members}
        self.bases: dict[Key, tuple[int, ...]] = {}
        self.on_the_way: list[tuple[int, Word]] = []
        self.left = blocks
        self.rng = random.Random(seed)
        self.read = self.listed = 0  # acknowledgements, and entries of their vectors

    def expected(self, me: int) -> tuple[int, ...]:
        """What a host has not proposed for, of each: the first block that it has not been given."""
        numbers = dict(self.start)
        for member in self.members:
            while (member, numbers[member]) in self.given[me]:
                numbers[member] += 1
        return tuple(numbers.values())

    def delivered(self, host: Host) -> tuple[int, ...]:
        """What a host has next in its log, of each."""
        numbers = dict(self.start)
        for member, number in host.delivered:
            numbers[member] = number + 1
        return tuple(numbers.values())

    def say(self, me: int, words: list[Word]) -> None:
        for word in words:
            if word.kind in SPEAKING:
                self._look(me, word)
            for to in [word.to] if word.to else [member for member in self.members if member != me]:
                self.on_the_way.append((to, word))

    def _look(self, me: int, word: Word) -> None:
        for origin, first, numbers in word.stamps.acks:
            for number in range(first, first + len(numbers)):
                assert nexts_of(word, self.bases[origin, number], self.members) == self.expected(me)
                self.read += 1
        self.listed += len(word.stamps.nexts)

    def play(self) -> None:
        rng = self.rng
        while self.on_the_way or self.left:
            if self.left and (not self.on_the_way or rng.random() < 0.3):
                self.left -= 1
                me = rng.choice(self.members)
                host = self.hosts[me]
                key = (me, host.engine.next_block)
                self.bases[key] = self.delivered(host)
                self.given[me].add(key)
                self.say(me, host.send(b"m"))
                continue
            read: dict[int, list[Word]] = {}
            for _ in range(rng.randint(1, 3)):  # one pass may read several
                if self.on_the_way:
                    at = rng.randrange(len(self.on_the_way))
                    to, word = self.on_the_way[at] if rng.random() < 0.1 else self.on_the_way.pop(at)
                    read.setdefault(to, []).append(word)
            for to, words in read.items():
                self.given[to].update((word.origin, word.number) for word in words if word.kind == Kind.DATA)
                self.say(to, self.hosts[to].hear(*words))


CARRIERS = st.builds(
    Carrier, st.lists(st.integers(1, 20), min_size=2, max_size=5), st.integers(1, 20), st.integers(0, 1 << 32)
)


@given(carrier=CARRIERS)
@PROFILE
def test_a_sender_reads_what_each_member_expects_next(carrier: Carrier) -> None:
    """TOMPA section 3.2.2.2: "Copy the next mid vector to ackmi next mid vector"."""
    carrier.play()
    orders = [host.delivered for host in carrier.hosts.values()]
    assert all(order == orders[0] for order in orders)


def test_the_runs_have_something_to_list_and_something_to_leave_out() -> None:
    carriers = [Carrier([1, 5, 9, 2], 20, seed) for seed in range(10)]
    for carrier in carriers:
        carrier.play()
    read, listed = sum(carrier.read for carrier in carriers), sum(carrier.listed for carrier in carriers)
    assert 0 < listed < 2 * read, "of four that a whole vector has"
