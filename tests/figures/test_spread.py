"""Section 4 of the Spread paper at small size: hop and ring, misrouting, the LAN beside a slow link, and pruning."""

from __future__ import annotations

import pytest
from tests.figures.measured import quick_spread

from ordercast.config import MS, SECOND
from ordercast.errors import UsageError
from ordercast.figures.report import ClaimStatus
from ordercast.figures.site_lab import Sending, SiteLab, WanLine, hops, line_of, one_ring
from ordercast.figures.spread import (
    HOP_WINDOW,
    JHU,
    LAN_GROUPS,
    LAN_PLACES,
    LOSS,
    QUICK,
    RING_PACKETS,
    RUTGERS,
    SIZE,
    SLOW_LINE,
    THREE,
    TWO,
    UCSB,
    USE,
    lines_between,
    places_of,
)
from ordercast.figures.spread_report import PAPER_HOP, PAPER_RING, spread_report


def test_hop_and_ring_have_the_papers_rates_at_one_point() -> None:
    """Spread section 4: 4.7 times with three sites, 5.3 times with two. Short runs are a little slower."""
    found = quick_spread()
    assert found.violations == 0
    assert [one.sites for one in found.gains] == [TWO, THREE]
    for one in found.gains:
        assert (one.loss, one.packets) == (LOSS, RING_PACKETS)
        assert one.hop == pytest.approx(PAPER_HOP[one.sites], rel=0.05)
        assert one.ring == pytest.approx(PAPER_RING[one.sites], rel=0.05)
        assert one.times == pytest.approx(PAPER_HOP[one.sites] / PAPER_RING[one.sites], rel=0.08)


def test_a_larger_window_gives_the_ring_most_of_it_back() -> None:
    fitted, larger = quick_spread().grid
    assert larger.packets > fitted.packets
    assert larger.times < fitted.times / 2


def test_misrouting_through_ucsb_costs_what_the_paper_says() -> None:
    """Spread section 4: a 20-50 % decrease."""
    (detour,) = quick_spread().detours
    assert 20 <= detour.less <= 50


def test_the_lan_keeps_its_rate_while_a_slow_link_is_full() -> None:
    """Spread section 4: the local area network and the wide area links can support different transfer rates."""
    alone, beside = quick_spread().lans
    assert (alone.state, beside.state) == ("none", "busy")
    assert beside.local == pytest.approx(alone.local, rel=0.05)
    assert beside.wide > 0
    assert beside.local > 50 * beside.wide


def test_the_rate_of_a_sender_counts_from_its_first_pass_to_its_last() -> None:
    """What the last pass sends is not counted: it has had no time yet."""
    sending = Sending(100)
    for second, sent in enumerate((100, 160, 160, 220, 280, 280)):
        sending.note(second * SECOND, sent)
    assert sending.per_s == 120 / 3
    once = Sending()
    once.note(SECOND, 60)
    assert (once.per_s, Sending().per_s) == (0, 0)


def test_a_link_without_interested_receivers_carries_control_only() -> None:
    """Spread sections 3.2 and 4: pruning."""
    (pruned,) = quick_spread().prunes
    assert pruned.members == TWO
    idle, busy = pruned.pipes[JHU, RUTGERS], pruned.pipes[JHU, UCSB]
    assert busy.data > 700
    assert idle.data == idle.data_bytes == 0
    assert idle.others["skip"] > 0
    assert idle.other_bytes < busy.data_bytes / 8
    # It goes at the rate of the one line that it needs.
    assert pruned.rate == pytest.approx(PAPER_HOP[TWO], rel=0.08)
    # And no tree has the third line: nothing but signs of life of daemons that are not linked could be on it.
    assert not pruned.pipes[UCSB, RUTGERS].others


def test_a_token_rests_while_a_slow_site_is_waited_for() -> None:
    """A LAN that has more unstable than it may: its token would go around for nothing, some 20,000 times a second."""
    lines = {("east", "west"): SLOW_LINE}
    config = hops(LAN_PLACES, lines, window=HOP_WINDOW, use=USE)
    lab = SiteLab(LAN_PLACES, lines, config, "rests", groups=LAN_GROUPS)
    tokens = lab.world.network.counters.sent_by_kind
    before = tokens["site_token"]
    moved = lab.transfer("e3", 4_500, SIZE)
    assert moved.ns > 2 * SLOW_LINE.latency_ms * MS
    assert tokens["site_token"] - before < 3_000
    lab.rest()
    assert lab.violations() == 0


def test_the_report_says_what_was_chosen() -> None:
    report = spread_report(quick_spread())
    rates = [claim for claim in report.claims if claim.what.startswith(("throughput", "gain"))]
    assert len(rates) == 4
    assert {claim.finding for claim in rates} == {ClaimStatus.FITTED}
    assert all("chosen" in claim.why for claim in rates)
    assert f"a loss of {LOSS:.0%} and {RING_PACKETS} packets" in rates[1].why


def test_the_ring_is_one_site_of_all_daemons() -> None:
    """Spread section 4: the production version, a ring with direct point-to-point dissemination."""
    config = one_ring(places_of(THREE), 5)
    (site,) = config.sites
    assert (site.ring_window, site.personal_window, site.multicast) == (15, 5, None)
    assert [daemon.site for daemon in config.daemons] == [site.name] * 3


def test_trees_avoid_a_detour() -> None:
    lines = lines_between(LOSS)
    config = hops(places_of(THREE), lines, window=8, detours=[(UCSB, RUTGERS)])
    assert config.weight(UCSB, RUTGERS) > config.weight(UCSB, JHU) + config.weight(JHU, RUTGERS)
    assert config.link(RUTGERS, JHU).bits_per_s == line_of(lines, JHU, RUTGERS).bits_per_s


def test_a_line_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="probability"):
        WanLine(1.0, 1_000, loss=2.0).pipe()


def test_quick_points_are_points_of_the_full_plan() -> None:
    full = type(QUICK)()
    for name in ("rates", "losses", "windows", "grids", "detours", "lans", "states", "prunes"):
        assert set(getattr(QUICK, name)) <= set(getattr(full, name)), name
