"""The names behind the digests that the big scans work with.

To group, join and shuffle text costs several times what numbers do, so these scans carry a digest of each view, target
and underlay. Control rows know nearly all names; what they do not have (a message to several groups at once, a view
that no member entered) is found by one scan, and only then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordercast.pipeline.verify.engine import Record, SqlEngine


class DigestNames:
    """Views (run, underlay, id), underlays (run, name) and targets, by their digests."""

    def __init__(self, engine: SqlEngine, control: list[Record]) -> None:
        self._engine = engine
        self.views: dict[int, tuple[int, str, str | None]] = {}
        self.underlays: dict[int, tuple[int, str]] = {}
        self.targets: dict[int, str] = {}
        known = {(row["r"], row["u"], row["vw"], row["grp"] or "") for row in control} | {(0, "", None, "")}
        columns = [("r", "int"), ("u", "string"), ("vw", "string"), ("tgt", "string")]
        engine.load("named", columns, sorted(known, key=lambda one: tuple(map(str, one))))
        engine.define("known", f"SELECT r, u, vw, tgt, {engine.digest('r', 'u')} AS w FROM {{named}}")
        for row in engine.rows(
            f"SELECT r, u, w, vw, {view_digest(engine)} AS v, tgt, {target_digest(engine)} AS t FROM {{known}}"
        ):
            self.views[row["v"]] = row["r"], row["u"], row["vw"]
            self.underlays[row["w"]] = row["r"], row["u"]
            self.targets[row["t"]] = row["tgt"]

    def find_views(self, digests: Collection[int]) -> None:
        """Make sure that these are known."""
        if not self.views.keys() >= set(digests):
            self._read_views("{ev} WHERE kind IN ('submit', 'deliver')")

    def find_targets(self, digests: Collection[int]) -> None:
        """Make sure that these are known."""
        if not self.targets.keys() >= set(digests):
            self._read_targets("{ev} WHERE kind IN ('submit', 'deliver')")

    def find_underlays(self, digests: Collection[int]) -> None:
        """Make sure that these are known."""
        if not self.underlays.keys() >= set(digests):
            self._read_underlays("{ev} WHERE kind = 'submit'")

    def _read_views(self, source: str) -> None:
        for row in self._engine.rows(f"SELECT DISTINCT r, u, vw, {view_digest(self._engine)} AS v FROM {source}"):
            self.views[row["v"]] = row["r"], row["u"], row["vw"]

    def _read_targets(self, source: str) -> None:
        for row in self._engine.rows(f"SELECT DISTINCT tgt, {target_digest(self._engine)} AS t FROM {source}"):
            self.targets[row["t"]] = row["tgt"]

    def _read_underlays(self, source: str) -> None:
        for row in self._engine.rows(f"SELECT DISTINCT r, u, w FROM {source}"):
            self.underlays[row["w"]] = row["r"], row["u"]


def view_digest(engine: SqlEngine, prefix: str = "") -> str:
    """Of a row with w and vw, also where vw is null."""
    return engine.digest(f"{prefix}w", f"{prefix}vw")


def target_digest(engine: SqlEngine, prefix: str = "") -> str:
    """Of a row with tgt."""
    return engine.digest(f"{prefix}tgt")


def sender_digest(engine: SqlEngine, prefix: str = "") -> str:
    """Of a row with w and sender: as `snd_keys` has it."""
    return engine.digest(f"{prefix}w", f"{prefix}sender")
