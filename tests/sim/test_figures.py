"""The measurements of the RMP paper: how numbers come out of a trace, and what small ones look like."""

from __future__ import annotations

import json

import pytest

from ordercast.cli.main import main
from ordercast.config import MS
from ordercast.sim.figures import delivery_latencies, figures, ladder, steady_bytes_per_s
from ordercast.sim.network import ETHERNET, IDEAL
from ordercast.sim.tables import figures_lines, ladder_lines
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


def test_the_figures_of_a_small_group() -> None:
    """RMP section 5, up to three members: multicast breaks the limit of the wire with the second destination."""
    texts: list[str] = []
    found = figures("token", most=3, transfer_bytes=200_000, progress=texts.append)
    assert found.held
    assert [(point.sources, point.members) for point in found.aggregate] == [(1, 2), (1, 3), (2, 2), (2, 3)]
    assert [point.destinations for point in found.single] == [1, 2, 3]
    assert all(point.destinations == point.members - 1 for point in found.single)
    assert found.aggregate[1].aggregate_of_wire > 1
    assert all(1 < point.mean_ms < 4 for point in found.latency)
    assert found.costs[-1].per_data < found.costs[1].per_data
    assert len(texts) == 4 + 3 + 3 + len(found.costs)
    lines = figures_lines(found)
    assert "figure 5.2: throughput of one sender that is no destination" in lines
    assert json.loads(json.dumps(found.as_json()))["wire_kb_s"] == 1_250


def test_throughput_needs_a_wire_to_be_compared_with() -> None:
    assert ETHERNET.bits_per_s
    with pytest.raises(ValueError, match="has no bandwidth"):
        figures("token", network=IDEAL)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--ladder --figures", "give one of them"),
        ("--ladder --crash 1 --scenario-seed 3", "take no --crash, --scenario-seed"),
        ("--figures --no-multicast", "take no --no-multicast"),
        ("--figures --network ideal", "has no bandwidth"),
    ],
)
def test_measurements_take_no_other_parameters(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words.split()]) == 2
    assert error in capsys.readouterr().err
