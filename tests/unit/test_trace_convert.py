"""Raw files to Parquet and back: docs/trace.md."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.trace import convert as convert_module
from ordercast.trace.cells import CELL_BYTES
from ordercast.trace.convert import (
    TraceGarbled,
    check_node_name,
    convert,
    part_path,
    raw_path,
    write_recorder,
    write_rows,
)
from ordercast.trace.recorder import HOLD, START, Recorder
from ordercast.trace.run import RunInfo
from ordercast.trace.schema import COLUMNS, KINDS, Row
from ordercast.trace.store import iter_rows, read_trace

RUN = RunInfo.simulated(seed=1, orderer="sequencer", services=["AGREED"], parameters={"nodes": 3})

ROWS = [
    Row("a", 0, 0, 1, "start", ""),
    Row("a", 0, 1, 2, "view", "ring", view="1@a/0", members=("a/0", "c@d/2"), came_with=("a/0",)),
    Row(
        node="a",
        life=0,
        n=2,
        at_ns=3,
        kind="deliver",
        underlay="ring",
        group="prices",
        groups=("prices", "trades"),
        view="1@a/0",
        sender="c@d/2",
        first=0,
        count=2_147_483_647,
        service="RESILIENT(2)",
        position=(1 << 63) - 1,
        prev_position=-1,
        bytes=0,
        detail="",
    ),
    Row("a", 10, 0, 4, "start", "", groups=()),
    Row("c@d", 2, 0, 4, "submit", "ring", sender="c@d/2", first=0, count=1, service="SAFE", bytes=9, detail="é"),
]


def record(trace: Path, node: str, life: int, rows: int) -> Path:
    path = raw_path(trace, node, life)
    recorder = Recorder(path, node, life)
    recorder.row(START, 5)
    for i in range(1, rows):
        recorder.row(HOLD, 5 + i, recorder.string("ring"), sender=recorder.string(f"s{i % 3}/0"), first=i, count=1)
    recorder.close()
    return path


def test_rows_come_back_from_a_trace_folder_by_node_life_and_number(tmp_path: Path) -> None:
    RUN.write(tmp_path)
    write_rows(tmp_path, ROWS)
    assert read_trace(tmp_path) == (RUN, sorted(ROWS, key=lambda row: (row.node, row.life, row.n)))


def test_columns_have_the_types_of_the_trace_schema_and_node_is_the_folder(tmp_path: Path) -> None:
    (first, *_) = write_rows(tmp_path, ROWS)
    assert first.path == tmp_path / "events" / "node=a" / "part-0.parquet"
    schema = pq.read_schema(first.path)
    assert tuple(schema.names) == COLUMNS[1:]
    assert schema.field("life").type == pa.int64()
    assert schema.field("count").type == pa.int32()
    assert schema.field("kind").type == pa.string()
    assert schema.field("members").type.value_type == pa.string()
    chunk = pq.ParquetFile(first.path).metadata.row_group(0)
    encodings = {chunk.column(i).path_in_schema: chunk.column(i) for i in range(chunk.num_columns)}
    for name in ("n", "at_ns", "first", "position", "prev_position"):
        assert "DELTA_BINARY_PACKED" in encodings[name].encodings
    for name in ("kind", "underlay", "group", "view", "sender", "members.list.element"):
        assert "RLE_DICTIONARY" in encodings[name].encodings
    assert {column.compression for column in encodings.values()} == {"ZSTD"}


def test_the_rows_of_a_real_node_keep_their_order(tmp_path: Path) -> None:
    record(tmp_path, "a", 7, 100)
    (converted,) = convert(tmp_path)
    assert (converted.node, converted.life, converted.rows, converted.torn_bytes) == ("a", 7, 100, 0)
    found = list(iter_rows(tmp_path))
    assert [row.n for row in found] == list(range(100))
    assert found[99] == Row("a", 7, 99, 104, "hold", "ring", sender="s0/0", first=99, count=1)


def test_a_killed_node_loses_its_torn_row_and_gets_a_crash_row_with_the_next_number(tmp_path: Path) -> None:
    path = record(tmp_path, "a", 0, 10)
    record(tmp_path, "b", 0, 2)
    path.write_bytes(path.read_bytes()[:-1])
    converted, _ = convert(tmp_path, crashed=[("a", 0)])
    assert (converted.rows, converted.torn_bytes) == (10, CELL_BYTES - 1)
    found = list(iter_rows(tmp_path))
    assert [row.kind for row in found if row.node == "a"][-2:] == ["hold", "crash"]
    assert found[9] == Row("a", 0, 9, 13, "crash", "")
    assert [row.kind for row in found if row.node == "b"] == ["start", "hold"]


def test_a_crash_has_the_time_of_the_kill_where_the_harness_knows_it(tmp_path: Path) -> None:
    record(tmp_path, "a", 0, 2)
    convert(tmp_path, crashed={("a", 0): 99})
    assert [row.at_ns for row in iter_rows(tmp_path)] == [5, 6, 99]


def test_a_node_killed_before_its_first_write_leaves_only_its_crash(tmp_path: Path) -> None:
    raw_path(tmp_path, "a", 0).touch()
    convert(tmp_path, crashed=[("a", 0)])
    assert list(iter_rows(tmp_path)) == [Row("a", 0, 0, 0, "crash", "")]


def test_a_crash_of_a_node_without_a_file_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    record(tmp_path, "a", 0, 1)
    with pytest.raises(ValueError, match="b/0 is said to have crashed"):
        convert(tmp_path, crashed=[("b", 0)])


def test_a_damaged_file_is_refused_and_leaves_no_part_behind(tmp_path: Path) -> None:
    path = record(tmp_path, "a", 0, 10)
    path.write_bytes(path.read_bytes()[:-CELL_BYTES] + bytes(CELL_BYTES))
    with pytest.raises(TraceGarbled, match="a/0 is damaged"):
        convert(tmp_path)
    assert list((tmp_path / "events" / "node=a").iterdir()) == []


def test_equal_rows_give_equal_files_whatever_way_they_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_module, "ROWS_PER_GROUP", 16)
    monkeypatch.setattr(convert_module, "CHUNK_BYTES", 7 * CELL_BYTES)
    record(tmp_path / "raw run", "a", 0, 100)
    convert(tmp_path / "raw run")
    rows = list(iter_rows(tmp_path / "raw run"))
    monkeypatch.setattr(convert_module, "CHUNK_BYTES", 31 * CELL_BYTES)
    write_rows(tmp_path / "from rows", rows)
    memory = Recorder(None, "a", 0)
    memory.strings(["never used", "by any row"])
    memory.row(START, 5)
    for i in range(1, 100):
        sender = memory.string(f"s{i % 3}/0")
        memory.row(HOLD, 5 + i, memory.string("ring"), sender=sender, first=i, count=1)
    write_recorder(tmp_path / "from memory", memory)
    parts = [part_path(tmp_path / run, "a", 0).read_bytes() for run in ("raw run", "from rows", "from memory")]
    assert parts[0] == parts[1] == parts[2]
    assert pq.ParquetFile(part_path(tmp_path / "raw run", "a", 0)).num_row_groups == 7


def test_a_simulated_trace_has_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from ordercast.trace.convert import write_rows
from ordercast.trace.run import RunInfo
from ordercast.trace.schema import Row
folder = Path(sys.argv[1])
parameters = {"b": [1, 2], "a": {"y": 1, "x": 2}}
RunInfo.simulated(seed=7, orderer="token", services=["SAFE"], parameters=parameters).write(folder)
write_rows(folder, [Row(node, 0, n, n, "join", "u", group=f"g{n}") for n in range(50) for node in ("a", "b")])
"""
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        folder = tmp_path / hash_seed
        environment = {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True, env=environment)
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
        digests.add(digest.hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a=b", "a%2Fb", ".a", "a\nb", "a..b", "é", "a b", "x" * 121]
)
def test_a_node_name_that_is_no_plain_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name a node"):
        raw_path(tmp_path, name, 0)
    with pytest.raises(ValueError, match="cannot name a node"):
        write_rows(tmp_path, [Row(name, 0, 0, 0, "start", "")])


def test_names_of_nodes_and_of_clients_of_daemons_are_accepted() -> None:
    for name in ("a", "node-1", "client@daemon", "7", "host.example_1+x"):
        check_node_name(name)


def test_a_name_with_a_dash_and_digits_keeps_them_apart_from_its_life(tmp_path: Path) -> None:
    record(tmp_path, "node-1", 12, 1)
    convert(tmp_path)
    assert [(row.node, row.life) for row in iter_rows(tmp_path)] == [("node-1", 12)]


def test_rows_with_a_hole_in_their_numbers_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="row 2 of a/0 stands where row 1 is due"):
        write_rows(tmp_path, [ROWS[0], ROWS[2]])


def test_a_number_that_does_not_fit_its_column_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    for row in (ROWS[0]._replace(at_ns=1 << 63), ROWS[0]._replace(count=1 << 31), ROWS[0]._replace(kind="dance")):
        with pytest.raises(ValueError, match=r"a/0|dance"):
            write_rows(tmp_path, [row])


def test_a_parquet_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = part_path(tmp_path, "a", 0)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), path)
    with pytest.raises(TraceGarbled, match="columns of a trace"):
        list(iter_rows(tmp_path))
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(TraceGarbled, match="cannot be read as Parquet"):
        list(iter_rows(tmp_path))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
numbers = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
maybe_texts = st.none() | texts
maybe_lists = st.none() | st.lists(texts, max_size=4).map(tuple)
maybe_numbers = st.none() | numbers
row_bodies = st.tuples(
    numbers,
    st.sampled_from(KINDS),
    texts,
    maybe_texts,
    maybe_lists,
    maybe_texts,
    maybe_lists,
    maybe_lists,
    maybe_texts,
    maybe_numbers,
    st.none() | st.integers(0, (1 << 31) - 1),
    st.sampled_from([None, "UNRELIABLE", "FIFO", "AGREED", "RESILIENT(0)", "RESILIENT(255)", "MAJORITY", "SAFE"]),
    maybe_numbers,
    maybe_numbers,
    maybe_numbers,
    maybe_texts,
)


@settings(max_examples=50, deadline=None)
@given(bodies=st.lists(row_bodies, max_size=10))
def test_any_rows_come_back_as_they_were(
    bodies: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    rows = [Row("a", 1, n, *body) for n, body in enumerate(bodies)]
    write_rows(folder, rows)
    assert list(iter_rows(folder)) == rows
