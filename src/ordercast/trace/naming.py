"""Names of nodes and sessions in a trace: each is one plain folder on every system (docs/trace.md).

A session is a client of a daemon and a node of its own in the trace: `client@daemon`, in the life of its daemon.
Clients choose their names, so what no folder can be called is written as `+` and two hexadecimal digits for each byte.
Two different names stay different. A daemon that lets a client come back under its old name in the same life goes on
counting its messages: it is the same node.

Regions have underlays `region/N`; what concerns all of them, as groups and their views, has the underlay `regions`.
"""

from __future__ import annotations

import re
from typing import Final

MAX_NAME: Final = 120

REGIONS: Final = "regions"  # the underlay of what concerns all regions
_REGION: Final = "region/"

# Starts with a letter or digit, so that no file is hidden; '@' is in the names of a daemon's clients. Left out on
# purpose: '/' leaves the folder, '=' and '%' mean something to readers of partitioned folders.
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,119}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_FIRST: Final = re.compile(r"[A-Za-z0-9]")


def check_node_name(node: str) -> None:
    """Refuse a name that would not be one plain folder on every system, and the same one to every reader."""
    if not _NODE_NAME.fullmatch(node) or ".." in node:
        raise ValueError(
            f"{node!r} cannot name a node in a trace: use up to {MAX_NAME} letters, digits, '.', '_', '@', '+' and "
            "'-', a letter or digit first, no '..'"
        )


def session_name(client: str, daemon: str) -> str:
    """The name of a client's session as a node of the trace; `ValueError` if it is empty or too long."""
    if not client:
        raise ValueError("a session has a name; the only session of a program without one is the node itself")
    # Nothing else gives two '+' in a row, so the mark of a name that begins with another character is unique.
    label = "" if _FIRST.match(client) else "0+"
    label += "".join(one if _PLAIN.match(one) else _escaped(one) for one in client)
    name = f"{label}@{daemon}"
    check_node_name(name)
    return name


def is_session_of(name: str, daemon: str) -> bool:
    """Whether a name is that of a session of this daemon."""
    client = name.removesuffix(f"@{daemon}")
    return client not in ("", name) and bool(_NODE_NAME.fullmatch(name)) and ".." not in name


def region_underlay(region: int) -> str:
    """The underlay of a region's rows."""
    return f"{_REGION}{region}"


def is_region(underlay: str) -> bool:
    """Whether an underlay is a region's."""
    return underlay.startswith(_REGION)


def is_regional(underlay: str) -> bool:
    """Whether an underlay is a region's, or that of all regions."""
    return underlay.startswith(_REGION) or underlay == REGIONS


def _escaped(one: str) -> str:
    return "".join(f"+{byte:02x}" for byte in one.encode(errors="replace"))
