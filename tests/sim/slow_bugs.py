"""Bugs about members that do not receive, and about expulsions (docs/design/slow.md): each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug


def _slow(orderer: str, name: str, function: str, old: str, new: str, breaks: str, bound: int) -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, "slow")


SLOW_BUGS: Final[tuple[Bug, ...]] = (
    _slow(
        "sequencer",
        "the sequencer takes the expulsion of another member for its own leave",
        "SequencerOrdering._order_change",
        "change.reason in DEPARTURES and change.member.id != ring.me.id",
        "change.reason == Reason.LEAVE and change.member.id != ring.me.id",
        "It retires, and nothing is ordered any more.",
        16,
    ),
    _slow(
        "sequencer",
        "an evicted member waits for nothing and never comes back",
        "WayBack.departed",
        "isinstance(upcall, Departed) and upcall.is_waiting",
        "False",
        "A member stays out although its application receives again.",
        16,
    ),
    _slow(
        "sequencer",
        "every member whose application is behind is taken for slow",
        "SequencerRole.holding_up",
        "row.consumed == stable < safe and row.is_behind(now_ns) and not row.leaves_at",
        "not row.leaves_at",
        "Members are evicted that do receive.",
        32,
    ),
    _slow(
        "token",
        "an expelled member keeps its row of the table",
        "Table.apply",
        "leavers and view.reason in DEPARTURES",
        "leavers and view.reason == 2",
        "Nothing is safe any more.",
        16,
    ),
    _slow(
        "token",
        "what was delivered ahead of an expulsion is forgotten too early",
        "ServiceDelivery.forget",
        "self._upto.pop(leaver, None)",
        "self._upto.pop(leaver, None)\nself._early.clear()",
        "A message that is ordered before the expulsion is delivered twice.",
        128,
    ),
    _slow(
        "timestamp",
        "what an expelled member has sent waits for a decision",
        "Agreement.forget",
        "for number in self.queue.undecided(leaver):\n    self.queue.remove((leaver, number))",
        "",
        "The reception queue stands still behind a block that nobody decides.",
        64,
    ),
)
