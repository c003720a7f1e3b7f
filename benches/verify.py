"""A big trace for `ordercast verify`, with faults in it that are known, and what judging it costs.

    python benches/verify.py make DIR [--rows 10000000] [--faults [NAME ...]] [--causal]
    python benches/verify.py run DIR [--master 'local[2]'] [--heap 2g] [--times 2]

The trace: 32 nodes in one underlay, 8 lightweight groups with 16 members each, all eight services but CAUSAL in the mix
(mostly AGREED; `--causal` has CAUSAL for FIFO), views that change, two crashes, a partition that heals, a member that
comes later. Every message is a row of its own (`count` is 1) at its sender (`submit`) and at each receiver (`hold`,
`placed`, `deliver`); what is RESILIENT or stronger is held and placed by all members of the view. It is made column by
column, without a Python object for each event.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.convert import (  # the encodings of a real trace
    _DELTA_COLUMNS,
    _DICTIONARY_COLUMNS,
    COMPRESSION_LEVEL,
    ROWS_PER_GROUP,
    parquet_schema,
)
from ordercast.trace.run import EPOCH, RunInfo

NODES = 32
GROUPS = 8
GROUP_MEMBERS = 16
VIEWS = 12
UNDERLAY = "big"
SERVICES = (*["AGREED"] * 15, "FIFO", "RELIABLE", "SAFE", "RESILIENT(2)", "MAJORITY")
STEP_NS = 1_000
LAG = 40  # steps from a submit to its deliveries: five messages are under way at a time
CRASHES = {5: 3, 11: 7}  # node -> its last view; it does not deliver the end of that
LATE = 31  # this node comes with view 2
PARTED = 9  # in this view the network is in two parts
FAR = tuple(range(24, 31))  # the nodes of the smaller one

KINDS = ("start", "view", "transitional", "submit", "hold", "placed", "deliver", "crash", "lock", "reply", "gap")
START, VIEW, TRANSITIONAL, SUBMIT, HOLD, PLACED, DELIVER, CRASH, LOCK, REPLY, GAP = range(len(KINDS))

FAULTS = {  # what is done to the trace -> the property that it breaks, and at whom it shows
    "duplicate": ("integrity", 0),
    "spurious": ("integrity", 1),
    "early": ("integrity", 2),
    "weaker": ("integrity", 3),
    "fifo_swap": ("fifo", 4),
    "fifo_hole": ("fifo", 6),
    "causal": ("causal", 7),
    "order_swap": ("total_order", 8),
    "cross_group_swap": ("total_order", 9),
    "two_positions": ("total_order", 10),
    "lying_recorder": ("total_order", 12),
    "dropped_in_view": ("virtual_synchrony", 13),
    "wrong_view": ("virtual_synchrony", 14),
    "members_differ": ("virtual_synchrony", 15),
    "came_with": ("virtual_synchrony", 16),
    "safe_early": ("resilience", 17),
    "resilient_early": ("resilience", 18),
    "dropped_at_end": ("liveness", 19),
    "open_gap": ("liveness", 20),
    "two_locks": ("promises", 21),
    "two_answers": ("promises", 22),
}

Columns = dict[str, Any]


class Maker:
    """Messages as columns; then the rows of each node as columns."""

    def __init__(self, rows: int, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self.count = rows * 17 // (16 * GROUP_MEMBERS)  # not everybody is there all the time
        self.names = [f"n{at:02d}" for at in range(NODES)]
        self.lives = [f"{name}/0" for name in self.names]
        # Group g has the members g*4 to g*4+15, round the ring: each node is in four groups.
        self.in_group = np.zeros((NODES, GROUPS), bool)
        for group in range(GROUPS):
            self.in_group[(np.arange(GROUP_MEMBERS) + group * 4) % NODES, group] = True
        # A view is what one part of the network goes through; part 1 is there in one view only.
        self.slot = np.minimum(np.arange(self.count) * VIEWS // self.count, VIEWS - 1)
        self.members = {(slot, part): self._members(slot, part) for slot in range(VIEWS) for part in (0, 1)}
        self.group = rng.integers(0, GROUPS, self.count)
        self.service_names = list(SERVICES)
        self.service = rng.integers(0, len(SERVICES), self.count)
        alive = np.array([[self.part(node, slot) >= 0 for node in range(NODES)] for slot in range(VIEWS)])
        self.sender = rng.integers(0, NODES, self.count)
        while True:  # a sender is alive in the view, and in the group
            bad = ~alive[self.slot, self.sender] | ~self.in_group[self.sender, self.group]
            if not bad.any():
                break
            self.sender[bad] = rng.integers(0, NODES, int(bad.sum()))
        # Who sends FIFO and RELIABLE messages is one of four; everybody else's are all ordered.
        weak = (self.service == SERVICES.index("FIFO")) | (self.service == SERVICES.index("RELIABLE"))
        self.service[weak & (self.sender % 8 != 1)] = 0
        self.side = ((self.slot == PARTED) & np.isin(self.sender, FAR)).astype(int)
        self.at = (np.arange(self.count, dtype=np.int64) + 10) * 8 * STEP_NS
        # Between two views all that is under way arrives.
        self.at += self.slot * 20 * LAG * STEP_NS
        order = np.argsort(self.sender, kind="stable")
        self.number = np.empty(self.count, np.int64)
        starts = np.searchsorted(self.sender[order], np.arange(NODES))
        self.number[order] = np.arange(self.count) - starts[self.sender[order]]
        self.is_ordered = np.array([name not in ("FIFO", "RELIABLE") for name in SERVICES])[self.service]
        self.is_strong = np.array([name not in ("FIFO", "RELIABLE", "AGREED") for name in SERVICES])[self.service]
        self.position = 2 * (np.cumsum(self.is_ordered) - 1)  # odd ones are free

    def part(self, node: int, slot: int) -> int:
        """In which part of the network the node is; -1 for none."""
        if (node in CRASHES and slot > CRASHES[node]) or (node == LATE and slot < 2):
            return -1
        return int(slot == PARTED and node in FAR)

    def _members(self, slot: int, part: int) -> list[int]:
        return [node for node in range(NODES) if self.part(node, slot) == part]

    def view_id(self, slot: int, part: int, group: int = -1) -> str:
        return f"{slot + 1 + 1000 * (group + 1)}@{self.lives[FAR[0] if part else 0]}"

    def rows_of(self, node: int) -> Columns:
        """The events of one node as columns, in order: codes instead of texts, -1 where there is none."""
        slots = [slot for slot in range(VIEWS) if self.part(node, slot) >= 0]
        near = np.array([self.part(node, slot) for slot in range(VIEWS)])[self.slot] == self.side
        here = np.flatnonzero(near)
        mine = here[self.in_group[node][self.group[here]]]
        held = here[self.in_group[node][self.group[here]] | self.is_strong[here]]
        if node in CRASHES:  # it dies before it has delivered all of its last view
            last = np.flatnonzero(self.slot == CRASHES[node])
            mine = mine[mine < last[-len(last) // 20]]
        own = np.flatnonzero(self.sender == node)
        parts = [
            (START, np.array([0]), np.array([0])),
            (SUBMIT, own, self.at[own]),
            (HOLD, held, self.at[held] + STEP_NS + (node % 3) * 100),
            (PLACED, held, self.at[held] + 2 * STEP_NS + (node % 5) * 100),
            (DELIVER, mine, self.at[mine] + LAG * STEP_NS + (node % 7) * 100),
        ]
        groups = np.flatnonzero(self.in_group[node])
        for slot in slots:
            when = int(self.at[np.searchsorted(self.slot, slot)]) - 4 * LAG * STEP_NS
            if slot - 1 in (*CRASHES.values(), PARTED - 1) and slot - 1 in slots:
                parts.append((TRANSITIONAL, np.array([slot - 1]), np.array([when - 10])))
            refs = slot + VIEWS * np.concatenate([[0], groups + 1])
            parts.append((VIEW, refs, when + np.arange(len(refs))))
        if node in CRASHES:
            parts.append((CRASH, np.array([0]), np.array([int(self.at[-1]) + 1000 * LAG * STEP_NS])))
        kind = np.concatenate([np.full(len(refs), kind) for kind, refs, _ in parts])
        ref = np.concatenate([refs for _, refs, _ in parts])
        at = np.concatenate([times for _, _, times in parts])
        order = np.argsort(at, kind="stable")
        kind, ref, at = kind[order], ref[order], at[order]
        is_message = (kind >= SUBMIT) & (kind <= DELIVER)
        message = np.where(is_message, ref, 0)
        slot = np.where(
            is_message, self.slot[message], np.where(kind == VIEW, ref % VIEWS, np.where(kind == TRANSITIONAL, ref, -1))
        )
        has_seq = is_message & self.is_ordered[message] & ((kind == PLACED) | (kind == DELIVER))
        return {
            "kind": kind,
            "at": at,
            "group": np.where(is_message, self.group[message], np.where(kind == VIEW, ref // VIEWS - 1, -1)),
            "slot": slot,
            "part": np.array([self.part(node, slot) for slot in range(VIEWS)])[slot],
            "sender": np.where(is_message, self.sender[message], -1),
            "first": np.where(is_message, self.number[message], -1),
            "service": np.where(is_message, self.service[message], -1),
            "position": np.where(has_seq, self.position[message], -1),
            "lie": np.zeros(len(kind), np.int64),
            "message": np.where(is_message, ref, -1),
        }


def honest(columns: Columns) -> Any:
    """`prev_position` as a recorder writes it, but for what it lies."""
    prev = np.full(len(columns["kind"]), -2, np.int64)
    where = np.flatnonzero((columns["kind"] == DELIVER) & (columns["position"] >= 0))
    prev[where] = np.concatenate([[-1], columns["position"][where][:-1]])
    return prev - columns["lie"]


def table_of(maker: Maker, node: int, columns: Columns, changed: dict[int, tuple[str, str]]) -> pa.Table:
    """As docs/trace.md's columns. `changed`: views of which members or came_with are changed, and how."""
    schema = parquet_schema()
    kind, slot, part, group = (columns[name] for name in ("kind", "slot", "part", "group"))
    size = len(kind)

    def text(codes: Any, words: list[str]) -> pa.Array:
        codes = pa.array(np.where(codes < 0, 0, codes), pa.int32(), mask=codes < 0)
        return pa.array(words, pa.string()).take(codes)

    def number(values: Any, width: pa.DataType, mask: Any) -> pa.Array:
        return pa.array(values, pa.int64(), mask=mask).cast(width)

    lists: list[list[str] | None] = [None]
    members = np.zeros(size, np.int64)
    came = np.zeros(size, np.int64)
    for row in np.flatnonzero(kind == VIEW).tolist():
        at = int(slot[row])
        ones = maker.members[at, int(part[row])]
        before = maker.members.get((at - 1, maker.part(node, at - 1)), []) if at else []
        if group[row] >= 0:
            ones = [one for one in ones if maker.in_group[one, group[row]]]
        together = [one for one in ones if one in before] if node in before else [node]
        if at in changed and group[row] < 0:
            what, _ = changed[at]
            if what == "members_differ":
                ones = [ones[1], ones[0], *ones[2:]]
            else:
                together = [one for one in together if one != (node + 1) % NODES]
        for target, who in ((members, ones), (came, together)):
            lists.append([maker.lives[one] for one in who])
            target[row] = len(lists) - 1
    texts = pa.array(lists, schema.field("members").type)
    ids = [maker.view_id(at, side, each) for side in (0, 1) for each in range(-1, GROUPS) for at in range(VIEWS)]
    of_group = np.where(kind == VIEW, group + 1, 0)
    views = np.where(slot < 0, -1, (np.maximum(part, 0) * (GROUPS + 1) + of_group) * VIEWS + slot)
    is_message = columns["sender"] >= 0
    prev = honest(columns)
    details = np.where(kind == LOCK, 0, -1)
    return pa.Table.from_arrays(
        [
            pa.array(np.zeros(size, np.int64)),
            pa.array(np.arange(size, dtype=np.int64)),
            pa.array(columns["at"]),
            text(kind, list(KINDS)),
            pa.array([UNDERLAY]).take(pa.array(np.zeros(size, np.int64))),
            text(group, [f"g{at}" for at in range(GROUPS)]),
            pa.nulls(size, schema.field("groups").type),
            text(views, ids),
            texts.take(pa.array(members)),
            texts.take(pa.array(came)),
            text(columns["sender"], maker.lives),
            number(columns["first"], pa.int64(), ~is_message),
            number(np.ones(size, np.int64), pa.int32(), ~is_message),
            text(columns["service"], maker.service_names),
            number(columns["position"], pa.int64(), columns["position"] < 0),
            number(prev, pa.int64(), prev == -2),
            number(np.full(size, 100), pa.int64(), ~is_message),
            text(details, ["the lock"]),
        ],
        schema=schema,
    )


class Faults:
    """What is done to the rows of each node: one fault each, far from the others."""

    def __init__(self, maker: Maker, chosen: list[str]) -> None:
        self.maker = maker
        self.of_node: dict[int, list[str]] = {}
        for name in chosen:
            self.of_node.setdefault(FAULTS[name][1], []).append(name)
        if "two_locks" in chosen:
            self.of_node.setdefault(23, []).append("another_lock")
        if "two_answers" in chosen:
            self.of_node.setdefault(23, []).append("another_answer")
        self.changed: dict[int, tuple[str, str]] = {}

    def apply(self, node: int, columns: Columns) -> Columns:
        self.changed = {}
        for name in self.of_node.get(node, ()):
            columns = getattr(self, name)(node, columns)
        return columns

    # Which row. The slots are apart from crashes and the partition.

    def _deliveries(self, columns: Columns, service: str, slot: int = 5) -> Any:
        chosen = columns["service"] == len(SERVICES) - 1 - SERVICES[::-1].index(service)
        if service == "AGREED":
            chosen = (columns["service"] >= 0) & (columns["service"] < 15)
        rows = np.flatnonzero((columns["kind"] == DELIVER) & chosen & (columns["slot"] == slot))
        return rows[len(rows) // 3 :]

    def _insert(self, columns: Columns, at: int, **values: int) -> Columns:
        """A row like the one at `at`, right behind it, but for these values."""
        source = np.insert(np.arange(len(columns["kind"])), at + 1, at)
        columns = {name: values_[source] for name, values_ in columns.items()}
        for name, value in values.items():
            columns[name][at + 1] = value
        return columns

    def _drop(self, columns: Columns, at: int) -> Columns:
        return {name: np.delete(values, at) for name, values in columns.items()}

    def _move(self, columns: Columns, at: int, to: int) -> Columns:
        """The row at `at` comes right behind the one at `to`."""
        order = np.delete(np.arange(len(columns["kind"])), at)
        order = np.insert(order, to, at)
        moved = {name: values[order] for name, values in columns.items()}
        moved["at"][to] = moved["at"][to - 1]
        return moved

    def _next(self, columns: Columns, at: int) -> int:
        """The next delivery, which is ordered, too."""
        rows = np.flatnonzero(columns["kind"][at + 1 : at + 400] == DELIVER)
        return at + 1 + int(rows[0])

    # The faults

    def duplicate(self, _: int, columns: Columns) -> Columns:
        return self._insert(columns, int(self._deliveries(columns, "AGREED")[0]))

    def spurious(self, _: int, columns: Columns) -> Columns:
        return self._insert(columns, int(self._deliveries(columns, "FIFO")[0]), first=10**9)

    def early(self, _: int, columns: Columns) -> Columns:
        at = int(self._deliveries(columns, "AGREED")[0])
        columns["at"][at] = self.maker.at[columns["message"][at]] - STEP_NS
        return columns

    def weaker(self, _: int, columns: Columns) -> Columns:
        columns["service"][self._deliveries(columns, "RESILIENT(2)")[0]] = 0
        return columns

    def _swap(self, columns: Columns, is_wanted: Any) -> Columns:
        for at in self._deliveries(columns, "AGREED").tolist():
            behind = self._next(columns, at)
            if columns["service"][behind] < 15 and columns["position"][behind] >= 0 and is_wanted(columns, at, behind):
                return self._move(columns, at, behind)
        raise LookupError("no two messages here that could be exchanged")

    def fifo_swap(self, _: int, columns: Columns) -> Columns:
        return self._swap(columns, lambda rows, at, behind: rows["sender"][at] == rows["sender"][behind])

    def order_swap(self, _: int, columns: Columns) -> Columns:
        return self._swap(
            columns,
            lambda rows, at, behind: (
                rows["sender"][at] != rows["sender"][behind]
                and rows["group"][at] == rows["group"][behind]
                and rows["message"][behind] - rows["message"][at] < 5
            ),
        )

    def cross_group_swap(self, _: int, columns: Columns) -> Columns:
        return self._swap(
            columns,
            lambda rows, at, behind: (
                rows["sender"][at] != rows["sender"][behind]
                and rows["group"][at] != rows["group"][behind]
                and rows["message"][behind] - rows["message"][at] < 5
            ),
        )

    def causal(self, _: int, columns: Columns) -> Columns:
        """A question after its answer, whose sender had delivered it; of another sender than all between."""
        rows = self._deliveries(columns, "AGREED")
        seq = {int(message): int(at) for at, message in zip(rows, columns["message"][rows], strict=True)}
        for message, at in seq.items():
            for answer in range(message + 8, message + 20):
                knows = answer in seq and self.maker.in_group[self.maker.sender[answer], self.maker.group[message]]
                between = (
                    columns["sender"][at + 1 : seq[answer] + 1][columns["kind"][at + 1 : seq[answer] + 1] == DELIVER]
                    if knows
                    else []
                )
                if knows and columns["sender"][at] not in between:
                    return self._move(columns, at, seq[answer])
        raise LookupError("no question with an answer here")

    def fifo_hole(self, _: int, columns: Columns) -> Columns:
        return self._drop(columns, int(self._deliveries(columns, "AGREED")[0]))

    def two_positions(self, _: int, columns: Columns) -> Columns:
        columns["position"][self._deliveries(columns, "AGREED")[0]] += 1
        return columns

    def lying_recorder(self, _: int, columns: Columns) -> Columns:
        columns["lie"][self._deliveries(columns, "AGREED")[0]] = 2
        return columns

    def dropped_in_view(self, _: int, columns: Columns) -> Columns:
        """The last ordered message of a sender that is gone afterwards: nothing follows that would show a hole."""
        rows = self._deliveries(columns, "AGREED", CRASHES[5])
        rows = rows[columns["sender"][rows] == 5]
        last = rows[-1]
        later = np.flatnonzero(
            (columns["sender"] == 5) & (columns["kind"] == DELIVER) & (np.arange(len(columns["kind"])) > last)
        )
        for at in later[::-1].tolist():
            columns = self._drop(columns, at)
        return self._drop(columns, int(last))

    def wrong_view(self, _: int, columns: Columns) -> Columns:
        columns["slot"][self._deliveries(columns, "AGREED")[0]] -= 1
        return columns

    def members_differ(self, _: int, columns: Columns) -> Columns:
        self.changed[5] = "members_differ", ""
        return columns

    def came_with(self, _: int, columns: Columns) -> Columns:
        self.changed[5] = "came_with", ""
        return columns

    def safe_early(self, _: int, columns: Columns) -> Columns:
        safe = len(SERVICES) - 1 - SERVICES[::-1].index("SAFE")
        rows = np.flatnonzero((columns["kind"] == HOLD) & (columns["service"] == safe) & (columns["slot"] == 6))
        columns["at"][rows[len(rows) // 2]] += 200 * LAG * STEP_NS
        return columns

    def resilient_early(self, node: int, columns: Columns) -> Columns:
        for at in self._deliveries(columns, "RESILIENT(2)").tolist():
            if columns["sender"][at] != node:
                columns["at"][at] = self.maker.at[columns["message"][at]] + 50
                return columns
        raise LookupError("no such message here")

    def dropped_at_end(self, _: int, columns: Columns) -> Columns:
        rows = np.flatnonzero((columns["kind"] == DELIVER) & (columns["service"] < 15))
        for at in rows[::-1].tolist():
            same = (columns["kind"] == DELIVER) & (columns["sender"] == columns["sender"][at])
            if np.flatnonzero(same)[-1] == at and columns["position"][at] >= 0:
                return self._drop(columns, at)
        raise LookupError("no last message here")

    def open_gap(self, _: int, columns: Columns) -> Columns:
        at = int(self._deliveries(columns, "AGREED", VIEWS - 1)[0])
        return self._insert(columns, at, kind=GAP, first=10**9, position=-1, service=-1)

    def two_locks(self, _: int, columns: Columns) -> Columns:
        at = int(self._deliveries(columns, "AGREED", 10)[0])
        return self._insert(columns, at, kind=LOCK, sender=-1, first=-1, position=-1, service=-1, group=0)

    another_lock = two_locks

    def two_answers(self, _: int, columns: Columns) -> Columns:
        """The same message at both: the first of slot 6 that both got."""
        both = self.maker.in_group[22] & self.maker.in_group[23]
        messages = np.flatnonzero((self.maker.slot == 6) & both[self.maker.group])
        at = int(np.flatnonzero((columns["kind"] == DELIVER) & (columns["message"] == messages[0]))[0])
        return self._insert(columns, at, kind=REPLY, position=-1, service=-1)

    another_answer = two_answers


def make(folder: Path, rows: int, faults: list[str], is_causal: bool) -> None:
    """Write the trace."""
    began = time.monotonic()
    maker = Maker(rows)
    if is_causal:
        maker.service_names = ["CAUSAL" if name == "FIFO" else name for name in SERVICES]
    broken = Faults(maker, faults)
    services = tuple(dict.fromkeys(maker.service_names))
    RunInfo(f"big{rows}", EPOCH, "sim", "virtual", 7, "token", services, {"min_members": 1}, "bench").write(folder)
    total = delivered = 0
    for node in range(NODES):
        columns = broken.apply(node, maker.rows_of(node))
        path = folder / "events" / f"node={maker.names[node]}" / "part-0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            table_of(maker, node, columns, broken.changed),
            path,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            row_group_size=ROWS_PER_GROUP,
            use_dictionary=list(_DICTIONARY_COLUMNS),
            column_encoding=dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
        )
        total += len(columns["kind"])
        delivered += int((columns["kind"] == DELIVER).sum())
    print(f"{delivered} delivery rows of {total} rows, {maker.count} messages, in {time.monotonic() - began:.1f} s")


def cpu_s(pid: int) -> float:
    """What a process has used of all processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _show_steps(engine: Any, pid: int) -> None:
    """Print what each query takes."""
    plain = engine.rows

    def rows(self: Any, sql: str) -> Any:
        began, cpu = time.monotonic(), cpu_s(pid)
        found = plain(self, sql)
        words = " ".join(sql.split())
        print(
            f"  {time.monotonic() - began:6.2f} s {cpu_s(pid) - cpu:6.2f} cpu {len(found):8} {words[:90]}", flush=True
        )
        return found

    engine.rows = rows


def measure(folder: Path, master: str, heap: str, times: int, steps: bool) -> int:
    """Judge the trace several times in one session; print what each took."""
    from ordercast.pipeline.reading import inspect
    from ordercast.pipeline.session import session
    from ordercast.pipeline.verify.engine import SparkEngine
    from ordercast.pipeline.verify.job import as_json, report, verify

    runs = inspect([folder])
    with session("bench verify", master, heap=heap) as spark:
        pid = spark._jvm.java.lang.ProcessHandle.current().pid()
        if steps:
            _show_steps(SparkEngine, pid)
        for at in range(times):
            began, cpu = time.monotonic(), cpu_s(pid)
            findings = verify(spark, runs)
            took, cpu = time.monotonic() - began, cpu_s(pid) - cpu
            delivered = findings.checked["integrity"]
            peak = next(
                int(line.split()[1]) // 1024
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmHWM")
            )
            driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{'cold' if at == 0 else 'warm'}: {took:.1f} s, {delivered / took:,.0f} delivery rows/s; "
                f"{cpu:.1f} s of processors; "
                f"peak memory {peak} MB Java, {driver} MB Python",
                flush=True,
            )
    print("\n".join(report([folder], runs, findings)[:60]))
    print(json.dumps(as_json(runs, findings)))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("folder", type=Path)
    maker.add_argument("--rows", type=int, default=10_000_000)
    maker.add_argument("--faults", nargs="*", default=None, choices=sorted(FAULTS), help="all, if none is named")
    maker.add_argument("--causal", action="store_true", help="CAUSAL messages instead of FIFO ones")
    runner = commands.add_parser("run")
    runner.add_argument("folder", type=Path)
    runner.add_argument("--master", default="local[2]")
    runner.add_argument("--heap", default="2g")
    runner.add_argument("--times", type=int, default=3)
    runner.add_argument("--steps", action="store_true", help="show what each query takes")
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.rows, list(FAULTS) if args.faults == [] else args.faults or [], args.causal)
        return 0
    return measure(args.folder, args.master, args.heap, args.times, args.steps)


if __name__ == "__main__":
    sys.exit(main())
