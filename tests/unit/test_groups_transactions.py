"""Transactions: a batch comes whole and once, whatever its publishers live through. docs/design/pipeline.md, *Sink*."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordercast
from ordercast import AGREED, FIFO, SAFE, Batch, Missed, Transaction, Transactions, TransactionTooLarge
from ordercast.api import transactions as module
from ordercast.api.transactions import BEGIN_TYPE, COMMIT_TYPE, FIRST_FREE_TYPE, ROW_TYPE, Mark, open_mark


class Line:
    """The one order that all members share: what senders say gets the next positions."""

    def __init__(self) -> None:
        self.events: list[Batch] = []
        self.position = 100
        self.numbers: dict[str, int] = {}

    def say(
        self, sender: str, payloads: list[bytes], types: int | list[int] = 0, service: ordercast.Service = SAFE
    ) -> None:
        first = self.numbers.get(sender, 0)
        self.numbers[sender] = first + len(payloads)
        types = [types] * len(payloads) if isinstance(types, int) else types
        self.events.append(
            Batch(b"", "prices", "1@ann/1", sender, first, len(payloads), self.position, service, payloads, types)
        )
        self.position += len(payloads) if service.is_ordered else 0

    def lose(self, sender: str, count: int) -> None:
        """Messages that were sent, and that nobody gets."""
        self.numbers[sender] = self.numbers.get(sender, 0) + count


class Attempt:
    """One publisher of one batch, step by step."""

    def __init__(
        self, line: Line, sender: str, batch: int, rows: list[bytes], query: str = "q", type_: int = 0
    ) -> None:
        self.line, self.sender, self.rows, self.type = line, sender, rows, type_
        self.mark = Mark(query, batch, f"{sender}-{batch}".encode().ljust(16), len(rows), sum(map(len, rows)))

    def begin(self) -> Attempt:
        self.line.say(self.sender, [self.mark.pack()], BEGIN_TYPE)
        return self

    def send(self, rows: list[bytes] | None = None) -> Attempt:
        self.line.say(self.sender, self.rows if rows is None else rows, ROW_TYPE + self.type)
        return self

    def commit(self) -> Attempt:
        crc = zlib.crc32(b"".join(self.rows))
        mark = Mark(self.mark.query, self.mark.batch, self.mark.attempt, self.mark.rows, self.mark.nbytes, crc)
        self.line.say(self.sender, [mark.pack()], COMMIT_TYPE)
        return self


def read(reading: Transactions, events: Iterable[Batch]) -> list[object]:
    """What an application gets, with whole batches as (query, batch, rows)."""
    found: list[object] = []
    for event in events:
        for item in reading.feed(event):
            if isinstance(item, Transaction):
                found.append((item.query, item.batch, list(item.rows)))
            elif isinstance(item, Batch):
                found.append(list(item.messages))
            else:
                found.append(item)
    return found


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_batch_comes_at_its_commit_and_not_before(line: Line) -> None:
    attempt = Attempt(line, "spark/1", 0, [b"a", b"b", b"c"], type_=7).begin().send([b"a", b"b"]).send([b"c"])
    reading = Transactions()
    assert read(reading, line.events) == []
    assert reading.open == 1
    attempt.commit()
    (item,) = reading.feed(line.events[-1])
    assert isinstance(item, Transaction)
    assert (list(item), list(item.types), len(item)) == ([b"a", b"b", b"c"], [7, 7, 7], 3)
    assert (item.position, item.sender, item.group) == (line.position - 1, "spark/1", "prices")
    assert (reading.open, reading.decided) == (0, {"q": 0})


def test_what_others_say_meanwhile_comes_at_its_place(line: Line) -> None:
    attempt = Attempt(line, "spark/1", 0, [b"a", b"b"]).begin().send([b"a"])
    line.say("ann/1", [b"x", b"y"], -5, AGREED)
    attempt.send([b"b"]).commit()
    line.say("ann/1", [b"z"])
    assert read(Transactions(), line.events) == [[b"x", b"y"], ("q", 0, [b"a", b"b"]), [b"z"]]


def test_one_block_may_hold_messages_marks_and_rows(line: Line) -> None:
    attempt = Attempt(line, "spark/1", 4, [b"a", b"b"]).begin().send().commit()
    payloads = [payload for event in line.events for payload in event.messages]
    mixed = Line()
    types = [3, BEGIN_TYPE, ROW_TYPE, ROW_TYPE, COMMIT_TYPE, 0, 0]
    mixed.say("spark/1", [b"before", *payloads, b"after", b"that"], types)
    reading = Transactions()
    assert read(reading, mixed.events) == [[b"before"], ("q", 4, attempt.rows), [b"after", b"that"]]
    items = [item for item in Transactions().feed(mixed.events[0]) if isinstance(item, Batch)]
    assert [(item.first, item.position, item.types) for item in items] == [(0, 100, [3]), (5, 105, [0, 0])]


def test_an_attempt_that_was_left_half_done_is_dropped(line: Line) -> None:
    Attempt(line, "spark/1", 0, [b"a", b"b", b"c"]).begin().send([b"a", b"b"])
    Attempt(line, "spark/2", 0, [b"a", b"b", b"c"]).begin().send().commit()
    reading = Transactions()
    assert read(reading, line.events) == [("q", 0, [b"a", b"b", b"c"])]
    assert (reading.dropped, reading.open) == (1, 0)


def test_a_batch_that_was_handed_over_is_not_handed_over_again(line: Line) -> None:
    """The publisher died between its COMMIT and telling Spark: the restart publishes once more, cut in another way."""
    Attempt(line, "spark/1", 5, [b"a", b"b"]).begin().send().commit()
    Attempt(line, "spark/2", 5, [b"b", b"a"]).begin().send().commit()
    Attempt(line, "spark/2", 4, [b"old"]).begin().send().commit()
    Attempt(line, "spark/2", 6, [b"c"]).begin().send().commit()
    reading = Transactions()
    assert read(reading, line.events) == [("q", 5, [b"a", b"b"]), ("q", 6, [b"c"])]
    assert (reading.repeated, reading.decided) == (2, {"q": 6})


def test_a_publisher_that_only_seemed_dead_is_fenced_off(line: Line) -> None:
    slow = Attempt(line, "spark/1", 0, [b"a", b"b"]).begin().send()
    quick = Attempt(line, "spark/2", 0, [b"a", b"b"]).begin()
    slow.commit()
    reading = Transactions()
    assert read(reading, line.events) == []
    quick.send().commit()
    assert read(reading, line.events[-2:]) == [("q", 0, [b"a", b"b"])]


def test_queries_do_not_disturb_one_another(line: Line) -> None:
    one = Attempt(line, "spark/1", 0, [b"a"], "one").begin()
    two = Attempt(line, "spark/2", 0, [b"b"], "two").begin()
    two.send()
    one.send().commit()
    two.commit()
    assert read(Transactions(), line.events) == [("one", 0, [b"a"]), ("two", 0, [b"b"])]


def test_rows_that_were_lost_on_the_way_void_the_batch(line: Line) -> None:
    """An excluded publisher that came back: what it had under way is lost, and its COMMIT is not believed."""
    attempt = Attempt(line, "spark/1", 0, [b"a", b"b", b"c"]).begin().send([b"a"])
    line.lose("spark/1", 1)
    attempt.send([b"c"]).commit()
    reading = Transactions()
    assert read(reading, line.events) == []
    assert (reading.dropped, reading.ignored, reading.decided) == (1, 0, {})


def test_more_rows_than_announced_void_the_batch(line: Line) -> None:
    Attempt(line, "spark/1", 0, [b"a"]).begin().send([b"a", b"b"]).commit()
    assert read(Transactions(), line.events) == []


def test_who_joins_in_the_middle_is_told_what_it_missed(line: Line) -> None:
    Attempt(line, "spark/1", 0, [b"a", b"b"]).begin().send().commit()
    Attempt(line, "spark/2", 1, [b"c"]).begin().send().commit()
    late = Transactions()
    (missed, batch) = read(late, line.events[1:])  # BEGIN of the first came before it joined
    assert isinstance(missed, Missed)
    assert (missed.query, missed.batch, batch) == ("q", 0, ("q", 1, [b"c"]))


def test_who_missed_a_batch_gets_it_if_it_is_published_again(line: Line) -> None:
    """Nobody gets a batch twice; who came late gets it where the others pass it over."""
    Attempt(line, "spark/1", 0, [b"a", b"b"]).begin().send().commit()
    Attempt(line, "spark/2", 0, [b"a", b"b"]).begin().send().commit()
    assert read(Transactions(), line.events) == [("q", 0, [b"a", b"b"])]
    assert read(Transactions(), line.events[2:])[1:] == [("q", 0, [b"a", b"b"])]


def test_who_continues_a_state_passes_over_what_that_has_seen(line: Line) -> None:
    Attempt(line, "spark/1", 0, [b"a"]).begin().send().commit()
    first = Transactions()
    read(first, line.events)
    Attempt(line, "spark/2", 0, [b"a"]).begin().send().commit()
    assert read(Transactions(decided=first.decided), line.events[3:]) == []


def test_a_batch_beyond_what_is_kept_raises_at_its_begin(line: Line) -> None:
    Attempt(line, "spark/1", 0, [bytes(500)] * 3).begin()
    with pytest.raises(TransactionTooLarge, match="max_bytes"):
        read(Transactions(max_bytes=1_500), line.events)
    assert read(Transactions(max_bytes=2_000), line.events) == []


def test_publishers_that_never_came_back_make_room(line: Line) -> None:
    for number in range(10):
        Attempt(line, f"spark/{number}", 0, [bytes(500)], f"q{number}").begin().send()
    reading = Transactions(max_bytes=2_000)
    read(reading, line.events)
    assert (reading.open, reading.dropped) == (3, 7)


def test_one_number_is_remembered_of_each_query_and_of_so_many(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUERIES", 2)
    for number, query in enumerate(["one", "two", "one", "three"]):
        Attempt(line, f"spark/{number}", number, [b"a"], query).begin().send().commit()
    reading = Transactions()
    read(reading, line.events)
    assert reading.decided == {"one": 2, "three": 3}


def test_marks_that_cannot_be_read_and_rows_of_nobody_are_passed_over(line: Line) -> None:
    line.say("ann/1", [b"", b"OCTX", bytes(56), Mark("q", 0, bytes(16), 0, 0).pack() + b"more"], BEGIN_TYPE)
    line.say("ann/1", [b"row"], ROW_TYPE)
    line.say("ann/1", [b"weak"], ROW_TYPE, FIFO)
    reading = Transactions()
    assert read(reading, line.events) == [[b"weak"]]
    assert reading.ignored == 5


def test_marks_have_golden_bytes() -> None:
    mark = Mark("q1", 5, bytes(range(16)), 3, 300, 0xDEADBEEF)
    golden = (
        "4f435458" "0100" "0200" "0500000000000000" "0300000000000000" "2c01000000000000"
        "000102030405060708090a0b0c0d0e0f" "efbeadde" "00000000" "7131"
    )  # fmt: skip
    assert mark.pack().hex() == golden
    assert open_mark(mark.pack()) == mark
    assert (ROW_TYPE, BEGIN_TYPE, COMMIT_TYPE, FIRST_FREE_TYPE) == (-32768, -16384, -16383, -16382)


@st.composite
def histories(draw: st.DrawFn) -> Line:
    """Publishers of one query that die at any step and are followed by others, some of which were not dead at all."""
    line = Line()
    batch, alive = 0, []
    for life in range(draw(st.integers(1, 8))):
        rows = [b"%d.%d" % (batch, row) for row in range(draw(st.integers(1, 4)))]
        alive.append((Attempt(line, f"spark/{life}", batch, rows), 0))
        for _ in range(draw(st.integers(0, 8))):
            seq = draw(st.integers(0, len(alive) - 1))
            attempt, step = alive[seq]
            if step == 0:
                attempt.begin()
            elif step <= len(attempt.rows):
                attempt.send([attempt.rows[step - 1]])
            elif step == len(attempt.rows) + 1:
                attempt.commit()
            alive[seq] = (attempt, step + 1)
        reading = Transactions()
        read(reading, line.events)
        batch = reading.decided.get("q", -1) + 1  # Spark goes on when a batch was handed over
    return line


@settings(max_examples=300, deadline=None)
@given(histories(), st.data())
def test_whatever_happens_batches_come_once_in_order_and_whole(line: Line, data: st.DataObject) -> None:
    found = read(Transactions(), line.events)
    batches = [item[1] for item in found if isinstance(item, tuple)]
    assert batches == sorted(set(batches)) == list(range(len(batches)))
    for item in found:
        if isinstance(item, tuple):
            assert item[2] == [b"%d.%d" % (item[1], row) for row in range(len(item[2]))]
    # Who continues the state of another at a quiet moment sees what that one would have seen.
    at = data.draw(st.integers(0, len(line.events)))
    first = Transactions()
    seen = read(first, line.events[:at])
    if not first.open:
        rest = read(Transactions(decided=first.decided), line.events[at:])
        assert [item for item in seen + rest if isinstance(item, tuple)] == [i for i in found if isinstance(i, tuple)]
    # Who comes late never gets anything twice, and nothing out of order.
    late = [item[1] for item in read(Transactions(), line.events[at:]) if isinstance(item, tuple)]
    assert late == sorted(set(late))


def test_what_is_published_is_read_by_every_member() -> None:
    async def main() -> None:
        async with ordercast.Node() as ann, ordercast.Node() as bob:
            name = f"transactions-{ann.member}"
            group = await ann.join(name)
            other = await bob.join(name)
            rows = [b"%d" % number for number in range(10_000)]

            async def two(group: ordercast.Group) -> list[Transaction]:
                found: list[Transaction] = []
                async for item in ordercast.transactions(group):
                    if isinstance(item, Transaction):
                        found.append(item)
                        if len(found) == 2:
                            break
                return found

            reading = [asyncio.create_task(two(each)) for each in (group, other)]
            await ordercast.publish(group, "q", 0, rows, type=9)
            position = await ordercast.publish(group, "q", 1, rows[:1])
            for found in await asyncio.gather(*reading):
                assert [list(item.rows) for item in found] == [rows, rows[:1]]
                assert (found[0].types[0], found[1].position) == (9, position)
            with pytest.raises(ordercast.UsageError, match="SAFE"):
                await ordercast.publish(group, "q", 2, rows, service=AGREED)
            with pytest.raises(ordercast.UsageError, match="type"):
                await ordercast.publish(group, "q", 2, rows, type=-1)

    ordercast.run(asyncio.wait_for(main(), 30))
