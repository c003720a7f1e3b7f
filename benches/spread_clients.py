"""Daemons with one client of Spread each: `python benches/spread_clients.py [--size N] [--messages N]`.

All clients are in one group; each sends with AGREED as fast as it can, and receives what all send. They speak Spread's
client protocol on plain sockets. The rate is that of one receiver, which takes all bytes and makes a digest of them:
the bench fails if two receivers have not had the same bytes in the same order. One JSON document.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from struct import pack, unpack
from time import perf_counter, process_time
from typing import Any

from ordercast.cli.local_sites import LOOPBACK, free_ports
from ordercast.runtime.addresses import group_address

AGREED = 0x10
JOIN = 0x01_0000
PLAIN = bytes.fromhex("80000080")
AT_ONCE = 50  # messages of one write
BUFFER = 1 << 18
LIMIT_S = 120.0


def frame(type_: int, me: bytes, body: bytes) -> bytes:
    head = pack("<I", type_ | 0x8000_0080) + me.ljust(32, b"\0") + pack("<i", 1) + PLAIN + pack("<i", len(body))
    return head + b"bench".ljust(32, b"\0") + body


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = connection.recv(size - len(found))
        if not data:
            raise ConnectionError("the daemon has closed the connection")
        found += data
    return found


def client(port: int, name: str, clients: int, size: int, count: int) -> dict[str, Any]:
    """One client process: its figures, and the digest of what it has received."""
    connection = socket.create_connection((LOOPBACK, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(bytes((5, 0, 1, 1, len(name))) + name.encode())
    exactly(connection, 1 + len("NULL "))
    connection.sendall(b"NULL".ljust(90, b"\0"))
    exactly(connection, 4)
    me = exactly(connection, exactly(connection, 1)[0])
    connection.sendall(frame(JOIN, me, b""))
    members = 0
    while members < clients:
        head = exactly(connection, 48)
        (members,), (length,) = unpack("<i", head[36:40]), unpack("<i", head[44:48])
        exactly(connection, 32 * members + length)
    bodies = [(b"%b %d" % (me, number)).ljust(size, b".")[:size] for number in range(count)]
    messages = [frame(AGREED, me, body) for body in bodies]
    writes = [b"".join(messages[at : at + AT_ONCE]) for at in range(0, count, AT_ONCE)]
    sender = threading.Thread(target=lambda: [connection.sendall(data) for data in writes])
    digest, got, wanted = hashlib.blake2b(), 0, clients * count * len(messages[0])
    buffer = memoryview(bytearray(BUFFER))
    started, cpu = perf_counter(), process_time()
    sender.start()
    while got < wanted:
        taken = connection.recv_into(buffer)
        if not taken:
            raise ConnectionError(f"the daemon has closed the connection after {got} of {wanted} bytes")
        digest.update(buffer[:taken])
        got += taken
    wall = perf_counter() - started
    sender.join()
    rate = round(clients * count / wall)
    return {"per_s": rate, "wall_s": round(wall, 2), "cpu_s": process_time() - cpu, "digest": digest.hexdigest()}


def configuration(count: int) -> str:
    """One site with so many daemons on loopback."""
    host, port = group_address("ordercast bench of Spread's clients")
    lines = ["[defaults]", 'rate = "10000Mbit"', "", "[[site]]", 'name = "local"', f'multicast = "{host}:{port}"', ""]
    for at, each in enumerate(free_ports(count)):
        lines += ["[[daemon]]", f'name = "d{at}"', 'site = "local"', f'host = "{LOOPBACK}"', f"port = {each}", ""]
    return "\n".join(lines)


def start_daemons(folder: Path, ports: list[int]) -> list[subprocess.Popen[str]]:
    """Processes that are ready."""
    file = folder / "sites.toml"
    file.write_text(configuration(len(ports)), encoding="utf-8")
    processes = []
    for at, port in enumerate(ports):
        words = [sys.executable, "-m", "ordercast.cli.main", "daemon", str(file), "--name", f"d{at}", "--json"]
        words += ["--listen", "none", "--unix", "none", "--spread", f"{LOOPBACK}:{port}", "--spread-dir", "none"]
        log = (folder / f"d{at}.log").open("w", encoding="utf-8")
        processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline(), "a daemon did not start"
    return processes


def cpu_of(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(args: argparse.Namespace, ports: list[int], daemons: list[subprocess.Popen[str]]) -> dict[str, Any]:
    before = sum([cpu_of(each.pid) for each in daemons])
    clients = []
    for at, port in enumerate(ports):
        words = [sys.executable, __file__, "--client", f"c{at}:{port}", "--daemons", str(len(ports))]
        words += ["--size", str(args.size), "--messages", str(args.messages)]
        clients.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    try:
        found = [json.loads(each.communicate(timeout=LIMIT_S)[0]) for each in clients]
    finally:
        for each in clients:
            each.kill()
    if len({each["digest"] for each in found}) != 1:
        raise AssertionError("two clients have not received the same bytes in the same order")
    return {
        "daemons": len(ports),
        "size": args.size,
        "messages_each": args.messages,
        "per_receiver_per_s": min([each["per_s"] for each in found]),
        "client_cpu_s": round(sum([each["cpu_s"] for each in found]), 2),
        "daemon_cpu_s": round(sum([cpu_of(each.pid) for each in daemons]) - before, 2),
        "wall_s": max([each["wall_s"] for each in found]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--daemons", type=int, default=4, help="and as many clients (4)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message (100)")
    parser.add_argument("--messages", type=int, default=100_000, help="that each client sends (100000)")
    args = parser.parse_args()
    if args.client is not None:
        name, _, port = args.client.partition(":")
        print(json.dumps(client(int(port), name, args.daemons, args.size, args.messages)))
        return 0
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-") as name:
        ports = free_ports(args.daemons)
        daemons = start_daemons(Path(name), ports)
        try:
            figures = measure(args, ports, daemons)
        finally:
            for each in daemons:
                each.terminate()
            for each in daemons:
                each.wait(timeout=30)
                if each.stdout is not None:
                    each.stdout.close()
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
