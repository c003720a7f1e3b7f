"""Who holds up a view of sites that works, as one daemon knows it (docs/design/stalled.md).

It is asked where something has made no progress for a second, never in a pass that works. The first question that finds
somebody answers. What is behind it shows at that daemon: its own log says that an application does not receive.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ordercast.engine import StallReason, Waiting
from ordercast.underlay.sites.network import SiteNetwork
from ordercast.underlay.sites.streams import ViewStreams
from ordercast.view import Member, View

OWN: Final = "the application of this node does not receive, and the others wait for it: receive events, or leave"
ROSTERS: Final = "components have merged, and their rosters have not come"
SILENT: Final = "their sites have not told up to where they have stamped, so nothing behind that can be ordered"
LACKING: Final = "their sites have not told that they have everything: something is lost, or a program does not receive"
BEHIND: Final = "links to other sites are behind"
TOKEN: Final = "the token of this site has not come"


def held_up(
    me: Member, view: View, network: SiteNetwork, streams: ViewStreams, *, is_behind: bool, waits_for_links: bool
) -> Waiting | None:
    """`is_behind`: the application here has not taken what is delivered. `waits_for_links`: blocks were refused."""
    if is_behind:
        return Waiting(StallReason.NOT_RECEIVING, (str(me),), OWN)
    ring, horizon = network.ring, streams.horizon
    arus = {site: horizon.aru(site) for site in horizon.sites}
    others: list[tuple[Collection[int], str]] = [(streams.progress.awaited, ROSTERS)]
    oldest = streams.oldest_own
    if oldest:
        silent = [site for site, stream in horizon.streams.items() if stream.clock < oldest]
        lacking = [site for site, aru in arus.items() if aru < oldest]
        others += [(streams.daemons_of(silent), SILENT), (streams.daemons_of(lacking), LACKING)]
    elif horizon.room(ring.site_seq) <= 0:
        lowest = min(arus.values())
        others.append((streams.daemons_of([site for site, aru in arus.items() if aru == lowest]), LACKING))
    if waits_for_links:
        others.append((network.link_ends, BEHIND))
    if not ring.is_holding:
        others.append((network.neighbours, TOKEN))
    for daemons, text in others:
        names = tuple([str(member) for member in view.members if member.id in daemons and member.id != me.id])
        if names:
            return Waiting(StallReason.NETWORK, names, f"waiting for {' and '.join(names)}: {text}")
    return None
