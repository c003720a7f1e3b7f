"""One application at a node: its ports, and one stream on each channel that carries one of its groups.

An embedded node has one session. A daemon will have one for each client, and names them; so far the messages of all
sessions of a node bear the node's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordercast.groups.port import Port


class Session:
    """The groups of one application, and how far it has counted its messages on each underlay."""

    __slots__ = ("numbers", "ports")

    def __init__(self) -> None:
        self.ports: dict[str, Port] = {}  # open ones by group, in the order in which they were opened
        # Underlays that were left: the number of the next message there. The host bounds them (MAX_REMEMBERED).
        self.numbers: dict[str, int] = {}
