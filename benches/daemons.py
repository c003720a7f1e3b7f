"""What the benches of daemons share: a configuration, daemons and clients as processes, and what those have used."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ordercast.cli.local_sites import LOOPBACK, free_ports
from ordercast.runtime.addresses import group_address

LIMIT_S = 120.0
FAST = "10000Mbit"


def configuration(title: str, count: int, sites: int = 1, rate: str = FAST) -> str:
    """So many daemons on loopback, in turn in so many sites, whose links have this rate."""
    lines = ["[defaults]", f'rate = "{rate}"', ""]
    for site in range(sites):
        host, port = group_address(f"{title}, site {site}")
        lines += ["[[site]]", f'name = "s{site}"', f'multicast = "{host}:{port}"', ""]
    for at, each in enumerate(free_ports(count)):
        lines += [
            "[[daemon]]",
            f'name = "d{at}"',
            f'site = "s{at % sites}"',
            f'host = "{LOOPBACK}"',
            f"port = {each}",
            "",
        ]
    return "\n".join(lines)


@contextmanager
def daemons(text: str, flags: Sequence[Sequence[str]], orderer: str = "sites") -> Iterator[Daemons]:
    """Daemons that are ready, one for each list of `flags`; they stop at the end."""
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-") as name:
        folder = Path(name)
        file = folder / "sites.toml"
        file.write_text(text, encoding="utf-8")
        processes = []
        for at, each in enumerate(flags):
            words = [
                sys.executable,
                "-m",
                "ordercast.cli.main",
                "daemon",
                "--listen",
                "none",
                "--name",
                f"d{at}",
                "--json",
            ]
            words += [str(file)] if orderer == "sites" else ["--orderer", orderer]
            words += [word.replace("{folder}", str(folder)) for word in each]
            log = (folder / f"d{at}.log").open("w", encoding="utf-8")
            processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True))
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline(), "a daemon did not start"
            yield Daemons(folder, processes)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=30)
                if process.stdout is not None:
                    process.stdout.close()


class Daemons:
    """Processes that are ready."""

    def __init__(self, folder: Path, processes: list[subprocess.Popen[str]]) -> None:
        self.folder = folder
        self.processes = processes

    def address(self, at: int) -> str:
        """Where native clients connect, if the daemon has the socket `UNIX` names."""
        return f"unix:{self.folder / f'd{at}.sock'}"

    @property
    def cpu_s(self) -> float:
        return sum([cpu_of(each.pid) for each in self.processes])


def unix(at: int) -> list[str]:
    """The flags of a daemon with a socket for native clients."""
    return ["--unix", f"{{folder}}/d{at}.sock"]


def cpu_of(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_of(pid: int) -> int:
    """Bytes that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


def run_clients(script: str, words: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What client processes print: `script` is started with each list of words."""
    clients = [subprocess.Popen([sys.executable, script, *each], stdout=subprocess.PIPE, text=True) for each in words]
    try:
        return [json.loads(each.communicate(timeout=LIMIT_S)[0]) for each in clients]
    finally:
        for each in clients:
            each.kill()


def throughput(
    script: str, args: argparse.Namespace, house: Daemons, client: Callable[[int], str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One client process for each daemon, which `--client` tells where it is: the table, and what each printed."""
    before, count = house.cpu_s, len(house.processes)
    flags = ["--daemons", str(count), "--size", str(args.size), "--messages", str(args.messages)]
    found = run_clients(script, [["--client", client(at), *flags] for at in range(count)])
    table = {
        "daemons": count,
        "size": args.size,
        "messages_each": args.messages,
        "per_receiver_per_s": min([each["per_s"] for each in found]),
        "client_cpu_s": round(sum([each["cpu_s"] for each in found]), 2),
        "daemon_cpu_s": round(house.cpu_s - before, 2),
        "wall_s": max([each["wall_s"] for each in found]),
    }
    return table, found


def parser_of(text: str | None, messages: int) -> argparse.ArgumentParser:
    """The flags of both benches."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--client", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--daemons", type=int, default=4, help="and as many clients (4)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message (100)")
    parser.add_argument("--messages", type=int, default=messages, help=f"that each client sends ({messages})")
    return parser
