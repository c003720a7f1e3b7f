"""Real engines of sites against the model: random runs conform, and planted bugs do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.model.evs.conformance import Ended, Follower, check_run, check_trace
from tests.model.evs.recording import Accepted, Began, Delivered, Fact, Installed, Promised, recorded
from tests.sim.planted import BUGS, UNSEEN
from tests.sim.sites_bug import FIRST_DENSE

from ordercast.sim.many_run import run_groups
from ordercast.sim.site_groups import drawn_site_groups
from ordercast.trace.schema import Row
from ordercast.view import Reason, View, id_of
from ordercast.wire.cuts import Ballot, Lineage, Remainder, Result, ViewId

CAUGHT: Final = (
    ("S is of the sites that are present", FIRST_DENSE + 2, "stable"),
    ("the signal does not stand before SAFE blocks", FIRST_DENSE + 5, "signal"),
    ("beyond the horizon nothing is delivered", FIRST_DENSE, "remainder"),
    ("the next view begins above what was delivered", 5, "first LTS"),
    ("the counter is that of the coordinator's view plus one", 1, "counter"),
    ("all members of a view have come together", 1, "came_with"),
    ("rosters are those of the lineage though the class is in sync", 1, "rosters"),
    ("the signal comes behind the whole remainder", FIRST_DENSE + 2, "trace"),
)
"""Some bugs, a seed that shows each, and the check that objects."""
SEEDS: Final = (*range(20, 35), *range(FIRST_DENSE, FIRST_DENSE + 15))
"""Here; `python -m tests.model.evs.conformance` runs hundreds."""
LONG: Final = FIRST_DENSE + 2  # a run in which several classes leave views, and some have blocks behind their signal


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_the_engine_is_one_of_the_model(seed: int) -> None:
    report = check_run(seed)
    assert not report.deviations, f"seed {seed}: {'; '.join(map(str, report.deviations[:5]))}"


def test_the_runs_have_what_is_checked() -> None:
    """Otherwise nothing was shown."""
    report = check_run(LONG)
    assert report.views > 1
    assert report.classes > report.views
    assert report.signals > 0


@pytest.mark.parametrize(("name", "seed", "check"), CAUGHT, ids=[f"{check}: {name}" for name, _, check in CAUGHT])
def test_a_planted_bug_does_not_conform(name: str, seed: int, check: str) -> None:
    bug = next(bug for bug in (*BUGS, *UNSEEN) if bug.name == name)
    assert check in {each.check for each in check_run(seed, bug).deviations}


# ---- facts that were spoilt by hand


@pytest.fixture(scope="module")
def sound() -> tuple[Fact, ...]:
    facts: list[Fact] = []

    @contextmanager
    def patch() -> Iterator[None]:
        with recorded() as found:
            yield
        facts.extend(found)

    run_groups(drawn_site_groups(LONG), patch)
    return tuple(facts)


def checks(facts: Sequence[Fact]) -> set[str]:
    return {each.check for each in Follower().follow(facts).deviations}


def spoilt(facts: Sequence[Fact], is_it: Callable[[Fact], bool], other: Callable[[Any], Fact | None]) -> list[Fact]:
    """The last fact of a kind becomes another, or is gone."""
    at = max(at for at, fact in enumerate(facts) if is_it(fact))
    new = other(facts[at])
    return [*facts[:at], *([new] if new is not None else []), *facts[at + 1 :]]


def with_install(**values: Any) -> Callable[[Installed], Installed]:
    return lambda fact: fact._replace(install=fact.install._replace(**values))


def with_view(**values: Any) -> Callable[[Installed], Installed]:
    return lambda fact: fact._replace(install=fact.install._replace(view=replace(fact.install.view, **values)))


def with_result(change: Callable[[Result], Result]) -> Callable[[Installed], Installed]:
    def spoil(fact: Installed) -> Installed:
        assert fact.install.result is not None
        return fact._replace(install=fact.install._replace(result=change(fact.install.result)))

    return spoil


def with_cut(**values: Any) -> Callable[[Promised], Promised]:
    return lambda fact: fact._replace(shown=fact.shown._replace(cut=fact.shown.cut._replace(**values)))


def later_signal(result: Result) -> Result:
    before, after = result.remainder
    return result._replace(remainder=Remainder((*before, *after[:1]), after[1:]))


def is_promised(fact: Fact) -> bool:
    return isinstance(fact, Promised)


def is_accepted(fact: Fact) -> bool:
    return isinstance(fact, Accepted)


def is_installed(fact: Fact) -> bool:
    return isinstance(fact, Installed)


def is_signalled(fact: Fact) -> bool:
    return isinstance(fact, Installed) and fact.install.result is not None and bool(fact.install.result.remainder.after)


def is_settled(fact: Fact) -> bool:
    return isinstance(fact, Began) and fact.daemon > 0


SPOILT: Final[tuple[tuple[str, Callable[[Fact], bool], Callable[[Any], Fact | None]], ...]] = (
    ("promise", is_promised, lambda fact: fact._replace(shown=fact.shown._replace(ballot=Ballot(0, 0)))),
    ("cut", is_promised, with_cut(view=ViewId(1, 1))),
    ("bound", is_accepted, lambda fact: fact._replace(bound=None)),
    ("held", is_accepted, lambda fact: fact._replace(lacking=1)),
    ("commit", is_accepted, lambda _: None),
    ("round", is_promised, lambda fact: fact._replace(shown=fact.shown._replace(ballot=Ballot(1 << 60, 0)))),
    ("lineage", is_promised, with_cut(lineage=Lineage(ViewId(1, 1), None))),
    ("synced", is_settled, lambda fact: fact._replace(was_synced=not fact.was_synced)),
    ("class", is_installed, with_install(came_from=())),
    ("horizon", is_installed, with_result(lambda result: result._replace(horizon=result.horizon + 1))),
    ("stable", is_installed, with_result(lambda result: result._replace(stable=result.stable + 1))),
    ("remainder", is_signalled, with_result(lambda result: result._replace(remainder=Remainder((), ())))),
    ("signal", is_signalled, with_result(later_signal)),
    ("came_with", is_installed, with_view(came_with=())),
    ("first LTS", is_installed, with_install(first_lts=0)),
    ("counter", is_installed, with_view(counter=0)),
    ("rosters", is_installed, with_install(roster_groups=())),
)


@pytest.mark.parametrize(("check", "is_it", "other"), SPOILT, ids=[check for check, _, _ in SPOILT])
def test_a_deviation_is_noticed(
    sound: tuple[Fact, ...], check: str, is_it: Callable[[Fact], bool], other: Callable[[Any], Fact | None]
) -> None:
    assert check in checks(spoilt(sound, is_it, other))


def test_a_clock_below_what_was_accepted_is_noticed(sound: tuple[Fact, ...]) -> None:
    at, fact = next((at, fact) for at, fact in enumerate(sound) if isinstance(fact, Promised))
    facts = [*sound[:at], Accepted(fact.daemon, fact.shown.ballot, 1 << 60, None, 0), *sound[at:]]
    assert "clock" in checks(facts)


def test_what_is_delivered_behind_a_cut_is_noticed(sound: tuple[Fact, ...]) -> None:
    at, fact = next((at, fact) for at, fact in enumerate(sound) if isinstance(fact, Promised))
    facts = [*sound[: at + 1], Delivered(fact.daemon, (1 << 40,), ()), *sound[at + 1 :]]
    assert "cut" in checks(facts)


def test_what_is_delivered_on_the_wrong_side_of_the_signal_is_noticed() -> None:
    view = View(7, "a/0", 1, 7, 0, 0, (), {}, Reason.RESET, "a/0")
    ended = [Ended(id_of("a/0"), view, frozenset((256,)), frozenset((512,)))]
    before = Row("a", 0, 1, 1, "deliver", "u", view=view.id, position=256 << 16)
    signal = Row("a", 0, 2, 2, "transitional", "u", view=view.id)
    after = Row("a", 0, 3, 3, "deliver", "u", view=view.id, position=512 << 16)
    assert not list(check_trace(ended, [before, signal, after]))
    assert [each.check for each in check_trace(ended, [before, after])] == ["trace"]
    assert [each.check for each in check_trace(ended, [signal, before._replace(n=3)])] == ["trace"]
