"""The region planner on Spark: exact regions with proof, changes, merging on Spark, plans and reports."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from tests.pipeline.collision import colliding_sets
from tests.pipeline.planned_runs import WANTED, as_trace, each_in_turn, run
from tests.pipeline.planner import Tiles, exact_tiles, figure_two, random_rows, sets_of, tiles_of, wastes
from tests.pipeline.traces import write as write_trace

from ordercast.errors import UsageError
from ordercast.pipeline.regions.changes import change_exact
from ordercast.pipeline.regions.costs import PlanCosts, PlanLimits
from ordercast.pipeline.regions.exact import (
    Exact,
    Exactness,
    both_hashes,
    find_exact,
    lists_of,
    names_of,
    prove,
    regions_of,
)
from ordercast.pipeline.regions.inputs import open_changes, open_rates, open_subscriptions
from ordercast.pipeline.regions.job import PlanResult, make_plan, write_result
from ordercast.pipeline.regions.plan import COLUMNS, open_plan
from ordercast.pipeline.regions.planning import PlanWishes, plan
from ordercast.pipeline.regions.traces import PacketCounts
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Pairs = Iterable[tuple[str, str]]

TURNS = 4
MESSAGES = 18 * 30 * TURNS
INPUTS = 40  # random inputs, planned at once: what takes time in a small job is to begin


def frame(spark: SparkSession, rows: Iterable[tuple[str, ...]], *more: str) -> DataFrame:
    listed = sorted(rows)
    names = ("node", "group", *more)
    return spark.createDataFrame(pa.table({name: [row[at] for row in listed] for at, name in enumerate(names)}))


def tiles(exact: Exact) -> Tiles:
    return tiles_of({row["node"]: row["exact"] for row in exact.nodes.collect()})


def held_sets(exact: Exact) -> dict[str, frozenset[str]]:
    """The groups of each node as its exact region has them."""
    sets = sets_of((str(row["exact"]), row["group"]) for row in exact.groups.collect())
    return {row["node"]: sets[str(row["exact"])] for row in exact.nodes.collect()}


def random_inputs(seed: int) -> set[tuple[str, str]]:
    """Many small inputs side by side: no two of them have a node or a group in common."""
    rng = random.Random(seed)
    found = set()
    for number in range(INPUTS):
        rows = random_rows(rng, rng.randint(1, 12), rng.randint(1, 8))
        found |= {(f"{number}:{node}", f"{number}:{group}") for node, group in rows}
    return found


def as_parquet(folder: Path, rows: Pairs, name: str = "subscriptions") -> Path:
    listed = list(rows)
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"node": [node for node, _ in listed], "group": [group for _, group in listed]}), path)
    return path


def written(spark: SparkSession, folder: Path, rows: Pairs, wishes: PlanWishes) -> dict[str, Any]:
    folder.mkdir()
    result = make_plan(spark, open_subscriptions([as_parquet(folder, rows)]), None, wishes)
    return write_result(folder, result, wishes, ["subscriptions.parquet"], None)


# Exact regions. ------------------------------------------------------------------------------------------------------


def test_figure_two_has_seven_regions(spark: SparkSession, tmp_path: Path) -> None:
    """QSM 1.3: 18 nodes, 300 groups, 7 regions of overlap."""
    document = written(spark, tmp_path / "plan", figure_two(), PlanWishes())
    assert document["exact"] | {"rows_proved": 0} == {
        "nodes": 18,
        "regions": 7,
        "rows_proved": 0,
        "rows_left": 0,
        "collided_signatures": 0,
        "nodes_told_apart": 0,
    }
    assert document["exact"]["rows_proved"] == len(figure_two())
    assert document["result"]["regions"] == 7
    nodes = pq.read_table(tmp_path / "plan" / "nodes.parquet")
    regions = dict(zip(nodes["node"].to_pylist(), nodes["region"].to_pylist(), strict=True))
    assert tiles_of(regions) == exact_tiles(figure_two())
    page = (tmp_path / "plan" / "report.html").read_text()
    assert page.count('class="heat"') == 49
    assert "regions.parquet" not in page  # all seven are shown
    assert "Exact, and within the limits" in page


def test_exact_regions_and_changes_are_those_of_plain_python(spark: SparkSession) -> None:
    rows = random_inputs(1)
    exact = find_exact(frame(spark, rows).union(frame(spark, sorted(rows)[:50])), 2)
    assert tiles(exact) == exact_tiles(rows)
    assert held_sets(exact) == sets_of(rows)
    assert (exact.proof.rows, exact.proof.left, exact.proof.collisions) == (len(rows), 0, 0)

    rng = random.Random(2)
    changes: set[tuple[str, str, str]] = set()
    changed = set(rows)
    for number in range(INPUTS):
        for node, group in {(rng.randint(0, 13), rng.randint(0, 8)) for _ in range(rng.randint(0, 6))}:
            pair = (f"{number}:n{node}", f"{number}:g{group}")
            word = rng.choice(("join", "leave"))  # also of groups that it is in already, or not in
            changes.add((*pair, word))
            changed = changed | {pair} if word == "join" else changed - {pair}
    after = change_exact(exact.nodes, exact.groups, frame(spark, changes, "change"))
    scratch = find_exact(frame(spark, changed), 2)
    assert tiles(after) == tiles(scratch) == exact_tiles(changed)
    assert held_sets(after) == held_sets(scratch) == sets_of(changed)
    signatures = [
        {row["node"]: (row["x1"], row["x2"], row["groups"]) for row in one.nodes.collect()} for one in (after, scratch)
    ]
    assert signatures[0] == signatures[1]
    assert 0 < after.proof.rows < scratch.proof.rows
    with pytest.raises(UsageError, match="node a both joins and leaves group g"):
        change_exact(exact.nodes, exact.groups, frame(spark, [("a", "g", "join"), ("a", "g", "leave")], "change"))


def test_a_collision_of_both_hashes_is_found_and_told_apart(spark: SparkSession) -> None:
    """Xor is linear: whoever chooses names can make two sets of groups with the same signature."""
    names = [f"topic-{number}" for number in range(300)]
    first, second = both_hashes(_column("group"))
    hashed = frame(spark, [("", name) for name in names]).select("group", first.alias("h1"), second.alias("h2"))
    hashes = {row["group"]: (row["h1"], row["h2"]) for row in hashed.collect()}
    one, other = colliding_sets(hashes)
    assert len(one) == len(other)
    assert one != other
    rows = {("a", group) for group in one} | {("b", group) for group in other} | {("c", group) for group in one}
    rows |= {("d", "alone")}
    exact = find_exact(frame(spark, rows), 2)
    assert tiles(exact) == exact_tiles(rows)
    assert held_sets(exact) == sets_of(rows)
    assert (exact.proof.collisions, exact.proof.resolved, exact.proof.left) == (1, 3, 0)
    signatures = {row["node"]: (row["x1"], row["x2"]) for row in exact.nodes.collect()}
    assert signatures["a"] == signatures["b"]

    # A node that changes into the other set of a known signature is reported, not believed.
    known = find_exact(frame(spark, {row for row in rows if row[0] != "b"}), 2)
    joins = [("b", group, "join") for group in other]
    with pytest.raises(UsageError, match="signatures of 1 regions collided"):
        change_exact(known.nodes, known.groups, frame(spark, joins, "change"))


def test_hashes_that_collide_change_nothing(spark: SparkSession) -> None:
    """Numbers of groups that meet, and lists of groups that have one hash: found, and told apart."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    def of_few(group: Column) -> Column:
        return F.pmod(F.xxhash64(group), F.lit(3))

    def by_size(groups: Column) -> tuple[Column, Column]:
        return F.size(groups).cast("long"), F.lit(0).cast("long")

    rows = {(f"n{node}", f"g{group}") for node in range(12) for group in range(node % 4, node % 4 + 3 + node % 2)}
    given = frame(spark, rows)
    weak = find_exact(given.union(given), 2, of_few, by_size)
    assert tiles(weak) == exact_tiles(rows)
    assert held_sets(weak) == sets_of(rows)
    assert weak.proof == Exactness(len(rows), 12, 4, 0, 2, 12)  # n0 and n2 have three groups, n1 and n3 have four
    assert {(row["node"], row["group"]) for row in weak.rows().collect()} == rows
    names = names_of(given, of_few)
    guess = lists_of(names.numbered(given), 2, by_size)
    assert prove(guess, regions_of(guess)).left == 3 * (2 * 2 + 2 * 2)  # three nodes of each, two groups on each side


def _column(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.col(name)


# Merging on Spark. ---------------------------------------------------------------------------------------------------


def test_too_many_regions_for_the_driver_are_merged_on_spark_within_the_limits(spark: SparkSession) -> None:
    rng = random.Random(3)
    rows = set()
    for kind in range(8):
        for node in range(6):
            missing = rng.randint(0, 29)
            rows |= {(f"n{kind}-{node}", f"{kind}:{group}") for group in range(30) if group != missing}
    exact = find_exact(frame(spark, rows), 2)
    wishes = PlanWishes(PlanCosts(), PlanLimits(waste=0.1), 1.0)
    found = plan(spark, exact.nodes.toArrow(), exact.groups.toArrow(), None, wishes, driver_regions=30)
    assert found.spark_rounds >= 1
    listed = found.tables["nodes"]
    regions = dict(zip(listed["node"].to_pylist(), listed["region"].to_pylist(), strict=True))
    assert len(set(regions.values())) == 8
    assert max(wastes(tiles_of(regions), rows, {group: 1.0 for _, group in rows}).values()) <= 0.1
    driver = plan(None, exact.nodes.toArrow(), exact.groups.toArrow(), None, wishes)
    again = dict(
        zip(driver.tables["nodes"]["node"].to_pylist(), driver.tables["nodes"]["region"].to_pylist(), strict=True)
    )
    assert tiles_of(again) == tiles_of(regions)
    assert found.merged.over == 0
    assert found.tables["regions"]["waste"].to_pylist() == pytest.approx(driver.tables["regions"]["waste"].to_pylist())


# Plans, one after the other. -----------------------------------------------------------------------------------------


def test_a_plan_after_a_plan_keeps_numbers_addresses_and_budget(spark: SparkSession, tmp_path: Path) -> None:
    rows = {(f"n{node}", f"g{node // 5}-{group}") for node in range(20) for group in range(20)}
    first = written(spark, tmp_path / "first", rows, PlanWishes())
    assert first["result"]["regions"] == first["result"]["addresses"] == 4
    saved = open_plan(tmp_path / "first")
    assert saved.document["hash"] == first["hash"]

    # One node changes its interest, one is new, one goes.
    changes = tmp_path / "changes.csv"
    lines = [f"n0,g0-{group},leave" for group in range(20)] + [f"n0,g3-{group},join" for group in range(20)]
    lines += [f"new,g1-{group},join" for group in range(20)] + [f"n19,g3-{group},leave" for group in range(20)]
    changes.write_text("node,group,change\n" + "\n".join(lines) + "\n")
    wishes = PlanWishes(moves=1)
    result = make_plan(spark, open_changes([changes]), None, wishes, saved)
    (tmp_path / "second").mkdir()
    second = write_result(tmp_path / "second", result, wishes, ["changes.csv"], saved)
    assert second["previous"] == {
        "hash": first["hash"],
        "budget": 1,
        "moved": 1,
        "came": 1,
        "went": 1,
        "kept_regions": 4,
        "new_regions": 0,
        "gone_regions": 0,
    }
    before, after = (_regions(tmp_path / name) for name in ("first", "second"))
    assert {node for node in after if node in before and after[node] != before[node]} == {"n0"}
    assert after["n0"] == after["n18"]
    assert after["new"] == after["n5"] == before["n5"]
    addresses = [_addresses(tmp_path / name) for name in ("first", "second")]
    assert addresses[0] == addresses[1]
    assert "What would change" in (tmp_path / "second" / "report.html").read_text()

    # Without a move to spend, n0 stays, and the plan says that it is beyond the limit.
    none = PlanWishes(moves=0)
    held = make_plan(spark, open_changes([changes]), None, none, saved)
    (tmp_path / "third").mkdir()
    third = write_result(tmp_path / "third", held, none, ["<b>changes</b>.csv"], saved)
    assert third["previous"]["moved"] == 0
    assert third["result"]["over_limit_nodes"] == 5  # n0, and the four around it that get its groups
    page = (tmp_path / "third" / "report.html").read_text()
    assert "Not within the limits" in page
    assert "<b>changes" not in page

    (tmp_path / "first" / "regions.parquet").write_bytes(b"other")
    with pytest.raises(UsageError, match=r"regions\.parquet is not the file that .*plan\.json describes"):
        open_plan(tmp_path / "first")


def test_the_same_subscriptions_give_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_inputs(4)
    shuffled = sorted(rows)
    random.Random(5).shuffle(shuffled)
    one = written(spark, tmp_path / "one", sorted(rows), PlanWishes(is_merged=False))
    other = written(spark, tmp_path / "other", shuffled, PlanWishes(is_merged=False))
    assert one["hash"] == other["hash"]
    assert one["result"]["regions"] == len(exact_tiles(rows))
    for name, columns in COLUMNS.items():
        assert tuple(pq.read_table(tmp_path / "one" / f"{name}.parquet").column_names) == columns


def _regions(folder: Path) -> dict[str, int]:
    table = open_plan(folder).table("nodes")
    return dict(zip(table["node"].to_pylist(), table["region"].to_pylist(), strict=True))


def _addresses(folder: Path) -> dict[int, int]:
    table = open_plan(folder).table("regions")
    return dict(zip(table["region"].to_pylist(), table["address"].to_pylist(), strict=True))


# Traces. -------------------------------------------------------------------------------------------------------------


def busy_trace(folder: Path) -> Path:
    """Nodes of figure 2 and a tenth of its groups: each node sends 100 bytes to each group in turn, four times."""
    members = sets_of((node, group) for node, group in figure_two() if group.endswith("0"))
    groups = sorted(frozenset().union(*members.values()))
    rows = []
    for node, wanted in members.items():
        rows += [Row(node, 0, n, n, "join", "floor", group=group) for n, group in enumerate(sorted(wanted))]
        for number in range(TURNS * len(groups)):
            at_ns = 1_000_000_000 + number // len(groups) * 20_000_000
            submit = Row(node, 0, len(wanted) + number, at_ns, "submit", "floor", group=groups[number % len(groups)])
            rows.append(submit._replace(sender=f"{node}/0", first=number, count=1, service="FIFO", bytes=100))
    # A session counts for its daemon.
    rows.append(Row("app@node-01", 0, 0, 5, "join", "floor", group=groups[0]))
    return write_trace(folder, rows)


def test_a_plan_from_a_trace_lowers_packets_per_message(spark: SparkSession, tmp_path: Path) -> None:
    given = open_subscriptions([busy_trace(tmp_path / "trace")])
    result: PlanResult = make_plan(spark, given, None, PlanWishes())
    assert result.proof.regions == 7
    assert result.rates == "trace"
    packets = result.packets
    assert packets["plan"].per_message < packets["one region"].per_message
    assert packets["plan"].per_message < packets["a region for each group"].per_message
    # A turn of one node is 30 messages. In one region these are 3 packets; with a region for each group 30; with the
    # plan 1 for each region of ten groups, 2 for one of twenty, 3 for the one that is in all.
    # 28 is what all nodes together receive of a turn with the plan, their own turns included, and 280 the sum of the
    # sizes of all groups. Everything falls into one second: each token and each sender's acknowledgement counts twice.
    assert packets == {
        "one region": PacketCounts(MESSAGES, 18 * TURNS * 3, 18 * TURNS * 3 * 17, 2 * (18 + 18), 0),
        "a region for each group": PacketCounts(MESSAGES, 18 * TURNS * 30, 17 * TURNS * 280, 2 * (280 + 30 * 18), 0),
        "plan": PacketCounts(MESSAGES, 18 * TURNS * 12, 17 * TURNS * 28, 2 * (18 + 7 * 18), 0),
    }
    assert [round(one.per_message, 2) for one in packets.values()] == [1.83, 10.57, 1.41]
    tmp_path.joinpath("plan").mkdir()
    document = write_result(tmp_path / "plan", result, PlanWishes(), ["trace"], None)
    page = (tmp_path / "plan" / "report.html").read_text()
    for name in ("one region", "a region for each group", "plan"):
        assert f"{document['packets'][name]['per_message']:.2f}" in page


def test_a_trace_of_regions_says_where_messages_went(spark: SparkSession, tmp_path: Path) -> None:
    """Simulated, with a plan that has all nodes in two regions: messages to groups in both are in the trace twice."""
    turns = 2
    halves = {node: place % 2 for place, node in enumerate(WANTED)}
    traced = run(each_in_turn, turns, halves)
    sent = Counter(group for node in WANTED for group in each_in_turn(node, 0))
    assert traced.counted.messages == turns * sum(sent.values())
    result = make_plan(spark, open_subscriptions([as_trace(tmp_path / "trace", traced.rows)]), None, PlanWishes())
    assert result.proof.regions == 7
    assert result.proof.rows == sum(sent.values())
    assert {one.messages for one in result.packets.values()} == {traced.counted.messages}
    held = result.planned.tables["region_groups"]
    rates = dict(zip(held["group"].to_pylist(), held["rate"].to_pylist(), strict=True))
    assert {group: round(rate / turns) for group, rate in rates.items()} == dict(sent)  # it took less than a second


# What is wrong with files. -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node,group\n", r"bad\.csv: no node is in any group, so there is nothing to plan"),
        ("node,group\na,g\n,h\n", r"bad\.csv: column node is empty in 1 row"),
        ("node,group\na,g\nb\n", r"bad\.csv: 1 row \(in all files\) have too few or too many cells"),
        ("group,node,x\ng,a,1\nh,,2\n", r"bad\.csv: column node is empty in 1 row"),
    ],
)
def test_rows_that_cannot_be_used_are_named_by_file_and_column(
    spark: SparkSession, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        make_plan(spark, open_subscriptions([path]), None, PlanWishes())


def test_rates_weigh_groups_and_bad_ones_are_named(spark: SparkSession, tmp_path: Path) -> None:
    rows = {(node, f"g{number}") for node in "ab" for number in range(3)} | {("a", "quiet")}
    given = open_subscriptions([as_parquet(tmp_path, rows)])
    assert (
        make_plan(spark, given, None, PlanWishes()).planned.tables["regions"].num_rows == 2
    )  # b would waste a quarter
    rates = tmp_path / "rates.csv"
    rates.write_text("group,rate\nquiet,0.01\n")
    weighed = make_plan(spark, given, open_rates(rates), PlanWishes())
    assert weighed.planned.tables["regions"].num_rows == 1
    for text, says in (
        ("group,rate\ng0,-1\n", r"rates\.csv: column rate is no number, or negative"),
        ("group,rate\ng0,many\n", r"rates\.csv: column rate is no number, or negative"),
        ("group,rate\ng0,1\ng0,2\n", r"rates\.csv: column group: g0 has two rates"),
    ):
        rates.write_text(text)
        with pytest.raises(UsageError, match=says):
            make_plan(spark, given, open_rates(rates), PlanWishes())
    assert json.dumps(weighed.proof._asdict())
