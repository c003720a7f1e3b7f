"""How fast an archive is written and read: `python benches/archive.py [--rows N] [--folder DIR]`; one JSON document."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, time_ns

from ordercast.archive.builder import FrameBuilder
from ordercast.archive.log import FSYNCS, ArchiveLog, LogConfig
from ordercast.archive.reader import Archive, Frame, to_arrow

BLOCK_MESSAGES = 500
VALUE_BYTES = 100


def fill(folder: Path, rows: int, blocks: int, fsync: str) -> None:
    """Write so many messages, in frames of so many blocks of two senders."""
    log = ArchiveLog.open(folder, "bench", LogConfig(fsync=fsync))  # type: ignore[arg-type]
    log.start(0)
    builder = FrameBuilder()
    lengths, values = [VALUE_BYTES] * BLOCK_MESSAGES, bytes(VALUE_BYTES * BLOCK_MESSAGES)
    at = 0
    while at < rows:
        for number in range(blocks):
            builder.add(at, "1@a/1", f"{'ab'[number % 2]}/1", at, "AGREED", time_ns(), 0, lengths, values)
            at += BLOCK_MESSAGES
        log.append(builder.seal(log.stop or 0))
    log.close()


def timed(rows: int, work: Callable[[], object]) -> dict[str, float]:
    """Million messages a second, by the clock and by this process's CPU time."""
    began_s, cpu_s = perf_counter(), process_time()
    work()
    wall_s, cpu_s = perf_counter() - began_s, process_time() - cpu_s
    return {"million_per_s": round(rows / wall_s / 1e6, 2), "million_per_cpu_s": round(rows / cpu_s / 1e6, 2)}


def read(folder: Path, take: Callable[[Frame], object], verify: bool) -> None:
    for frame in Archive(folder).frames(verify=verify):
        take(frame)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="messages of 100 bytes (2000000)")
    parser.add_argument("--folder", type=Path, default=None, help="where to write; what is there is removed")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="ordercast-bench-"))
    figures: dict[str, dict[str, float]] = {}
    try:
        for fsync in FSYNCS:
            for blocks in (1, 32):
                shutil.rmtree(folder, ignore_errors=True)
                rows = args.rows // (20 if fsync == "always" and blocks == 1 else 1)
                name = f"append, {blocks * BLOCK_MESSAGES} a frame, fsync {fsync}"
                figures[name] = timed(rows, lambda: fill(folder, rows, blocks, fsync))  # noqa: B023 - called at once
        to_arrow(next(Archive(folder).frames()))  # pyarrow is imported before the clock runs
        for blocks in (1, 32):
            shutil.rmtree(folder, ignore_errors=True)
            fill(folder, args.rows, blocks, "never")
            for verify in (True, False):
                name = f"read to Arrow, {blocks * BLOCK_MESSAGES} a frame, {'' if verify else 'not '}verified"
                figures[name] = timed(args.rows, lambda: read(folder, to_arrow, verify))  # noqa: B023 - called at once
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
