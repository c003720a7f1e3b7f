"""The whole directory as bytes, for a replica that is new or was restarted (docs/design/gms.md).

JSON, compressed: it is read by replicas of the same service alone, and is mostly names. What the history of epochs says
is left out: nodes that are behind get snapshots from such a replica.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from ordercast.errors import WireError
from ordercast.gms.directory import RegionDirectory
from ordercast.gms.state import EndedViews, NodeState, RegionState
from ordercast.orderers.regions.given import GivenView
from ordercast.parts.runs import Runs, union
from ordercast.view import Address, Member
from ordercast.wire.gms import Signature

MAX_DUMP_BYTES: Final = 1 << 30  # of a dump before it was compressed; it could be a bomb
FORMAT: Final = 1


def dump(directory: RegionDirectory) -> bytes:
    """The same bytes for the same directory."""
    document = {
        "format": FORMAT,
        "service": directory.service,
        "epoch": directory.epoch,
        "settled": directory.settled,
        "names": directory.names.all,
        "sets": [[hex(each.xor), each.count, runs] for each, runs in directory.names.sets.items()],
        "plan": list(directory.plan.items()),
        "pool": directory.pool.state,
        "next_region": directory.next_region,
        "nodes": [_node(state) for state in directory.nodes.values()],
        "regions": [[region, state.label, state.groups] for region, state in directory.regions.items()],
        "current": [_view(state.view) for state in directory.regions.values()],
        "owed": [[node, epochs] for node, epochs in directory.owed.items()],
        "unsettled": [
            [each.epoch, [_view(view) for view in each.views], sorted(each.concerned), each.addresses]
            for each in directory.unsettled
        ],
        "gone": list(directory.gone.items()),
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


def load(body: bytes) -> RegionDirectory:
    """The directory that was dumped. Raises WireError where these are not the bytes of one."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(body, MAX_DUMP_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise WireError("a dump of the directory that is cut off, or too large")
        return _read(json.loads(data))
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise WireError(f"no dump of the directory: {error}") from error


def _read(document: dict[str, Any]) -> RegionDirectory:
    if document["format"] != FORMAT:
        raise WireError(f"a dump of the directory in format {document['format']}, not {FORMAT}")
    directory = RegionDirectory()
    directory.service = int(document["service"])
    directory.epoch = int(document["epoch"])
    directory.settled = int(document["settled"])
    names = document["names"]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise WireError("a dump with a name twice")
    directory.names.give(names)
    for xor, count, runs in document["sets"]:
        directory.names.remember(Signature(int(xor, 16), int(count)), _runs(runs))
    directory.plan = {str(name): int(label) for name, label in document["plan"]}
    taken, free = document["pool"]
    directory.pool.state = (int(taken), tuple([int(each) for each in free]))
    directory.next_region = int(document["next_region"])
    regions = {}
    for (region, label, groups), view in zip(document["regions"], document["current"], strict=True):
        regions[int(region)] = RegionState(_runs(groups), int(label), _read_view(view))
    nodes = [_read_node(each, regions) for each in document["nodes"]]
    directory.restore({state.member.id: state for state in nodes}, regions)
    directory.owed = {int(node): [int(epoch) for epoch in epochs] for node, epochs in document["owed"]}
    for epoch, views, concerned, addresses in document["unsettled"]:
        ended = tuple([_read_view(view) for view in views])
        places = tuple([_address(each) for each in addresses])
        directory.unsettled.append(EndedViews(int(epoch), ended, frozenset(map(int, concerned)), places))
    directory.gone = {int(node): int(epoch) for node, epoch in document["gone"]}
    return directory


def _node(state: NodeState) -> list[Any]:
    member, born, request, refusal, is_back, region, groups, follows, _, linger, leaving = state
    return [_member(member), born, request, refusal, is_back, region, groups, follows, linger, leaving]


def _read_node(fields: list[Any], regions: dict[int, RegionState]) -> NodeState:
    member, born, request, refusal, is_back, region, groups, follows, linger, leaving = fields
    own, followed = _runs(groups), _runs(follows)
    known = regions.get(region)
    if known is not None and known.groups == own:
        own = known.groups
    interest = union(own, followed)
    if interest == own:
        interest = own
    views = tuple([int(view) for view in linger])
    who = _read_member(member)
    return NodeState(who, born, request, refusal, is_back, region, own, followed, interest, views, leaving)


def _member(member: Member) -> list[Any]:
    return [
        member.id,
        member.name,
        member.life,
        member.address,
        member.buffer_bytes,
        member.has_multicast,
        member.ttl,
        member.min_members,
    ]


def _read_member(fields: list[Any]) -> Member:
    node, name, life, address, buffer_bytes, has_multicast, ttl, min_members = fields
    return Member(node, name, life, _address(address), buffer_bytes, has_multicast, ttl, min_members)


def _view(view: GivenView) -> list[Any]:
    members = [_member(member) for member in view.members]
    return [
        view.region,
        view.view,
        view.epoch,
        view.leader,
        view.address,
        members,
        view.parents,
        view.partition_members,
    ]


def _read_view(fields: list[Any]) -> GivenView:
    region, view, epoch, leader, address, members, parents, partition_members = fields
    listed = tuple([_read_member(member) for member in members])
    where = _address(address) if address is not None else None
    return GivenView(region, view, epoch, leader, where, listed, tuple(parents), partition_members)


def _address(value: Any) -> Address:
    host, port = value
    return str(host), int(port)


def _runs(value: Any) -> Runs:
    return tuple([(int(first), int(stop)) for first, stop in value])
