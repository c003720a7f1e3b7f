"""Sessions of two nodes that come and go at random, over one order without a network (docs/design/roster.md)."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.channels import make_host, pump
from tests.unit.fake_engine import Exchange, events

from ordercast.config import GroupConfig
from ordercast.groups.events import Batch
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.session import Session
from ordercast.service import AGREED
from ordercast.trace.recorder import Recorder
from ordercast.view import View, id_of

GROUPS = ("a", "b", "c")
LABELS = ("ann", "bob", "")
STEPS = 60


class Client:
    """One label of one node: what it sent, and what came to its present ports."""

    def __init__(self, host: Host, label: str) -> None:
        self.host = host
        self.label = label
        self.name = f"{label}@{host.me}" if label else str(host.me)
        self.session: Session | None = None if label else host.session
        self.sent: list[tuple[int, tuple[str, ...]]] = []  # by number: in the order in which it was offered
        self.seen: dict[Port, list[tuple[str, int, int]]] = {}
        self.views: dict[Port, list[View]] = {}

    @property
    def is_open(self) -> bool:
        return self.session is not None and not self.session.is_closed

    def step(self, rng: random.Random) -> None:
        if not self.is_open:
            if self.session is None or not self.session.streams:
                self.session = self.host.open_session(self.label)
            return
        assert self.session is not None
        group = rng.choice(GROUPS)
        ports = [port for port in self.session.ports.values() if not port.is_leaving]
        match rng.choice(("join", "join", "send", "send", "send", "send-to", "leave", "close")):
            case "join" if group not in self.session.ports:
                port = self.host.open(0, group, config=GroupConfig(), session=self.session, underlay="floor")
                self.seen[port], self.views[port] = [], []
            case "send" if ports:
                chosen = rng.choice(ports)
                number = chosen.offer(self.name.encode(), AGREED)
                self.sent.append((number, (chosen.group,)))
                self.host.touch(chosen)
            case "send-to" if ports and ports[0].view is not None:
                several = tuple(rng.sample(GROUPS, 2))
                self.sent.append((ports[0].stream.offer_to(several, self.name.encode(), AGREED), several))
                self.host.touch(ports[0])
            case "leave" if ports:
                self.host.leave(rng.choice(ports))
            case "close" if self.label:
                self.host.close_session(self.session)

    def take(self) -> None:
        for port, seen in self.seen.items():
            for event in events(port):
                if isinstance(event, Batch):
                    assert all(payload == event.sender.encode() for payload in event.messages), "whose it is, it says"
                    seen += [(each.sender, each.number, each.position) for each in event.each()]
                elif isinstance(event, View):
                    self.views[port].append(event)


def check_order(clients: list[Client]) -> None:
    order: dict[int, tuple[str, int]] = {}
    for client in clients:
        for seen in client.seen.values():
            positions = [position for _, _, position in seen]
            assert positions == sorted(set(positions))
            for sender, number, position in seen:
                assert order.setdefault(position, (sender, number)) == (sender, number)
    for client in clients:
        # A message that ends with its session before it was sent gives its number back.
        sent = [number for number, _ in client.sent]
        assert sent == sorted(sent), "one numbering for all its groups"
        assert set(sent) == set(range(max(sent, default=-1) + 1)), "without a hole"
        numbers = [number for _, (sender, number) in sorted(order.items()) if sender == client.name]
        assert numbers == sorted(set(numbers)), "FIFO, and nothing twice"


def check_views(clients: list[Client]) -> None:
    members: dict[str, tuple[str, ...]] = {}
    for client in clients:
        for port, views in client.views.items():
            for view in views:
                shown = tuple(map(str, view.members))
                assert members.setdefault(view.id, shown) == shown
                assert [member.id for member in view.members] == [id_of(name) for name in shown]
                assert client.name in view.came_with
                assert str(port.me) == client.name
            if views:
                assert views[0].came_with == (client.name,)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 32))
def test_sessions_agree_on_order_views_and_rosters(seed: int) -> None:
    rng = random.Random(seed)
    exchange = Exchange()
    recorders = [Recorder(None, name, 0) for name in "xy"]
    hosts = [make_host(exchange, recorder.node, recorder) for recorder in recorders]
    bases = [host.attach(0, "floor", config=GroupConfig()) for host in hosts]
    pump(*hosts)
    clients = [Client(host, label) for host in hosts for label in LABELS]
    for _ in range(STEPS):
        rng.choice(clients).step(rng)
        if rng.random() < 0.4:
            exchange.take_blocks = rng.choice((1, 2, 1 << 20))
            for host in hosts:
                host.finish(0)
        if rng.random() < 0.3:
            rng.choice(clients).take()
    exchange.take_blocks = 1 << 20
    for _ in range(3):
        pump(*hosts)
        for client in clients:
            client.take()
    check_order(clients)
    check_views(clients)
    rosters = [base.channel.shared.roster.groups for base in bases if base.channel.shared is not None]
    tables = [{name: (record.number, record.members) for name, record in groups.items()} for groups in rosters]
    assert tables[0] == tables[1]
    inside = {
        (group, client.host.me.id, client.label)
        for client in clients
        if client.session is not None
        for group in client.session.ports
    }
    assert inside == {(group, *key) for group, (_, members) in tables[0].items() for key in members}
    for client in clients:
        if client.session is not None and client.session.is_closed:
            assert client.session.streams == {}
    for recorder in recorders:
        rows = recorder.rows()
        for node in {row.node for row in rows}:
            submits = [row for row in rows if row.node == node and row.kind == "submit"]
            numbers = [
                number for row in submits for number in range(row.first or 0, (row.first or 0) + (row.count or 0))
            ]
            assert numbers == list(range(len(numbers)))
