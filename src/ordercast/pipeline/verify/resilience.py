"""Property 6: RESILIENT(k), MAJORITY and SAFE are not delivered before enough members have the message.

Its view is the one in which it is delivered; after `transitional` it is the `came_with` of the next view. `Before` is
by the run clock, and at the same instant is in time. First every range is judged by its earliest delivery: if all
members had it then, or else enough of them, nothing was too early. What remains, what recovery delivered, and ranges
that rows of `hold` and `placed` cut differently, is judged delivery by delivery.

On a shared underlay the holders are the nodes that host members of the group views in which the life delivered it. SAFE
asks for all of these; RESILIENT(k) and MAJORITY for enough of these, or of the underlay's view. The first step, over
the underlay's view, asks for more. A session is judged as its daemon where one part goes on, with the signals of its
own groups' views, on the way through a recovery, too. With components, or where the daemon's views are not known, those
that come along to the next view of the group count, not to that of the underlay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ordercast.pipeline.verify import components
from ordercast.pipeline.verify.engine import Record, SqlEngine
from ordercast.pipeline.verify.facts import MAJORITY, RESILIENT, SAFE, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import FOREVER, Life, Line
from ordercast.pipeline.verify.names import sender_digest, view_digest
from ordercast.pipeline.verify.ranges import Range

NAME: Final = "resilience"
LIMIT: Final = 20_000

# By the word, not by `svc`: most rows are out with one comparison. An unknown service is judged.
_WEAK: Final = "'AGREED', 'FIFO', 'RELIABLE', 'CAUSAL', 'UNRELIABLE'"
_STRONG: Final = f"(service IS NULL OR service NOT IN ({_WEAK})) AND e.kind IN ('hold', 'placed', 'deliver')"


def _rows_sql(engine: SqlEngine) -> str:
    """What members held, placed and delivered of what had to wait for others: `k` is 1, 2, 3. Odd is what was delivered
    in an unknown view, or after the transitional signal."""
    return f"""
SELECT s.sid, e.a, e.b, e.m, e.at_ns, e.svc, e.k, CASE WHEN e.k = 3 THEN v.v END AS v,
  CASE WHEN e.k = 3 AND (v.v IS NULL OR e.n > t.n) THEN 1 ELSE 0 END AS is_odd
FROM (SELECT e.a, e.b, e.m, e.n, e.at_ns, e.svc, {sender_digest(engine, "e.")} AS sender,
  CASE e.kind WHEN 'hold' THEN 1 WHEN 'placed' THEN 2 ELSE 3 END AS k,
  CASE WHEN e.kind = 'deliver' THEN {view_digest(engine, "e.")} END AS h FROM {{ev}} e WHERE {_STRONG}) e
JOIN {{timed}} s ON e.sender = s.k LEFT JOIN {{view_keys}} v ON e.h = v.h
LEFT JOIN {{transitional}} t ON e.m = t.m AND v.v = t.v
"""


def _all_sql(engine: SqlEngine) -> str:
    """Ranges that not all members of the view held and placed before the first delivery: a member is counted, and added
    by its digest, so that none can stand for another."""
    member = f"({engine.digest('m')} & 4294967295)"
    return f"""
SELECT q.sid, q.a, q.b FROM (
  SELECT sid, a, b, max(CASE WHEN k = 1 THEN at_ns END) AS held, max(CASE WHEN k = 2 THEN at_ns END) AS placed,
    sum(CASE WHEN k = 1 THEN 1 ELSE 0 END) AS holders, sum(CASE WHEN k = 2 THEN 1 ELSE 0 END) AS placers,
    sum(CASE WHEN k = 1 THEN {member} ELSE 0 END) AS held_by,
    sum(CASE WHEN k = 2 THEN {member} ELSE 0 END) AS placed_by,
    min(CASE WHEN k = 3 THEN at_ns END) AS first_ns, max(is_odd) AS is_odd, min(v) AS v0, max(v) AS v1
  FROM {{waiting}} GROUP BY sid, a, b) q
LEFT JOIN {{view_keys}} z ON q.v0 = z.v LEFT JOIN {{view_digests}} y ON q.v0 = y.v
WHERE q.first_ns IS NOT NULL AND (q.is_odd = 1 OR q.v0 <> q.v1 OR z.members IS NULL OR y.digest IS NULL
  OR q.holders <> z.members OR q.placers <> z.members OR q.held_by <> y.digest OR q.placed_by <> y.digest
  OR q.held > q.first_ns OR q.placed > q.first_ns)
"""


def _view_digests_sql(engine: SqlEngine) -> str:
    return f"SELECT v, sum({engine.digest('m')} & 4294967295) AS digest FROM {{view_members}} GROUP BY v"


# Of each of these ranges and each member when it held it, knew its place and delivered it.
STRONG: Final = """
SELECT e.sid, e.a, e.b, e.m, min(CASE WHEN e.k = 1 THEN e.at_ns END) AS held,
  min(CASE WHEN e.k = 2 THEN e.at_ns END) AS placed, min(CASE WHEN e.k = 3 THEN e.at_ns END) AS delivered,
  max(e.v) AS v, max(CASE WHEN e.k = 3 THEN e.svc END) AS svc, max(e.is_odd) AS is_odd
FROM {waiting} e JOIN {not_all} x ON e.sid = x.sid AND e.a = x.a AND e.b = x.b GROUP BY e.sid, e.a, e.b, e.m
"""
TOO_FEW: Final = f"""
SELECT q.sid, q.a, q.b FROM (
  SELECT d.sid, d.a, d.b, d.v0, d.v1, max(d.svc) AS svc, max(d.is_odd) AS is_odd,
    sum(CASE WHEN x.m IS NOT NULL AND d.held <= d.first_ns THEN 1 ELSE 0 END) AS held,
    sum(CASE WHEN x.m IS NOT NULL AND d.held <= d.first_ns AND d.placed <= d.first_ns THEN 1 ELSE 0 END) AS has_both
  FROM (SELECT *, min(delivered) OVER w AS first_ns, min(v) OVER w AS v0, max(v) OVER w AS v1 FROM {{strong}}
    WINDOW w AS (PARTITION BY sid, a, b)) d
  LEFT JOIN {{view_members}} x ON d.v0 = x.v AND d.m = x.m WHERE d.first_ns IS NOT NULL
  GROUP BY d.sid, d.a, d.b, d.v0, d.v1) q LEFT JOIN {{view_keys}} z ON q.v0 = z.v
WHERE q.is_odd = 1 OR q.v0 <> q.v1 OR z.members IS NULL OR NOT CASE
  WHEN q.svc >= {SAFE} THEN q.has_both >= z.members
  WHEN q.svc >= {MAJORITY} THEN 2 * q.has_both > z.members
  ELSE q.held >= least(q.svc - {RESILIENT}, z.members - 1) + 1 END
ORDER BY q.sid, q.a LIMIT {LIMIT}
"""


def begin(facts: Facts) -> Callable[[], list[Record]] | None:
    """Start the search for ranges to look at, which takes a while; None if there are none."""
    engine = facts.engine
    timed = [r for r in range(len(facts.runs)) if facts.clock(r) != "many"]
    if not any(cell.strong_rows and facts.members[cell.m].r in timed for cell in facts.cells):
        return None
    engine.define("timed", f"SELECT sid, k FROM {{snd_keys}} WHERE r IN ({', '.join(map(str, timed))})")
    periods = [(line, one) for line in facts.lines for life in line.lives.values() for one in life.periods]
    lists = {(line.ru, one.view): one.members for line, one in reversed(periods)}
    number = {key: at for at, key in enumerate(lists)}
    names = {(line.ru, life.name): life.m for line in facts.lines for life in line.lives.values()}
    engine.load(
        "transitional",
        [("m", "int"), ("v", "int"), ("n", "bigint")],
        [
            (one.m, number[line.ru, one.view], one.transitional_n)
            for line, one in periods
            if one.transitional_n < FOREVER
        ],
    )
    engine.load(
        "view_members",
        [("v", "int"), ("m", "int")],
        [(number[key], names[key[0], name]) for key, ones in lists.items() for name in ones if (key[0], name) in names],
    )
    engine.load(
        "view_sizes",
        [("r", "int"), ("u", "string"), ("vw", "string"), ("v", "int"), ("members", "int")],
        [
            (facts.lines[ru].r, facts.lines[ru].underlay, view, number[ru, view], len(ones))
            for (ru, view), ones in lists.items()
        ],
    )
    digest = engine.digest(engine.digest("r", "u"), "vw")
    engine.define("view_keys", f"SELECT v, members, {digest} AS h FROM {{view_sizes}}")
    engine.define("waiting", _rows_sql(engine))
    engine.define("view_digests", _view_digests_sql(engine))
    engine.define("not_all", _all_sql(engine), keep=True)
    return engine.begin("SELECT sid FROM {not_all} LIMIT 1")


def check(facts: Facts, findings: Findings, begun: Callable[[], list[Record]] | None) -> None:
    """Judge every delivery that had to wait for others."""
    engine = facts.engine
    timed = {r for r in range(len(facts.runs)) if facts.clock(r) != "many"}
    if len(timed) < len(facts.runs):
        findings.not_judged[NAME] = "where the clock is many, times of different nodes cannot be compared"
    findings.checked[NAME] += sum(cell.strong_rows for cell in facts.cells if facts.members[cell.m].r in timed)
    if begun is not None and begun():
        engine.define("strong", STRONG)
        suspects = engine.rows(TOO_FEW)
        if suspects:
            _judge(facts, findings, suspects)
    for line in facts.lines:
        if facts.has_components(line.r):
            components.check_deliveries(facts, findings, line)


def _judge(facts: Facts, findings: Findings, suspects: list[Record]) -> None:
    """Delivery by delivery, with the rows of these ranges alone."""
    engine = facts.engine
    unique = sorted({(row["sid"], row["a"], row["b"]) for row in suspects})
    engine.load("ranges", [("sid", "int"), ("a", "bigint"), ("b", "bigint")], unique)
    rows = engine.rows(
        "SELECT DISTINCT e.m, e.n, e.at_ns, e.kind, s.sid, e.a, e.b, e.svc, e.vw, e.tgt FROM {ev} e JOIN {snd} s "
        "ON e.r = s.r AND e.u = s.u AND e.sender = s.name JOIN {timed} j ON s.sid = j.sid "
        "JOIN {ranges} x ON s.sid = x.sid AND e.a < x.b AND e.b > x.a "
        "WHERE e.kind IN ('hold', 'placed', 'deliver')"
    )
    have: dict[tuple[str, int, int], list[tuple[int, int, int]]] = {}
    for row in rows:
        if row["kind"] != "deliver":
            have.setdefault((row["kind"], row["m"], row["sid"]), []).append((row["a"], row["b"], row["at_ns"]))
    names = {(line.ru, life.name): life.m for line in facts.lines for life in line.lives.values()}
    lists = {
        (line.ru, one.view): one.members for line in facts.lines for life in line.lives.values() for one in life.periods
    }
    told: set[tuple[int, int, str | None]] = set()  # one missing copy explains all early deliveries
    for row in sorted(rows, key=lambda row: (row["m"], row["n"])):
        is_meant = row["kind"] == "deliver" and (row["svc"] or 0) >= RESILIENT
        if not is_meant or (row["m"], row["n"]) in findings.tainted:
            continue
        sender = facts.senders[row["sid"]]
        line, life = facts.lines[sender.ru], facts.life_of(sender.ru, row["m"])
        holders = _holders(findings, line, life, row, lists, facts.has_components(line.r))
        if holders is None:
            continue
        times: dict[str, int] = {}
        for name in holders.nodes:
            m = names.get((sender.ru, name), -1)
            since = _since(have.get(("hold", m, row["sid"]), []), (row["a"], row["b"]))
            if row["svc"] >= MAJORITY and since < FOREVER:
                since = max(since, _since(have.get(("placed", m, row["sid"]), []), (row["a"], row["b"])))
            times[name] = since
        _judge_one(facts, findings, row, holders, times, told)


def _since(spans: list[tuple[int, int, int]], wanted: Range) -> int:
    """From when on all of the range was there."""
    reached, latest = wanted[0], -1
    for first, stop, when in sorted(spans):
        if first > reached:
            break
        if stop > reached:
            reached, latest = stop, max(latest, when)
        if reached >= wanted[1]:
            return latest
    return FOREVER


class _Holders(NamedTuple):
    """The nodes that count for a delivery: of the underlay, and those that host members of its groups."""

    nodes: tuple[str, ...]
    hosts: tuple[str, ...]
    view: str
    is_recovered: bool


def _holders(
    findings: Findings,
    line: Line,
    life: Life,
    row: Record,
    lists: dict[tuple[int, str], tuple[str, ...]],
    has_components: bool,
) -> _Holders | None:
    """None: the trace does not say it."""
    target = findings.renamed.get((row["sid"], row["a"])) or row["tgt"]
    found = (life.group_at(group, row["n"]) for group in line.targets(target) or ())
    groups = [one for one in found if one is not None]
    members = {name for one in groups for name in one.members}
    period = life.at(row["n"])
    if period is None or (life.is_session and has_components):
        nodes = lists.get((line.ru, row["vw"]), ()) if life.is_session else ()
        late = [one for one in groups if one.transitional_n < row["n"]]
        if not nodes or any(one.next is None for one in late):
            return None
        # After the signal of a group those that come along to its next view stand for its members.
        members = {name for one in groups if one not in late for name in one.members}
        members |= {name for one in late if one.next is not None for name in one.next.came_with}
        return _Holders(nodes, _hosts(members, nodes) or nodes, row["vw"], bool(late))
    is_recovered = period.transitional_n < row["n"]
    if life.is_session and groups:  # it has the signal in each view of its groups on the way, not once for all of them
        is_recovered = all(one.has_signal(period.n, row["n"]) for one in groups)
    if is_recovered and period.next is None:
        return None
    nodes = period.next.came_with if is_recovered and period.next is not None else period.members
    return _Holders(nodes, _hosts(members, nodes) or nodes, period.view, is_recovered)


def _hosts(members: set[str], nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the nodes that host a member: itself, or `session@name`."""
    names = {name.rpartition("/")[0].rpartition("@")[2] for name in members if "@" in name}
    return tuple(node for node in nodes if node in members or node.rpartition("/")[0] in names)


def _asked(svc: int, who: str, at_ns: int, nodes: tuple[str, ...], times: dict[str, int]) -> tuple[int, int]:
    """How many of the nodes had it in time, and how many its service asks for."""
    have = {name for name in nodes if times[name] <= at_ns}
    if svc >= MAJORITY:
        return len(have), len(nodes) if svc >= SAFE else len(nodes) // 2 + 1
    return len(have - set(_hosts({who}, nodes))), min(svc - RESILIENT, len(nodes) - 1)


def _judge_one(
    facts: Facts,
    findings: Findings,
    row: Record,
    holders: _Holders,
    times: dict[str, int],
    told: set[tuple[int, int, str | None]],
) -> None:
    at_ns, svc, who = row["at_ns"], row["svc"], facts.members[row["m"]].name
    if svc < SAFE:
        have, needed = _asked(svc, who, at_ns, holders.nodes, times)
        if have >= needed:
            return
    have, needed = _asked(svc, who, at_ns, holders.hosts, times)
    if have >= needed:
        return
    what = "hold it and know its place" if svc >= MAJORITY else "hold it besides"
    late = sorted((times[name], name) for name in holders.hosts if times[name] > at_ns and name != who)
    lacking = late[0][1] if late else None
    of = "those that recovered together" if holders.is_recovered else f"view {holders.view}"
    text = f"{who} delivered it at {at_ns} ns (n={row['n']}) when {have} of {of} {what}; its service asks for {needed}"
    key = row["sid"], row["a"], lacking
    severity = CONSEQUENCE if key in told else ROOT
    told.add(key)
    findings.add(
        ViolationRow(
            *(facts.run_of(row["m"]), NAME, severity, row["tgt"] or None, holders.view, who),
            *(span_text(facts.senders[row["sid"]].name, (row["a"], row["b"])), lacking, None, text, row["n"]),
        )
    )
