"""The simulated application on one node: a program that joins a group, sends and receives.

It sends what it is given, held back by back-pressure and by a group that has failed. It takes events at once, late or
not at all, calls `reset` after failures where recovery is manual, and joins again after it was excluded. It remembers
what it saw and checks the bytes of every message, because the trace knows numbers only. What it does with locks and
handlers is in `holding.py`. Callers, which never join, are in `calling.py`.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ordercast.config import MS, SECOND, MinMembers
from ordercast.engine import Failed, Transitional
from ordercast.errors import GroupFailed, NotMember
from ordercast.groups.calls import Asked
from ordercast.groups.events import Batch, CallBatch, Left, Request, Uncertain
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.status import Resumed, Stalled
from ordercast.service import Service, parse_service
from ordercast.sim.application import HostStack, boot_host, is_intact, payload
from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.stuck import Wish
from ordercast.sim.fencing import TokensSeen
from ordercast.sim.holding import Holding, answer_to
from ordercast.sim.inspection import peaks
from ordercast.sim.resets import ResetCall
from ordercast.sim.world import Machine
from ordercast.view import View

if TYPE_CHECKING:
    from ordercast.sim.cluster import Cluster

REOPEN_NS: Final = 250 * MS  # an application that was thrown out, or refused, waits this long before it joins again
RESET_SPREAD_NS: Final = 400 * MS  # applications notice a failure within this time of one another
RESET_AGAIN_NS: Final = 2 * SECOND
OFFER_MESSAGES: Final = 512  # made at a time, as the queue may refuse them
MAX_CORRUPT: Final = 10  # corrupt messages that are described; more are only counted


class _Order:
    """Messages that the application wants to send and has not been able to; with a handler, calls."""

    __slots__ = ("count", "handler", "is_confirmed", "patience_ns", "service", "size")

    def __init__(
        self, count: int, service: Service, size: int, is_confirmed: bool, handler: int = -1, patience_ns: int = 0
    ) -> None:
        self.count = count
        self.service = service
        self.size = size
        self.is_confirmed = is_confirmed
        self.handler = handler
        self.patience_ns = patience_ns


@dataclass(slots=True)
class Seen:
    """What an application saw over all its lives; `log` is of the present life."""

    delivered: int = 0
    delivered_by: Counter[str] = field(default_factory=Counter)
    log: list[tuple[str, int, int]] = field(default_factory=list)  # (sender, first, count)
    confirmed: int = 0
    uncertain: int = 0
    failures: int = 0  # of the group, where recovery is manual
    answers: int = 0  # to own calls
    peak_bytes: int = 0  # the most that an engine held and could not yet free, where it says so
    peak_blocks: int = 0
    corruptions: list[str] = field(default_factory=list)  # the first of them, in words
    resets: list[ResetCall] = field(default_factory=list)
    tokens: TokensSeen = field(default_factory=TokensSeen)


class SimMember:
    """The application on one node, through all its lives."""

    __slots__ = (
        "_asked",
        "_cluster",
        "_created",
        "_has_reset_in_vain",
        "_is_number_next",
        "_is_reset_planned",
        "_is_take_planned",
        "_orders",
        "_rng",
        "group",
        "heirs",
        "holding",
        "host",
        "is_stalled",
        "is_wanted",
        "node",
        "on_event",
        "port",
        "resets_by_itself",
        "rule",
        "seen",
        "take_delay_ns",
        "wishes",
    )

    def __init__(
        self, cluster: Cluster, node: Machine, take_delay_ns: int, rule: MinMembers | None, group: str | None = None
    ) -> None:
        self._cluster = cluster
        self.node = node
        self.group = cluster.terms.group if group is None else group
        self.rule: MinMembers = cluster.terms.min_members if rule is None else rule
        self._rng: random.Random = cluster.world.stream(f"application/{node.name}")
        # the present life
        self.host: Host | None = None
        self.port: Port | None = None
        self._orders: deque[_Order] = deque()
        self._asked: dict[int, Asked] = {}  # own calls that have no answer yet, by their number
        self.holding = Holding(self)
        self._created = 0  # messages made in this life
        self._is_take_planned = False
        self._is_reset_planned = False
        self._has_reset_in_vain = False
        self._is_number_next = False  # what it asks for next where its rule is the size of its view
        # how it behaves
        self.take_delay_ns = take_delay_ns
        self.is_stalled = False
        self.is_wanted = True  # False after a leave: it does not come back by itself
        self.resets_by_itself = True
        self.on_event: Callable[[SimMember, Any], None] | None = None
        self.seen = Seen()
        self.wishes: dict[int, list[Wish]] = {}  # what it asked for, by the life of the node
        self.heirs: set[int] = set()  # lives that began with what the one before had kept

    def __str__(self) -> str:
        return str(self.node)

    @property
    def view(self) -> View | None:
        return self.port.view if self.port is not None and self.port.is_member else None

    @property
    def is_in(self) -> bool:
        return self.node.is_up and self.view is not None

    @property
    def delivered(self) -> int:
        """Messages that the application got, over all lives."""
        return self.seen.delivered

    @property
    def waiting(self) -> int:
        """Messages that the application still wants to hand over."""
        return sum(order.count for order in self._orders)

    @property
    def asked(self) -> int:
        """Own calls that the application still waits for."""
        return len(self._asked)

    # Life. -----------------------------------------------------------------------------------------------------------

    def boot(self, node: Machine) -> HostStack:
        """A new life begins, and joins."""
        cluster, terms = self._cluster, self._cluster.terms
        if node.folder:
            self.heirs.add(node.life)
        self.host = boot_host(cluster.world, node, terms.timing, cluster.engines, terms.directory)
        self.port = None
        self._orders.clear()
        self._created = 0
        self._is_take_planned = self._is_reset_planned = self._has_reset_in_vain = self._is_number_next = False
        self._asked = {}
        self.holding.begin()
        self.seen.log = []
        self.seen.tokens.on_left()
        self.is_wanted = True
        node.after_pass = self.turn
        self._open()
        return HostStack(self.host)

    def _open(self) -> None:
        host, world, terms = self.host, self._cluster.world, self._cluster.terms
        if host is None:
            return
        self.port = host.open(
            world.clock(self.node),
            self.group,
            config=terms.config,
            create=terms.create,
            min_members=self.rule,
            recovery=terms.recovery,
        )
        world.listen(self.node, self.port.underlay)
        world.wake(self.node)
        self._note_wish(is_join=True)

    def _note_wish(self, *, is_join: bool) -> None:
        self.wishes.setdefault(self.node.life, []).append(Wish(self._cluster.world.clock(self.node), is_join))

    def touch(self) -> None:
        """The application did something with its port: have a pass run."""
        if self.host is not None and self.port is not None and self.node.is_up:
            self.host.touch(self.port)
            self._cluster.world.wake(self.node)

    def after(self, delay_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        """Call `action(argument)` in a while, if this life of the node is still there."""
        life = self.node.life

        def act(_: None) -> None:
            if self.node.is_up and self.node.life == life:
                action(argument)

        self._cluster.world.after(delay_ns, act)

    # What it is told to do. ------------------------------------------------------------------------------------------

    def send(self, count: int, service: Service | str, size: int, is_confirmed: bool = False) -> None:
        """Send as soon as the group takes it; nothing if the node is down."""
        if self.node.is_up and count:
            asked = parse_service(service) if isinstance(service, str) else service
            self._orders.append(_Order(count, asked, size, is_confirmed))
            self._cluster.world.wake(self.node)

    def call(self, count: int, service: Service | str, size: int, handler: int, patience_ns: int) -> None:
        """Ask the holder of a handler, as soon as the group takes it; nothing if the node is down."""
        if self.node.is_up and count:
            asked = parse_service(service) if isinstance(service, str) else service
            self._orders.append(_Order(count, asked, size, False, handler, patience_ns))
            self._cluster.world.wake(self.node)

    def leave(self) -> None:
        self.is_wanted = False
        self._orders.clear()
        if self.node.is_up and self.host is not None and self.port is not None and self.port.gone is None:
            self.host.leave(self.port)
            self._cluster.world.wake(self.node)
            self._note_wish(is_join=False)

    def rejoin(self) -> None:
        """Come back in the same life; nothing if it never left, or is still on its way out."""
        self.is_wanted = True
        if self.node.is_up and self.port is not None and self.port.gone is not None:
            self._open()

    def reset(self, min_members: MinMembers | None = None) -> None:
        host, port = self.host, self.port
        if not self.node.is_up or host is None or port is None or not port.is_member or port.gone is not None:
            return
        if port.is_leaving:
            return
        now_ns, rule = self._cluster.world.clock(self.node), self._needed() if min_members is None else min_members
        host.reset(now_ns, port, rule)
        self.seen.resets.append(ResetCall(str(self), now_ns, rule))
        self._cluster.world.wake(self.node)

    @property
    def is_expelled(self) -> bool:
        """It was put out for good, and joins again as soon as it has taken notice of that."""
        return (
            self.is_wanted
            and self.port is not None
            and self.port.gone is not None
            and self.port.gone.text.startswith("expelled")
        )

    def expel(self, name: str) -> None:
        """Have the group go on without the node of this name, if this one and that one are in it."""
        host, port = self.host, self.port
        if not self.node.is_up or host is None or port is None or port.gone is not None or self.view is None:
            return
        expelled = next((member for member in self.view.members if member.name == name), None)
        if expelled is None or expelled.id == port.me.id:
            return
        port.engine.expel(self._cluster.world.clock(self.node), expelled.id, "it was asked for", port.channel.out)
        host.touch(port)
        self._cluster.world.wake(self.node)

    def _needed(self) -> MinMembers:
        """What its rule means for its view. `reset` takes a number as it is: more than the view has is never met, and a
        leave that nobody has delivered may have made the view smaller. A join that nobody has delivered may have made
        it larger, and the newcomer may be gone: then all are too many. So it asks for the one and the other in turn."""
        is_all = isinstance(self.rule, int) and self.view is not None and self.rule >= len(self.view.members)
        return "all" if is_all and not self._is_number_next else self.rule

    def stall(self) -> None:
        self.is_stalled = True

    def unstall(self) -> None:
        self.is_stalled = False
        if self.node.is_up:
            self._cluster.world.wake(self.node)

    # Its turn. -------------------------------------------------------------------------------------------------------

    def turn(self, now_ns: int) -> None:
        """After every pass of the node: take what came, send what waits, ask for a pass if that made work."""
        host, port, world, node = self.host, self.port, self._cluster.world, self.node
        if host is None or port is None:
            return
        host.take_news()
        if port.settled:
            self._settle(port)
        if port.resets:
            self._on_resets(port)
        if port.calls.settled:
            self._on_answers(port)
        self.holding.turn()
        peak_bytes, peak_blocks = peaks(port.engine)
        self.seen.peak_bytes = max(self.seen.peak_bytes, peak_bytes)
        self.seen.peak_blocks = max(self.seen.peak_blocks, peak_blocks)
        if port.has_events and not self.is_stalled:
            if not self.take_delay_ns:
                self._take(port)
            elif not self._is_take_planned:
                self._is_take_planned = True
                world.at(now_ns + self.take_delay_ns, self._take_late, node.life)
        has_offered = self._offer() if self._orders else False
        if has_offered or port.has_consumed:
            host.touch(port)
            world.wake(node)

    def _take_late(self, life: int) -> None:
        if life != self.node.life or not self.node.is_up:
            return
        self._is_take_planned = False
        if self.host is not None and self.port is not None and not self.is_stalled:
            self._take(self.port)
            self.host.touch(self.port)
            self._cluster.world.wake(self.node)

    def _take(self, port: Port) -> None:
        while (event := port.take()) is not None:
            if isinstance(event, Batch):
                self._on_batch(event)
            elif isinstance(event, View):
                self._has_reset_in_vain = False
                self.seen.tokens.on_view(str(self), event)
            elif isinstance(event, Failed):
                self.seen.failures += 1
                self._plan_reset(self._rng.randrange(RESET_SPREAD_NS))
            elif isinstance(event, Left):
                self._on_left(event)
            elif isinstance(event, Uncertain):
                self.seen.uncertain += event.count
            elif not isinstance(event, Transitional | Stalled | Resumed):
                raise TypeError(f"an application cannot know {event!r}")
            if self.on_event is not None:
                self.on_event(self, event)

    def _on_batch(self, batch: Batch) -> None:
        self.seen.delivered += batch.count
        self.seen.delivered_by[batch.sender] += batch.count
        self.seen.log.append((batch.sender, batch.first, batch.count))
        messages = batch.messages
        if isinstance(batch, CallBatch):
            if isinstance(batch.message, Request):
                self.holding.on_request(batch.message)
            elif batch.message.answers is not None:
                # An asker that left before this member came is known here by its number only.
                asker, number = batch.message.answers
                right = answer_to(asker, number) if "/" in asker else f"#{number}".encode()
                if not batch.message.payload.endswith(right):
                    self._report_corrupt(f"{batch!r} is an answer to another call than {batch.message.answers}")
                return
        if len(messages) != batch.count or not all(is_intact(data, batch.sender) for data in messages):
            self._report_corrupt(f"{batch!r} has {len(messages)} messages, or bytes that nobody sent")

    def _report_corrupt(self, text: str) -> None:
        if len(self.seen.corruptions) < MAX_CORRUPT:
            self.seen.corruptions.append(f"{self}: {text}")

    def _on_left(self, left: Left) -> None:
        self.seen.tokens.on_left()
        if left.returning:
            return
        if self.is_wanted:
            # A rejoin that was asked for while the leave was under way, or a program that insists.
            self._cluster.world.after(0 if left.wanted else REOPEN_NS, self._reopen, self.node.life)

    def _reopen(self, life: int) -> None:
        if life == self.node.life and self.node.is_up and self.is_wanted:
            self.rejoin()

    def _plan_reset(self, delay_ns: int) -> None:
        """Where recovery is manual somebody has to call `reset`, and again if it finds too few."""
        if self._cluster.terms.recovery != "manual" or self._is_reset_planned or not self.resets_by_itself:
            return
        self._is_reset_planned = True
        self._cluster.world.after(delay_ns, self._reset_if_failed, self.node.life)

    def _on_resets(self, port: Port) -> None:
        now_ns = self._cluster.world.clock(self.node)
        for reset in port.resets:
            self._has_reset_in_vain = not reset.size
            self._is_number_next = self._has_reset_in_vain and not self._is_number_next
            for call in self.seen.resets:
                if call.ended_ns == FOREVER and call.member == str(self) and reset.rule in (None, call.rule):
                    call.ended_ns, call.size = now_ns, reset.size
        port.resets = ()
        if self._has_reset_in_vain:
            self._plan_reset(RESET_AGAIN_NS + self._rng.randrange(RESET_SPREAD_NS))

    def _reset_if_failed(self, life: int) -> None:
        if life != self.node.life or not self.node.is_up:
            return
        self._is_reset_planned = False
        if self.port is not None and (self.port.failure is not None or self._has_reset_in_vain):
            self.reset()
            self._plan_reset(RESET_AGAIN_NS + self._rng.randrange(RESET_SPREAD_NS))

    def _on_answers(self, port: Port) -> None:
        for asked in port.calls.settled:
            if self._asked.pop(asked.number, None) is None or asked.answer is None:
                continue
            self.seen.answers += 1
            if asked.answer != answer_to(str(self), asked.number):
                self._report_corrupt(f"the answer to call {asked.number} is {asked.answer!r}")
        port.calls.settled.clear()

    def _give_up(self, asked: Asked) -> None:
        """Nobody answered: the handler is free, its holder is gone, or is one that never answers."""
        if self._asked.pop(asked.number, None) is not None and self.port is not None:
            self.port.calls.forget(asked)

    def _settle(self, port: Port) -> None:
        for watch in port.settled:
            if watch.error is None:
                self.seen.confirmed += watch.stop - watch.first
        port.settled.clear()

    def _offer(self) -> bool:
        """Hand over what the queue takes; True if it took anything."""
        port, orders, me = self.port, self._orders, str(self.node)
        if port is None or port.view is None:
            return False
        has_offered = False
        while orders and port.has_room:
            order = orders[0]
            try:
                port.check(order.size, order.service, 0)
            except (GroupFailed, NotMember):
                break
            first = port.end_number
            if order.handler >= 0:
                asked = port.call(payload(me, self._created, order.size), order.service, order.handler)
                taken = int(asked is not None)
                if asked is not None:
                    self._asked[asked.number] = asked
                    self.after(order.patience_ns, self._give_up, asked)
            else:
                count = min(order.count, OFFER_MESSAGES)
                payloads = [payload(me, self._created + index, order.size) for index in range(count)]
                taken = port.offer_many(payloads, order.service)
            if not taken:
                break
            has_offered = True
            self._created += taken
            if order.is_confirmed:
                port.watch(first, first + taken, order.service)
            order.count -= taken
            if not order.count:
                orders.popleft()
        return has_offered
