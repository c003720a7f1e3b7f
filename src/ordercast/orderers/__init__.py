"""The ordering disciplines, by the names that `join(orderer=…)` takes."""

from typing import Final

from ordercast.config import REGIONS_ORDERER, SITES_ORDERER, GroupConfig
from ordercast.orderers.orderer import LoggedOrderer, Orderer
from ordercast.orderers.sequencer import Sequencer
from ordercast.orderers.timestamp import Timestamp
from ordercast.orderers.token import Token
from ordercast.parts.window import POLICIES

ORDERERS: Final[dict[str, type[LoggedOrderer]]] = {"sequencer": Sequencer, "token": Token, "timestamp": Timestamp}

__all__ = ["ORDERERS", "LoggedOrderer", "Orderer", "unsupported_names"]


def unsupported_names(config: GroupConfig) -> str:
    """Which discipline that a group's parameters name is none of this version's; empty where it has them all.

    `sites` is none of `ORDERERS`: it has no log, and its engine is another one (`underlay/sites/`)."""
    if config.orderer == SITES_ORDERER:
        return "orderer='sites' needs a node with a configuration of sites: Node(NAME, site='east', sites='wan.toml')"
    if config.orderer == REGIONS_ORDERER:
        return "groups with orderer='regions' have no underlay of their own: join them without underlay="
    for word, name, known in (("orderer", config.orderer, ORDERERS), ("flow control", config.flow, POLICIES)):
        if name not in known:
            others = (
                f", and {SITES_ORDERER!r} on nodes of sites, {REGIONS_ORDERER!r} with a service"
                if known is ORDERERS
                else ""
            )
            return f"unknown {word} {name!r}; this version has {', '.join(map(repr, known))}{others}"
    return ""
