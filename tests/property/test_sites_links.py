"""Links and rings of sites (Spread section 3.2) on wires that lose, repeat and reorder, and under hostile input."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.paper.spread import TIMING, Hops, Rings, Wires, packet

from ordercast.config import MS, SECOND
from ordercast.errors import WireError
from ordercast.orderers.sites.hop import MAX_ASKED, HopLink, HopTerms
from ordercast.orderers.sites.ring import RingTerms, SiteRing, merged_aru
from ordercast.wire.sites import (
    MAX_CREDIT,
    MAX_RANGES,
    HopAck,
    SiteToken,
    decode_hop_nak,
    decode_site_token,
    encode_ranges,
    encode_site_token,
)

SETTINGS = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FAULTS_NS = 3 * SECOND  # after so long nothing is lost any more

wires = st.builds(
    Wires,
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from((0.0, 0.02, 0.1, 0.3)),
    twice=st.sampled_from((0.0, 0.1, 0.5)),
    jitter_ns=st.sampled_from((0, 2 * MS, 30 * MS)),
)
hop_terms = st.builds(
    HopTerms,
    bytes_per_s=st.sampled_from((50_000, 1_000_000, 100_000_000)),
    burst_bytes=st.sampled_from((200, 2_000, 65_536)),
    window=st.sampled_from((1, 2, 7, 64, 256)),
    ack_packets=st.sampled_from((1, 4, 32)),
    requests=st.just(60),
)
RING_TERMS = RingTerms(window=30, personal_window=10)
MOST_OPEN = RING_TERMS.most_open
small = st.integers(0, 40)
numbers = st.one_of(small, st.integers(0, 1 << 48), st.integers(MOST_OPEN - 2, 2 * MOST_OPEN + 2))


@SETTINGS
@given(wires, hop_terms, st.lists(st.tuples(st.integers(0, 1), st.integers(1, 60), st.integers(0, 300)), max_size=8))
def test_whatever_is_lost_everything_arrives_once_over_a_link(
    wire: Wires, terms: HopTerms, bursts: list[tuple[int, int, int]]
) -> None:
    hops = Hops(terms, wire)
    wire.faults_end_ns = wire.now_ns + FAULTS_NS
    sent: tuple[list[int], list[int]] = ([], [])
    for end, count, later_ms in bursts:
        first = len(sent[end])
        new = range(first, first + count)
        sent[end].extend(new)
        hops.queue(end, new)
        assert all(link.out <= terms.window for link in hops.ends)
        hops.run(wire.now_ns + later_ms * MS)
    hops.run()
    for end in (0, 1):
        assert sorted(hops.got[1 - end]) == sent[end]
        assert hops.ends[end].is_at_rest
        assert not hops.ends[end].is_dead
        assert hops.ends[end].strange == 0


@SETTINGS
@given(wires, hop_terms, st.integers(1, 150))
def test_a_link_never_sends_more_than_bucket_and_window_allow(wire: Wires, terms: HopTerms, count: int) -> None:
    hops = Hops(terms, wire)
    wire.faults_end_ns = wire.now_ns + FAULTS_NS
    start_ns = wire.now_ns
    hops.queue(0, range(count))
    hops.run()
    left = [(at_ns, size) for at_ns, end, size in hops.left if end == 0]
    total = 0
    for at_ns, size in left:
        assert total + size <= terms.burst_bytes + terms.bytes_per_s * (at_ns - start_ns) / SECOND + 1e-6
        total += size
    assert len(left) >= count


@SETTINGS
@given(
    st.integers(1, 5),
    wires,
    st.tuples(st.integers(1, 12), st.integers(0, 40)),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.booleans(), st.integers(0, 100)), max_size=8),
)
def test_whatever_is_lost_everything_arrives_once_in_a_ring(
    count: int, wire: Wires, limits: tuple[int, int], bursts: list[tuple[int, int, bool, int]]
) -> None:
    personal, more = limits
    terms = RingTerms(window=max(personal + more, count), personal_window=personal, tries=40)
    rings = Rings(count, terms, wire)
    wire.faults_end_ns = wire.now_ns + FAULTS_NS
    sent: dict[int, list[int]] = {each: [] for each in rings.ids}
    for index, packets, is_foreign, later_ms in bursts:
        daemon = rings.ids[index % count]
        new = [daemon * 100_000 + len(sent[daemon]) + at for at in range(packets)]
        sent[daemon] += new
        if is_foreign:
            rings.foreign(daemon, new)
        else:
            rings.send(daemon, new)
        rings.run(wire.now_ns + later_ms * MS)
    rings.run()
    for daemon, ring in rings.rings.items():
        others = [number for each in rings.ids if each != daemon for number in sent[each]]
        assert sorted(rings.got[daemon]) == sorted(others)
        assert ring.is_at_rest
        assert not ring.is_lost
        assert not ring.strange
    assert sum(ring.is_holding for ring in rings.rings.values()) == 1
    # Stamps are one sequence, whoever gave them.
    assert [seq for seq, _ in rings.stamps] == list(range(1, len(rings.stamps) + 1))
    assert [lts for _, lts in rings.stamps] == sorted({lts for _, lts in rings.stamps})
    assert len({ring.site_aru for ring in rings.rings.values()}) == 1
    # No rotation had more than the ring allows, and no daemon more than its limit.
    counts = [visited for _, visited, _ in rings.visits]
    assert all(sum(counts[at : at + count]) <= terms.window for at in range(len(counts)))
    assert all(each <= terms.individual(count) for each in counts)


@SETTINGS
@given(
    st.integers(2, 5),
    st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=12),
)
def test_the_lesser_of_two_tokens_is_held_by_all(count: int, rounds: list[list[int]]) -> None:
    """Section 3.2: "the highest aru value they can locally use"; nobody uses more than the slowest has."""
    local = [0] * count
    last = [0] * count
    usable = [0] * count
    value = modifier = 0
    for grown in [*rounds, [0] * 5, [0] * 5, [0] * 5]:
        for daemon in range(count):
            local[daemon] += grown[daemon]
            value, modifier = merged_aru(local[daemon], value, modifier, daemon + 1)
            usable[daemon] = max(usable[daemon], min(value, last[daemon]))
            last[daemon] = value
            assert usable[daemon] <= min(local)
    assert usable == [min(local)] * count  # and where nothing grows any more, all know it


@SETTINGS
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("packet"), numbers, numbers),
            st.tuples(st.just("ack"), numbers, numbers),
            st.tuples(st.just("nak"), numbers, st.integers(1, 70_000)),
            st.tuples(st.just("queue"), small, small),
            st.tuples(st.just("step"), st.integers(0, 500), small),
        ),
        max_size=60,
    )
)
def test_hostile_input_breaks_no_link_and_fills_no_memory(inputs: list[tuple[str, int, int]]) -> None:
    terms = HopTerms(window=8, peer_window=200)
    link = HopLink(terms, TIMING)
    now_ns = SECOND
    for what, one, other in inputs:
        if what == "packet":
            link.received(now_ns, one)
        elif what == "ack":
            link.on_ack(now_ns, HopAck(one, other, min(one, other), one, other))
        elif what == "nak":
            try:
                link.on_nak(decode_hop_nak(encode_ranges([(one, one + other)])))
            except WireError:
                continue
        elif what == "queue":
            link.queue(packet(one))
        else:
            now_ns += one * MS
            output = link.step(now_ns)
            assert len(output.missing) <= MAX_RANGES
        assert link.missing <= terms.peer_window <= MAX_ASKED
        assert link.out <= terms.window
        assert link.deadline_ns() > 0


credits_ = st.integers(-MAX_CREDIT, MAX_CREDIT)
tokens = st.builds(
    SiteToken,
    number=st.one_of(small, st.integers(0, 1 << 60)),
    link_seq=numbers,
    link_aru=numbers,
    link_modifier=st.integers(0, 4),
    site_seq=numbers,
    site_lts=st.integers(0, 200),
    site_aru=st.integers(0, 200),
    site_modifier=st.integers(0, 4),
    flow_control=st.integers(0, (1 << 32) - 1),
    quiet=st.integers(0, 65_535),
    flags=st.integers(0, 2),
    wanted=st.lists(st.tuples(numbers, small).map(lambda pair: (pair[0], sum(pair))), max_size=4).map(tuple),
    usual=credits_,
    urgent=credits_,
    owed=credits_,
    rest=st.integers(0, 65_535),
    turn=st.integers(0, 65_535),
)


@SETTINGS
@given(
    st.integers(1, 3),
    st.lists(
        st.one_of(
            st.tuples(st.just("token"), st.integers(0, 4), tokens),
            st.tuples(st.just("packet"), numbers, st.none()),
            st.tuples(st.just("wake"), st.integers(0, 4), st.none()),
            st.tuples(st.just("own"), small, st.none()),
            st.tuples(st.just("step"), st.integers(0, 500), st.none()),
        ),
        max_size=60,
    ),
)
def test_hostile_input_breaks_no_ring_and_fills_no_memory(
    count: int, inputs: list[tuple[str, int, SiteToken | None]]
) -> None:
    terms = RING_TERMS
    ring = SiteRing(1, tuple(range(1, count + 1)), terms, TIMING, 100)
    now_ns = SECOND
    for what, one, token in inputs:
        if token is not None:
            try:
                ring.on_token(now_ns, one, decode_site_token(encode_site_token(token)))
            except WireError:
                continue
        elif what == "packet":
            ring.on_packet(now_ns, one, packet(one))
        elif what == "wake":
            ring.on_wake(one, one)
        elif what == "own":
            if ring.room:
                ring.stamp()
                ring.queue_own(packet(one))
        else:
            now_ns += one * MS
            output = ring.step(now_ns)
            assert len(output.packets) <= terms.individual(count)
            assert len(output.controls) <= count + 1
        assert ring.open <= 2 * MOST_OPEN
        assert ring.waiting <= terms.personal_window
