"""Bugs of the membership: of its rule, of how changes are decided, and of recovery. Each is one mutation.

`shown_by` names the scenario of `ordercast explore` in which it should show, with the number of members, and `faults`
the kinds of failures if the scenario's own do not do. Most of them need one datagram, or one crash, at the wrong
moment: random scenarios find some of them only after many seeds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.sim.bug import Bug


class MembershipBug(NamedTuple):
    """A bug, and the scenario that is to show it."""

    bug: Bug
    shown_by: str
    members: int
    faults: tuple[str, ...] = ()  # empty: the scenario's own


def _bug(
    name: str,
    function: str,
    old: str | tuple[str, ...],
    new: str | tuple[str, ...],
    breaks: str,
    shown_by: str,
    members: int,
    orderer: str = "sequencer",
    faults: tuple[str, ...] = (),
) -> MembershipBug:
    return MembershipBug(Bug(name, function, old, new, breaks, 0, orderer), shown_by, members, faults)


MEMBERSHIP_BUGS: Final[tuple[MembershipBug, ...]] = (
    # The rule: quorums
    _bug(
        "any half is a quorum",
        "Electorate.is_quorum",
        "has_first = bool(counted) and counted[0] == self.members[0]",
        "has_first = bool(counted)",
        "Both halves of a view go on.",
        "silent",
        4,
    ),
    _bug(
        "others that are present count",
        "Electorate.is_quorum",
        "required_members(rule, len(self.members), len(counted), has_first)",
        "required_members(rule, len(self.members), len(present), has_first)",
        "A newcomer decides on its own join, and a leaver lets itself go.",
        "join",
        3,
        faults=("split",),
    ),
    # The rule: changes without a failure
    _bug(
        "a change is decided by the view that it makes",
        "is_decided",
        "electorate_before(view).is_quorum(holders)",
        "electorate(view).is_quorum(holders)",
        "The second of two members goes on alone with the leave of the first, which goes on without it.",
        "leave-first",
        2,
        "token",
    ),
    _bug(
        "a change is decided as soon as one member holds it",
        "is_decided",
        "not view.prior or electorate_before(view).is_quorum(holders)",
        "not view.prior or bool(holders)",
        "A member delivers behind a change that the others go on without.",
        "leave-first",
        2,
        "token",
    ),
    _bug(
        "a newcomer takes its join for decided",
        "RingState.__init__",
        "self.decided = view.seq - 1 if view.reason == Reason.JOIN else view.seq",
        "self.decided = view.seq",
        "In a recovery, a newcomer vouches for a join that a quorum of the view before never held.",
        "join",
        3,
        faults=("split",),
    ),
    _bug(
        "a change that is received counts as decided",
        "RingState.apply",
        "self.decided = max(self.decided, old.seq if view.prior else view.seq)",
        "self.decided = max(self.decided, view.seq)",
        "Nobody waits for votes, and two parts with different last changes both go on.",
        "leave",
        4,
    ),
    _bug(
        "what stands behind a change is delivered before it is decided",
        "RingState.deliverable",
        "return received if self.decided >= self.view.seq else min(received, self.view.seq - 1)",
        "return received",
        "A member delivers a view, and messages behind it, that the others go on without.",
        "leave-first",
        2,
        "token",
    ),
    # How members learn of decisions
    _bug(
        "nobody asks again whether a change is decided",
        "Deciding.expire",
        "self._say(Kind.VOTE, to, self._view.seq, out, asks=True)",
        "self._say(Kind.VOTE, to, self._view.seq, out)",
        "A member that missed the decision never delivers anything again.",
        "join",
        3,
    ),
    _bug(
        "a member that knows a decision keeps it to itself",
        "Deciding.on_message",
        "if asks:\n    self._say(Kind.DECIDED, source, seq, out)",
        "pass",
        "A member that missed the decision never delivers anything again.",
        "join",
        3,
    ),
    _bug(
        "votes are not counted",
        "Deciding.on_message",
        "self._holders.add(origin)",
        "pass",
        "In views of five, no member ever knows that a change is decided.",
        "leave",
        5,
    ),
    _bug(
        "a leaver does not wait until others know",
        "may_go",
        "return electorate(view).is_quorum(informed)",
        "return True",
        "A leaver takes its vote along: the others cannot tell whether its leave is decided, and wait forever.",
        "leave-first",
        4,
        "token",
        ("crash",),
    ),
    # When changes are ordered
    _bug(
        "the sequencer orders the next change before the last is decided",
        "SequencerOrdering.order",
        (
            "if not is_alone and role.changes and role.changes.first.reason == Reason.JOIN:\n"
            "    self._order_next_change(now_ns, role, out)\n"
            "is_decided = ring.is_decided"
        ),
        (
            "ring.decided = max(ring.decided, ring.view.seq)\n"
            "if not is_alone and role.changes and role.changes.first.reason == Reason.JOIN:\n"
            "    self._order_next_change(now_ns, role, out)\n"
            "is_decided = ring.is_decided"
        ),
        "Two changes are in doubt at once, and a recovery asks only for the view before the last one.",
        "leave-two",
        4,
    ),
    _bug(
        "the token site orders the next change before the last is decided",
        "TokenOrdering._next_change",
        "not changes or not ring.is_decided or safe < pending.last_seq or safe < self._receiver.last_strong_seq",
        "not changes or safe < self._receiver.last_strong_seq",
        "Two changes are in doubt at once, and a recovery asks only for the view before the last one.",
        "leave-two",
        4,
        "token",
    ),
    _bug(
        "the sequencer lets a newcomer in while members lack something",
        "SequencerRole._waits_for_all",
        "is_join and self.safe < log.received and not self._open_messages and self._is_due(log)",
        "is_join and self.safe < 0",
        "Only the sequencer and the newcomer are left, and the newcomer cannot give others what stood before its join.",
        "join-behind",
        2,
    ),
    _bug(
        "the token site lets a newcomer in while members lack something",
        "TokenOrdering._next_change",
        "change.reason == Reason.JOIN and (safe < ring.log.received or self._leaves_to_first())",
        "change.reason == Reason.JOIN and self._leaves_to_first()",
        "Only the token site and the newcomer are left, and the newcomer has nothing of what stood before its join.",
        "join-behind",
        3,
        "token",
    ),
    # Promises
    _bug(
        "no quorum of the last view is needed",
        "needed",
        ("return [electorate(base)]", "return [electorate(base), electorate_before(base)]"),
        ("return []", "return []"),
        "A member that is cut off makes a view of its own.",
        "silent",
        3,
    ),
    _bug(
        "a change in doubt needs a quorum of the new view only",
        "needed",
        "return [electorate(base), electorate_before(base)]",
        "return [electorate(base)]",
        "A part that has the change and a part that does not both go on.",
        "leave",
        4,
        "token",
    ),
    _bug(
        "a change in doubt needs a quorum of the view before only",
        "needed",
        "return [electorate(base), electorate_before(base)]",
        "return [electorate_before(base)]",
        "A part goes on that is no quorum of the last view, while another is one and knows that it is decided.",
        "leave-first",
        3,
        "token",
        ("split", "cut"),
    ),
    _bug(
        "a promise does not bind",
        "Recovery._on_result",
        "if ballot < self.promised:\n"
        "    out.sends.append(self._local.writer.control(source, Kind.DENY, encode_ballot(self.promised)))\n"
        "    return",
        "",
        "Two coordinators both have their views accepted.",
        "silent",
        5,
        faults=("cut", "isolate"),
    ),
    _bug(
        "a promise does not show what was accepted",
        "Recovery._cut",
        "self._orderer.cut(self.accepted)",
        "self._orderer.cut(None)",
        "The next coordinator makes another view than the one that was committed.",
        "silent",
        5,
        faults=("cut", "isolate"),
    ),
    _bug(
        "a leaver that has a vote is not invited",
        "Coordinator.__init__",
        "self.invitees[leaver.id] = leaver",
        "pass",
        "Members of a small view wait forever for the vote of a leaver that is there.",
        "leave-first",
        4,
        "token",
        ("crash",),
    ),
    _bug(
        "a leaver takes no part in a recovery",
        "Recovery.on_message",
        "if self._is_known:\n    return",
        "if self._is_known or self._orderer.has_left:\n    return",
        "Members of a small view wait forever for the vote of a leaver that is there.",
        "leave-first",
        4,
        "token",
        ("crash",),
    ),
    _bug(
        "a coordinator does not welcome a newcomer",
        "Coordinator._invite",
        "out.sends.append(self._local.writer.control(member.address, Kind.WELCOME, welcome))",
        "",
        "A newcomer whose welcome was lost has a vote and does not know it, so the others wait forever.",
        "join",
        3,
    ),
    # Proposals
    _bug(
        "a repeated proposal can be ruled out",
        "binding",
        "last.fresh",
        "bool(cuts)",
        "A view that was proposed again and committed is ruled out by a member that has not accepted it.",
        "silent",
        5,
    ),
    _bug(
        "an accepted proposal does not bind",
        "binding",
        "return last",
        "return None",
        "A member has committed a view, and the others make another one.",
        "silent",
        5,
        faults=("cut", "isolate"),
    ),
    _bug(
        "a proposal that is made again counts as fresh",
        "Coordinator._propose",
        "bound = bound._replace(fresh=False, ballot=self.ballot)",
        "bound = bound._replace(fresh=True, ballot=self.ballot)",
        "It waits for members that are gone, and the round never ends.",
        "crash",
        4,
    ),
    _bug(
        "a fresh proposal is committed without some of its members",
        "is_committed",
        "if proposal.fresh and any(member.id not in accepted for member in proposal.view.members):\n    return False",
        "",
        "A member that has not accepted the view promises to another coordinator, which then rules the view out.",
        "silent",
        5,
    ),
    _bug(
        "a proposal is committed as soon as it is made",
        "is_committed",
        (
            "if proposal.fresh and any(member.id not in accepted for member in proposal.view.members):\n"
            "    return False",
            "return are_quorums([*electorates, electorate(proposal.view)], accepted)",
        ),
        ("", "return bool(accepted)"),
        "A coordinator goes on with a view that nobody else has heard of.",
        "silent",
        5,
        faults=("cut", "isolate"),
    ),
    _bug(
        "a commit needs no quorum of the old view",
        "is_committed",
        "return are_quorums([*electorates, electorate(proposal.view)], accepted)",
        "return electorate(proposal.view).is_quorum(accepted)",
        "A view is committed that the next coordinator need not hear of.",
        "silent",
        5,
    ),
    _bug(
        "a commit needs no quorum of its own view",
        "is_committed",
        "return are_quorums([*electorates, electorate(proposal.view)], accepted)",
        "return are_quorums(electorates, accepted)",
        "A ring begins in which too few members hold the old log to go on.",
        "silent",
        5,
    ),
    # The end of a ring
    _bug(
        "a member that missed the commit does not fetch what it lacks",
        "Recovery.on_commit",
        "if self._role is Role.ACCEPTING:\n"
        "    self._ask_coordinator(out)\n"
        "    self._due_ns = now_ns + self._local.timing.invite_ns",
        "",
        "A member of the new view never begins with it.",
        "crash",
        4,
    ),
    _bug(
        "the old log is not kept for members that missed the commit",
        "PastRings.keep_log",
        "if members:\n"
        "    self._kept, self._kept_ring, self._awaited = orderer, ring, set(members)\n"
        "    self._stop_ns = now_ns + KEEP_NS",
        "",
        "A member of the new view never begins with it.",
        "crash",
        4,
    ),
    _bug(
        "a member that was put out tells nobody how the ring ended",
        "QuorumMembership._follow",
        "self.past.add(self.ring, encode_result(proposal.ballot, proposal))",
        "if successor.is_in:\n    self.past.add(self.ring, encode_result(proposal.ballot, proposal))",
        "A straggler whose only neighbour was put out as well waits forever.",
        "silent",
        5,
    ),
    _bug(
        "stragglers of an older ring are told its own end",
        "PastRings._end",
        "for older in self._endings:\n    self._endings[older] = (kind, body)",
        "",
        "A straggler begins with a view that is over.",
        "silent",
        5,
    ),
    # Joins that were given up
    _bug(
        "a welcome to a join that was given up is ignored",
        "QuorumMembership._on_welcome",
        "withdrawing is not None and withdrawing.accept(nonce)",
        "withdrawing is not None and withdrawing.accept(-1)",
        "The others have to recover from a failure of a node that gave up its join, or wait for its vote.",
        "cancel",
        3,
    ),
    _bug(
        "a join that was taken back is ordered all the same",
        "Admission.on_withdraw",
        "orderer.withdraw(member)",
        "",
        "A node is let in that has been told that it is not.",
        "cancel",
        3,
    ),
)
