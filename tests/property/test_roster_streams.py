"""Rosters at all nodes of an underlay, each at its own place of one stream, against a naive reading of it.

Nodes lag, come, crash and come back; seeders lag and crash as well; operations of nodes that are gone are ordered late.
At each entry every seeded roster must be what the naive model is there, and a node must be seeded exactly where the
model says so. In the end all nodes are seeded and have the same groups.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.roster_streams import Change, Entry, Model, state_of, told, view_of

from ordercast.groups.roster import Roster
from ordercast.view import Reason, View
from ordercast.wire.roster import encode_joins, encode_leaves, encode_name_groups

NAMES = [f"topic-{index}" for index in range(6)] + ["grün", "群", "x" * 255]
LABELS = ["", "a", "b"]


class Node:
    """A stay of one node in the underlay: where it has read up to, and what it is sending."""

    def __init__(self, node: int, at: int) -> None:
        self.node = node
        self.at = at  # the next entry that it reads
        self.roster = Roster(node)
        self.parts: Iterator[bytes] | None = None


class Underlay:
    """One stream, the nodes that read it, and what the model was after each entry."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.stream: list[Entry] = []
        self.model = Model()
        self.states: list[tuple[object, ...]] = []
        self.made: list[list[Change]] = []
        self.nodes: dict[int, Node] = {}
        self.next_node = 1
        self.gone: list[int] = []
        self.change_nodes([], 1)

    # The stream.

    def order(self, origin: int, what: bytes | View) -> None:
        self.stream.append(Entry(origin, what))
        self.made.append(self.model.read(len(self.stream) - 1, self.stream[-1]))
        self.states.append(self.model.state())

    def change_nodes(self, leaving: list[int], new: int, back: bool = False) -> None:
        seq, before = len(self.stream), list(self.nodes)
        nodes = [node for node in before if node not in leaving]
        rng = self.rng
        came = []
        for _ in range(new):
            node = rng.choice(self.gone) if back and self.gone else self.next_node
            if node == self.next_node:
                self.next_node += 1
            else:
                self.gone.remove(node)
            nodes.insert(rng.randrange(len(nodes) + 1), node)
            came.append(node)
        reason = Reason.CREATE if not before else Reason.RESET if leaving else Reason.JOIN
        self.nodes = {node: Node(node, seq) if node in came else self.nodes[node] for node in nodes}
        self.gone += leaving
        self.order(0, view_of(seq, nodes, before if came else [], reason, b"view"))

    # The nodes.

    def read(self, node: Node, count: int) -> None:
        for seq in range(node.at, min(node.at + count, len(self.stream))):
            entry, roster = self.stream[seq], node.roster
            was_seeded = roster.is_seeded
            if isinstance(entry.what, View):
                made = roster.on_view(seq, entry.what)
            else:
                made = roster.apply(seq, entry.origin, memoryview(entry.what))
            state = self.states[seq]
            unseeded = state[3]
            assert isinstance(unseeded, frozenset)
            assert roster.is_seeded == (node.node not in unseeded), (node.node, seq)
            if roster.is_seeded:
                assert state_of(roster) == state, (node.node, seq)
                assert told(made) == (self.made[seq] if was_seeded else []), (node.node, seq)
            else:
                assert not made
            node.at = seq + 1

    def speak(self, node: Node) -> None:
        """Something that a node may submit, as of the place up to which it has read."""
        rng, roster = self.rng, node.roster
        if roster.must_seed():
            node.parts = roster.seed(rng.choice((80, 300, 2_000)))
        if node.parts is not None and rng.random() < 0.7:
            body = next(node.parts, None)
            if body is not None:
                self.order(node.node, body)
                return
            node.parts = None
        if roster.is_seeded:
            label, header = rng.choice(LABELS), rng.choice((b"", b"hi"))
            names = rng.choices(NAMES, k=rng.choice((1, 1, 3)))
            numbers = [each.number for each in roster.groups.values()] + [77]
            bodies = rng.choice(
                (
                    encode_joins(label, header, names, rng.choice((20, 500))),
                    encode_leaves(label, header, rng.choices(numbers, k=2), rng.choice((10, 500))),
                    encode_name_groups(label, names, 500),
                )
            )
            for body in bodies:
                self.order(node.node, body)

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.03 and len(self.nodes) > 1:
            leaving = rng.sample(list(self.nodes), rng.randrange(1, len(self.nodes)))
            late = [node for node in leaving if self.nodes[node].roster.is_seeded]
            bodies = [(node, next(encode_joins("", b"", ["late"], 100))) for node in late]
            bodies += [(node, body) for node in late if (body := next(self.nodes[node].parts or iter(()), None))]
            self.change_nodes(leaving, rng.choice((0, 0, 0, 1)))
            if rng.random() < 0.3:
                self.change_nodes([], 1, back=True)
            for node, body in bodies:
                self.order(node, body)
        elif chance < 0.08 and len(self.nodes) < 6:
            self.change_nodes([], rng.choice((1, 1, 2)), back=rng.random() < 0.3)
        elif chance < 0.10:
            self.order(rng.choice(list(self.nodes)), rng.choice((b"", b"\1", b"\4" + bytes(13), b"\1\0\0\0")))
        elif chance < 0.6:
            self.read(rng.choice(list(self.nodes.values())), rng.choice((1, 3, 20)))
        else:
            self.speak(rng.choice(list(self.nodes.values())))

    def come_to_rest(self) -> None:
        """No more changes: all nodes read everything, and seed the ones that wait."""
        for _ in range(200):
            for node in self.nodes.values():
                self.read(node, len(self.stream))
            for node in self.nodes.values():
                if node.roster.must_seed():
                    node.parts = node.roster.seed(300)
                for body in node.parts or ():
                    self.order(node.node, body)
                node.parts = None
            if all(node.at == len(self.stream) for node in self.nodes.values()):
                return
        raise AssertionError("the nodes do not come to rest")


@given(seed=st.integers(0, 1 << 32), steps=st.integers(10, 200))
@settings(max_examples=150, deadline=None)
def test_all_rosters_are_what_the_stream_says(seed: int, steps: int) -> None:
    underlay = Underlay(random.Random(seed))
    for _ in range(steps):
        underlay.step()
    underlay.come_to_rest()
    rosters = [node.roster for node in underlay.nodes.values()]
    assert all(roster.is_seeded for roster in rosters)
    assert all(state_of(roster) == underlay.states[-1] for roster in rosters)
    assert not rosters[0].unseeded
