"""Values of the formats of the membership service, fixed for ever, and what builds directories for tests."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.gms.directory import RegionDirectory
from ordercast.gms.state import EpochOutcome
from ordercast.membership.epochs import EpochNews
from ordercast.orderers.regions.given import GivenEpoch, GivenView, RegionGroups
from ordercast.view import Member, node_id
from ordercast.wire.gms import (
    Ask,
    EpochBatch,
    EpochOperation,
    NodeAnswer,
    NodeRequest,
    NodeStanding,
    Replica,
    Signature,
    Told,
    signature_of,
)

SERVICE = 0x1122334455667788
LEADER = "desk/1"


def member(name: str, life: int = 1, port: int = 0) -> Member:
    """A node of a test: its port comes of its name, where none is given."""
    return Member(node_id(name, life), name, life, ("10.0.0.1", port or 1_000 + sum(name.encode())), 4_096)


ALICE, BOB = member("alice"), member("bob")
REPLICA = Replica(SERVICE, 12, 0x99, ("10.0.0.9", 7_000), 0x98, ("10.0.0.8", 7_001))
REGISTER = NodeRequest(Ask.REGISTER, member=ALICE, is_back=True)
JOIN = NodeRequest(Ask.JOIN, service=SERVICE, signature=Signature(0x0102, 2), names=("fx", "news"))
SIGNED = NodeRequest(Ask.FOLLOW, service=SERVICE, signature=Signature(0x0102, 3))
LEAVE = NodeRequest(Ask.LEAVE, service=SERVICE, runs=((3, 5), (900, 901)))
CONFIRM = NodeRequest(Ask.CONFIRM, service=SERVICE, epoch=12)
EXCLUDE = NodeRequest(Ask.EXCLUDE, text="no answer")
PLACE = NodeRequest(Ask.PLACE, placed=(("alice", 3), ("bob", 3)), is_first=True)
NUMBERS = NodeAnswer(Told.NUMBERS, SERVICE, 12, numbers=((7, 9), (1, 4)))
REFUSED = NodeAnswer(Told.REFUSED, SERVICE, 12, text="no")
WAIT = NodeAnswer(Told.WAIT, SERVICE, 12, pages=3)
STANDING = NodeStanding(SERVICE, 12)
BATCH = EpochBatch(13, LEADER, (EpochOperation(ALICE.id, 2, CONFIRM), EpochOperation(0, 0, EXCLUDE)))
VIEW = GivenView(4, 0x77, 12, LEADER, ("239.195.224.1", 65_535), (ALICE, BOB), (0x66, 0x67))
NEWS = EpochNews(
    11,
    2,
    GivenEpoch(
        SERVICE,
        12,
        9,
        4,
        (VIEW, VIEW._replace(region=5, view=0x78, address=None, members=(BOB,), parents=())),
        (0x66,),
        (0x55,),
        (RegionGroups(4, ((1, 5),), ((7, 8), (9, 11))),),
        True,
        since=(11,),
    ),
)


class Clerk:
    """A directory, and requests that are put into it by name."""

    def __init__(self) -> None:
        self.directory = RegionDirectory()
        self.numbers: dict[int, int] = {}
        self.apply([EpochOperation(0, 0, NodeRequest(Ask.FOUND, service=SERVICE))])

    def apply(self, operations: Iterable[EpochOperation]) -> EpochOutcome:
        outcome = self.directory.apply(EpochBatch(self.directory.epoch + 1, LEADER, tuple(operations)))
        assert outcome is not None
        return outcome

    def operation(self, node: Member, request: NodeRequest) -> EpochOperation:
        number = self.numbers[node.id] = self.numbers.get(node.id, 0) + 1
        return EpochOperation(node.id, number, request)

    def register(self, *nodes: Member, is_back: bool = False) -> EpochOutcome:
        requests = [(node, NodeRequest(Ask.REGISTER, member=node, is_back=is_back)) for node in nodes]
        return self.apply([self.operation(node, request) for node, request in requests])

    def joining(self, node: Member, *names: str, what: Ask = Ask.JOIN) -> EpochOperation:
        listed = tuple(sorted(names))
        return self.operation(node, NodeRequest(what, signature=signature_of(listed), names=listed))

    def join(self, node: Member, *names: str) -> EpochOutcome:
        return self.apply([self.joining(node, *names)])

    def follow(self, node: Member, *names: str) -> EpochOutcome:
        return self.apply([self.joining(node, *names, what=Ask.FOLLOW)])

    def leave(self, node: Member, *names: str) -> EpochOutcome:
        runs = sorted([(self.directory.names.number(name), self.directory.names.number(name) + 1) for name in names])
        return self.apply([self.operation(node, NodeRequest(Ask.LEAVE, runs=tuple(runs)))])

    def exclude(self, *nodes: Member) -> EpochOutcome:
        return self.apply([EpochOperation(node.id, 0, EXCLUDE) for node in nodes])

    def confirm(self, *nodes: Member, epoch: int | None = None) -> EpochOutcome:
        request = NodeRequest(Ask.CONFIRM, epoch=self.directory.epoch if epoch is None else epoch)
        return self.apply([EpochOperation(node.id, 0, request) for node in nodes])

    def region_of(self, node: Member) -> int:
        state = self.directory.node(node.id)
        assert state is not None
        return state.region

    def view_of(self, node: Member) -> GivenView:
        return self.directory.regions[self.region_of(node)].view
