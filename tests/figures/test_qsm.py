"""The QSM paper's evaluation at small size: regions of two to ten nodes, for seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.figures.measured import quick_qsm, quick_reports

from ordercast.config import SECOND
from ordercast.errors import UsageError
from ordercast.figures import qsm
from ordercast.figures.qsm import QsmFigures, QsmPlan, keep, load, qsm_figures
from ordercast.figures.qsm_pictures import smoothed
from ordercast.figures.qsm_report import qsm_report
from ordercast.figures.region_lab import REPAIRS, RegionFound, RegionLab, RegionRun, measure
from ordercast.figures.report import ClaimStatus

SHORT = RegionRun(5, 10, 3, first_rate=4_000.0)
QUIET = replace(SHORT, hiccups=0.0)


def test_a_small_region_sends_what_its_machine_can_and_repairs_in_some_rounds() -> None:
    """Figures 9 and 19: 9,850 packets a second; 2.5 rounds."""
    found = quick_qsm()
    assert found.violations == 0
    for each in found.found.values():
        assert 9_000 < each.rate < 10_500
        late_s, share = each.repaired_s
        assert 1.0 < late_s < 5.0
        assert 0.001 < share < 0.05


def test_two_nodes_acknowledge_within_about_a_round() -> None:
    """Figure 20: slightly over one round at small sizes; a token starts each second, half a second later on average."""
    found = quick_qsm()
    assert 0.4 < found.found[qsm.POINTS.scale(2)].acknowledged_s < 1.2


def test_the_report_says_what_was_not_measured() -> None:
    report = quick_reports()["qsm"]
    assert report.held
    verdicts = {claim.what: claim.finding for claim in report.claims}
    assert verdicts["rate over the number of groups"] is ClaimStatus.NOT_MEASURED
    assert len(report.claims) == 13
    assert [picture.name for picture in report.pictures] == ["qsm-scale", "qsm-recovery", "qsm-overhead", "qsm-time"]


def test_a_message_to_several_regions_is_a_datagram_for_each() -> None:
    """Figure 14."""
    one, three = measure(QUIET), measure(replace(QUIET, nodes=6, regions=3))
    assert three.packets == [3 * rate for rate in three.rates]
    assert one.packets == one.rates
    assert (one.violations, three.violations) == (0, 0)


def test_underlays_of_their_own_cost_a_token_each() -> None:
    """Figure 1: what has one underlay has the control of one."""
    shared, own = measure(replace(QUIET, groups=8)), measure(replace(QUIET, groups=8, underlays=8))
    assert own.control["token"] >= 7 * shared.control["token"]
    assert (shared.violations, own.violations) == (0, 0)


def test_control_is_counted_at_full_size() -> None:
    """Figure 1: a datagram that stands for twenty counts for twenty where it carries a block, and a token for one."""
    full = measure(replace(QUIET, stands_for=1, nodes=2, seconds=5))
    fewer = measure(replace(QUIET, nodes=2, seconds=5))
    assert abs(fewer.control["token"] - full.control["token"]) <= 2
    assert fewer.control_share == pytest.approx(full.control_share, rel=0.2)
    repaired = measure(replace(SHORT, hiccups=1.0, nodes=2, seconds=5))
    assert repaired.control["push"] % 20 == 0
    assert 0 < repaired.share(*REPAIRS) <= 1


def test_a_claim_needs_its_own_runs_and_not_all_of_its_figure() -> None:
    """Figure 1 has ours and a baseline."""
    plan = QsmPlan(shared=(1, 2), middle=2, length=0.05)
    ours = {plan.grouped(groups): RegionFound([100.0], [100.0], {}, 0.0) for groups in plan.shared}
    verdicts = {claim.what: claim.finding for claim in qsm_report(QsmFigures(plan, found=ours)).claims}
    assert verdicts["rate over the number of groups"] is ClaimStatus.REPRODUCED
    assert verdicts["rate with a protocol for each group"] is ClaimStatus.NOT_MEASURED


def test_groups_cost_a_region_nothing() -> None:
    """Figure 1: one lane, whatever the number of groups."""
    one, many = measure(SHORT), measure(replace(SHORT, groups=500))
    assert many.control == one.control
    assert many.rates == one.rates


def test_all_senders_are_received_by_all() -> None:
    """Figure 16."""
    found = measure(replace(QUIET, senders=3))
    assert found.violations == 0
    assert found.rate > 3_000


def test_the_same_leaves_a_region_whether_or_not_hiccups_end_with_the_sending() -> None:
    """A region of 1,000 could not repair what it lacks at the end among new hiccups; the rate is measured before."""
    run = replace(SHORT, hiccups=0.3, seconds=5)
    disturbed, calm = measure(run), measure(replace(run, calms=True))
    assert calm.rates == disturbed.rates
    assert calm.violations == 0
    assert [each.calms for each in qsm.FULL.runs(9)] == [False] * 7 + [True]


def test_a_member_that_does_not_get_everything_is_a_violation() -> None:
    lab = RegionLab(replace(QUIET, seconds=2))
    lab.world.run_until(SECOND)
    lab.world.crash("n2")
    found = lab.measure()
    assert found.violations == 1
    assert "n2" in found.lacking


def test_hiccups_of_one_datagram_for_twenty_lose_bursts_at_full_rate() -> None:
    """The same share is lost; what is missing is in a twentieth of the gaps."""
    run = replace(SHORT, nodes=2, hiccups=1.0, stands_for=1, seconds=5, first_rate=500.0)
    found = measure(run)
    assert found.repaired_s[1] > 0.2


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    plan = QsmPlan(sizes=(2,), beyond=(), length=0.02, warm_s=2)
    told: list[str] = []
    first = qsm_figures(plan, (19,), progress=told.append, kept=path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"run": {"nodes"')  # it was stopped here
    again = qsm_figures(plan, (19, 20), progress=told.append, kept=path)
    assert again.found == first.found
    assert len(told) == 1
    assert told[0].startswith("1 of 1 runs: 2 nodes")
    assert told[0].endswith("s of a processor")


def test_runs_of_another_version_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"run": {"nodes": 2}, "found": {}}\n', encoding="utf-8")
    assert load(path) == {}
    run, found = RegionRun(2, 1), RegionFound([1.0], [1.0], {"token": 1}, 0.5, [0.1, 0.2])
    keep(path, run, found)
    assert load(path) == {run: found}
    assert load(tmp_path / "nothing") == {}


def test_only_the_figures_that_were_asked_for_have_rows() -> None:
    plan = QsmPlan(sizes=(2,), senders=(1, 2), middle=5, beyond=(), length=0.03, warm_s=2)
    report = qsm_report(qsm_figures(plan, (16,)))
    rows = {table.title: len(table.rows) for table in report.tables}
    assert rows["Figure 16: senders"] == 2
    assert sum(rows.values()) == 2


def test_every_figure_has_its_runs_and_there_is_no_other() -> None:
    for figure in qsm.FIGURES:
        assert qsm.FULL.runs(figure)
        assert qsm.QUICK.runs(figure)
    with pytest.raises(UsageError, match="has no figure 8"):
        qsm.FULL.runs(8)


def test_figures_share_runs() -> None:
    """One region of 25 nodes is in figures 9, 13 and 15."""
    shared = set(qsm.FULL.runs(9)) & set(qsm.FULL.runs(13)) & set(qsm.FULL.runs(15))
    assert shared == {qsm.FULL.scale(25)}


def test_rates_are_smoothed_over_twenty_seconds() -> None:
    """Figure 17."""
    assert smoothed([0.0] * 20 + [20.0] * 2) == [0.0, 1.0, 2.0]
    assert smoothed([1.0, 2.0]) == [1.0, 2.0]
