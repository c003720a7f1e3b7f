"""Bugs of interests, rosters and group views where components go on and merge. Each is one mutation.

They are planted into runs of the whole engine (`ordercast fuzz --orderer sites`). Where the model has a switch for the
same rule, `tests/model/evs/rules.py` names it.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.site_groups import SITES


def _bug(
    name: str,
    function: str,
    old: str | tuple[str, ...],
    new: str | tuple[str, ...],
    breaks: str,
    bound: int,
    first_seed: int = 0,
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=first_seed)


SITES_ROSTER_BUGS: Final[tuple[Bug, ...]] = (
    # Interest
    _bug(
        "a message goes where the first of its groups is",
        "Interests.mask",
        "found |= entry.mask",
        "found = found or entry.mask",
        "Members of its other groups do not get it.",
        32,
    ),
    _bug(
        "a leave ends the interest of the whole site",
        "Interests.left",
        "entry.mask = self._mask_of(entry)",
        "entry.mask &= ~self._site_mask(daemon)",
        "Other daemons of the site do not get the group's messages any more.",
        32,
    ),
    _bug(
        "a leave ends interests that were stamped after it",
        "Interests.left",
        "known >> 1 > lts",
        "known >> 1 > max(lts, known)",
        "A daemon that comes back at once does not get the group's messages.",
        64,
    ),
    _bug(
        "a join does not wait until its interest is stable",
        "SitesEngine.is_stable",
        "lts is not None and self._streams is not None and lts <= self._streams.horizon.stable",
        "lts is not None",
        "Others stamp messages behind the join and do not know that the site wants them.",
        64,
    ),
    _bug(
        "interests of the last view count",
        "SitesEngine._install",
        "self._declared = {}",
        "",
        "A join follows an interest that nobody knows any more.",
        64,
    ),
    _bug(
        "an interest is told to the own site only",
        "SitesEngine._stamp_interests",
        "everyone = self._wiring.routes.present",
        "everyone = 1 << here",
        "The other sites do not know who wants their messages.",
        32,
    ),
    _bug(
        "the end of an exchange clears the interests of its view",
        "Interests.exchange_done",
        "known > _JOINED",
        "known < _JOINED",
        "Daemons that are about to join do not get the group's messages.",
        64,
    ),
    _bug(
        "an exchange does not say who is in which group",
        "ExchangeRoster._take",
        "self._show_interests(merge.keys)",
        "",
        "Messages go to the sites that had these numbers before.",
        32,
    ),
    _bug(
        "a join counts no interest",
        "ExchangeRoster._tell_interests",
        "interests.joined(origin, group_key(change.record.name))",
        "",
        "After the next view the sites of the group's members are forgotten.",
        64,
    ),
    _bug(
        "a view does not void the interests of a join",
        "Regrouping.on_view",
        "self._waiting = {}",
        "",
        "The join waits for an interest that was never stamped in this view.",
        64,
    ),
    _bug(
        "a join does not wait for a leave of its node",
        "Regrouping._presence_in",
        "Presence.STAYING if any(not port.is_leaving for port in ports) else Presence.LEAVING",
        "Presence.STAYING",
        "The leave ends the interest that the join counts on.",
        64,
    ),
    # The exchange
    _bug(
        "a roster speaks for all daemons",
        "ExchangeProgress.begin",
        "frozenset(group)",
        "frozenset([each for other in rosters for each in other])",
        "What one component last knew of another one counts again.",
        32,
    ),
    _bug(
        "an exchange is over with the first roster",
        "ExchangeProgress.on_part",
        "del self._next[origin]",
        "self._next.clear()",
        "The groups of the other components are missing.",
        32,
    ),
    _bug(
        "an exchange that is interrupted does not begin again",
        "ExchangeRoster.on_view",
        "self._is_speaking = False",
        "",
        "Everybody waits for a roster.",
        64,
    ),
    _bug(
        "sessions go on during an exchange",
        "SharedGroups.is_held",
        "self._regrouping.is_late(self.is_behind) or not (stream.is_system or self.roster.is_seeded)",
        "self._regrouping.is_late(self.is_behind)",
        "Messages have numbers of groups that are about to change.",
        64,
    ),
    _bug(
        "sessions go on before the roster has come to the view",
        "Regrouping.is_late",
        "is_behind or mine is None or view is None or mine.rank != view.rank",
        "mine is None or view is None",
        "Messages of the new view have the numbers of the old one.",
        64,
    ),
    _bug(
        "ports keep their numbers over an exchange",
        "Regrouping.renumber",
        "channel.reception.renumber(find)",
        "",
        "They get the messages of other groups.",
        32,
    ),
    _bug(
        "what was queued keeps the numbers of before an exchange",
        "Regrouping.renumber",
        "stream.before_renumbering()",
        "pass",
        "It goes to other groups.",
        64,
    ),
    _bug(
        "joins that a view has voided are not repeated",
        "Regrouping.wanted",
        "joins.append(port)",
        "pass",
        "A session waits for its group for good.",
        32,
    ),
    _bug(
        "leaves that a view has voided are not repeated",
        "Regrouping.wanted",
        "leaves.append((label, record.number, self._headers[port]))",
        "pass",
        "A session does not get out of its group.",
        64,
    ),
    # Group views
    _bug(
        "sessions of daemons that are gone stay",
        "ExchangeRoster._go_on",
        "gone = frozenset(table.members) - present",
        "gone = frozenset(table.members) - present - frozenset(table.members)",
        "Groups have members that are in another component.",
        32,
    ),
    _bug(
        "a group that has changed keeps its view over an exchange",
        "MergedRosters.add",
        "mark or self._from.get(name, speaker) != speaker",
        "self._from.get(name, speaker) != speaker",
        "Its members do not learn who was lost.",
        64,
    ),
    _bug(
        "a group of two rosters keeps its view",
        "MergedRosters.add",
        "mark or self._from.get(name, speaker) != speaker",
        "mark",
        "Members of one group have different views.",
        32,
    ),
    _bug(
        "operations behind the signal count at once",
        "ExchangeRoster.apply",
        "not self._is_parting",
        "not self._is_parting or origin == self._me",
        "A group has a view that others of its component never hear of.",
        64,
    ),
    _bug(
        "groups that were touched behind the signal get no view",
        "ExchangeRoster._go_on",
        "touched.items()",
        "list(touched.items())[:0]",
        "Who joined behind the signal never gets its view.",
        64,
    ),
    _bug(
        "those of other components count as come along",
        "ExchangeRoster.on_view",
        "frozenset([member.id for member in view.members if str(member) in names])",
        "present",
        "came_with has sessions that did not see the same messages.",
        64,
    ),
    _bug(
        "came_with does not remember an exchange that was interrupted",
        "ExchangeRoster.on_view",
        "came if self._merge is None else self._together & came",
        "came",
        "came_with has sessions that did not come from the last view of the group.",
        64,
    ),
    _bug(
        "the id of a group's view does not name the view below",
        "GroupViews.make",
        "view.id if self._by_position else view.creator",
        "view.creator",
        "Two components give one id to different views.",
        64,
    ),
    _bug(
        "groups that lose a member hear no signal",
        "Regrouping.parting",
        "any(f'{each.name}/{each.life}' in self._lost for each in view.members)",
        "all(f'{each.name}/{each.life}' in self._lost for each in view.members)",
        "What only a component holds looks as if all held it.",
        64,
    ),
    _bug(
        "a group hears the signal of each view below",
        "Regrouping.parting",
        "self._signalled.add(key)",
        "pass",
        "A view of a group ends twice.",
        64,
    ),
)
