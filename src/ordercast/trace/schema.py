"""The event schema of a trace, as docs/trace.md states it: one row per event of one node.

Readers (checkers, pipeline) and writers (recorder, Parquet converter) meet here and nowhere else.
Columns keep the order of docs/trace.md; `None` means that the column has no meaning for the row.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One event, or `count` consecutive messages of one sender that shared it."""

    node: str
    life: int
    n: int
    at_ns: int
    kind: str
    underlay: str
    group: str | None = None
    groups: tuple[str, ...] | None = None
    view: str | None = None
    members: tuple[str, ...] | None = None
    came_with: tuple[str, ...] | None = None
    sender: str | None = None
    first: int | None = None
    count: int | None = None  # type: ignore[assignment]  # the name in docs/trace.md; tuple.count is not used
    service: str | None = None
    position: int | None = None
    prev_position: int | None = None
    bytes: int | None = None
    detail: str | None = None


COLUMNS: Final[tuple[str, ...]] = Row._fields

# What becomes of a partition (`partitions` among the parameters of a run): at most one part goes on, or all of them.
QUORUM: Final = "quorum"
CONTINUE: Final = "continue"
PARTITIONS: Final = (QUORUM, CONTINUE)

# The order is the on-disk code of a kind in the recorder's binary rows: append, never reorder.
KINDS: Final[tuple[str, ...]] = (
    "start",
    "stop",
    "crash",
    "submit",
    "hold",
    "placed",
    "deliver",
    "redeliver",
    "confirm",
    "view",
    "transitional",
    "join",
    "leave",
    "lock",
    "unlock",
    "reply",
    "tx",
    "rx",
    "gap",
    "repaired",
    "stalled",
    "resumed",
    "carry",
    "lost",
)
