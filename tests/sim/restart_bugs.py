"""Bugs of restarts: of what is stored and when, of what restarted members may do, and of how others take them in."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

PROFILE: Final = "restarts"


def _bug(name: str, function: str, old: str, new: str, breaks: str, bound: int, orderer: str = "sequencer") -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, PROFILE)


RESTART_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a restarted member gives up its vote for a smaller group of strangers",
        "Returning._on_ring",
        "waits = WAITS if is_led_by_ours else waits_beside(seen, self._shown())",
        "waits = WAITS",
        "A member that was silent for a while waits for that vote without an end.",
        1,
        "token",
        "endurance",
        first_seed=5_200_000_490,  # a newcomer makes a group while one member is paused and the other restarts
    ),
    _bug(
        "changes without a failure are not stored",
        "Keeping.changed",
        "if stamp == self._stamp: return None",
        "if isinstance(self._stamp, tuple) and self._stamp[1:2] == stamp[1:2]: return None",
        "A restarted member votes in a view that the group has left.",
        40,
    ),
    _bug(
        "nobody is waited for that may hold what was lost",
        "lacks_holders",
        "not is_whole and not are_quorums(electorates, holders)",
        "False",
        "Restarted members go on without a member that lives.",
        20,
    ),
    _bug(
        "the wait for a missing member never ends",
        "Coordinator.on_returned",
        "self._answers.grace_ns = min(self._answers.grace_ns, grace_ns)",
        "pass",
        "A survivor and a restarted member are a quorum, and wait forever.",
        90,
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
        20,
    ),
    _bug(
        "a restarted member counts as gone",
        "Coordinator.on_returned",
        "self._answers.returned[returned.former] = returned",
        "pass",
        "The survivor of two restarts waits forever.",
        20,
    ),
    _bug(
        "a leaver keeps the last view to itself",
        "QuorumRing._on_returned",
        "self.orderer.has_left",
        "False",
        "A restarted member waits for one that has left.",
        20,
    ),
    _bug(
        "a restarted member does not know the senders of its last view",
        "follow_kept",
        "out.notes.extend([Note('name', member.id, detail=str(member)) for member in old.members])",
        "pass",
        "What survivors submit for members that are gone has no sender.",
        120,
    ),
    _bug(
        "a decided view is not known to be decided after a restart",
        "vote_of",
        "view.seq if returned.is_decided else max(view.seq - 1, 0)",
        "max(view.seq - 1, 0)",
        "A quorum of the view before is asked for, which may be gone.",
        200,
    ),
    _bug(
        "restarted members are a quorum of any view",
        "Returning._as_votes",
        "max([vote.view for vote in votes.values()], key=lambda view: view.seq)",
        "replace(self.kept.view, members=self.kept.view.members[:1], prior=())",
        "A part of the last view forms the group again.",
        60,
    ),
    Bug(
        "senders go on behind what only a restarted member had ordered",
        "Coordinator._propose",
        "numbers.setdefault(member.id, base.numbers.get(member.id, 0))",
        "numbers[member.id] = max(numbers.get(member.id, 0), base.numbers.get(member.id, 0))",
        "A survivor breaks off: its own block is not the next one of the ring. Or it cannot accept the view.",
        1,
        "token",
        "endurance",
        first_seed=1_820_007_598,  # a member has to crash between storing a view and sending what it ordered before
    ),
    Bug(
        "a member that was let go before it crashed tells others neither the view that let it go nor its vote",
        "FormerVote.on_control",
        ("self._say(source, Kind.WELCOME, welcome, ring, out)", "self._say_returned(source, out)"),
        ("pass", "pass"),
        "A restarted member waits without an end for the vote of one that has left.",
        1,
        "sequencer",
        "endurance",
        first_seed=2_400_000_574,  # a member has to crash between storing its expulsion and telling it
    ),
    Bug(
        "a newcomer that alone is left in a kept view is not welcomed",
        "Returning._answer",
        "is_joined or [member.id for member in view.members] == [asking.member.id]",
        "is_joined",
        "Two wait for each other: a restarted member for the newcomer's vote, and the newcomer for a group that works.",
        1,
        "sequencer",
        "endurance",
        first_seed=2_750_009_149,  # all others have to leave while the newcomer does not hear that it was let in
    ),
    Bug(
        "a member that waits for a reset does not answer one that was restarted",
        "Recovery.on_returned",
        "self._role is Role.FAILED",
        "False",
        "The restarted member says that it waits for a member that is up.",
        1,
        "sequencer",
        "endurance",
        first_seed=2_750_008_177,  # nobody may call reset for long
    ),
    Bug(
        "a log that is kept for others outlives its time while the node joins again",
        "QuorumMembership.expire",
        "self.past.expire(now_ns, self._state is not None and not self.is_whole)",
        "pass",
        "Its timer stays overdue, and the node does nothing but look at it.",
        1,
        "sequencer",
        "endurance",
        first_seed=2_760_001_202,  # a node has to come back for ten seconds
    ),
)
