"""`ordercast bench`: throughput, CPU and latency between real processes on loopback, and the floor of the same run."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final

from ordercast.cli.arguments import decimal, whole
from ordercast.cli.children import Child, ChildFailed, Saying
from ordercast.cli.choices import add_choices, service_of
from ordercast.cli.load import MAX_SIZE, MIN_SIZE
from ordercast.cli.local_sites import settings_of_sites
from ordercast.cli.progress import Progress, table
from ordercast.config import LOOPBACK_DATAGRAM, MAX_DATAGRAM, MIN_DATAGRAM, REGIONS_ORDERER, SITES_ORDERER
from ordercast.errors import UsageError
from ordercast.sim.scenario import check_anticipate
from ordercast.trace.run import software_version

HELP: Final = "measure throughput, CPU and latency between real processes on this machine"
DESCRIPTION: Final = (
    "Starts member processes on loopback, with their traces on, and measures: the batch API (send_many, batches()) at "
    "full load, the per-message API (async for event in group; senders still use send_many), latency at full load and "
    "with one 100-byte message at a time, and the floor: the same sockets, blocks and application with a plain credit "
    "window, without ordering or repair. Every message is sliced to its own bytes and its first and last byte are "
    "read, which also checks the order. CPU is user + system of all members by deliveries at all members. Services "
    "without order are sent one at a time every 2 ms. With --groups every member is in that many groups, and what "
    "they cost is measured: to join them, memory, sockets and CPU at rest. On a shared underlay messages go round "
    "robin over all of them, in turn with phases in which all go to one group, three times. Their names are looked up "
    "once (`resolve`); one more phase gives names to each call. Then a newcomer comes in. Groups on regions share the "
    "underlay of all regions; the members bring the membership service along. Exit code 1 if "
    "anything was misordered, or, unless it was UNRELIABLE, lost."
)
EXAMPLES: Final = """examples:
  ordercast bench
      four members, one of them sends 100-byte messages, AGREED, by the rotating token
  ordercast bench --senders all --size 1000 --members 8
      all of eight send messages of 1 KB
  ordercast bench --orderer sequencer
      the same with a sequencer, which is not the one that sends
  ordercast bench --orderer timestamp --no-anticipate --senders all
      all send, and the timestamp orderer is plain ABCAST
  ordercast bench --datagram 1400 --service SAFE --seconds 10
      datagrams as on Ethernet, delivered when every member holds the message
  ordercast bench --groups 100000 --underlay shared
      a hundred thousand groups on one underlay, and one group beside them
  ordercast bench --orderer regions --senders all --groups 100000
      a hundred thousand groups on regions, and one group beside them
  ordercast bench --groups 200 --members 2
      what 200 groups with underlays of their own cost
  ordercast bench --json | jq '{delivered_per_s, cpu_us_per_delivery, ratio_to_floor}'
      the numbers for a program"""

MEMBER: Final = "ordercast.cli.bench_member"
MAX_MEMBERS: Final = 32
MIN_SECONDS: Final = 0.1
MAX_SECONDS: Final = 3_600.0
START_TIMEOUT_S: Final = 30.0
MAX_GROUPS: Final = 1_000_000
ROUNDS: Final = 3  # in which one group and all groups are measured in turn; the median counts
MAX_OWN_GROUPS: Final = 500  # each has sockets of its own
JOIN_TIMEOUT_S: Final = 300.0
SETTLE_S: Final = 1.0
REST_S: Final = 3.0
PHASE_TIMEOUT_S: Final = 60.0
NEWCOMER: Final = "newcomer"
SITES_BUFFERS: Final = 4 << 20  # of a daemon of sites


@dataclass(slots=True)
class Parameters:
    """What was asked for, checked."""

    orderer: str
    members: int
    senders: str
    size: int
    service: str
    seconds: float
    datagram: int
    anticipate: bool
    groups: int = 1
    is_shared: bool = False
    is_traced: bool = True


@dataclass(slots=True)
class PhaseResult:
    """What one phase gave, over all members."""

    per_s: float  # delivered, mean of the receivers
    slowest_per_s: float
    cpu_us: float  # for each delivery
    rss_bytes: tuple[int, int]  # of the largest member, at the beginning and at the end
    lost: int
    misordered: int
    drops: int
    datagrams: dict[str, int]
    latencies_ns: list[int]  # at members that do not send; where all send, at all
    own_latencies_ns: list[int]  # at the senders


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast bench`."""
    parser.description = DESCRIPTION
    add_choices(parser, "what every message asks for")
    parser.add_argument(
        "--members", type=whole(2, MAX_MEMBERS), default=4, help=f"member processes, 2 to {MAX_MEMBERS} (4)"
    )
    parser.add_argument(
        "--senders", default="1", choices=["1", "all"], help="one, which did not create the group, or all of them (1)"
    )
    parser.add_argument(
        "--size",
        type=whole(MIN_SIZE, MAX_SIZE),
        default=100,
        help=f"bytes of a message, {MIN_SIZE} to {MAX_SIZE} (100)",
    )
    parser.add_argument(
        "--seconds", type=decimal(MIN_SECONDS, MAX_SECONDS), default=5.0, help="how long the batch API is measured (5)"
    )
    parser.add_argument(
        "--datagram",
        type=whole(MIN_DATAGRAM, MAX_DATAGRAM),
        default=LOOPBACK_DATAGRAM,
        help=f"largest datagram in bytes ({LOOPBACK_DATAGRAM})",
    )
    parser.add_argument("--groups", type=whole(1, MAX_GROUPS), default=1, help="groups that every member is in (1)")
    parser.add_argument(
        "--underlay",
        choices=["own", "shared"],
        default="own",
        help=f"of each group its own (at most {MAX_OWN_GROUPS} groups), or one that all groups share (own)",
    )
    parser.add_argument("--trace", type=Path, default=None, metavar="DIR", help="keep the members' traces here")
    parser.add_argument("--no-trace", action="store_true", help="run the members without traces")
    parser.add_argument(
        "--profile", type=Path, default=None, metavar="DIR", help="run the members under cProfile (slow), one file each"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def run(args: argparse.Namespace) -> int:
    """Measure and report."""
    parameters = parameters_of(args)
    for folder in (args.trace, args.profile):
        if folder is not None:
            make_folder(folder)
    progress = Progress()
    trace = Path(tempfile.mkdtemp(prefix="ordercast-bench-")) if args.trace is None else args.trace.resolve()
    profile = "" if args.profile is None else str(args.profile.resolve())
    try:
        result = asyncio.run(measure(parameters, trace, profile, progress))
    except ChildFailed as error:
        if args.json:
            print(json.dumps({"error": str(error), "parameters": asdict(parameters)}, indent=2))
        print(f"ordercast bench: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()
        if args.trace is None:
            shutil.rmtree(trace, ignore_errors=True)
    print(json.dumps(result, indent=2) if args.json else "\n".join(report(result)))
    may_lose = parameters.service == "UNRELIABLE"
    return 1 if result["misordered"] or (result["lost"] and not may_lose) else 0


def parameters_of(args: argparse.Namespace) -> Parameters:
    """The parameters that the flags ask for; `UsageError` says what is wrong with them."""
    if args.no_trace and args.trace is not None:
        raise UsageError("--trace keeps traces, and --no-trace makes none: leave one of them out")
    is_shared = args.underlay == "shared" or args.orderer == REGIONS_ORDERER
    if args.groups > MAX_OWN_GROUPS and not is_shared:
        raise UsageError(f"{args.groups} groups with underlays of their own are too many: add --underlay shared")
    return Parameters(
        args.orderer,
        args.members,
        args.senders,
        args.size,
        service_of(args),
        float(args.seconds),
        args.datagram,
        check_anticipate(args.orderer, args.anticipate),
        args.groups,
        is_shared,
        not args.no_trace,
    )


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be a folder: {error.strerror}") from error


async def measure(parameters: Parameters, trace: Path, profile: str, progress: Progress) -> dict[str, Any]:
    """Start the members, run the phases, put the numbers together."""
    bench = _Bench(parameters, progress)
    try:
        await bench.start(trace, profile)
        result = await bench.measure(trace)
        await asyncio.gather(*(child.end() for child in bench.children))
    finally:
        await asyncio.gather(*(child.kill() for child in bench.children))
    return result


class _Bench:
    """The member processes, and the phases that they go through together."""

    __slots__ = ("_members", "_parameters", "_progress", "_sent", "_sites", "children")

    def __init__(self, parameters: Parameters, progress: Progress) -> None:
        self.children: list[Child] = []
        self._parameters = parameters
        self._progress = progress
        self._members: dict[str, str] = {}  # name -> name/life
        self._sent: dict[str, int] = {}  # messages of each in the phases before
        self._sites: dict[str, Any] | None = None  # one site with all daemons, where that is what orders
        if parameters.orderer == SITES_ORDERER:
            names = [f"m{number + 1}" for number in range(parameters.members)]
            self._sites = settings_of_sites(f"bench-{os.getpid()}", {"here": [*names, NEWCOMER]})

    async def start(self, trace: Path, profile: str) -> None:
        self._progress.note(f"starting {self._parameters.members} members")
        for number in range(self._parameters.members):
            child = await self._start(f"m{number + 1}", trace, profile, create=number == 0)
            self._members[child.name] = (await child.expect("joined", START_TIMEOUT_S))["member"]
        if self._sites is not None:
            await self._gather()

    async def _gather(self) -> None:
        """Wait until all are in one view."""
        await self._all("gather", "gathered", START_TIMEOUT_S, members=len(self.children))

    async def _start(self, name: str, trace: Path, profile: str, *, create: bool) -> Child:
        parameters = self._parameters
        settings = {
            "name": name,
            "group": f"bench-{os.getpid()}",
            "create": create,
            "trace": str(trace) if parameters.is_traced else None,
            "profile": profile,
            "orderer": parameters.orderer,
            "anticipate": parameters.anticipate,
            "size": parameters.size,
            "service": parameters.service,
            "datagram": parameters.datagram,
            "is_shared": parameters.is_shared,
            "sites": self._sites,
            "buffers": SITES_BUFFERS,
        }
        child = await Child.start(name, MEMBER, settings)
        self.children.append(child)
        return child

    async def measure(self, trace: Path) -> dict[str, Any]:
        parameters, children = self._parameters, self.children
        seconds = parameters.seconds
        # The first member has created the group: where there is a sequencer, it is the first.
        single = [children[1]]
        senders = children if parameters.senders == "all" else single
        many = await self._enter_groups() if parameters.is_shared or parameters.groups > 1 else None
        is_compared = parameters.is_shared and parameters.groups > 1
        ones, alls = await self._rounds(senders, ROUNDS if is_compared else 0)
        batch, messages = alls[0]
        alone = await self._phase("single", single, min(2.0, seconds / 2), "one message at a time")
        ordered = [*(phase for each in (*ones, *alls) for phase in each), alone]
        if many is not None and ones:
            text = "batch API, groups by name, flat out"
            by_name = await self._phase("by name", senders, min(2.0, seconds / 2), text)
            ordered.append(by_name)
            many["one_group_per_s"] = round(median([one.per_s for one, _ in ones]))
            many["one_group_per_message_api_per_s"] = round(median([one.per_s for _, one in ones]))
            many["one_group_cpu_us_per_delivery"] = round(median([one.cpu_us for one, _ in ones]), 3)
            many["cpu_us_per_delivery"] = round(median([each.cpu_us for each, _ in alls]), 3)
            many["ratios_to_one_group"] = [ratio(each[0], one[0]) for each, one in zip(alls, ones, strict=True)]
            many["ratio_to_one_group"] = middle(many["ratios_to_one_group"])
            many["per_message_api_ratio_to_one_group"] = middle(
                [ratio(each[1], one[1]) for each, one in zip(alls, ones, strict=True)]
            )
            many["by_name_per_s"] = round(by_name.per_s)
            many["by_name_ratio_to_one_group"] = ratio(by_name, ones[-1][0])
            many["newcomer_s"] = await self._let_in(trace)
        floor = await self._phase("floor", senders, min(3.0, seconds / 2), "floor: no ordering, no repair")
        return {
            "delivered_per_s": round(batch.per_s),
            "slowest_receiver_per_s": round(batch.slowest_per_s),
            "mb_per_s": round(batch.per_s * parameters.size / 1e6, 1),
            "cpu_us_per_delivery": round(batch.cpu_us, 3),
            "latency_us": {
                "loaded": percentiles(batch.latencies_ns),
                "single": percentiles(alone.latencies_ns),
                "single_at_sender": percentiles(alone.own_latencies_ns),
            },
            "lost": sum(phase.lost for phase in ordered),
            "misordered": sum(phase.misordered for phase in ordered),
            "socket_drops": sum(phase.drops for phase in ordered),
            "repairs": sum(phase.datagrams.get("repair", 0) for phase in ordered),
            "per_message_api_per_s": round(messages.per_s),
            "floor_per_s": round(floor.per_s),
            "floor_cpu_us_per_delivery": round(floor.cpu_us, 3),
            "ratio_to_floor": ratio(batch, floor),
            "datagrams": batch.datagrams,
            "memory_mb": {
                "start": round(batch.rss_bytes[0] / 1e6, 1),
                "end": round(batch.rss_bytes[1] / 1e6, 1),
            },
            "groups": many,
            "parameters": {
                **asdict(parameters),
                "gc": "frozen after start-up",
                "trace": parameters.is_traced,
                "python": sys.version.split()[0],
                "cpus": os.cpu_count(),
                "software_version": software_version(),
            },
        }

    async def _rounds(
        self, senders: list[Child], rounds: int
    ) -> tuple[list[list[PhaseResult]], list[list[PhaseResult]]]:
        """Phases with one group and with all groups in turn: what else the machine does befalls both. Without rounds,
        all groups once."""
        ones: list[list[PhaseResult]] = []
        alls: list[list[PhaseResult]] = []
        for _ in range(max(rounds, 1)):
            if rounds:
                ones.append([await self._phase(*each, groups=1) for each in self._loads(senders, " to one group")])
            alls.append([await self._phase(*each) for each in self._loads(senders, "")])
        return ones, alls

    def _loads(self, senders: list[Child], where: str) -> list[tuple[str, list[Child], float, str]]:
        """The phases at full load."""
        seconds = self._parameters.seconds
        return [
            ("batch", senders, seconds, f"batch API{where}, flat out"),
            ("messages", senders, min(2.0, seconds / 2), f"per-message API{where}, flat out"),
        ]

    async def _enter_groups(self) -> dict[str, Any]:
        """All members join all groups, side by side, and then rest."""
        parameters, count = self._parameters, self._parameters.groups
        self._progress.note(f"joining {count:,} groups")
        if parameters.is_shared:
            await self._all("receive", "receiving")
        told = await self._all("join", "in", JOIN_TIMEOUT_S, count=count)
        if parameters.orderer == REGIONS_ORDERER:
            await self._gather()  # nobody sends to a member that it does not know
        await self._wait(min(SETTLE_S, parameters.seconds), "the groups come to rest")
        begin = await self._all("mark", "mark")
        await self._wait(min(REST_S, parameters.seconds), "at rest")
        end = await self._all("mark", "mark")
        return {
            "count": count,
            "underlay": "shared" if parameters.is_shared else "own",
            "join_s": round(max(said["seconds"] for said in told), 3),
            "bytes_per_group": round(
                max(after["rss_bytes"] - said["rss_bytes"] for said, after in zip(told, end, strict=True)) / count
            ),
            "sockets": max(said["sockets"] for said in told),
            "rest_cpu_percent": [
                round(100e9 * (after["cpu_s"] - before["cpu_s"]) / (after["at_ns"] - before["at_ns"]), 2)
                for before, after in zip(begin, end, strict=True)
            ],
        }

    async def _let_in(self, trace: Path) -> float:
        """How long it takes a new process to come into the underlay, and into one of the groups."""
        await self._all("receive", "receiving")
        newcomer = await self._start(NEWCOMER, trace, "", create=False)
        self._progress.note("a newcomer comes in")
        seconds = (await newcomer.expect("joined", JOIN_TIMEOUT_S))["seconds"]
        seconds += (await newcomer.ask("join", "in", JOIN_TIMEOUT_S, count=1))["seconds"]
        self.children.remove(newcomer)
        await newcomer.kill()
        return float(round(seconds, 3))

    async def _phase(
        self, phase: str, senders: list[Child], seconds: float, text: str, groups: int | None = None
    ) -> PhaseResult:
        children = self.children
        self._progress.note(f"{text}, {seconds:g} s")
        keys = {child.name: self._members[child.name] for child in children}
        order: Saying = {"phase": phase, "groups": groups if groups is not None else self._parameters.groups}
        if phase == "floor":
            opened = await self._all("open_floor", "floor", group=f"bench-floor-{os.getpid()}")
            order["addresses"] = {child.name: said["address"] for child, said in zip(children, opened, strict=True)}
            keys = {child.name: child.name for child in children}
        order["senders"] = [keys[child.name] for child in senders]
        order["begins"] = {key: self._sent.get(key, 0) for key in order["senders"]}
        await self._all("prepare", "ready", **order)
        for child in senders:
            child.tell("go")
        await asyncio.gather(*(child.expect("flowing", PHASE_TIMEOUT_S) for child in children))
        await asyncio.sleep(min(0.5, seconds / 10))  # slow start is not what is measured
        begin = await self._all("mark", "mark")
        await self._wait(seconds, text)
        end = await self._all("mark", "mark")
        for child in senders:
            child.tell("finish")
        sent = {keys[child.name]: (await child.expect("sent", PHASE_TIMEOUT_S))["count"] for child in senders}
        for key, count in sent.items():
            self._sent[key] = self._sent.get(key, 0) + count + 1  # and the message that said it was the end
        drained = [await child.expect("drained", PHASE_TIMEOUT_S) for child in children]
        return phase_of(begin, end, drained, sent, [child in senders for child in children])

    async def _all(self, word: str, answer: str, timeout_s: float = PHASE_TIMEOUT_S, **fields: Any) -> list[Saying]:
        return list(await asyncio.gather(*(child.ask(word, answer, timeout_s, **fields) for child in self.children)))

    async def _wait(self, seconds: float, text: str) -> None:
        stop_s = monotonic() + seconds
        while (left_s := stop_s - monotonic()) > 0:
            self._progress.live([f"  {left_s:.0f} s to go"], f"{text}: {left_s:.0f} s to go")
            await asyncio.sleep(min(1.0, left_s))


def phase_of(
    begin: list[Saying], end: list[Saying], drained: list[Saying], sent: dict[str, int], is_sender: list[bool]
) -> PhaseResult:
    """The numbers of one phase out of what its members said."""
    deliveries = [after["delivered"] - before["delivered"] for before, after in zip(begin, end, strict=True)]
    times_s = [(after["at_ns"] - before["at_ns"]) / 1e9 for before, after in zip(begin, end, strict=True)]
    rates = [count / time_s for count, time_s in zip(deliveries, times_s, strict=True)]
    cpu_s = sum(after["cpu_s"] - before["cpu_s"] for before, after in zip(begin, end, strict=True))
    datagrams: dict[str, int] = {}
    for said in drained:
        for kind, count in said["datagrams"].items():
            datagrams[kind] = datagrams.get(kind, 0) + count
    # Where members disagree about the order of blocks, no single one of them can be called the wrong one.
    disagreeing = len({said["digest"] for said in drained}) - 1
    others = [said for said, sends in zip(drained, is_sender, strict=True) if not sends]
    return PhaseResult(
        per_s=sum(rates) / len(rates),
        slowest_per_s=min(rates),
        cpu_us=cpu_s * 1e6 / max(1, sum(deliveries)),
        rss_bytes=(max(said["rss_bytes"] for said in begin), max(said["rss_bytes"] for said in end)),
        lost=sum(abs(count - said["received"][sender]) for said in drained for sender, count in sent.items()),
        misordered=sum(said["misordered"] for said in drained) + disagreeing,
        drops=sum(said["drops"] for said in drained),
        datagrams=datagrams,
        latencies_ns=[each for said in others or drained for each in said["latencies_ns"]],
        own_latencies_ns=[
            each for said, sends in zip(drained, is_sender, strict=True) if sends for each in said["latencies_ns"]
        ],
    )


def ratio(phase: PhaseResult, other: PhaseResult) -> float | None:
    """What one phase delivers, in parts of what another does."""
    return round(phase.per_s / other.per_s, 3) if other.per_s else None


def middle(ratios: Iterable[float | None]) -> float | None:
    """The median of those that were measured."""
    measured = [each for each in ratios if each is not None]
    return round(median(measured), 3) if measured else None


def percentiles(latencies_ns: Iterable[int]) -> dict[str, float | None]:
    """p50 and p99 in microseconds; None where nothing was measured."""
    ordered = sorted(latencies_ns)
    if not ordered:
        return {"p50": None, "p99": None}
    return {f"p{share}": round(ordered[len(ordered) * share // 100] / 1e3, 1) for share in (50, 99)}


def report(result: dict[str, Any]) -> list[str]:
    """The numbers for people."""
    parameters = result["parameters"]
    latency = result["latency_us"]

    def both(which: str) -> str:
        return f"p50 {latency[which]['p50']:,} us, p99 {latency[which]['p99']:,} us"

    rows = [
        ("batch API, each receiver", f"{result['delivered_per_s']:,} messages/s, {result['mb_per_s']:,} MB/s"),
        ("CPU, all members", f"{result['cpu_us_per_delivery']} us for each delivered message"),
        ("floor, each receiver", f"{result['floor_per_s']:,} messages/s, {result['floor_cpu_us_per_delivery']} us"),
        ("share of the floor", f"{result['ratio_to_floor']}"),
        ("per-message API, each receiver", f"{result['per_message_api_per_s']:,} messages/s"),
        ("latency flat out", both("loaded")),
        ("latency one at a time", both("single")),
        ("the same, back at its sender", both("single_at_sender")),
        ("lost, misordered", f"{result['lost']}, {result['misordered']}"),
        ("socket drops, repairs", f"{result['socket_drops']}, {result['repairs']}"),
        (
            "memory of the largest member",
            f"{result['memory_mb']['start']} MB, at the end {result['memory_mb']['end']} MB",
        ),
        ("datagrams of the batch API", ", ".join(f"{kind} {n:,}" for kind, n in sorted(result["datagrams"].items()))),
    ]
    rows += group_rows(result["groups"]) if result["groups"] is not None else []
    variant = "" if parameters["anticipate"] else " without anticipation"
    return [
        f"{parameters['orderer']}{variant}: {parameters['members']} members, {parameters['senders']} sending, "
        f"{parameters['size']} bytes, {parameters['service']}, datagrams up to {parameters['datagram']} bytes, "
        f"{parameters['seconds']:g} s{'' if parameters['trace'] else ', no traces'}",
        *(f"  {line}" for line in table(rows)),
    ]


def group_rows(many: dict[str, Any]) -> list[tuple[str, str]]:
    """What many groups cost."""
    rest = ", ".join(f"{share:g}" for share in many["rest_cpu_percent"])
    rows = [
        (f"{many['count']:,} groups, underlay", many["underlay"]),
        ("all of them joined after", f"{many['join_s']:g} s"),
        ("memory for each group and member", f"{many['bytes_per_group']:,} bytes"),
        ("sockets of a member", f"{many['sockets']}"),
        ("CPU at rest, each member", f"{rest} % of a processor"),
    ]
    if "newcomer_s" in many:
        each = f"{many['one_group_per_s']:,} and {many['one_group_per_message_api_per_s']:,} messages/s"
        shares = f"{many['ratio_to_one_group']} and {many['per_message_api_ratio_to_one_group']}"
        cpu = f"{many['one_group_cpu_us_per_delivery']} and {many['cpu_us_per_delivery']}"
        by_name = f"{many['by_name_per_s']:,} messages/s, {many['by_name_ratio_to_one_group']}"
        rows += [
            ("one group, batch and per-message API", each),
            ("CPU, all members, one group and all", f"{cpu} us for each delivered message"),
            ("share of one group with all groups", shares),
            ("batch API by name, all groups, share", by_name),
            ("a newcomer is in after", f"{many['newcomer_s']:g} s"),
        ]
    return rows
