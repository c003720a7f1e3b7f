"""The search itself, on toy engines whose behaviour can be counted by hand."""

from __future__ import annotations

import pytest
from tests.explore.toys import SCENARIO, HastyEngines, toy_exploration, toy_scenario

from ordercast.errors import UsageError
from ordercast.explore.deviations import parse_path, show_path
from ordercast.explore.path import Exploration, run_path
from ordercast.explore.report import as_json, replay_command, summary
from ordercast.explore.scenarios import SCENARIOS
from ordercast.explore.search import SearchResult, explore
from ordercast.sim.toy import ToyEngines


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, SCENARIO, toy_scenario())


def test_the_default_schedule_comes_to_rest() -> None:
    result = explore(toy_exploration(3, "lose"), 0, engines=ToyEngines("abc"))
    assert result.held
    assert result.is_complete
    assert result.paths == [1]


def test_every_way_to_fail_once_is_tried_once() -> None:
    """Three instants at which a message reaches b and c: it comes late at one of them, to one of the two."""
    result = explore(toy_exploration(3, "late"), 1, engines=ToyEngines("abc"))
    assert result.held, summary(result, ToyEngines("abc"))
    assert result.paths == [1, 6]
    # Of each path: the state that it makes, the instants that are still to come, and that of the late message.
    assert result.states == 3 + 2 * (4 + 3 + 2)


def test_a_lost_message_is_found_where_nothing_repairs_it() -> None:
    result = explore(toy_exploration(2, "lose"), 1, engines=ToyEngines("ab"))
    assert not result.held
    assert show_path(result.failures[0].job.path) in ("0:lose:a>b", "1:lose:a>b", "2:lose:a>b")
    assert result.failures[0].findings[0].kind == "stuck"


def test_a_planted_bug_is_found_with_as_few_deviations_as_it_takes() -> None:
    """Messages that overtake each other are delivered in another order."""
    result = explore(toy_exploration(3, "pause", "late"), 3, engines=HastyEngines("abc"))
    failure = result.failures[0]
    assert failure.findings[0].kind == "order"
    assert len(failure.job.path) == 1
    assert failure.job.path[0].kind == "late", "a pause puts off everything, and changes no order"
    lines = summary(result, HastyEngines("abc"))
    assert any(line.startswith("replay: ordercast explore") for line in lines)
    assert any("!! order" in line for line in lines)


def test_a_replayed_path_gives_the_same_findings() -> None:
    what = toy_exploration(3, "late")
    found = explore(what, 1, engines=HastyEngines("abc")).failures[0]
    again = run_path(what, found.job.variant, parse_path(show_path(found.job.path)), engines=HastyEngines("abc"))
    assert again.findings == found.findings


def test_states_that_were_seen_are_not_explored_again() -> None:
    """A link that is cut for one datagram and then mended is the loss of that datagram; mended at once it is nothing.

    Three paths cut and mend at once. Two mend after one datagram. Two lose one and cut the link for the next, as if it
    had been cut before. One of two paths without the first two messages is enough.
    """
    what = toy_exploration(2, "lose", "link")
    result = explore(what, 2, engines=ToyEngines("ab"), keep_going=True)
    assert result.is_complete
    assert result.paths == [1, 6, 12]
    assert result.cut == 3 + 2 + 2 + 1
    assert run_path(what, 0, parse_path("0:lose:a>b"), engines=ToyEngines("ab")).points[-1].key == (
        run_path(what, 0, parse_path("0:link:a>b 1:heal"), engines=ToyEngines("ab")).points[-1].key
    )


def test_it_goes_on_after_a_failure_if_asked() -> None:
    result = explore(toy_exploration(2, "lose"), 1, engines=ToyEngines("ab"), keep_going=True)
    assert result.is_complete
    assert result.failed == {"stuck": 3}
    assert len(result.failures) == 1, "the first of each kind"


def test_findings_that_do_not_count_do_not_end_a_path() -> None:
    what = toy_exploration(2, "lose")._replace(only=("split",))
    assert explore(what, 1, engines=ToyEngines("ab")).held


def test_time_ends_a_search_and_is_told() -> None:
    result = explore(toy_exploration(3, "late"), 3, seconds=0.0, engines=ToyEngines("abc"))
    assert not result.is_complete
    assert sum(result.paths) == 1
    assert "time ran out" in summary(result)[-1]


LIVENESS = ("stuck", "needless", "livelock", "exception")


def real(orderer: str, scenario: str, members: int, *families: str) -> Exploration:
    newcomers = SCENARIOS[scenario].newcomers
    names = "abcde"
    return Exploration(scenario, orderer, names[:members], names[members : members + newcomers], families, 12, 1)


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
@pytest.mark.parametrize("scenario", sorted(set(SCENARIOS) - {"lock"}))
def test_every_scenario_comes_to_rest_by_itself(orderer: str, scenario: str) -> None:
    what = real(orderer, scenario, SCENARIOS[scenario].members)._replace(only=LIVENESS)
    result = explore(what, 0)
    assert result.held, "\n".join(summary(result))
    assert result.is_complete


def test_locks_are_for_the_token() -> None:
    assert explore(real("token", "lock", 3), 0).held
    with pytest.raises(UsageError, match="for the orderer token"):
        explore(real("sequencer", "lock", 3), 0)


def facts(result: SearchResult) -> dict[str, object]:
    return {key: value for key, value in as_json(result).items() if key != "seconds"}


def test_the_result_does_not_depend_on_how_many_processes_work() -> None:
    what = real("sequencer", "leave", 2, "cut", "lose", "crash")
    alone = explore(what, 1, keep_going=True)
    assert sum(alone.paths) > 20
    assert facts(explore(what, 1, jobs=2, keep_going=True)) == facts(alone)


def test_other_engines_do_not_travel_to_processes() -> None:
    with pytest.raises(UsageError, match="one job"):
        explore(toy_exploration(2), 0, jobs=2, engines=ToyEngines("ab"))


def test_a_path_that_does_not_fit_the_run_is_refused() -> None:
    with pytest.raises(UsageError, match="over before 900:heal"):
        run_path(toy_exploration(2), 0, parse_path("900:heal"), engines=ToyEngines("ab"))
    with pytest.raises(UsageError, match="no node 'x'"):
        run_path(toy_exploration(2), 0, parse_path("0:crash:x"), engines=ToyEngines("ab"))
    with pytest.raises(UsageError, match="no act"):
        run_path(toy_exploration(2), 0, parse_path("0:act:dance-a"), engines=ToyEngines("ab"))


def test_the_command_that_replays_a_path_says_all_of_it() -> None:
    what = toy_exploration(2, "lose")._replace(min_members=2)
    job = explore(what, 1, engines=ToyEngines("ab")).failures[0].job
    text = replay_command(what, job)
    assert text.startswith(
        "ordercast explore --orderer sequencer --scenario toy --members 2 --min-members 2 --variant 0"
    )
    assert ":lose:a>b" in text
