"""The state of a membership service as a file that `ordercast plan` reads: who is in which group."""

from __future__ import annotations

import asyncio
import csv
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from ordercast.errors import UsageError
from ordercast.gms.replica import GmsReplica
from ordercast.gms.subscriptions import ServedSubscriptions
from ordercast.trace.convert import load_pyarrow

CSV, PARQUET = ".csv", ".parquet"
DUMP_S: Final = 5.0  # between two dumps
CHUNK_ROWS: Final = 1_000_000  # that are in memory at once


def check_path(path: Path) -> None:
    """Before the service starts: what `ordercast plan` could not read, or nobody could write."""
    if path.suffix not in (CSV, PARQUET):
        raise UsageError(f"{path} is neither {PARQUET} nor {CSV}: name a file of subscriptions")
    if path.suffix == PARQUET:
        load_pyarrow()
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no folder")


async def dump_changes(replica: GmsReplica, path: Path, over: asyncio.Event, say: Callable[[str], None]) -> None:
    """Write the file whenever the directory has changed, every 5 seconds at most, and once more when it is over."""
    written = -1
    while not over.is_set():
        written = await _dump(replica, path, written, say)
        with suppress(TimeoutError):
            async with asyncio.timeout(DUMP_S):
                await over.wait()
    await _dump(replica, path, written, say)


async def _dump(replica: GmsReplica, path: Path, written: int, say: Callable[[str], None]) -> int:
    """The epoch that the file has."""
    found = replica.subscriptions()
    if found is None or found.epoch == written:
        return written
    try:
        await asyncio.to_thread(write_subscriptions, path, found)
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror}")
        return written
    return found.epoch


def write_subscriptions(path: Path, found: ServedSubscriptions) -> None:
    """Under its name only when it is whole."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix == CSV:
            with new.open("w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(("node", "group"))
                rows.writerows(found.pairs())
        else:
            _write_parquet(new, found)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _write_parquet(path: Path, found: ServedSubscriptions) -> None:
    """As dictionaries: without a Python object for each row, since a node may be in very many groups."""
    pa, pq = load_pyarrow()
    names, groups = pa.array([name for name, _ in found.nodes], pa.string()), pa.array(found.names, pa.string())
    text = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("node", text), ("group", text)])
    with pq.ParquetWriter(path, schema, compression="zstd") as file:

        def write(nodes: list[Any], numbers: list[Any]) -> None:
            columns = (np.concatenate(each).astype(np.int32) for each in (nodes, numbers))
            arrays = [
                pa.DictionaryArray.from_arrays(one, all_) for one, all_ in zip(columns, (names, groups), strict=True)
            ]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))

        nodes: list[Any] = [np.zeros(0)]  # so that a file without rows has its columns
        numbers: list[Any] = [np.zeros(0)]
        rows = 0
        for place, (_, runs) in enumerate(found.nodes):
            for first, stop in runs:
                nodes.append(np.full(stop - first, place))
                numbers.append(np.arange(first, stop))
                rows += stop - first
            if rows >= CHUNK_ROWS:
                write(nodes, numbers)
                nodes, numbers, rows = [], [], 0
        if nodes:
            write(nodes, numbers)
