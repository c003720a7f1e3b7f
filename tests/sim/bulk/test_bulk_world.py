"""Time, ports, processors and socket buffers of the bulk simulation, computed by hand."""

from __future__ import annotations

import pytest
from tests.sim.bulk.recording import House

from ordercast.config import MS, SECOND
from ordercast.engine import Note, Send, To
from ordercast.errors import UsageError
from ordercast.sim.bulk import BulkWorld
from ordercast.sim.network import ETHERNET, IDEAL, LAN, PENTIUM, SOCKET_OVERHEAD_BYTES, NetworkModel
from ordercast.sim.world import Livelock
from ordercast.view import Address
from ordercast.wire.header import Kind

REGION: Address = ("239.1.0.1", 7_000)
OTHER: Address = ("239.1.0.2", 7_000)
BOTH = frozenset((REGION, OTHER))

# 1 us for a byte; datagrams have 10 bytes more on the wire.
WIRE = NetworkModel("wire", latency_ns=500_000, bits_per_s=8_000_000, is_shared=False, frame_overhead=10)
SLOW = NetworkModel("slow", latency_ns=1_000, pass_ns=10_000, send_ns=100_000, receive_ns=50_000)


def data(size: int, fill: int = 0) -> bytes:
    return bytes([0xC7, Kind.DATA, *([fill] * (size - 2))])


def arrivals(house: House, name: str) -> list[int]:
    return [each.at_ns for each in house[name].seen]


# Ports. --------------------------------------------------------------------------------------------------------------


def test_datagrams_leave_their_senders_port_one_after_the_other() -> None:
    house = House(BulkWorld(1, WIRE), "abc", BOTH)
    house.send("a", Send(REGION, [data(90)], 0), Send(REGION, [data(40)], 0))
    house.world.run_until(SECOND)
    # 100 us on the wire, then 50 us more; and half a millisecond to get there.
    assert arrivals(house, "b") == arrivals(house, "c") == [600_000, 650_000]
    assert house["a"].seen == []  # nobody hears his own multicasts


def test_a_receivers_port_takes_datagrams_of_two_senders_one_after_the_other() -> None:
    house = House(BulkWorld(1, WIRE), "abcd", BOTH)
    house.send("a", Send(REGION, [data(90, 1)], 0))
    house.send("b", Send(REGION, [data(90, 2)], 0))
    house.world.run_until(SECOND)
    assert arrivals(house, "c") == arrivals(house, "d") == [600_000, 700_000]
    assert arrivals(house, "a") == arrivals(house, "b") == [600_000]  # each has only the other's
    # Both had to wait behind the first at two ports: that took one more event.
    assert [each.data[-1] for each in house["c"].seen] == [1, 2]


def test_a_multicast_is_one_event_whatever_the_number_of_receivers() -> None:
    events = []
    for count in (10, 100):
        names = [f"n{index}" for index in range(count)]
        house = House(BulkWorld(1, WIRE), names, BOTH)
        before = house.world.events
        house.send("n0", Send(REGION, [data(90)], 0))
        house.world.run_until(SECOND)
        assert house.world.receptions == count - 1
        events.append(house.world.events - before)
    assert events == [2, 2]  # the pass of the sender, and the arrival


def test_a_packet_of_the_papers_machines_takes_what_the_paper_measured() -> None:
    """QSM section 3.1 and figure 9: 9,850 packets a second, of 90 bytes with all headers."""
    house = House(BulkWorld(1, PENTIUM), "ab", BOTH)
    for index in range(10):
        house.world.at(index * 101_000, lambda _: house.send("a", Send(REGION, [data(62)], 0)))
    house.world.run_until(SECOND)
    wire_ns = (62 + 66) * 8 * 10
    first = 5_000 + 96_000 + wire_ns + 50_000 + 5_000 + 75_000
    assert arrivals(house, "b") == [first + index * 101_000 for index in range(10)]


def test_a_block_that_stands_for_twenty_takes_as_long_and_control_does_not() -> None:
    house = House(BulkWorld(1, PENTIUM, stands_for=20), "ab", BOTH)
    wire_ns = (62 + 66) * 80
    house.send("a", Send(REGION, [data(62)], 0))
    house.world.run_until(SECOND)
    assert arrivals(house, "b") == [5_000 + 20 * (96_000 + wire_ns) + 50_000 + 20 * (5_000 + 75_000)]
    token = bytes([0xC7, Kind.REGION_TOKEN, *bytes(60)])
    house.send("a", Send(REGION, [token], 0))
    house.world.run_until(2 * SECOND)
    assert arrivals(house, "b")[1:] == [SECOND + 5_000 + 96_000 + wire_ns + 50_000 + 5_000 + 75_000]


def test_a_train_of_such_blocks_fills_ports_and_sockets_as_many() -> None:
    """Three segments of 100 bytes, each for ten: 1.1 ms on the wire, and 11,240 bytes of a socket buffer."""
    house = House(BulkWorld(1, WIRE, stands_for=10), "ab", BOTH, buffer_bytes=2 * 10 * (100 + SOCKET_OVERHEAD_BYTES))
    world = house.world
    world.pause("b")
    house.send("a", Send(REGION, [data(300)], 100))
    world.run_until(SECOND)
    assert world["b"].tally.dropped == 1
    assert world["a"].egress_free_ns == 3 * 10 * 110_000
    world.resume("b")
    world.run_until(2 * SECOND)
    assert sum(len(each.data) for each in house["b"].seen) == 200
    assert world["b"].inbox_bytes == 0


# Addresses. ----------------------------------------------------------------------------------------------------------


def test_a_multicast_reaches_those_that_listen_to_its_address() -> None:
    house = House(BulkWorld(1, IDEAL), "abcd", frozenset())
    house["b"].hears, house["c"].hears = frozenset((REGION,)), BOTH
    for name in "bc":
        house.world.wake(house.world[name])
    house.world.run_until(MS)
    assert house.world.listeners(REGION) == ["b", "c"]
    assert house.world.listeners(OTHER) == ["c"]
    house.send("a", Send(REGION, [data(10, 1)], 0), Send(OTHER, [data(10, 2)], 0), Send(To.ALL, [data(10, 3)], 0))
    house.world.run_until(2 * MS)
    heard = {name: [each.data[-1] for each in house[name].seen] for name in "abcd"}
    assert heard == {"a": [], "b": [1, 3], "c": [1, 2, 3], "d": [3]}


def test_a_node_that_stops_to_listen_gets_no_more() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    house["b"].hears = frozenset((OTHER,))
    house.world.wake(house.world["b"])
    house.send("a", Send(REGION, [data(10)], 0))  # under way when b stops
    house.world.run_until(MS)
    assert house["b"].seen == []
    assert house.world.listeners(REGION) == ["a"]


def test_a_unicast_reaches_its_node_and_one_to_nobody_is_counted() -> None:
    house = House(BulkWorld(1, IDEAL), "abc", BOTH)
    world = house.world
    house.send("a", Send(world["c"].address, [b"to ", b"c"], 0), Send(("10.9.9.9", 1), [b"x"], 0))
    world.run_until(MS)
    assert [each.data for each in house["c"].seen] == [b"to c"]
    assert house["c"].seen[0].source == world["a"].address
    assert house["b"].seen == []
    assert world.unroutable == 1


def test_a_thousand_nodes_have_a_thousand_addresses() -> None:
    house = House(BulkWorld(1), [f"n{index}" for index in range(1_000)])
    assert len({node.address for node in house.world.nodes.values()}) == 1_000


# Processors and sockets. ---------------------------------------------------------------------------------------------


def test_a_busy_node_reads_what_has_come_meanwhile_in_one_pass() -> None:
    house = House(BulkWorld(1, SLOW), "ab", BOTH)
    b = house.world["b"]
    b.busy_until_ns = 5 * MS
    house.send("a", *(Send(REGION, [data(10, index)], 0) for index in range(3)))
    house.world.run_until(SECOND)
    # One pass for three datagrams: 10 us and 50 us each.
    assert arrivals(house, "b") == [5 * MS + 160_000] * 3
    assert [each.data[-1] for each in house["b"].seen] == [0, 1, 2]


def test_what_does_not_fit_the_socket_buffer_is_dropped_and_counted() -> None:
    house = House(BulkWorld(1, SLOW), "ab", BOTH, buffer_bytes=2 * (100 + SOCKET_OVERHEAD_BYTES))
    world = house.world
    world.pause("b")
    house.send("a", *(Send(REGION, [data(100, index)], 0) for index in range(5)))
    world.run_until(SECOND)
    assert world["b"].tally.dropped == 3
    world.resume("b")
    world.run_until(2 * SECOND)
    assert [each.data[-1] for each in house["b"].seen] == [0, 1]
    assert world["b"].tally.received[Kind.DATA] == 2
    assert world["b"].inbox_bytes == 0
    house.send("a", Send(REGION, [data(100, 9)], 0))
    world.run_until(3 * SECOND)
    assert house["b"].seen[-1].data[-1] == 9


def test_of_a_train_that_does_not_fit_its_beginning_is_kept() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH, buffer_bytes=3 * (100 + SOCKET_OVERHEAD_BYTES))
    world = house.world
    world.pause("b")
    house.send("a", Send(REGION, [data(550)], 100))
    world.run_until(MS)
    world.resume("b")
    world.run_until(2 * MS)
    assert [(len(each.data), each.stride) for each in house["b"].seen] == [(300, 100)]
    assert world["b"].tally.dropped == 3


def test_a_slow_node_takes_longer() -> None:
    house = House(BulkWorld(1, SLOW), "ab", BOTH)
    house.world.slow("b", 3)
    house.send("a", Send(REGION, [data(10)], 0))
    house.world.run_until(SECOND)
    assert arrivals(house, "b") == [10_000 + 100_000 + 1_000 + 3 * 60_000]


def test_a_timer_runs_when_it_is_due_or_the_processor_is_free() -> None:
    house = House(BulkWorld(1, SLOW), "ab", BOTH)
    house["b"].timer_ns = 3 * MS
    house.world.wake(house.world["b"])
    house.world.run_until(SECOND)
    assert house["b"].fired == [3 * MS + 10_000]
    house["b"].timer_ns = house.world.now_ns + MS
    house.world.wake(house.world["b"])
    house.world.run_until(house.world.now_ns + MS // 2)
    house.world["b"].busy_until_ns = 2 * SECOND
    house.world.run_until(3 * SECOND)
    assert house["b"].fired[1:] == [2 * SECOND + 10_000]


def test_a_timer_that_never_runs_is_a_livelock() -> None:
    house = House(BulkWorld(1, IDEAL), "a")
    engine = house["a"]
    engine.never_clears = True
    engine.timer_ns = MS
    house.world.wake(house.world["a"])
    with pytest.raises(Livelock, match="does not clear a timer"):
        house.world.run_until(SECOND)


# Trains. -------------------------------------------------------------------------------------------------------------


def test_a_train_arrives_as_one_batch_where_nothing_is_lost() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    house.send("a", Send(REGION, [data(450)], 100))
    house.world.run_until(MS)
    assert [(len(each.data), each.stride) for each in house["b"].seen] == [(450, 100)]
    assert house.world["a"].tally.sent[Kind.DATA] == house.world["b"].tally.received[Kind.DATA] == 5


def test_a_lost_segment_splits_a_train_and_all_bytes_are_where_they_belong() -> None:
    payload = b"".join(bytes([0xC7, 1, index, *([index] * 97)]) for index in range(50)) + b"end"
    seen_strides = set()
    for seed in range(20):
        house = House(BulkWorld(seed, NetworkModel("lossy", latency_ns=1, loss=0.1)), "ab", BOTH)
        house.send("a", Send(REGION, [payload], 100))
        house.world.run_until(MS)
        tally = house.world["b"].tally
        got = []
        for each in house["b"].seen:
            stride = each.stride or len(each.data)
            got += [each.data[at : at + stride] for at in range(0, len(each.data), stride)]
            seen_strides.add(each.stride)
        assert len(got) + tally.lost == 51
        assert tally.received[1] == len(got)
        sent = [payload[at : at + 100] for at in range(0, len(payload), 100)]
        assert all(each in sent for each in got)
        assert got == [each for each in sent if each in got]  # and in order
        assert len({each.at_ns for each in house["b"].seen}) <= 1  # read in one pass
    assert seen_strides == {0, 100}


def test_a_train_that_takes_long_arrives_in_parts() -> None:
    """The processor hands over a datagram each 100 us, and the port needs 110 us for it: pairs fit 220 us."""
    model = NetworkModel(
        "both", latency_ns=0, bits_per_s=8_000_000, is_shared=False, frame_overhead=10, send_ns=100_000
    )
    house = House(BulkWorld(1, model, coalesce_ns=220_000), "ab", BOTH)
    house.send("a", Send(REGION, [data(450)], 100))
    house.world.run_until(SECOND)
    # handed over at 100, 200, 300, 400, 500 us; on the wire 110 us each, the last (50 bytes) 60 us
    assert [(each.at_ns, len(each.data)) for each in house["b"].seen] == [(310_000, 200), (530_000, 200), (590_000, 50)]
    assert house.world["a"].busy_until_ns == 500_000


# What befalls nodes and links. ---------------------------------------------------------------------------------------


def test_a_cut_holds_in_one_direction_and_is_counted() -> None:
    house = House(BulkWorld(1, IDEAL), "abc", BOTH)
    world = house.world
    world.cut("a", "b")
    house.send("a", Send(REGION, [data(10, 1)], 0), Send(world["b"].address, [data(10, 2)], 0))
    house.send("b", Send(world["a"].address, [data(10, 3)], 0))
    world.run_until(MS)
    assert [len(house[name].seen) for name in "abc"] == [1, 0, 1]
    assert [world[name].tally.cut for name in "abc"] == [0, 2, 0]
    world.mend("a", "b")
    house.send("a", Send(REGION, [data(10, 4)], 0))
    world.run_until(2 * MS)
    assert [each.data[-1] for each in house["b"].seen] == [4]


def test_sides_of_a_partition_do_not_reach_each_other() -> None:
    house = House(BulkWorld(1, IDEAL), "abcd", BOTH)
    world = house.world
    world.partition(["ab"])
    for name in "abcd":
        house.send(name, Send(REGION, [data(10, ord(name))], 0))
    world.run_until(MS)
    heard = {name: sorted(chr(each.data[-1]) for each in house[name].seen) for name in "abcd"}
    assert heard == {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}
    world.heal()
    house.send("a", Send(REGION, [data(10)], 0))
    world.run_until(2 * MS)
    assert [len(house[name].seen) for name in "abcd"] == [1, 2, 2, 2]


def test_a_crashed_node_hears_nothing_and_a_restarted_one_is_new() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    world = house.world
    world.crash("b")
    house.send("a", Send(REGION, [data(10, 1)], 0), Send(world["b"].address, [data(10, 2)], 0))
    world.run_until(MS)
    assert world.listeners(REGION) == ["a"]
    world.start("b")
    house.send("a", Send(REGION, [data(10, 3)], 0))
    world.run_until(2 * MS)
    assert world["b"].life == 1
    assert [[each.data[-1] for each in engine.seen] for engine in house.lives["b"]] == [[], [3]]


def test_nothing_is_received_before_the_engine_has_started() -> None:
    """The node comes up in the very nanosecond in which a datagram arrives, and before it."""
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    world = house.world
    world.crash("b")
    world.at(IDEAL.latency_ns, lambda _: world.start("b"))
    house.send("a", Send(world["b"].address, [data(10)], 0))
    world.run_until(MS)
    assert house["b"].passes[0] == IDEAL.latency_ns
    assert arrivals(house, "b") == [IDEAL.latency_ns]


def test_a_paused_node_stands_still_and_then_goes_on() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    world = house.world
    house["b"].timer_ns = 2 * MS
    world.wake(world["b"])
    world.run_until(MS)
    world.pause("b")
    house.send("a", Send(REGION, [data(10)], 0))
    world.run_until(10 * MS)
    assert house["b"].seen == []
    assert house["b"].fired == []
    world.resume("b")
    world.run_until(11 * MS)
    assert arrivals(house, "b") == house["b"].fired == [10 * MS]


@pytest.mark.parametrize("loss", [0.001, 0.05, 0.4])
def test_as_much_is_lost_as_the_model_says(loss: float) -> None:
    house = House(BulkWorld(1, NetworkModel("lossy", loss=loss)), [f"n{index}" for index in range(50)], BOTH)
    world = house.world
    for at_ns in range(400):
        world.at(at_ns * MS, lambda _: house.send("n0", Send(REGION, [data(500)], 100)))
    world.run_until(SECOND)
    count = 49 * 400 * 5
    lost = sum(node.tally.lost for node in world.nodes.values())
    assert abs(lost - count * loss) < 4 * (count * loss * (1 - loss)) ** 0.5
    assert sum(node.tally.received[Kind.DATA] for node in world.nodes.values()) == count - lost


def test_the_losses_of_one_node_do_not_change_those_of_another() -> None:
    def lost_at_b(loss_at_c: float) -> list[bytes]:
        house = House(BulkWorld(5, NetworkModel("lossy", loss=0.2)), "abc", BOTH)
        house.world.lose("c", "more", loss_at_c)
        for index in range(50):
            house.world.at(index * MS, lambda each: house.send("a", Send(REGION, [data(9, each)], 0)), index)
        house.world.run_until(SECOND)
        return [each.data for each in house["b"].seen]

    assert lost_at_b(0.0) == lost_at_b(0.9)


def test_jitter_gives_receivers_times_of_their_own_and_keeps_the_order_of_a_link() -> None:
    house = House(BulkWorld(1, NetworkModel("jitter", latency_ns=1_000, jitter_ns=50_000)), "abcd", BOTH)
    for index in range(50):
        house.world.at(index * 5_000, lambda each: house.send("a", Send(REGION, [data(9, each)], 0)), index)
    house.world.run_until(SECOND)
    for name in "bcd":
        assert [each.data[-1] for each in house[name].seen] == list(range(50))
    assert len({tuple(arrivals(house, name)) for name in "bcd"}) == 3


def test_notes_go_to_who_asked_for_those_of_a_node() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    told: list[tuple[str, int, list[str]]] = []
    house.world.notes["b"] = lambda node, now_ns, notes: told.append((str(node), now_ns, [each.kind for each in notes]))
    house["a"].notes, house["b"].notes = [Note("hold", 1)], [Note("gap", 1), Note("repaired", 1)]
    for name in "ab":
        house.world.wake(house.world[name])
    house.world.run_until(MS)
    assert told == [("b/0", 0, ["gap", "repaired"])]


def test_rest_names_the_nodes_that_are_not_at_rest() -> None:
    house = House(BulkWorld(1, IDEAL), "ab", BOTH)
    house["b"].is_busy = True
    assert house.world.run_to_rest(SECOND) == ["b/0: its engine is not at rest"]
    house["b"].is_busy = False
    began_ns = house.world.now_ns
    assert house.world.run_to_rest(began_ns + SECOND) == []
    assert house.world.now_ns == began_ns + 200 * MS  # it must last


@pytest.mark.parametrize(
    "model", [ETHERNET, NetworkModel("d", duplicate=0.1), NetworkModel("copies", has_multicast=False)]
)
def test_networks_that_are_not_modelled_are_refused(model: NetworkModel) -> None:
    with pytest.raises(UsageError, match="the bulk simulation has no"):
        BulkWorld(1, model)


def test_a_world_has_no_two_nodes_of_a_name_and_a_limit_of_events() -> None:
    house = House(BulkWorld(1, LAN, event_limit=100), "a")
    with pytest.raises(UsageError, match="already"):
        house.world.add("a", house.world["a"].boot)

    def again(_: object) -> None:
        house.world.after(1, again)

    again(None)
    with pytest.raises(Livelock, match="more than 100 events"):
        house.world.run_until(SECOND)
