"""The page around the document: one file that loads nothing.

The document goes into the page as JSON in which no character can end the element that holds it; the script puts every
text into the page as text. So nothing that a trace says can become markup or script.
"""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any, Final

PLACES: Final = ("TITLE", "STYLE", "DATA", "SCRIPT")
ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page_of(document: dict[str, Any]) -> str:
    """The whole file."""
    parts = {
        "TITLE": html.escape(document["title"]),
        "STYLE": _read("page.css"),
        "DATA": json_in_html(document),
        "SCRIPT": _read("page.js"),
    }
    page = _read("page.html")
    # By pieces, not one replacement after the other: a trace may contain the name of a place.
    found = []
    for name in PLACES:
        before, place, page = page.partition(f"@{name}@")
        if not place:
            raise ValueError(f"page.html has no place for {name}")
        found += [before, parts[name]]
    return "".join([*found, page])


def json_in_html(value: Any) -> str:
    """JSON that can stand inside an element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character, escaped in ESCAPES.items():
        text = text.replace(character, escaped)
    return text


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
