"""A token group whose datagrams are read off the wire, and lost on purpose: what the tests of RMP share.

Every hop takes 0.1 ms and processors take no time, so that what follows from what can be told by the clock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from tests.paper.group import Lab

from ordercast.config import LOOPBACK_DATAGRAM, SECOND, GroupConfig, Timing
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.checkers import check_all
from ordercast.sim.datagrams import Arrival
from ordercast.sim.network import Network, NetworkModel
from ordercast.sim.world import World
from ordercast.view import View, node_id
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, Kind
from ordercast.wire.ordering import Assignment, Missing, decode_nak
from ordercast.wire.token import State, decode_list, decode_state, decode_token
from ordercast.wire.views import open_change

T = TypeVar("T")
L = TypeVar("L", bound="Taped")

HOP_NS = 100_000
QUICK = NetworkModel("quick", latency_ns=HOP_NS)
# Nobody is suspected for silence: where a test wants to see what retries alone bring about, or only counts.
PATIENT = Timing(suspect_busy_ns=1_000 * SECOND, suspect_rest_ns=1_000 * SECOND)
CARRIES_TOKEN = (Kind.TOKEN, Kind.ORDERED, Kind.LIST)
"""The paper's ACKs: they pass the token. ORDERED has a block beside the places, LIST a view."""
TELLS_STATE = (*CARRIES_TOKEN, Kind.SYNC, Kind.CONFIRM)


class Word(NamedTuple):
    """One transmission."""

    at_ns: int
    source: str
    targets: tuple[str, ...]  # one, or all whom a multicast reaches
    kind: Kind
    ring: int
    origin: int
    number: int
    body: bytes

    @property
    def state(self) -> State:
        """Where the token is, of those kinds that tell."""
        body = decode_list(self.body)[0] if self.kind in (Kind.LIST, Kind.ORDERED) else self.body
        return decode_state(body)[0]

    @property
    def assignments(self) -> list[Assignment]:
        """What an ACK orders."""
        return decode_token(decode_list(self.body)[0] if self.kind in (Kind.LIST, Kind.ORDERED) else self.body)[1]

    @property
    def view(self) -> View:
        """Of a New List."""
        return open_change(decode_list(self.body)[1])

    @property
    def nack(self) -> tuple[int, list[Missing]]:
        """Who is to answer (0: everybody), and what is missing."""
        _, target, missing = decode_nak(self.body)
        return target, missing


Loses = Callable[[Word, str], bool]
"""Whether a transmission is lost on its way to this one of its targets."""


class Tape(Network):
    """A network that remembers what crossed it. `loses` says what does not arrive."""

    __slots__ = ("_ring", "last", "loses", "words")

    def __init__(self, model: NetworkModel, rng: random.Random) -> None:
        super().__init__(model, rng)
        self.words: list[Word] = []
        self.last = State(0, 0, 0, 0, 0, ())  # of the ring that was heard last, its latest pass
        self._ring = 0
        self.loses: Loses | None = None

    def transmit(self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int) -> list[Arrival]:
        _, kind, _, _, _, ring, origin, number = HEADER.unpack_from(data)
        body = bytes(data[HEADER_BYTES : stride or len(data)])
        word = Word(leave_ns, source, tuple(sorted(targets)), Kind(kind & ~FORWARD), ring, origin, number, body)
        self.words.append(word)
        self._follow(word)
        if self.loses is not None:
            targets = [target for target in targets if not self.loses(word, target)]
        return super().transmit(leave_ns, source, targets, data, stride)

    def _follow(self, word: Word) -> None:
        """Where the token is."""
        if word.kind in TELLS_STATE and (word.ring != self._ring or word.state.turn >= self.last.turn):
            self._ring, self.last = word.ring, word.state


class Taped(Lab):
    """Members a, b, c, … of one group, what they say, and what they deliver when."""

    def __init__(self, node: Simulation, tape: Tape) -> None:
        super().__init__(node)
        self.tape = tape

    def names(self, index: int) -> str:
        """The members, in the order of the ring, as one of them sees them."""
        return "".join(member.name for member in self.groups[index].members)

    def name_of(self, member: int) -> str:
        return next((name for name in "abcdefgh" if node_id(name, 0) == member), "")

    def said(self, *kinds: Kind, by: str = "") -> list[Word]:
        """What crossed the wire since `open`, or since the tape was cleared."""
        return [word for word in self.tape.words if word.kind in kinds and (not by or word.source == by)]

    def forget(self) -> None:
        self.tape.words.clear()

    def lose(self, loses: Loses | None) -> None:
        self.tape.loses = loses

    def has(self, name: str, payload: bytes) -> bool:
        """Whether this member's application has been given the message."""
        return payload in self.seen["abcdefgh".index(name)].payloads

    def who_has(self, payload: bytes) -> str:
        return "".join(name for name, seen in zip("abcdefgh", self.seen, strict=False) if payload in seen.payloads)

    def delivered_ns(self, name: str, sender: str, first: int) -> int:
        """When a message was delivered, by the trace."""
        rows = [
            row for row in self.world.rows() if (row.kind, row.node, row.sender) == ("deliver", name, f"{sender}/0")
        ]
        for row in rows:
            if (row.first or 0) <= first < (row.first or 0) + (row.count or 0):
                return row.at_ns
        raise AssertionError(f"{name} has not delivered message {first} of {sender}")


class Ring(Taped):
    """Of one token group, in this order in the ring."""

    async def open(self, count: int, *, timing: Timing | None = None, datagram: int = 0, **terms: Any) -> None:
        """The group, quiet, with the token at rest at the first member."""
        config = GroupConfig(datagram=datagram or LOOPBACK_DATAGRAM)
        # Of two members the first lets the third in, directly after itself: so that one is b.
        for name in ["a", *(["c", "b"] if count > 2 else ["b"]), *"defgh"][:count]:
            if name != "a":
                await self.bring_token_to("a" if name in "bc" else chr(ord(name) - 1))  # a newcomer comes in after it
            await self.join(name, config=config, timing=timing, orderer="token", **terms)
        if count > 2:
            kept: tuple[list[Any], ...] = (self.nodes, self.groups, self.seen, self._readers)
            for each in kept:
                each[1], each[2] = each[2], each[1]
        await self.bring_token_to("a")
        assert all(self.names(index) == "abcdefgh"[:count] for index in range(count))
        self.forget()

    async def bring_token_to(self, name: str) -> None:
        """Each message passes the token on, how far depends on its sender; at the end it rests."""
        for turn in range(20):
            await asyncio.sleep(1.5)
            if self.site in (name, ""):  # nobody: it never went anywhere
                return
            await self.groups[turn // 4 % len(self.groups)].send(b"turn", confirm=True)
        raise AssertionError(f"the token never rests at {name}")

    @property
    def site(self) -> str:
        """Who holds the token, as far as it was said."""
        return self.name_of(self.tape.last.site)

    @property
    def view_id(self) -> str:
        """Of the view that the first member is in."""
        view = self.groups[0].view
        return view.id if view is not None else ""


def in_ring(
    program: Callable[[Ring], Coroutine[Any, Any, T]],
    *,
    network: NetworkModel = QUICK,
    seed: int | str = "paper",
    quiet: bool = True,
) -> T:
    """Run a program and judge its trace. `quiet`: it ends at rest, and nothing may be left undone."""
    return on_tape(program, Ring, Tape, network=network, seed=seed, quiet=quiet)


def on_tape(
    program: Callable[[L], Coroutine[Any, Any, T]],
    kind: Callable[[Simulation, Tape], L],
    tape_of: Callable[[NetworkModel, random.Random], Tape],
    *,
    network: NetworkModel = QUICK,
    seed: int | str = "paper",
    quiet: bool = True,
) -> T:
    world = World(seed, network)
    tape = tape_of(network, world.stream("network"))
    world.network = tape

    async def run(node: Simulation) -> T:
        lab = kind(node, tape)
        result = await program(lab)
        tape.loses = None
        tape.heal()
        await asyncio.sleep(5)
        return result

    result = simulate(run, world=world)
    verdict = check_all(world.rows(), clock="virtual", quiet=quiet)
    assert verdict.held, "\n".join(verdict.summary())
    return result
