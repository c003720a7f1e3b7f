"""The claim of the TOMPA paper at small size: reachable, and not reproduced in general."""

from __future__ import annotations

from tests.figures.measured import quick_reports, quick_tompa

from ordercast.figures.report import ClaimStatus
from ordercast.figures.tompa import Condition


def saved(condition: Condition) -> list[float]:
    return [reduction.latency for _, _, reduction in quick_tompa().rows(condition)]


def test_rare_long_delays_give_more_than_even_ones() -> None:
    """TOMPA section 4."""
    found = quick_tompa()
    assert found.violations == 0
    rare, exponential, uniform = found.plan.conditions
    assert min(saved(rare)) > 20
    assert max(saved(exponential)) < 25
    assert max(saved(uniform)) < 10


def test_no_more_is_saved_than_t2() -> None:
    """TOMPA section 2.3: anticipation shortens the wait after the decision; the rest is noise of single runs."""
    found = quick_tompa()
    for condition in found.plan.conditions:
        for _, plain, reduction in found.rows(condition):
            assert reduction.latency <= 100 * plain.t2.mean_us / plain.latency.mean_us + 5


def test_the_report_says_where_the_claim_is_not_reproduced() -> None:
    report = quick_reports()["tompa"]
    general = [claim for claim in report.claims if "exponential" in claim.what or "uniform" in claim.what]
    assert len(general) == 2
    for claim in general:
        assert claim.finding is ClaimStatus.DIFFERS
        assert "not reproduced in general" in claim.why
    assert report.claims[0].finding in (ClaimStatus.FITTED, ClaimStatus.PARTLY)
    assert "searched for" in report.claims[0].why
