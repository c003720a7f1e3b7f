"""The report of a plan: one HTML file in the style of `ordercast report`, with pictures as SVG and without any script.

Names of nodes and groups can be hostile: every text goes through `html.escape`, and the page's policy forbids scripts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ordercast.pipeline.failures import cannot_write
from ordercast.pipeline.regions.pictures import changes_chart, heat_map, waste_chart

if TYPE_CHECKING:
    import pyarrow as pa

    from ordercast.pipeline.regions.planning import Planned

FILE: Final = "report.html"
MOST_ROWS: Final = 40  # of a table
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

Document = dict[str, Any]


def write_report(folder: Path, document: Document, planned: Planned) -> Path:
    """Write the page beside the plan; its path."""
    path = folder / FILE
    new = folder / f".{FILE}.{os.getpid()}"
    try:
        new.write_text(page_of(document, planned), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return path


def page_of(document: Document, planned: Planned) -> str:
    """The whole file."""
    css = resources.files("ordercast.pipeline.report").joinpath("page.css").read_text(encoding="utf-8")
    parts = [
        _head(document),
        _verdict(document),
        _tiles(document, planned),
        _packets(document),
        _card(
            "Overlap",
            "Of what two regions receive together, the share that both receive. Regions that are alike are neighbours. "
            "Dark pairs are nearly the same; they stay apart where merging is no gain or a limit forbids it.",
            heat_map(planned.tables["regions"], planned.tables["region_groups"]),
            "overlap",
        ),
        _card(
            "Waste against the number of regions",
            "Each point is a plan for another limit of waste. Exact regions are on the right; the plan is marked."
            if any(one["limit"] is not None for one in document["points"])
            else "After each round of merging: from the exact regions, on the right, to the plan.",
            waste_chart(document),
            "waste",
        ),
        _changes(document, planned),
        _regions(planned.tables["regions"]),
        f"<footer>Ordercast {escape(document['software'])}, plan {escape(document['hash'])}</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Ordercast plan</title>\n'
        f'<link rel="icon" href="data:,">\n<style>\n{css}\n</style>\n</head>\n<body>\n<main id="page">\n'
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def summary_lines(document: Document) -> list[str]:
    """The plan in a few lines, for the terminal."""
    exact, result = document["exact"], document["result"]
    lines = [
        f"{exact['nodes']:,} nodes, {exact['regions']:,} exact regions; proved by {exact['rows_proved']:,} rows, "
        f"{exact['rows_left']:,} left over"
    ]
    if exact["collided_signatures"]:
        lines.append(
            f"{exact['collided_signatures']:,} signatures collided; {exact['nodes_told_apart']:,} nodes were told "
            "apart by their whole lists"
        )
    lines.append(
        f"{result['regions']:,} regions after merging, {result['waste']:.2%} of what nodes receive is unwanted "
        f"(at most {result['worst_waste']:.2%} at a node), {result['addresses']:,} addresses"
    )
    if result["regions_without_address"]:
        lines.append(f"{result['regions_without_address']:,} regions got no address and are sent copies")
    for name, one in document["packets"].items():
        lines.append(f"packets for each message, {name}: {one['per_message']:.2f}")
    before = document["previous"]
    if before is not None:
        lines.append(
            f"against the plan before: {before['moved']:,} nodes move, {before['came']:,} come, {before['went']:,} go; "
            f"{before['kept_regions']:,} regions stay, {before['new_regions']:,} begin, {before['gone_regions']:,} end"
        )
    if result["over_limit_nodes"]:
        lines.append(f"{result['over_limit_nodes']:,} nodes stay beyond the limit of waste: --moves allows no more")
    return lines


def _head(document: Document) -> str:
    sources = ", ".join(document["sources"][:4]) + (" …" if len(document["sources"]) > 4 else "")
    rates = {"none": "all groups count alike", "trace": "rates as the trace has them"}
    said = rates.get(document["rates"], f"rates of {document['rates']}")
    return f'<div class="head"><h1>Plan of regions</h1><span class="sub">{escape(sources)}; {escape(said)}</span></div>'


def _verdict(document: Document) -> str:
    exact, result = document["exact"], document["result"]
    is_good = not exact["rows_left"] and not result["over_limit_nodes"]
    words = [f"{exact['rows_proved']:,} subscriptions were looked up, {exact['rows_left']:,} were left over."]
    if exact["collided_signatures"]:
        words.append(f"{exact['collided_signatures']:,} signatures collided and were told apart by their whole lists.")
    if result["over_limit_nodes"]:
        words.append(f"{result['over_limit_nodes']:,} nodes stay beyond the limit of waste: --moves allows no more.")
    if result["regions_without_address"]:
        words.append(f"{result['regions_without_address']:,} regions got no address and are sent copies.")
    title = "Exact, and within the limits" if is_good else "Not within the limits"
    kind = "good" if is_good else "bad"
    return f'<section class="card verdict {kind}"><h2>{title}</h2><p>{escape(" ".join(words))}</p></section>'


def _tiles(document: Document, planned: Planned) -> str:
    exact, result, limits = document["exact"], document["result"], document["limits"]
    groups = len(set(planned.tables["exact_groups"]["group"].to_pylist()))
    tiles = [
        (f"{exact['nodes']:,}", "nodes"),
        (f"{groups:,}", "groups"),
        (f"{exact['regions']:,}", "exact regions"),
        (f"{result['regions']:,}", "regions of the plan"),
        (f"{result['waste']:.2%}", f"unwanted of what is received (limit at a node: {limits['waste']:.0%})"),
        (f"{result['addresses']:,}", f"addresses of {limits['addresses']:,}"),
    ]
    made = (f'<div class="tile"><div class="n">{n}</div><div class="w">{escape(what)}</div></div>' for n, what in tiles)
    return f'<div class="tiles">{"".join(made)}</div>'


def _packets(document: Document) -> str:
    if not document["packets"]:
        return ""
    rows = [
        [
            name,
            *(f"{one[key]:,}" for key in ("messages", "sent", "received", "unwanted", "control")),
            f"{one['per_message']:.2f}",
        ]
        for name, one in document["packets"].items()
    ]
    names = ["layout", "messages", "sent", "received", "of these unwanted", "control", "packets for each message"]
    about = (
        "The messages of the trace, counted by a model: messages of one sender within 10 ms share packets, a packet is "
        "received by every other node of its region, tokens and acknowledgements once a second where there is traffic."
    )
    return _card("Packets for each message", about, _table(names, rows), "packets")


def _changes(document: Document, planned: Planned) -> str:
    before, changes = document["previous"], planned.changes
    if before is None or changes is None:
        return ""
    budget = "no budget" if before["budget"] is None else f"of at most {before['budget']:,}"
    rows = [
        ["nodes that move", f"{before['moved']:,}", budget],
        ["nodes that come", f"{before['came']:,}", ""],
        ["nodes that go", f"{before['went']:,}", ""],
        ["regions that stay", f"{before['kept_regions']:,}", ""],
        ["regions that are new", f"{before['new_regions']:,}", ""],
        ["regions that end", f"{before['gone_regions']:,}", ""],
    ]
    flows = [[str(one), str(other), f"{nodes:,}"] for one, other, nodes in changes.flows[:MOST_ROWS]]
    more = len(changes.flows) - len(flows)
    made = _table(["", "count", ""], rows)
    if flows:
        made += "<h2>Moves</h2>" + changes_chart(changes.flows) + _table(["from region", "to region", "nodes"], flows)
    made += f'<p class="note">{more:,} smaller moves are not shown.</p>' if more > 0 else ""
    return _card("What would change", f"Against the plan {before['hash'][:16]}.", made, "changes")


def _regions(regions: pa.Table) -> str:
    listed = sorted(regions.to_pylist(), key=lambda row: (-row["nodes"], row["region"]))
    rows = [
        [
            str(row["region"]),
            f"{row['nodes']:,}",
            f"{row['groups']:,}",
            f"{row['rate']:,.1f}",
            f"{row['waste']:.2%}",
            f"{row['worst_waste']:.2%}",
            "none" if row["address"] is None else str(row["address"]),
        ]
        for row in listed[:MOST_ROWS]
    ]
    names = ["region", "nodes", "groups", "messages/s", "unwanted", "at worst", "address"]
    more = len(listed) - len(rows)
    note = f'<p class="note">{more:,} smaller regions are not shown; regions.parquet has them.</p>' if more > 0 else ""
    return _card("Regions", "The largest first.", _table(names, rows) + note, "regions")


def _card(title: str, about: str, content: str, name: str) -> str:
    head = f'<h2>{escape(title)}</h2><p class="about">{escape(about)}</p>'
    return f'<section class="card" id="{name}">{head}{content}</section>'


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th{' class=num' * (place > 0)}>{escape(name)}</th>" for place, name in enumerate(names))
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=num' * (place > 0)}>{escape(cell)}</td>" for place, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll tall"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
