"""What a hostile or hasty caller does: every mistake is one clear error, nothing hangs, and the node lives on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.network.flood_engine import FloodEngine
from tests.network.quick import QUICK, fresh, within

from ordercast import (
    BlockingNode,
    Group,
    InvariantViolation,
    JoinRefused,
    Node,
    NotEnoughMembers,
    UsageError,
    View,
)
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sockets import UnicastSocket

on_loop = within(60)


async def failed_pair() -> tuple[list[Node], Group]:
    """Two of three nodes after the crash of the first, with manual recovery; the handle of one of them."""
    nodes = [Node(name, timing=QUICK) for name in "abc"]
    name = fresh()
    groups = [await node.join(name, recovery="manual") for node in nodes]
    nodes[0].abort()
    for group in groups[1:]:
        while (await group.receive())[0].__class__.__name__ != "Failed":
            pass
    return nodes[1:], groups[1]


@on_loop
async def test_resets_that_overlap_on_one_handle_end_together() -> None:
    nodes, group = await failed_pair()
    assert await asyncio.gather(group.reset(2, b"one"), group.reset(2, b"two")) == [2, 2]  # type: ignore[comparison-overlap]
    for node in nodes:
        node.abort()


@on_loop
async def test_a_reset_after_a_cancelled_one_ends() -> None:
    nodes, group = await failed_pair()
    hasty = asyncio.create_task(group.reset(2))
    await asyncio.sleep(0)
    hasty.cancel()
    await asyncio.gather(hasty, return_exceptions=True)
    assert await group.reset(2) == 2
    with pytest.raises(NotEnoughMembers):
        await group.reset(3)
    for node in nodes:
        node.abort()


@on_loop
async def test_a_join_cancelled_as_its_view_arrives_is_taken_back() -> None:
    async with Node("a", timing=QUICK) as ann, Node("b", timing=QUICK) as bob:
        group = await ann.join(fresh())
        joining = asyncio.create_task(bob.join(group.name))
        await asyncio.sleep(0)
        handle = bob.groups[0]
        settle = handle._settle

        def settle_and_cancel() -> bool:
            has_ended = settle()
            if handle.view is not None:
                joining.cancel()
            return has_ended

        handle._settle = settle_and_cancel  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await joining
        async for _ in handle:  # ends behind its own leave
            pass
        assert not handle.is_member


@on_loop
async def test_a_mistake_in_a_join_says_so_and_leaves_the_node_as_it_was() -> None:
    async with Node(timing=QUICK) as node:
        name = fresh()
        mistakes: list[dict[str, Any]] = [
            {"resilience": 1.5},
            {"max_members": "many"},
            {"buffers": 9000.5},
            {"buffers": 1 << 70},
            {"max_message": 1.5},
            {"create": "yes"},
            {"min_members": 2001},
            {"timeout": "soon"},
            {"timeout": float("nan")},
        ]
        for mistake in mistakes:
            with pytest.raises(UsageError):
                await node.join(name, **mistake)
        for header in ("text", 5, None):
            with pytest.raises(TypeError, match="a header is bytes"):
                await node.join(name, header=header)  # type: ignore[arg-type]
        for strange in (5, b"bytes", None):
            with pytest.raises(UsageError):
                await node.join(strange)  # type: ignore[arg-type]
        with pytest.raises(JoinRefused):
            await node.join(name, create=False)
        group = await node.join(name)
        types: list[Any] = [1.5, "x", None, 1 << 15]
        for type_ in types:
            with pytest.raises(UsageError):
                await group.send(b"x", type=type_)
            with pytest.raises(UsageError):
                await group.send_many([b"x"], type=type_)
        with pytest.raises(UsageError, match="a service is"):
            await group.send(b"x", "AGREED")  # type: ignore[call-overload]
        assert await group.send(b"x", confirm=True) == 0


@on_loop
async def test_a_mistake_in_a_node_says_so(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    mistakes: list[dict[str, Any]] = [
        {"name": 5},
        {"name": "\ud800"},
        {"name": "x" * 300},
        {"port": "x"},
        {"port": 70_000},
        {"peers": "127.0.0.1:7400"},
        {"peers": [5]},
        {"peers": [("127.0.0.1",)]},
        {"peers": [("127.0.0.1", "7400")]},
        {"datagram": 1500.5},
        {"life": -1},
        {"life": 1 << 63},
        {"clock_offset_ns": 1.5},
        {"clock_offset_ns": 1 << 70},
        {"trace": file},
        {"trace": tmp_path, "name": "a b"},
    ]
    for mistake in mistakes:
        with pytest.raises(UsageError):
            Node(**mistake)


class BrokenEngine(FloodEngine):
    """Fails as soon as something is sent."""

    def submit(self, *_: Any) -> int:
        return 1 // 0


@on_loop
async def test_calls_that_wait_learn_why_the_node_stopped() -> None:
    node = Node(timing=QUICK, engines=BrokenEngine)
    group = await node.join(fresh())
    with pytest.raises(InvariantViolation, match="ZeroDivisionError"):
        await group.send(b"x", confirm=True)
    with pytest.raises(InvariantViolation, match="ZeroDivisionError"):
        await group.send(b"x")


def test_a_forged_address_costs_a_datagram_and_not_the_node() -> None:
    counters = Counters()
    sock = UnicastSocket("127.0.0.1", 0, counters=counters)
    for host in ("127.0.0.256", "a..b", "\0", "x" * 100, "", "255.255.255.255"):
        assert sock.send((host, 7), [b"x"])
        assert sock.send((host, 7), [b"x" * 1000], 100)
    assert counters.undeliverable > 0
    sock.close()


def test_a_blocking_call_says_what_it_waited_for_and_a_late_leave_is_harmless() -> None:
    with BlockingNode(timing=QUICK) as node, node.join(fresh()) as group:
        assert isinstance(group.receive(timeout=5)[0], View)
        with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
            group.receive(timeout=0.01)
        node.close()
