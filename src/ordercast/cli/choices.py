"""The flags `--orderer`, `--anticipate` and `--service`, which `demo` and `bench` share."""

from __future__ import annotations

import argparse
from typing import Final

from ordercast.errors import UsageError
from ordercast.service import parse_service
from ordercast.sim.commands import add_orderer
from ordercast.sim.scenario import SERVICES

DEFAULT_SERVICE: Final = "AGREED"


def add_choices(parser: argparse.ArgumentParser, service_help: str) -> None:
    """Add these flags."""
    add_orderer(parser)
    parser.add_argument(
        "--service",
        default=DEFAULT_SERVICE,
        help=f"{service_help}: UNRELIABLE, RELIABLE, FIFO, CAUSAL, AGREED, RESILIENT(k), MAJORITY or SAFE "
        f"({DEFAULT_SERVICE}); the sequencer gives RELIABLE, FIFO, AGREED, RESILIENT(k), SAFE, timestamp also MAJORITY",
    )


def service_of(args: argparse.Namespace) -> str:
    """The service that the flags ask for; `UsageError` where it is none, or none of the orderer's."""
    try:
        service = str(parse_service(args.service))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if service.partition("(")[0] not in SERVICES[args.orderer]:
        raise UsageError(f"the {args.orderer} gives {', '.join(SERVICES[args.orderer])}, not {service}")
    return service
