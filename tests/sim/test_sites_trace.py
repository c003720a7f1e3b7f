"""What the trace of a run of sites says of its datagrams (docs/trace.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ordercast.sim.many_groups import plain_groups
from ordercast.sim.many_run import run_groups
from ordercast.sim.plain import plain_scenario
from ordercast.sim.run import run_scenario
from ordercast.sim.topology import load_topology

EXAMPLE = Path(__file__).parents[2] / "examples" / "wan.toml"
SITES = ("east", "west", "north")


def test_rows_of_datagrams_name_the_other_site_and_no_other_orderer_has_such_rows() -> None:
    site_of = {each.name: each.site for each in load_topology(EXAMPLE).config.daemons}
    plan = plain_groups(plain_scenario(seed=3, orderer="sites", messages=40, topology=str(EXAMPLE)), 1)
    outcome = run_groups(plan)
    assert outcome.held, outcome.failures
    kinds: set[str] = set()
    sent: Counter[tuple[str, str]] = Counter()  # from site to site
    received: Counter[tuple[str, str]] = Counter()
    for row in outcome.rows:
        if row.kind not in ("tx", "rx") or row.detail is None or row.count is None:
            continue
        here = site_of[row.node]
        kind, _, there = row.detail.partition(">")
        assert there != here
        assert bool(there) == kind.startswith("hop.")
        assert kind not in ("hop.token", "hop.wake"), "a ring is of one site"
        assert kind != "ack", "rings of sites have no acknowledgements: all of them are of links"
        if there and row.kind == "tx":
            sent[here, there] += row.count
            kinds.add(kind)
        elif there:
            received[there, here] += row.count
    assert kinds == {"hop.data", "hop.update", "hop.ack", "hop.nak", "hop.sync", "hop.probe", "hop.membership"}
    assert sent.keys() == received.keys() == {(a, b) for a in SITES for b in SITES if a != b}
    for (here, there), count in sent.items():
        pipe = outcome.stats.pipes[f"{here}>{there}"]
        # The run ends without its nodes' last rows: the last heartbeat of a link is not told.
        assert pipe.datagrams - count in (0, 1)
        assert 0 <= pipe.datagrams - pipe.lost - received[here, there] <= 1

    outcome = run_scenario(plain_scenario(seed=3, orderer="token", messages=40, topology=str(EXAMPLE)))
    assert outcome.held, outcome.failures
    details = {row.detail for row in outcome.rows if row.kind in ("tx", "rx")}
    assert "data" in details
    assert not any(detail.startswith("hop.") for detail in details if detail is not None)
