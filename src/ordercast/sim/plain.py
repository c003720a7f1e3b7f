"""The scenario of `ordercast sim` with its flags: a person gives a few parameters, the rest is filled in."""

from __future__ import annotations

import random
import shlex
from typing import Any

from ordercast.config import MS, SECOND, SITES_ORDERER, MinMembers
from ordercast.errors import UsageError
from ordercast.service import parse_service
from ordercast.sim.faults import draw_faults
from ordercast.sim.scenario import (
    EVENT_LIMIT,
    MAX_NODES,
    SERVICES,
    SITE_SERVICES,
    Load,
    Scenario,
    anticipate_flags,
    check_anticipate,
    node_names,
)
from ordercast.sim.site_chance import draw_site_faults
from ordercast.sim.site_groups import MERGED_NS
from ordercast.sim.topology import load_topology


def plain_scenario(
    *,
    seed: int = 0,
    orderer: str = "sequencer",
    nodes: int = 5,
    messages: int = 2_000,
    size: int = 100,
    service: str = "AGREED",
    senders: int = 0,
    seconds: float = 0.0,
    network: str = "",
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    datagram: int = 1_400,
    crash: int = 0,
    restart: int = 0,
    pause: int = 0,
    partition: int = 0,
    cut: int = 0,
    slow: int = 0,
    stall: int = 0,
    leave: int = 0,
    min_members: MinMembers = "majority",
    recovery: str = "automatic",
    has_multicast: bool = True,
    anticipate: bool | None = None,
    topology: str = "",
    cut_pipe: int = 0,
    partition_sites: int = 0,
    split: int = 0,
    lossy_pipe: int = 0,
    narrow_pipe: int = 0,
) -> Scenario:
    """The scenario of the command's flags: `messages` spread evenly over all nodes (or the last `senders` of them, so
    that a single sender is not the first member) and over `seconds` of virtual time (0: a millisecond for each
    message, a second at least); faults fall into that time.

    `topology` is a file that says which sites there are: its daemons are the nodes, and every datagram to another site
    goes through a pipe. Only the orderer `sites` knows of that, and multicasts inside a site; with others there is no
    multicast.
    """
    given = dict(locals())
    sites = load_topology(topology) if topology else None
    nodes = len(sites.nodes) if sites is not None else nodes
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"a run has between 1 and {MAX_NODES} nodes, got {nodes}")
    counts_given = {"messages": messages, "size": size, "senders": senders, "seconds": seconds, "crash": crash}
    counts_given |= {"restart": restart, "pause": pause, "partition": partition, "cut": cut, "slow": slow}
    counts_given |= {"stall": stall, "leave": leave, "cut_pipe": cut_pipe, "partition_sites": partition_sites}
    counts_given |= {"split": split, "lossy_pipe": lossy_pipe, "narrow_pipe": narrow_pipe}
    for name, value in counts_given.items():
        if value < 0:
            raise UsageError(f"{name} is 0 or more, got {value}")
    if crash > nodes:
        raise UsageError(f"{crash} members cannot crash: the group has {nodes}")
    if restart > crash:
        raise UsageError(f"{restart} members cannot restart: {crash} of them crash")
    if senders > nodes:
        raise UsageError(f"{senders} members cannot send: the group has {nodes}")
    try:
        asked = str(parse_service(service)).partition("(")[0]
    except ValueError as error:
        raise UsageError(str(error)) from error
    services = SITE_SERVICES if orderer == SITES_ORDERER else SERVICES.get(orderer, ())
    if asked not in services:
        raise UsageError(f"the {orderer} gives {', '.join(services)}, not {asked}")
    anticipates = check_anticipate(orderer, anticipate)
    names = sites.nodes if sites is not None else node_names(nodes)
    load_ns = int(seconds * SECOND) or max(SECOND, messages * MS)
    speakers = names[-senders:] if senders else names
    counts = [messages // len(speakers) + (index < messages % len(speakers)) for index in range(len(speakers))]
    is_sited = orderer == SITES_ORDERER
    if is_sited and sites is None:
        raise UsageError("the orderer sites needs sites: give a topology, such as examples/wan.toml")
    if is_sited and (recovery != "automatic" or min_members not in ("majority", 1)):
        raise UsageError("every component of sites goes on by itself: leave out min_members and recovery")
    begin_ns = MERGED_NS if is_sited else SECOND  # by then the group has formed
    loads = tuple(
        Load(name, count, service, size, begin_ns + index * 10_000, max(1, load_ns // count))
        for index, (name, count) in enumerate(zip(speakers, counts, strict=True))
        if count
    )
    faults = draw_faults(
        random.Random(f"{seed}/faults"),
        names,
        begin_ns,
        begin_ns + load_ns,
        crash=crash,
        restart=restart,
        pause=pause,
        partition=partition,
        cut=cut,
        slow=slow,
        stall=stall,
        leave=leave,
    )
    site_counts = {"cut_pipe": cut_pipe, "partition_sites": partition_sites, "split": split}
    site_counts |= {"lossy_pipe": lossy_pipe, "narrow_pipe": narrow_pipe}
    if sites is not None:
        rng = random.Random(f"{seed}/site faults")
        faults += draw_site_faults(rng, sites, begin_ns, begin_ns + load_ns, **site_counts)
        faults.sort(key=lambda fault: fault.at_ns)
    elif any(site_counts.values()):
        asked = next(name for name, value in site_counts.items() if value).replace("_", "-")
        raise UsageError(f"{asked} is a fault of sites: give a topology, such as examples/wan.toml")
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        network=network or (sites.network if sites is not None else "lan"),
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        has_multicast=has_multicast and (sites is None or is_sited),
        datagram=datagram,
        anticipate=anticipates,
        min_members=1 if is_sited else min_members,
        recovery=recovery,
        topology=sites,
        loads=loads,
        faults=tuple(faults),
        event_limit=max(EVENT_LIMIT, messages * nodes * 100),
        command=_command(given),
    )


def _command(given: dict[str, Any]) -> str:
    defaults = plain_scenario.__kwdefaults__ or {}
    words = ["ordercast", "sim"]
    for name, value in given.items():
        flag = name.replace("_", "-")
        if name == "has_multicast":
            words += [] if value else ["--no-multicast"]
        elif name == "anticipate":
            words += anticipate_flags(value)
        elif value != defaults[name] or name in ("seed", "orderer"):
            words += [f"--{flag}", str(value)]
    return shlex.join(words)
