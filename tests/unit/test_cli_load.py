"""What the bench's application notices."""

from __future__ import annotations

import pytest

from ordercast.cli.bench import percentiles, phase_of
from ordercast.cli.load import MAX_SIZE, MIN_SIZE, Sink, Source


@pytest.mark.parametrize("size", [MIN_SIZE, 100, 1_000, MAX_SIZE])
def test_messages_in_order_are_counted_and_nothing_is_wrong(size: int) -> None:
    source = Source(size)
    sink = Sink(["ann"], source.chunk)
    for _ in range(3):
        messages = source.next()
        assert {len(message) for message in messages} == {size}
        middle = len(messages) // 3
        sink.take("ann", messages[:middle])
        sink.take("ann", messages[middle:])
    sink.take("ann", [source.end()])
    assert (sink.delivered, sink.misordered, sink.open) == (source.sent, 0, set())
    assert len(sink.latencies_ns) == 3


def test_the_per_message_api_counts_the_same() -> None:
    source = Source(100)
    sink = Sink(["ann"], source.chunk)
    for message in [*source.next(), *source.next(), source.end()]:
        sink.take_one("ann", message)
    assert (sink.delivered, sink.misordered, sink.open) == (source.sent, 0, set())


def test_exchanged_messages_are_noticed() -> None:
    source = Source(100)
    sink = Sink(["ann"], source.chunk)
    messages = source.next()
    messages[5], messages[6] = messages[6], messages[5]
    sink.take("ann", messages)
    assert sink.misordered == 2


def test_a_missing_message_is_noticed() -> None:
    source = Source(100)
    sink = Sink(["ann"], source.chunk)
    messages = source.next()
    sink.take("ann", messages[:7] + messages[8:])
    assert sink.misordered > 0


def test_a_gap_that_the_low_bytes_do_not_show_is_noticed_by_the_stamps() -> None:
    source = Source(100)
    sink = Sink(["ann"], source.chunk)
    sink.take("ann", source.next()[:256])
    source.next()
    sink = Sink(["ann"], source.chunk)
    sink.take("ann", source.next())
    assert sink.misordered == 1


def test_without_order_messages_are_known_by_their_numbers() -> None:
    source = Source(100)
    earlier = 1_000  # messages of this sender in the phases before
    sink = Sink(["ann"], source.chunk, {"ann": earlier})
    first, second = source.next(), source.next()
    sink.take("ann", second[7:], earlier + source.chunk + 7)
    sink.take("ann", first, earlier)
    assert (sink.delivered, sink.misordered, sink.next["ann"]) == (source.sent - 7, 0, source.sent - 7)
    sink.take_one("ann", second[3], earlier + source.chunk + 3)
    assert sink.misordered == 0
    sink.take_one("ann", second[4], earlier + source.chunk + 5)
    assert sink.misordered == 1


def test_positions_must_rise() -> None:
    sink = Sink(["ann"], 1)
    sink.ordered(10, 0, 5)
    sink.ordered(15, 5, 5)
    assert sink.misordered == 0
    sink.ordered(14, 10, 5)
    assert sink.misordered == 5


def test_members_that_saw_another_order_and_lost_messages_are_counted() -> None:
    def mark(delivered: int, at_ns: int) -> dict[str, float]:
        return {"delivered": delivered, "at_ns": at_ns, "cpu_s": at_ns / 1e9, "rss_bytes": 1_000}

    def drained(received: int, digest: int) -> dict[str, object]:
        return {
            "received": {"ann": received},
            "misordered": 0,
            "digest": digest,
            "drops": 1,
            "datagrams": {"data": 3},
            "latencies_ns": [1_000],
        }

    begin, end = [mark(0, 0)] * 2, [mark(100, 1_000_000_000)] * 2
    phase = phase_of(begin, end, [drained(100, 1), drained(90, 2)], {"ann": 100}, [True, False])
    assert (phase.per_s, phase.lost, phase.misordered, phase.drops) == (100, 10, 1, 2)
    assert phase.cpu_us == 10_000
    assert phase.datagrams == {"data": 6}


def test_percentiles_are_microseconds() -> None:
    assert percentiles(range(0, 100_000, 1_000)) == {"p50": 50.0, "p99": 99.0}
    assert percentiles([]) == {"p50": None, "p99": None}
