"""What an EPOCH says to one node, as bytes: what changed for it, or all that it has to know (docs/design/gms.md).

Not in `wire/`: the types of epochs stand above that room (`orderers/regions/given.py`). An address of a view is one
byte that says whether there is one, and then as everywhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.errors import InvariantViolation, WireError
from ordercast.orderers.regions.given import GivenEpoch, GivenView, RegionGroups
from ordercast.view import Address
from ordercast.wire.codec import Reader, Writer
from ordercast.wire.gms import Buffer, read_runs, write_runs
from ordercast.wire.regions import MAX_REGION_MEMBERS
from ordercast.wire.views import decode_member, encode_address, encode_member, take_address

MAX_GIVEN_VIEWS: Final = 4_096  # of one epoch, for one node
MAX_NAMED: Final = 65_536  # views that ended, or nodes that are out
MAX_PARENTS: Final = 64
MAX_RUNS_GIVEN: Final = 1 << 20  # of all regions of one epoch together


class EpochNews(NamedTuple):
    """An epoch for one node. It holds for a node that has `since`, or any later one before it. `request`: the last of
    the node's requests that had been applied then."""

    since: int
    request: int
    epoch: GivenEpoch


def encode_news(news: EpochNews) -> bytes:
    epoch = news.epoch
    if len(epoch.views) > MAX_GIVEN_VIEWS or max(len(epoch.ended), len(epoch.excluded)) > MAX_NAMED:
        raise InvariantViolation(f"epoch {epoch.number} is too large to be told: {len(epoch.views)} views")
    writer = Writer().u64(news.since).u64(news.request).u64(epoch.service).u64(epoch.number).u64(epoch.settled)
    writer.u64(epoch.exclusions).u32(epoch.mine).u8(epoch.is_whole).u32(len(epoch.views))
    for view in epoch.views:
        _write_view(writer, view)
    for named in (epoch.ended, epoch.excluded, epoch.since):
        writer.u32(len(named))
        for each in named:
            writer.u64(each)
    writer.u32(len(epoch.groups))
    for groups in epoch.groups:
        writer.u32(groups.region)
        write_runs(writer, groups.added)
        write_runs(writer, groups.removed)
    return writer.bytes()


def decode_news(body: Buffer) -> EpochNews:
    reader = Reader(memoryview(body))
    since, request, service = reader.number(), reader.number(), reader.u64()
    number, settled, exclusions = reader.number(), reader.number(), reader.number()
    mine, is_whole = reader.u32(), reader.u8()
    if not service or max(settled, since, exclusions) > number or is_whole > 1:
        raise WireError("head of an epoch out of range")
    count = reader.count(40)
    if count > MAX_GIVEN_VIEWS:
        raise WireError("too many views in an epoch")
    views = tuple([_read_view(reader) for _ in range(count)])
    ended, excluded, since_epochs = _read_named(reader), _read_named(reader), _read_named(reader)
    if since_epochs and (len(since_epochs) != len(excluded) or max(since_epochs) > number):
        raise WireError("nodes that are out since no epoch that there was")
    groups = []
    left = MAX_RUNS_GIVEN
    for _ in range(reader.count(14)):
        region = reader.u32()
        added = read_runs(reader, is_rising=True, most=left)
        removed = read_runs(reader, is_rising=True, most=left - len(added))
        left -= len(added) + len(removed)
        groups.append(RegionGroups(region, added, removed))
    reader.end()
    epoch = GivenEpoch(
        *(service, number, settled, mine, views, ended, excluded, tuple(groups), bool(is_whole), exclusions),
        since_epochs,
    )
    return EpochNews(since, request, epoch)


def _read_named(reader: Reader) -> tuple[int, ...]:
    count = reader.count(8)
    if count > MAX_NAMED:
        raise WireError("too many views or nodes named in an epoch")
    return tuple([reader.u64() for _ in range(count)])


def _write_view(writer: Writer, view: GivenView) -> None:
    if len(view.members) > MAX_REGION_MEMBERS or len(view.parents) > MAX_PARENTS:
        raise InvariantViolation(f"view {view.id} of region {view.region} has too many members or parents")
    writer.u32(view.region).u64(view.view).u64(view.epoch).text(view.leader)
    write_maybe_address(writer, view.address)
    writer.u16(view.partition_members).u16(len(view.parents))
    for parent in view.parents:
        writer.u64(parent)
    writer.u32(len(view.members))
    for member in view.members:
        encode_member(writer, member)


def _read_view(reader: Reader) -> GivenView:
    region, view, epoch, leader = reader.u32(), reader.u64(), reader.number(), reader.text(MAX_NAMED)
    address = read_maybe_address(reader)
    partition_members, parents = reader.u16(), reader.u16()
    if not region or not view or not partition_members or parents > MAX_PARENTS:
        raise WireError("a region view without a name, or with too many parents")
    named = tuple([reader.u64() for _ in range(parents)])
    count = reader.count(20)
    if not 0 < count <= MAX_REGION_MEMBERS:
        raise WireError("a region view without members, or with too many")
    members = tuple([decode_member(reader) for _ in range(count)])
    if len({member.id for member in members}) != count:
        raise WireError("a region view with a member twice")
    return GivenView(region, view, epoch, leader, address, members, named, partition_members)


def write_maybe_address(writer: Writer, address: Address | None) -> None:
    writer.u8(address is not None)
    if address is not None:
        writer.raw(encode_address(address))


def read_maybe_address(reader: Reader) -> Address | None:
    has_address = reader.u8()
    if has_address > 1:
        raise WireError("a flag that is neither set nor clear")
    return take_address(reader) if has_address else None
