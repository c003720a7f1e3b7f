"""The directory: which node is in which region, as a state machine that all replicas run (QSM section 2.2).

`apply` turns one ordered batch into one epoch. It has no clock and no chance, so replicas that apply the same batches
have the same directory. A node is in exactly one region, or in none. Regions are exact, unless a plan places nodes:
nodes with the same groups are in one region, and its groups are theirs. Group views are not stored: a crash of a node
in 100,000 groups changes one region.

A node *sees* the regions of the groups that it is in or sends to. It hears of an epoch where something that it sees has
changed. It may have a lane in any view that it sees, so an ended view is *settled* only when every living node that saw
it has confirmed the epoch. A view that a node loses interest in is seen until it ends (`linger`): a lane must not be
closed and opened again in one view. For the same reason, a node that comes back with the life of a former registration
gets new views of what it sees.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

from ordercast.gms.names import NumberedNames
from ordercast.gms.pool import AddressPool
from ordercast.gms.state import EndedViews, EpochOutcome, EpochRecord, NodeState, RegionState, place_of, sees
from ordercast.membership.epochs import MAX_PARENTS, EpochNews
from ordercast.orderers.regions.given import GivenEpoch, GivenView, RegionGroups
from ordercast.parts.runs import NOTHING, Runs, difference, intersection, normal, union
from ordercast.view import Member
from ordercast.wire.gms import Ask, EpochBatch, EpochOperation, NodeRequest
from ordercast.wire.regions import MAX_REGION_MEMBERS

MAX_NODES: Final = MAX_REGION_MEMBERS  # that one service knows: all of them may be in one region
HISTORY: Final = 256  # epochs whose changes are kept; a node that is further behind gets a snapshot
MAX_GONE: Final = 4_096  # nodes that are out and still named in snapshots; the oldest go first


class RegionDirectory:
    __slots__ = (
        "_by_groups",
        "_by_label",
        "_by_name",
        "_excluded",
        "_nodes",
        "_records",
        "_regions",
        "_was",
        "epoch",
        "gone",
        "names",
        "next_region",
        "owed",
        "plan",
        "pool",
        "service",
        "settled",
        "unsettled",
    )

    def __init__(self) -> None:
        self.service = 0  # which service this is; 0: it has not begun
        self.epoch = 0
        self.settled = 0
        self.names = NumberedNames()
        self.plan: dict[str, int] = {}  # names of nodes -> region of the plan
        self.pool = AddressPool()
        # nodes and regions
        self._nodes: dict[int, NodeState] = {}
        self._by_name: dict[str, int] = {}
        self._regions: dict[int, RegionState] = {}
        self._by_groups: dict[Runs, int] = {}  # exact regions
        self._by_label: dict[int, int] = {}  # those of the plan
        self.next_region = 1
        # what is not settled
        self.owed: dict[int, list[int]] = {}  # node -> epochs that it has to confirm, rising
        self.unsettled: deque[EndedViews] = deque()
        self.gone: dict[int, int] = {}  # node -> the epoch that put it out
        # this epoch, and those before it
        self._was: dict[int, NodeState | None] = {}  # nodes that it touched, as they were
        self._excluded: list[Member] = []
        self._records: deque[EpochRecord] = deque()

    # What is known. --------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[int, NodeState]:
        return self._nodes

    @property
    def regions(self) -> dict[int, RegionState]:
        return self._regions

    def node(self, node: int) -> NodeState | None:
        return self._nodes.get(node)

    def numbers(self, request: NodeRequest) -> Runs | None:
        """The numbers of the groups of a JOIN or FOLLOW, in the order of their names; None: signature unknown."""
        if request.names:
            return self.names.look_up(request.names)
        return self.names.known(request.signature) if request.signature is not None else None

    def has_later(self, member: Member) -> bool:
        """Whether a later life of a node is registered."""
        other = self._by_name.get(member.name)
        return other is not None and self._nodes[other].member.life > member.life

    def touched_by(self, operation: EpochOperation) -> set[int]:
        """The regions whose views a request would change, as far as they exist."""
        what = operation.request.what
        state = self._nodes.get(operation.node)
        if state is None or what not in (Ask.JOIN, Ask.LEAVE, Ask.DEPART, Ask.EXCLUDE, Ask.REGISTER):
            return set()
        touched = {state.region}
        if what in (Ask.JOIN, Ask.LEAVE):
            numbers = self.numbers(operation.request) if what is Ask.JOIN else ()
            joined = normal([run for run in numbers or () if run[0]])
            target = difference(union(state.groups, joined), operation.request.runs)
            label = self.plan.get(state.member.name, 0)
            touched.add(self._by_label.get(label, 0) if label else self._by_groups.get(target, 0))
        return touched - {0}

    # One epoch. ------------------------------------------------------------------------------------------------------

    def apply(self, batch: EpochBatch) -> EpochOutcome | None:
        """None: the batch came too late, and changes nothing."""
        if batch.epoch != self.epoch + 1:
            return None
        self.epoch += 1
        self._was = {}
        self._excluded = []
        for operation in batch.operations:
            self._operate(operation)
        regions = self._replace_views(batch.leader)
        self._let_linger(regions)
        ended, freed = self._end_views(regions)
        stakes = self._settle(ended, freed)
        record = self._keep_record(regions, stakes)
        affected = tuple(sorted(record.affected))
        touched = tuple([region for region, (old, new) in regions.items() if _view(old) != _view(new)])
        return EpochOutcome(self.epoch, affected, tuple(self._excluded), touched)

    def _operate(self, operation: EpochOperation) -> None:
        node, number, request = operation
        what = request.what
        if what is Ask.FOUND:
            self.service = self.service or request.service
        elif what is Ask.PLACE:
            self._place(request)
        elif what is Ask.EXCLUDE:
            self._exclude(node)
        elif what is Ask.CONFIRM:
            owed = self.owed.get(node)
            if owed is not None:
                self._owe(node, [epoch for epoch in owed if epoch > request.epoch])
        elif what is Ask.REGISTER:
            self._register(node, number, request)
        else:
            state = self._nodes.get(node)
            if state is not None and number > state.request and not state.leaving:
                self._change(node, state._replace(request=number, refusal=""), request)

    def _register(self, node: int, number: int, request: NodeRequest) -> None:
        member, state = request.member, self._nodes.get(node)
        if member is None or member.id != node or (state is not None and number <= state.request):
            return
        if self.has_later(member):
            return  # what is left of an earlier life
        other = self._by_name.get(member.name)
        taken = [each for each, known in self._nodes.items() if known.member.address == member.address]
        for former in dict.fromkeys([node, *([other] if other is not None else []), *taken]):
            self._exclude(former)  # one process has an address, and one life a name
        if len(self._nodes) >= MAX_NODES:
            return
        self._by_name[member.name] = node
        is_back = request.is_back or state is not None or node in self.gone
        self._set(node, NodeState(member, self.epoch, number, is_back=is_back))

    def _change(self, node: int, state: NodeState, request: NodeRequest) -> None:
        groups, follows = state.groups, state.follows
        if request.what is Ask.DEPART:
            state = state._replace(leaving=self.epoch, linger=())
            groups = follows = NOTHING
        elif request.what is Ask.LEAVE:
            groups = difference(groups, request.runs)
        elif request.what in (Ask.JOIN, Ask.FOLLOW):
            numbers = self._numbers_for(request)
            if numbers is None:
                if request.names:
                    self._set(node, state._replace(refusal="the service has as many groups as it can number"))
                return  # a signature that was forgotten: the node is asked for the names
            if request.what is Ask.JOIN:
                groups = union(groups, normal(numbers))
            else:
                follows = union(follows, normal(numbers))
        interest = union(groups, follows)
        if groups == interest:
            interest = groups
        self._set(node, state._replace(groups=groups, follows=follows, interest=interest))

    def _numbers_for(self, request: NodeRequest) -> Runs | None:
        if not request.names:
            return self.numbers(request)
        if not self.names.has_room(request.names):
            return None
        numbers = self.names.give(request.names)
        if request.signature is not None:
            self.names.remember(request.signature, numbers)
        return numbers

    def _exclude(self, node: int) -> None:
        state = self._nodes.get(node)
        if state is None:
            return
        self._was.setdefault(node, state)
        del self._nodes[node]
        if self._by_name.get(state.member.name) == node:
            del self._by_name[state.member.name]
        self.owed.pop(node, None)
        self.gone.pop(node, None)
        self.gone[node] = self.epoch
        while len(self.gone) > MAX_GONE:
            del self.gone[next(iter(self.gone))]
        self._excluded.append(state.member)

    def _place(self, request: NodeRequest) -> None:
        """Nodes that a plan places otherwise than before move."""
        before = self.plan
        after = {} if request.is_first else dict(before)
        after.update(request.placed)
        self.plan = after
        for node, state in self._nodes.items():
            name = state.member.name
            if before.get(name) != after.get(name):
                self._was.setdefault(node, state)

    def _set(self, node: int, state: NodeState) -> None:
        self._was.setdefault(node, self._nodes.get(node))
        self._nodes[node] = state

    def _owe(self, node: int, epochs: list[int]) -> None:
        if epochs:
            self.owed[node] = epochs
        else:
            self.owed.pop(node, None)

    # Regions and their views. ----------------------------------------------------------------------------------------

    def _replace_views(self, leader: str) -> dict[int, tuple[RegionState | None, RegionState | None]]:
        """Move the nodes that were touched; regions that changed, before and after."""
        members: dict[int, dict[int, Member]] = {}  # of regions that change
        parents: dict[int, dict[int, None]] = {}
        labels: dict[int, int] = {}
        wider: set[int] = set()  # regions of the plan whose groups may have changed

        def opened(region: int) -> dict[int, Member]:
            if region not in members:
                state = self._regions.get(region)
                members[region] = {member.id: member for member in state.view.members} if state is not None else {}
                parents[region] = {state.view.view: None} if state is not None else {}
                labels[region] = state.label if state is not None else 0
            return members[region]

        for node, old in self._was.items():
            new = self._nodes.get(node)
            target = self._target(new) if new is not None else 0
            if old is not None and old.region and (target != old.region or _is_new(old, new)):
                opened(old.region).pop(node, None)
            if new is None:
                continue
            label = self.plan.get(new.member.name, 0)
            if target and (old is None or target != old.region or _is_new(old, new)):
                opened(target)[node] = new.member
                labels[target] = label
                if old is not None and old.region and not _is_new(old, new):
                    parents[target][self._regions[old.region].view.view] = None
            elif target and label:
                wider.add(target)
            if new.region != target:
                self._nodes[node] = self._shared(new._replace(region=target))
        changed: dict[int, tuple[RegionState | None, RegionState | None]] = {}
        back = [state for state in self._nodes.values() if state.is_back]
        renewed = {region for region, state in self._regions.items() if _is_stale(state, back)}
        for region in sorted({*members, *wider, *renewed}):
            old_state = self._regions.get(region)
            listed = opened(region)
            groups = self._groups_of(listed, labels[region])
            is_same = old_state is not None and _is_listed(old_state.view, listed) and region not in renewed
            if old_state is not None and is_same and old_state.groups == groups:
                continue
            new_state = None
            if old_state is not None and is_same:
                new_state = old_state._replace(groups=groups)
            elif listed:
                view = self._new_view(region, leader, listed, old_state, tuple(parents[region])[:MAX_PARENTS])
                new_state = RegionState(groups, labels[region], view)
            self._enter(region, old_state, new_state)
            changed[region] = (old_state, new_state)
        return changed

    def _target(self, state: NodeState) -> int:
        """The region that a node belongs to; one that does not exist yet gets its number here."""
        if not state.groups:
            return 0
        label = self.plan.get(state.member.name, 0)
        found = self._by_label.get(label, 0) if label else self._by_groups.get(state.groups, 0)
        if not found:
            found = self.next_region
            self.next_region += 1
            if label:
                self._by_label[label] = found
            else:
                self._by_groups[state.groups] = found
        return found

    def _groups_of(self, listed: dict[int, Member], label: int) -> Runs:
        """Of a region: what its members are in. In an exact one all are in the same."""
        states = [self._nodes[node] for node in listed]
        if not states:
            return NOTHING
        return normal([run for state in states for run in state.groups]) if label else states[0].groups

    def _new_view(
        self, region: int, leader: str, listed: dict[int, Member], old: RegionState | None, parents: tuple[int, ...]
    ) -> GivenView:
        members = tuple(sorted(listed.values(), key=place_of))
        address = old.view.address if old is not None else None
        if len(members) < 2 or not all(member.has_multicast for member in members):
            address = None  # what it had is given back when the old view has settled
        elif address is None:
            address = self.pool.take()
        text = f"{self.service}/{region}/{self.epoch}".encode()
        name = int.from_bytes(blake2b(text, digest_size=8, person=b"oc-gms-view").digest(), "big") or 1
        return GivenView(region, name, self.epoch, leader, address, members, parents)

    def _shared(self, state: NodeState) -> NodeState:
        """With the set of its region in place of an equal one: a large set is kept once, however many have it."""
        known = self._regions.get(state.region)
        if known is None or known.groups != state.groups:
            return state
        interest = known.groups if state.interest == known.groups else state.interest
        return state._replace(groups=known.groups, interest=interest)

    def _enter(self, region: int, old: RegionState | None, new: RegionState | None) -> None:
        if old is not None and not old.label and (new is None or new.groups != old.groups):
            self._by_groups.pop(old.groups, None)
        if new is not None:
            self._regions[region] = new
            if new.label:
                self._by_label[new.label] = region
            else:
                self._by_groups[new.groups] = region
            return
        self._regions.pop(region, None)
        if old is not None and old.label:
            self._by_label.pop(old.label, None)

    # What ends, and what is settled. ---------------------------------------------------------------------------------

    def _let_linger(self, regions: dict[int, tuple[RegionState | None, RegionState | None]]) -> None:
        """Views of groups that nodes have lost interest in are seen until they end; those that ended are not."""
        ended = {old.view.view for old, new in regions.values() if old is not None and _view(new) != old.view.view}
        for node, state in list(self._nodes.items()):
            linger = [view for view in state.linger if view not in ended]
            old = self._was.get(node)
            if old is not None and not state.leaving and not _is_new(old, state) and old.interest != state.interest:
                for region, known in self._regions.items():
                    was = regions[region][0] if region in regions else known
                    if was is None or was.view.view != known.view.view or not sees(old, region, was):
                        continue
                    if not sees(state, region, known):
                        linger.append(known.view.view)
            if tuple(linger) != state.linger:
                self._set(node, state._replace(linger=tuple(linger)))

    def _end_views(
        self, regions: dict[int, tuple[RegionState | None, RegionState | None]]
    ) -> tuple[list[tuple[int, RegionState]], list[tuple[str, int]]]:
        """Regions whose views have ended, and the addresses that nobody uses afterwards."""
        ended = []
        freed = []
        for region, (old, new) in regions.items():
            if old is None or _view(new) == old.view.view:
                continue
            ended.append((region, old))
            if old.view.address is not None and (new is None or new.view.address != old.view.address):
                freed.append(old.view.address)
        return ended, freed

    def _settle(self, ended: list[tuple[int, RegionState]], freed: list[tuple[str, int]]) -> set[int]:
        """Note who has to confirm what, and find what is settled; the nodes that wait to hear of that."""
        concerned = set()
        for node, state in self._nodes.items():
            before = self._was.get(node, state)
            if before is None or _is_new(before, state):
                continue
            if state.leaving == self.epoch or any(sees(before, region, old) for region, old in ended):
                concerned.add(node)
                self.owed.setdefault(node, []).append(self.epoch)
        if ended or concerned:
            views = tuple([old.view for _, old in ended])
            self.unsettled.append(EndedViews(self.epoch, views, frozenset(concerned), tuple(freed)))
        stakes: set[int] = set()
        self.settled = min([epochs[0] - 1 for epochs in self.owed.values()], default=self.epoch)
        while self.unsettled and self.unsettled[0].epoch <= self.settled:
            settled = self.unsettled.popleft()
            stakes |= settled.concerned
            for address in settled.addresses:
                self.pool.give_back(address)
        for node, state in list(self._nodes.items()):
            if 0 < state.leaving <= self.settled:
                self._exclude(node)
        return stakes

    def _keep_record(
        self, regions: dict[int, tuple[RegionState | None, RegionState | None]], stakes: set[int]
    ) -> EpochRecord:
        nodes = {node: (old, self._nodes.get(node)) for node, old in self._was.items()}
        affected = {node for node in {*nodes, *stakes} if node in self._nodes}
        if self._excluded:
            affected |= self._nodes.keys()
        states = [(region, state) for region, pair in regions.items() for state in pair if state is not None]
        for node, state in self._nodes.items():
            if node not in affected and any(sees(state, region, each) for region, each in states):
                affected.add(node)
        excluded = tuple([member.id for member in self._excluded])
        record = EpochRecord(self.epoch, self.settled, nodes, regions, excluded, frozenset(affected))
        self._records.append(record)
        if len(self._records) > HISTORY:
            self._records.popleft()
        return record

    # What nodes are told. --------------------------------------------------------------------------------------------

    def news_for(self, node: int, since: int) -> list[EpochNews]:
        """What a node that has the epoch `since` has to hear: an epoch each, or one snapshot where that is too far
        back. Empty: nothing concerns it."""
        state = self._nodes.get(node)
        if state is None or since >= self.epoch:
            return []
        oldest = self._records[0].epoch if self._records else self.epoch + 1
        if since < state.born or since < oldest - 1:
            return [EpochNews(0, state.request, self.snapshot_for(node))]
        out = []
        for index, record in enumerate(self._records):
            if record.epoch > since and node in record.affected:
                told = self._state_at(node, index)
                if told is not None:
                    out.append(EpochNews(since, told.request, self._delta(node, index)))
                    since = record.epoch
        return out

    def _state_at(self, node: int, index: int) -> NodeState | None:
        """A node as of the end of a recorded epoch."""
        for later in list(self._records)[index + 1 :]:
            if node in later.nodes:
                return later.nodes[node][0]
        return self._nodes.get(node)

    def _regions_at(self, index: int) -> dict[int, RegionState]:
        regions = dict(self._regions)
        for later in reversed(list(self._records)[index + 1 :]):
            for region, (old, _) in later.regions.items():
                if old is None:
                    regions.pop(region, None)
                else:
                    regions[region] = old
        return regions

    def _delta(self, node: int, index: int) -> GivenEpoch:
        """What a recorded epoch changed for a node that was there before it."""
        record = self._records[index]
        new = self._state_at(node, index)
        old = record.nodes[node][0] if node in record.nodes else new
        if old is None or new is None:
            raise LookupError(f"node {node:x} has no delta of epoch {record.epoch}: it was not there")
        pairs = dict(record.regions)
        if (old.interest, old.region, old.linger) != (new.interest, new.region, new.linger):
            for region, state in self._regions_at(index).items():
                pairs.setdefault(region, (state, state))
        views, ended, groups = [], [], []
        for region in sorted(pairs):
            was, now = pairs[region]
            if was is not None and not sees(old, region, was):
                was = None
            if now is not None and not sees(new, region, now):
                now = None
            if was is not None and _view(now) != was.view.view:
                ended.append(was.view.view)
            if now is None:
                continue
            if _view(was) != now.view.view:
                views.append(now.view)
            before = intersection(was.groups, old.interest) if was is not None else NOTHING
            after = intersection(now.groups, new.interest)
            if before != after:
                groups.append(RegionGroups(region, difference(after, before), difference(before, after)))
        return GivenEpoch(
            self.service,
            record.epoch,
            record.settled,
            new.region,
            tuple(views),
            tuple(ended),
            record.excluded,
            tuple(groups),
        )

    def snapshot_for(self, node: int) -> GivenEpoch:
        """Everything that a node has to know. Views that are named as ended as well are those that it was in, and that
        are not settled."""
        state = self._nodes[node]
        views, groups = [], []
        for region in sorted(self._regions):
            known = self._regions[region]
            if sees(state, region, known):
                views.append(known.view)
                runs = intersection(known.groups, state.interest)
                if runs:
                    groups.append(RegionGroups(region, runs))
        old = [
            view
            for ended in self.unsettled
            for view in ended.views
            if view.epoch >= state.born and any(member.id == node for member in view.members)
        ]
        least = min([view.epoch for view in (*views, *old)], default=self.epoch)
        # Also those that are back: they are out of views of before, and others will not wait for them there.
        excluded = {each: epoch for each, epoch in self.gone.items() if epoch > least and each != node}
        return GivenEpoch(
            self.service,
            self.epoch,
            self.settled,
            state.region,
            tuple(old + views),
            tuple([view.view for view in old]),
            tuple(excluded),
            tuple(groups),
            True,
            next(reversed(self.gone.values()), 0),
            tuple(excluded.values()),
        )

    def restore(self, nodes: dict[int, NodeState], regions: dict[int, RegionState]) -> None:
        """Take over nodes and regions of another replica (`gms/dump.py`); what it derives is derived again."""
        self._nodes = nodes
        self._by_name = {state.member.name: node for node, state in nodes.items()}
        self._regions = regions
        self._by_groups = {state.groups: region for region, state in regions.items() if not state.label}
        self._by_label = {state.label: region for region, state in regions.items() if state.label}
        self._records.clear()


def _view(state: RegionState | None) -> int:
    return state.view.view if state is not None else 0


def _is_new(old: NodeState, new: NodeState | None) -> bool:
    """Whether a node has been registered anew in between."""
    return new is not None and new.born != old.born


def _is_stale(region: RegionState, back: list[NodeState]) -> bool:
    """Whether a node that has come back may have lanes of its former registration in the view."""
    born = region.view.epoch
    return any(state.born > born and sees(state, region.view.region, region) for state in back)


def _is_listed(view: GivenView, listed: dict[int, Member]) -> bool:
    """Whether a view has these members, each in the same registration's words."""
    return len(view.members) == len(listed) and all(listed.get(member.id) == member for member in view.members)
