"""Sessions of a daemon in its raw file, and how conversion splits them into nodes `client@daemon`: docs/trace.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.trace import convert as convert_module
from ordercast.trace import recorder as recorder_module
from ordercast.trace.cells import CELL_BYTES, CellReader, TraceGarbled
from ordercast.trace.convert import convert, raw_path, write_recorder
from ordercast.trace.naming import check_node_name, is_session_of, session_name
from ordercast.trace.recorder import CRASH, DELIVER, HOLD, START, STOP, SUBMIT, VIEW, Recorder, Traffic, hop_detail
from ordercast.trace.run import RunInfo
from ordercast.trace.store import iter_rows

CLIENTS = ("x", "y")


def fill(recorder: Recorder, *, blocks: int = 3) -> None:
    """A daemon and two sessions, whose rows come in turn; the second session ends."""
    underlay, view = recorder.string("u"), recorder.string("1@a/0")
    recorder.row(START, 1)
    recorder.row(VIEW, 2, underlay, view=view, members=recorder.strings(["a/0"]), came_with=recorder.strings(["a/0"]))
    sessions = [recorder.session(client) for client in CLIENTS]
    for session in sessions:
        recorder.row(START, 3, session=session)
    for at in range(blocks):
        sender, group = recorder.string("x@a/0"), recorder.string("g")
        recorder.row(SUBMIT, 10 + at, underlay, group, view, sender, at, 1, 4, session=sessions[0])
        recorder.row(HOLD, 10 + at, underlay, group, view, sender, at, 1, 4)
        for session in sessions:
            recorder.row(DELIVER, 10 + at, underlay, group, view, sender, at, 1, 4, 0, at, at - 1, session=session)
    recorder.row(STOP, 50, session=sessions[1])


def test_each_session_is_a_node_with_numbers_of_its_own_in_the_order_of_the_file() -> None:
    recorder = Recorder(None, "a", 4)
    fill(recorder)
    rows = recorder.rows()
    by_node = {name: [row for row in rows if row.node == name] for name in ("a", "x@a", "y@a")}
    assert sum(map(len, by_node.values())) == len(rows)
    assert all([row.n for row in ones] == list(range(len(ones))) for ones in by_node.values())
    assert {row.life for row in rows} == {4}
    assert [row.kind for row in by_node["a"]] == ["start", "view", "hold", "hold", "hold"]
    assert [row.kind for row in by_node["x@a"]] == ["start", *["submit", "deliver"] * 3]
    assert [row.kind for row in by_node["y@a"]] == ["start", "deliver", "deliver", "deliver", "stop"]
    assert [row.first for row in by_node["x@a"] if row.kind == "deliver"] == [0, 1, 2]


def test_a_daemon_without_named_sessions_writes_the_bytes_that_it_always_wrote() -> None:
    """The only session of a program has no name; the place of the session in a row was empty before."""
    plain, asked = Recorder(None, "a", 0), Recorder(None, "a", 0)
    plain.row(START, 1)
    asked.row(START, 1, session=asked.session(""))
    assert plain.dump() == asked.dump()
    assert plain.dump()[-CELL_BYTES:][36:40] == bytes(4)


@pytest.mark.parametrize("in_file", [True, False])
def test_conversion_writes_a_folder_for_each_session(tmp_path: Path, in_file: bool) -> None:
    recorder = Recorder(raw_path(tmp_path, "a", 0) if in_file else None, "a", 0)
    fill(recorder)
    if in_file:
        recorder.close()
        converted = convert(tmp_path)
        assert [(one.node, one.rows) for one in converted] == [("a", 5), ("x@a", 7), ("y@a", 5)]
    else:
        assert write_recorder(tmp_path, recorder).rows == 5
    memory = Recorder(None, "a", 0)
    fill(memory)
    assert list(iter_rows(tmp_path)) == sorted(memory.rows(), key=lambda row: (row.node, row.n))


def test_many_sessions_are_written_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_module, "SESSIONS_AT_ONCE", 2)
    monkeypatch.setattr(convert_module, "CHUNK_BYTES", 3 * CELL_BYTES)
    recorder = Recorder(raw_path(tmp_path, "a", 0), "a", 0)
    recorder.row(START, 1)
    for at in range(40):
        recorder.row(START if at < 5 else STOP, at, session=recorder.session(f"c{at % 5}"))
    recorder.close()
    assert [(one.node, one.rows) for one in convert(tmp_path)] == [("a", 1), *((f"c{at}@a", 8) for at in range(5))]


def test_a_killed_daemon_takes_the_sessions_with_it_that_had_not_ended(tmp_path: Path) -> None:
    recorder = Recorder(raw_path(tmp_path, "a", 0), "a", 0)
    fill(recorder)
    recorder.close()
    convert(tmp_path, crashed={("a", 0): 70})
    last = {row.node: row for row in iter_rows(tmp_path)}
    assert {name: (row.kind, row.at_ns, row.n) for name, row in last.items()} == {
        "a": ("crash", 70, 5),
        "x@a": ("crash", 70, 7),
        "y@a": ("stop", 50, 4),
    }


def test_a_crash_that_a_simulation_wrote_ends_the_sessions_too(tmp_path: Path) -> None:
    recorder = Recorder(None, "a", 0)
    fill(recorder)
    recorder.row(CRASH, 60)
    ends = {row.node: (row.kind, row.at_ns) for row in recorder.rows()}
    assert ends == {"a": ("crash", 60), "x@a": ("crash", 60), "y@a": ("stop", 50)}
    write_recorder(tmp_path, recorder)
    assert {row.node: (row.kind, row.at_ns) for row in iter_rows(tmp_path)} == ends


def test_a_torn_file_keeps_the_whole_rows_of_every_session(tmp_path: Path) -> None:
    path = raw_path(tmp_path, "a", 0)
    recorder = Recorder(path, "a", 0)
    fill(recorder)
    recorder.close()
    path.write_bytes(path.read_bytes()[: -CELL_BYTES // 2])
    assert [(one.node, one.rows) for one in convert(tmp_path)] == [("a", 5), ("x@a", 7), ("y@a", 4)]


def test_a_name_that_the_recorder_forgot_is_the_same_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recorder_module, "MAX_NAMES", 4)
    recorder = Recorder(None, "a", 0)
    for at in range(12):
        recorder.row(DELIVER, at, recorder.string(f"u{at}"), session=recorder.session("xy"[at % 2]))
    rows = recorder.rows()
    assert [(row.node, row.n) for row in rows] == [(f"{'xy'[at % 2]}@a", at // 2) for at in range(12)]
    write_recorder(tmp_path, recorder)
    assert list(iter_rows(tmp_path)) == sorted(rows, key=lambda row: (row.node, row.n))


def test_a_row_of_a_session_of_another_node_is_refused() -> None:
    recorder = Recorder(None, "a", 0)
    recorder.row(START, 1, session=recorder.string("x@b"))
    with pytest.raises(TraceGarbled, match="no session of this node"):
        recorder.rows()
    recorder = Recorder(None, "a", 0)
    recorder.row(START, 1, session=recorder.strings(["x@a"]))
    with pytest.raises(TraceGarbled, match="name is not defined"):
        recorder.rows()


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_any_name_of_a_client_is_a_folder_and_different_ones_stay_different(one: str, other: str) -> None:
    names = [session_name(client, "node-1.example") for client in (one, other)]
    for name in names:
        check_node_name(name)
        assert is_session_of(name, "node-1.example")
    plain = [client.encode(errors="replace") for client in (one, other)]
    assert (names[0] == names[1]) == (plain[0] == plain[1])


@pytest.mark.parametrize("client", ["", "n" * 120])
def test_a_client_without_a_name_or_with_too_long_a_name_is_refused(client: str) -> None:
    with pytest.raises(ValueError, match=r"a session has a name|cannot name a node"):
        session_name(client, "a")


def test_names_of_clients_as_people_choose_them() -> None:
    names = [session_name(client, "a") for client in ("user-1", "#u1", "a/b", "+", "x@y", "é")]
    assert names == ["user-1@a", "0++23u1@a", "a+2fb@a", "0++2b@a", "x+40y@a", "0++c3+a9@a"]


def test_what_is_read_in_pieces_is_numbered_alike() -> None:
    recorder = Recorder(None, "a", 0)
    fill(recorder)
    data = recorder.dump()
    reader = CellReader("a", 0)
    rows = []
    for start in range(0, len(data), 250):
        rows += list(reader.to_rows(reader.feed(data[start : start + 250])))
    assert rows == recorder.rows()


def test_datagrams_between_sites_are_told_apart_by_kind_and_site() -> None:
    recorder, traffic = Recorder(None, "a", 0), Traffic()
    for number in range(64):
        for kind in ("data", "ack", "nak"):
            traffic.sent(hop_detail(kind, f"site{number}"), 100)
    traffic.emit(recorder, 1)
    details = [row.detail for row in recorder.rows()]
    assert len(set(details)) == 64 * 3
    assert details[0] == "hop.data>site0"


def test_a_run_says_what_becomes_of_partitions() -> None:
    def run(**parameters: object) -> RunInfo:
        return RunInfo.simulated(seed=1, orderer="token", services=("AGREED",), parameters=parameters)

    assert run().partitions == "quorum"
    assert run(partitions="continue").partitions == "continue"
