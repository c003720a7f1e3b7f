"""Daemons with one client of Spread each: `python benches/spread_clients.py [--size N] [--messages N]`.

All clients are in one group; each sends with AGREED as fast as it can, and receives what all send. They speak Spread's
client protocol on plain sockets. The rate is that of one receiver, which takes all bytes and makes a digest of them:
the bench fails if two receivers have not had the same bytes in the same order. One JSON document.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
from struct import pack, unpack
from time import perf_counter, process_time
from typing import Any

from daemons import configuration, daemons, parser_of, throughput

from ordercast.cli.local_sites import LOOPBACK, free_ports

AGREED = 0x10
JOIN = 0x01_0000
PLAIN = bytes.fromhex("80000080")
AT_ONCE = 50  # messages of one write
BUFFER = 1 << 18


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
        digest.update(buffer[: min(taken, wanted - got)])  # a client that is done may have left behind the last message
        got += taken
    wall = perf_counter() - started
    sender.join()
    rate = round(clients * count / wall)
    return {"per_s": rate, "wall_s": round(wall, 2), "cpu_s": process_time() - cpu, "digest": digest.hexdigest()}


def main() -> int:
    args = parser_of(__doc__, 100_000).parse_args()
    if args.client is not None:
        name, _, port = args.client.partition(":")
        print(json.dumps(client(int(port), name, args.daemons, args.size, args.messages)))
        return 0
    ports = free_ports(args.daemons)
    text = configuration("ordercast bench of Spread's clients", args.daemons)
    flags = [["--unix", "none", "--spread", f"{LOOPBACK}:{port}", "--spread-dir", "none"] for port in ports]
    with daemons(text, flags) as house:
        figures, found = throughput(__file__, args, house, lambda at: f"c{at}:{ports[at]}")
    if len({each["digest"] for each in found}) != 1:
        raise AssertionError("two clients have not received the same bytes in the same order")
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
