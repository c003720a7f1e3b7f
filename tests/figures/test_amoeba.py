"""Section 5 of the Amoeba paper at small size: counts and virtual time, so the numbers are exact."""

from __future__ import annotations

import math

import pytest
from tests.figures.measured import quick_amoeba, quick_reports

from ordercast.config import MS, SECOND
from ordercast.figures.broadcasts import PAPER_TIMING, orderer_cost, station_config
from ordercast.figures.queueing import PacketSizes, capacity_per_s, members_at_saturation, service_ns, wait_ns
from ordercast.figures.report import ClaimStatus
from ordercast.figures.saturation import packet_sizes, under_load
from ordercast.figures.stations import StationGroup
from ordercast.service import AGREED
from ordercast.sim.network import ETHERNET_10


def test_a_broadcast_of_four_members_takes_less_than_two_and_a_half_milliseconds() -> None:
    """Section 5; with less than half the processor time for a packet it takes the tuned prototype's 1.4 ms."""
    found = quick_amoeba()
    assert 2.3 < found.singles[0].back_ms < 2.5
    assert found.tuned.back_ms == pytest.approx(1.4, abs=0.05)


def test_a_broadcast_interrupts_n_machines_and_theirs_at_least_twice_as_many() -> None:
    """Section 5: n against 2(n - 1)."""
    found = quick_amoeba()
    assert [cost.interrupts for cost in found.singles] == [4, 16]
    assert [cost.interrupts for cost in found.described_tokens] == [2 * 3 + 1, 2 * 15 + 1]


def test_a_broadcast_is_two_messages_at_any_size() -> None:
    """Section 5, figure 5."""
    assert [cost.by_kind for cost in quick_amoeba().singles] == [{"ordered": 1, "request": 1}] * 2


def test_waiting_for_every_acknowledgement_costs_more_the_more_members_there_are() -> None:
    """Section 5: the protocol of Navaratnam, Chanson and Neufeld."""
    (ours, theirs), (ours_16, theirs_16) = quick_amoeba().capacities
    assert 3 < ours.per_s / theirs < 5
    assert ours_16.per_s / theirs_16 > 8


def test_a_full_history_costs_n_by_h_more() -> None:
    """Section 5: n/H + 2, and 3 where H = n."""
    for one in quick_amoeba().histories:
        assert one.datagrams == pytest.approx(one.paper, rel=0.05), one


def test_a_resilience_degree_costs_r_messages_and_time() -> None:
    """Section 5: 2 + r; the delay increases."""
    degrees = quick_amoeba().degrees
    assert [cost.datagrams for _, cost, _ in degrees] == [2, 3, 4]
    delays = [cost.back_ms for _, cost, _ in degrees]
    assert delays == sorted(delays)


def test_the_sequencer_saturates_where_the_queue_of_the_model_does() -> None:
    """Section 5: M/D/1 with S of about 1.05 ms; 400 members at 2.3 broadcasts a second each."""
    _, _, capacity = quick_amoeba().degrees[0]
    assert capacity.service_ms == pytest.approx(1.05, abs=0.03)
    assert capacity.per_s == pytest.approx(capacity.model_per_s, rel=0.05)
    assert 390 < capacity.per_s / 2.3 < 430


def test_the_delay_under_load_is_that_of_the_model() -> None:
    """Section 5, well below saturation; with r > 0 it is longer at the same load."""
    found = quick_amoeba()
    free, *resilient = found.loads
    assert free.mean_ms == pytest.approx(free.model_ms, rel=0.1)
    assert [point.mean_ms for point in found.loads] == sorted(point.mean_ms for point in found.loads)
    assert all(point.utilization > free.utilization for point in resilient)
    assert found.crowds[0].mean_ms == pytest.approx(found.crowds[0].model_ms, rel=0.1)


def test_above_its_capacity_the_sequencer_delivers_no_more() -> None:
    """Section 5: it is a bottleneck then, and delays grow with the length of the run."""
    point = under_load(8, 1_300.0, ETHERNET_10, seconds=0.6)
    assert point.utilization > 1.3
    assert point.delivered_per_s < 1_000
    assert point.mean_ms > 30
    assert point.violations == 0


def test_figure_5_has_all_protocols_of_the_paper() -> None:
    rows = {(row.protocol, row.how): row.costs for row in quick_amoeba().protocols}
    assert len({name for name, _ in rows}) == 8
    counts = {key: [cost.datagrams for cost in costs] for key, costs in rows.items()}
    assert counts["Amoeba", "orderer `sequencer`"] == [2, 2, 2]
    assert counts["Birman, Joseph", "orderer `timestamp`, ABCAST"] == [5, 17, 5]
    assert counts["Navaratnam et al.", "as described"] == [5, 17, 5]
    assert counts["Tseung", "as described, two more machines"] == [3, 3, 3]
    assert rows["Amoeba", "orderer `sequencer`"][1].hops == 2
    assert rows["Birman, Joseph", "orderer `timestamp`, ABCAST"][1].hops == 3


def test_the_report_says_what_is_fitted_and_what_is_not() -> None:
    report = quick_reports()["amoeba"]
    assert report.held
    verdicts = {claim.what: claim.finding for claim in report.claims}
    assert verdicts["delay of a broadcast, 4 members"] is ClaimStatus.FITTED
    assert verdicts["interrupts of one broadcast, n members"] is ClaimStatus.REPRODUCED
    assert verdicts["messages where one member sends without pause, history of H"] is ClaimStatus.REPRODUCED
    for claim in report.claims:
        assert claim.why or claim.finding is ClaimStatus.REPRODUCED, f"{claim.what}: why?"


# The model and the stations. ------------------------------------------------------------------------------------------


def test_the_queue_has_the_wait_of_m_d_1() -> None:
    service = 1 * MS
    assert wait_ns(500, service) == pytest.approx(0.5 * service / (2 * 0.5))
    assert wait_ns(1_000, service) == math.inf
    assert capacity_per_s(service) == 1_000
    assert members_at_saturation(2.5, service) == 400


def test_the_service_time_is_what_the_processor_is_charged() -> None:
    sizes, idle_ms = packet_sizes(ETHERNET_10, 0)
    assert sizes == PacketSizes(88, 116)
    assert service_ns(ETHERNET_10, sizes) == 1_050_000 + 100 * (88 + 116)
    assert 2.4 < idle_ms < 2.5


def test_stations_that_deliver_in_another_order_are_noticed() -> None:
    group = StationGroup(3, ETHERNET_10, station_config(), PAPER_TIMING, "judge")
    for index in (1, 2):
        group.keep_sending(index, 3, AGREED)
    group.world.run_until(SECOND)
    assert len(group.stations[0].delivered) == 6
    assert group.disorder() == 0
    swapped = group.stations[2].delivered
    swapped[0], swapped[1] = swapped[1], swapped[0]
    assert group.disorder() == 1


@pytest.mark.parametrize("orderer", ["sequencer", "token", "timestamp"])
def test_every_orderer_works_as_a_station(orderer: str) -> None:
    cost = orderer_cost(orderer, 3, ETHERNET_10)
    assert cost.violations == 0
    assert cost.datagrams >= 2
