"""The node of a daemon and its sessions: what connects the passes of the one with the seats of the others."""

from __future__ import annotations

from ordercast.daemon.seat import Limits, Seats
from ordercast.errors import OrdercastError
from ordercast.runtime.node import Node


class Hub:
    """A node that is in a shared underlay, and the seats of its sessions there."""

    __slots__ = ("error", "node", "seats")

    def __init__(self, node: Node, underlay: str, limits: Limits | None = None) -> None:
        """The node has attached the underlay: sessions come and go, and it stays."""
        driver = node.driver
        config = next(port.engine.config for port in driver.host.session.places if port.underlay == underlay)
        self.node = node
        self.seats = Seats(driver.host, driver, underlay, config, limits)
        self.error: OrdercastError | None = None  # why the node has stopped
        driver.add_listener(self)

    def settle(self) -> None:
        """A pass has ended."""
        guests = self.node.take_guests()
        if guests:
            self.seats.settle_ports(guests)

    def fail(self, error: OrdercastError) -> None:
        """The node has stopped."""
        self.error = error
        self.seats.stop(str(error))
