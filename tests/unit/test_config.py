"""What can be set, and what is refused at once."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.fake_engine import Exchange
from tests.unit.fake_node import FakeNode

from ordercast.config import MAX_FLOW_NAME, MS, SECOND, GroupConfig, Timing
from ordercast.errors import UsageError
from ordercast.parts.window import POLICIES


def test_flow_control_is_slow_start_unless_said_otherwise() -> None:
    assert GroupConfig().flow == "slow-start"
    assert all(GroupConfig(flow=name).flow == name for name in POLICIES)


@pytest.mark.parametrize("flow", ["", "x" * (MAX_FLOW_NAME + 1), None, 5, b"open"])
def test_flow_control_goes_by_a_name(flow: object) -> None:
    with pytest.raises(UsageError, match="flow is the name of a policy"):
        GroupConfig(flow=flow)  # type: ignore[arg-type]


def test_a_join_may_name_the_flow_control_of_a_new_group() -> None:
    async def main() -> None:
        node = FakeNode("a", Exchange())
        plain, given = await node.join("g"), await node.join("h", flow="open")
        assert (plain.config.flow, given.config.flow) == ("slow-start", "open")
        with pytest.raises(UsageError):
            await node.join("i", flow="")

    asyncio.run(main())


def test_the_timers_of_the_token_have_their_defaults() -> None:
    timing = Timing()
    assert (timing.token_quiet_ns, timing.confirm_ns, timing.caller_flush_ns) == (30 * MS, 5 * MS, 60 * SECOND)


@pytest.mark.parametrize("name", [name for name in Timing.__slots__ if not name.endswith("tries")])
def test_timers_that_would_only_spin_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Timing(**{name: 999})
