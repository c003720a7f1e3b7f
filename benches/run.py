"""The matrix of `ordercast bench` as a Markdown table.

    python benches/run.py [--seconds 5] [--members 4] [--repeat 1] [--json FILE]

Rows: 100 and 1000 bytes, one and all senders, datagrams as on Ethernet, SAFE. Of several repetitions the one with the
median throughput is shown. Exit code 1 if anything was lost or misordered.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CASES: list[tuple[str, list[str]]] = [
    ("100 B, 1 sender", ["--size", "100", "--senders", "1"]),
    ("100 B, all send", ["--size", "100", "--senders", "all"]),
    ("1000 B, 1 sender", ["--size", "1000", "--senders", "1"]),
    ("1000 B, all send", ["--size", "1000", "--senders", "all"]),
    ("100 B, 1 sender, 1400 B datagrams", ["--size", "100", "--senders", "1", "--datagram", "1400"]),
    ("1000 B, 1 sender, 1400 B datagrams", ["--size", "1000", "--senders", "1", "--datagram", "1400"]),
    ("100 B, 1 sender, SAFE", ["--size", "100", "--senders", "1", "--service", "SAFE"]),
]
COLUMNS = [
    "case",
    "messages/s",
    "MB/s",
    "CPU us",
    "of floor",
    "per message/s",
    "loaded p50/p99 ms",
    "single p50/p99 us",
    "lost",
    "misordered",
    "drops",
    "repairs",
    "MB RSS",
]


def bench(options: list[str]) -> dict[str, Any]:
    """One run in processes of its own; a run that could not be measured ends the matrix."""
    command = [sys.executable, "-m", "ordercast.cli.main", "bench", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    result: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"error": f"exit code {done.returncode}"}
    if "error" in result:
        raise SystemExit(f"{' '.join(command)}: {result['error']}")
    return result


def row(name: str, result: dict[str, Any]) -> list[str]:
    loaded, single = result["latency_us"]["loaded"], result["latency_us"]["single"]
    return [
        name,
        f"{result['delivered_per_s']:,}",
        f"{result['mb_per_s']:g}",
        f"{result['cpu_us_per_delivery']:.2f}",
        f"{result['ratio_to_floor']:.2f}",
        f"{result['per_message_face_per_s']:,}",
        f"{loaded['p50'] / 1e3:.1f} / {loaded['p99'] / 1e3:.1f}",
        f"{single['p50']:.0f} / {single['p99']:.0f}",
        str(result["lost"]),
        str(result["misordered"]),
        str(result["socket_drops"]),
        str(result["repairs"]),
        f"{result['memory_mb']['start']:.0f} -> {result['memory_mb']['end']:.0f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the matrix of `ordercast bench`, print a Markdown table.")
    parser.add_argument("--seconds", default="5", help="of each run (5)")
    parser.add_argument("--members", default="4", help="member processes (4)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case; the median one is shown (1)")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write all results there")
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error(f"--repeat is at least 1, not {args.repeat}")
    everything: dict[str, list[dict[str, Any]]] = {}
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    is_clean = True
    for name, options in CASES:
        print(f"--- {name}", file=sys.stderr, flush=True)
        common = ["--seconds", args.seconds, "--members", args.members]
        results = [bench([*common, *options]) for _ in range(args.repeat)]
        results.sort(key=lambda result: result["delivered_per_s"])
        everything[name] = results
        is_clean &= not any(result["lost"] or result["misordered"] for result in results)
        print("| " + " | ".join(row(name, results[len(results) // 2])) + " |", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
