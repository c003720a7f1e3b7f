"""Random scenarios of sites have in them what they are to show (docs/design/sites.md)."""

from __future__ import annotations

from tests.sim.site_census import census, planned

from ordercast.sim.ambush import AmbushPhase
from ordercast.sim.site_groups import RICH_FROM, WIDE_FROM, drawn_site_groups


def test_rich_scenarios_crash_daemons_in_every_phase_of_a_view_change_and_parts_meet_again() -> None:
    found, failures = census(range(RICH_FROM, RICH_FROM + 12))
    assert not failures
    assert all(found[f"crash of one that is {phase}"] for phase in AmbushPhase)
    assert found["merge of 3"], "three parts that meet at once"
    assert found["4 views at a time"]
    assert found["end with 1 views"] == found["runs"]


def test_rich_scenarios_have_joins_that_race_cuts_and_messages_to_a_hundred_groups() -> None:
    plans = [set(planned(drawn_site_groups(seed))) for seed in range(RICH_FROM, RICH_FROM + 60)]
    for what in ("join that races a cut", "message to 100 groups", "sessions", "weights that differ", "restart"):
        assert sum(what in each for each in plans) > 5, what


def test_earlier_seeds_of_sites_have_the_scenarios_that_they_always_had() -> None:
    plans = [drawn_site_groups(seed) for seed in (0, WIDE_FROM - 1, WIDE_FROM, RICH_FROM - 1)]
    assert not any(plan.ambushes for plan in plans)
    assert not any(plan.labels for plan in plans[:2])
