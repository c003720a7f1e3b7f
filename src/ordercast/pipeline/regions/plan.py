"""A plan as files: Parquet tables and `plan.json`, which says how they came about and what their bytes hash to.

| file | a row for each | has |
|---|---|---|
| `nodes.parquet` | node | `region`, `exact`, `x1`, `x2`, `groups`: its region, its exact region, its signature |
| `regions.parquet` | region | `nodes`, `groups`, `rate`, `waste`, `worst_waste`, `address` (null: unicast or copies) |
| `region_groups.parquet` | region and group | `wanted`: nodes of it that subscribed; `rate` |
| `exact_groups.parquet` | exact region and group | what the next plan begins from |
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.pipeline.failures import cannot_write
from ordercast.trace.convert import load_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

DOCUMENT: Final = "plan.json"
FORMAT: Final = 1
COLUMNS: Final = {
    "nodes": ("node", "region", "exact", "x1", "x2", "groups"),
    "regions": ("region", "nodes", "groups", "rate", "waste", "worst_waste", "address"),
    "region_groups": ("region", "group", "wanted", "rate"),
    "exact_groups": ("exact", "group"),
}
MOST_DOCUMENT: Final = 1 << 20  # bytes of a plan.json


class SavedPlan(NamedTuple):
    """A plan that was written."""

    folder: Path
    document: dict[str, Any]

    def path(self, table: str) -> Path:
        return self.folder / f"{table}.parquet"

    def table(self, name: str) -> pa.Table:
        _, pq = load_pyarrow()
        return pq.read_table(self.path(name), partitioning=None)


def open_plan(folder: Path) -> SavedPlan:
    """A plan to begin from; `UsageError` names what is missing, damaged or of another program."""
    path = folder / DOCUMENT
    if not path.is_file():
        raise UsageError(f"{folder} is no plan: it has no {DOCUMENT}")
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MOST_DOCUMENT))
        files = document["files"]
        written = document["format"]
        hashes = {name: files[name]["sha256"] for name in COLUMNS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is damaged, or not one of ours: {error}") from error
    if written != FORMAT:
        raise UsageError(f"{path} has format {written}; this version reads {FORMAT}")
    saved = SavedPlan(folder.resolve(), document)
    for name, wanted in hashes.items():
        try:
            found = _sha256(saved.path(name))
        except OSError as error:
            raise UsageError(f"{saved.path(name)} cannot be read: {error.strerror}") from error
        if found != wanted:
            raise UsageError(f"{saved.path(name)} is not the file that {path} describes: its hash differs")
    return saved


def placement_of(folder: Path) -> dict[str, int]:
    """Names of nodes, and the regions in which a plan puts them: what `Node(placement=...)` takes."""
    table = open_plan(folder).table("nodes")
    nodes, regions = table.column("node").to_pylist(), table.column("region").to_pylist()
    if not nodes:
        raise UsageError(f"the plan in {folder} has no nodes")
    return dict(zip(nodes, regions, strict=True))


def write_plan(folder: Path, tables: dict[str, pa.Table], document: dict[str, Any]) -> dict[str, Any]:
    """Write the tables, then `plan.json`, each under its name only when it is whole. The document as it was written."""
    _, pq = load_pyarrow()
    files = {}
    try:
        for name, columns in COLUMNS.items():
            new, path = folder / f".{name}.parquet.{os.getpid()}", folder / f"{name}.parquet"
            pq.write_table(tables[name].select(list(columns)), new, compression="zstd")
            files[name] = {"rows": tables[name].num_rows, "sha256": _sha256(new)}
            new.replace(path)
        decided = {"format": FORMAT, **{key: document[key] for key in ("limits", "costs")}, "files": files}
        canonical = json.dumps(decided, sort_keys=True, separators=(",", ":"))
        whole = {"format": FORMAT, "hash": hashlib.sha256(canonical.encode()).hexdigest(), **document, "files": files}
        new = folder / f".{DOCUMENT}.{os.getpid()}"
        new.write_text(json.dumps(whole, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        new.replace(folder / DOCUMENT)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return whole


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
