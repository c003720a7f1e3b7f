"""What this daemon has promised and accepted: WORKING, GATHERING, ACCEPTING, ACCEPTED, and WORKING again.

A promise freezes the streams and shows the cut. A daemon is *bound* when it holds the whole remainder of a proposal, at
the moment it sends ACCEPTED, by its first such result, until it installs a view: somebody may install that view and
count on it. A higher promise voids what comes late of a lower one. A daemon never returns to its old view.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ordercast.engine import NEVER, Outbox
from ordercast.errors import InvariantViolation, WireError
from ordercast.membership.components.daemons import ComponentView, LocalDaemon, OldStreams
from ordercast.membership.components.fetching import Fetching
from ordercast.wire.components import (
    ComponentProposal,
    DaemonLife,
    Gather,
    GatherStep,
    RoundVote,
    SiteCut,
    encode_gather,
    encode_site_cut,
    encode_vote,
)
from ordercast.wire.cuts import Ballot, Cut, Due, Lineage, Result, ResultId, ViewId
from ordercast.wire.header import Kind

NO_PROMISE: Final = Ballot(0, 0)


class ComponentState(Enum):
    WORKING = auto()
    GATHERING = auto()  # promised; its cut is shown
    ACCEPTING = auto()  # has a proposal, fetches what it lacks
    ACCEPTED = auto()  # holds everything; waits for the word that all do


class TakingPart:
    __slots__ = (
        "_body",
        "_left",
        "_local",
        "_streams",
        "bound",
        "coordinator",
        "counter",
        "due_ns",
        "fetching",
        "heard_ns",
        "lineage",
        "number",
        "promised",
        "proposal",
        "result",
        "state",
        "view",
    )

    def __init__(self, local: LocalDaemon, view: ComponentView) -> None:
        self._local = local
        self._streams: OldStreams | None = None  # of the view; none between a transition and the word that it is done
        self._left: tuple[ViewId, ResultId] | None = None  # the view that was left last, and how
        self.view = view
        self.lineage = Lineage(view.id, None)
        self.state = ComponentState.WORKING
        # Promises
        self.promised = NO_PROMISE
        self.coordinator = local.life
        self.number = 0  # the highest of a ballot that is known here
        self.counter = view.id.counter  # the highest of a view that is known here
        self._body = b""  # the cut, as it was shown
        # Acceptance
        self.proposal: ComponentProposal | None = None
        self.result: Result | None = None  # of the proposal
        self.bound: Result | None = None
        self.fetching: Fetching | None = None
        # The watch over the coordinator
        self.heard_ns = 0
        self.due_ns = NEVER

    @property
    def is_coordinating(self) -> bool:
        return self.coordinator == self._local.life

    def promise(self, now_ns: int, ballot: Ballot, coordinator: DaemonLife, avoids: int) -> SiteCut:
        """Promise a ballot that is higher than all before, and tell the cut."""
        self.promised, self.coordinator = ballot, coordinator
        self.number = max(self.number, ballot.number)
        self.state = ComponentState.GATHERING
        self.proposal = self.result = self.fetching = None
        self.heard_ns = now_ns
        self.due_ns = NEVER if self.is_coordinating else now_ns + self._local.timing.invite_ns
        local, view, frozen = self._local, self.view, self.streams.freeze()
        cut = Cut(
            local.me.id,
            local.daemons.site(local.index),
            view.id,
            frozen.sites,
            frozen.sources,
            frozen.arus,
            frozen.delivered,
            frozen.clock,
            frozen.is_synced,
            self.lineage,
            self.bound,
        )
        shown = SiteCut(local.life, ballot, self.counter, avoids, view.named, cut)
        self._body = b"" if self.is_coordinating else encode_site_cut(shown)
        return shown

    def show(self, out: Outbox) -> None:
        """To the coordinator, again where it asks again."""
        self._local.send_long(self.coordinator.index, Kind.SITE_CUT, self._body, out)

    def on_proposal(self, now_ns: int, proposal: ComponentProposal, out: Outbox) -> None:
        """Raises WireError where it is not about this daemon."""
        if proposal.ballot != self.promised:
            return
        self.heard_ns = now_ns
        if self.state is ComponentState.ACCEPTED:
            self._tell_accepted(out)
        if self.state is not ComponentState.GATHERING:
            return
        result = self._own_result(proposal)
        self.proposal, self.result = proposal, result
        self.streams.raise_clock(proposal.first_lts)
        self.counter = max(self.counter, proposal.counter)
        self.state = ComponentState.ACCEPTING
        self.fetching = Fetching(self._local, self.view.view.ring, proposal)
        self.progress(now_ns, out)

    def progress(self, now_ns: int, out: Outbox) -> bool:
        """Whether everything is here now. Otherwise it is asked for where it is time."""
        if self.state is not ComponentState.ACCEPTING or self.fetching is None:
            return False
        lacking = self.lacking()
        if lacking:
            if self.fetching.due_ns <= now_ns:
                self.fetching.ask(now_ns, lacking, out)
            return False
        self.state = ComponentState.ACCEPTED
        self.fetching = None
        if self.bound is None:
            self.bound = self.result
        self._tell_accepted(out)
        return True

    def lacking(self) -> list[Due]:
        if self.result is None:
            return []
        remainder = self.result.remainder
        return self.streams.lacking((*remainder.before, *remainder.after))

    def packets(
        self, runs: tuple[tuple[int, int, int], ...], most: int, most_bytes: int
    ) -> list[tuple[int, int, bytes]]:
        """What is here of blocks that another daemon of the old view lacks, up to a bound."""
        found: list[tuple[int, int, bytes]] = []
        size = 0
        for site, first, count in runs:
            for seq in range(first, first + count):
                packet = self.streams.packet(site, seq)
                if packet is not None:
                    found.append((site, seq, packet))
                    size += len(packet)
                if len(found) >= most or size >= most_bytes:
                    return found
        return found

    def take_packet(self, site: int, seq: int, packet: bytes) -> bool:
        return self.streams.take_packet(site, seq, packet)

    def expire(self, now_ns: int, out: Outbox) -> bool:
        """Ask the coordinator, again and again; whether it has been silent for too long."""
        if self.due_ns > now_ns or self.state is ComponentState.WORKING:
            return False
        timing = self._local.timing
        silent_ns = now_ns - self.heard_ns
        if silent_ns >= timing.recovery_wait_ns:
            self.due_ns = NEVER
            return True
        self.due_ns = now_ns + 2 * timing.invite_ns
        if self.state is ComponentState.ACCEPTED:
            self._tell_accepted(out)
            if 2 * silent_ns >= timing.recovery_wait_ns and self.proposal is not None:
                # Somebody else may have installed the view, and the coordinator be gone since.
                body = encode_vote(RoundVote(self._local.life, self.promised))
                for life in self.proposal.members:
                    if life.index not in (self._local.index, self.coordinator.index):
                        self._local.send(life.index, Kind.ACCEPTED, body, out)
            return False
        step = GatherStep.HAVE if self.state is ComponentState.ACCEPTING else GatherStep.CHECK
        body = encode_gather(Gather(self._local.life, step, self.promised))
        self._local.send(self.coordinator.index, Kind.GATHER, body, out)
        return False

    def deadline_ns(self) -> int:
        return min(self.due_ns, self.fetching.due_ns if self.fetching is not None else NEVER)

    def leave(self, view: ComponentView) -> None:
        """The old view is over, and this one begins."""
        if self.bound is not None:
            self._left = (self.view.id, self.bound.id)
        self.view, self._streams = view, None
        self.counter = max(self.counter, view.id.counter)
        self.state = ComponentState.WORKING
        self.proposal = self.result = self.bound = self.fetching = None
        self._body = b""
        self.due_ns = NEVER

    def begin(self, streams: OldStreams, was_synced: bool) -> None:
        """`was_synced`: whether the rosters were in sync at the end of the old view, its remainder included."""
        self._streams = streams
        if was_synced and self._left is not None:
            self.lineage = Lineage(*self._left)
        self._left = None

    @property
    def streams(self) -> OldStreams:
        if self._streams is None:
            raise InvariantViolation("a view was installed, and the membership was not told of its streams")
        return self._streams

    # Helpers

    def _tell_accepted(self, out: Outbox) -> None:
        if not self.is_coordinating:
            body = encode_vote(RoundVote(self._local.life, self.promised))
            self._local.send(self.coordinator.index, Kind.ACCEPTED, body, out)

    def _own_result(self, proposal: ComponentProposal) -> Result:
        """The result of our class, checked: our own where we are bound."""
        mine = proposal.classes[proposal.own]
        lives = [proposal.members[place] for place in mine.members]
        if self._local.life not in lives or proposal.old_views[mine.view] != self.view.named:
            raise WireError("a proposal for another daemon")
        if proposal.counter <= self.view.id.counter or mine.id.view != self.view.id:
            raise WireError("a proposal that cannot follow the view here")
        if self.bound is not None:
            if self.bound.id != mine.id:
                raise WireError("a proposal with another result than the one that binds")
            return self.bound
        if proposal.remainder is None or mine.id.ballot != proposal.ballot:
            raise WireError("a proposal without a remainder of its own")
        sites = {self._local.daemons.site(life.index) for life in self.view.lives}
        if any(due.site not in sites for due in (*proposal.remainder.before, *proposal.remainder.after)):
            raise WireError("a remainder of sites that are not in the view")
        members = tuple([self._local.daemons.id(life) for life in lives])
        return Result(mine.id, members, mine.horizon, proposal.stable, proposal.remainder)
