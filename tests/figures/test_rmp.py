"""Section 5 of the RMP paper at small size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.figures.measured import quick_reports, quick_rmp

from ordercast.figures.report import ClaimStatus
from ordercast.figures.rmp import QUICK, data_packets, rmp_figures
from ordercast.sim.network import ETHERNET, IDEAL


def test_multicast_breaks_the_limit_of_the_wire_with_the_second_destination() -> None:
    """RMP section 5, figures 5.1 and 5.2."""
    found = quick_rmp()
    assert found.violations == 0
    assert [(point.sources, point.members) for point in found.aggregate] == [(1, 2), (1, 3)]
    assert found.aggregate[1].aggregate_of_wire > 2
    assert [point.destinations for point in found.single] == [1, 2]
    first, second = (point.single_kb_s for point in found.single)
    assert second > found.wire_kb_s / 2
    assert second == pytest.approx(first, rel=0.05)


def test_latency_stays_below_that_of_two_hops() -> None:
    """RMP section 5, figure 5.3."""
    assert all(1 < point.mean_ms < 2 for point in quick_rmp().latency)


def test_a_quiet_ring_takes_about_three_datagrams_for_a_packet() -> None:
    """RMP section 5: up to 3 multicasts at low load, and our heartbeats."""
    (cost,) = quick_rmp().costs
    assert 2.5 < cost.per_data < 3.5
    assert sum(cost.by_kind.values()) == cost.datagrams


def test_the_report_keeps_to_what_the_paper_says() -> None:
    """The abstract gives 4.0 ms, and no size of the message."""
    report = quick_reports()["rmp"]
    latency = next(claim for claim in report.claims if claim.what == "latency to one destination")
    assert (latency.paper, latency.finding) == ("4.0 ms", ClaimStatus.DIFFERS)
    assert latency.why


def test_throughput_needs_a_wire_to_be_compared_with() -> None:
    assert ETHERNET.bits_per_s
    with pytest.raises(ValueError, match="has no bandwidth"):
        rmp_figures(replace(QUICK, network=IDEAL))


def test_a_block_takes_so_many_datagrams() -> None:
    assert [data_packets(size) for size in (0, 1_000, 2_000, 4_000)] == [1, 1, 2, 3]
