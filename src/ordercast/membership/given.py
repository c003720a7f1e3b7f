"""Views that are given: a membership service decides them, and nodes install them (QSM section 2.2).

What an engine of regions needs of whoever speaks with the service. The service is `ordercast.gms`; what it decides is
`ordercast.orderers.regions.given`; docs/design/regions.md has the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ordercast.engine import Outbox
from ordercast.orderers.regions.given import GivenEpoch
from ordercast.view import Address
from ordercast.wire.courier import Parcel
from ordercast.wire.regions import Accused
from ordercast.wire.segments import Datagram


class Attending(Enum):
    """How a node stands with the service."""

    SEARCHING = "no replica of the service answers"
    ASKING = "the service has not answered yet"
    IN = "the service knows this node"
    OUT = "the service has excluded this node, or is another one"
    LEFT = "this node has left"


class ServiceParcel(NamedTuple):
    """What is to go to a replica of the service, by the node's courier."""

    peer: int
    address: Address
    parcel: Parcel
    is_urgent: bool = True


class NumberedGroups(Protocol):
    """Names, numbers and regions of the groups that this node is in or sends to, as of the installed epoch."""

    def number(self, name: str) -> int:
        """The number of a group; 0: not known here."""

    def name(self, number: int) -> str:
        """The name of a group; empty: not known here."""

    def regions(self, number: int) -> tuple[int, ...]:
        """The regions that a group covers now, in rising order."""


class ViewSource(Protocol):
    """A node's side of the membership service: asks for groups, hears of epochs. The engine drives it, and its courier
    carries what `take_parcels` gives. Nothing here calls back."""

    @property
    def state(self) -> Attending: ...

    @property
    def table(self) -> NumberedGroups: ...

    def start(self, now_ns: int, out: Outbox) -> None:
        """Begin to look for the service; from OUT: come back as new, with all groups that were asked for."""

    def join(self, now_ns: int, names: Sequence[str]) -> None:
        """This node is to be a member of these groups."""

    def leave(self, now_ns: int, names: Sequence[str]) -> None:
        """And no longer of these."""

    def follow(self, now_ns: int, names: Sequence[str]) -> None:
        """It sends to these groups without being a member: it has to know their regions."""

    def depart(self, now_ns: int) -> None:
        """This node leaves all groups and the service, in order: `state` turns LEFT."""

    def pending(self) -> int:
        """Requests that the service has not answered."""

    def on_parcel(self, now_ns: int, sender: int, parcel: Parcel) -> None:
        """A parcel whose kind is one of the service's. Raises WireError where it is malformed."""

    def on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None:
        """A datagram of discovery, without courier. Raises WireError where it is malformed."""

    def installed(self, now_ns: int, epoch: int) -> None:
        """The engine has installed an epoch."""

    def confirm(self, now_ns: int, epoch: int) -> None:
        """Every lane that this epoch, or an earlier one, ended is closed or drained."""

    def accuse(self, now_ns: int, accused: Accused) -> None:
        """A node does not answer."""

    def take_parcels(self) -> list[ServiceParcel]: ...

    def take_epochs(self) -> list[GivenEpoch]:
        """In order; the engine installs each."""

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int: ...
