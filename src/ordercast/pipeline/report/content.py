"""What the page is drawn from, as one JSON document: measures, marks, deliveries, parameters and the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ordercast.pipeline.measure.measures import Measures
from ordercast.pipeline.measure.sketches import CURVE
from ordercast.pipeline.reading import TraceRun
from ordercast.pipeline.report.timeline import Choice
from ordercast.pipeline.report.verdict import ReportVerdict
from ordercast.trace.run import software_version

MOST_VIEWS: Final = 400  # of one run that are marked; those with other members come first
MOST_PARAMETERS: Final = 200
MOST_WASTE: Final = 40  # nodes of regions
LONGEST_PARAMETER: Final = 400  # characters
STAGE_ORDER: Final = ("send", "reception", "t1", "t2")
PLAIN_REASONS: Final = ("lock", "unlock")  # views that change nobody's membership

Row = dict[str, Any]


def content(
    found: Measures,
    over_time: Sequence[Row],
    deliveries: Sequence[Row],
    choices: Mapping[str, Choice],
    verdict: ReportVerdict | None,
    title: str,
) -> Row:
    """The document. `over_time` are latencies by run, service and bucket; `deliveries` those that were chosen."""
    names = [run.name for run in found.runs]
    labels = _labels(found.runs)
    return {
        "title": title,
        "software": software_version(),
        "ranks": CURVE,
        "verdict": verdict.as_json(names) if verdict is not None else None,
        "runs": [
            _run(
                found,
                run,
                labels[run.name],
                [row for row in over_time if row["run"] == run.name],
                [row for row in deliveries if row["run"] == run.name],
                choices[run.name],
            )
            for run in found.runs
        ],
    }


def _labels(runs: Sequence[TraceRun]) -> dict[str, str]:
    """The shortest label that tells runs apart: the orderer, or the folder, or the run's name."""
    for words in (
        [run.info.orderer for run in runs],
        [run.folder.name for run in runs],
        [run.name for run in runs],
    ):
        if len(set(words)) == len(words):
            break
    return {run.name: word for run, word in zip(runs, words, strict=True)}


def _run(
    found: Measures, run: TraceRun, label: str, over_time: Sequence[Row], deliveries: Sequence[Row], choice: Choice
) -> Row:
    name, info, span = run.name, run.info, found.spans[run.name]
    began_ns, width_s = span.began_ns, found.width_ns(run.name) / 1e9
    nodes = list(dict.fromkeys(part.node for part in run.parts))

    def at(ns: int) -> float:
        return round((ns - began_ns) / 1e9, 6)

    marks = found.rows("marks", run=name)
    latency = sorted(
        (_without(row, "run", "min_ns") for row in found.rows("latency_by_service", run=name)),
        key=lambda row: (row["service"] or "", STAGE_ORDER.index(row["stage"])),
    )
    return {
        "name": name,
        "label": label,
        "folder": str(run.folder),
        "orderer": info.orderer,
        "source": info.source,
        "clock": info.clock,
        "seed": info.seed,
        "services": list(info.services),
        "started": info.started,
        "software": info.software_version,
        "events": span.events,
        "seconds": at(span.ended_ns),
        "width_s": width_s,
        "nodes": nodes,
        "parameters": parameters(info.parameters),
        "groups": [_without(row, "run") for row in found.rows("group_totals", run=name)],
        "group_latency": [
            {key: row[key] for key in ("group", "service", "messages", "p50_ns", "p99_ns", "max_ns")}
            for row in found.rows("latency_totals", run=name, stage="send")
        ],
        "group_changes": [_without(row, "run") for row in found.rows("group_view_totals", run=name)],
        "delivered": _delivered(found.rows("throughput_series", run=name), nodes),
        "over_time": _over_time(over_time),
        "latency": latency,
        "datagrams": [_without(row, "run") for row in found.rows("datagram_totals", run=name)],
        "changes": [_without(row, "run") for row in found.rows("view_totals", run=name)],
        "repairs": [_without(row, "run") for row in found.rows("repair_totals", run=name)],
        "rotation": [_without(row, "run") for row in found.rows("rotation_totals", run=name)],
        "regions": [_without(row, "run") for row in found.rows("region_totals", run=name)],
        "waste": _waste([_without(row, "run") for row in found.rows("region_waste", run=name)]),
        "views": _views(found.rows("view_changes", run=name), at),
        "marks": [{"kind": row["kind"], "node": row["node"], "at": at(row["at_ns"])} for row in marks],
        "lives": _lives(marks, at, at(span.ended_ns)),
        "timeline": _timeline(deliveries, nodes, choice, began_ns, at),
    }


def parameters(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The parameters of a run as pairs of text; long ones are cut, and many of them, too."""
    found = []
    for key, value in sorted(given.items()):
        text = value if isinstance(value, str) else json.dumps(value)
        found.append((key, text if len(text) <= LONGEST_PARAMETER else f"{text[:LONGEST_PARAMETER]}…"))
    return found[:MOST_PARAMETERS]


def _waste(rows: Sequence[Row]) -> list[Row]:
    """The nodes with the greatest share of what they did not want."""
    worst = sorted(rows, key=lambda row: (-(row["share"] or 0.0), row["region"], row["node"]))
    return worst[:MOST_WASTE]


def _delivered(series: Sequence[Row], nodes: Sequence[str]) -> dict[str, list[float | None]]:
    """Messages each second for each bucket, by node; null where the node had not begun, or had ended."""
    last = max((row["bucket"] for row in series), default=-1)
    found: dict[str, list[float | None]] = {}
    for node in nodes:
        mine = [row for row in series if row["node"] == node and row["delivered"]]
        if not mine:
            continue
        buckets = [row["bucket"] for row in mine]
        values: list[float | None] = [None] * (last + 1)
        for bucket in range(min(buckets), max(buckets) + 1):
            values[bucket] = 0.0
        for row in mine:
            values[row["bucket"]] = round((values[row["bucket"]] or 0.0) + row["delivered"] / row["width_s"], 1)
        found[node] = values
    return found


def _over_time(rows: Sequence[Row]) -> list[Row]:
    """[bucket, p50, p99] of send to delivery, by service."""
    found = []
    for service in sorted({row["service"] or "" for row in rows}):
        mine = [row for row in rows if (row["service"] or "") == service and row["p50_ns"] is not None]
        mine.sort(key=lambda row: row["bucket"])
        points = [(row["bucket"], row["p50_ns"], row["p99_ns"]) for row in mine]
        found.append({"service": service, "total": sum(row["messages"] for row in mine), "points": points})
    return found


def _views(changes: Sequence[Row], at: Any) -> list[Row]:
    """Each view once, at the moment of the first member that had it."""
    found: dict[tuple[str, str], Row] = {}
    for row in sorted(changes, key=lambda row: row["at_ns"]):
        view = found.setdefault(
            (row["underlay"], row["view"]),
            {
                "id": row["view"],
                "at": at(row["at_ns"]),
                "reason": row["reason"] or "",
                "members": row["members"],
                "change_ns": None,
            },
        )
        if row["change_ns"] is not None:
            view["change_ns"] = max(view["change_ns"] or 0, row["change_ns"])
    views = sorted(found.values(), key=lambda view: (view["reason"] in PLAIN_REASONS, view["at"]))
    return sorted(views[:MOST_VIEWS], key=lambda view: view["at"])


def _lives(marks: Sequence[Row], at: Any, end: float) -> dict[str, list[tuple[float, float]]]:
    """When each node was in a group: from its joins to what ended them."""
    open_since: dict[tuple[str, int, str], float] = {}
    found: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(marks, key=lambda row: (row["node"], row["life"], row["n"])):
        key = (row["node"], row["life"], row["underlay"])
        if row["kind"] == "join":
            open_since.setdefault(key, at(row["at_ns"]))
        elif row["kind"] == "leave":
            if key in open_since:
                found.setdefault(row["node"], []).append((open_since.pop(key), at(row["at_ns"])))
        elif row["kind"] in ("crash", "stop"):
            for other in [one for one in open_since if one[:2] == key[:2]]:
                found.setdefault(row["node"], []).append((open_since.pop(other), at(row["at_ns"])))
    for (node, _, _), since in open_since.items():
        found.setdefault(node, []).append((since, end))
    return {node: sorted(spans) for node, spans in found.items()}


def _timeline(rows: Sequence[Row], nodes: Sequence[str], choice: Choice, began_ns: int, at: Any) -> Row:
    """Columns, which are shorter than rows; times as differences, in microseconds."""
    rows = sorted(rows, key=lambda row: (row["at_ns"], row["node"], row["life"], row["n"]))
    lane = {node: index for index, node in enumerate(nodes)}
    senders = {name: index for index, name in enumerate(sorted({row["sender"] or "" for row in rows}))}
    services = {name: index for index, name in enumerate(sorted({row["service"] or "" for row in rows}))}
    times = [(row["at_ns"] - began_ns) // 1000 for row in rows]
    return {
        "every": choice.every,
        "windows": [(at(first), at(last)) for first, last in choice.windows],
        "senders": list(senders),
        "services": list(services),
        "t": [now - before for before, now in zip([0, *times], times, strict=False)],
        "node": [lane[row["node"]] for row in rows],
        "sender": [senders[row["sender"] or ""] for row in rows],
        "first": [row["first"] for row in rows],
        "count": [row["count"] for row in rows],
        "service": [services[row["service"] or ""] for row in rows],
        "position": [row["position"] for row in rows],
    }


def _without(row: Row, *names: str) -> Row:
    return {key: value for key, value in row.items() if key not in names}
