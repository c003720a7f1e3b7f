"""Views of lightweight groups, made of the underlay's view and a change of the roster (docs/design/roster.md).

There may be very many: a node has one of each of its groups. What they have in common they share: lists of members that
many groups have, and the empty tables of groups without locks. Views are never changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ordercast.groups.records import GroupChange
from ordercast.view import Member, View
from ordercast.wire.roster import SessionKey

MAX_LISTS: Final = 1_024
"""Lists of members that are shared. At the bound they are forgotten, and found again."""

Sessions = tuple[SessionKey, ...]
Components = tuple[tuple[str, ...], ...]

_NOTHING: Final[dict[int, int]] = {}
_NO_LOCKS: Final[dict[str, int]] = {}


class Telling(NamedTuple):
    """What the groups are being told of."""

    view: View  # of the underlay
    position: int  # of the change
    is_view: bool  # otherwise it is an exchange of rosters in it


class GroupViews:
    """Makes the views of the groups. The tables hold for one view of the underlay.

    The id of a group's view counts the changes of the roster in the underlay's view. Where components go on, some
    members of a view may make a change that others never see, so there it is `position@counter@creator`: the position
    of the change, which is unique together with the underlay's view.
    """

    __slots__ = ("_by_position", "_components", "_members", "_names", "_view")

    def __init__(self, *, by_position: bool = False) -> None:
        self._by_position = by_position
        self._view = ""
        self._members: dict[Sessions, tuple[Member, ...]] = {}
        self._names: dict[Sessions, tuple[str, ...]] = {}
        self._components: dict[Sessions, Components] = {}  # only one exchange of rosters is in a view

    def make(self, view: View, change: GroupChange, position: int, came_with: Sessions) -> View:
        """The view that a change of the roster in the underlay's `view` makes."""
        if self._view != view.id or self._lists > MAX_LISTS:
            self._view = view.id
            self._members.clear()
            self._names.clear()
            self._components.clear()
        record, subject = change.record, change.subject
        return View(
            position if self._by_position else (view.counter << 20) + change.count,
            view.id if self._by_position else view.creator,
            view.ring,
            view.incarnation,
            view.seq,
            position,
            self._members_of(view, change.after),
            _NOTHING,
            change.reason,
            self._names_of(view, (subject,))[0] if subject is not None else view.subject,
            change.header,
            came_with=self._names_of(view, came_with),
            group=record.name,
            locks=locks_of(record.number, view.locks),
            tokens=locks_of(record.number, view.tokens),
            callers=_NOTHING,
            awaited=_NOTHING,
            components=self._components_of(view, change) if change.components else (),
        )

    @property
    def _lists(self) -> int:
        return len(self._members) + len(self._names) + len(self._components)

    def _members_of(self, view: View, sessions: Sessions) -> tuple[Member, ...]:
        members = self._members.get(sessions)
        if members is None:
            members = self._members[sessions] = tuple([_member(view, key) for key in sessions])
        return members

    def _components_of(self, view: View, change: GroupChange) -> Components:
        """The members by the component that they come from: the same at all who make this view."""
        sessions = change.after
        found = self._components.get(sessions)
        if found is None:
            place_of = {node: place for place, nodes in enumerate(change.components) for node in nodes}
            parts: dict[int, list[SessionKey]] = {}
            for key in sessions:
                parts.setdefault(place_of[key[0]], []).append(key)
            names = [self._names_of(view, tuple(part)) for part in parts.values()] if len(parts) > 1 else []
            found = self._components[sessions] = tuple(names)
        return found

    def _names_of(self, view: View, sessions: Sessions) -> tuple[str, ...]:
        names = self._names.get(sessions)
        if names is None:
            names = self._names[sessions] = tuple([_name(view, key) for key in sessions])
        return names


def locks_of(number: int, locks: Mapping[str, int]) -> dict[str, int]:
    """The holders, or the tokens, of the locks of one group among those of its underlay."""
    if not locks:
        return _NO_LOCKS
    prefix = f"{number}:"
    return {key.removeprefix(prefix): value for key, value in locks.items() if key.startswith(prefix)}


def _member(view: View, key: SessionKey) -> Member:
    found = view.member(key[0])
    if found is None:
        raise LookupError(f"the session {key} is in a group and its node is not in {view.id}")
    return found.session(key[1])


def _name(view: View, key: SessionKey) -> str:
    found = view.member(key[0])
    return session_name(str(found) if found is not None else f"{key[0]:016x}", key[1])


def session_name(node: str, label: str) -> str:
    """What a session of a node (`name/life`) is called."""
    return f"{label}@{node}" if label else node
