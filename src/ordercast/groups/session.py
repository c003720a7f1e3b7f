"""One application at a node: its ports, and one stream on each channel that carries one of its groups.

An embedded node has one session, which has no label: it is the node itself. A daemon has one more for each client, and
names them by labels that are unique at the node. A labelled session is a member of groups of its own, `label@name/life`
(docs/design/roster.md). `Host.open_session` makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordercast.groups.port import Port
    from ordercast.groups.stream import Stream


class Session:
    """The groups of one application, and how far it has counted its messages on each underlay."""

    __slots__ = ("is_closed", "label", "numbers", "ports", "streams")

    def __init__(self, label: str = "", numbers: dict[str, int] | None = None) -> None:
        """`numbers`: those of an earlier session of the same label, which this one continues."""
        self.label = label
        self.ports: dict[str, Port] = {}  # open ones by group, in the order in which they were opened
        self.streams: dict[str, Stream] = {}  # by underlay
        # Underlays that were left: the number of the next message there. The host bounds them (MAX_REMEMBERED).
        self.numbers: dict[str, int] = numbers if numbers is not None else {}
        self.is_closed = False  # it opens nothing any more; what is open is on its way out

    @property
    def places(self) -> list[Port]:
        """All its ports, those in shared underlays themselves included."""
        streams = self.streams.values()
        return [port for stream in streams for port in (*stream.ports.values(), stream.base) if port is not None]

    def __str__(self) -> str:
        return f"the session {self.label!r}" if self.label else "this node"
