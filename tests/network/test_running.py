"""`ordercast.run`: signals to real processes, and what the other members see of them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.network.quick import QUICK, fresh, within

import ordercast
from ordercast import Group, Node, NotMember, Reason, UsageError, View

on_loop = within(60)

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "deploying.md"


def service_of_the_guide(group: str) -> str:
    """The program of the guide, in a group of another name."""
    (program,) = re.findall(r"```python service\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert program.count('"counter"') == 1
    return str(program).replace('"counter"', repr(group))


async def view_without(group: Group, name: str) -> View:
    """The first view without a member that was in the one before."""
    was_in = False
    async for event in group:
        if isinstance(event, View):
            is_in = any(member.name == name for member in event.members)
            if was_in and not is_in:
                return event
            was_in = is_in
    raise AssertionError("the group has ended")


@on_loop
async def test_sigterm_to_the_service_of_the_guide_becomes_an_ordered_leave() -> None:
    name, pipe = fresh(), asyncio.subprocess.PIPE
    async with Node("here", timing=QUICK) as node, Node("there", timing=QUICK) as other:
        group, _ = await node.join(name, bootstrap=3), await other.join(name)
        environment = {**os.environ, "COUNTER_NAME": "child"}
        program = service_of_the_guide(name)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe, env=environment)
        try:
            assert child.stdout is not None
            while await child.stdout.readline() != b"ready\n":
                pass
            child.send_signal(signal.SIGTERM)
            view = await view_without(group, "child")
            assert (view.reason, view.subject.partition("/")[0]) == (Reason.LEAVE, "child")
            assert await child.wait() == 0
        finally:
            with suppress(ProcessLookupError):
                child.kill()


class Ending:
    """A program that gets a signal, and what it does after it was cancelled."""

    def __init__(self, number: signal.Signals, *, again: bool = False, hangs: bool = False) -> None:
        self.number = number
        self._again = again
        self._hangs = hangs
        self.node: Node | None = None

    async def main(self) -> None:
        async with Node("a", timing=QUICK) as node:
            self.node = node
            await node.join(fresh())
            signal.raise_signal(self.number)
            try:
                await asyncio.Event().wait()
            finally:
                if self._again:
                    signal.raise_signal(self.number)
                while self._hangs:
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(0.02)
                        self._hangs = not node.is_closed


@pytest.fixture
def heeded() -> Iterator[None]:
    """SIGINT is heeded as in a program of its own: shells have their background jobs ignore it."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("heeded")
def test_a_signal_cancels_the_program_and_its_handlers_are_given_back(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    ending = Ending(number)
    with pytest.raises(SystemExit if number == signal.SIGTERM else KeyboardInterrupt) as error:
        ordercast.run(ending.main())
    assert ending.node is not None
    assert ending.node.is_closed
    assert getattr(error.value, "code", 0) == 0
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_signal_stops_at_once() -> None:
    with pytest.raises(SystemExit) as error:
        ordercast.run(Ending(signal.SIGTERM, again=True).main())
    assert error.value.code == 128 + signal.SIGTERM


def test_a_program_that_does_not_end_in_time_is_stopped() -> None:
    with pytest.raises(SystemExit) as error:
        ordercast.run(Ending(signal.SIGTERM, hangs=True).main(), leave_within=0.1)
    assert error.value.code == 1


def test_a_result_and_an_error_come_through() -> None:
    async def main(is_wrong: bool) -> int:
        if is_wrong:
            raise ValueError("wrong")
        return 7

    assert ordercast.run(main(False)) == 7
    with pytest.raises(ValueError, match="wrong"):
        ordercast.run(main(True))
    with pytest.raises(UsageError, match="leave_within is a number of seconds above 0, not 0"):
        ordercast.run(main(False), leave_within=0)


def test_a_node_that_is_left_open_is_closed() -> None:
    async def main() -> tuple[Node, Group]:
        node = Node("a", timing=QUICK)
        return node, await node.join(fresh())

    node, group = ordercast.run(main())
    assert node.is_closed
    assert not group.is_member


@on_loop
async def test_ready_waits_for_the_bootstrap_and_says_what_is_missing() -> None:
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b, Node("c", timing=QUICK) as c:
        first = await a.join(name, bootstrap=3)
        with pytest.raises(TimeoutError, match=r"is not ready after 0\.05 s: it has 1 of the 3 members that it needs"):
            await first.ready(0.05)
        with pytest.raises(ordercast.LockDenied, match="has 1 of the 3 members that it needs to grant locks"):
            await first.lock("x", timeout=0).acquire()
        second = await b.join(name)
        assert second.config.bootstrap == 3, "the creator decides"
        sent = asyncio.create_task(first.send(b"early", ordercast.MAJORITY, confirm=True))
        held = asyncio.create_task(first.lock("x").acquire())
        with pytest.raises(TimeoutError, match="2 of the 3"):
            await second.ready(0.05)
        assert not sent.done()
        assert not held.done()
        third = await c.join(name)
        await asyncio.gather(first.ready(), second.ready(), third.ready())
        await asyncio.gather(sent, held)
        await third.leave()
        await second.leave()
        await first.send(b"late", confirm=True)  # it has begun, and one member is enough for what it asked for
        await first.leave()
        with pytest.raises(NotMember):
            await first.ready()


@on_loop
async def test_a_lone_node_that_asks_for_three_members_confirms_nothing_and_holds_no_lock() -> None:
    async with Node("a", timing=QUICK) as node:
        group = await node.join(fresh(), min_members=3)
        for service in (ordercast.AGREED, ordercast.MAJORITY, ordercast.SAFE):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.send(b"x", service, confirm=True), 0.05)
        with pytest.raises(TimeoutError, match=r"not granted within 0\.05 s: the group has 1 of the 3 members"):
            async with group.lock("x", timeout=0.05):
                pass
        assert group.locks == {}
        node.abort()  # a leave waits for what was sent, for some seconds


@on_loop
async def test_tokens_rise_with_every_grant_and_are_seen_by_all() -> None:
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
        one, other = await a.join(name), await b.join(name)
        await asyncio.gather(one.ready(), other.ready())
        tokens = []
        for group, key in ((one, "x"), (other, "x"), (other, "y"), (one, "x")):
            lock = group.lock(key)
            with pytest.raises(UsageError, match=f"lock '{key}' has no token: it has not been granted"):
                print(lock.token)
            async with lock:
                assert group.locks[key] == str(group.member)
                assert group.locks[key].token == lock.token
                tokens.append(lock.token)
            assert lock.token == tokens[-1], "what is still under way needs it"
        assert tokens == sorted(set(tokens))
        assert 0 < tokens[0] < 1 << 53, "it fits wherever numbers are kept"


def test_the_blocking_group_is_ready_and_shows_tokens() -> None:
    with ordercast.BlockingNode("a", timing=QUICK) as node:
        group = node.join(fresh(), bootstrap=2)
        with pytest.raises(TimeoutError, match="1 of the 2"):
            group.ready(timeout=0.05)
        with ordercast.BlockingNode("b", timing=QUICK) as second:
            other = second.join(group.name)
            group.ready(timeout=10)
            other.ready(timeout=10)
            with group.lock("x") as lock:
                assert group.locks["x"].token == lock.token > 0
