"""What the daemons of an underlay of sites tell one another when a view ends, and what becomes of it. Types only.

A *cut* is everything that one daemon knows of the streams of its view. A *result* says how one class of daemons leaves
that view: what it still delivers, before and after the signal (extended virtual synchrony, Spread section 2; the
rules are in `membership/components/classes.py`, the streams in `orderers/sites/`).

Sites are small numbers, and sets of sites are bit masks: bit t is site t. LTS are Lamport timestamps. A position is
(LTS, site): no two blocks of one view share one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_SITES: Final = 64
CUT_ENTRIES: Final = 8_192
"""How many blocks and SKIPs a window over all sources has room for. A cut has at most three times as many entries."""
MAX_PROMISES: Final = 64  # UPDATEs of one source beyond its gapless prefix; the oldest go


class ViewId(NamedTuple):
    """The name of a view of the underlay: the counter, and the id of the daemon that made it."""

    counter: int
    creator: int


class RoundBallot(NamedTuple):
    """A round of recovery. Ballots of all views are compared with one another."""

    number: int
    coordinator: int


Ballot = RoundBallot  # in this room; a class has its name for itself


class ResultId(NamedTuple):
    """The name of a result: round, old view, and which of the classes of that view it is for."""

    ballot: Ballot
    view: ViewId
    part: int


class Lineage(NamedTuple):
    """Which copy of the rosters a daemon has: the last view in which it was in sync, and the class that left it. None:
    the daemon has not left its first view."""

    view: ViewId
    left: ResultId | None


class Listed(NamedTuple):
    """A block that the teller holds."""

    seq: int  # of its site
    lts: int
    rank: int  # of its service
    origin: int  # the daemon that stamped it
    mask: int  # the sites that it goes to


class Skip(NamedTuple):
    """Blocks from `first` to `upto`, inclusive, that a forwarder did not pass on: no site behind it is in `mask`."""

    first: int
    upto: int
    lts: int  # of the block `upto`
    mask: int  # the same for all of them
    safe: int  # the LTS of the first of them that is SAFE; 0: none is


class SourceCut(NamedTuple):
    """What a daemon knows of the stream of one site."""

    site: int
    released: int  # everything up to here is stable, delivered and forgotten
    prefix: int  # everything up to here is held, skipped or released
    clock: int  # the justified one
    blocks: tuple[Listed, ...]  # above `released`, also beyond the prefix; by sequence number
    skips: tuple[Skip, ...]
    promises: tuple[tuple[int, int], ...]  # (sequence number, clock) of UPDATEs beyond the prefix


class Due(NamedTuple):
    """A block of a remainder. Sorted, these are in the order of positions."""

    lts: int
    site: int
    seq: int
    rank: int
    origin: int
    mask: int


class ViewRemainder(NamedTuple):
    """What a class still delivers in the old view: in order, before and after the signal."""

    before: tuple[Due, ...]
    after: tuple[Due, ...]


Remainder = ViewRemainder  # in this room; a class has its name for itself


class Result(NamedTuple):
    """How a class leaves its view. A member that is bound to a result keeps it until it installs a view."""

    id: ResultId
    members: tuple[int, ...]  # the class as it was when the result was made
    horizon: int  # H: up to here everything is delivered that the class is meant to have
    stable: int  # S: up to here every daemon of the old view is known to hold it
    remainder: Remainder


class DaemonCut(NamedTuple):
    """What one daemon answers to an invitation."""

    daemon: int
    site: int
    view: ViewId  # the one that it is in
    sites: tuple[int, ...]  # of that view
    sources: tuple[SourceCut, ...]  # for each of them, in the same order
    arus: tuple[int, ...]  # and the ARU of each that the daemon knows of
    delivered: int  # the highest LTS among the ordered blocks that it has delivered in this view; 0: none
    clock: int  # its Lamport clock
    is_synced: bool  # it has the rosters of the whole view
    lineage: Lineage
    bound: Result | None


Cut = DaemonCut  # in this room; a class has its name for itself


class Class(NamedTuple):
    """Daemons of a round that leave the same old view in the same way; each gets the others as `came_with`."""

    members: tuple[int, ...]  # in this round; a bound class may have lost some since its result was made
    result: Result


class RoundOutcome(NamedTuple):
    """What a coordinator makes of the cuts of a round."""

    classes: tuple[Class, ...]
    roster_groups: tuple[tuple[int, ...], ...]  # an exchange takes place if there are several
    first_lts: int  # the clocks of the new view begin here; the first block is above
    counter: int  # of the new view


Outcome = RoundOutcome  # in this room; a class has its name for itself


def joined(earlier: Skip, later: Skip) -> Skip | None:
    """One SKIP in the place of two, if nothing is lost by it; otherwise None.

    Masks must be equal: a union would claim sites that a block does not go to, and these would not get past it in a
    recovery. Behind a SAFE block only SAFE ones follow: otherwise receivers would wait for the stability of blocks that
    need none.
    """
    if later.first != earlier.upto + 1 or later.mask != earlier.mask or (earlier.safe and not later.safe):
        return None
    return Skip(earlier.first, later.upto, later.lts, earlier.mask, earlier.safe or later.safe)
