"""Hosts over a fake engine, driven pass by pass: what the tests of channels and of very many groups share."""

from __future__ import annotations

import random

from tests.unit.fake_engine import Exchange, events, fake
from tests.unit.shared_directory import SharedDirectory

from ordercast.config import GroupConfig
from ordercast.engine import Departed
from ordercast.groups.consumption import PORT_BYTES
from ordercast.groups.events import Batch, Message, PortEvent
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.session import Session
from ordercast.service import AGREED
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason, View

FLOOR = SharedDirectory("floor", "a", "b", "c")


def make_host(exchange: Exchange, name: str = "x", recorder: Recorder | None = None) -> Host:
    return Host(
        name,
        0,
        ("127.0.0.1", 1),
        buffer_bytes=1 << 20,
        rng=random.Random(1),
        recorder=recorder,
        engines=exchange,
        directory=FLOOR,
    )


def open_ports(host: Host, *groups: str, session: Session | None = None) -> list[Port]:
    ports = [host.open(0, group, config=GroupConfig(), session=session) for group in groups]
    host.finish(0)
    return ports


def run_pass(host: Host, now_ns: int = 0) -> None:
    for port in host.ports:
        host.touch(port)
    host.expire(now_ns)
    host.finish(now_ns)


def pump(*hosts: Host, now_ns: int = 0) -> None:
    for _ in range(20):
        for host in hosts:
            run_pass(host, now_ns)


def fill(host: Host, port: Port) -> None:
    """Have a port hold as much on its own account as it may."""
    events(port)
    port.offer(bytes(PORT_BYTES), AGREED)
    for _ in range(10):
        pump(host)
    assert port.held_bytes == PORT_BYTES
    assert not port.is_holding_up


def come_back(exchange: Exchange, host: Host, port: Port) -> None:
    """The node was excluded, and is the first of another ring."""
    fake(port).pending.append(Departed(wanted=False, returning=True, text="excluded"))
    pump(host)
    exchange.waiting.clear()
    exchange.install(Reason.CREATE, str(host.me), b"", [fake(port)])
    exchange.is_open = True
    pump(host)


def two_sessions(host: Host, *groups: str) -> tuple[list[Port], list[Port]]:
    """Ports of two sessions, ann and bob, in the same groups."""
    ann = open_ports(host, *groups, session=host.open_session("ann"))
    bob = open_ports(host, *groups, session=host.open_session("bob"))
    pump(host)
    return ann, bob


def messages(port: Port) -> list[Message]:
    return [message for event in events(port) if isinstance(event, Batch) for message in event.each()]


def views(found: list[PortEvent]) -> list[View]:
    return [event for event in found if isinstance(event, View)]


def attach(host: Host, session: Session) -> Port:
    return host.attach(0, "floor", config=GroupConfig(), session=session)
