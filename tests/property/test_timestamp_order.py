"""What anticipation may do and what not, on random runs of queues and votes (TOMPA sections 2.3, 3.1 and 3.2).

Two to six members multicast blocks. Data of one sender come in order to each; acknowledgements and decisions travel as
they like, and acknowledgements leave late, several together, or again (deviation 2 of docs/design/timestamp.md). Each
member has three queues, which see the same events at the same moments: one with anticipation, one which reads the
vectors as the wire has them, and one without.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.paper.tompa import WITHOUT_THE_RULE, Site, Vectors
from tests.sim.planting import planted

from ordercast.orderers.timestamp.queue import Key, Stamp
from ordercast.orderers.timestamp.votes import Vote
from ordercast.wire.stamps import Decided

MEMBERS = st.integers(2, 6)
SEEDS = st.integers(0, 1 << 32)  # of which of the events that may come next does come
PROFILE = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


class Pair:
    """A member three times: with anticipation, with sparse vectors and without. Votes are the same, so that one of them
    collects them."""

    def __init__(self, me: int, members: Sequence[int], clock: int) -> None:
        self.anticipating = Site(me, members, clock, anticipate=True)
        self.sparse = Site(me, members, clock, sparse=True)
        self.plain = Site(me, members, clock, anticipate=False)
        self.owed: dict[int, list[Key]] = {member: [] for member in members}
        self.history: dict[Key, list[Stamp]] = {}  # under which timestamps a block has waited


class Run:
    """Everything that may happen next, and what did."""

    def __init__(self, clocks: Sequence[int], blocks: int) -> None:
        self.members = range(1, len(clocks) + 1)
        self.pairs = {me: Pair(me, self.members, clock) for me, clock in zip(self.members, clocks, strict=True)}
        self.left = blocks  # that may still be sent
        self.sent = dict.fromkeys(self.members, 0)
        self.again = 2 * len(clocks)  # acknowledgements that may still be repeated
        self.data: dict[tuple[int, int], deque[Key]] = {(i, j): deque() for i in self.members for j in self.members}
        self.acks: list[tuple[int, int, list[tuple[Key, Vote]]]] = []  # from, to
        self.decided: list[tuple[int, Decided, Vectors]] = []
        self.finals: dict[Key, Stamp] = {}
        self.earlier = 0  # steps after which anticipation has delivered more
        self.batched = 0

    def events(self) -> list[partial[None]]:
        found: list[partial[None]] = []
        if self.left:
            found += [partial(self._send, me) for me in self.members]
        found += [partial(self._arrive, *link) for link, keys in self.data.items() if keys]
        for me, pair in self.pairs.items():
            for to, keys in pair.owed.items():
                if keys:
                    found.append(partial(self._acknowledge, me, to))
                elif self.again and pair.plain.queue.undecided(to):
                    found.append(partial(self._acknowledge_again, me, to))
        found += [partial(self._collect, at) for at in range(len(self.acks))]
        found += [partial(self._decide, at) for at in range(len(self.decided))]
        return found

    def play(self, seed: int | str, after_each: Callable[[Run], None] | None = None) -> Run:
        """Until nothing is left to happen."""
        rng = random.Random(seed)
        slow = {link for link in self.data if rng.random() < 0.3}
        while events := self.events():
            # Often nobody sends and nothing comes by a slow link, as long as there is anything else to do.
            idle = [(self._arrive, link) for link in slow] + [(self._send, (me,)) for me in self.members]
            ready = [event for event in events if (event.func, event.args) not in idle]
            rng.choice(ready if ready and rng.random() < 0.9 else events)()
            self._look()
            if after_each is not None:
                after_each(self)
        return self

    def _send(self, me: int) -> None:
        self.left -= 1
        key = (me, self.sent[me])
        self.sent[me] += 1
        for to in self.members:
            self.data[me, to].append(key)

    def _arrive(self, sender: int, to: int) -> None:
        key = self.data[sender, to].popleft()
        pair = self.pairs[to]
        votes = {site.receive(key) for site in (pair.anticipating, pair.sparse, pair.plain)}
        assert len(votes) == 1, "the same proposals in all"
        pair.owed[sender].append(key)

    def _acknowledge(self, me: int, to: int) -> None:
        """Everything that is owed, with the clock and the vector of now."""
        pair = self.pairs[me]
        keys, pair.owed[to] = pair.owed[to], []
        self.batched += len(keys) > 1
        for key in keys:
            pair.sparse.acknowledge(key)
        self.acks.append((me, to, [(key, pair.plain.acknowledge(key)) for key in keys]))

    def _acknowledge_again(self, me: int, to: int) -> None:
        self.again -= 1
        self.pairs[me].owed[to] = [(to, number) for number in self.pairs[me].plain.queue.undecided(to)]
        self._acknowledge(me, to)

    def _collect(self, at: int) -> None:
        member, to, acks = self.acks.pop(at)
        sender = self.pairs[to].plain
        for key, vote in acks:
            sender.collect(key, member, vote)
        for decided, vectors in sender.decisions():
            self.finals[decided.origin, decided.number] = decided.stamp
            self.decided += [(each, decided, vectors) for each in self.members]

    def _decide(self, at: int) -> None:
        to, decided, vectors = self.decided.pop(at)
        for site in (self.pairs[to].plain, self.pairs[to].sparse, self.pairs[to].anticipating):
            site.hear(decided, vectors)

    def _look(self) -> None:
        for pair in self.pairs.values():
            for key, stamp, is_decided in pair.anticipating.queue:
                if not is_decided:
                    seen = pair.history.setdefault(key, [])
                    if not seen or seen[-1] != stamp:
                        seen.append(stamp)
            self.earlier += len(pair.anticipating.delivered) > len(pair.plain.delivered)


RUNS = st.builds(
    Run,
    MEMBERS.flatmap(lambda count: st.lists(st.integers(0, 20), min_size=count, max_size=count)),
    st.integers(1, 25),
)


@given(run=RUNS, seed=SEEDS)
@PROFILE
def test_an_anticipated_timestamp_never_exceeds_the_final_one(run: Run, seed: int) -> None:
    """Section 3.2.3.2: "the final timestamp of mk must be greater than or equal to max_next_ts(k)"."""
    run.play(seed)
    assert len(run.finals) == sum(run.sent.values())
    for pair in run.pairs.values():
        for key, stamps in pair.history.items():
            assert all(before < after for before, after in pairwise(stamps)), "it only moves back in the queue"
            assert stamps[-1] <= run.finals[key]


@given(run=RUNS, seed=SEEDS)
@PROFILE
def test_abcast_and_tompa_deliver_in_the_same_order_everywhere(run: Run, seed: int) -> None:
    """Section 2.1.2: in the order of the final timestamps; section 3.1: anticipation only finds it out sooner."""
    run.play(seed)
    order = sorted(run.finals, key=run.finals.__getitem__)
    assert len(set(run.finals.values())) == len(order) == sum(run.sent.values())
    for pair in run.pairs.values():
        assert pair.plain.delivered == order
        assert pair.anticipating.delivered == order
        assert pair.sparse.delivered == order
        assert len(pair.plain.queue) == len(pair.sparse.queue) == len(pair.anticipating.queue) == 0


@given(run=RUNS, seed=SEEDS)
@PROFILE
def test_anticipation_never_delivers_later(run: Run, seed: int) -> None:
    """Section 3.1: it "increases the probability of delivery of a message as soon as it is timestamped"."""

    def after_each(run: Run) -> None:
        for pair in run.pairs.values():
            plain, sparse, anticipating = pair.plain.delivered, pair.sparse.delivered, pair.anticipating.delivered
            assert sparse[: len(plain)] == plain
            assert anticipating[: len(sparse)] == sparse

    run.play(seed, after_each)


@given(run=RUNS, seed=SEEDS)
@PROFILE
def test_sparse_vectors_say_what_whole_ones_say(run: Run, seed: int) -> None:
    """docs/design/timestamp.md, Sparse vectors: the same timestamps in every queue at every moment, where no member has
    acknowledged a block again."""
    run.again = 0

    def after_each(run: Run) -> None:
        for pair in run.pairs.values():
            assert list(pair.sparse.queue) == list(pair.anticipating.queue)

    run.play(seed, after_each)


@given(run=RUNS, seed=SEEDS)
@PROFILE
def test_sparse_vectors_say_no_more_than_whole_ones(run: Run, seed: int) -> None:
    """A member that has acknowledged a block again does not know which of the two its sender counted."""

    def after_each(run: Run) -> None:
        for pair in run.pairs.values():
            whole = {key: stamp for key, stamp, _ in pair.anticipating.queue}
            assert all(stamp <= whole[key] for key, stamp, _ in pair.sparse.queue if key in whole)

    run.play(seed, after_each)


@given(run=RUNS, seed=SEEDS)
@PROFILE
def test_blocks_of_one_sender_keep_their_order(run: Run, seed: int) -> None:
    """Section 3.2.1: sequenced below. Proposals of a receiver rise, so the finals of one sender do."""
    run.play(seed)
    for member in run.members:
        finals = [run.finals[member, number] for number in range(run.sent[member])]
        assert finals == sorted(finals)


def some(name: str, count: int) -> list[Run]:
    rng = random.Random(name)
    shapes = [([rng.randrange(20) for _ in range(rng.randint(2, 6))], rng.randint(1, 25)) for _ in range(count)]
    return [Run(clocks, blocks).play(f"{name}/{at}") for at, (clocks, blocks) in enumerate(shapes)]


def test_the_runs_reach_what_they_are_for() -> None:
    """Most of them deliver something sooner, and acknowledge several blocks at once and again: none of the properties
    holds for want of a case."""
    runs = some("reach", 50)
    assert sum(run.earlier > 0 for run in runs) > 25
    assert sum(run.batched > 0 for run in runs) > 25
    assert sum(run.again < 2 * len(run.members) for run in runs) > 25


def test_the_runs_break_without_the_rule_for_the_clock() -> None:
    """The same runs with the queue as it is printed (tests/paper/test_tompa_clock.py): some end in two orders."""
    with planted(WITHOUT_THE_RULE):
        runs = some("rule", 50)
    broken = [len({tuple(pair.plain.delivered) for pair in run.pairs.values()}) > 1 for run in runs]
    assert sum(broken) > 5
