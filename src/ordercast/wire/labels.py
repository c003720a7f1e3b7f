"""Labels of sessions: what tells the applications of one node apart (docs/design/roster.md).

A session is written `label@name/life`, so a label has neither '@' nor '/'. The rules do not depend on the version of
Python: members that read the same bytes must refuse the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ordercast.errors import WireError

MAX_LABEL: Final = 64  # bytes
FORBIDDEN: Final = "@/"


def wrong_with(label: str) -> str:
    """Why no session may have this label, as the end of a sentence; empty: it may. No label at all is the node's."""
    try:
        size = len(label.encode())
    except UnicodeEncodeError:
        return "has half a character, which cannot be sent"
    if size > MAX_LABEL:
        return f"has {size} bytes; {MAX_LABEL} are the most"
    if any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 for each in label):
        return "has a control character"
    found = next((each for each in FORBIDDEN if each in label), "")
    return f"has {found!r}, which stands between a session, its node and its life" if found else ""


@lru_cache(maxsize=4_096)
def read_label(data: bytes) -> str:
    """A label that came from a peer. Hot: once per block of a session."""
    try:
        label = data.decode()
    except UnicodeDecodeError as error:
        raise WireError("the label of a session is not UTF-8") from error
    if wrong_with(label):
        raise WireError("no session may have this label")
    return label
