"""The policy of components: every part that a failure leaves goes on, and parts merge (extended virtual synchrony).

docs/design/sites.md, "Components", has states, datagrams, timers and what each failure does. The parts: `TakingPart`
(what this daemon has promised and accepted), `Round` (a round that it coordinates), `Neighbours` (who shows itself, and
which components may merge), `Backoff`. All decisions on the next view are pure functions in `classes.py`.

Spread section 2 asks for extended virtual synchrony and leaves the protocol open. The shape is that of the quorum
policy's recovery: ballots, promises, two phases, a watch over the coordinator. Deviation: no vote binds the others.
What binds is a daemon's own ACCEPTED, and only that daemon.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from ordercast.config import Timing
from ordercast.engine import NEVER, Note, Outbox, StallReason, Waiting
from ordercast.errors import WireError
from ordercast.membership.components.backoff import Backoff
from ordercast.membership.components.daemons import (
    ComponentView,
    Daemons,
    GatherReason,
    LocalDaemon,
    OldStreams,
    component_view,
)
from ordercast.membership.components.fetching import ANSWER_BLOCKS, ANSWER_BYTES, answer
from ordercast.membership.components.installing import ComponentInstall, Endings, transition
from ordercast.membership.components.neighbours import Neighbours
from ordercast.membership.components.round import Round, RoundPhase
from ordercast.membership.components.taking_part import ComponentState, TakingPart
from ordercast.membership.policy import NOTE, OldView
from ordercast.orderers.orderer import Suspicion
from ordercast.view import Member, Reason, next_counter
from ordercast.wire.components import (
    ComponentHello,
    DaemonLife,
    Fetch,
    Fetched,
    Gather,
    GatherStep,
    NamedView,
    RoundVote,
    SiteCut,
    decode_fetch,
    decode_gather,
    decode_hello,
    decode_proposal,
    decode_site_cut,
    decode_vote,
    encode_gather,
    encode_vote,
    indices_of,
    mask_of,
)
from ordercast.wire.cuts import Ballot, Result, ViewId
from ordercast.wire.header import Kind
from ordercast.wire.writer import DatagramWriter

FIRST_LTS: Final = 1  # of the view of a daemon that starts
SETTLE: Final = 5  # a merge begins this part of a beacon after it became possible: others may be about to come
RETRIES: Final = 8  # rounds that begin again because a ballot was too low, until a view is installed
KINDS: Final = frozenset(
    (Kind.SHOW, Kind.GATHER, Kind.SITE_CUT, Kind.PROPOSAL, Kind.ACCEPTED, Kind.INSTALL, Kind.FETCH)
)


class ComponentsMembership:
    __slots__ = (
        "_backoff",
        "_begin_ns",
        "_begin_reason",
        "_endings",
        "_hearsay",
        "_lives",
        "_local",
        "_neighbours",
        "_part",
        "_pending",
        "_retries",
        "_round",
        "_settle_ns",
        "_suspects",
        "tally",
    )

    def __init__(
        self,
        name: str,
        me: Member,
        daemons: Daemons,
        writer: DatagramWriter,
        timing: Timing,
        rng: random.Random,
        now_ns: int,
        counter: int = 0,
    ) -> None:
        """`me.name` is in the configuration. `counter`: the highest of a view that an earlier engine of this life was
        in."""
        index = daemons.index(me.name)
        local = LocalDaemon(name, me, DaemonLife(index, me.life), daemons, writer, timing, rng)
        first = NamedView(next_counter(counter, now_ns), local.life, (local.life,))
        self._local = local
        self._part = TakingPart(local, component_view(local, first, FIRST_LTS, Reason.CREATE, (str(me),)))
        self._neighbours = Neighbours(local)
        self._backoff = Backoff(rng)
        self._lives: dict[int, int] = {}  # the newest life of each daemon that was heard
        # Failures of the view, or of the last round; bit sets of indices
        self._suspects = 0  # by this daemon
        self._hearsay = 0  # by others
        # A round of our own, and when one is to begin
        self._round: Round | None = None
        self._begin_ns = NEVER
        self._begin_reason = GatherReason.SUSPICION
        self._settle_ns = NEVER
        self._retries = 0
        # Outcome
        self._pending: ComponentInstall | None = None
        self._endings = Endings()
        self.tally = {"stale": 0, "rounds": 0, "views": 0, "contradictions": 0, "strangers": 0}

    # Inputs

    def start(self, now_ns: int, out: Outbox) -> None:
        """A daemon that starts is a component of one."""
        part = self._part
        self._neighbours.begin(now_ns)
        came_from: tuple[OldView, ...] = ()
        groups = ((self._local.me.id,),)
        self._pending = ComponentInstall(part.view.view, FIRST_LTS, came_from, groups, None)
        self._note(f"view {part.view.view.id} installed: a component of one", out)

    def installed(self, now_ns: int, streams: OldStreams, was_synced: bool, out: Outbox) -> None:
        """The engine has carried out the last `ComponentInstall`; `streams` are those of the new view. `was_synced`:
        whether its rosters were in sync when the old view had ended, the remainder included."""
        self._part.begin(streams, was_synced)
        self._after(now_ns, out)

    def on_control(self, now_ns: int, kind: int, ring: int, origin: int, body: bytes | memoryview, out: Outbox) -> None:
        """A datagram of one of `KINDS`. Raises WireError on nonsense; the engine counts it."""
        self._dispatch(now_ns, kind, ring, origin, body, out)
        self._after(now_ns, out)

    def on_stranger(self, now_ns: int, ring: int, origin: int, out: Outbox) -> None:
        """A datagram of another view: a daemon that is still in a view that this one was in is shown where we are."""
        part, avoids = self._part, self._avoids(now_ns)
        life = self._endings.straggler(now_ns, self._local, ring, origin)
        if life is not None and life not in part.view.lives and not self._is_old(life):
            self._neighbours.tell_one(now_ns, life.index, part.view, self.is_working, part.number, avoids, out)

    def on_suspects(self, now_ns: int, suspicions: Iterable[Suspicion], out: Outbox) -> None:
        """The engine suspects members of the view."""
        self.on_failure(now_ns, GatherReason.SUSPICION, [each.member for each in suspicions], out)

    def on_failure(self, now_ns: int, reason: GatherReason, members: Iterable[int], out: Outbox) -> None:
        """The view cannot go on: TOKEN_LOST, LINK_DEAD, SUSPICION. `members`: who is to blame, as far as is known."""
        suspects = self._indices(members)
        if suspects & ~self._suspects or not suspects:
            self._suspects |= suspects
            if self._part.state is ComponentState.WORKING:
                self._want(now_ns, reason, out)
            elif self._round is not None and any(self._round.counts_on(index) for index in indices_of(suspects)):
                self._begin(now_ns, reason, 0, out)
        self._after(now_ns, out)

    # The pass

    def expire(self, now_ns: int, out: Outbox) -> None:
        part, round_ = self._part, self._round
        if part.expire(now_ns, out):
            self._suspects |= 1 << part.coordinator.index
            self._want(now_ns, GatherReason.SILENT, out)
        if part.fetching is not None and part.fetching.due_ns <= now_ns:
            self._fetch(now_ns, out)
        if round_ is not None and round_ is self._round:
            failed = round_.expire(now_ns, out)
            if failed:
                self._suspects |= failed & ~(1 << self._local.index)
                self._begin(now_ns, GatherReason.UNANSWERED, 0, out)
            else:
                self._follow(now_ns, out)
        if self._begin_ns <= now_ns:
            self._begin(now_ns, self._begin_reason, 0, out)
        if self._settle_ns <= now_ns:
            self._settle_ns = NEVER
            found = self._mergeable(now_ns)
            if found:
                self._begin(now_ns, GatherReason.MERGE, found, out)
        self._after(now_ns, out)

    def deadline_ns(self) -> int:
        due_ns = min(self._part.deadline_ns(), self._begin_ns, self._settle_ns, self._neighbours.due_ns)
        return min(due_ns, self._round.due_ns) if self._round is not None else due_ns

    def take(self) -> ComponentInstall | None:
        """The next transition, to be carried out now; to be asked after every input."""
        pending, self._pending = self._pending, None
        return pending

    # Questions

    @property
    def state(self) -> ComponentState:
        return self._part.state

    @property
    def view(self) -> ComponentView:
        """The view that this daemon is in, or leaves."""
        return self._part.view

    @property
    def is_working(self) -> bool:
        return self._part.state is ComponentState.WORKING

    @property
    def promised(self) -> Ballot:
        """The highest ballot that this daemon has promised."""
        return self._part.promised

    @property
    def bound(self) -> Result | None:
        """The result that this daemon is bound to."""
        return self._part.bound

    def waiting(self) -> Waiting | None:
        """What keeps this daemon out of a view that works; None: nothing."""
        part = self._part
        if self.is_working:
            return None
        missing = [part.coordinator.index] if self._round is None else self._round.awaited()
        names = tuple([self._local.daemons.name(index) for index in missing])
        return Waiting(StallReason.RECOVERY, names, f"the next view is {part.state.name.lower()}")

    # Datagrams

    def _dispatch(self, now_ns: int, kind: int, ring: int, origin: int, body: bytes | memoryview, out: Outbox) -> None:
        if kind == Kind.SHOW:
            hello = decode_hello(body)
            if self._neighbours.is_strange(hello):
                self.tally["strangers"] += 1
                if self._neighbours.refuse(hello, origin, out):
                    self._knows(now_ns, hello.me, origin, out)  # a view with its former life is over
            elif self._knows(now_ns, hello.me, origin, out):
                self._check((hello.creator, *hello.members))
                self._neighbours.on_hello(now_ns, hello)
                self._part.number = max(self._part.number, hello.number)
                self._on_other_view(now_ns, hello, out)
        elif kind == Kind.GATHER:
            gather = decode_gather(body)
            if self._knows(now_ns, gather.me, origin, out):
                self._on_gather(now_ns, gather, origin, out)
        elif kind == Kind.SITE_CUT:
            told = decode_site_cut(body)
            if self._knows(now_ns, told.me, origin, out):
                self._on_cut(now_ns, told, origin, out)
        elif kind == Kind.PROPOSAL:
            proposal = decode_proposal(body)
            if proposal.ballot.coordinator != origin:
                raise WireError("a proposal of somebody else's round")
            if self._knows(now_ns, proposal.me, origin, out):
                self._check(proposal.members)
                for view in proposal.old_views:
                    self._check((view.creator, *view.members))
                if proposal.ballot < self._part.promised:
                    self._deny(proposal.me.index, out)
                else:
                    self._part.on_proposal(now_ns, proposal, out)
        elif kind in (Kind.ACCEPTED, Kind.INSTALL):
            vote = decode_vote(body)
            if self._knows(now_ns, vote.me, origin, out):
                if kind == Kind.ACCEPTED:
                    self._on_accepted(now_ns, vote, out)
                else:
                    self._on_install(now_ns, vote, out)
        elif kind == Kind.FETCH:
            fetch = decode_fetch(body)
            if self._knows(now_ns, fetch.me, origin, out):
                self._on_fetch(now_ns, ring, fetch, out)

    def _knows(self, now_ns: int, life: DaemonLife, origin: int, out: Outbox) -> bool:
        """Whether a datagram is of the newest life of a configured daemon. Raises WireError where it cannot be."""
        if self._local.daemons.id(life) != origin or life.index == self._local.index:
            raise WireError("a datagram that names another daemon than the one that it is from")
        newest = self._lives.get(life.index, -1)
        if life.life < newest:
            self.tally["stale"] += 1
            return False
        if life.life > newest:
            self._lives[life.index] = life.life
            self._on_new_life(now_ns, life, out)
        return True

    def _check(self, lives: Iterable[DaemonLife]) -> None:
        """Raises WireError where one of them is not in the configuration."""
        for life in lives:
            self._local.daemons.member(life)

    def _is_old(self, life: DaemonLife) -> bool:
        return life.life < self._lives.get(life.index, -1)

    def _on_new_life(self, now_ns: int, life: DaemonLife, out: Outbox) -> None:
        """What was known of its former life does not count any more. A view with that one is over."""
        part, index = self._part, life.index
        former = part.view.life(index)
        is_known = former is not None and former != life
        self._neighbours.forget(index)
        self._backoff.forget(index)
        self._suspects &= ~(1 << index)
        self._hearsay &= ~(1 << index)
        if part.state is ComponentState.WORKING:
            if is_known:
                self._want(now_ns, GatherReason.RESTARTED, out)
        elif self._round is not None:
            if self._round.counts_on(index):
                self._begin(now_ns, GatherReason.RESTARTED, 0, out)
        elif part.coordinator.index == index and part.coordinator != life:
            self._want(now_ns, GatherReason.RESTARTED, out)

    def _on_other_view(self, now_ns: int, hello: ComponentHello, out: Outbox) -> None:
        """A daemon shows itself in a view that we are not in. If it is in ours, too, it has gone on without us, unless
        what it says is old: the counters of the views of one daemon rise. So have the others of its view, who have all
        accepted that: a round with them would only break it, and we merge with it as a whole."""
        part = self._part
        name = ViewId(hello.counter, self._local.daemons.id(hello.creator))
        has_gone = hello.me in part.view.lives and name.counter >= part.view.id.counter and name != part.view.id
        if has_gone and part.state is ComponentState.WORKING and not self._suspects >> hello.me.index & 1:
            gone = [life.index for life in hello.members if life in part.view.lives and life != self._local.life]
            self._suspects |= mask_of([hello.me.index, *gone])
            self._want(now_ns, GatherReason.MOVED_ON, out)

    def _on_gather(self, now_ns: int, gather: Gather, origin: int, out: Outbox) -> None:
        part, index, step, ballot = self._part, gather.me.index, gather.step, gather.ballot
        is_ours = self._round is not None and ballot == part.promised
        if step is GatherStep.INVITE:
            if ballot.coordinator != origin:
                raise WireError("an invitation to somebody else's round")
            self._on_invite(now_ns, gather, out)
        elif step is GatherStep.ASK:
            self._on_ask(now_ns, gather, out)
        elif step in (GatherStep.CHECK, GatherStep.HAVE):
            if is_ours and self._round is not None:
                self._round.on_heard(now_ns, index, step is GatherStep.HAVE)
                self._round.alive(index, out)
            else:
                self._answer_straggler(gather.me, ballot, out)
        elif step is GatherStep.ALIVE:
            if ballot == part.promised and gather.me == part.coordinator:
                part.heard_ns = now_ns
        elif step in (GatherStep.DENY, GatherStep.OUTDATED):
            self._on_denied(now_ns, gather, out)
        elif step is GatherStep.REFUSE:
            if is_ours and self._round is not None:
                self._round.on_refusal(now_ns, index, out)
                self._follow(now_ns, out)
        elif ballot == part.promised and gather.me == part.coordinator and part.state is ComponentState.GATHERING:
            # RELEASE: the others go on.
            self._suspects |= gather.daemons & ~(1 << self._local.index)
            for other in indices_of(gather.daemons):
                self._backoff.failed(now_ns, other)
            self._want(now_ns, GatherReason.RELEASED, out)

    def _on_invite(self, now_ns: int, gather: Gather, out: Outbox) -> None:
        part, index, ballot = self._part, gather.me.index, gather.ballot
        if ballot == part.promised:
            part.heard_ns = now_ns
            if part.state is ComponentState.GATHERING:
                part.show(out)
        elif ballot < part.promised:
            self._deny(index, out)
        elif self._avoids(now_ns) >> index & 1:
            self._say(index, GatherStep.REFUSE, ballot, out)
        else:
            if part.state is ComponentState.WORKING:
                self._note(f"gathering: {GatherReason.INVITED.value}, {self._local.daemons.name(index)}", out)
            self._round = None
            self._begin_ns = self._settle_ns = NEVER
            part.promise(now_ns, ballot, gather.me, self._avoids(now_ns))
            part.show(out)

    def _on_ask(self, now_ns: int, gather: Gather, out: Outbox) -> None:
        """A daemon of our view cannot go on, and has a higher index."""
        part = self._part
        if gather.me not in part.view.lives:
            return
        suspects = gather.daemons & part.view.mask & ~(1 << self._local.index | 1 << gather.me.index)
        if part.state is ComponentState.WORKING:
            if gather.ballot == part.promised:  # otherwise it was said in another view
                self._hearsay |= suspects
                self._begin(now_ns, GatherReason.ASKED, 0, out)
        elif self._round is not None:
            self._hearsay |= suspects
            self._round.on_suspects(suspects)
            if gather.ballot == part.promised and self._round.phase is RoundPhase.PROPOSING:
                self._begin(now_ns, GatherReason.ASKED, 0, out)

    def _on_denied(self, now_ns: int, gather: Gather, out: Outbox) -> None:
        """A daemon has promised more than we ask for."""
        part, index = self._part, gather.me.index
        if gather.ballot <= part.promised or part.state is ComponentState.WORKING:
            return
        part.number = max(part.number, gather.ballot.number)
        if self._round is None:
            if gather.me == part.coordinator and self._begin_ns == NEVER:
                self._want(now_ns, GatherReason.OUTBID, out, 3)
        elif self._round.phase is RoundPhase.PROPOSING:
            if self._round.counts_on(index):
                # It does not accept any more. Its coordinator may be about to invite us as well.
                self._suspects |= 1 << index
                self._begin_later(now_ns + 3 * self._local.timing.invite_ns, GatherReason.OUTBID)
        elif gather.step is GatherStep.OUTDATED and self._retries < RETRIES:
            self._retries += 1
            self._begin(now_ns, GatherReason.OUTDATED, 0, out)
        else:
            self._round.on_refusal(now_ns, index, out)
            self._follow(now_ns, out)

    def _on_cut(self, now_ns: int, told: SiteCut, origin: int, out: Outbox) -> None:
        part, daemons, cut = self._part, self._local.daemons, told.cut
        if self._round is None or told.ballot != part.promised:
            return
        self._check((told.view.creator, *told.view.members))
        sites = sorted({daemons.site(life.index) for life in told.view.members})
        is_sound = cut.daemon == origin and cut.site == daemons.site(told.me.index) and list(cut.sites) == sites
        is_sound &= cut.view == ViewId(told.view.counter, daemons.id(told.view.creator))
        is_sound &= cut.bound is None or (cut.bound.id.view == cut.view and origin in cut.bound.members)
        if not is_sound:
            raise WireError("a cut that contradicts itself")
        self._round.on_cut(now_ns, told, out)
        self._follow(now_ns, out)

    def _on_accepted(self, now_ns: int, vote: RoundVote, out: Outbox) -> None:
        if self._round is not None and vote.ballot == self._part.promised:
            self._round.on_accepted(now_ns, vote.me, out)
        else:
            self._answer_straggler(vote.me, vote.ballot, out)

    def _on_install(self, now_ns: int, vote: RoundVote, out: Outbox) -> None:
        part = self._part
        if vote.ballot == part.promised and part.state is ComponentState.ACCEPTED and not part.is_coordinating:
            self._install(now_ns, out)

    def _on_fetch(self, now_ns: int, ring: int, fetch: Fetch | Fetched, out: Outbox) -> None:
        part = self._part
        if ring != part.view.view.ring or fetch.me not in part.view.lives:
            return
        if isinstance(fetch, Fetch):
            answer(self._local, ring, fetch, part.packets(fetch.runs, ANSWER_BLOCKS, ANSWER_BYTES), out)
        elif part.fetching is not None:
            is_new = part.take_packet(fetch.site, fetch.seq, fetch.packet)
            part.fetching.on_answer(fetch.me.index, is_new)
            part.progress(now_ns, out)

    # Rounds

    def _want(self, now_ns: int, reason: GatherReason, out: Outbox, patience: int = 2) -> None:
        """A round is needed. The daemon with the lowest index coordinates it: if that is not we, ask it, and wait the
        longer the more there are before us."""
        avoids = self._avoids(now_ns)
        before = [
            life.index
            for life in self._part.view.lives
            if life.index < self._local.index and not avoids >> life.index & 1 and not self._is_old(life)
        ]
        if self._part.state is not ComponentState.WORKING and self._part.coordinator.index in before:
            before.remove(self._part.coordinator.index)  # it is the one that fails
        if not before:
            self._begin(now_ns, reason, 0, out)
            return
        self._say(before[0], GatherStep.ASK, self._part.promised, out, avoids & self._part.view.mask)
        self._begin_later(now_ns + patience * self._local.timing.invite_ns * (1 + len(before)), reason)

    def _begin_later(self, at_ns: int, reason: GatherReason) -> None:
        if at_ns < self._begin_ns:
            self._begin_ns, self._begin_reason = at_ns, reason

    def _begin(self, now_ns: int, reason: GatherReason, others: int, out: Outbox) -> None:
        """Coordinate the next round. `others`: daemons outside of the view to invite, a bit set. Those of the last
        round are invited again."""
        part, local = self._part, self._local
        blamed = ", ".join([local.daemons.name(index) for index in indices_of(self._suspects | self._hearsay)])
        self._note(f"gathering: {reason.value}" + (f" ({blamed})" if blamed else ""), out)
        self.tally["rounds"] += 1
        self._begin_ns = self._settle_ns = NEVER
        others |= self._round.invitees if self._round is not None else 0
        ballot = Ballot(part.number + 1, local.me.id)
        shown = part.promise(now_ns, ballot, local.life, self._avoids(now_ns))
        self._round = Round(local, ballot, shown, others, self._hearsay)
        self._round.start(now_ns, out)
        self._follow(now_ns, out)

    def _follow(self, now_ns: int, out: Outbox) -> None:
        """Take over what came of a step of our own round."""
        part, round_ = self._part, self._round
        if round_ is not None and round_.proposal is not None and part.state is ComponentState.GATHERING:
            self.tally["contradictions"] += round_.contradictions
            part.on_proposal(now_ns, round_.proposal, out)

    def _fetch(self, now_ns: int, out: Outbox) -> None:
        """It is time to ask for blocks again, or to give up those that have them."""
        part = self._part
        if part.fetching is None:
            return
        silent = part.fetching.silent(part.lacking())
        if silent is None:
            part.progress(now_ns, out)
            return
        for index in silent:
            self._suspects |= 1 << index
        if self._round is not None:
            self._begin(now_ns, GatherReason.UNFETCHED, 0, out)
        else:
            self._say(part.coordinator.index, GatherStep.ASK, part.promised, out, self._suspects)
            part.fetching.again(now_ns)

    def _after(self, now_ns: int, out: Outbox) -> None:
        """What follows from any input."""
        part, round_ = self._part, self._round
        if round_ is not None and part.state is ComponentState.ACCEPTED and round_.phase is RoundPhase.PROPOSING:
            round_.on_accepted(now_ns, self._local.life, out)
        if round_ is not None and round_.phase is RoundPhase.COMMITTED:
            self._install(now_ns, out)
        if self._pending is not None:
            return
        avoids = self._avoids(now_ns)
        self._neighbours.tell(now_ns, part.view, self.is_working, part.number, avoids, out)
        if self.is_working and self._settle_ns == NEVER and self._begin_ns == NEVER and self._mergeable(now_ns):
            self._settle_ns = now_ns + self._local.timing.beacon_ns // SETTLE

    def _mergeable(self, now_ns: int) -> int:
        """The daemons of components to merge with, if it is on us to begin that; a bit set."""
        view = self._part.view
        if not self.is_working or view.lives[0] != self._local.life:
            return 0
        found = self._neighbours.mergeable(now_ns, view, self._avoids(now_ns))
        mask = 0
        for each in found:
            mask |= each.mask
        return mask if mask & ((1 << self._local.index) - 1) == 0 else 0

    # Installing

    def _install(self, now_ns: int, out: Outbox) -> None:
        part = self._part
        view, self._pending, proposal = transition(self._local, part)
        self._back_off(now_ns, proposal.left_out, view)
        self._endings.add(part.promised, proposal.members, part.view)
        self._suspects = self._hearsay = self._retries = 0
        self._round = None
        self._begin_ns = self._settle_ns = NEVER
        self.tally["views"] += 1
        part.leave(view)
        self._note(f"view {view.view.id} installed: members {', '.join(map(str, view.view.members))}", out)

    def _back_off(self, now_ns: int, left_out: int, view: ComponentView) -> None:
        """Who was with us, or was to be, and is not any more."""
        for life in self._part.view.lives:
            if not self._is_old(life):
                left_out |= 1 << life.index
        for index in indices_of(left_out & ~view.mask):
            self._backoff.failed(now_ns, index)

    def _answer_straggler(self, life: DaemonLife, ballot: Ballot, out: Outbox) -> None:
        """A daemon waits in a round that is over: that it ended in a view, with it or without it, or that we are in a
        later one. One that stood still while the others went on would otherwise take our silence for a failure, and
        break their view by a round with some of them."""
        if self._endings.ended_with(ballot, life):
            body = encode_vote(RoundVote(self._local.life, ballot))
            self._local.send(life.index, Kind.INSTALL, body, out)
        elif ballot == self._part.promised and self.is_working:
            self._say(life.index, GatherStep.RELEASE, ballot, out, self._part.view.mask)
        elif ballot < self._part.promised:
            self._deny(life.index, out)

    # Helpers

    def _avoids(self, now_ns: int) -> int:
        """The daemons that this one does not go with now."""
        return (self._suspects | self._backoff.mask(now_ns)) & ~(1 << self._local.index)

    def _indices(self, members: Iterable[int]) -> int:
        mask, ids = 0, set(members)
        for life, member in zip(self._part.view.lives, self._part.view.view.members, strict=True):
            if member.id in ids and life != self._local.life:
                mask |= 1 << life.index
        return mask

    def _deny(self, index: int, out: Outbox) -> None:
        step = GatherStep.OUTDATED if self.is_working else GatherStep.DENY
        self._say(index, step, self._part.promised, out)

    def _say(self, index: int, step: GatherStep, ballot: Ballot, out: Outbox, daemons: int = 0) -> None:
        body = encode_gather(Gather(self._local.life, step, ballot, daemons))
        self._local.send(index, Kind.GATHER, body, out)

    def _note(self, detail: str, out: Outbox) -> None:
        out.notes.append(Note(NOTE, self._local.me.id, detail=detail))
