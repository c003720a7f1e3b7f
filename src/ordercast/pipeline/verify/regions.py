"""Regions: the properties `region_views`, `group_fifo` and `regional`; integrity, fifo and liveness of lanes.

`sim/checkers/` reads the same sentences by code of its own: `lanes.py`, `region_views.py`, `group_fifo.py` and
`regional.py` say how. The tables are those of `region_facts.py`; what comes to the driver is violations, views and
losses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import FIFO, RELIABLE, Facts
from ordercast.pipeline.verify.findings import ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import FOREVER
from ordercast.pipeline.verify.region_facts import RegionFacts, RegionInstall
from ordercast.trace.naming import REGIONS

LIMIT: Final = 100_000  # messages of violations of one kind that are looked at

FAULTS: Final = {
    1: "delivered it, and nobody submitted it",
    2: "delivered it, and no block of its sender carried it",
    3: "delivered it again",
    4: "delivered it before it was carried",
    5: "delivered it, though it was in none of its groups",
}


class RegionJudge:
    """The checks, in the order in which faults cause one another; `facts` and `findings` are those of all checks."""

    __slots__ = ("absent", "facts", "findings", "pieces", "regions", "skipped")

    def __init__(self, facts: Facts, findings: Findings, regions: RegionFacts) -> None:
        self.facts = facts
        self.findings = findings
        self.regions = regions
        self.pieces = 0
        self.absent: list[Record] = []  # messages that are owed to a life and missing, until a check explains them
        self.skipped: set[tuple[int, int, int]] = set()  # (life, sender, serial)

    def integrity(self) -> None:
        """Nothing is delivered that no lane brought, nothing twice, nothing to groups that the life is not in."""
        row = self.facts.engine.rows(
            "SELECT count(*) AS c, coalesce(sum(CASE WHEN fault = 0 THEN 1 ELSE 0 END), 0) AS good, "
            "coalesce(sum(is_weak), 0) AS weak FROM {r_took}"
        )[0]
        self.findings.checked["integrity"] += row["c"]
        self.pieces = row["good"]
        if row["c"] > row["good"]:
            bad = "SELECT m, n, u, w, at_vw AS vw, sender, num, fault FROM {r_took} WHERE fault > 0"
            for one in self._rows(bad, "fault"):
                self._report("integrity", one, FAULTS[one["fault"]])
        if row["weak"]:
            weak = "SELECT m, n, u, w, at_vw AS vw, sender, num FROM {r_took} WHERE is_weak = 1 AND fault IN (0, 5)"
            for one in self._rows(weak):
                self._report("integrity", one, "delivered it under a weaker service than its submit asked for")

    def views(self) -> None:
        """Views of regions are agreed and immutable, and of one region at a time."""
        known: dict[tuple[int, str], RegionInstall] = {}
        last: dict[tuple[int, int], int] = {}
        for one in self.regions.installs:
            self.findings.checked["region_views"] += 1
            first = known.setdefault((one.w, one.view), one)
            name = self.facts.members[one.m].name
            epoch = _epoch_of(one.view)
            before = last.get((one.m, one.stay), -1)
            if name not in one.members:
                self._report_view(
                    one.m, one.n, one.view, f"installed view {one.view} of {one.u}, which does not name it"
                )
            elif one.members != first.members:
                other = self.facts.members[first.m].name
                self._report_view(
                    one.m, one.n, one.view, f"has other members in view {one.view} of {one.u} than {other}"
                )
            elif epoch <= before:
                self._report_view(one.m, one.n, one.view, f"installed view {one.view} of {one.u} after epoch {before}")
            else:
                last[one.m, one.stay] = epoch
        self._tiling(known.values())
        self._group_views()
        self.findings.checked["region_views"] += self.pieces
        for row in self._rows(_OUTSIDE):
            self._report("region_views", row, f"names it in view {row['vw']} of {row['u']}, which it had not installed")

    def _tiling(self, views: Iterable[RegionInstall]) -> None:
        places: dict[tuple[int, str, str], str] = {}
        for one in sorted(views, key=lambda one: (one.r, one.u, one.view)):
            for member in one.members:
                other = places.setdefault((one.r, one.view, member), one.u)
                if other != one.u:
                    self.findings.add(
                        ViolationRow(
                            *(self.facts.runs[one.r].name, "region_views", ROOT, None, one.view, member, None, None),
                            *(None, f"view {one.view} puts {member} into {other} and {one.u}", None),
                        )
                    )

    def _group_views(self) -> None:
        rows = self.facts.engine.rows(
            f"SELECT m, r, n, tgt, vw, members FROM {{few_whole}} WHERE u = '{REGIONS}' AND kind = 'view' "
            "AND tgt <> '' ORDER BY m, n"
        )
        known: dict[tuple[int, str, str], tuple[frozenset[str], int]] = {}
        for row in rows:
            self.findings.checked["region_views"] += 1
            members = frozenset(row["members"] or ())
            first, holder = known.setdefault((row["r"], row["tgt"], row["vw"]), (members, row["m"]))
            if self.facts.members[row["m"]].name not in members:
                self._report_view(row["m"], row["n"], row["vw"], "was shown a group's view that does not name it")
            elif members != first:
                other = self.facts.members[holder].name
                self._report_view(
                    row["m"], row["n"], row["vw"], f"was shown other members of {row['tgt']} than {other}"
                )

    def fifo(self) -> None:
        """Numbers of a lane rise, without holes, over all views of the region."""
        engine = self.facts.engine
        self.findings.checked["fifo"] += self.pieces
        for row in self._rows("SELECT m, n, u, w, at_vw AS vw, sender, num FROM {r_piece} WHERE is_fallen = 1"):
            self._report("fifo", row, "delivered it after a later one of its sender")
        engine.define("r_absent", _ABSENT, keep=True)
        self.absent = engine.rows(f"SELECT * FROM {{r_absent}} LIMIT {LIMIT}")
        holes = [row for row in self.absent if row["n"] is not None]
        self.absent = [row for row in self.absent if row["n"] is None]
        for row in self._ranges(holes):
            self._report("fifo", row, "delivered a later one of its sender without it")

    def group_fifo(self) -> None:
        """Serials rise per sender and group, without holes, across regions."""
        engine = self.facts.engine
        self.findings.checked["group_fifo"] += self.pieces
        engine.define("r_order", _group_pieces(engine.each_name("tgt")), keep=True)
        for row in self._rows(_FALLEN_SERIALS):
            self._report("group_fifo", row, f"delivered it by {self._region(row['w'])} after a later one to its group")
        engine.define("r_bounds", _BOUNDS)
        skipped = engine.rows(f"SELECT * FROM ({_SKIPPED}) LIMIT {LIMIT}")
        self.skipped = {(row["m"], row["sm"], row["num"]) for row in skipped}
        for row in self._ranges(skipped):
            self._report("group_fifo", row, "delivered earlier and later ones to the same group, and never this one")

    def regional(self) -> None:
        """Survivors deliver alike; what is lost may be lost."""
        self.findings.checked["regional"] += self.pieces
        for row in self._rows(_OTHER_VIEW):
            text = f"delivered it in view {row['vw']}, and its sender carried it in {row['sent_vw']}"
            self._report("regional", row, text)
        self._losses()
        missing = [
            row
            for row in self.absent
            if row["is_open"] and row["until"] == FOREVER and self.facts.quiet[row["r"]]
            if (row["m"], row["sm"], row["serial"]) not in self.skipped
        ]
        alike = [row for row in missing if row["is_had"] or (row["is_member"] and row["is_sender_there"])]
        for row in self._ranges(alike):
            self._report("regional", row, "neither delivered it nor was told that it is lost, and is there to the end")
        self.absent = [row for row in missing if not row["is_had"] and not row["is_member"] and row["is_sender_there"]]

    def liveness(self) -> None:
        """What senders outside sent has arrived, and what lanes took has left."""
        self.findings.checked["liveness"] += self.pieces
        for row in self._ranges(self.absent):
            self._report("liveness", row, "never delivered it, though the sender has a lane to its view")
        for row in self._rows(_NOT_CARRIED):
            self._report("liveness", row, "submitted it, and no block carried it")

    def _losses(self) -> None:
        engine = self.facts.engine
        losses = engine.rows(
            "SELECT e.m, e.r, e.n, e.u, e.w, e.vw, e.sender, e.a, e.b FROM {few_whole} e JOIN {r_stays} t "
            "ON e.m = t.m AND e.n > t.low AND e.n <= t.high JOIN {r_inst} i ON e.m = i.m AND e.w = i.w AND e.vw = i.vw "
            "AND i.n < e.n AND i.stay = t.stay WHERE e.kind = 'lost' ORDER BY e.m, e.n"
        )
        if not losses:
            return
        self.findings.checked["regional"] += len(losses)
        for row in self._rows(_BOTH):
            self._report("regional", row, "delivered it, and was told that it is lost")
        lanes = {
            (row["w"], row["vw"], row["m"]): row["last"]
            for row in engine.rows(
                "SELECT m, w, vw, coalesce(max(pos), 0) AS last FROM {ev_whole} WHERE kind = 'carry' GROUP BY m, w, vw"
            )
        }
        gone = {
            (row["w"], row["vw"], row["sm"]): row["is_there"] == 0
            for row in engine.rows(
                "SELECT sm, w, vw, min(is_open) AS is_there FROM {r_sent} WHERE vw IS NOT NULL GROUP BY sm, w, vw"
            )
        }
        confirmed = {
            (row["w"], row["vw"], row["sm"], row["block"])
            for row in engine.rows(
                "SELECT DISTINCT x.w, x.vw, x.sm, x.block FROM {r_sent} x JOIN {few_whole} c ON x.sm = c.m "
                "AND x.w = c.w AND c.kind = 'confirm' AND x.num >= c.a AND x.num < c.b"
            )
        }
        ended = self._ended()
        for row in losses:
            sender = self.regions.names.get((row["r"], row["sender"]))
            lane = row["w"], row["vw"], sender
            has_lost = ended.get((row["w"], row["vw"]), True)
            if row["b"] - 1 > lanes.get(lane, 0):
                text = f"was told of a loss of blocks {row['a']} to {row['b'] - 1} of {row['sender']}, which sent fewer"
            elif not has_lost and not gone.get(lane, True):
                text = f"was told of a loss of blocks of {row['sender']}, though it and all members are still there"
            elif not has_lost and any((*lane, block) in confirmed for block in range(row["a"], row["b"])):
                text = (
                    f"was told of a loss of confirmed messages of {row['sender']}, though all members are still there"
                )
            else:
                continue
            self._report_view(row["m"], row["n"], row["vw"], text, "regional")

    def _ended(self) -> dict[tuple[int, str], bool]:
        """By view: whether a member has gone, or never came in."""
        there = {(one.w, one.view, one.m) for one in self.regions.installs if one.is_open}
        found: dict[tuple[int, str], bool] = {}
        for one in self.regions.installs:
            if (one.w, one.view) not in found:
                lives = [self.regions.names.get((one.r, member)) for member in one.members]
                found[one.w, one.view] = any((one.w, one.view, life) not in there for life in lives)
        return found

    def _rows(self, sql: str, *more: str) -> list[Record]:
        """Messages of violations as ranges `[a, b)`: those of one life and sender that follow one another."""
        return self._ranges(self.facts.engine.rows(f"SELECT * FROM ({sql}) LIMIT {LIMIT}"), *more)

    def _ranges(self, rows: list[Record], *more: str) -> list[Record]:
        for row in rows:
            row.setdefault("sender", self.facts.members[row["sm"]].name if row.get("sm") is not None else "?")
            row.setdefault("u", self._region(row["w"]))
            row.setdefault("vw", None)
            row["lane"] = row["m"], row["u"], row["sender"], *(row[name] for name in more)
        rows.sort(key=lambda row: (*row["lane"], row["num"]))
        found: list[Record] = []
        for row in rows:
            if found and found[-1]["lane"] == row["lane"] and found[-1]["b"] == row["num"]:
                found[-1]["b"] += 1
            else:
                found.append({**row, "a": row["num"], "b": row["num"] + 1})
        return found

    def _region(self, w: int) -> str:
        return self.regions.regions.get(w, "?")

    def _report(self, name: str, row: Record, text: str) -> None:
        member = self.facts.members[row["m"]]
        message = span_text(row["sender"], (row["a"], row["b"]))
        n = row["n"] if row["n"] is not None else self._last_n(row["m"])
        self.findings.add(
            ViolationRow(
                *(self.facts.run_of(member.m), name, ROOT, None, row["vw"], member.name, message, row["sender"], None),
                *(f"{member.name} {text}", n),
            )
        )

    def _report_view(self, m: int, n: int, view: str | None, text: str, name: str = "region_views") -> None:
        member = self.facts.members[m]
        self.findings.add(
            ViolationRow(
                *(self.facts.run_of(m), name, ROOT, None, view, member.name, None, None, None),
                *(f"{member.name} {text}", n),
            )
        )

    def _last_n(self, m: int) -> int:
        """Where to look for what is not there: the end."""
        return self.facts.members[m].rows - 1


def check(facts: Facts, findings: Findings, regions: RegionFacts) -> None:
    """Judge all of it."""
    judge = RegionJudge(facts, findings, regions)
    judge.integrity()
    judge.views()
    judge.fifo()
    judge.group_fifo()
    judge.regional()
    judge.liveness()


def _epoch_of(view: str) -> int:
    number = view.partition("@")[0]
    return int(number) if number.isdigit() else -1


# Deliveries and losses in views that the life had not installed in that stay.
_OUTSIDE: Final = """
SELECT e.m, e.n, e.u, e.w, e.vw, e.sender, e.a AS num
FROM {ev_whole} e JOIN {r_stays} t ON e.m = t.m AND e.n > t.low AND e.n <= t.high
LEFT JOIN {r_inst} i ON e.m = i.m AND e.w = i.w AND e.vw = i.vw AND i.n < e.n AND i.stay = t.stay
WHERE e.is_regional = 1 AND e.kind IN ('deliver', 'lost') AND i.m IS NULL
"""

# `n`: where a later number of the lane was delivered while this one was owed. `is_had`: a survivor delivered it.
_ABSENT: Final = f"""
SELECT h.*, p.n, CASE WHEN g.sm IS NULL THEN 0 ELSE 1 END AS is_had FROM {{r_miss}} h
LEFT JOIN (SELECT h.m, h.w, h.sm, h.num, min(p.n) AS n FROM {{r_miss}} h
    JOIN {{r_piece}} p ON h.m = p.m AND h.w = p.w AND h.sm = p.sm AND p.num > h.num AND p.n < h.until
      AND p.sender_stay = h.sender_stay AND p.stay = h.stay
    WHERE h.svc >= {FIFO} AND p.svc >= {FIFO} GROUP BY h.m, h.w, h.sm, h.num) p
  ON h.m = p.m AND h.w = p.w AND h.sm = p.sm AND h.num = p.num
LEFT JOIN (SELECT DISTINCT p.w, p.sm, p.num FROM {{r_piece}} p
    JOIN {{r_inst}} i ON p.m = i.m AND p.w = i.w AND p.vw = i.vw AND i.is_open = 1) g
  ON h.w = g.w AND h.sm = g.sm AND h.num = g.num
"""


def _group_pieces(each_name: str) -> str:
    return f"""
SELECT m, n, u, w, vw, at_vw, sender, sm, num, serial, sender_stay, is_fallen, {each_name} AS grp FROM {{r_piece}}
WHERE svc >= {FIFO} AND serial IS NOT NULL
"""


_FALLEN_SERIALS: Final = """
SELECT DISTINCT m, n, u, w, at_vw AS vw, sender, num FROM (
  SELECT *, max(serial) OVER (
    PARTITION BY m, sm, grp ORDER BY n, num ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top
  FROM {r_order} WHERE is_fallen = 0)
WHERE serial <= top
"""

# Of each time in a group, sender and stay of the sender: the first serial of all that came, and the last of this stay.
# A message counts where the life was in the group when it first installed the view that carried the message.
_BOUNDS: Final = """
SELECT *, min(own_low) OVER (PARTITION BY m, sm, grp, span_n) AS low FROM (
  SELECT o.m, o.sm, o.grp, p.n AS span_n, o.sender_stay, min(o.serial) AS own_low, max(o.serial) AS top, max(o.n) AS n
  FROM {r_order} o JOIN (SELECT m, w, vw, min(n) AS n FROM {r_inst} GROUP BY m, w, vw) i
    ON o.m = i.m AND o.w = i.w AND o.vw = i.vw
  JOIN {r_spans} p ON o.m = p.m AND o.grp = p.grp AND i.n >= p.n AND o.n < p.stop_n
  GROUP BY o.m, o.sm, o.grp, p.n, o.sender_stay)
"""

_SKIPPED: Final = f"""
SELECT b.m, min(b.n) AS n, min(x.w) AS w, x.sm, x.serial AS num FROM {{r_bounds}} b
JOIN {{r_group}} x ON b.sm = x.sm AND b.grp = x.grp AND b.sender_stay = x.stay AND x.serial > b.low AND x.serial < b.top
LEFT JOIN (SELECT DISTINCT m, sm, serial FROM {{r_took}} WHERE serial IS NOT NULL AND fault <> 2) g
  ON b.m = g.m AND x.sm = g.sm AND x.serial = g.serial
LEFT JOIN (SELECT DISTINCT m, sm, serial FROM {{r_absent}} WHERE n IS NOT NULL) h
  ON b.m = h.m AND x.sm = h.sm AND x.serial = h.serial
LEFT JOIN (SELECT DISTINCT o.m, o.sm, y.serial FROM {{r_lost}} o JOIN {{r_sent}} y
    ON o.w = y.w AND o.vw = y.vw AND o.sm = y.sm AND o.block >= y.begun AND o.block <= y.block) l
  ON b.m = l.m AND x.sm = l.sm AND x.serial = l.serial
WHERE x.svc >= {FIFO} AND g.m IS NULL AND h.m IS NULL AND l.m IS NULL GROUP BY b.m, x.sm, x.serial
"""

_OTHER_VIEW: Final = """
SELECT p.m, p.n, p.u, p.w, p.at_vw AS vw, p.vw AS sent_vw, p.sender, p.num FROM {r_piece} p
JOIN {r_inst} i ON p.m = i.m AND p.w = i.w AND p.at_vw = i.vw AND i.n < p.n AND i.stay = p.stay
WHERE p.at_vw <> p.vw
"""

_BOTH: Final = """
SELECT DISTINCT p.m, p.n, p.u, p.w, p.vw, p.sender, p.num FROM {r_piece} p
JOIN {r_lost} o ON p.m = o.m AND p.w = o.w AND p.vw = o.vw AND p.sm = o.sm AND o.block >= p.begun AND o.block <= p.block
"""

_NOT_CARRIED: Final = f"""
SELECT x.sm AS m, NULL AS n, x.w, NULL AS vw, x.sm, x.num FROM {{r_sent}} x JOIN {{r_lives}} l ON x.sm = l.m
WHERE x.vw IS NULL AND x.is_open = 1 AND l.is_quiet = 1 AND x.svc >= {RELIABLE}
"""
