"""Three daemons and thirty clients as processes, native and of Spread, in one group: clients and a daemon are killed,
the daemons are cut off from one another and merge. What all clients have seen fits together, and so does the trace.

`make chaos CHAOS="--orderer daemons"` does more of the same, with losses; `tests/pipeline/test_verify_daemons.py` has
the trace of such a run judged by Spark.
"""

from __future__ import annotations

from pathlib import Path

from tests.daemon.client_house import run_clients

from ordercast.cli.proof import prove

CLIENTS = 30


def test_native_clients_and_those_of_spread_see_the_same_through_kills_and_a_partition(tmp_path: Path) -> None:
    house = run_clients(tmp_path, CLIENTS)
    assert house.clients.disagreements() == []
    proof = prove(tmp_path, house.daemons.crashed, with_spark=False, say=print)
    assert proof.held, {name: one.word for name, one in proof.properties.items()} | {"evidence": proof.evidence}
