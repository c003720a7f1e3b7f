"""Bugs of restarts: of what is stored and when, of what restarted members may do, and of how others take them in."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

PROFILE: Final = "restarts"


def _bug(name: str, function: str, old: str, new: str, breaks: str, bound: int, orderer: str = "sequencer") -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, PROFILE)


RESTART_BUGS: Final[tuple[Bug, ...]] = (
    _bug(
        "changes without a failure are not stored",
        "Keeping.changed",
        "if stamp == self._stamp: return None",
        "if isinstance(self._stamp, tuple) and self._stamp[1:2] == stamp[1:2]: return None",
        "A restarted member votes in a view that the group has left.",
        60,
    ),
    _bug(
        "promises are not stored",
        "QuorumRing.kept",
        "promised = recovery.promised if recovery is not None else NO_BALLOT",
        "promised = NO_BALLOT",
        "A restarted member promises a lower ballot than before.",
        0,
    ),
    _bug(
        "the accepted proposal is forgotten",
        "Returning._on_result",
        "self.kept = self.kept._replace(accepted=proposal._replace(ballot=ballot))",
        "pass",
        "A view that was committed is proposed anew, with other members.",
        0,
    ),
    _bug(
        "nobody is waited for that may hold what was lost",
        "lacks_holders",
        "not is_whole and not are_quorums(electorates, holders)",
        "False",
        "Restarted members go on without a member that lives.",
        60,
    ),
    _bug(
        "restarted members come along with their former blocks",
        "coming_along",
        "view.reason != Reason.RESTART or each.id in view.awaited",
        "True",
        "came_with names members that come from nowhere.",
        10,
    ),
    _bug(
        "a restarted member speaks for its new life alone",
        "Answers.ids_of",
        "{origin, *(member for members in former for member in members)}",
        "{origin}",
        "Its acceptance does not count in the view that it was in, and the group stays where it is.",
        10,
    ),
    _bug(
        "a coordinator without a log is followed",
        "Recovery._on_invite",
        "ballot.seniority == NO_LOG and not self._is_retired",
        "False",
        "A member that has a log is left behind by those that have none.",
        60,
    ),
    _bug(
        "the last view of the restarted members does not count",
        "Answers.last_view",
        "max([base, *[each.view for each in self.returned.values()]], key=lambda view: view.seq)",
        "base",
        "A survivor goes on from a view that a decided change has replaced.",
        0,
    ),
    _bug(
        "the first view that comes to hand is the base of a cold start",
        "Returning._as_votes",
        "max([vote.view for vote in votes.values()], key=lambda view: view.seq)",
        "min([vote.view for vote in votes.values()], key=lambda view: view.seq)",
        "Restarted members form the group again from a view that the group has left.",
        0,
    ),
    _bug(
        "how the last ring ended is not stored",
        "QuorumMembership.kept",
        "self.past.last()",
        "(0, b'')",
        "A member that missed the commit waits for a ring that is over.",
        0,
    ),
    _bug(
        "a life that was named before its second crash is unknown",
        "Returning.__init__",
        "former = kept.formerly if local.me.id in kept.formerly else (*kept.formerly, local.me.id)",
        "former = kept.formerly",
        "A node that crashes twice does not recognise itself in the view that was committed.",
        0,
    ),
    _bug(
        "a restarted member counts as gone",
        "Coordinator.on_returned",
        "self._answers.returned[returned.former] = returned",
        "pass",
        "The survivor of two restarts waits forever.",
        10,
    ),
    _bug(
        "a newcomer makes the group anew beside restarted members",
        "Returning.on_control",
        "self._say(source, Kind.HERE, encode_ring(self._shown()), 0, out)",
        "pass",
        "Two groups of one name.",
        0,
    ),
)
