"""The seat of a shared underlay itself, over a base port in this process."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.api.local_seat import Driver, LocalSeat
from ordercast.errors import NotMember
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.service import Service


class LocalBase(LocalSeat):
    """A seat whose port is a session's place in an underlay. Its group is the underlay, for texts."""

    __slots__ = ()

    def __init__(self, host: Host, port: Port, driver: Driver) -> None:
        super().__init__(host, port, driver)
        self.watch = port.stream.watch  # messages to several groups

    @property
    def group(self) -> str:
        return self.port.underlay

    @property
    def groups(self) -> list[str]:
        return [name for name, port in self.port.stream.ports.items() if port.is_member and not port.is_leaving]

    @property
    def slow_groups(self) -> list[str]:
        return [name for name, port in self.port.stream.ports.items() if port.is_holding_up]

    def feed(self) -> None:
        self.port.stream.feed()

    def send_to(self, payload: bytes, service: Service, type_: int, groups: Sequence[str]) -> int:
        return self.port.stream.offer_to(groups, payload, service, type_)

    def offer_many_to(
        self, payloads: Sequence[bytes], service: Service, type_: int, lengths: list[int], groups: Sequence[str]
    ) -> int:
        ports = self._ports(groups)
        return self.port.queue.offer_many(payloads, service, type_, lengths, self.port, ports)

    def join_many(self, names: Sequence[str], header: bytes) -> PortsUnderway:
        ports = self._host.open_many(self.port, names, header)
        self._driver.wake()
        return PortsUnderway(ports, False)

    def leave_many(self, names: Sequence[str], header: bytes) -> PortsUnderway:
        ports = self._ports(list(dict.fromkeys(names)))
        for port in ports:
            self._host.leave(port, header)
        self._driver.wake()
        return PortsUnderway(ports, True)

    def leave_all(self) -> None:
        for port in [*self.port.stream.ports.values(), self.port]:
            self._host.leave(port)
        self._driver.wake()

    def _ports(self, names: Sequence[str]) -> list[Port]:
        ports = self.port.stream.ports
        try:
            found = [ports[name] for name in names]
        except KeyError as error:
            name = error.args[0]
            raise NotMember(
                f"this node is not in {name!r} on {self.port.underlay!r}: join it, or send(payload, groups=[{name!r}])"
            ) from None
        if not self.port.channel.leaving:
            return found
        leaving = next((port.group for port in found if port.is_leaving), None)
        if leaving is not None:
            raise NotMember(f"this node is leaving {leaving!r}: wait until it is out, and join it again")
        return found


class PortsUnderway:
    """Groups that are being joined, or left, together."""

    __slots__ = ("_are_leaving", "_done", "_ports")

    def __init__(self, ports: Sequence[Port], are_leaving: bool) -> None:
        self._ports = ports
        self._are_leaving = are_leaving
        self._done = 0  # the first of them are: they come to their end in their order, so that each is looked at once

    @property
    def is_over(self) -> bool:
        ports, are_leaving = self._ports, self._are_leaving
        while self._done < len(ports):
            port = ports[self._done]
            if port.gone is None and (are_leaving or port.view is None):
                return False
            self._done += 1
        return True

    def check(self) -> None:
        """Raise where a group has been left before it was joined."""
        for port in self._ports:
            if port.gone is not None and not self._are_leaving:
                raise NotMember(f"{port.group!r} was left before it was joined: {port.gone.text}")
