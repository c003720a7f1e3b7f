"""The components policy (docs/design/sites.md, "Components"): what each failure does, and runs that the judges see."""

from __future__ import annotations

import random

import pytest
from tests.components.exhaust import check
from tests.components.runs import draw, one_way, restarted, steady
from tests.components.world import DATAGRAM, NAME, SUSPECT_NS, TIMING, Node, World

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER, Outbox
from ordercast.errors import UsageError, WireError
from ordercast.membership.components.backoff import FIRST_NS, FORGET_NS, MOST_NS, Backoff
from ordercast.membership.components.daemons import Daemon, Daemons, GatherReason
from ordercast.membership.components.membership import ComponentsMembership
from ordercast.membership.components.neighbours import STRANGERS
from ordercast.membership.components.taking_part import ComponentState
from ordercast.membership.policy import WARNING
from ordercast.view import Member, node_id
from ordercast.wire.components import ComponentHello, DaemonLife, encode_hello
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.writer import DatagramWriter

RUNS = range(16)  # of the thousands that `python -m tests.components.runs` has been through
STEADY = range(4)


def names(node: Node) -> list[str]:
    assert node.view is not None
    return [str(member) for member in node.view.members]


def one_view(seed: int = 1, sites: tuple[int, ...] = (0, 0, 1, 1, 2)) -> World:
    world = World(seed, list(sites))
    world.until_one(5 * SECOND)
    return world


# Rooms of the state machine


def test_a_daemon_that_starts_is_a_component_of_one() -> None:
    world = World(1, [0])
    node = world.nodes[0]
    assert names(node) == ["d0/0"]
    assert node.membership.is_working
    world.run_for(2 * SECOND)
    assert world.judge.counts["views"] == 1
    assert world.sent == 0  # there is nobody to show itself to


def test_daemons_that_start_merge_into_one_view_in_the_order_of_their_indices() -> None:
    world = one_view()
    for node in world.nodes:
        assert names(node) == ["d0/0", "d1/0", "d2/0", "d3/0", "d4/0"]
    assert world.now_ns < SECOND


def test_the_lowest_daemon_coordinates() -> None:
    world = one_view()
    world.crash(4)
    world.run_for(2 * SECOND)
    view = world.nodes[0].view
    assert view is not None
    assert view.creator == "d0/0"
    assert names(world.nodes[3]) == ["d0/0", "d1/0", "d2/0", "d3/0"]


def test_the_next_one_coordinates_when_the_lowest_has_failed() -> None:
    world = one_view()
    world.crash(0)
    world.run_for(2 * SECOND)
    for node in world.nodes[1:]:
        assert names(node) == ["d1/0", "d2/0", "d3/0", "d4/0"]
        assert node.view is not None
        assert node.view.creator == "d1/0"


def test_both_sides_of_a_cut_go_on_and_merge_when_it_heals() -> None:
    world = one_view()
    world.partition([0, 2], [1, 3, 4])
    world.run_for(3 * SECOND)
    assert names(world.nodes[2]) == ["d0/0", "d2/0"]
    assert names(world.nodes[4]) == ["d1/0", "d3/0", "d4/0"]
    world.heal()
    assert world.until_one(5 * SECOND) < 2 * SECOND
    view = world.nodes[4].view
    assert view is not None
    assert view.came_with == ("d1/0", "d3/0", "d4/0")


@pytest.mark.parametrize("seed", range(4))
def test_a_restarted_daemon_replaces_its_former_life_before_anybody_suspects_it(seed: int) -> None:
    world = restarted(seed)
    expected = [f"d{index}/{int(index == seed)}" for index in range(4)]
    for node in world.nodes:
        assert names(node) == expected


def test_a_coordinator_that_is_lost_is_replaced_whatever_it_has_said() -> None:
    for state in (ComponentState.GATHERING, ComponentState.ACCEPTING, ComponentState.ACCEPTED):
        world = one_view(seed=3)
        world.crash(4)
        world.run_for(SUSPECT_NS - 100 * MS)
        for _ in range(4_000):
            world.run_for(MS // 4)
            if any(node.membership.state is state for node in world.nodes[1:4]):
                break
        world.crash(0)
        world.run_for(3 * SECOND)
        for node in world.nodes[1:4]:
            assert names(node) == ["d1/0", "d2/0", "d3/0"]
            assert node.membership.is_working


def test_a_straggler_learns_from_any_member_that_the_view_stands() -> None:
    """INSTALL gets to one daemon, and then the coordinator is lost: the others install what it installed."""
    world = one_view(seed=5, sites=(0, 1, 2))
    world.run_for(SECOND)
    old = world.nodes[1].view
    out = Outbox()
    node = world.nodes[0]
    node.membership.on_failure(world.now_ns, GatherReason.TOKEN_LOST, [], out)
    node.finish(out)
    node.wake()
    while world.nodes[0].view == old:
        world.run_for(MS // 20)
    installed = world.nodes[0].view
    assert installed is not None
    world.cuts |= {(0, 2)}
    while world.nodes[1].view == old:
        world.run_for(MS // 20)
    assert world.nodes[2].membership.state is ComponentState.ACCEPTED
    world.crash(0)
    world.run_for(TIMING.recovery_wait_ns)
    history = world.judge.history[world.nodes[2].member.id]
    assert installed.id in [view.id for view in history]


def test_missing_blocks_of_a_remainder_are_fetched_over_lossy_links() -> None:
    """Blocks of several segments, with a third of all datagrams lost; the judges compare what was delivered."""
    fetched = 0
    for seed in range(4):
        world = one_view(seed=seed)
        world.run_for(SECOND)
        world.loss = 0.3
        world.partition([0, 1, 2], [3, 4])
        world.run_for(3 * SECOND)
        fetched += world.judge.counts["together"]
        world.loss = 0.0
        world.heal()
        world.until_one(40 * SECOND)
        assert not world.malformed
    assert fetched


def test_a_failure_is_told_once_with_its_reason() -> None:
    world = one_view()
    world.log.clear()
    world.crash(4)
    world.run_for(2 * SECOND)
    told = [detail for _, who, detail in world.log if who == "d0/0"]
    assert len(told) == 2
    assert told[0] in ("gathering: a daemon is suspected (d4)", "gathering: another daemon asks for it (d4)")
    assert told[1].startswith("view ")


def test_a_daemon_that_is_still_in_a_view_that_is_over_is_shown_the_present_one() -> None:
    world = one_view(sites=(0, 1, 2))
    old = world.nodes[0].view
    assert old is not None
    world.crash(2)
    world.run_for(2 * SECOND)
    node = world.nodes[0]
    out = Outbox()
    gone = node_id("d2", 0)
    node.membership.on_stranger(world.now_ns, old.ring, gone, out)
    assert [send.to for send in out.sends] == [world.configured[2].address]
    node.membership.on_stranger(world.now_ns, old.ring, gone, out)
    assert len(out.sends) == 1  # not again at once


# One-way cuts


@pytest.mark.parametrize("seed", range(6))
def test_a_one_way_cut_parts_two_daemons_once_and_for_all(seed: int) -> None:
    world = one_way(seed)
    ((source, target),) = world.cuts
    assert f"d{target}/0" not in names(world.nodes[source])
    assert f"d{source}/0" not in names(world.nodes[target])
    world.heal()
    world.until_one(MOST_NS + 5 * SECOND)


def test_daemons_that_look_sound_and_are_not_back_off_longer_each_time() -> None:
    """Only heartbeats are lost between two of them: nothing keeps them from merging, and nothing keeps them merged."""
    world = one_view(sites=(0, 1))
    world.is_busy = False
    world.deaf.add((0, 1))
    counts = []
    for _ in range(3):
        before = world.judge.counts["views"]
        world.run_for(20 * SECOND)
        counts.append(world.judge.counts["views"] - before)
    assert counts[0] > counts[2] > 0
    assert counts[2] <= 8


def test_the_wait_doubles_up_to_a_bound_and_is_forgotten() -> None:
    backoff = Backoff(random.Random(1))
    now_ns, waits = 0, []
    for _ in range(9):
        backoff.failed(now_ns, 3)
        due_ns = backoff.deadline_ns(now_ns)
        assert backoff.mask(due_ns - 1) == 1 << 3
        assert backoff.mask(due_ns) == 0
        waits.append(due_ns - now_ns)
        now_ns = due_ns + SECOND
    for place, wait_ns in enumerate(waits):
        least_ns = min(FIRST_NS << place, MOST_NS)
        assert least_ns <= wait_ns <= least_ns + least_ns // 4
    now_ns += FORGET_NS
    backoff.failed(now_ns, 3)
    assert backoff.deadline_ns(now_ns) - now_ns < 2 * FIRST_NS
    backoff.forget(3)
    assert backoff.deadline_ns(now_ns) == NEVER


# What others send


def test_hostile_bytes_are_dropped_and_raise_nothing_else() -> None:
    """Datagrams of a real run, with bits changed and cut short, at random moments. What looks true is believed: the
    format has no signatures. So nothing is judged but that the daemons live, and come together afterwards."""
    rng = random.Random(5)
    refused = taken = 0
    for seed in range(4):
        world = World(seed, [0, 0, 1])
        world.tap = []
        for _ in range(50):
            world.run_for(15 * MS)
            if rng.random() < 0.1:
                world.crash(2)
                world.restart(2)
            for node in world.nodes:
                for datagram in rng.sample(world.tap, min(len(world.tap), 12)):
                    _, kind, _, last, _, ring, origin, _ = HEADER.unpack_from(datagram)
                    body = bytearray(datagram[HEADER_BYTES:])
                    if last or origin == node.member.id or kind in (Kind.INSTALL, Kind.ACCEPTED):
                        continue
                    for _ in range(rng.randint(1, 3)):
                        body[rng.randrange(2, len(body))] ^= 1 << rng.randrange(8)
                    size = rng.choice((len(body), len(body), rng.randrange(len(body) + 1)))
                    out = Outbox()
                    try:
                        node.membership.on_control(world.now_ns, kind, ring, origin, bytes(body[:size]), out)
                        taken += 1
                    except WireError:
                        refused += 1
                    node.finish(out)
                    node.wake()
        world.tap = None
        world.until_one(2 * MOST_NS + 20 * SECOND)
    assert refused > 200
    assert taken > 200


def test_a_configuration_with_two_daemons_of_one_name_is_refused() -> None:
    with pytest.raises(UsageError, match="same name"):
        Daemons([Daemon("a", 0, ("10.0.0.1", 1)), Daemon("a", 1, ("10.0.0.2", 1))])
    with pytest.raises(UsageError, match="numbers below 64"):
        Daemons([Daemon("a", 64, ("10.0.0.1", 1))])
    me = Member(node_id("b", 0), "b", 0, ("10.0.0.9", 1))
    daemons = Daemons([Daemon("a", 0, ("10.0.0.1", 1))])
    writer = DatagramWriter(1, me.id, DATAGRAM)
    with pytest.raises(UsageError, match="'b'"):
        ComponentsMembership(NAME, me, daemons, writer, TIMING, random.Random(1), 0)


# Judged runs


@pytest.mark.parametrize("seed", RUNS)
def test_a_random_run_keeps_all_promises_and_ends_in_one_component(seed: int) -> None:
    """`python -m tests.components.runs SEED 1` replays it."""
    draw(seed)


@pytest.mark.parametrize("seed", STEADY)
def test_cuts_that_stay_leave_components_that_last(seed: int) -> None:
    """`python -m tests.components.runs SEED 1 steady` replays it."""
    steady(seed)


def test_one_fault_at_any_datagram_of_a_merge_and_of_a_recovery_does_no_harm() -> None:
    """All cases of two daemons, some of three; `python -m tests.components.exhaust` runs them all."""
    assert check(2) > 100
    assert check(3, step=17) > 30


# Daemons with another configuration


def show_of(writer: Node, configuration: int) -> bytes:
    """The body of a SHOW of a daemon alone."""
    me = DaemonLife(writer.index, writer.life)
    return encode_hello(ComponentHello(me, True, 1, 5, me, (me,), 0, 0, configuration))


def test_a_daemon_with_another_configuration_is_counted_and_told_of_once() -> None:
    world = World(1, [0, 1])
    here, there = world.nodes
    out = Outbox()
    for _ in range(3):
        here.membership.on_control(world.now_ns, Kind.SHOW, 0, there.member.id, show_of(there, 0xABC), out)
    assert here.membership.tally["strangers"] == 3
    warnings = [note.detail for note in out.notes if note.kind == WARNING]
    assert warnings == [
        "d1 has another configuration of sites (fingerprint 0000000000000abc, here 0000000000000000) and is not let "
        "in: give all daemons the same file, and restart them"
    ]


def test_a_strange_daemon_that_nobody_here_knows_is_told_of_without_a_name() -> None:
    """Its index is that of another daemon here, or of none."""
    world = World(1, [0, 1])
    here = world.nodes[0]
    for index in (1, 700):
        me = DaemonLife(index, 3)
        body = encode_hello(ComponentHello(me, True, 1, 5, me, (me,), 0, 0, 9))
        out = Outbox()
        here.membership.on_control(world.now_ns, Kind.SHOW, 0, node_id(f"x{index}", 3), body, out)
        (warning,) = [note.detail for note in out.notes if note.kind == WARNING]
        assert warning.startswith("a daemon that this configuration of sites does not name has another")


def test_strange_daemons_beyond_a_bound_are_only_counted() -> None:
    world = World(1, [0, 1])
    here = world.nodes[0]
    out = Outbox()
    for life in range(STRANGERS + 5):
        me = DaemonLife(1, life)
        body = encode_hello(ComponentHello(me, True, 1, 5, me, (me,), 0, 0, 9))
        here.membership.on_control(world.now_ns, Kind.SHOW, 0, node_id("x", life), body, out)
    assert here.membership.tally["strangers"] == STRANGERS + 5
    assert len([note for note in out.notes if note.kind == WARNING]) == STRANGERS
