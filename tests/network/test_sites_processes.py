"""Daemon processes of two sites: a kill inside a site, a cut between the sites, a restart; judged by their traces.

`benches/chaos.py --orderer sites` does the same between namespaces, and measures it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.cli.proof import prove
from ordercast.cli.site_processes import SiteProcesses, SitesVenue

CREWS = {"east": ["e1", "e2"], "west": ["w1", "w2"]}
EVERYBODY = ["e1", "e2", "w1", "w2"]
PACE_S = 0.05


def test_a_killed_daemon_changes_no_route_and_a_cut_leaves_two_components(tmp_path: Path) -> None:
    settings = settings_of_sites(f"test-{tmp_path.name}", CREWS)
    processes = SiteProcesses(SitesVenue(tmp_path, sites_of_settings(settings), {"sites": settings}))

    async def program() -> None:
        processes.write_info({"test": "sites"})
        try:
            await processes.start(EVERYBODY)
            before = await processes.until([EVERYBODY])
            processes.tell("pace", seconds=PACE_S)
            processes.tell("send")
            await processes.until([EVERYBODY], delivering=True)

            await processes.crash("w2")
            after = await processes.until([["e1", "e2", "w1"]], delivering=True)
            for name, said in after.items():  # w1 is its site's representative: routes and links stay
                assert said["counts"] == before[name]["counts"]

            await processes.start(["w2"])
            processes.children["w2"].tell("send")
            await processes.until([EVERYBODY], delivering=True)

            processes.cut([["east"], ["west"]])
            apart = await processes.until(list(CREWS.values()), delivering=True)
            assert apart["e1"]["counts"]["routes_computed"] > before["e1"]["counts"]["routes_computed"]
            processes.cut([["east", "west"]])
            await processes.until([EVERYBODY], delivering=True)
            await processes.drain()
            await processes.stop()
        finally:
            await processes.kill()

    asyncio.run(program())
    assert processes.disagreements() == []
    assert [name for name, _ in processes.crashed] == ["w2"]
    proof = prove(tmp_path, processes.crashed, with_spark=False, say=print)
    assert proof.held, proof.evidence
    assert proof.confirmed > 0
