"""What happened in a run, for the judges: facts as an observer with one clock for all would write them down."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.evs.blocks import Block, GroupViewId, Session

from ordercast.wire.cuts import ViewId


class Started(NamedTuple):
    daemon: int
    site: int


class Seeded(NamedTuple):
    """A session that is in a group from the beginning."""

    daemon: int
    group: int
    session: Session


class Crashed(NamedTuple):
    daemon: int


class Stamped(NamedTuple):
    daemon: int
    block: Block


class Received(NamedTuple):
    """A daemon has a block that is destined to its site."""

    daemon: int
    block: Block


class Processed(NamedTuple):
    """A daemon has come to this block in its order, whoever gets it."""

    daemon: int
    block: Block


class Given(NamedTuple):
    """Sessions of a daemon got a message; `among` is what the daemon takes for the members of its groups."""

    daemon: int
    block: Block
    sessions: frozenset[Session]
    among: frozenset[Session]


class Signalled(NamedTuple):
    daemon: int


class Told(NamedTuple):
    """A daemon has told its cut: how many entries its longest stream has, and the window of the view."""

    daemon: int
    entries: int
    window: int


class Installed(NamedTuple):
    daemon: int
    view: ViewId
    members: tuple[int, ...]
    came_with: tuple[int, ...]


class Grouped(NamedTuple):
    """A daemon shows a group view."""

    daemon: int
    group: int
    name: GroupViewId
    members: frozenset[Session]


class Synced(NamedTuple):
    """A daemon has the rosters of its whole view, and client traffic goes on: (group, id, members)."""

    daemon: int
    groups: tuple[tuple[int, GroupViewId, frozenset[Session]], ...]


class Noted(NamedTuple):
    """For people who read a run; no judge looks at it."""

    text: str


Life = Started | Seeded | Crashed | Noted
Traffic = Stamped | Received | Processed | Given
Change = Signalled | Told | Installed | Grouped | Synced
Fact = Life | Traffic | Change
