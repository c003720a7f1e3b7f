"""`ordercast record`: a member that writes every ordered message of a group to an archive (docs/guides/archive.md)."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ordercast.archive.errors import ArchiveFull
from ordercast.archive.log import FSYNCS, INTERVAL_MS, ArchiveLog, LogConfig
from ordercast.archive.recorder import PATIENCE_S, WHEN_FULL, ArchiveRecorder
from ordercast.cli.arguments import decimal, group_name, whole
from ordercast.cli.choices import add_orderer
from ordercast.cli.progress import Progress
from ordercast.errors import NotMember, OrdercastError, UsageError
from ordercast.runtime.addresses import parse_bind, parse_peer
from ordercast.runtime.node import Node
from ordercast.runtime.node import run as run_loop
from ordercast.sim.scenario import check_anticipate

HELP: Final = "record a group: every ordered message, with its position, to files"
DESCRIPTION: Final = (
    "Joins GROUP, or creates it, and writes every message that has a position (AGREED or stronger) to segment files "
    "in DIR, until it is interrupted. Started again on the same folder, it continues where it stopped and fetches "
    "what it missed from other recorders of the group. Positions that no recorder has become a hole, which is "
    "reported. If the group was created anew, a new epoch begins in the same folder."
)
EXAMPLES: Final = """examples:
  ordercast record orders --out /var/lib/orders
      record until Ctrl-C or SIGTERM
  ordercast record orders --out ./orders --fsync always
      nothing counts as recorded before it is on the disk
  ordercast record orders --out ./orders --keep-bytes 10G --keep-age 7d
      remove whole segments, the oldest first, beyond ten gigabytes or a week
  ordercast record orders --out ./orders --when-full wait
      on a full disk wait for room, and let the group wait, instead of leaving it"""

BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
STATUS_S: Final = 0.2
MAX_INTERVAL_MS: Final = 3_600_000
MAX_PATIENCE_S: Final = 86_400.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast record`."""
    parser.description = DESCRIPTION
    parser.add_argument("group", type=group_name, metavar="GROUP", help="the group's name")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the archive's folder, its own")
    parser.add_argument(
        "--fsync",
        choices=FSYNCS,
        default="interval",
        help="when what was recorded is on the disk: before it counts as recorded (always), every --fsync-interval "
        "(interval), or when the system likes (never); a killed recorder loses nothing with any (interval)",
    )
    parser.add_argument(
        "--fsync-interval",
        default=INTERVAL_MS,
        metavar="MS",
        type=whole(1, MAX_INTERVAL_MS),
        help=f"milliseconds ({INTERVAL_MS})",
    )
    parser.add_argument("--segment-bytes", default="64M", metavar="SIZE", help="size of a segment file (64M)")
    parser.add_argument("--keep-bytes", default="0", metavar="SIZE", help="what to keep, as 10G; 0: everything (0)")
    parser.add_argument("--keep-age", default="0", metavar="TIME", help="how long to keep it, as 12h; 0: forever (0)")
    parser.add_argument(
        "--when-full",
        choices=WHEN_FULL,
        default="stop",
        help="on a full disk leave the group and end (stop), or wait for room and let the group wait (wait) (stop)",
    )
    parser.add_argument(
        "--patience",
        type=decimal(0, MAX_PATIENCE_S),
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"how long to look for other recorders before what was missed becomes a hole ({PATIENCE_S:g})",
    )
    parser.add_argument(
        "--refill", action="store_true", help="where segment files are missing, fetch them from other recorders"
    )
    parser.add_argument(
        "--new-epoch", action="store_true", help="the group was created anew: go on behind what is in the archive"
    )
    add_orderer(parser)
    add_node(parser)
    parser.add_argument("--json", action="store_true", help="print what was recorded as one JSON document at the end")


def add_node(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where this member is and how it finds the others."""
    parser.add_argument("--name", default=None, help="this member's name (made of host and process)")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="of the interface (127.0.0.1)")
    parser.add_argument(
        "--data-dir", type=Path, default=None, metavar="DIR", help="keeps what the node has promised over a restart"
    )
    parser.add_argument("--peers", nargs="+", default=[], metavar="HOST:PORT", help="other nodes, without multicast")
    parser.add_argument(
        "--insecure", action="store_true", help="allow another interface than loopback: nothing is encrypted yet"
    )


def node_of(args: argparse.Namespace) -> Node:
    """The node that the flags ask for; inside a running loop."""
    host, port = parse_bind(args.host)
    peers = [parse_peer(peer) for peer in args.peers]
    return Node(args.name, host, port, peers, insecure=args.insecure, data_dir=args.data_dir)


def size_of(text: str, word: str) -> int:
    """Bytes, as in 64M."""
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{word} is a size such as 64M or 10G, not {text!r}")
    return int(match[1]) * BYTES[match[2].upper()]


def seconds_of(text: str, word: str) -> int:
    """Seconds, as in 12h."""
    match = re.fullmatch(r"(\d+)([smhdw]?)", text.strip())
    if match is None:
        raise UsageError(f"{word} is a time such as 90s, 30m, 12h or 7d, not {text!r}")
    return int(match[1]) * SECONDS[match[2]]


def run(args: argparse.Namespace) -> int:
    """Record until a signal."""
    config = LogConfig(
        fsync=args.fsync,
        interval_ms=args.fsync_interval,
        segment_bytes=size_of(args.segment_bytes, "--segment-bytes"),
        keep_bytes=size_of(args.keep_bytes, "--keep-bytes"),
        keep_age_ns=seconds_of(args.keep_age, "--keep-age") * 1_000_000_000,
        refill=args.refill,
    )
    anticipate = check_anticipate(args.orderer, args.anticipate)
    progress = Progress()
    log = ArchiveLog.open(args.out, args.group, config)
    try:
        code, recorder = run_loop(_record(args, log, anticipate, progress))
    finally:
        progress.close()
        log.close()
    tally = recorder.tally
    if args.json:
        fields = {name: getattr(tally, name) for name in tally.__slots__}
        print(json.dumps({"group": log.group, "archive": str(args.out), "stop": recorder.position, **fields}, indent=2))
    else:
        print("\n".join(_summary(args.out, recorder)))
    return code


async def _record(
    args: argparse.Namespace, log: ArchiveLog, anticipate: bool, progress: Progress
) -> tuple[int, ArchiveRecorder]:
    join: dict[str, Any] = {"orderer": args.orderer, "anticipate": anticipate}
    async with node_of(args) as node:
        how: dict[str, Any] = {"when_full": args.when_full, "patience_s": args.patience, "new_epoch": args.new_epoch}
        recorder = ArchiveRecorder(node, log, say=progress.note, join=join, **how)
        recording = asyncio.create_task(recorder.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _on_signal, recorder, recording)
        began_s, shown = monotonic(), None
        try:
            while not recording.done():
                await asyncio.wait([recording], timeout=STATUS_S)
                state = (recorder.tally.recorded, recorder.position, recorder.is_catching_up)
                if state != shown:  # a service's log is not filled by a quiet group
                    _show(progress, recorder, monotonic() - began_s)
                    shown = state
            await recording
        except asyncio.CancelledError:
            return 0, recorder  # told to stop before it had joined
        except UsageError:
            raise
        except ArchiveFull as error:
            progress.note(
                f"ordercast record: {error.strerror}. What was recorded up to position {recorder.position - 1} is kept "
                "and whole; make room and start the recorder again, it goes on there"
            )
            return 1, recorder
        except (NotMember, OrdercastError, TimeoutError) as error:
            progress.note(f"ordercast record: {error}; what was recorded is kept, start the recorder again to go on")
            return 1, recorder
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
    return 0, recorder


def _on_signal(recorder: ArchiveRecorder, recording: asyncio.Task[None]) -> None:
    if recorder.group is None or recorder.is_stopping:
        recording.cancel()  # nothing to leave yet; or asked for a second time
    else:
        recorder.stop()


def _show(progress: Progress, recorder: ArchiveRecorder, elapsed_s: float) -> None:
    tally, log = recorder.tally, recorder.log
    rate = tally.recorded / elapsed_s if elapsed_s else 0.0
    state = ", catching up" if recorder.is_catching_up else ""
    line = (
        f"{tally.recorded:,} messages recorded, next position {recorder.position:,}, {log.total_bytes / 1e6:,.1f} MB "
        f"in {len(log.segments)} segments, {rate:,.0f}/s{state}"
    )
    progress.live([line], line)


def _summary(folder: Path, recorder: ArchiveRecorder) -> list[str]:
    tally, log = recorder.tally, recorder.log
    first = log.first
    covered = (
        f"positions {first} to {recorder.position - 1}" if first is not None and log.stop != first else "nothing yet"
    )
    lines = [f"{tally.recorded:,} messages recorded in {folder}, which has {covered}"]
    if tally.caught_up:
        lines.append(f"{tally.caught_up:,} positions were caught up from other recorders")
    if tally.holes:
        lines.append(f"{tally.holes:,} positions are holes: no recorder had them")
    if log.gaps:
        spans = ", ".join(f"{begin} to {stop - 1}" for begin, stop in log.gaps)
        lines.append(f"positions {spans} are still to be caught up on: start the recorder again")
    if tally.weak:
        lines.append(f"{tally.weak:,} messages weaker than AGREED were passed over: they have no position")
    if tally.unreadable:
        lines.append(f"{tally.unreadable:,} messages of a faulty member were unreadable, as for every member")
    return lines
