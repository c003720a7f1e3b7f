"""What holds for every directory, whatever is asked of it (docs/design/gms.md)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gms_samples import Clerk, member

from ordercast.gms.dump import dump, load
from ordercast.membership.epochs import EpochNews, decode_news, encode_news
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.parts import runs
from ordercast.wire.gms import Ask, EpochBatch, EpochOperation, NodeRequest, decode_batch, encode_batch

NODES = [member(name, port=1_000 + index) for index, name in enumerate("abcde")]
NAMES = [f"g{index}" for index in range(6)]

STEP = st.tuples(
    st.sampled_from(["register", "join", "leave", "follow", "exclude", "confirm", "depart", "place", "unplace"]),
    st.integers(0, len(NODES) - 1),
    st.sets(st.sampled_from(NAMES), min_size=1, max_size=4),
)
BATCHES = st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=1, max_size=25)


class Follower:
    """A node that believes what it is told."""

    def __init__(self) -> None:
        self.epoch = 0
        self.mine = 0
        self.views: dict[int, GivenView] = {}
        self.groups: dict[int, runs.Runs] = {}

    def hear(self, news: EpochNews) -> None:
        assert decode_news(encode_news(news)) == news
        epoch = news.epoch
        assert epoch.number > self.epoch
        assert epoch.is_whole or news.since <= self.epoch
        if epoch.is_whole:
            self.views, self.groups = {}, {}
        for ended in epoch.ended:
            for region in [region for region, view in self.views.items() if view.view == ended]:
                del self.views[region]
        self.views.update({view.region: view for view in epoch.views if view.view not in epoch.ended})
        for each in epoch.groups:
            known = self.groups.get(each.region, ())
            assert runs.intersection(known, each.removed) == each.removed
            self.groups[each.region] = runs.difference(runs.union(known, each.added), each.removed)
        self.groups = {region: known for region, known in self.groups.items() if region in self.views and known}
        self.epoch, self.mine = epoch.number, epoch.mine

    def agrees_with(self, whole: GivenEpoch) -> bool:
        views = {view.region: view for view in whole.views if view.view not in whole.ended}
        groups = {each.region: each.added for each in whole.groups}
        return (self.mine, self.views, self.groups) == (whole.mine, views, groups)


def operations(desk: Clerk, steps: list[tuple[str, int, set[str]]]) -> list[EpochOperation]:
    out = []
    for what, index, names in steps:
        node = NODES[index]
        if what == "register":
            out.append(desk.operation(node, NodeRequest(Ask.REGISTER, member=node, is_back=bool(index % 2))))
        elif what in ("join", "follow"):
            out.append(desk.joining(node, *names, what=Ask.JOIN if what == "join" else Ask.FOLLOW))
        elif what == "leave":
            numbers = [desk.directory.names.number(name) for name in names]
            left = runs.normal([(number, number + 1) for number in numbers if number])
            out.append(desk.operation(node, NodeRequest(Ask.LEAVE, runs=left)))
        elif what == "exclude":
            out.append(EpochOperation(node.id, 0, NodeRequest(Ask.EXCLUDE, text="test")))
        elif what == "confirm":
            out.append(EpochOperation(node.id, 0, NodeRequest(Ask.CONFIRM, epoch=desk.directory.epoch)))
        elif what == "depart":
            out.append(desk.operation(node, NodeRequest(Ask.DEPART)))
        else:
            placed = ((node.name, 1),) if what == "place" else ()
            out.append(EpochOperation(0, 0, NodeRequest(Ask.PLACE, placed=placed, is_first=what == "unplace")))
    return out


def check_invariants(desk: Clerk, seen: dict[int, GivenView]) -> None:
    directory = desk.directory
    members = [each.id for state in directory.regions.values() for each in state.view.members]
    assert len(members) == len(set(members)), "a node is in one region"
    for node, state in directory.nodes.items():
        assert bool(state.region) == bool(state.groups)
        if state.region:
            region = directory.regions[state.region]
            assert state.member in region.view.members
            assert runs.difference(state.groups, region.groups) == ()
            assert region.label or region.groups == state.groups
        assert state.interest == runs.normal([*state.groups, *state.follows])
        assert node in directory.nodes
    for view in [state.view for state in directory.regions.values()]:
        assert seen.setdefault(view.view, view) == view, "a view never changes"
        assert list(view.members) == sorted(view.members, key=lambda each: each.address)
        assert (view.address is None) == (len(view.members) < 2)
    in_use = [state.view.address for state in directory.regions.values() if state.view.address is not None]
    in_use += [address for ended in directory.unsettled for address in ended.addresses]
    assert len(in_use) == len(set(in_use)), "an address is used once, until its view has drained"
    assert directory.settled <= directory.epoch
    assert all(epochs and epochs[0] > directory.settled for epochs in directory.owed.values())


@settings(max_examples=150, deadline=None)
@given(BATCHES)
def test_every_node_that_hears_its_deltas_knows_what_a_snapshot_says(
    batches: list[list[tuple[str, int, set[str]]]],
) -> None:
    desk = Clerk()
    desk.register(*NODES)
    other = load(dump(desk.directory))
    followers: dict[tuple[int, int], Follower] = {}
    late: dict[tuple[int, int], Follower] = {}  # hear everything at the end
    seen: dict[int, GivenView] = {}
    for steps in batches:
        batch = EpochBatch(desk.directory.epoch + 1, "desk/1", tuple(operations(desk, steps)))
        outcome = desk.directory.apply(batch)
        assert outcome is not None
        assert other.apply(decode_batch(encode_batch(batch))) == outcome
        assert set(outcome.affected) <= desk.directory.nodes.keys()
        check_invariants(desk, seen)
        for node, state in desk.directory.nodes.items():
            follower = followers.setdefault((node, state.born), Follower())
            is_first = not follower.epoch
            told = desk.directory.news_for(node, follower.epoch)
            assert is_first or bool(told) == (node in outcome.affected)
            for news in told:
                follower.hear(news)
            assert follower.agrees_with(desk.directory.snapshot_for(node)), (follower.views, follower.groups)
            if (node, state.born) not in late:
                late[node, state.born] = Follower()
                for news in desk.directory.news_for(node, 0):
                    late[node, state.born].hear(news)
    assert dump(other) == dump(desk.directory)
    for node, state in desk.directory.nodes.items():
        follower = late[node, state.born]
        for news in desk.directory.news_for(node, follower.epoch):
            assert not news.epoch.is_whole
            follower.hear(news)
        assert follower.agrees_with(desk.directory.snapshot_for(node))


NUMBERS = st.sets(st.integers(1, 30))


def as_runs(numbers: set[int]) -> runs.Runs:
    return runs.normal([(each, each + 1) for each in numbers])


@given(NUMBERS, NUMBERS)
def test_runs_are_sets(one: set[int], other: set[int]) -> None:
    left, right = as_runs(one), as_runs(other)
    assert runs.numbers_of(left) == sorted(one)
    assert runs.union(left, right) == as_runs(one | other)
    assert runs.difference(left, right) == as_runs(one - other)
    assert runs.intersection(left, right) == as_runs(one & other)
    assert runs.touches(left, right) == bool(one & other)
    assert runs.size_of(left) == len(one)
    assert [runs.contains(left, each) for each in range(32)] == [each in one for each in range(32)]


@given(st.lists(st.integers(1, 30)))
def test_a_sequence_of_numbers_keeps_its_order(numbers: list[int]) -> None:
    assert runs.numbers_of(runs.sequence_of(numbers)) == numbers
