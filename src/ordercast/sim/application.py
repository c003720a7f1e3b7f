"""What all simulated applications share: payloads that tell whether they are whole, and a `Host` on a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ordercast.config import Timing
from ordercast.engine import Send
from ordercast.groups.directory import Directory
from ordercast.groups.engines import EngineFactory
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.sim.inspection import inspect
from ordercast.sim.world import Machine, World
from ordercast.trace.recorder import Recorder
from ordercast.view import Address

GROUP: Final = "sim"
"""The group that simulated applications are in, where nobody says another."""

PATTERN: Final = bytes(range(33, 127)) * 40
FULL_NAME_BYTES: Final = 40  # from this size on a payload holds its whole name


def payload(sender: str, number: int, size: int) -> bytes:
    """`size` bytes that name their sender and number, so that the receiver can tell whether they are whole."""
    name = f"{sender}:{number}:{size}|".encode()
    if size <= len(name):
        return name[:size]
    filling = size - len(name)
    return name + (PATTERN * (filling // len(PATTERN) + 1))[:filling]


def is_intact(data: bytes, sender: str) -> bool:
    """Whether a payload is what `sender` made; shorter ones than their name are judged by what there is of it."""
    if len(data) < FULL_NAME_BYTES:
        return sender.encode().startswith(data[: len(sender)]) or data.startswith(sender.encode())
    name, bar, _ = data[:FULL_NAME_BYTES].partition(b"|")
    parts = name.decode(errors="replace").split(":")
    if not bar or len(parts) != 3 or parts[0] != sender or not parts[1].isdigit():
        return False
    return data == payload(sender, int(parts[1]), len(data))


class HostStack:
    """A `Host` as the world sees it."""

    __slots__ = ("deadline_ns", "expire", "finish", "host", "receive", "unreachable")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.receive: Callable[[int, Address, memoryview, int], None] = host.receive
        self.expire: Callable[[int], None] = host.expire
        self.unreachable: Callable[[int, Address, bytes], None] = host.unreachable
        self.finish: Callable[[int], Sequence[tuple[str, Send]]] = host.finish
        self.deadline_ns: Callable[[], int] = host.deadline_ns

    def audience(self, underlay: str) -> Sequence[Address]:
        return self.host.audience(underlay)

    def copies(self, underlay: str) -> Sequence[Address]:
        return self.host.copies(underlay)

    def hears(self) -> frozenset[Address]:
        """Multicast addresses besides those of its underlays: of regions."""
        return self.host.attached.listens()

    def unrest(self) -> list[str]:
        texts: list[str] = []
        for port in self.host.ports:
            texts.extend(f"group {port.group!r}: {text}" for text in port_unrest(port))
        regions = self.host.attached.regions
        if regions is not None:
            texts.extend(f"regions: {text}" for text in regions.unrest())
        texts += [f"calls to {each.group!r} are under way" for each in self.host.callers if not each.is_at_rest]
        return texts


def port_unrest(port: Port) -> list[str]:
    """What one group of a node still has to do."""
    texts: list[str] = []
    if port.gone is not None:
        return texts
    if not port.engine.is_at_rest():
        texts.append(f"the engine is not at rest: {inspect(port.engine).describe()}")
    if port.queue.count:
        texts.append(f"{port.queue.count} messages wait to be sent")
    if port.has_events:
        texts.append("the application has not taken everything")
    if not port.is_member:
        texts.append("it is not a member")
    if not port.stream.label and not port.locks.is_at_rest:
        texts.append("a lock has been asked for, or given back")
    shared = port.channel.shared
    if shared is not None and not shared.is_at_rest:
        texts.append("the roster has not read all operations")
    if port.failure is not None:
        texts.append(f"the group has failed ({port.failure})")
    return texts


def boot_host(
    world: World,
    node: Machine,
    timing: Timing,
    engines: EngineFactory | None,
    directory: Directory | None = None,
) -> Host:
    """A new life begins on a node. `engines`: None for the real ones. `directory`: None for an underlay per group."""
    recorder = Recorder(None, node.name, node.life)
    node.recorders.append(recorder)
    host = Host(
        node.name,
        node.life,
        node.address,
        buffer_bytes=node.buffer_bytes,
        rng=world.stream(f"engine/{node.name}/{node.life}"),
        timing=timing,
        recorder=recorder,
        engines=engines,
        directory=directory,
        has_multicast=world.has_multicast(node),
        store=node.folder,
    )
    host.start(world.clock(node))
    return host
