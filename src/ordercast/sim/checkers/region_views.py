"""Property region_views: region views are agreed, immutable, and of one region at a time (QSM section 2.2).

Reading.

- A region and a view id have one list of members, in one order, at everyone who installs it.
- A node is in one region in each epoch: views of two regions with the same id have no member in common, and the epochs
  of the views that a life installs rise within a stay. (The region of an epoch that made no view of it is not known.)
- A life installs views that it is in; it delivers, and hears of losses, in views that it installed before in the same
  stay. They may have ended: a member finishes them.
- A view of a group, where it is shown, has one set of members for its group and id, and the one who writes it is in it.
"""

from __future__ import annotations

from ordercast.sim.checkers.region_records import Attendee, Given, LostBlocks, RegionalTrace
from ordercast.sim.checkers.verdict import PropertyResult, span_text

NAME = "region_views"


def check(regional: RegionalTrace) -> PropertyResult:
    """Judge the views of all regions."""
    result = PropertyResult(NAME, "views and deliveries in them")
    for life in regional.lives.values():
        _check_installs(regional, life, result)
        for given in life.deliveries:
            _check_within(life, given, result)
        for loss in life.losses:
            _check_within(life, loss, result)
    _check_tiling(regional, result)
    _check_groups(regional, result)
    return result


def epoch_of(view: str) -> int:
    """The number of the epoch that made a view: `epoch@leader`."""
    number = view.partition("@")[0]
    return int(number) if number.isdigit() else -1


def _check_installs(regional: RegionalTrace, life: Attendee, result: PropertyResult) -> None:
    last: dict[int, int] = {}  # by stay
    for install in life.installs:
        result.checked += 1
        epoch = epoch_of(install.view)
        if life.member not in install.members:
            what = f"installed view {install.view} of {install.region}, which does not name it"
        elif install.members != regional.views[install.region, install.view]:
            what = f"installed view {install.view} of {install.region} with other members than others"
        elif epoch <= last.get(install.stay, -1):
            what = f"installed view {install.view} of {install.region} after that of epoch {last[install.stay]}"
        else:
            last[install.stay] = epoch
            continue
        result.report(f"{life.member} at n={install.n} {what}", member=life.member, view=install.view)


def _check_within(life: Attendee, row: Given | LostBlocks, result: PropertyResult) -> None:
    result.checked += 1
    if is_within(life, row):
        return
    verb = "delivered" if isinstance(row, Given) else "was told of the loss of blocks"
    result.report(
        f"{life.member} {verb} {span_text(row.sender, (row.first, row.stop))} at n={row.n} in view {row.view} of "
        f"{row.region}, which it had not installed",
        member=life.member,
        sender=row.sender,
        span=(row.first, row.stop),
        view=row.view,
    )


def is_within(life: Attendee, row: Given | LostBlocks) -> bool:
    """Whether a row names a view that the life is in."""
    install = life.views.get((row.region, row.view or ""))
    return install is not None and install.n < row.n and install.stay == life.stay(row.n)


def _check_tiling(regional: RegionalTrace, result: PropertyResult) -> None:
    regions: dict[str, dict[str, str]] = {}  # view id -> member -> region
    for region, view in sorted(regional.views):
        places = regions.setdefault(view, {})
        for member in regional.views[region, view]:
            other = places.setdefault(member, region)
            if other != region:
                result.report(f"view {view} puts {member} into {other} and {region}", member=member, view=view)


def _check_groups(regional: RegionalTrace, result: PropertyResult) -> None:
    lists: dict[tuple[str | None, str | None], tuple[frozenset[str], str]] = {}
    for life in regional.lives.values():
        for row in life.group_views:
            result.checked += 1
            members = frozenset(row.members or ())
            known, holder = lists.setdefault((row.group, row.view), (members, life.member))
            if life.member not in members:
                what = "which does not name it"
            elif members != known:
                what = f"with other members than at {holder}"
            else:
                continue
            result.report(
                f"{life.member} at n={row.n} was shown view {row.view} of {row.group} {what}",
                member=life.member,
                other=holder,
                view=row.view,
            )
