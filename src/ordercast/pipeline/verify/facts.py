"""The tables that the checks share, made in a few scans.

- `ev_whole`, `few_whole`: all rows; `ev` and `few` are without those of regions (`region_facts.py`).
- `few`: all rows but submits and those of single messages at each member. What they say of lives and views is read
  on the driver (`history.py`).
- `sub`: what was submitted, one row for each `submit`, with the sender's number `sid` (sender life in an underlay).
- `dlv`: what was delivered, with `sid` (null if no life submitted it) and its class: 0 UNRELIABLE, 1 RELIABLE, 2 FIFO
  and CAUSAL, 3 with a position. For evidence: it has names.
- `num`: the same for the scans of everything, with digests `v` and `t` of view and target instead of their names: to
  group, to join and to shuffle text costs several times what numbers do.
- *cells*: what one life delivered of one sender to one target in one view, of one class, as count, sums and a digest:
  one scan, no shuffle of rows. Small: lives x views x senders x groups.
- `rep`: cells with the same digest have the same content, so one of them stands for all. Everything that is about
  content (which life delivered what, and its positions) is judged on those rows alone: exactly, mostly on a small part.
- `seen`: of each delivered range the earliest delivery, and that at the sender: the only shuffle of all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ordercast.errors import UsageError
from ordercast.pipeline.reading import TraceRun
from ordercast.pipeline.verify.engine import ORDINARY, Record, SqlEngine
from ordercast.pipeline.verify.history import BETWEEN, FOREVER, Life, Line, Rules, read_history
from ordercast.pipeline.verify.names import DigestNames, sender_digest, target_digest, view_digest
from ordercast.trace.schema import CONTINUE, KINDS

UNRELIABLE, RELIABLE, FIFO, CAUSAL, AGREED, RESILIENT, MAJORITY, SAFE = range(0, 2048, 256)  # as `svc`
SENT_SUBMITS: Final = 1_500_000  # up to which the submits are sent to every worker (some 100 MB there)
SMALL_ROWS: Final = 200_000  # delivered in an underlay, up to which its rows are looked at here
KEPT_CONTENT: Final = 500_000  # rows of evidence that are held here at a time
UNORDERED_CLASS: Final = 2
ORDERED_CLASS: Final = 3

CLASS: Final = "CASE WHEN e.svc >= 1024 THEN 3 WHEN e.svc >= 512 THEN 2 WHEN e.svc >= 256 THEN 1 ELSE 0 END"


@dataclass(frozen=True, slots=True)
class TracedLife:
    """One life of one node of one run."""

    m: int
    r: int
    node: str
    life: int
    name: str
    is_gone: bool  # the node has a later life
    rows: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class TracedSender:
    """A life that submitted in an underlay; its numbers are 0, 1, … total - 1."""

    sid: int
    ru: int
    m: int
    name: str
    total: int
    last_ns: int
    strongest: int


@dataclass(frozen=True, slots=True)
class Cell:
    """What one life delivered of one sender to one target in one view, of one class."""

    id: int
    m: int
    ru: int
    view: str
    sid: int
    target: str
    cls: int
    is_doubtful: bool  # a range that no one submit covers, or that came before it
    rows: int
    messages: int
    low: int
    high: int
    first_n: int
    last_n: int
    falls: int
    low_position: int | None
    high_position: int | None
    strongest: int
    strong_rows: int  # RESILIENT and stronger
    last_ns: int
    guard: int  # the digests of all ends and of all prev_positions, which cancel but for the ends of the chain
    first_prev: int | None
    last_end: int | None
    first_digest: int
    last_digest: int
    rep: int
    view_digest: int
    target_digest: int


@dataclass(slots=True)
class Facts:
    """Everything that the checks know about the traces."""

    engine: SqlEngine
    runs: tuple[TraceRun, ...]
    quiet: tuple[bool, ...]
    rules: tuple[Rules, ...]
    names: DigestNames
    members: dict[int, TracedLife] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    senders: list[TracedSender] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    cells_of: dict[int, list[Cell]] = field(default_factory=dict)  # by life
    cells_in: dict[int, list[Cell]] = field(default_factory=dict)  # by underlay
    cells_at: dict[tuple[int, int], list[Cell]] = field(default_factory=dict)  # by life and sender
    alike: dict[int, list[int]] = field(default_factory=dict)  # rep -> lives that it stands for
    views: list[tuple[int, str]] = field(default_factory=list)  # by number: underlay and id
    has_overlaps: bool = False  # some message is in the content of two views, at two positions, or twice
    deliveries: int = 0
    submits: int = 0  # rows

    def run_of(self, m: int) -> str:
        return self.runs[self.members[m].r].name

    def clock(self, r: int) -> str:
        return self.runs[r].info.clock

    def has_components(self, r: int) -> bool:
        """Whether every part of a partition goes on, as the run says."""
        return self.runs[r].info.partitions == CONTINUE

    def line_of(self, sid: int) -> Line:
        return self.lines[self.senders[sid].ru]

    def life_of(self, ru: int, m: int) -> Life:
        return self.lines[ru].life(m, self.members[m].name)

    def sender_of(self, ru: int, name: str) -> TracedSender | None:
        return self._by_name.get((ru, name))

    def located(self, row: Record) -> Record:
        """A row of `pieces`, with what its cell says of all of them."""
        cell = self.cells[row["c"]]
        return {**row, "m": cell.m, "vw": cell.view, "tgt": cell.target}

    _by_name: dict[tuple[int, str], TracedSender] = field(default_factory=dict)

    _small: dict[int, tuple[dict[tuple[int, int], list[Record]], dict[int, list[Record]]]] = field(default_factory=dict)

    def delivered(self, m: int, sid: int) -> list[Record]:
        """What a life delivered of a sender, in the order of its events."""
        small = self.small_line(self.senders[sid].ru)
        if small is not None:
            return small[0].get((m, sid), [])
        return self.engine.rows(f"{_DELIVERED.format(source=self.of_lives({m}))} WHERE sid = {sid} ORDER BY n")

    def of_lives(self, lives: Collection[int]) -> str:
        """The name, in braces, of what these lives delivered: only their files are read."""
        self.engine.only("ev_some", lives)
        self.engine.define("dlv_some", DLV.replace("{ev}", "{ev_some}"))
        return "{dlv_some}"

    def define_numbers(self, name: str, lives: Collection[int]) -> None:
        """Name what these lives delivered, in numbers alone: only their files are read."""
        self.engine.only(f"{name}_events", lives)
        self.engine.define(name, _numbers_sql(self.engine, f"{name}_events"))

    def content(self, cells: Iterable[Cell]) -> dict[int, list[Record]]:
        """By representative: the messages of these cells, with the life, events and positions of the representative.
        They are kept, so that no file is read."""
        wanted = {cell.rep for cell in cells if cell.sid >= 0}
        missing = sorted(wanted - self._content.keys())
        if missing:
            if sum(map(len, self._content.values())) > KEPT_CONTENT:
                self._content.clear()
                missing = sorted(wanted)
            self._content.update({rep: [] for rep in missing})
            self.engine.load("wanted", [("c", "int")], [(rep,) for rep in missing])
            for row in self.engine.rows(
                "SELECT p.c, p.n, p.a, p.b, p.pos, p.svc FROM {pieces} p JOIN {wanted} w ON p.c = w.c ORDER BY p.c, p.n"
            ):
                self._content[row["c"]].append(self.located(row))
        return {rep: self._content[rep] for rep in wanted}

    def is_rejected(self, row: Record, tainted: Collection[tuple[int, int]]) -> bool:
        """Whether a row of content is there only because of a delivery that property 1 rejected."""
        return (row["m"], row["n"]) in tainted and len(self.alike[row["c"]]) == 1

    def ranges_of(self, m: int, sid: int) -> list[Record]:
        """What a life delivered of a sender, as content: each with the view and class of its cell, and the first event
        of that at this life."""
        if self.line_of(sid).lightweight and self.small_line(self.senders[sid].ru) is not None:
            return self.delivered(m, sid)
        cells = self.cells_at.get((m, sid), ())
        content = self.content(cells)
        return [
            {**row, "m": m, "vw": cell.view, "n": cell.first_n, "cls": cell.cls}
            for cell in cells
            for row in content[cell.rep]
        ]

    _content: dict[int, list[Record]] = field(default_factory=dict)

    def submitted(self, sid: int, low: int = 0, high: int = FOREVER) -> list[Record]:
        """The submits of a sender that touch `[low, high)`, in order."""
        small = self.small_line(self.senders[sid].ru)
        if small is not None:
            return [row for row in small[1].get(sid, []) if row["a"] < high and row["b"] > low]
        return self._targeted(f"{_SUBMITTED} WHERE sid = {sid} AND a < {high} AND b > {low} ORDER BY a")

    def _targeted(self, sql: str) -> list[Record]:
        """Rows of submits, with the names of targets."""
        rows = self.engine.rows(sql)
        self.names.find_targets({row["t"] for row in rows})
        return [{**row, "tgt": self.names.targets[row["t"]]} for row in rows]

    def small_line(self, ru: int) -> tuple[dict[tuple[int, int], list[Record]], dict[int, list[Record]]] | None:
        """All of a small underlay at once: a question at a time would cost more than the whole. Of shared underlays
        nearly all is asked for, so small ones are read together."""
        if ru in self._small:
            return self._small[ru]
        batch, rows = [ru], self._rows_in(ru)
        if rows > SMALL_ROWS:
            return None
        for line in self.lines if self.lines[ru].lightweight else ():
            more = self._rows_in(line.ru)
            if line.lightweight and line.ru not in self._small and line.ru != ru and rows + more <= SMALL_ROWS:
                batch.append(line.ru)
                rows += more
        self._small.update({one: ({}, {}) for one in batch})
        sids = [one.sid for one in self.senders if one.ru in batch]
        if sids:
            self.engine.load("few_senders", [("sid", "int")], [(sid,) for sid in sids])
            for row in self.engine.rows(f"{_DELIVERED.format(source='{dlv}')} {_AMONG_FEW} ORDER BY m, n"):
                small = self._small[self.senders[row["sid"]].ru]
                small[0].setdefault((row["m"], row["sid"]), []).append(row)
            for row in self._targeted(f"{_SUBMITTED} {_AMONG_FEW} ORDER BY sid, a"):
                self._small[self.senders[row["sid"]].ru][1].setdefault(row["sid"], []).append(row)
        return self._small[ru]

    def _rows_in(self, ru: int) -> int:
        return sum(cell.rows for cell in self.cells_in.get(ru, ()))


_AMONG_FEW: Final = "WHERE sid IN (SELECT sid FROM {few_senders})"
_DELIVERED: Final = "SELECT m, n, at_ns, sid, a, b, vw, tgt, svc, cls, pos FROM {source}"
_SUBMITTED: Final = "SELECT sid, a, b, n, at_ns, svc, t FROM {sub}"


def gather(engine: SqlEngine, runs: Sequence[TraceRun], quiet: Sequence[bool], rules: Sequence[Rules]) -> Facts:
    """Make the tables; `UsageError` if the rows are not those of a trace."""
    parts = [part for run in runs for part in run.parts]
    engine.load("lives", [("m", "int"), ("name", "string")], [(m, part.name) for m, part in enumerate(parts)])
    engine.define("few_whole", FEW, keep=True)
    engine.define("few", ORDINARY.format(source="{few_whole}"))
    engine.define("submits", _submits_sql(engine), keep=True)
    submitted = engine.begin(SUBMITTED)
    members = _read_lives(engine, runs)
    control = engine.rows(CONTROL)
    facts = Facts(engine, tuple(runs), tuple(quiet), tuple(rules), DigestNames(engine, control), members)
    lines: dict[tuple[int, str], Line] = {}
    read_history(control, facts.members, lines)
    _read_senders(facts, lines, submitted())
    _read_cells(facts, lines)
    facts.lines = sorted(lines.values(), key=lambda line: line.ru)
    _choose_reps(facts)
    return facts


FEW: Final = """
SELECT m, r, n, at_ns, kind, u, w, tgt, vw, members, came_with, sender, a, b, detail, is_regional FROM {ev_whole}
WHERE kind NOT IN ('submit', 'deliver', 'hold', 'placed', 'carry', 'tx', 'rx')
"""

CONTROL: Final = """
SELECT m, r, n, at_ns, kind, u, tgt AS grp, vw, members, came_with, detail FROM {few}
WHERE kind IN ('start', 'stop', 'crash', 'view', 'transitional', 'join', 'leave') ORDER BY m, n
"""

LIVES: Final = """
SELECT m, kind, count(*) AS c, min(n) AS low, max(n) AS high, sum(n) AS total, max(at_ns) AS last_ns FROM {source}
GROUP BY m, kind
"""

SUBMITTED: Final = """
SELECT m, w, min(a) AS low, max(b) AS high, sum(b - a) AS total, max(at_ns) AS last_ns, max(svc) AS svc1,
  count(*) AS submits, max(bad_n) AS bad_n, max(foreign_n) AS foreign_n FROM {submits} GROUP BY m, w
"""


def _submits_sql(engine: SqlEngine) -> str:
    """`g` numbers what a sender submitted to one target among what has a position, or else is FIFO or CAUSAL: without
    holes, where `a` has some because the sender speaks to others, too."""
    return f"""
SELECT m, w, n, at_ns, a, b, svc, t, v, bad_n, foreign_n,
  sum(b - a) OVER (PARTITION BY m, w, t, cls ORDER BY a) - (b - a) AS g
FROM (SELECT e.m, e.n, e.at_ns, e.a, e.b, e.svc, {CLASS} AS cls, e.w, {target_digest(engine, "e.")} AS t,
    CASE WHEN e.vw IS NOT NULL THEN {view_digest(engine, "e.")} END AS v,
    CASE WHEN e.a IS NULL OR e.b IS NULL OR e.b <= e.a OR e.svc IS NULL THEN e.n END AS bad_n,
    CASE WHEN e.sender <> l.name THEN e.n END AS foreign_n
  FROM {{ev}} e JOIN {{lives}} l ON e.m = l.m WHERE e.kind = 'submit')
"""


# `k` is one number for each message: quicker to look up than two, and dense, so that Spark looks it up by index.
SUB: Final = """
SELECT s.sid, s.base + e.a AS k, e.m, e.n, e.at_ns, e.a, e.b, e.svc, e.t, e.v, e.g
FROM {submits} e JOIN {snd_keys} s ON e.m = s.m AND e.w = s.w
"""
SUB_KEYS: Final = "SELECT k, b AS sub_b, n AS sub_n, at_ns AS sub_ns FROM {sub}"
DLV: Final = f"""
SELECT e.m, e.r, e.u, e.n, e.at_ns, e.vw, e.tgt, e.a, e.b, e.svc, e.pos, e.prev, e.sender, s.sid,
  CASE WHEN e.m = s.m THEN e.n END AS own_n, {CLASS} AS cls
FROM {{ev}} e LEFT JOIN {{snd}} s ON e.r = s.r AND e.u = s.u AND e.sender = s.name AND e.b <= s.total
WHERE e.kind = 'deliver'
"""


def _numbers_sql(engine: SqlEngine, source: str) -> str:
    """What was delivered, in numbers alone; `source` has the events."""
    return f"""
SELECT e.m, e.n, e.at_ns, s.sid, s.base + e.a AS key, CASE WHEN e.m = s.m THEN e.n END AS own_n, e.a, e.b, e.svc,
  {CLASS} AS cls, {view_digest(engine, "e.")} AS v, {target_digest(engine, "e.")} AS t, e.pos, e.prev,
  CASE WHEN e.a IS NULL OR e.b IS NULL OR e.a < 0 OR e.b <= e.a OR e.svc IS NULL OR e.vw IS NULL OR e.sender IS NULL
    OR (e.svc >= 1024 AND (e.pos IS NULL OR e.prev IS NULL)) THEN e.n END AS bad_n
FROM {{{source}}} e LEFT JOIN {{snd_keys}} s ON {sender_digest(engine, "e.")} = s.k AND e.b <= s.total
WHERE e.kind = 'deliver'
"""


def _cells_sql(engine: SqlEngine, is_joined: bool) -> str:
    row = engine.digest("a", "b", "svc", "pos")
    prev, end = engine.digest("prev"), engine.digest("pos + b - a - 1")
    # A range that begins with a submit, and does not go beyond it, is compared with it in passing.
    is_doubtful = "k IS NULL OR b > sub_b OR (own_n IS NULL AND at_ns < sub_ns) OR own_n < sub_n"
    joined = "LEFT JOIN {sub_keys} s ON key = s.k" if is_joined else ""
    hint = "/*+ BROADCAST(s) */" if is_joined else ""
    doubt = f"max(CASE WHEN sid IS NOT NULL AND ({is_doubtful}) THEN 1 ELSE 0 END)" if is_joined else "1"
    return f"""
SELECT {hint} m, v, sid, t, cls, {doubt} AS doubt, count(*) AS c, sum(b - a) AS messages,
  min(a) AS low, max(b) AS high,
  min(n) AS n0, max(n) AS n1, bit_xor({row}) AS x, sum({row} & 4294967295) AS y,
  sum(CASE WHEN pos <= prev THEN 1 ELSE 0 END) AS falls, min(pos) AS p0, max(pos + b - a) AS p1,
  max(svc) AS svc1, sum(CASE WHEN svc >= 1280 THEN 1 ELSE 0 END) AS strong, max(at_ns) AS at1,
  bit_xor(CASE WHEN cls = 3 THEN {prev} ELSE 0 END) AS gp, bit_xor(CASE WHEN cls = 3 THEN {end} ELSE 0 END) AS ge,
  min_by(prev, n) AS q0, max_by(pos + b - a - 1, n) AS q1,
  {engine.digest("min_by(prev, n)")} AS h0, {engine.digest("max_by(pos + b - a - 1, n)")} AS h1, max(bad_n) AS bad_n
FROM {{num}} {joined} GROUP BY m, v, sid, t, cls
"""


def _read_lives(engine: SqlEngine, runs: Sequence[TraceRun]) -> dict[int, TracedLife]:
    found: dict[int, list[Record]] = {}
    is_certain = all(part.is_numbered for run in runs for part in run.parts)
    for row in engine.rows(LIVES.format(source="{few_whole}" if is_certain else "{ev_whole}")):
        found.setdefault(row["m"], []).append(row)
    members: dict[int, TracedLife] = {}
    for r, run in enumerate(runs):
        newest: dict[str, int] = {}
        for part in run.parts:
            newest[part.node] = max(newest.get(part.node, -1), part.life)
        for part in run.parts:
            m = len(members)
            kinds = found.get(m, [])
            last_ns = part.last_ns
            if not is_certain or last_ns is None:
                _check_numbers(part.path, kinds)
                last_ns = max((row["last_ns"] for row in kinds), default=0)
            _check_kinds(part.path, part.rows, kinds)
            is_gone = part.life < newest[part.node]
            members[m] = TracedLife(m, r, part.node, part.life, part.name, is_gone, part.rows, last_ns)
    return members


def _check_numbers(path: Any, kinds: list[Record]) -> None:
    if not kinds:
        return
    count, high = sum(row["c"] for row in kinds), max(row["high"] for row in kinds)
    total = sum(row["total"] for row in kinds)
    if min(row["low"] for row in kinds) != 0 or high != count - 1 or total != count * (count - 1) // 2:
        raise UsageError(
            f"{path}: events are missing or there twice: its {count} rows are not numbered 0 to {count - 1}"
        )


def _check_kinds(path: Any, rows: int, kinds: list[Record]) -> None:
    for row in kinds:
        if row["kind"] not in KINDS:
            raise UsageError(f"{path}: unknown kind of event {row['kind']!r}")
        if row["kind"] == "crash" and (row["c"] > 1 or row["low"] != rows - 1):
            raise UsageError(f"{path}: events follow the crash at n={row['low']}")


def _read_senders(facts: Facts, lines: dict[tuple[int, str], Line], rows: list[Record]) -> None:
    engine, names = facts.engine, facts.names
    names.find_underlays({row["w"] for row in rows})
    base = 0
    keys = []
    for row in sorted(rows, key=lambda row: (row["m"], names.underlays[row["w"]])):
        member, underlay = facts.members[row["m"]], names.underlays[row["w"]][1]
        path = facts.runs[member.r].parts[0].path.parent.parent / f"node={member.node}"
        if row["bad_n"] is not None:
            raise UsageError(f"{path}: the submit at n={row['bad_n']} has no numbers or no known service")
        if row["foreign_n"] is not None:
            raise UsageError(f"{path}: it submitted in the name of another, at n={row['foreign_n']}")
        if row["low"] != 0 or row["high"] != row["total"]:
            raise UsageError(f"{path}: the numbers of its submits in {underlay} have holes, or are given twice")
        line = lines.get((member.r, underlay))
        if line is None:
            line = lines[member.r, underlay] = Line(len(lines), member.r, underlay)
        line.life(member.m, member.name)
        sender = TracedSender(
            len(facts.senders), line.ru, member.m, member.name, row["total"], row["last_ns"], row["svc1"]
        )
        keys.append((sender.sid, member.m, member.r, underlay, member.name, line.ru, sender.total, base, row["w"]))
        base += sender.total
        facts.submits += row["submits"]
        facts.senders.append(sender)
        facts._by_name[line.ru, member.name] = sender
    columns = [("sid", "int"), ("m", "int"), ("r", "int"), ("u", "string"), ("name", "string"), ("ru", "int")]
    engine.load("snd", [*columns, ("total", "bigint"), ("base", "bigint"), ("w", "bigint")], keys)
    engine.define("snd_keys", f"SELECT sid, m, r, ru, total, base, w, {engine.digest('w', 'name')} AS k FROM {{snd}}")
    engine.define("sub", SUB)
    engine.define("dlv", DLV)
    engine.define("num", _numbers_sql(engine, "ev"))


def _read_cells(facts: Facts, lines: dict[tuple[int, str], Line]) -> None:
    reps: dict[tuple[Any, ...], int] = {}
    names = facts.names
    facts.engine.define("sub_keys", SUB_KEYS)
    rows = facts.engine.rows(_cells_sql(facts.engine, facts.submits <= SENT_SUBMITS))
    names.find_views({row["v"] for row in rows})
    names.find_targets({row["t"] for row in rows})
    for row in rows:
        _, row["u"], row["vw"] = names.views[row["v"]]
        row["tgt"] = names.targets[row["t"]]
    rows.sort(key=lambda row: (row["m"], row["u"], row["vw"] or "", row["sid"] or -1, row["tgt"], row["cls"]))
    for at, row in enumerate(rows):
        member = facts.members[row["m"]]
        if row["bad_n"] is not None:
            raise UsageError(
                f"the deliver row of {member.name} at n={row['bad_n']} in run {facts.runs[member.r].name} lacks its "
                "sender, numbers, service, view or position"
            )
        facts.deliveries += row["c"]
        line = lines.get((member.r, row["u"]))
        if line is None:
            line = lines[member.r, row["u"]] = Line(len(lines), member.r, row["u"])
        line.life(member.m, member.name)
        if row["tgt"] and row["tgt"] != line.underlay:
            line.lightweight.update(row["tgt"].split(BETWEEN))
        sid = -1 if row["sid"] is None else row["sid"]
        content = (line.ru, row["vw"], sid, row["tgt"], row["cls"], row["c"], row["messages"], row["x"], row["y"])
        rep = reps.setdefault(content, at)
        facts.alike.setdefault(rep, []).append(member.m)
        cell = Cell(
            *(at, member.m, line.ru, row["vw"], sid, row["tgt"], row["cls"], row["doubt"] == 1),
            *(
                row["c"],
                row["messages"],
                row["low"],
                row["high"],
                row["n0"],
                row["n1"],
                row["falls"],
                row["p0"],
                row["p1"],
                row["svc1"],
            ),
            *(row["strong"], row["at1"], row["gp"] ^ row["ge"], row["q0"], row["q1"], row["h0"], row["h1"], rep),
            *(row["v"], row["t"]),
        )
        facts.cells.append(cell)
        facts.cells_of.setdefault(member.m, []).append(cell)
        facts.cells_in.setdefault(line.ru, []).append(cell)
        facts.cells_at.setdefault((member.m, sid), []).append(cell)


# The rows of one cell for each content. What a cell says for all its rows is looked up there.
REP: Final = """
SELECT c.id AS c, c.v, c.is_unsure, d.sid, d.n, d.cls, d.t, d.a, d.b, d.svc, d.pos
FROM {num_rep} d JOIN {rep_keys} c ON d.m = c.m AND d.v = c.h AND d.t = c.t AND d.sid = c.sid AND d.cls = c.cls
"""
_PIECE: Final = """r.c, r.sid, r.n, r.v, r.cls, r.svc, r.a AS row_a, r.b AS row_b,
  greatest(r.a, s.a) AS a, least(r.b, s.b) AS b, r.pos + greatest(r.a, s.a) - r.a AS pos, s.n AS sub_n,
  s.at_ns AS sub_ns, s.svc AS sub_svc, CASE WHEN r.t = s.t THEN 1 ELSE 0 END AS is_same,
  s.g + greatest(r.a, s.a) - s.a AS g"""
SURE: Final = f"SELECT {_PIECE} FROM {{rep}} r JOIN {{sub}} s ON r.sid = s.sid AND r.a = s.a WHERE r.is_unsure = 0"
# Of a range that does not begin with a submit: the last one that begins before it. `max` finds it, since a sender's
# numbers rise.
AS_OF: Final = """
SELECT c, sid, n, v, cls, t, a, b, svc, pos, sa FROM (
  SELECT *, max(sa0) OVER (PARTITION BY sid ORDER BY a, k ROWS UNBOUNDED PRECEDING) AS sa FROM (
    SELECT c, sid, n, v, cls, t, a, b, svc, pos, CAST(NULL AS BIGINT) AS sa0, 1 AS k FROM {rep} WHERE is_unsure = 1
    UNION ALL
    SELECT NULL, sid, NULL, NULL, NULL, NULL, a, b, NULL, NULL, a, 0 FROM {sub})) WHERE k = 1
"""
# A row that goes beyond its first submit is cut into one piece for each.
UNSURE: Final = f"""
SELECT {_PIECE} FROM {{placed_rep}} r JOIN {{sub}} s ON r.sid = s.sid AND r.sa = s.a
UNION ALL
SELECT {_PIECE} FROM {{wide}} r JOIN {{sub}} s ON r.sid = s.sid AND s.a > r.sa AND s.a < r.b
"""
WIDE: Final = """
SELECT r.* FROM {placed_rep} r JOIN {sub} s ON r.sid = s.sid AND r.sa = s.a AND r.b > s.b
"""
# All deliveries, by range: the earliest at others, and the one at the sender itself.
SEEN: Final = """
SELECT sid, a, b, min(CASE WHEN own_n IS NULL THEN at_ns END) AS first_ns, min(own_n) AS own_n
FROM {num} WHERE sid IS NOT NULL GROUP BY sid, a, b
"""


def _choose_reps(facts: Facts) -> None:
    engine = facts.engine
    numbers: dict[tuple[int, str], int] = {}
    for cell in facts.cells:
        numbers.setdefault((cell.ru, cell.view), len(numbers))
    facts.views = list(numbers)
    chosen = [cell for cell in facts.cells if cell.id == cell.rep and cell.sid >= 0]
    engine.load(
        "rep_keys",
        [(name, "int") for name in ("id", "m", "sid", "cls", "v", "is_unsure")] + [("h", "bigint"), ("t", "bigint")],
        [
            (
                *(one.id, one.m, one.sid, one.cls, numbers[one.ru, one.view], int(one.is_doubtful)),
                *(one.view_digest, one.target_digest),
            )
            for one in chosen
        ],
    )
    facts.define_numbers("num_rep", {one.m for one in chosen} or {0})
    engine.define("rep", REP)
    pieces = SURE
    if any(one.is_doubtful for one in chosen):
        engine.define("placed_rep", AS_OF, keep=True)
        engine.define("wide", WIDE)
        pieces += " UNION ALL " + UNSURE
    engine.define("pieces", pieces, keep=True)
    engine.define("seen", SEEN, keep=True)


__all__ = ["Cell", "Facts", "TracedLife", "TracedSender", "gather"]
