"""The engine of regions: one for a node, whatever the number of its groups and regions (docs/design/regions.md).

Blocks of senders go to the desk of members, tokens to theirs, what regions say to the lanes, and the rest to whoever
speaks with the membership service. The service decides epochs; an epoch is installed here for all regions at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import NEVER, Departed, Joined, Note, Outbox, StallReason, Waiting
from ordercast.errors import WireError
from ordercast.membership.given import Attending, NumberedGroups, ViewSource
from ordercast.orderers.regions.given import REGIONS_UNDERLAY, GivenEpoch
from ordercast.orderers.regions.member_view import MemberView
from ordercast.orderers.regions.upcalls import Installed, RegionUpcall
from ordercast.parts.courier import ConnectionNumbers
from ordercast.service import FIFO_RANK, Service
from ordercast.underlay.regions.node import MAX_MEMBER_VIEWS, MAX_VIEWS, RegionNode, RegionTerms, terms_of
from ordercast.underlay.regions.receiving import MemberDesk
from ordercast.underlay.regions.sending import LaneDesk
from ordercast.underlay.regions.tokens import TokenDesk
from ordercast.view import Address, Member, group_tag
from ordercast.wire.courier import Parcel, decode_courier_ack
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.regions import Accusation, Accused
from ordercast.wire.segments import Datagram

EXCLUDED_KEPT: Final = 4_096  # excluded nodes that are remembered before those without a view are forgotten
DISCOVERY: Final = frozenset({Kind.WHO, Kind.SERVICE})  # between nodes and replicas of the service, without courier


class RegionsEngine:
    __slots__ = (
        "_departing_ns",
        "_has_asked_to_leave",
        "_has_joined",
        "_intake",
        "_is_closed",
        "_lanes",
        "_members",
        "_node",
        "_service",
        "_source",
        "_tokens",
    )

    def __init__(
        self,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        source: ViewSource,
        terms: RegionTerms | None = None,
        connections: ConnectionNumbers | None = None,
        underlay: str = REGIONS_UNDERLAY,
    ) -> None:
        """`connections`: of the node's couriers, which has one engine after the other. `underlay`: another name where
        a node has several of these side by side, as the baseline of figure 1."""
        tag = group_tag(underlay)
        self._node = RegionNode(me, tag, config, timing, terms or terms_of(config), connections)
        self._intake = Intake(tag, self._node.counters)
        self._members = MemberDesk(self._node)
        self._tokens = TokenDesk(self._node, self._members)
        self._lanes = LaneDesk(self._node)
        self._source = source
        self._service = 0
        self._has_joined = False
        self._departing_ns = NEVER  # until when a leaver waits for its lanes
        self._has_asked_to_leave = False
        self._is_closed = False

    # Questions

    @property
    def me(self) -> Member:
        return self._node.me

    @property
    def config(self) -> GroupConfig:
        return self._node.config

    @property
    def counters(self) -> dict[str, int]:
        return self._node.counters

    @property
    def state(self) -> Attending:
        return self._source.state

    @property
    def table(self) -> NumberedGroups:
        return self._source.table

    @property
    def epoch(self) -> int:
        return self._node.epoch

    def supports(self, service: Service) -> bool:
        return service.rank <= FIFO_RANK

    def pending(self) -> int:
        return self._source.pending()

    @property
    def is_held_up(self) -> bool:
        return self._tokens.is_holding

    def listens(self) -> frozenset[Address]:
        return frozenset([view.given.address for view in self._node.views.values() if view.given.address is not None])

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def is_at_rest(self) -> bool:
        if self._is_closed:
            return True
        views = self._node.views.values()
        return (
            self._lanes.is_at_rest
            and self._node.post.courier.is_at_rest
            and not self._node.post.local
            and self._intake.is_empty
            and not len(self._node.parts)
            and not any(view.ended for view in views)
            and all(view.is_quiet for view in views)
        )

    def waiting(self, now_ns: int) -> Waiting | None:  # noqa: ARG002
        """What keeps this node from going on."""
        state = self._source.state
        if state in (Attending.SEARCHING, Attending.ASKING):
            return Waiting(StallReason.JOIN, (), f"{state.value}: look whether the membership service runs")
        for lane in self._lanes.lanes():
            if lane.kept:
                out = self._node.exclusions.out_of(lane.given.epoch)
                living = [str(each) for each in lane.given.members if each.id not in out]
                text = (
                    f"region {lane.given.region} has not acknowledged {len(lane.kept)} blocks in view {lane.given.id}"
                )
                return Waiting(StallReason.NETWORK, tuple(living), text)
        for region in self._lanes.tiles:
            if self._lanes.undrained(region) >= MAX_VIEWS:
                text = f"{MAX_VIEWS} earlier views of region {region} have not drained: no other one is sent to"
                return Waiting(StallReason.NETWORK, (), text)
        return None

    def describe(self) -> str:
        """One line for people: where this engine is."""
        views = ", ".join([view.given.id for view in self._node.views.values()])
        return f"epoch {self._node.epoch}, views {views or 'none'}, {self._source.state.name.lower()}"

    # Groups

    def join(self, now_ns: int, names: Sequence[str]) -> None:
        self._source.join(now_ns, names)

    def leave(self, now_ns: int, names: Sequence[str]) -> None:
        self._source.leave(now_ns, names)

    def follow(self, now_ns: int, names: Sequence[str]) -> None:
        self._source.follow(now_ns, names)

    def depart(self, now_ns: int, out: Outbox) -> None:  # noqa: ARG002
        if self._departing_ns == NEVER and not self._is_closed:
            self._departing_ns = now_ns + self._node.timing.linger_ns

    # Sending and receiving

    def room(self, now_ns: int, region: int) -> tuple[int, int]:
        if self._is_closed or self._departing_ns != NEVER:
            return 0, self._lanes.room(now_ns, 0)[1]
        return self._lanes.room(now_ns, region)

    def submit(self, now_ns: int, region: int, blocks: Sequence[bytes], out: Outbox) -> int:
        if self._is_closed or self._departing_ns != NEVER:
            return 0
        return self._lanes.submit(now_ns, region, blocks, out)

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:  # noqa: ARG002
        up = self._node.up
        was_behind = up.lag_bytes
        up.consume(seq)
        if self._tokens.is_holding and was_behind != up.lag_bytes:
            self._tokens.release(now_ns)

    def take(self) -> list[RegionUpcall]:
        return self._node.up.take()

    # The pass

    def start(self, now_ns: int, out: Outbox) -> None:
        self._source.start(now_ns, out)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        if self._is_closed:
            return
        for datagram in self._intake.read(now_ns, data, stride):
            try:
                self._on_datagram(now_ns, source, datagram, out)
            except WireError:
                self._intake.reject()

    def _on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None:
        kind, origin = datagram.kind, datagram.origin
        node = self._node
        if kind == Kind.DATA:
            if origin != node.me.id:
                node.post.learn(origin, source)
                self._members.on_data(now_ns, datagram)
        elif kind == Kind.UNRELIABLE:
            if origin != node.me.id:
                self._members.on_unreliable(now_ns, datagram)
        elif kind == Kind.COURIER_ACK:
            node.post.courier.on_ack(now_ns, decode_courier_ack(datagram.body))
        elif kind in DISCOVERY:
            self._source.on_datagram(now_ns, source, datagram, out)
        else:
            found = node.post.on_part(datagram, source)
            if found is not None:
                self._on_parcel(now_ns, *found, out)

    def _on_parcel(self, now_ns: int, peer: int, parcel: Parcel, out: Outbox) -> None:
        kind = parcel.kind
        members, lanes = self._members, self._lanes
        if kind == Kind.REGION_TOKEN:
            self._tokens.on_token(now_ns, parcel)
        elif kind in (Kind.PUSH, Kind.PULLED):
            members.on_piece(now_ns, peer, parcel)
        elif kind == Kind.PULL:
            members.on_pull(peer, parcel)
        elif kind == Kind.REGION_ACK:
            lanes.on_ack(now_ns, parcel)
        elif kind == Kind.REGION_NAK:
            lanes.on_nak(now_ns, peer, parcel, out)
        elif kind == Kind.GONE:
            members.on_gone(peer, parcel)
        elif kind == Kind.LOST:
            members.on_lost(peer, parcel)
        elif kind == Kind.CLOSE:
            members.on_close(peer, parcel)
        elif kind == Kind.DRAINED:
            members.on_drained(peer, parcel)
            lanes.on_drained(parcel)
        else:
            self._source.on_parcel(now_ns, peer, parcel)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        """Nothing: a peer that does not answer is accused when its courier gives up."""

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._is_closed:
            return
        self._intake.expire(now_ns)
        self._source.expire(now_ns, out)
        self._lanes.expire(now_ns, out)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        if self._is_closed:
            return
        node = self._node
        for epoch in self._source.take_epochs():
            if not self._install(now_ns, epoch, out):
                return
        self._tokens.step(now_ns)
        local = node.post.local
        while local:
            self._on_local(now_ns, local.popleft(), out)
        self._forget_drained()
        confirmed = self._lanes.to_confirm(node.epoch)
        if confirmed:
            self._source.confirm(now_ns, confirmed)
        for accused in [*self._tokens.take_accused(), *self._lanes.take_accused()]:
            self._accuse(now_ns, accused)
        for parcel in self._source.take_parcels():
            node.post.learn(parcel.peer, parcel.address)
            node.post.send(parcel.peer, parcel.parcel, parcel.is_urgent)
        for peer in node.post.flush(now_ns, out):
            view = next((name for name, each in node.views.items() if peer in each.members), 0)
            self._accuse(now_ns, Accused(peer, view, node.epoch, Accusation.PARCEL))
        if node.notes:
            out.notes += node.notes
            node.notes.clear()
        self._leave_in_order(now_ns)

    def _on_local(self, now_ns: int, parcel: Parcel, out: Outbox) -> None:
        try:
            self._on_parcel(now_ns, self._node.me.id, parcel, out)
        except WireError:
            self._intake.reject()

    def _accuse(self, now_ns: int, accused: Accused) -> None:
        if accused.node and accused.node != self._node.me.id:
            self._source.accuse(now_ns, accused)

    def _leave_in_order(self, now_ns: int) -> None:
        if self._source.state == Attending.LEFT:
            self._close(Departed(True, False, "left"))
            return
        if self._source.state == Attending.OUT:
            self._close(Departed(False, True, "the membership service has excluded this node"))
            return
        if self._departing_ns == NEVER or self._has_asked_to_leave:
            return
        if self._lanes.is_acknowledged or self._departing_ns <= now_ns:
            self._has_asked_to_leave = True
            self._source.depart(now_ns)

    def _close(self, departed: Departed) -> None:
        self._is_closed = True
        self._node.up.add(departed)

    def deadline_ns(self) -> int:
        if self._is_closed:
            return NEVER
        due_ns = min(self._source.deadline_ns(), self._intake.due_ns, self._tokens.deadline_ns())
        leaving_ns = self._departing_ns if not self._has_asked_to_leave else NEVER
        return min(due_ns, self._lanes.deadline_ns(), self._node.post.courier.deadline_ns(), leaving_ns)

    # Epochs

    def _install(self, now_ns: int, epoch: GivenEpoch, out: Outbox) -> bool:
        """False: this node is out of it."""
        node = self._node
        me = node.me.id
        if me in epoch.excluded and self._has_asked_to_leave:
            self._close(Departed(True, False, "left"))
            return False
        if (self._service and epoch.service != self._service) or me in epoch.excluded:
            what = "has excluded this node" if me in epoch.excluded else "is another one"
            self._close(Departed(False, True, f"the membership service {what}"))
            return False
        if epoch.number <= node.epoch and self._service:
            return True
        self._service = epoch.service
        # A snapshot does not say since when the views that it leaves out have ended: perhaps just after the epoch that
        # was known here. Whoever confirmed a later one would confirm the end of a lane that is not settled.
        lanes_ended = node.epoch + 1 if epoch.is_whole else epoch.number
        node.epoch = epoch.number
        if not self._has_joined:
            self._has_joined = True
            node.up.add(Joined())
        ended = set(epoch.ended)
        if epoch.is_whole:
            named = {view.view for view in epoch.views}
            known = [*node.views, *[view.view for view in self._lanes.tiles.values()]]
            ended.update([view for view in known if view not in named])
        of_exclusions = epoch.exclusions or (epoch.number if epoch.excluded else 0)
        is_gap = epoch.is_whole and bool(node.views or self._lanes.tiles)
        fresh = node.exclusions.install(of_exclusions, epoch.excluded, is_gap, epoch.since)
        for peer in fresh:
            node.post.drop(peer)
        self._lanes.install(now_ns, lanes_ended, epoch.views, sorted(ended))
        for view in epoch.views:
            node.post.meet(view.members)
            out.notes += [Note("name", member.id, detail=str(member)) for member in view.members]
            if (
                view.view not in node.views
                and view.view not in node.forgotten
                and any(member.id == me for member in view.members)
            ):
                node.views[view.view] = MemberView(
                    *(view, me, node.exclusions, now_ns, node.terms.token_ns, node.start_bytes(view)),
                    node.block_overhead,
                )
        for name, found in list(node.views.items()):
            if name in ended:
                found.end(epoch.number)
            if fresh:
                found.on_exclusions()
            found.settle(epoch.settled)
        node.up.add(Installed(epoch))
        self._source.installed(now_ns, epoch.number)
        for datagram in self._members.installed():
            try:
                self._members.on_data(now_ns, datagram)
            except WireError:
                self._intake.reject()
        self._tokens.release(now_ns)
        if fresh:
            node.fifo.retry()
        self._forget_drained()
        self._bound_memory()
        return True

    def _forget_drained(self) -> None:
        node = self._node
        has_more = True
        while has_more:
            has_more = False
            for view in [view for view in node.views.values() if view.ended and view.may_be_forgotten()]:
                node.forget(view)
                has_more = True

    def _bound_memory(self) -> None:
        node = self._node
        old = [view for view in node.views.values() if view.ended]
        if len(node.views) > MAX_MEMBER_VIEWS and old:
            node.tally("views_dropped")
            node.forget(min(old, key=lambda view: view.given.epoch))
        if len(node.exclusions) > EXCLUDED_KEPT:
            givens = [view.given for view in node.views.values()]
            givens += [each.given for each in node.forgotten.values()]
            givens += [*self._lanes.tiles.values(), *[lane.given for lane in self._lanes.lanes()]]
            concerned = {member.id for given in givens for member in given.members}
            concerned.update([sender for view in node.views.values() for sender in view.records])
            node.exclusions.prune(concerned)
