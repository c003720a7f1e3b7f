"""Which messages wait where: the routes of a node, and what keeps its place among them.

Messages to several groups have the regions of all of them. What the same node sends to one of these groups afterwards
stays behind, also where it has another route. An epoch changes routes, and everything that waits is sorted again.
"""

from __future__ import annotations

from ordercast.groups.queued import LargeMessage, Stretch, listed
from ordercast.groups.regions.route import Route, RouteItem, stretch_of
from ordercast.groups.regions.targets import NamedGroups, RouteNumbers
from ordercast.groups.regions.waits import LaneWait
from ordercast.membership.given import NumberedGroups


class Routing:
    """The routes of one node."""

    __slots__ = ("_multis", "barrier", "numbers", "order", "routes", "unnumbered")

    def __init__(self, table: NumberedGroups) -> None:
        self.routes: dict[tuple[int, ...], Route] = {}  # that something waits in, by their regions
        self.unnumbered = Route(())  # to groups that have no number yet
        self.numbers = RouteNumbers(table)
        self.order = 0  # of the last item
        self.barrier = 0  # the order of the last message to several groups
        self._multis: list[tuple[int, frozenset[int]]] = []  # messages to several groups that wait, and their regions

    @property
    def all(self) -> list[Route]:
        return [*self.routes.values(), self.unnumbered]

    @property
    def has_multis(self) -> bool:
        return bool(self._multis)

    def route(self, regions: tuple[int, ...]) -> Route:
        route = self.routes.get(regions)
        if route is None:
            route = self.routes[regions] = Route(regions)
        return route

    def route_of(self, number: int) -> Route:
        """Where messages to a group wait."""
        if not number:
            return self.unnumbered
        return self.route(self.numbers.regions(number))

    def regions_of(self, groups: NamedGroups) -> tuple[int, ...] | None:
        """The regions of several groups; None: not all of them have a number."""
        numbers = groups.numbers()
        if numbers is None:
            return None
        regions_of = self.numbers.regions
        if len(numbers) == 1:
            return regions_of(numbers[0])
        return tuple(sorted({region for number in numbers for region in regions_of(number)}))

    def has_any(self, name: str, number: int) -> bool:
        """Whether something waits for this group. `number`: 0 where it is not known, and neither are its messages."""
        for item in [item for route in self.all for item in route.items()]:
            groups = item.groups
            if isinstance(groups, NamedGroups):
                if name in groups.names:
                    return True
            elif not number:
                return True
            elif isinstance(item, Stretch):
                targets = listed(item.groups) if item.groups is not None else [item.target]
                if any(target.number == number for target in targets):
                    return True
            elif isinstance(item, LargeMessage) and item.group is not None and item.group.number == number:
                return True
        return False

    def next_order(self) -> int:
        self.order += 1
        return self.order

    def add_multi(self, order: int, regions: tuple[int, ...] | None) -> None:
        """A message to several groups waits; None: not all of them have a number."""
        self.barrier = max(self.barrier, order)
        self._multis.append((order, frozenset(regions) if regions is not None else frozenset()))

    def must_wait(self, route: Route, head: RouteItem) -> bool:
        """Messages to several groups keep their place among what is sent to each of them."""
        order, regions = route.order, set(route.regions)
        if self.is_multi(head):
            if self.unnumbered.order < order:
                return True
            others = [other for other in self.routes.values() if other.order < order]
            return any(not regions.isdisjoint(other.regions) for other in others)
        return any(at < order and (not where or not regions.isdisjoint(where)) for at, where in self._multis)

    def is_multi(self, item: RouteItem) -> bool:
        groups = None if isinstance(item, Stretch) else item.groups
        return isinstance(groups, NamedGroups) and len(groups.names) > 1

    def end_multi(self, order: int, item: RouteItem) -> None:
        if self._multis and self.is_multi(item):
            self._multis = [each for each in self._multis if each[0] != order]

    def sort(self) -> dict[LaneWait, None]:
        """An epoch was installed: put everything where it waits now. The waits that had marks, which are gone."""
        items: list[tuple[int, RouteItem]] = []
        waits: dict[LaneWait, None] = {}
        for route in self.all:
            items += route.take_all()
            for _, wait in route.marks:
                wait.marks -= 1
                waits[wait] = None
            route.marks.clear()
        items.sort(key=_order_of)
        self.numbers.clear()
        self.routes.clear()
        self.unnumbered = Route(())
        self._multis.clear()
        for order, item in items:
            self.place(order, item)
        return waits

    def place(self, order: int, item: RouteItem) -> None:
        """Put what waits into the route that it has now."""
        if isinstance(item, Stretch):
            if item.groups is not None:
                self.divide(order, item)
                return
            self.route_of(item.target.number).put(order, item)
            return
        groups = item.groups
        if groups is None:
            if isinstance(item, LargeMessage) and item.group is not None:
                self.route_of(item.group.number).put(order, item)
            return
        assert isinstance(groups, NamedGroups)
        regions = self.regions_of(groups)
        (self.unnumbered if regions is None else self.route(regions)).put(order, item)
        if len(groups.names) > 1:
            self.add_multi(order, regions)

    def divide(self, order: int, item: Stretch) -> None:
        """A stretch whose groups may have different routes from now on."""
        item.measure()
        targets = listed(item.targets(item.at, len(item.lengths)))
        found: dict[Route, list[int]] = {}
        for at, target in enumerate(targets, item.at):
            found.setdefault(self.route_of(target.number), []).append(at)
        if len(found) == 1:
            next(iter(found)).put(order, item)
            return
        for route, index in found.items():
            part = stretch_of(
                [item.payloads[at] for at in index],
                item.service,
                item.type,
                [item.lengths[at] for at in index],
                None,
                [targets[at - item.at] for at in index],
            )
            route.put(order, part)


def _order_of(item: tuple[int, RouteItem]) -> int:
    return item[0]
