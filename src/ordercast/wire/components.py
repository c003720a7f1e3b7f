"""Bodies of the datagrams by which components find one another, part and merge (docs/design/sites.md, "Components").

Every body begins with the life of the daemon that speaks. Daemons are named by their index in the configuration and
their life; addresses come from the configuration alone. Bodies are lists of numbers (`wire/numbers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import blake2b
from itertools import pairwise
from typing import Final, NamedTuple

from ordercast.config import MAX_BLOCK
from ordercast.errors import WireError
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.cuts import (
    CUT_ENTRIES,
    MAX_PROMISES,
    MAX_SITES,
    Ballot,
    Cut,
    Due,
    Lineage,
    Listed,
    Remainder,
    Result,
    ResultId,
    Skip,
    SourceCut,
    ViewId,
)
from ordercast.wire.numbers import MAX_ID, NumberReader, folded, pack_numbers
from ordercast.wire.sites import MAX_LTS

MAX_DAEMONS: Final = 1_024
MAX_LIFE: Final = (1 << 63) - 1
MAX_ENTRIES: Final = 3 * CUT_ENTRIES  # blocks and SKIPs of a cut, and blocks of a remainder
MAX_FETCH: Final = 64  # runs of blocks that one FETCH asks for
MAX_FETCH_RUN: Final = 64  # blocks of one such run
MAX_PACKET: Final = MAX_BLOCK + 1_024  # a block with what its engine puts before it
MAX_RANK: Final = 255


class DaemonLife(NamedTuple):
    """One life of a configured daemon."""

    index: int  # type: ignore[assignment]  # tuple.index is not missed
    life: int


class ComponentHello(NamedTuple):
    """A daemon shows its component to daemons outside of it."""

    me: DaemonLife
    is_working: bool
    number: int  # the highest of a ballot that it knows of
    counter: int  # of its view
    creator: DaemonLife
    members: tuple[DaemonLife, ...]
    hears: int  # daemons outside of its view that it hears, and does not avoid; a bit set of indices
    linked: int  # of those, the ones that hear it and do not avoid it
    configuration: int  # the fingerprint of its configuration: indices mean the same only where this is the same


class GatherStep(IntEnum):
    """What a GATHER is. The value is on the wire."""

    INVITE = 0  # the coordinator: promise this ballot, and show your cut
    ASK = 1  # to the lowest daemon: begin a round; `daemons` are suspected
    CHECK = 2  # to the coordinator: are you there?
    HAVE = 3  # the same, from a daemon that has the proposal and fetches what it lacks
    ALIVE = 4  # the coordinator's answer
    DENY = 5  # I am in a round with a higher ballot, which is this
    OUTDATED = 6  # I work, and have promised a higher ballot before, which is this
    REFUSE = 7  # I keep away from you
    RELEASE = 8  # the coordinator: `daemons` go on without you


class Gather(NamedTuple):
    me: DaemonLife
    step: GatherStep
    ballot: Ballot
    daemons: int = 0  # a bit set of indices


class NamedView(NamedTuple):
    """A view by which a class came, with its members."""

    counter: int
    creator: DaemonLife
    members: tuple[DaemonLife, ...]


class SiteCut(NamedTuple):
    """The answer to an invitation. The cut of a bound daemon has no streams: its result stands."""

    me: DaemonLife
    ballot: Ballot
    counter: int  # the highest of a view that it knows of, accepted ones included
    avoids: int  # daemons that it does not go with: suspected, or backed off from
    view: NamedView
    cut: Cut


class ProposedClass(NamedTuple):
    """One class of a proposal."""

    view: int  # index of `old_views`
    id: ResultId
    horizon: int
    members: tuple[int, ...]  # indices of the proposal's `members`


class HolderRun(NamedTuple):
    """Who can be asked for blocks of the remainder that not all of the class have."""

    site: int
    first: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    holders: tuple[int, ...]  # indices of the proposal's `members`


class ComponentProposal(NamedTuple):
    """The next view, and how one of its members gets there."""

    me: DaemonLife
    ballot: Ballot
    counter: int
    first_lts: int
    members: tuple[DaemonLife, ...]
    left_out: int  # daemons that were invited in vain, or cannot go with the members; a bit set of indices
    old_views: tuple[NamedView, ...]
    classes: tuple[ProposedClass, ...]
    roster_groups: tuple[tuple[int, ...], ...]  # indices of `members`
    # For one member alone
    own: int  # index of its class
    stable: int
    remainder: Remainder | None  # None: it is bound, and has it
    holders: tuple[HolderRun, ...]


class RoundVote(NamedTuple):
    """ACCEPTED: this daemon holds its remainder. INSTALL: all do."""

    me: DaemonLife
    ballot: Ballot


class Fetch(NamedTuple):
    """Which blocks of the old view are missing: (site, first, count)."""

    me: DaemonLife
    runs: tuple[tuple[int, int, int], ...]


class Fetched(NamedTuple):
    """A block that was asked for; what its bytes mean, the engine knows."""

    me: DaemonLife
    site: int
    seq: int
    packet: bytes


def body_number(body: bytes) -> int:
    """The number of a long body. One that is sent again has the same: its segments fill the gaps of the first."""
    return int.from_bytes(blake2b(body, digest_size=8, person=b"oc-body").digest(), "big")


def mask_of(indices: Iterable[int]) -> int:
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


def indices_of(mask: int) -> list[int]:
    """The bits of a mask, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


# SHOW


def encode_hello(hello: ComponentHello) -> bytes:
    numbers = [*hello.me, int(hello.is_working), hello.number, hello.counter, *hello.creator]
    _put_lives(numbers, hello.members)
    _put_mask(numbers, hello.hears)
    _put_mask(numbers, hello.linked)
    numbers.append(hello.configuration)
    return pack_numbers(numbers)


def decode_hello(body: bytes | memoryview) -> ComponentHello:
    reader = NumberReader(body)
    me, is_working, number, counter = _take_life(reader), reader.flag(), reader.number(), reader.number()
    creator, members = _take_life(reader), _take_members(reader)
    hears, linked, configuration = _take_mask(reader), _take_mask(reader), reader.number(MAX_ID)
    reader.end()
    if me not in members:
        raise WireError("a daemon shows a view that it is not in")
    return ComponentHello(me, is_working, number, counter, creator, members, hears, linked, configuration)


# GATHER


def encode_gather(gather: Gather) -> bytes:
    numbers = [*gather.me, gather.step, *gather.ballot]
    _put_mask(numbers, gather.daemons)
    return pack_numbers(numbers)


def decode_gather(body: bytes | memoryview) -> Gather:
    reader = NumberReader(body)
    me, step = _take_life(reader), GatherStep(reader.number(max(GatherStep)))
    ballot, daemons = _take_ballot(reader), _take_mask(reader)
    reader.end()
    return Gather(me, step, ballot, daemons)


# SITE_CUT


def encode_site_cut(told: SiteCut) -> bytes:
    cut = told.cut
    numbers = [*told.me, *told.ballot, told.counter]
    _put_mask(numbers, told.avoids)
    _put_view(numbers, told.view)
    numbers += [cut.daemon, cut.site, *cut.view, cut.delivered, cut.clock, int(cut.is_synced), *cut.lineage.view]
    _put_maybe_result_id(numbers, cut.lineage.left)
    numbers.append(len(cut.sites))
    numbers += cut.sites
    bound = cut.bound
    numbers.append(int(bound is not None))
    if bound is not None:  # it stands: nobody computes with the streams again, nor with the remainder
        _put_result_id(numbers, bound.id)
        numbers += [bound.horizon, bound.stable, len(bound.members), *bound.members]
        return pack_numbers(numbers)
    sorts = _Sorts()
    streams: list[int] = []
    for source, aru in zip(cut.sources, cut.arus, strict=True):
        _put_source(streams, source, aru, sorts)
    sorts.put(numbers)
    return pack_numbers([*numbers, *streams])


def decode_site_cut(body: bytes | memoryview) -> SiteCut:
    reader = NumberReader(body)
    me, ballot, counter, avoids = _take_life(reader), _take_ballot(reader), reader.number(), _take_mask(reader)
    view = _take_view(reader)
    daemon, site, name = reader.id(), reader.number(MAX_SITES - 1), _take_view_id(reader)
    delivered, clock, is_synced = reader.number(MAX_LTS), reader.number(MAX_LTS), reader.flag()
    lineage = Lineage(_take_view_id(reader), _take_maybe_result_id(reader))
    sites = tuple([reader.number(MAX_SITES - 1) for _ in range(reader.count(MAX_SITES))])
    if list(sites) != sorted(set(sites)) or site not in sites:
        raise WireError("sites of a view out of order, or without that of the daemon")
    if me not in view.members:
        raise WireError("a daemon shows the cut of a view that it is not in")
    if reader.flag():
        name_of, horizon, stable = _take_result_id(reader), reader.number(MAX_LTS), reader.number(MAX_LTS)
        members = tuple([reader.id() for _ in range(reader.count(MAX_DAEMONS))])
        bound = Result(name_of, members, horizon, stable, Remainder((), ()))
        reader.end()
        cut = Cut(daemon, site, name, sites, (), (), delivered, clock, is_synced, lineage, bound)
        return SiteCut(me, ballot, counter, avoids, view, cut)
    sorts = _take_sorts(reader)
    sources, arus, left = [], [], MAX_ENTRIES
    for each in sites:
        source, aru = _take_source(reader, each, sorts, left)
        left -= len(source.blocks) + len(source.skips)
        sources.append(source)
        arus.append(aru)
    reader.end()
    cut = Cut(daemon, site, name, sites, tuple(sources), tuple(arus), delivered, clock, is_synced, lineage, None)
    return SiteCut(me, ballot, counter, avoids, view, cut)


# PROPOSAL


def encode_proposal(proposal: ComponentProposal) -> bytes:
    numbers = [*proposal.me, *proposal.ballot, proposal.counter, proposal.first_lts]
    _put_lives(numbers, proposal.members)
    _put_mask(numbers, proposal.left_out)
    numbers.append(len(proposal.old_views))
    for view in proposal.old_views:
        _put_view(numbers, view)
    numbers.append(len(proposal.classes))
    for each in proposal.classes:
        numbers.append(each.view)
        _put_result_id(numbers, each.id)
        numbers += [each.horizon, len(each.members), *each.members]
    _put_lists(numbers, proposal.roster_groups)
    numbers += [proposal.own, proposal.stable, int(proposal.remainder is not None)]
    if proposal.remainder is not None:
        _put_remainder(numbers, proposal.remainder)
    numbers.append(len(proposal.holders))
    for run in proposal.holders:
        numbers += [run.site, run.first, run.count, len(run.holders), *run.holders]
    return pack_numbers(numbers)


def decode_proposal(body: bytes | memoryview) -> ComponentProposal:
    reader = NumberReader(body)
    me, ballot, counter, first_lts = _take_life(reader), _take_ballot(reader), reader.number(), reader.number(MAX_LTS)
    members, left_out = _take_members(reader), _take_mask(reader)
    size = len(members)
    old_views = tuple([_take_view(reader) for _ in range(reader.count(MAX_DAEMONS, 4))])
    classes = []
    for _ in range(reader.count(MAX_DAEMONS, 8)):
        view = reader.number(len(old_views) - 1) if old_views else -1
        classes.append(ProposedClass(view, _take_result_id(reader), reader.number(MAX_LTS), _take_places(reader, size)))
    groups = tuple([_take_places(reader, size) for _ in range(reader.count(MAX_DAEMONS))])
    for name, parts in (("classes", [each.members for each in classes]), ("roster groups", list(groups))):
        if sorted([place for part in parts for place in part]) != list(range(size)):
            raise WireError(f"{name} that are no division of the members")
    own, stable = reader.number(len(classes) - 1), reader.number(MAX_LTS)
    remainder = _take_remainder(reader) if reader.flag() else None
    holders = []
    for _ in range(reader.count(MAX_ENTRIES, 4)):
        site, first, count = reader.number(MAX_SITES - 1), reader.number(), reader.number(MAX_ENTRIES, 1)
        holders.append(HolderRun(site, first, count, _take_places(reader, size)))
    reader.end()
    return ComponentProposal(
        me,
        ballot,
        counter,
        first_lts,
        members,
        left_out,
        old_views,
        tuple(classes),
        groups,
        own,
        stable,
        remainder,
        tuple(holders),
    )


# ACCEPTED, INSTALL, FETCH


def encode_vote(vote: RoundVote) -> bytes:
    return pack_numbers([*vote.me, *vote.ballot])


def decode_vote(body: bytes | memoryview) -> RoundVote:
    reader = NumberReader(body)
    vote = RoundVote(_take_life(reader), _take_ballot(reader))
    reader.end()
    return vote


def encode_fetch(fetch: Fetch) -> bytes:
    numbers = [*fetch.me, len(fetch.runs)]
    for run in fetch.runs:
        numbers += run
    return b"\0" + pack_numbers(numbers)


def encode_fetched(fetched: Fetched) -> bytes:
    head = pack_numbers([*fetched.me, fetched.site, fetched.seq])
    return bytes([len(head)]) + head + fetched.packet


def decode_fetch(body: bytes | memoryview) -> Fetch | Fetched:
    """A question, or an answer: the first byte is the size of the answer's head, and 0 for a question."""
    size = body[0] if len(body) else 0
    if not size:
        reader = NumberReader(body[1:])
        me = _take_life(reader)
        runs = [
            (reader.number(MAX_SITES - 1), reader.number(), reader.number(MAX_FETCH_RUN, 1))
            for _ in range(reader.count(MAX_FETCH, 3))
        ]
        reader.end()
        return Fetch(me, tuple(runs))
    reader = NumberReader(body[1 : 1 + size])
    me = _take_life(reader)
    site, seq = reader.number(MAX_SITES - 1), reader.number()
    reader.end()
    packet = bytes(body[1 + size :])
    if not 0 < len(packet) <= MAX_PACKET:
        raise WireError("a block that was fetched is empty or too long")
    return Fetched(me, site, seq, packet)


# Pieces


def _put_lives(numbers: list[int], lives: Sequence[DaemonLife]) -> None:
    numbers.append(len(lives))
    for life in lives:
        numbers += life


def _take_life(reader: NumberReader) -> DaemonLife:
    return DaemonLife(reader.number(MAX_DAEMONS - 1), reader.number(MAX_LIFE))


def _take_members(reader: NumberReader) -> tuple[DaemonLife, ...]:
    """The members of a view: by index, and no index twice."""
    lives = tuple([_take_life(reader) for _ in range(reader.count(MAX_DAEMONS, 2))])
    if not lives or any(one.index >= other.index for one, other in pairwise(lives)):
        raise WireError("a view without members, or with members out of order")
    return lives


def _put_view(numbers: list[int], view: NamedView) -> None:
    numbers += [view.counter, *view.creator]
    _put_lives(numbers, view.members)


def _take_view(reader: NumberReader) -> NamedView:
    return NamedView(reader.number(), _take_life(reader), _take_members(reader))


def _put_mask(numbers: list[int], mask: int) -> None:
    indices = indices_of(mask)
    numbers.append(len(indices))
    numbers += indices


def _take_mask(reader: NumberReader) -> int:
    return mask_of([reader.number(MAX_DAEMONS - 1) for _ in range(reader.count(MAX_DAEMONS))])


def _put_lists(numbers: list[int], lists: Sequence[Sequence[int]]) -> None:
    numbers.append(len(lists))
    for each in lists:
        numbers.append(len(each))
        numbers += each


def _take_places(reader: NumberReader, size: int) -> tuple[int, ...]:
    """Indices of a list of members."""
    return tuple([reader.number(size - 1) for _ in range(reader.count(MAX_DAEMONS))])


def _take_ballot(reader: NumberReader) -> Ballot:
    return Ballot(reader.number(), reader.number(MAX_ID))


def _take_view_id(reader: NumberReader) -> ViewId:
    return ViewId(reader.number(), reader.id())


def _put_result_id(numbers: list[int], name: ResultId) -> None:
    numbers += [*name.ballot, *name.view, name.part]


def _take_result_id(reader: NumberReader) -> ResultId:
    return ResultId(_take_ballot(reader), _take_view_id(reader), reader.number(MAX_DAEMONS))


def _put_maybe_result_id(numbers: list[int], name: ResultId | None) -> None:
    numbers.append(int(name is not None))
    if name is not None:
        _put_result_id(numbers, name)


def _take_maybe_result_id(reader: NumberReader) -> ResultId | None:
    return _take_result_id(reader) if reader.flag() else None


class _Sorts:
    """Rank, origin and mask of blocks, each combination once: a block names one of them."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[tuple[int, int, int], int] = {}

    def place(self, rank: int, origin: int, mask: int) -> int:
        return self._places.setdefault((rank, origin, mask), len(self._places))

    def put(self, numbers: list[int]) -> None:
        numbers.append(len(self._places))
        for sort in self._places:
            numbers += sort


def _take_sorts(reader: NumberReader) -> list[tuple[int, int, int]]:
    return [
        (reader.number(MAX_RANK), reader.number(MAX_ID), reader.number(MAX_ID))
        for _ in range(reader.count(MAX_ENTRIES, 3))
    ]


def _put_source(numbers: list[int], source: SourceCut, aru: int, sorts: _Sorts) -> None:
    numbers += [source.released, source.prefix, source.clock, aru, len(source.blocks)]
    seq, lts = source.released, 0
    for block in source.blocks:
        numbers += [block.seq - seq, block.lts - lts, sorts.place(block.rank, block.origin, block.mask)]
        seq, lts = block.seq, block.lts
    numbers.append(len(source.skips))
    first, lts = source.released, 0
    for skip in source.skips:
        safe = skip.lts - skip.safe + 1 if skip.safe else 0
        place = sorts.place(0, 0, skip.mask)
        numbers += [folded(skip.first - first), skip.upto - skip.first, folded(skip.lts - lts), place, safe]
        first, lts = skip.first, skip.lts
    numbers.append(len(source.promises))
    for promise in source.promises:
        numbers += promise


def _take_source(
    reader: NumberReader, site: int, sorts: list[tuple[int, int, int]], left: int
) -> tuple[SourceCut, int]:
    """`left`: how many more entries a cut may have."""
    released, prefix, clock, aru = reader.number(), reader.number(), reader.number(MAX_LTS), reader.number(MAX_LTS)
    number, last = reader.number, len(sorts) - 1
    blocks = []
    seq, lts = released, 0
    for _ in range(reader.count(left, 3)):
        seq += number(MAX_NUMBER, 1)
        lts += number(MAX_NUMBER, 1)
        blocks.append(Listed(seq, lts, *sorts[number(last)]))
    skips = []
    first, lts_of_skip = released, 0
    for _ in range(reader.count(left - len(blocks), 5)):
        first += reader.signed()
        upto = first + number()
        lts_of_skip += reader.signed()
        mask, safe = sorts[number(last)][2], number()
        if first < 0 or not 0 <= lts_of_skip <= MAX_LTS or upto > MAX_NUMBER or safe > lts_of_skip:
            raise WireError("a SKIP out of range")
        skips.append(Skip(first, upto, lts_of_skip, mask, lts_of_skip - safe + 1 if safe else 0))
    promises = tuple([(number(), number(MAX_LTS)) for _ in range(reader.count(MAX_PROMISES, 2))])
    if seq > MAX_NUMBER or lts > MAX_LTS or prefix < released:
        raise WireError("a stream out of range")
    return SourceCut(site, released, prefix, clock, tuple(blocks), tuple(skips), promises), aru


def _put_remainder(numbers: list[int], remainder: Remainder) -> None:
    """Blocks in the order of positions. What is the same for many is named once, with the site in the place of a rank
    of its own: `site << 8 | rank`."""
    sorts = _Sorts()
    streams: list[int] = []
    lts, last = 0, dict.fromkeys(range(MAX_SITES), 0)
    for due in (*remainder.before, *remainder.after):
        place = sorts.place(due.site << 8 | due.rank, due.origin, due.mask)
        streams += [due.lts - lts, place, folded(due.seq - last[due.site])]
        lts, last[due.site] = due.lts, due.seq
    sorts.put(numbers)
    numbers += [len(remainder.before), len(remainder.after), *streams]


def _take_remainder(reader: NumberReader) -> Remainder:
    number = reader.number
    sorts = [(number(MAX_SITES << 8), number(MAX_ID), number(MAX_ID)) for _ in range(reader.count(MAX_ENTRIES, 3))]
    before, after = number(MAX_ENTRIES), number(MAX_ENTRIES)
    dues = []
    lts, last = 0, dict.fromkeys(range(MAX_SITES + 1), 0)
    for _ in range(before + after):
        lts += number()
        both, origin, mask = sorts[number(len(sorts) - 1)]
        site = both >> 8
        last[site] += reader.signed()
        if last[site] < 0 or last[site] > MAX_NUMBER or site >= MAX_SITES:
            raise WireError("a block of a remainder out of range")
        dues.append(Due(lts, site, last[site], both & 0xFF, origin, mask))
    if lts > MAX_LTS or any(one[:2] >= other[:2] for one, other in pairwise(dues)):
        raise WireError("a remainder out of order")
    return Remainder(tuple(dues[:before]), tuple(dues[before:]))
