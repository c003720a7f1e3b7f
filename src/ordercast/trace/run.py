"""`run.json`: what a trace is a trace of (docs/trace.md).

A simulated run is named by its parameters and starts at the epoch, so that the same command writes the same bytes on
any machine, on any day and under any PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ordercast.trace.cells import TraceGarbled
from ordercast.trace.schema import CONTINUE, QUORUM

FILE_NAME: Final = "run.json"
EPOCH: Final = "1970-01-01T00:00:00+00:00"
SOURCES: Final = ("sim", "network")
CLOCKS: Final = ("virtual", "one-host", "many")
RUN_ID_DIGITS: Final = 16
MAX_FILE_BYTES: Final = 1 << 20  # a longer file is not one that this program wrote


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run. `clock_offset_ns` plus CLOCK_MONOTONIC gives the run clock of the rows; 0 in simulation."""

    run_id: str
    started: str
    source: str
    clock: str
    seed: int | None
    orderer: str
    services: tuple[str, ...]
    parameters: dict[str, Any]
    software_version: str
    clock_offset_ns: int = 0

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"a run comes from {' or '.join(SOURCES)}, not from {self.source!r}")
        if self.clock not in CLOCKS:
            raise ValueError(f"the clock of a run is one of {', '.join(CLOCKS)}, not {self.clock!r}")
        # What is written must equal what is read back, so tuples become lists here and not at the first reader.
        object.__setattr__(self, "parameters", json.loads(canonical_json(self.parameters)))
        object.__setattr__(self, "services", tuple(self.services))

    @classmethod
    def simulated(cls, *, seed: int, orderer: str, services: Iterable[str], parameters: Mapping[str, Any]) -> RunInfo:
        """A simulated run, named by what it was asked to do."""
        version = software_version()
        chosen, given = tuple(services), dict(parameters)
        asked = {
            "seed": seed,
            "orderer": orderer,
            "services": chosen,
            "parameters": given,
            "software_version": version,
        }
        run_id = hashlib.sha256(canonical_json(asked).encode()).hexdigest()[:RUN_ID_DIGITS]
        return cls(run_id, EPOCH, "sim", "virtual", seed, orderer, chosen, given, version)

    @property
    def partitions(self) -> str:
        """`continue` where every part of a partition goes on and merges again, as the parameters say."""
        return CONTINUE if self.parameters.get("partitions") == CONTINUE else QUORUM

    def write(self, folder: Path) -> Path:
        """Write `run.json` into the trace folder, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        path.write_text(json.dumps(asdict(self), sort_keys=True, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, folder: Path) -> RunInfo:
        """Read `run.json` of a trace folder; `TraceGarbled` if it is not what `write` writes."""
        path = folder / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(f"{folder} is not a trace: it has no {FILE_NAME}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TraceGarbled(f"{path} is longer than {MAX_FILE_BYTES} bytes")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise TraceGarbled(f"{path} is not JSON: {error}") from error
        expected = {field.name for field in fields(cls)}
        if not isinstance(found, dict) or found.keys() != expected:
            raise TraceGarbled(f"{path} must have exactly the keys {', '.join(sorted(expected))}")
        for name, kinds in _KINDS_OF_VALUES.items():
            if not isinstance(found[name], kinds) or isinstance(found[name], bool):
                raise TraceGarbled(f"{path}: {name} has the wrong type")
        if not all(isinstance(service, str) for service in found["services"]):
            raise TraceGarbled(f"{path}: services must be names")
        try:
            return cls(**found)
        except ValueError as error:
            raise TraceGarbled(f"{path}: {error}") from error


def parameters_of_sites(sites: Mapping[str, str], parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of a run whose daemons are arranged in sites: `sites` says in which one each daemon is."""
    if not sites or not all(daemon and site for daemon, site in sites.items()):
        raise ValueError("sites name the site of each daemon by its node's name, and there is at least one")
    return {**(parameters or {}), "sites": dict(sorted(sites.items())), "partitions": CONTINUE, "min_members": 1}


_KINDS_OF_VALUES: Final[dict[str, tuple[type, ...]]] = {
    "run_id": (str,),
    "started": (str,),
    "source": (str,),
    "clock": (str,),
    "seed": (int, type(None)),
    "orderer": (str,),
    "services": (list,),
    "parameters": (dict,),
    "software_version": (str,),
    "clock_offset_ns": (int,),
}


def canonical_json(value: object) -> str:
    """One text for one value: sorted keys, no spaces, ASCII only; ValueError for what JSON cannot say exactly."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the parameters of a run must be plain JSON values: {error}") from error


def software_version() -> str:
    """The installed version, or a word that says that it is not installed."""
    try:
        return metadata.version("ordercast")
    except metadata.PackageNotFoundError:
        return "not installed"
