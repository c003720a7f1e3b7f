"""The flags `--orderer`, `--anticipate`, `--profile` and `--service`, which several commands share."""

from __future__ import annotations

import argparse
from typing import Final

from ordercast.config import DEFAULT_ORDERER, REGIONS_ORDERER, SITES_ORDERER
from ordercast.errors import UsageError
from ordercast.service import parse_service
from ordercast.sim.scenario import PROFILES, SERVICES, SESSIONS, SITE_SERVICES

DEFAULT_SERVICE: Final = "AGREED"
DEFAULT_ON_REGIONS: Final = "FIFO"  # the strongest that they have
REGION_SERVICES: Final = ("UNRELIABLE", "RELIABLE", "FIFO")


def add_orderer(parser: argparse.ArgumentParser, *, with_sites: bool = False, with_regions: bool = False) -> None:
    """Add the flags that say how a group orders; `check_anticipate` judges the second. `with_sites`: the command can
    have daemons of sites; `with_regions`: nodes on regions, and their membership service."""
    parser.add_argument(
        "--orderer",
        default=DEFAULT_ORDERER,
        choices=[*SERVICES, *([SITES_ORDERER] if with_sites else []), *([REGIONS_ORDERER] if with_regions else [])],
        help=f"the ordering discipline ({DEFAULT_ORDERER})",
    )
    parser.add_argument(
        "--anticipate",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="with the timestamp orderer: TOMPA, the default, or plain ABCAST",
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says what random scenarios are about."""
    parser.add_argument(
        "--profile",
        default=PROFILES[0],
        choices=(*PROFILES, SESSIONS),
        help="what random scenarios are about: everything, joins, leaves and failures around them, long waits, "
        "groups that are too small, or daemons and their clients (all)",
    )


def add_choices(parser: argparse.ArgumentParser, service_help: str) -> None:
    """Add these flags."""
    add_orderer(parser, with_sites=True, with_regions=True)
    parser.add_argument(
        "--service",
        default=None,
        help=f"{service_help}: UNRELIABLE, RELIABLE, FIFO, CAUSAL, AGREED, RESILIENT(k), MAJORITY or SAFE "
        f"({DEFAULT_SERVICE}, on regions {DEFAULT_ON_REGIONS}); the sequencer gives RELIABLE, FIFO, AGREED, "
        "RESILIENT(k), SAFE, timestamp also MAJORITY, regions UNRELIABLE, RELIABLE, FIFO",
    )


def service_of(args: argparse.Namespace) -> str:
    """The service that the flags ask for; `UsageError` where it is none, or none of the orderer's."""
    asked = args.service
    if asked is None:
        asked = DEFAULT_ON_REGIONS if args.orderer == REGIONS_ORDERER else DEFAULT_SERVICE
    try:
        service = str(parse_service(asked))
    except ValueError as error:
        raise UsageError(str(error)) from error
    others = {SITES_ORDERER: SITE_SERVICES, REGIONS_ORDERER: REGION_SERVICES}
    given = others.get(args.orderer) or SERVICES[args.orderer]
    if service.partition("(")[0] not in given:
        raise UsageError(f"the orderer {args.orderer} gives {', '.join(given)}, not {service}")
    return service
