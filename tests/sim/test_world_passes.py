"""Virtual time, processor costs and socket buffers, computed exactly on a toy stack."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ordercast.engine import NEVER, Send, To
from ordercast.sim.network import IDEAL, NetworkModel
from ordercast.sim.world import Livelock, Machine, World
from ordercast.view import Address


class Toy:
    """Writes down what it sees and sends what it is told to."""

    def __init__(self, answers: bool = False) -> None:
        self.answers = answers
        self.seen: list[tuple[int, Address, bytes, int]] = []
        self.passes: list[int] = []
        self.queue: list[tuple[str, Send]] = []
        self.timer_ns = NEVER
        self.is_busy = False

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        self.seen.append((now_ns, source, bytes(data), stride))
        if self.answers:
            self.queue.append(("g", Send(source, [bytes(data)], 0)))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        self.seen.append((now_ns, address, quoted, -1))

    def expire(self, now_ns: int) -> None:
        self.timer_ns = NEVER
        self.seen.append((now_ns, ("timer", 0), b"", 0))

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:
        self.passes.append(now_ns)
        queue, self.queue = self.queue, []
        return queue

    def deadline_ns(self) -> int:
        return self.timer_ns

    def copies(self, group: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def audience(self, group: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def unrest(self) -> list[str]:
        return ["the toy is busy"] if self.is_busy else []


def toys(world: World, names: str, buffer_bytes: int = 1 << 20, answers: str = "") -> dict[str, Toy]:
    made: dict[str, Toy] = {}

    def boot(node: Machine) -> Toy:
        made[node.name] = Toy(node.name in answers)
        world.listen(node, "g")
        return made[node.name]

    for name in names:
        world.add(name, boot, buffer_bytes=buffer_bytes)
        world.start(name)
    world.run_until(0)
    return made


def say(world: World, name: str, toy: Toy, *sends: Send) -> None:
    toy.queue += [("g", send) for send in sends]
    world.wake(world.nodes[name])


def test_events_of_one_nanosecond_happen_in_the_order_in_which_they_were_made() -> None:
    world = World(1)
    happened: list[str] = []
    world.at(5, happened.append, "first")
    world.at(3, happened.append, "earlier")
    world.at(5, happened.append, "second")
    world.run_until(5)
    assert happened == ["earlier", "first", "second"]
    assert world.now_ns == 5


def test_processor_costs_delay_reading_and_sending() -> None:
    model = NetworkModel(
        "toy", latency_ns=1_000, pass_ns=10, send_ns=100, receive_ns=200, send_byte_ps=1_000, receive_byte_ps=2_000
    )
    world = World(1, model)
    made = toys(world, "ab")
    world.run_until(1_000_000)
    to_b = world.nodes["b"].address
    say(world, "a", made["a"], Send(to_b, [b"12345", b"67890"], 0), Send(to_b, [bytes(10)], 0))
    world.run_until(2_000_000)
    # a: 10 ns for the pass, then 100 + 10 ns for each datagram; b: latency, 10 for the pass, 200 + 20 for the datagram.
    first_ns = 1_000_000 + 10 + 110 + 1_000 + 10 + 220
    assert [(at, data) for at, _, data, _ in made["b"].seen] == [
        (first_ns, b"1234567890"),
        # The second arrived while b was busy with the first; its pass begins when that one ends.
        (first_ns + 10 + 220, bytes(10)),
    ]
    assert world.nodes["a"].busy_until_ns == 1_000_000 + 10 + 220


def test_what_arrives_while_a_node_is_busy_is_read_in_one_pass() -> None:
    world = World(1, NetworkModel("toy", latency_ns=1_000, receive_ns=10_000))
    made = toys(world, "ab")
    to_b = world.nodes["b"].address
    for at_ns in (1_000, 2_000, 3_000, 4_000):
        world.at(at_ns, lambda _: say(world, "a", made["a"], Send(to_b, [b"x"], 0)))
    world.run_until(100_000)
    assert [at for at, *_ in made["b"].seen] == [12_000, 42_000, 42_000, 42_000]


def test_a_slow_node_pays_its_factor() -> None:
    world = World(1, NetworkModel("toy", latency_ns=1_000, receive_ns=100))
    made = toys(world, "ab")
    world.slow("b", 20)
    say(world, "a", made["a"], Send(world.nodes["b"].address, [b"x"], 0))
    world.run_until(100_000)
    assert made["b"].seen[0][0] == 1_000 + 2_000


def test_a_paused_node_fills_its_socket_buffer_and_the_rest_is_dropped_and_counted() -> None:
    world = World(1)
    made = toys(world, "ab", buffer_bytes=5_000)
    world.pause("b")
    for _ in range(10):
        say(world, "a", made["a"], Send(world.nodes["b"].address, [bytes(100)], 0))
        world.run_until(world.now_ns + 1_000_000)
    assert not made["b"].seen
    world.resume("b")
    world.run_until(world.now_ns + 1_000_000)
    assert len(made["b"].seen) == 4  # each takes 100 + 1024 bytes of 5000
    assert world.nodes["b"].dropped == world.network.counters.socket_drops == 6


def test_of_a_train_as_much_arrives_as_the_socket_buffer_holds() -> None:
    world = World(1)
    made = toys(world, "ab", buffer_bytes=5_000)
    say(world, "a", made["a"], Send(world.nodes["b"].address, [bytes(1_000)], 100))
    world.run_until(1_000_000)
    assert [(len(data), stride) for _, _, data, stride in made["b"].seen] == [(400, 100)]
    assert world.network.counters.socket_drops == 6


def test_the_data_of_a_transmission_is_copied_when_it_leaves() -> None:
    world = World(1)
    made = toys(world, "ab")
    buffer = bytearray(b"before")
    say(world, "a", made["a"], Send(world.nodes["b"].address, [buffer], 0))
    world.run_until(world.now_ns)
    buffer[:] = b"after!"
    world.run_until(1_000_000)
    assert made["b"].seen[0][2] == b"before"


def test_a_multicast_reaches_those_who_listen_and_not_its_sender() -> None:
    world = World(1)
    made = toys(world, "abcd")
    world.unlisten(world.nodes["d"], "g")
    say(world, "a", made["a"], Send(To.ALL, [b"x"], 0))
    world.run_until(1_000_000)
    assert [len(made[name].seen) for name in "abcd"] == [0, 1, 1, 0]
    assert world.network.counters.sent == 1


def test_a_timer_runs_at_its_time() -> None:
    world = World(1)
    made = toys(world, "a")
    made["a"].timer_ns = 777
    world.wake(world.nodes["a"])
    world.run_until(1_000)
    assert [at for at, source, *_ in made["a"].seen if source == ("timer", 0)] == [777]


def test_a_crash_loses_everything_and_the_next_life_starts_anew() -> None:
    world = World(1)
    made = toys(world, "ab")
    old = made["b"]
    say(world, "a", made["a"], Send(world.nodes["b"].address, [b"x"], 0))
    world.run_until(world.now_ns)
    world.crash("b")
    world.run_until(1_000_000)
    assert not old.seen
    world.start("b")
    assert world.nodes["b"].life == 1
    assert made["b"] is not old


def test_rest_names_who_is_not_at_rest() -> None:
    world = World(1)
    made = toys(world, "ab")
    assert world.run_to_rest(1_000_000_000) == []
    made["b"].is_busy = True
    assert world.run_to_rest(2_000_000_000) == ["b/0: the toy is busy"]


def test_a_livelock_is_reported_instead_of_hanging() -> None:
    world = World(1, IDEAL, event_limit=1_000)
    made = toys(world, "ab", answers="ab")
    say(world, "a", made["a"], Send(world.nodes["b"].address, [b"ping"], 0))
    with pytest.raises(Livelock, match="more than 1000 events"):
        world.run_until(10_000_000_000)


def test_a_timer_that_is_never_cleared_is_reported_as_such() -> None:
    class Stuck(Toy):
        def expire(self, now_ns: int) -> None:
            """Forgets to clear its timer."""

    world = World(1)
    stuck = Stuck()
    stuck.timer_ns = 5
    world.add("a", lambda _: stuck)
    world.start("a")
    with pytest.raises(Livelock, match=r"a/0 has asked 1000 times in a row for a timer that is overdue"):
        world.run_until(1_000)


def test_streams_of_chance_are_independent_and_repeatable() -> None:
    first, second = World(5), World(5)
    first.stream("application").random()
    assert first.stream("network").random() == second.stream("network").random()
    assert first.stream("network").random() != first.stream("faults").random()
    assert World(6).stream("network").random() != first.stream("network").random()
