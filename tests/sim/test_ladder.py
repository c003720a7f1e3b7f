"""The ladder of services: how numbers come out of a trace, and what small ones look like."""

from __future__ import annotations

import pytest

from ordercast.cli.main import main
from ordercast.config import MS
from ordercast.sim.ladder import ladder
from ordercast.sim.statistics import delivery_latencies, steady_bytes_per_s
from ordercast.sim.tables import ladder_lines
from ordercast.trace.schema import Row


def row(node: str, kind: str, at_ns: int, first: int = 0, count: int = 1, sender: str | None = None) -> Row:
    return Row(node, 0, 0, at_ns, kind, "g", sender=sender, first=first, count=count, bytes=100 * count)


def test_latency_is_from_the_submit_that_has_the_number() -> None:
    rows = [
        row("a", "submit", 10, first=0, count=5),
        row("a", "submit", 50, first=5),
        row("b", "deliver", 70, first=5, sender="a/0"),
        row("a", "deliver", 12, first=3, count=2, sender="a/0"),
        row("b", "deliver", 99, first=0, sender="x/0"),
    ]
    assert delivery_latencies(rows) == [(20, False), (2, True), (2, True)]


def test_throughput_is_that_of_the_middle() -> None:
    # 100 bytes every millisecond, and a long silence before the last.
    rows = [row("b", "deliver", number * MS, sender="a/0") for number in range(20)]
    rows.append(row("b", "deliver", 5_000 * MS, sender="a/0"))
    assert steady_bytes_per_s(rows) == pytest.approx(100_000)
    assert steady_bytes_per_s([]) == 0.0


def test_the_ladder_rises_in_latency_and_not_in_throughput() -> None:
    """RMP section 3.2: totally ordered packets take about twice as long as source ordered ones."""
    services = ("UNRELIABLE", "FIFO", "AGREED", "RESILIENT(1)", "RESILIENT(2)", "SAFE")
    rungs = {rung.service: rung for rung in ladder("token", members=5, services=services, transfer_bytes=2_000_000)}
    assert [rung.violations for rung in rungs.values()] == [0] * len(services)
    assert 1.6 < rungs["AGREED"].mean_us / rungs["FIFO"].mean_us < 2.6
    means = [rungs[service].mean_us for service in services[1:]]
    assert means == sorted(means)
    lines = ladder_lines(list(rungs.values()))
    assert [line.split()[0] for line in lines] == ["service", *services]


def test_what_an_orderer_does_not_give_has_no_rung() -> None:
    rungs = ladder("sequencer", members=2, services=("UNRELIABLE", "AGREED"), transfer_bytes=100_000)
    assert [rung.service for rung in rungs] == ["AGREED"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--ladder --crash 1 --scenario-seed 3", "takes no --crash, --scenario-seed"),
        ("--ladder --no-multicast", "takes no --no-multicast"),
    ],
)
def test_the_ladder_takes_no_other_parameters(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words.split()]) == 2
    assert error in capsys.readouterr().err
