"""The options of source and sink, checked before anything begins. Names are those of Spark's Kafka source.

Spark hands over all options as texts, and names in any case. An unknown name is an error: a misspelt limit would
otherwise be no limit.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ordercast.api.transactions import MAX_BYTES
from ordercast.config import DEFAULT_ORDERER
from ordercast.errors import UsageError
from ordercast.service import RESILIENT, SAFE, Service, parse_service

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
Place = str | int
"""EARLIEST, LATEST, or a position."""

KAFKA_LATEST: Final = -1
KAFKA_EARLIEST: Final = -2

SOURCE: Final = (
    "path",
    "group",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minPartitions",
)
SINK: Final = (
    "group",
    "name",
    "host",
    "port",
    "peers",
    "contact",
    "insecure",
    "multicast",
    "orderer",
    "service",
    "create",
    "timeout",
    "stagingLocation",
    "maxTransactionBytes",
    "path",
    "checkpointLocation",
    "queryName",
    "outputMode",
)
COMMIT_TIMEOUT_S: Final = 120.0
STAGING: Final = "ordercast-staging"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Of `spark.read` and `spark.readStream`."""

    folder: Path
    group: str | None
    start: Place
    end: Place
    start_ns: int | None
    end_ns: int | None
    fail_on_loss: bool
    max_offsets: int | None
    min_partitions: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Of `df.write` and `df.writeStream`."""

    group: str
    name: str | None
    host: str
    port: int
    peers: tuple[str, ...]
    contact: str | None
    insecure: bool
    multicast: bool | None
    orderer: str
    service: Service
    create: bool | None
    timeout_s: float
    staging: Path
    max_bytes: int


def source_options(given: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Check the options of a source. Raises UsageError."""
    words = _Words(given, SOURCE)
    path = words.text("path")
    if path is None:
        raise UsageError('name the archive: .load("FOLDER"), or .option("path", "FOLDER")')
    group = words.text("group")
    limit = words.number("maxOffsetsPerTrigger", 1)
    if is_streaming:
        for word in ("endingOffsets", "endingTimestamp"):
            if words.text(word) is not None:
                raise UsageError(f"a stream has no end: {word} is for spark.read (Trigger.AvailableNow ends a stream)")
    elif limit is not None:
        raise UsageError("maxOffsetsPerTrigger is for spark.readStream; spark.read has endingOffsets")
    for one, other in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if words.text(one) is not None and words.text(other) is not None:
            raise UsageError(f"give {one} or {other}, not both")
    start = words.text("startingOffsets")
    end = words.text("endingOffsets")
    return SourceOptions(
        folder=local_path(path),
        group=group,
        # Kafka's defaults: a stream begins with what comes, a batch reads what there is.
        start=_place("startingOffsets", start, group, LATEST if is_streaming else EARLIEST),
        end=_place("endingOffsets", end, group, LATEST),
        start_ns=_milliseconds(words.number("startingTimestamp", 0)),
        end_ns=_milliseconds(words.number("endingTimestamp", 0)),
        fail_on_loss=words.flag("failOnDataLoss", True),
        max_offsets=limit,
        min_partitions=words.number("minPartitions", 1) or 1,
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a sink. Raises UsageError."""
    words = _Words(given, SINK)
    group = words.text("group")
    if not group:
        raise UsageError('name the group: .option("group", "NAME")')
    return SinkOptions(
        group=group,
        name=words.text("name"),
        host=words.text("host") or "127.0.0.1",
        port=words.number("port", 0) or 0,
        peers=tuple(peer for peer in (words.text("peers") or "").replace(",", " ").split() if peer),
        contact=words.text("contact"),
        insecure=words.flag("insecure", False),
        multicast=words.flag("multicast", False) if words.text("multicast") is not None else None,
        orderer=words.text("orderer") or DEFAULT_ORDERER,
        service=_service(words.text("service")),
        create=None if words.flag("create", False) else False,
        timeout_s=words.seconds("timeout", COMMIT_TIMEOUT_S),
        staging=_staging(words),
        max_bytes=words.number("maxTransactionBytes", 1) or MAX_BYTES,
    )


def local_path(text: str) -> Path:
    """A folder of this machine, or one that all machines see under the same name: a path, or a file: address."""
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif parts.scheme and parts.netloc:
        raise UsageError(f"{text!r}: only folders of a file system can be read and written, not {parts.scheme}://")
    return Path(os.path.abspath(os.path.expanduser(text)))


class _Words:
    """Options by name in any case."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        spelt = {name.lower(): name for name in known}
        unknown = sorted(key for key in given if key.lower() not in spelt)
        if unknown:
            raise UsageError(f"unknown option {', '.join(unknown)}; there are {', '.join(spelt.values())}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def number(self, name: str, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise UsageError(f"{name} is a whole number from {least} on, not {text!r}")
        return number

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            seconds = default if text is None else float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            raise UsageError(f"{name} is a number of seconds above 0, not {text!r}")
        return seconds

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{name} is true or false, not {text!r}")
        return text.lower() == "true"


def _place(word: str, text: str | None, group: str | None, default: Place) -> Place:
    """ "earliest", "latest", a position, or as Kafka has it: {"GROUP": 23}, {"GROUP": {"0": 23}}, -2 and -1."""
    if text is None:
        return default
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        if len(value) != 1:
            raise UsageError(f'{word}: an archive is of one group, so {text} names one, as in {{"prices": 23}}')
        ((named, value),) = value.items()
        if group is not None and named != group:
            raise UsageError(f"{word} speaks of the group {named!r}, and the option group of {group!r}")
        if isinstance(value, dict):
            value = value.get("0") if len(value) == 1 else None
        if value == KAFKA_EARLIEST:
            return EARLIEST
        if value == KAFKA_LATEST:
            return LATEST
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f'{word} is "earliest", "latest", a position, or {{"GROUP": POSITION}}, not {text!r}')
    return value


def _milliseconds(number: int | None) -> int | None:
    return None if number is None else number * 1_000_000


def _service(text: str | None) -> Service:
    try:
        service = SAFE if text is None else parse_service(text)
    except ValueError as error:
        raise UsageError(f"service: {error}") from None
    if service < RESILIENT(1):
        raise UsageError(
            f"service is SAFE, MAJORITY or RESILIENT(k): what Spark has committed must survive, not {text}"
        )
    return service


def _staging(words: _Words) -> Path:
    """Where tasks put what the driver publishes: as given, or in the checkpoint, or in the temporary folder.

    A batch that is run again is staged again, so the rows need not outlive the machine.
    """
    given = words.text("stagingLocation") or words.text("path")
    if given is not None:
        return local_path(given)
    checkpoint = words.text("checkpointLocation")
    if checkpoint is not None:
        return local_path(checkpoint) / STAGING
    return Path(tempfile.gettempdir()) / f"{STAGING}-{os.getuid()}"
