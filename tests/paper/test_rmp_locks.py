"""Mutually exclusive locks and handlers (RMP sections 3.3 and 4.3)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.paper.calling import LOSSY, Office, in_office

from ordercast.api.group import Group
from ordercast.api.locking import Lock
from ordercast.errors import LockDenied, NotMember, UsageError
from ordercast.sim.network import NetworkModel
from ordercast.view import Reason


async def take_turns(groups: list[Group], rounds: int, key: str = "printer") -> list[str]:
    """Every member enters again and again; who was inside, in order. Two at once fail."""
    inside: list[str] = []
    order: list[str] = []

    async def work(index: int) -> None:
        for _ in range(rounds):
            async with groups[index].lock(key) as lock:
                inside.append(str(index))
                assert lock.is_held
                assert len(inside) == 1, inside
                order.append(str(index))
                await asyncio.sleep(0.005)
                inside.remove(str(index))
            assert not lock.is_held

    await asyncio.gather(*(work(index) for index in range(len(groups))))
    return order


def test_a_lock_has_one_holder_and_everybody_gets_it() -> None:
    """RMP section 3.3: "a set of mutually exclusive locks to each group, that members can request and release"."""

    async def program(office: Office) -> None:
        groups = await office.form(4, orderer="token")
        order = await take_turns(groups, 5)
        assert sorted(order) == sorted("0123" * 5)
        await asyncio.sleep(0.1)
        assert len(office.rows("lock")) == len(office.rows("unlock")) == 20
        assert {row.detail for row in office.rows("lock")} == {"printer"}
        assert all(not group.locks for group in groups)

    in_office(program)


@pytest.mark.parametrize("seed", range(3))
def test_a_lock_has_one_holder_although_datagrams_are_lost(seed: int) -> None:
    """RMP section 4.3: "List Change Request packets ... are resent periodically until this is received"."""

    async def program(office: Office) -> None:
        groups = await office.form(3, orderer="token")
        assert sorted(await take_turns(groups, 4)) == sorted("012" * 4)

    in_office(program, network=LOSSY, seed=seed)


def test_locks_are_granted_by_views_that_come_to_all_in_the_same_place() -> None:
    """RMP section 4.3: "A new membership view is created whenever a RMP process ... is granted a handler lock ... or
    releases a lock", at the cost of one New List."""

    async def program(office: Office) -> None:
        a, b, c = await office.form(3, orderer="token")
        before = [len(seen.views) for seen in office.seen]
        lock = b.lock("printer")
        sent = await office.count(lock.acquire())
        assert sent["list"] == 1
        assert lock.is_held
        await office.groups[0].send(b"between", confirm=True)
        await asyncio.sleep(0.1)  # by then the others have it, too
        assert a.locks == b.locks == c.locks == {"printer": "b/0"}
        sent = await office.count(asyncio.sleep(1))
        lock.release()
        await asyncio.sleep(1)
        assert a.locks == b.locks == c.locks == {}
        for seen, count in zip(office.seen, before, strict=True):
            granted, released = seen.views[count:]
            assert (granted.reason, granted.subject, granted.lock) == (Reason.LOCK, "b/0", "printer")
            assert (released.reason, released.subject, released.lock) == (Reason.UNLOCK, "b/0", "printer")
            message = next(event for event in seen.events if getattr(event, "payload", b"") == b"between")
            assert seen.events.index(granted) < seen.events.index(message) < seen.events.index(released)

    in_office(program)


def test_a_denied_request_is_answered_and_repeated_when_the_lock_is_free() -> None:
    """RMP section 4.3: "If a request is denied, a New List packet is still generated, but the membership view it
    contains will be the same one"."""

    async def program(office: Office) -> None:
        a, b, _ = await office.form(3, orderer="token")
        views = [len(seen.views) for seen in office.seen]
        async with a.lock(7):
            waiting = asyncio.create_task(b.lock("7").acquire())
            await asyncio.sleep(1)
            assert not waiting.done()
            sent = await office.count(asyncio.sleep(2))
            assert not sent["propose"]  # it does not ask on and on
        await waiting
        await asyncio.sleep(0.1)
        assert a.locks == {"7": "b/0"}
        assert [len(seen.views) - count for seen, count in zip(office.seen, views, strict=True)] == [3, 3, 3]

    in_office(program)


def test_tasks_of_one_member_get_a_lock_in_turn() -> None:
    """One member may want a lock several times; RMP section 3.3 knows one holder only."""

    async def program(office: Office) -> None:
        a, _ = await office.form(2, orderer="token")
        order: list[int] = []

        async def work(number: int) -> None:
            async with a.lock("door"):
                order.append(number)
                await asyncio.sleep(0.01)
                assert order[-1] == number

        await asyncio.gather(*(work(number) for number in range(10)))
        assert order == list(range(10))

    in_office(program)


def test_one_member_does_not_keep_a_lock_among_its_own_tasks() -> None:
    """Between two tasks of one member the lock goes back to the group."""

    async def program(office: Office) -> None:
        a, b = await office.form(2, orderer="token")
        order: list[str] = []

        async def work(group: Group, name: str) -> None:
            async with group.lock("door"):
                order.append(name)
                await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(work(a, f"a{number}")) for number in range(6)]
        await asyncio.sleep(0.02)
        tasks.append(asyncio.create_task(work(b, "b")))
        await asyncio.gather(*tasks)
        assert order.index("b") < 6

    in_office(program)


def test_a_crashed_holders_lock_is_released_by_the_view_that_removes_it() -> None:
    """RMP section 3.3, and section 4.4 for who removes it."""

    async def program(office: Office) -> None:
        groups = await office.form(4, orderer="token")
        await groups[1].lock("printer").acquire()
        await groups[1].lock(3).acquire()
        waiting = asyncio.create_task(groups[2].lock("printer").acquire())
        await asyncio.sleep(0.5)
        office.nodes[1].crash()
        await waiting
        await asyncio.sleep(0.1)
        assert groups[0].locks == {"printer": "c/0"}
        views = office.seen[3].views[-2:]
        assert (views[0].reason, len(views[0].members), views[0].locks) == (Reason.RESET, 3, {})
        assert views[1].reason == Reason.LOCK

    in_office(program)


def test_a_leavers_lock_is_released_by_the_view_that_removes_it() -> None:
    """RMP section 4.3."""

    async def program(office: Office) -> None:
        a, b, c = await office.form(3, orderer="token")
        lock = b.lock("printer")
        await lock.acquire()
        waiting = asyncio.create_task(c.lock("printer").acquire())
        await asyncio.sleep(0.5)
        await b.leave()
        await waiting
        await asyncio.sleep(0.1)
        assert a.locks == {"printer": "c/0"}
        assert not lock.is_held
        lock.release()  # silent
        with pytest.raises(NotMember):
            await lock.acquire()

    in_office(program)


def test_a_lock_that_survives_a_recovery_is_still_held_and_given_back_after_it() -> None:
    """RMP section 4.4: who goes on keeps what it holds."""

    async def program(office: Office) -> None:
        groups = await office.form(4, orderer="token")
        async with groups[1].lock("printer") as lock:
            office.world.crash("d")
            waiting = asyncio.create_task(groups[2].lock("printer").acquire())
            await office.until(lambda: len(groups[1].members) == 3)
            await asyncio.sleep(1)
            assert lock.is_held
            assert not waiting.done()
        await waiting
        await asyncio.sleep(0.1)
        assert groups[1].locks == {"printer": "c/0"}

    in_office(program)


@pytest.mark.parametrize("after", [0.0, 0.3, 1.2, 1.35, 1.5, 2.0])
def test_what_is_asked_and_given_back_during_a_recovery_comes_about(after: float) -> None:
    """RMP section 4.4: requests that a recovery loses are made again."""

    async def program(office: Office) -> None:
        groups = await office.form(4, orderer="token")
        held = groups[1].lock("old")
        await held.acquire()
        office.world.crash("a")
        await asyncio.sleep(after)
        held.release()
        asking = [asyncio.create_task(groups[index].lock(f"new {index}").acquire()) for index in (1, 2, 3)]
        other = asyncio.create_task(groups[2].lock("old").acquire())
        await asyncio.gather(other, *asking)
        await asyncio.sleep(0.1)
        assert groups[3].locks == {"old": "c/0", "new 1": "b/0", "new 2": "c/0", "new 3": "d/0"}

    in_office(program)


def test_who_is_excluded_loses_its_locks_and_leaves_the_block_in_silence() -> None:
    """RMP section 3.2: a member that was partitioned away comes back as a new one."""

    async def program(office: Office) -> None:
        groups = await office.form(3, orderer="token")
        async with groups[2].lock("printer") as lock:
            waiting = asyncio.create_task(groups[0].lock("printer").acquire())
            office.world.network.partition([["a", "b"], ["c"]])
            await waiting
            office.world.network.heal()
            await office.until(lambda: not lock.is_held)
        await office.until(lambda: all(len(group.members) == 3 for group in groups))
        assert all(group.locks == {"printer": "a/0"} for group in groups)
        waiting = asyncio.create_task(lock.acquire())  # the handle works again
        await asyncio.sleep(0.5)
        assert not waiting.done()
        waiting.cancel()

    in_office(program)


def test_a_wait_for_a_lock_outlasts_an_exclusion() -> None:
    """RMP section 3.2: what a member wants it asks for again when it is back."""

    async def program(office: Office) -> None:
        groups = await office.form(3, orderer="token")
        async with groups[0].lock("printer"):
            waiting = asyncio.create_task(groups[2].lock("printer").acquire())
            await asyncio.sleep(0.5)
            office.world.network.partition([["a", "b"], ["c"]])
            await office.until(lambda: len(groups[0].members) == 2)
            office.world.network.heal()
            await office.until(lambda: all(len(group.members) == 3 for group in groups))
            assert not waiting.done()
        await waiting
        assert groups[2].locks == {"printer": "c/0"}
        await office.until(lambda: all(group.locks == {"printer": "c/0"} for group in groups))

    in_office(program)


def test_a_grant_that_comes_after_the_cancellation_is_given_back() -> None:
    """Cancellation is safe at every await; a lock is never held by nobody."""

    async def program(office: Office) -> None:
        a, b = await office.form(2, orderer="token")
        for turns in range(12):  # cancelled ever later: before the request leaves, on its way, with the grant
            task = asyncio.create_task(a.lock("printer").acquire())
            for _ in range(turns):
                await asyncio.sleep(0.000_05)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
                async with b.lock("door"):  # it was granted before
                    pass
                break
            async with b.lock("printer", timeout=5):
                pass
        await asyncio.sleep(1)
        assert b.locks in ({}, {"printer": "a/0"})
        locked, unlocked = len(office.rows("lock")), len(office.rows("unlock"))
        assert locked - unlocked == len(b.locks)

    in_office(program)


def test_waiting_for_a_lock_may_have_an_end() -> None:
    """TimeoutError, and nothing is left behind."""

    async def program(office: Office) -> None:
        a, b = await office.form(2, orderer="token")
        async with a.lock("printer"):
            with pytest.raises(
                TimeoutError, match=r"lock 'printer' of 'paper' was not granted within 0\.5 s: a/0 holds it"
            ):
                await b.lock("printer", timeout=0.5).acquire()
        await asyncio.sleep(1)
        assert a.locks == {}

    in_office(program)


def test_a_lock_without_patience_is_granted_where_it_is_free() -> None:
    """RMP section 4.3: timeout=0 tries once, and gives the answer of the group."""

    async def program(office: Office) -> None:
        a, b, _c = await office.form(3, orderer="token")
        lock = b.lock("printer", timeout=0)
        await lock.acquire()
        assert lock.is_held
        await office.until(lambda: a.locks == {"printer": "b/0"})
        lock.release()
        async with a.handler(2, timeout=0) as handler:
            assert handler.is_held
        await office.until(lambda: a.locks == {})

    in_office(program)


def test_a_lock_without_patience_is_denied_where_it_is_held_and_the_holder_is_named() -> None:
    """RMP section 4.3: "If a request is denied, a New List packet is still generated"."""

    async def program(office: Office) -> None:
        a, b, _c = await office.form(3, orderer="token")
        async with a.lock("printer"):
            await office.until(lambda: b.locks == {"printer": "a/0"})
            sent = await office.count(_denied(b.lock("printer", timeout=0), "a/0"))
            assert sent["list"] == 1  # it is the group's answer, and not this member's opinion
            await _denied(a.lock("printer", timeout=0), "a/0")  # by another task of the same member
            with pytest.raises(LockDenied, match="handler 2 of 'paper' is held by a/0"):
                async with a.handler(2):
                    await b.handler(2, timeout=0).acquire()
        await office.until(lambda: b.locks == {})
        async with b.lock("printer", timeout=0):
            pass

    in_office(program)


async def _denied(lock: Lock, holder: str) -> None:
    with pytest.raises(LockDenied, match=f"lock 'printer' of 'paper' is held by {holder}") as caught:
        await lock.acquire()
    assert caught.value.holder == holder
    assert not lock.is_held


def test_a_denial_does_not_end_the_wait_of_another_task() -> None:
    """Of two tasks of one member one tries once, and the other one waits."""

    async def program(office: Office) -> None:
        a, b, _c = await office.form(3, orderer="token")
        held = a.lock("printer")
        await held.acquire()
        patient = b.lock("printer")
        waiting = asyncio.create_task(patient.acquire())
        await asyncio.sleep(0.1)
        await _denied(b.lock("printer", timeout=0), "a/0")
        held.release()
        await waiting
        assert patient.is_held
        await _denied(b.lock("printer", timeout=0), "b/0")
        patient.release()

    in_office(program)


def test_the_first_six_locks_are_the_handlers() -> None:
    """RMP section 3.3: "The first 6 of these are designated handler locks"."""

    async def program(office: Office) -> None:
        a, b = await office.form(2, orderer="token")
        async with a.handler(5) as handler:
            assert handler.is_held
            assert a.locks == {"5": "a/0"}
            await office.until(lambda: b.locks == {"5": "a/0"})
            with pytest.raises(TimeoutError):
                await b.handler(5, timeout=0.5).acquire()
            with pytest.raises(TimeoutError):
                await b.lock("5", timeout=0.5).acquire()
        for wrong in (6, -1, "2", True):
            with pytest.raises(UsageError, match="a handler is a number from 0 to 5"):
                a.handler(wrong)  # type: ignore[arg-type]
        for strange in (-1, "", "x" * 256, None, True):
            with pytest.raises(UsageError, match="lock"):
                a.lock(strange)  # type: ignore[arg-type]

    in_office(program)


def test_serving_a_handler_ends_where_it_is_lost() -> None:
    """RMP section 3.2: the others have given it away."""

    async def program(office: Office) -> None:
        groups = await office.form(3, orderer="token")

        async def serve() -> None:
            async with groups[2].handler(1) as handler:
                async for request in handler:
                    await request.reply(b"")
                assert not handler.is_held

        task = asyncio.create_task(serve())
        await office.until(lambda: groups[0].locks == {"1": "c/0"})
        office.world.network.partition([["a", "b"], ["c"]])
        await office.until(lambda: groups[0].locks == {})
        office.world.network.heal()
        await task

    in_office(program)


def test_an_orderer_without_locks_says_which_has_them() -> None:
    """CONTRIBUTING.md, style rule 6: a caller's mistake says what to do."""

    async def program(office: Office) -> None:
        (group,) = await office.form(1, orderer="sequencer")
        for use in (lambda: group.lock("x"), lambda: group.handler(1)):
            with pytest.raises(UsageError, match='need orderer="token"'):
                use()
        with pytest.raises(UsageError, match='need orderer="token"'):
            await group.call(b"", handler=1)

    in_office(program)


def test_many_locks_at_once_on_a_slow_network() -> None:
    """RMP section 3.3: locks "can be used for any type of application that requires mutually exclusive locks"."""

    async def program(office: Office) -> None:
        groups = await office.form(3, orderer="token")
        orders = await asyncio.gather(*(take_turns(groups, 2, f"lock {number}") for number in range(5)))
        assert all(sorted(order) == sorted("012" * 2) for order in orders)

    in_office(program, network=NetworkModel("slow", latency_ns=5_000_000, jitter_ns=5_000_000))
