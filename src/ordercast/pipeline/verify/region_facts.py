"""The tables of regions (docs/trace.md, "Regions"), one row for each message: what was sent, got, lost, and is missing.

Rows of regions do not take part in the tables of `facts.py`: a node delivers in views that have ended, a row names no
group, and a lane need not be a member's. How the columns are read stands in `sim/checkers/region_records.py`; this is
the same by code of its own. Everything is by message here: lanes of two regions cut the same messages differently.

- `r_lives`, `r_stays`: lives with their runs, and their stays as events `(low, high]`.
- `r_inst`: who installed which region view, in which stay.
- `r_spans`: who is in which group, as events `[n, stop_n)`.
- `r_sent`: what was submitted (`sm` the sender's life, `num` its number in the region), with the view, block and groups
  that carried it; the view is null if none did.
- `r_took`: what was delivered, with what it was when sent, and why integrity rejects it. `r_piece`: what it does not.
- `r_lost`: lost blocks. `r_miss`: what was owed to a life, and neither delivered nor said to be lost.

`FOREVER` stands for the end of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.pipeline.verify.engine import Record, SqlEngine
from ordercast.pipeline.verify.facts import FIFO, RELIABLE, Facts
from ordercast.pipeline.verify.history import FOREVER
from ordercast.trace.naming import REGIONS

LANE: Final = "m, w, sm, num"


class RegionInstall(NamedTuple):
    """A life installs a region view."""

    m: int
    r: int
    n: int
    at_ns: int
    u: str
    w: int
    view: str
    members: tuple[str, ...]
    stay: int
    is_open: bool


@dataclass(slots=True)
class RegionFacts:
    """What the driver knows of regions; the rest is in tables."""

    installs: list[RegionInstall]
    names: dict[tuple[int, str], int]  # (run, name/life) -> life
    regions: dict[int, str]  # digest -> underlay
    ends: dict[int, list[int]]  # life -> ends of its stays


def gather_regions(facts: Facts) -> RegionFacts | None:
    """Make the tables; None if no run has regions."""
    engine = facts.engine
    if not engine.rows("SELECT 1 AS one FROM {few_whole} WHERE is_regional = 1 LIMIT 1"):
        return None
    names = {(member.r, member.name): m for m, member in facts.members.items()}
    ends = _ends(facts)
    _load_lives(facts, ends)
    installs = _installs(facts, ends)
    engine.load(
        "r_inst",
        [(name, "int") for name in ("m", "stay", "is_open")]
        + [("n", "bigint"), ("at_ns", "bigint"), ("w", "bigint"), ("vw", "string")],
        [(one.m, one.stay, int(one.is_open), one.n, one.at_ns, one.w, one.view) for one in installs],
    )
    engine.load(
        "r_members",
        [("w", "bigint"), ("vw", "string"), ("sm", "int")],
        sorted(
            {
                (one.w, one.view, names[one.r, member])
                for one in installs
                for member in one.members
                if (one.r, member) in names
            }
        ),
    )
    engine.define("r_spans", SPANS, keep=True)
    engine.define("r_carry", _carry_sql(engine))
    engine.define("r_sent", _sent_sql(engine), keep=True)
    engine.define("r_group", f"SELECT x.*, {engine.each_name('x.tgt')} AS grp FROM {{r_sent}} x WHERE x.vw IS NOT NULL")
    engine.define("r_got", _got_sql(engine))
    engine.define("r_took", _took_sql(engine), keep=True)
    engine.define("r_piece", PIECE, keep=True)
    engine.define("r_lost", _lost_sql(engine), keep=True)
    engine.define("r_miss", MISS, keep=True)
    return RegionFacts(installs, names, {one.w: one.u for one in installs}, ends)


def _ends(facts: Facts) -> dict[int, list[int]]:
    """The ends of all stays. A stop after all traffic of the regions ends the run."""
    busy: dict[int, int] = {}
    for row in facts.engine.rows(TRAFFIC):
        member = facts.members[row["m"]]
        if row["bad_n"] is not None:
            raise UsageError(
                f"the row of {member.name} at n={row['bad_n']} in run {facts.runs[member.r].name} is none of a region: "
                "it lacks sender, view, numbers or serial, or its service is none that regions have"
            )
        busy[member.r] = max(busy.get(member.r, -1), row["at_ns"])
    found: dict[int, list[int]] = {}
    for row in facts.engine.rows(
        "SELECT m, r, n, at_ns, kind FROM {few_whole} WHERE kind IN ('stop', 'crash') "
        f"OR (kind = 'leave' AND u = '{REGIONS}' AND tgt = '') ORDER BY m, n"
    ):
        is_last = facts.clock(row["r"]) != "many" and row["at_ns"] > busy.get(row["r"], -1)
        if row["kind"] != "stop" or not is_last:
            found.setdefault(row["m"], []).append(row["n"])
    for m, member in facts.members.items():
        if member.is_gone:
            found.setdefault(m, []).append(FOREVER - 1)
    return found


TRAFFIC: Final = f"""
SELECT m, max(at_ns) AS at_ns, max(CASE WHEN a IS NULL OR b IS NULL OR b <= a OR svc IS NULL OR svc > {FIFO}
  OR vw IS NULL OR sender IS NULL OR (kind = 'submit' AND pos IS NULL) THEN n END) AS bad_n
FROM {{ev_whole}} WHERE is_regional = 1 AND kind IN ('submit', 'deliver') GROUP BY m
"""


def _load_lives(facts: Facts, ends: dict[int, list[int]]) -> None:
    facts.engine.load(
        "r_lives",
        [("m", "int"), ("r", "int"), ("name", "string"), ("is_comparable", "int"), ("is_quiet", "int")],
        [
            (m, one.r, one.name, int(facts.clock(one.r) != "many"), int(facts.quiet[one.r]))
            for m, one in facts.members.items()
        ],
    )
    stays: list[tuple[int, int, int, int, int]] = []
    for m in facts.members:
        low = -1
        for stay, high in enumerate((*ends.get(m, ()), FOREVER)):
            stays.append((m, stay, int(high == FOREVER), low, high))
            low = high
    columns = [(name, "int") for name in ("m", "stay", "is_open")] + [("low", "bigint"), ("high", "bigint")]
    facts.engine.load("r_stays", columns, stays)


def _installs(facts: Facts, ends: dict[int, list[int]]) -> list[RegionInstall]:
    rows: Sequence[Record] = facts.engine.rows(
        "SELECT m, r, n, at_ns, u, w, vw, members FROM {few_whole} WHERE is_regional = 1 AND kind = 'view' "
        f"AND u <> '{REGIONS}' AND vw IS NOT NULL ORDER BY m, n"
    )
    found: list[RegionInstall] = []
    for row in rows:
        over = ends.get(row["m"], [])
        stay = sum(1 for end in over if end < row["n"])
        found.append(
            RegionInstall(
                *(row["m"], row["r"], row["n"], row["at_ns"], row["u"], row["w"], row["vw"]),
                *(tuple(row["members"] or ()), stay, stay == len(over)),
            )
        )
    return found


# Of each group the rows at which the life comes in or goes out; `join` and `view` rows while it is in say nothing.
SPANS: Final = f"""
SELECT m, grp, n, at_ns, coalesce(next_n, high) AS stop_n, stay
FROM (SELECT *, lead(n) OVER (PARTITION BY m, grp, stay ORDER BY n) AS next_n
  FROM (SELECT *, lag(is_in) OVER (PARTITION BY m, grp, stay ORDER BY n) AS was_in
    FROM (SELECT e.m, e.tgt AS grp, e.n, e.at_ns, CASE WHEN e.kind = 'leave' THEN 0 ELSE 1 END AS is_in, s.stay, s.high
      FROM {{few_whole}} e JOIN {{r_stays}} s ON e.m = s.m AND e.n > s.low AND e.n <= s.high
      WHERE e.u = '{REGIONS}' AND e.tgt <> '' AND e.kind IN ('join', 'view', 'leave')))
  WHERE is_in <> coalesce(was_in, 0))
WHERE is_in = 1
"""


def _carry_sql(engine: SqlEngine) -> str:
    return f"""
SELECT m, w, vw, pos AS block, CASE WHEN num = a THEN coalesce(prev, pos) ELSE pos END AS begun, tgt, at_ns, num, n
FROM (SELECT *, {engine.each_number("a", "b")} AS num FROM {{ev_whole}} WHERE kind = 'carry' AND b > a)
"""


def _sent_sql(engine: SqlEngine) -> str:
    return f"""
SELECT s.m AS sm, s.r, s.w, s.num, s.pos + s.num - s.a AS serial, s.svc, c.vw, c.block, c.begun, c.tgt, c.at_ns,
  t.stay, t.is_open
FROM (SELECT *, {engine.each_number("a", "b")} AS num FROM {{ev_whole}}
    WHERE is_regional = 1 AND kind = 'submit' AND b > a) s
LEFT JOIN {{r_carry}} c ON s.m = c.m AND s.w = c.w AND s.num = c.num
JOIN {{r_stays}} t ON s.m = t.m AND coalesce(c.n, s.n) > t.low AND coalesce(c.n, s.n) <= t.high
"""


def _got_sql(engine: SqlEngine) -> str:
    return f"""
SELECT e.m, e.r, e.u, e.w, e.n, e.at_ns, e.vw, e.svc, e.num, e.sender, l.m AS sm
FROM (SELECT *, {engine.each_number("a", "b")} AS num FROM {{ev_whole}}
    WHERE is_regional = 1 AND kind = 'deliver' AND b > a) e
LEFT JOIN {{r_lives}} l ON e.r = l.r AND e.sender = l.name
"""


def _took_sql(engine: SqlEngine) -> str:
    """`fault`: 1 not submitted, 2 not carried, 3 twice, 4 early, 5 to groups that it is not in; the first that holds.
    `is_weak` blames a delivery, and does not reject it."""
    return f"""
SELECT g.m, g.r, g.u, g.w, g.n, g.at_ns, g.vw AS at_vw, g.num, g.sender, g.sm, x.serial, x.svc, x.vw, x.block, x.begun,
  x.tgt, x.stay AS sender_stay, t.stay,
  CASE WHEN x.sm IS NULL THEN 1 WHEN x.vw IS NULL THEN 2
    WHEN row_number() OVER (PARTITION BY g.m, g.w, g.sm, g.num ORDER BY g.n) > 1 THEN 3
    WHEN x.at_ns > g.at_ns AND (l.is_comparable = 1 OR g.m = g.sm) THEN 4
    WHEN i.m IS NULL THEN 5 ELSE 0 END AS fault,
  CASE WHEN g.svc < x.svc THEN 1 ELSE 0 END AS is_weak
FROM {{r_got}} g JOIN {{r_lives}} l ON g.m = l.m
JOIN {{r_stays}} t ON g.m = t.m AND g.n > t.low AND g.n <= t.high
LEFT JOIN {{r_sent}} x ON g.sm = x.sm AND g.w = x.w AND g.num = x.num
LEFT JOIN (SELECT DISTINCT o.m, o.n, o.tgt FROM (
    SELECT m, n, tgt, {engine.each_name("tgt")} AS grp FROM (
      SELECT DISTINCT g.m, g.n, x.tgt FROM {{r_got}} g JOIN {{r_sent}} x ON g.sm = x.sm AND g.w = x.w AND g.num = x.num
      WHERE x.vw IS NOT NULL)) o
  JOIN {{r_spans}} p ON o.m = p.m AND o.grp = p.grp AND o.n >= p.n AND o.n < p.stop_n) i
  ON g.m = i.m AND g.n = i.n AND x.tgt = i.tgt
"""


# `top`: the greatest number of the lane that was delivered before. `is_fallen`: out of order by its number.
PIECE: Final = f"""
SELECT *, CASE WHEN svc >= {FIFO} AND num < top THEN 1 ELSE 0 END AS is_fallen FROM (
  SELECT *, max(CASE WHEN svc >= {FIFO} THEN num END) OVER (
    PARTITION BY m, w, sm ORDER BY n, num ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top
  FROM {{r_took}} WHERE fault = 0)
"""


def _lost_sql(engine: SqlEngine) -> str:
    return f"""
SELECT e.m, e.r, e.w, e.vw, e.n, e.num AS block, l.m AS sm
FROM (SELECT *, {engine.each_number("a", "b")} AS num FROM {{ev_whole}} WHERE kind = 'lost' AND b > a) e
JOIN {{r_lives}} l ON e.r = l.r AND e.sender = l.name
"""


# Most messages that are owed were delivered, so that is asked first, and groups are looked at for the rest.
MISS: Final = f"""
SELECT c.m, c.r, c.w, c.sm, c.num, c.vw, c.svc, c.serial, c.sender_stay, c.is_sender_there, c.stay, c.is_open,
  max(p.stop_n) AS until, max(CASE WHEN b.sm IS NULL THEN 0 ELSE 1 END) AS is_member
FROM (SELECT i.m, x.r, x.w, x.sm, x.num, x.vw, x.svc, x.serial, x.stay AS sender_stay, x.is_open AS is_sender_there,
    i.stay, i.is_open, i.n, i.at_ns, x.at_ns AS sent_ns, x.tgt, x.block, x.begun
  FROM {{r_sent}} x JOIN {{r_inst}} i ON x.w = i.w AND x.vw = i.vw
  LEFT JOIN (SELECT DISTINCT {LANE} FROM {{r_took}} WHERE sm IS NOT NULL AND fault <> 2) g
    ON i.m = g.m AND x.w = g.w AND x.sm = g.sm AND x.num = g.num
  WHERE x.svc >= {RELIABLE} AND g.m IS NULL) c
JOIN {{r_lives}} l ON c.m = l.m
JOIN {{r_group}} y ON c.w = y.w AND c.sm = y.sm AND c.num = y.num
JOIN {{r_spans}} p ON c.m = p.m AND y.grp = p.grp AND p.stop_n > c.n AND p.stay = c.stay
  AND (p.at_ns <= c.at_ns OR (l.is_comparable = 1 AND p.at_ns <= c.sent_ns))
LEFT JOIN {{r_members}} b ON c.w = b.w AND c.vw = b.vw AND c.sm = b.sm
LEFT JOIN {{r_lost}} o ON c.m = o.m AND c.w = o.w AND c.vw = o.vw AND c.sm = o.sm AND o.block >= c.begun
  AND o.block <= c.block
WHERE o.m IS NULL
GROUP BY c.m, c.r, c.w, c.sm, c.num, c.vw, c.svc, c.serial, c.sender_stay, c.is_sender_there, c.stay, c.is_open
"""
