"""**How a view ends**: classes, remainders, roster groups and the next view, as pure functions of the cuts of a round.

Extended virtual synchrony (Spread section 2, which leaves the rules open). A coordinator calls `conclude` with the cuts
of all members of its round. Each rule below was needed: `tests/model/evs` has a switch for it, and shows what breaks
without it.

- A *class* is: the same old view, and bound to the same result, or to none. A class that is bound keeps its result.
- H is the smallest H_t (`coverage.py`) over the sites of the class. If a member has delivered beyond H, the class
  splits: the members whose H_t reaches the furthest delivery form one class with their own H, and so on with the rest.
- S is the smallest over *all* sites of the old view of the largest ARU that the class knows.
- The signal stands before the first block, held in the class and destined to it, that is SAFE above S or lies above H.
- Up to H everything is delivered; beyond H only blocks whose origin is in the class.
- The first LTS of the next view is above every clock and LTS in all cuts. Its counter is above all counters.
- Roster groups: a class with a synced member is one; otherwise there is one for each lineage in the class.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.errors import InvariantViolation
from ordercast.membership.components.coverage import Coverage
from ordercast.service import SAFE_RANK
from ordercast.wire.cuts import (
    Ballot,
    Class,
    Cut,
    Due,
    Lineage,
    Outcome,
    Remainder,
    Result,
    ResultId,
    ViewId,
)


def conclude(ballot: Ballot, cuts: Sequence[Cut]) -> Outcome:
    """What becomes of a round. The order of the cuts does not matter; no daemon may be among them twice."""
    cuts = sorted(cuts, key=_daemon)
    classes = classes_of(ballot, cuts)
    return Outcome(classes, roster_groups(classes, cuts), first_lts(cuts), next_counter(ballot, cuts))


def classes_of(ballot: Ballot, cuts: Sequence[Cut]) -> tuple[Class, ...]:
    """The classes of a round with their results."""
    pools: dict[tuple[ViewId, ResultId | None], list[Cut]] = {}
    for cut in cuts:
        pools.setdefault((cut.view, None if cut.bound is None else cut.bound.id), []).append(cut)
    found: list[Class] = []
    for pool in pools.values():
        bound = pool[0].bound
        if bound is not None:
            found.append(Class(tuple([cut.daemon for cut in pool]), bound))
        else:
            found += _unbound(ballot, pool)
    return tuple(found)


def roster_groups(classes: Sequence[Class], cuts: Sequence[Cut]) -> tuple[tuple[int, ...], ...]:
    """Who has the same rosters. The lowest daemon of each group speaks for it, and for nobody else."""
    by_daemon = {cut.daemon: cut for cut in cuts}
    groups: list[tuple[int, ...]] = []
    for members, _ in classes:
        lineages: dict[Lineage, list[int]] = {}
        for member in members:
            lineages.setdefault(by_daemon[member].lineage, []).append(member)
        if any(by_daemon[member].is_synced for member in members):
            groups.append(members)
        else:
            groups += [tuple(group) for group in lineages.values()]
    return tuple(sorted(groups))


def first_lts(cuts: Sequence[Cut]) -> int:
    """Where the clocks of the next view begin: nothing that anybody has seen is as high."""
    return 1 + max([_highest(cut) for cut in cuts])


def next_counter(ballot: Ballot, cuts: Sequence[Cut]) -> int:
    """The counter of the next view: above those of all views and ballots before."""
    return 1 + max([ballot.number, *[cut.view.counter for cut in cuts]])


def lineage_after(cut: Cut, result: Result) -> Lineage:
    """What a member takes with it when it installs the next view with this result."""
    return Lineage(cut.view, result.id) if cut.is_synced else cut.lineage


def lacks(cut: Cut, remainder: Remainder) -> list[Due]:
    """Which blocks of a remainder the teller of a cut needs and does not have."""
    found: list[Due] = []
    by_site = {source.site: (source.prefix, {block.seq for block in source.blocks}) for source in cut.sources}
    for due in (*remainder.before, *remainder.after):
        prefix, held = by_site[due.site]
        if due.mask >> cut.site & 1 and due.seq > prefix and due.seq not in held:
            found.append(due)
    return found


def holders(view: ViewId, cuts: Sequence[Cut]) -> dict[tuple[int, int], list[int]]:
    """Who holds which block of a view: daemons by (site, sequence number)."""
    found: dict[tuple[int, int], list[int]] = {}
    for cut in cuts:
        if cut.view == view:
            for source in cut.sources:
                for block in source.blocks:
                    found.setdefault((source.site, block.seq), []).append(cut.daemon)
    return found


# ---- helpers


def _daemon(cut: Cut) -> int:
    return cut.daemon


def _unbound(ballot: Ballot, pool: list[Cut]) -> list[Class]:
    """Divide the daemons of one view that are bound to nothing. All of them hand out what they hold: `coverage` is that
    of the whole pool, however it splits."""
    coverage = Coverage(pool)
    rest = pool
    found: list[Class] = []
    while rest:
        furthest = max([cut.delivered for cut in rest])
        part = rest
        if furthest > min([coverage.horizon(cut.site) for cut in rest]):
            part = [cut for cut in rest if coverage.horizon(cut.site) >= furthest]
            if not part:
                raise InvariantViolation(f"somebody has delivered LTS {furthest}, which no site of its class can reach")
        members = tuple([cut.daemon for cut in part])
        name = ResultId(ballot, pool[0].view, len(found))
        found.append(Class(members, _result(name, coverage, part, members)))
        rest = [cut for cut in rest if cut.daemon not in members]
    return found


def _result(name: ResultId, coverage: Coverage, part: list[Cut], members: tuple[int, ...]) -> Result:
    horizon = min([coverage.horizon(cut.site) for cut in part])
    mask = 0
    for cut in part:
        mask |= 1 << cut.site
    # Each of them delivers in the order of positions, and FIFO blocks no later: all of them have what is below.
    delivered = min([cut.delivered for cut in part])
    due = coverage.due(mask, delivered, horizon, frozenset(members))
    stop = signal_index(due, horizon, coverage.stable)
    return Result(name, members, horizon, coverage.stable, Remainder(tuple(due[:stop]), tuple(due[stop:])))


def signal_index(due: Sequence[Due], horizon: int, stable: int) -> int:
    """How many blocks of a remainder stand before the signal."""
    for index, block in enumerate(due):
        if block.lts > horizon or (block.rank >= SAFE_RANK and block.lts > stable):
            return index
    return len(due)


def _highest(cut: Cut) -> int:
    """The highest clock or LTS that a cut speaks of, delivered, held or only heard of."""
    found = max(cut.clock, cut.delivered, *cut.arus)
    for source in cut.sources:
        found = max(found, source.clock)
        found = max([found, *[block.lts for block in source.blocks]])
        found = max([found, *[skip.lts for skip in source.skips]])
        found = max([found, *[clock for _, clock in source.promises]])
    if cut.bound is not None:
        for block in (*cut.bound.remainder.before, *cut.bound.remainder.after):
            found = max(found, block.lts)
    return found
