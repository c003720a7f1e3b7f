"""Bugs of whole nodes on regions: of their groups, of their engine where only whole nodes show it, and of the
membership service. Their runs are those of `ordercast fuzz --orderer regions`, from the seed that each names on.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.regions.plan import REGIONS

Code = str | tuple[str, ...]


def _bug(
    name: str, function: str, old: Code, new: Code, breaks: str, bound: int, first: int = 0, *, is_slow: bool = False
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, REGIONS, first_seed=first, is_slow=is_slow)


REGIONS_WHOLE_BUGS: Final[tuple[Bug, ...]] = (
    # Senders
    _bug(
        "a message is handed up before its sender's name",
        "MemberDesk._take_whole",
        "_has_name(view, record.sender)",
        "True",
        "A receiver is shown a number instead of a name.",
        30,
        1,
    ),
    _bug(
        "a sender without multicast multicasts",
        "LaneDesk._targets",
        "given.address is None or len(others) == 1 or not me.has_multicast",
        "given.address is None or len(others) == 1",
        "A region whose members have multicast gets nothing from it.",
        2,
        30,
    ),
    _bug(
        "numbers begin anew when a node has left all regions",
        "Attachments.open_regions",
        "sent=self._sent",
        "sent=SentNumbers()",
        "A receiver gets a number of a sender twice.",
        4,
    ),
    _bug(
        "what waits is forgotten with its group",
        "RegionRequests.take_leaves",
        "self.follow([name], joined)",
        "pass",
        "Messages wait for a group that has no number any more.",
        2,
        6_000_000_427,
        is_slow=True,
    ),
    _bug(
        "what waits keeps the number of a group that is left",
        "RegionRequests.take_leaves",
        "sending.list_targets()",
        "",
        "Messages wait for a group without a name when the node is put out.",
        2,
        5_310_000_128,
        is_slow=True,
    ),
    _bug(
        "routes stay as they are when an epoch is installed",
        "RegionSending.install",
        "waits = self._routing.sort()",
        "waits: dict[LaneWait, None] = {}",
        "What waits goes to the regions of before.",
        4,
        16,
    ),
    # Groups
    _bug(
        "a view is shown that a leaver is not in",
        "RegionChannel.derive",
        "if self.views.mine not in regions:\n    return None",
        "",
        "Its last view has no members, or other ones.",
        4,
        11,
    ),
    _bug(
        "a node that was leaving comes back when it is put out",
        "RegionChannel._on_departed",
        "gone.returning and self.base.is_leaving",
        "False",
        "It is in the service until something else ends it.",
        2,
        54,
        is_slow=True,
    ),
    _bug(
        "a node that comes back does not ask for its groups",
        "RegionChannel._begin_again",
        "self.requests.begin_again(engine, list(self.joined.numbers))",
        "self.requests.begin_again(engine, ())",
        "It waits for views that nobody makes.",
        2,
        54,
        is_slow=True,
    ),
    _bug(
        "regions that are opened anew end with those of before",
        "Host._close",
        "driven is self.attached.regions and driven.engine.is_closed",
        "driven.engine.is_closed",
        "A node that comes back at once never gets in.",
        2,
        386,
        is_slow=True,
    ),
    # Old views
    _bug(
        "a leader forgets an old view before the others can",
        "MemberView.may_be_forgotten",
        "if self.has_untold:\n    return False",
        "",
        "The others start tokens one after the other, seconds apart, to hear that it has.",
        2,
        5_310_000_952,
        is_slow=True,
    ),
    # The service
    _bug(
        "nobody is told of exclusions that do not concern it",
        "RegionDirectory.apply",
        "affected = tuple(sorted(record.affected))",
        "affected = tuple(sorted(each for each in record.affected if self._nodes[each].region in regions))",
        "Tokens wait for an epoch that never comes.",
        2,
        21,
        is_slow=True,
    ),
    _bug(
        "a leader that denies it is believed in again at once",
        "Attendance.on_parcel",
        "self._denied[sender] = now_ns + self._find_ns",
        "pass",
        "Nodes and replicas ask and answer as fast as the network can.",
        2,
        5_310_000_373,
        is_slow=True,
    ),
)
