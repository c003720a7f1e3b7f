"""The rules of order and recovery on sites, one switch for each sentence that was needed.

Where a rule is code of the core (`orderers/sites/`, `membership/components/`), its switch spoils what goes in or comes
out there (`knowledge.py`, `ending.py`): with all switches on, the model runs the core as it is. The other rules are the
model's own (`daemon.py`, `roster.py`, `world.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Rules:
    # Order
    view_ids: bool = True  # streams, SKIPs and UPDATEs carry the id of their view
    justified: bool = True  # an UPDATE beyond the gapless prefix does not count
    raise_clock: bool = True  # the clock of an UPDATE raises the Lamport clock
    one_aru: bool = True  # a site's ARU is the smallest horizon of its daemons, not of its own stream
    skipped_safe: bool = True  # nobody delivers past a skipped SAFE block above the stable line
    keep_unstable: bool = True  # blocks are kept until they are stable, not only until they are delivered
    cap_report: bool = True  # a daemon that keeps more than a window does not report it
    # Interest
    interest_of_daemon: bool = True  # interest belongs to (daemon, group), not to the site
    stable_interest: bool = True  # a JOIN follows when its INTEREST is stable
    leaving_is_gone: bool = True  # a session whose LEAVE is stamped does not stand for its daemon's interest
    leave_ends_earlier: bool = True  # a LEAVE ends only interests stamped before it
    begin_again: bool = True  # a view change voids INTERESTs: whose JOIN was not delivered begins again
    keep_interest: bool = True  # finishing an exchange adds to the interests received in this view
    keep_weak: bool = True  # FIFO messages for a newcomer are kept until its JOIN is delivered
    # Classes
    cover: bool = True  # H is what all sites of a class can reach, not what somebody has reached
    masked: bool = True  # a SKIP helps only sites that its blocks are not destined to
    split: bool = True  # a class splits if a member has delivered beyond H
    all_sites: bool = True  # S is the smallest over all sites of the old view
    safe_signal: bool = True  # the signal stands before a SAFE block above S
    own_beyond: bool = True  # beyond H only blocks whose origin is in the class
    late_changes: bool = True  # after the signal, JOIN and LEAVE take effect at the end of the remainder
    # Rounds
    above_all: bool = True  # the first LTS is above every clock and LTS in all cuts
    accept_clock: bool = True  # accepting raises the clock to it
    counter_of_all: bool = True  # the counter is above those of all members
    bind_when_held: bool = True  # a member is bound when it holds its remainder, not before
    stay_bound: bool = True  # by its first result, until it installs a view
    promise_voids: bool = True  # a higher promised ballot voids a late COMMIT
    commit_by_all: bool = True  # COMMIT needs ACCEPTED from all members of the view
    # Rosters
    lineage: bool = True  # a class without a synced member has one roster group for each lineage
    own_roster: bool = True  # a roster speaks only for the daemons of its group
    changed_groups: bool = True  # a group keeps its view only if all its members are in one roster group
    group_view_id: bool = True  # the id of a group view names the whole underlay view

    def without(self, *names: str) -> Rules:
        """The same rules without these."""
        return replace(self, **dict.fromkeys(names, False))


SWITCHES: Final = tuple(field.name for field in fields(Rules))
