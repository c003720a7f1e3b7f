"""A round that this daemon coordinates: it invites, computes classes and remainders, proposes, and installs when all
hold what they have to deliver.

A round ends in a view, or in the next round. Daemons that do not answer, refuse, or cannot be together with those that
do are left out. Whoever is left out is told so, and goes on by itself: there is no quorum.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from ordercast.engine import NEVER, Outbox
from ordercast.errors import InvariantViolation, WireError
from ordercast.membership.components.classes import conclude, holders
from ordercast.membership.components.daemons import LocalDaemon
from ordercast.wire.components import (
    ComponentProposal,
    DaemonLife,
    Gather,
    GatherStep,
    HolderRun,
    NamedView,
    ProposedClass,
    RoundVote,
    SiteCut,
    encode_gather,
    encode_proposal,
    encode_vote,
    indices_of,
)
from ordercast.wire.cuts import Ballot, Class, Cut
from ordercast.wire.header import Kind

SUSPECT_TRIES: Final = 2  # invitations of a daemon that another one suspects
ACCEPT_WAITS: Final = 5  # times `recovery_wait_ns` until everybody has to hold its remainder


class RoundPhase(Enum):
    COLLECTING = auto()
    PROPOSING = auto()
    COMMITTED = auto()


class Round:
    __slots__ = (
        "_accepted",
        "_bodies",
        "_cuts",
        "_have",
        "_heard_ns",
        "_invitees",
        "_local",
        "_rejected",
        "_stop_ns",
        "_suspects",
        "_tries",
        "ballot",
        "contradictions",
        "due_ns",
        "phase",
        "proposal",
    )

    def __init__(self, local: LocalDaemon, ballot: Ballot, own: SiteCut, invitees: int, suspects: int) -> None:
        """`invitees`, `suspects`: bit sets of indices; the latter have less time to answer."""
        self._local = local
        self.ballot = ballot
        self.phase = RoundPhase.COLLECTING
        self.due_ns = NEVER
        # Cuts, by index
        self._cuts: dict[int, SiteCut] = {local.index: own}
        self._invitees = invitees & ~(1 << local.index) & ~own.avoids
        self._suspects = suspects
        self.contradictions = 0  # 1: cuts that cannot be true together were left out
        self._rejected = 0  # invited, and not to be waited for
        self._tries = 0
        # The proposal
        self.proposal: ComponentProposal | None = None  # as this daemon itself gets it
        self._bodies: dict[int, bytes] = {}
        self._accepted: set[int] = set()
        self._have: set[int] = set()
        self._heard_ns: dict[int, int] = {}
        self._stop_ns = NEVER

    # Inputs

    def start(self, now_ns: int, out: Outbox) -> None:
        self._add_members(self._cuts[self._local.index].view.members)
        self._invite(now_ns, out)
        self._consider(now_ns, out)

    def on_cut(self, now_ns: int, told: SiteCut, out: Outbox) -> None:
        """Raises WireError where it contradicts the cut of another member of the same view."""
        index = told.me.index
        if self.phase is not RoundPhase.COLLECTING or index in self._cuts or not self._invitees >> index & 1:
            return
        for other in self._cuts.values():
            if other.cut.view == told.cut.view and (other.view != told.view or other.cut.sites != told.cut.sites):
                raise WireError("two cuts of one view that contradict each other")
        self._cuts[index] = told
        self._rejected &= ~(1 << index)
        if self._add_members(told.view.members):
            self._tries = 0
            self._invite(now_ns, out)
        self._consider(now_ns, out)

    def on_refusal(self, now_ns: int, index: int, out: Outbox) -> None:
        """A daemon keeps away from us, or is in another round."""
        if self.phase is RoundPhase.COLLECTING and self._invitees >> index & 1 and index not in self._cuts:
            self._rejected |= 1 << index
            self._consider(now_ns, out)

    def on_suspects(self, suspects: int) -> None:
        self._suspects |= suspects

    def on_heard(self, now_ns: int, index: int, has_proposal: bool) -> None:
        """A member of the proposal lives."""
        if index in self._heard_ns:
            self._heard_ns[index] = now_ns
            if has_proposal:
                self._have.add(index)

    def on_accepted(self, now_ns: int, life: DaemonLife, out: Outbox) -> None:
        """A member holds its remainder. When all do the view stands, and everybody is told."""
        proposal = self.proposal
        if self.phase is not RoundPhase.PROPOSING or proposal is None or life not in proposal.members:
            return
        self._heard_ns[life.index] = now_ns
        self._accepted.add(life.index)
        if len(self._accepted) < len(proposal.members):
            return
        self.phase = RoundPhase.COMMITTED
        self.due_ns = NEVER
        body = encode_vote(RoundVote(self._local.life, self.ballot))
        for member in proposal.members:
            if member.index != self._local.index:
                self._local.send(member.index, Kind.INSTALL, body, out)

    def counts_on(self, index: int) -> bool:
        """Whether the round cannot end without this daemon."""
        return index in (self._cuts if self.proposal is None else self._heard_ns)

    def expire(self, now_ns: int, out: Outbox) -> int:
        """The daemons for whom this round fails: 0 as long as it goes on."""
        if self.due_ns > now_ns:
            return 0
        if self.phase is RoundPhase.COLLECTING:
            self._consider(now_ns, out)
            if self.phase is RoundPhase.COLLECTING:
                self._invite(now_ns, out)
            return 0
        wait_ns = self._local.timing.recovery_wait_ns
        failed = 0
        for index, heard_ns in self._heard_ns.items():
            if index not in self._accepted and (now_ns >= self._stop_ns or now_ns - heard_ns >= wait_ns):
                failed |= 1 << index
        if not failed:
            self._propose(now_ns, out)
        return failed

    # Phase 1: cuts

    def _add_members(self, lives: Iterable[DaemonLife]) -> bool:
        """Whoever was in a view with one that answered is invited, too."""
        avoids = self._cuts[self._local.index].avoids
        before = self._invitees
        for life in lives:
            if life.index != self._local.index and life.index < len(self._local.daemons):
                self._invitees |= 1 << life.index & ~avoids
        return self._invitees != before

    def _silent(self) -> list[int]:
        return [index for index in indices_of(self._invitees & ~self._rejected) if index not in self._cuts]

    def _invite(self, now_ns: int, out: Outbox) -> None:
        body = encode_gather(Gather(self._local.life, GatherStep.INVITE, self.ballot))
        for index in self._silent():
            self._local.send(index, Kind.GATHER, body, out)
        self._tries += 1
        wait_ns = self._local.timing.invite_ns
        self.due_ns = now_ns + wait_ns + self._local.rng.randrange(wait_ns // 4)

    def _consider(self, now_ns: int, out: Outbox) -> None:
        """Go on when all have answered, or when the silent ones were invited often enough."""
        silent = self._silent()
        tries = (
            SUSPECT_TRIES if all(self._suspects >> index & 1 for index in silent) else self._local.timing.invite_tries
        )
        if not silent or (self._tries >= tries and self.due_ns <= now_ns):
            self._conclude(now_ns, out)

    # Phase 2: the proposal

    def _choose(self) -> list[SiteCut]:
        """Those that can be together. This daemon and its old view come first, then view by view: a component is not
        divided for another one's sake."""
        own = self._cuts[self._local.index]
        lowest: dict[NamedView, int] = {}
        for index, told in self._cuts.items():
            lowest[told.view] = min(lowest.get(told.view, index), index)
        chosen = [own]
        mask, avoids = 1 << self._local.index, own.avoids
        order = sorted(
            [(told.view != own.view, lowest[told.view], index) for index, told in self._cuts.items() if told is not own]
        )
        for _, _, index in order:
            told = self._cuts[index]
            if not avoids >> index & 1 and not told.avoids & mask:
                chosen.append(told)
                mask |= 1 << index
                avoids |= told.avoids
        return sorted(chosen, key=_index)

    def _conclude(self, now_ns: int, out: Outbox) -> None:
        local, chosen = self._local, self._choose()
        try:
            outcome = conclude(self.ballot, [told.cut for told in chosen])
        except InvariantViolation:
            # Cuts that cannot be true together. Ours is: we go on with it alone, and leave those that lie.
            chosen = [self._cuts[local.index]]
            self.contradictions = 1
            outcome = conclude(self.ballot, [chosen[0].cut])
        cuts = [told.cut for told in chosen]
        lives = tuple([told.me for told in chosen])
        places = {told.cut.daemon: place for place, told in enumerate(chosen)}
        counter = max(outcome.counter, 1 + max([told.counter for told in chosen]))
        views: list[NamedView] = []
        classes: list[ProposedClass] = []
        for each in outcome.classes:
            members = tuple(sorted([places[member] for member in each.members]))
            view = chosen[members[0]].view
            if view not in views:
                views.append(view)
            classes.append(ProposedClass(views.index(view), each.result.id, each.result.horizon, members))
        groups = tuple(sorted([tuple(sorted([places[each] for each in group])) for group in outcome.roster_groups]))
        mask = 0
        for life in lives:
            mask |= 1 << life.index
        common = ComponentProposal(
            local.life,
            self.ballot,
            counter,
            outcome.first_lts,
            lives,
            self._invitees & ~mask,
            tuple(views),
            tuple(classes),
            groups,
            0,
            0,
            None,
            (),
        )
        for own, each in enumerate(outcome.classes):
            self._make_bodies(common, own, each, cuts, chosen)
        self._release(mask, out)
        self.phase = RoundPhase.PROPOSING
        self._heard_ns = dict.fromkeys([life.index for life in lives], now_ns)
        self._stop_ns = now_ns + ACCEPT_WAITS * local.timing.recovery_wait_ns
        self._propose(now_ns, out)

    def _make_bodies(
        self, common: ComponentProposal, own: int, each: Class, cuts: list[Cut], chosen: list[SiteCut]
    ) -> None:
        """What each member of one class gets: the same for all of them."""
        members = [chosen[place] for place in common.classes[own].members]
        if members[0].cut.bound is not None:
            mine = common._replace(own=own)
        else:
            runs = _holder_runs(each, cuts)
            mine = common._replace(own=own, stable=each.result.stable, remainder=each.result.remainder, holders=runs)
        body = b""
        for told in members:
            if told.me == self._local.life:
                self.proposal = mine
            else:
                body = body or encode_proposal(mine)
                self._bodies[told.me.index] = body

    def _release(self, mask: int, out: Outbox) -> None:
        """Whoever showed its cut and is not in the view goes on without us."""
        body = encode_gather(Gather(self._local.life, GatherStep.RELEASE, self.ballot, mask))
        for index in self._cuts:
            if not mask >> index & 1:
                self._local.send(index, Kind.GATHER, body, out)

    def _propose(self, now_ns: int, out: Outbox) -> None:
        for index, body in self._bodies.items():
            if index not in self._accepted and index not in self._have:
                self._local.send_long(index, Kind.PROPOSAL, body, out)
        wait_ns = self._local.timing.invite_ns
        self.due_ns = now_ns + wait_ns + self._local.rng.randrange(wait_ns // 4)

    @property
    def invitees(self) -> int:
        """Whom another round would invite: not those that were let go. A bit set."""
        gone = 0
        if self.proposal is not None:
            for index in self._cuts:
                gone |= 1 << index
            for life in self.proposal.members:
                gone &= ~(1 << life.index)
        return self._invitees & ~gone & ~self._rejected

    def awaited(self) -> list[int]:
        """Whose word is missing."""
        if self.proposal is None:
            return self._silent()
        return [index for index in self._heard_ns if index not in self._accepted]

    def alive(self, index: int, out: Outbox) -> None:
        """To a daemon of this round that asks: we are here. One that is not in the view is told so again."""
        proposal = self.proposal
        if proposal is None or index in self._heard_ns:
            gather = Gather(self._local.life, GatherStep.ALIVE, self.ballot)
        else:
            members = 0
            for life in proposal.members:
                members |= 1 << life.index
            gather = Gather(self._local.life, GatherStep.RELEASE, self.ballot, members)
        self._local.send(index, Kind.GATHER, encode_gather(gather), out)


def _index(told: SiteCut) -> int:
    return told.me.index


def _holder_runs(each: Class, cuts: list[Cut]) -> tuple[HolderRun, ...]:
    """Who holds those blocks of a remainder that not every member of the class has."""
    view = each.result.id.view
    places = {cut.daemon: place for place, cut in enumerate(cuts)}
    held = holders(view, cuts)
    sites = {cut.daemon: cut.site for cut in cuts}
    runs: list[HolderRun] = []
    wanted = []
    for due in (*each.result.remainder.before, *each.result.remainder.after):
        who = held.get((due.site, due.seq), [])
        if any(due.mask >> sites[member] & 1 and member not in who for member in each.members):
            wanted.append((due.site, due.seq, tuple([places[member] for member in who])))
    for site, seq, found in sorted(wanted):
        last = runs[-1] if runs else None
        if last is not None and (last.site, last.first + last.count, last.holders) == (site, seq, found):
            runs[-1] = last._replace(count=last.count + 1)
        else:
            runs.append(HolderRun(site, seq, 1, found))
    return tuple(runs)
