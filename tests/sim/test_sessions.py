"""Daemons and their clients in the simulator: real code over simulated streams, judged from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ordercast import UsageError
from ordercast.config import MS, SECOND
from ordercast.daemon.seat import Limits
from ordercast.sim.fuzz import fuzz, run_seed
from ordercast.sim.run import Outcome
from ordercast.sim.scenario import SESSIONS, Scenario
from ordercast.sim.sessions.judge import judge_clients
from ordercast.sim.sessions.plan import FORMED_NS, ClientAct, ClientPlan, Did, SessionPlan, drawn_sessions
from ordercast.sim.sessions.run import SessionsRun, run_sessions
from ordercast.sim.sessions.seen import ClientLife, Fate, SeenMessage, SeenView, Sent
from ordercast.sim.sessions.streams import StreamModel
from ordercast.trace.schema import Row

SEEDS = 5
FAULTS = {
    "a label is free too soon": ("sites", 1_300_000_020),
    "an open send never gets room": ("sites", 1_300_000_084),
    "no reason of a join under way": ("sites", 1_300_000_040),
    "no reason over a view change": ("sites", 1_300_001_072),
    "a message before the view": ("sites", 1_300_000_093),
    "a probe into a stream that is cut": ("sites", 1_590_000_694),
    "messages of a group that is left without a connection": ("sites", 1_630_000_444),
    "the same with a client that is put out": ("token", 1_630_000_917),
    "a name that is given back twice": ("sites", 1_630_001_115),
    "a close before the end of a join": ("sites", 1_900_000_001),
    "a daemon that goes before a session of its own": ("token", 2_510_000_392),
}
"""Seeds that showed faults, of the code or of a judge, which were mended."""


@pytest.mark.parametrize("orderer", ["sites", "token"])
def test_random_sessions_hold(orderer: str) -> None:
    report = fuzz(orderer, 2_000, SEEDS, profile=SESSIONS)
    assert report.held, "\n".join(report.summary())
    assert all(result.is_quiet for result in report.results)
    assert report.results[0].command.startswith("ordercast sim --profile sessions --orderer")


@pytest.mark.parametrize(("orderer", "seed"), FAULTS.values(), ids=[name.replace(" ", "-") for name in FAULTS])
def test_a_seed_that_showed_a_fault_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile=SESSIONS)
    assert result.held, result.failures


def test_one_seed_gives_one_run() -> None:
    first, second = (run_sessions(drawn_sessions(2_003)) for _ in range(2))
    assert first.digest == second.digest
    assert first.stats.events == second.stats.events


def test_other_orderers_are_refused() -> None:
    with pytest.raises(UsageError, match="sites or token"):
        drawn_sessions(1, "sequencer")


def plan(acts: list[ClientAct], limits: Limits, clients: tuple[ClientPlan, ...]) -> SessionPlan:
    """Three daemons of the token orderer, and what clients do."""
    usual = drawn_sessions(2_001, "token")
    scenario = Scenario(seed=7, orderer="token", nodes=("a", "b", "c"), event_limit=400_000, command="a test")
    return replace(usual, scenario=scenario, acts=tuple(acts), limits=limits, clients=clients, streams=(StreamModel(),))


def client(name: str, daemon: str, *, is_spread: bool = False, window: int = 1 << 20) -> ClientPlan:
    return ClientPlan(name, is_spread, (daemon,), ("g0",), FORMED_NS, window=window)


def views_of(run: SessionsRun, name: str) -> list[SeenView]:
    events = [event for life in run.clients[name].lives for queue in life.queues.values() for event in queue]
    return [event for event in events if isinstance(event, SeenView)]


def test_a_slow_client_is_put_out_with_a_reason_and_delays_nobody() -> None:
    acts = [ClientAct(3 * SECOND, "n0", Did.STALL, for_ns=2 * SECOND)]
    acts += [
        ClientAct(3 * SECOND + at * 50 * MS, "n1", Did.SEND_MANY, ("g0",), 50, 1_000, is_confirmed=True)
        for at in range(1, 12)
    ]
    limits = Limits(session_bytes=100_000, patience_ns=0, total_bytes=1 << 20)
    run = SessionsRun(plan(acts, limits, (client("n0", "a", window=20_000), client("n1", "b"), client("n2", "c"))))
    outcome = run.outcome()
    assert outcome.held, outcome.failures
    told = {view.header for view in views_of(run, "n2") if view.reason == "leave"}
    assert [header for header in told if header.startswith(b"session ended (slow): it did not receive")]
    assert run.clients["n0"].lives[0].losses  # it came back when it received
    sent = run.clients["n1"].lives[0].sent.values()
    assert all(each.fate is Fate.CONFIRMED and each.accepted_ns - each.asked_ns < SECOND for each in list(sent)[:-1])


def test_with_blocking_a_slow_client_is_not_put_out() -> None:
    acts = [ClientAct(3 * SECOND, "n0", Did.STALL, for_ns=2 * SECOND)]
    acts += [
        ClientAct(3 * SECOND + at * 50 * MS, "n1", Did.SEND_MANY, ("g0",), 50, 1_000, is_confirmed=True)
        for at in range(1, 12)
    ]
    limits = Limits(session_bytes=100_000, patience_ns=0, total_bytes=1 << 20, is_blocking=True)
    run = SessionsRun(plan(acts, limits, (client("n0", "a", window=20_000), client("n1", "b"))))
    outcome = run.outcome()
    assert outcome.held, outcome.failures
    assert not run.clients["n0"].lives[0].losses


def test_a_client_whose_daemon_is_killed_goes_to_the_next() -> None:
    acts = [
        ClientAct(4 * SECOND, "a", Did.KILL_DAEMON, for_ns=20 * SECOND),
        ClientAct(4 * SECOND + 30 * MS, "n0", Did.SEND, ("g0",), 20, 100),
    ]
    moving = replace(client("n0", "a"), daemons=("a", "b"))
    run = SessionsRun(plan(acts, Limits(), (moving, client("s1", "c", is_spread=True))))
    outcome = run.outcome()
    assert outcome.held, outcome.failures
    assert run.clients["n0"].program is not None
    assert run.clients["n0"].program.member.startswith("n0@b/")


@pytest.mark.parametrize("is_spread", [False, True], ids=["native", "spread"])
def test_a_client_that_fills_its_window_with_sends_to_groups_of_others_goes_on(is_spread: bool) -> None:
    name = "s0" if is_spread else "n0"
    acts = [
        ClientAct(3 * SECOND, name, Did.SEND_TO if not is_spread else Did.SEND, ("g9",), 1, 90_000),
        *[ClientAct(3 * SECOND + at, name, Did.SEND_TO, ("g9",), 1, 5_000) for at in range(40)],
        ClientAct(3 * SECOND + MS, name, Did.SEND, ("g0",), 1, 100),
    ]
    limits = Limits(window_bytes=16_384, least_window_bytes=16_384)
    run = SessionsRun(plan(acts, limits, (client(name, "a", is_spread=is_spread), client("n1", "b"))))
    outcome = run.outcome()
    assert outcome.held, outcome.failures
    life = run.clients[name].lives[0]
    last = list(life.sent)[41]
    seen = [event for event in run.clients["n1"].lives[0].queues["g0"] if isinstance(event, SeenMessage)]
    assert [event.at_ns < 4 * SECOND for event in seen if event.tag == last] == [True]


def test_a_run_is_not_at_rest_while_a_daemon_has_the_session_of_a_client_whose_stream_is_cut() -> None:
    """The next life of the client but one has another name, so it does not have to wait for that session to end."""
    acts = [ClientAct(3 * SECOND, "n0", Did.CUT)]
    acts += [ClientAct(at * SECOND, "n0", Did.KILL, for_ns=200 * MS) for at in (4, 5)]
    run = SessionsRun(plan(acts, Limits(), (client("n0", "a"), client("n1", "b"))))
    outcome = run.outcome()
    assert outcome.held, outcome.failures
    last = views_of(run, "n1")[-1]
    assert last.members == ("n1@b/0", "n02@a/0")
    assert last.header.startswith(b"session ended (lost)")


# The judge. -----------------------------------------------------------------------------------------------------------


def row(kind: str, n: int, **named: object) -> Row:
    return Row("n0@a", 0, n, n, kind, "floor", **named)  # type: ignore[arg-type]


ROWS = [
    row("view", 0, group="g", view="1@a", members=("n0@a/0",), detail="join"),
    *[row("deliver", 1 + n, group="g", sender="n1@b/0", first=n, count=1, service="AGREED") for n in range(3)],
]


def verdict(numbers: list[int], is_quiet: bool = True) -> list[str]:
    """What is said of a client that got these messages."""
    life = ClientLife("n0", "n0", 0)
    other = ClientLife("n1", "n1", 0)
    for number in range(3):
        other.sent[f"t{number}"] = Sent(f"t{number}", ("g",), False, 0, 0, Fate.UNKNOWN)
    life.queues["g"] = [
        SeenView(0, "g", "1@a", ("n0@a/0",), "join", "n0@a/0", b""),
        *[SeenMessage(0, "n1@b/0", number, number, ("g",), f"t{number}") for number in numbers],
    ]
    return judge_clients(drawn_sessions(2_000), [life, other], ROWS, is_quiet)


def test_what_came_in_order_is_in_order() -> None:
    assert verdict([0, 1, 2]) == []
    assert verdict([0, 1], is_quiet=False) == []  # the connection may have ended there


@pytest.mark.parametrize(
    ("numbers", "told"),
    [([0, 2], "was next"), ([1, 0, 2], "was next"), ([0, 0, 1, 2], "was next"), ([0, 1], "has not got")],
    ids=["hole", "order", "twice", "end"],
)
def test_a_hole_a_repetition_or_another_order_is_told(numbers: list[int], told: str) -> None:
    assert any(told in text and text.startswith("stream: n0.0") for text in verdict(numbers))


def test_outcomes_are_those_of_every_run() -> None:
    assert isinstance(run_sessions(drawn_sessions(2_002, "token")), Outcome)
