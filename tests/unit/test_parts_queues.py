"""The token bucket, and queues by priority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.config import SECOND
from ordercast.errors import InvariantViolation
from ordercast.parts.bucket import Bucket
from ordercast.parts.priorities import REST, PriorityQueues


@given(
    st.integers(1, 10_000),
    st.integers(1, 5_000),
    st.lists(st.tuples(st.integers(0, SECOND), st.integers(1, 3_000)), max_size=60),
)
def test_no_time_lets_more_pass_than_burst_and_rate(rate: int, burst: int, tries: list[tuple[int, int]]) -> None:
    bucket = Bucket(rate, burst)
    now_ns = 0
    passed: list[tuple[int, int]] = []
    for later_ns, size in tries:
        now_ns += later_ns
        if bucket.take(now_ns, size):
            passed.append((now_ns, size))
        else:
            assert bucket.ready_ns(size) > now_ns
    for at, (first_ns, _) in enumerate(passed):
        total = 0
        for last_ns, size in passed[at:]:
            # What is larger than the bucket is paid for afterwards.
            assert total + min(size, burst) <= burst + rate * (last_ns - first_ns) / SECOND + 1e-6
            total += size


def test_what_waits_for_the_bucket_leaves_exactly_when_it_is_said() -> None:
    bucket = Bucket(1_000, 100)
    assert bucket.take(0, 100)
    assert not bucket.take(0, 50)
    assert bucket.ready_ns(50) == SECOND // 20
    assert not bucket.take(SECOND // 20 - 1, 50)
    assert bucket.take(SECOND // 20, 50)


def test_a_bucket_that_lets_nothing_pass_is_an_error() -> None:
    with pytest.raises(InvariantViolation):
        Bucket(0, 1)
    with pytest.raises(InvariantViolation):
        Bucket(1, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 1_000)), min_size=1, max_size=200))
def test_everything_leaves_once_and_in_order_within_its_level(items: list[tuple[int, int]]) -> None:
    queues: PriorityQueues[tuple[int, int]] = PriorityQueues(3)
    for index, (level, size) in enumerate(items):
        queues.push((level, index), size, level)
    left = []
    while len(queues):
        size = queues.next_size()
        left.append(queues.pop())
        assert items[left[-1][1]][1] == size
    assert sorted(left) == sorted((level, index) for index, (level, _) in enumerate(items))
    for level in range(3):
        indexes = [index for each, index in left if each == level]
        assert indexes == sorted(indexes)
    assert queues.next_size() == 0
    with pytest.raises(InvariantViolation):
        queues.pop()


@given(st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 1_000)), min_size=20, max_size=60))
def test_the_rest_gets_its_floor_and_no_more_while_both_wait(sizes: list[tuple[int, int]]) -> None:
    queues: PriorityQueues[int] = PriorityQueues(2)
    for urgent, usual in sizes:
        queues.push(1, urgent, 1)
        queues.push(0, usual, 0)
    sent = [0, 0]
    while queues.count(0) and queues.count(1):
        size = queues.next_size()
        sent[queues.pop()] += size
        assert REST * sent[0] <= sent[1] + REST * 1_000
        assert sent[1] <= REST * sent[0] + (REST + 1) * 1_000
    queues.clear()
    assert not len(queues)


def test_nobody_saves_up_for_later() -> None:
    """A level that was alone for long owes nothing when others come."""
    queues: PriorityQueues[str] = PriorityQueues(2)
    for _ in range(50):
        queues.push("urgent", 10, 1)
    for _ in range(40):
        queues.pop()
    for _ in range(10):
        queues.push("usual", 10, 0)
    assert [queues.pop() for _ in range(5)] == ["urgent"] * 4 + ["usual"]
