"""The bench on a tiny run, between real processes: its keys and its honesty, no times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordercast.cli.main import main


def bench(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = main(["bench", "--seconds", "0.3", "--json", *arguments])
    shown = capfd.readouterr()
    assert code == 0, shown.out + shown.err
    result: dict[str, Any] = json.loads(shown.out)
    return result


def test_every_number_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    result = bench(["--members", "3", "--senders", "1"], capfd)
    for key in ("delivered_per_s", "mb_per_s", "cpu_us_per_delivery", "per_message_api_per_s", "floor_per_s"):
        assert result[key] > 0, key
    for which in ("loaded", "single"):
        assert 0 < result["latency_us"][which]["p50"] <= result["latency_us"][which]["p99"]
    assert (result["lost"], result["misordered"]) == (0, 0)
    assert result["socket_drops"] >= 0
    assert result["repairs"] >= 0
    assert result["ratio_to_floor"] > 0
    assert result["datagrams"]["data"] > 0
    assert result["memory_mb"]["end"] > 0
    parameters = result["parameters"]
    assert (parameters["members"], parameters["senders"], parameters["size"]) == (3, "1", 100)
    assert (parameters["orderer"], parameters["service"], parameters["datagram"]) == ("token", "AGREED", 62_000)


@pytest.mark.parametrize("service", ["UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "RESILIENT(1)", "MAJORITY"])
def test_every_service_of_the_token_is_measured(service: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = bench(["--members", "3", "--senders", "all", "--service", service], capfd)
    assert result["parameters"]["service"] == service
    assert result["delivered_per_s"] > 0
    assert result["per_message_api_per_s"] > 0
    assert result["latency_us"]["single"]["p50"] > 0
    assert result["misordered"] == 0


@pytest.mark.parametrize("orderer", ["token", "sequencer", "sites"])
def test_all_may_send_small_datagrams_with_a_strong_service(
    orderer: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--members", "2", "--senders", "all", "--size", "1000", "--datagram", "1400", "--service", "SAFE"]
    options += ["--orderer", orderer]
    result = bench([*options, "--trace", str(tmp_path)], capfd)
    assert (result["lost"], result["misordered"]) == (0, 0)
    assert len(list((tmp_path / "raw").iterdir())) == 2


@pytest.mark.parametrize("service", ["UNRELIABLE", "FIFO", "AGREED", "SAFE"])
def test_daemons_of_one_site_are_measured(service: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = bench(["--orderer", "sites", "--members", "3", "--service", service], capfd)
    assert result["parameters"]["orderer"] == "sites"
    assert result["delivered_per_s"] > 0
    assert result["misordered"] == 0
    assert result["lost"] == 0 or service == "UNRELIABLE"


def test_daemons_of_one_site_share_an_underlay_with_many_groups(capfd: pytest.CaptureFixture[str]) -> None:
    result = bench(["--orderer", "sites", "--members", "2", "--groups", "50", "--underlay", "shared"], capfd)
    assert result["groups"]["count"] == 50
    assert result["groups"]["newcomer_s"] > 0
    assert (result["lost"], result["misordered"]) == (0, 0)


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_many_groups_on_one_underlay_are_measured_beside_one(orderer: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--members", "2", "--groups", "40", "--underlay", "shared", "--orderer", orderer]
    result = bench(options, capfd)
    assert (result["lost"], result["misordered"]) == (0, 0)
    many = result["groups"]
    assert (many["count"], many["underlay"]) == (40, "shared")
    for key in (
        "join_s",
        "one_group_per_s",
        "ratio_to_one_group",
        "per_message_api_ratio_to_one_group",
        "by_name_ratio_to_one_group",
        "newcomer_s",
    ):
        assert many[key] > 0, key
    assert len(many["rest_cpu_percent"]) == 2


def test_groups_with_underlays_of_their_own_have_sockets_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    few, more = [bench(["--members", "2", "--groups", str(count)], capfd)["groups"] for count in (2, 6)]
    assert few["underlay"] == "own"
    assert more["sockets"] >= few["sockets"] + 4
    assert "newcomer_s" not in more


def test_too_many_underlays_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--groups", "501"]) == 2
    assert "--underlay shared" in capfd.readouterr().err


@pytest.mark.parametrize("groups", ["1", "40"])
def test_groups_on_regions_are_measured(groups: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--orderer", "regions", "--members", "2", "--senders", "all", "--groups", groups]
    result = bench(options, capfd)
    assert result["parameters"]["service"] == "FIFO"
    assert result["groups"]["count"] == int(groups)
    assert ("newcomer_s" in result["groups"]) == (groups != "1")
    assert (result["lost"], result["misordered"]) == (0, 0)
    assert result["datagrams"]["token"] > 0


def test_a_bench_without_traces_keeps_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = bench(["--members", "2", "--no-trace"], capfd)
    assert result["parameters"]["trace"] is False
    assert main(["bench", "--no-trace", "--trace", str(tmp_path)]) == 2
