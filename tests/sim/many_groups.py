"""Programs on a few nodes that come into many groups of one underlay, send there and leave them, while nodes and links
fail: what the tests of shared underlays let chance do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from ordercast.config import MS, SECOND, GroupConfig, MinMembers, Timing
from ordercast.errors import NotMember
from ordercast.groups.calls import Asked
from ordercast.groups.events import Batch, Message, Request
from ordercast.groups.host import Host
from ordercast.groups.locks import LockRequest
from ordercast.groups.port import Port
from ordercast.groups.requests import PendingReply
from ordercast.groups.session import Session
from ordercast.service import AGREED, CAUSAL, FIFO, RELIABLE, SAFE, Service
from ordercast.sim.application import HostStack, boot_host
from ordercast.sim.checkers import check_all
from ordercast.sim.network import LAN
from ordercast.sim.world import Machine, World

UNDERLAY = "floor"
SERVICES = (AGREED, AGREED, AGREED, SAFE, FIFO, RELIABLE)
LOCKS = ("red", "blue")
HANDLER = 3
POPULAR = 4  # groups that most programs are in, where locks and handlers are wanted by several
Step = Callable[[], None]
Call = tuple[str, int]  # its sender and number


class Program:
    """One node. It receives where the news of its host say that something has happened, and nowhere else."""

    def __init__(
        self, world: World, name: str, config: GroupConfig, min_members: MinMembers, groups: list[str], rng: Random
    ) -> None:
        self.world = world
        self.config = config
        self.min_members = min_members
        self.groups = groups
        self.rng = rng
        self.is_based = rng.random() < 0.5 or min_members == "majority"  # it has a base port
        self.is_fed = self.is_based and rng.random() < 0.5  # and receives there
        self.got: list[Message] = []
        self.claims: list[tuple[Port, LockRequest]] = []
        self.asked: list[Asked] = []
        self.answered = 0
        self.taken: set[Call] = set()  # calls that came to it as the holder of their handler
        self.lost: set[Call] = set()  # those that it could not answer any more
        self.node = world.add(name, self.boot)
        world.start(name)

    def boot(self, node: Machine) -> HostStack:
        self.host: Host = boot_host(self.world, node, Timing(), None)
        self.base: Port | None = None
        self.claims = []
        self.asked = []
        self.lost |= self.taken  # answers go with a crash
        self.world.listen(node, UNDERLAY)
        if self.is_based:
            self.base = self.host.attach(self.now_ns(node), UNDERLAY, config=self.config, min_members=self.min_members)
            if self.is_fed:
                self.base.stream.feed()
        for group in self.rng.sample(self.groups, 3):
            self.join(group, node)
        node.after_pass = self.turn
        return HostStack(self.host)

    def now_ns(self, node: Machine | None = None) -> int:
        return self.world.clock(node if node is not None else self.node)

    @property
    def session(self) -> Session:
        return self.host.session

    @property
    def ports(self) -> list[Port]:
        """Those that messages may be offered to."""
        return [port for port in self.session.ports.values() if not port.is_leaving and port.failure is None]

    def turn(self, _now_ns: int) -> None:
        has_consumed = False
        for port in self.host.take_news():
            assert isinstance(port, Port)
            port.take_settled()
            while (event := port.take()) is not None:
                if isinstance(event, Batch):
                    for message in event.each():
                        self.got.append(message)
                        if isinstance(message, Request) and isinstance(message.owed, PendingReply):
                            self.taken.add((message.sender, message.number))
                            if not self.answer(message.group, message.owed):
                                self.lost.add((message.sender, message.number))
            has_consumed = has_consumed or port.has_consumed
            if has_consumed and port.gone is None:
                self.host.touch(port)
        if has_consumed:
            self.world.wake(self.node)

    def answer(self, group: str, owed: PendingReply) -> bool:
        """This program held the handler at the place of the call. False: it is leaving the group, or was out since."""
        port = self.session.ports.get(group)
        if port is None or port.view is None or port.is_leaving:
            return False
        try:
            is_answered = port.answer(owed, b"yes")
        except NotMember:
            return False
        self.answered += is_answered
        self.wake(port)
        return is_answered

    def wake(self, port: Port) -> None:
        self.host.touch(port)
        self.world.wake(self.node)

    # What it does by chance

    def act(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.25:
            self.join(rng.choice(self.groups[:POPULAR] if rng.random() < 0.4 else self.groups))
        elif chance < 0.4 and self.session.ports:
            port = rng.choice(list(self.session.ports.values()))
            self.host.leave(port, b"bye", is_ordered=rng.random() < 0.3)
            self.wake(port)
        elif chance < 0.5 and self.config.orderer == "token":
            self.lock()
        elif chance < 0.7:
            self.send_to()
        else:
            self.send(rng.choice((*SERVICES, CAUSAL) if self.config.orderer == "token" else SERVICES))

    def join(self, group: str, node: Machine | None = None) -> None:
        here = node if node is not None else self.node
        channel = next((port.channel for port in self.host.ports), None)
        if group in self.session.ports or (channel is not None and channel.is_leaving):
            return
        port = self.host.open(
            self.now_ns(here),
            group,
            config=self.config,
            min_members=self.min_members,
            header=b"hi",
            underlay=UNDERLAY,
        )
        if node is None:
            self.wake(port)

    def send(self, service: Service) -> None:
        """A few messages to any of its groups, which share blocks."""
        ports = self.ports
        for _ in range(self.rng.randint(1, 8) if ports else 0):
            port = self.rng.choice(ports)
            size = 100_000 if self.rng.random() < 0.02 else self.rng.randint(0, 200)
            number = port.offer(self.payload(port, size), service)
            if number >= 0 and self.rng.random() < 0.2:
                port.watch(number, number + 1, service)
            self.wake(port)

    def send_to(self) -> None:
        """To groups that it need not be in."""
        ports = self.ports if self.base is None else [*self.ports, self.base]
        port = self.rng.choice(ports) if ports else None
        if port is not None and port.view is not None and port.failure is None:
            names = self.rng.sample(self.groups, self.rng.choice((1, 1, 2, 3)))
            size = 100_000 if self.rng.random() < 0.05 else 30
            port.stream.offer_to(names, self.payload(port, size), AGREED)
            self.wake(port)

    def lock(self) -> None:
        if self.claims and self.rng.random() < 0.6:
            port, claim = self.claims.pop(self.rng.randrange(len(self.claims)))
            if port.gone is None:
                port.locks.give_up(claim)
                self.wake(port)
        elif self.ports:
            port = self.rng.choice([each for each in self.ports if each.group in self.groups[:POPULAR]] or self.ports)
            chance = self.rng.random()
            if chance < 0.3:
                self.claims.append((port, port.serve(HANDLER)))
            elif chance < 0.6 and (asked := port.call(b"who is it?", AGREED, HANDLER)) is not None:
                self.asked.append(asked)
            else:
                self.claims.append((port, port.locks.claim(self.rng.choice(LOCKS), tries_once=chance < 0.8)))
            self.wake(port)

    def payload(self, port: Port, size: int) -> bytes:
        return f"{self.node}:{port.end_number}|".encode().ljust(size, b".")

    def settle(self) -> None:
        """Nothing that others would wait for remains."""
        for port, claim in self.claims:
            if port.gone is None:
                port.locks.give_up(claim)
                self.wake(port)
        self.claims = []


class Town:
    """All programs, and what happens to them.

    Either both sides of a partition go on, and members of one of them lose their roster when they meet. Or a majority
    does; then no node crashes or leaves the underlay, because the rest might be too few to go on.
    """

    def __init__(self, seed: int, orderer: str, *, steps: int = 80, groups: int = 50) -> None:
        self.seed = seed
        self.orderer = orderer
        self.rng = rng = Random(f"{seed} {orderer}")
        self.world = world = World(seed, replace(LAN, loss=rng.choice((0.0, 0.01, 0.05))))
        self.steps = steps
        names = [f"g{number}" for number in range(groups)]
        config = GroupConfig(orderer=orderer)
        self.min_members: MinMembers = rng.choice((1, 1, "majority"))
        self.programs = [
            Program(world, name, config, self.min_members, names, Random(f"{seed} {orderer} {name}"))
            for name in "abcde"[: rng.randint(3, 5)]
        ]
        self.faults = self._faults()

    def _faults(self) -> dict[int, Step]:
        """By the step before which they happen: a crash and a restart, and a partition that heals."""
        rng, world = self.rng, self.world
        crash, part = sorted(rng.sample(range(10, self.steps - 30), 2))
        if rng.random() < 0.5:
            crash, part = part, crash
        victim = rng.choice(self.programs).node.name
        names = [program.node.name for program in self.programs]
        rng.shuffle(names)
        cut = rng.randint(1, len(names) - 1)
        faults: dict[int, Step] = {
            part: lambda: world.network.partition([names[:cut], names[cut:]]),
            part + rng.randint(5, 25): world.network.heal,
        }
        if self.min_members == 1:
            faults[crash] = lambda: world.crash(victim)
            faults[crash + rng.randint(5, 20)] = lambda: world.start(victim)
        return faults

    def run(self) -> None:
        world = self.world
        world.run_until(SECOND)
        for step in range(self.steps):
            if step in self.faults:
                self.faults[step]()
            for program in self.programs:
                if program.node.is_up and self.rng.random() < 0.6:
                    program.act()
            # Most steps follow one another at once; some leave time for a suspicion and a recovery.
            pause_ns = self.rng.choice((1, 3, 10, 30, 300)) * MS
            world.run_until(world.now_ns + (800 * MS if self.rng.random() < 0.1 else pause_ns))
        world.network.heal()
        world.network.set_model(LAN)
        for program in self.programs:
            if not program.node.is_up:
                world.start(program.node.name)
        world.run_to_rest(world.now_ns + 5 * SECOND)  # calls are answered, and locks granted
        for program in self.programs:
            program.settle()
        self.unrest = world.run_to_rest(world.now_ns + 120 * SECOND, self._parted)

    def _parted(self) -> list[str]:
        """Rings that have not met yet."""
        channels = [program.host.ports[0].channel for program in self.programs if program.host.ports]
        views = {channel.view.id for channel in channels if channel.view is not None}
        return [f"there are several rings: {', '.join(sorted(views))}"] if len(views) > 1 else []

    def _is_lost(self, call: Call) -> bool:
        """The holder of its handler was leaving or crashed when the call came to it: as in any group, no answer comes,
        and the caller's timeout ends its wait (tests/paper/test_rmp_calls.py)."""
        if any(call in program.taken for program in self.programs):
            return any(call in program.lost for program in self.programs)
        return any(program.node.life for program in self.programs)  # the holder has not seen it

    def judge(self) -> None:
        """Raise AssertionError with what is wrong."""
        again = f"Town({self.seed}, {self.orderer!r})"
        assert not self.unrest, f"{again}: {self.unrest[:6]}"
        verdict = check_all(self.world.rows(), clock="virtual", quiet=True, min_members=self.min_members)
        assert verdict.held, again + "\n" + "\n".join(verdict.summary())
        rosters: dict[str, object] = {}
        wanted: dict[str, set[int]] = {}
        for program in self.programs:
            host, here = program.host, f"{again}, {program.node}"
            if not host.ports:
                assert not host.underlays, f"{here}: it is in no group and has not left the underlay"
                continue
            channel = host.ports[0].channel
            assert channel.shared is not None
            assert not channel.consumption.receipts, f"{here}: something is not finished with"
            assert not channel.consumption.held_bytes, f"{here}: something is not finished with"
            assert not channel.leaving, f"{here}: something is still leaving"
            for asked in program.asked:
                is_settled = bool(asked.answer or asked.error) or self._is_lost((str(host.me), asked.number))
                assert is_settled, f"{here}: call {asked.number} has no answer"
            groups = channel.shared.roster.groups
            table = {name: (record.number, record.members, record.namers) for name, record in groups.items()}
            rosters.setdefault("first", table)
            assert rosters["first"] == table, f"{here}: its roster differs"
            for name in program.session.ports:
                wanted.setdefault(name, set()).add(host.me.id)
            for port in program.session.ports.values():
                assert port.view is not None
                assert [member.id for member in port.view.members] == [node for node, _ in table[port.group][1]], here
        for name, (_, members, _) in rosters.get("first", {}).items():  # type: ignore[attr-defined]
            assert {node for node, _ in members} == wanted.get(name, set()), f"{again}: members of {name}"
