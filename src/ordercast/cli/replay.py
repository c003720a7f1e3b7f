"""`ordercast replay`: print an archive, follow one that is being recorded, or send it into a group again."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from threading import Event
from time import monotonic, time_ns
from typing import Any, Final

from ordercast.api.group import Group
from ordercast.archive.errors import NoArchive
from ordercast.archive.reader import Archive, Frame, Loss, Record
from ordercast.cli.arguments import MAX_POSITION, group_name, whole
from ordercast.cli.choices import add_orderer
from ordercast.cli.progress import Progress
from ordercast.cli.record import add_node, node_of, seconds_of
from ordercast.errors import OrdercastError, UsageError
from ordercast.runtime.running import run as run_loop
from ordercast.service import parse_service
from ordercast.sim.scenario import SERVICES, check_anticipate

HELP: Final = "print an archive, follow it, or send it into a group again"
DESCRIPTION: Final = (
    "Reads the archive in DIR, which `ordercast record` writes, also while it is being written. Prints one line a "
    "message, or with --into sends the messages again, in their order, to a group."
)
EXAMPLES: Final = """examples:
  ordercast replay ./orders
      everything, one line a message: position, time (UTC), sender, its number, service, type if any, value
  ordercast replay ./orders --from 1000 --to 2000 --json
      positions 1000 to 1999, one JSON object a line
  ordercast replay ./orders --since 10m --follow
      the last ten minutes, and then what is recorded from now on
  ordercast replay ./orders --since 2026-03-01T12:00:00 --until 2026-03-01T13:00:00
      one hour, by the recorder's clock (UTC where no zone is given)
  ordercast replay ./orders --into orders-again
      send everything to another group"""

SHOWN_BYTES: Final = 64
JOIN_TIMEOUT_S: Final = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast replay`."""
    parser.description = DESCRIPTION
    parser.add_argument("archive", type=Path, metavar="DIR", help="the archive's folder")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from", dest="first", type=whole(0, MAX_POSITION), default=None, metavar="POS", help="begin at this position"
    )
    start.add_argument("--since", default=None, metavar="TIME", help="begin at this time, or so long ago (10m, 2h, 1d)")
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--to", dest="stop", type=whole(0, MAX_POSITION), default=None, metavar="POS", help="end before this position"
    )
    end.add_argument("--until", default=None, metavar="TIME", help="end before this time")
    parser.add_argument("--follow", action="store_true", help="go on with what is recorded, until interrupted")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--allow-loss", action="store_true", help="pass over what is not there, and say so; else end")
    parser.add_argument(
        "--into", type=group_name, default=None, metavar="GROUP", help="send the messages to this group instead"
    )
    add_orderer(parser)
    add_node(parser)


def run(args: argparse.Namespace) -> int:
    """Print or send."""
    if args.into is not None and args.json:
        raise UsageError("--json prints messages, --into sends them: choose one")
    archive = Archive(args.archive)
    bounds = archive.bounds()
    if bounds is None and not args.follow:
        raise NoArchive(f"{args.archive} holds no segment of an archive")
    first, stop = _range(args, archive)
    if first is not None and stop is not None and first > stop:
        raise UsageError(f"nothing to read: the first position, {first}, comes after the end, {stop}")
    progress = Progress()
    # A service ends by SIGTERM as a person does by Ctrl-C.
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    over = Event()
    frames = _frames(args, archive, first, stop, progress, over)
    try:
        if args.into is not None:
            return run_loop(_send(args, frames, first, stop, progress))
        return _print(args, frames, first, stop)
    except KeyboardInterrupt:
        if args.follow:
            return 0  # the only way in which it ends
        raise
    finally:
        signal.signal(signal.SIGTERM, former)
        over.set()
        progress.close()


def _range(args: argparse.Namespace, archive: Archive) -> tuple[int | None, int | None]:
    first, stop = args.first, args.stop
    if args.since is not None:
        first = archive.position_at(time_of(args.since, "--since"))
    if args.until is not None:
        stop = archive.position_at(time_of(args.until, "--until"))
    return first, stop


def time_of(text: str, word: str) -> int:
    """Nanoseconds since 1970: a time (ISO 8601), or so long ago (10m)."""
    if re.fullmatch(r"\d+[smhdw]", text):
        return time_ns() - seconds_of(text, word) * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{word} is a time such as 2026-03-01T12:00:00, or 10m ago, not {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e9)


def _frames(
    args: argparse.Namespace, archive: Archive, first: int | None, stop: int | None, progress: Progress, over: Event
) -> Iterator[Frame]:
    def on_loss(loss: Loss) -> None:
        progress.note(f"ordercast replay: {loss}")

    fail = not args.allow_loss
    if not args.follow:
        yield from archive.frames(first, stop, fail_on_loss=fail, on_loss=on_loss)
        return
    for frame in archive.follow(first, fail_on_loss=fail, on_loss=on_loss, is_over=over.is_set):
        if stop is None or frame.head.first < stop:
            yield frame
        if stop is not None and frame.stop >= stop:
            return


def _print(args: argparse.Namespace, frames: Iterator[Frame], first: int | None, stop: int | None) -> int:
    for frame in frames:
        write = sys.stdout.write
        for record in frame.records(first, stop):
            write(_json(record) if args.json else line_of(record))
        if args.follow:
            sys.stdout.flush()
    return 0


def line_of(record: Record) -> str:
    """What is printed of a message; the help lists the columns."""
    at = datetime.fromtimestamp(record.timestamp / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    type_ = f" type {record.type}" if record.type else ""
    return f"{record.position} {at}Z {record.sender} {record.number} {record.service}{type_} {_shown(record.value)}\n"


def _shown(value: bytes) -> str:
    text = value[:SHOWN_BYTES].decode(errors="backslashreplace")
    text = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return text if len(value) <= SHOWN_BYTES else f"{text}… ({len(value)} bytes)"


def _json(record: Record) -> str:
    fields: dict[str, Any] = record._asdict()
    try:
        fields["value"] = record.value.decode()
    except UnicodeDecodeError:
        del fields["value"]
        fields["value_base64"] = base64.b64encode(record.value).decode()
    return json.dumps(fields, ensure_ascii=False) + "\n"


async def _send(
    args: argparse.Namespace, frames: Iterator[Frame], first: int | None, stop: int | None, progress: Progress
) -> int:
    """Send what is read, in its order; ends when all of it is delivered."""
    anticipate = check_anticipate(args.orderer, args.anticipate)
    loop = asyncio.get_running_loop()
    sent, began_s = 0, monotonic()
    try:
        async with node_of(args) as node:
            group = await node.join(args.into, orderer=args.orderer, anticipate=anticipate, timeout=JOIN_TIMEOUT_S)
            draining = asyncio.create_task(_drain(group))
            given = SERVICES[group.config.orderer]
            # In a thread: the archive's disk, or its recorder, may be slow.
            while (frame := await loop.run_in_executor(None, next, frames, None)) is not None:
                runs = groupby(frame.records(first, stop), key=lambda record: (record.service, record.type))
                for (service, type_), records in runs:
                    if service.partition("(")[0] not in given:
                        service = "SAFE" if "SAFE" in given else "AGREED"
                    values = [record.value for record in records]
                    # Confirmed: the order is kept where the service changes, and memory is bounded by a frame.
                    await group.send_many(values, parse_service(service), type_, confirm=True)
                    sent += len(values)
                    progress.live([f"{sent:,} messages sent to {args.into}"], f"{sent:,} messages sent to {args.into}")
            draining.cancel()
    except (OrdercastError, TimeoutError) as error:
        if isinstance(error, UsageError):
            raise
        progress.note(f"ordercast replay: {error}; {sent:,} messages were sent")
        return 1
    finally:
        if args.follow:
            progress.note(f"{sent:,} messages were sent to {args.into}")
    print(f"{sent:,} messages sent to {args.into} in {monotonic() - began_s:.1f} s")
    return 0


async def _drain(group: Group) -> None:
    """Receive this member's own copies: a member that does not receive blocks the group."""
    with suppress(OrdercastError):
        async for _ in group.batches():
            pass
