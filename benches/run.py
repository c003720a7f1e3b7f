"""The matrix of `ordercast bench` as Markdown tables: one for each orderer, then goals beside what was measured.

    python benches/run.py [--orderer all] [--seconds 5] [--repeat 1] [--json FILE]

Rows of the token: all of four members sending 100 and 1000 bytes, AGREED and SAFE, groups of two and eight, datagrams
as on Ethernet. Rows of the sequencer: one and all senders, datagrams as on Ethernet, SAFE. Rows of the timestamps: as
of the token, some of them without anticipation, too. Of several repetitions the one with the median throughput is
shown. Exit code 1 if anything was lost or misordered; a missed goal is only told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Goal = tuple[str, str, str, bool]  # what, measured, asked, whether it is reached

CASES: dict[str, dict[str, str]] = {
    "token": {
        "100 B": "--members 4 --senders all --size 100",
        "100 B, SAFE": "--members 4 --senders all --size 100 --service SAFE",
        "1000 B": "--members 4 --senders all --size 1000",
        "1000 B, SAFE": "--members 4 --senders all --size 1000 --service SAFE",
        "100 B, 2 members": "--members 2 --senders all --size 100",
        "100 B, 8 members": "--members 8 --senders all --size 100",
        "100 B, 1400 B datagrams": "--members 4 --senders all --size 100 --datagram 1400",
        "1000 B, 1400 B datagrams": "--members 4 --senders all --size 1000 --datagram 1400",
        "100 B, 1 sender": "--members 4 --senders 1 --size 100",
    },
    "sequencer": {
        "100 B, 1 sender": "--members 4 --senders 1 --size 100",
        "100 B, all send": "--members 4 --senders all --size 100",
        "1000 B, 1 sender": "--members 4 --senders 1 --size 1000",
        "1000 B, all send": "--members 4 --senders all --size 1000",
        "100 B, 1 sender, 1400 B datagrams": "--members 4 --senders 1 --size 100 --datagram 1400",
        "1000 B, 1 sender, 1400 B datagrams": "--members 4 --senders 1 --size 1000 --datagram 1400",
        "100 B, 1 sender, SAFE": "--members 4 --senders 1 --size 100 --service SAFE",
    },
    "timestamp": {
        "100 B": "--members 4 --senders all --size 100",
        "100 B, no-anticipate": "--members 4 --senders all --size 100 --no-anticipate",
        "100 B, SAFE": "--members 4 --senders all --size 100 --service SAFE",
        "1000 B": "--members 4 --senders all --size 1000",
        "1000 B, no-anticipate": "--members 4 --senders all --size 1000 --no-anticipate",
        "100 B, 2 members": "--members 2 --senders all --size 100",
        "100 B, 8 members": "--members 8 --senders all --size 100",
        "100 B, 8 members, no-anticipate": "--members 8 --senders all --size 100 --no-anticipate",
        "100 B, 1400 B datagrams": "--members 4 --senders all --size 100 --datagram 1400",
        "1000 B, 1400 B datagrams": "--members 4 --senders all --size 1000 --datagram 1400",
        "100 B, 1 sender": "--members 4 --senders 1 --size 100",
        "100 B, 1 sender, no-anticipate": "--members 4 --senders 1 --size 100 --no-anticipate",
    },
}
COLUMNS = [
    "case",
    "messages/s",
    "all receivers/s",
    "MB/s",
    "CPU us",
    "floor/s",
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
GOAL_PER_S = 400_000
GOAL_MB_PER_S = 150
GOAL_SAFE = 0.6
GOAL_SINGLE_US = 300
GOAL_TIMESTAMP_PER_S = 250_000
SAME = 0.95  # of two throughputs, from which on one has not fallen behind the other


def bench(options: list[str]) -> Result:
    """One run in processes of its own; a run that could not be measured ends the matrix."""
    command = [sys.executable, "-m", "ordercast.cli.main", "bench", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    result: Result = json.loads(done.stdout) if done.stdout else {"error": f"exit code {done.returncode}"}
    if "error" in result:
        raise SystemExit(f"{' '.join(command)}: {result['error']}")
    return result


def all_receivers(result: Result) -> int:
    """What one receiver gets, times the number of receivers."""
    total: int = result["delivered_per_s"] * result["parameters"]["members"]
    return total


def row(name: str, result: Result) -> list[str]:
    loaded, single = result["latency_us"]["loaded"], result["latency_us"]["single"]
    ratio = result["ratio_to_floor"]
    return [
        name,
        f"{result['delivered_per_s']:,}",
        f"{all_receivers(result):,}",
        f"{result['mb_per_s']:g}",
        f"{result['cpu_us_per_delivery']:.2f}",
        f"{result['floor_per_s']:,}",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{result['per_message_api_per_s']:,}",
        f"{loaded['p50'] / 1e3:.1f} / {loaded['p99'] / 1e3:.1f}",
        f"{single['p50']:.0f} / {single['p99']:.0f}",
        str(result["lost"]),
        str(result["misordered"]),
        str(result["socket_drops"]),
        str(result["repairs"]),
        f"{result['memory_mb']['start']:.0f} -> {result['memory_mb']['end']:.0f}",
    ]


def goals_of_token(results: dict[str, Result]) -> list[Goal]:
    small, large = results["100 B"], results["1000 B"]
    safe = {
        size: results[f"{size} B, SAFE"]["delivered_per_s"] / results[f"{size} B"]["delivered_per_s"]
        for size in (100, 1000)
    }
    sums = [all_receivers(results[name]) for name in ("100 B, 2 members", "100 B", "100 B, 8 members")]
    rises = all(later >= SAME * earlier for earlier, later in pairwise(sums))
    single_us = small["latency_us"]["single"]["p50"]
    per_s, mb_per_s = small["delivered_per_s"], large["mb_per_s"]
    return [
        ("100 B, all of four send, each receiver", f"{per_s:,}/s", f"{GOAL_PER_S:,}/s", per_s >= GOAL_PER_S),
        ("1 KB, the same", f"{mb_per_s:g} MB/s", f"{GOAL_MB_PER_S} MB/s", mb_per_s >= GOAL_MB_PER_S),
        *(
            (f"SAFE by AGREED, {size} B", f"{ratio:.2f}", f"{GOAL_SAFE:g}", ratio >= GOAL_SAFE)
            for size, ratio in safe.items()
        ),
        ("AGREED, one at a time, p50", f"{single_us:.0f} us", f"under {GOAL_SINGLE_US} us", single_us < GOAL_SINGLE_US),
        ("all receivers of 2, 4, 8 members", ", ".join(f"{each:,}/s" for each in sums), "does not fall", rises),
    ]


def goals_of_timestamp(results: dict[str, Result]) -> list[Goal]:
    found = []
    for name in ("100 B", "100 B, no-anticipate"):
        per_s, lost = results[name]["delivered_per_s"], results[name]["lost"]
        is_reached = per_s >= GOAL_TIMESTAMP_PER_S and not lost
        asked = f"{GOAL_TIMESTAMP_PER_S:,}/s, 0 lost"
        found.append((f"{name}, all of four send, each receiver", f"{per_s:,}/s, {lost} lost", asked, is_reached))
    return found


GOALS = {"token": goals_of_token, "timestamp": goals_of_timestamp}


def print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the matrix of `ordercast bench`, print Markdown tables.")
    parser.add_argument("--orderer", default="all", choices=["all", *CASES], help="one, or all of them (all)")
    parser.add_argument("--seconds", default="5", help="of each run (5)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case; the median one is shown (1)")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write all results there")
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error(f"--repeat is at least 1, not {args.repeat}")
    everything: dict[str, dict[str, list[Result]]] = {}
    is_clean = True
    for orderer in CASES if args.orderer == "all" else (args.orderer,):
        shown: dict[str, Result] = {}
        everything[orderer] = {}
        print_row([f"{orderer}: {COLUMNS[0]}", *COLUMNS[1:]])
        print("|" + "---|" * len(COLUMNS), flush=True)
        for name, options in CASES[orderer].items():
            print(f"--- {orderer}: {name}", file=sys.stderr, flush=True)
            common = ["--orderer", orderer, "--seconds", args.seconds]
            results = [bench([*common, *options.split()]) for _ in range(args.repeat)]
            results.sort(key=lambda result: result["delivered_per_s"])
            everything[orderer][name] = results
            shown[name] = results[len(results) // 2]
            is_clean &= not any(result["lost"] or result["misordered"] for result in results)
            print_row(row(name, shown[name]))
        print(flush=True)
        if orderer in GOALS:
            print_row([f"{orderer}: goal", "measured", "asked", "reached"])
            print("|---|---|---|---|")
            for what, measured, asked, is_reached in GOALS[orderer](shown):
                print_row([what, measured, asked, "yes" if is_reached else "**no**"])
            print(flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
