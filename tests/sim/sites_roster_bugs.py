"""Bugs of interests, rosters and group views where components go on and merge. Each is one mutation.

They are planted into runs of the whole engine (`ordercast fuzz --orderer sites`). Where the model has a switch for the
same rule, `tests/model/evs/rules.py` names it.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug
from tests.sim.sites_bug import sites_bug

from ordercast.sim.site_groups import SITES

LEFT_AND_MADE_ANEW: Final = 695_000_333
"""The one of 5,000 seeds in which a group ends and comes back while messages to it wait."""

SITES_ROSTER_BUGS: Final[tuple[Bug, ...]] = (
    # Interest
    sites_bug(
        "a message goes where the first of its groups is",
        "Interests.mask",
        "found |= entry.mask",
        "found = found or entry.mask",
        "Members of its other groups do not get it.",
        16,
    ),
    sites_bug(
        "a leave ends the interest of the whole site",
        "Interests.left",
        "entry.mask = self._mask_of(entry)",
        "entry.mask &= ~self._site_mask(daemon)",
        "Other daemons of the site do not get the group's messages any more.",
        16,
    ),
    sites_bug(
        "a join does not wait until its interest is stable",
        "SitesEngine.is_stable",
        "lts is not None and self._streams is not None and lts <= self._streams.horizon.stable",
        "lts is not None",
        "Others stamp messages behind the join and do not know that the site wants them.",
        32,
        is_slow=True,
    ),
    sites_bug(
        "an interest is told to the own site only",
        "SitesEngine._stamp_interests",
        "everyone = self._wiring.routes.present",
        "everyone = 1 << here",
        "The other sites do not know who wants their messages.",
        16,
    ),
    sites_bug(
        "an exchange does not say who is in which group",
        "ExchangeRoster._take",
        "self._show_interests(merge.keys)",
        "",
        "Messages go to the sites that had these numbers before.",
        16,
        is_slow=True,
    ),
    sites_bug(
        "a join counts no interest",
        "ExchangeRoster._tell_interests",
        "interests.joined(origin, group_key(change.record.name))",
        "",
        "After the next view the sites of the group's members are forgotten.",
        32,
        is_slow=True,
    ),
    sites_bug(
        "a view does not void the interests of a join",
        "Regrouping.on_view",
        "self._waiting = {}",
        "",
        "The join waits for an interest that was never stamped in this view.",
        16,
    ),
    # The exchange
    sites_bug(
        "a roster speaks for all daemons",
        "ExchangeProgress.begin",
        "frozenset(group)",
        "frozenset([each for other in rosters for each in other])",
        "What one component last knew of another one counts again.",
        16,
        is_slow=True,
    ),
    sites_bug(
        "an exchange that is interrupted does not begin again",
        "ExchangeRoster.on_view",
        "self._is_speaking = False",
        "",
        "Everybody waits for a roster.",
        16,
    ),
    sites_bug(
        "sessions go on during an exchange",
        "SharedGroups.is_held",
        "self._regrouping.is_late(self.is_behind) or not (stream.is_system or self.roster.is_seeded)",
        "self._regrouping.is_late(self.is_behind)",
        "Messages have numbers of groups that are about to change.",
        16,
    ),
    sites_bug(
        "sessions go on before the roster has come to the view",
        "Regrouping.is_late",
        "is_behind or mine is None or view is None or mine.rank != view.rank",
        "mine is None or view is None",
        "Messages of the new view have the numbers of the old one.",
        16,
    ),
    sites_bug(
        "ports keep their numbers over an exchange",
        "Regrouping.renumber",
        "channel.reception.renumber(find)",
        "",
        "They get the messages of other groups.",
        16,
    ),
    sites_bug(
        "what was queued keeps the numbers of before an exchange",
        "Regrouping.renumber",
        "stream.before_renumbering()",
        "pass",
        "It goes to other groups.",
        32,
    ),
    sites_bug(
        "joins that a view has voided are not repeated",
        "Regrouping.wanted",
        "joins.append(port)",
        "pass",
        "A session waits for its group for good.",
        16,
    ),
    sites_bug(
        "leaves that a view has voided are not repeated",
        "Regrouping.wanted",
        "leaves.append((label, record.number, self._headers[port]))",
        "pass",
        "A session does not get out of its group.",
        16,
    ),
    Bug(
        "what waits for a group that its session has left goes by the old number",
        "Stream.part_from",
        "self.parted[port] = None",
        "pass",
        "The group was made anew, and its members do not get it.",
        1,
        SITES,
        first_seed=LEFT_AND_MADE_ANEW,
    ),
    # Group views
    sites_bug(
        "sessions of daemons that are gone stay",
        "ExchangeRoster._go_on",
        "gone = frozenset(table.members) - present",
        "gone = frozenset(table.members) - present - frozenset(table.members)",
        "Groups have members that are in another component.",
        16,
    ),
    sites_bug(
        "a group that has changed keeps its view over an exchange",
        "MergedRosters.add",
        "mark or self._from.get(name, speaker) != speaker",
        "self._from.get(name, speaker) != speaker",
        "Its members do not learn who was lost.",
        16,
    ),
    sites_bug(
        "a group of two rosters keeps its view",
        "MergedRosters.add",
        "mark or self._from.get(name, speaker) != speaker",
        "mark",
        "Members of one group have different views.",
        16,
    ),
    sites_bug(
        "operations behind the signal count at once",
        "ExchangeRoster.apply",
        "not self._is_parting",
        "not self._is_parting or origin == self._me",
        "A group has a view that others of its component never hear of.",
        32,
        is_slow=True,
    ),
    sites_bug(
        "those of other components count as come along",
        "ExchangeRoster.on_view",
        "frozenset([member.id for member in view.members if str(member) in names])",
        "present",
        "came_with has sessions that did not see the same messages.",
        16,
        is_slow=True,
    ),
    Bug(
        "a session that left and came back behind one signal is where it was",
        "SharedGroups._on_own",
        "port.number > NOBODY",
        "False",
        "It has each message of the group twice.",
        1,
        SITES,
        first_seed=717_000_262,  # a closed session's names are given back when the next one has taken its place
    ),
)
