"""The timestamp orderer between real nodes: a sender that crashes between the phases, services, both variants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.network.quick import QUICK, fresh, within
from tests.network.test_node_groups import Reader, close, form, rows_of
from tests.unit.wrapped_engine import WrappedEngine

from ordercast import CAUSAL, MAJORITY, RELIABLE, SAFE, Node, UnsupportedService, UsageError
from ordercast.engine import Outbox
from ordercast.sim.checkers import check_all
from ordercast.view import Address
from ordercast.wire.header import Kind

on_loop = within(60)


class Condemned(WrappedEngine):
    """Its blocks go out and are acknowledged. Of the pass in which it decides, and of all that follow, nothing leaves:
    but the decision to one member, where `told` names one."""

    is_condemned: ClassVar[bool] = False
    told: ClassVar[Address | None] = None
    died: ClassVar[asyncio.Event]

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        self.engine.after_batch(now_ns, out)
        decisions = [send for send in out.sends if send.buffers[0][1] == Kind.DECISION]
        if Condemned.died.is_set() or (Condemned.is_condemned and decisions):
            told = None if Condemned.died.is_set() else Condemned.told
            out.sends[:] = [send._replace(to=told) for send in decisions] if told is not None else []
            out.notes.clear()
            out.upcalls.clear()
            Condemned.died.set()


@on_loop
@pytest.mark.parametrize("is_told", [False, True], ids=["nobody-knows", "one-knows"])
@pytest.mark.parametrize("victim", [0, 2], ids=["first", "last"])
async def test_survivors_decide_alike_what_a_sender_left_undecided(victim: int, is_told: bool, tmp_path: Path) -> None:
    """TOMPA section 3.2.3: phase one is over, and the decision reaches nobody, or one member that delivers it."""
    Condemned.is_condemned, Condemned.told, Condemned.died = False, None, asyncio.Event()
    nodes = [
        Node(name, timing=QUICK, trace=tmp_path, engines=Condemned if index == victim else None)
        for index, name in enumerate("abc")
    ]
    name = fresh()
    groups = [await node.join(name, orderer="timestamp") for node in nodes]
    readers = [Reader(group) for group in groups]
    others = [index for index in range(3) if index != victim]
    await groups[victim].send(b"before", confirm=True)
    Condemned.is_condemned = True
    if is_told:
        Condemned.told = nodes[others[1]].address
    await groups[victim].send(b"between")
    await Condemned.died.wait()
    if is_told:
        await readers[others[1]].messages(2)
    nodes[victim].abort()
    for index in others:
        await readers[index].members(2)
        await groups[index].send(b"after %d" % index, SAFE, confirm=True)
    for index in others:
        await readers[index].messages(4)
    one, two = (readers[index].assignments for index in others)
    assert one == two
    assert [text for _, text in one[:2]] == [b"before", b"between"]
    assert {text for _, text in one[2:]} == {b"after %d" % index for index in others}
    await close([nodes[index] for index in others])
    verdict = check_all(rows_of(tmp_path), clock="one-host", quiet=True)
    assert verdict.held, "\n".join(verdict.summary())


@on_loop
async def test_a_killed_member_comes_back_under_its_name_while_others_send() -> None:
    name = fresh()
    nodes, groups, readers = await form("abc", name, orderer="timestamp")
    sending = [asyncio.create_task(groups[index].send_many([b"x" * 100] * 20_000)) for index in (0, 1)]
    await readers[0].messages(1_000)
    nodes[2].abort()
    again = Node("c", timing=QUICK)
    group = await again.join(name)
    assert group.config.orderer == "timestamp"
    reader = Reader(group)
    await asyncio.gather(*sending)
    ends = [await each.send(b"end", MAJORITY, confirm=True) for each in (groups[0], groups[1], group)]
    for each in (readers[0], readers[1], reader):
        await each.until(lambda each=each: each.payloads.count(b"end") == 3)  # type: ignore[misc]
    assert ends == sorted(set(ends))
    assert readers[0].assignments == readers[1].assignments
    assert len(readers[0].payloads) == 40_003
    assert reader.assignments == readers[0].assignments[-len(reader.assignments) :]
    await close([*nodes[:2], again])


@on_loop
@pytest.mark.parametrize("anticipate", [True, False])
@pytest.mark.parametrize("service", [RELIABLE, MAJORITY, SAFE], ids=str)
async def test_both_variants_give_all_services(service: Any, anticipate: bool) -> None:
    nodes, groups, readers = await form("abcd", fresh(), orderer="timestamp", anticipate=anticipate)
    assert {group.config.anticipate for group in groups} == {anticipate}
    await asyncio.gather(
        *(group.send_many([b"%d" % index * 100] * 2_000, service) for index, group in enumerate(groups)),
        *(group.send(b"confirmed", service, confirm=True) for group in groups),
    )
    for reader in readers:
        await reader.messages(8_004)
    if service is RELIABLE:
        assert all(sorted(reader.payloads) == sorted(readers[0].payloads) for reader in readers)
    else:
        assert all(reader.assignments == readers[0].assignments for reader in readers)
    assert sum(node.read_drops() for node in nodes) == 0
    with pytest.raises(UnsupportedService, match="timestamp"):
        await groups[0].send(b"x", CAUSAL)
    await close(nodes)


@on_loop
async def test_a_timestamp_group_has_no_locks_and_takes_no_calls() -> None:
    nodes, groups, _ = await form("ab", fresh(), orderer="timestamp")
    with pytest.raises(UsageError, match="lock"):
        async with groups[0].lock("door"):
            pass
    await close(nodes)


@on_loop
async def test_who_finds_a_group_takes_its_variant() -> None:
    """The creator chooses, as with everything that all members must have alike."""
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
        one = await a.join(name, orderer="timestamp", anticipate=False)
        two = await b.join(name)
        assert (two.config.orderer, two.config.anticipate) == ("timestamp", False)
        await asyncio.gather(one.send(b"x", confirm=True), two.send(b"y", confirm=True))
