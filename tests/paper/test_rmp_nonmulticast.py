"""Members without multicast beside others that have it: RMP sections 3.1, 3.3 and 3.4.

Small letters have multicast, capitals have not: "abC" is a group of three, which a made, and C is without.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.paper.group import Lab, in_lab

from ordercast.api.group import Group
from ordercast.config import LAN_DATAGRAM, LOOPBACK_DATAGRAM, GroupConfig
from ordercast.errors import JoinRefused, UsageError
from ordercast.groups.events import Message
from ordercast.orderers import ORDERERS
from ordercast.service import AGREED, RESILIENT, SAFE
from ordercast.sim.checkers import check_all
from ordercast.sim.datagrams import Arrival
from ordercast.sim.network import IDEAL, Network, NetworkModel
from ordercast.view import group_tag
from ordercast.wire.header import FORWARD, HEADER, Kind

LARGE = 20_000  # bytes of a message whose block is multicast by its sender, whatever the orderer
LOSSY = NetworkModel("lossy", latency_ns=100_000, jitter_ns=50_000, loss=0.1)

Copy = tuple[str, int, int, int, int]
"""Who gets it, its kind, origin, number and segment."""


class Tap(Network):
    """A network that remembers every datagram that reaches a node: what the header says, and who sent it."""

    __slots__ = ("copies", "sources")

    def __init__(self, model: NetworkModel, rng: random.Random) -> None:
        super().__init__(model, rng)
        self.copies: Counter[Copy] = Counter()
        self.sources: dict[Copy, str] = {}

    def transmit(self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int) -> list[Arrival]:
        arrivals = super().transmit(leave_ns, source, targets, data, stride)
        for _, target, train in arrivals:
            for at in range(0, len(train.data), train.stride or len(train.data)):
                _, kind, segment, _, _, _, origin, number = HEADER.unpack_from(train.data, at)
                copy = (target, kind & ~FORWARD, origin, number, segment)
                self.copies[copy] += 1
                self.sources[copy] = source
        return arrivals

    def of(self, kind: Kind) -> Counter[Copy]:
        return Counter({copy: count for copy, count in self.copies.items() if copy[1] == kind})

    def clear(self) -> None:
        self.copies.clear()
        self.sources.clear()


def tapped(lab: Lab) -> Tap:
    """Listen from the beginning: there are no nodes yet."""
    assert not lab.world.nodes
    lab.world.network = tap = Tap(IDEAL, lab.world.stream("network"))
    return tap


@pytest.fixture(params=list(ORDERERS))
def orderer(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def form(lab: Lab, names: str, orderer: str, *, datagram: int = LAN_DATAGRAM, **terms: Any) -> dict[str, Group]:
    """A group of nodes of these names, all with the same view, and quiet."""
    for name in names:
        config = GroupConfig(datagram=datagram)
        await lab.join(name, config=config, has_multicast=name.islower(), orderer=orderer, **terms)
    await settled(lab, len(names))
    return dict(zip(names, lab.groups, strict=True))


async def settled(lab: Lab, count: int, seconds: float = 60) -> None:
    await lab.until(lambda: all(len(group.members) == count for group in lab.groups if group.is_member), seconds)
    await asyncio.sleep(3)


async def all_have(lab: Lab, count: int, who: Sequence[int] | None = None) -> None:
    seen = lab.seen if who is None else [lab.seen[index] for index in who]
    await lab.until(lambda: all(len(each.payloads) >= count for each in seen))
    await asyncio.sleep(1)
    assert [len(each.payloads) for each in seen] == [count] * len(seen)
    assert all(each.payloads == seen[0].payloads for each in seen)


def judge(lab: Lab) -> None:
    verdict = check_all(lab.world.rows(), clock="virtual", quiet=False)
    assert verdict.held, "\n".join(verdict.summary())


def forwarded(groups: dict[str, Group]) -> dict[str, int]:
    return {name: count for name, group in groups.items() if (count := group.stats["forwarded"])}


def test_the_view_tells_who_has_multicast(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        await form(lab, "abC", orderer)
        for group in lab.groups:
            assert {member.name: member.has_multicast for member in group.members} == {"a": True, "b": True, "C": False}

    in_lab(program)


@pytest.mark.parametrize("datagram", [LAN_DATAGRAM, LOOPBACK_DATAGRAM])
@pytest.mark.parametrize("names", ["abC", "Abc", "aBCd", "aBC", "ABCd", "ABC"])
def test_all_kinds_of_members_send_and_receive(orderer: str, names: str, datagram: int) -> None:
    async def program(lab: Lab) -> None:
        groups = await form(lab, names, orderer, datagram=datagram)
        for group in groups.values():
            for size, service in ((10, AGREED), (LARGE, AGREED), (3_000, SAFE), (LARGE, RESILIENT(1))):
                await group.send(bytes(size), service, confirm=True)
        await all_have(lab, 4 * len(names))
        judge(lab)

    in_lab(program)


@pytest.mark.parametrize("datagram", [LAN_DATAGRAM, LOOPBACK_DATAGRAM])
@pytest.mark.parametrize("sender", "abCD")
def test_nobody_gets_a_copy_twice(orderer: str, sender: str, datagram: int) -> None:
    """Section 3.4: a multicast and a unicast to each without multicast; who forwards has its own loopback disabled."""

    async def program(lab: Lab) -> None:
        tap = tapped(lab)
        groups = await form(lab, "abCD", orderer, datagram=datagram)
        tap.clear()
        for _ in range(3):
            await groups[sender].send(bytes(LARGE), confirm=True)
        await all_have(lab, 3)
        assert set(tap.copies.values()) == {1}  # of whatever kind
        blocks = tap.of(Kind.DATA) or tap.of(Kind.ORDERED)
        segments = {copy[3:] for copy in blocks}
        assert Counter(copy[0] for copy in blocks) == {name: len(segments) for name in "abCD" if name != sender}
        assert tap.of(Kind.REPAIR) == Counter()
        assert all(group.stats.get("duplicates", 0) == 0 for group in groups.values())

    in_lab(program)


def test_one_member_forwards_for_one_without_multicast(orderer: str) -> None:
    """Section 3.4: the forwarding flag directs the receiving process to copy the packet to the group's address."""

    async def program(lab: Lab) -> None:
        tap = tapped(lab)
        groups = await form(lab, "abCd", orderer)
        before = forwarded(groups)
        tap.clear()
        await groups["C"].send(bytes(LARGE), confirm=True)
        await all_have(lab, 1)
        made = Counter(forwarded(groups)) - Counter(before)
        sources = {copy[0]: source for copy, source in tap.sources.items() if copy[1] == Kind.DATA}
        (forwarder,) = {sources["a"], sources["b"], sources["d"]} - {"C"}
        assert sources[forwarder] == "C"
        assert made[forwarder] >= len([copy for copy in tap.of(Kind.DATA) if copy[0] == forwarder])

    in_lab(program)


def test_where_all_have_multicast_nothing_is_forwarded_or_copied(orderer: str) -> None:
    """Section 3.4: the common case will pay hardly any penalty."""

    async def program(lab: Lab) -> None:
        groups = await form(lab, "abc", orderer)
        for group in groups.values():
            await group.send(bytes(LARGE), confirm=True)
        assert forwarded(groups) == {}
        assert all(node.host.copies("paper") == [] for node in lab.nodes)

    in_lab(program)


def test_where_nobody_has_multicast_nothing_is_forwarded(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        groups = await form(lab, "abc", orderer)
        assert not any(member.has_multicast for member in groups["a"].members)
        for group in groups.values():
            await group.send(bytes(LARGE), confirm=True)
        await all_have(lab, 3)
        assert forwarded(groups) == {}

    in_lab(program, network=NetworkModel("unicast", latency_ns=100_000, has_multicast=False))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("names", ["abCD", "Abcd", "aBCDE"])
def test_losses_are_repaired_in_mixed_groups(orderer: str, names: str, seed: int) -> None:
    async def program(lab: Lab) -> None:
        groups = await form(lab, names, orderer)
        count = 15

        async def talk(name: str, group: Group) -> None:
            for index in range(count):
                size = LARGE if index % 5 == 4 else 200
                await group.send(f"{name}{index}".encode().ljust(size, b"."), (AGREED, SAFE)[index % 2], confirm=True)

        await asyncio.gather(*(talk(name, group) for name, group in groups.items()))
        await all_have(lab, count * len(names))
        judge(lab)

    in_lab(program, network=LOSSY, seed=seed)


@pytest.mark.parametrize("names", ["abC", "Abc", "abcD", "Abcd"])
def test_a_forwarder_that_crashes_is_replaced(orderer: str, names: str) -> None:
    """Its crash is noticed as any other; what was sent through it is sent again through somebody else."""

    async def program(lab: Lab) -> None:
        groups = await form(lab, names, orderer)
        without = next(name for name in names if name.isupper())
        await groups[without].send(bytes(LARGE), confirm=True)
        await asyncio.sleep(1)
        counts = forwarded(groups)
        victim = max(counts, key=lambda name: (counts[name], name))
        crashed = names.index(victim)

        async def talk(group: Group) -> None:
            for index in range(20):
                await group.send(f"{group.view}{index}".encode().ljust(LARGE, b"."), confirm=True)

        talks = [asyncio.create_task(talk(group)) for name, group in groups.items() if name != victim]
        await asyncio.sleep(0.005)
        lab.nodes[crashed].crash()
        await asyncio.gather(*talks)
        rest = [index for index in range(len(names)) if index != crashed]
        await lab.until(lambda: all(len(lab.groups[index].members) == len(names) - 1 for index in rest))
        await all_have(lab, 1 + 20 * len(rest), rest)
        assert sum(len(view.members) == len(names) - 1 for view in lab.seen[rest[0]].views[-1:]) == 1
        judge(lab)

    in_lab(program)


@pytest.mark.parametrize("names", ["Abcd", "abCd"])
def test_another_member_forwards_when_one_cannot_be_reached(orderer: str, names: str) -> None:
    """Retransmissions take the next forwarder. Nobody is suspected: all hear one another, only not directly."""

    async def program(lab: Lab) -> None:
        groups = await form(lab, names, orderer)
        without = next(name for name in names if name.isupper())
        await groups[without].send(bytes(LARGE), RESILIENT(1), confirm=True)
        counts = forwarded(groups)
        used = max(counts, key=lambda name: (counts[name], name))
        lab.world.network.cut(without, used)
        for _ in range(5):
            await groups[without].send(bytes(LARGE), RESILIENT(1), confirm=True)
        others = [name for name in names if name not in (without, used)]
        assert any(groups[name].stats.get("forwarded", 0) > counts.get(name, 0) for name in others)
        assert all(len(each.views) <= len(names) for each in lab.seen)
        assert all(group.stats.get("suspicions", 0) == 0 for group in groups.values())
        lab.world.network.heal()
        await all_have(lab, 6)

    in_lab(program)


def test_a_leader_without_multicast_goes_when_all_know_that_it_left(orderer: str) -> None:
    """What it multicasts then comes from who forwards it, but the answers must not go there."""

    async def program(lab: Lab) -> None:
        groups = await form(lab, "Abcd", orderer)
        for name in "bcd":
            lab.world.network.cut(name, "A")
        left = asyncio.create_task(groups["A"].leave())
        await asyncio.sleep(0.01)
        lab.world.network.heal()
        await left
        await lab.until(lambda: not lab.nodes[0].host.is_lingering, 1)

    in_lab(program)


@pytest.mark.parametrize("names", ["aBc", "ABc", "ABC", "abC", "AbCD"])
def test_members_leave_in_any_order(orderer: str, names: str) -> None:
    """Also where neither who leads nor who leaves has multicast, and who forwards does not know the leaver any more."""

    async def program(lab: Lab) -> None:
        groups = await form(lab, names, orderer)
        left = list(names)
        for name in names[1:-1] + names[0]:
            start = asyncio.get_running_loop().time()
            await groups[name].leave()
            left.remove(name)
            stay = [groups[other] for other in left]
            await lab.until(lambda stay=stay: all(len(group.members) == len(stay) for group in stay))  # type: ignore[misc]
            assert asyncio.get_running_loop().time() - start < 0.5
            await stay[0].send(b"still here", confirm=True)
        judge(lab)

    in_lab(program)


def test_a_member_without_multicast_comes_back_after_an_exclusion(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        groups = await form(lab, "abC", orderer)
        lab.world.network.partition([["C"]])
        await lab.until(lambda: len(groups["a"].members) == 2)
        lab.world.network.heal()
        await lab.until(lambda: len(groups["a"].members) == 3 and len(groups["C"].members) == 3)
        await groups["C"].send(bytes(LARGE), confirm=True)
        judge(lab)

    in_lab(program)


def test_rings_that_do_not_hear_each_other_find_together(orderer: str) -> None:
    """Whose members have no multicast makes a group where others already did; the smaller ring joins the larger."""

    async def program(lab: Lab) -> None:
        lab.world.network.partition([["A", "B"], ["c"]])
        for name in "ABc":
            await lab.join(name, has_multicast=name.islower(), orderer=orderer)
        assert [len(group.members) for group in lab.groups] == [2, 2, 1]
        lab.world.network.heal()
        await lab.until(lambda: all(len(group.members) == 3 for group in lab.groups))
        await lab.groups[2].send(b"x", confirm=True)
        await lab.until(lambda: all(each.payloads[-1:] == [b"x"] for each in lab.seen))

    in_lab(program)


def test_the_ttl_of_a_group_is_the_largest_that_a_member_asked_for(orderer: str) -> None:
    """Section 3.1. It falls again when that member leaves."""

    async def program(lab: Lab) -> None:
        await lab.join("a", orderer=orderer)
        assert lab.nodes[0].host.ttl("paper") == 1
        await lab.join("b", orderer=orderer, ttl=16)
        await lab.join("c", orderer=orderer, ttl=3)
        await settled(lab, 3)
        assert [node.host.ttl("paper") for node in lab.nodes] == [16, 16, 16]
        assert all(group.view is not None and group.view.ttl == 16 for group in lab.groups)
        await lab.groups[1].leave()
        await lab.until(lambda: len(lab.groups[2].members) == 2)
        assert lab.nodes[2].host.ttl("paper") == 3

    in_lab(program)


def test_a_group_is_joined_through_a_member(orderer: str) -> None:
    """Section 3.3, explicit naming: no question goes to anybody else."""

    async def program(lab: Lab) -> None:
        await form(lab, "abC", orderer)
        for contact in "bC":
            before = Counter(lab.world.network.counters.sent_by_kind)
            name = contact.upper() + "2"
            await lab.join(name, has_multicast=False, orderer=orderer, contact=contact)
            assert (Counter(lab.world.network.counters.sent_by_kind) - before)["find"] == 1
        await settled(lab, 5)
        await lab.groups[-1].send(bytes(LARGE), confirm=True)
        await all_have(lab, 1)

    in_lab(program)


def test_a_contact_that_is_no_member_ends_the_join(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        await lab.join("a", orderer=orderer)
        stranger = lab.node("s")
        with pytest.raises(JoinRefused, match="does not answer as a member of 'paper'"):
            await lab.join("b", orderer=orderer, contact="s")
        assert stranger.groups == []
        with pytest.raises(UsageError, match="leave create out"):
            await lab.join("c", orderer=orderer, contact="a", create=True)
        assert len(lab.groups[0].members) == 1

    in_lab(program)


def test_who_was_excluded_comes_back_although_its_contact_is_gone(orderer: str) -> None:
    async def program(lab: Lab) -> None:
        await form(lab, "abc", orderer)
        lab.world.peers["D"] = []
        await lab.join("D", has_multicast=False, orderer=orderer, contact="b")
        await settled(lab, 4)
        lab.world.network.partition([["D"]])
        await lab.until(lambda: len(lab.groups[0].members) == 3)
        await lab.groups[1].leave()
        await lab.nodes[1].close()
        lab.world.network.heal()
        await lab.until(lambda: len(lab.groups[3].members) == 3 and len(lab.groups[0].members) == 3)

    in_lab(program)


@pytest.mark.parametrize("caller", "xX")
@pytest.mark.parametrize("names", ["aBC", "Abc", "abc"])
def test_calls_reach_the_token_wherever_it_rests(names: str, caller: str) -> None:
    """Section 4.5: a caller with multicast does not know which members have none; one of those who have copies it."""

    async def program(lab: Lab) -> None:
        await form(lab, names, "token")
        outside = lab.node(caller, has_multicast=caller.islower())
        time = asyncio.get_running_loop().time
        for index in range(2 * len(names)):
            start = time()
            await outside.call("paper", b"%d" % index)
            assert time() - start < 0.01
            await asyncio.sleep(2)
        await all_have(lab, 2 * len(names))

    in_lab(program)


def test_two_groups_on_one_address_do_not_disturb_each_other(orderer: str) -> None:
    """Section 3.1: hash collisions are handled by unique ids. Here all nodes hear both groups' multicasts."""

    async def program(lab: Lab) -> None:
        world = lab.world
        nodes = {name: lab.node(name, has_multicast=name.islower()) for name in "abCxyZ"}
        groups: dict[str, Group] = {}
        for name, node in nodes.items():
            for address in ("one", "two"):
                world.listen(world.nodes[name], address)
            groups[name] = await node.join("one" if name in "abC" else "two", orderer=orderer)
        await lab.until(lambda: all(len(group.members) == 3 for group in groups.values()))
        for name, group in groups.items():
            await group.send(name.encode(), confirm=True)
            await group.send(name.encode() * LARGE, confirm=True)
        for name, group in groups.items():
            mates = "abC" if name in "abC" else "xyZ"
            assert {member.name for member in group.members} == set(mates)
            assert group.stats["messages_delivered"] >= 2
            heard = nodes[name].host.counters["unknown_group"]
            assert heard > 0 or name.isupper()
            assert group.stats.get("malformed", 0) == 0

    in_lab(program, network=IDEAL)


def test_two_groups_with_one_tag_do_not_disturb_each_other(orderer: str) -> None:
    """Where even the 32 bits by which a node sorts datagrams collide, the ids of rings tell the groups apart."""
    one, two = "group-911", "group-37326"
    assert group_tag(one) == group_tag(two)

    async def program(lab: Lab) -> None:
        nodes = [lab.node(name, has_multicast=name.islower()) for name in "abC"]
        groups = {name: [await node.join(name, orderer=orderer) for node in nodes] for name in (one, two)}
        for name, members in groups.items():
            await lab.until(lambda members=members: all(len(group.members) == 3 for group in members))  # type: ignore[misc]
            for group in members:
                await group.send(name.encode(), confirm=True)
                await group.send(name.encode() * LARGE, SAFE, confirm=True)
        await asyncio.sleep(1)
        for name, members in groups.items():
            for group in members:
                payloads = []
                is_more = True
                while is_more:
                    event, is_more = await group.receive()
                    if isinstance(event, Message):
                        payloads.append(event.payload)
                assert payloads == [name.encode(), name.encode() * LARGE] * 3

    in_lab(program)


def test_a_group_is_joined_by_a_members_address_alone() -> None:
    """RMP section 3.3: "allowing members to join a group based on a process ID, rather than a name"."""

    async def program(lab: Lab) -> None:
        await form(lab, "ab", "token")
        c, d = lab.node("c"), lab.node("d")
        assert await c.groups_at("a") == ["paper"]
        assert await c.groups_at(lab.nodes[1].member.address) == ["paper"]
        assert await c.groups_at("d") == []
        group = await c.join(contact="b")
        assert (group.name, sorted(member.name for member in group.members)) == ("paper", ["a", "b", "c"])
        other = await c.join("other", orderer="token")
        assert await d.groups_at("c") == ["paper", "other"]
        with pytest.raises(JoinRefused, match="is in 'paper', 'other': give the name of the group"):
            await d.join(contact="c")
        with pytest.raises(UsageError, match="join by a name, or by the address of a member"):
            await d.join()
        await other.leave()
        lab.world.crash("a")
        with pytest.raises(JoinRefused, match="does not answer"):
            await d.groups_at("a")

    in_lab(program)
