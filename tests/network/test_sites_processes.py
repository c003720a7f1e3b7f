"""Daemon processes of two sites: a kill inside a site, a cut between the sites, a restart; judged by their traces.

`benches/chaos.py --orderer sites` does the same between namespaces, and measures it. That a kill inside a site opens no
link either is shown in virtual time (`tests/scripts/sites_a_daemon_is_lost.script`): on a busy machine a link may be
given up whose other end lives.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

from ordercast.cli.children import Child
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.cli.proof import prove
from ordercast.cli.site_processes import SiteProcesses, SitesVenue

CREWS = {"east": ["e1", "e2"], "west": ["w1", "w2"]}
EVERYBODY = ["e1", "e2", "w1", "w2"]
SITE_OF = {name: site for site, names in CREWS.items() for name in names}
PACE_S = 0.05
PATIENCE_S = 60.0


def changes_of_sites(daemon: Child) -> int:
    """How often the sites of its view have changed, its first view included, as its views tell."""
    seen = [{SITE_OF[name] for name in told["members"]} for told in daemon.heard("ended")]
    return sum(after != before for before, after in zip([set[str](), *seen], seen, strict=False))


async def check_routes(processes: SiteProcesses) -> None:
    """Routes are computed when the sites of a view have changed, and at no other view. A busy machine may have changed
    views that nobody killed or cut; and it may take a moment until the application has seen the view that a count is
    of. What was computed once too often is never made up for."""
    give_up_s = monotonic() + PATIENCE_S
    while True:
        computed = {name: said["counts"]["routes_computed"] for name, said in (await processes.ask()).items()}
        expected = {name: changes_of_sites(processes.children[name]) for name in computed}
        if computed == expected or monotonic() > give_up_s:
            assert computed == expected
            return
        await asyncio.sleep(PACE_S)


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
            await processes.until([["e1", "e2", "w1"]], delivering=True)
            await check_routes(processes)  # w1 is there: its site stays

            await processes.start(["w2"])
            processes.children["w2"].tell("send")
            await processes.until([EVERYBODY], delivering=True)

            processes.cut([["east"], ["west"]])
            apart = await processes.until(list(CREWS.values()), delivering=True)
            assert apart["e1"]["counts"]["routes_computed"] > before["e1"]["counts"]["routes_computed"]
            processes.cut([["east", "west"]])
            await processes.until([EVERYBODY], delivering=True)
            await processes.drain()
            await check_routes(processes)
            await processes.stop()
        finally:
            await processes.kill()

    asyncio.run(program())
    assert processes.disagreements() == []
    assert [name for name, _ in processes.crashed] == ["w2"]
    proof = prove(tmp_path, processes.crashed, with_spark=False, say=print)
    assert proof.held, proof.evidence
    assert proof.confirmed > 0
