"""The wide area between the sites of `chaos.py`: one process that carries IP packets, delayed, with losses and cuts.

    ip netns exec ocwan python benches/wan.py      (orders on standard input, one JSON object a line)

It has one tunnel device for each site (`wan1`, `wan2`, …), which `netns_sites.sh` moves into the site's namespace. A
packet that a site sends to 10.78.S.x comes out of the sender's device, waits for the latency of the pipe, and goes into
the device of site S. The kernel cuts trains of datagrams up before it hands them to a tunnel, so that each datagram has
its own fate, as on a line. Packets of one pipe stay in order. What comes while the pipe is cut is dropped without a
word, as by a line that is dead.

It ends with its standard input.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
from collections import deque
from random import Random
from time import monotonic
from typing import Any, Final

TUNSETIFF: Final = 0x400454CA
IFF_TUN: Final = 0x0001
IFF_NO_PI: Final = 0x1000
MTU: Final = 65_536
READS: Final = 64  # packets of one device in a pass
MAX_QUEUED: Final = 4_096  # packets of one pipe that are on their way; the rest is dropped, as by a router
SITES: Final = 3


def open_tunnel(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


class Pipe:
    """One direction between two sites."""

    __slots__ = ("counts", "latency_s", "queue")

    def __init__(self) -> None:
        self.latency_s = 0.0
        self.queue: deque[tuple[float, bytes]] = deque()  # with the time at which each is due
        self.counts = {"carried": 0, "lost": 0, "cut": 0, "full": 0}


class Wan:
    __slots__ = ("_chance", "_devices", "_is_cut", "_loss", "_orders", "_pipes")

    def __init__(self) -> None:
        self._devices = {site: open_tunnel(f"wan{site}") for site in range(1, SITES + 1)}
        self._pipes = {(a, b): Pipe() for a in self._devices for b in self._devices if a != b}
        self._is_cut: set[tuple[int, int]] = set()
        self._loss = 0.0
        self._chance = Random()
        self._orders = b""

    def run(self) -> None:
        tell("up")
        sources = {device: site for site, device in self._devices.items()}
        poller = select.poll()
        for device in (*sources, sys.stdin.fileno()):
            poller.register(device, select.POLLIN)
        while True:
            due_s = min((pipe.queue[0][0] for pipe in self._pipes.values() if pipe.queue), default=None)
            wait_ms = None if due_s is None else max(0.0, (due_s - monotonic()) * 1e3)
            for device, _ in poller.poll(wait_ms):
                if device in sources:
                    self._take(sources[device], device)
                elif not self._obey():
                    return
            self._deliver()

    def _take(self, source: int, device: int) -> None:
        now_s = monotonic()
        for _ in range(READS):
            try:
                packet = os.read(device, MTU)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4 or packet[16:18] != b"\x0a\x4e":
                continue  # not of our addresses: IPv6 looks for its neighbours
            target = packet[18]
            pipe = self._pipes.get((source, target))
            if pipe is None:
                continue
            if (source, target) in self._is_cut:
                pipe.counts["cut"] += 1
            elif self._chance.random() < self._loss:
                pipe.counts["lost"] += 1
            elif len(pipe.queue) >= MAX_QUEUED:
                pipe.counts["full"] += 1
            else:
                pipe.counts["carried"] += 1
                pipe.queue.append((now_s + pipe.latency_s, packet))

    def _deliver(self) -> None:
        now_s = monotonic()
        for (_, target), pipe in self._pipes.items():
            queue, device = pipe.queue, self._devices[target]
            while queue and queue[0][0] <= now_s:
                try:
                    os.write(device, queue.popleft()[1])
                except OSError:  # its namespace is about to go
                    pipe.counts["full"] += 1

    def _obey(self) -> bool:
        """Orders that have come; whether there may be more."""
        data = os.read(sys.stdin.fileno(), 65_536)
        *lines, self._orders = (self._orders + data).split(b"\n")
        for line in lines:
            self._follow(json.loads(line))
        return bool(data)

    def _follow(self, order: dict[str, Any]) -> None:
        match order["is"]:
            case "latency":
                for a, b, latency_s in order["pipes"]:
                    self._pipes[a, b].latency_s = self._pipes[b, a].latency_s = latency_s
            case "lose":
                self._loss = order["loss"]
            case "cut":
                self._is_cut = {(a, b) for a, b in order["pipes"]}
                for pair in self._is_cut:
                    self._pipes[pair].queue.clear()
        tell("done", counts={f"{a}>{b}": pipe.counts for (a, b), pipe in self._pipes.items()})


def tell(word: str, **fields: Any) -> None:
    print(json.dumps({"is": word, **fields}), flush=True)


if __name__ == "__main__":
    Wan().run()
