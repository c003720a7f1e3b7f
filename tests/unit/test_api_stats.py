"""Counters: every name is always there and documented, and the core counts nothing under another name."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.fake_engine import Exchange
from tests.unit.fake_node import FakeNode

from ordercast.api.stats import GROUP_STATS, NODE_STATS
from ordercast.runtime.udp.counters import Counters

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ordercast"
CORE = ("underlay.py", "underlay", "orderers", "parts", "membership", "wire")


def counted() -> Iterator[tuple[str, str]]:
    """(file, name) of every counter of the core: `_count("name")`, `_count("a" if … else "b")`, `counters["name"]`."""
    for room in CORE:
        path = SOURCE / room
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists():
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                found: ast.expr | None = None
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                    found = node.args[0] if node.func.attr in ("_count", "count") else None
                elif isinstance(node, ast.Subscript) and "counters" in ast.unparse(node.value):
                    found = node.slice
                for name in (found.body, found.orelse) if isinstance(found, ast.IfExp) else (found,):
                    if isinstance(name, ast.Constant) and isinstance(name.value, str):
                        yield module.name, name.value


def test_the_core_counts_only_documented_names() -> None:
    names = list(counted())
    assert len(names) > 10
    assert [pair for pair in names if pair[1] not in GROUP_STATS] == []


def test_no_documented_counter_of_the_protocol_is_unknown_to_the_core() -> None:
    names = {name for _, name in counted()}
    ports = {"messages_sent", "messages_delivered", "unreadable_blocks", "dropped_fragments"}
    ports |= {"held_bytes", "holding_up", "unwanted_messages"}
    plain = {name for name in GROUP_STATS if "." not in name and not name.startswith("queued_")}
    assert plain - ports - names == set()


def test_a_group_has_all_counters_from_the_beginning() -> None:
    async def program() -> dict[str, int]:
        node = FakeNode("a", Exchange())
        group = await node.join("g")
        return group.stats

    stats = asyncio.run(program())
    assert set(stats) == set(GROUP_STATS)
    assert stats["suspicions"] == stats["received.data"] == 0


def test_every_counter_of_the_sockets_is_one_of_the_node() -> None:
    assert {field.name for field in dataclasses.fields(Counters)} <= set(NODE_STATS)


def test_the_reference_lists_every_counter() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([a-z_]+)`", text))
    plain = {name for name in (*GROUP_STATS, *NODE_STATS) if "." not in name}
    assert plain - listed == set()
