"""Groups on an underlay of sites, as one daemon has them: rosters, group views, interests, and the exchange."""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.evs.blocks import GroupViewId, Position, Roster, Session, View
from tests.model.evs.rules import Rules

GroupView = tuple[int, GroupViewId, frozenset[Session]]  # group, id, members


class Interests:
    """Who wants the messages of which group: LTS of INTERESTs, and 0 for what the rosters say."""

    __slots__ = ("_of", "_rules", "_site_of")

    def __init__(self, rules: Rules, site_of: dict[int, int]) -> None:
        self._rules = rules
        self._site_of = site_of  # by daemon
        self._of: dict[tuple[int, int], frozenset[int]] = {}

    def clone(self, site_of: dict[int, int]) -> Interests:
        other = Interests(self._rules, site_of)
        other._of = dict(self._of)
        return other

    def key(self) -> tuple[object, ...]:
        return tuple(sorted((key, tuple(sorted(stamps))) for key, stamps in self._of.items()))

    def add(self, daemon: int, group: int, lts: int) -> None:
        key = (self._whose(daemon), group)
        self._of[key] = self._of.get(key, frozenset()) | {lts}

    def left(self, daemon: int, group: int, lts: int, rest: Iterable[int]) -> None:
        """A session left at this LTS; `rest` are the daemons of the sessions that stay."""
        if not self._rules.interest_of_daemon:
            rest = [self._site_of[each] for each in rest]
        if self._whose(daemon) in rest:
            return
        key = (self._whose(daemon), group)
        if self._rules.leave_ends_earlier and self._rules.interest_of_daemon:
            self._of[key] = frozenset(each for each in self._of.get(key, ()) if each > lts)
        else:
            self._of[key] = frozenset()

    def has(self, whose: int, group: int) -> bool:
        return bool(self._of.get((whose, group)))

    def sites(self, view: View, groups: Iterable[int]) -> int:
        """The mask of the sites that a message to these groups goes to."""
        mask = 0
        for group in groups:
            for member in view.members:
                if self.has(self._whose(member), group):
                    mask |= 1 << self._site_of[member]
        return mask

    def of_site(self, site: int, group: int) -> bool:
        """For the naive rule: whether anybody in the site is interested."""
        return self.has(site, group)

    def begin(self, rosters: Rosters, clear: bool) -> None:
        """What the rosters say. An INTEREST of this view that came before is kept."""
        if clear or not self._rules.keep_interest:
            self._of = {}
        for group, members in rosters.lists.items():
            for daemon, _ in members:
                self.add(daemon, group, 0)

    def _whose(self, daemon: int) -> int:
        return daemon if self._rules.interest_of_daemon else self._site_of[daemon]


class Rosters:
    """The members of all groups, and the ids of their views. Methods return the group views that they make."""

    __slots__ = ("_rules", "ids", "lists", "received", "touched")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.lists: dict[int, frozenset[Session]] = {}
        self.ids: dict[int, GroupViewId] = {}
        self.touched: frozenset[int] = frozenset()  # groups with changes after a signal; they need a view
        self.received: tuple[Roster, ...] = ()  # of an exchange

    def clone(self) -> Rosters:
        other = Rosters(self._rules)
        other.lists = dict(self.lists)
        other.ids = dict(self.ids)
        other.touched = self.touched
        other.received = self.received
        return other

    def key(self) -> tuple[object, ...]:
        lists = tuple(sorted((group, tuple(sorted(members))) for group, members in self.lists.items()))
        return (lists, tuple(sorted(self.ids.items())), tuple(sorted(self.touched)), len(self.received))

    def members(self, group: int) -> frozenset[Session]:
        return self.lists.get(group, frozenset())

    def add(self, group: int, session: Session) -> None:
        self.lists[group] = self.members(group) | {session}

    def remove(self, group: int, session: Session) -> None:
        self.lists[group] = self.members(group) - {session}

    def announce(self, view: View, group: int, position: Position) -> GroupView:
        """The group gets a view here."""
        name = GroupViewId(position, view.id if self._rules.group_view_id else view.id[1:])
        self.ids[group] = name
        return (group, name, self.lists[group])

    def on_view(self, view: View) -> list[GroupView]:
        """A view whose members all have the same rosters: groups that lost members or were touched get a view."""
        made = []
        for group, members in sorted(self.lists.items()):
            rest = frozenset(each for each in members if each[0] in view.members)
            if rest != members or group in self.touched:
                self.lists[group] = rest
                made.append(self.announce(view, group, (view.first_lts, 0)))
        self.touched = frozenset()
        return made

    def told(self, view: View, group: tuple[int, ...]) -> Roster:
        """What this daemon says for its roster group."""
        theirs = group if self._rules.own_roster else view.members
        # A group with a member elsewhere was cut in two, or has lost it.
        kept = group if self._rules.changed_groups else view.members
        lists = {name: frozenset(each for each in all_ if each[0] in theirs) for name, all_ in self.lists.items()}
        changed = {name for name, all_ in self.lists.items() if any(each[0] not in kept for each in all_)}
        return Roster(
            group, tuple(sorted(lists.items())), tuple(sorted(self.ids.items())), frozenset(changed | self.touched)
        )

    def on_roster(self, view: View, roster: Roster, position: Position) -> list[GroupView] | None:
        """A roster was delivered; None: others are still to come."""
        self.received += (roster,)
        if {each.speaks_for for each in self.received} != set(view.roster_groups):
            return None
        parts: dict[int, list[tuple[frozenset[Session], GroupViewId | None, bool]]] = {}
        for each in self.received:
            ids = dict(each.ids)
            for group, members in each.lists:
                parts.setdefault(group, []).append((members, ids.get(group), group in each.changed))
        self.lists, made = {}, []
        for group, told in sorted(parts.items()):
            self.lists[group] = frozenset().union(*[members for members, _, _ in told])
            present = [(members, name) for members, name, _ in told if members]
            is_new = any(changed for _, _, changed in told) or len({name for _, name in present}) > 1
            if is_new or (self._rules.changed_groups and len(present) > 1):
                if present:
                    made.append(self.announce(view, group, position))
            elif present:
                name = present[0][1]
                if name is not None:
                    self.ids[group] = name
        self.touched = frozenset()
        return made
